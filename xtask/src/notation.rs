//! `cargo xtask notation`: our parser of the notation against the one of the onnx package, and what
//! we print against what it reads. Also what `print` and `parse` make of models, with no comparison
//! but that of the bytes.
//!
//! Python makes the texts, asks both parsers and judges; `tests/src/bin/notation.rs` is the one
//! that is ours, and prints.

use crate::workspace::{artifacts, build_release, root};
use crate::{Result, conformance, python, shell};
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Notation {
    /// Compare only the texts and the models whose names contain this text.
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Show every difference, not only the first twenty.
    #[arg(long)]
    all: bool,
}

pub(crate) fn run(task: &Notation) -> Result {
    let scripts = root().join("tests/notation");
    let python = python::environment(&artifacts("notation"), &scripts.join("requirements.txt"))?;
    let parser = build_release("notation", &[])?;
    let odd = artifacts("notation/odd");
    shell::run(Command::new(&python).arg(scripts.join("odd_models.py")).arg(&odd))?;
    let models =
        ["examples", "../shared/models", "../shared/zoo"].map(|directory| root().join(directory));

    let mut texts = Command::new(&python);
    texts.arg(scripts.join("compare_notation.py")).arg(&parser).arg(artifacts("notation/archive"));
    let mut printed = Command::new(&python);
    printed
        .arg(scripts.join("compare_models.py"))
        .arg(&parser)
        .arg(conformance::cases()?)
        .arg(&odd)
        .args(&models);
    // Each runs even if one before finds something.
    let returned = if task.filter.is_empty() {
        let directories = [conformance::cases()?, odd].into_iter().chain(models);
        round_trips(&python, &directories.collect::<Vec<_>>())
    } else {
        Ok(())
    };
    let results = [texts, printed].map(|mut compare| {
        compare.args(["--filter", &task.filter]);
        if task.all {
            compare.arg("--all");
        }
        shell::run(&mut compare)
    });
    results.into_iter().chain([returned]).collect()
}

/// Whether all models in these directories are the same bytes after they were printed and parsed,
/// without any flags.
pub(crate) fn round_trips(python: &Path, directories: &[PathBuf]) -> Result {
    shell::run(
        Command::new(python)
            .arg(root().join("tests/notation/round_trips.py"))
            .arg(build_release("sardonyx", &[])?)
            .args(directories),
    )
}
