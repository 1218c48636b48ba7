//! Opening a model from what Python gives: a path, bytes, or an object of a message class.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyString};
use sardonyx::io::Access;
use sardonyx::{Model, OpenOptions};

use super::errors::{raised, wrong_argument};
use crate::message;

/// What a model was made of.
pub(crate) enum Source {
    Path(PathBuf),
    Bytes(Py<PyAny>),
}

impl Source {
    /// The path of the model, or its bytes.
    pub(crate) fn object<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        match self {
            Source::Path(path) => to_text(py, path).into_any(),
            Source::Bytes(bytes) => bytes.bind(py).clone(),
        }
    }

    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Source {
        match self {
            Source::Path(path) => Source::Path(path.clone()),
            Source::Bytes(bytes) => Source::Bytes(bytes.clone_ref(py)),
        }
    }
}

/// Opens a model: a path, the bytes of a model, or an object with `SerializeToString`.
///
/// # Errors
///
/// It cannot be opened, or is none of these.
pub(crate) fn opened(model: &Bound<'_, PyAny>) -> PyResult<(Model, Source)> {
    opened_with(model, &OpenOptions::new())
}

/// Opens a model as [`opened`] does, and files by `access`.
///
/// # Errors
///
/// As [`opened`]; weights that are to stay in a mapped file, of a model that is in none.
pub(crate) fn opened_by(model: &Bound<'_, PyAny>, access: Access) -> PyResult<(Model, Source)> {
    let py = model.py();
    let is_path = messages(py)?.call_method1("is_path", (model,))?.is_truthy()?;
    if access == Access::Share && !is_path {
        let help = "give the path of the model, or leave mapped out";
        return Err(wrong_argument(py, "mapped=True is for the path of a model", Some(help)));
    }
    opened_with(model, &OpenOptions::new().access(access))
}

/// Opens a model with options: a path, the bytes of a model, or an object with
/// `SerializeToString`.
///
/// # Errors
///
/// It cannot be opened, or is none of these.
pub(crate) fn opened_with(
    model: &Bound<'_, PyAny>,
    options: &OpenOptions,
) -> PyResult<(Model, Source)> {
    let py = model.py();
    let messages = messages(py)?;
    if messages.call_method1("is_path", (model,))?.is_truthy()? {
        let path = file_path(model)?;
        // Where it lies is remembered, wherever the process goes.
        let full = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
        let model = py.detach(|| options.open(&path)).map_err(|error| raised(py, &error))?;
        return Ok((model, Source::Path(full)));
    }
    let bytes = messages.call_method1("serialize_argument", (model,))?;
    let content: PyBackedBytes = bytes.extract()?;
    let model = py.detach(|| options.from_bytes(message::shared(content)));
    let model = model.map_err(|error| raised(py, &error))?;
    Ok((model, Source::Bytes(bytes.unbind())))
}

/// What makes an object of the class of a message of bytes; `None` for all that is no message.
pub(crate) fn class_of(model: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
    let from_string = messages(model.py())?.call_method1("reader", (model,))?;
    Ok((!from_string.is_none()).then(|| from_string.unbind()))
}

/// A model as a message: an object of a class if there is one, or bytes. What it has in data files
/// stays there.
///
/// # Errors
///
/// Whatever the class raises.
pub(crate) fn as_message<'py>(
    py: Python<'py>,
    model: &Model,
    class: Option<&Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let bytes = py.detach(|| model.to_bytes());
    let bytes = PyBytes::new(py, &bytes);
    match class {
        Some(from_string) => from_string.bind(py).call1((bytes,)),
        None => Ok(bytes.into_any()),
    }
}

/// What becomes of a model, as what was given: an object of the same class, or bytes.
///
/// # Errors
///
/// A data file cannot be read; whatever the class raises.
pub(crate) fn as_given<'py>(
    py: Python<'py>,
    model: Model,
    source: &Source,
    class: Option<&Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let model = match source {
        // Nothing finds its data files once it is away from where it lay.
        Source::Path(_) => py.detach(|| model.with_values_inside()),
        // It refers to files as what was given does.
        Source::Bytes(_) => Ok(model),
    };
    as_message(py, &model.map_err(|error| raised(py, &error))?, class)
}

/// The bytes of a model file in the binary form, with the values of its data files inside. The
/// model need not be complete.
///
/// # Errors
///
/// The file or a data file cannot be read.
#[pyfunction]
#[pyo3(signature = (path, /))]
pub(crate) fn model_content<'py>(py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyBytes>> {
    let content = py.detach(|| {
        let model = OpenOptions::new().lenient(true).open(path)?;
        Ok(model.with_values_inside()?.to_bytes())
    });
    let content = content.map_err(|error: sardonyx::Error| raised(py, &error))?;
    Ok(PyBytes::new(py, &content))
}

/// Converts a path to text of Python. Bytes that are no UTF-8 become surrogates, as everywhere in
/// Python.
fn to_text<'py>(py: Python<'py>, path: &Path) -> Bound<'py, PyString> {
    let Ok(text) = path.as_os_str().into_pyobject(py);
    text
}

/// A path.
///
/// # Errors
///
/// `TypeError` if the object is no path.
pub(crate) fn file_path(path: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    messages(path.py())?.call_method1("file_path", (path,))?.extract()
}

/// What the package knows about messages and paths.
pub(crate) fn messages(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import("sardonyx._messages")
}
