//! `sardonyx ls`: list of the tensors that a model stores, one per line.

use sardonyx::inspect::{StoredTensor, TensorStorage};
use sardonyx::tool::Glob;
use sardonyx::{DataType, Model};
use serde_json::{Map, Value, json};

use crate::data_files::DataFiles;
use crate::failure::Failure;
use crate::human::{
    Align, compare_names, cut_line, format_bytes, format_columns, format_count, group_digits,
    parse_bytes,
};
use crate::model_arg::ModelArg;
use crate::show;
use crate::stats::{Number, Stats};
use crate::stored_tensors::is_external;
use crate::terminal::Terminal;
use crate::types::parse_element;
use crate::verdict::Verdict;

/// List stored tensors: name, type, shape, size and location
///
/// Values are read only for --stats: minimum, maximum and mean of the finite elements, fraction of
/// zeros, counts of NaN and infinities. A tensor that cannot be read is listed with the reason, and
/// the exit code is 1. The location in the model is shown for tensors other than initializers of
/// the main graph; it is the PLACE of `sardonyx cat --place`. Sizes are written as 4096, 64K, 1.5M
/// or 2G.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    /// Read the values and show statistics
    #[arg(long)]
    stats: bool,
    /// Sort order; by default that of the file. By size, the largest comes first
    #[arg(long, value_enum, value_name = "BY")]
    sort: Option<Sort>,
    /// Reverse the order
    #[arg(long)]
    reverse: bool,
    /// Only tensors whose names match; * matches any characters, ? matches one. May be repeated
    #[arg(long = "name", value_name = "GLOB", value_parser = Glob::parse)]
    names: Vec<Glob>,
    /// Only tensors of this element type, such as float16. May be repeated
    #[arg(long = "type", value_name = "TYPE", value_parser = parse_element)]
    types: Vec<DataType>,
    /// Only tensors of at least this size, such as 64K; by default all
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    min_bytes: Option<u64>,
    /// Only tensors whose values are in data files
    #[arg(long, conflicts_with = "inside")]
    external: bool,
    /// Only tensors whose values are in the model file
    #[arg(long)]
    inside: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Sort {
    Name,
    Size,
    Type,
    /// Data file and offset; values in the model come first
    File,
    Place,
}

/// Schema of the JSON answer: its name and version. A key that changes its meaning raises the
/// version, a new key does not.
const SCHEMA: &str = "sardonyx.ls/1";

/// Row of the list: a stored tensor, its problem and its statistics.
struct Row {
    tensor: StoredTensor,
    /// Reason why the tensor cannot be read; `None` if it can be read.
    problem: Option<String>,
    /// Statistics of the values; `None` without `--stats`, for strings, and if the tensor cannot be
    /// read.
    stats: Option<Stats>,
}

/// Runs `sardonyx ls`. Tensors that cannot be read are findings.
pub(crate) fn ls(args: &Args, terminal: &Terminal) -> Result<Verdict, Failure> {
    let model = args.model.open()?;
    let mut tensors: Vec<StoredTensor> = model.tensors();
    let stored = tensors.len();
    tensors.retain(|tensor| args.is_selected(tensor));
    if let Some(sort) = args.sort {
        sort.sort_tensors(&mut tensors);
    }
    if args.reverse {
        tensors.reverse();
    }
    let rows = examine_tensors(&model, tensors, args, terminal);
    let broken = rows.iter().filter(|row| row.problem.is_some()).count();
    if args.json {
        terminal.json(&as_json(&rows, broken, &args.model.name()), true)?
    } else {
        terminal.print(&as_text(&rows, broken, stored))?
    }
    Ok(match broken {
        0 => Verdict::Fine,
        _ => Verdict::Findings,
    })
}

impl Args {
    /// Whether the options select `tensor` for the list.
    fn is_selected(&self, tensor: &StoredTensor) -> bool {
        let is_external = is_external(tensor);
        (self.names.is_empty() || self.names.iter().any(|glob| glob.matches(&tensor.name)))
            && (self.types.is_empty()
                || tensor.data_type.is_some_and(|found| self.types.contains(&found)))
            && self.min_bytes.is_none_or(|least| tensor.bytes.is_some_and(|bytes| bytes >= least))
            && (is_external || !self.external)
            && !(is_external && self.inside)
    }
}

impl Sort {
    /// Sorts tensors by this key. Tensors with equal keys stay in the order of the model file.
    fn sort_tensors(self, tensors: &mut [StoredTensor]) {
        match self {
            Sort::Name => tensors.sort_by(|a, b| compare_names(&a.name, &b.name)),
            Sort::Size => tensors.sort_by_key(|tensor| std::cmp::Reverse(tensor.bytes)),
            Sort::Type => tensors.sort_by_key(StoredTensor::type_name),
            Sort::File => tensors.sort_by_key(find_data_position),
            Sort::Place => tensors.sort_by(|a, b| compare_names(&a.place, &b.place)),
        }
    }
}

