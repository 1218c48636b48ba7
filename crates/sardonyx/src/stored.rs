//! Values of a text that are stored in other files: detects whether such a file has changed since
//! the text was written, and finds values that have moved.

use std::collections::HashMap;
use std::path::Path;

use sardonyx_model as graph;
use sardonyx_model::{ExternalReference, NotStored, ReadLimits, Span, StoredValues, TensorProto};
use sardonyx_proto::value_ranges;
use sardonyx_tensor::Buffer;
use sha2::{Digest, Sha256};

use crate::beneath::Identity;
use crate::error::{Error, ErrorKind};
use crate::external::encode_hex;
use crate::load::read_graph;

/// First bytes of a file of values. The digest of the values follows, then zeros up to
/// [`HEAD_BYTES`]. A model cannot begin with these bytes.
const HEAD: &[u8] = b"sardonyx values 1\n";
/// Size of the head of a file of values, in bytes.
pub(crate) const HEAD_BYTES: usize = 64;
/// First bytes that are hashed for the digest of a model's structure. The number is raised when the
/// hashed content changes.
const HEADING: &[u8] = b"sardonyx structure 1\n";
/// Bytes of the SHA-256 hash that are kept as digest.
const DIGEST_BYTES: usize = 16;

/// Makes the head of a file of values from the hash of these values. Returns it with the digest in
/// it.
pub(crate) fn make_head(hasher: Sha256) -> ([u8; HEAD_BYTES], String) {
    let digest = encode_hex(&hasher.finalize()[..DIGEST_BYTES]);
    let mut head = [0; HEAD_BYTES];
    let text = HEAD.iter().chain(digest.as_bytes()).chain(b"\n");
    for (byte, text) in head.iter_mut().zip(text) {
        *byte = *text;
    }
    (head, digest)
}

/// Returns the digest by which a text recognises a file: that in the head of a file of values, or
/// the hash of all bytes of a model that are not tensor values. Does not read the values of a
/// model. `None` for other files.
pub(crate) fn file_digest(bytes: &[u8]) -> Option<String> {
    if bytes.starts_with(HEAD) {
        let digest = bytes.get(HEAD.len()..HEAD.len() + 2 * DIGEST_BYTES)?;
        return String::from_utf8(digest.to_vec()).ok();
    }
    let values = value_ranges(bytes).ok()?;
    let mut hasher = Sha256::new();
    hasher.update(HEADING);
    let mut end = 0;
    for range in values {
        hasher.update(&bytes[end..range.start]);
        end = range.end;
    }
    hasher.update(&bytes[end..]);
    Some(encode_hex(&hasher.finalize()[..DIGEST_BYTES]))
}

/// Returns the SHA-256 hash of values in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    encode_hex(&Sha256::digest(bytes))
}

/// Index of the tensors in a model file by their paths.
pub(crate) struct Tensors {
    by_path: HashMap<Vec<u8>, Vec<Stored>>,
}

/// A tensor of a model file.
struct Stored {
    data_type: Option<i32>,
    dims: Vec<i64>,
    place: Place,
}

enum Place {
    Raw(Span),
    Typed(Span),
    /// Range of a data file of the model, and the number of bytes that type and shape imply.
    External(ExternalReference, Option<u64>),
    Elsewhere,
}

/// Current location of values that a text refers to.
pub(crate) enum Found {
    /// Range of bytes in the model file.
    Here(Span),
    /// Range of bytes in a data file of the model.
    Beside(ExternalReference),
}

impl Tensors {
    /// Reads a model file; the error is a message for users.
    pub(crate) fn read(bytes: &Buffer) -> Result<Tensors, String> {
        let model = read_graph(bytes.clone(), ReadLimits::default(), true)
            .map_err(|refusal| format!("it is not a model: {refusal}"))?;
        Ok(Tensors::from_graph(&model))
    }

    /// Indexes the tensors of a model.
    pub(crate) fn from_graph(model: &graph::Model) -> Tensors {
        let mut by_path: HashMap<Vec<u8>, Vec<Stored>> = HashMap::new();
        for (id, path) in model.tensor_paths(|_| true) {
            let stored = Stored::from_tensor(model, model.stored(id));
            by_path.entry(path).or_default().push(stored);
        }
        Tensors { by_path }
    }

