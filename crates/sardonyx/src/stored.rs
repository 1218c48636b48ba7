//! Values of a text that are stored in other files: detects whether such a file has changed since
//! the text was written, and finds values that have moved.

use std::collections::HashMap;
use std::path::Path;

use sardonyx_model as graph;
use sardonyx_model::{ExternalReference, NotStored, ReadLimits, Span, StoredValues, TensorProto};
use sardonyx_proto::find_value_ranges;
use sardonyx_tensor::Buffer;
use sha2::{Digest, Sha256};

use crate::beneath::Identity;
use crate::error::{Error, ErrorKind};
use crate::external::encode_hex;
use crate::load::read_graph;

/// Signature of a sidecar file, which holds tensor values of an ONNX text. The digest of the values
/// follows, then zeros up to [`HEAD_BYTES`]. A model cannot begin with these bytes.
const HEAD: &[u8] = b"sardonyx values 1\n";
/// Size of the head of a sidecar file, in bytes.
pub(crate) const HEAD_BYTES: usize = 64;
/// Prefix of the bytes that are hashed for the digest of a model's structure. Its number is raised
/// when the hashed content changes.
const HEADING: &[u8] = b"sardonyx structure 1\n";
/// Number of bytes of the SHA-256 hash that are kept as digest.
const DIGEST_BYTES: usize = 16;

/// Makes the head of a sidecar file from the hash of its values. Returns the head, and the digest
/// in the head in hexadecimal.
pub(crate) fn make_head(hasher: Sha256) -> ([u8; HEAD_BYTES], String) {
    let digest = encode_hex(&hasher.finalize()[..DIGEST_BYTES]);
    let mut head = [0; HEAD_BYTES];
    let text = HEAD.iter().chain(digest.as_bytes()).chain(b"\n");
    for (byte, text) in head.iter_mut().zip(text) {
        *byte = *text;
    }
    (head, digest)
}

/// Returns the digest by which an ONNX text recognises a file with its values: the digest in the
/// head of a sidecar file, or the hash of all bytes of a model that are not tensor values. Does not
/// read the values of a model. `None` for other files.
pub(crate) fn compute_file_digest(bytes: &[u8]) -> Option<String> {
    if bytes.starts_with(HEAD) {
        let digest = bytes.get(HEAD.len()..HEAD.len() + 2 * DIGEST_BYTES)?;
        return String::from_utf8(digest.to_vec()).ok();
    }
    let values = find_value_ranges(bytes).ok()?;
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

/// Returns the SHA-256 hash of `bytes` in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    encode_hex(&Sha256::digest(bytes))
}

/// Index of the tensors in a model file by their paths.
pub(crate) struct Tensors {
    by_path: HashMap<Vec<u8>, Vec<Stored>>,
}

/// Element type, dimensions and storage of a tensor in a model file.
struct Stored {
    data_type: Option<i32>,
    dims: Vec<i64>,
    place: Place,
}

/// Storage of a tensor's values in a model file.
enum Place {
    /// Bytes of `raw_data`.
    Raw(Span),
    /// Bytes of a typed list, such as `float_data`.
    Typed(Span),
    /// Reference to a data file of the model, and the number of bytes that type and shape imply.
    External(ExternalReference, Option<u64>),
    /// Invalid or contradictory storage.
    Elsewhere,
}

/// Current location of tensor values that an ONNX text refers to.
pub(crate) enum Found {
    /// Range of bytes in the model file.
    Here(Span),
    /// Range of bytes in a data file of the model.
    Beside(ExternalReference),
}

impl Tensors {
    /// Indexes the tensors of a model file; the error is a message for users.
    pub(crate) fn read(bytes: &Buffer) -> Result<Tensors, String> {
        let model = read_graph(bytes.clone(), ReadLimits::default(), true)
            .map_err(|refusal| format!("the file is not a model: {refusal}"))?;
        Ok(Tensors::from_graph(&model))
    }

