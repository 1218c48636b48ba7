//! `sardonyx ops`: list of the standard's operators, page of one, or differences between two of its
//! versions.

use sardonyx::tool::schema::OpDef;
use sardonyx::tool::schema::{
    Arity, AttrDefault, Attribute, Determinism, Differentiability, Param, Registry, Schema, TypeVar,
};
use sardonyx::tool::{Glob, shown_domain, suggest};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::human::{Align, format_columns, format_count};
use crate::terminal::Terminal;
use crate::verdict::Verdict;

/// Show operators: summary, versions, inputs, outputs, attributes and types
///
/// If NAME is the name of an operator, such as Conv or ai.onnx.ml.Scaler, shows its newest version,
/// or that of --opset. Otherwise lists the operators whose name or description contains NAME; with
/// * or ? it is a pattern for names.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Name of an operator, or text to search for
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Only this domain, such as ai.onnx or ai.onnx.ml
    #[arg(long)]
    domain: Option<String>,
    /// Show the version of the operator in this version of its operator set
    #[arg(long, value_name = "VERSION", requires = "name")]
    opset: Option<u32>,
    /// Show all versions
    #[arg(long, requires = "name", conflicts_with = "opset")]
    all: bool,
    /// Show what changed from one operator set version to another
    #[arg(
        long,
        num_args = 2,
        value_names = ["FROM", "TO"],
        requires = "name",
        conflicts_with_all = ["opset", "all"]
    )]
    diff: Option<Vec<u32>>,
    /// Print JSON: every operator found, with all versions
    #[arg(long, conflicts_with_all = ["opset", "all", "diff"])]
    json: bool,
}

/// Schema of the JSON answer: its name and version. A key that changes its meaning raises the
/// version, a new key does not.
const SCHEMA: &str = "sardonyx.ops/1";

/// Runs `sardonyx ops`: describes one operator, or lists the operators that match.
pub(crate) fn ops(args: &Args, terminal: &Terminal) -> Result<Verdict, Failure> {
    let operators: Vec<&OpDef> = Registry::standard()
        .operators()
        .filter(|op| args.domain.as_deref().is_none_or(|domain| shown_domain(op.domain) == domain))
        .collect();
    if operators.is_empty() {
        return Err(refuse_domain(args.domain.as_deref().unwrap_or_default()));
    }
    let wanted = args.name.as_deref().unwrap_or_default();
    if let Some(op) = operators.iter().find(|op| is_called(op, wanted)) {
        if args.json {
            terminal.json(&as_json(&[op]), true)?;
        } else {
            terminal.print(&format_page(op, args)?)?;
        }
        return Ok(Verdict::Fine);
    }
    let asks_for_one = args.opset.is_some() || args.all || args.diff.is_some();
    let found: Vec<&OpDef> = if asks_for_one {
        Vec::new()
    } else {
        operators.iter().copied().filter(|op| is_match(op, wanted)).collect()
    };
    if found.is_empty() {
        return Err(refuse_operator(wanted, &operators));
    }
    if args.json {
        terminal.json(&as_json(&found), true)?
    } else {
        terminal.print(&format_list(&found))?
    }
    Ok(Verdict::Fine)
}

/// Whether `wanted` is the name of the operator `op`, with or without its domain.
fn is_called(op: &OpDef, wanted: &str) -> bool {
    let (domain, name) = wanted.rsplit_once('.').unwrap_or((shown_domain(op.domain), wanted));
    name == op.name && domain == shown_domain(op.domain)
}

/// Whether the operator's name matches the pattern `wanted`, or its name or description contains
/// that text.
fn is_match(op: &OpDef, wanted: &str) -> bool {
    if Glob::is_pattern(wanted) {
        return Glob::parse(wanted).is_ok_and(|glob| glob.matches(op.name));
    }
    let wanted = wanted.to_lowercase();
    op.full_name().to_lowercase().contains(&wanted) || op.about.to_lowercase().contains(&wanted)
}

