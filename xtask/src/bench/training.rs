//! `cargo xtask bench training`: training steps of whole networks; PyTorch and us, in one process
//! and taking turns, with PyTorch in double as the judge of gradients and losses.

use std::process::Command;

use crate::onnx_suite::Package;
use crate::workspace::{artifacts, build_release, root};
use crate::{Result, python, shell};

#[derive(clap::Args)]
pub(crate) struct Training {
    /// Only these networks: resnet18, `mobilenet_v3`, lstm, gru, `small_bert`, `bert_base`, gpt2.
    networks: Vec<String>,
    /// Number of rounds, in each of which both sides take four steps.
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    rounds: u32,
    /// Threads of each side.
    #[arg(long, value_name = "NUMBER", default_value_t = 2)]
    threads: u32,
    /// The cargo profile that the Python module is built with.
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
}

pub(crate) fn run(task: &Training) -> Result {
    let package = Package::new(&task.profile)?;
    let requirements = root().join("tests/perf/training-requirements.txt");
    // More than 5 GB, as PyTorch's wheels bring libraries for other devices.
    let python = python::environment(&artifacts("bench/torch"), &requirements)?;
    let program = build_release("sardonyx", &[])?;
    shell::run(
        Command::new(&python)
            .arg(root().join("tests/perf/training_torch.py"))
            .args(&task.networks)
            .args(["--rounds", &task.rounds.to_string(), "--threads", &task.threads.to_string()])
            .arg("--program")
            .arg(&program)
            .arg("--directory")
            .arg(artifacts("bench").join("training"))
            .env("PYTHONPATH", &package.site),
    )
}
