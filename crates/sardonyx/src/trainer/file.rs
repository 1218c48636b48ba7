//! Saved states: files in the format `.safetensors` or `.npz` with the state of a trainer and a
//! digest of its model.

use std::collections::HashMap;
use std::path::Path;

use sardonyx_formats::npz::{self, Packing};
use sardonyx_formats::safetensors;
use sardonyx_tensor::{Buffer, Tensor, TensorError, npy};

use super::Trainer;
use super::state::{DataPosition, Generator, NewValue, State};
use crate::error::{Error, ErrorKind};
use crate::external::get_directory;
use crate::open::{Access, display_path, io_error, read_file};
use crate::unfinished::remove_earlier_release_files;
use crate::whole::WholeFile;

/// Key of the model's hash in a saved state.
const MODEL: &str = "sardonyx.model";
/// Key of the random generator's seed and number of draws in a saved state.
const GENERATOR: &str = "sardonyx.generator";
/// Key of the position in the training data in a saved state: number of complete epochs, and number
/// of examples taken in the next epoch. Absent at the start of the data.
const POSITION: &str = "sardonyx.data";

/// File format of a saved state.
#[derive(Clone, Copy)]
enum Format {
    Safetensors,
    Npz,
}

/// Facts in a saved state besides the values of state variables.
struct StateFacts {
    model: String,
    generator: Generator,
    position: DataPosition,
}

impl Trainer {
    /// Saves the state to a file with the extension `.safetensors` or `.npz`. The file is replaced
    /// atomically. It holds the values of all state variables, the state of the random generator,
    /// the position in the [data](Trainer::data_position), and a hash of the model. The hash
    /// ignores how the model is divided over devices, and covers everything else.
    ///
    /// In a `.npz` file, types that NumPy lacks are raw bytes, as NumPy writes arrays of the Python
    /// package ml_dtypes: `numpy.load(path)["w"].view(ml_dtypes.bfloat16)`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if the file cannot be written, or its name has another extension;
    /// [`ErrorKind::Format`] if the format cannot hold an element type or a name; errors of
    /// [`Trainer::state`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let format = Format::from_path(path)?;
        let header = self.make_header()?;
        let values = self.state.gather_values()?;
        let values = values.iter().map(|(name, value)| (*name, value));
        let file = WholeFile::create(path);
        let mut file = file.map_err(|error| io_error("cannot write", path, error))?;
        match format {
            Format::Safetensors => safetensors::write(&mut file, values, header.iter_texts())
                .map(drop)
                .map_err(to_text),
            Format::Npz => {
                let arrays = values.chain(header.iter_arrays());
                npz::write(&mut file, arrays, Packing::Stored).map(drop).map_err(to_text)
            }
        }
        .map_err(|what| unfit_error(path, what))?;
        file.finish().map_err(|error| io_error("cannot write", path, error))
    }

    /// Checks whether [`Trainer::save`] can write to a path, so that a long training run does not
    /// fail at its end. Creates no file.
    ///
    /// # Errors
    ///
    /// The errors of [`Trainer::save`].
    pub fn check_save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let format = Format::from_path(path)?;
        let header = self.make_header()?;
        let values = self.state.stored_values();
        let (checked, help) = match format {
            Format::Safetensors => {
                let checked = safetensors::check(values, header.iter_texts());
                (checked.map_err(to_text), "use a .npz file")
            }
            Format::Npz => {
                let checked = npz::check(values.chain(header.iter_arrays()));
                (checked.map_err(to_text), "use a .safetensors file")
            }
        };
        checked.map_err(|what| unfit_error(path, what).with_help(help))?;
        if let Some(name) = path.file_name() {
            remove_earlier_release_files(get_directory(path), name);
        }
        let file = WholeFile::create(path);
        file.map(drop).map_err(|error| io_error("cannot write", path, error))
    }

    /// Makes the header of a saved state: hash of the model, random generator, position in the
    /// data.
    fn make_header(&self) -> Result<Header, Error> {
        let (generator, position) = (self.state.generator(), self.state.position);
        let facts = StateFacts { model: self.find_model_hash()?.to_string(), generator, position };
        facts.into_header().map_err(|error| Error::new(ErrorKind::Run, error.to_string()))
    }

    /// Returns the hash of the model without its device annotations; computes the hash on first
    /// use.
    fn find_model_hash(&self) -> Result<&str, Error> {
        if let Some(known) = self.programs.identity.get() {
            return Ok(known);
        }
        let identity = self.programs.model.hash_without_devices()?;
        Ok(self.programs.identity.get_or_init(|| identity))
    }

    /// Whether a hash in a saved state is the hash of this model. Earlier releases also hashed
    /// device annotations.
    fn is_model_hash(&self, hash: &str) -> Result<bool, Error> {
        Ok(self.find_model_hash()? == hash || self.programs.model.content_hash()? == hash)
    }

    /// Replaces the state variables, the random generator and the data position by those in a file
    /// that [`Trainer::save`] wrote for the same model, on any number of devices.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if the file cannot be read; [`ErrorKind::Format`] if it is damaged;
    /// [`ErrorKind::Invalid`] if it holds the state of another model. An error leaves the state
    /// unchanged.
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let format = Format::from_path(path)?;
        // The file may be replaced while its values are in use, so it is read and not mapped.
        let bytes = read_file(path, Access::Read, None)?;
        let (facts, mut values) = match format {
            Format::Safetensors => read_safetensors(&bytes),
            Format::Npz => read_npz(&bytes, &self.state),
        }
        .map_err(|what| unfit_error(path, what))?;
        if !self.is_model_hash(&facts.model)? {
            let message = format!("'{}' holds the state of another model", path.display());
            return Err(Error::new(ErrorKind::Invalid, message).with_help(
                "a state fits only the model that it was saved for: continue with that model, or \
                 start from the values of a trained model without a state",
            ));
        }
        let mut state = self.state.clone();
        for index in 0..state.len() {
            let name = state.name(index);
            let Some(value) = values.remove(name) else {
                return Err(unfit_error(
                    path,
                    format!("the file has no value for the state variable '{name}'"),
                ));
            };
            let fit = state.check(index, &value, ErrorKind::Format);
            fit.map_err(|error| error.with_place(display_path(path)))?;
            state.set(index, NewValue::Whole(value));
        }
        if let Some(name) = values.into_keys().min() {
            return Err(unfit_error(
                path,
                format!("the file has a value for '{name}', which is not a state variable"),
            ));
        }
        state.mark_consistent();
        state.set_generator(facts.generator);
        state.position = facts.position;
        self.state = state;
        Ok(())
    }
}

