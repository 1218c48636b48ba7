//! Inputs of a run, read from the files on the command line.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use sardonyx::check::FillOptions;
use sardonyx::inspect::TensorRole;
use sardonyx::io::read_value;
use sardonyx::tool::filling::find_input_type;
use sardonyx::tool::{CastOptions, cast, npz};
use sardonyx::value::{Buffer, Sequence};
use sardonyx::{DataType, ErrorKind, Model, Port, Session, Tensor, Type, Value};

use crate::failure::Failure;
use crate::files::{self, FileKind};
use crate::session::Opened;
use crate::terminal::Terminal;
use crate::{arrays, filling, images};

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Inputs: .npy, .npz (names inside are input names), .pb (a stored value), PNG or JPEG. A FILE
    /// without a name goes to the next input that has none yet; of a directory of test data
    /// input_0.pb goes to the first input, and so on. For a sequence give NAME=FILE once for each
    /// item, a .npz whose arrays are NAME.0, NAME.1 and so on, or a .pb; an optional input may be
    /// left out
    #[arg(value_name = "FILE|NAME=FILE")]
    files: Vec<String>,
    /// Convert arrays to the element types that the model expects
    #[arg(long)]
    cast: bool,
    #[command(flatten)]
    filling: filling::Args,
    #[command(flatten)]
    image: images::Args,
}

/// Values for the graph inputs of a run by name, and the files that they were read from.
pub(crate) struct Inputs {
    pub(crate) values: Vec<(String, Value)>,
    pub(crate) files: Vec<PathBuf>,
}

impl Args {
    /// Adds a file before the others.
    pub(crate) fn prepend(&mut self, file: Option<PathBuf>) {
        let file = file.map(|file| file.to_string_lossy().into_owned());
        self.files.splice(0..0, file);
    }

    /// Whether files or options give inputs.
    pub(crate) fn is_given(&self) -> bool {
        !self.files.is_empty() || self.filling.seed().is_some()
    }

    /// Returns the first input file if its name is a number and no such file exists; else `None`.
    /// The number was probably meant for the preceding option, which takes no number.
    pub(crate) fn find_stray_number(&self) -> Option<&str> {
        let first = self.files.first()?;
        (first.parse::<u64>().is_ok() && !Path::new(first).exists()).then_some(first)
    }
}

impl Inputs {
    /// Returns the values for one run with the names of the inputs. Copies neither names nor
    /// elements.
    pub(crate) fn named_values(&self) -> Vec<(&str, Value)> {
        self.values.iter().map(|(name, value)| (name.as_str(), value.clone())).collect()
    }

    /// Returns the types of the inputs whose values are tensors, by name.
    pub(crate) fn to_tensor_types(&self) -> Vec<(String, Type)> {
        let types = self.values.iter().filter_map(|(name, value)| {
            let tensor = value.as_tensor()?;
            let dims = tensor.dims().iter().copied();
            Some((name.clone(), Type::tensor(tensor.data_type(), dims)))
        });
        types.collect()
    }
}

/// Reads the input files, and fills inputs without a file if `--random`, `--fill` or `--shape` is
/// given. Fails if a required input still has no value.
pub(crate) fn gather_inputs(
    args: &Args,
    opened: &Opened,
    terminal: &Terminal,
) -> Result<Inputs, Failure> {
    gather_with(args, &args.filling, opened, terminal)
}

/// Like [`gather_inputs`], but fills all inputs if none is given, for commands whose results hardly
/// depend on the values.
pub(crate) fn gather_or_fill_all(
    args: &Args,
    opened: &Opened,
    terminal: &Terminal,
) -> Result<Inputs, Failure> {
    let needs_some = opened.session.inputs().iter().any(Port::is_required);
    if args.filling.seed().is_none() && args.files.is_empty() && needs_some {
        terminal.detail("no inputs are given: all inputs are filled as by --random 0");
        return gather_with(args, &filling::Args::with_seed(0), opened, terminal);
    }
    gather_with(args, &args.filling, opened, terminal)
}

