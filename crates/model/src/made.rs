//! Creates nodes next to existing nodes.

use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};
use sardonyx_tensor::{DataType, Dims, Tensor};
use smallvec::SmallVec;

use crate::attribute_values::AttrValue;
use crate::graph::Model;
use crate::ids::{GraphId, Id, NodeId, ValueId};
use crate::inline::Copied;
use crate::inner_names::InnerNames;

/// Nodes that a pass has created but not yet inserted into the lists of their graphs. Inserting one
/// node takes time linear in the list, so all are inserted together.
#[derive(Debug, Clone, Default)]
pub struct MadeNodes {
    /// Nodes to be inserted, in the order of their creation.
    beside: Vec<Beside>,
    /// Reason for each node, by node.
    made_for: Vec<Option<MadeFor>>,
    /// First output that each inlined call had.
    outputs_of_calls: HashMap<NodeId, ValueId>,
    /// Nodes that others have replaced.
    gone: HashSet<NodeId>,
    /// Small constants by content: most nodes need the same few.
    constants: HashMap<SmallConstant, ValueId>,
    /// Names for nodes of function bodies.
    names: InnerNames,
}

/// Reason for a node that is not in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MadeFor {
    /// Node that needs others beside it or in its place.
    Node(NodeId),
    /// Call of a function: the node belongs to the copy of its body.
    Call {
        /// The call.
        call: NodeId,
        /// Node of the function that this one is a copy of; the call itself for an `Identity` that
        /// passes an input of the function through.
        of: NodeId,
    },
}

/// Maximum size of a small constant, in bytes.
const SMALL: usize = 64;

/// Small constant of a graph: graph, type, dimensions and elements.
type SmallConstant = (GraphId, DataType, Dims, SmallVec<[u8; 16]>);

/// New node next to an existing one.
#[derive(Debug, Clone, Copy)]
struct Beside {
    anchor: NodeId,
    side: Side,
    node: NodeId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// Before the anchor, and after the nodes inserted before it earlier.
    Before,
    /// After the anchor, and before the nodes inserted after it earlier, as the last one reads the
    /// anchor's output.
    After,
}

impl MadeNodes {
    /// Reserves capacity for new nodes.
    pub fn reserve(&mut self, nodes: usize) {
        self.beside.reserve(nodes);
        self.made_for.reserve(nodes);
    }

    /// Returns the node of the file that a node was made for, through all calls; the node itself if
    /// it is in the file.
    pub fn origin(&self, node: NodeId) -> NodeId {
        let mut origin = node;
        while let Some(MadeFor::Node(of) | MadeFor::Call { call: of, .. }) = self.made_for(origin) {
            origin = of;
        }
        origin
    }

    /// Returns the reason for a node; `None` for a node of the file.
    pub fn made_for(&self, node: NodeId) -> Option<MadeFor> {
        self.made_for.get(node.index()).copied().flatten()
    }

    /// Returns the call that was replaced by the function body with this node.
    pub fn call_of(&self, node: NodeId) -> Option<NodeId> {
        match self.made_for(node) {
            Some(MadeFor::Call { call, .. }) => Some(call),
            Some(MadeFor::Node(_)) | None => None,
        }
    }

    /// Returns the first output of a node, or the one that it had before it was inlined.
    pub fn output_of(&self, model: &Model, node: NodeId) -> Option<ValueId> {
        let output = model.outputs(node).iter().flatten().next();
        output.or_else(|| self.outputs_of_calls.get(&node)).copied()
    }

    fn set_made_for(&mut self, node: NodeId, made_for: MadeFor) {
        if self.made_for.len() <= node.index() {
            self.made_for.resize(node.index() + 1, None);
        }
        self.made_for[node.index()] = Some(made_for);
    }

    /// Whether a node, or a node that it is inside of, was replaced since the last call of
    /// [`place`](Self::place).
    pub fn is_gone(&self, model: &Model, node: NodeId) -> bool {
        let mut next = Some(node);
        while let Some(node) = next {
            if self.gone.contains(&node) {
                return true;
            }
            next = model.graph(model.node(node).graph).owner;
        }
        false
    }

