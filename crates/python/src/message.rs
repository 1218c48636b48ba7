//! Reading serialized messages: whole models, and parts of models such as one node.

use std::sync::Arc;

use pyo3::PyErr;
use pyo3::exceptions::PyValueError;
use pyo3::pybacked::PyBackedBytes;
use sardonyx::io::ModelFormat;
use sardonyx::tool::message;
use sardonyx::value::Buffer;
use sardonyx::{Error, Model, OpenOptions};

pub(crate) use message::{Header, MessagePart as Part};

/// Reads a serialized part of a model, such as a NodeProto, as a model with only this part and with
/// the IR version and opset imports of `header`.
///
/// # Errors
///
/// `ValueError` if the bytes are not a message of the type `part`, or are nested too deeply or too
/// large.
pub(crate) fn read_part(bytes: &[u8], part: Part, header: &Header) -> Result<Model, PyErr> {
    message::read(bytes, part, header).map_err(to_parse_error)
}

/// Reads a serialized ModelProto. Copies the bytes.
///
/// # Errors
///
/// `ValueError` if the bytes are not a ModelProto, or are nested too deeply or too large.
pub(crate) fn read_model(bytes: &[u8]) -> Result<Model, PyErr> {
    // The model keeps the bytes, and a borrowed slice may not outlive the call.
    read_buffer(Buffer::from_vec(bytes.to_vec()))
}

/// Reads a serialized ModelProto and shares the bytes with Python instead of copying them.
///
/// # Errors
///
/// `ValueError` if the bytes are not a ModelProto, or are nested too deeply or too large.
pub(crate) fn read_shared(bytes: PyBackedBytes) -> Result<Model, PyErr> {
    read_buffer(share_bytes(bytes))
}

/// Wraps a Python `bytes` object in a buffer, which keeps it alive, without copying its bytes.
pub(crate) fn share_bytes(bytes: PyBackedBytes) -> Buffer {
    Buffer::from_shared(Arc::new(bytes))
}

/// Reads a serialized ModelProto from a buffer without copying the buffer.
fn read_buffer(bytes: Buffer) -> Result<Model, PyErr> {
    make_open_options().from_bytes(bytes).map_err(to_parse_error)
}

/// Returns the options for reading models: binary format only, and lenient, so that incomplete
/// models are accepted.
pub(crate) fn make_open_options() -> OpenOptions {
    OpenOptions::new().form(ModelFormat::Binary).lenient(true)
}

/// Converts a parse error to the `ValueError` for bytes that are not a message of the expected
/// type.
pub(crate) fn to_parse_error(error: Error) -> PyErr {
    PyValueError::new_err(format!("Unable to parse proto from the given bytes: {error}"))
}
