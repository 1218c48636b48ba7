//! `cargo xtask bench devices`: collectives between two workers against what the machine needs for
//! them, networks on two devices against one session, and the bytes that a transformer sends.

mod collectives;
mod networks;

use crate::workspace::artifacts;
use crate::{Result, bench::models::allowed_processors};
use serde_json::json;
use std::fs;
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Devices {
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// A few calls of each, a small network and no bars: does everything still run?
    #[arg(long, conflicts_with = "zoo")]
    smoke: bool,
    /// The directory of models without weights and of .case files; networks are left out where it
    /// is missing [default: ../shared/zoo beside the checkout].
    #[arg(long, value_name = "DIR")]
    zoo: Option<PathBuf>,
}

pub(crate) fn run(task: &Devices) -> Result {
    let processors = allowed_processors()?;
    let Some(processors) = processors.get(..2) else {
        return Err("two workers need two processors".into());
    };
    let rows = collectives::measure(processors, task.smoke)?;
    let networks = networks::measure(task)?;
    let report = json!({
        "collectives": rows.iter().map(collectives::Row::to_json).collect::<Vec<_>>(),
        "networks": networks.as_ref().map(networks::Networks::to_json),
    });
    let report = serde_json::to_string_pretty(&report)?;
    fs::create_dir_all(artifacts("bench"))?;
    let file = if task.smoke { "devices-smoke.json" } else { "devices.json" };
    fs::write(artifacts("bench").join(file), &report)?;
    if task.json {
        println!("{report}");
    } else {
        collectives::print(&rows);
        networks.iter().for_each(networks::Networks::print);
    }
    let mut failures = networks.iter().flat_map(networks::Networks::failures).collect::<Vec<_>>();
    if !task.smoke {
        failures.extend(collectives::failures(&rows));
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n").into()) }
}
