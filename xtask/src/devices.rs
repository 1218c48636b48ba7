//! `cargo xtask devices`: backend cases with random annotations on several devices, against plain
//! runs, by the runner in `tests/`.

use std::process::Command;

use crate::workspace::{build_release, root};
use crate::{Result, conformance};

#[derive(clap::Args)]
pub(crate) struct Devices {
    /// Run only the cases whose kind/name contains this text.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Number of runs. The index of a run decides the case and its annotations.
    #[arg(long, value_name = "NUMBER", default_value_t = 20_000)]
    runs: u64,
    /// The number of the first run.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    first: u64,
    /// Print the model and the plan of each run.
    #[arg(long)]
    show: bool,
}

pub(crate) fn run(task: &Devices) -> Result {
    let cases = conformance::cases()?;
    let mut command = Command::new(build_release("devices", &[])?);
    command.current_dir(root()).arg(cases);
    command.args(["--runs", &task.runs.to_string(), "--first", &task.first.to_string()]);
    if let Some(filter) = &task.filter {
        command.args(["--filter", filter]);
    }
    if task.show {
        command.arg("--show");
    }
    if command.status()?.success() { Ok(()) } else { Err("runs on devices failed".into()) }
}
