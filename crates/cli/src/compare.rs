//! `sardonyx compare`: runs two models on the same inputs and finds the first value that differs.

use std::path::{Path, PathBuf};

use sardonyx::check::{CompareOptions, ComparedValue, Comparison, DivergingPart};
use sardonyx::io::{Access, Weights, write_value};
use sardonyx::{Model, OpenOptions, SaveOptions, SessionBuilder, Value as Operand};
use serde_json::{Value, json};

use crate::expect::Expected;
use crate::failure::Failure;
use crate::files;
use crate::human::{Align, format_columns, format_count, parse_bytes};
use crate::inputs::{self, gather_or_fill_all};
use crate::model_arg::ModelArg;
use crate::session::SessionArgs;
use crate::show::format_number;
use crate::terminal::Terminal;
use crate::verdict::Verdict;

/// Run two models on the same inputs and find the first value that differs
///
/// Values are matched like in `diff`: by name, by what computes them, and by position. The models
/// run in turn, in segments, so that only live values are in memory. The second model may also be a
/// file with values, such as those of another runtime, or with --against f64 the first model in
/// double. Exit code 1 means that a value differs.
///
/// A value that is matched by its position alone counts as different only if a value that is
/// computed from it differs too. Without --rtol and --atol, elements of float and double may differ
/// by 1e-3 of the element plus 1e-4 of the largest element of the tensor; shorter floats by more,
/// integers not.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    /// Model to compare with; or values: .npz or .safetensors with values by name, .npy for the
    /// output, or a directory with output_0.pb and so on, whose input_0.pb and so on are the inputs
    /// if no others are given
    #[arg(value_name = "OTHER", required_unless_present = "against")]
    other: Option<PathBuf>,
    #[command(flatten)]
    inputs: inputs::Args,
    /// Compare with the model itself, computed in double, to see rounding errors
    #[arg(long, value_enum, value_name = "WHAT")]
    against: Option<Against>,
    /// Largest difference relative to an element of the reference [default: 0.001 for float]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, value_parser = crate::expect::parse_tolerance)]
    rtol: Option<f64>,
    /// Largest absolute difference, added to the relative one [default: 0.0000001; with neither
    /// option also a part of the largest element]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, value_parser = crate::expect::parse_tolerance)]
    atol: Option<f64>,
    /// Compare all values, also after the first one that differs, and list them
    #[arg(long)]
    all: bool,
    /// Compare values one after the other, from a differing output backwards, each by a run of both
    /// models: takes the memory of one usual run
    #[arg(long, conflicts_with = "all")]
    bisect: bool,
    /// Size of the values and constants that a segment of a model takes. Smaller segments take less
    /// memory and more time
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = parse_bytes)]
    segment: u64,
    /// Write the smallest parts that differ to DIR, each as a test case: first/model.onnx with its
    /// inputs and its output, and second/model.onnx with the same expected output
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    #[command(flatten)]
    session: SessionArgs,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// Reference that is made of the model itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Against {
    /// The model with all floats in double
    F64,
}

/// Name and version of the schema of `compare --json`. The version rises when the meaning of a key
/// changes, not when a key is added.
const SCHEMA: &str = "sardonyx.compare/1";

/// Maximum number of names in a list.
const SHOWN: usize = 6;

/// Second side of a comparison.
enum Other {
    Model(Box<Model>),
    Stored(Expected),
    Double,
}

