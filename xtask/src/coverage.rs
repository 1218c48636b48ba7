//! `cargo xtask coverage`: writes docs/coverage.md, the table of operators, from the lists in the
//! code.

use crate::Result;
use crate::matrix::{self, Cell};
use crate::op::{bindings, is_bound};
use crate::workspace::root;
use sardonyx_ops::operators::{GRADIENT, IF, LOOP, SCAN};
use sardonyx_ops::{DOMAIN_VERSIONS, OpDef, Registry};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

/// Number of backend cases in the pinned release of the reference.
const CASES: usize = 2036;
/// Number of operators of that release, in all domains.
const OPERATORS: usize = 227;
/// Oracles for the outputs of a cell, by the name in the table of results.
const JUDGES: [(&str, &str); 6] = [
    ("case", "a backend case of this version has them"),
    ("reference", "the evaluator of the onnx package computes them"),
    ("onnxruntime", "ONNX Runtime computes them"),
    ("numpy", "the tables of `tests/conformance/version_cases.py` compute them with NumPy"),
    ("body", "the evaluator computes the function that the operator stands for"),
    ("sample", "`tests/matrix/samples.txt` says what they are, as where an output is an input"),
];

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
    let cells = matrix::results()?;
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
         {known} of the standard's {OPERATORS} operators are defined, in all of their versions up \
         to opset {newest}; {running} of them have kernels, and {expanded} more are functions of \
         others, which run where all operators of the function do. {passing} of the {CASES} \
         backend cases of the reference release pass; the others are listed with their reasons in \
         `tests/conformance/expectations.txt`.\n\n",
        known = operators.len(),
        passing = CASES - failing,
    );
    write_matrix(&mut text, &cells)?;
    text.push_str(
        "\n## Operators\n\n\
         The column `gradient` says how a node is differentiated where a `Gradient` node asks for \
         it: by a rule of the operator, by the nodes of its function, or by other nodes that \
         compute the same, as far as these have a gradient. That of a node with graphs is a node \
         of its kind, with the gradients of its graphs. The last column has the cells of the \
         matrix that pass, in all versions.\n\n\
         | operator | versions | adapters | runs | gradient | types |\n\
         | --- | --- | --- | --- | --- | --- |\n",
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
        } else if operator.has_gradient_nodes() {
            "nodes"
        } else if [&IF, &LOOP, &SCAN].iter().any(|with_graphs| operator.is(with_graphs)) {
            "graphs"
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {runs} | {gradient} | {} |",
            operator.full_name(),
            versions.join(" "),
            adapters.join(" "),
            passing_of(cells.iter().filter(|cell| cell.operator == operator.full_name())),
        );
    }
    Ok(text)
}

/// Formats the cells of the matrix: passing ones by oracle, and those that fail.
fn write_matrix(text: &mut String, cells: &[Cell]) -> Result {
    let registry = Registry::standard();
    let is_newest = |cell: &&Cell| {
        let (domain, name) = cell.operator.rsplit_once('.').unwrap_or(("", &cell.operator));
        registry.operator(domain, name).is_some_and(|operator| operator.newest() == cell.version)
    };
    let _ = write!(
        text,
        "## Types\n\n\
         `cargo xtask matrix` runs every version of every operator with every type of each of its type variables. \
         {all} of these cells pass; of the newest versions, {newest}. `tests/matrix/results.tsv` has each of them.\n\n\
         | domain | cells that pass |\n\
         | --- | --- |\n",
        all = passing_of(cells.iter()),
        newest = passing_of(cells.iter().filter(is_newest)),
    );
    let mut domains: BTreeMap<&str, Vec<&Cell>> = BTreeMap::new();
    for cell in cells {
        domains.entry(cell.domain()).or_default().push(cell);
    }
    for (domain, cells) in domains {
        let _ = writeln!(text, "| {domain} | {} |", passing_of(cells.into_iter()));
    }
    text.push_str("\n| who says what the outputs are | cells that pass |\n| --- | --- |\n");
    let passing = || cells.iter().filter(|cell| cell.passes());
    for (judge, what) in JUDGES {
        let _ = writeln!(text, "| {what} | {} |", passing().filter(|c| c.judge == judge).count());
    }
    let wide = passing().filter(|cell| cell.judge.starts_with("wide ")).count();
    let _ = writeln!(text, "| one of these in a wider type, and they are rounded | {wide} |");
    let reasons = matrix::reasons()?;
    if reasons.is_empty() {
        return Ok(());
    }
    text.push_str("\n| version | cells that do not pass | reason |\n| --- | --- | --- |\n");
    for ((version, reason), cells) in reasons {
        let _ = writeln!(text, "| {version} | {} | {reason} |", cells.join(", "));
    }
    Ok(())
}

/// Formats `7`, or `6 of 7` if not all pass.
fn passing_of<'a>(cells: impl Iterator<Item = &'a Cell>) -> String {
    let (mut passing, mut all) = (0, 0);
    for cell in cells {
        all += 1;
        passing += usize::from(cell.passes());
    }
    if passing == all { all.to_string() } else { format!("{passing} of {all}") }
}
