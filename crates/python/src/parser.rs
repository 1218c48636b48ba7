//! The Python submodule `parser`: parses the ONNX text format to serialized messages.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sardonyx::text::ParseError;
use sardonyx::tool::{DiagnosticSeverity, TextPart, parse_part_like_onnx};

/// Result of parsing like in the onnx package: success, error messages, serialized message.
type Parsed<'py> = (bool, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// Adds the functions of `sardonyx._core.parser` to `module`.
pub(crate) fn fill_module(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(parse_model, module)?)?;
    module.add_function(wrap_pyfunction!(parse_graph, module)?)?;
    module.add_function(wrap_pyfunction!(parse_function, module)?)?;
    module.add_function(wrap_pyfunction!(parse_node, module)?)?;
    module.add_function(wrap_pyfunction!(_parse, module)?)
}

/// Parses a model in the ONNX text format. Returns a tuple of success, error messages, and the
/// serialized ModelProto.
#[pyfunction]
#[pyo3(signature = (text, /))]
fn parse_model<'py>(py: Python<'py>, text: &str) -> Parsed<'py> {
    parse(py, TextPart::Model, text)
}

/// Parses a graph in the ONNX text format. Returns a tuple of success, error messages, and the
/// serialized GraphProto.
#[pyfunction]
#[pyo3(signature = (text, /))]
fn parse_graph<'py>(py: Python<'py>, text: &str) -> Parsed<'py> {
    parse(py, TextPart::Graph, text)
}

/// Parses a function in the ONNX text format. Returns a tuple of success, error messages, and the
/// serialized FunctionProto.
#[pyfunction]
#[pyo3(signature = (text, /))]
fn parse_function<'py>(py: Python<'py>, text: &str) -> Parsed<'py> {
    parse(py, TextPart::Function, text)
}

/// Parses a node in the ONNX text format. Returns a tuple of success, error messages, and the
/// serialized NodeProto.
#[pyfunction]
#[pyo3(signature = (text, /))]
fn parse_node<'py>(py: Python<'py>, text: &str) -> Parsed<'py> {
    parse(py, TextPart::Node, text)
}

/// Parses a part of a model in the ONNX text format. Returns success, error messages and the
/// serialized message.
fn parse<'py>(py: Python<'py>, part: TextPart, text: &str) -> Parsed<'py> {
    let empty = PyBytes::new(py, b"");
    match parse_part(py, part, text) {
        Ok(message) => (true, empty, PyBytes::new(py, &message)),
        Err(error) => (false, PyBytes::new(py, error.to_string().as_bytes()), empty),
    }
}

/// Problem in a text of the ONNX text format: whether the problem is an error (else a warning),
/// line, column, message, and advice.
type ProblemFacts = (bool, usize, usize, String, Option<String>);

/// Parses a part of a model for the Python package. Returns a tuple of the serialized message (None
/// after an error), all problems as one text, and the list of problems. Raises `ValueError` for an
/// unknown part.
#[pyfunction]
#[pyo3(signature = (part, text, /))]
fn _parse<'py>(
    py: Python<'py>,
    part: &str,
    text: &str,
) -> PyResult<(Option<Bound<'py, PyBytes>>, String, Vec<ProblemFacts>)> {
    let part = match part {
        "model" => TextPart::Model,
        "graph" => TextPart::Graph,
        "function" => TextPart::Function,
        "node" => TextPart::Node,
        _ => return Err(PyValueError::new_err(format!("'{part}' is not a part of a model"))),
    };
    Ok(match parse_part(py, part, text) {
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

/// Parses a part of a model by the rules of the onnx package, without the GIL.
fn parse_part(py: Python<'_>, part: TextPart, text: &str) -> Result<Vec<u8>, ParseError> {
    py.detach(|| parse_part_like_onnx(part, text.as_bytes().to_vec()))
}
