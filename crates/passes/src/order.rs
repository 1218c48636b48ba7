//! Order in which the nodes of a graph can run.

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{GraphId, Model, NodeId, Producer, ValueId};

/// Sorts nodes so that none reads an output of a later one. Returns `None` if they have such an
/// order already. Uses Kahn's algorithm (1962) and keeps the given order among nodes that are
/// ready.
///
/// # Errors
///
/// There is a cycle: returns the first node that is part of it or depends on it, and the number of
/// such nodes.
pub fn sort_nodes(model: &Model, nodes: &[NodeId]) -> Result<Option<Vec<NodeId>>, (NodeId, usize)> {
    let ascending = nodes.is_sorted();
    let mut read = Vec::new();
    // Files are read from front to back, so the ids mostly show the order.
    let is_before = |node: NodeId, read: &mut Vec<NodeId>| {
        producers(model, node, read);
        read.iter().all(|producer| *producer < node)
    };
    if ascending && nodes.iter().all(|node| is_before(*node, &mut read)) {
        return Ok(None);
    }
    let numbered = nodes.iter().enumerate();
    let position: HashMap<NodeId, usize> = numbered.map(|(index, node)| (*node, index)).collect();
    let mut waits_for = vec![0usize; nodes.len()];
    let mut readers: Vec<Vec<u32>> = vec![Vec::new(); nodes.len()];
    let mut in_order = true;
    for (index, node) in nodes.iter().enumerate() {
        producers(model, *node, &mut read);
        for at in read.iter().filter_map(|producer| position.get(producer)) {
            waits_for[index] += 1;
            readers[*at].push(index as u32);
            in_order &= *at < index;
        }
    }
    if in_order {
        return Ok(None);
    }
    let mut ready: std::collections::VecDeque<usize> =
        (0..nodes.len()).filter(|index| waits_for[*index] == 0).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(index) = ready.pop_front() {
        order.push(nodes[index]);
        for reader in &readers[index] {
            let reader = *reader as usize;
            waits_for[reader] -= 1;
            if waits_for[reader] == 0 {
                ready.push_back(reader);
            }
        }
    }
    match (0..nodes.len()).find(|index| waits_for[*index] > 0) {
        None => Ok(Some(order)),
        Some(stuck) => Err((nodes[stuck], nodes.len() - order.len())),
    }
}

/// Finds the first node of a graph or of the graphs in its nodes that precedes a node whose output
/// it reads, itself or in its inner graphs. Returns both.
pub fn first_too_early(model: &Model, root: GraphId) -> Option<(NodeId, NodeId)> {
    let mut read = Vec::new();
    tree(model, root).into_iter().find_map(|graph| {
        let nodes = &model.graph(graph).nodes;
        let numbered = nodes.iter().enumerate();
        let position: HashMap<NodeId, usize> =
            numbered.map(|(index, node)| (*node, index)).collect();
        nodes.iter().enumerate().find_map(|(index, node)| {
            producers(model, *node, &mut read);
            let comes_later = |producer: &&NodeId| position.get(*producer) > Some(&index);
            Some((*node, *read.iter().find(comes_later)?))
        })
    })
}

/// Finds the nodes of the same graph whose outputs a node reads, itself or in its inner graphs. A
/// node with several of these outputs is listed once for each.
fn producers(model: &Model, node: NodeId, found: &mut Vec<NodeId>) {
    found.clear();
    let graph = model.node(node).graph;
    let producer = |value: ValueId| match model.value(value) {
        value if value.graph != graph => None,
        value => match value.producer {
            Producer::Node(producer, _) => Some(producer),
            _ => None,
        },
    };
    found.extend(model.inputs(node).flatten().filter_map(producer));
    let mut inner: Vec<GraphId> = inner_graphs(model, node).collect();
    while let Some(id) = inner.pop() {
        let inside = model.graph(id);
        let results = inside.outputs.iter().filter_map(|output| output.value);
        found.extend(results.filter_map(producer));
        for node in &inside.nodes {
            found.extend(model.inputs(*node).flatten().filter_map(producer));
            inner.extend(inner_graphs(model, *node));
        }
    }
}

/// Lists a graph and the graphs in its nodes, each after the one that contains it.
pub fn tree(model: &Model, root: GraphId) -> Vec<GraphId> {
    let mut graphs = vec![root];
    let mut next = 0;
    while let Some(graph) = graphs.get(next).copied() {
        let nodes = &model.graph(graph).nodes;
        graphs.extend(nodes.iter().flat_map(|node| inner_graphs(model, *node)));
        next += 1;
    }
    graphs
}

/// Returns the nodes of a graph and of all graphs in it.
pub(crate) fn nodes_of_tree(model: &Model, root: GraphId) -> impl Iterator<Item = NodeId> + '_ {
    tree(model, root).into_iter().flat_map(|graph| model.graph(graph).nodes.iter().copied())
}

/// Returns the graphs in the attributes of a node.
pub fn inner_graphs(model: &Model, node: NodeId) -> impl Iterator<Item = GraphId> + '_ {
    let attributes = model.attributes(node).iter();
    attributes.flat_map(|attribute| model.attribute(*attribute).graphs())
}

/// Returns the values that a node reads from its graph and the graphs around it, itself or in its
/// inner graphs.
pub fn reads_outside(model: &Model, node: NodeId) -> Vec<ValueId> {
    let mut read = reads(model, node);
    let within: Vec<GraphId> =
        inner_graphs(model, node).flat_map(|graph| tree(model, graph)).collect();
    if !within.is_empty() {
        let within: HashSet<GraphId> = within.into_iter().collect();
        read.retain(|value| !within.contains(&model.value(*value).graph));
    }
    read
}

/// Returns the values of enclosing graphs that a node reads, itself or in its inner graphs.
pub fn reads(model: &Model, node: NodeId) -> Vec<ValueId> {
    let mut read: Vec<ValueId> = model.inputs(node).flatten().collect();
    let mut open: Vec<GraphId> = inner_graphs(model, node).collect();
    while let Some(graph) = open.pop() {
        let inside = model.graph(graph);
        read.extend(inside.outputs.iter().filter_map(|output| output.value));
        for inner in &inside.nodes {
            read.extend(model.inputs(*inner).flatten());
            open.extend(inner_graphs(model, *inner));
        }
    }
    read
}
