//! `.safetensors`: a JSON header, then the bytes of all tensors.
//!
//! Eight bytes hold the length of the header. The header holds the type and the shape of each
//! tensor and the position of its bytes after the header. Reading makes slices of the given buffer
//! without a copy. Writing results in the bytes of the format's own library: tensors in descending
//! order of their types' alignment, then by name, and spaces after the header up to a multiple of
//! eight bytes.
//!
//! The format requires tensors to cover the bytes without gaps and overlaps, so that no file hides
//! data. The error for a file that breaks a rule names the rule and the place.

use std::collections::HashSet;
use std::fmt;
use std::io::{self, Write};

use sardonyx_tensor::{Buffer, DataType, Tensor, TensorError, shape::elems, swap_bytes};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

/// Maximum length of the header in bytes: the limit of the format's own library.
pub const MAX_HEADER: u64 = 100_000_000;

/// Name of the metadata, the only one that does not name a tensor.
const METADATA: &str = "__metadata__";

/// Number of bytes of the header's length, and the alignment of the header itself.
const LENGTH_BYTES: usize = 8;

/// Contents of a file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Safetensors {
    /// Strings by name, in the order of the file.
    pub metadata: Vec<(String, String)>,
    /// Tensors by name, in the order of their bytes.
    pub tensors: Vec<(String, Tensor)>,
}

/// Causes of a failure to read or write a file. More may be added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SafetensorsError {
    /// The file ends before the header does.
    #[error(
        "the header has {length} bytes, but the file has only {available} bytes after the length"
    )]
    HeaderBeyondEnd {
        /// Length of the header according to the file, in bytes.
        length: u64,
        /// Number of bytes after the length.
        available: u64,
    },
    /// The file is too short for the length of its header.
    #[error("the file has {0} bytes; the length of the header alone takes 8")]
    TooShort(usize),
    /// The header exceeds the limit.
    #[error("the header has {0} bytes; at most {MAX_HEADER} are allowed")]
    HeaderTooLong(u64),
    /// The header is not JSON of the expected form.
    #[error("the header cannot be read: {0}")]
    Header(String),
    /// Two tensors, or two metadata entries, have one name.
    #[error("duplicate name '{0}' in the header")]
    Twice(String),
    /// The format or ONNX lacks an element type.
    #[error("tensor '{name}': the element type {data_type} is not one of {format}")]
    UnknownType {
        /// Name of the tensor.
        name: String,
        /// Element type of the tensor.
        data_type: String,
        /// Format that lacks the type.
        format: &'static str,
    },
    /// The bounds of a tensor's bytes are in the wrong order.
    #[error("tensor '{name}': its bytes begin at {begin} but end at {end}")]
    Reversed {
        /// Name of the tensor.
        name: String,
        /// First byte.
        begin: u64,
        /// End.
        end: u64,
    },
    /// The elements or bytes exceed the address space.
    #[error("tensor '{name}': its shape {shape:?} has more elements than can be addressed")]
    Overflow {
        /// Name of the tensor.
        name: String,
        /// Sizes of the tensor.
        shape: Vec<u64>,
    },
    /// The number of bytes is not that of type and shape.
    #[error("tensor '{name}': {data_type}{shape:?} needs {need} bytes, but has {have}")]
    Size {
        /// Name of the tensor.
        name: String,
        /// Element type of the tensor.
        data_type: DataType,
        /// Sizes of the tensor.
        shape: Vec<u64>,
        /// Number of bytes that type and shape need.
        need: u64,
        /// Number of bytes according to the header.
        have: u64,
    },
    /// Elements of less than a byte do not fill their last byte, which the format does not allow.
    #[error(
        "tensor '{name}': {elements} elements of type {data_type} do not fill whole bytes, as the format requires"
    )]
    PartOfByte {
        /// Name of the tensor.
        name: String,
        /// Element type of the tensor.
        data_type: DataType,
        /// Number of elements.
        elements: usize,
    },
    /// Two tensors share bytes.
    #[error(
        "tensor '{name}': its bytes begin at {begin}, inside those of '{other}', which end at {end}"
    )]
    Overlap {
        /// Name of the tensor.
        name: String,
        /// First byte.
        begin: u64,
        /// Preceding tensor.
        other: String,
        /// End of the preceding tensor.
        end: u64,
    },
    /// Bytes between tensors do not belong to any.
    #[error(
        "tensor '{name}': its bytes begin at {begin}, but the previous ones end at {end}; the bytes between are unused"
    )]
    Hole {
        /// Name of the tensor.
        name: String,
        /// First byte.
        begin: u64,
        /// End of the preceding tensor.
        end: u64,
    },
    /// A tensor ends after the file.
    #[error(
        "tensor '{name}': its bytes end at {end}, but the file has only {available} after the \
         header; it may be truncated"
    )]
    BeyondEnd {
        /// Name of the tensor.
        name: String,
        /// End of the tensor.
        end: u64,
        /// Number of bytes after the header.
        available: u64,
    },
    /// Bytes after the last tensor.
    #[error("{0} bytes at the end of the file belong to no tensor")]
    Trailing(u64),
    /// A tensor has the name that the format reserves.
    #[error("a tensor cannot have the name '{METADATA}'")]
    ReservedName,
    /// A tensor could not be made, or its bytes could not be swapped.
    #[error("tensor '{name}': {error}")]
    Tensor {
        /// Name of the tensor.
        name: String,
        /// Cause.
        #[source]
        error: TensorError,
    },
    /// The destination failed.
    #[error("the file cannot be written: {0}")]
    Write(#[from] io::Error),
}

