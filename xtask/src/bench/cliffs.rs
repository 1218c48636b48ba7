//! `cargo xtask bench cliffs`: single operators with drawn attributes, shapes and types; ONNX
//! Runtime and us, taking turns. Operators that lost speed since the stored table are named.

use std::path::PathBuf;
use std::process::Command;

use crate::workspace::{artifacts, build_release, root};
use crate::{Result, python, shell};

#[derive(clap::Args)]
pub(crate) struct Cliffs {
    /// Only these operators; all if none is named.
    operators: Vec<String>,
    /// Models drawn for each operator.
    #[arg(long, value_name = "NUMBER", default_value_t = 4)]
    draws: u32,
    /// Seed of the draws.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u32,
    /// Seconds of repetition per measurement.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.1)]
    budget: f64,
    /// Also print draws below 0.6 of ONNX Runtime's speed that take more than 0.1 ms.
    #[arg(long)]
    slow: bool,
    /// Also print draws that take more than 1.1 times as long with two threads as with one.
    #[arg(long)]
    two: bool,
    /// Measure float alone.
    #[arg(long)]
    no_types: bool,
    /// Renew the lines of the measured operators in tests/perf/cliffs.tsv.
    #[arg(long)]
    bless: bool,
    /// Measure this build of the command instead of building one.
    #[arg(long, value_name = "FILE")]
    pub(super) program: Option<PathBuf>,
}

pub(crate) fn run(task: &Cliffs) -> Result {
    let requirements = root().join("tests/perf/cliffs-requirements.txt");
    let python = python::environment(&artifacts("bench/cliffs"), &requirements)?;
    let program = match &task.program {
        Some(program) => program.clone(),
        None => build_release("sardonyx", &[])?,
    };
    let mut command = Command::new(&python);
    command
        .arg(root().join("tests/perf/cliffs.py"))
        .args(&task.operators)
        .args(["--draws", &task.draws.to_string(), "--seed", &task.seed.to_string()])
        .args(["--budget", &task.budget.to_string()])
        .arg("--table")
        .arg(root().join("tests/perf/cliffs.tsv"))
        .arg("--program")
        .arg(&program);
    let flags = [
        (task.slow, "--slow"),
        (task.two, "--two"),
        (task.no_types, "--no-types"),
        (task.bless, "--bless"),
    ];
    command.args(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag));
    shell::run(&mut command)
}
