//! `cargo xtask bench python`: import, calls and first calls from Python; processes of onnxruntime
//! and of us, taking turns.

use std::process::Command;

use crate::onnx_suite::Package;
use crate::workspace::root;
use crate::{Result, shell};

#[derive(clap::Args)]
pub(crate) struct Python {
    /// Number of processes of each side.
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    processes: u32,
    /// The cargo profile that the module is built with.
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
}

pub(crate) fn run(task: &Python) -> Result {
    let package = Package::new(&task.profile)?;
    shell::run(
        Command::new(&package.python)
            .arg(root().join("tests/perf/python_calls.py"))
            .args(["--processes", &task.processes.to_string()])
            .env("PYTHONPATH", &package.site),
    )
}