/// Returns the data file of a tensor and the offset of its values in bytes; `None` if the values
/// are in the model file.
fn find_data_position(tensor: &StoredTensor) -> Option<(String, u64)> {
    match &tensor.storage {
        TensorStorage::External { location, offset, .. } => Some((location.clone(), *offset)),
        _ => None,
    }
}

/// Checks whether each tensor can be read, and with `--stats` computes statistics of its values.
fn examine_tensors(
    model: &Model,
    tensors: Vec<StoredTensor>,
    args: &Args,
    terminal: &Terminal,
) -> Vec<Row> {
    let mut files = DataFiles::new(&args.model);
    let total = tensors.iter().filter_map(|tensor| tensor.bytes).sum();
    let bar = if args.stats {
        terminal.progress_bytes("reading", total)
    } else {
        terminal.progress("reading", None)
    };
    let rows = tensors
        .into_iter()
        .map(|tensor| {
            let mut problem = find_problem(model, &tensor).or_else(|| files.find_problem(&tensor));
            let mut stats = None;
            if args.stats && problem.is_none() {
                match compute_stats(model, &tensor, |bytes| bar.inc(bytes)) {
                    Ok(found) => stats = found,
                    Err(what) => problem = Some(what),
                }
            }
            Row { tensor, problem, stats }
        })
        .collect();
    bar.finish_and_clear();
    rows
}

/// Returns the reason why a tensor cannot be read, or `None`, as far as the model file shows it
/// without decoding values or opening data files.
fn find_problem(model: &Model, tensor: &StoredTensor) -> Option<String> {
    if let TensorStorage::Broken(what) = &tensor.storage {
        return Some(what.clone());
    }
    if tensor.data_type.is_none() {
        return Some(match tensor.type_number {
            0 => "no element type is set".to_string(),
            number => format!("element type {number} is not defined by the standard"),
        });
    }
    if let Some(dim) = tensor.dims.iter().find(|dim| **dim < 0) {
        return Some(format!("dimension {dim} is negative"));
    }
    let Some(elements) = tensor.elements() else {
        return Some("the number of elements overflows".to_string());
    };
    match &tensor.storage {
        // Cheap, because raw data is not decoded: only its size is compared.
        TensorStorage::Raw | TensorStorage::Nothing => {
            model.value_of(tensor).err().map(|error| message_without_tensor(&error))
        }
        TensorStorage::External { length: Some(length), .. } => {
            let elements = usize::try_from(elements).ok();
            let needed = elements
                .zip(tensor.data_type)
                .and_then(|(elements, data_type)| data_type.storage_bytes(elements));
            let needed = needed.map(|needed| needed as u64);
            (needed != Some(*length)).then(|| match needed {
                Some(needed) => {
                    format!("the length is {length} bytes, but type and shape require {needed}")
                }
                None => "strings cannot be external".to_string(),
            })
        }
        _ => None,
    }
}

/// Reads the values of a tensor and computes their statistics; `None` for strings. Calls `advance`
/// with the number of bytes of each chunk.
fn compute_stats(
    model: &Model,
    tensor: &StoredTensor,
    advance: impl FnMut(u64),
) -> Result<Option<Stats>, String> {
    let value = model.value_of(tensor).map_err(|error| message_without_tensor(&error))?;
    Stats::from_tensor(&value, advance).map_err(|error| error.to_string())
}

/// Returns the message of a library error without the name of the tensor, which is in the same line
/// of the list.
fn message_without_tensor(error: &sardonyx::Error) -> String {
    let message = error.message();
    let is_named = message.starts_with("tensor ");
    match message.split_once(": ") {
        Some((_, what)) if is_named => what.to_string(),
        _ => message.to_string(),
    }
}

/// Formats the list as a table, with the number of tensors and the total size below.
fn as_text(rows: &[Row], broken: usize, stored: usize) -> String {
    use Align::{Left, Right};
    let headings = [
        ("name", Left),
        ("type", Left),
        ("shape", Left),
        ("bytes", Right),
        ("where", Left),
        ("zeros", Right),
        ("min", Right),
        ("max", Right),
        ("mean", Right),
        ("NaN", Right),
        ("Inf", Right),
        ("place", Left),
        ("wrong", Left),
    ];
    let cells: Vec<Vec<String>> = rows.iter().map(format_cells).collect();
    let mut text =
        if rows.is_empty() { String::new() } else { format_columns(&headings, &cells) + "\n" };
    let elements = rows.iter().filter_map(|row| row.tensor.elements());
    let elements = elements.fold(0, u64::saturating_add);
    let size = rows.iter().filter_map(|row| row.tensor.bytes).sum();
    text += &match (rows.len(), stored) {
        (_, 0) => "no tensors\n".to_string(),
        (0, stored) => format!("none of {} matches\n", format_count(stored, "tensor")),
        (listed, _) => {
            let elements = group_digits(elements);
            let of = if listed == stored {
                String::new()
            } else {
                format!(" of {}", group_digits(stored as u64))
            };
            let s = if stored == 1 { "" } else { "s" };
            let listed = group_digits(listed as u64);
            format!("{listed}{of} tensor{s}, {elements} elements, {}\n", format_bytes(size))
        }
    };
    if broken > 0 {
        text += &format!("{} cannot be read\n", format_count(broken, "tensor"));
    }
    text
}

