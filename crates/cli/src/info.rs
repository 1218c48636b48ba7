//! `sardonyx info`: summary of a model, without running it or opening its data files.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use sardonyx::inspect::{DeviceConfiguration, ExternalFile, FunctionInfo, TensorStorage, Totals};
use sardonyx::tool::{ModelExt, TrainingEntry, format_version, shown_domain};
use sardonyx::{DataType, Model, OpenOptions, Port, Type};
use serde_json::json;

use crate::data_files::{DataFileStatus, DataFiles};
use crate::failure::Failure;
use crate::human::{cut_line, format_bytes, format_count, group_digits, pad_names};
use crate::model_arg::{Limits, ModelArg};
use crate::objects::merge_objects;
use crate::operator_name::qualified_name;
use crate::terminal::Terminal;
use crate::{machine, nodes};

/// Show versions, inputs, outputs, operators and metadata of a model, and which operators cannot
/// run; or list its nodes. A directory of a language model or encoder is summarized as a whole
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// ONNX file, binary or text, or - for stdin; or a directory as it lies on a hub
    #[arg(value_name = "MODEL", required_unless_present = "machine")]
    path: Option<PathBuf>,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    nodes: nodes::Args,
    /// Describe this machine instead of a model: processor, instruction set, caches, and the
    /// measured peaks of computing and reading memory on one thread
    #[arg(long, conflicts_with_all = ["path", "nodes"])]
    machine: bool,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// Schema of the JSON answer: its name and version. A key that changes its meaning raises the
/// version, a new key does not.
const SCHEMA: &str = "sardonyx.info/1";

/// Names of files that directories on hubs have beside a model.
#[cfg(feature = "generate")]
const HUB_FILES: [&str; 3] = ["config.json", "genai_config.json", "tokenizer.json"];

/// Runs `sardonyx info`: prints a summary of a model, its nodes, or a description of the machine.
pub(crate) fn info(args: &Args, terminal: &Terminal) -> Result<(), Failure> {
    let Some(path) = args.path.clone() else {
        return machine::print_machine(args.json, terminal);
    };
    // The message about any other directory lists its models.
    #[cfg(feature = "generate")]
    if HUB_FILES.iter().any(|name| path.join(name).is_file()) {
        return crate::directory::print_directory(&path, args.json, terminal);
    }
    let arg = ModelArg { path, limits: args.limits.clone() };
    if args.nodes.is_wanted() {
        return nodes::list_nodes(&args.nodes, &arg, args.json, terminal);
    }
    let model = arg.open_with(OpenOptions::new().skip_payloads(true))?;
    if args.json {
        terminal.json(&as_json(&model, &arg), true)
    } else {
        terminal.print(&as_text(&model, &arg))
    }
}

/// Maximum width of a name on a terminal, in columns.
const NAME_COLUMNS: usize = 40;
/// Maximum number of data files that are listed. A model with a file for each tensor may have
/// thousands.
const SHOWN_FILES: usize = 20;

/// Formats the summary of a model as text.
fn as_text(model: &Model, arg: &ModelArg) -> String {
    let mut out = Table::default();
    out.push_row("file", find_file_size(arg).map_or(String::new(), format_file_size));
    out.push_row(
        "format",
        format!(
            "ONNX IR version {}",
            model.ir_version().map_or("missing".to_string(), format_version)
        ),
    );
    out.push_rows(
        "opsets",
        model
            .opsets()
            .iter()
            .map(|set| format!("{} {}", shown_domain(&set.domain), format_version(set.version))),
    );
    let producer = [model.producer_name(), model.producer_version()];
    let producer: Vec<&str> =
        producer.iter().map(|part| &**part).filter(|part| !part.is_empty()).collect();
    out.push_row("producer", producer.join(" "));
    out.push_row("domain", model.domain());
    out.push_row(
        "version",
        model.model_version().filter(|version| *version != 0).map_or(String::new(), format_version),
    );
    out.push_row("graph", cut_line(&model.graph_name()));
    out.push_row("doc", cut_line(&model.doc()));
    out.push_gap();

    let inputs = model.inputs();
    let (wanted, defaults): (Vec<_>, Vec<_>) = inputs.iter().partition(|input| input.is_required());
    out.push_rows("inputs", format_ports(wanted.iter().copied()));
    if !defaults.is_empty() {
        out.push_row("", format!("(and {} that may be left out)", defaults.len()));
    }
    out.push_rows("outputs", format_ports(&model.outputs()));
    out.push_gap();

    out.push_row("nodes", group_digits(model.node_count() as u64));
    out.push_row("parameters", format_totals(model.parameters()));
    if model.constants().tensors > 0 {
        out.push_row("constants", format_totals(model.constants()));
    }
    out.push_rows("stored as", sum_by_storage(model).iter().map(StorageTotals::as_text));
    let files = find_data_files(model, arg);
    out.push_rows("data files", files.iter().take(SHOWN_FILES).map(DataFile::as_text));
    if let Some(more) = files.len().checked_sub(SHOWN_FILES + 1) {
        out.push_row("", format!("… and {} more", group_digits(more as u64 + 1)));
    }
    out.push_rows("training", format_training(model));
    out.push_rows("state", format_state_variables(model));
    out.push_rows("devices", model.device_configurations().iter().map(format_configuration));
    out.push_gap();

    let operators = model.operators();
    let width = operators.iter().map(|op| group_digits(op.nodes as u64).len()).max().unwrap_or(0);
    out.push_rows(
        "operators",
        operators.iter().map(|op| {
            let count = group_digits(op.nodes as u64);
            let function = if op.is_function { "  (function of this model)" } else { "" };
            format!("{count:>width$}  {}{function}", qualified_name(&op.domain, &op.name))
        }),
    );
    out.push_rows("functions", model.functions().iter().map(format_signature));
    out.push_gap();
    out.push_rows("metadata", format_metadata(model.metadata()));
    out.push_gap();

    let unsupported = model.unsupported_operators();
    if unsupported.is_empty() {
        out.push_row("cannot run", "nothing: every operator is supported")
    } else {
        out.push_rows("cannot run", unsupported.iter().map(ToString::to_string))
    }
    out.text
}

