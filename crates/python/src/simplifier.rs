//! The Python submodule `simplifier`: models that compute the same with fewer nodes.

use pyo3::PyErr;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use sardonyx::edit::{EditError, SimplifyLevel, SimplifyOptions};

use crate::message;

/// Adds the functions of `sardonyx._core.simplifier` to `module`.
pub(crate) fn fill_module(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(simplify, module)?)
}

/// Simplifies a serialized ModelProto. Returns the simplified one.
#[pyfunction]
#[pyo3(signature = (model, level, grow, without, verify, /))]
fn simplify<'py>(
    py: Python<'py>,
    model: PyBackedBytes,
    level: &str,
    grow: Option<u64>,
    without: Vec<String>,
    verify: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    let level = match level {
        "exact" => SimplifyLevel::Exact,
        "close" => SimplifyLevel::Close,
        other => {
            let message = format!("unknown level '{other}'; levels are exact and close");
            return Err(PyValueError::new_err(message));
        }
    };
    let mut options = SimplifyOptions::new().level(level);
    if let Some(bytes) = grow {
        options = options.grow(bytes);
    }
    for rule in without {
        options = options.without_rule(rule);
    }
    if !verify {
        options = options.without_verification();
    }
    let bytes = py.detach(|| {
        let model = message::read_shared(model)?;
        let (simplified, _) = model.simplify(&options).map_err(to_exception)?;
        Ok::<_, PyErr>(simplified.to_bytes())
    })?;
    Ok(PyBytes::new(py, &bytes))
}

/// Converts an error to a `ValueError` for an option, and to a `RuntimeError` otherwise.
fn to_exception(error: EditError) -> PyErr {
    match error {
        EditError::Option(message) => PyValueError::new_err(message),
        error => PyRuntimeError::new_err(error.to_string()),
    }
}
