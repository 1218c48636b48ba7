//! Making nodes next to nodes that are there.

use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};
use sardonyx_tensor::{DataType, Dims, Tensor};
use smallvec::SmallVec;

use crate::attribute_values::AttrValue;
use crate::graph::Model;
use crate::ids::{GraphId, Id, NodeId, ValueId};
use crate::inline::Copied;
use crate::inner_names::InnerNames;

/// Nodes that a pass has made and that are not in the lists of their graphs yet: putting a node
/// into the middle of a list takes as long as the list, so this is done for all of them together.
#[derive(Debug, Clone, Default)]
pub struct MadeNodes {
    /// In the order in which they were made.
    beside: Vec<Beside>,
    /// By node: what it was made for.
    made_for: Vec<Option<MadeFor>>,
    /// The first outputs that calls had whose places the nodes of a body have taken.
    outputs_of_calls: HashMap<NodeId, ValueId>,
    /// Nodes whose place others have taken.
    gone: HashSet<NodeId>,
    /// Small constants that were made, by what they hold: most nodes want the same few.
    constants: HashMap<SmallConstant, ValueId>,
    /// The names that nodes of bodies get.
    names: InnerNames,
}

/// What a node was made for that the file does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MadeFor {
    /// A node that needs others beside it or in its place.
    Node(NodeId),
    /// A call of a function: the node is of its body.
    Call {
        /// The call.
        call: NodeId,
        /// The node of the function that this one is a copy of; the call itself for one that
        /// hands on what the function only passes through.
        of: NodeId,
    },
}

/// Bytes up to which a constant is small.
const SMALL: usize = 64;

/// A small constant of a graph: type, dimensions and elements.
type SmallConstant = (GraphId, DataType, Dims, SmallVec<[u8; 16]>);

/// A new node next to a node.
#[derive(Debug, Clone, Copy)]
struct Beside {
    anchor: NodeId,
    side: Side,
    node: NodeId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// Before the anchor, and after those that were made before it earlier.
    Before,
    /// After the anchor, and before those that were made after it earlier: the one made last reads
    /// what the anchor writes.
    After,
}

impl MadeNodes {
    /// Makes room for nodes that are to be made.
    pub fn reserve(&mut self, nodes: usize) {
        self.beside.reserve(nodes);
        self.made_for.reserve(nodes);
    }

    /// The node of the file that a node was made for, through all calls; the node itself if it was
    /// not made.
    pub fn origin(&self, node: NodeId) -> NodeId {
        let mut origin = node;
        while let Some(MadeFor::Node(of) | MadeFor::Call { call: of, .. }) = self.made_for(origin) {
            origin = of;
        }
        origin
    }

    /// What a node was made for; `None` for a node of the file.
    pub fn made_for(&self, node: NodeId) -> Option<MadeFor> {
        self.made_for.get(node.index()).copied().flatten()
    }

    /// The call in whose place a node is, as a part of the body of a function.
    pub fn call_of(&self, node: NodeId) -> Option<NodeId> {
        match self.made_for(node) {
            Some(MadeFor::Call { call, .. }) => Some(call),
            Some(MadeFor::Node(_)) | None => None,
        }
    }

    /// The first output of a node, or the one that it had before the nodes of a body took its
    /// place.
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

    /// Whether others have taken the place of a node, or of one that it is inside of, since the
    /// last call of [`place`](Self::place).
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

    /// Takes a node out of its graph, which loses it when the others are placed.
    pub fn remove(&mut self, model: &mut Model, node: NodeId) {
        model.detach_node(node);
        self.gone.insert(node);
    }

    /// Whether nodes wait for a place, or to go.
    pub fn is_waiting(&self) -> bool {
        !self.beside.is_empty() || !self.gone.is_empty()
    }

