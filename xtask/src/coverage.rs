//! `cargo xtask coverage`: writes docs/coverage.md, the table of operators, from the lists in the
//! code.

use crate::Result;
use crate::op::{bindings, is_bound};
use crate::workspace::root;
use sardonyx_ops::operators::GRADIENT;
use sardonyx_ops::{DOMAIN_VERSIONS, OpDef, Registry};
use std::fmt::Write;
use std::fs;

/// How many backend cases the pinned release of the reference has.
const CASES: usize = 2036;
/// How many operators it has, in all domains.
const OPERATORS: usize = 227;

/// Write the table of operators, or check that it is up to date.
#[derive(clap::Args)]
pub(crate) struct Coverage {
    /// Fail if the file is not what would be written.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(task: &Coverage) -> Result {
    let path = root().join("docs/coverage.md");
    let table = table()?;
    if !task.check {
        return Ok(fs::write(path, table)?);
    }
    match fs::read_to_string(path) {
        Ok(found) if found == table => Ok(()),
        _ => Err("docs/coverage.md is out of date: cargo xtask coverage".into()),
    }
}

/// Whether the newest version of an operator is a function of others.
fn is_function(operator: &OpDef) -> bool {
    !operator.functions_of(operator.newest()).is_empty()
}

fn table() -> Result<String> {
    let bindings = bindings()?;
    let expectations = fs::read_to_string(root().join("tests/conformance/expectations.txt"))?;
    let failing =
        expectations.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count();
    let operators: Vec<_> = Registry::standard().operators().collect();
    let running = operators.iter().filter(|op| is_bound(op, &bindings)).count();
    let expanded = operators.iter().filter(|op| !is_bound(op, &bindings) && is_function(op));
    let expanded = expanded.count();
    let newest = DOMAIN_VERSIONS.first().map_or(0, |(_, version)| *version);
    let mut text = String::new();
    let _ = write!(
        text,
        "# Coverage\n\n\
         Written by `cargo xtask coverage`; do not edit.\n\n\
         {known} of the standard's {OPERATORS} operators are defined, in all of their versions up to opset {newest}; \
         {running} of them have kernels, and {expanded} more are functions of others, which run where \
         all operators of the function do. {passing} of the {CASES} backend cases of the reference release pass; the others are \
         listed with their reasons in `tests/conformance/expectations.txt`.\n\n\
         The last column says how a node is differentiated where a `Gradient` node asks for it: by a rule of the \
         operator, or by the nodes of its function, as far as these have a gradient.\n\n\
         | operator | versions | adapters | runs | gradient |\n\
         | --- | --- | --- | --- | --- |\n",
        known = operators.len(),
        passing = CASES - failing,
    );
    for operator in operators {
        let versions: Vec<String> = operator.versions().map(|v| v.since.to_string()).collect();
        let adapters: Vec<String> =
            operator.adapters().map(|adapter| format!("{}→{}", adapter.from, adapter.to)).collect();
        let runs = if is_bound(operator, &bindings) {
            "kernel"
        } else if is_function(operator) {
            "function"
        } else if operator.is(&GRADIENT) {
            "replaced"
        } else {
            "no"
        };
        let gradient = if operator.gradient_rule().is_some() {
            "rule"
        } else if is_function(operator) {
            "function"
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {runs} | {gradient} |",
            operator.full_name(),
            versions.join(" "),
            adapters.join(" ")
        );
    }
    Ok(text)
}