    /// Finds values by the path of their tensor, and checks type, shape and storage. The error is a
    /// message for users.
    pub(crate) fn find(&self, wanted: &Wanted) -> Result<Found, String> {
        const CHANGED: &str = "has changed since the text was written";
        let Some(path) = &wanted.tensor else {
            return Err(format!(
                "{CHANGED}, and the text does not name the tensor with these values"
            ));
        };
        // A model that was made from the text has the tensor under its name in the text.
        let renamed = wanted.initializer.as_ref().filter(|name| *name != path);
        let renamed = renamed.and_then(|name| self.by_path.get(name).map(|found| (name, found)));
        let (path, stored) = match (self.by_path.get(path), renamed) {
            (Some(stored), None) => (path, stored),
            (None, Some((name, stored))) => (name, stored),
            (None, None) => {
                let path = sardonyx_proto::shown(path);
                return Err(format!("{CHANGED}, and no longer has a tensor '{path}'"));
            }
            (Some(_), Some((name, _))) => {
                let (path, name) = (sardonyx_proto::shown(path), sardonyx_proto::shown(name));
                return Err(format!(
                    "{CHANGED}, and has tensors '{path}' (where these values were) and '{name}' (their name in the text)"
                ));
            }
        };
        let shown = sardonyx_proto::shown(path);
        let [stored] = &stored[..] else {
            let count = stored.len();
            return Err(format!("{CHANGED}, and now has {count} tensors '{shown}'"));
        };
        if stored.data_type != wanted.data_type {
            return Err(format!(
                "{CHANGED}, and its tensor '{shown}' now has another element type"
            ));
        }
        if stored.dims != wanted.dims {
            let dims = &stored.dims;
            return Err(format!("{CHANGED}, and its tensor '{shown}' now has the shape {dims:?}"));
        }
        let (found, length) = match &stored.place {
            Place::Raw(span) if !wanted.typed => (Found::Here(*span), Some(span.len)),
            Place::Typed(span) if wanted.typed => (Found::Here(*span), Some(span.len)),
            Place::External(reference, implied) if !wanted.typed => {
                let length = reference.length.or(*implied);
                let reference = ExternalReference { length, ..reference.clone() };
                (Found::Beside(reference), length)
            }
            _ => {
                return Err(format!(
                    "{CHANGED}, and its tensor '{shown}' now has its values in another format"
                ));
            }
        };
        if wanted.length.is_none() || wanted.length == length {
            Ok(found)
        } else {
            Err(format!("{CHANGED}, and its tensor '{shown}' now has another number of bytes"))
        }
    }
}

impl Stored {
    fn from_tensor(model: &graph::Model, tensor: &TensorProto) -> Stored {
        let place = match (tensor.raw_data, &tensor.typed[..]) {
            _ if tensor.is_external() => match model.external_reference(tensor) {
                Ok(reference) => Place::External(reference, model.implied_bytes(tensor)),
                Err(_) => Place::Elsewhere,
            },
            (Some(raw), []) => Place::Raw(raw),
            (None, [run]) => Place::Typed(run.records),
            _ => Place::Elsewhere,
        };
        Stored { data_type: tensor.data_type, dims: tensor.dims.to_vec(), place }
    }
}

/// Owned copy of a text's reference to values in another file.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    tensor: Option<Vec<u8>>,
    /// Path that the tensor gets in a model made from the text, if known.
    initializer: Option<Vec<u8>>,
    length: Option<u64>,
    typed: bool,
    data_type: Option<i32>,
    dims: Vec<i64>,
    /// Values that were loaded for the reference.
    bytes: Option<Buffer>,
}

impl Wanted {
    pub(crate) fn from_values(values: &StoredValues<'_>) -> Wanted {
        Wanted {
            tensor: values.tensor.map(<[u8]>::to_vec),
            initializer: values.initializer.map(graph::path_of_initializer),
            length: values.length,
            typed: values.typed,
            data_type: values.data_type,
            dims: values.dims.to_vec(),
            bytes: None,
        }
    }

