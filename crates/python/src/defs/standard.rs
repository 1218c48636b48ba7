//! What the operators of the standard are beyond their schemas: functions of simpler ones, repeatable or not.

use sardonyx_ops::{AttrType, OpDef, Schema};

use super::enums::Determinism;

/// Opset versions for which a version of an operator has a body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bodies {
    /// Of bodies that are the same for every node.
    pub(crate) fixed: Vec<i32>,
    /// Of bodies that depend on the node.
    pub(crate) of_node: Vec<i32>,
}

/// The bodies that a version of an operator has. Operators of programs have none.
pub(crate) fn bodies(_operator: Option<&'static OpDef>, _since: i32) -> Bodies {
    Bodies::default()
}

/// The body of an operator for an opset version (the greatest one if none is given) as a FunctionProto; empty if there
/// is none.
pub(crate) fn body(_operator: Option<&'static OpDef>, _since: i32, _opset: Option<i32>) -> Vec<u8> {
    Vec::new()
}

/// The body for a node, a NodeProto, whose inputs have these types, TypeProtos; see [`body`].
pub(crate) fn body_of_node(
    _operator: Option<&'static OpDef>,
    _since: i32,
    _opset: Option<i32>,
    _node: &[u8],
    _types: &[Vec<u8>],
) -> Vec<u8> {
    Vec::new()
}

/// Whether an operator gives equal outputs for equal inputs. One that runs a graph may run anything.
pub(crate) fn determinism(schema: &Schema) -> Determinism {
    const RANDOM: [&str; 6] = [
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    ];
    let runs_graph = schema
        .attributes
        .iter()
        .any(|attribute| matches!(attribute.ty, AttrType::Graph | AttrType::Graphs));
    let is_random = schema.domain.is_empty() && RANDOM.contains(&schema.name);
    match runs_graph || is_random {
        true => Determinism::NonDeterministic,
        false => Determinism::Deterministic,
    }
}
