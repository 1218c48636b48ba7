//! `version_converter`: models converted between versions of the operator set `ai.onnx`.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sardonyx::convert::{ConvertError as Refused, Options, Target};
use sardonyx::{Model, Type};

use crate::errors::ConvertError;
use crate::message;
use crate::registry;
use crate::shape_inference::as_reference;

pub(crate) fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("ConvertError", module.py().get_type::<ConvertError>())?;
    module.add_function(wrap_pyfunction!(convert_version, module)?)
}

/// Converts a serialized ModelProto to another version of the operator set `ai.onnx`.
#[pyfunction]
#[pyo3(signature = (model, target_version, /))]
fn convert_version<'py>(
    py: Python<'py>,
    model: &[u8],
    target_version: i32,
) -> PyResult<Bound<'py, PyBytes>> {
    let model = message::read_model(model)?;
    let version = u32::try_from(target_version).map_err(|_| {
        PyRuntimeError::new_err(format!("opset version {target_version} does not exist"))
    })?;
    let registry = registry::snapshot().registry;
    let converted = py.detach(|| {
        let target = Target::new().opset("", version);
        let options = Options::new(target).like_onnx().registry(registry);
        let (mut converted, _) = model.convert(&options).map_err(failed)?;
        shape_outputs(&mut converted);
        Ok::<Model, PyErr>(converted)
    })?;
    Ok(PyBytes::new(py, &converted.to_bytes()))
}

/// Writes inferred types into a model that leaves the shape of an output open: the reference
/// implementation does so, and its checker refuses such a model.
fn shape_outputs(model: &mut Model) {
    let outputs = model.outputs();
    let is_open = |ty: Option<&Type>| matches!(ty, Some(Type::Tensor(ty)) if ty.shape.is_none());
    if outputs.iter().any(|output| is_open(output.ty())) {
        let found = model.infer(&as_reference(false));
        model.add_types(&found);
    }
}

fn failed(error: Refused) -> PyErr {
    let message = error.to_string();
    match error {
        Refused::NotHeld(_) => ConvertError::new_err(message),
        Refused::Target(_) | Refused::Refused(_) => PyRuntimeError::new_err(message),
    }
}
