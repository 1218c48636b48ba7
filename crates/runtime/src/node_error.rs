//! Failure of a node as data: the node, its inputs, and the cause.

use std::fmt;

use sardonyx_model::{NodeId, Type};
use sardonyx_passes::{NodePath, Resolved};

/// Failure of a node, with its inputs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeError {
    /// Path of the node through enclosing nodes.
    pub path: NodePath,
    /// Operators of the nodes that are fused into the step.
    pub with: Vec<&'static str>,
    /// Operands of the step in order; `None` for an omitted one. Includes the inputs of fused
    /// nodes.
    pub inputs: Vec<Option<NodeInput>>,
    /// Cause of the failure.
    pub what: String,
    /// Whether the node computes a constant, when a session is made.
    pub is_constant: bool,
    node: NodeId,
    /// Iterations of enclosing loops, by node.
    iterations: Vec<(NodeId, usize)>,
}

/// Input of a failed node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeInput {
    /// Name of the value in the model.
    pub name: String,
    /// Type and dimensions; `None` for a value that is not computed yet, because its memory was
    /// refused.
    pub ty: Option<Type>,
}

/// Limit: inputs that a message lists.
const SHOWN_INPUTS: usize = 8;

impl NodeError {
    /// Makes the error of a step. The first of `nodes` is the one that it was made from; the others
    /// are fused into it.
    pub(crate) fn new(
        resolved: &Resolved,
        nodes: &[NodeId],
        inputs: Vec<Option<NodeInput>>,
        what: String,
    ) -> NodeError {
        let (path, with) = (resolved.path_of(nodes[0]), operators(resolved, &nodes[1..]));
        let (node, iterations) = (nodes[0], Vec::new());
        NodeError { path, with, inputs, what, is_constant: false, node, iterations }
    }

    /// Adds the iteration of an enclosing node.
    pub(crate) fn add_iteration(&mut self, resolved: &Resolved, around: NodeId, iteration: usize) {
        self.iterations.push((around, iteration));
        self.path = resolved.path_in_iterations(self.node, &self.iterations);
    }

    /// Describes the node for a message: its path and the operators that are fused with it.
    pub fn place(&self) -> String {
        place(&self.path, &self.with)
    }

    /// Describes the cause without the place, and whether it was a constant.
    pub fn failure(&self) -> String {
        let stage = if self.is_constant { "computing a constant: " } else { "" };
        format!("{stage}{}", self.what)
    }

    /// Lists the inputs for a message, such as `x: float[2, 3], at: int64[1]`; empty if there are
    /// none.
    pub fn given(&self) -> String {
        let inputs = self.inputs.iter().flatten();
        let mut shown: Vec<String> = inputs.take(SHOWN_INPUTS).map(NodeInput::to_string).collect();
        match self.inputs.iter().flatten().count().saturating_sub(shown.len()) {
            0 => {}
            more => shown.push(format!("{more} more")),
        }
        shown.join(", ")
    }
}

/// Describes a step for a message: the node that it was made from, and the operators that are fused
/// with it.
pub(crate) fn place(path: &NodePath, with: &[&str]) -> String {
    let with = with.iter().map(|operator| format!(" with {operator}"));
    std::iter::once(path.to_string()).chain(with).collect()
}

/// Lists the operators of nodes.
pub(crate) fn operators(resolved: &Resolved, nodes: &[NodeId]) -> Vec<&'static str> {
    let schemas = nodes.iter().map(|node| resolved.schema(*node));
    schemas.map(|schema| schema.map_or("", |schema| schema.name)).collect()
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place(), self.failure())?;
        match self.given() {
            given if given.is_empty() => Ok(()),
            given => write!(f, "\n  inputs: {given}"),
        }
    }
}

impl std::error::Error for NodeError {}

impl fmt::Display for NodeInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.ty {
            Some(ty) => write!(f, "{}: {ty}", self.name),
            None => f.write_str(&self.name),
        }
    }
}
