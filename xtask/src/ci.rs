//! `cargo xtask ci`: everything that must hold before a change goes in, in the order in which
//! failures are likely. `cargo xtask full`: what takes too long for that, at full size. Later
//! steps run after a failure, too, so that one run names all failures.

use crate::workspace::{Environment, cargo};
use crate::{Result, shell, static_build};
use std::time::{Duration, Instant};

/// Choose which steps to run.
#[derive(clap::Args)]
pub(crate) struct Choice {
    /// Leave out the steps before this one.
    #[arg(long, value_name = "STEP")]
    from: Option<String>,
}

struct Step {
    name: &'static str,
    /// After `cargo`.
    arguments: &'static [&'static str],
    environment: Environment,
}

/// Steps that need optimised programs use profile and flags of the static build, so that the crates
/// are optimised once, and they try the released code.
const STEPS: &[Step] = &[
    step("format", &["fmt", "--all", "--check"]),
    // With the feature that is off elsewhere.
    step(
        "lint",
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--features",
            "sardonyx/tracing",
            "--",
            "-D",
            "warnings",
        ],
    ),
    // Without any feature: other crates of the workspace turn some on.
    step(
        "lint without features",
        &[
            "clippy",
            "-p",
            "sardonyx",
            "--no-default-features",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
    ),
    step("tidy", &["xtask", "tidy"]),
    step("deny", &["xtask", "deny"]),
    step("interface", &["xtask", "api", "--check"]),
    step("coverage", &["xtask", "coverage", "--check"]),
    step("operators", &["xtask", "operators", "--check"]),
    step("findings", &["xtask", "findings", "--check"]),
    step("thresholds", &["xtask", "thresholds", "--check"]),
    step("requirements", &["xtask", "requirements", "--check"]),
    step("test", &["test", "--workspace"]),
    // Products have no spans, so crates that have them are built for this test.
    step("spans", &["test", "--workspace", "--features", "sardonyx/tracing", "--test", "spans"]),
    // Needs the command, which the tests have built.
    step("commands", &["xtask", "commands", "--check"]),
    step("isa", &["xtask", "isa", "--lower"]),
    step("copies", &["xtask", "copies", "--check"]),
    // Not optimised further: building takes longer than the suite does.
    step("onnx suite", &["xtask", "onnx-suite", "--profile", "dev"]),
    step("runtime suite", &["xtask", "runtime-suite", "--profile", "dev"]),
    // One package of several: the others need more to install.
    step("rapidocr", &["xtask", "packages", "programs", "rapidocr", "--profile", "dev"]),
    step("conformance", &["xtask", "conformance"]).release(),
    // A version for each case: all of them take minutes.
    step("conversions", &["xtask", "conversions", "--sample", "1"]).release(),
    // A part of the cells: all of them take minutes.
    step("matrix", &["xtask", "matrix", "--sample", "1500"]).release(),
    step("devices", &["xtask", "devices", "--runs", "500"]).release(),
    step("formats", &["xtask", "formats"]).release(),
    step("operators of ONNX Runtime", &["xtask", "agree", "microsoft", "quantized"]).release(),
    step("training elsewhere", &["xtask", "agree", "training"]).release(),
    step("notation", &["xtask", "notation"]).release(),
    step("interop", &["xtask", "interop"]).release(),
    step("mpi", &["xtask", "mpi"]),
    step("static build", &["xtask", "static-build"]).release(),
    step("bench", &["xtask", "bench", "models", "--smoke"]).release(),
    step("bench of files", &["xtask", "bench", "io", "--smoke"]).release(),
    step("bench of text", &["xtask", "bench", "text", "--smoke"]).release(),
    step("bench of checks", &["xtask", "bench", "check", "--smoke"]).release(),
    step("bench of inference", &["xtask", "bench", "infer", "--smoke"]).release(),
    step("bench of conversions", &["xtask", "bench", "convert", "--smoke"]).release(),
    step("bench of commands", &["xtask", "bench", "commands", "--smoke"]).release(),
    step("bench of devices", &["xtask", "bench", "devices", "--smoke"]).release(),
    step("bench of threads", &["xtask", "bench", "threads", "--smoke"]).release(),
];

