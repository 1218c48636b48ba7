//! `run --expect`: compares outputs and intermediate values of a run with stored values.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use sardonyx::infer::InferOptions;
use sardonyx::inspect::NodeInfo;
use sardonyx::io::read_value;
use sardonyx::tool::{CastOptions, Distance, WorstElement, cast, npz, safetensors};
use sardonyx::value::{Buffer, Sequence, Tolerance};
use sardonyx::{DataType, ErrorKind, Model, Outputs, Tensor, Type, Value, ValueType};
use serde_json::json;

use crate::arrays;
use crate::failure::Failure;
use crate::files::{self, FileKind};
use crate::human::format_count;
use crate::outputs;
use crate::show::{element_json, format_number};

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Compare with stored values, and exit with 1 if they differ: .npz or .safetensors with
    /// outputs or inner values by name, .npy or .pb for the next output or as NAME=FILE, or a
    /// directory with output_0.pb and so on, or with files as --output writes them
    #[arg(long, value_name = "FILE|DIR")]
    expect: Vec<String>,
    /// Largest relative difference to an expected element [default: 0.001; 1/64 for bfloat16]
    #[arg(long, value_name = "NUMBER", requires = "expect", allow_negative_numbers = true, value_parser = parse_tolerance)]
    rtol: Option<f64>,
    /// Largest absolute difference, added to the relative one [default: 0.0000001]; integers must
    /// be equal unless it is given
    #[arg(long, value_name = "NUMBER", requires = "expect", allow_negative_numbers = true, value_parser = parse_tolerance)]
    atol: Option<f64>,
}

/// Parses a finite tolerance of at least 0.
pub(crate) fn parse_tolerance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => Ok(number),
        _ => Err("expected a number of at least 0, such as 1e-3".to_string()),
    }
}

/// Expected values of `--expect`, read from files before the model runs.
pub(crate) struct Expected {
    stored: Vec<Stored>,
    /// Paths of the files from which expected values were read.
    pub(crate) files: Vec<PathBuf>,
}

/// Expected value that a file holds.
struct Stored {
    slot: Slot,
    content: Content,
    file: PathBuf,
}

/// Value of the model that an expected value is compared with.
enum Slot {
    /// Output or intermediate value with this name.
    Named(String),
    /// Output or intermediate value with this name if there is one, else the next output, as
    /// `numpy.savez` names unnamed arrays `arr_0`, `arr_1`, …
    Numbered(String),
    /// Output at this index.
    Output(usize),
    /// Output whose file name in `--output DIR` has this stem.
    Stem(String),
    /// First output that has no expected value yet.
    Next,
}

/// Elements of an expected value. Files that do not state the type are decoded during comparison.
enum Content {
    /// Bytes of a `.npy` file.
    Array(Buffer),
    /// Bytes of a `.pb` file, which does not state the type of its value.
    Message(Buffer),
    Tensor(Tensor),
}

impl Args {
    /// Whether `--expect` is given.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.expect.is_empty()
    }

    /// Reads the files and directories of `--expect`.
    pub(crate) fn read(&self) -> Result<Expected, Failure> {
        let mut expected = Expected { stored: Vec::new(), files: Vec::new() };
        for arg in &self.expect {
            match arg.split_once('=') {
                Some((name, path)) if !Path::new(arg).exists() => {
                    expected.read_file(Path::new(path), Some(name))?;
                }
                _ if Path::new(arg).is_dir() => expected.read_directory(Path::new(arg))?,
                _ => expected.read_file(Path::new(arg), None)?,
            }
        }
        Ok(expected)
    }

    /// Returns the tolerance for elements of a type: `--rtol` and `--atol`, else the defaults of
    /// the type.
    fn choose_tolerance(&self, data_type: DataType) -> Tolerance {
        let default = Tolerance::NODE_TESTS.for_type(data_type);
        let rtol = self.rtol.filter(|_| !data_type.is_integer());
        Tolerance { rtol: rtol.unwrap_or(default.rtol), atol: self.atol.unwrap_or(default.atol) }
    }
}