    /// Puts nodes into the lists of their graphs beside those for which they were made since the
    /// last call, and takes those out whose place others have taken.
    pub fn place(&mut self, model: &mut Model) {
        let (mut beside, gone) = (std::mem::take(&mut self.beside), std::mem::take(&mut self.gone));
        beside.sort_by_key(|beside| beside.anchor);
        // By graph that changes: how many nodes come into it.
        let mut graphs: HashMap<GraphId, usize> = HashMap::new();
        for node in beside.iter().map(|beside| beside.anchor) {
            *graphs.entry(model.node(node).graph).or_default() += 1;
        }
        for node in &gone {
            graphs.entry(model.node(*node).graph).or_default();
        }
        // By anchor: where its neighbours begin.
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
            // Nodes can be made beside nodes that were made. `true`: what is beside it is open.
            let mut open: SmallVec<[(NodeId, bool); 8]> = SmallVec::new();
            for node in nodes {
                open.push((node, false));
                while let Some((node, is_opened)) = open.pop() {
                    if !is_opened && first[node.index()] != u32::MAX {
                        // What is put down last comes first.
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

/// Makes nodes beside one node, in its graph, in constant time each.
#[derive(Debug)]
pub struct NodeBuilder<'m> {
    model: &'m mut Model,
    made: &'m mut MadeNodes,
    anchor: NodeId,
}

impl<'m> NodeBuilder<'m> {
    /// For nodes beside `anchor`.
    pub fn new(model: &'m mut Model, made: &'m mut MadeNodes, anchor: NodeId) -> Self {
        NodeBuilder { model, made, anchor }
    }

    /// The model.
    pub fn model(&self) -> &Model {
        self.model
    }

    /// Changes the model.
    pub fn model_mut(&mut self) -> &mut Model {
        self.model
    }

    /// The node beside which others are made.
    pub fn anchor(&self) -> NodeId {
        self.anchor
    }

    pub(crate) fn made(&self) -> &MadeNodes {
        self.made
    }

    pub(crate) fn inner_names(&mut self) -> &mut InnerNames {
        &mut self.made.names
    }

    /// A constant of the graph: the one that was made before if that is equal and small. The name
    /// of a new one begins with `hint`.
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

    /// A node of one output before the anchor, after all that were made before it so far.
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

    /// A node of one output after the anchor. It reads the anchor's output at `output` and
    /// `more_inputs`; whatever read that output reads the new node's instead, under the name that
    /// it had. `None` if the anchor does not have that output.
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
        // The value keeps its name and its readers and gets a new producer; the anchor gets a fresh
        // value to write to.
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

    /// Lets the nodes of a body take the place of the anchor, which calls its function and made
    /// `output`, after what was made before it. `all` are those in graphs of nodes, too.
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

    /// Lets copies of nodes come before the anchor, which they are made for, after what was made
    /// before it so far. `copied` are those in graphs of nodes, too.
    pub(crate) fn put_before(&mut self, nodes: Vec<NodeId>, copied: &[Copied]) {
        for Copied { node, of } in copied {
            self.made.set_made_for(*node, MadeFor::Call { call: self.anchor, of: *of });
        }
        nodes.into_iter().for_each(|node| self.put(Side::Before, node));
    }

    /// Moves what the anchor does into a node of the same operator in a new graph, the attribute
    /// `name` of the anchor. The graph has an input for each input of the anchor, and the outputs
    /// of that node; the anchor keeps its place and its outputs, and no other attribute.
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

    /// A node at the end of any graph, made for the anchor.
    pub fn inside(
        &mut self,
        graph: GraphId,
        op_type: &str,
        domain: &str,
        inputs: &[Option<ValueId>],
        outputs: usize,
    ) -> NodeId {
        let node = self.model.add_node(graph, op_type, domain, inputs, outputs);
        self.is_made_for_anchor(node);
        node
    }

    /// Says that a node is made for what the anchor is made for, or else for the anchor.
    fn is_made_for_anchor(&mut self, node: NodeId) {
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
        self.is_made_for_anchor(node);
        (node, outputs[0])
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_tensor::Buffer;

    use super::*;

    /// A model whose main graph has these nodes, each reading the one before.
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
        // What is made last reads what the node writes.
        build.after(0, "outer", "", &[], &[]).expect("an output");
        build.after(0, "inner", "", &[], &[]).expect("an output");
        assert_eq!(build.after(1, "none", "", &[], &[]), None);
        // Nodes that were made can need others.
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
