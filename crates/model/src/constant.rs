//! Tensors as a file stores them, and the way from there to values.

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

/// A stored tensor. Payloads stay where they are.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TensorProto {
    /// Dimensions; none for a scalar.
    pub dims: SmallVec<[i64; 4]>,
    /// Element type, as a number.
    pub data_type: Option<i32>,
    /// A chunk of a larger tensor; no runtime supports it.
    pub segment: Option<Segment>,
    /// Typed lists and strings, as the records of the file.
    pub typed: SmallVec<[TypedRun; 1]>,
    /// Name.
    pub name: Option<Symbol>,
    /// Little-endian values.
    pub raw_data: Option<Span>,
    /// Documentation.
    pub doc_string: Option<Symbol>,
    /// Where values outside the message lie.
    pub external_data: Vec<Entry>,
    /// Whether they do.
    pub data_location: Option<DataLocation>,
    /// Named texts.
    pub metadata_props: Vec<Entry>,
    /// Fields of the future.
    pub unknown: Unknowns,
    /// Bytes of values in the file that were left out when the model was read; see
    /// [`Model::read_skimmed`].
    pub skipped: Option<u64>,
}

/// Neighbouring records of one typed list, tags included: whether packed or not, they are decoded
/// when asked for and written back as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypedRun {
    /// Field number.
    pub number: u32,
    /// The records.
    pub records: Span,
}

/// Bounds of a chunk.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Segment {
    /// First element.
    pub begin: Option<i64>,
    /// End.
    pub end: Option<i64>,
    /// Fields of the future.
    pub unknown: Unknowns,
}

/// A stored sparse tensor.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SparseTensorProto {
    /// The values that are not zero.
    pub values: Option<TensorProto>,
    /// Where they stand.
    pub indices: Option<TensorProto>,
    /// Dimensions of the dense form.
    pub dims: SmallVec<[i64; 4]>,
    /// Fields of the future.
    pub unknown: Unknowns,
}

/// Where values outside the message come from.
pub trait ExternalData {
    /// The bytes of a file beside the model: `length` of them from `offset`, or all from there on.
    ///
    /// # Errors
    ///
    /// In words for people: the file is missing, too short, outside the model's directory.
    fn load(&self, location: &str, offset: u64, length: Option<u64>) -> Result<Buffer, String>;

    /// Compares a file beside the model with the digest that the model gives: SHA-1, hexadecimal,
    /// of the whole file. As in the reference implementation, the default is to believe it.
    ///
    /// # Errors
    ///
    /// In words for people: the file is another one than the model was written with.
    fn verify(&self, location: &str, checksum: &str) -> Result<(), String> {
        let _ = (location, checksum);
        Ok(())
    }

    /// The bytes of a file beside a text, to which the text refers. Without means to compare the
    /// file with what the text says about it, which is the default, they are taken from where the
    /// text says.
    ///
    /// # Errors
    ///
    /// What [`load`](ExternalData::load) refuses, and a file that does not hold these values any
    /// more.
    fn load_stored(&self, wanted: &StoredValues<'_>) -> Result<Buffer, NotStored> {
        let loaded = self.load(wanted.location, wanted.offset, wanted.length);
        loaded.map_err(NotStored::new)
    }
}

/// Values of a tensor that a text has in another file: where, and what tells whether they are still
/// there.
#[derive(Debug, Clone, Copy)]
pub struct StoredValues<'a> {
    /// File, relative to the text's directory.
    pub location: &'a str,
    /// First byte.
    pub offset: u64,
    /// Number of bytes; `None` for the rest of the file.
    pub length: Option<u64>,
    /// Which tensor of the file it is; see [`Model::tensor_paths`].
    pub tensor: Option<&'a [u8]>,
    /// What the text calls the tensor now, if it is an initializer of the main graph. A file that
    /// was made from the text has it under this name.
    pub initializer: Option<&'a [u8]>,
    /// What told the file from others when the text was written.
    pub file_digest: Option<&'a str>,
    /// SHA-256 of the values, hexadecimal.
    pub sha256: Option<&'a str>,
    /// Whether they are records of a typed list, not `raw_data`.
    pub typed: bool,
    /// Element type of the tensor in the text.
    pub data_type: Option<i32>,
    /// Its dimensions.
    pub dims: &'a [i64],
}

/// Why values that a text has in another file are not found there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotStored {
    /// In words for people; begins in the middle of a sentence about the tensor or the file.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    /// Whether all references to the file have the same fault.
    pub is_of_file: bool,
}