impl Expected {
    /// Reads the expected values of a file. `name` is the name of the value, or selects a member of
    /// an archive.
    fn read_file(&mut self, path: &Path, name: Option<&str>) -> Result<(), Failure> {
        let bytes = files::read(path)?;
        self.files.push(path.to_path_buf());
        let at = |failure: Failure| failure.at(path.display());
        let mut push = |slot: Slot, content: Content| {
            self.stored.push(Stored { slot, content, file: path.to_path_buf() });
        };
        let one = || name.map_or(Slot::Next, |name| Slot::Named(name.to_string()));
        // `NAME=FILE.npz` selects the array NAME of the archive.
        let is_chosen = |member: &str| name.is_none_or(|name| name == member);
        let is_safetensors =
            path.extension().is_some_and(|suffix| suffix.eq_ignore_ascii_case("safetensors"));
        if is_safetensors {
            let content = safetensors::read(&bytes).map_err(|error| at(error.into()))?;
            for (member, tensor) in content.tensors {
                if is_chosen(&member) {
                    push(Slot::Named(member), Content::Tensor(tensor));
                }
            }
            return Ok(());
        }
        match files::detect_kind(path, bytes.as_slice()) {
            FileKind::Npz => {
                for (member, array) in npz::read(&bytes).map_err(|error| at(error.into()))? {
                    let is_numbered = member
                        .strip_prefix("arr_")
                        .is_some_and(|rest| rest.parse::<usize>().is_ok());
                    if is_chosen(&member) {
                        let slot =
                            if is_numbered { Slot::Numbered(member) } else { Slot::Named(member) };
                        push(slot, Content::Array(array));
                    }
                }
            }
            FileKind::Npy => push(one(), Content::Array(bytes)),
            FileKind::Proto => push(one(), Content::Message(bytes)),
            FileKind::Image | FileKind::Unknown(_) => {
                let failure = Failure::new("unsupported format of a file of expected values");
                return Err(at(failure
                    .code(ErrorKind::Format)
                    .help("expected values are .npz, .safetensors, .npy or .pb files, or a directory of such files")));
            }
        }
        Ok(())
    }

    /// Reads the expected values in a directory: `output_0.pb`, `output_1.pb`, …, or else
    /// `NAME.npy` or `NAME.pb` of each output.
    fn read_directory(&mut self, path: &Path) -> Result<(), Failure> {
        let numbered = files::list_numbered_files(path, "output_")?;
        for (number, file) in &numbered {
            let content = Content::Message(files::read(file)?);
            self.stored.push(Stored { slot: Slot::Output(*number), content, file: file.clone() });
            self.files.push(file.clone());
        }
        if !numbered.is_empty() {
            return Ok(());
        }
        let paths = files::list_directory(path)?;
        for file in &paths {
            let (stem, suffix) = (file.file_stem(), file.extension());
            let Some((stem, suffix)) =
                stem.and_then(|stem| Some((stem.to_str()?, suffix?.to_str()?)))
            else {
                continue;
            };
            let content = match suffix {
                "npy" => Content::Array(files::read(file)?),
                "pb" => Content::Message(files::read(file)?),
                _ => continue,
            };
            let slot = Slot::Stem(stem.to_string());
            self.stored.push(Stored { slot, content, file: file.clone() });
            self.files.push(file.clone());
        }
        if self.stored.is_empty() {
            let cases =
                paths.iter().find(|path| path.is_dir() && path.join("output_0.pb").exists());
            let message = format!("the directory '{}' has no expected outputs", path.display());
            let failure = Failure::new(message).code(ErrorKind::Input);
            return Err(match cases {
                Some(case) => {
                    failure.help(format!("name a data set, such as {}", case.display()))
                }
                None => failure.help(
                    "give a directory with output_0.pb, output_1.pb, …, or NAME.npy or NAME.pb for each output",
                ),
            });
        }
        Ok(())
    }

    /// Reads the expected values in a file, or in a directory.
    pub(crate) fn read_path(path: &Path) -> Result<Expected, Failure> {
        let mut expected = Expected { stored: Vec::new(), files: Vec::new() };
        if path.is_dir() {
            expected.read_directory(path)?;
        } else {
            expected.read_file(path, None)?;
        }
        Ok(expected)
    }

