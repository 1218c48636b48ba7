//! The Python submodule `version_converter`: converts models between versions of the operator set
//! `ai.onnx`.

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sardonyx::convert::{Assumption, ConvertOptions, Target};
use sardonyx::edit::EditError;
use sardonyx::{Model, Type};

use crate::errors::ConvertError;
use crate::items::Items;
use crate::message;
use crate::registry;
use crate::shape_inference::make_reference_options;

/// Adds the functions of `sardonyx._core.version_converter` to `module`.
pub(crate) fn fill_module(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("ConvertError", module.py().get_type::<ConvertError>())?;
    module.add_function(wrap_pyfunction!(convert_version, module)?)?;
    module.add_function(wrap_pyfunction!(convert, module)?)
}

/// Converts a serialized ModelProto to another version of the operator set `ai.onnx`, with the
/// rules of the onnx package's converter. Raises `ConvertError` for a model that this converter
/// cannot represent, and `RuntimeError` for one that has no equivalent.
#[pyfunction]
#[pyo3(signature = (model, target_version, /))]
fn convert_version<'py>(
    py: Python<'py>,
    model: &[u8],
    target_version: i32,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut converted = convert_model(py, model, target_version, ConvertOptions::like_onnx)?;
    py.detach(|| infer_missing_shapes(&mut converted));
    Ok(PyBytes::new(py, &converted.to_bytes()))
}

/// Converts a serialized ModelProto to another version of the operator set `ai.onnx`, with the
/// rules of the command `sardonyx convert`. Raises `ValueError` for an unknown assumption, and
/// `RuntimeError` for a model that has no exact equivalent.
///
/// `assume` lists assumptions about the model, such as `inference`. `expand` replaces operators
/// without an equivalent by several nodes.
#[pyfunction]
#[pyo3(signature = (model, target_version, assume, expand, /))]
fn convert<'py>(
    py: Python<'py>,
    model: &[u8],
    target_version: i32,
    assume: Items<String>,
    expand: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut granted = Vec::new();
    for name in assume.0 {
        let found = Assumption::ALL.into_iter().find(|assumption| assumption.name() == name);
        granted.push(found.ok_or_else(|| {
            let names = Assumption::ALL.map(Assumption::name).join(", ");
            PyValueError::new_err(format!("assume has '{name}', which is not one of {names}"))
        })?);
    }
    let converted = convert_model(py, model, target_version, |options| {
        let options = granted.into_iter().fold(options, ConvertOptions::assume);
        if expand { options } else { options.without_expansion() }
    })?;
    Ok(PyBytes::new(py, &converted.to_bytes()))
}

/// Converts a serialized ModelProto with options that `how` completes.
fn convert_model(
    py: Python<'_>,
    model: &[u8],
    target_version: i32,
    how: impl FnOnce(ConvertOptions) -> ConvertOptions + Send,
) -> PyResult<Model> {
    let model = message::read_model(model)?;
    let version = u32::try_from(target_version).map_err(|_| {
        PyRuntimeError::new_err(format!("opset version {target_version} does not exist"))
    })?;
    let registry = registry::take_snapshot().registry;
    py.detach(|| {
        let target = Target::new().opset("", version);
        let options = how(ConvertOptions::new(target)).registry(registry);
        model.convert(&options).map(|(converted, _)| converted)
    })
    .map_err(to_exception)
}

/// Infers types and shapes of a model if one of its outputs has no shape. The onnx package's
/// converter does so too, and its checker rejects such a model.
fn infer_missing_shapes(model: &mut Model) {
    let outputs = model.outputs();
    let lacks_shape = outputs
        .iter()
        .any(|output| matches!(output.ty(), Some(Type::Tensor(ty)) if ty.shape.is_none()));
    if lacks_shape {
        let found = model.infer(&make_reference_options(false));
        model.add_types(&found);
    }
}

/// Converts an error of the converter to an exception.
fn to_exception(error: EditError) -> PyErr {
    let message = error.to_string();
    match error {
        EditError::NotRepresentable(_) => ConvertError::new_err(message),
        _ => PyRuntimeError::new_err(message),
    }
}
