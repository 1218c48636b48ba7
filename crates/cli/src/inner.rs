//! Inner values of a model, which a run gives as outputs of a copy of it: `run --show` and
//! `--dump`.

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
use crate::human::count;
use crate::outputs::arrays_of;
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

/// What is wanted of a model.
#[derive(Default)]
pub(crate) struct Wanted {
    /// Names, in the order of the arguments.
    pub(crate) shown: Vec<String>,
    /// Names, in the order of the graph.
    dumped: Vec<String>,
    /// The nodes of the main graph, if anything is wanted.
    pub(crate) nodes: Vec<NodeInfo>,
    /// How many outputs the model itself has.
    pub(crate) own: usize,
}

impl Args {
    /// Whether inner values are to be shown.
    pub(crate) fn shows(&self) -> bool {
        !self.show.is_empty()
    }

    /// The form of the file of --to.
    pub(crate) fn target(&self) -> Result<Option<(PathBuf, Format)>, Failure> {
        let Some(path) = &self.to else { return Ok(None) };
        match Format::from_path(path) {
            Some(format @ (Format::Npz | Format::Safetensors)) => Ok(Some((path.clone(), format))),
            _ => {
                Err(Failure::new(format!("--to: '{}' cannot hold several values", path.display()))
                    .help("name a file that ends in .npz or .safetensors"))
            }
        }
    }

    /// Finds what is wanted, and gives the model with that as outputs. `expected` are names that
    /// may be those of inner values.
    pub(crate) fn apply<'n>(
        &self,
        model: Model,
        expected: impl Iterator<Item = &'n str>,
        needs_nodes: bool,
    ) -> Result<(Model, Wanted), Failure> {
        let own = model.outputs().len();
        if self.show.is_empty() && self.dump.is_empty() && !needs_nodes {
            return Ok((model, Wanted { own, ..Wanted::default() }));
        }
        let mut nodes = model.nodes(None);
        nodes.retain(NodeInfo::is_in_main_graph);
        let made = || nodes.iter().flat_map(|node| node.outputs.iter().flatten());
        let mut wanted = Wanted { own, ..Wanted::default() };
        for name in &self.show {
            wanted.shown.extend(matching("--show", name, made().map(|value| &*value.name))?);
        }
        for pattern in &self.dump {
            let found = matching("--dump", pattern, made().map(|value| &*value.name))?;
            wanted.dumped.extend(found);
        }
        let mut seen = HashSet::new();
        wanted.dumped.retain(|name| seen.insert(name.clone()));
        let known: HashSet<&str> = made().map(|value| &*value.name).collect();
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

/// The values that a name or pattern is about. A name may also be that of an input or an
/// initializer.
fn matching<'v>(
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

/// What was written for --dump.
pub(crate) struct Dumped {
    path: PathBuf,
    values: usize,
    /// Values that the file cannot hold.
    left_out: Vec<String>,
}

impl Wanted {
    /// The outputs of the model itself.
    pub(crate) fn outputs(&self, given: &Outputs) -> Outputs {
        let values = given.iter().take(self.own);
        values.map(|(name, value)| (name.to_string(), value.clone())).collect()
    }

    /// Writes what is to be dumped.
    pub(crate) fn dump(
        &self,
        given: &Outputs,
        (path, format): (PathBuf, Format),
        protected: &Protected,
        terminal: &Terminal,
    ) -> Result<Dumped, Failure> {
        protected.check(&path)?;
        let mut content = Content::default();
        let (mut left_out, mut values, mut taken) = (Vec::new(), 0, HashSet::new());
        for name in &self.dumped {
            let Some(value) = given.get(name) else { continue };
            match storable(name, value, format) {
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

/// The tensors that a value becomes in a file, if it can hold them.
fn storable(name: &str, value: &Value, format: Format) -> Option<Vec<(String, Tensor)>> {
    let tensors = arrays_of(name, value)?;
    let fits = |tensor: &Tensor| match (format, tensor.data_type()) {
        (Format::Npz, DataType::String) => npy::write(tensor).is_ok(),
        (Format::Npz, elem) => npy::header(elem, tensor.dims()).is_ok(),
        _ => safetensors::write(&mut io::sink(), [(name, tensor)], []).is_ok(),
    };
    tensors.iter().all(|(_, tensor)| fits(tensor)).then_some(tensors)
}

impl Dumped {
    pub(crate) fn say(&self, terminal: &Terminal) {
        let values = count(self.values, "value");
        terminal.remark(&format!("wrote {}: {values}", self.path.display()));
        if !self.left_out.is_empty() {
            terminal.note(&format!(
                "{} cannot be stored in this kind of file: {}",
                count(self.left_out.len(), "value"),
                self.left_out.join(", ")
            ));
        }
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        json!({"file": self.path, "values": self.values, "left_out": self.left_out})
    }
}
