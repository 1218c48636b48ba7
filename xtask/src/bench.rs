//! `cargo xtask bench`: measure against other runtimes, libraries and the machine itself, always
//! side by side in one run.

mod builds;
mod check;
mod cliffs;
mod commands;
mod contest;
mod convert;
mod devices;
mod infer;
mod io;
mod kernels;
mod models;
mod python;
mod simplify;
mod text;
mod threads;
mod training;

use crate::workspace::build_release;
use crate::{Result, shell};
use std::path::PathBuf;

pub(crate) use builds::{LOG as BUILD_LOG, wrap_rustc};
pub(crate) use models::{Case, zoo_cases};

#[derive(clap::Subcommand)]
pub(crate) enum Bench {
    /// Time builds by crate, from nothing and after a change of one line.
    Builds(builds::Builds),
    /// Time checking models against the onnx package, and check that both accept them.
    Check(contest::Task),
    /// Time single operators of drawn attributes, shapes and types against ONNX Runtime, and name
    /// those that lost speed since the stored table.
    Cliffs(cliffs::Cliffs),
    /// Time commands as whole processes against the calls of the onnx package, or against opening
    /// the model alone.
    Commands(contest::Task),
    /// Time conversion between versions and inlining against the onnx package, and check that both
    /// make the same.
    Convert(contest::Task),
    /// Time collectives between two threads against a barrier and a copy of as many bytes, and
    /// networks on two devices against one session.
    Devices(devices::Devices),
    /// Time shape inference against the onnx package, and check that both find the same.
    Infer(contest::Task),
    /// Time opening, reading and saving files against other protobuf readers, and check that they
    /// find the same.
    Io(io::Io),
    /// Time kernels, as shares of what the machine can do at most.
    Kernels(kernels::Kernels),
    /// Time whole models against ONNX Runtime and check that the outputs agree.
    Models(models::Models),
    /// Time calls from Python against onnxruntime, and check that the outputs agree.
    Python(python::Python),
    /// Simplify real models by other tools and by us: nodes, bytes, time, memory, and whether
    /// results agree in ONNX Runtime. Downloads 390 MB.
    Simplify(simplify::Simplify),
    /// Time reading and printing the notation against the onnx package, and check that both find
    /// the same.
    Text(text::Text),
    /// Simulate up to 64 threads and more from times on one, and name what scales worst.
    Threads(threads::Threads),
    /// Time training steps against PyTorch, and check gradients and losses against its double.
    Training(training::Training),
}

pub(crate) fn run(task: Bench) -> Result {
    let given = match &task {
        Bench::Cliffs(task) => task.program.clone(),
        Bench::Models(task) => task.program.clone(),
        _ => None,
    };
    print_machine(given)?;
    match task {
        Bench::Builds(task) => builds::run(&task),
        Bench::Check(task) => check::run(&task),
        Bench::Cliffs(task) => cliffs::run(&task),
        Bench::Commands(task) => commands::run(&task),
        Bench::Convert(task) => convert::run(&task),
        Bench::Devices(task) => devices::run(&task),
        Bench::Infer(task) => infer::run(&task),
        Bench::Io(task) => io::run(&task),
        Bench::Kernels(task) => kernels::run(&task),
        Bench::Models(task) => models::run(&task),
        Bench::Python(task) => python::run(&task),
        Bench::Simplify(task) => simplify::run(&task),
        Bench::Text(task) => text::run(&task),
        Bench::Threads(task) => threads::run(&task),
        Bench::Training(task) => training::run(&task),
    }
}

/// Prints processor, instruction set, caches and measured peaks, without which times cannot be
/// compared. Stdout is left to the results. The command that measures is `given`, or built in the
/// usual target directory, so a bench of builds, which has directories of its own, still begins
/// with nothing built.
fn print_machine(given: Option<PathBuf>) -> Result {
    let program = given.map_or_else(|| build_release("sardonyx", &[]), Ok)?;
    let mut command = std::process::Command::new(program);
    eprint!("{}", shell::output(command.args(["info", "--machine"]))?);
    Ok(())
}
