//! `cargo xtask notation`: our parser of the notation against the one of the onnx package.
//!
//! Python makes the texts, asks both parsers and judges; `tests/src/bin/notation.rs` is the one that is ours.

use crate::workspace::{artifacts, build_release, root};
use crate::{Result, python, shell};
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Notation {
    /// Compare only the cases whose names contain this text.
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Show every difference, not only the first twenty.
    #[arg(long)]
    all: bool,
}

pub(crate) fn run(task: &Notation) -> Result {
    let scripts = root().join("tests/notation");
    let python = python::environment(&artifacts("notation"), &scripts.join("requirements.txt"))?;
    let parser = build_release("sardonyx-tests", "notation", &[])?;
    let mut compare = Command::new(python);
    compare
        .arg(scripts.join("compare_notation.py"))
        .arg(parser)
        .arg(artifacts("notation/archive"))
        .args(["--filter", &task.filter]);
    if task.all {
        compare.arg("--all");
    }
    shell::run(&mut compare)
}