/// Reads the input files, and fills inputs without a file as `filling` requests. Fails if a
/// required input still has no value.
fn gather_with(
    args: &Args,
    filling: &filling::Args,
    opened: &Opened,
    terminal: &Terminal,
) -> Result<Inputs, Failure> {
    let (model, session, ports) = (&opened.model, &opened.session, opened.session.inputs());
    let inputs = Inputs { values: Vec::new(), files: Vec::new() };
    let mut gather = Gather { args, model, session, inputs, growing: HashSet::new() };
    let (named, positional): (Vec<_>, Vec<_>) = args
        .files
        .iter()
        .map(|arg| split_argument(arg, ports))
        .partition(|(name, _)| name.is_some());
    for (name, path) in named.into_iter().chain(positional) {
        gather.read_file(name, &path)?;
    }
    filling.check(ports, &|name| gather.inputs.values.iter().any(|(given, _)| given == name))?;
    if filling.seed().is_some() {
        let options = filling.to_options(&opened.sizes);
        if let Some(trained) = &opened.trained {
            gather.add_stored_state(trained, &options)?;
        }
        let given = &gather.inputs.values;
        let mut filled = filling::fill_inputs(&options, model, ports, given, terminal)?;
        gather.inputs.values.append(&mut filled);
    } else if !opened.sizes.open.is_empty() {
        terminal.note(
            "--set INPUT[AXIS]=SIZE has no effect on inputs that are not filled; give --random",
        );
    }
    gather.into_inputs()
}

/// Graph inputs of a run while their values are collected.
struct Gather<'a> {
    args: &'a Args,
    model: &'a Model,
    session: &'a Session,
    inputs: Inputs,
    /// Names of the sequence inputs whose items are given one by one.
    growing: HashSet<String>,
}

/// Splits an input argument into the name of a graph input, if it has one, and the path of a file.
/// The name of an input may contain `=`, so `NAME=FILE` is split at the first `=` after which NAME
/// is an input. Without such a NAME the argument is a path if that exists; else it is split at the
/// first `=`, and the caller refuses the name.
fn split_argument(arg: &str, ports: &[Port]) -> (Option<String>, PathBuf) {
    let cuts: Vec<(&str, &str)> =
        arg.match_indices('=').map(|(at, _)| (&arg[..at], &arg[at + 1..])).collect();
    let mut named = cuts.iter().copied();
    let named = named.find(|(name, _)| ports.iter().any(|port| port.name() == *name));
    if let Some((name, path)) = named {
        return (Some(name.to_string()), path.into());
    }
    match cuts.first().copied() {
        Some((name, path)) if !Path::new(arg).exists() => (Some(name.to_string()), path.into()),
        _ => (None, arg.into()),
    }
}

/// Returns the value for `--fill` if `text`, which was given in the place of a file, is a number or
/// a truth value; else `None`.
fn to_fill_value(text: &str) -> Option<String> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Some("1".to_string()),
        "false" => Some("0".to_string()),
        _ => text.parse::<f64>().ok().map(|_| text.to_string()),
    }
}

impl<'a> Gather<'a> {
    /// Sets state variables among the inputs to their stored values, unless they are given or have
    /// a `--fill` or `--shape` of their own. Random weights give subnormal gradients, with which
    /// processors take many times as long.
    fn add_stored_state(&mut self, trained: &Model, filling: &FillOptions) -> Result<(), Failure> {
        let variables = trained.state_variables().into_iter().map(|variable| variable.name);
        let variables: HashSet<String> = variables.collect();
        let ports = self.session.inputs();
        for stored in trained.tensors() {
            let name = &stored.name;
            let is_state = stored.role == TensorRole::Initializer && variables.contains(name);
            if is_state
                && ports.iter().any(|port| port.name() == name)
                && filling.find_fill(name).is_none()
                && filling.find_shape(name).is_none()
                && !self.inputs.values.iter().any(|(given, _)| given == name)
            {
                let value = trained.value_of(&stored)?;
                self.inputs.values.push((stored.name, value.into()));
            }
        }
        Ok(())
    }