/// Text in rows, with headings in a column on the left.
#[derive(Default)]
struct Table {
    text: String,
}

impl Table {
    /// Adds a row with a heading to the table, unless `content` is empty.
    fn push_row(&mut self, heading: &str, content: impl AsRef<str>) {
        if !content.as_ref().is_empty() {
            let _ = writeln!(self.text, "{heading:<12}{}", content.as_ref());
        }
    }

    /// Adds a row to the table for each of the `contents`. Only the first row has the heading.
    fn push_rows(&mut self, heading: &str, contents: impl IntoIterator<Item = String>) {
        for (i, content) in contents.into_iter().enumerate() {
            self.push_row(if i == 0 { heading } else { "" }, content);
        }
    }

    /// Adds a blank line to the table, unless the table is empty or ends with a blank line.
    fn push_gap(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }
}

/// Formats a line with name and type for each graph input or output.
fn format_ports<'a>(ports: impl IntoIterator<Item = &'a Port>) -> Vec<String> {
    let rows = ports.into_iter().map(|port| {
        let ty = port.ty();
        let ty = ty.map_or("unknown type".to_string(), Type::to_string);
        (port.name(), ty)
    });
    align_names(rows.collect())
}

/// Formats a line for each entry of the training information.
fn format_training(model: &Model) -> Vec<String> {
    let entries = model.training_entries().into_iter().enumerate();
    entries.map(|(index, entry)| format_training_entry(index, entry)).collect()
}

/// Formats an entry of the training information: the names of its graphs, inputs and outputs.
fn format_training_entry(index: usize, entry: TrainingEntry) -> String {
    let initialization = entry.initialization.map(|name| format!("initialization {name}"));
    let (inputs, outputs) = (entry.inputs.join(", "), entry.outputs.join(", "));
    let algorithm =
        entry.algorithm.map(|name| format!("algorithm {name} ({inputs}) => ({outputs})"));
    let parts: Vec<String> = initialization.into_iter().chain(algorithm).collect();
    let parts = if parts.is_empty() { "no graphs".to_string() } else { parts.join(", ") };
    cut_line(&format!("entry {index}: {parts}"))
}

/// Formats a line with name and type for each state variable.
fn format_state_variables(model: &Model) -> Vec<String> {
    let variables = model.state_variables();
    let rows = variables.iter().map(|variable| {
        let elem = variable.data_type.map_or("unknown type", DataType::name);
        let dims: Vec<String> = variable.dims.iter().map(i64::to_string).collect();
        let ty = format!("{elem}[{}]", dims.join(", "));
        let ty = match variable.entry {
            Some(entry) => format!("{ty} of entry {entry}"),
            None => ty,
        };
        (variable.name.as_str(), ty)
    });
    align_names(rows.collect())
}

/// Formats a line with key and value for each entry of the metadata.
fn format_metadata<K: AsRef<str>, V: AsRef<str>>(entries: Vec<(K, V)>) -> Vec<String> {
    let entries = entries.iter();
    align_names(entries.map(|(key, value)| (key.as_ref(), cut_line(value.as_ref()))).collect())
}