/// One row per type that both formats have, in the format's order of ascending alignment. Files are
/// written in reverse order.
///
/// To the format, elements below one byte are bytes; their bits are in ONNX's order, lowest bits
/// first.
const TYPES: &[(&str, DataType)] = &[
    ("BOOL", DataType::Bool),
    ("F4", DataType::Float4e2m1),
    ("F6_E2M3", DataType::Float6e2m3),
    ("F6_E3M2", DataType::Float6e3m2),
    ("U8", DataType::Uint8),
    ("I8", DataType::Int8),
    ("F8_E5M2", DataType::Float8e5m2),
    ("F8_E4M3", DataType::Float8e4m3fn),
    ("F8_E8M0", DataType::Float8e8m0),
    ("F8_E4M3FNUZ", DataType::Float8e4m3fnuz),
    ("F8_E5M2FNUZ", DataType::Float8e5m2fnuz),
    ("I16", DataType::Int16),
    ("U16", DataType::Uint16),
    ("F16", DataType::Float16),
    ("BF16", DataType::Bfloat16),
    ("I32", DataType::Int32),
    ("U32", DataType::Uint32),
    ("F32", DataType::Float),
    ("C64", DataType::Complex64),
    ("F64", DataType::Double),
    ("I64", DataType::Int64),
    ("U64", DataType::Uint64),
];

/// Reads a file. The tensors are slices of `file`; nothing is copied.
///
/// # Errors
/// Any violation of the format.
pub fn read(file: &Buffer) -> Result<Safetensors, SafetensorsError> {
    let (header, start) = split(file.as_slice())?;
    let mut header = Header::parse(header)?;
    header.entries.sort_by_key(|(_, entry)| entry.data_offsets);
    let available = (file.len() - start) as u64;
    check_layout(&header.entries, available)?;
    let tensors = header.entries.into_iter().map(|(name, entry)| {
        let tensor = entry.tensor(&name, file, start)?;
        Ok((name, tensor))
    });
    Ok(Safetensors {
        tensors: tensors.collect::<Result<_, SafetensorsError>>()?,
        metadata: header.metadata,
    })
}

