//! Inference of a single node or function, outside of a model.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use sardonyx::tool;
use sardonyx::tool::ModelExt;
use sardonyx::tool::infer::ProblemKind;
use sardonyx::tool::message::{NamedMessages, NodeContext, NodeOutputs, type_to_bytes};

use super::functions::with_functions;
use super::{make_reference_options, raise_problems};
use crate::checker::{make_onnx_options, raise_errors};
use crate::defs::description::Description;
use crate::errors::{InferenceError, ValidationError};
use crate::message::{self, Header, Part, to_parse_error};
use crate::registry;

/// Infers the output types of a serialized NodeProto by a description of its operator. Returns them
/// by output name.
///
/// # Errors
///
/// `ValidationError` if the node does not match the schema; `InferenceError` if its inputs
/// contradict each other; `ValueError` for bytes that are not a message.
pub(crate) fn infer_node_outputs(
    py: Python<'_>,
    description: &Description,
    node: &[u8],
    mut around: NodeContext,
) -> PyResult<NamedMessages> {
    let (operators, schema) = registry::take_snapshot().with_operator(description)?;
    let own_version = [(description.domain.clone(), i64::from(description.since))];
    let alone =
        Header { ir_version: around.header.ir_version, opset_imports: own_version.clone().into() };
    let checked = message::read_part(node, Part::Node, &alone)?;
    let options = make_onnx_options(operators.registry.clone());
    raise_errors(checked.check_part(tool::CheckPart::Signatures, &options))?;

    for (_, sparse) in &around.sparse_constants {
        message::read_part(sparse, Part::SparseTensor, &alone)?;
    }
    if around.header.opset_imports.is_empty() {
        around.header.opset_imports = own_version.into();
    }
    let options = make_reference_options(false).registry(operators.registry.clone());
    let functions = operators.collect_functions(Some((description, &schema)));
    let found = with_functions(py, &operators.registry, &functions, |rules| {
        tool::message::infer_node_outputs(node, &around, &schema, &options, rules)
    })?;
    let NodeOutputs { types, problems, .. } = found.map_err(to_parse_error)?;
    if let Some(problem) = problems.first() {
        let words = problem.to_string();
        return Err(match problem.kind {
            ProblemKind::Signature => ValidationError::new_err(words),
            _ => InferenceError::new_err(words),
        });
    }
    Ok(types.into_iter().map(|(name, ty)| (name, type_to_bytes(ty.as_ref()))).collect())
}

/// Infers the output types of a serialized FunctionProto from types of its inputs and values of its
/// attributes.
///
/// # Errors
///
/// `InferenceError` with all contradictions; `ValueError` for bytes that are not a message.
pub(super) fn infer_function_outputs(
    py: Python<'_>,
    function: &[u8],
    input_types: &[PyBackedBytes],
    attributes: &[PyBackedBytes],
) -> PyResult<Vec<Vec<u8>>> {
    let operators = registry::take_snapshot();
    let options =
        make_reference_options(false).check_types(true).registry(operators.registry.clone());
    let functions = operators.collect_functions(None);
    let found = with_functions(py, &operators.registry, &functions, |rules| {
        tool::message::infer_function_outputs(function, input_types, attributes, &options, rules)
    })?;
    let NodeOutputs { types, problems, .. } = found.map_err(to_parse_error)?;
    raise_problems(problems.into_iter())?;
    Ok(types.iter().map(|(_, ty)| type_to_bytes(ty.as_ref())).collect())
}
