//! `cargo xtask bench`: measure against other runtimes, always side by side in one run.

mod models;

use crate::Result;

#[derive(clap::Subcommand)]
pub(crate) enum Bench {
    /// Time whole models against ONNX Runtime and check that the outputs agree.
    Models(models::Models),
}

pub(crate) fn run(task: Bench) -> Result {
    match task {
        Bench::Models(task) => models::run(&task),
    }
}