/// Returns the text of the header, and the offset of the bytes of tensors.
fn split(bytes: &[u8]) -> Result<(&str, usize), SafetensorsError> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        return Err(SafetensorsError::TooShort(bytes.len()));
    };
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEADER {
        return Err(SafetensorsError::HeaderTooLong(length));
    }
    let header = usize::try_from(length).ok().and_then(|n| rest.get(..n));
    let Some(header) = header else {
        return Err(SafetensorsError::HeaderBeyondEnd { length, available: rest.len() as u64 });
    };
    if header.first() != Some(&b'{') {
        return Err(SafetensorsError::Header("it does not begin with '{'".to_string()));
    }
    match std::str::from_utf8(header) {
        Ok(text) => Ok((text, LENGTH_BYTES + header.len())),
        Err(error) => Err(SafetensorsError::Header(format!("it is not UTF-8 text: {error}"))),
    }
}

/// Checks that every byte after the header belongs to exactly one tensor. `entries` are in the
/// order of their bytes.
fn check_layout(entries: &[(String, Entry)], available: u64) -> Result<(), SafetensorsError> {
    let (mut covered, mut before) = (0, "");
    for (this, entry) in entries {
        let (begin, end) = entry.data_offsets;
        let name = || this.clone();
        if end < begin {
            return Err(SafetensorsError::Reversed { name: name(), begin, end });
        }
        if end > available {
            return Err(SafetensorsError::BeyondEnd { name: name(), end, available });
        }
        if begin > covered {
            return Err(SafetensorsError::Hole { name: name(), begin, end: covered });
        }
        if begin < covered {
            return Err(SafetensorsError::Overlap {
                name: name(),
                begin,
                other: before.to_string(),
                end: covered,
            });
        }
        (covered, before) = (end, this);
    }
    match available - covered {
        0 => Ok(()),
        rest => Err(SafetensorsError::Trailing(rest)),
    }
}

/// Description of one tensor in the header. Fields that the format may add later are skipped.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

impl Entry {
    fn tensor(self, name: &str, file: &Buffer, start: usize) -> Result<Tensor, SafetensorsError> {
        let name = || name.to_string();
        let known = TYPES.iter().find(|(theirs, _)| *theirs == self.dtype);
        let Some(&(_, data_type)) = known else {
            return Err(SafetensorsError::UnknownType {
                name: name(),
                data_type: self.dtype,
                format: "those that ONNX has",
            });
        };
        let dims: Option<Vec<usize>> =
            self.shape.iter().map(|dim| usize::try_from(*dim).ok()).collect();
        let sized = dims.and_then(|dims| {
            let elements = elems(&dims).ok()?;
            let bytes = data_type.storage_bytes(elements)?;
            Some((dims, elements, bytes))
        });
        let Some((dims, elements, need)) = sized else {
            return Err(SafetensorsError::Overflow { name: name(), shape: self.shape });
        };
        fills_bytes(&name, data_type, elements)?;
        let (begin, end) = self.data_offsets;
        if end - begin != need as u64 {
            return Err(SafetensorsError::Size {
                name: name(),
                data_type,
                shape: self.shape,
                need: need as u64,
                have: end - begin,
            });
        }
        // The layout was checked: both offsets are in the file, so they fit into `usize`.
        let (begin, end) = (start + begin as usize, start + end as usize);
        let failed = |error| SafetensorsError::Tensor { name: name(), error };
        let mut bytes = file.slice(begin..end).map_err(failed)?;
        if cfg!(target_endian = "big") {
            let swapped = bytes.make_mut().and_then(|bytes| swap_bytes(data_type, bytes));
            swapped.map_err(failed)?;
        }
        Tensor::from_buffer(data_type, dims, bytes).map_err(failed)
    }
}

/// Checks that the elements fill whole bytes, since the format has no padding within a tensor.
fn fills_bytes(
    name: &dyn Fn() -> String,
    data_type: DataType,
    elements: usize,
) -> Result<(), SafetensorsError> {
    let bits = data_type.bits().unwrap_or(8);
    // Eight elements always fill whole bytes, so only the rest counts.
    if (elements % 8 * bits).is_multiple_of(8) {
        return Ok(());
    }
    Err(SafetensorsError::PartOfByte { name: name(), data_type, elements })
}