/// Suites at full size, for a run by hand.
const FULL: &[Step] = &[
    step("conformance", &["xtask", "conformance"]).release(),
    step("conversions", &["xtask", "conversions"]).release(),
    step("matrix", &["xtask", "matrix"]).release(),
    step("devices", &["xtask", "devices"]).release(),
    step("instruction sets", &["xtask", "isa"]),
    step("releases", &["xtask", "releases"]).release(),
    step("notation", &["xtask", "notation"]).release(),
    step("onnx suite", &["xtask", "onnx-suite"]),
    step("runtime suite", &["xtask", "runtime-suite"]),
    step("agreement", &["xtask", "agree"]).release(),
    step("models in packages", &["xtask", "packages", "models"]),
    step("packages", &["xtask", "packages", "programs"]),
    step("features", &["xtask", "features"]),
    // Answers of programs without families and formats. Builds the crates of the engine again.
    step(
        "test without features",
        &[
            "test",
            "-p",
            "sardonyx",
            "--no-default-features",
            "--features",
            "ndarray,num-complex,serde",
            "--test",
            "integration",
            "left_out",
        ],
    ),
    step("other platforms", &["xtask", "cross"]),
    step("fuzz", &["xtask", "fuzz", "600"]),
    step("release", &["xtask", "release", "--dry-run"]),
];

const fn step(name: &'static str, arguments: &'static [&'static str]) -> Step {
    Step { name, arguments, environment: &[] }
}

impl Step {
    const fn release(self) -> Step {
        Step { environment: static_build::ENVIRONMENT, ..self }
    }
}

/// Runs the steps of CI.
pub(crate) fn run(choice: &Choice) -> Result {
    run_steps("ci", STEPS, choice)
}

/// Runs the suites at full size.
pub(crate) fn run_full(choice: &Choice) -> Result {
    run_steps("full", FULL, choice)
}

/// Runs steps in turn, and prints the time of each and which failed.
fn run_steps(task: &str, steps: &[Step], choice: &Choice) -> Result {
    let first = match &choice.from {
        None => 0,
        Some(name) => steps.iter().position(|step| step.name == name).ok_or_else(|| {
            let names: Vec<&str> = steps.iter().map(|step| step.name).collect();
            format!("{task} has no step '{name}'; its steps: {}", names.join(", "))
        })?,
    };
    let mut times = Vec::new();
    let mut failed = Vec::new();
    for (index, step) in steps.iter().enumerate().skip(first) {
        let command_line = format!("cargo {}", step.arguments.join(" "));
        println!("\n==> {} of {}, {}: {command_line}", index + 1, steps.len(), step.name);
        let start = Instant::now();
        let result = run_step(step);
        times.push((step.name, start.elapsed()));
        if let Err(reason) = result {
            println!("step '{}' failed: {reason}", step.name);
            failed.push(format!("step '{}' failed: {reason}\n  again: {command_line}", step.name));
        }
    }
    print_times(&times);
    if failed.is_empty() {
        println!("{task}: all {} steps passed", times.len());
        return Ok(());
    }
    Err(format!("{} of {} steps failed\n{}", failed.len(), times.len(), failed.join("\n")).into())
}

fn run_step(step: &Step) -> Result {
    // A task is this very program: going through cargo would build it again with the step's
    // environment.
    let mut command = match step.arguments {
        ["xtask", task @ ..] => {
            let mut command = std::process::Command::new(std::env::current_exe()?);
            command.args(task);
            command
        }
        arguments => {
            let mut command = cargo();
            command.args(arguments);
            command
        }
    };
    shell::run(command.envs(step.environment.iter().copied()))
}

fn print_times(times: &[(&str, Duration)]) {
    println!();
    for (name, time) in times {
        println!("{name:14} {:7.1} s", time.as_secs_f64());
    }
    let total: Duration = times.iter().map(|(_, time)| *time).sum();
    println!("{:14} {:7.1} s", "all", total.as_secs_f64());
}