/// Formats a line for each pair of a name and a text, with the names padded to a common width.
fn align_names(rows: Vec<(&str, String)>) -> Vec<String> {
    let names = pad_names(rows.iter().map(|(name, _)| *name), NAME_COLUMNS);
    let rows = names.into_iter().zip(rows);
    rows.map(|(name, (_, text))| format!("{name}  {text}")).collect()
}

/// Formats a device configuration, such as `name: 2 devices (a, b)`.
fn format_configuration(one: &DeviceConfiguration) -> String {
    let count = one.num_devices.map_or_else(|| "no number of".to_string(), |n| n.to_string());
    let s = if one.num_devices == Some(1) { "" } else { "s" };
    let names = if one.devices.is_empty() {
        String::new()
    } else {
        format!(" ({})", one.devices.join(", "))
    };
    format!("{}: {count} device{s}{names}", one.name)
}

/// Formats the name, inputs, outputs and node count of a function of the model.
fn format_signature(function: &FunctionInfo) -> String {
    let overload = if function.overload.is_empty() {
        String::new()
    } else {
        format!(" (overload {})", function.overload)
    };
    let name = qualified_name(&function.domain, &function.name);
    let (inputs, outputs) = (function.inputs.join(", "), function.outputs.join(", "));
    let s = if function.nodes == 1 { "" } else { "s" };
    format!("{name}{overload}({inputs}) -> ({outputs}), {} node{s}", function.nodes)
}

/// Returns the size of the model file in bytes; `None` for stdin and for a path that is not a file.
fn find_file_size(arg: &ModelArg) -> Option<u64> {
    if arg.is_stdin() {
        return None;
    }
    std::fs::metadata(&arg.path)
        .ok()
        .filter(|metadata| metadata.is_file())
        .map(|metadata| metadata.len())
}

/// Largest file in bytes that libprotobuf can read, and so most programs that read models.
const MOST_BYTES: u64 = i32::MAX as u64;

/// Formats the size of the model file, with a warning if libprotobuf cannot read so large a file.
fn format_file_size(size: u64) -> String {
    let warning = if size > MOST_BYTES {
        ", more than the 2 GiB that programs built on libprotobuf can read"
    } else {
        ""
    };
    format_bytes(size) + warning
}

/// Number and size of the tensors that have the same element type and storage.
struct StorageTotals {
    storage: &'static str,
    element_type: String,
    tensors: usize,
    bytes: u64,
}

impl StorageTotals {
    /// Formats the tensors of one storage and element type, such as `float raw data: 2 tensors, 1.2
    /// MB`.
    fn as_text(&self) -> String {
        let place = match self.storage {
            "raw" => "raw data",
            "typed" => "typed lists",
            "external" => "in data files",
            "nothing" => "without elements",
            _ => "not to be read",
        };
        let tensors = format_count(self.tensors, "tensor");
        format!("{} {place}: {tensors}, {}", self.element_type, format_bytes(self.bytes))
    }
}

