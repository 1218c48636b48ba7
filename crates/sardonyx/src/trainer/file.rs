//! The state in a file of its own: `.safetensors` or `.npz`, with a digest of the model.

use std::collections::HashMap;
use std::path::Path;

use sardonyx_formats::npz::{self, Packing};
use sardonyx_formats::safetensors;
use sardonyx_tensor::{Buffer, Tensor, npy};

use super::Trainer;
use super::state::{New, State};
use crate::error::{Error, ErrorKind};
use crate::open::{Access, io_error, read_file, shown};
use crate::whole::WholeFile;

/// Under which name files have the content hash of the model.
const MODEL: &str = "sardonyx.model";
/// And the generator: its seed, and how often it was drawn from.
const GENERATOR: &str = "sardonyx.generator";

#[derive(Clone, Copy)]
enum Format {
    Safetensors,
    Npz,
}

/// What a file has beside the values.
struct Facts {
    model: String,
    generator: [u64; 2],
}

impl Trainer {
    /// Writes the state to a file that ends in `.safetensors` or `.npz`, whole or not at all: the
    /// values of all state variables, the position of the random generator, and the
    /// [content hash](crate::Model::content_hash) of the model.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if the file cannot be written, or its name has another ending;
    /// [`ErrorKind::Format`] if such a file cannot hold an element type; as [`Trainer::state`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let format = Format::of(path)?;
        let facts =
            Facts { model: self.made.model.content_hash()?, generator: self.state.generator() };
        let failed = |error| io_error("cannot write", path, error);
        let values = self.state.values()?;
        let mut file = WholeFile::create(path).map_err(failed)?;
        match format {
            Format::Safetensors => write_safetensors(&mut file, &values, &facts),
            Format::Npz => write_npz(&mut file, &values, &facts),
        }
        .map_err(|what| unfit(path, what))?;
        file.finish().map_err(failed)
    }

    /// Takes over the state of a file that [`Trainer::save`] wrote for the same model.
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
        if facts.model != self.made.model.content_hash()? {
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
            let at = |error: Error| error.with_place(shown(path));
            state.check(index, &value, ErrorKind::Format).map_err(at)?;
            state.set(index, New::Whole(value));
        }
        if let Some(name) = values.into_keys().min() {
            return Err(unfit(path, format!("state variable '{name}' does not exist")));
        }
        state.set_generator(facts.generator);
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

fn write_safetensors(
    file: &mut WholeFile,
    values: &[(&str, Tensor)],
    facts: &Facts,
) -> Result<(), String> {
    let [seed, draws] = facts.generator;
    let generator = format!("{seed} {draws}");
    let metadata = [(MODEL, facts.model.as_str()), (GENERATOR, generator.as_str())];
    let values = values.iter().map(|(name, value)| (*name, value));
    let written = safetensors::write(file, values, metadata);
    written.map(drop).map_err(|error| error.to_string())
}

fn read_safetensors(bytes: &Buffer) -> Result<(Facts, HashMap<String, Tensor>), String> {
    let content = safetensors::read(bytes).map_err(|error| error.to_string())?;
    let text = |key: &str| {
        let mut found = content.metadata.iter();
        let found = found.find(|(name, _)| name == key).map(|(_, text)| text.as_str());
        found.ok_or_else(|| format!("its metadata has no '{key}', so it is not a saved state"))
    };
    let numbers: Vec<u64> = text(GENERATOR)?.split(' ').flat_map(str::parse).collect();
    let generator = <[u64; 2]>::try_from(numbers)
        .map_err(|_| format!("'{GENERATOR}' in its metadata is not two numbers"))?;
    let model = text(MODEL)?.to_string();
    Ok((Facts { model, generator }, content.tensors.into_iter().collect()))
}

fn write_npz(file: &mut WholeFile, values: &[(&str, Tensor)], facts: &Facts) -> Result<(), String> {
    let made = |error: sardonyx_tensor::TensorError| error.to_string();
    let hash = facts.model.as_bytes();
    let model = Tensor::from_slice([hash.len()], hash).map_err(made)?;
    let generator = Tensor::from_slice([2], &facts.generator).map_err(made)?;
    let values = values.iter().map(|(name, value)| (*name, value));
    let arrays = values.chain([(MODEL, &model), (GENERATOR, &generator)]);
    npz::write(file, arrays, Packing::Stored).map(drop).map_err(|error| error.to_string())
}

fn read_npz(bytes: &Buffer, state: &State) -> Result<(Facts, HashMap<String, Tensor>), String> {
    let mut values = HashMap::new();
    for (name, bytes) in npz::read(bytes).map_err(|error| error.to_string())? {
        // An array alone does not say that it holds bfloat16, for instance.
        let expected = state.find(&name).map(|index| state.stored(index).data_type());
        let tensor = match expected {
            Ok(data_type) => npy::read_as(&bytes, data_type).or_else(|_| npy::read(&bytes)),
            Err(_) => npy::read(&bytes),
        };
        let tensor = tensor.map_err(|error| format!("the array '{name}': {error}"))?;
        values.insert(name, tensor);
    }
    let mut array = |name: &str| {
        let found = values.remove(name);
        found.ok_or_else(|| format!("it has no array '{name}', so it is not a saved state"))
    };
    let model = String::from_utf8_lossy(array(MODEL)?.bytes()).into_owned();
    let generator = array(GENERATOR)?.to_vec::<u64>().unwrap_or_default();
    let generator = <[u64; 2]>::try_from(generator)
        .map_err(|_| format!("the array '{GENERATOR}' does not hold two numbers"))?;
    Ok((Facts { model, generator }, values))
}

/// The error about a file that does not hold, or cannot hold, a state of this model.
fn unfit(path: &Path, what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Format, what).with_place(shown(path))
}