impl NotStored {
    /// A fault of one reference.
    pub fn new(message: impl Into<String>) -> NotStored {
        NotStored { message: message.into(), help: None, is_of_file: false }
    }
}

/// Where values outside the message lie, as its `external_data` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExternalReference {
    /// File, relative to the model's directory.
    pub location: String,
    /// First byte.
    pub offset: u64,
    /// Number of bytes; `None` for the rest of the file.
    pub length: Option<u64>,
    /// SHA-1 of the whole file.
    pub checksum: Option<String>,
    /// Keys that mean nothing; readers ignore them with a warning.
    pub unknown_keys: Vec<String>,
}

/// For models that must be complete in themselves.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoExternalData;

impl ExternalData for NoExternalData {
    fn load(&self, location: &str, _: u64, _: Option<u64>) -> Result<Buffer, String> {
        Err(format!(
            "values are in the file '{location}', and the model was read from bytes without a directory"
        ))
    }
}

/// Why a stored tensor has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConstantError {
    /// Name of the tensor.
    pub name: String,
    /// What is wrong.
    pub what: String,
    /// Whether the file has no values for it, neither in the model nor in a data file.
    pub has_no_values: bool,
}

impl ConstantError {
    /// For a tensor that has values.
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
    /// Whether its values lie outside the message.
    pub fn is_external(&self) -> bool {
        self.data_location == Some(DataLocation::EXTERNAL)
    }
}

impl Model {
    /// The value of a stored tensor. Raw bytes are shared, not copied; typed lists are decoded.
    ///
    /// # Errors
    ///
    /// A tensor that contradicts itself, a type this release does not have, values outside the
    /// message that `external` does not find.
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
        // A raw_data without bytes beside a list is as good as none.
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

    /// The typed lists of a tensor without packed records that hold nothing, which are as good as
    /// none.
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
        // Elements of packed types share entries, so what fits is decided by bytes, as for raw
        // data.
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

    /// Where the values of a tensor lie that is [external](TensorProto::is_external). The last
    /// entry of a key counts.
    ///
    /// # Errors
    ///
    /// No location, or numbers that are none, in words for people.
    pub fn external_reference(&self, proto: &TensorProto) -> Result<ExternalReference, String> {
        let mut reference = ExternalReference::default();
        let mut location = None;
        for entry in &proto.external_data {
            let value = self.display(entry.value);
            let number = || {
                // A sign would parse, but not everywhere.
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
                // Other programs add it after loading.
                b"basepath" => {}
                _ => reference.unknown_keys.push(self.display(entry.key).into_owned()),
            }
        }
        reference.location = location.ok_or("its values are external, but no location is set")?;
        Ok(reference)
    }

    /// The bytes of a tensor that is [external](TensorProto::is_external), in the layout of
    /// `raw_data`, without a look at type and shape where the file gives a length.
    ///
    /// # Errors
    ///
    /// What [`external_reference`](Model::external_reference) and `external` refuse.
    pub fn external_bytes(
        &self,
        proto: &TensorProto,
        external: &dyn ExternalData,
    ) -> Result<Buffer, ConstantError> {
        let load = || {
            let reference = self.external_reference(proto)?;
            let length = reference.length.or_else(|| self.implied_bytes(proto));
            self.load_referenced(&reference, length, external)
        };
        load().map_err(|what| ConstantError::new(self.display(proto.name), what))
    }

    /// Bytes that type and shape of a stored tensor ask for, if they make sense and the type has a
    /// fixed width.
    pub fn implied_bytes(&self, proto: &TensorProto) -> Option<u64> {
        let data_type = DataType::from_number(proto.data_type?)?;
        let dims: Option<SmallVec<[usize; 6]>> =
            proto.dims.iter().map(|dim| usize::try_from(*dim).ok()).collect();
        let count = stored_elems(&dims?).ok()?;
        data_type.storage_bytes(count).map(|bytes| bytes as u64)
    }

    /// The value of a stored sparse tensor.
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

/// Refuses a stored tensor, unless a test has switched the refusal off.
#[cfg_attr(debug_assertions, track_caller)]
fn refuse(name: &str, what: impl FnOnce() -> String) -> Result<(), String> {
    if switch::is_off(name, Location::caller()) { Ok(()) } else { Err(what()) }
}

fn field_name(number: u32) -> Option<&'static str> {
    <proto::TensorProto as proto::MessageType>::DEF.field(number).map(|field| field.name)
}
