//! Nodes of the input of a job for which nodes of its result were made.

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{MadeFor, MadeNodes, NodeId};

/// Maximum number of nodes that are followed for one: bodies within bodies have two origins each.
const MOST_FOLLOWED: usize = 1000;

/// Nodes of the input of a job for which the nodes of its result were made. All other nodes are
/// nodes of the input.
#[derive(Debug, Clone, Default)]
pub struct Origins {
    /// Steps that made the nodes, in the order of the job.
    steps: Vec<Step>,
    are_unknown: bool,
}

#[derive(Debug, Clone)]
enum Step {
    /// Nodes that were made beside others and in the place of calls.
    Made(Box<MadeNodes>),
    /// Nodes, each with the node for which it was made.
    For(HashMap<NodeId, NodeId>),
    /// Copies, at the positions of their originals.
    Copies { copies: Vec<NodeId>, of: Vec<NodeId> },
}

impl Origins {
    /// Makes the origins of a result whose nodes cannot be distinguished from those of the input by
    /// their ids.
    pub fn unknown() -> Origins {
        Origins { steps: Vec::new(), are_unknown: true }
    }

    /// Whether the origin of each node is unknown.
    pub(crate) fn are_unknown(&self) -> bool {
        self.are_unknown
    }

    /// Adds nodes that were made after all steps so far.
    #[must_use]
    pub(crate) fn then_made(mut self, made: MadeNodes) -> Origins {
        self.steps.push(Step::Made(Box::new(made)));
        self
    }

    /// Adds nodes that were made after all steps so far, each for one node.
    #[must_use]
    pub(crate) fn then_for(mut self, nodes: HashMap<NodeId, NodeId>) -> Origins {
        if !nodes.is_empty() {
            self.steps.push(Step::For(nodes));
        }
        self
    }

    /// Adds copies of nodes that were made after all steps so far.
    #[must_use]
    pub(crate) fn then_copies(mut self, copies: Vec<NodeId>, of: Vec<NodeId>) -> Origins {
        self.steps.push(Step::Copies { copies, of });
        self
    }

    /// Adds the steps of a later job.
    #[must_use]
    pub(crate) fn append(mut self, later: Origins) -> Origins {
        self.steps.extend(later.steps);
        self
    }

    /// Returns the nodes before all steps from which a node comes. The first one is the outermost
    /// call.
    pub(crate) fn of(&self, node: NodeId) -> Vec<NodeId> {
        let mut nodes = vec![node];
        for step in self.steps.iter().rev() {
            nodes = nodes.into_iter().flat_map(|node| step.of(node)).collect();
            let mut seen = HashSet::new();
            nodes.retain(|node| seen.insert(*node));
            nodes.truncate(MOST_FOLLOWED);
        }
        nodes
    }
}

impl Step {
    /// Returns the nodes before this step from which a node comes.
    fn of(&self, node: NodeId) -> Vec<NodeId> {
        match self {
            Step::Made(made) => {
                let (mut found, mut left, mut seen) = (Vec::new(), vec![node], HashSet::new());
                while let Some(node) = left.pop() {
                    if !seen.insert(node) || seen.len() > MOST_FOLLOWED {
                        continue;
                    }
                    match made.made_for(node) {
                        None => found.push(node),
                        Some(MadeFor::Node(of)) => left.push(of),
                        // The call comes first.
                        Some(MadeFor::Call { call, of }) => left.extend([of, call]),
                    }
                }
                found
            }
            Step::For(nodes) => {
                let (mut node, mut steps) = (node, 0);
                while let Some(of) = nodes.get(&node).filter(|_| steps < MOST_FOLLOWED) {
                    (node, steps) = (*of, steps + 1);
                }
                vec![node]
            }
            Step::Copies { copies, of } => {
                let position = copies.iter().position(|copy| *copy == node);
                vec![position.and_then(|position| of.get(position)).copied().unwrap_or(node)]
            }
        }
    }
}
