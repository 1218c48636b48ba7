//! Messages as bytes: reading a model, and a part of a model as if it stood in one.

use std::sync::Arc;

use pyo3::PyErr;
use pyo3::exceptions::PyValueError;
use pyo3::pybacked::PyBackedBytes;
use sardonyx::io::ModelFormat;
use sardonyx::tool::message;
use sardonyx::value::Buffer;
use sardonyx::{Error, Model, OpenOptions};

pub(crate) use message::{Header, MessagePart as Part};

/// Reads a part of a model as the only part of a model with this header.
///
/// # Errors
///
/// `ValueError` if the bytes are no such message, are nested too deeply or too large.
pub(crate) fn read(bytes: &[u8], part: Part, header: &Header) -> Result<Model, PyErr> {
    message::read(bytes, part, header).map_err(unreadable)
}

/// Reads a model.
///
/// # Errors
///
/// See [`read`].
pub(crate) fn read_model(bytes: &[u8]) -> Result<Model, PyErr> {
    // A model keeps its source, and bytes of Python may not outlive the call.
    read_buffer(Buffer::from_vec(bytes.to_vec()))
}

/// Reads a model from bytes that Python keeps, without a copy.
///
/// # Errors
///
/// See [`read`].
pub(crate) fn read_shared(bytes: PyBackedBytes) -> Result<Model, PyErr> {
    read_buffer(shared(bytes))
}

/// The bytes that Python keeps, without a copy.
pub(crate) fn shared(bytes: PyBackedBytes) -> Buffer {
    Buffer::from_shared(Arc::new(bytes))
}

fn read_buffer(bytes: Buffer) -> Result<Model, PyErr> {
    open_options().from_bytes(bytes).map_err(unreadable)
}

/// How models are read: in their binary form only, and also those that are not complete yet.
pub(crate) fn open_options() -> OpenOptions {
    OpenOptions::new().form(ModelFormat::Binary).lenient(true)
}

/// The exception for bytes that are not the message that they should be.
pub(crate) fn unreadable(error: Error) -> PyErr {
    PyValueError::new_err(format!("Unable to parse proto from the given bytes: {error}"))
}
