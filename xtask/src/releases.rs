//! `cargo xtask releases`: the node tests of older releases of the onnx package, each at its own
//! versions of operators, run by the runner of `cargo xtask conformance`.
//!
//! Python takes the cases out of the wheels. A list has those that do not pass, with the reason and
//! the side that is right. CI does not run this: the wheels are 400 MB.

use crate::conformance::python_with_onnx;
use crate::workspace::{artifacts, build_release, root};
use crate::{Result, shell};
use std::fs;
use std::process::Command;

const EXPECTATIONS: &str = "tests/conformance/releases.txt";

/// The beginnings of reasons in the list.
const VERDICTS: [&str; 4] =
    ["ours is right", "the test is right", "both are right", "not applicable"];

/// Operators that were experiments when a release had tests of them, and no part of the standard.
const EXPERIMENTS: [&str; 3] = ["DynamicSlice", "MeanVarianceNormalization", "ThresholdedRelu"];

#[derive(clap::Args)]
pub(crate) struct Releases {
    /// Run only the cases whose release/name contains this text.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Rewrite the expectations to what happened; reasons of new lines are to be replaced by who is
    /// right, and why.
    #[arg(long)]
    bless: bool,
    /// Go on after unexpected outcomes; without it the run stops at twenty.
    #[arg(long)]
    keep_going: bool,
}

pub(crate) fn run(task: &Releases) -> Result {
    let (downloads, cases) = (artifacts("releases/wheels"), artifacts("releases/cases"));
    if cases.exists() {
        fs::remove_dir_all(&cases)?;
    }
    shell::run(
        Command::new(python_with_onnx()?)
            .arg(root().join("tests/conformance/release_cases.py"))
            .arg(downloads)
            .arg(&cases),
    )?;
    let mut runner = Command::new(build_release("conformance", &[])?);
    runner.current_dir(root()).arg(cases).arg(EXPECTATIONS);
    if let Some(filter) = &task.filter {
        runner.args(["--filter", filter]);
    }
    if task.bless {
        // A test of a release may be wrong, so wrong values are recorded as well.
        runner.args(["--bless", "--allow-wrong"]);
    }
    if task.keep_going {
        runner.arg("--keep-going");
    }
    shell::run(&mut runner)?;
    demand_verdicts(&fs::read_to_string(root().join(EXPECTATIONS))?)
}

/// Refuses lines of the list without a verdict.
fn demand_verdicts(list: &str) -> Result {
    let lines = list.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
    for (index, line) in lines {
        let failure = line.split_once('\t').and_then(|(_, failure)| failure.split_once(": "));
        let has_verdict = |(class, reason): (&str, &str)| match class {
            // The runner compares names of operators, so that no verdict can stand beside them.
            "operator not implemented" => EXPERIMENTS.contains(&reason),
            _ => VERDICTS.iter().any(|verdict| reason.starts_with(verdict)),
        };
        if !failure.is_some_and(has_verdict) {
            let number = index + 1;
            return Err(format!(
                "{EXPECTATIONS}:{number}: the reason must begin with one of: {}",
                VERDICTS.join(", ")
            )
            .into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_begin_with_a_verdict() {
        assert!(demand_verdicts("# about\n1.0/a\twrong: ours is right: 2 is not 3\n").is_ok());
        assert!(demand_verdicts("1.0/a\toperator not implemented: DynamicSlice").is_ok());
        for line in [
            "1.0/a\twrong: y: 2 of 3 differ",
            "1.0/a\toperator not implemented: Add",
            "1.0/a\ttimeout",
            "1.0/a",
        ] {
            assert!(demand_verdicts(line).is_err(), "{line}");
        }
    }
}