impl Format {
    /// Selects the format by the extension of a file name.
    fn from_path(path: &Path) -> Result<Format, Error> {
        match path.extension().and_then(|suffix| suffix.to_str()) {
            Some("safetensors") => Ok(Format::Safetensors),
            Some("npz") => Ok(Format::Npz),
            _ => {
                let message =
                    format!("the file extension of '{}' is not supported", path.display());
                Err(Error::new(ErrorKind::Io, message)
                    .with_help("use the extension .safetensors or .npz"))
            }
        }
    }
}

/// Formats an error as the text of a message.
fn to_text(error: impl ToString) -> String {
    error.to_string()
}

/// Header of a saved state, encoded for `.safetensors` and for `.npz`.
struct Header {
    model: String,
    /// Bytes of `model`, as a tensor.
    hash: Tensor,
    numbers: Vec<NumberPair>,
}

/// Two integers under one key of a saved state's header, as text and as array.
struct NumberPair {
    key: &'static str,
    text: String,
    array: Tensor,
}

impl StateFacts {
    /// Encodes the facts for `.safetensors` and for `.npz`.
    fn into_header(self) -> Result<Header, TensorError> {
        let Generator { seed, draws } = self.generator;
        let DataPosition { epochs, examples } = self.position;
        let mut pairs = vec![(GENERATOR, [seed, draws])];
        if self.position != DataPosition::default() {
            pairs.push((POSITION, [epochs, examples]));
        }
        let numbers = pairs.into_iter().map(|(key, pair)| {
            let text = format!("{} {}", pair[0], pair[1]);
            Ok(NumberPair { key, text, array: Tensor::from_slice([2], &pair)? })
        });
        let hash = Tensor::from_slice([self.model.len()], self.model.as_bytes())?;
        Ok(Header {
            numbers: numbers.collect::<Result<_, TensorError>>()?,
            hash,
            model: self.model,
        })
    }
}

