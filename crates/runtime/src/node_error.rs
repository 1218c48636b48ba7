//! Why a node fails, as data: which node, what it was given, and what failed.

use std::fmt;

use sardonyx_model::{NodeId, Type};
use sardonyx_passes::{NodePath, Resolved};

/// A node that fails, with what it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeError {
    /// The node, and the nodes around it.
    pub path: NodePath,
    /// Operators of the nodes that are fused into the same step.
    pub with: Vec<&'static str>,
    /// What the step reads, in the order of its operands; `None` for one that is left out. With
    /// nodes that are fused into it these are the inputs of all of them.
    pub inputs: Vec<Option<NodeInput>>,
    /// What failed.
    pub what: String,
    /// Whether the node is one of constants, which are computed when a session is made.
    pub is_constant: bool,
    node: NodeId,
    /// The iterations of loops around it, by their nodes.
    iterations: Vec<(NodeId, usize)>,
}

/// What a node was given for an input.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeInput {
    /// The name of the value in the model.
    pub name: String,
    /// Type and dimensions; `None` for a value that is not there yet, because memory for it was
    /// refused.
    pub ty: Option<Type>,
}

/// Limit: inputs of a node that a message lists.
const SHOWN_INPUTS: usize = 8;

impl NodeError {
    /// Why the step of some nodes fails, of which the first is the one that it was made from.
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

    /// Says in which iteration of a node around it that was.
    pub(crate) fn add_iteration(&mut self, resolved: &Resolved, around: NodeId, iteration: usize) {
        self.iterations.push((around, iteration));
        self.path = resolved.path_in_iterations(self.node, &self.iterations);
    }

    /// The node for people, with the nodes around it and those that are fused with it.
    pub fn place(&self) -> String {
        place(&self.path, &self.with)
    }

    /// What failed, and that it was a constant, without the place.
    pub fn failure(&self) -> String {
        let stage = if self.is_constant { "computing a constant: " } else { "" };
        format!("{stage}{}", self.what)
    }

    /// The inputs for people, such as `x: float[2, 3], at: int64[1]`; empty if there are none.
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

/// A step for people: the node that it was made from, with the operators that are fused with it.
pub(crate) fn place(path: &NodePath, with: &[&str]) -> String {
    let with = with.iter().map(|operator| format!(" with {operator}"));
    std::iter::once(path.to_string()).chain(with).collect()
}

/// The names of the operators of nodes.
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
