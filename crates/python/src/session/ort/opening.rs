//! Opening the session of an `InferenceSession`, with initializers that the caller passes as
//! arrays.

use std::path::absolute;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use sardonyx_ort::{Opened, Opening, Source, Status};

use super::super::PySession;
use super::super::engine::Engine;
use super::super::opened::{self, to_path};
use super::super::settings::Settings;
use super::super::take::{InputConverter, ValueName};
use super::errors::{to_exception, to_run_exception};
use super::options::SessionOptions;
use crate::message;

/// Opens the session of a model, given as a path or bytes, with the options of onnxruntime.
///
/// # Errors
///
/// An exception of onnxruntime's class for the failure.
pub(super) fn open(
    model: &Bound<'_, PyAny>,
    options: &Bound<'_, SessionOptions>,
) -> PyResult<PySession> {
    let py = model.py();
    let (source, kept) = match model.cast::<PyBytes>() {
        Ok(bytes) => {
            let content: PyBackedBytes = bytes.extract()?;
            let kept = opened::Source::Bytes(bytes.clone().into_any().unbind());
            (Source::Bytes(message::share_bytes(content)), kept)
        }
        Err(_) => {
            let path = to_path(model)?;
            // Absolute, so that unpickling finds the file after a change of directory.
            let full = absolute(&path).unwrap_or_else(|_| path.clone());
            (Source::Path(path), opened::Source::Path(full))
        }
    };
    let options = options.get().clone_options();
    let opening = py.detach(|| Opening::start(&source, &options));
    let mut opening = opening.map_err(|error| to_exception(py, &error))?;
    for given in opening.list_replaced().map_err(|error| to_exception(py, &error))? {
        let what = ValueName::Other("the initializer");
        let tensor =
            InputConverter::with_copies().convert_tensor(given.value.bind(py), None, &what);
        let tensor = tensor.map_err(|error| to_run_exception(py, error))?;
        opening.replace(&given.name, &tensor).map_err(|error| to_exception(py, &error))?;
    }
    let opened = py.detach(|| opening.finish()).map_err(|error| to_exception(py, &error))?;
    let Opened { model, threads, sizes, has_denoted_sizes, seed } = opened;
    let settings =
        Settings { threads, dims: sizes, seed, has_denoted_sizes, ..Settings::default() };
    let engine = Engine::build(py, model, kept, settings).map_err(|error| {
        let status = Status::of_model(&error, &source);
        to_exception(py, &sardonyx_ort::Error::from_sardonyx(status, &error))
    })?;
    Ok(PySession(engine))
}
