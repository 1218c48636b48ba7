//! `cargo xtask bench simplify`: simplified models of onnxsim, onnxslim and ours, side by side.
//!
//! `tests/perf/simplify.py` runs each tool as a process of its own, and judges what it wrote.

use super::models::{describe_machine, new_note, zoo_at, zoo_cases};
use crate::workspace::{artifacts, build_release, readable_path, root};
use crate::{Result, packages, python, shell};
use std::path::PathBuf;
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Simplify {
    /// Only models whose name, or whose wheel and path, contain this text.
    #[arg(default_value = "")]
    only: String,
    /// Leave out the models of the zoo, which need 10 GB of memory.
    #[arg(long)]
    no_zoo: bool,
    /// Leave out the models in wheels.
    #[arg(long)]
    no_wheels: bool,
    /// Leave out the rivals.
    #[arg(long)]
    ours: bool,
    /// Runs of each tool, by turns, of which the least time counts.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    rounds: u32,
    /// Write the table into a new note under docs/measurements.
    #[arg(long, conflicts_with = "ours")]
    write: bool,
    /// The directory of models without weights [default: ../shared/zoo beside the checkout].
    #[arg(long, value_name = "DIR")]
    zoo: Option<PathBuf>,
}

/// Models of the zoo, each with the inputs of a case.
const CASES: [&str; 12] = [
    "bert_base.b1",
    "vit_b_16.b1",
    "convnext_tiny.b1",
    "gpt2.prefill",
    "qwen2_0_5b.prefill",
    "yolov8n_like.b1",
    "resnet50.b1",
    "mobilenet_v3.b1",
    "lstm.b1",
    "bert_base_int8dyn.b1",
    "resnet50_qdq.b1",
    "skl_pipeline.r1",
];

pub(crate) fn run(task: &Simplify) -> Result {
    let requirements = root().join("tests/perf/simplify-requirements.txt");
    let directory = artifacts("bench/simplify");
    let python = python::environment(&directory, &requirements)?;
    let mut judge = Command::new(&python);
    judge.arg(root().join("tests/perf/simplify.py"));
    judge.arg(build_release("sardonyx", &[])?).arg(directory.join("work"));
    judge.arg("--json").arg(artifacts("bench").join("simplify.json"));
    judge.args(["--rounds", &task.rounds.to_string()]);
    judge.arg(format!("--only={}", task.only)).args(task.ours.then_some("--tools=sardonyx"));
    if !task.no_wheels {
        judge.arg("--wheels").arg(packages::download_wheels(&python)?);
    }
    if !task.no_zoo {
        let names = CASES.map(String::from);
        for case in zoo_cases(&zoo_at(task.zoo.as_deref()), &names)? {
            judge.arg("--case").arg(&case.model).args(case.make_inputs()?);
        }
    }
    let note = if task.write { Some(new_note("simplify")?) } else { None };
    if let Some(note) = &note {
        judge.arg("--note").arg(note).arg("--machine").arg(describe_machine());
    }
    let judged = shell::run(&mut judge);
    // Written even if a bar is missed: the note lists missed bars.
    if let Some(note) = note.filter(|note| note.exists()) {
        eprintln!("wrote {}: list it in docs/measurements/README.md", readable_path(&note));
    }
    judged
}
