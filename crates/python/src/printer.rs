//! The Python submodule `printer`: formats serialized messages in the ONNX text format, in a form
//! that the parser of the onnx package reads.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use sardonyx::Model;
use sardonyx::text::PrintOptions;
use sardonyx::tool::{ModelExt, TextForm};

use crate::errors::InferenceError;
use crate::message::{self, Header, Part};

/// Adds the functions of `sardonyx._core.printer` to `module`.
pub(crate) fn fill_module(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(model_to_text, module)?)?;
    module.add_function(wrap_pyfunction!(function_to_text, module)?)?;
    module.add_function(wrap_pyfunction!(graph_to_text, module)?)?;
    module.add_function(wrap_pyfunction!(node_to_text, module)?)
}

/// Formats a serialized ModelProto in the ONNX text format.
#[pyfunction]
#[pyo3(signature = (model, /))]
fn model_to_text(py: Python<'_>, model: &[u8]) -> PyResult<String> {
    read_and_format(py, || message::read_model(model), None)
}

/// Formats a serialized FunctionProto in the ONNX text format.
#[pyfunction]
#[pyo3(signature = (function, /))]
fn function_to_text(py: Python<'_>, function: &[u8]) -> PyResult<String> {
    part_to_text(py, function, Part::Function)
}

/// Formats a serialized GraphProto in the ONNX text format.
#[pyfunction]
#[pyo3(signature = (graph, /))]
fn graph_to_text(py: Python<'_>, graph: &[u8]) -> PyResult<String> {
    part_to_text(py, graph, Part::Graph)
}

/// Formats a serialized NodeProto in the ONNX text format.
#[pyfunction]
#[pyo3(signature = (node, /))]
fn node_to_text(py: Python<'_>, node: &[u8]) -> PyResult<String> {
    part_to_text(py, node, Part::Node)
}

/// Formats a serialized part of a model, such as a node, in the ONNX text format.
fn part_to_text(py: Python<'_>, bytes: &[u8], part: Part) -> PyResult<String> {
    read_and_format(py, || message::read_part(bytes, part, &Header::default()), Some(part))
}

/// Formats the model that `read` returns in the ONNX text format, or only the part of the type
/// `part` in this model.
///
/// # Errors
///
/// The errors of `read`; `InferenceError` for a tensor whose data does not match its shape;
/// `RuntimeError` for a model that the text format cannot express.
fn read_and_format(
    py: Python<'_>,
    read: impl FnOnce() -> PyResult<Model> + Send,
    part: Option<Part>,
) -> PyResult<String> {
    py.detach(|| {
        let model = read()?;
        // Would be printed without values, and so read back as a different tensor.
        if let Some(wrong) = model.find_wrong_raw_data() {
            return Err(InferenceError::new_err(format!("Data size mismatch: {wrong}")));
        }
        let options =
            PrintOptions::new().form(TextForm::Portable).inline_bytes(u64::MAX).like_onnx(true);
        let mut text = Vec::new();
        let printed = match part {
            Some(part) => options.print_message(&model, part).map(|(part, _)| text = part),
            None => options.print(&model, &mut text).map(drop),
        };
        printed.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        Ok(String::from_utf8_lossy(&text).trim_end().to_string())
    })
}
