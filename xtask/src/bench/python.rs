//! `cargo xtask bench python`: a call from Python; onnxruntime and us, in one process and taking
//! turns.

use std::process::Command;

use crate::onnx_suite::Package;
use crate::workspace::root;
use crate::{Result, shell};

#[derive(clap::Args)]
pub(crate) struct Python {
    /// How often the sides take turns.
    #[arg(long, value_name = "NUMBER", default_value_t = 3000)]
    rounds: u32,
    /// The cargo profile that the module is built with.
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
}

pub(crate) fn run(task: &Python) -> Result {
    let package = Package::new(&task.profile)?;
    shell::run(
        Command::new(&package.python)
            .arg(root().join("tests/perf/python_calls.py"))
            .args(["--rounds", &task.rounds.to_string()])
            .env("PYTHONPATH", &package.site),
    )
}
