//! `shape_inference`: types and shapes of all values.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::errors::{InferenceError, not_available};
use crate::message::{self, Header, Part};

const WHAT: &str = "shape inference";

pub(crate) fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("InferenceError", module.py().get_type::<InferenceError>())?;
    module.add_class::<InferenceContext>()?;
    module.add_class::<GraphInferencer>()?;
    module.add_function(wrap_pyfunction!(infer_shapes, module)?)?;
    module.add_function(wrap_pyfunction!(infer_shapes_path, module)?)?;
    module.add_function(wrap_pyfunction!(infer_function_output_types, module)?)
}

/// Writes inferred types into a serialized ModelProto.
#[pyfunction]
#[pyo3(signature = (bytes, check_type=false, strict_mode=false, data_prop=false))]
fn infer_shapes(
    bytes: &[u8],
    check_type: bool,
    strict_mode: bool,
    data_prop: bool,
) -> PyResult<Vec<u8>> {
    let _ = (check_type, strict_mode, data_prop);
    message::read(bytes, Part::Model, &Header::default())?;
    Err(not_available(WHAT))
}

/// Writes inferred types into a model file.
#[pyfunction]
#[pyo3(signature = (model_path, output_path, check_type, strict_mode, data_prop, /))]
fn infer_shapes_path(
    model_path: &str,
    output_path: &str,
    check_type: bool,
    strict_mode: bool,
    data_prop: bool,
) -> PyResult<()> {
    let _ = (model_path, output_path, check_type, strict_mode, data_prop);
    Err(not_available(WHAT))
}

/// The types of the outputs of a serialized FunctionProto for types of its inputs and values of its attributes.
#[pyfunction]
#[pyo3(signature = (function, input_types, attributes, /))]
fn infer_function_output_types(
    function: &[u8],
    input_types: Vec<Vec<u8>>,
    attributes: Vec<Vec<u8>>,
) -> PyResult<Vec<Vec<u8>>> {
    let _ = (input_types, attributes);
    message::read(function, Part::Function, &Header::default())?;
    Err(not_available(WHAT))
}

/// What an inference function knows of the node whose outputs it types. Made by the library only.
#[pyclass(module = "sardonyx.shape_inference")]
pub(crate) struct InferenceContext(());

#[pymethods]
impl InferenceContext {
    #[new]
    fn new() -> PyResult<InferenceContext> {
        Err(PyTypeError::new_err(
            "an InferenceContext is made by shape inference",
        ))
    }
}

/// Infers a graph that is an attribute. Made by the library only.
#[pyclass(module = "sardonyx.shape_inference")]
pub(crate) struct GraphInferencer(());

#[pymethods]
impl GraphInferencer {
    #[new]
    fn new() -> PyResult<GraphInferencer> {
        Err(PyTypeError::new_err(
            "a GraphInferencer is made by shape inference",
        ))
    }
}