/// Header in the order of the file.
#[derive(Default)]
struct Header {
    metadata: Vec<(String, String)>,
    entries: Vec<(String, Entry)>,
    /// Duplicate name. The error of a JSON parser would describe it in other words.
    twice: Option<String>,
}

impl Header {
    fn parse(text: &str) -> Result<Header, SafetensorsError> {
        let header: Header = serde_json::from_str(text)
            .map_err(|error| SafetensorsError::Header(error.to_string()))?;
        match header.twice {
            Some(name) => Err(SafetensorsError::Twice(name)),
            None => Ok(header),
        }
    }
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Header, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("tensors by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut header = Header::default();
                let mut metadata = false;
                while let Some(name) = map.next_key::<String>()? {
                    if name == METADATA {
                        let Texts(texts, twice) = map.next_value()?;
                        header.twice = header.twice.or(twice);
                        if metadata {
                            header.twice.get_or_insert(name);
                        }
                        (header.metadata, metadata) = (texts, true);
                    } else {
                        header.entries.push((name, map.next_value()?));
                    }
                }
                let twice = find_duplicate(header.entries.iter().map(|(name, _)| name));
                header.twice = header.twice.or(twice);
                Ok(header)
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

/// Metadata, and a duplicate name in it.
struct Texts(Vec<(String, String)>, Option<String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Texts, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Texts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("strings by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Texts, A::Error> {
                let mut texts = Vec::new();
                while let Some(entry) = map.next_entry::<String, String>()? {
                    texts.push(entry);
                }
                let twice = find_duplicate(texts.iter().map(|(name, _)| name));
                Ok(Texts(texts, twice))
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

/// Returns the first duplicate name.
fn find_duplicate<'a>(names: impl Iterator<Item = &'a String>) -> Option<String> {
    let mut seen = HashSet::new();
    names.into_iter().find(|name| !seen.insert(name.as_str())).cloned()
}

/// Writes a file with metadata in the given order and tensors in the format's. Bytes go from the
/// tensors directly to `sink`. Returns the number of bytes.
///
/// ```
/// use sardonyx_formats::safetensors;
/// use sardonyx_tensor::{Buffer, Tensor};
///
/// let w = Tensor::from_vec([2], vec![1.0f32, 2.0])?;
/// let mut file = Vec::new();
/// safetensors::write(&mut file, [("w", &w)], [("format", "onnx")])?;
/// let read = safetensors::read(&Buffer::from_vec(file))?;
/// assert_eq!(read.tensors, [("w".to_string(), w)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the format lacks a tensor's type, a name occurs twice or is reserved by the format, the
/// header would be too long, or `sink` fails. The first three are checked before anything is
/// written.
pub fn write<'a>(
    sink: &mut dyn Write,
    tensors: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
    metadata: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<u64, SafetensorsError> {
    let (rows, header) = plan(tensors, metadata)?;
    sink.write_all(&(header.len() as u64).to_le_bytes())?;
    sink.write_all(&header)?;
    let mut written = (LENGTH_BYTES + header.len()) as u64;
    for row in &rows {
        write_elements(sink, row)?;
        written += row.tensor.bytes().len() as u64;
    }
    Ok(written)
}

/// Checks for the errors of [`write`], without reading the values of the tensors.
///
/// # Errors
/// All errors of [`write`] except those of a sink.
pub fn check<'a>(
    tensors: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
    metadata: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<(), SafetensorsError> {
    plan(tensors, metadata).map(drop)
}

/// Returns the tensors in the order of the file, and its header.
fn plan<'a>(
    tensors: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
    metadata: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<(Vec<Row<'a>>, Vec<u8>), SafetensorsError> {
    let mut rows = tensors
        .into_iter()
        .map(|(name, tensor)| Row::new(name, tensor))
        .collect::<Result<Vec<_>, _>>()?;
    rows.sort_by(|a, b| b.rank.cmp(&a.rank).then(a.name.cmp(b.name)));
    let header = header_bytes(&rows, metadata)?;
    Ok((rows, header))
}

/// Tensor to write, and the index of its type in [`TYPES`].
struct Row<'a> {
    name: &'a str,
    tensor: &'a Tensor,
    rank: usize,
}

impl<'a> Row<'a> {
    fn new(name: &'a str, tensor: &'a Tensor) -> Result<Row<'a>, SafetensorsError> {
        if name == METADATA {
            return Err(SafetensorsError::ReservedName);
        }
        let data_type = tensor.data_type();
        let Some(rank) = TYPES.iter().position(|(_, ours)| *ours == data_type) else {
            return Err(SafetensorsError::UnknownType {
                name: name.to_string(),
                data_type: data_type.to_string(),
                format: "those that safetensors has",
            });
        };
        fills_bytes(&|| name.to_string(), data_type, tensor.len())?;
        Ok(Row { name, tensor, rank })
    }
}

/// Returns the JSON text padded with spaces. `rows` are in the order of their bytes.
fn header_bytes<'a>(
    rows: &[Row<'_>],
    metadata: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<Vec<u8>, SafetensorsError> {
    let mut names = HashSet::new();
    let mut fields = Vec::with_capacity(rows.len() + 1);
    let metadata: Vec<(&str, &str)> = metadata.into_iter().collect();
    if !metadata.is_empty() {
        let mut texts = Vec::with_capacity(metadata.len());
        for (name, text) in metadata {
            if !names.insert(name) {
                return Err(SafetensorsError::Twice(name.to_string()));
            }
            texts.push(format!("{}:{}", json(name)?, json(text)?));
        }
        fields.push(format!("{}:{{{}}}", json(METADATA)?, texts.join(",")));
    }
    names.clear();
    let mut begin = 0;
    for row in rows {
        if !names.insert(row.name) {
            return Err(SafetensorsError::Twice(row.name.to_string()));
        }
        let end = begin + row.tensor.bytes().len() as u64;
        let entry = Entry {
            dtype: TYPES[row.rank].0.to_string(),
            shape: row.tensor.dims().iter().map(|dim| *dim as u64).collect(),
            data_offsets: (begin, end),
        };
        fields.push(format!("{}:{}", json(row.name)?, json(&entry)?));
        begin = end;
    }
    let mut header = format!("{{{}}}", fields.join(",")).into_bytes();
    header.resize(header.len().next_multiple_of(LENGTH_BYTES), b' ');
    match header.len() as u64 {
        length if length > MAX_HEADER => Err(SafetensorsError::HeaderTooLong(length)),
        _ => Ok(header),
    }
}

fn json<T: Serialize + ?Sized>(value: &T) -> Result<String, SafetensorsError> {
    serde_json::to_string(value).map_err(|error| SafetensorsError::Header(error.to_string()))
}

fn write_elements(sink: &mut dyn Write, row: &Row<'_>) -> Result<(), SafetensorsError> {
    if cfg!(target_endian = "little") {
        return Ok(sink.write_all(row.tensor.bytes())?);
    }
    let mut swapped = row.tensor.bytes().to_vec();
    swap_bytes(row.tensor.data_type(), &mut swapped)
        .map_err(|error| SafetensorsError::Tensor { name: row.name.to_string(), error })?;
    Ok(sink.write_all(&swapped)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }

    fn error(bytes: Vec<u8>) -> String {
        read(&Buffer::from_vec(bytes)).unwrap_err().to_string()
    }

    #[test]
    fn tensors_are_slices_of_the_file() {
        let header = concat!(
            r#"{"b":{"dtype":"I16","shape":[2],"data_offsets":[4,8]},"__metadata__":{"k":"v"},"#,
            r#""a":{"dtype":"F32","shape":[],"data_offsets":[0,4],"later":[{}]},"#,
            r#""e":{"dtype":"U8","shape":[0,9],"data_offsets":[8,8]}}"#
        );
        let buffer = Buffer::from_vec(file(header, &[0, 0, 128, 63, 1, 0, 2, 0]));
        let content = read(&buffer).unwrap();
        assert_eq!(content.metadata, [("k".to_string(), "v".to_string())]);
        let names: Vec<&str> = content.tensors.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "b", "e"]);
        let (a, b) = (&content.tensors[0].1, &content.tensors[1].1);
        assert_eq!((a.dims(), a.to_vec::<f32>().unwrap()), (&[][..], vec![1.0]));
        assert_eq!(b.to_vec::<i16>().unwrap(), [1, 2]);
        let end = buffer.as_slice().as_ptr_range().end;
        assert_eq!(b.bytes().as_ptr_range().end, end);
    }

