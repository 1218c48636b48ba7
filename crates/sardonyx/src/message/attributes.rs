//! Converts node attributes and operators' attribute defaults to protobuf messages and back.

use sardonyx_model::{self as graph, NodeId, Producer, ValueId};
use sardonyx_ops::{AttrDefault, AttrType, AttrValue, intern};
use sardonyx_proto::{
    AttributeField, AttributeProto, AttributeType, Encode, Encoded, Encoder, Reader, attribute,
    encode_to_vec,
};

use super::types::write_type;
use crate::error::{Error, ErrorKind};

/// Serializes a sparse initializer as a `SparseTensorProto`; `None` for other values.
pub(crate) fn sparse_constant_to_bytes(model: &graph::Model, value: ValueId) -> Option<Vec<u8>> {
    let value = model.value(value);
    let Producer::SparseInitializer(index) = value.producer else {
        return None;
    };
    let constants = &model.graph(value.graph).sparse_initializers;
    let tensor = &constants.get(index as usize)?.tensor;
    Some(model.part_to_bytes(graph::ModelPart::SparseTensor(tensor)))
}

/// Serializes an attribute of a node as an `AttributeProto`; `None` if the node does not have it.
/// If the attribute refers to one of the enclosing function, `given` returns its value.
pub(crate) fn attribute_to_bytes<'a>(
    model: &graph::Model,
    node: NodeId,
    name: &str,
    given: impl FnOnce() -> Option<AttrValue<'a>>,
) -> Option<Vec<u8>> {
    let attribute = model.attribute_of(node, name)?;
    if attribute.ref_attr_name().is_some() {
        return Some(value_to_bytes(model, name, &given()?));
    }
    Some(model.part_to_bytes(graph::ModelPart::Attribute(attribute)))
}

/// Serializes an attribute value as an `AttributeProto` with a name.
fn value_to_bytes(model: &graph::Model, name: &str, value: &AttrValue<'_>) -> Vec<u8> {
    let message = Encoded::from_fields(|out| {
        out.put(attribute::Name, name.as_bytes());
        let ty = match value {
            AttrValue::Float(value) => {
                out.put(attribute::F, *value);
                AttributeType::FLOAT
            }
            AttrValue::Int(value) => {
                out.put(attribute::I, *value);
                AttributeType::INT
            }
            AttrValue::String(value) => {
                out.put(attribute::S, value);
                AttributeType::STRING
            }
            AttrValue::Tensor(tensor) => {
                let tensor = graph::tensor_to_bytes(tensor.clone(), "");
                out.put_message(attribute::T, |out| out.copy_records(&tensor));
                AttributeType::TENSOR
            }
            AttrValue::Graph(graph) => {
                let graph = model.part_to_bytes(graph::ModelPart::Graph(*graph));
                out.put_message(attribute::G, |out| out.copy_records(&graph));
                AttributeType::GRAPH
            }
            AttrValue::Floats(values) => {
                out.put(attribute::Floats, values);
                AttributeType::FLOATS
            }
            AttrValue::Ints(values) => {
                out.put(attribute::Ints, values);
                AttributeType::INTS
            }
            AttrValue::Strings(values) => {
                for value in values {
                    out.put(attribute::Strings, value);
                }
                AttributeType::STRINGS
            }
            AttrValue::Type(ty) => {
                out.put_message(attribute::Tp, |out| write_type(out, ty));
                AttributeType::TYPE_PROTO
            }
            AttrValue::Unread(_) | AttrValue::Other => AttributeType::UNDEFINED,
        };
        out.put(attribute::Type, ty);
    });
    message.into_vec()
}

/// Serializes the default value of an operator's attribute as an `AttributeProto`.
pub fn default_to_bytes(name: &str, default: AttrDefault) -> Vec<u8> {
    encode_to_vec(&Default { name, default })
}

/// Default value of an operator's attribute, with the attribute's name.
struct Default<'a> {
    name: &'a str,
    default: AttrDefault,
}

