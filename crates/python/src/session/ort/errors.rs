//! Conversion of errors to the exception classes of onnxruntime.

use pyo3::PyErr;
use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use sardonyx::ErrorKind;
use sardonyx_ort::Status;

use super::super::errors::set_attributes;
use crate::errors::Error;

/// Name of the exception class for a missing input, which is also a `ValueError`.
const MISSING_INPUT: &str = "MissingInput";

/// Converts an error to an exception of onnxruntime's class for the status of the error.
pub(super) fn to_exception(py: Python<'_>, error: &sardonyx_ort::Error) -> PyErr {
    to_exception_of_class(py, error.status.name(), error)
}

/// Converts the error about missing inputs to an exception of the class `MissingInput`.
pub(super) fn to_missing_input(py: Python<'_>, error: &sardonyx_ort::Error) -> PyErr {
    to_exception_of_class(py, MISSING_INPUT, error)
}

/// Converts an error to an exception of the class `name` in `sardonyx._shims.onnxruntime.errors`.
fn to_exception_of_class(py: Python<'_>, name: &str, error: &sardonyx_ort::Error) -> PyErr {
    let class = match find_class(py, name) {
        Ok(class) => class,
        Err(error) => return error,
    };
    let exception = PyErr::from_type(class, error.to_string());
    let (place, help) = (error.place.as_deref(), error.help.as_deref());
    let unsupported = error.unsupported.clone();
    set_attributes(py, exception, error.kind, &error.message, place, help, unsupported)
}

/// Converts a `sardonyx.Error` of a run to the corresponding class of onnxruntime, with its
/// attributes. Returns other exceptions unchanged.
pub(super) fn to_run_exception(py: Python<'_>, error: PyErr) -> PyErr {
    let Some(kind) = find_error_kind(py, &error) else { return error };
    let value = error.value(py);
    convert_to_class(value, Status::of_run(kind).name()).unwrap_or_else(|error| error)
}

/// Converts an exception to the class `name` in `sardonyx._shims.onnxruntime.errors`, with its text
/// and attributes.
fn convert_to_class(exception: &Bound<'_, PyBaseException>, name: &str) -> PyResult<PyErr> {
    let converted = find_class(exception.py(), name)?.call1((exception.str()?,))?;
    let attributes = converted.getattr("__dict__")?.cast_into::<PyDict>()?;
    attributes.update(exception.getattr("__dict__")?.cast()?)?;
    Ok(PyErr::from_value(converted))
}

/// Returns the error kind of a `sardonyx.Error`; `None` for other exceptions.
pub(super) fn find_error_kind(py: Python<'_>, error: &PyErr) -> Option<ErrorKind> {
    if !error.is_instance_of::<Error>(py) {
        return None;
    }
    let code: String = error.value(py).getattr("code").ok()?.extract().ok()?;
    ErrorKind::from_name(&code)
}

/// Looks up an exception class in `sardonyx._shims.onnxruntime.errors`.
fn find_class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyType>> {
    let module = py.import("sardonyx._shims.onnxruntime.errors")?;
    Ok(module.getattr(name)?.cast_into::<PyType>()?)
}
