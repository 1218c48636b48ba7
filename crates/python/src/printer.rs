//! `printer`: messages to text, in the form of the notation that the parser of the `onnx` package reads.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use sardonyx_model::Model;
use sardonyx_text::{Form, PrintOptions, PrintPart, Weights, model_to_text as print, part_to_text};

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
    text_of(py, model, Part::Model)
}

/// A serialized FunctionProto in the notation.
#[pyfunction]
#[pyo3(signature = (function, /))]
fn function_to_text(py: Python<'_>, function: &[u8]) -> PyResult<String> {
    text_of(py, function, Part::Function)
}

/// A serialized GraphProto in the notation.
#[pyfunction]
#[pyo3(signature = (graph, /))]
fn graph_to_text(py: Python<'_>, graph: &[u8]) -> PyResult<String> {
    text_of(py, graph, Part::Graph)
}

/// A serialized NodeProto in the notation.
#[pyfunction]
#[pyo3(signature = (node, /))]
fn node_to_text(py: Python<'_>, node: &[u8]) -> PyResult<String> {
    text_of(py, node, Part::Node)
}

fn text_of(py: Python<'_>, bytes: &[u8], part: Part) -> PyResult<String> {
    py.detach(|| {
        let model = message::read(bytes, part, &Header::default())?;
        let options = PrintOptions {
            form: Form::Portable,
            weights: Weights::Inline,
            inline_bytes: u64::MAX,
        };
        let printed = match part_of(&model, part) {
            Some(part) => part_to_text(&model, part, options),
            None => print(&model, options),
        };
        let (text, _) = printed.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        Ok(String::from_utf8_lossy(&text).trim_end().to_string())
    })
}

/// The part that was put into a model to be read; `None` for a whole model.
fn part_of(model: &Model, part: Part) -> Option<PrintPart> {
    match part {
        Part::Function => Some(PrintPart::Function(0)),
        Part::Graph => model.main.map(PrintPart::Graph),
        Part::Node => {
            let nodes = model.main_graph().map(|graph| &graph.nodes);
            nodes
                .and_then(|nodes| nodes.first())
                .map(|node| PrintPart::Node(*node))
        }
        _ => None,
    }
}
