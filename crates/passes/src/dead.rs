//! Dead code: nodes whose outputs no node reads, in all graphs.

use sardonyx_model::{GraphId, Id, NodeId, Producer, ValueId};

use crate::order::inner_graphs;
use crate::resolve::Resolved;

/// Returns for each node whether the outputs of the model depend on it, directly or not. A node is
/// not needed for a value that `is_known`.
///
/// A needed node needs its inputs and the outputs of the graphs in it; these need the inputs of the
/// nodes in them, those from enclosing graphs too. Each node is visited once.
pub fn needed(resolved: &Resolved, is_known: &dyn Fn(ValueId) -> bool) -> Vec<bool> {
    let model = resolved.model();
    let mut needed = vec![false; model.node_count()];
    let outputs = |graph: GraphId| {
        let outputs = model.graph(graph).outputs.iter();
        outputs.filter_map(|output| output.value)
    };
    let mut open: Vec<ValueId> = outputs(resolved.main()).collect();
    while let Some(value) = open.pop() {
        let Producer::Node(node, _) = model.value(value).producer else {
            continue;
        };
        if needed[node.index()] || is_known(value) {
            continue;
        }
        needed[node.index()] = true;
        open.extend(model.inputs(node).flatten());
        open.extend(inner_graphs(model, node).flat_map(outputs));
    }
    needed
}

/// Removes dead nodes from all graphs. Returns their number.
pub fn remove_dead(resolved: &mut Resolved) -> usize {
    let needed = needed(resolved, &|_| false);
    let is_needed = |node: &NodeId| needed[node.index()];
    let mut removed = 0;
    for graph in resolved.graphs().to_vec() {
        let (kept, dead): (Vec<NodeId>, Vec<NodeId>) =
            resolved.order_of(graph).iter().partition(|node| is_needed(node));
        if dead.is_empty() {
            continue;
        }
        removed += dead.len();
        for node in &dead {
            resolved.model_mut().detach_node(*node);
        }
        resolved.set_order(graph, kept);
    }
    if removed > 0 {
        resolved.forget_graphs();
    }
    removed
}
