//! `inliner`: calls of functions replaced by what they do.

use pyo3::prelude::*;

use crate::errors::not_available;

const WHAT: &str = "inlining functions";

pub(crate) fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(inline_local_functions, module)?)?;
    module.add_function(wrap_pyfunction!(inline_selected_functions, module)?)?;
    module.add_function(wrap_pyfunction!(inline_selected_functions2, module)?)
}

/// Inlines the functions of a serialized ModelProto.
#[pyfunction]
#[pyo3(signature = (model, convert_version, /))]
fn inline_local_functions(model: &[u8], convert_version: bool) -> PyResult<Vec<u8>> {
    let _ = (model, convert_version);
    Err(not_available(WHAT))
}

/// Inlines some functions of a serialized ModelProto, named by domain and name.
#[pyfunction]
#[pyo3(signature = (model, function_ids, exclude, /))]
fn inline_selected_functions(
    model: &[u8],
    function_ids: Vec<(String, String)>,
    exclude: bool,
) -> PyResult<Vec<u8>> {
    let _ = (model, function_ids, exclude);
    Err(not_available(WHAT))
}

/// The same, also for operators that the standard defines by functions.
#[pyfunction]
#[pyo3(signature = (model, function_ids, exclude, /))]
fn inline_selected_functions2(
    model: &[u8],
    function_ids: Vec<(String, String)>,
    exclude: bool,
) -> PyResult<Vec<u8>> {
    let _ = (model, function_ids, exclude);
    Err(not_available(WHAT))
}