    /// Removes the inputs and outputs of a node; [`place`](Self::place) removes it from its graph.
    pub fn remove(&mut self, model: &mut Model, node: NodeId) {
        model.detach_node(node);
        self.gone.insert(node);
    }

    /// Forgets which small constants were made, after some of them were removed.
    pub fn forget_constants(&mut self) {
        self.constants.clear();
    }

    /// Whether nodes are yet to be inserted or removed.
    pub fn is_waiting(&self) -> bool {
        !self.beside.is_empty() || !self.gone.is_empty()
    }

    /// Inserts the new nodes into the lists of their graphs, beside their anchors, and removes the
    /// replaced ones.
    pub fn place(&mut self, model: &mut Model) {
        let (mut beside, gone) = (std::mem::take(&mut self.beside), std::mem::take(&mut self.gone));
        beside.sort_by_key(|beside| beside.anchor);
        // Number of new nodes by graph, for all graphs that change.
        let mut graphs: HashMap<GraphId, usize> = HashMap::new();
        for node in beside.iter().map(|beside| beside.anchor) {
            *graphs.entry(model.node(node).graph).or_default() += 1;
        }
        for node in &gone {
            graphs.entry(model.node(*node).graph).or_default();
        }
        // Index of the first new node by anchor.
        let mut first: Vec<u32> = vec![u32::MAX; model.node_count()];
        for (index, beside) in beside.iter().enumerate().rev() {
            first[beside.anchor.index()] = index as u32;
        }
        let of = |anchor: NodeId, side: Side| {
            let first = first[anchor.index()] as usize;
            let neighbours = beside.get(first..).unwrap_or_default();
            let neighbours = neighbours.iter().take_while(move |beside| beside.anchor == anchor);
            neighbours.filter(move |beside| beside.side == side).map(|beside| beside.node)
        };
        for (graph, made) in graphs {
            let nodes = std::mem::take(&mut model.graph_mut(graph).nodes);
            let mut all = Vec::with_capacity(nodes.len() + made);
            // New nodes can themselves be anchors. The flag is true once the neighbours of a node
            // are on the stack.
            let mut open: SmallVec<[(NodeId, bool); 8]> = SmallVec::new();
            for node in nodes {
                open.push((node, false));
                while let Some((node, is_opened)) = open.pop() {
                    if !is_opened && first[node.index()] != u32::MAX {
                        // The stack is popped from its end, so the list that is pushed last comes
                        // first.
                        open.extend(of(node, Side::After).map(|node| (node, false)));
                        open.push((node, true));
                        let start = open.len();
                        open.extend(of(node, Side::Before).map(|node| (node, false)));
                        open[start..].reverse();
                    } else if !gone.contains(&node) {
                        all.push(node);
                    }
                }
            }
            model.graph_mut(graph).nodes = all;
        }
    }
}

/// Creates nodes beside one node, its anchor, in constant time each.
#[derive(Debug)]
pub struct NodeBuilder<'m> {
    model: &'m mut Model,
    made: &'m mut MadeNodes,
    anchor: NodeId,
}

impl<'m> NodeBuilder<'m> {
    /// Creates a builder for nodes beside `anchor`.
    pub fn new(model: &'m mut Model, made: &'m mut MadeNodes, anchor: NodeId) -> Self {
        NodeBuilder { model, made, anchor }
    }

    /// Returns the model.
    pub fn model(&self) -> &Model {
        self.model
    }

    /// Returns the model, to be changed.
    pub fn model_mut(&mut self) -> &mut Model {
        self.model
    }

    /// Returns the node beside which nodes are created.
    pub fn anchor(&self) -> NodeId {
        self.anchor
    }

    pub(crate) fn made_nodes(&self) -> &MadeNodes {
        self.made
    }

    pub(crate) fn inner_names(&mut self) -> &mut InnerNames {
        &mut self.made.names
    }

    /// Returns a constant of the graph: an equal one if it exists and is small, otherwise a new one
    /// whose name begins with `hint`.
    pub fn constant(&mut self, hint: &str, tensor: &Tensor) -> ValueId {
        let graph = self.model.node(self.anchor).graph;
        if tensor.strings().is_some() || tensor.bytes().len() > SMALL {
            return self.model.add_initializer(graph, hint, tensor);
        }
        let key = (graph, tensor.data_type(), tensor.dims().into(), tensor.bytes().into());
        match self.made.constants.entry(key) {
            Entry::Occupied(found) => *found.get(),
            Entry::Vacant(vacant) => {
                *vacant.insert(self.model.add_initializer(graph, hint, tensor))
            }
        }
    }

