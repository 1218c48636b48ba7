//! `cargo xtask runtime-suite`: tests that others wrote for another runtime, on sessions of our
//! Python package.
//!
//! Python runs them and judges, as for `cargo xtask onnx-suite`.

use crate::onnx_suite::{self, sources, wheel};
use crate::workspace::{artifacts, root};
use crate::{Result, python, shell};
use std::process::Command;

/// The release of skl2onnx whose tests are run, as in `tests/onnx-suite/skl2onnx-requirements.txt`.
const SKL2ONNX: &str = "skl2onnx==1.20.0";

#[derive(clap::Args)]
pub(crate) struct RuntimeSuite {
    /// Run only these files of tests.
    #[arg(value_name = "TEST_FILE")]
    files: Vec<String>,
    /// Run the tests of skl2onnx in place of those of the onnx package's reference evaluator; takes
    /// minutes.
    #[arg(long)]
    skl2onnx: bool,
    /// Rewrite the expectations to what happened.
    #[arg(long)]
    bless: bool,
    /// Run on what the tests were written for, and compare with the list of what does not pass
    /// there.
    #[arg(long)]
    original: bool,
    /// The cargo profile that the module is built with.
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
}

/// Tests of a package.
struct Suite {
    /// Name in `run_suite.py`.
    name: &'static str,
    release: &'static str,
    /// The file with the packages that they need.
    requirements: &'static str,
    /// Directory of the installed packages, below the artifacts.
    directory: &'static str,
}

const EVALUATOR: Suite = Suite {
    name: "evaluator",
    release: onnx_suite::RELEASE,
    requirements: "requirements.txt",
    directory: "onnx-suite",
};

const CONVERTER: Suite = Suite {
    name: "skl2onnx",
    release: SKL2ONNX,
    requirements: "skl2onnx-requirements.txt",
    directory: "skl2onnx",
};

pub(crate) fn run(task: &RuntimeSuite) -> Result {
    let suite = if task.skl2onnx { &CONVERTER } else { &EVALUATOR };
    let scripts = root().join("tests/onnx-suite");
    let directory = artifacts(suite.directory);
    let python = python::environment(&directory, &scripts.join(suite.requirements))?;
    let mut command = Command::new(&python);
    command
        .arg(scripts.join("run_suite.py"))
        .args(["--suite", suite.name, "--tests"])
        .arg(sources(&python, &directory, suite.release)?)
        .arg("--work")
        .arg(directory.join(suite.name));
    if task.original {
        command.arg("--original");
    } else {
        command.arg("--wheel").arg(wheel(&python, &directory, &task.profile)?);
    }
    if task.bless {
        command.arg("--bless");
    }
    shell::run(command.args(&task.files))
}
