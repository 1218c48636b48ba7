//! `version_converter`: models converted between versions of the operator set `ai.onnx`.

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sardonyx::convert::{Assumption, ConvertOptions, Target};
use sardonyx::edit::EditError;
use sardonyx::{Model, Type};

use crate::errors::ConvertError;
use crate::message;
use crate::registry;
use crate::shape_inference::as_reference;

pub(crate) fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("ConvertError", module.py().get_type::<ConvertError>())?;
    module.add_function(wrap_pyfunction!(convert_version, module)?)?;
    module.add_function(wrap_pyfunction!(convert, module)?)
}

/// Converts a serialized ModelProto to another version of the operator set `ai.onnx`, as the
/// converter of the onnx package does.
#[pyfunction]
#[pyo3(signature = (model, target_version, /))]
fn convert_version<'py>(
    py: Python<'py>,
    model: &[u8],
    target_version: i32,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut converted = converted(py, model, target_version, ConvertOptions::like_onnx)?;
    py.detach(|| shape_outputs(&mut converted));
    Ok(PyBytes::new(py, &converted.to_bytes()))
}

/// Converts a serialized ModelProto to another version of the operator set `ai.onnx`, as the
/// command `convert` does.
#[pyfunction]
#[pyo3(signature = (model, target_version, assume, expand, /))]
fn convert<'py>(
    py: Python<'py>,
    model: &[u8],
    target_version: i32,
    assume: Vec<String>,
    expand: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut granted = Vec::new();
    for name in assume {
        let found = Assumption::ALL.into_iter().find(|assumption| assumption.name() == name);
        granted.push(found.ok_or_else(|| {
            let names = Assumption::ALL.map(Assumption::name).join(", ");
            PyValueError::new_err(format!("assume has '{name}', which is not one of {names}"))
        })?);
    }
    let converted = converted(py, model, target_version, |options| {
        let options = granted.into_iter().fold(options, ConvertOptions::assume);
        if expand { options } else { options.without_expansion() }
    })?;
    Ok(PyBytes::new(py, &converted.to_bytes()))
}

fn converted(
    py: Python<'_>,
    model: &[u8],
    target_version: i32,
    how: impl FnOnce(ConvertOptions) -> ConvertOptions + Send,
) -> PyResult<Model> {
    let model = message::read_model(model)?;
    let version = u32::try_from(target_version).map_err(|_| {
        PyRuntimeError::new_err(format!("opset version {target_version} does not exist"))
    })?;
    let registry = registry::snapshot().registry;
    py.detach(|| {
        let target = Target::new().opset("", version);
        let options = how(ConvertOptions::new(target)).registry(registry);
        model.convert(&options).map(|(converted, _)| converted)
    })
    .map_err(failed)
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

fn failed(error: EditError) -> PyErr {
    let message = error.to_string();
    match error {
        EditError::NotRepresentable(_) => ConvertError::new_err(message),
        _ => PyRuntimeError::new_err(message),
    }
}
