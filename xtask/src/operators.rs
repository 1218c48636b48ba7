//! `cargo xtask operators`: writes docs/operators, a page for each operator, from what the code
//! says about it.

use crate::Result;
use crate::workspace::{files, root, shown};
use sardonyx_model::{Dim, Type};
use sardonyx_ops::{
    AttrType, AttrValue, Attributes, Call, DOMAIN_VERSIONS, OpDef, Registry, Schema, TypeVar,
};
use sardonyx_tensor::DataType;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write};
use std::fs;
use std::path::PathBuf;

/// Write the pages of operators, or check that they are up to date.
#[derive(clap::Args)]
pub(crate) struct Operators {
    /// Fail if the files are not what would be written.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(task: &Operators) -> Result {
    let directory = root().join("docs/operators");
    let pages: BTreeMap<PathBuf, String> =
        pages().into_iter().map(|(path, text)| (directory.join(path), text)).collect();
    let found = if directory.exists() { files(&directory, &[".md"])? } else { Vec::new() };
    let stale = found.iter().filter(|path| !pages.contains_key(*path));
    if task.check {
        let differs = |path: &&PathBuf| fs::read_to_string(path).ok().as_ref() != pages.get(*path);
        return match pages.keys().filter(differs).chain(stale).next() {
            None => Ok(()),
            Some(path) => {
                Err(format!("{} is out of date: cargo xtask operators", shown(path)).into())
            }
        };
    }
    for path in stale {
        fs::remove_file(path)?;
    }
    for (path, text) in &pages {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(path, text)?;
    }
    println!("{} pages", pages.len());
    Ok(())
}

/// The domain of operators that ONNX Runtime adds to the standard.
const MICROSOFT: &str = "com.microsoft";

/// All pages by their paths below the directory.
fn pages() -> BTreeMap<PathBuf, String> {
    let mut pages = BTreeMap::new();
    let mut top = "# Operators\n\nWritten by `cargo xtask operators`; do not edit. \
        Which of them run is in [coverage](../coverage.md).\n\nNumber of operators by domain:\n\n"
        .to_string();
    let registry = Registry::standard();
    // Those of ONNX Runtime's own domain come after the standard's.
    for (domain, newest) in DOMAIN_VERSIONS.iter().chain(&[(MICROSOFT, 1)]) {
        let directory = directory_of(domain);
        let listed = registry.operators().map(|op| (op, true));
        let added = registry.microsoft_operators().map(|op| (op, false));
        let of_domain = listed.chain(added).filter(|(op, is_standard)| {
            op.domain == *domain && *is_standard != (*domain == MICROSOFT)
        });
        let operators: Vec<&OpDef> = of_domain.map(|(op, _)| op).collect();
        let _ = writeln!(
            top,
            "- [{directory}]({directory}/README.md): {} at opset version {newest}",
            operators.len()
        );
        let mut index = format!(
            "# Operators of {directory}\n\nWritten by `cargo xtask operators`; do not edit.\n\n\
             | operator | versions | what it does |\n| --- | --- | --- |\n"
        );
        for op in operators {
            let name = op.name;
            let about = op.about.split_inclusive(". ").next().unwrap_or_default();
            let _ = writeln!(
                index,
                "| [{name}]({name}.md) | {} | {} |",
                versions(op),
                about.trim_end()
            );
            if let Some(schema) = op.schema_at(op.newest()) {
                let path = PathBuf::from(directory).join(name).with_extension("md");
                pages.insert(path, page(op, &schema));
            }
        }
        pages.insert(PathBuf::from(directory).join("README.md"), index);
    }
    pages.insert(PathBuf::from("README.md"), top);
    pages
}

