//! Steps of a plan that is being made.

use sardonyx_model::{GraphId, NodeId};

use crate::plan::{Computed, Move, NotHonored, Step};

/// Steps and the annotations that they do not follow, in the order of the nodes.
pub(crate) struct Steps {
    pub(crate) list: Vec<Step>,
    pub(crate) not_honored: Vec<NotHonored>,
    /// Graph whose nodes are being placed.
    pub(crate) graph: GraphId,
}

impl Steps {
    pub(crate) fn new(graph: GraphId) -> Steps {
        Steps { list: Vec::new(), not_honored: Vec::new(), graph }
    }

    pub(crate) fn add_move(&mut self, moved: Move) {
        self.list.push(Step::Move(moved));
    }

    pub(crate) fn add_node(&mut self, computed: Computed) {
        self.list.push(Step::Node(computed));
    }

    /// Records an annotation that is not followed.
    pub(crate) fn refuse(&mut self, node: NodeId, tensor: Option<&[u8]>, why: impl Into<String>) {
        let tensor = tensor.map(|name| String::from_utf8_lossy(name).into_owned());
        let note = NotHonored { node, tensor, why: why.into() };
        if !self.not_honored.contains(&note) {
            self.not_honored.push(note);
        }
    }
}
