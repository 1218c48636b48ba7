//! `cargo xtask matrix`: every version of every operator with every type of each of its type
//! variables, run by the runner in `tests/`.
//!
//! Python writes a case for each of these cells and asks others what must come of it; running and
//! comparing is Rust.

use crate::conformance::cases;
use crate::workspace::{artifacts, build_release, readable_path, root};
use crate::{Result, python, shell};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const EXPECTATIONS: &str = "tests/matrix/expectations.txt";
const RESULTS: &str = "tests/matrix/results.tsv";

#[derive(clap::Args)]
pub(crate) struct Matrix {
    /// Run only the cells whose name contains this text, such as `ai.onnx.Abs-13/T-float`.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Run only this many cells, chosen by the seed: what CI does.
    #[arg(long, value_name = "COUNT")]
    sample: Option<usize>,
    /// Seed that draws the cells of a sample.
    #[arg(long, default_value_t = 1, requires = "sample")]
    seed: u64,
    /// Rewrite the table of results and the expectations to what happened.
    #[arg(long)]
    bless: bool,
    /// With --bless, also write cells down that give wrong values or panic.
    #[arg(long, requires = "bless")]
    allow_wrong: bool,
}

pub(crate) fn run(task: &Matrix) -> Result {
    let cells = cells(task, &cases()?)?;
    let mut command = Command::new(build_release("matrix", &[])?);
    command.current_dir(root()).arg(cells);
    command.args([EXPECTATIONS, RESULTS]);
    let is_partial = task.filter.is_some() || task.sample.is_some();
    for (wanted, flag) in
        [(is_partial, "--partial"), (task.bless, "--bless"), (task.allow_wrong, "--allow-wrong")]
    {
        if wanted {
            command.arg(flag);
        }
    }
    shell::run(&mut command)
}

/// Writes the cases for cells anew and returns their directory.
fn cells(task: &Matrix, backend: &Path) -> Result<PathBuf> {
    let python = python::environment(
        &artifacts("conversions"),
        &root().join("tests/conformance/conversions_requirements.txt"),
    )?;
    let directory = artifacts("matrix/cases");
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    let mut command = Command::new(python);
    command.env("PYTHONPATH", root().join("tests/conformance"));
    command.args(["-W", "ignore"]).arg(root().join("tests/matrix/make_cases.py"));
    command.arg(&directory).arg(backend);
    command.args(task.filter.as_ref().map(|text| format!("--filter={text}")));
    if let Some(count) = task.sample {
        command.arg(format!("--sample={count}")).arg(format!("--seed={}", task.seed));
    }
    shell::run(&mut command)?;
    Ok(directory)
}

/// A line of the table of results.
pub(crate) struct Cell {
    pub(crate) operator: String,
    pub(crate) version: u32,
    outcome: String,
    pub(crate) judge: String,
}

impl Cell {
    pub(crate) fn passes(&self) -> bool {
        self.outcome == "passed"
    }

    pub(crate) fn domain(&self) -> &str {
        self.operator.rsplit_once('.').map_or("ai.onnx", |(domain, _)| domain)
    }
}

/// Returns the outcome of each cell in the last complete run.
pub(crate) fn results() -> Result<Vec<Cell>> {
    let path = root().join(RESULTS);
    let text =
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", readable_path(&path)))?;
    let cells = text.lines().skip(1).map(|line| {
        let columns: Vec<&str> = line.split('\t').collect();
        let [operator, version, _, _, outcome, judge] = columns[..] else {
            return Err(format!("{RESULTS}: a line has not six columns: {line}").into());
        };
        Ok(Cell {
            operator: operator.to_string(),
            version: version.parse()?,
            outcome: outcome.to_string(),
            judge: judge.to_string(),
        })
    });
    cells.collect()
}

/// Groups variables with failing types by the version of an operator and the reason.
pub(crate) fn reasons() -> Result<BTreeMap<(String, String), Vec<String>>> {
    let text = fs::read_to_string(root().join(EXPECTATIONS))?;
    let mut found: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let cell = line.split_once('\t').and_then(|(cell, why)| Some((cell.split_once('/')?, why)));
        let Some(((version, types), why)) = cell else {
            return Err(
                format!("{EXPECTATIONS}: a line is not a cell with a reason: {line}").into()
            );
        };
        found.entry((version.to_string(), why.to_string())).or_default().push(types.to_string());
    }
    Ok(found)
}