/// Formats a tensor as the cells of a row of the table.
fn format_cells(row: &Row) -> Vec<String> {
    let tensor = &row.tensor;
    let stats = row.stats.as_ref();
    let is_obvious = tensor.place.starts_with("graph.initializer[");
    vec![
        cut_line(&tensor.name),
        tensor.type_name(),
        format!("{:?}", tensor.dims),
        tensor.bytes.map_or("?".to_string(), format_bytes),
        format_value_location(tensor),
        stats.and_then(Stats::sparsity).map_or(String::new(), format_percent),
        format_number_cell(stats.and_then(|stats| stats.range).map(|(min, _)| min)),
        format_number_cell(stats.and_then(|stats| stats.range).map(|(_, max)| max)),
        stats.and_then(|stats| stats.mean).map_or(String::new(), show::format_number),
        format_count_cell(stats.map(|stats| stats.nan)),
        format_count_cell(stats.map(|stats| stats.inf)),
        if is_obvious { String::new() } else { cut_line(&tensor.place) },
        row.problem.as_deref().map_or(String::new(), cut_line),
    ]
}

/// Formats a statistic as a table cell, which is empty if the tensor has no such statistic.
fn format_number_cell(number: Option<Number>) -> String {
    number.map_or(String::new(), |number| match number {
        Number::Integer(value) => value.to_string(),
        Number::Real(value) => show::format_number(value),
    })
}

/// Formats a number of elements as a table cell, which is empty for 0 and without a number.
fn format_count_cell(count: Option<u64>) -> String {
    count.filter(|count| *count > 0).map_or(String::new(), group_digits)
}

/// Formats where the values of a tensor are stored: a field of the model, or data file and offset
/// in bytes.
fn format_value_location(tensor: &StoredTensor) -> String {
    match &tensor.storage {
        TensorStorage::Raw => "raw".to_string(),
        TensorStorage::Typed(field) => field.to_string(),
        TensorStorage::External { location, offset, .. } => {
            format!("{} @ {offset}", cut_line(location))
        }
        TensorStorage::Nothing => "no elements".to_string(),
        _ => "nowhere".to_string(),
    }
}

/// Formats a fraction as a percentage. Only 0 and 1 exactly become `0 %` and `100 %`.
fn format_percent(share: f64) -> String {
    let text = format!("{:.1} %", share * 100.0);
    match text.as_str() {
        "0.0 %" if share > 0.0 => "<0.1 %".to_string(),
        "100.0 %" if share < 1.0 => ">99.9 %".to_string(),
        "0.0 %" => "0 %".to_string(),
        "100.0 %" => "100 %".to_string(),
        _ => text,
    }
}

/// Converts the list of tensors and its totals to the JSON answer.
fn as_json(rows: &[Row], broken: usize, name: &str) -> Value {
    let elements = rows.iter().filter_map(|row| row.tensor.elements());
    let size: u64 = rows.iter().filter_map(|row| row.tensor.bytes).sum();
    json!({
        "schema": SCHEMA,
        "model": name,
        "tensors": rows.iter().map(row_json).collect::<Vec<_>>(),
        "total": {
            "tensors": rows.len(),
            "elements": elements.fold(0, u64::saturating_add),
            "bytes": size,
            "broken": broken,
        },
    })
}

/// Converts a tensor with its problem and statistics to JSON.
fn row_json(row: &Row) -> Value {
    let mut answer = Map::new();
    let Value::Object(tensor) = json!(row.tensor) else {
        return Value::Null;
    };
    for (key, value) in tensor {
        let is_storage = key == "storage";
        answer.insert(key, value);
        // Keeps the order of keys: those of the storage, such as `location`, come last.
        if is_storage {
            answer.insert("problem".to_string(), json!(row.problem));
            answer.insert("stats".to_string(), json!(row.stats.as_ref().map(Stats::json)));
        }
    }
    Value::Object(answer)
}

#[cfg(test)]
mod tests {
    use super::format_percent;

    #[test]
    fn shares_are_not_rounded_to_all_or_nothing() {
        let rows = [
            (0.0, "0 %"),
            (1e-9, "<0.1 %"),
            (0.5, "50.0 %"),
            (0.123456, "12.3 %"),
            (1.0 - 1e-9, ">99.9 %"),
            (1.0, "100 %"),
        ];
        for (share, expected) in rows {
            assert_eq!(format_percent(share), expected);
        }
    }
}
