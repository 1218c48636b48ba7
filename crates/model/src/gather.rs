//! Gathers nodes of several graphs in one graph.

use hashbrown::HashSet;

use crate::graph::Model;
use crate::ids::{GraphId, NodeId};

impl Model {
    /// Moves nodes, with their outputs and the graphs in them, to the end of the graph `to`, in the
    /// given order. The graphs `from` lose all their nodes; those that are not moved lose their
    /// inputs and outputs, so that they no longer count as readers.
    ///
    /// No node may be inside another one of `nodes`.
    pub fn gather_nodes(&mut self, to: GraphId, nodes: &[NodeId], from: &[GraphId]) {
        let kept: HashSet<NodeId> = nodes.iter().copied().collect();
        let mut left_out = Vec::new();
        for graph in from {
            let nodes = std::mem::take(&mut self.graphs[*graph].nodes);
            left_out.extend(nodes.into_iter().filter(|node| !kept.contains(node)));
        }
        // The lists of all graphs are empty by now, so no node inside another one is detached.
        for node in left_out {
            self.detach_node(node);
        }
        for node in nodes {
            self.nodes[*node].graph = to;
            for index in self.nodes[*node].outputs.indices() {
                if let Some(value) = self.output_lists[index] {
                    self.values[value].graph = to;
                }
            }
            let attributes = self.attributes(*node).iter();
            let inner = attributes.flat_map(|attribute| self.attribute(*attribute).graphs());
            for graph in inner.collect::<Vec<_>>() {
                self.graphs[graph].parent = Some(to);
            }
        }
        self.graphs[to].nodes.extend_from_slice(nodes);
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_tensor::{Buffer, Tensor};

    use super::*;
    use crate::graph::Producer;

    #[test]
    fn nodes_and_constants_of_inner_graphs_are_gathered() {
        let bytes = Buffer::from_vec(vec![0x3a, 0]);
        let mut model = Model::read(bytes).expect("a model with a graph of no fields");
        let main = model.main.expect("the graph");
        let x = model.add_graph_input(main, "x");
        let owner = model.add_node(main, "If", "", &[Some(x)], 1);
        let inner = model.add_inner_graph(owner, "then");
        model.set_attribute(owner, "then_branch", crate::AttrValue::Graph(inner));
        let one = Tensor::scalar(1.0f32);
        let w = model.add_initializer(inner, "w", &one);
        let kept = model.add_node(inner, "Add", "", &[Some(x), Some(w)], 1);
        let left_out = model.add_node(inner, "Neg", "", &[Some(x)], 1);
        let to = model.add_graph("gathered");
        model.gather_nodes(to, &[kept], &[main, inner]);
        model.adopt_initializer(w, to);
        assert_eq!(model.graph(to).nodes, [kept]);
        assert!(model.graph(main).nodes.is_empty() && model.graph(inner).nodes.is_empty());
        assert_eq!(model.node(kept).graph, to);
        assert_eq!(model.uses(x).collect::<Vec<_>>(), [(kept, 0)]);
        assert_eq!(model.inputs(left_out).count(), 0);
        assert_eq!(model.value(w).producer, Producer::Initializer(0));
        assert_eq!(model.initializer(w).and_then(|found| found.value), Some(w));
        assert_eq!((model.value(w).graph, model.value(x).graph), (to, main));
    }
}
