//! `printer`: messages to text, in the form of the notation that the parser of the `onnx` package
//! reads.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use sardonyx_model::Model;
use sardonyx_proto::DataLocation;
use sardonyx_tensor::DataType;
use sardonyx_text::{Form, PrintOptions, PrintPart, Weights, model_to_text as print, part_to_text};

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
        refuse_wrong_sizes(&model)?;
        let options = PrintOptions {
            form: Form::Portable,
            weights: Weights::Inline,
            inline_bytes: u64::MAX,
            like_onnx: true,
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
            nodes.and_then(|nodes| nodes.first()).map(|node| PrintPart::Node(*node))
        }
        _ => None,
    }
}

/// A tensor whose bytes do not fit its shape would be printed without values, and read back as
/// another one.
fn refuse_wrong_sizes(model: &Model) -> PyResult<()> {
    for (index, id) in model.tensors().into_iter().enumerate() {
        let tensor = model.stored(id);
        let (Some(raw), Some(data_type)) =
            (tensor.raw_data, tensor.data_type.and_then(DataType::from_number))
        else {
            continue;
        };
        if tensor.data_location == Some(DataLocation::EXTERNAL) {
            continue;
        }
        if model.implied_bytes(tensor) != Some(raw.len) {
            let places = model.tensor_places();
            let place = places.get(index).map_or("a tensor", String::as_str);
            return Err(InferenceError::new_err(format!(
                "Data size mismatch: {place} has {} bytes of raw_data, which do not fit its shape {:?} of {}",
                raw.len,
                tensor.dims,
                data_type.name()
            )));
        }
    }
    Ok(())
}