    /// Reads a file as the value of the graph input `name`, or of the next inputs without a value.
    fn read_file(&mut self, name: Option<String>, path: &Path) -> Result<(), Failure> {
        if let Some(name) = &name {
            self.find_port(name)?;
        } else if path.is_dir() {
            return self.read_directory(path);
        }
        let bytes = files::read(path).map_err(|failure| match (&name, path.to_str()) {
            (Some(name), Some(text)) => match to_fill_value(text).filter(|_| !path.exists()) {
                Some(fill) => failure.help(format!("for a number, use --fill {name}={fill}")),
                None => failure,
            },
            _ => failure,
        })?;
        self.inputs.files.push(path.to_path_buf());
        let at = |failure: Failure| failure.at(path.display());
        match files::detect_kind(path, bytes.as_slice()) {
            FileKind::Npz => self.read_archive(name, &bytes).map_err(at),
            kind => {
                let port = match &name {
                    Some(name) => self.find_port(name)?,
                    None => self.next_port().map_err(at)?,
                };
                let value = self.decode_value(kind, &bytes, port).map_err(at)?;
                self.set_value(port, value)
            }
        }
    }

    /// Reads the values of graph inputs in a directory of test data: `input_0.pb` for the first
    /// input, and so on.
    fn read_directory(&mut self, path: &Path) -> Result<(), Failure> {
        let files = files::list_numbered_files(path, "input_")?;
        // Test data of a model without inputs have only outputs.
        if files.is_empty() && files::list_numbered_files(path, "output_")?.is_empty() {
            let message = format!("the directory '{}' has no input_0.pb", path.display());
            return Err(Failure::new(message)
                .code(ErrorKind::Input)
                .help("name files, or a directory with input_0.pb, input_1.pb, …"));
        }
        let ports = self.session.inputs();
        for (number, file) in files {
            let Some(port) = ports.get(number) else {
                let message = format!("the model has no input with the number {number}");
                return Err(Failure::new(message)
                    .code(ErrorKind::Input)
                    .at(file.display())
                    .help(self.session.describe_inputs()));
            };
            self.read_file(Some(port.name().to_string()), &file)?;
        }
        Ok(())
    }

    /// Reads a `.npz` file, for the graph input `name` or for the inputs that its arrays are named
    /// after.
    fn read_archive(&mut self, name: Option<String>, bytes: &Buffer) -> Result<(), Failure> {
        let arrays = npz::read(bytes)?;
        let Some(name) = name else {
            let (items, arrays): (Vec<_>, Vec<_>) =
                arrays.into_iter().partition(|(member, _)| self.split_item_name(member).is_some());
            self.append_items(items)?;
            for (member, array) in arrays {
                // `numpy.savez(file, a, b)` names the arrays arr_0 and arr_1.
                let unnamed =
                    member.strip_prefix("arr_").is_some_and(|rest| rest.parse::<usize>().is_ok());
                let port = match self.find_port(&member) {
                    Err(_) if unnamed => self.next_port()?,
                    port => port?,
                };
                let value = self.read_array(&array, port).map_err(|failure| failure.at(&member))?;
                self.set_value(port, value)?;
            }
            return Ok(());
        };
        let port = self.find_port(&name)?;
        if is_sequence(port) {
            let is_item =
                |member: &str| self.split_item_name(member).is_some_and(|(of, _)| of == port);
            if arrays.iter().any(|(member, _)| is_item(member)) {
                let items = arrays.into_iter().filter(|(member, _)| is_item(member)).collect();
                return self.append_items(items);
            }
            // Arrays of other names are items in the order of the archive.
            for (member, array) in arrays {
                let item = self.read_array(&array, port).map_err(|failure| failure.at(&member))?;
                self.set_value(port, item)?;
            }
            return Ok(());
        }
        let found = match &arrays[..] {
            [only] => Some(only),
            _ => arrays.iter().find(|(member, _)| *member == name),
        };
        let Some((_, array)) = found else {
            let members: Vec<&str> =
                arrays.iter().map(|(member, _)| member.as_str()).take(20).collect();
            return Err(Failure::new(format!("the archive has no array '{name}'"))
                .code(ErrorKind::Input)
                .help(format!("the archive has: {}", members.join(", "))));
        };
        let value = self.read_array(array, port)?;
        self.set_value(port, value)
    }

