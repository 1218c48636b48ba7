//! Opening models from Python arguments (a path, bytes, or an object of a message class), and
//! returning models in the same form.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyString};
use sardonyx::io::Access;
use sardonyx::{Model, OpenOptions};

use super::errors::{argument_error, to_exception};
use crate::message;

/// Origin of a model, from which it can be opened again.
pub(crate) enum Source {
    /// Absolute path of the model file.
    Path(PathBuf),
    /// The `bytes` object of a serialized model.
    Bytes(Py<PyAny>),
}

impl Source {
    /// Returns the path of the model as a str, or its bytes.
    pub(crate) fn to_object<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        match self {
            Source::Path(path) => to_text(py, path).into_any(),
            Source::Bytes(bytes) => bytes.bind(py).clone(),
        }
    }

    /// Clones the path of the model, or the reference to its bytes.
    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Source {
        match self {
            Source::Path(path) => Source::Path(path.clone()),
            Source::Bytes(bytes) => Source::Bytes(bytes.clone_ref(py)),
        }
    }
}

/// Opens a model that is given as a path, as bytes, or as an object with `SerializeToString`.
///
/// # Errors
///
/// `sardonyx.Error` if the model cannot be opened; `TypeError` for any other object.
pub(crate) fn open_model(model: &Bound<'_, PyAny>) -> PyResult<(Model, Source)> {
    open_model_with(model, &OpenOptions::new())
}

/// Opens a model like [`open_model`], reading files by `access`: mapped or copied.
///
/// # Errors
///
/// The errors of [`open_model`]; `sardonyx.Error` if the weights are to stay in a mapped file, but
/// the model is not a path.
pub(crate) fn open_model_by(model: &Bound<'_, PyAny>, access: Access) -> PyResult<(Model, Source)> {
    let py = model.py();
    let is_path = import_messages(py)?.call_method1("is_path", (model,))?.is_truthy()?;
    if access == Access::Share && !is_path {
        let help = "give the path of the model, or leave mapped out";
        return Err(argument_error(py, "mapped=True needs the path of a model", Some(help)));
    }
    open_model_with(model, &OpenOptions::new().access(access))
}

/// Opens a model like [`open_model`], with `options`.
///
/// # Errors
///
/// The errors of [`open_model`].
pub(crate) fn open_model_with(
    model: &Bound<'_, PyAny>,
    options: &OpenOptions,
) -> PyResult<(Model, Source)> {
    let py = model.py();
    let messages = import_messages(py)?;
    if messages.call_method1("is_path", (model,))?.is_truthy()? {
        let path = to_path(model)?;
        // Absolute, so that unpickling finds the file after a change of directory.
        let full = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
        let model = py.detach(|| options.open(&path)).map_err(|error| to_exception(py, &error))?;
        return Ok((model, Source::Path(full)));
    }
    let bytes = messages.call_method1("serialize_argument", (model,))?;
    let content: PyBackedBytes = bytes.extract()?;
    let model = py.detach(|| options.from_bytes(message::share_bytes(content)));
    let model = model.map_err(|error| to_exception(py, &error))?;
    Ok((model, Source::Bytes(bytes.unbind())))
}

/// Returns the function that parses bytes to the message class of `model` (`FromString`); `None` if
/// `model` is a path or bytes.
pub(crate) fn find_parser(model: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
    let from_string = import_messages(model.py())?.call_method1("reader", (model,))?;
    Ok((!from_string.is_none()).then(|| from_string.unbind()))
}

/// Serializes a model to bytes, or to a message object with the `FromString` function `class`. Data
/// files stay external.
///
/// # Errors
///
/// An exception of `class`.
pub(crate) fn to_message<'py>(
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

/// Serializes a model to a message object or bytes, like the Python argument it came from. Embeds
/// data files if the argument was a path: bytes have no directory to resolve relative paths.
///
/// # Errors
///
/// `sardonyx.Error` if a data file cannot be read; an exception of `class`.
pub(crate) fn to_argument_form<'py>(
    py: Python<'py>,
    model: Model,
    source: &Source,
    class: Option<&Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let model = match source {
        Source::Path(_) => py.detach(|| model.with_values_inside()),
        // References to data files stay as they were in the argument.
        Source::Bytes(_) => Ok(model),
    };
    to_message(py, &model.map_err(|error| to_exception(py, &error))?, class)
}

/// Returns the bytes of a model file in the binary format, with the values of its data files
/// embedded. The model may be incomplete.
///
/// Raises `sardonyx.Error` if the file or a data file cannot be read.
#[pyfunction]
#[pyo3(signature = (path, /))]
pub(crate) fn model_content<'py>(py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyBytes>> {
    let content = py.detach(|| {
        let model = OpenOptions::new().lenient(true).open(path)?;
        Ok(model.with_values_inside()?.to_bytes())
    });
    let content = content.map_err(|error: sardonyx::Error| to_exception(py, &error))?;
    Ok(PyBytes::new(py, &content))
}

/// Converts a path to a Python str. Bytes that are not UTF-8 become surrogates, like in
/// `os.fsdecode`.
fn to_text<'py>(py: Python<'py>, path: &Path) -> Bound<'py, PyString> {
    let Ok(text) = path.as_os_str().into_pyobject(py);
    text
}

/// Converts a Python path (a str, bytes or `os.PathLike`) to a Rust path.
///
/// # Errors
///
/// `TypeError` for any other object.
pub(crate) fn to_path(path: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    import_messages(path.py())?.call_method1("file_path", (path,))?.extract()
}

/// Imports the Python module `sardonyx._messages`, which distinguishes paths, bytes and messages.
pub(crate) fn import_messages(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import("sardonyx._messages")
}
