//! `version_converter`: models converted between versions of the operator set `ai.onnx`.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sardonyx::Model;
use sardonyx::convert::{Assumption, ConvertError as Refused, Options, Target};
use sardonyx::ops::Registry;

use crate::checker::like_onnx;
use crate::errors::ConvertError;
use crate::message;
use crate::registry;

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
        // As in the reference implementation, which replaces no node by a function.
        let options = Options::new(Target::new().opset("", version))
            .without_expansion()
            .assume(Assumption::Inference)
            .registry(registry);
        model.convert(&options).map_err(failed)
    })?;
    Ok(PyBytes::new(py, &converted.0.to_bytes()))
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