    /// Splits the name of an array in an archive, such as `x.0`, into a sequence input and the
    /// position of the item; `None` if the array is not an item.
    fn split_item_name(&self, member: &str) -> Option<(&'a Port, usize)> {
        let (name, position) = member.rsplit_once('.')?;
        let is_whole_name = self.session.inputs().iter().any(|port| port.name() == member);
        let port = self.session.inputs().iter().find(|port| port.name() == name)?;
        let position = position.parse().ok()?;
        (is_sequence(port) && !is_whole_name).then_some((port, position))
    }

    /// Appends arrays of an archive to sequence inputs, in the order of the positions in the names
    /// of the arrays. Fails if a position is missing.
    fn append_items(&mut self, arrays: Vec<(String, Buffer)>) -> Result<(), Failure> {
        let mut sequences: BTreeMap<&str, (&'a Port, BTreeMap<usize, (String, Buffer)>)> =
            BTreeMap::new();
        for (member, array) in arrays {
            let Some((port, position)) = self.split_item_name(&member) else { continue };
            let (_, items) = sequences.entry(port.name()).or_insert((port, BTreeMap::new()));
            items.insert(position, (member, array));
        }
        for (name, (port, items)) in sequences {
            let mut positions = items.keys().zip(0..);
            if let Some((found, missing)) = positions.find(|(found, wanted)| *found != wanted) {
                return Err(Failure::new(format!(
                    "the archive has the item '{name}.{found}', but no '{name}.{missing}'"
                ))
                .code(ErrorKind::Input)
                .help("items of a sequence are numbered from 0 on without gaps"));
            }
            for (member, array) in items.into_values() {
                let item = self.read_array(&array, port).map_err(|failure| failure.at(&member))?;
                self.set_value(port, item)?;
            }
        }
        Ok(())
    }

    /// Decodes the bytes of a file to a value for the graph input `port`.
    fn decode_value(&self, kind: FileKind, bytes: &Buffer, port: &Port) -> Result<Value, Failure> {
        match kind {
            FileKind::Npy => self.read_array(bytes, port),
            FileKind::Image => {
                images::load_image(bytes.as_slice(), port, &self.args.image, self.model)
                    .map(Value::Tensor)
            }
            FileKind::Proto => {
                let any = Type::unranked(DataType::Float);
                let value = read_value(bytes.clone(), port.ty().unwrap_or(&any))?;
                match value {
                    // Stored elements lie at any address: each of several runs would copy them.
                    Value::Tensor(tensor) => {
                        let tensor = match_element_type(tensor, port, self.args.cast)?;
                        Ok(Value::Tensor(tensor.aligned()?))
                    }
                    other => Ok(other),
                }
            }
            FileKind::Npz | FileKind::Unknown(_) => {
                let what = match kind {
                    FileKind::Unknown(Some(what)) => {
                        format!("the input file is {what}, which is not supported")
                    }
                    _ => "unsupported input file".to_string(),
                };
                Err(Failure::new(what)
                    .code(ErrorKind::Format)
                    .help("use .npy, .npz, .pb (TensorProto), PNG or JPEG files"))
            }
        }
    }

    /// Reads a `.npy` file as a tensor with the element type of `port`.
    fn read_array(&self, bytes: &Buffer, port: &Port) -> Result<Value, Failure> {
        read_array(bytes, port, self.args.cast).map(Value::Tensor)
    }

    /// Sets the value of a graph input, or appends an item to a sequence. Fails if the input has a
    /// value already.
    fn set_value(&mut self, port: &Port, value: Value) -> Result<(), Failure> {
        let value = match value {
            Value::Tensor(item) if is_sequence(port) => {
                if self.growing.contains(port.name()) {
                    return self.append_item(port, item);
                }
                if !self.is_given(port) {
                    self.growing.insert(port.name().to_string());
                }
                Value::Sequence(Sequence::from_tensors(item.data_type(), [item])?)
            }
            value => value,
        };
        if self.is_given(port) {
            return Err(Failure::new(format!("the input '{}' is given twice", port.name()))
                .code(ErrorKind::Input));
        }
        self.inputs.values.push((port.name().to_string(), value));
        Ok(())
    }

    /// Appends a tensor to the sequence input `port`, whose first item is already set.
    fn append_item(&mut self, port: &Port, item: Tensor) -> Result<(), Failure> {
        for (name, value) in &mut self.inputs.values {
            if let Value::Sequence(sequence) = value
                && name == port.name()
            {
                return Ok(sequence.push(item.into())?);
            }
        }
        Ok(())
    }

    /// Whether the graph input `port` has a value.
    fn is_given(&self, port: &Port) -> bool {
        self.inputs.values.iter().any(|(name, _)| name == port.name())
    }

    /// Returns the graph input `name`. Fails if the model has no such input.
    fn find_port(&self, name: &str) -> Result<&'a Port, Failure> {
        Ok(self.session.input(name)?)
    }

