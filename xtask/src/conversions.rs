//! `cargo xtask conversions`: every backend case, converted to every version of its operator set.

use crate::conformance::cases;
use crate::workspace::{build_release, root};
use crate::{Result, shell};
use std::process::Command;

/// The versions of `ai.onnx` and of `ai.onnx.ml` that there are.
const OPSETS: [(&str, std::ops::RangeInclusive<u32>); 2] =
    [("ai.onnx", 1..=28), ("ai.onnx.ml", 1..=5)];

#[derive(clap::Args)]
pub(crate) struct Conversions {
    /// Convert each case to one version only, chosen by this number: what CI does.
    #[arg(long, value_name = "SEED")]
    sample: Option<u64>,
    /// Convert only the cases whose kind/name contains this text.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Convert to this version only.
    #[arg(long, value_name = "[DOMAIN=]VERSION")]
    opset: Vec<String>,
    /// Rewrite tests/conformance/conversions.tsv to what happened.
    #[arg(long)]
    bless: bool,
    /// Say how often each reason for a refusal was given.
    #[arg(long)]
    reasons: bool,
    /// Write the converted models under this directory.
    #[arg(long, value_name = "DIRECTORY")]
    write: Option<std::path::PathBuf>,
}

pub(crate) fn run(task: &Conversions) -> Result {
    let mut command = Command::new(build_release("conversions", &[])?);
    command.current_dir(root()).arg(cases()?);
    let is_whole = task.sample.is_none() && task.filter.is_none() && task.opset.is_empty();
    if is_whole {
        command.args(["--expectations", "tests/conformance/conversions.tsv"]);
    }
    if task.opset.is_empty() {
        for (domain, versions) in OPSETS {
            for version in versions {
                command.arg(format!("--opset={domain}={version}"));
            }
        }
    }
    command.args(task.opset.iter().map(|opset| format!("--opset={opset}")));
    command.args(task.sample.map(|seed| format!("--sample={seed}")));
    command.args(task.filter.as_ref().map(|text| format!("--filter={text}")));
    if let Some(directory) = &task.write {
        command.arg("--write").arg(std::path::absolute(directory)?);
    }
    for (wanted, flag) in [(task.bless, "--bless"), (task.reasons, "--reasons")] {
        if wanted {
            command.arg(flag);
        }
    }
    shell::run(&mut command)
}
