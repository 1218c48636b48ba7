//! `parser`: text to messages.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sardonyx::text::ParseError;
use sardonyx::tool::{DiagnosticSeverity, TextPart, parse_part_like_onnx};

type Parsed<'py> = (bool, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

pub(crate) fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(parse_model, module)?)?;
    module.add_function(wrap_pyfunction!(parse_graph, module)?)?;
    module.add_function(wrap_pyfunction!(parse_function, module)?)?;
    module.add_function(wrap_pyfunction!(parse_node, module)?)?;
    module.add_function(wrap_pyfunction!(_parse, module)?)
}

/// Reads a model in the notation. Gives whether that went well, what is wrong, and the ModelProto.
#[pyfunction]
#[pyo3(signature = (text, /))]
fn parse_model<'py>(py: Python<'py>, text: &str) -> Parsed<'py> {
    parse(py, TextPart::Model, text)
}

/// Reads a graph in the notation. Gives whether that went well, what is wrong, and the GraphProto.
#[pyfunction]
#[pyo3(signature = (text, /))]
fn parse_graph<'py>(py: Python<'py>, text: &str) -> Parsed<'py> {
    parse(py, TextPart::Graph, text)
}

/// Reads a function in the notation. Gives whether that went well, what is wrong, and the
/// FunctionProto.
#[pyfunction]
#[pyo3(signature = (text, /))]
fn parse_function<'py>(py: Python<'py>, text: &str) -> Parsed<'py> {
    parse(py, TextPart::Function, text)
}

/// Reads a node in the notation. Gives whether that went well, what is wrong, and the NodeProto.
#[pyfunction]
#[pyo3(signature = (text, /))]
fn parse_node<'py>(py: Python<'py>, text: &str) -> Parsed<'py> {
    parse(py, TextPart::Node, text)
}

fn parse<'py>(py: Python<'py>, part: TextPart, text: &str) -> Parsed<'py> {
    let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
    match read(py, part, text) {
        Ok(message) => (true, bytes(b""), bytes(&message)),
        Err(error) => (false, bytes(error.to_string().as_bytes()), bytes(b"")),
    }
}

/// Something that is wrong with a text: whether it is an error, line, column, what, and what to do
/// about it.
type Wrong = (bool, usize, usize, String, Option<String>);

/// For the package's own parser: the message and nothing, or nothing and what is wrong, all
/// together as text and one by one.
#[pyfunction]
#[pyo3(signature = (part, text, /))]
fn _parse<'py>(
    py: Python<'py>,
    part: &str,
    text: &str,
) -> PyResult<(Option<Bound<'py, PyBytes>>, String, Vec<Wrong>)> {
    let part = match part {
        "model" => TextPart::Model,
        "graph" => TextPart::Graph,
        "function" => TextPart::Function,
        "node" => TextPart::Node,
        _ => return Err(PyValueError::new_err(format!("'{part}' is not a part"))),
    };
    Ok(match read(py, part, text) {
        Ok(message) => (Some(PyBytes::new(py, &message)), String::new(), Vec::new()),
        Err(error) => {
            let wrong = error.diagnostics().iter().map(|found| {
                let at = error.position(found);
                let is_error = found.severity == DiagnosticSeverity::Error;
                let (message, help) = (found.message.clone(), found.help.clone());
                (is_error, at.line, at.column, message, help)
            });
            (None, error.to_string(), wrong.collect())
        }
    })
}

fn read(py: Python<'_>, part: TextPart, text: &str) -> Result<Vec<u8>, ParseError> {
    py.detach(|| parse_part_like_onnx(part, text.as_bytes().to_vec()))
}