    /// Indexes the tensors of a decoded model.
    pub(crate) fn from_graph(model: &graph::Model) -> Tensors {
        let mut by_path: HashMap<Vec<u8>, Vec<Stored>> = HashMap::new();
        for (id, path) in model.tensor_paths(|_| true) {
            let stored = Stored::from_tensor(model, model.stored_tensor(id));
            by_path.entry(path).or_default().push(stored);
        }
        Tensors { by_path }
    }

    /// Finds the values that an ONNX text refers to by the path of their tensor, and checks type,
    /// shape and storage. The error is a message for users.
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
    /// Describes a tensor of a model file.
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

/// Owned copy of an ONNX text's reference to values in another file.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    tensor: Option<Vec<u8>>,
    /// Path that the tensor gets in a model parsed from the text; `None` if unknown.
    initializer: Option<Vec<u8>>,
    length: Option<u64>,
    typed: bool,
    data_type: Option<i32>,
    dims: Vec<i64>,
    /// Values that were loaded for the reference; `None` before loading.
    bytes: Option<Buffer>,
}

impl Wanted {
    /// Copies a reference that the parser of ONNX text has found.
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

    /// Adds the values that were loaded for the reference.
    pub(crate) fn with_bytes(self, bytes: &Buffer) -> Wanted {
        Wanted { bytes: Some(bytes.clone()), ..self }
    }

    /// Whether a model still has the values that were loaded for the reference.
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

/// File from which an ONNX text has taken values.
#[derive(Debug)]
pub(crate) struct TakenFrom {
    pub(crate) location: String,
    pub(crate) identity: Option<Identity>,
    pub(crate) values: Vec<Wanted>,
}

impl TakenFrom {
    /// Fails if the file must not be replaced by `model`, because the text would not find its
    /// values in it.
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
                "cannot replace '{location}': the text takes the values of '{}' from it, and the new model does not have them there",
                sardonyx_proto::shown(path)
            ),
            None => format!(
                "cannot replace '{location}': the text takes values from it without naming the tensors, so they would not be found in the new model"
            ),
        };
        Err(Error::new(ErrorKind::Io, message).with_help(ADVICE_ON_REPLACING))
    }
}

/// Help for a model that would replace a file with values of its text.
const ADVICE_ON_REPLACING: &str = "write the model to another file, or write the values into the text first: sardonyx print --inline all";

/// Makes the error about replacing a file that holds values of the saved model.
pub(crate) fn still_needed_error(location: &str) -> Error {
    let message = format!(
        "cannot replace '{location}': it contains values of the model, which would be lost"
    );
    Error::new(ErrorKind::Io, message).with_help("write the model to another file")
}

/// Help for a missing file to which an ONNX text refers.
pub(crate) const ADVICE_ON_FILE: &str = "keep a text in the directory of the model that it was printed from; sardonyx print --inline all writes all values into the text, --sidecar into a separate file";

/// Makes the error `'location' change` about a file that an ONNX text takes values from and that
/// has changed since the text was written. `change` is a predicate, such as "has changed since the
/// text was written".
pub(crate) fn changed_error(location: &str, change: &str) -> NotStored {
    NotStored {
        message: format!("'{location}' {change}"),
        help: Some(
            "print the model again, or refer to a file with the values of the text".to_string(),
        ),
        is_of_file: false,
    }
}

/// Joins `data`, the location of a data file relative to its model file, to the directory of
/// `location`, the path of that model file. The result is relative to the same directory as
/// `location`.
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
        let digest = compute_file_digest(&bytes).unwrap();
        let values = find_value_ranges(&bytes).unwrap();
        assert!(!values.is_empty());
        for (index, expected) in [(values[0].start, true), (values[0].start - 1, false)] {
            let mut changed = bytes.clone();
            changed[index] ^= 1;
            assert_eq!(compute_file_digest(&changed).as_ref() == Some(&digest), expected);
        }
        let (head, digest) = make_head(Sha256::new_with_prefix(b"values"));
        assert_eq!(compute_file_digest(&head), Some(digest));
    }
}