    #[test]
    fn files_equal_those_of_the_format_s_own_library() {
        // Written by safetensors 0.8.0: save({'b': zeros((2, 3), f4), 'a': zeros((), i8), 'é"\n':
        // zeros(0, bool)}, {'format': 'np'})
        let header = concat!(
            r#"{"__metadata__":{"format":"np"},"a":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"#,
            r#""b":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]},"#,
            r#""é\"\n":{"dtype":"BOOL","shape":[0],"data_offsets":[32,32]}}       "#
        );
        let tensors = [
            ("b", Tensor::zeros(DataType::Float, [2, 3]).unwrap()),
            ("a", Tensor::scalar(0i64)),
            ("é\"\n", Tensor::zeros(DataType::Bool, [0]).unwrap()),
        ];
        let mut bytes = Vec::new();
        let pairs = tensors.iter().map(|(name, tensor)| (*name, tensor));
        let written = write(&mut bytes, pairs, [("format", "np")]).unwrap();
        assert_eq!(written, bytes.len() as u64);
        assert_eq!(bytes, file(header, &[0; 32]));
        let mut empty = Vec::new();
        write(&mut empty, [], []).unwrap();
        assert_eq!(empty, file("{}      ", b""));
    }

    #[test]
    fn every_type_comes_back() {
        let tensors: Vec<(&str, Tensor)> = TYPES
            .iter()
            .map(|(name, data_type)| (*name, Tensor::zeros(*data_type, [2, 4]).unwrap()))
            .collect();
        let mut bytes = Vec::new();
        let pairs = tensors.iter().map(|(name, tensor)| (*name, tensor));
        write(&mut bytes, pairs, []).unwrap();
        let mut expected = tensors;
        expected.reverse();
        let back = read(&Buffer::from_vec(bytes)).unwrap().tensors;
        assert_eq!(back.len(), expected.len());
        for ((name, tensor), (expected_name, expected)) in back.iter().zip(&expected) {
            assert_eq!((name.as_str(), tensor), (*expected_name, expected));
        }
    }

