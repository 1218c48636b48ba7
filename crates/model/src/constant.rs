//! Stored tensors and their conversion to values.

use std::fmt;
use std::panic::Location;

use sardonyx_proto::{
    self as proto, DataLocation, Field, Reader, TensorField, Typed, TypedField, decode_typed,
    switch,
};
use sardonyx_tensor::shape::{elems, stored_elems};
use sardonyx_tensor::{Buffer, DataType, StringArray, Tensor, TensorError};
use smallvec::SmallVec;

use crate::graph::{Entry, Model};
use crate::names::Symbol;
use crate::source::{Span, Unknowns};

/// Tensor as a file stores it. Payloads are spans of a source.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TensorProto {
    /// Dimensions; empty for a scalar.
    pub dims: SmallVec<[i64; 4]>,
    /// Number of the element type.
    pub data_type: Option<i32>,
    /// Bounds of a segment of a larger tensor; no runtime supports it.
    pub segment: Option<Segment>,
    /// Typed lists and strings, as the records of the file.
    pub typed: SmallVec<[TypedRun; 1]>,
    /// Name.
    pub name: Option<Symbol>,
    /// Values in little-endian order.
    pub raw_data: Option<Span>,
    /// Documentation.
    pub doc_string: Option<Symbol>,
    /// Key-value pairs that locate values outside the message.
    pub external_data: Vec<Entry>,
    /// Whether the values are outside the message.
    pub data_location: Option<DataLocation>,
    /// Metadata, as keys and values.
    pub metadata_props: Vec<Entry>,
    /// Fields of newer format versions.
    pub unknown: Unknowns,
    /// Number of bytes of values that were skipped when the model was read; see
    /// [`Model::read_skimmed`].
    pub skipped: Option<u64>,
}

/// Adjacent records of one typed list, including tags. They are decoded on demand and written back
/// unchanged, packed or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypedRun {
    /// Field number.
    pub number: u32,
    /// The records.
    pub records: Span,
}

/// Bounds of a segment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Segment {
    /// Index of the first element.
    pub begin: Option<i64>,
    /// Index after the last element.
    pub end: Option<i64>,
    /// Fields of newer format versions.
    pub unknown: Unknowns,
}

/// Sparse tensor as a file stores it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SparseTensorProto {
    /// The values that are not zero.
    pub values: Option<TensorProto>,
    /// Positions of these values.
    pub indices: Option<TensorProto>,
    /// Dimensions of the dense form.
    pub dims: SmallVec<[i64; 4]>,
    /// Fields of newer format versions.
    pub unknown: Unknowns,
}

/// Access to values outside the message.
pub trait ExternalData {
    /// Returns `length` bytes from `offset` of a file beside the model, or all bytes from `offset`
    /// on.
    ///
    /// # Errors
    ///
    /// A message: the file is missing, too short, or outside the model's directory.
    fn load(&self, location: &str, offset: u64, length: Option<u64>) -> Result<Buffer, String>;

    /// Compares a file beside the model with a digest that the model declares: SHA-1 of the whole
    /// file, in hexadecimal. The default accepts any digest, like the reference implementation.
    ///
    /// # Errors
    ///
    /// A message: the file differs from the one that the model was written with.
    fn verify(&self, location: &str, checksum: &str) -> Result<(), String> {
        let _ = (location, checksum);
        Ok(())
    }

    /// Returns bytes of a file beside a text that refers to it. The default takes them from the
    /// recorded offset and cannot verify them.
    ///
    /// # Errors
    ///
    /// An error of [`load`](ExternalData::load), or a file that no longer holds these values.
    fn load_stored(&self, wanted: &StoredValues<'_>) -> Result<Buffer, NotStored> {
        let loaded = self.load(wanted.location, wanted.offset, wanted.length);
        loaded.map_err(NotStored::new)
    }
}

/// Values of a tensor that a text stores in another file: their position and digests that detect a
/// change.
#[derive(Debug, Clone, Copy)]
pub struct StoredValues<'a> {
    /// File, relative to the text's directory.
    pub location: &'a str,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes; `None` for the rest of the file.
    pub length: Option<u64>,
    /// Path of the tensor in the file; see [`Model::tensor_paths`].
    pub tensor: Option<&'a [u8]>,
    /// Name of the tensor in the text, if it is an initializer of the main graph. A file that was
    /// made from the text has the tensor under this name.
    pub initializer: Option<&'a [u8]>,
    /// Digest of the file when the text was written.
    pub file_digest: Option<&'a str>,
    /// SHA-256 of the values, hexadecimal.
    pub sha256: Option<&'a str>,
    /// Whether they are records of a typed list rather than `raw_data`.
    pub typed: bool,
    /// Element type of the tensor in the text.
    pub data_type: Option<i32>,
    /// Dimensions of the tensor in the text.
    pub dims: &'a [i64],
}

