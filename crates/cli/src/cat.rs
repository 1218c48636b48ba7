//! `sardonyx cat`: shows the values of stored tensors or writes them to a file.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use sardonyx::inspect::StoredTensor;
use sardonyx::tool::{Glob, suggest};
use sardonyx::{Model, Tensor};
use serde_json::json;

use crate::arrays::{self, Content, Format, SUFFIXES};
use crate::failure::Failure;
use crate::human::format_count;
use crate::model_arg::ModelArg;
use crate::saving::{self, Target, at_model, parse_target};
use crate::show;
use crate::terminal::Terminal;

/// Show the values of stored tensors, or write them to a file
///
/// Without --output, shows type, shape and the first elements. The file extension of the output
/// selects the format: .npy, .npz, .pb (TensorProto), .safetensors, .txt or .csv (one line for each
/// row along the last axis). .npz and .safetensors hold several tensors by name; a tensor without a
/// unique name is stored under its location in the model.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    /// Names of tensors; * matches any characters, ? matches one. `sardonyx ls` lists the names
    #[arg(value_name = "TENSOR")]
    names: Vec<String>,
    /// All tensors of the model
    #[arg(long, conflicts_with = "names")]
    all_tensors: bool,
    /// Only tensors whose location, as shown by `sardonyx ls`, is or contains PLACE
    #[arg(long, value_name = "PLACE")]
    place: Option<String>,
    /// Show all elements
    #[arg(long)]
    all: bool,
    /// Write all elements to FILE, or to stdout as text with - (as bytes with --raw)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the raw bytes of the elements, as stored in the file; to stdout without --output
    #[arg(long, conflicts_with_all = ["json", "all"])]
    raw: bool,
    /// Print JSON: the first 10,000 elements of each tensor, or all with --all
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

/// Name and version of the schema of `cat --json`. The version rises when the meaning of a key
/// changes, not when a key is added.
const SCHEMA: &str = "sardonyx.cat/1";

pub(crate) fn cat(args: &Args, terminal: &Terminal) -> Result<(), Failure> {
    let model = args.model.open()?;
    let tensors = model.tensors();
    let chosen = choose_tensors(args, &tensors).map_err(|failure| failure.at(args.model.name()))?;
    let target = match (&args.output, args.raw) {
        (Some(path), _) => Some(parse_target(path)?),
        (None, true) => Some(Target::Stdout),
        (None, false) => None,
    };
    match target {
        Some(target) => write_tensors(args, &model, &chosen, &target, terminal),
        None => show_tensors(args, &model, &chosen, terminal),
    }
}

/// Reads the elements of a stored tensor.
fn read_value(args: &Args, model: &Model, tensor: &StoredTensor) -> Result<Tensor, Failure> {
    let value = model.value_of(tensor);
    value.map_err(|error| at_model(&args.model, error))
}

/// Prints the chosen tensors as text or JSON.
fn show_tensors(
    args: &Args,
    model: &Model,
    chosen: &[&StoredTensor],
    terminal: &Terminal,
) -> Result<(), Failure> {
    if args.json {
        let mut answers = Vec::new();
        for tensor in chosen {
            let most = if args.all { usize::MAX } else { show::JSON_ELEMENTS };
            let value = read_value(args, model, tensor)?;
            let mut answer = show::tensor_json(&tensor.name, &value, most)?;
            answer["place"] = json!(tensor.place);
            answers.push(answer);
        }
        let answer = json!({"schema": SCHEMA, "model": args.model.name(), "tensors": answers});
        return terminal.json(&answer, true);
    }
    for tensor in chosen {
        let title = if tensor.name.is_empty() { &tensor.place } else { &tensor.name };
        let value = read_value(args, model, tensor)?;
        if args.all {
            let mut stdout = BufWriter::new(io::stdout().lock());
            show::write_tensor(&mut stdout, title, &value)?;
            stdout.flush()?;
        } else {
            terminal.print(&show::value_text(title, &value.into())?)?
        }
    }
    Ok(())
}

/// Writes the chosen tensors to a file or stdout.
fn write_tensors(
    args: &Args,
    model: &Model,
    chosen: &[&StoredTensor],
    target: &Target,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let format = match (args.raw, target) {
        (true, _) => Format::Raw,
        (false, Target::Stdout) => Format::Text,
        (false, Target::File(path)) => Format::from_path(path).ok_or_else(|| {
            let message = format!("the file extension of '{}' is not supported", path.display());
            Failure::new(message).help(format!("use {SUFFIXES}, or write raw bytes with --raw"))
        })?,
    };
    if let Target::File(path) = target {
        saving::protect_inputs(&args.model, model, &[]).check(path)?;
    }
    let mut content = Content::default();
    for (name, tensor) in make_unique_names(chosen).into_iter().zip(chosen) {
        content.tensors.push((name, read_value(args, model, tensor)?));
    }
    arrays::write(target, format, &content, terminal)?;
    if let Target::File(path) = target {
        let tensors = format_count(content.tensors.len(), "tensor");
        terminal.remark(&format!("wrote {}: {tensors}", path.display()));
    }
    Ok(())
}

