//! Files that hold one value, as `TensorProto`, `SequenceProto`, `MapProto` or `OptionalProto`,
//! like stored test data.
//!
//! The message type is not part of such a file; it follows from the type of the model's input or
//! output.

use sardonyx_proto::{
    self as proto, Encode, Encoder, MapField, OptionalElemType, OptionalField, Reader,
    SequenceElemType, SequenceField, encode_to_vec, map, optional, sequence, sparse_tensor, tensor,
};
use sardonyx_tensor::{
    Buffer, DataType, Map, MapKey, Sequence, Sparse, StringArray, Tensor, Value, ValueType,
};

use crate::build::{Builder, Built};
use crate::constant::{NoExternalData, SparseTensorProto, TensorProto};
use crate::graph::Model;
use crate::read::{ReadLimits, Reading};
use crate::types::Type;

/// Reads a value of a type.
///
/// # Errors
///
/// A message: the bytes are not such a message, or it contradicts itself.
pub fn read_value(bytes: Buffer, ty: &Type) -> Result<Value, String> {
    let source = bytes.clone();
    let slice = source.as_slice();
    // An absent optional input is stored as an empty file.
    match ty {
        Type::Tensor(_) => FileReader::new(bytes).tensor(Reader::new(slice)).map(Value::Tensor),
        Type::SparseTensor(_) => FileReader::new(bytes)
            .sparse(Reader::new(slice))
            .map(|sparse| Value::Sparse(Box::new(sparse))),
        Type::Sequence(inner) => {
            FileReader::new(bytes).sequence(Reader::new(slice), inner).map(Value::Sequence)
        }
        Type::Map(key, inner) => {
            FileReader::new(bytes).map(Reader::new(slice), *key, inner).map(Value::Map)
        }
        Type::Optional(inner) => FileReader::new(bytes).optional(Reader::new(slice), inner),
        Type::Opaque { .. } => Err(not_stored(ty)),
    }
}

struct FileReader {
    /// Model that holds the names and the source of the file, nothing else.
    model: Model,
    source: crate::ids::SourceId,
}

impl FileReader {
    fn new(bytes: Buffer) -> Self {
        let mut model = Model::default();
        let source = model.sources.push(bytes);
        FileReader { model, source }
    }