    /// Decodes the values, with the names of the values of `model` that they are compared with.
    /// Values without a partner keep their own names.
    pub(crate) fn into_values(self, model: &Model) -> Result<Vec<(String, Value)>, Failure> {
        let types = model.infer(&InferOptions::new().without_reasons(true));
        let types: HashMap<String, ValueType> = types
            .values(model)
            .filter_map(|found| Some((found.name, to_value_type(found.ty?)?)))
            .collect();
        let outputs = model.outputs();
        let outputs: Vec<&str> = outputs.iter().map(sardonyx::Port::name).collect();
        let stems = outputs::make_file_stems(outputs.iter().copied());
        let mut values: Vec<(String, Value)> = Vec::new();
        for stored in self.stored {
            let mut free =
                outputs.iter().filter(|name| values.iter().all(|(taken, _)| taken != **name));
            let next = free.next().map(|name| name.to_string());
            let name = match stored.slot {
                Slot::Named(name) => name,
                Slot::Numbered(name) if types.contains_key(&name) => name,
                Slot::Numbered(name) => next.unwrap_or(name),
                Slot::Output(number) => match outputs.get(number) {
                    Some(name) => name.to_string(),
                    None => format!("output {number}"),
                },
                Slot::Stem(stem) => match stems.iter().position(|found| *found == stem) {
                    Some(at) => outputs[at].to_string(),
                    None => stem,
                },
                Slot::Next => next.unwrap_or_else(|| "one more output".to_string()),
            };
            let value = stored.content.decode(types.get(&name));
            let value = value.map_err(|failure| failure.at(&name).at(stored.file.display()))?;
            values.push((name, value));
        }
        Ok(values)
    }