/// Returns the failure for an operator that does not exist, with a similar name as advice.
fn refuse_operator(wanted: &str, operators: &[&OpDef]) -> Failure {
    let failure = Failure::new(format!("no operator '{wanted}' exists"));
    let names: Vec<String> = operators.iter().map(|op| op.full_name()).collect();
    match suggest::closest(wanted, names.iter().map(String::as_str)) {
        Some(near) => failure.help(format!("did you mean {near}?")),
        None => failure.help("`sardonyx ops` lists all operators"),
    }
}

/// Returns the failure for a domain that the standard does not have.
fn refuse_domain(wanted: &str) -> Failure {
    let mut domains: Vec<&str> =
        Registry::standard().operators().map(|op| shown_domain(op.domain)).collect();
    domains.dedup();
    Failure::new(format!("the standard has no domain '{wanted}'"))
        .help(format!("use one of the standard's domains: {}", domains.join(", ")))
}

/// Formats a table of operators with their versions and summaries, and the numbers of both below.
fn format_list(operators: &[&OpDef]) -> String {
    let rows: Vec<Vec<String>> = operators
        .iter()
        .map(|op| vec![op.full_name(), format_versions(op), first_sentence(op.about).to_string()])
        .collect();
    let headings = [("operator", Align::Left), ("versions", Align::Left), ("summary", Align::Left)];
    let sum: usize = operators.iter().map(|op| op.versions().count()).sum();
    let total = format_count(operators.len(), "operator");
    format!("{}\n{total} in {}\n", format_columns(&headings, &rows), format_count(sum, "version"))
}

/// Lists the operator set versions that define or change an operator, such as `1 6 7 13`.
fn format_versions(op: &OpDef) -> String {
    let versions: Vec<String> = op.versions().map(|version| version.since.to_string()).collect();
    versions.join(" ")
}

/// Returns the first sentence of a text, with its period.
fn first_sentence(text: &str) -> &str {
    let end = text.find(". ").map_or(text.len(), |at| at + 1);
    &text[..end]
}

/// Returns the definition of an operator in a version of its operator set. Fails if the operator
/// was added later.
fn schema_at(op: &OpDef, opset: u32) -> Result<Schema, Failure> {
    op.schema_at(opset).ok_or_else(|| {
        let first = op.versions().next().map_or(0, |version| version.since);
        let name = op.full_name();
        Failure::new(format!("{name} does not exist in opset version {opset}"))
            .help(format!("use opset version {first} or newer"))
    })
}

/// Formats the description of an operator, or the differences between two versions with `--diff`.
fn format_page(op: &OpDef, args: &Args) -> Result<String, Failure> {
    if let Some([from, to]) = args.diff.as_deref() {
        return Ok(format_difference(&schema_at(op, *from)?, &schema_at(op, *to)?));
    }
    let mut text = format!("{}\n\n", op.about);
    if args.all {
        for version in op.versions() {
            text += &format!("{}\n", schema_at(op, version.since)?);
        }
    } else {
        let schema = schema_at(op, args.opset.unwrap_or(u32::MAX))?;
        text += &schema.to_string();
        let opset = args.opset.unwrap_or(schema.since);
        if let Some(function) = op.function_text(&Registry::standard(), opset, None) {
            text += &format!("\nfunction:\n\n{function}");
        } else if op.functions_of(schema.since).iter().any(|found| found.needs_call) {
            text += "\nthe function body depends on attributes, optional inputs and types\n";
        }
        text += &format!("\nversions: {}\n", format_versions(op));
    }
    Ok(text)
}