    #[test]
    fn missing_types_are_named() {
        for data_type in [
            DataType::String,
            DataType::Int4,
            DataType::Uint4,
            DataType::Int2,
            DataType::Uint2,
            DataType::Complex128,
        ] {
            let tensor = Tensor::zeros(data_type, [2]).unwrap();
            let error = write(&mut Vec::new(), [("w", &tensor)], []).unwrap_err().to_string();
            assert!(error.contains("'w'") && error.contains(data_type.name()), "{error}");
        }
        let three = Tensor::zeros(DataType::Float4e2m1, [3]).unwrap();
        let one = Tensor::scalar(1u8);
        let refused = |tensors: &[(&'static str, &Tensor)], metadata: &[(&str, &str)]| {
            let mut sink = Vec::new();
            let error = write(&mut sink, tensors.iter().copied(), metadata.iter().copied());
            assert!(sink.is_empty(), "nothing is written before all is checked");
            error.unwrap_err().to_string()
        };
        assert!(refused(&[("w", &three)], &[]).contains("whole bytes"));
        assert!(refused(&[("w", &one), ("w", &one)], &[]).contains("duplicate name 'w'"));
        assert!(refused(&[], &[("k", "1"), ("k", "2")]).contains("duplicate name 'k'"));
        assert!(refused(&[(METADATA, &one)], &[]).contains(METADATA));
    }

    #[test]
    fn every_broken_rule_is_named() {
        let entry = |name: &str, dtype: &str, shape: &str, offsets: &str| {
            format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}"#)
        };
        let one = |dtype: &str, shape: &str, offsets: &str, data: usize| {
            file(&format!("{{{}}}", entry("w", dtype, shape, offsets)), &vec![0; data])
        };
        let two = |a: &str, b: &str, data: usize| {
            let entries = [entry("a", "U8", "[4]", a), entry("b", "U8", "[4]", b)];
            file(&format!("{{{}}}", entries.join(",")), &vec![0; data])
        };
        let mut long = file("{}", b"");
        long[..8].copy_from_slice(&(MAX_HEADER + 1).to_le_bytes());
        let mut beyond = file("{}", b"");
        beyond[0] = 3;
        let twice = format!(
            "{{{},{}}}",
            entry("w", "U8", "[1]", "[0,1]"),
            entry("w", "U8", "[1]", "[1,2]")
        );
        let rows: Vec<(Vec<u8>, &str)> = vec![
            (vec![], "0 bytes"),
            (vec![0; 7], "7 bytes"),
            (long, "at most 100000000"),
            (vec![255; 20], "at most 100000000"),
            (beyond, "only 2 bytes"),
            (file("", b""), "'{'"),
            (file(" {}", b""), "'{'"),
            (file("[]", b""), "'{'"),
            (file("{", b""), "header cannot be read"),
            (file("{}}", b""), "header cannot be read"),
            (file("{\"w\":1}", b""), "header cannot be read"),
            (file(r#"{"w":{"dtype":"U8","shape":[1]}}"#, b""), "data_offsets"),
            (file(r#"{"__metadata__":{"k":1}}"#, b""), "expected a string"),
            (
                file(r#"{"__metadata__":{},"__metadata__":{}}"#, b""),
                "duplicate name '__metadata__'",
            ),
            (file(r#"{"__metadata__":{"k":"","k":""}}"#, b""), "duplicate name 'k'"),
            (file(&twice, &[0; 2]), "duplicate name 'w'"),
            (file(&"{\"a\":".repeat(10_000), b""), "header cannot be read"),
            (one("X1", "[1]", "[0,1]", 1), "X1"),
            (one("F32", "[-1]", "[0,4]", 4), "header cannot be read"),
            (one("F32", "[1.5]", "[0,4]", 4), "header cannot be read"),
            (one("F32", "[1]", "[0,4,8]", 4), "header cannot be read"),
            (one("F32", "[1]", "[0,18446744073709551616]", 4), "header cannot be read"),
            (one("F32", "[1]", "[4,0]", 4), "begin at 4 but end at 0"),
            (one("F32", "[2]", "[0,4]", 4), "needs 8 bytes, but has 4"),
            (one("F32", "[0]", "[0,4]", 4), "needs 0 bytes, but has 4"),
            (one("F32", "[1]", "[0,4]", 3), "only 3"),
            (one("F32", "[1]", "[0,4]", 5), "1 bytes at the end"),
            (one("F32", "[1]", "[1,5]", 5), "are unused"),
            (one("F32", "[1]", "[0,18446744073709551615]", 4), "end at 18446744073709551615"),
            (one("F4", "[3]", "[0,2]", 2), "whole bytes"),
            (one("U8", "[4294967296,4294967296]", "[0,4]", 4), "can be addressed"),
            (one("F64", "[2305843009213693952]", "[0,4]", 4), "can be addressed"),
            (one("U8", "[0,4294967296,4294967296]", "[0,0]", 0), "can be addressed"),
            (two("[0,4]", "[2,6]", 6), "'b': its bytes begin at 2, inside those of 'a'"),
            (two("[0,4]", "[5,9]", 9), "are unused"),
            (two("[0,4]", "[0,4]", 4), "inside those of 'a'"),
        ];
        for (bytes, words) in rows {
            let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(90)]).into_owned();
            let error = error(bytes);
            assert!(error.contains(words), "{shown}\n{error}\nlacks {words}");
        }
    }
}