fn directory_of(domain: &'static str) -> &'static str {
    match domain {
        "" => "ai.onnx",
        domain => domain,
    }
}

fn versions(op: &OpDef) -> String {
    let versions: Vec<_> = op.versions().map(|version| version.since.to_string()).collect();
    versions.join(" ")
}

fn page(op: &OpDef, schema: &Schema) -> String {
    let name = op.name;
    let deprecated = if schema.deprecated { ", deprecated" } else { "" };
    let mut text = format!(
        "# {name}\n\n{}\n\n[{}](README.md), version {}{deprecated}{}.\n",
        op.about,
        directory_of(op.domain),
        schema.since,
        schema.determinism,
    );
    let inputs = schema.inputs.iter();
    let inputs = inputs.map(|input| explained(input, schema.input_meaning(input)));
    list(&mut text, "Inputs", inputs);
    let outputs = schema.outputs.iter();
    let outputs = outputs.map(|output| explained(output, schema.output_meaning(output)));
    list(&mut text, "Outputs", outputs);
    let attributes = schema.attributes.iter();
    let attributes = attributes.map(|found| explained(found, schema.attribute_meaning(found)));
    list(&mut text, "Attributes", attributes);
    list(&mut text, "Types", schema.types.iter().map(types));
    text += &function(op, schema);
    list(&mut text, "Versions", changes(op).into_iter());
    if op.domain != MICROSOFT {
        let page = format!("onnx_{}_{name}.html", op.domain.replace('.', ""));
        let _ = writeln!(text, "\n[In the standard](https://onnx.ai/onnx/operators/{page})");
    }
    text
}

fn list(text: &mut String, heading: &str, items: impl Iterator<Item = String>) {
    let mut items = items.peekable();
    if items.peek().is_some() {
        let _ = writeln!(text, "\n## {heading}\n");
        for item in items {
            let _ = writeln!(text, "- {item}");
        }
    }
}

/// What is declared, and on a line of its own what that is for.
fn explained(item: &impl Display, meaning: Option<&str>) -> String {
    match meaning {
        Some(meaning) => format!("{}  \n  {meaning}", marked(item)),
        None => marked(item),
    }
}

/// What comes before the first comma as code: `X: T`, optional.
fn marked(item: &impl Display) -> String {
    let item = item.to_string();
    // Lists of numbers and texts have commas of their own.
    let end = if item.contains(" = ") { None } else { item.find(", ") };
    let (declared, rest) = item.split_at(end.unwrap_or(item.len()));
    format!("`{declared}`{rest}")
}

/// A type variable with its types; element types that occur in one way stand together.
fn types(var: &TypeVar) -> String {
    format!("`{}`: {}", var.name, grouped(&var.allowed.names()))
}

fn grouped(names: &[String]) -> String {
    let mut groups: Vec<(String, String, Vec<&str>)> = Vec::new();
    for name in names {
        let (outer, rest) = match name.rfind("tensor(") {
            Some(at) => name.split_at(at + "tensor(".len()),
            None => (name.as_str(), ""),
        };
        let (element, end) = rest.split_at(rest.find(')').unwrap_or(rest.len()));
        match groups.iter_mut().find(|group| (group.0.as_str(), group.1.as_str()) == (outer, end)) {
            Some(group) => group.2.push(element),
            None => groups.push((outer.to_string(), end.to_string(), vec![element])),
        }
    }
    let groups: Vec<String> = groups
        .iter()
        .map(|(outer, end, elements)| format!("`{outer}{}{end}`", elements.join(", ")))
        .collect();
    groups.join(", ")
}

// Functions.

fn function(op: &OpDef, schema: &Schema) -> String {
    let Some(function) = op.functions_of(schema.since).pop() else {
        return String::new();
    };
    let (said, text) = if function.needs_call {
        (
            " The function depends on the call. Here is that of one with float tensors.",
            example(op, schema, function.since),
        )
    } else {
        ("", op.function_text(&Registry::standard(), function.since, None))
    };
    match text {
        Some(text) => format!(
            "\n## Function\n\nOf {}.{said}\n\n```text\n{text}```\n",
            callees(op.domain, &text)
        ),
        None => "\n## Function\n\nThe function depends on the call.\n".to_string(),
    }
}

/// Links to the operators that a function calls.
fn callees(domain: &str, text: &str) -> String {
    let called = text.lines().filter_map(|line| {
        let callee = line.split_once(" = ")?.1;
        let name = callee.split([' ', '<', '(']).next()?;
        Registry::standard().operator("", name)
    });
    let called: BTreeSet<&str> = called.map(|op| op.name).collect();
    let directory = if domain.is_empty() { "" } else { "../ai.onnx/" };
    let links: Vec<String> =
        called.iter().map(|name| format!("[{name}]({directory}{name}.md)")).collect();
    links.join(", ")
}

/// The attributes of a call that has only those that it must have.
struct OnlyRequired<'a>(&'a Schema);

