//! `run --show` and `run --dump`: inner values of a model, which become outputs of a copy of it.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;

use sardonyx::inspect::NodeInfo;
use sardonyx::tool::{Glob, npy, safetensors};
use sardonyx::{DataType, Model, Outputs, Tensor, Value};
use serde_json::json;

use crate::arrays::{self, Content, Format};
use crate::failure::Failure;
use crate::files::Protected;
use crate::human::format_count;
use crate::outputs::to_arrays;
use crate::saving::Target;
use crate::terminal::Terminal;

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Show inner values of the main graph after the outputs: names or patterns
    #[arg(long, value_name = "NAME", num_args = 1..)]
    show: Vec<String>,
    /// Write the values of the main graph whose names fit a pattern, '*' for all, to the file of
    /// --to; may be given several times
    #[arg(long, value_name = "PATTERN", requires = "to")]
    dump: Vec<String>,
    /// The .npz or .safetensors file for --dump
    #[arg(long, value_name = "FILE", requires = "dump")]
    to: Option<PathBuf>,
}

/// Intermediate values that a run returns in addition to the graph outputs.
#[derive(Default)]
pub(crate) struct WantedValues {
    /// Names of the values that `--show` selects, in the order of the arguments.
    pub(crate) shown: Vec<String>,
    /// Names of the values that `--dump` selects, each once, in the order of the patterns and then
    /// of the nodes.
    dumped: Vec<String>,
    /// Nodes of the main graph; empty if no intermediate value is wanted.
    pub(crate) nodes: Vec<NodeInfo>,
    /// Number of graph outputs of the model itself. Outputs of the run after these are intermediate
    /// values.
    pub(crate) own: usize,
}

/// File that `--to` names, whose format can hold several arrays.
pub(crate) struct DumpTarget {
    path: PathBuf,
    format: Format,
}

impl Args {
    /// Whether `--show` is given.
    pub(crate) fn has_shown_values(&self) -> bool {
        !self.show.is_empty()
    }

    /// Returns the file of `--to`, or `None` without the option. Fails if the format of the file
    /// holds only one array.
    pub(crate) fn resolve_target(&self) -> Result<Option<DumpTarget>, Failure> {
        let Some(path) = &self.to else { return Ok(None) };
        match Format::from_path(path) {
            Some(format @ (Format::Npz | Format::Safetensors)) => {
                Ok(Some(DumpTarget { path: path.clone(), format }))
            }
            _ => Err(Failure::new(format!(
                "--to: the format of '{}' cannot hold several values",
                path.display()
            ))
            .help("name a file that ends in .npz or .safetensors")),
        }
    }

    /// Resolves the patterns of `--show` and `--dump`, and adds the intermediate values to the
    /// graph outputs of `model`. Also adds the values that are named in `expected`, for a
    /// comparison.
    pub(crate) fn add_outputs<'n>(
        &self,
        model: Model,
        expected: impl Iterator<Item = &'n str>,
        needs_nodes: bool,
    ) -> Result<(Model, WantedValues), Failure> {
        let own = model.outputs().len();
        if self.show.is_empty() && self.dump.is_empty() && !needs_nodes {
            return Ok((model, WantedValues { own, ..WantedValues::default() }));
        }
        let mut nodes = model.nodes(None);
        nodes.retain(NodeInfo::is_in_main_graph);
        let mut wanted = WantedValues { own, ..WantedValues::default() };
        for name in &self.show {
            wanted.shown.extend(find_matching("--show", name, output_names(&nodes))?);
        }
        for pattern in &self.dump {
            wanted.dumped.extend(find_matching("--dump", pattern, output_names(&nodes))?);
        }
        let mut seen = HashSet::new();
        wanted.dumped.retain(|name| seen.insert(name.clone()));
        let known: HashSet<&str> = output_names(&nodes).collect();
        let mut names: Vec<&str> =
            wanted.shown.iter().chain(&wanted.dumped).map(String::as_str).collect();
        for name in expected {
            if known.contains(name) {
                names.push(name);
            }
        }
        let more = model.with_outputs(names)?;
        wanted.nodes = nodes;
        Ok((more, wanted))
    }
}

