//! `cargo xtask fuzz SECONDS`: looks for bytes that break a property of `fuzz/`. The program itself
//! has more options: `cargo run --release -p sardonyx-fuzz -- --help`.

use crate::workspace::build_release;
use crate::{Result, shell};
use std::process::Command;

/// Look for bytes that break a property of our readers.
#[derive(clap::Args)]
pub(crate) struct Fuzz {
    /// Time in seconds, over all properties.
    seconds: u64,
    /// Only this property; may be given several times.
    #[arg(long = "property", value_name = "NAME")]
    properties: Vec<String>,
    /// Seed of the mutations: equal seeds give equal mutations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(task: &Fuzz) -> Result {
    let mut command = Command::new(build_release("sardonyx-fuzz", &[])?);
    command.args(["--seconds", &task.seconds.to_string()]);
    command.args(["--seed", &task.seed.to_string()]);
    for property in &task.properties {
        command.args(["--property", property]);
    }
    shell::run(&mut command)
}