impl Encode for Default<'_> {
    fn encode(&self, out: &mut Encoder<'_>) {
        out.put(attribute::Name, self.name.as_bytes());
        let ty = match self.default {
            AttrDefault::Float(value) => {
                out.put(attribute::F, value);
                AttributeType::FLOAT
            }
            AttrDefault::Int(value) => {
                out.put(attribute::I, value);
                AttributeType::INT
            }
            AttrDefault::String(value) | AttrDefault::Word(value) => {
                out.put(attribute::S, value.as_bytes());
                AttributeType::STRING
            }
            AttrDefault::Floats(values) => {
                out.put(attribute::Floats, values);
                AttributeType::FLOATS
            }
            AttrDefault::Ints(values) => {
                out.put(attribute::Ints, values);
                AttributeType::INTS
            }
            AttrDefault::Strings(values) => {
                for value in values {
                    out.put(attribute::Strings, value.as_bytes());
                }
                AttributeType::STRINGS
            }
        };
        out.put(attribute::Type, ty);
    }
}

/// Reads the attribute type from a serialized `AttributeProto`.
///
/// # Errors
///
/// [`ErrorKind::Format`] if the bytes are not an `AttributeProto`, [`ErrorKind::Invalid`] if the
/// attribute type is missing or unknown.
pub fn read_attribute_type(bytes: &[u8]) -> Result<AttrType, Error> {
    let mut ty = AttributeType::UNDEFINED;
    let mut reader = Reader::<AttributeProto>::new(bytes);
    while let Some(field) = reader.next().transpose().map_err(to_format_error)? {
        if let AttributeField::Type(found) = field {
            ty = found;
        }
    }
    AttrType::of_file(ty).ok_or_else(|| {
        let message = format!("{} is not an attribute type", ty.0);
        Error::new(ErrorKind::Invalid, message)
    })
}

/// Reads the default value of an operator's attribute from a serialized `AttributeProto`. `None`
/// for types that [`AttrDefault`] does not have, such as tensors, and for strings that are not
/// UTF-8. Strings and lists are interned: they live as long as the process.
///
/// # Errors
///
/// See [`read_attribute_type`].
pub fn default_from_bytes(bytes: &[u8]) -> Result<Option<AttrDefault>, Error> {
    let ty = read_attribute_type(bytes)?;
    let (mut ints, mut floats, mut texts) = (Vec::new(), Vec::new(), Vec::new());
    let (mut int, mut float, mut text) = (0, 0.0, "");
    let mut all_utf8 = true;
    let mut utf8 = |bytes| {
        let text = std::str::from_utf8(bytes);
        all_utf8 &= text.is_ok();
        text.unwrap_or_default()
    };
    let mut reader = Reader::<AttributeProto>::new(bytes);
    while let Some(field) = reader.next().transpose().map_err(to_format_error)? {
        match field {
            AttributeField::I(value) => int = value,
            AttributeField::F(value) => float = value,
            AttributeField::S(value) => text = utf8(value.bytes),
            AttributeField::Ints(chunk) => chunk.decode_into(&mut ints).map_err(to_format_error)?,
            AttributeField::Floats(chunk) => {
                chunk.decode_into(&mut floats).map_err(to_format_error)?
            }
            AttributeField::Strings(value) => texts.push(utf8(value.bytes)),
            _ => {}
        }
    }
    let default = match ty {
        AttrType::Int => AttrDefault::Int(int),
        AttrType::Float => AttrDefault::Float(float),
        AttrType::String => AttrDefault::String(intern::text(text)),
        AttrType::Ints => AttrDefault::Ints(intern::ints(&ints)),
        AttrType::Floats => AttrDefault::Floats(intern::floats(&floats)),
        AttrType::Strings => AttrDefault::Strings(intern::texts(&texts)),
        _ => return Ok(None),
    };
    Ok(all_utf8.then_some(default))
}

/// Converts a protobuf decoding error to [`ErrorKind::Format`].
fn to_format_error(error: sardonyx_proto::Error) -> Error {
    Error::new(ErrorKind::Format, error.to_string()).with_source(error)
}
