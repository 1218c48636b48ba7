//! `sardonyx info`: what a model is, without running it and without opening any other file.

use std::collections::BTreeMap;
use std::fmt::Write;

use sardonyx::inspect::{DeviceConfiguration, ExternalFile, FunctionInfo, TensorStorage, Totals};
use sardonyx::tool::{ModelExt, TrainingEntry, format_version};
use sardonyx::{DataType, Model, OpenOptions, Port, Type};
use serde_json::json;

use crate::data_files::{DataFiles, Found};
use crate::failure::Failure;
use crate::human::{bytes, count, cut, group, names};
use crate::objects::merged;
use crate::terminal::Terminal;
use crate::{ModelArg, nodes};

/// Show versions, inputs, outputs, operators and metadata of a model, and which operators cannot
/// run; or list its nodes
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    nodes: nodes::Args,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// The name and version of the form of the JSON answer. New keys may be added; a change of meaning
/// gets a new number.
const SCHEMA: &str = "sardonyx.info/1";

pub(crate) fn info(args: &Args, terminal: &Terminal) -> Result<(), Failure> {
    if args.nodes.is_wanted() {
        return nodes::list(&args.nodes, &args.model, args.json, terminal);
    }
    let model = args.model.open_with(OpenOptions::new().skip_payloads(true))?;
    if args.json {
        terminal.json(&as_json(&model, &args.model), true)
    } else {
        terminal.print(&as_text(&model, &args.model))
    }
}

/// Columns of a name on a terminal.
const NAME_COLUMNS: usize = 40;
/// Data files that are shown; one per tensor may be thousands.
const SHOWN_FILES: usize = 20;

fn as_text(model: &Model, arg: &ModelArg) -> String {
    let mut out = Table::default();
    out.row("file", file_bytes(arg).map_or(String::new(), file_size));
    out.row(
        "format",
        format!(
            "ONNX IR version {}",
            model.ir_version().map_or("missing".to_string(), format_version)
        ),
    );
    out.rows(
        "opsets",
        model
            .opsets()
            .iter()
            .map(|set| format!("{} {}", domain_name(&set.domain), format_version(set.version))),
    );
    out.row("producer", join(" ", [model.producer_name(), model.producer_version()]));
    out.row("domain", model.domain());
    out.row(
        "version",
        model.model_version().filter(|version| *version != 0).map_or(String::new(), format_version),
    );
    out.row("graph", cut(&model.graph_name()));
    out.row("doc", cut(&model.doc()));
    out.gap();

    let inputs = model.inputs();
    let (wanted, defaults): (Vec<_>, Vec<_>) = inputs.iter().partition(|input| input.is_required());
    out.rows("inputs", ports(wanted.iter().copied()));
    if !defaults.is_empty() {
        out.row("", format!("(and {} that may be left out)", defaults.len()));
    }
    out.rows("outputs", ports(&model.outputs()));
    out.gap();

    out.row("nodes", group(model.node_count() as u64));
    out.row("parameters", totals(model.parameters()));
    if model.constants().tensors > 0 {
        out.row("constants", totals(model.constants()));
    }
    out.rows("stored as", stored(model).iter().map(Stored::as_text));
    let files = data_files(model, arg);
    out.rows("data files", files.iter().take(SHOWN_FILES).map(DataFile::as_text));
    if let Some(more) = files.len().checked_sub(SHOWN_FILES + 1) {
        out.row("", format!("… and {} more", group(more as u64 + 1)));
    }
    out.rows("training", training(model));
    out.rows("state", state(model));
    out.rows("devices", model.device_configurations().iter().map(configuration));
    out.gap();

    let operators = model.operators();
    let width = operators.iter().map(|op| group(op.nodes as u64).len()).max().unwrap_or(0);
    out.rows(
        "operators",
        operators.iter().map(|op| {
            let count = group(op.nodes as u64);
            let function = if op.is_function { "  (function of this model)" } else { "" };
            format!("{count:>width$}  {}{function}", qualified(&op.domain, &op.name))
        }),
    );
    out.rows("functions", model.functions().iter().map(signature));
    out.gap();
    out.rows("metadata", pairs(model.metadata()));
    out.gap();

    let unsupported = model.unsupported();
    if unsupported.is_empty() {
        out.row("cannot run", "nothing: every operator is supported")
    } else {
        out.rows("cannot run", unsupported.iter().map(ToString::to_string))
    }
    out.text
}

/// Rows with a heading, headings in a column of their own.
#[derive(Default)]
struct Table {
    text: String,
}

