//! `version_converter`: models of one operator set version as models of another.

use pyo3::prelude::*;

use crate::errors::{ConvertError, not_available, with_the_extension};
use crate::message;

pub(crate) fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("ConvertError", module.py().get_type::<ConvertError>())?;
    module.add_function(wrap_pyfunction!(convert_version, module)?)
}

/// Converts a serialized ModelProto to another version of the operator set `ai.onnx`.
#[pyfunction]
#[pyo3(signature = (model, target_version, /))]
fn convert_version(model: &[u8], target_version: i32) -> PyResult<Vec<u8>> {
    let _ = target_version;
    message::read_model(model)?;
    Err(not_available(
        "converting models between operator set versions",
        &format!(
            "{} Sardonyx itself takes models of every version: checking, inferring and running need no conversion.",
            with_the_extension("onnx.version_converter.convert_version")
        ),
    ))
}
