//! `sardonyx save`: conversion of a model or of values to another file format.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sardonyx::io::{ModelFormat, Weights, read_value, write_value};
use sardonyx::tool::{npz, safetensors};
use sardonyx::value::{Buffer, Map, MapKey, Sequence};
use sardonyx::{DataType, Model, OpenOptions, SaveOptions, Tensor, Type, Value, ValueType};
use serde_json::json;

use crate::arrays::{self, Content, Format};
use crate::failure::Failure;
use crate::files::{self, FileKind, Protected};
use crate::human::{format_bytes, format_count};
use crate::model_arg::{Limits, ModelArg, is_stdin};
use crate::saving::{self, Target, parse_target};
use crate::terminal::Terminal;
use crate::types::parse_type;
use crate::verdict::Verdict;

/// Convert a model or values to another file format
///
/// Operators and versions are unchanged; `sardonyx convert` changes these. The old name
/// convert-format works too.
///
/// Model formats: .onnx (binary), .onnxtxt (ONNX text with all values), .json or .onnxjson
/// (protobuf JSON), .textproto, .txtpb, .prototxt or .pbtxt (protobuf text format). Value formats:
/// .npy, .npz, .pb (one value, as in test data sets) and .safetensors; .txt and .csv can only be
/// written. A .pb file is a model if the other file is one.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// File to read, or - for stdin
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// File to write, or - for stdout
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Format of IN, if its file extension does not tell
    #[arg(long, value_enum, value_name = "FORM")]
    from: Option<FormatName>,
    /// Format of OUT, if its file extension does not tell
    #[arg(long, alias = "to", value_enum, value_name = "FORM")]
    form: Option<FormatName>,
    /// Type of the value in a .pb file, which the file does not store, such as
    /// 'seq(tensor(float))'; by default a tensor. Also the element type of a .npy file with a type
    /// that NumPy lacks
    #[arg(long = "type", value_name = "TYPE", value_parser = parse_type)]
    ty: Option<Type>,
    /// Name for a value without a name in IN; by default the file name without extension
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    limits: Limits,
    /// Exit with 1 if the new format cannot represent something, which is then omitted
    #[arg(long)]
    strict: bool,
    /// Print in JSON what was written
    #[arg(long)]
    json: bool,
}

/// File format by its name on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum FormatName {
    /// A model, binary
    Onnx,
    /// A model in ONNX text, with all values
    Onnxtxt,
    /// A model as protobuf JSON
    Json,
    /// A model in protobuf text format
    Textproto,
    Npy,
    Npz,
    /// A stored value: TensorProto, SequenceProto, MapProto or OptionalProto
    Pb,
    Safetensors,
    Txt,
    Csv,
}

/// Schema of the JSON answer: its name and version. A key that changes its meaning raises the
/// version, a new key does not.
const SCHEMA: &str = "sardonyx.save/1";

impl FormatName {
    /// Returns the format that the suffix of a path names; `None` for an unknown suffix.
    fn from_path(path: &Path) -> Option<FormatName> {
        Some(match (Format::from_path(path), ModelFormat::from_path(path)) {
            (Some(Format::Npy), _) => FormatName::Npy,
            (Some(Format::Npz), _) => FormatName::Npz,
            (Some(Format::Proto), _) => FormatName::Pb,
            (Some(Format::Safetensors), _) => FormatName::Safetensors,
            (Some(Format::Text), _) => FormatName::Txt,
            (Some(Format::Csv), _) => FormatName::Csv,
            (_, Some(ModelFormat::Binary)) => FormatName::Onnx,
            (_, Some(ModelFormat::Notation)) => FormatName::Onnxtxt,
            (_, Some(ModelFormat::Json)) => FormatName::Json,
            (_, Some(ModelFormat::TextFormat)) => FormatName::Textproto,
            _ => return None,
        })
    }

    /// Returns the model format of this name; `None` if it names a format of values.
    fn model_format(self) -> Option<ModelFormat> {
        match self {
            FormatName::Onnx => Some(ModelFormat::Binary),
            FormatName::Onnxtxt => Some(ModelFormat::Notation),
            FormatName::Json => Some(ModelFormat::Json),
            FormatName::Textproto => Some(ModelFormat::TextFormat),
            _ => None,
        }
    }

