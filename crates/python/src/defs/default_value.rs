//! Default values of attributes as AttributeProto messages.

use pyo3::PyErr;
use pyo3::exceptions::PyValueError;
use sardonyx::tool::message;
use sardonyx::tool::schema::{AttrDefault, AttrType};
use sardonyx::{Error, ErrorKind};

use crate::message::unreadable;

/// A default of the standard as a message.
pub(crate) fn write(name: &str, default: AttrDefault) -> Vec<u8> {
    message::default_to_bytes(name, default)
}

/// The type of a default that Python code gives as a message.
///
/// # Errors
///
/// `ValueError` if the bytes are no AttributeProto, or say no type.
pub(crate) fn type_of(bytes: &[u8]) -> Result<AttrType, PyErr> {
    message::type_of_attribute(bytes).map_err(refused)
}

/// What the library itself has to know of a default: `None` for tensors and other types that
/// [`AttrDefault`] does not have, and for texts that are not UTF-8. Those are for Python code only.
///
/// # Errors
///
/// See [`type_of`].
pub(crate) fn read(bytes: &[u8]) -> Result<Option<AttrDefault>, PyErr> {
    message::default_from_bytes(bytes).map_err(refused)
}

fn refused(error: Error) -> PyErr {
    match error.kind() {
        ErrorKind::Invalid => PyValueError::new_err(error.to_string()),
        _ => unreadable(error),
    }
}