impl Attributes for OnlyRequired<'_> {
    fn attribute(&self, name: &str) -> Option<AttrValue<'_>> {
        let formal = self.0.attribute(name)?;
        (formal.required && formal.ty == AttrType::Int).then_some(AttrValue::Int(2))
    }
}

/// The function for a call with all inputs and outputs, or with those that it must have.
fn example(op: &OpDef, schema: &Schema, opset: u32) -> Option<String> {
    let counts = (schema.inputs.len(), schema.outputs.len());
    let fewest = (schema.input_count().0, schema.output_count().0);
    [counts, fewest].into_iter().find_map(|(inputs, outputs)| {
        let sizes = [2, 4, 8, 8].map(Dim::Known);
        let types = vec![Some(Type::tensor(DataType::Float, sizes)); inputs];
        let call = Call {
            attributes: &OnlyRequired(schema),
            inputs: &vec![true; inputs],
            outputs: &vec![true; outputs],
            types: &types,
            graphs: &|_, _| None,
        };
        op.function_text(&Registry::standard(), opset, Some(&call))
    })
}

// Versions.

fn changes(op: &OpDef) -> Vec<String> {
    let schemas: Vec<Schema> =
        op.versions().filter_map(|version| op.schema_at(version.since)).collect();
    let mut lines: Vec<String> = schemas
        .windows(2)
        .map(|pair| format!("{}: {}", pair[1].since, change(&pair[0], &pair[1])))
        .collect();
    lines.extend(schemas.first().map(|first| format!("{}: the first one", first.since)));
    // The newest is looked for most.
    let first = lines.pop();
    lines.reverse();
    lines.into_iter().chain(first).collect()
}

fn change(old: &Schema, new: &Schema) -> String {
    let mut changes = Vec::new();
    if old.deprecated != new.deprecated {
        let word = if new.deprecated { "deprecated" } else { "not deprecated any more" };
        changes.push(word.to_string());
    }
    for (what, old, new) in
        [("input", &old.inputs, &new.inputs), ("output", &old.outputs, &new.outputs)]
    {
        compare(&mut changes, what, old, new, |param| param.name, marked);
    }
    compare(&mut changes, "attribute", &old.attributes, &new.attributes, |a| a.name, marked);
    for var in &new.types {
        match old.type_var(var.name) {
            None => changes.push(format!("new type {}", types(var))),
            Some(before) => {
                let (before, after) = (before.allowed.names(), var.allowed.names());
                for (word, some, others) in
                    [("with", &after, &before), ("without", &before, &after)]
                {
                    let only: Vec<String> =
                        some.iter().filter(|name| !others.contains(name)).cloned().collect();
                    if !only.is_empty() {
                        changes.push(format!("`{}` {word} {}", var.name, grouped(&only)));
                    }
                }
            }
        }
    }
    let said = |note: &&&str| !old.notes.contains(*note);
    changes.extend(new.notes.iter().filter(said).map(|note| note.to_string()));
    if changes.is_empty() {
        "nothing is declared otherwise".to_string()
    } else {
        changes.join("; ")
    }
}

/// What is new, gone or different in a list of parts that have names.
fn compare<T: PartialEq>(
    changes: &mut Vec<String>,
    what: &str,
    old: &[T],
    new: &[T],
    name: impl Fn(&T) -> &'static str,
    show: impl Fn(&T) -> String,
) {
    for part in new {
        match old.iter().find(|before| name(before) == name(part)) {
            None => changes.push(format!("new {what} {}", show(part))),
            Some(before) if before != part => changes.push(format!("{what} {}", show(part))),
            Some(_) => {}
        }
    }
    for part in old.iter().filter(|part| new.iter().all(|after| name(after) != name(part))) {
        changes.push(format!("no {what} `{}`", name(part)));
    }
}
