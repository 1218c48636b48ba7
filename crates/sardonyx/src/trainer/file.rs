//! The state in a file of its own: `.safetensors` or `.npz`, with a digest of the model.

use std::collections::HashMap;
use std::path::Path;

use sardonyx_formats::npz::{self, Packing};
use sardonyx_formats::safetensors;
use sardonyx_tensor::{Buffer, Tensor, TensorError, npy};

use super::Trainer;
use super::state::{DataPosition, New, State};
use crate::error::{Error, ErrorKind};
use crate::external::directory_of;
use crate::open::{Access, display_path, io_error, read_file};
use crate::unfinished::remove_of_earlier_releases;
use crate::whole::WholeFile;

/// Key of the hash of the model.
const MODEL: &str = "sardonyx.model";
/// Key of the random generator: its seed, and how often it was drawn from.
const GENERATOR: &str = "sardonyx.generator";
/// Key of the position in the data: complete passes, and examples of the next one. It is absent at
/// the start of the data.
const POSITION: &str = "sardonyx.data";

#[derive(Clone, Copy)]
enum Format {
    Safetensors,
    Npz,
}

/// The model that a state belongs to, and where training goes on.
struct Facts {
    model: String,
    generator: [u64; 2],
    position: DataPosition,
}

impl Trainer {
    /// Writes the state to a file that ends in `.safetensors` or `.npz`, whole or not at all: the
    /// values of all state variables, the position of the random generator, that in the
    /// [data](Trainer::data_position), and a hash of the model. The hash is equal for models that
    /// differ only in how they are divided over devices, and counts everything else.
    ///
    /// In a `.npz` file, types that NumPy lacks are bare bytes, as NumPy writes arrays of the
    /// Python package ml_dtypes: `numpy.load(path)["w"].view(ml_dtypes.bfloat16)`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if the file cannot be written, or its name has another ending;
    /// [`ErrorKind::Format`] if such a file cannot hold an element type or a name; as
    /// [`Trainer::state`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let format = Format::of(path)?;
        let facts = self.facts()?;
        let values = self.state.values()?;
        let values = values.iter().map(|(name, value)| (*name, value));
        let failed = |error| io_error("cannot write", path, error);
        let mut file = WholeFile::create(path).map_err(failed)?;
        match format {
            Format::Safetensors => {
                safetensors::write(&mut file, values, facts.texts()).map(drop).map_err(text)
            }
            Format::Npz => {
                let arrays = values.chain(facts.arrays());
                npz::write(&mut file, arrays, Packing::Stored).map(drop).map_err(text)
            }
        }
        .map_err(|what| unfit(path, what))?;
        file.finish().map_err(failed)
    }

    /// Checks whether [`Trainer::save`] can write to a file, so that it is known before training
    /// and not after it. Nothing is written.
    ///
    /// # Errors
    ///
    /// As [`Trainer::save`].
    pub fn check_save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let format = Format::of(path)?;
        let facts = self.facts()?;
        let values = self.state.stored_values();
        let (checked, help) = match format {
            Format::Safetensors => {
                let checked = safetensors::check(values, facts.texts());
                (checked.map_err(text), "use a .npz file")
            }
            Format::Npz => {
                let checked = npz::check(values.chain(facts.arrays()));
                (checked.map_err(text), "use a .safetensors file")
            }
        };
        checked.map_err(|what| unfit(path, what).with_help(help))?;
        if let Some(name) = path.file_name() {
            remove_of_earlier_releases(directory_of(path), name);
        }
        let file = WholeFile::create(path);
        file.map(drop).map_err(|error| io_error("cannot write", path, error))
    }

    /// Returns all that a file has beside the values.
    fn facts(&self) -> Result<Written, Error> {
        let (generator, position) = (self.state.generator(), self.state.position);
        let facts = Facts { model: self.identity()?.to_string(), generator, position };
        facts.written().map_err(|error| Error::new(ErrorKind::Run, error.to_string()))
    }

    /// The hash of the model without its devices.
    fn identity(&self) -> Result<&str, Error> {
        if let Some(known) = self.programs.identity.get() {
            return Ok(known);
        }
        let identity = self.programs.model.hash_without_devices()?;
        Ok(self.programs.identity.get_or_init(|| identity))
    }

    /// Whether a hash in a file is that of the model. Earlier releases hashed its devices as well.
    fn is_of_this_model(&self, hash: &str) -> Result<bool, Error> {
        Ok(self.identity()? == hash || self.programs.model.content_hash()? == hash)
    }

    /// Takes over the state of a file that [`Trainer::save`] wrote for the same model, on any
    /// number of devices.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if the file cannot be read; [`ErrorKind::Format`] if it is damaged;
    /// [`ErrorKind::Invalid`] if it is the state of another model. The state is then as it was.
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let format = Format::of(path)?;
        // The file may be replaced while its values are in use, so they are read, not mapped.
        let bytes = read_file(path, Access::Read, None)?;
        let (facts, mut values) = match format {
            Format::Safetensors => read_safetensors(&bytes),
            Format::Npz => read_npz(&bytes, &self.state),
        }
        .map_err(|what| unfit(path, what))?;
        if !self.is_of_this_model(&facts.model)? {
            let message = format!("'{}' holds the state of another model", path.display());
            return Err(Error::new(ErrorKind::Invalid, message).with_help(
                "a state belongs to the model that it was saved for, which stays as it was: train \
                 that one on, or start from the values of a trained model without a state",
            ));
        }
        let mut state = self.state.clone();
        for index in 0..state.len() {
            let name = state.name(index);
            let Some(value) = values.remove(name) else {
                return Err(unfit(path, format!("it has no value for '{name}'")));
            };
            let at = |error: Error| error.with_place(display_path(path));
            state.check(index, &value, ErrorKind::Format).map_err(at)?;
            state.set(index, New::Whole(value));
        }
        if let Some(name) = values.into_keys().min() {
            return Err(unfit(path, format!("state variable '{name}' does not exist")));
        }
        state.mend();
        state.set_generator(facts.generator);
        state.position = facts.position;
        self.state = state;
        Ok(())
    }
}

