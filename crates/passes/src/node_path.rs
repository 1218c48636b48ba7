//! Path of a node: the node and those that contain it.

use std::fmt;

use sardonyx_model::{MadeFor, MadeNodes, Model, NodeId, ValueId};
use sardonyx_proto::{elide_middle, shown};

/// Node and the nodes around it, the innermost first: those whose graphs contain it, calls of
/// functions whose bodies it comes from, and the node for which a pass made it. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePath(pub Vec<PathNode>);

/// Node of a path. Names are limited in length.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathNode {
    /// Domain of the operator; empty for `ai.onnx`.
    pub domain: String,
    /// Name of the operator.
    pub operator: String,
    /// Name of the node; empty if it has none.
    pub name: String,
    /// Name of the first output, if the node has one.
    pub output: Option<String>,
    /// Relation to the next node of the path; `None` for the last one.
    pub part: Option<Part>,
}

/// Relation of a node to one that it is part of.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// The node is in a graph of the other, such as a branch of `If`. Holds the name of the graph.
    Graph(String),
    /// The node is in a graph that the other runs repeatedly, such as the body of a `Loop`, and the
    /// path is about one of the iterations.
    Iteration {
        /// Name of the graph.
        graph: String,
        /// Number of the iteration, from 0.
        iteration: usize,
    },
    /// The node is in the body of the function that the other calls.
    Body,
    /// The node was made for the other, as one that a newer version of its operator needs.
    MadeFor,
}

/// Greatest length of a path whose nodes are all written.
const MOST_SHOWN: usize = 12;

impl NodePath {
    /// Makes the path of a node, which a pass may have made. `iterations` has the iterations of
    /// nodes around it.
    pub(crate) fn new(
        model: &Model,
        made: &MadeNodes,
        node: NodeId,
        iterations: &[(NodeId, usize)],
    ) -> NodePath {
        let mut nodes = Vec::new();
        let mut next = Some(node);
        while let Some(node) = next {
            let around = find_enclosing(model, made, node);
            next = around.as_ref().map(|(node, _)| *node);
            let part = around.map(|(around, part)| match part {
                Part::Graph(graph) => match iterations.iter().find(|(of, _)| *of == around) {
                    Some((_, iteration)) => Part::Iteration { graph, iteration: *iteration },
                    None => Part::Graph(graph),
                },
                part => part,
            });
            // The name in the file of a node of a body is that in the function.
            let named = match made.made_for(node) {
                Some(MadeFor::Call { call, of }) if of != call => of,
                _ => node,
            };
            let output = made.output_of(model, node);
            let name = PathNode::name(model, named);
            nodes.push(PathNode { name, part, ..PathNode::new(model, node, output) });
        }
        NodePath(nodes)
    }
}

/// Returns the node that a node is part of, and the relation to it.
fn find_enclosing(model: &Model, made: &MadeNodes, node: NodeId) -> Option<(NodeId, Part)> {
    let graph = model.graph(model.node(node).graph);
    let made_for = made.made_for(node);
    match (made_for, graph.owner) {
        (Some(MadeFor::Node(other)), _) => Some((other, Part::MadeFor)),
        // For a body that came with graphs of nodes, the node of the graph is nearer than the call.
        (Some(MadeFor::Call { call, .. }), owner)
            if owner.and_then(|owner| made.call_of(owner)) != Some(call) =>
        {
            Some((call, Part::Body))
        }
        (_, Some(owner)) => {
            let name = shown(model.maybe_text(graph.name).unwrap_or_default());
            Some((owner, Part::Graph(name)))
        }
        (_, None) => None,
    }
}

impl PathNode {
    fn name(model: &Model, node: NodeId) -> String {
        shown(model.maybe_text(model.node(node).name).unwrap_or_default())
    }

    pub(crate) fn new(model: &Model, node: NodeId, output: Option<ValueId>) -> PathNode {
        let text = |symbol| shown(model.maybe_text(symbol).unwrap_or_default());
        PathNode {
            domain: shown(model.domain_of(node).as_bytes()),
            operator: text(model.node(node).op_type),
            name: PathNode::name(model, node),
            output: output.map(|value| shown(model.text(model.value(value).name))),
            part: None,
        }
    }
}

impl fmt::Display for PathNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PathNode { operator, name, output, .. } = self;
        match (operator.as_str(), name.as_str()) {
            ("", "") => f.write_str("node")?,
            (operator, "") => write!(f, "{operator} node")?,
            ("", name) => return write!(f, "node '{name}'"),
            (operator, name) => return write!(f, "node '{name}' ({operator})"),
        }
        match output {
            Some(output) => write!(f, " that makes '{output}'"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for NodePath {
    /// Writes at most about 1,000 bytes. For a deep path, the node, the number of nodes between and
    /// the outermost node are written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        let is_deep = self.0.len() > MOST_SHOWN;
        for (index, node) in self.0.iter().enumerate() {
            if is_deep && index > 0 && index + 1 < self.0.len() {
                if index == 1 {
                    text += &format!("{} more nodes in ", self.0.len() - 2);
                }
                continue;
            }
            text += &match &node.part {
                // The names of a node that is in no file are unknown to users.
                Some(Part::MadeFor) => format!("{}, made for ", node.operator),
                Some(Part::Body) => format!("{node} in the body of "),
                Some(Part::Graph(name)) if name.is_empty() => {
                    format!("{node} in a graph without a name in ")
                }
                Some(Part::Graph(name)) => format!("{node} in graph '{name}' in "),
                Some(Part::Iteration { graph, iteration }) if graph.is_empty() => {
                    format!("{node} in iteration {iteration} of ")
                }
                Some(Part::Iteration { graph, iteration }) => {
                    format!("{node} in iteration {iteration} of graph '{graph}' in ")
                }
                None => node.to_string(),
            };
        }
        f.write_str(&elide_middle(&text, 800, 200))
    }
}
