//! `sardonyx hash`: content hashes of models, independent of where tensor values are stored.

use std::path::PathBuf;

use serde_json::json;

use crate::failure::Failure;
use crate::model_arg::{Limits, ModelArg};
use crate::saving::at_model;
use crate::terminal::Terminal;

/// Print content hashes, which do not depend on where tensor values are stored
///
/// The hash is the SHA-256 of the model with all tensor values as raw data, so it is the same
/// whether values are stored as raw data, in typed fields or in data files. Everything else is part
/// of the hash, including documentation and metadata; `sardonyx strip` removes these. Prints one
/// line per model, as sha256sum does.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// ONNX files, or - for stdin
    #[arg(value_name = "MODEL", required = true)]
    models: Vec<PathBuf>,
    #[command(flatten)]
    limits: Limits,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Schema of the JSON answer: its name and version. A key that changes its meaning raises the
/// version, a new key does not.
const SCHEMA: &str = "sardonyx.hash/1";

/// Prints the content hash of each model. Models that fail are reported, and the others are still
/// hashed.
pub(crate) fn hash(args: &Args, terminal: &Terminal) -> Result<(), Failure> {
    let mut lines = String::new();
    let mut hashes = Vec::new();
    let mut failures = Vec::new();
    let bar = terminal.progress("hashing", Some(args.models.len() as u64));
    for path in &args.models {
        let arg = ModelArg { path: path.clone(), limits: args.limits.clone() };
        match hash_model(&arg) {
            Ok(hash) => {
                lines += &format!("{hash}  {}\n", arg.name());
                hashes.push(json!({"model": arg.name(), "sha256": hash}));
            }
            Err(failure) => {
                hashes.push(json!({"model": arg.name(), "failure": failure.json()}));
                failures.push(failure);
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if args.json {
        terminal.json(&json!({"schema": SCHEMA, "hashes": hashes}), true)?
    } else {
        terminal.print(&lines)?
    }
    let last = failures.pop();
    for failure in &failures {
        terminal.print_failure(failure);
    }
    last.map_or(Ok(()), Err)
}

/// Opens a model and returns its content hash: a SHA-256 in hexadecimal digits.
fn hash_model(arg: &ModelArg) -> Result<String, Failure> {
    let model = arg.open()?;
    model.content_hash().map_err(|error| at_model(arg, error))
}
