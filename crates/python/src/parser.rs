//! `parser`: text to messages.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sardonyx_tensor::Buffer;
use sardonyx_text::{ParseOptions, Part, parse_part};

type Parsed<'py> = (bool, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

pub(crate) fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(parse_model, module)?)?;
    module.add_function(wrap_pyfunction!(parse_graph, module)?)?;
    module.add_function(wrap_pyfunction!(parse_function, module)?)?;
    module.add_function(wrap_pyfunction!(parse_node, module)?)
}

/// Reads a model in the notation. Gives whether that went well, what is wrong, and the ModelProto.
#[pyfunction]
#[pyo3(signature = (text, /))]
fn parse_model<'py>(py: Python<'py>, text: &str) -> Parsed<'py> {
    parse(py, Part::Model, text)
}

/// Reads a graph in the notation. Gives whether that went well, what is wrong, and the GraphProto.
#[pyfunction]
#[pyo3(signature = (text, /))]
fn parse_graph<'py>(py: Python<'py>, text: &str) -> Parsed<'py> {
    parse(py, Part::Graph, text)
}

/// Reads a function in the notation. Gives whether that went well, what is wrong, and the FunctionProto.
#[pyfunction]
#[pyo3(signature = (text, /))]
fn parse_function<'py>(py: Python<'py>, text: &str) -> Parsed<'py> {
    parse(py, Part::Function, text)
}

/// Reads a node in the notation. Gives whether that went well, what is wrong, and the NodeProto.
#[pyfunction]
#[pyo3(signature = (text, /))]
fn parse_node<'py>(py: Python<'py>, text: &str) -> Parsed<'py> {
    parse(py, Part::Node, text)
}

fn parse<'py>(py: Python<'py>, part: Part, text: &str) -> Parsed<'py> {
    let result = py.detach(|| {
        let options = ParseOptions {
            any_count: true,
            ..ParseOptions::default()
        };
        let text = Buffer::from_vec(text.as_bytes().to_vec());
        parse_part(part, text, options).map_err(|error| error.to_string())
    });
    let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
    match result {
        Ok(message) => (true, bytes(b""), bytes(&message)),
        Err(error) => (false, bytes(error.as_bytes()), bytes(b"")),
    }
}
