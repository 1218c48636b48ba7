//! `sardonyx info`: what a model is, without running it and without opening any other file.

use std::fmt::Write;

use sardonyx::{Dim, ExternalFile, FunctionInfo, Model, Port, Totals, Type, format_version};
use serde::Serialize;
use serde_json::json;

use crate::ModelArg;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Say what a model is: versions, inputs, outputs, operators, metadata, and what cannot run
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// The name and version of the form of the JSON answer. New keys may be added; a change of meaning gets a new number.
const SCHEMA: &str = "sardonyx.info/1";

pub(crate) fn info(args: &Args, terminal: &Terminal) -> Result<(), Failure> {
    let model = args.model.open()?;
    match args.json {
        true => terminal.json(&as_json(&model, &args.model.name()), true),
        false => terminal.print(&as_text(&model)),
    }
}

/// Characters of a metadata value or documentation that are shown.
const SHOWN_CHARS: usize = 100;

fn as_text(model: &Model) -> String {
    let mut out = Table::default();
    out.row(
        "format",
        format!(
            "ONNX IR version {}",
            model
                .ir_version()
                .map_or("missing".to_string(), format_version)
        ),
    );
    out.rows(
        "opsets",
        model.opsets().iter().map(|set| {
            format!(
                "{} {}",
                domain_name(&set.domain),
                format_version(set.version)
            )
        }),
    );
    out.row(
        "producer",
        join(" ", [model.producer_name(), model.producer_version()]),
    );
    out.row("domain", model.domain());
    out.row(
        "version",
        model
            .model_version()
            .filter(|version| *version != 0)
            .map_or(String::new(), format_version),
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
    let files = model.external_files();
    out.rows("data files", files.iter().map(data_file));
    if model.training_steps() > 0 {
        out.row(
            "training",
            format!("{} steps described", model.training_steps()),
        );
    }
    if model.device_configurations() > 0 {
        out.row(
            "devices",
            format!("{} configurations", model.device_configurations()),
        );
    }
    out.gap();

    let operators = model.operators();
    let width = operators
        .iter()
        .map(|op| group(op.nodes as u64).len())
        .max()
        .unwrap_or(0);
    out.rows(
        "operators",
        operators.iter().map(|op| {
            let count = group(op.nodes as u64);
            let function = if op.is_function {
                "  (function of this model)"
            } else {
                ""
            };
            format!(
                "{count:>width$}  {}{function}",
                qualified(&op.domain, &op.name)
            )
        }),
    );
    out.rows("functions", model.functions().iter().map(signature));
    out.gap();
    out.rows("metadata", pairs(model.metadata()));
    out.gap();

    let unsupported = model.unsupported();
    match unsupported.is_empty() {
        true => out.row("cannot run", "nothing: every operator is supported"),
        false => out.rows("cannot run", unsupported.iter().map(ToString::to_string)),
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

fn ports<'a>(ports: impl IntoIterator<Item = &'a Port> + Clone) -> Vec<String> {
    let width = ports
        .clone()
        .into_iter()
        .map(|port| port.name().chars().count())
        .max()
        .unwrap_or(0)
        .min(40);
    ports
        .into_iter()
        .map(|port| {
            let ty = port
                .ty()
                .map_or("unknown type".to_string(), Type::to_string);
            format!("{:<width$}  {ty}", cut(port.name()))
        })
        .collect()
}

fn pairs<K: AsRef<str>, V: AsRef<str>>(pairs: Vec<(K, V)>) -> Vec<String> {
    let width = pairs
        .iter()
        .map(|(key, _)| key.as_ref().chars().count())
        .max()
        .unwrap_or(0)
        .min(40);
    pairs
        .iter()
        .map(|(key, value)| format!("{:<width$}  {}", cut(key.as_ref()), cut(value.as_ref())))
        .collect()
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
    format!(
        "{name}{overload}({inputs}) -> ({outputs}), {} node{s}",
        function.nodes
    )
}

fn data_file(file: &ExternalFile) -> String {
    let s = if file.tensors == 1 { "" } else { "s" };
    format!(
        "{}: {} tensor{s}, {}",
        file.location,
        file.tensors,
        bytes(file.bytes)
    )
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

fn domain_name(domain: &str) -> &str {
    if domain.is_empty() { "ai.onnx" } else { domain }
}

fn qualified(domain: &str, name: &str) -> String {
    if domain.is_empty() {
        name.to_string()
    } else {
        format!("{domain}.{name}")
    }
}

fn join<S: AsRef<str>>(separator: &str, parts: [S; 2]) -> String {
    let parts: Vec<&str> = parts
        .iter()
        .map(AsRef::as_ref)
        .filter(|part| !part.is_empty())
        .collect();
    parts.join(separator)
}

/// One line, of bounded length, with the length of what was cut.
fn cut(text: &str) -> String {
    let line = text.replace("\r\n", "\n").replace(['\n', '\r'], "⏎");
    match line.char_indices().nth(SHOWN_CHARS) {
        None => line,
        Some((end, _)) => format!("{}… ({})", &line[..end], bytes(text.len() as u64)),
    }
}

/// 1234567 as 1,234,567.
fn group(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Bytes in the largest unit that leaves a number of at least 1.
fn bytes(count: u64) -> String {
    let units = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if count < 1000 {
        return format!("{count} bytes");
    }
    let mut value = count as f64 / 1e3;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1e3;
        unit += 1;
    }
    match value < 9.95 {
        true => format!("{value:.1} {}", units[unit]),
        false => format!("{value:.0} {}", units[unit]),
    }
}

fn as_json(model: &Model, name: &str) -> serde_json::Value {
    let list = |ports: Vec<Port>| ports.iter().map(port_json).collect::<Vec<_>>();
    let sums = |totals: Totals| json!({"tensors": totals.tensors, "elements": totals.elements, "bytes": totals.bytes});
    let unsupported = model.unsupported();
    json!({
        "schema": SCHEMA,
        "model": name,
        "ir_version": model.ir_version(),
        "opsets": model.opsets().iter().map(|set| json!({"domain": domain_name(&set.domain), "version": set.version})).collect::<Vec<_>>(),
        "producer_name": model.producer_name(),
        "producer_version": model.producer_version(),
        "domain": model.domain(),
        "model_version": model.model_version(),
        "model_version_text": model.model_version().map(format_version),
        "graph": model.graph_name(),
        "doc": model.doc(),
        "inputs": list(model.inputs()),
        "outputs": list(model.outputs()),
        "nodes": model.node_count(),
        "parameters": sums(model.parameters()),
        "constants": sums(model.constants()),
        "external_files": model.external_files().iter()
            .map(|file| json!({"location": file.location, "tensors": file.tensors, "bytes": file.bytes})).collect::<Vec<_>>(),
        "training_steps": model.training_steps(),
        "device_configurations": model.device_configurations(),
        "operators": model.operators().iter()
            .map(|op| json!({"domain": domain_name(&op.domain), "name": op.name, "nodes": op.nodes, "function": op.is_function}))
            .collect::<Vec<_>>(),
        "functions": model.functions().iter()
            .map(|function| json!({
                "domain": domain_name(&function.domain), "name": function.name, "overload": function.overload,
                "inputs": function.inputs, "outputs": function.outputs, "nodes": function.nodes,
            }))
            .collect::<Vec<_>>(),
        "metadata": model.metadata().iter().map(|(key, value)| json!({"key": key, "value": value})).collect::<Vec<_>>(),
        "runnable": unsupported.is_empty(),
        "unsupported": unsupported.iter()
            .map(|op| json!({
                "domain": domain_name(&op.domain), "name": op.name, "opset": op.opset, "nodes": op.nodes, "why": op.why,
            }))
            .collect::<Vec<_>>(),
    })
}

#[derive(Serialize)]
struct PortJson<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    ty: Option<String>,
    element_type: Option<&'static str>,
    /// Numbers, names, or null for what is unknown; null as a whole if not even the rank is known.
    shape: Option<Vec<serde_json::Value>>,
    required: bool,
}

fn port_json(port: &Port) -> serde_json::Value {
    let dim = |dim: &Dim| match dim {
        Dim::Known(size) => json!(size),
        Dim::Unknown => serde_json::Value::Null,
        Dim::Expr(_) => json!(dim.to_string()),
    };
    json!(PortJson {
        name: port.name(),
        ty: port.ty().map(Type::to_string),
        element_type: port.ty().and_then(Type::elem).map(|elem| elem.name()),
        shape: port
            .ty()
            .and_then(Type::shape)
            .map(|shape| shape.iter().map(dim).collect()),
        required: port.is_required(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_bytes_rounded() {
        let rows = [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1234567, "1,234,567"),
        ];
        rows.iter()
            .for_each(|(number, expected)| assert_eq!(group(*number), *expected));
        let rows = [
            (999, "999 bytes"),
            (1000, "1.0 kB"),
            (134_184, "134 kB"),
            (999_600, "1.0 MB"),
            (25_600_000_000, "26 GB"),
        ];
        rows.iter()
            .for_each(|(number, expected)| assert_eq!(bytes(*number), *expected));
    }

    #[test]
    fn long_texts_are_cut_to_one_line() {
        assert_eq!(cut("a\nb"), "a⏎b");
        let long = cut(&"é".repeat(500));
        assert!(
            long.ends_with("… (1.0 kB)") && long.chars().count() < 120,
            "{long}"
        );
    }
}