    /// Returns the names of expected values that may be intermediate values of the model.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.stored.iter().filter_map(|stored| match &stored.slot {
            Slot::Named(name) | Slot::Numbered(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// Compares the values of a run with the expected values. `given` holds the outputs of the
    /// model, `own` in number, followed by intermediate values; `nodes` are the nodes of the main
    /// graph.
    pub(crate) fn compare(
        self,
        args: &Args,
        given: &Outputs,
        own: usize,
        nodes: &[NodeInfo],
    ) -> Result<Comparison, Failure> {
        let outputs: Vec<&str> = given.names().take(own).collect();
        let stems = outputs::make_file_stems(outputs.iter().copied());
        let mut wanted: HashMap<&str, Value> = HashMap::new();
        let mut notes = Vec::new();
        let mut unknown = Vec::new();
        let mut items: Vec<(String, usize, Stored)> = Vec::new();
        for stored in self.stored {
            let next = || outputs.iter().find(|name| !wanted.contains_key(*name)).copied();
            let named = |name: &str| given.names().find(|given| *given == name);
            let (name, label) = match &stored.slot {
                Slot::Named(name) => (named(name), name.clone()),
                Slot::Numbered(name) => (named(name).or_else(next), name.clone()),
                Slot::Output(number) => (outputs.get(*number).copied(), format!("output {number}")),
                Slot::Stem(stem) => {
                    let at = stems.iter().position(|found| found == stem);
                    (at.map(|at| outputs[at]), stem.clone())
                }
                Slot::Next => (next(), "one more output".to_string()),
            };
            let Some(name) = name else {
                match split_item_name(&label, given) {
                    Some((sequence, index)) => items.push((sequence, index, stored)),
                    None => unknown.push((label, stored.file)),
                }
                continue;
            };
            let at = stored.file.display().to_string();
            if wanted.contains_key(name) {
                let message = format!("two expected values are given for '{name}'");
                return Err(Failure::new(message).code(ErrorKind::Input).at(at));
            }
            let got = given.get(name).map(Value::value_type);
            let value = stored.content.decode(got.as_ref());
            let value = value.map_err(|failure| failure.at(name).at(at))?;
            wanted.insert(name, round_to_type(value, got.as_ref(), name, &mut notes)?);
        }
        let sequences = assemble_sequences(items, given)?;
        for (name, sequence) in &sequences {
            if let Some(name) = given.names().find(|given| given == name) {
                wanted.insert(name, sequence.clone());
            }
        }
        let missing: Vec<String> = outputs
            .iter()
            .filter(|name| !wanted.contains_key(*name))
            .map(|name| name.to_string())
            .collect();
        refuse_misspelt_name(&unknown, &missing, &wanted)?;
        let makers = map_values_to_nodes(nodes);
        let mut compared: Vec<Compared> = Vec::new();
        for (position, (name, got)) in given.iter().enumerate() {
            let Some(want) = wanted.get(name) else { continue };
            compared.push(Compared {
                name: name.to_string(),
                maker: makers.get(name).map(|maker| (maker.0, maker.1.to_string())),
                is_output: position < own,
                ty: format_type(got),
                result: got.distances(want, &|data_type| args.choose_tolerance(data_type)),
            });
        }
        compared.sort_by_key(|compared| compared.maker.as_ref().map_or(0, |maker| maker.0 + 1));
        let unknown = unknown.into_iter().map(|(name, _)| name).collect();
        let tolerance = args.choose_tolerance(DataType::Float);
        Ok(Comparison { tolerance, compared, missing, unknown, notes })
    }
}

/// Returns the type of values of an inferred type; `None` if an element type is unknown.
fn to_value_type(ty: &Type) -> Option<ValueType> {
    Some(match ty {
        Type::Sequence(item) => ValueType::Sequence(Box::new(to_value_type(item)?)),
        Type::Optional(inner) => ValueType::Optional(Box::new(to_value_type(inner)?)),
        ty => ValueType::Tensor(ty.elem()?),
    })
}

/// Returns an error if an expected value matches no value of the model while an output has no
/// expected value: the name is likely misspelt, and the output would go unchecked.
fn refuse_misspelt_name(
    unknown: &[(String, PathBuf)],
    missing: &[String],
    wanted: &HashMap<&str, Value>,
) -> Result<(), Failure> {
    let Some((name, file)) = unknown.first() else {
        return if wanted.is_empty() {
            Err(Failure::new("the files of --expect hold no values").code(ErrorKind::Input))
        } else {
            Ok(())
        };
    };
    if missing.is_empty() && !wanted.is_empty() {
        return Ok(());
    }
    let failure = Failure::new(format!("the model has no value for the expected '{name}'"));
    let failure = failure.code(ErrorKind::Input).at(file.display());
    Err(match sardonyx::tool::suggest::closest(name, missing.iter().map(String::as_str)) {
        Some(near) => failure.help(format!("did you mean the output '{near}'?")),
        None => failure.help(format!(
            "outputs without an expected value: {}",
            if missing.is_empty() { "none".to_string() } else { missing.join(", ") }
        )),
    })
}

/// Splits `SEQUENCE.INDEX`, the name under which `--output` stores an item of a sequence in an
/// archive. Returns `None` if `given` has no such sequence.
fn split_item_name(name: &str, given: &Outputs) -> Option<(String, usize)> {
    let (sequence, index) = name.rsplit_once('.')?;
    let is_sequence = matches!(given.get(sequence), Some(Value::Sequence(_)));
    is_sequence.then_some(())?;
    Some((sequence.to_string(), index.parse().ok()?))
}

/// Assembles expected sequences from items that are stored one by one, each given by the name of
/// its sequence and its index.
fn assemble_sequences(
    mut items: Vec<(String, usize, Stored)>,
    given: &Outputs,
) -> Result<HashMap<String, Value>, Failure> {
    items.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    let mut sequences: HashMap<String, Value> = HashMap::new();
    for (name, _, stored) in items {
        let Some(Value::Sequence(got)) = given.get(&name) else { continue };
        let item = stored.content.decode(Some(got.element()))?;
        let empty = || Value::Sequence(Sequence::new(got.element().clone()));
        if let Value::Sequence(sequence) = sequences.entry(name).or_insert_with(empty) {
            let pushed = sequence.push(item);
            pushed.map_err(|error| Failure::from(error).at(stored.file.display()))?;
        }
    }
    Ok(sequences)
}

impl Content {
    /// Decodes an expected value. `ty` is the type of the model's value, for files that do not
    /// state a type.
    fn decode(self, ty: Option<&ValueType>) -> Result<Value, Failure> {
        match self {
            Content::Tensor(tensor) => Ok(tensor.into()),
            Content::Array(file) => {
                let elem = match ty {
                    Some(ValueType::Tensor(elem)) => Some(*elem),
                    _ => None,
                };
                Ok(arrays::read_npy(&file, elem)?.into())
            }
            Content::Message(bytes) => {
                let ty = ty.map_or(Type::unranked(DataType::Float), Type::from);
                Ok(read_value(bytes, &ty)?)
            }
        }
    }
}

/// Converts an expected tensor of doubles, in which references are often computed, to the shorter
/// floating-point type of the model's value, and adds a note on the conversion.
fn round_to_type(
    want: Value,
    got: Option<&ValueType>,
    name: &str,
    notes: &mut Vec<String>,
) -> Result<Value, Failure> {
    let (Value::Tensor(tensor), Some(ValueType::Tensor(elem))) = (&want, got) else {
        return Ok(want);
    };
    let is_shorter = matches!(elem, DataType::Float | DataType::Float16 | DataType::Bfloat16);
    if tensor.data_type() != DataType::Double || !is_shorter {
        return Ok(want);
    }
    notes.push(format!("the expected values of '{name}' are double and are compared as {elem}"));
    Ok(cast(tensor, *elem, CastOptions::default())?.into())
}

/// Maps the name of each value to the index and the location of the node in the main graph that
/// computes the value.
fn map_values_to_nodes(nodes: &[NodeInfo]) -> HashMap<&str, (usize, &str)> {
    let made = nodes.iter().flat_map(|node| {
        let values = node.outputs.iter().flatten();
        values.map(move |value| (value.name.as_str(), (node.index, node.place.as_str())))
    });
    made.collect()
}

/// Formats the type of a value, for a tensor with its shape.
fn format_type(value: &Value) -> String {
    match value {
        Value::Tensor(tensor) => {
            Type::tensor(tensor.data_type(), tensor.dims().iter().copied()).to_string()
        }
        other => other.value_type().to_string(),
    }
}

/// Result of comparing the values of a run with expected values.
pub(crate) struct Comparison {
    /// Tolerance for float32 elements, which the summary states.
    tolerance: Tolerance,
    /// Compared values, in the order of the nodes that compute them.
    compared: Vec<Compared>,
    /// Names of outputs without an expected value.
    missing: Vec<String>,
    /// Names of expected values that the model does not have.
    unknown: Vec<String>,
    /// Remarks on expected values that were converted before the comparison.
    notes: Vec<String>,
}

/// Comparison of one value of the model with its expected value.
struct Compared {
    name: String,
    /// Index and location of the node that computes the value; `None` if no node of the main graph
    /// does.
    maker: Option<(usize, String)>,
    is_output: bool,
    /// Type and shape of the value.
    ty: String,
    /// Differences in each tensor of the value, by its path in the value, or the reason why the
    /// values cannot be compared.
    result: Result<Vec<(String, Distance)>, String>,
}

/// Maximum number of differing intermediate values to show in detail.
const SHOWN: usize = 20;

impl Compared {
    /// Whether an element differs by more than the tolerance, or the values cannot be compared.
    fn differs(&self) -> bool {
        match &self.result {
            Ok(distances) => distances.iter().any(|(_, distance)| distance.count > 0),
            Err(_) => true,
        }
    }