    /// Returns the value format of this name; `None` if it names a format of models.
    fn value_format(self) -> Option<Format> {
        Some(match self {
            FormatName::Npy => Format::Npy,
            FormatName::Npz => Format::Npz,
            FormatName::Pb => Format::Proto,
            FormatName::Safetensors => Format::Safetensors,
            FormatName::Txt => Format::Text,
            FormatName::Csv => Format::Csv,
            _ => return None,
        })
    }

    /// Returns the name as it is written on the command line.
    fn name(self) -> &'static str {
        match self {
            FormatName::Onnx => "onnx",
            FormatName::Onnxtxt => "onnxtxt",
            FormatName::Json => "json",
            FormatName::Textproto => "textproto",
            FormatName::Npy => "npy",
            FormatName::Npz => "npz",
            FormatName::Pb => "pb",
            FormatName::Safetensors => "safetensors",
            FormatName::Txt => "txt",
            FormatName::Csv => "csv",
        }
    }
}

/// Runs `sardonyx save`. With `--strict`, an omission is a finding.
pub(crate) fn save(args: &Args, terminal: &Terminal) -> Result<Verdict, Failure> {
    let (from, to) = args.find_formats()?;
    let target = parse_target(&args.output)?;
    match &target {
        Target::File(path) => {
            let mut input = Protected::default();
            input.add(&args.input);
            input.check(path)?;
        }
        Target::Stdout if args.json => saving::check_stdout(true, None)?,
        Target::Stdout => {}
    }
    match (from.model_format(), to.model_format(), from.value_format(), to.value_format()) {
        (Some(from), Some(to), ..) => save_model(args, from, to, &target, terminal),
        (_, _, Some(_), Some(format)) => save_values(args, from, format, &target, terminal),
        (Some(_), ..) => Err(Failure::new(format!("a model cannot be written as .{}", to.name()))
            .help(format!(
                "`sardonyx cat --all-tensors` writes the values of a model to a .{} file",
                to.name()
            ))),
        _ => Err(Failure::new(format!("a .{} file holds values, not a model", from.name()))
            .help("write values to .npy, .npz, .pb, .safetensors, .txt or .csv")),
    }
}

impl Args {
    /// Returns the formats of the input file and of the output file. A file with the suffix `.pb`
    /// is a model if the other file is one, else a value.
    fn find_formats(&self) -> Result<(FormatName, FormatName), Failure> {
        let mut from = find_format(self.from, &self.input, "--from")?;
        let mut to = find_format(self.form, &self.output, "--form")?;
        if self.from.is_none() && from == FormatName::Pb && to.model_format().is_some() {
            from = FormatName::Onnx;
        }
        if self.form.is_none() && to == FormatName::Pb && from.model_format().is_some() {
            to = FormatName::Onnx;
        }
        Ok((from, to))
    }

    /// Returns the name for a value without a name in the input file: `--name`, or the file name
    /// without suffix.
    fn name(&self) -> String {
        match &self.name {
            Some(name) => name.clone(),
            None if is_stdin(&self.input) => String::new(),
            None => {
                let stem = self.input.file_stem().unwrap_or_default();
                stem.to_string_lossy().into_owned()
            }
        }
    }

    /// Returns the element type of the type that `--type` gives; `None` without one.
    fn element_type(&self) -> Option<DataType> {
        self.ty.as_ref().and_then(Type::elem)
    }
}

/// Returns `given`, the value of `option`, or else the format that the suffix of `path` names.
/// Fails if both are missing.
fn find_format(
    given: Option<FormatName>,
    path: &Path,
    option: &str,
) -> Result<FormatName, Failure> {
    let found = given.or_else(|| FormatName::from_path(path));
    found.ok_or_else(|| {
        let message = format!("the format of '{}' is unknown", path.display());
        Failure::new(message).help(format!("name the format with {option}"))
    })
}