    pub(crate) fn with(self, bytes: &Buffer) -> Wanted {
        Wanted { bytes: Some(bytes.clone()), ..self }
    }

    /// Whether a model has the values that the text found before.
    fn is_found_in(&self, tensors: &Tensors, model: &graph::Model) -> bool {
        match (tensors.find(self), &self.bytes) {
            // Comparing pointers first avoids reading large values.
            (Ok(Found::Here(span)), Some(bytes)) => {
                let (now, before) = (model.bytes(span), bytes.as_slice());
                std::ptr::eq(now, before) || now == before
            }
            // The save has just written these values, so only the name of the tensor can be
            // ambiguous.
            (Ok(Found::Beside(_)), _) => {
                let initializer = self.initializer.as_ref();
                initializer.is_none_or(|name| tensors.by_path.contains_key(name))
            }
            _ => false,
        }
    }
}

/// A file from which a text has taken values.
#[derive(Debug)]
pub(crate) struct TakenFrom {
    pub(crate) location: String,
    pub(crate) identity: Option<Identity>,
    pub(crate) values: Vec<Wanted>,
}

impl TakenFrom {
    /// Refuses to replace the file by a model in which the text would not find its values.
    pub(crate) fn check_successor(&self, model: &graph::Model) -> Result<(), Error> {
        let tensors = Tensors::from_graph(model);
        let mut values = self.values.iter();
        let missing = values.find(|wanted| !wanted.is_found_in(&tensors, model));
        let Some(wanted) = missing else {
            return Ok(());
        };
        let location = &self.location;
        let message = match &wanted.tensor {
            Some(path) => format!(
                "the text refers to values of '{}' in '{location}', and the new model would not have them there",
                sardonyx_proto::shown(path)
            ),
            None => format!(
                "the text refers to values in '{location}' without naming the tensors, so they would not be found in the new model"
            ),
        };
        Err(Error::new(ErrorKind::Io, message).with_help(ADVICE_ON_REPLACING))
    }
}

const ADVICE_ON_REPLACING: &str = "write the model to another file, or write the values into the text first: sardonyx print --inline all";

/// Makes the error about replacing a file with values that the model still needs.
pub(crate) fn still_needed_error(location: &str) -> Error {
    let message = format!("'{location}' contains values of the model, which would be lost");
    Error::new(ErrorKind::Io, message).with_help("write to another file")
}

/// Help for a file that is missing at the location in a text.
pub(crate) const ADVICE_ON_FILE: &str = "keep a text in the directory of the model that it was printed from; sardonyx print --inline all writes all values into the text, --sidecar into a separate file";

/// Makes the error about a file whose content has changed since the text was written.
pub(crate) fn changed_error(location: &str, what: &str) -> NotStored {
    NotStored {
        message: format!("'{location}' {what}"),
        help: Some("print the model again, or refer to a file that has these values".to_string()),
        is_of_file: false,
    }
}

/// Returns the location of the data file `data` of the model at `location`, relative to the
/// directory in which `location` is resolved.
pub(crate) fn path_beside(location: &str, data: &str) -> String {
    let directory = Path::new(location).parent().and_then(Path::to_str);
    match directory {
        Some(directory) if !directory.is_empty() => format!("{directory}/{data}"),
        _ => data.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_covers_all_but_the_values() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
        let bytes = std::fs::read(path).unwrap();
        let digest = file_digest(&bytes).unwrap();
        let values = value_ranges(&bytes).unwrap();
        assert!(!values.is_empty());
        for (index, expected) in [(values[0].start, true), (values[0].start - 1, false)] {
            let mut changed = bytes.clone();
            changed[index] ^= 1;
            assert_eq!(file_digest(&changed).as_ref() == Some(&digest), expected);
        }
        let (head, digest) = make_head(Sha256::new_with_prefix(b"values"));
        assert_eq!(file_digest(&head), Some(digest));
    }
}
