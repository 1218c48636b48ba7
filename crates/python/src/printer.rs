//! `printer`: messages to text, in the form of the notation that the parser of the `onnx` package
//! reads.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use sardonyx::Model;
use sardonyx::text::PrintOptions;
use sardonyx::tool::{ModelExt, TextForm};

use crate::errors::InferenceError;
use crate::message::{self, Header, Part};

pub(crate) fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(model_to_text, module)?)?;
    module.add_function(wrap_pyfunction!(function_to_text, module)?)?;
    module.add_function(wrap_pyfunction!(graph_to_text, module)?)?;
    module.add_function(wrap_pyfunction!(node_to_text, module)?)
}

/// A serialized ModelProto in the notation.
#[pyfunction]
#[pyo3(signature = (model, /))]
fn model_to_text(py: Python<'_>, model: &[u8]) -> PyResult<String> {
    text_of(py, || message::read_model(model), None)
}

/// A serialized FunctionProto in the notation.
#[pyfunction]
#[pyo3(signature = (function, /))]
fn function_to_text(py: Python<'_>, function: &[u8]) -> PyResult<String> {
    part_to_text(py, function, Part::Function)
}

/// A serialized GraphProto in the notation.
#[pyfunction]
#[pyo3(signature = (graph, /))]
fn graph_to_text(py: Python<'_>, graph: &[u8]) -> PyResult<String> {
    part_to_text(py, graph, Part::Graph)
}

/// A serialized NodeProto in the notation.
#[pyfunction]
#[pyo3(signature = (node, /))]
fn node_to_text(py: Python<'_>, node: &[u8]) -> PyResult<String> {
    part_to_text(py, node, Part::Node)
}

fn part_to_text(py: Python<'_>, bytes: &[u8], part: Part) -> PyResult<String> {
    text_of(py, || message::read(bytes, part, &Header::default()), Some(part))
}

fn text_of(
    py: Python<'_>,
    read: impl FnOnce() -> PyResult<Model> + Send,
    part: Option<Part>,
) -> PyResult<String> {
    py.detach(|| {
        let model = read()?;
        // Such a tensor would be printed without values, and read back as another one.
        if let Some(wrong) = model.raw_data_of_wrong_size() {
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
