//! `sardonyx pack`: a model whose values are all in the model file.

use sardonyx::SaveOptions;
use sardonyx::io::Weights;
use serde_json::json;

use crate::failure::Failure;
use crate::human::{format_bytes, format_count};
use crate::model_arg::ModelArg;
use crate::saving;
use crate::stored_tensors::{is_external, sum_tensors};
use crate::terminal::Terminal;

/// Copy values from external data files into the model file
///
/// Stores values of data files in the model as raw data; nothing else changes. With --in-place,
/// data files that no other model in the directory uses are removed afterwards.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    saving: saving::Args,
}

/// Schema of the JSON answer: its name and version. A key that changes its meaning raises the
/// version, a new key does not.
const SCHEMA: &str = "sardonyx.pack/1";

/// Runs `sardonyx pack`: writes the model with the values of its data files inside.
pub(crate) fn pack(args: &Args, terminal: &Terminal) -> Result<(), Failure> {
    let model = args.model.open()?;
    let target = args.saving.target(&args.model, &model)?;
    let (tensors, size) = sum_tensors(&model, is_external);
    let options = SaveOptions::new();
    let saved =
        args.saving.save(&args.model, &model, options, Weights::Inside, target, terminal)?;
    if args.saving.json {
        let answer = json!({
            "schema": SCHEMA,
            "model": args.model.name(),
            "moved": {"tensors": tensors, "bytes": size},
            "saved": saved.json(),
        });
        return terminal.json(&answer, true);
    }
    saved.print(terminal);
    match tensors {
        0 => terminal.note("all values were already in the model"),
        _ => terminal.remark(&format!(
            "copied {}, {}, from data files",
            format_count(tensors, "tensor"),
            format_bytes(size)
        )),
    }
    Ok(())
}