/// Converts a model from the format `from` to the format `to`.
fn save_model(
    args: &Args,
    from: ModelFormat,
    to: ModelFormat,
    target: &Target,
    terminal: &Terminal,
) -> Result<Verdict, Failure> {
    let arg = ModelArg { path: args.input.clone(), limits: args.limits.clone() };
    let model: Model = arg.open_with(OpenOptions::new().form(from))?;
    let options = SaveOptions::new().form(to);
    let report = match target {
        Target::File(path) => {
            saving::protect_data(&arg, &model).check(path)?;
            saving::save_to_file(&arg, &model, options, path, terminal)?
        }
        Target::Stdout => {
            saving::check_stdout(false, Some(to))?;
            saving::save_to_stdout(&arg, &model, options, Weights::Keep, to, terminal)?
        }
    };
    let lost = !report.left_out.is_empty();
    let saved = saving::Saved::new(target.clone(), report);
    if args.json {
        let answer = json!({"schema": SCHEMA, "input": args.input, "saved": saved.json()});
        terminal.json(&answer, true)?;
    } else {
        saved.print(terminal)
    }
    Ok(if lost && args.strict { Verdict::Findings } else { Verdict::Fine })
}

/// Converts the values of a file from the format `from` to the format `to`.
fn save_values(
    args: &Args,
    from: FormatName,
    to: Format,
    target: &Target,
    terminal: &Terminal,
) -> Result<Verdict, Failure> {
    let Values { read, metadata } =
        read_values(args, from).map_err(|failure| failure.at(args.input.display()))?;
    let mut left_out = Vec::new();
    if !metadata.is_empty() && to != Format::Safetensors {
        left_out.push(format_count(metadata.len(), "text") + " of metadata");
    }
    let listed: Vec<_> = read
        .iter()
        .map(|(name, value)| json!({"name": name, "type": value.value_type().to_string()}))
        .collect();
    let values = listed.len();
    if to == Format::Proto {
        let (name, value) = combine_values(args, read)?;
        let bytes = write_value(&value, &name)?;
        match target {
            Target::File(path) => files::write(path, |file| Ok(file.write_all(&bytes)?))?,
            Target::Stdout => {
                saving::check_stdout(args.json, None)?;
                let mut stdout = io::stdout().lock();
                stdout.write_all(&bytes)?;
                stdout.flush()?;
            }
        }
    } else {
        let mut content = Content { metadata, ..Content::default() };
        for (name, value) in read {
            flatten_value(name, value, &mut content.tensors, &mut left_out)?;
        }
        arrays::write(target, to, &content, terminal)?;
    }
    let lost = !left_out.is_empty();
    let size = match target {
        Target::File(path) => std::fs::metadata(path).ok().map(|metadata| metadata.len()),
        Target::Stdout => None,
    };
    if args.json {
        let answer = json!({
            "schema": SCHEMA,
            "input": args.input,
            "values": listed,
            "saved": {"output": args.output, "bytes": size, "left_out": left_out},
        });
        terminal.json(&answer, true)?;
    } else {
        if let Target::File(path) = target {
            let (size, values) =
                (size.map_or("?".to_string(), format_bytes), format_count(values, "value"));
            terminal.remark(&format!("wrote {}, {size}: {values}", path.display()));
        }
        saving::note_left_out(&left_out, terminal);
    }
    Ok(if lost && args.strict { Verdict::Findings } else { Verdict::Fine })
}

/// Values of the input file by name, and the metadata of the file.
struct Values {
    read: Vec<(String, Value)>,
    metadata: Vec<(String, String)>,
}

/// Reads the values and the metadata of the input file.
fn read_values(args: &Args, from: FormatName) -> Result<Values, Failure> {
    let file = if is_stdin(&args.input) {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes)?;
        Buffer::from_vec(bytes)
    } else {
        files::read(&args.input)?
    };
    let mut metadata = Vec::new();
    let read = match from {
        FormatName::Npy => vec![(args.name(), read_array(args, &file)?)],
        FormatName::Npz => {
            let mut read = Vec::new();
            for (name, bytes) in npz::read(&file)? {
                let value = read_array(args, &bytes).map_err(|failure| failure.at(&name))?;
                read.push((name, value));
            }
            read
        }
        FormatName::Safetensors => {
            let content = safetensors::read(&file)?;
            metadata = content.metadata;
            let tensors = content.tensors.into_iter();
            tensors.map(|(name, tensor)| (name, tensor.into())).collect()
        }
        FormatName::Pb => vec![(args.name(), read_pb(args, file)?)],
        _ => {
            return Err(Failure::new(".txt and .csv files cannot be read")
                .help("use .npy, .npz, .pb or .safetensors"));
        }
    };
    Ok(Values { read, metadata })
}

