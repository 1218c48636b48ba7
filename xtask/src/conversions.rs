//! `cargo xtask conversions`: every backend case, and a case for every version of every operator,
//! converted to every version of its operator set. Our engine runs what comes of it, and so do
//! ONNX Runtime and the evaluator of the onnx package.
//!
//! Likewise random calls of all operators that are functions of others: with the bodies of the
//! functions in their places, and converted.

use crate::conformance::cases;
use crate::workspace::{artifacts, build_release, root};
use crate::{Result, python, shell};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The versions of `ai.onnx` and of `ai.onnx.ml` that there are.
const OPSETS: [(&str, std::ops::RangeInclusive<u32>); 2] =
    [("ai.onnx", 1..=28), ("ai.onnx.ml", 1..=5)];

#[derive(clap::Args)]
pub(crate) struct Conversions {
    /// Convert each backend case to one version only, chosen by this number, and inline operators
    /// in few random calls: what CI does.
    #[arg(long, value_name = "SEED")]
    sample: Option<u64>,
    /// Only inline and convert random calls of operators.
    #[arg(long)]
    bodies: bool,
    /// Seed for the random calls of a whole run.
    #[arg(long, default_value_t = 1, conflicts_with = "sample")]
    seed: u64,
    /// Number of random calls for each version of each operator.
    #[arg(long, default_value_t = 8, conflicts_with = "sample")]
    draws: u64,
    /// Convert only the backend cases whose kind/name contains this text.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Convert backend cases to this version only.
    #[arg(long, value_name = "[DOMAIN=]VERSION")]
    opset: Vec<String>,
    /// Rewrite the numbers in tests/conformance to what happened.
    #[arg(long)]
    bless: bool,
    /// Count the refusals by reason.
    #[arg(long)]
    reasons: bool,
}

/// Number of random calls in a sample.
const SAMPLED: u64 = 300;

pub(crate) fn run(task: &Conversions) -> Result {
    let python = python::environment(
        &artifacts("conversions"),
        &root().join("tests/conformance/conversions_requirements.txt"),
    )?;
    if !task.bodies {
        convert_all(task, &python)?;
    }
    if !task.bodies && task.opset.is_empty() {
        simplify_all(task)?;
    }
    if task.filter.is_none() && task.opset.is_empty() {
        inline_all(task, &python)?;
    }
    Ok(())
}

/// Converts the backend cases, and those of versions in a whole run.
fn convert_all(task: &Conversions, python: &Path) -> Result {
    let program = build_release("conversions", &[])?;
    let backend = cases()?;
    let is_whole = task.sample.is_none() && task.filter.is_none() && task.opset.is_empty();
    if !is_whole {
        return convert(task, &program, &backend, None);
    }
    let versions = version_cases(python, &backend)?;
    for (cases, name) in [(&backend, "backend"), (&versions, "versions")] {
        println!("\nconversions of the {name} cases");
        convert(task, &program, cases, Some(name))?;
        run_elsewhere(python, cases, &converted_directory(name))?;
    }
    Ok(())
}

/// Simplifies the backend cases: the same bits at `exact`, the outputs of the case at `close`.
fn simplify_all(task: &Conversions) -> Result {
    println!("\nsimplifications of the backend cases");
    let mut command = Command::new(build_release("simplifications", &[])?);
    command.current_dir(root()).arg(cases()?);
    command.args(task.filter.as_ref().map(|text| format!("--filter={text}")));
    shell::run(&mut command)
}

/// Draws calls of operators that are functions, inlines them, and converts each to one version.
fn inline_all(task: &Conversions, python: &Path) -> Result {
    let (directory, written) = (artifacts("conversions/body-cases"), converted_directory("bodies"));
    for old in [&directory, &written] {
        if old.exists() {
            fs::remove_dir_all(old)?;
        }
    }
    println!("\nbodies of operators");
    let mut command = Command::new(python);
    command.args(["-W", "ignore"]).arg(root().join("tests/conformance/body_cases.py"));
    command.arg(&directory);
    match task.sample {
        Some(seed) => command.args([format!("--seed={seed}"), format!("--sample={SAMPLED}")]),
        None => command.args([format!("--seed={}", task.seed), format!("--draws={}", task.draws)]),
    };
    shell::run(&mut command)?;
    let program = build_release("inlinings", &[])?;
    let mut command = Command::new(program);
    shell::run(command.current_dir(root()).arg(&directory).arg("--write").arg(&written))?;
    run_elsewhere(python, &directory, &written)?;
    let mut command = Command::new(build_release("conversions", &[])?);
    let seed = task.sample.unwrap_or(task.seed);
    command.current_dir(root()).arg(&directory).arg(format!("--sample={seed}"));
    shell::run(command.args(all_opsets()))
}

/// Runs models that were written in ONNX Runtime and in the evaluator of the onnx package.
fn run_elsewhere(python: &Path, cases: &Path, written: &Path) -> Result {
    let script = root().join("tests/conformance/run_converted.py");
    shell::run(Command::new(python).arg(script).arg(cases).arg(written))
}

/// Returns the directory for the converted models of one suite.
fn converted_directory(name: &str) -> PathBuf {
    artifacts("conversions").join(name)
}

/// Converts cases and runs what comes of it; all of them, if they have a name, under which models
/// are written and numbers expected.
fn convert(task: &Conversions, program: &Path, cases: &Path, name: Option<&str>) -> Result {
    let mut command = Command::new(program);
    command.current_dir(root()).arg(cases);
    if let Some(name) = name {
        let directory = converted_directory(name);
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        command.arg("--write").arg(directory);
        command.arg("--expectations").arg(format!("tests/conformance/conversions_{name}.tsv"));
    }
    if task.opset.is_empty() {
        command.args(all_opsets());
    }
    command.args(task.opset.iter().map(|opset| format!("--opset={opset}")));
    command.args(task.sample.map(|seed| format!("--sample={seed}")));
    command.args(task.filter.as_ref().map(|text| format!("--filter={text}")));
    for (is_wanted, flag) in
        [(task.bless && name.is_some(), "--bless"), (task.reasons, "--reasons")]
    {
        if is_wanted {
            command.arg(flag);
        }
    }
    shell::run(&mut command)
}

/// Lists the options for all versions.
fn all_opsets() -> impl Iterator<Item = String> {
    let versions = OPSETS.into_iter();
    versions.flat_map(|(domain, versions)| versions.map(move |v| format!("--opset={domain}={v}")))
}

/// Writes cases for every version of every operator and returns their directory.
fn version_cases(python: &Path, backend: &Path) -> Result<PathBuf> {
    let directory = artifacts("conversions/version-cases");
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    let script = root().join("tests/conformance/version_cases.py");
    shell::run(
        Command::new(python).args(["-W", "ignore"]).arg(script).arg(&directory).arg(backend),
    )?;
    Ok(directory)
}