/// Reason why values that a text stores in another file are not found there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotStored {
    /// Message that continues a sentence about the tensor or the file.
    pub message: String,
    /// Suggestion for a fix.
    pub help: Option<String>,
    /// Whether all references to the file have this error.
    pub is_of_file: bool,
}

impl NotStored {
    /// Creates an error of one reference.
    pub fn new(message: impl Into<String>) -> NotStored {
        NotStored { message: message.into(), help: None, is_of_file: false }
    }
}

/// Location of values outside the message, from its `external_data`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExternalReference {
    /// File, relative to the model's directory.
    pub location: String,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes; `None` for the rest of the file.
    pub length: Option<u64>,
    /// SHA-1 of the whole file.
    pub checksum: Option<String>,
    /// Keys without a meaning; readers ignore them with a warning.
    pub unknown_keys: Vec<String>,
}

/// Data files of a model that must be self-contained: there are none.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoExternalData;

impl ExternalData for NoExternalData {
    fn load(&self, location: &str, _: u64, _: Option<u64>) -> Result<Buffer, String> {
        Err(format!(
            "values are in the file '{location}', and the model was read from bytes without a directory"
        ))
    }
}

/// Reason why a stored tensor has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConstantError {
    /// Name of the tensor.
    pub name: String,
    /// Description of the problem.
    pub what: String,
    /// Whether the tensor has no values, neither in the model nor in a data file.
    pub has_no_values: bool,
}

impl ConstantError {
    /// Creates an error of a tensor that has values.
    pub fn new(name: impl Into<String>, what: impl Into<String>) -> ConstantError {
        ConstantError { name: name.into(), what: what.into(), has_no_values: false }
    }
}

impl fmt::Display for ConstantError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() {
            write!(f, "tensor without name: {}", self.what)
        } else {
            write!(f, "tensor '{}': {}", self.name, self.what)
        }
    }
}

impl std::error::Error for ConstantError {}

impl TensorProto {
    /// Whether the values are outside the message.
    pub fn is_external(&self) -> bool {
        self.data_location == Some(DataLocation::EXTERNAL)
    }
}

impl Model {
    /// Decodes a stored tensor. Raw bytes are shared, not copied; typed lists are decoded.
    ///
    /// # Errors
    ///
    /// A tensor that contradicts itself, an element type that this release does not support, or
    /// values outside the message that `external` does not find.
    pub fn tensor(
        &self,
        proto: &TensorProto,
        external: &dyn ExternalData,
    ) -> Result<Tensor, ConstantError> {
        self.decode(proto, external).map_err(|what| ConstantError {
            has_no_values: self.has_no_values(proto),
            ..ConstantError::new(self.display(proto.name), what)
        })
    }

    /// Whether a tensor with elements has no values, neither in the message nor in a data file.
    fn has_no_values(&self, proto: &TensorProto) -> bool {
        let has_type = proto.data_type.and_then(DataType::from_number).is_some();
        let has_elements = has_type && proto.dims.iter().all(|dim| *dim > 0);
        let is_elsewhere = proto.is_external() || proto.skipped.is_some();
        let has_bytes = proto.raw_data.is_some_and(|raw| raw.len > 0);
        has_elements && !is_elsewhere && !has_bytes && self.runs_with_values(proto).next().is_none()
    }

