//! Check for cycles of nodes, in which a reader that follows the edges never ends. Unlike the model
//! checker, the scan also finds cycles through inner graphs, and among any number of nodes.

use std::collections::{HashMap, HashSet};

use sardonyx_model::{GraphId, Id, Model, NodeId};

use super::calls::trim_acyclic;
use super::codes;
use super::places::node_path;
use super::report::Findings;

/// Reports cycles of nodes, one finding for each graph. A node also depends on the outer values
/// that its inner graphs read.
pub(super) fn check(model: &Model, found: &mut Findings) {
    let nodes: Vec<NodeId> =
        model.graphs().flat_map(|(_, graph)| graph.nodes.iter().copied()).collect();
    let count = nodes.iter().map(|node| node.index() + 1).max().unwrap_or(0);
    let (mut back, mut forth) = (vec![Vec::new(); count], vec![Vec::new(); count]);
    // Nodes of outer graphs that hold a deeply nested graph. Cached, as many nodes of the inner
    // graph may use values of the outer one.
    let mut holders: HashMap<(GraphId, GraphId), Option<NodeId>> = HashMap::new();
    for node in &nodes {
        let graph = model.node(*node).graph;
        for value in model.outputs(*node).iter().flatten() {
            for (user, _) in model.uses(*value) {
                let from = model.node(user).graph;
                let user = if from == graph {
                    Some(user)
                } else {
                    *holders.entry((from, graph)).or_insert_with(|| find_holder(model, from, graph))
                };
                if let Some(user) = user {
                    forth[node.index()].push(user.index());
                    back[user.index()].push(node.index());
                }
            }
        }
    }
    let mut left = vec![true; count];
    trim_acyclic(&back, &forth, &mut left);
    trim_acyclic(&forth, &back, &mut left);
    let mut reported: HashSet<GraphId> = HashSet::new();
    for node in nodes.iter().filter(|node| left[node.index()]) {
        let graph = model.node(*node).graph;
        if reported.insert(graph) {
            found.add(&codes::CYCLE, || {
                let cyclic = nodes.iter().filter(|other| left[other.index()]);
                let message =
                    match cyclic.filter(|other| model.node(**other).graph == graph).count() {
                        1 => "the node depends on its own result".to_string(),
                        n => format!("{n} nodes depend on each other's results"),
                    };
                (node_path(model, *node), message)
            });
        }
    }
}

/// Returns the node of `graph` that holds the graph `inner`, directly or in a nested graph; `None`
/// if there is none.
fn find_holder(model: &Model, inner: GraphId, graph: GraphId) -> Option<NodeId> {
    let mut node = model.graph(inner).owner?;
    while model.node(node).graph != graph {
        node = model.graph(model.node(node).graph).owner?;
    }
    Some(node)
}