/// Returns the names of the outputs of `nodes`, without outputs that are left out.
fn output_names(nodes: &[NodeInfo]) -> impl Iterator<Item = &str> {
    let values = nodes.iter().flat_map(|node| node.outputs.iter().flatten());
    values.map(|value| &*value.name)
}

/// Returns the names in `values` that match a pattern, or fails if none does. A name without
/// wildcards is returned without a check, because it may also be the name of a graph input or an
/// initializer.
fn find_matching<'v>(
    option: &str,
    pattern: &str,
    values: impl Iterator<Item = &'v str>,
) -> Result<Vec<String>, Failure> {
    if !Glob::is_pattern(pattern) {
        return Ok(vec![pattern.to_string()]);
    }
    let glob = Glob::parse(pattern).map_err(Failure::new)?;
    let found: Vec<String> = values.filter(|name| glob.matches(name)).map(str::to_string).collect();
    if found.is_empty() {
        let message = format!("{option}: no value of the main graph is called '{pattern}'");
        return Err(Failure::new(message).help("`sardonyx infer --show` lists the values"));
    }
    Ok(found)
}

/// File that was written for `--dump`.
pub(crate) struct Dumped {
    path: PathBuf,
    /// Number of values in the written file.
    values: usize,
    /// Names of values that the file format cannot hold.
    left_out: Vec<String>,
}

impl WantedValues {
    /// Returns the graph outputs of the model itself: `given` without the intermediate values.
    pub(crate) fn select_own_outputs(&self, given: &Outputs) -> Outputs {
        let values = given.iter().take(self.own);
        values.map(|(name, value)| (name.to_string(), value.clone())).collect()
    }

    /// Writes the values that `--dump` selects to the file of `--to`.
    pub(crate) fn dump(
        &self,
        given: &Outputs,
        target: DumpTarget,
        protected: &Protected,
        terminal: &Terminal,
    ) -> Result<Dumped, Failure> {
        let DumpTarget { path, format } = target;
        protected.check(&path)?;
        let mut content = Content::default();
        let (mut left_out, mut values, mut taken) = (Vec::new(), 0, HashSet::new());
        for name in &self.dumped {
            let Some(value) = given.get(name) else { continue };
            match to_stored_arrays(name, value, format) {
                Some(tensors) if tensors.iter().all(|(name, _)| !taken.contains(name)) => {
                    taken.extend(tensors.iter().map(|(name, _)| name.clone()));
                    content.tensors.extend(tensors);
                    values += 1;
                }
                _ => left_out.push(name.clone()),
            }
        }
        arrays::write(&Target::File(path.clone()), format, &content, terminal)?;
        Ok(Dumped { path, values, left_out })
    }
}

/// Returns the arrays that store a value in a file, with their names; `None` if the file format
/// cannot hold the value.
fn to_stored_arrays(name: &str, value: &Value, format: Format) -> Option<Vec<(String, Tensor)>> {
    let tensors = to_arrays(name, value)?;
    let fit = tensors.iter().all(|(_, tensor)| match (format, tensor.data_type()) {
        (Format::Npz, DataType::String) => npy::write(tensor).is_ok(),
        (Format::Npz, elem) => npy::header(elem, tensor.dims()).is_ok(),
        _ => safetensors::write(&mut io::sink(), [(name, tensor)], []).is_ok(),
    });
    fit.then_some(tensors)
}

impl Dumped {
    /// Prints the written file on stderr, and the values that its format cannot hold.
    pub(crate) fn print(&self, terminal: &Terminal) {
        let values = format_count(self.values, "value");
        terminal.remark(&format!("wrote {}: {values}", self.path.display()));
        if !self.left_out.is_empty() {
            terminal.note(&format!(
                "{} cannot be stored in a file of this format: {}",
                format_count(self.left_out.len(), "value"),
                self.left_out.join(", ")
            ));
        }
    }

    /// Converts the path, the number of values and the values that were left out to JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        json!({"file": self.path, "values": self.values, "left_out": self.left_out})
    }
}
