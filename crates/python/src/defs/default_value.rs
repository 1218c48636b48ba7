//! Default values of attributes as AttributeProto messages.

use pyo3::PyErr;
use pyo3::exceptions::PyValueError;
use sardonyx_ops::{AttrDefault, AttrType, intern};
use sardonyx_proto::{
    AttributeField, AttributeProto, AttributeType, Encode, Encoder, Reader, attribute,
    encode_to_vec,
};

/// A default of the standard as a message.
pub(crate) fn write(name: &str, default: AttrDefault) -> Vec<u8> {
    encode_to_vec(&Default { name, default })
}

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
            AttrDefault::String(value) => {
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

/// The type of a default that Python code gives as a message.
///
/// # Errors
///
/// `ValueError` if the bytes are no AttributeProto, or say no type.
pub(crate) fn type_of(bytes: &[u8]) -> Result<AttrType, PyErr> {
    let mut ty = AttributeType::UNDEFINED;
    let mut reader = Reader::<AttributeProto>::new(bytes);
    while let Some(field) = reader.next().transpose().map_err(unreadable)? {
        if let AttributeField::Type(found) = field {
            ty = found;
        }
    }
    AttrType::of_file(ty).ok_or_else(|| {
        PyValueError::new_err(format!("{} is not a type that a default value can have", ty.0))
    })
}

/// What the library itself has to know of a default: `None` for tensors and other types that
/// [`AttrDefault`] does not have, and for texts that are not UTF-8. Those are for Python code only.
pub(crate) fn read(bytes: &[u8]) -> Result<Option<AttrDefault>, PyErr> {
    let ty = type_of(bytes)?;
    let (mut ints, mut floats, mut texts) = (Vec::new(), Vec::new(), Vec::new());
    let (mut int, mut float, mut text) = (0, 0.0, "");
    let mut all_utf8 = true;
    let mut utf8 = |bytes| {
        let text = std::str::from_utf8(bytes);
        all_utf8 &= text.is_ok();
        text.unwrap_or_default()
    };
    let mut reader = Reader::<AttributeProto>::new(bytes);
    while let Some(field) = reader.next().transpose().map_err(unreadable)? {
        match field {
            AttributeField::I(value) => int = value,
            AttributeField::F(value) => float = value,
            AttributeField::S(value) => text = utf8(value.bytes),
            AttributeField::Ints(chunk) => chunk.decode_into(&mut ints).map_err(unreadable)?,
            AttributeField::Floats(chunk) => chunk.decode_into(&mut floats).map_err(unreadable)?,
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

fn unreadable(error: sardonyx_proto::Error) -> PyErr {
    PyValueError::new_err(format!("Unable to parse proto from the given bytes: {error}"))
}