/// Returns a unique name for each tensor: the name of the tensor, or its location in the model if
/// the name is empty or duplicate.
fn make_unique_names(chosen: &[&StoredTensor]) -> Vec<String> {
    let mut uses: HashMap<&str, usize> = HashMap::new();
    for tensor in chosen {
        *uses.entry(&tensor.name).or_default() += 1;
    }
    let mut names = Vec::new();
    for tensor in chosen {
        let is_unique = !tensor.name.is_empty() && uses[tensor.name.as_str()] == 1;
        names.push(if is_unique { tensor.name.clone() } else { tensor.place.clone() });
    }
    names
}

/// Selects the tensors that the arguments name, each once, in the order of the arguments. Fails if
/// an argument names no tensor or is ambiguous.
fn choose_tensors<'a>(
    args: &Args,
    tensors: &'a [StoredTensor],
) -> Result<Vec<&'a StoredTensor>, Failure> {
    let there = find_tensors_at_place(args.place.as_deref(), tensors)?;
    if args.all_tensors {
        return if there.is_empty() {
            Err(Failure::new("the model stores no tensors"))
        } else {
            Ok(there)
        };
    }
    if args.names.is_empty() {
        return match (&args.place, &there[..]) {
            (Some(_), [_]) => Ok(there),
            (Some(place), several) => {
                Err(ambiguous_failure(&format!("location '{place}'"), several))
            }
            (None, _) => Err(Failure::new("the command names no tensor").help(
                "name one or more tensors, or use --all-tensors; sardonyx ls lists the names",
            )),
        };
    }
    let mut chosen: Vec<&StoredTensor> = Vec::new();
    for name in &args.names {
        chosen.extend(find_tensors_by_name(name, &there)?);
    }
    // A tensor that several patterns match is kept once. Its location identifies it.
    let mut seen = HashSet::new();
    chosen.retain(|tensor| seen.insert(&tensor.place));
    Ok(chosen)
}

/// Returns the tensor whose location in the model equals `place`, or else all tensors whose
/// location contains `place`. `None` selects all tensors. Fails if no tensor has such a location.
fn find_tensors_at_place<'a>(
    place: Option<&str>,
    tensors: &'a [StoredTensor],
) -> Result<Vec<&'a StoredTensor>, Failure> {
    let Some(place) = place else {
        return Ok(tensors.iter().collect());
    };
    let exactly = tensors.iter().find(|tensor| tensor.place == place);
    if let Some(found) = exactly {
        return Ok(vec![found]);
    }
    let found: Vec<_> = tensors.iter().filter(|tensor| tensor.place.contains(place)).collect();
    if found.is_empty() {
        Err(Failure::new(format!("no tensor has the location '{place}'"))
            .help("sardonyx ls shows the locations of tensors"))
    } else {
        Ok(found)
    }
}

/// Returns the tensor called `name`, or else all tensors whose names match the glob pattern `name`.
/// Fails if no tensor matches, or if several have the name.
fn find_tensors_by_name<'a>(
    name: &str,
    there: &[&'a StoredTensor],
) -> Result<Vec<&'a StoredTensor>, Failure> {
    let found: Vec<_> = there.iter().copied().filter(|tensor| tensor.name == name).collect();
    if found.len() > 1 {
        return Err(ambiguous_failure(&format!("name '{name}'"), &found));
    }
    if found.is_empty() && Glob::is_pattern(name) {
        let glob = Glob::parse(name).map_err(Failure::new)?;
        let fitting: Vec<_> =
            there.iter().copied().filter(|tensor| glob.matches(&tensor.name)).collect();
        return if fitting.is_empty() {
            Err(Failure::new(format!("no tensor matches '{name}'"))
                .help("sardonyx ls lists the tensors"))
        } else {
            Ok(fitting)
        };
    }
    if found.is_empty() {
        let failure = Failure::new(format!("no tensor '{name}' exists"));
        let names = there.iter().map(|tensor| tensor.name.as_str());
        return Err(failure.help(match suggest::closest(name, names) {
            Some(near) => format!("did you mean '{near}'?"),
            None => format!("sardonyx ls lists the {}", format_count(there.len(), "tensor")),
        }));
    }
    Ok(found)
}

/// Creates the failure for several tensors that share a name or a location. `what` names the shared
/// property, such as `name 'x'`.
fn ambiguous_failure(what: &str, found: &[&StoredTensor]) -> Failure {
    /// Maximum number of locations to list.
    const SHOWN: usize = 10;
    let mut places: Vec<String> =
        found.iter().take(SHOWN).map(|tensor| format!("  {}", tensor.place)).collect();
    if found.len() > SHOWN {
        places.push(format!("  ... and {} more", found.len() - SHOWN));
    }
    let message = format!("{} have the {what}", format_count(found.len(), "tensor"));
    Failure::new(message)
        .help(format!("choose a tensor with --place, such as one of\n{}", places.join("\n")))
}
