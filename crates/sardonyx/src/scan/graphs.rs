//! Graphs that readers never get out of: nodes that wait for each other. The checker looks within a
//! graph, and among a bounded number of nodes. Here every circle is found, through branches too.

use std::collections::{HashMap, HashSet};

use sardonyx_model::{GraphId, Id, Model, NodeId};

use super::calls::trim;
use super::codes;
use super::places::of_node;
use super::report::Findings;

/// Nodes that wait for each other, in all graphs at once: a node waits for what the graphs in it
/// read, too.
pub(super) fn check(model: &Model, found: &mut Findings) {
    let nodes: Vec<NodeId> =
        model.graphs().flat_map(|(_, graph)| graph.nodes.iter().copied()).collect();
    let count = nodes.iter().map(|node| node.index() + 1).max().unwrap_or(0);
    let (mut back, mut forth) = (vec![Vec::new(); count], vec![Vec::new(); count]);
    // Many nodes of a deep graph may use a value of the outermost one.
    let mut climbs: HashMap<(GraphId, GraphId), Option<NodeId>> = HashMap::new();
    for node in &nodes {
        let graph = model.node(*node).graph;
        for value in model.outputs(*node).iter().flatten() {
            for (user, _) in model.uses(*value) {
                let from = model.node(user).graph;
                let user = if from == graph {
                    Some(user)
                } else {
                    *climbs.entry((from, graph)).or_insert_with(|| holder(model, from, graph))
                };
                if let Some(user) = user {
                    forth[node.index()].push(user.index());
                    back[user.index()].push(node.index());
                }
            }
        }
    }
    let mut left = vec![true; count];
    trim(&back, &forth, &mut left);
    trim(&forth, &back, &mut left);
    let mut told: HashSet<GraphId> = HashSet::new();
    for node in nodes.iter().filter(|node| left[node.index()]) {
        let graph = model.node(*node).graph;
        if told.insert(graph) {
            found.add(&codes::CYCLE, || {
                let in_graph = |other: &&NodeId| model.node(**other).graph == graph;
                let left = nodes.iter().filter(|other| left[other.index()]);
                let message = match left.filter(in_graph).count() {
                    1 => "it depends on its own result".to_string(),
                    n => format!("{n} nodes depend on each other's results"),
                };
                (of_node(model, *node), message)
            });
        }
    }
}

/// The node of a graph that holds another graph, at any depth.
fn holder(model: &Model, inner: GraphId, graph: GraphId) -> Option<NodeId> {
    let mut node = model.graph(inner).owner?;
    while model.node(node).graph != graph {
        node = model.graph(model.node(node).graph).owner?;
    }
    Some(node)
}