impl Header {
    /// Returns the header as key-value metadata of a safetensors file.
    fn iter_texts(&self) -> impl Iterator<Item = (&str, &str)> {
        let numbers = self.numbers.iter().map(|NumberPair { key, text, .. }| (*key, text.as_str()));
        [(MODEL, self.model.as_str())].into_iter().chain(numbers)
    }

    /// Returns the header as named arrays of an npz file.
    fn iter_arrays(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        let numbers = self.numbers.iter().map(|NumberPair { key, array, .. }| (*key, array));
        [(MODEL, &self.hash)].into_iter().chain(numbers)
    }
}

/// Decodes a saved state in the format safetensors; the error is a message.
fn read_safetensors(bytes: &Buffer) -> Result<(StateFacts, HashMap<String, Tensor>), String> {
    let content = safetensors::read(bytes).map_err(to_text)?;
    let metadata = &content.metadata;
    let [seed, draws] = parse_numbers(GENERATOR, demand_text(metadata, GENERATOR)?)?;
    let mut position = DataPosition::default();
    if let Some(text) = find_text(metadata, POSITION) {
        [position.epochs, position.examples] = parse_numbers(POSITION, text)?;
    }
    let model = demand_text(metadata, MODEL)?.to_string();
    let facts = StateFacts { model, generator: Generator { seed, draws }, position };
    Ok((facts, content.tensors.into_iter().collect()))
}

/// Returns the text of a key in the metadata; `None` if the key is absent.
fn find_text<'t>(metadata: &'t [(String, String)], key: &str) -> Option<&'t str> {
    metadata.iter().find(|(name, _)| name == key).map(|(_, text)| text.as_str())
}

/// Returns the text of a key in the metadata; fails if the key is absent.
fn demand_text<'t>(metadata: &'t [(String, String)], key: &str) -> Result<&'t str, String> {
    let found = find_text(metadata, key);
    found.ok_or_else(|| format!("the file's metadata has no '{key}', so it is not a saved state"))
}

/// Parses two integers that are separated by a space.
fn parse_numbers(key: &str, text: &str) -> Result<[u64; 2], String> {
    let numbers: Vec<u64> = text.split(' ').flat_map(str::parse).collect();
    <[u64; 2]>::try_from(numbers)
        .map_err(|_| format!("'{key}' in the file's metadata is not two numbers"))
}

/// Decodes a saved state in the format npz; the error is a message.
fn read_npz(
    bytes: &Buffer,
    state: &State,
) -> Result<(StateFacts, HashMap<String, Tensor>), String> {
    let mut values = HashMap::new();
    for (name, bytes) in npz::read(bytes).map_err(to_text)? {
        // An array has no name for types that NumPy lacks, such as bfloat16.
        let expected = state.find(&name).map(|index| state.stored_value(index).data_type());
        let tensor = match expected {
            Ok(data_type) if !npy::names_type(data_type) => npy::read_as(&bytes, data_type),
            _ => npy::read(&bytes),
        };
        let tensor = tensor.map_err(|error| format!("cannot read the array '{name}': {error}"))?;
        values.insert(name, tensor);
    }
    let mut position = DataPosition::default();
    if let Some(array) = values.remove(POSITION) {
        [position.epochs, position.examples] = read_numbers(POSITION, &array)?;
    }
    let model = take_array(&mut values, MODEL)?;
    let model = String::from_utf8_lossy(model.bytes()).into_owned();
    let [seed, draws] = read_numbers(GENERATOR, &take_array(&mut values, GENERATOR)?)?;
    let facts = StateFacts { model, generator: Generator { seed, draws }, position };
    Ok((facts, values))
}

/// Removes the array called `name` from `values` and returns it; fails if it is absent.
fn take_array(values: &mut HashMap<String, Tensor>, name: &str) -> Result<Tensor, String> {
    let found = values.remove(name);
    found.ok_or_else(|| format!("the file has no array '{name}', so it is not a saved state"))
}

/// Returns the two elements of an array of 64-bit integers.
fn read_numbers(name: &str, array: &Tensor) -> Result<[u64; 2], String> {
    let numbers = array.to_vec::<u64>().unwrap_or_default();
    <[u64; 2]>::try_from(numbers)
        .map_err(|_| format!("the array '{name}' does not hold two numbers"))
}

/// Makes the error about a file whose content is not, or cannot become, a state of this model.
fn unfit_error(path: &Path, what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Format, what).with_place(display_path(path))
}
