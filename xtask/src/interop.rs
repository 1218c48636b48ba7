//! `cargo xtask interop`: files go from the command to the onnx package, ONNX Runtime, NumPy and
//! safetensors, and back.

use crate::workspace::{artifacts, build_release, root};
use crate::{Result, python, shell};
use std::path::PathBuf;
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Interop {
    /// More models to exchange.
    #[arg(value_name = "MODEL")]
    models: Vec<PathBuf>,
    /// Use this build of the command instead of making one.
    #[arg(long, value_name = "FILE")]
    command: Option<PathBuf>,
}

pub(crate) fn run(task: &Interop) -> Result {
    let scripts = root().join("tests/interop");
    let python = python::environment(&artifacts("interop"), &scripts.join("requirements.txt"))?;
    let command = match &task.command {
        Some(command) => command.clone(),
        None => build_release("sardonyx", &[])?,
    };
    shell::run(
        Command::new(python)
            .args(["-W", "ignore"])
            .arg(scripts.join("interop.py"))
            .arg(command)
            .arg(artifacts("interop/files"))
            .arg("--models")
            .arg(root().join("examples/digits/digits.onnx"))
            .args(&task.models),
    )
}
