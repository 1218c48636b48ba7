//! `If`, `Loop` and `Scan` whose graphs have annotated nodes.
//!
//! Such a node runs on all devices of the configuration. All take the same branch and the same
//! number of iterations, since conditions are whole on each of them. Nodes in its graphs are placed
//! like those of the main graph. Inputs and outputs of the graphs are whole on all devices.

use sardonyx_model::{GraphId, Model, ValueId};
use sardonyx_passes::annotations;

use crate::plan::FormId;

/// Operators whose graphs can be divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    If,
    Loop,
    Scan,
}

/// Graphs of a node whose nodes are steps of the plan.
#[derive(Debug, Clone)]
pub(crate) struct Bodies {
    pub(crate) operator: Operator,
    pub(crate) graphs: Vec<Body>,
}

/// Graph of a node.
#[derive(Debug, Clone)]
pub(crate) struct Body {
    pub(crate) graph: GraphId,
    /// Outputs, and the forms in which they leave the graph.
    pub(crate) outputs: Vec<(ValueId, FormId)>,
}

impl Bodies {
    /// Returns the outputs of the graphs with their forms.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = (ValueId, FormId)> + '_ {
        self.graphs.iter().flat_map(|body| body.outputs.iter().copied())
    }
}

/// Whether nodes in graphs of nodes have annotations for a configuration, so that these graphs may
/// be divided.
pub fn divides_bodies(model: &Model, configuration: &str) -> bool {
    let inner = model.graphs().filter(|(_, graph)| graph.parent.is_some());
    let mut nodes = inner.flat_map(|(_, graph)| graph.nodes.iter().copied());
    nodes.any(|node| {
        annotations(model, node).any(|one| one.configuration == configuration.as_bytes())
    })
}