    /// Returns the largest absolute and the largest relative difference of any element.
    fn find_largest_difference(&self) -> (f64, f64) {
        let distances = self.result.iter().flatten();
        distances.fold((0.0, 0.0), |(absolute, relative), (_, distance)| {
            (f64::max(absolute, distance.absolute), f64::max(relative, distance.relative))
        })
    }

    fn text(&self) -> String {
        let Compared { name, ty, result, .. } = self;
        let distances = match result {
            Ok(distances) => distances,
            Err(what) => return format!("{name}: {ty} differs: {what}\n"),
        };
        let mut text = format!("{name}: {ty} ");
        let mut bad = distances.iter().filter(|(_, distance)| distance.count > 0);
        match bad.next() {
            None => text += "matches",
            Some((place, distance)) => {
                let at = if place.is_empty() { String::new() } else { format!(" of {place}") };
                let elements = format_count(distance.total, "element");
                text += &format!("differs: {} of {elements}{at}", distance.count);
                if let Some(WorstElement { index, got, want, .. }) = &distance.worst {
                    text += &format!("\n  worst at {index:?}: {got}, expected {want}");
                }
            }
        }
        let (absolute, relative) = self.find_largest_difference();
        if absolute > 0.0 {
            text += "\n  largest difference: ";
            text += &format!(
                "absolute {}, relative {}",
                format_number(absolute),
                format_number(relative)
            );
        }
        text + "\n"
    }