    fn decode(&self, proto: &TensorProto, external: &dyn ExternalData) -> Result<Tensor, String> {
        let number = proto.data_type.unwrap_or(0);
        let data_type = DataType::from_number(number).ok_or_else(|| match number {
            0 => "no element type is set".to_string(),
            _ => format!("element type {number} is not defined by the standard"),
        })?;
        if proto.segment.is_some() {
            refuse("segment", || {
                "the tensor is a segment of a larger tensor, which is not supported".to_string()
            })?;
        }
        let dims: SmallVec<[usize; 6]> = proto
            .dims
            .iter()
            .map(|dim| usize::try_from(*dim).map_err(|_| format!("dimension {dim} is negative")))
            .collect::<Result<_, _>>()?;
        let count = elems(&dims).map_err(|error| error.to_string())?;

        if proto.skipped.is_some() {
            return Err("its values were skipped when the model was read".to_string());
        }
        if proto.is_external() {
            let buffer = self.load_external(proto, data_type.storage_bytes(count), external)?;
            return Tensor::from_buffer(data_type, dims, buffer).map_err(|error| error.to_string());
        }
        if proto.data_location.is_some_and(|location| location != DataLocation::DEFAULT) {
            refuse("unknown-data-location", || {
                format!(
                    "data location {} is not defined by the standard",
                    proto.data_location.map_or(0, |l| l.0)
                )
            })?;
        }
        if count > 0 && self.has_no_values(proto) {
            let s = if count == 1 { "" } else { "s" };
            return Err(format!("the tensor has {count} element{s} and no values"));
        }
        let typed_field = proto::DataType(number).typed_field();
        let fields: SmallVec<[&str; 2]> =
            self.runs_with_values(proto).filter_map(|run| field_name(run.number)).collect();
        // An empty raw_data beside a list counts as absent.
        if let Some(raw) = proto.raw_data.filter(|raw| raw.len > 0 || fields.is_empty()) {
            if let Some(field) = fields.first() {
                refuse("two-payloads", || format!("it has both raw_data and {field}"))?;
            }
            if data_type == DataType::String {
                refuse("strings-in-raw-data", || {
                    "strings cannot be stored in raw_data".to_string()
                })?;
            }
            return Tensor::from_buffer(data_type, dims, self.buffer(raw))
                .map_err(|error| error.to_string());
        }
        let expected = typed_field.map_or("", TypedField::name);
        if let Some(wrong) = fields.iter().find(|field| **field != expected) {
            refuse("wrong-list", || {
                format!("values of type {} must be in {expected}, not in {wrong}", data_type.name())
            })?;
        }
        self.decode_typed(proto, data_type, &dims)
    }

