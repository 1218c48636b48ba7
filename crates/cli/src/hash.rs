//! `sardonyx hash`: a number for what a model says, wherever its values are stored.

use std::path::PathBuf;

use serde_json::json;

use crate::failure::Failure;
use crate::saving::at_model;
use crate::terminal::Terminal;
use crate::{Limits, ModelArg};

/// Content hashes: equal for models that differ only in where their values are stored
///
/// SHA-256 over the model with the values of all tensors as raw data: the same whether they lie in
/// the file, in typed lists or in data files. Everything else counts, documentation and metadata
/// included; see `sardonyx strip`. One line per model, in the form of sha256sum.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// ONNX files, or - for stdin
    #[arg(value_name = "MODEL", required = true)]
    models: Vec<PathBuf>,
    #[command(flatten)]
    limits: Limits,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// The name and version of the form of the JSON answer. New keys may be added; a change of meaning
/// gets a new number.
const SCHEMA: &str = "sardonyx.hash/1";

/// A file that cannot be hashed does not keep the others from it.
pub(crate) fn hash(args: &Args, terminal: &Terminal) -> Result<(), Failure> {
    let mut lines = String::new();
    let mut hashes = Vec::new();
    let mut failures = Vec::new();
    let bar = terminal.progress("hashing", Some(args.models.len() as u64));
    for path in &args.models {
        let arg = ModelArg { path: path.clone(), limits: args.limits.clone() };
        match hash_of(&arg) {
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
        terminal.tell(failure);
    }
    last.map_or(Ok(()), Err)
}

fn hash_of(arg: &ModelArg) -> Result<String, Failure> {
    let model = arg.open()?;
    model.content_hash().map_err(|error| at_model(arg, error))
}
