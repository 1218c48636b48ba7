//! Values of a text in other files: whether such a file is still the one that the text was made
//! with, and if it is not, where the values are now.

use std::collections::HashMap;
use std::path::Path;

use sardonyx_model as graph;
use sardonyx_model::{ExternalReference, NotStored, ReadLimits, Span, StoredValues, TensorProto};
use sardonyx_proto::value_ranges;
use sardonyx_tensor::Buffer;
use sha2::{Digest, Sha256};

use crate::beneath::Identity;
use crate::error::{Error, ErrorKind};
use crate::external::hex;
use crate::load::read_graph;

/// How a file of values beside a text begins; the digest of what follows and zeros fill it up to
/// [`HEAD_BYTES`]. No model begins like this.
const HEAD: &[u8] = b"sardonyx values 1\n";
/// Where the values begin.
pub(crate) const HEAD_BYTES: usize = 64;
/// Goes first into the digest of a structure. A change of what is digested gets a new number.
const HEADING: &[u8] = b"sardonyx structure 1\n";
/// Bytes of a SHA-256 that tell files apart.
const DIGEST_BYTES: usize = 16;

/// The beginning of a file of values, all of which went into `hasher`, and the digest that is in
/// it.
pub(crate) fn head_of(hasher: Sha256) -> ([u8; HEAD_BYTES], String) {
    let digest = hex(&hasher.finalize()[..DIGEST_BYTES]);
    let mut head = [0; HEAD_BYTES];
    let text = HEAD.iter().chain(digest.as_bytes()).chain(b"\n");
    for (byte, text) in head.iter_mut().zip(text) {
        *byte = *text;
    }
    (head, digest)
}

/// What tells a file from others as far as texts refer to it: the digest at the beginning of a file
/// of values; of a model, that of all bytes that are not values of tensors. Values are not read.
/// `None` for other files.
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
    Some(hex(&hasher.finalize()[..DIGEST_BYTES]))
}

/// SHA-256 of values, hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The tensors of a model file by their paths.
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
    /// In a file beside the model, with the bytes that type and shape ask for.
    External(ExternalReference, Option<u64>),
    Elsewhere,
}

/// Where values that a text asks for are now.
pub(crate) enum Found {
    /// In the model file.
    Here(Span),
    /// In this file beside it.
    Beside(ExternalReference),
}

impl Tensors {
    /// Those of a model file; an error for people if it is none.
    pub(crate) fn read(bytes: &Buffer) -> Result<Tensors, String> {
        let model = read_graph(bytes.clone(), ReadLimits::default(), true)
            .map_err(|refusal| format!("it is not a model: {refusal}"))?;
        Ok(Tensors::from_graph(&model))
    }

    /// Those of a model.
    pub(crate) fn from_graph(model: &graph::Model) -> Tensors {
        let mut by_path: HashMap<Vec<u8>, Vec<Stored>> = HashMap::new();
        for (id, path) in model.tensor_paths(|_| true) {
            let stored = Stored::of(model, model.stored(id));
            by_path.entry(path).or_default().push(stored);
        }
        Tensors { by_path }
    }

    /// Finds values by the path of their tensor, its type, shape and storage; in words for people
    /// why that is impossible.
    pub(crate) fn find(&self, wanted: &Wanted) -> Result<Found, String> {
        const CHANGED: &str = "has changed since the text was written";
        let Some(path) = &wanted.tensor else {
            return Err(format!(
                "{CHANGED}, and the text does not name the tensor with these values"
            ));
        };
        // A file that was made from the text has the tensor under the name that it has in the text.
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
        let other = |what: &str| Err(format!("{CHANGED}, and its tensor '{shown}' now has {what}"));
        if stored.data_type != wanted.data_type {
            return other("another element type");
        }
        if stored.dims != wanted.dims {
            return other(&format!("the shape {:?}", stored.dims));
        }
        let (found, length) = match &stored.place {
            Place::Raw(span) if !wanted.typed => (Found::Here(*span), Some(span.len)),
            Place::Typed(span) if wanted.typed => (Found::Here(*span), Some(span.len)),
            Place::External(reference, implied) if !wanted.typed => {
                let length = reference.length.or(*implied);
                let reference = ExternalReference { length, ..reference.clone() };
                (Found::Beside(reference), length)
            }
            _ => return other("its values in another formatat"),
        };
        if wanted.length.is_none() || wanted.length == length {
            Ok(found)
        } else {
            other("another number of bytes")
        }
    }
}

impl Stored {
    fn of(model: &graph::Model, tensor: &TensorProto) -> Stored {
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

/// What a text asks of another file, kept.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    tensor: Option<Vec<u8>>,
    /// The path under which a file that is made from the text has the tensor, if that is known.
    initializer: Option<Vec<u8>>,
    length: Option<u64>,
    typed: bool,
    data_type: Option<i32>,
    dims: Vec<i64>,
    /// What it got.
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

    /// Whether the text would find in a model what it found before.
    fn is_in(&self, tensors: &Tensors, model: &graph::Model) -> bool {
        match (tensors.find(self), &self.bytes) {
            // The very same bytes in memory, or equal ones.
            (Ok(Found::Here(span)), Some(bytes)) => {
                let (now, before) = (model.bytes(span), bytes.as_slice());
                std::ptr::eq(now, before) || now == before
            }
            // They have just been written there, and only the name could be that of others.
            (Ok(Found::Beside(_)), _) => {
                let initializer = self.initializer.as_ref();
                initializer.is_none_or(|name| tensors.by_path.contains_key(name))
            }
            _ => false,
        }
    }
}

/// A file from which a text took values.
#[derive(Debug)]
pub(crate) struct TakenFrom {
    pub(crate) location: String,
    pub(crate) identity: Option<Identity>,
    pub(crate) values: Vec<Wanted>,
}

impl TakenFrom {
    /// Refuses a model in the place of the file if the text would not find its values in it.
    pub(crate) fn check_successor(&self, model: &graph::Model) -> Result<(), Error> {
        let tensors = Tensors::from_graph(model);
        let mut values = self.values.iter();
        let missing = values.find(|wanted| !wanted.is_in(&tensors, model));
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

/// The error about a file that a text needs and that a file of another kind would replace.
pub(crate) fn still_needed_error(location: &str) -> Error {
    let message = format!("'{location}' contains values of the model, which would be lost");
    Error::new(ErrorKind::Io, message).with_help("write to another file")
}

/// Advice about a file that is not where a text expects it.
pub(crate) const ADVICE_ON_FILE: &str = "keep a text in the directory of the model that it was printed from; sardonyx print --inline all writes all values into the text, --sidecar into a separate file";

/// Advice about a file that is not what it was.
pub(crate) fn changed_error(location: &str, what: &str) -> NotStored {
    NotStored {
        message: format!("'{location}' {what}"),
        help: Some("print the model again, or refer to a file that has these values".to_string()),
        is_of_file: false,
    }
}

/// The location of a data file of the model at `location`, from the directory of that one's reader.
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
    fn files_are_told_apart_by_all_but_their_values() {
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
        let (head, digest) = head_of(Sha256::new_with_prefix(b"values"));
        assert_eq!(file_digest(&head), Some(digest));
    }
}
