//! Default values of attributes as serialized AttributeProto messages.

use pyo3::PyErr;
use pyo3::exceptions::PyValueError;
use sardonyx::tool::message;
use sardonyx::tool::schema::{AttrDefault, AttrType};
use sardonyx::{Error, ErrorKind};

use crate::message::to_parse_error;

/// Serializes the default value of a standard operator's attribute.
pub(crate) fn serialize(name: &str, default: AttrDefault) -> Vec<u8> {
    message::default_to_bytes(name, default)
}

/// Returns the type of a default value that Python code passes as a serialized AttributeProto.
///
/// # Errors
///
/// `ValueError` if the bytes are not an AttributeProto, or it has no type.
pub(crate) fn parse_type(bytes: &[u8]) -> Result<AttrType, PyErr> {
    message::read_attribute_type(bytes).map_err(to_value_error)
}

/// Parses the serialized default value of an attribute for the operator registry. `None` for
/// tensors and other types that [`AttrDefault`] does not have, and for texts that are not UTF-8;
/// only Python code can read those.
///
/// # Errors
///
/// `ValueError` if the bytes are not an AttributeProto, or it has no type.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<AttrDefault>, PyErr> {
    message::default_from_bytes(bytes).map_err(to_value_error)
}

/// Converts an error about an AttributeProto to a `ValueError`.
fn to_value_error(error: Error) -> PyErr {
    match error.kind() {
        ErrorKind::Invalid => PyValueError::new_err(error.to_string()),
        _ => to_parse_error(error),
    }
}