/// Lists the differences between two versions of an operator, of which either may be the older.
fn format_difference(from: &Schema, to: &Schema) -> String {
    let mut lines = Vec::new();
    if from.deprecated != to.deprecated {
        lines.push(if to.deprecated {
            "  deprecated".to_string()
        } else {
            "  no longer deprecated".to_string()
        });
    }
    push_changes("input", &from.inputs, &to.inputs, &mut lines);
    push_changes("output", &from.outputs, &to.outputs, &mut lines);
    push_changes("attribute", &from.attributes, &to.attributes, &mut lines);
    for var in &to.types {
        match from.type_var(var.name) {
            Some(old) => lines.extend(format_type_changes(old, var)),
            None => {
                lines.push(format!("+ type      {}: {}", var.name, var.allowed.names().join(" ")))
            }
        }
    }
    let gone = from.types.iter().filter(|var| to.type_var(var.name).is_none());
    lines.extend(gone.map(|var| format!("- type      {}", var.name)));
    if from.determinism != to.determinism {
        lines.push(format!("  {}", describe_determinism(to)));
    }
    for (sign, some, others) in [("-", from, to), ("+", to, from)] {
        let only = some.notes.iter().filter(|note| !others.notes.contains(note));
        lines.extend(only.map(|note| format!("{sign} note      {note}")));
    }
    let head = format!("{} from version {} to version {}", from.name, from.since, to.since);
    if lines.is_empty() {
        format!("{head}: same inputs, outputs, attributes and types\n")
    } else {
        format!("{head}\n{}\n", lines.join("\n"))
    }
}

/// Adds a line for each input, output or attribute that only one of two versions of an operator
/// has, or that differs between the versions.
fn push_changes<T: Member>(what: &str, from: &[T], to: &[T], lines: &mut Vec<String>) {
    let old: Vec<_> = from.iter().map(|member| (member.name(), member.to_string())).collect();
    let new: Vec<_> = to.iter().map(|member| (member.name(), member.to_string())).collect();
    lines.extend(
        old.iter()
            .filter(|entry| !new.contains(entry))
            .map(|(_, text)| format!("- {what:9} {text}")),
    );
    lines.extend(
        new.iter()
            .filter(|entry| !old.contains(entry))
            .map(|(_, text)| format!("+ {what:9} {text}")),
    );
}

/// Input, output or attribute of an operator.
trait Member: ToString {
    /// Returns the name of the input, output or attribute.
    fn name(&self) -> &'static str;
}

impl Member for Param {
    fn name(&self) -> &'static str {
        self.name
    }
}

impl Member for Attribute {
    fn name(&self) -> &'static str {
        self.name
    }
}

/// Formats the element types that a type variable lost (`-`) and gained (`+`) between two versions.
fn format_type_changes(from: &TypeVar, to: &TypeVar) -> impl Iterator<Item = String> {
    let (old, new) = (from.allowed.names(), to.allowed.names());
    [("-", names_missing_in(&new, &old)), ("+", names_missing_in(&old, &new))]
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(sign, names)| format!("{sign} type      {}: {names}", to.name))
}

/// Joins those of `names` that `others` does not contain.
fn names_missing_in(others: &[String], names: &[String]) -> String {
    let missing = names.iter().filter(|name| !others.contains(name));
    missing.cloned().collect::<Vec<_>>().join(" ")
}

/// Converts operators with all their versions to the JSON answer.
fn as_json(operators: &[&OpDef]) -> Value {
    let operators: Vec<Value> = operators.iter().map(|op| operator_json(op)).collect();
    json!({ "schema": SCHEMA, "operators": operators })
}

/// Converts an operator with all its versions to JSON.
fn operator_json(op: &OpDef) -> Value {
    let versions: Vec<Value> = op
        .versions()
        .filter_map(|version| op.schema_at(version.since))
        .map(|schema| {
            let mut json = schema_json(&schema);
            json["functions"] = functions_json(op, schema.since);
            json
        })
        .collect();
    json!({
        "domain": shown_domain(op.domain),
        "name": op.name,
        "about": op.about,
        "versions": versions,
    })
}