/// Reads a `.npy` file. `--type` gives the element type if NumPy lacks it.
fn read_array(args: &Args, file: &Buffer) -> Result<Value, Failure> {
    arrays::read_npy(file, args.element_type()).map(Value::from)
}

/// Reads a `.pb` file as a value of the type that `--type` gives, by default a tensor.
fn read_pb(args: &Args, file: Buffer) -> Result<Value, Failure> {
    let tensor = Type::unranked(DataType::Float);
    let ty = args.ty.as_ref().unwrap_or(&tensor);
    let is_array = matches!(
        files::detect_kind(Path::new("-"), file.as_slice()),
        FileKind::Npy | FileKind::Npz
    );
    read_value(file, ty).map_err(|error| {
        let failure = Failure::from(error);
        match (&args.ty, is_array) {
            (_, true) => failure.help("the file looks like a NumPy file; name its format with --from"),
            (None, _) => failure.help(
                "if the value is not a tensor, give its type, such as --type 'seq(tensor(float))'; if the file is a model, write it to .onnx",
            ),
            _ => failure,
        }
    })
}

/// Combines all values into one value of the type that `--type` gives: a sequence, a map or an
/// optional.
fn combine_values(args: &Args, mut read: Vec<(String, Value)>) -> Result<(String, Value), Failure> {
    let is_single = read.len() == 1;
    let wanted = args.ty.as_ref().map(to_value_type).transpose()?;
    if is_single
        && let Some((_, value)) = read.first()
        && wanted.as_ref().is_none_or(|ty| value.value_type() == *ty)
        && let Some(only) = read.pop()
    {
        return Ok(only);
    }
    let name = args.name();
    let value = match (args.ty.as_ref(), wanted) {
        (Some(Type::Sequence(_)), Some(ValueType::Sequence(element))) => {
            let mut sequence = Sequence::new(*element);
            for (name, value) in read {
                let pushed = sequence.push(value);
                pushed.map_err(|error| Failure::from(error).at(name))?;
            }
            Value::Sequence(sequence)
        }
        (Some(Type::Map(..)), Some(ValueType::Map(key, element))) => {
            let mut map = Map::new(key, *element)?;
            for (name, value) in read {
                let pushed = map.push(parse_key(key, &name)?, value);
                pushed.map_err(|error| Failure::from(error).at(name))?;
            }
            Value::Map(map)
        }
        (Some(Type::Optional(_)), Some(ValueType::Optional(element))) => match read.pop() {
            None => Value::none(*element),
            Some((_, value)) if is_single && value.value_type() == *element => Value::some(value),
            Some((_, value)) => return Err(refuse_type(&value, &ValueType::Optional(element))),
        },
        (_, Some(wanted)) if is_single => {
            let found = read.pop().map(|(_, value)| refuse_type(&value, &wanted));
            return Err(found.unwrap_or_else(|| Failure::new("no value to write")));
        }
        _ => {
            let message = format!("a .pb file holds one value, not {}", read.len());
            return Err(Failure::new(message).help(
                "combine the values with --type 'seq(tensor(float))' or --type 'map(string,tensor(float))', or write .npz or .safetensors",
            ));
        }
    };
    Ok((name, value))
}

/// Returns the failure for a value that has another type than `wanted`.
fn refuse_type(value: &Value, wanted: &ValueType) -> Failure {
    Failure::new(format!("the value has type {}, not {wanted}", value.value_type()))
}