    fn with_build<'a, T: Default>(
        &mut self,
        read: impl FnOnce(&mut Reading<'_, 'a>, &mut T) -> Built,
    ) -> Result<T, String> {
        let mut proto = T::default();
        let build = Builder::new(&mut self.model, self.source, &[], ReadLimits::default());
        let mut build = Reading::new(build);
        match read(&mut build, &mut proto) {
            Ok(()) => Ok(proto),
            Err(failure) => {
                Err(crate::Error::new(failure.kind, failure.offset, String::new()).to_string())
            }
        }
    }

    fn tensor(&mut self, reader: Reader<'_, proto::TensorProto>) -> Result<Tensor, String> {
        let proto: TensorProto = self.with_build(|build, proto| build.tensor(proto, reader))?;
        self.model.tensor(&proto, &NoExternalData).map_err(|error| error.to_string())
    }

    fn sparse(&mut self, reader: Reader<'_, proto::SparseTensorProto>) -> Result<Sparse, String> {
        let proto: SparseTensorProto = self.with_build(|build, proto| {
            *proto = build.sparse_tensor(reader)?;
            Ok(())
        })?;
        self.model.sparse_tensor(&proto, &NoExternalData).map_err(|error| error.to_string())
    }

    fn sequence(
        &mut self,
        reader: Reader<'_, proto::SequenceProto>,
        inner: &Type,
    ) -> Result<Sequence, String> {
        let mut sequence = inner.value_type().map(Sequence::new);
        for field in reader {
            let item = match field.map_err(|error| error.to_string())? {
                SequenceField::TensorValues(reader) => Value::Tensor(self.tensor(reader)?),
                SequenceField::SparseTensorValues(reader) => {
                    Value::Sparse(Box::new(self.sparse(reader)?))
                }
                SequenceField::SequenceValues(reader) => match inner {
                    Type::Sequence(inner) => Value::Sequence(self.sequence(reader, inner)?),
                    _ => return Err(format!("the sequence holds sequences, not {inner}")),
                },
                SequenceField::MapValues(reader) => match inner {
                    Type::Map(key, inner) => Value::Map(self.map(reader, *key, inner)?),
                    _ => return Err(format!("the sequence holds maps, not {inner}")),
                },
                SequenceField::OptionalValues(reader) => match inner {
                    Type::Optional(inner) => self.optional(reader, inner)?,
                    _ => return Err(format!("the sequence holds optionals, not {inner}")),
                },
                SequenceField::Name(_) | SequenceField::ElemType(_) | SequenceField::Unknown(_) => {
                    continue;
                }
            };
            let sequence = sequence.get_or_insert_with(|| Sequence::new(item.value_type()));
            sequence.push(item).map_err(|error| error.to_string())?;
        }
        match sequence {
            Some(sequence) => Ok(sequence),
            None => Ok(Sequence::new(empty_value_type(inner)?)),
        }
    }

    fn map(
        &mut self,
        reader: Reader<'_, proto::MapProto>,
        key: DataType,
        inner: &Type,
    ) -> Result<Map, String> {
        let mut keys = Vec::new();
        let mut values = Vec::new();
        for field in reader {
            match field.map_err(|error| error.to_string())? {
                MapField::Keys(chunk) => {
                    for number in chunk.iter() {
                        let number = number.map_err(|error| error.to_string())?;
                        // Unsigned keys are stored as signed numbers with the same bits.
                        keys.push(if key.is_signed() {
                            MapKey::Signed(number)
                        } else {
                            MapKey::Unsigned(number as u64)
                        });
                    }
                }
                MapField::StringKeys(text) => keys.push(MapKey::String(text.bytes.into())),
                MapField::Values(reader) => values = self.sequence(reader, inner)?.into_items(),
                MapField::Name(_) | MapField::KeyType(_) | MapField::Unknown(_) => {}
            }
        }
        if keys.len() != values.len() {
            return Err(format!("the map has {} keys but {} values", keys.len(), values.len()));
        }
        let element = match values.first() {
            Some(value) => value.value_type(),
            None => empty_value_type(inner)?,
        };
        let mut map = Map::new(key, element).map_err(|error| error.to_string())?;
        for (key, value) in keys.into_iter().zip(values) {
            map.push(key, value).map_err(|error| error.to_string())?;
        }
        Ok(map)
    }

    fn optional(
        &mut self,
        reader: Reader<'_, proto::OptionalProto>,
        inner: &Type,
    ) -> Result<Value, String> {
        for field in reader {
            return Ok(Value::some(match field.map_err(|error| error.to_string())? {
                OptionalField::TensorValue(reader) => Value::Tensor(self.tensor(reader)?),
                OptionalField::SparseTensorValue(reader) => {
                    Value::Sparse(Box::new(self.sparse(reader)?))
                }
                OptionalField::SequenceValue(reader) => match inner {
                    Type::Sequence(inner) => Value::Sequence(self.sequence(reader, inner)?),
                    _ => return Err(format!("the optional holds a sequence, not {inner}")),
                },
                OptionalField::MapValue(reader) => match inner {
                    Type::Map(key, inner) => Value::Map(self.map(reader, *key, inner)?),
                    _ => return Err(format!("the optional holds a map, not {inner}")),
                },
                OptionalField::OptionalValue(reader) => match inner {
                    Type::Optional(inner) => self.optional(reader, inner)?,
                    _ => return Err(format!("the optional holds an optional, not {inner}")),
                },
                OptionalField::Name(_) | OptionalField::ElemType(_) | OptionalField::Unknown(_) => {
                    continue;
                }
            }));
        }
        Ok(Value::none(empty_value_type(inner)?))
    }
}

/// Returns the element type of an empty sequence, map or optional. Unknown elements are floats, as
/// in `SequenceEmpty`.
fn empty_value_type(ty: &Type) -> Result<ValueType, String> {
    let known = ty.value_type_or(Some(DataType::Float)).filter(|known| !known.is_opaque());
    known.ok_or_else(|| not_stored(ty))
}

/// Formats the error about values that have no stored form.
fn not_stored(ty: impl std::fmt::Display) -> String {
    format!("values of type {ty} cannot be stored")
}

/// Encodes a value as a file, with its name unless `name` is empty.
///
/// # Errors
///
/// A message: the value is or contains an opaque value.
pub fn write_value(value: &Value, name: &str) -> Result<Vec<u8>, String> {
    let ty = value.value_type();
    if ty.is_opaque() {
        return Err(not_stored(ty));
    }
    Ok(encode_to_vec(&Named { value, name: name.as_bytes() }))
}

/// Encodes a tensor as a `TensorProto`, with its name unless `name` is empty.
pub fn tensor_to_bytes(tensor: Tensor, name: &str) -> Vec<u8> {
    encode_to_vec(&Named { value: &Value::Tensor(tensor), name: name.as_bytes() })
}

#[derive(Clone, Copy)]
struct Named<'a> {
    value: &'a Value,
    name: &'a [u8],
}

impl<'v> Named<'v> {
    fn name(self) -> Option<&'v [u8]> {
        (!self.name.is_empty()).then_some(self.name)
    }
}

impl Encode for Named<'_> {
    fn encode<'a>(&'a self, out: &mut Encoder<'a>) {
        self.write(out);
    }
}

impl<'v> Named<'v> {
    fn without_name(value: &'v Value) -> Self {
        Named { value, name: b"" }
    }