    /// Adds a node with one output before the anchor, after all nodes that were added before it so
    /// far.
    pub fn before(
        &mut self,
        op_type: &str,
        domain: &str,
        inputs: &[Option<ValueId>],
        attributes: &[(&str, AttrValue<'_>)],
    ) -> (NodeId, ValueId) {
        let made = self.node(op_type, domain, inputs, attributes);
        self.put(Side::Before, made.0);
        made
    }

    /// Adds a node with one output after the anchor. It reads the anchor's output at `output` and
    /// `more_inputs`. Readers of that output read the new node's output, which takes over its name.
    /// Returns `None` if the anchor does not have the output.
    pub fn after(
        &mut self,
        output: usize,
        op_type: &str,
        domain: &str,
        more_inputs: &[Option<ValueId>],
        attributes: &[(&str, AttrValue<'_>)],
    ) -> Option<NodeId> {
        let value = *self.model.outputs(self.anchor).get(output)?;
        let value = value?;
        // The value keeps its name and readers and gets a new producer; the anchor gets a new
        // output.
        let graph = self.model.node(self.anchor).graph;
        let between = self.model.add_value(graph, op_type);
        self.model.redefine_output(self.anchor, output, between);
        let inputs: Vec<Option<ValueId>> =
            std::iter::once(Some(between)).chain(more_inputs.iter().copied()).collect();
        let (node, _) = self.node(op_type, domain, &inputs, attributes);
        self.model.redefine_output(node, 0, value);
        self.put(Side::After, node);
        Some(node)
    }

    /// Replaces the anchor, a call with the first output `output`, by the nodes of its function's
    /// body, after the nodes added before it. `copied` includes nodes in graphs of nodes.
    pub(crate) fn put_in_place(
        &mut self,
        output: Option<ValueId>,
        nodes: Vec<NodeId>,
        copied: &[Copied],
    ) {
        self.made.outputs_of_calls.extend(output.map(|output| (self.anchor, output)));
        self.put_before(nodes, copied);
        self.made.gone.insert(self.anchor);
    }

    /// Inserts copies of nodes before the anchor, after the nodes added before it so far. `copied`
    /// includes nodes in graphs of nodes.
    pub(crate) fn put_before(&mut self, nodes: Vec<NodeId>, copied: &[Copied]) {
        for Copied { node, of } in copied {
            self.made.set_made_for(*node, MadeFor::Call { call: self.anchor, of: *of });
        }
        nodes.into_iter().for_each(|node| self.put(Side::Before, node));
    }

    /// Moves the operator of the anchor into a node in a new graph, the attribute `name` of the
    /// anchor. The graph has an input for each input of the anchor, and the outputs of that node.
    /// The anchor keeps its position and outputs, and loses all other attributes.
    pub fn wrap(&mut self, name: &str) -> NodeId {
        let anchor = self.model.nodes[self.anchor];
        let body = self.model.add_inner_graph(self.anchor, name);
        let given: Vec<Option<ValueId>> = self.model.inputs(self.anchor).collect();
        let inputs: Vec<_> = given
            .iter()
            .map(|given| given.map(|_| self.model.add_graph_input(body, "in")))
            .collect();
        let count = self.model.outputs(self.anchor).len();
        let op_type = self.model.display(anchor.op_type).into_owned();
        let domain = self.model.domain_of(self.anchor).into_owned();
        let inner = self.model.add_node(body, &op_type, &domain, &inputs, count);
        for value in self.model.outputs(inner).to_vec().into_iter().flatten() {
            self.model.add_graph_output(body, value);
        }
        self.model.move_attributes(self.anchor, inner);
        self.model.set_attribute(self.anchor, name, AttrValue::Graph(body));
        self.made.set_made_for(inner, MadeFor::Node(self.anchor));
        inner
    }

    /// Adds a node at the end of any graph, made for the anchor.
    pub fn inside(
        &mut self,
        graph: GraphId,
        op_type: &str,
        domain: &str,
        inputs: &[Option<ValueId>],
        outputs: usize,
    ) -> NodeId {
        let node = self.model.add_node(graph, op_type, domain, inputs, outputs);
        self.mark_made_for_anchor(node);
        node
    }

    /// Records that a node is made for the anchor, or for the node that the anchor was made for.
    fn mark_made_for_anchor(&mut self, node: NodeId) {
        let made_for = match self.made.made_for(self.anchor) {
            Some(MadeFor::Node(of)) => of,
            Some(MadeFor::Call { .. }) | None => self.anchor,
        };
        self.made.set_made_for(node, MadeFor::Node(made_for));
    }

    fn put(&mut self, side: Side, node: NodeId) {
        self.made.beside.push(Beside { anchor: self.anchor, side, node });
    }

    fn node(
        &mut self,
        op_type: &str,
        domain: &str,
        inputs: &[Option<ValueId>],
        attributes: &[(&str, AttrValue<'_>)],
    ) -> (NodeId, ValueId) {
        let graph = self.model.node(self.anchor).graph;
        let (node, outputs) = self.model.new_node(graph, op_type, domain, inputs, 1);
        for (name, value) in attributes {
            self.model.set_attribute(node, name, value.clone());
        }
        self.mark_made_for_anchor(node);
        (node, outputs[0])
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_tensor::Buffer;

    use super::*;

    /// Builds a model with a chain of nodes in its main graph.
    fn chain(ops: &[&str]) -> (Model, Vec<NodeId>) {
        let bytes = Buffer::from_vec(vec![0x3a, 0]);
        let mut model = Model::read(bytes).expect("a model with a graph of no fields");
        let graph = model.main.expect("the graph");
        let mut value = None;
        let mut nodes = Vec::new();
        for op in ops {
            let node = model.add_node(graph, op, "", &[value], 1);
            value = model.outputs(node)[0];
            nodes.push(node);
        }
        (model, nodes)
    }

    fn ops(model: &Model, nodes: &[NodeId]) -> String {
        let ops = nodes.iter().map(|node| model.node(*node).op_type);
        let ops: Vec<_> = ops.map(|op| model.display(op).into_owned()).collect();
        ops.join(" ")
    }

    #[test]
    fn nodes_come_beside_those_for_which_they_were_made() {
        let (mut model, nodes) = chain(&["A", "B"]);
        let mut made = MadeNodes::default();
        let mut build = NodeBuilder::new(&mut model, &mut made, nodes[1]);
        let (first, _) = build.before("first", "", &[], &[]);
        build.before("second", "", &[], &[("axis", AttrValue::Int(1))]);
        // The node added last reads the anchor's output.
        build.after(0, "outer", "", &[], &[]).expect("an output");
        build.after(0, "inner", "", &[], &[]).expect("an output");
        assert_eq!(build.after(1, "none", "", &[], &[]), None);
        // New nodes can be anchors.
        let mut build = NodeBuilder::new(&mut model, &mut made, first);
        let (nested, _) = build.before("nested", "", &[], &[]);
        assert!(made.is_waiting());
        let main = model.main.expect("the graph");
        made.place(&mut model);
        let all = model.graph(main).nodes.clone();
        assert_eq!(ops(&model, &all), "A nested first second B inner outer");
        assert_eq!((made.origin(nested), made.origin(nodes[0])), (nodes[1], nodes[0]));
        assert!(!made.is_waiting());
        made.place(&mut model);
        assert_eq!(model.graph(main).nodes, all);
    }

    #[test]
    fn a_node_after_another_takes_its_value_over() {
        let (mut model, nodes) = chain(&["A", "B"]);
        let value = model.outputs(nodes[0])[0].expect("an output");
        let mut made = MadeNodes::default();
        let mut build = NodeBuilder::new(&mut model, &mut made, nodes[0]);
        let after = build.after(0, "after", "", &[], &[]).expect("an output");
        assert_eq!(model.outputs(after), [Some(value)]);
        let between = model.outputs(nodes[0])[0];
        assert_eq!(model.inputs(after).collect::<Vec<_>>(), [between]);
        assert_eq!(model.inputs(nodes[1]).collect::<Vec<_>>(), [Some(value)]);
        assert_ne!(between, Some(value));
    }
}
