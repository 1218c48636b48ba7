//! `cargo xtask`: everything we do beside cargo. One file per subcommand.

mod agree;
mod api;
mod bench;
mod ci;
mod clients;
mod commands;
mod conformance;
mod conversions;
mod copies;
mod coverage;
mod cross;
mod deny;
mod dependencies;
mod devices;
mod distributed;
mod features;
mod findings;
mod formats;
mod fuzz;
mod generate;
mod interop;
mod isa;
mod matrix;
mod module_graph;
mod mpi;
mod notation;
mod onnx_suite;
mod op;
mod operators;
mod packages;
mod python;
mod release;
mod releases;
mod requirements;
mod runtime_suite;
mod rust_source;
mod shell;
mod sizes;
mod static_build;
mod thresholds;
mod tidy;
mod voice;
mod workspace;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Result of a task: nothing, or a readable reason for the failure.
pub(crate) type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The tasks of this workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check that whole models give what ONNX Runtime gives.
    Agree(agree::Agree),
    /// Compare the public interface of the library with the list of it.
    Api(api::Api),
    /// Measure against other runtimes.
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Run what .ci/run runs, step by step.
    Ci(ci::Choice),
    /// Run programs that use the C interface of onnxruntime with our library.
    Clients(clients::Clients),
    /// Write docs/commands.md, or check that it is up to date.
    Commands(commands::Commands),
    /// Run the backend cases of the onnx wheel and compare with the expectations.
    Conformance(conformance::Conformance),
    /// Check licences, bans and sources of dependencies by deny.toml.
    Deny,
    /// Run backend cases with random annotations on several devices, and compare with plain runs.
    Devices(devices::Devices),
    /// Convert the backend cases to other versions of operator sets and compare what they give.
    Conversions(conversions::Conversions),
    /// Count the copies of the kernels' loops, by family and instruction set.
    Copies(copies::Copies),
    /// Write docs/coverage.md, or check that it is up to date.
    Coverage(coverage::Coverage),
    /// Compile the library for other processors and systems, and run tests under an emulator.
    Cross(cross::Cross),
    /// Run the examples of workers over MPI and Ray from Python, and the tests of workers.
    Distributed(distributed::Distributed),
    /// Build the library with each of its features alone.
    Features,
    /// Write docs/findings.md, or check that it is up to date.
    Findings(findings::Findings),
    /// Compare protobuf JSON and text format with those of the protobuf package.
    Formats(formats::Formats),
    /// Run the suites at full size, by hand.
    Full(ci::Choice),
    /// Look for bytes that break a property of our readers.
    Fuzz(fuzz::Fuzz),
    /// Compare texts, vectors and labels of models with random weights with transformers.
    Generate(generate::Generate),
    /// Exchange files with the onnx package, ONNX Runtime, NumPy and safetensors.
    Interop(interop::Interop),
    /// Run the tests of kernels and engine under each instruction set.
    Isa(isa::Isa),
    /// Run every version of every operator with every type, and compare with the table of results.
    Matrix(matrix::Matrix),
    /// Run workers of MPI jobs over MPICH and Open MPI.
    Mpi,
    /// Compare our parser of the notation with that of the onnx package.
    Notation(notation::Notation),
    /// Run the tests of the onnx package on our Python module.
    OnnxSuite(onnx_suite::OnnxSuite),
    /// Show an operator: its versions, inference, adapters, binding and cases.
    Op(op::Op),
    /// Write docs/operators, or check that it is up to date.
    Operators(operators::Operators),
    /// Run packages of PyPI that use onnxruntime, and the models inside them, on Sardonyx.
    #[command(subcommand)]
    Packages(packages::Packages),
    Release(release::Release),
    /// Run the node tests of older releases of the onnx package and compare with the expectations.
    Releases(releases::Releases),
    /// Print which requirements the tests quote.
    Requirements(requirements::Requirements),
    /// Run tests that others wrote for another runtime on sessions of our Python module.
    RuntimeSuite(runtime_suite::RuntimeSuite),
    /// Build the command without any shared library and run it in an empty chroot.
    StaticBuild,
    /// Write docs/thresholds.md, or check that it is up to date.
    Thresholds(thresholds::Thresholds),
    /// Check rules of the workspace that cargo and clippy do not know, or report on its wording.
    Tidy(voice::Voice),
}

fn main() -> ExitCode {
    let result = match (std::env::var_os(bench::BUILD_LOG), std::env::var_os(api::RUSTDOC)) {
        (Some(log), _) => bench::wrap_rustc(&log),
        (None, Some(rustdoc)) => api::wrap_rustdoc(&rustdoc),
        (None, None) => run(Arguments::parse().task).map(|()| ExitCode::SUCCESS),
    };
    match result {
        Ok(code) => code,
        Err(reason) => {
            eprintln!("xtask: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result {
    match task {
        Task::Agree(task) => agree::run(&task),
        Task::Api(task) => api::run(&task),
        Task::Bench(task) => bench::run(task),
        Task::Ci(choice) => ci::run(&choice),
        Task::Clients(task) => clients::run(&task),
        Task::Commands(task) => commands::run(&task),
        Task::Conformance(task) => conformance::run(&task),
        Task::Deny => deny::run(),
        Task::Features => features::run(),
        Task::Devices(task) => devices::run(&task),
        Task::Conversions(task) => conversions::run(&task),
        Task::Copies(task) => copies::run(&task),
        Task::Coverage(task) => coverage::run(&task),
        Task::Cross(task) => cross::run(&task),
        Task::Distributed(task) => distributed::run(&task),
        Task::Findings(task) => findings::run(&task),
        Task::Formats(task) => formats::run(&task),
        Task::Full(choice) => ci::run_full(&choice),
        Task::Fuzz(task) => fuzz::run(&task),
        Task::Generate(task) => generate::run(&task),
        Task::Interop(task) => interop::run(&task),
        Task::Isa(task) => isa::run(&task),
        Task::Matrix(task) => matrix::run(&task),
        Task::Mpi => mpi::run(),
        Task::Notation(task) => notation::run(&task),
        Task::OnnxSuite(task) => onnx_suite::run(&task),
        Task::Op(task) => op::run(&task),
        Task::Operators(task) => operators::run(&task),
        Task::Packages(task) => packages::run(&task),
        Task::Release(task) => release::run(&task),
        Task::Releases(task) => releases::run(&task),
        Task::Requirements(task) => requirements::run(&task),
        Task::RuntimeSuite(task) => runtime_suite::run(&task),
        Task::StaticBuild => static_build::run(),
        Task::Thresholds(task) => thresholds::run(&task),
        Task::Tidy(voice) => tidy::run(&voice),
    }
}
