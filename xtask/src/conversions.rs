//! `cargo xtask conversions`: every backend case, and a case for every version of every operator,
//! converted to every version of its operator set. Our engine runs what comes of it, and so do
//! ONNX Runtime and the evaluator of the onnx package.

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
    /// Convert each backend case to one version only, chosen by this number: what CI does.
    #[arg(long, value_name = "SEED")]
    sample: Option<u64>,
    /// Convert only the backend cases whose kind/name contains this text.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Convert backend cases to this version only.
    #[arg(long, value_name = "[DOMAIN=]VERSION")]
    opset: Vec<String>,
    /// Rewrite the numbers in tests/conformance to what happened.
    #[arg(long)]
    bless: bool,
    /// Say how often each reason for a refusal was given.
    #[arg(long)]
    reasons: bool,
}

pub(crate) fn run(task: &Conversions) -> Result {
    let program = build_release("conversions", &[])?;
    let backend = cases()?;
    let is_whole = task.sample.is_none() && task.filter.is_none() && task.opset.is_empty();
    if !is_whole {
        return convert(task, &program, &backend, None);
    }
    let python = python::environment(
        &artifacts("conversions"),
        &root().join("tests/conformance/conversions_requirements.txt"),
    )?;
    let versions = version_cases(&python, &backend)?;
    for (cases, name) in [(&backend, "backend"), (&versions, "versions")] {
        println!("\nconversions of the {name} cases");
        convert(task, &program, cases, Some(name))?;
        let script = root().join("tests/conformance/run_converted.py");
        shell::run(Command::new(&python).arg(script).arg(cases).arg(converted(name)))?;
    }
    Ok(())
}

/// Where the converted models of some cases are written.
fn converted(name: &str) -> PathBuf {
    artifacts("conversions").join(name)
}

/// Converts cases and runs what comes of it; all of them, if they have a name, under which models
/// are written and numbers expected.
fn convert(task: &Conversions, program: &Path, cases: &Path, name: Option<&str>) -> Result {
    let mut command = Command::new(program);
    command.current_dir(root()).arg(cases);
    if let Some(name) = name {
        let directory = converted(name);
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        command.arg("--write").arg(directory);
        command.arg("--expectations").arg(format!("tests/conformance/conversions_{name}.tsv"));
    }
    if task.opset.is_empty() {
        for (domain, versions) in OPSETS {
            for version in versions {
                command.arg(format!("--opset={domain}={version}"));
            }
        }
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

/// The directory of cases for every version of every operator.
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
