//! Messages as objects of the onnx package.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A message as an object of the onnx package, of the class with that name.
pub(super) fn to_python<'py>(
    py: Python<'py>,
    class: &str,
    bytes: &[u8],
) -> PyResult<Bound<'py, PyAny>> {
    let message = py.import("onnx")?.getattr(class)?.call0()?;
    message.call_method1("ParseFromString", (PyBytes::new(py, bytes),))?;
    Ok(message)
}

/// The bytes of a message that is such an object.
pub(super) fn from_python(message: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    match message.getattr_opt("SerializeToString")? {
        Some(serialize) => serialize.call0()?.extract(),
        None => Err(PyTypeError::new_err(format!(
            "a message of the onnx package is wanted, not {}",
            message.get_type().name()?
        ))),
    }
}
