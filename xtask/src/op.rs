//! `cargo xtask op NAME`: one operator on one page. Reads the operator list of `sardonyx-ops`.
//!
//! Shows every version expanded, so that differences need not be added up by hand, and the places
//! of the operator's parts: its meaning, its binding, the adapters between versions, the backend
//! cases that use it.

use crate::Result;
use crate::workspace::root;
use sardonyx_ops::{OpDef, Registry};
use std::fs;

/// Show an operator: its versions, inference, adapters, binding and cases.
#[derive(clap::Args)]
pub(crate) struct Op {
    /// Name, such as `Concat` or `ai.onnx.ml.Scaler`. Without it: a line per operator.
    name: Option<String>,
    /// Only the version that an opset has.
    #[arg(long)]
    opset: Option<u32>,
}

pub(crate) fn run(task: &Op) -> Result {
    let bindings = bindings()?;
    let Some(name) = &task.name else {
        for operator in Registry::standard().operators() {
            let versions: Vec<String> = operator.versions().map(|v| v.since.to_string()).collect();
            let state = if is_bound(operator, &bindings) { "runs" } else { "known" };
            println!("{:24} {state:6} {}", operator.name, versions.join(" "));
        }
        return Ok(());
    };
    let (domain, short) = name.rsplit_once('.').unwrap_or(("", name));
    let operator = Registry::standard()
        .operator(domain, short)
        .ok_or_else(|| format!("no operator '{name}' exists; names are case-sensitive"))?;
    for version in operator.versions() {
        if task.opset.is_some_and(|opset| operator.version_at(opset) != Some(version.since)) {
            continue;
        }
        if let Some(schema) = operator.schema_at(version.since) {
            println!("{schema}");
        }
    }
    print_state(operator, &bindings)
}

fn print_state(operator: &OpDef, bindings: &str) -> Result {
    let inference = match operator.inference_at(operator.newest()) {
        Some(_) => "yes",
        None => "missing",
    };
    let adapters: Vec<String> =
        operator.adapters().map(|adapter| format!("{} to {}", adapter.from, adapter.to)).collect();
    let adapters =
        if adapters.is_empty() { "none needed".to_string() } else { adapters.join(", ") };
    let binding = if is_bound(operator, bindings) { "yes" } else { "missing" };
    println!("inference   {inference}");
    println!("adapters    {adapters}");
    println!("binding     {binding}");
    println!("meaning     {}", definition(operator)?);
    let cases = root().join("target/conformance/cases/cases.tsv");
    match fs::read_to_string(cases) {
        Ok(table) => println!("cases       {}", count_cases(&table, operator)),
        Err(_) => println!("cases       not counted: run `cargo xtask conformance` once"),
    }
    Ok(())
}

/// Reads the engine's list of bindings: private to it, but text with the names in it. Without white
/// space, since long entries have several lines.
pub(crate) fn bindings() -> Result<String> {
    let mut list = fs::read_to_string(root().join("crates/runtime/src/ops.rs"))?;
    list.retain(|letter| !letter.is_whitespace());
    Ok(list)
}

pub(crate) fn is_bound(operator: &OpDef, bindings: &str) -> bool {
    bindings.contains(&format!("(\"{}\",\"{}\",", operator.domain, operator.name))
}

/// Finds the file that defines the operator: the one place where its name is a definition's.
fn definition(operator: &OpDef) -> Result<String> {
    let mut directories = vec![root().join("crates/ops/src")];
    let quoted = format!("\"{}\"", operator.name);
    let mut found = Vec::new();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path)?;
                let defines =
                    text.lines().any(|line| line.contains("static ") && line.contains(&quoted));
                if defines || text.contains(&format!("OpDef::new({quoted})")) {
                    let path = path.strip_prefix(root()).unwrap_or(&path);
                    found.push(path.display().to_string());
                }
            }
        }
    }
    found.sort();
    Ok(found.join(", "))
}

fn count_cases(table: &str, operator: &OpDef) -> usize {
    let full = operator.full_name();
    let mut lines = table.lines();
    let column = lines.next().and_then(|head| head.split('\t').position(|title| title == "ops"));
    let Some(column) = column else { return 0 };
    lines
        .filter(|line| {
            line.split('\t').nth(column).is_some_and(|ops| ops.split(',').any(|op| op == full))
        })
        .count()
}
