//! Graphs that contradict themselves in ways that readers take differently or never get out of:
//! names that are defined twice, nodes that wait for each other.

use std::collections::{HashMap, HashSet};

use sardonyx_model::{Graph, GraphId, Id, Model, NodeId, Symbol};

use super::calls::trim;
use super::codes;
use super::places::{of_graph, of_node, shown_symbol};
use super::report::Findings;

/// Checks all graphs.
pub(super) fn check(model: &Model, found: &mut Findings) {
    for (id, graph) in model.graphs() {
        check_definitions(model, id, graph, found);
    }
    check_cycles(model, found);
}

/// Inputs, initializers and outputs of nodes must have different names, except that an initializer
/// may be the default of an input.
fn check_definitions(model: &Model, id: GraphId, graph: &Graph, found: &mut Findings) {
    let mut report = |name: Symbol, what: &str| {
        found.add(&codes::DUPLICATE_DEFINITION, || {
            let name = shown_symbol(model, Some(name));
            (of_graph(model, id), format!("{what} '{name}' is defined twice"))
        });
    };
    let named = |symbol: &Symbol| !model.text(*symbol).is_empty();
    let mut inputs: HashSet<Symbol> = HashSet::new();
    for name in graph.inputs.iter().filter_map(|input| input.name).filter(named) {
        if !inputs.insert(name) {
            report(name, "the input");
        }
    }
    let dense = graph.initializers.iter().map(|found| found.tensor.name);
    let sparse = graph.sparse_initializers.iter();
    let sparse = sparse.map(|found| found.tensor.values.as_ref()?.name);
    let mut initializers: HashSet<Symbol> = HashSet::new();
    for name in dense.chain(sparse).flatten().filter(named) {
        if !initializers.insert(name) {
            report(name, "the initializer");
        }
    }
    let mut outputs: HashSet<Symbol> = HashSet::new();
    for node in &graph.nodes {
        for value in model.outputs(*node).iter().flatten() {
            let name = model.value(*value).name;
            if inputs.contains(&name) || initializers.contains(&name) || !outputs.insert(name) {
                report(name, "the value");
            }
        }
    }
}

/// Nodes that wait for each other, in all graphs at once: a node waits for what the graphs in it
/// read, too.
fn check_cycles(model: &Model, found: &mut Findings) {
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
                    1 => "it needs its own result".to_string(),
                    n => format!("{n} nodes need the results of each other"),
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