impl Table {
    /// A row; none if there is nothing to say.
    fn row(&mut self, heading: &str, content: impl AsRef<str>) {
        if !content.as_ref().is_empty() {
            let _ = writeln!(self.text, "{heading:<12}{}", content.as_ref());
        }
    }

    fn rows(&mut self, heading: &str, contents: impl IntoIterator<Item = String>) {
        for (i, content) in contents.into_iter().enumerate() {
            self.row(if i == 0 { heading } else { "" }, content);
        }
    }

    fn gap(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }
}

fn ports<'a>(ports: impl IntoIterator<Item = &'a Port>) -> Vec<String> {
    let row = |port: &'a Port| {
        let ty = port.ty();
        let ty = ty.map_or("unknown type".to_string(), Type::to_string);
        (port.name(), ty)
    };
    beside(ports.into_iter().map(row).collect())
}

/// A line for each entry of the training information.
fn training(model: &Model) -> Vec<String> {
    let entries = model.training_entries().into_iter().enumerate();
    let line = |(index, entry): (usize, TrainingEntry)| {
        let initialization = entry.initialization.map(|name| format!("initialization {name}"));
        let (inputs, outputs) = (entry.inputs.join(", "), entry.outputs.join(", "));
        let algorithm =
            entry.algorithm.map(|name| format!("algorithm {name} ({inputs}) => ({outputs})"));
        let parts: Vec<String> = initialization.into_iter().chain(algorithm).collect();
        let parts = if parts.is_empty() { "no graphs".to_string() } else { parts.join(", ") };
        cut(&format!("entry {index}: {parts}"))
    };
    entries.map(line).collect()
}

/// A line for each state variable.
fn state(model: &Model) -> Vec<String> {
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
    beside(rows.collect())
}

/// Entries of the metadata.
fn pairs<K: AsRef<str>, V: AsRef<str>>(pairs: Vec<(K, V)>) -> Vec<String> {
    let pairs = pairs.iter();
    beside(pairs.map(|(key, value)| (key.as_ref(), cut(value.as_ref()))).collect())
}

/// Names in a column, and what belongs to each beside it.
fn beside(rows: Vec<(&str, String)>) -> Vec<String> {
    let names = names(rows.iter().map(|(name, _)| *name), NAME_COLUMNS);
    let rows = names.into_iter().zip(rows);
    rows.map(|(name, (_, text))| format!("{name}  {text}")).collect()
}

/// `name: 2 devices (a, b)`
fn configuration(one: &DeviceConfiguration) -> String {
    let count = one.num_devices.map_or_else(|| "no number of".to_string(), |n| n.to_string());
    let s = if one.num_devices == Some(1) { "" } else { "s" };
    let names = if one.devices.is_empty() {
        String::new()
    } else {
        format!(" ({})", one.devices.join(", "))
    };
    format!("{}: {count} device{s}{names}", one.name)
}

fn signature(function: &FunctionInfo) -> String {
    let overload = if function.overload.is_empty() {
        String::new()
    } else {
        format!(" (overload {})", function.overload)
    };
    let name = qualified(&function.domain, &function.name);
    let (inputs, outputs) = (function.inputs.join(", "), function.outputs.join(", "));
    let s = if function.nodes == 1 { "" } else { "s" };
    format!("{name}{overload}({inputs}) -> ({outputs}), {} node{s}", function.nodes)
}

/// Size of the model file; `None` for stdin.
fn file_bytes(arg: &ModelArg) -> Option<u64> {
    if arg.is_stdin() {
        return None;
    }
    std::fs::metadata(&arg.path)
        .ok()
        .filter(|metadata| metadata.is_file())
        .map(|metadata| metadata.len())
}

/// What libprotobuf counts to, and with it most programs that read models.
const MOST_BYTES: u64 = i32::MAX as u64;

fn file_size(size: u64) -> String {
    let warning = if size > MOST_BYTES {
        ", more than the 2 GiB that programs built on libprotobuf can read"
    } else {
        ""
    };
    bytes(size) + warning
}

/// Tensors of one element type that are stored in one way.
struct Stored {
    storage: &'static str,
    element_type: String,
    tensors: usize,
    bytes: u64,
}

impl Stored {
    fn as_text(&self) -> String {
        let place = match self.storage {
            "raw" => "raw data",
            "typed" => "typed lists",
            "external" => "in data files",
            "nothing" => "without elements",
            _ => "not to be read",
        };
        let tensors = count(self.tensors, "tensor");
        format!("{} {place}: {tensors}, {}", self.element_type, bytes(self.bytes))
    }
}