    /// Iterates over the typed lists of a tensor, without those that consist of empty packed
    /// records, which count as absent.
    fn runs_with_values<'t>(
        &'t self,
        proto: &'t TensorProto,
    ) -> impl Iterator<Item = &'t TypedRun> {
        proto.typed.iter().filter(|run| {
            let empty = [(run.number << 3 | 2) as u8, 0];
            let (records, rest) = self.bytes(run.records).as_chunks();
            !(rest.is_empty() && records.iter().all(|record| *record == empty))
                || run.number == proto::tensor::StringData::NUMBER
        })
    }

    fn decode_typed(
        &self,
        proto: &TensorProto,
        data_type: DataType,
        dims: &[usize],
    ) -> Result<Tensor, String> {
        let mut raw = Vec::new();
        let mut strings = StringArray::new();
        let mut entries = 0;
        // Elements of packed types share entries, so the size is checked in bytes, as for raw data.
        for run in self.runs_with_values(proto) {
            for field in Reader::<proto::TensorProto>::new(self.bytes(run.records)) {
                let chunk = match field.map_err(|error| error.kind().to_string())? {
                    TensorField::StringData(text) => {
                        strings.push(text.bytes);
                        continue;
                    }
                    TensorField::FloatData(chunk) => Typed::Float(chunk),
                    TensorField::Int32Data(chunk) => Typed::Int32(chunk),
                    TensorField::Int64Data(chunk) => Typed::Int64(chunk),
                    TensorField::DoubleData(chunk) => Typed::Double(chunk),
                    TensorField::Uint64Data(chunk) => Typed::Uint64(chunk),
                    _ => continue,
                };
                let data_type = proto::DataType(data_type.number());
                if let Err(error) = decode_typed(data_type, chunk, &mut entries, &mut raw) {
                    refuse("entry-out-of-range", || error.kind().to_string())?;
                }
            }
        }
        let tensor = if data_type == DataType::String {
            Tensor::from_strings(dims, strings)
        } else {
            Tensor::from_buffer(data_type, dims, Buffer::from_vec(raw))
        };
        tensor.map_err(|error| error.to_string())
    }

    fn load_external(
        &self,
        proto: &TensorProto,
        bytes: Option<usize>,
        external: &dyn ExternalData,
    ) -> Result<Buffer, String> {
        let bytes = bytes.ok_or("strings cannot be external")? as u64;
        let reference = self.external_reference(proto)?;
        if let Some(length) = reference.length.filter(|length| *length != bytes) {
            refuse("length-mismatch", || {
                format!(
                    "the length is {length} bytes of '{}', but type and shape require {bytes}",
                    reference.location
                )
            })?;
        }
        self.load_referenced(&reference, Some(bytes), external)
    }

    fn load_referenced(
        &self,
        reference: &ExternalReference,
        length: Option<u64>,
        external: &dyn ExternalData,
    ) -> Result<Buffer, String> {
        if let Some(checksum) = &reference.checksum {
            external.verify(&reference.location, checksum)?;
        }
        external.load(&reference.location, reference.offset, length)
    }

    /// Returns the location of the values of an [external](TensorProto::is_external) tensor. The
    /// last entry of a key wins.
    ///
    /// # Errors
    ///
    /// A message: the location is missing, or a number is malformed.
    pub fn external_reference(&self, proto: &TensorProto) -> Result<ExternalReference, String> {
        let mut reference = ExternalReference::default();
        let mut location = None;
        for entry in &proto.external_data {
            let value = self.display(entry.value);
            let number = || {
                // Parsing would accept a sign, which other readers reject.
                let digits = value.bytes().all(|byte| byte.is_ascii_digit());
                let number = value.parse::<u64>().ok().filter(|_| digits);
                number.ok_or_else(|| {
                    let key = self.display(entry.key);
                    format!("external_data entry {key} is '{value}', not a number of bytes")
                })
            };
            match self.maybe_text(entry.key).unwrap_or_default() {
                b"location" => location = Some(value.into_owned()),
                b"offset" => reference.offset = number()?,
                b"length" => reference.length = Some(number()?),
                b"checksum" => reference.checksum = Some(value.into_owned()),
                // Set by other programs after loading.
                b"basepath" => {}
                _ => reference.unknown_keys.push(self.display(entry.key).into_owned()),
            }
        }
        reference.location = location.ok_or("its values are external, but no location is set")?;
        Ok(reference)
    }

    /// Loads the bytes of an [external](TensorProto::is_external) tensor, in the layout of
    /// `raw_data`. If the file declares a length, type and shape are not used.
    ///
    /// # Errors
    ///
    /// An error of [`external_reference`](Model::external_reference) or of `external`.
    pub fn external_bytes(
        &self,
        proto: &TensorProto,
        external: &dyn ExternalData,
    ) -> Result<Buffer, ConstantError> {
        let reference = self.external_reference(proto);
        let bytes = reference.and_then(|reference| {
            let length = reference.length.or_else(|| self.implied_bytes(proto));
            self.load_referenced(&reference, length, external)
        });
        bytes.map_err(|what| ConstantError::new(self.display(proto.name), what))
    }

    /// Computes the size in bytes of a stored tensor from its type and shape, if they are valid and
    /// the type has a fixed width.
    pub fn implied_bytes(&self, proto: &TensorProto) -> Option<u64> {
        let data_type = DataType::from_number(proto.data_type?)?;
        let dims: Option<SmallVec<[usize; 6]>> =
            proto.dims.iter().map(|dim| usize::try_from(*dim).ok()).collect();
        let count = stored_elems(&dims?).ok()?;
        data_type.storage_bytes(count).map(|bytes| bytes as u64)
    }

    /// Decodes a stored sparse tensor.
    ///
    /// # Errors
    ///
    /// See [`tensor`](Model::tensor); also indices that are out of range, out of order or of the
    /// wrong shape.
    pub fn sparse_tensor(
        &self,
        proto: &SparseTensorProto,
        external: &dyn ExternalData,
    ) -> Result<sardonyx_tensor::Sparse, ConstantError> {
        let values = proto.values.as_ref();
        let name = self.display(values.and_then(|values| values.name));
        let error = |what: String| ConstantError::new(&*name, what);
        let values = self.tensor(
            values.ok_or_else(|| error("the sparse tensor has no values".to_string()))?,
            external,
        )?;
        let dims: Vec<usize> = proto
            .dims
            .iter()
            .map(|dim| {
                usize::try_from(*dim).map_err(|_| error(format!("dimension {dim} is negative")))
            })
            .collect::<Result<_, _>>()?;
        let indices = match &proto.indices {
            Some(indices) => self.tensor(indices, external)?,
            None => Tensor::from_vec([0], Vec::<i64>::new())
                .map_err(|e: TensorError| error(e.to_string()))?,
        };
        sardonyx_tensor::Sparse::new(dims, values, indices).map_err(|e| error(e.to_string()))
    }
}

/// Rejects a stored tensor, unless a test has switched the check off.
#[cfg_attr(debug_assertions, track_caller)]
fn refuse(name: &str, what: impl FnOnce() -> String) -> Result<(), String> {
    if switch::is_off(name, Location::caller()) { Ok(()) } else { Err(what()) }
}

fn field_name(number: u32) -> Option<&'static str> {
    <proto::TensorProto as proto::MessageType>::DEF.field(number).map(|field| field.name)
}
