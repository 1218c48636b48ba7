//! Opening a model as onnxruntime does: with weights, files and sizes that a caller gives beside
//! it.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyDict;
use sardonyx::tool::ModelExt;
use sardonyx::tool::NEWEST_IR_VERSION;
use sardonyx::{ErrorKind, Model, OpenOptions};

use super::PySession;
use super::engine::Engine;
use super::errors::{of_kind, raised, wrong_argument};
use super::opened::{Source, opened_with};
use super::settings::{Settings, sizes};
use super::take::{Taker, What};
use crate::message;

/// Weights, files and sizes that a caller gives beside a model.
#[derive(FromPyObject)]
pub(crate) struct Outside<'py> {
    /// Numbers for sizes of inputs, by the denotation of their axis.
    denoted: Vec<(String, usize)>,
    /// Directory of the data files of a model given as bytes; None for that of the process.
    directory: Option<PathBuf>,
    /// Contents of data files by location. With one of them, no file is looked for.
    files: Vec<(String, PyBackedBytes)>,
    initializers: Vec<GivenInitializer<'py>>,
}

/// A value in the place of an initializer: the name, the value, and whether the model must have an
/// initializer of that name whose values are in a data file.
type GivenInitializer<'py> = (String, Bound<'py, PyAny>, bool);

/// Makes a session as onnxruntime makes one: of at most as many threads as there are processors;
/// names in `dims` that no input has are left out, and a newer version of the format is refused.
///
/// `outside` has the attributes `denoted`, `directory`, `files` and `initializers`.
#[pyfunction]
#[pyo3(signature = (model, threads, dims, seed, outside, /))]
pub(crate) fn open_for_ort(
    model: &Bound<'_, PyAny>,
    threads: usize,
    dims: &Bound<'_, PyDict>,
    seed: Option<u64>,
    outside: Outside<'_>,
) -> PyResult<PySession> {
    let py = model.py();
    let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let Outside { denoted, directory, files, initializers } = outside;
    let settings = Settings {
        threads: (threads > 0).then_some(threads.min(processors)),
        dims: sizes(Some(dims))?,
        seed,
        ignores_other_dims: true,
        has_denoted_sizes: !denoted.is_empty(),
        ..Settings::default()
    };
    let has_files = !files.is_empty();
    let mut options = OpenOptions::new();
    if has_files {
        let shared = |(name, content)| (name, message::shared(content));
        let files: HashMap<String, _> = files.into_iter().map(shared).collect();
        options = options.resolver(Arc::new(files));
    }
    let (mut model, source) = opened_with(model, &options)?;
    demand_known_version(py, &model)?;
    for given in initializers {
        set_initializer(&mut model, given)?;
    }
    model.declare_dictionary_rows();
    for (denotation, size) in denoted {
        model.fix_denoted(&denotation, size);
    }
    let is_bytes = matches!(source, Source::Bytes(_));
    if is_bytes && !has_files && !model.external_files().is_empty() {
        let directory = directory.unwrap_or_else(|| PathBuf::from("."));
        model.look_in(directory).map_err(|error| raised(py, &error))?;
    }
    Ok(PySession(Engine::make(py, model, source, settings)?))
}

/// Refuses a model of a version of the format that is not known.
fn demand_known_version(py: Python<'_>, model: &Model) -> PyResult<()> {
    let Some(version) = model.ir_version().filter(|version| *version > NEWEST_IR_VERSION) else {
        return Ok(());
    };
    let what = format!(
        "the model has IR version {version}; the newest known version is {NEWEST_IR_VERSION}"
    );
    let help = "update Sardonyx, or export the model for an older IR version";
    Err(of_kind(py, ErrorKind::Unsupported, what, Some(help)))
}

/// Replaces an initializer, if the model has it.
fn set_initializer(
    model: &mut Model,
    (name, value, must_be_external): GivenInitializer<'_>,
) -> PyResult<()> {
    let py = value.py();
    let found = model.initializer(&name);
    if must_be_external && !found.as_ref().is_some_and(|found| found.is_external) {
        let what = match found {
            None => format!("the model has no initializer '{name}'"),
            Some(_) => format!("the values of the initializer '{name}' are in no data file"),
        };
        return Err(wrong_argument(py, what, Some("use add_initializer, which replaces any one")));
    }
    if found.is_none() {
        return Ok(());
    }
    let tensor = Taker::copying().tensor(&value, None, &What::Other("the initializer"))?;
    model.set_initializer(&name, &tensor).map_err(|error| raised(py, &error))
}