/// Converts a type to one without shapes. Fails if values of the type cannot be stored.
fn to_value_type(ty: &Type) -> Result<ValueType, Failure> {
    let Some(found) = ty.value_type() else {
        return Err(Failure::new("the type has no element type"));
    };
    if found.is_opaque() {
        return Err(Failure::new(format!("values of type {ty} cannot be stored")));
    }
    Ok(found)
}

/// Parses the name of a value as a key of an ONNX map with keys of type `key`.
fn parse_key(key: DataType, name: &str) -> Result<MapKey, Failure> {
    let parsed = match key {
        DataType::String => Some(MapKey::String(name.as_bytes().into())),
        _ if key.is_signed() => name.parse().ok().map(MapKey::Signed),
        _ => name.parse().ok().map(MapKey::Unsigned),
    };
    parsed.ok_or_else(|| Failure::new(format!("'{name}' is not a key of type {key}")))
}

/// Adds the tensors in a value to `tensors`, and descriptions of what the tensors alone do not
/// preserve to `left_out`. The items of sequences and maps are called `NAME.POSITION` or
/// `NAME.KEY`.
fn flatten_value(
    name: String,
    value: Value,
    tensors: &mut Vec<(String, Tensor)>,
    left_out: &mut Vec<String>,
) -> Result<(), Failure> {
    match value {
        Value::Tensor(tensor) => tensors.push((name, tensor)),
        Value::Sparse(sparse) => {
            left_out.push(format!("the sparse format of '{name}', which is written dense"));
            tensors.push((name, sparse.to_dense()?));
        }
        Value::Sequence(sequence) => {
            left_out.push(format!("the sequence type of '{name}', whose items are numbered"));
            for (index, item) in sequence.into_items().into_iter().enumerate() {
                flatten_value(format!("{name}.{index}"), item, tensors, left_out)?;
            }
        }
        Value::Map(map) => {
            left_out.push(format!("the map type of '{name}', whose keys become names"));
            for (key, item) in map.entries() {
                let key = match key {
                    MapKey::Signed(key) => key.to_string(),
                    MapKey::Unsigned(key) => key.to_string(),
                    MapKey::String(key) => String::from_utf8_lossy(key).into_owned(),
                };
                flatten_value(format!("{name}.{key}"), item.clone(), tensors, left_out)?;
            }
        }
        Value::Optional(_, Some(inner)) => {
            left_out.push(format!("the optional type of '{name}'"));
            flatten_value(name, *inner, tensors, left_out)?;
        }
        Value::Optional(_, None) => {
            left_out.push(format!("'{name}', which is an empty optional"));
        }
        Value::Opaque(_) => left_out.push(format!("'{name}', which is opaque")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forms(input: &str, output: &str) -> Result<(FormatName, FormatName), Failure> {
        use clap::{FromArgMatches, Subcommand};
        #[derive(clap::Subcommand)]
        enum Only {
            Save(Args),
        }
        let command = Only::augment_subcommands(clap::Command::new("sardonyx"));
        let line = ["sardonyx", "save", input, "-o", output];
        let matches = command.try_get_matches_from(line).unwrap();
        let Only::Save(args) = Only::from_arg_matches(&matches).unwrap();
        args.find_formats()
    }

    #[test]
    fn formats_follow_from_suffixes() {
        let rows = [
            ("a.onnx", "b.json", (FormatName::Onnx, FormatName::Json)),
            ("a.pbtxt", "b.onnx", (FormatName::Textproto, FormatName::Onnx)),
            ("a.pb", "b.onnx", (FormatName::Onnx, FormatName::Onnx)),
            ("a.onnx", "b.pb", (FormatName::Onnx, FormatName::Onnx)),
            ("a.pb", "b.npy", (FormatName::Pb, FormatName::Npy)),
            ("a.npz", "b.pb", (FormatName::Npz, FormatName::Pb)),
            ("a.pb", "b.pb", (FormatName::Pb, FormatName::Pb)),
        ];
        for (input, output, expected) in rows {
            assert_eq!(forms(input, output).unwrap(), expected, "{input} {output}");
        }
        assert!(forms("-", "a.npy").is_err());
        assert!(forms("a.bin", "a.npy").is_err());
    }
}
