//! Facts about standard operators beyond their schemas: function bodies and determinism.

use sardonyx::tool::schema::{OpDef, Schema};
use sardonyx::tool::{OperatorFunction, schema};

use super::enums::Determinism;
use sardonyx::tool::message::types_from_bytes;

/// Opset versions for which an operator version has a function body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bodies {
    /// Opset versions with a function body that is the same for every node.
    pub(crate) fixed: Vec<i32>,
    /// Opset versions with a function body that depends on the node's attributes and types.
    pub(crate) of_node: Vec<i32>,
}

/// Lists the opset versions for which a version of an operator has a function body; none for
/// operators that Python code registered.
pub(crate) fn list_bodies(operator: Option<&'static OpDef>, since: i32) -> Bodies {
    let mut bodies = Bodies::default();
    let (Some(operator), Ok(version)) = (operator, u32::try_from(since)) else {
        return bodies;
    };
    for function in operator.functions_of(version) {
        let list = if function.needs_call { &mut bodies.of_node } else { &mut bodies.fixed };
        list.extend(i32::try_from(function.since));
    }
    bodies
}

/// Returns the function body of an operator for an opset version, by default `since`, as a
/// serialized FunctionProto; empty if there is none. Does not check whether operators in the body
/// have changed since.
pub(crate) fn make_function_body(
    operator: Option<&'static OpDef>,
    since: i32,
    opset: Option<i32>,
) -> Vec<u8> {
    let opset = opset.unwrap_or(since);
    let fixed = list_bodies(operator, since).fixed;
    let written_for = fixed.into_iter().rfind(|version| *version <= opset);
    let function = operator.zip(written_for).and_then(|(operator, version)| {
        OperatorFunction::find(operator.domain, operator.name, u32::try_from(version).ok()?)
    });
    serialize(function)
}

/// Returns the function body for one node, as a serialized FunctionProto, from a serialized
/// NodeProto and the TypeProtos of its inputs. Empty if there is none for exactly this opset
/// version.
pub(crate) fn make_node_function_body(
    operator: Option<&'static OpDef>,
    since: i32,
    opset: Option<i32>,
    node: &[u8],
    types: &[impl AsRef<[u8]>],
) -> Vec<u8> {
    let bodies = list_bodies(operator, since).of_node;
    let opset = match opset {
        Some(opset) if bodies.contains(&opset) => opset,
        None if !bodies.is_empty() => since,
        _ => return Vec::new(),
    };
    let types = types_from_bytes(types);
    let opset = u32::try_from(opset).unwrap_or(0);
    let function = OperatorFunction::from_call(node.to_vec(), &types, opset);
    serialize(function.ok().flatten())
}

/// Serializes the function body of an operator; empty for `None`, or for a function that cannot be
/// serialized.
fn serialize(function: Option<OperatorFunction>) -> Vec<u8> {
    let bytes = function.and_then(|function| function.to_bytes().ok());
    bytes.unwrap_or_default()
}

/// Returns whether an operator computes equal outputs from equal inputs. An operator that runs a
/// subgraph counts as nondeterministic.
pub(crate) fn find_determinism(schema: &Schema) -> Determinism {
    match schema.determinism {
        schema::Determinism::Unknown => Determinism::Unknown,
        schema::Determinism::Deterministic => Determinism::Deterministic,
        schema::Determinism::NonDeterministic => Determinism::NonDeterministic,
    }
}