impl Format {
    fn of(path: &Path) -> Result<Format, Error> {
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

fn text(error: impl ToString) -> String {
    error.to_string()
}

/// Facts as files have them.
struct Written {
    /// The hash of the model, as text and as bytes.
    model: String,
    hash: Tensor,
    /// Pairs of numbers.
    numbers: Vec<Numbers>,
}

struct Numbers {
    key: &'static str,
    text: String,
    array: Tensor,
}

impl Facts {
    fn written(self) -> Result<Written, TensorError> {
        let DataPosition { epochs, examples } = self.position;
        let mut pairs = vec![(GENERATOR, self.generator)];
        if self.position != DataPosition::default() {
            pairs.push((POSITION, [epochs, examples]));
        }
        let numbers = pairs.into_iter().map(|(key, pair)| {
            let text = format!("{} {}", pair[0], pair[1]);
            Ok(Numbers { key, text, array: Tensor::from_slice([2], &pair)? })
        });
        let hash = Tensor::from_slice([self.model.len()], self.model.as_bytes())?;
        Ok(Written {
            numbers: numbers.collect::<Result<_, TensorError>>()?,
            hash,
            model: self.model,
        })
    }
}

impl Written {
    /// Metadata of safetensors.
    fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        let numbers = self.numbers.iter().map(|Numbers { key, text, .. }| (*key, text.as_str()));
        [(MODEL, self.model.as_str())].into_iter().chain(numbers)
    }

    /// Arrays of an archive.
    fn arrays(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        let numbers = self.numbers.iter().map(|Numbers { key, array, .. }| (*key, array));
        [(MODEL, &self.hash)].into_iter().chain(numbers)
    }
}

fn position_of([epochs, examples]: [u64; 2]) -> DataPosition {
    DataPosition { epochs, examples }
}

fn read_safetensors(bytes: &Buffer) -> Result<(Facts, HashMap<String, Tensor>), String> {
    let content = safetensors::read(bytes).map_err(text)?;
    let found = |key: &str| {
        let mut found = content.metadata.iter();
        found.find(|(name, _)| name == key).map(|(_, text)| text.as_str())
    };
    let needed = |key: &str| {
        found(key).ok_or_else(|| format!("its metadata has no '{key}', so it is not a saved state"))
    };
    let numbers = |key: &str, text: &str| {
        let numbers: Vec<u64> = text.split(' ').flat_map(str::parse).collect();
        <[u64; 2]>::try_from(numbers)
            .map_err(|_| format!("'{key}' in its metadata is not two numbers"))
    };
    let generator = numbers(GENERATOR, needed(GENERATOR)?)?;
    let position = found(POSITION).map(|text| numbers(POSITION, text)).transpose()?;
    let position = position.map(position_of).unwrap_or_default();
    let model = needed(MODEL)?.to_string();
    Ok((Facts { model, generator, position }, content.tensors.into_iter().collect()))
}

fn read_npz(bytes: &Buffer, state: &State) -> Result<(Facts, HashMap<String, Tensor>), String> {
    let mut values = HashMap::new();
    for (name, bytes) in npz::read(bytes).map_err(text)? {
        // An array alone does not say that it holds bfloat16, for instance.
        let expected = state.find(&name).map(|index| state.stored(index).data_type());
        let tensor = match expected {
            Ok(data_type) if !npy::names_type(data_type) => npy::read_as(&bytes, data_type),
            _ => npy::read(&bytes),
        };
        let tensor = tensor.map_err(|error| format!("the array '{name}': {error}"))?;
        values.insert(name, tensor);
    }
    let numbers = |name: &str, array: Tensor| {
        let numbers = array.to_vec::<u64>().unwrap_or_default();
        <[u64; 2]>::try_from(numbers)
            .map_err(|_| format!("the array '{name}' does not hold two numbers"))
    };
    let position = values.remove(POSITION).map(|array| numbers(POSITION, array)).transpose()?;
    let position = position.map(position_of).unwrap_or_default();
    let mut array = |name: &str| {
        let found = values.remove(name);
        found.ok_or_else(|| format!("it has no array '{name}', so it is not a saved state"))
    };
    let model = String::from_utf8_lossy(array(MODEL)?.bytes()).into_owned();
    let generator = numbers(GENERATOR, array(GENERATOR)?)?;
    Ok((Facts { model, generator, position }, values))
}

/// The error about a file that does not hold, or cannot hold, a state of this model.
fn unfit(path: &Path, what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Format, what).with_place(display_path(path))
}