pub(crate) fn compare(args: &mut Args, terminal: &Terminal) -> Result<Verdict, Failure> {
    if args.against.is_some() {
        args.inputs.prepend(args.other.take());
    }
    let other = args.read_other()?;
    if let Some(directory) = &args.save {
        check_directory(directory)?;
    }
    let opened = args.session.open(&args.model, true, terminal)?;
    let inputs = gather_or_fill_all(&args.inputs, &opened, terminal)?;
    let configure: &dyn for<'m> Fn(SessionBuilder<'m>) -> SessionBuilder<'m> =
        &|builder| args.session.configure(builder);
    let spinner = terminal.progress("comparing", None);
    let mut options = CompareOptions::new()
        .inputs(inputs.values)
        .fill(opened.sizes.to_fill_options())
        .segment_bytes(usize::try_from(args.segment).unwrap_or(usize::MAX))
        .bisect(args.bisect)
        .all(args.all)
        .session(configure);
    if let Some(rtol) = args.rtol {
        options = options.rtol(rtol);
    }
    if let Some(atol) = args.atol {
        options = options.atol(atol);
    }
    let found = match other {
        Other::Model(other) => opened.model.compare(&other, &options),
        Other::Double => opened.model.compare_with_double(&options),
        Other::Stored(stored) => {
            opened.model.compare_stored(stored.into_values(&opened.model)?, &options)
        }
    };
    spinner.finish_and_clear();
    let found = found?;
    let saved = match (&args.save, &found.part) {
        (Some(directory), Some(part)) => save_part(directory, part)?,
        _ => Vec::new(),
    };
    if args.json {
        terminal.json(&args.make_answer(&found, &saved), true)?;
    } else {
        for note in list_notes(&found) {
            terminal.note(&note);
        }
        terminal.print(&format_text(&found, &saved))?;
    }
    Ok(if found.first.is_some() { Verdict::Findings } else { Verdict::Fine })
}

impl Args {
    /// Opens the second model, or reads stored values.
    fn read_other(&mut self) -> Result<Other, Failure> {
        let Some(path) = &self.other else { return Ok(Other::Double) };
        let suffix = path.extension().and_then(|suffix| suffix.to_str()).unwrap_or_default();
        let suffix = suffix.to_ascii_lowercase();
        let is_stored = matches!(&*suffix, "npz" | "npy" | "safetensors");
        if path.is_dir() || is_stored {
            let stored = Expected::read_path(path)?;
            let has_inputs =
                path.is_dir() && !files::list_numbered_files(path, "input_")?.is_empty();
            if has_inputs && !self.inputs.is_given() {
                self.inputs.prepend(Some(path.clone()));
            }
            return Ok(Other::Stored(stored));
        }
        let arg = ModelArg { path: path.clone(), limits: self.model.limits.clone() };
        let model = arg.open_with(OpenOptions::new().access(Access::Map))?;
        Ok(Other::Model(Box::new(model)))
    }

    /// Returns the answer in JSON.
    fn make_answer(&self, found: &Comparison, saved: &[PathBuf]) -> Value {
        let saved: Vec<String> = saved.iter().map(|path| path.display().to_string()).collect();
        json!({
            "schema": SCHEMA,
            "model": self.model.name(),
            "other": self.other.as_ref().map(|path| path.display().to_string()),
            "comparison": found,
            "values": self.all.then_some(&found.values),
            "saved": saved,
        })
    }
}

/// Returns remarks on values that were not compared, and on differences that do not count.
fn list_notes(found: &Comparison) -> Vec<String> {
    let mut notes = Vec::new();
    if !found.unknown.is_empty() {
        let names = join_names(&found.unknown);
        notes.push(format!("stored values that the main graph does not have: {names}"));
    }
    if !found.narrow.is_empty() {
        let count = format_count(found.narrow.len(), "node");
        let names = join_names(&found.narrow);
        notes.push(format!("{count} run in their own types, as they do not take double: {names}"));
    }
    if found.doubtful > 0 {
        let count = format_count(found.doubtful, "value");
        notes.push(format!(
            "{count} matched by position differ, but values that are computed from them agree"
        ));
    }
    notes
}

/// Formats the result for people.
fn format_text(found: &Comparison, saved: &[PathBuf]) -> String {
    let mut text = String::new();
    if !found.values.is_empty() {
        text += &make_table(&found.values);
    }
    let compared = format_count(found.compared, "value");
    let without = match found.unmatched {
        0 => String::new(),
        1 => "; 1 value of the first model has no counterpart".to_string(),
        count => format!("; {count} values of the first model have no counterpart"),
    };
    let Some(first) = &found.first else {
        return text + &format!("{compared} agree{without}\n");
    };
    let s = if found.differing == 1 { "s" } else { "" };
    text += &format!("{} of {compared} differ{s}{without}\n", found.differing);
    let other = match (&*first.other_node, first.name == first.other_name) {
        ("", _) => String::new(),
        (node, true) => format!("\n  in the second model: {node}"),
        (node, false) => format!("\n  in the second model: '{}', {node}", first.other_name),
    };
    text += &format!(
        "first value that differs: '{}' {}, {}{other}\n",
        first.name, first.ty, first.node
    );
    if let Some(what) = first.describe() {
        text += &format!("  {what}\n");
    }
    if first.mismatch.is_none() {
        text += &format!(
            "  mean {}, relative {}{}\n",
            format_number(first.mean),
            format_number(first.relative),
            format_decibels(first.decibels)
        );
    }
    if !first.is_sure {
        text += "  matched by position\n";
    }
    if let Some(part) = &found.part {
        text += &format_part(part);
    }
    if let Some(first) = saved.first().and_then(|path| path.parent()).and_then(Path::parent) {
        text += &format!("wrote the parts to {}\n", first.display());
    }
    text
}

