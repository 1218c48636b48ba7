//! The Python submodule `inliner`: replaces calls of functions by the nodes of their bodies.

use pyo3::PyErr;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use sardonyx::edit::{EditError, InlineOptions};
use sardonyx::tool::schema::Registry;
use sardonyx::tool::{normalize_domain, shown_domain};
use sardonyx::{Model, check};

use crate::checker::raise_errors;
use crate::items::Items;
use crate::message;

/// Adds the functions of `sardonyx._core.inliner` to `module`.
pub(crate) fn fill_module(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(inline_local_functions, module)?)?;
    module.add_function(wrap_pyfunction!(inline_selected_functions, module)?)?;
    module.add_function(wrap_pyfunction!(inline_selected_functions2, module)?)
}

/// Inlines the functions of a serialized ModelProto.
///
/// Calls stay if the operators of the function differ at the opset versions of the model. With
/// `convert_version`, such a function is converted and inlined if an exact equivalent exists.
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

/// Inlines functions of a serialized ModelProto: those whose pair of domain and name is in
/// `function_ids`, or with `exclude`, all others.
#[pyfunction]
#[pyo3(signature = (model, function_ids, exclude, /))]
fn inline_selected_functions<'py>(
    py: Python<'py>,
    model: PyBackedBytes,
    function_ids: Items<(String, String)>,
    exclude: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    inline(py, model, |model| select_functions(model, &function_ids.0, exclude))
}

/// Inlines like `inline_selected_functions`, and also expands operators that the standard defines
/// by functions.
#[pyfunction]
#[pyo3(signature = (model, function_ids, exclude, /))]
fn inline_selected_functions2<'py>(
    py: Python<'py>,
    model: PyBackedBytes,
    function_ids: Items<(String, String)>,
    exclude: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    inline(py, model, |model| {
        let options = select_functions(model, &function_ids.0, exclude);
        let registry = Registry::standard();
        let operators = function_ids
            .0
            .iter()
            .filter(|(domain, name)| registry.operator(normalize_domain(domain), name).is_some())
            .map(|(domain, name)| to_pattern(domain, name));
        if exclude { options.operators_except(operators) } else { options.operators(operators) }
    })
}

/// Creates the options that inline the functions `ids` (domain and name) of a model; with
/// `exclude`, all other functions. Ignores ids of functions that the model does not have.
fn select_functions(model: &Model, ids: &[(String, String)], exclude: bool) -> InlineOptions {
    let there = model.functions();
    let known = ids.iter().filter(|(domain, name)| {
        there.iter().any(|found| {
            normalize_domain(&found.domain) == normalize_domain(domain) && found.name == *name
        })
    });
    let patterns = known.map(|(domain, name)| to_pattern(domain, name));
    let options = InlineOptions::new().without_conversion();
    if exclude { options.functions_except(patterns) } else { options.functions(patterns) }
}

/// Formats a domain and a name in the form of the inliner's patterns: `domain.name`.
fn to_pattern(domain: &str, name: &str) -> String {
    format!("{}.{name}", shown_domain(domain))
}

/// Inlines functions of a serialized ModelProto with the options that the closure `options` creates
/// for the model.
fn inline(
    py: Python<'_>,
    model: PyBackedBytes,
    options: impl FnOnce(&Model) -> InlineOptions + Send,
) -> PyResult<Bound<'_, PyBytes>> {
    let bytes = py.detach(|| {
        let mut model = message::read_shared(model)?;
        let options = options(&model);
        model.inline(&options).map_err(to_exception)?;
        Ok::<_, PyErr>(model.to_bytes())
    })?;
    Ok(PyBytes::new(py, &bytes))
}

/// Converts an error of the inliner: to a `ValidationError` for recursive or duplicate functions,
/// like the checker, and to a `RuntimeError` otherwise, like the onnx package.
fn to_exception(refusal: EditError) -> PyErr {
    if let EditError::NotInlinable(findings) = &refusal {
        let mut broken: Vec<check::Finding> = findings.clone();
        broken
            .retain(|found| matches!(found.code.name, "recursive-function" | "duplicate-function"));
        if !broken.is_empty() {
            let mut report = check::CheckReport::default();
            report.findings = broken;
            if let Err(error) = raise_errors(report) {
                return error;
            }
        }
    }
    PyRuntimeError::new_err(refusal.to_string())
}
