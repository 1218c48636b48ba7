//! Errors as exceptions of the classes that onnxruntime has.

use pyo3::PyErr;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use sardonyx::ErrorKind;
use sardonyx_ort::Status;

use super::super::errors::set;
use crate::errors::Error;

/// Class of a run without an input that it needs: a `ValueError` as well.
const MISSING_INPUT: &str = "MissingInput";

/// The exception for an error.
pub(super) fn raised(py: Python<'_>, error: &sardonyx_ort::Error) -> PyErr {
    raised_as(py, error.status.name(), error)
}

/// The exception for inputs that are missing.
pub(super) fn missing_input(py: Python<'_>, error: &sardonyx_ort::Error) -> PyErr {
    raised_as(py, MISSING_INPUT, error)
}

fn raised_as(py: Python<'_>, name: &str, error: &sardonyx_ort::Error) -> PyErr {
    let class = match class(py, name) {
        Ok(class) => class,
        Err(error) => return error,
    };
    let exception = PyErr::from_type(class, error.to_string());
    let (place, help) = (error.place.as_deref(), error.help.as_deref());
    let unsupported = error.unsupported.clone();
    set(py, exception, error.kind, &error.message, place, help, unsupported)
}

/// An exception of this package as one of the class that onnxruntime has for an error of a run.
/// Other exceptions stay as they are.
pub(super) fn of_run(py: Python<'_>, error: PyErr) -> PyErr {
    let Some(kind) = kind_of(py, &error) else { return error };
    let value = error.value(py);
    let converted = || -> PyResult<PyErr> {
        let class = class(py, Status::of_run(kind).name())?;
        let converted = class.call1((value.str()?,))?;
        let attributes = converted.getattr("__dict__")?.cast_into::<PyDict>()?;
        attributes.update(value.getattr("__dict__")?.cast()?)?;
        Ok(PyErr::from_value(converted))
    };
    converted().unwrap_or_else(|error| error)
}

/// The kind of an exception of this package; `None` for others.
pub(super) fn kind_of(py: Python<'_>, error: &PyErr) -> Option<ErrorKind> {
    if !error.is_instance_of::<Error>(py) {
        return None;
    }
    let code: String = error.value(py).getattr("code").ok()?.extract().ok()?;
    ErrorKind::from_name(&code)
}

/// A class of exceptions, by name.
fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyType>> {
    Ok(py.import("sardonyx._shims.onnxruntime.errors")?.getattr(name)?.cast_into::<PyType>()?)
}