    fn json(&self) -> serde_json::Value {
        let (absolute, relative) = self.find_largest_difference();
        let distances = self.result.as_ref().ok();
        let worst = distances.and_then(|distances| {
            let distances = distances.iter().filter(|(_, distance)| distance.worst.is_some());
            let (place, distance) = distances.max_by_key(|(_, distance)| distance.count > 0)?;
            let worst = distance.worst.as_ref()?;
            Some(json!({
                "part": (!place.is_empty()).then_some(place),
                "index": worst.index,
                "value": element_json(&worst.got),
                "expected": element_json(&worst.want),
            }))
        });
        let sum = |of: fn(&Distance) -> usize| {
            distances.map(|found| found.iter().map(|(_, distance)| of(distance)).sum::<usize>())
        };
        json!({
            "name": self.name,
            "type": self.ty,
            "output": self.is_output,
            "node": self.maker.as_ref().map(|maker| &maker.1),
            "differs": self.differs(),
            "message": self.result.as_ref().err(),
            "elements": sum(|distance| distance.total),
            "differing": sum(|distance| distance.count),
            "max_absolute": distances.map(|_| number_to_json(absolute)),
            "max_relative": distances.map(|_| number_to_json(relative)),
            "worst": worst,
        })
    }
}

/// Formats a tolerance as a user would type it, such as `1e-7` or `0.001`.
fn format_tolerance(tolerance: f64) -> String {
    if tolerance != 0.0 && tolerance < 1e-4 {
        format!("{tolerance:e}")
    } else {
        tolerance.to_string()
    }
}

/// Converts a number to JSON. A number that is not finite, which JSON lacks, becomes the text
/// `inf`.
fn number_to_json(number: f64) -> serde_json::Value {
    if number.is_finite() { json!(number) } else { json!("inf") }
}

impl Comparison {
    /// Whether any value differs from its expected value.
    pub(crate) fn differs(&self) -> bool {
        self.compared.iter().any(Compared::differs)
    }

    /// Returns the first value that differs, in the order of the nodes; `None` if all match.
    fn find_first_difference(&self) -> Option<&Compared> {
        self.compared.iter().find(|compared| compared.differs())
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for output in self.compared.iter().filter(|compared| compared.is_output) {
            text += &output.text();
        }
        let inner = self.compared.iter().filter(|compared| !compared.is_output);
        let differing: Vec<&Compared> = inner.filter(|compared| compared.differs()).collect();
        for compared in differing.iter().take(SHOWN) {
            text += &compared.text();
        }
        if let Some(more) = differing.len().checked_sub(SHOWN + 1) {
            text += &format!("… and {} that differ\n", format_count(more + 1, "more inner value"));
        }
        let all = self.compared.len();
        let wrong = self.compared.iter().filter(|compared| compared.differs()).count();
        let Tolerance { rtol, atol } = self.tolerance;
        text += &match wrong {
            0 => format!(
                "{} as expected",
                if all == 1 { "1 value is".into() } else { format!("{all} values are") }
            ),
            _ => format!(
                "{wrong} of {} differ{}",
                format_count(all, "value"),
                if wrong == 1 { "s" } else { "" }
            ),
        };
        text += &format!(" (rtol {}, atol {})\n", format_tolerance(rtol), format_tolerance(atol));
        if let Some(first) = self.find_first_difference() {
            let node = first.maker.as_ref().map(|(_, place)| format!(", output of {place}"));
            text += &format!(
                "first value that differs, in the order of the graph: '{}'{}\n",
                first.name,
                node.unwrap_or_default()
            );
        }
        text
    }

    /// Returns remarks on expected values that were converted before the comparison, and on values
    /// that were not compared.
    pub(crate) fn notes(&self) -> Vec<String> {
        let list = |names: &[String]| {
            let mut text = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
            if names.len() > SHOWN {
                text += &format!(" and {} more", names.len() - SHOWN);
            }
            text
        };
        let mut notes = self.notes.clone();
        if !self.missing.is_empty() {
            notes.push(format!("outputs without an expected value: {}", list(&self.missing)));
        }
        if !self.unknown.is_empty() {
            notes.push(format!(
                "expected values that the main graph of the model does not have: {}",
                list(&self.unknown)
            ));
        }
        notes
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        json!({
            "rtol": self.tolerance.rtol,
            "atol": self.tolerance.atol,
            "differs": self.differs(),
            "first": self.find_first_difference().map(|first| {
                json!({"name": first.name, "node": first.maker.as_ref().map(|maker| &maker.1)})
            }),
            "values": self.compared.iter().map(Compared::json).collect::<Vec<_>>(),
            "outputs_not_compared": self.missing,
            "not_in_model": self.unknown,
        })
    }
}
