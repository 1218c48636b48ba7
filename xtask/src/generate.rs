//! `cargo xtask generate`: do language models and encoders give what transformers gives?
//!
//! Python exports models with random weights of ten architectures and of encoders as directories,
//! and stores the answers of transformers and sentence-transformers beside them. The tests of
//! `crates/generate` read both; CI runs them on the small directories in `tests/generate`.

use crate::workspace::{artifacts, cargo, root};
use crate::{Result, python, shell};
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Generate {
    /// Architectures, such as gpt2 or bert-mean; all by default.
    names: Vec<String>,
    /// Keep the models and answers of an earlier call.
    #[arg(long)]
    keep: bool,
}

pub(crate) fn run(task: &Generate) -> Result {
    let directory = artifacts("generate");
    let models = directory.join("models");
    let scripts = root().join("tests/agree");
    if !(task.keep && models.exists()) {
        let python = python::environment(&directory, &scripts.join("generators.txt"))?;
        for script in ["generate_export.py", "generate_answers.py"] {
            let mut command = Command::new(&python);
            command.arg(scripts.join(script)).arg(&models).args(&task.names);
            shell::run(&mut command)?;
        }
    }
    let mut tests = cargo();
    tests.args(["test", "--package", "sardonyx-generate", "--test", "integration"]);
    tests.args(["agreement", "--", "--nocapture"]);
    shell::run(tests.env("GENERATE_MODELS", &models))
}
