//! `cargo xtask formats`: our protobuf JSON and text format against those of the protobuf package,
//! in both directions.
//!
//! Python makes the messages and judges; converting is the program `convert_messages` of
//! `sardonyx-tests`.

use crate::workspace::{artifacts, build_release, root};
use crate::{Result, conformance, python, shell};
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Formats {
    /// Also convert the models and values of all backend cases, which takes minutes.
    #[arg(long)]
    cases: bool,
}

pub(crate) fn run(task: &Formats) -> Result {
    let python =
        python::environment(&artifacts("formats"), &root().join("tests/formats/requirements.txt"))?;
    let converter = build_release("convert_messages", &[])?;
    let mut compare = Command::new(python);
    // Making tensors of the smallest types sets off warnings, which do not concern us.
    compare
        .args(["-W", "ignore"])
        .arg(root().join("tests/formats/compare_formats.py"))
        .arg(converter)
        .arg(artifacts("formats/messages"));
    if task.cases {
        compare.arg(conformance::cases()?);
    }
    shell::run(&mut compare)
}
