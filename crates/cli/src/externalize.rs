//! `sardonyx externalize`: moves the values of tensors to data files.

use sardonyx::inspect::{StoredTensor, TensorRole, TensorStorage};
use sardonyx::io::{Layout, Weights};
use sardonyx::{Model, SaveOptions};
use serde_json::json;

use crate::failure::Failure;
use crate::human::{format_bytes, format_count, parse_bytes};
use crate::model_arg::ModelArg;
use crate::saving::{self, Target};
use crate::stored_tensors::sum_tensors;
use crate::terminal::Terminal;

/// Move tensor values to external data files beside the model
///
/// Moves initializers stored as raw data of at least --threshold bytes; values that already are in
/// data files are rewritten. The model is replaced last and atomically, and data files that only
/// the old model used are removed. The IR version is raised to 4, the first with external data, if
/// it is lower. Running the command again changes nothing. Sizes are written as 4096, 64K, 1.5M or
/// 2G.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    saving: saving::Args,
    /// Keep tensors of fewer bytes in the model
    #[arg(long, value_name = "SIZE", default_value = "1K", value_parser = parse_bytes)]
    threshold: u64,
    /// Write one data file for all tensors (default)
    #[arg(long, conflicts_with_all = ["per_tensor", "shards"])]
    one_file: bool,
    /// Write one data file for each tensor
    #[arg(long, conflicts_with = "shards")]
    per_tensor: bool,
    /// Write data files of at most SIZE each, such as 2G; a larger tensor gets a file of its own
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    shards: Option<u64>,
    /// Alignment of tensors in data files; smaller tensors are aligned to 4K
    #[arg(long, value_name = "SIZE", default_value = "64K", value_parser = parse_bytes)]
    align: u64,
    /// Name of the data file, relative to the model's directory; by default the model's name plus
    /// .data
    #[arg(long, value_name = "NAME")]
    data: Option<String>,
    /// Also move tensors of attributes; not all programs support this
    #[arg(long)]
    attributes: bool,
    /// Also move values in typed fields, such as float_data, as raw data
    #[arg(long)]
    typed: bool,
    /// Store the SHA-1 of each data file in the model
    #[arg(long)]
    checksum: bool,
}

/// Name and version of the schema of `externalize --json`. The version rises when the meaning of a
/// key changes, not when a key is added.
const SCHEMA: &str = "sardonyx.externalize/1";

pub(crate) fn externalize(args: &Args, terminal: &Terminal) -> Result<(), Failure> {
    let mut model = args.model.open()?;
    let target = args.saving.target(&args.model, &model)?;
    if target == Target::Stdout {
        return Err(Failure::new("data files cannot be written to stdout")
            .help("give --output FILE; data files are written beside FILE"));
    }
    let before = model.ir_version();
    if before.unwrap_or(0) < EXTERNAL_DATA && args.has_values_to_move(&model) {
        let raised = model.set_ir_version(EXTERNAL_DATA);
        raised.map_err(|error| Failure::from(error).at(args.model.name()))?;
        let before = before.map_or("nothing".to_string(), |before| before.to_string());
        terminal.remark(&format!(
            "ir_version: {before} → {EXTERNAL_DATA}, the first IR version with external data"
        ));
    }
    let saved = args.saving.save(
        &args.model,
        &model,
        args.to_options(),
        Weights::Outside,
        target,
        terminal,
    )?;
    let staying = |fits: &dyn Fn(&StoredTensor) -> bool| {
        sum_tensors(&model, |tensor| {
            tensor.bytes.is_some_and(|bytes| bytes >= args.threshold) && fits(tensor)
        })
    };
    let in_lists = if args.typed {
        (0, 0)
    } else {
        staying(&|tensor| {
            let may_move = args.attributes || is_in_graph(tensor);
            may_move
                && matches!(tensor.storage, TensorStorage::Typed(name) if name != "string_data")
        })
    };
    let in_attributes = if args.attributes {
        (0, 0)
    } else {
        staying(&|tensor| !is_in_graph(tensor) && tensor.storage == TensorStorage::Raw)
    };
    if args.saving.json {
        let sum = |(tensors, bytes)| json!({"tensors": tensors, "bytes": bytes});
        let answer = json!({
            "schema": SCHEMA,
            "model": args.model.name(),
            "saved": saved.json(),
            "inside": {"typed": sum(in_lists), "attributes": sum(in_attributes)},
        });
        return terminal.json(&answer, true);
    }
    saved.print(terminal);
    for ((tensors, size), place, option) in
        [(in_lists, "typed fields", "--typed"), (in_attributes, "attributes", "--attributes")]
    {
        if tensors > 0 {
            let (tensors, size) = (format_count(tensors, "tensor"), format_bytes(size));
            terminal.note(&format!(
                "{tensors} in {place}, {size}, were not moved; {option} moves them too"
            ));
        }
    }
    if saved.count_data_files() == 0 {
        let threshold = format_bytes(args.threshold);
        terminal
            .note(&format!("no tensor was moved: no tensor has raw data of {threshold} or more"));
    }
    Ok(())
}

/// First IR version with external data files.
const EXTERNAL_DATA: i64 = 4;

/// Whether the tensor is an initializer of a graph or a part of one, not an attribute of a node.
fn is_in_graph(tensor: &StoredTensor) -> bool {
    tensor.role != TensorRole::Attribute
}

impl Args {
    /// Whether saving moves the values of any tensor of the model to a data file.
    fn has_values_to_move(&self, model: &Model) -> bool {
        model.tensors().iter().any(|tensor| {
            let is_stored = match tensor.storage {
                TensorStorage::Raw => true,
                TensorStorage::Typed(name) => self.typed && name != "string_data",
                _ => false,
            };
            let is_whole = tensor.role == TensorRole::Initializer
                || self.attributes && tensor.role == TensorRole::Attribute;
            let is_large = tensor.bytes.is_some_and(|len| len > 0 && len >= self.threshold);
            is_stored && is_whole && is_large
        })
    }

    fn to_options(&self) -> SaveOptions {
        let layout = match (self.per_tensor, self.shards) {
            (true, _) => Layout::PerTensor,
            (false, Some(limit)) => Layout::Shards(limit),
            (false, None) => Layout::OneFile,
        };
        let options = SaveOptions::new()
            .layout(layout)
            .threshold(self.threshold)
            .alignment(self.align)
            .attributes(self.attributes)
            .typed_values(self.typed)
            .checksum(self.checksum);
        match &self.data {
            Some(name) => options.data_name(name),
            None => options,
        }
    }
}
