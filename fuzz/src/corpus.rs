//! The saved inputs of a property, ready to be mutated.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::Property;
use crate::wire_tree::{self, Record};

/// Kind of the inputs that are no protobuf messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Binary data.
    Bytes,
    /// Text, or mostly so.
    Text,
}

/// Saved inputs of a property, from which mutations are made.
#[derive(Debug)]
pub struct Corpus {
    /// Kind of the samples without a tree.
    pub form: Form,
    /// Corrects lengths after a mutation.
    pub repair: fn(&mut [u8]),
    /// Samples, at least one.
    pub samples: Vec<Sample>,
    selector: usize,
}

/// One input.
#[derive(Debug)]
pub struct Sample {
    /// Name of the file.
    pub name: String,
    /// Content of the file.
    pub bytes: Vec<u8>,
    /// Records of the bytes after the selector if they are a protobuf message.
    pub tree: Option<Vec<Record>>,
}

/// Returns the directory of this package.
pub fn directory() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the directory with the saved inputs of a property.
pub fn directory_of(property: &Property) -> PathBuf {
    directory().join("corpus").join(property.name)
}

impl Corpus {
    /// Reads the saved inputs of a property, in the order of their names.
    ///
    /// # Errors
    /// If the directory cannot be read or holds nothing.
    pub fn load(property: &Property) -> io::Result<Corpus> {
        let directory = directory_of(property);
        let mut paths: Vec<PathBuf> = fs::read_dir(&directory)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<_>>()?;
        paths.sort();
        let samples = paths.iter().map(|path| Sample::read(path, property));
        let samples: Vec<Sample> = samples.collect::<io::Result<_>>()?;
        if samples.is_empty() {
            return Err(io::Error::other(format!("{} is empty", directory.display())));
        }
        Ok(Corpus {
            form: property.form,
            repair: property.repair,
            samples,
            selector: property.selector,
        })
    }

    /// Returns the first bytes of a sample, which choose what is done with the rest.
    pub fn selector_of<'s>(&self, sample: &'s Sample) -> &'s [u8] {
        &sample.bytes[..self.selector.min(sample.bytes.len())]
    }
}

impl Sample {
    fn read(path: &Path, property: &Property) -> io::Result<Sample> {
        let bytes = fs::read(path)?;
        let content = bytes.get(property.selector..).unwrap_or_default();
        let tree = wire_tree::parse(content).filter(|tree| !tree.is_empty());
        let name = path.file_name().unwrap_or_default();
        Ok(Sample { name: name.to_string_lossy().into_owned(), tree, bytes })
    }
}