    fn write(self, out: &mut Encoder<'v>) {
        match self.value {
            Value::Tensor(tensor) => write_tensor(out, tensor, self.name()),
            Value::Sparse(sparse) => {
                out.put_message(sparse_tensor::Values, |out| {
                    write_tensor(out, sparse.values(), self.name())
                });
                out.put_message(sparse_tensor::Indices, |out| {
                    write_tensor(out, sparse.indices(), None)
                });
                let dims: Vec<i64> = sparse.dims().iter().map(|dim| *dim as i64).collect();
                out.put(sparse_tensor::Dims, &dims);
            }
            Value::Sequence(items) => {
                out.put_some(sequence::Name, self.name());
                write_sequence(out, items.items().iter(), items.element());
            }
            Value::Map(entries) => {
                out.put_some(map::Name, self.name());
                out.put(map::KeyType, entries.key_type().number());
                for (key, _) in entries.entries() {
                    match key {
                        MapKey::Signed(key) => out.put(map::Keys, &[*key]),
                        MapKey::Unsigned(key) => out.put(map::Keys, &[*key as i64]),
                        MapKey::String(_) => {}
                    }
                }
                for (key, _) in entries.entries() {
                    if let MapKey::String(key) = key {
                        out.put(map::StringKeys, key);
                    }
                }
                out.put_message(map::Values, |out| {
                    let values = entries.entries().iter().map(|(_, value)| value);
                    write_sequence(out, values, entries.element());
                });
            }
            Value::Optional(..) => self.write_optional(out),
            // No value that holds one is written.
            Value::Opaque(_) => {}
        }
    }

    fn write_optional(self, out: &mut Encoder<'v>) {
        out.put_some(optional::Name, self.name());
        let Value::Optional(_, Some(inner)) = self.value else {
            out.put(optional::ElemType, OptionalElemType::UNDEFINED.0);
            return;
        };
        let inner = Named::without_name(inner);
        match inner.value {
            Value::Tensor(_) => {
                out.put(optional::ElemType, OptionalElemType::TENSOR.0);
                out.put_message(optional::TensorValue, |out| inner.write(out));
            }
            Value::Sparse(_) => {
                out.put(optional::ElemType, OptionalElemType::SPARSE_TENSOR.0);
                out.put_message(optional::SparseTensorValue, |out| inner.write(out));
            }
            Value::Sequence(_) => {
                out.put(optional::ElemType, OptionalElemType::SEQUENCE.0);
                out.put_message(optional::SequenceValue, |out| inner.write(out));
            }
            Value::Map(_) => {
                out.put(optional::ElemType, OptionalElemType::MAP.0);
                out.put_message(optional::MapValue, |out| inner.write(out));
            }
            Value::Optional(..) => {
                out.put(optional::ElemType, OptionalElemType::OPTIONAL.0);
                out.put_message(optional::OptionalValue, |out| inner.write(out));
            }
            Value::Opaque(_) => {}
        }
    }
}

fn write_tensor<'v>(out: &mut Encoder<'v>, value: &'v Tensor, name: Option<&[u8]>) {
    let dims: Vec<i64> = value.dims().iter().map(|dim| *dim as i64).collect();
    out.put(tensor::Dims, &dims);
    out.put(tensor::DataType, value.data_type().number());
    match value.strings() {
        Some(strings) => {
            for text in strings.iter() {
                out.put_payload(tensor::StringData, text);
            }
            out.put_some(tensor::Name, name);
        }
        None => {
            out.put_some(tensor::Name, name);
            out.put_payload(tensor::RawData, value.bytes());
        }
    }
}

fn write_sequence<'v>(
    out: &mut Encoder<'v>,
    items: impl Iterator<Item = &'v Value>,
    element: &ValueType,
) {
    let kind = match element {
        ValueType::Tensor(_) => SequenceElemType::TENSOR,
        ValueType::Sparse(_) => SequenceElemType::SPARSE_TENSOR,
        ValueType::Sequence(_) => SequenceElemType::SEQUENCE,
        ValueType::Map(..) => SequenceElemType::MAP,
        ValueType::Optional(_) => SequenceElemType::OPTIONAL,
        ValueType::Opaque(_) => SequenceElemType::UNDEFINED,
    };
    out.put(sequence::ElemType, kind.0);
    for item in items {
        let item = Named::without_name(item);
        match item.value {
            Value::Tensor(_) => out.put_message(sequence::TensorValues, |out| item.write(out)),
            Value::Sparse(_) => {
                out.put_message(sequence::SparseTensorValues, |out| item.write(out))
            }
            Value::Sequence(_) => out.put_message(sequence::SequenceValues, |out| item.write(out)),
            Value::Map(_) => out.put_message(sequence::MapValues, |out| item.write(out)),
            Value::Optional(..) => out.put_message(sequence::OptionalValues, |out| item.write(out)),
            Value::Opaque(_) => {}
        }
    }
}

/// Encodes strings as records of `string_data`.
pub(crate) fn string_records(strings: &StringArray) -> Vec<u8> {
    struct Records<'a>(&'a StringArray);
    impl Encode for Records<'_> {
        fn encode<'a>(&'a self, out: &mut Encoder<'a>) {
            for text in self.0.iter() {
                out.put_payload(tensor::StringData, text);
            }
        }
    }
    encode_to_vec(&Records(strings))
}