    /// Returns the graph input for the next file without a name: the first required input without a
    /// value, or else the first optional one. Fails if all inputs have values.
    fn next_port(&self) -> Result<&'a Port, Failure> {
        let inputs = self.session.inputs().iter();
        let free: Vec<&Port> = inputs.filter(|port| !self.is_given(port)).collect();
        match free.iter().find(|port| port.is_required()).or(free.first()) {
            Some(port) => Ok(*port),
            None => Err(Failure::new("all inputs of the model have a value already")
                .code(ErrorKind::Input)
                .help(self.session.describe_inputs())),
        }
    }

    /// Returns the collected inputs. Fails if a required input has no value.
    fn into_inputs(self) -> Result<Inputs, Failure> {
        let missing: Vec<&str> = self
            .session
            .inputs()
            .iter()
            .filter(|port| port.is_required() && !self.is_given(port))
            .map(Port::name)
            .take(10)
            .collect();
        if missing.is_empty() {
            return Ok(self.inputs);
        }
        let message = match &missing[..] {
            [only] => format!("the input '{only}' is missing"),
            many => format!("required inputs are missing: {}", many.join(", ")),
        };
        Err(Failure::new(message).code(ErrorKind::Input).help(format!(
            "give inputs as NAME=FILE (.npy, .npz, .pb, PNG or JPEG), or fill them with --random SEED; {}",
            self.session.describe_inputs()
        )))
    }
}

/// Whether the graph input `port` takes a sequence.
fn is_sequence(port: &Port) -> bool {
    matches!(find_input_type(port), Some(Type::Sequence(_)))
}

/// Returns the element type of the arrays that a graph input takes: that of the tensor, or of the
/// items of a sequence. `None` if it is unknown.
fn element_type(port: &Port) -> Option<DataType> {
    match find_input_type(port)? {
        Type::Tensor(tensor) | Type::SparseTensor(tensor) => tensor.elem,
        Type::Sequence(item) => item.elem(),
        _ => None,
    }
}

/// Reads a `.npy` file as a tensor for the graph input `port`. Element types that NumPy lacks are
/// stored as bare bytes, which get the type of the input. An array of another element type is cast
/// if `converts`, else refused.
pub(crate) fn read_array(bytes: &Buffer, port: &Port, converts: bool) -> Result<Tensor, Failure> {
    match_element_type(arrays::read_npy(bytes, element_type(port))?, port, converts)
}

/// Returns `tensor` with the element type of the graph input `port`. A tensor of another element
/// type is cast if `converts`, else refused.
fn match_element_type(tensor: Tensor, port: &Port, converts: bool) -> Result<Tensor, Failure> {
    let Some(wanted) = element_type(port).filter(|wanted| *wanted != tensor.data_type()) else {
        return Ok(tensor);
    };
    if converts {
        return Ok(cast(&tensor, wanted, CastOptions::default())?);
    }
    let found = tensor.data_type();
    Err(Failure::new(format!(
        "the input '{}' has element type {wanted}, but the file has {found}",
        port.name()
    ))
    .code(ErrorKind::Input)
    .help(format!("convert the array with --cast, or save the array as {}", to_numpy_name(wanted))))
}

/// Returns NumPy's name of an element type, such as `float32`.
fn to_numpy_name(data_type: DataType) -> &'static str {
    match data_type {
        DataType::Float => "float32",
        DataType::Double => "float64",
        other => other.name(),
    }
}
