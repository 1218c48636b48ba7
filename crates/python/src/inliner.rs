//! `inliner`: calls of functions replaced by what they do.

use pyo3::PyErr;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use sardonyx::edit::{EditError, InlineOptions};
use sardonyx::tool::schema::Registry;
use sardonyx::{Model, check};

use crate::checker::verdict;
use crate::message;

pub(crate) fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(inline_local_functions, module)?)?;
    module.add_function(wrap_pyfunction!(inline_selected_functions, module)?)?;
    module.add_function(wrap_pyfunction!(inline_selected_functions2, module)?)
}

/// Inlines the functions of a serialized ModelProto.
///
/// Functions whose operators are not the same at the versions of the model are converted, if that
/// is asked for; calls of those that are not stay.
#[pyfunction]
#[pyo3(signature = (model, convert_version, /))]
fn inline_local_functions<'py>(
    py: Python<'py>,
    model: PyBackedBytes,
    convert_version: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    inline(py, model, |_| {
        let options = InlineOptions::new().keep_conflicting(true);
        if convert_version { options } else { options.without_conversion() }
    })
}

/// Inlines some functions of a serialized ModelProto, named by domain and name.
#[pyfunction]
#[pyo3(signature = (model, function_ids, exclude, /))]
fn inline_selected_functions<'py>(
    py: Python<'py>,
    model: PyBackedBytes,
    function_ids: Vec<(String, String)>,
    exclude: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    inline(py, model, |model| functions(model, &function_ids, exclude))
}

/// The same, also for operators that the standard defines by functions.
#[pyfunction]
#[pyo3(signature = (model, function_ids, exclude, /))]
fn inline_selected_functions2<'py>(
    py: Python<'py>,
    model: PyBackedBytes,
    function_ids: Vec<(String, String)>,
    exclude: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    inline(py, model, |model| {
        let options = functions(model, &function_ids, exclude);
        let registry = Registry::standard();
        let is_operator =
            |id: &&(String, String)| registry.operator(normal(&id.0), &id.1).is_some();
        let operators = function_ids.iter().filter(is_operator).map(pattern);
        if exclude { options.operators_except(operators) } else { options.operators(operators) }
    })
}

/// Ids that the model does not have are passed over.
fn functions(model: &Model, ids: &[(String, String)], exclude: bool) -> InlineOptions {
    let there = model.functions();
    let is_there = |(domain, name): &&(String, String)| {
        there.iter().any(|found| normal(&found.domain) == normal(domain) && found.name == *name)
    };
    let patterns = ids.iter().filter(is_there).map(pattern);
    let options = InlineOptions::new().without_conversion();
    if exclude { options.except(patterns) } else { options.only(patterns) }
}

fn normal(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

fn pattern((domain, name): &(String, String)) -> String {
    let domain = if domain.is_empty() { "ai.onnx" } else { domain };
    format!("{domain}.{name}")
}

fn inline(
    py: Python<'_>,
    model: PyBackedBytes,
    options: impl FnOnce(&Model) -> InlineOptions + Send,
) -> PyResult<Bound<'_, PyBytes>> {
    let bytes = py.detach(|| {
        let mut model = message::read_shared(model)?;
        let options = options(&model);
        model.inline(&options).map_err(exception)?;
        Ok::<_, PyErr>(model.to_bytes())
    })?;
    Ok(PyBytes::new(py, &bytes))
}

/// Functions that break the standard are refused as the checker does, all else is what the `onnx`
/// package raises where it cannot go on.
fn exception(refusal: EditError) -> PyErr {
    if let EditError::NotInlinable(findings) = &refusal {
        let is_broken = |found: &&check::Finding| {
            matches!(found.code.name, "recursive-function" | "duplicate-function")
        };
        let broken: Vec<check::Finding> = findings.iter().filter(is_broken).cloned().collect();
        if !broken.is_empty() {
            let mut report = check::CheckReport::default();
            report.findings = broken;
            if let Err(error) = verdict(report) {
                return error;
            }
        }
    }
    PyRuntimeError::new_err(refusal.to_string())
}