/// Sums the number and bytes of stored tensors by storage and element type, in decreasing order of
/// bytes.
fn sum_by_storage(model: &Model) -> Vec<StorageTotals> {
    let mut sums: BTreeMap<(&'static str, String), (usize, u64)> = BTreeMap::new();
    for tensor in model.tensors() {
        let key = (tensor.storage.name(), tensor.type_name());
        let (tensors, bytes) = sums.entry(key).or_default();
        *tensors += 1;
        *bytes = bytes.saturating_add(tensor.bytes.unwrap_or(0));
    }
    let mut totals: Vec<StorageTotals> = sums
        .into_iter()
        .map(|((storage, element_type), (tensors, bytes))| StorageTotals {
            storage,
            element_type,
            tensors,
            bytes,
        })
        .collect();
    totals.sort_by_key(|totals| std::cmp::Reverse(totals.bytes));
    totals
}

/// Data file that the model refers to, with the status of the file on disk.
struct DataFile {
    claimed: ExternalFile,
    /// Offset in bytes at which the last tensor in the data file ends.
    end: u64,
    found: DataFileStatus,
}

impl DataFile {
    /// Returns the size of the data file on disk, in bytes; `None` if it is missing or was not
    /// looked up.
    fn present_bytes(&self) -> Option<u64> {
        match self.found {
            DataFileStatus::Bytes(size) => Some(size),
            _ => None,
        }
    }

    /// Converts the data file to JSON: its tensors in the model, and its size on disk.
    fn as_json(&self) -> serde_json::Value {
        let found = json!({
            "end": self.end,
            "present_bytes": self.present_bytes(),
            "missing": self.found == DataFileStatus::Missing,
        });
        merge_objects(json!(self.claimed), found)
    }

    /// Formats the location, tensors and size of the data file, and whether the file is missing or
    /// cut off.
    fn as_text(&self) -> String {
        let ExternalFile { location, tensors, bytes: claimed, .. } = &self.claimed;
        let found = match self.found {
            DataFileStatus::Bytes(size) if size < self.end => {
                format!("; the file is cut off: {size} bytes of {}", self.end)
            }
            DataFileStatus::Bytes(size) => format!(" of a file of {}", format_bytes(size)),
            DataFileStatus::Missing => "; the file is missing".to_string(),
            DataFileStatus::Refused(why) => format!("; not looked for: it {why}"),
            DataFileStatus::Unknown => String::new(),
        };
        let tensors = format_count(*tensors, "tensor");
        format!("{}: {tensors}, {}{found}", cut_line(location), format_bytes(*claimed))
    }
}

/// Returns the data files of the model. Looks up the sizes of the files without opening them.
fn find_data_files(model: &Model, arg: &ModelArg) -> Vec<DataFile> {
    let mut ends: BTreeMap<String, u64> = BTreeMap::new();
    for tensor in model.tensors() {
        if let TensorStorage::External { location, offset, .. } = tensor.storage {
            let end = ends.entry(location).or_default();
            *end = (*end).max(offset.saturating_add(tensor.bytes.unwrap_or(0)));
        }
    }
    let mut files = DataFiles::new(arg);
    let claimed = model.external_files().into_iter();
    claimed
        .map(|claimed| DataFile {
            end: ends.get(&claimed.location).copied().unwrap_or(0),
            found: files.find(&claimed.location),
            claimed,
        })
        .collect()
}

/// Formats numbers of elements, tensors and bytes.
fn format_totals(totals: Totals) -> String {
    let s = if totals.tensors == 1 { "" } else { "s" };
    format!(
        "{} in {} tensor{s}, {}",
        group_digits(totals.elements),
        group_digits(totals.tensors as u64),
        format_bytes(totals.bytes)
    )
}

/// Converts the summary of a model to the JSON answer.
fn as_json(model: &Model, arg: &ModelArg) -> serde_json::Value {
    let unsupported = model.unsupported_operators();
    let file_size = find_file_size(arg);
    json!({
        "schema": SCHEMA,
        "model": arg.name(),
        "file_bytes": file_size,
        "exceeds_2_gib": file_size.map(|size| size > MOST_BYTES),
        "ir_version": model.ir_version(),
        "opsets": model.opsets().iter().map(|set| json!({"domain": shown_domain(&set.domain), "version": set.version})).collect::<Vec<_>>(),
        "producer_name": model.producer_name(),
        "producer_version": model.producer_version(),
        "domain": model.domain(),
        "model_version": model.model_version(),
        "model_version_text": model.model_version().map(format_version),
        "graph": model.graph_name(),
        "doc": model.doc(),
        "inputs": model.inputs(),
        "outputs": model.outputs(),
        "nodes": model.node_count(),
        "parameters": model.parameters(),
        "constants": model.constants(),
        "stored": sum_by_storage(model).iter()
            .map(|totals| json!({
                "storage": totals.storage, "type": totals.element_type, "tensors": totals.tensors, "bytes": totals.bytes,
            }))
            .collect::<Vec<_>>(),
        "external_files": find_data_files(model, arg).iter().map(DataFile::as_json).collect::<Vec<_>>(),
        "training_steps": model.training_steps(),
        "training": model.training_entries().iter()
            .map(|entry| json!({
                "initialization": entry.initialization, "algorithm": entry.algorithm,
                "inputs": entry.inputs, "outputs": entry.outputs,
                "initialization_binding": bindings_json(&entry.initialization_binding),
                "update_binding": bindings_json(&entry.update_binding),
            }))
            .collect::<Vec<_>>(),
        "state_variables": model.state_variables(),
        "device_configurations": model.device_configurations().len(),
        "configurations": model.device_configurations(),
        "operators": model.operators(),
        "functions": model.functions(),
        "metadata": model.metadata().iter().map(|(key, value)| json!({"key": key, "value": value})).collect::<Vec<_>>(),
        "runnable": unsupported.is_empty(),
        "unsupported": unsupported,
    })
}

/// Converts bindings of state variables to outputs of the training information to JSON.
fn bindings_json(bindings: &[(String, String)]) -> Vec<serde_json::Value> {
    let bindings = bindings.iter();
    bindings.map(|(variable, output)| json!({"variable": variable, "output": output})).collect()
}