/// Joins names to a list of limited length.
fn join_names(names: &[String]) -> String {
    let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Formats a signal-to-noise ratio, with a comma before it.
fn format_decibels(decibels: Option<f64>) -> String {
    decibels.map_or(String::new(), |decibels| format!(", signal-to-noise ratio {decibels:.1} dB"))
}

/// Formats the parts that compute the first value that differs.
fn format_part(part: &DivergingPart) -> String {
    let names: Vec<&str> = part.inputs.iter().map(|(name, _)| name.as_str()).collect();
    let begins = match names.len() {
        0 => "from constants".to_string(),
        _ => format!("from values that agree ({})", names.join(", ")),
    };
    let mut text = format!("  computed {begins} by: {}\n", join_names(&part.nodes));
    if part.other.is_some() {
        text += &format!("  in the second model by: {}\n", join_names(&part.other_nodes));
        text += &match &part.difference {
            Some(what) => format!("  alone, on equal inputs: {what}\n"),
            None => "  alone, on equal inputs, they agree: small differences of the values before \
                     have added up\n"
                .to_string(),
        };
    }
    text
}

/// Makes a table of compared values.
fn make_table(listed: &[ComparedValue]) -> String {
    let headings = [
        ("", Align::Left),
        ("value", Align::Left),
        ("type", Align::Left),
        ("largest", Align::Right),
        ("mean", Align::Right),
        ("dB", Align::Right),
    ];
    let mut rows = Vec::new();
    for value in listed {
        let mark = match (value.differs, value.is_sure) {
            (false, _) => "",
            (true, true) => "≠",
            (true, false) => "?",
        };
        let (largest, mean) = match &value.mismatch {
            Some(mismatch) => (mismatch.clone(), String::new()),
            None => (format_number(value.largest), format_number(value.mean)),
        };
        let decibels = value.decibels.map_or(String::new(), |decibels| format!("{decibels:.1}"));
        rows.push([
            mark.to_string(),
            value.name.clone(),
            value.ty.clone(),
            largest,
            mean,
            decibels,
        ]);
    }
    format_columns(&headings, &rows)
}

/// Fails if the directory exists and has files, or cannot be made.
fn check_directory(directory: &Path) -> Result<(), Failure> {
    if directory.exists() && !files::list_directory(directory)?.is_empty() {
        let message = format!("the directory '{}' is not empty", directory.display());
        return Err(Failure::new(message).help("name a new directory for --save"));
    }
    Ok(())
}

/// Writes the parts that differ as test cases: a model with a set of test data each. Returns the
/// written files.
fn save_part(directory: &Path, part: &DivergingPart) -> Result<Vec<PathBuf>, Failure> {
    let (name, output) = &part.output;
    let mut written = Vec::new();
    let mut cases = vec![("first", &part.model, &part.inputs)];
    cases.extend(part.other.as_ref().map(|other| ("second", other, &part.other_inputs)));
    for (case, model, inputs) in cases {
        let data = directory.join(case).join("test_data_set_0");
        std::fs::create_dir_all(&data)
            .map_err(|error| files::io_failure("cannot create", &data, &error))?;
        let path = directory.join(case).join("model.onnx");
        SaveOptions::new().weights(Weights::Keep).save(model, &path)?;
        written.push(path);
        let inputs = inputs.iter().enumerate();
        let values =
            inputs.map(|(index, (name, value))| (format!("input_{index}.pb"), name, value));
        let values: Vec<(String, &String, &Operand)> =
            values.chain([("output_0.pb".to_string(), name, output)]).collect();
        for (file, name, value) in values {
            let path = data.join(file);
            let bytes = write_value(value, name)?;
            files::write(&path, |file| Ok(std::io::Write::write_all(file, &bytes)?))?;
            written.push(path);
        }
    }
    Ok(written)
}
