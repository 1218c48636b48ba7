//! What the operators of the standard are beyond their schemas: functions of simpler ones,
//! repeatable or not.

use sardonyx::tool::schema::{OpDef, Schema};
use sardonyx::tool::{OperatorFunction, schema};

use super::enums::Determinism;
use sardonyx::tool::message::types_from_bytes;

/// Opset versions for which a version of an operator has a body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bodies {
    /// Of bodies that are the same for every node.
    pub(crate) fixed: Vec<i32>,
    /// Of bodies that depend on the node.
    pub(crate) of_node: Vec<i32>,
}

/// The bodies that a version of an operator has. Operators of programs have none.
pub(crate) fn bodies(operator: Option<&'static OpDef>, since: i32) -> Bodies {
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

/// The body of an operator for an opset version (that of the operator if none is given) as a
/// FunctionProto; empty if there is none. Whether operators in it have changed since is the
/// caller's business.
pub(crate) fn body(operator: Option<&'static OpDef>, since: i32, opset: Option<i32>) -> Vec<u8> {
    let opset = opset.unwrap_or(since);
    let fixed = bodies(operator, since).fixed;
    let written_for = fixed.into_iter().rfind(|version| *version <= opset);
    let function = operator.zip(written_for).and_then(|(operator, version)| {
        OperatorFunction::find(operator.domain, operator.name, u32::try_from(version).ok()?)
    });
    serialized(function)
}

/// The body for a node, a NodeProto, whose inputs have these types, TypeProtos; empty if there is
/// none for exactly this opset version.
pub(crate) fn body_of_node(
    operator: Option<&'static OpDef>,
    since: i32,
    opset: Option<i32>,
    node: &[u8],
    types: &[Vec<u8>],
) -> Vec<u8> {
    let bodies = bodies(operator, since).of_node;
    let opset = match opset {
        Some(opset) if bodies.contains(&opset) => opset,
        None if !bodies.is_empty() => since,
        _ => return Vec::new(),
    };
    let types = types_from_bytes(types);
    let opset = u32::try_from(opset).unwrap_or(0);
    let function = OperatorFunction::from_call(node.to_vec(), &types, opset);
    serialized(function.ok().flatten())
}

fn serialized(function: Option<OperatorFunction>) -> Vec<u8> {
    let bytes = function.and_then(|function| function.to_bytes().ok());
    bytes.unwrap_or_default()
}

/// Whether an operator gives equal outputs for equal inputs. One that runs a graph may run
/// anything.
pub(crate) fn determinism(schema: &Schema) -> Determinism {
    match schema.determinism {
        schema::Determinism::Unknown => Determinism::Unknown,
        schema::Determinism::Deterministic => Determinism::Deterministic,
        schema::Determinism::NonDeterministic => Determinism::NonDeterministic,
    }
}
