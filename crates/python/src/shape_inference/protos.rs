//! Conversion between serialized messages and objects of the onnx package.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

/// Parses a serialized message to an object of the named class of the onnx package.
pub(super) fn to_python<'py>(
    py: Python<'py>,
    class: &str,
    bytes: &[u8],
) -> PyResult<Bound<'py, PyAny>> {
    let message = py.import("onnx")?.getattr(class)?.call0()?;
    message.call_method1("ParseFromString", (PyBytes::new(py, bytes),))?;
    Ok(message)
}

/// Serializes a message object of the onnx package.
///
/// # Errors
///
/// `TypeError` if the object has no `SerializeToString`.
pub(super) fn from_python(message: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    match message.getattr_opt("SerializeToString")? {
        Some(serialize) => {
            let bytes: PyBackedBytes = serialize.call0()?.extract()?;
            Ok(bytes.to_vec())
        }
        None => Err(PyTypeError::new_err(format!(
            "expected a message of the onnx package, found {}",
            message.get_type().name()?
        ))),
    }
}
