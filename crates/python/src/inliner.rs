//! `inliner`: calls of functions replaced by what they do.

use pyo3::PyErr;
use pyo3::prelude::*;

use crate::errors::{not_available, with_the_extension};
use crate::message;

pub(crate) fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(inline_local_functions, module)?)?;
    module.add_function(wrap_pyfunction!(inline_selected_functions, module)?)?;
    module.add_function(wrap_pyfunction!(inline_selected_functions2, module)?)
}

/// Inlines the functions of a serialized ModelProto.
#[pyfunction]
#[pyo3(signature = (model, convert_version, /))]
fn inline_local_functions(model: &[u8], convert_version: bool) -> PyResult<Vec<u8>> {
    let _ = convert_version;
    Err(refusal(model, "onnx.inliner.inline_local_functions"))
}

/// Inlines some functions of a serialized ModelProto, named by domain and name.
#[pyfunction]
#[pyo3(signature = (model, function_ids, exclude, /))]
fn inline_selected_functions(
    model: &[u8],
    function_ids: Vec<(String, String)>,
    exclude: bool,
) -> PyResult<Vec<u8>> {
    let _ = (function_ids, exclude);
    Err(refusal(model, "onnx.inliner.inline_selected_functions"))
}

/// The same, also for operators that the standard defines by functions.
#[pyfunction]
#[pyo3(signature = (model, function_ids, exclude, /))]
fn inline_selected_functions2(
    model: &[u8],
    function_ids: Vec<(String, String)>,
    exclude: bool,
) -> PyResult<Vec<u8>> {
    let _ = (function_ids, exclude);
    Err(refusal(model, "onnx.inliner.inline_selected_functions"))
}

/// Why there is no answer: the bytes are not a model, or this version does not inline.
fn refusal(model: &[u8], function: &str) -> PyErr {
    if let Err(error) = message::read_model(model) {
        return error;
    }
    not_available(
        "inlining functions",
        &format!(
            "{} Checking and inferring shapes need no inlining: both follow calls of functions.",
            with_the_extension(function)
        ),
    )
}
