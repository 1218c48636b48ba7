//! `cargo xtask distributed`: workers in Python over MPI and Ray, whose packages the ordinary tests
//! do not have: they skip these examples.

use std::process::Command;

use crate::workspace::{artifacts, root};
use crate::{Result, onnx_suite, python, shell};

#[derive(clap::Args)]
pub(crate) struct Distributed {
    /// The cargo profile that the module is built with.
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
    /// At how many random moments an actor is killed.
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    kills: u32,
}

pub(crate) fn run(task: &Distributed) -> Result {
    let directory = artifacts("distributed");
    let requirements = root().join("tests/distributed/requirements.txt");
    let python = python::environment(&directory, &requirements)?;
    let wheel = onnx_suite::wheel(&python, &directory, &task.profile)?;
    let site = onnx_suite::install_wheel(&python, &directory, &wheel)?;
    let tests = root().join("crates/python/tests");
    shell::run(
        Command::new(python)
            .args(["-m", "pytest", "-v", "-rs", "-p", "no:cacheprovider"])
            .args(["test_distributed.py", "test_distributed_examples.py"].map(|it| tests.join(it)))
            .env("PYTHONPATH", &site)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            // Examples that are missing fail here.
            .env("DISTRIBUTED_TEST_EXAMPLES", "1")
            .env("DISTRIBUTED_TEST_KILLS", task.kills.to_string()),
    )
}