/// Lists in JSON the function bodies that define a version of an operator. A body that depends on
/// attributes or inputs of the call has no text.
fn functions_json(op: &OpDef, since: u32) -> Value {
    let functions = op.functions_of(since).into_iter().map(|function| {
        json!({
            "opset": function.since,
            "depends_on_call": function.needs_call,
            "text": op.function_text(&Registry::standard(), function.since, None),
        })
    });
    Value::Array(functions.collect())
}

/// Returns the word for the determinism of an operator, such as `deterministic`.
fn describe_determinism(schema: &Schema) -> &'static str {
    match schema.determinism {
        Determinism::Deterministic => "deterministic",
        Determinism::NonDeterministic => "non-deterministic",
        Determinism::Unknown => "unknown",
    }
}

/// Converts a version of an operator to JSON.
fn schema_json(schema: &Schema) -> Value {
    let inputs = schema.inputs.iter().map(|input| param_json(input, schema.input_meaning(input)));
    let outputs = schema.outputs.iter();
    let outputs = outputs.map(|output| param_json(output, schema.output_meaning(output)));
    let attributes = schema.attributes.iter();
    let attributes: Vec<Value> = attributes
        .map(|attribute| attribute_json(attribute, schema.attribute_meaning(attribute)))
        .collect();
    let types: Vec<Value> = schema
        .types
        .iter()
        .map(|var| json!({ "name": var.name, "allowed": var.allowed.names() }))
        .collect();
    let ((fewest_inputs, most_inputs), (fewest_outputs, most_outputs)) =
        (schema.input_count(), schema.output_count());
    json!({
        "since": schema.since,
        "deprecated": schema.deprecated,
        "determinism": describe_determinism(schema),
        "notes": schema.notes,
        "inputs": inputs.collect::<Vec<_>>(),
        "fewest_inputs": fewest_inputs,
        "most_inputs": most_inputs,
        "outputs": outputs.collect::<Vec<_>>(),
        "fewest_outputs": fewest_outputs,
        "most_outputs": most_outputs,
        "attributes": attributes,
        "types": types,
    })
}

/// Converts an input or output of an operator to JSON; `about` is its description.
fn param_json(param: &Param, about: Option<&str>) -> Value {
    let (arity, fewest, homogeneous) = match param.arity {
        Arity::Single => ("single", 1, true),
        Arity::Optional => ("optional", 0, true),
        Arity::Variadic { min, homogeneous } => ("variadic", min, homogeneous),
    };
    let differentiable = match param.differentiability {
        Differentiability::Unknown => None,
        Differentiability::Differentiable => Some(true),
        Differentiability::NonDifferentiable => Some(false),
    };
    json!({
        "name": param.name,
        "about": about,
        "type": param.ty,
        "arity": arity,
        "fewest": fewest,
        "homogeneous": homogeneous,
        "differentiable": differentiable,
    })
}

/// Converts an attribute of an operator to JSON; `about` is its description.
fn attribute_json(attribute: &Attribute, about: Option<&str>) -> Value {
    let default = attribute.default.map(|default| match default {
        // Written like in the standard: 0.01, not 0.009999999776482582.
        AttrDefault::Float(value) => float_json(value),
        AttrDefault::Int(value) => json!(value),
        AttrDefault::String(value) | AttrDefault::Word(value) => json!(value),
        AttrDefault::Floats(values) => values.iter().copied().map(float_json).collect(),
        AttrDefault::Ints(values) => json!(values),
        AttrDefault::Strings(values) => json!(values),
    });
    json!({
        "name": attribute.name,
        "about": about,
        "type": attribute.ty.to_string(),
        "required": attribute.required,
        "default": default,
    })
}

/// Converts a float to JSON with the fewest decimal digits that identify it.
fn float_json(value: f32) -> Value {
    json!(value.to_string().parse::<f64>().unwrap_or(f64::from(value)))
}
