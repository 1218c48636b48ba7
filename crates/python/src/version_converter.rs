//! `version_converter`: models converted between versions of the operator set `ai.onnx`.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sardonyx::convert::{Assumption, ConvertError as Refused, Options, Target};
use sardonyx::ops::Registry;
use sardonyx::{Model, Type};

use crate::checker::like_onnx;
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
        PyRuntimeError::new_err(format!("there is no opset version {target_version}"))
    })?;
    let registry = registry::snapshot().registry;
    let converted = py.detach(|| {
        refuse_undefined(&model, &registry)?;
        // As in the reference implementation, which replaces no node by a function, makes nodes of
        // constants, takes an input with a default for a constant, and computes with floats
        // where older versions do not take integers.
        let options = Options::new(Target::new().opset("", version))
            .without_expansion()
            .assume(Assumption::Inference)
            .assume(Assumption::DefaultInputs)
            .assume(Assumption::IntegersInFloats)
            .constants_as_nodes()
            .registry(registry);
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

/// Refuses a model in which names are read that nothing defines: the reference implementation
/// cannot hold one, and says so with an exception of its own.
fn refuse_undefined(model: &Model, registry: &Registry) -> PyResult<()> {
    let report = model.check(&like_onnx(registry.clone()));
    let mut findings = report.findings.iter();
    let undefined = ["undefined-value", "undefined-output"];
    match findings.find(|finding| undefined.contains(&finding.code.name)) {
        Some(finding) => Err(ConvertError::new_err(finding.to_string())),
        None => Ok(()),
    }
}

fn failed(error: Refused) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}