/// How the tensors are stored, the most bytes first.
fn stored(model: &Model) -> Vec<Stored> {
    let mut sums: BTreeMap<(&'static str, String), (usize, u64)> = BTreeMap::new();
    for tensor in model.tensors() {
        let key = (tensor.storage.name(), tensor.type_name());
        let (tensors, bytes) = sums.entry(key).or_default();
        *tensors += 1;
        *bytes = bytes.saturating_add(tensor.bytes.unwrap_or(0));
    }
    let mut stored: Vec<Stored> = sums
        .into_iter()
        .map(|((storage, element_type), (tensors, bytes))| Stored {
            storage,
            element_type,
            tensors,
            bytes,
        })
        .collect();
    stored.sort_by_key(|stored| std::cmp::Reverse(stored.bytes));
    stored
}

/// A data file as the model refers to it, and what is there.
struct DataFile {
    claimed: ExternalFile,
    /// Where the last value in it ends.
    end: u64,
    found: Found,
}

impl DataFile {
    fn present(&self) -> Option<u64> {
        match self.found {
            Found::Bytes(size) => Some(size),
            _ => None,
        }
    }

    fn as_json(&self) -> serde_json::Value {
        let found = json!({
            "end": self.end,
            "present_bytes": self.present(),
            "missing": self.found == Found::Missing,
        });
        merged(json!(self.claimed), found)
    }

    fn as_text(&self) -> String {
        let ExternalFile { location, tensors, bytes: claimed, .. } = &self.claimed;
        let found = match self.found {
            Found::Bytes(size) if size < self.end => {
                format!("; the file is cut off: {size} bytes of {}", self.end)
            }
            Found::Bytes(size) => format!(" of a file of {}", bytes(size)),
            Found::Missing => "; the file is missing".to_string(),
            Found::Refused(why) => format!("; not looked for: it {why}"),
            Found::Unknown => String::new(),
        };
        let tensors = count(*tensors, "tensor");
        format!("{}: {tensors}, {}{found}", cut(location), bytes(*claimed))
    }
}

/// The data files of the model. Sizes are looked up, no file is opened.
fn data_files(model: &Model, arg: &ModelArg) -> Vec<DataFile> {
    let mut ends: BTreeMap<String, u64> = BTreeMap::new();
    for tensor in model.tensors() {
        if let TensorStorage::External { location, offset, .. } = tensor.storage {
            let end = ends.entry(location).or_default();
            *end = (*end).max(offset.saturating_add(tensor.bytes.unwrap_or(0)));
        }
    }
    let mut files = DataFiles::of(arg);
    let claimed = model.external_files().into_iter();
    claimed
        .map(|claimed| DataFile {
            end: ends.get(&claimed.location).copied().unwrap_or(0),
            found: files.find(&claimed.location),
            claimed,
        })
        .collect()
}

fn totals(totals: Totals) -> String {
    let s = if totals.tensors == 1 { "" } else { "s" };
    format!(
        "{} in {} tensor{s}, {}",
        group(totals.elements),
        group(totals.tensors as u64),
        bytes(totals.bytes)
    )
}

pub(crate) fn domain_name(domain: &str) -> &str {
    if domain.is_empty() { "ai.onnx" } else { domain }
}

pub(crate) fn qualified(domain: &str, name: &str) -> String {
    if domain.is_empty() { name.to_string() } else { format!("{domain}.{name}") }
}

fn join<S: AsRef<str>>(separator: &str, parts: [S; 2]) -> String {
    let parts: Vec<&str> =
        parts.iter().map(AsRef::as_ref).filter(|part| !part.is_empty()).collect();
    parts.join(separator)
}

fn as_json(model: &Model, arg: &ModelArg) -> serde_json::Value {
    let unsupported = model.unsupported();
    let file_size = file_bytes(arg);
    json!({
        "schema": SCHEMA,
        "model": arg.name(),
        "file_bytes": file_size,
        "exceeds_2_gib": file_size.map(|size| size > MOST_BYTES),
        "ir_version": model.ir_version(),
        "opsets": model.opsets().iter().map(|set| json!({"domain": domain_name(&set.domain), "version": set.version})).collect::<Vec<_>>(),
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
        "stored": stored(model).iter()
            .map(|stored| json!({
                "storage": stored.storage, "type": stored.element_type, "tensors": stored.tensors, "bytes": stored.bytes,
            }))
            .collect::<Vec<_>>(),
        "external_files": data_files(model, arg).iter().map(DataFile::as_json).collect::<Vec<_>>(),
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

fn bindings_json(bindings: &[(String, String)]) -> Vec<serde_json::Value> {
    let bindings = bindings.iter();
    bindings.map(|(variable, output)| json!({"variable": variable, "output": output})).collect()
}
