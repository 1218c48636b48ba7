//! Parts of a model as models of their own.

use std::ops::RangeInclusive;

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{
    AttrValue, AttributeValue, Attributes, GraphId, Model, NoExternalData, NodeAttributes, NodeId,
    OperatorSetId, Producer, Type, ValueId,
};
use sardonyx_tensor::{CastOptions, DataType, Tensor, cast};

use crate::infer::{Inference, declaration};
use crate::ir_version::NEWEST_IR_VERSION;
use crate::matcher::{Rewrite, Source};
use crate::resolve::Resolved;

/// Integers in a part of a model.
#[derive(Default)]
pub(super) struct Numbers {
    /// Sizes of constants.
    pub(super) sizes: HashSet<i64>,
    /// Attributes and elements of short constants: sizes, axes, positions along axes.
    pub(super) elements: HashSet<i64>,
}

impl Numbers {
    /// Whether a number is among them.
    pub(super) fn has(&self, number: i64) -> bool {
        self.sizes.contains(&number) || self.elements.contains(&number)
    }

    /// Whether one may be a position in a range of an axis, counted from either end.
    pub(super) fn has_position(&self, range: &RangeInclusive<i64>) -> bool {
        self.elements.iter().any(|element| range.contains(&element.saturating_abs()))
    }
}

/// Bytes of the constants whose elements may be sizes, axes or positions.
const MOST_LISTED: u64 = 1 << 10;

/// Limit: nodes that are run to verify one rewrite.
const MOST_NODES: usize = 48;

/// A model made of a few nodes. Constants are shared with the model from which they come.
pub(super) struct Mini {
    model: Model,
    graph: GraphId,
    /// Values of the model by those that they stand for.
    values: HashMap<ValueId, ValueId>,
}

impl Mini {
    /// Makes a model without nodes that imports a version of `ai.onnx`.
    pub(super) fn new(opset: u32) -> Mini {
        let mut model = Model::default();
        model.header.ir_version = Some(NEWEST_IR_VERSION);
        let import = OperatorSetId { version: Some(i64::from(opset)), ..OperatorSetId::default() };
        model.header.opset_import.push(import);
        let graph = model.add_graph("part");
        model.main = Some(graph);
        Mini { model, graph, values: HashMap::new() }
    }

    /// Adds an input of a type, which stands for a value.
    pub(super) fn add_input(&mut self, value: ValueId, ty: &Type) {
        let ty = declaration(&mut self.model, ty);
        let made = self.model.add_value(self.graph, "in");
        self.model.make_input(self.graph, made, Some(ty));
        self.values.insert(value, made);
    }

    /// Returns the value that stands for another one: that of a node or input of this model, or a
    /// constant.
    fn value(
        &mut self,
        value: ValueId,
        constant: &dyn Fn(ValueId) -> Option<Tensor>,
    ) -> Option<ValueId> {
        if let Some(found) = self.values.get(&value) {
            return Some(*found);
        }
        let tensor = constant(value)?;
        let made = self.model.add_initializer(self.graph, "constant", &tensor);
        self.values.insert(value, made);
        Some(made)
    }

    /// Lets a value stand for another one as well.
    pub(super) fn alias(&mut self, value: ValueId, other: ValueId) -> Option<()> {
        let found = *self.values.get(&other)?;
        self.values.insert(value, found);
        Some(())
    }

    /// Adds a copy of a node, whose inputs are there or constant. `None` if the node cannot be
    /// copied: a call, a node with graphs, an attribute that refers to another.
    pub(super) fn add_node(
        &mut self,
        from: &Model,
        node: NodeId,
        constant: &dyn Fn(ValueId) -> Option<Tensor>,
    ) -> Option<()> {
        let inputs = from.inputs(node).map(|input| match input {
            Some(value) => Some(Some(self.value(value, constant)?)),
            None => Some(None),
        });
        let inputs: Vec<Option<ValueId>> = inputs.collect::<Option<_>>()?;
        self.add_node_reading(from, node, &inputs)
    }

    /// Adds a copy of a node that reads values of this model.
    fn add_node_reading(
        &mut self,
        from: &Model,
        node: NodeId,
        inputs: &[Option<ValueId>],
    ) -> Option<()> {
        if !from.domain_of(node).is_empty() {
            return None;
        }
        let outputs = from.outputs(node).to_vec();
        let op = from.display(from.node(node).op_type).into_owned();
        let made = self.model.add_node(self.graph, &op, "", inputs, outputs.len());
        let attributes = NodeAttributes::new(from, node);
        for id in from.attributes(node) {
            let name = from.display(from.attribute(*id).name).into_owned();
            match attributes.attribute(&name)? {
                AttrValue::Graph(_)
                | AttrValue::Type(_)
                | AttrValue::Unread(_)
                | AttrValue::Other => {
                    return None;
                }
                value => self.model.set_attribute(made, &name, value),
            }
        }
        let mut left_out = Vec::new();
        for (index, output) in outputs.iter().enumerate() {
            match (output, self.model.outputs(made)[index]) {
                (Some(output), Some(made)) => {
                    self.values.insert(*output, made);
                }
                _ => left_out.push(index),
            }
        }
        for index in left_out.into_iter().rev() {
            self.model.drop_output(made, index);
        }
        Some(())
    }

    /// Makes values the outputs of the model, which is complete then.
    pub(super) fn finish(mut self, outputs: &[ValueId]) -> Option<Model> {
        let mut listed = HashSet::new();
        for output in outputs {
            let mut value = *self.values.get(output)?;
            let is_made = matches!(self.model.value(value).producer, Producer::Node(..));
            // Inputs, constants and repeated outputs get nodes of their own.
            if !is_made || !listed.insert(value) {
                let node = self.model.add_node(self.graph, "Identity", "", &[Some(value)], 1);
                value = self.model.outputs(node).first().copied().flatten()?;
            }
            self.model.add_graph_output(self.graph, value);
        }
        Some(self.model)
    }
}

/// A rewrite in its surroundings.
pub(super) struct Change<'a> {
    pub(super) resolved: &'a Resolved,
    pub(super) inference: &'a Inference,
    /// Version of `ai.onnx` that is imported.
    pub(super) opset: u32,
    pub(super) anchor: NodeId,
    pub(super) rewrite: &'a Rewrite,
    pub(super) constant: &'a dyn Fn(ValueId) -> Option<Tensor>,
}

/// The nodes of a change before and after, as models with the same inputs and outputs.
pub(super) struct Pair {
    pub(super) before: Model,
    pub(super) after: Model,
}

impl Pair {
    /// Counts the bytes of the constants of both models.
    pub(super) fn size(&self) -> u64 {
        let graphs = [&self.before, &self.after].map(|model| (model, model.main_graph()));
        let initializers = graphs.into_iter().flat_map(|(model, graph)| {
            let initializers = graph.into_iter().flat_map(|graph| &graph.initializers);
            initializers.filter_map(move |found| model.implied_bytes(&found.tensor))
        });
        initializers.sum()
    }

    /// Lists the integers that the nodes and constants of both models have.
    pub(super) fn numbers(&self) -> Numbers {
        let mut numbers = Numbers::default();
        for model in [&self.before, &self.after] {
            let Some(graph) = model.main_graph() else { continue };
            for found in &graph.initializers {
                numbers.sizes.extend(&found.tensor.dims);
                let count = model.implied_bytes(&found.tensor);
                if count.is_some_and(|bytes| bytes <= MOST_LISTED)
                    && let Ok(tensor) = model.tensor(&found.tensor, &NoExternalData)
                    && tensor.data_type().is_integer()
                    && let Ok(wide) = cast(&tensor, DataType::Int64, CastOptions::default())
                {
                    numbers.elements.extend(wide.to_vec::<i64>().unwrap_or_default());
                }
            }
            for node in &graph.nodes {
                for id in model.attributes(*node) {
                    match model.attribute(*id).value() {
                        Some(AttributeValue::Int(number)) => {
                            numbers.elements.insert(*number);
                        }
                        Some(AttributeValue::Ints(found)) => numbers.elements.extend(found),
                        _ => {}
                    }
                }
            }
        }
        numbers
    }
}

impl Change<'_> {
    /// Lists the nodes that change, each after those that it reads. Nodes further up are included
    /// until the new nodes read nothing that does not flow into the old ones: otherwise values that
    /// depend on each other would be drawn independently.
    fn nodes(&self) -> Vec<NodeId> {
        let model = self.resolved.model();
        let mut nodes = self.rewrite.fused.clone();
        nodes.push(self.anchor);
        nodes.sort_unstable();
        nodes.dedup();
        let given = self.list_sources();
        while nodes.len() < MOST_NODES {
            let read: HashSet<ValueId> =
                nodes.iter().flat_map(|node| model.inputs(*node).flatten()).collect();
            let are_there = given.iter().all(|value| {
                let made = model.value(*value).producer;
                read.contains(value)
                    || (self.constant)(*value).is_some()
                    || matches!(made, Producer::Node(node, _) if nodes.contains(&node))
            });
            if are_there {
                break;
            }
            let before = nodes.len();
            for value in read.iter().filter(|value| !given.contains(*value)) {
                if let Producer::Node(node, _) = model.value(*value).producer
                    && model.node(node).graph == model.node(self.anchor).graph
                    && (self.constant)(*value).is_none()
                    && !nodes.contains(&node)
                {
                    nodes.push(node);
                }
            }
            if nodes.len() == before {
                break;
            }
        }
        self.sort_nodes(&nodes)
    }

    /// Lists the values that the new nodes read.
    fn list_sources(&self) -> Vec<ValueId> {
        let steps = self.rewrite.steps.iter().flat_map(|step| &step.inputs);
        let edits = self.rewrite.edits.iter().map(|edit| &edit.source);
        let given = steps.chain(edits).filter_map(|source| match source {
            Source::Value(value) => Some(*value),
            _ => None,
        });
        given.chain(self.rewrite.value).collect()
    }

    /// Sorts nodes so that each comes after those that it reads.
    fn sort_nodes(&self, nodes: &[NodeId]) -> Vec<NodeId> {
        let model = self.resolved.model();
        let mut sorted: Vec<NodeId> = Vec::with_capacity(nodes.len());
        // There are few nodes.
        while sorted.len() < nodes.len() {
            let before = sorted.len();
            for node in nodes {
                let is_ready = model.inputs(*node).flatten().all(|value| {
                    !matches!(model.value(value).producer, Producer::Node(made, _)
                        if made != *node && nodes.contains(&made) && !sorted.contains(&made))
                });
                if is_ready && !sorted.contains(node) {
                    sorted.push(*node);
                }
            }
            if sorted.len() == before {
                break;
            }
        }
        sorted
    }

    /// Lists the values that flow into the change: those that its nodes read, before and after,
    /// from other nodes.
    pub(super) fn inputs(&self) -> Vec<ValueId> {
        let model = self.resolved.model();
        let nodes = self.nodes();
        let made: HashSet<ValueId> =
            nodes.iter().flat_map(|node| model.outputs(*node).iter().flatten().copied()).collect();
        let read = nodes.iter().flat_map(|node| model.inputs(*node).flatten());
        let read = read.chain(self.list_sources());
        let mut seen = HashSet::new();
        read.filter(|value| {
            !made.contains(value) && (self.constant)(*value).is_none() && seen.insert(*value)
        })
        .collect()
    }

    /// Whether the integers of a value decide the shapes of results: drawn ones would not fit.
    pub(super) fn decides_shapes(&self, value: ValueId) -> bool {
        let model = self.resolved.model();
        self.nodes().into_iter().any(|node| {
            let Some(op) = self.resolved.op(node) else { return false };
            let deciding = op.def.deciding_inputs();
            model
                .inputs(node)
                .enumerate()
                .any(|(index, input)| input == Some(value) && deciding.contains(&index))
        })
    }

    /// Lists the values that flow out of the change: outputs of its nodes that others read.
    fn outputs(&self, nodes: &[NodeId]) -> Vec<ValueId> {
        let model = self.resolved.model();
        let all = nodes.iter().flat_map(|node| model.outputs(*node).iter().flatten().copied());
        all.filter(|value| {
            model.value(*value).is_output
                || model.uses(*value).any(|(reader, _)| !nodes.contains(&reader))
        })
        .collect()
    }

    /// Makes both models for inputs of the given types. `None` if some node cannot be copied.
    pub(super) fn models(&self, inputs: &[(ValueId, Type)]) -> Option<Pair> {
        let model = self.resolved.model();
        let nodes = self.nodes();
        let anchored = model.outputs(self.anchor).first().copied().flatten()?;
        let outputs = self.outputs(&nodes);
        let mut before = Mini::new(self.opset);
        let mut after = Mini::new(self.opset);
        for mini in [&mut before, &mut after] {
            inputs.iter().for_each(|(value, ty)| mini.add_input(*value, ty));
        }
        for node in &nodes {
            before.add_node(model, *node, self.constant)?;
        }
        if let Some(value) = self.rewrite.value {
            for node in &nodes {
                // The anchor gives the value, once that is there.
                if *node == self.anchor {
                    after.value(value, self.constant)?;
                    after.alias(anchored, value)?;
                } else if self.rewrite.edits.iter().any(|edit| edit.node == *node) {
                    self.add_edited(&mut after, *node)?;
                } else {
                    after.add_node(model, *node, self.constant)?;
                }
            }
        } else {
            // Nodes that others read stay beside the new ones.
            for node in nodes.iter().filter(|node| **node != self.anchor) {
                after.add_node(model, *node, self.constant)?;
            }
            self.add_steps(&mut after, anchored)?;
        }
        let (before, after) = (before.finish(&outputs)?, after.finish(&outputs)?);
        Some(Pair { before, after })
    }

    fn add_edited(&self, mini: &mut Mini, node: NodeId) -> Option<()> {
        let model = self.resolved.model();
        let mut inputs = Vec::new();
        for input in model.inputs(node) {
            inputs.push(match input {
                Some(value) => Some(mini.value(value, self.constant)?),
                None => None,
            });
        }
        for edit in self.rewrite.edits.iter().filter(|edit| edit.node == node) {
            let source = match &edit.source {
                Source::Value(value) => mini.value(*value, self.constant)?,
                Source::Constant(tensor) => {
                    mini.model.add_initializer(mini.graph, "constant", tensor)
                }
                Source::Step(_) | Source::Absent => return None,
            };
            if inputs.len() <= edit.index {
                inputs.resize(edit.index + 1, None);
            }
            inputs[edit.index] = Some(source);
        }
        mini.add_node_reading(model, node, &inputs)
    }

    fn add_steps(&self, mini: &mut Mini, anchored: ValueId) -> Option<()> {
        let mut made: Vec<ValueId> = Vec::new();
        for step in &self.rewrite.steps {
            let mut inputs = Vec::new();
            for source in &step.inputs {
                inputs.push(match source {
                    Source::Value(value) => Some(mini.value(*value, self.constant)?),
                    Source::Step(index) => Some(*made.get(*index)?),
                    Source::Constant(tensor) => {
                        Some(mini.model.add_initializer(mini.graph, "constant", tensor))
                    }
                    Source::Absent => None,
                });
            }
            let node = mini.model.add_node(mini.graph, step.op.name, "", &inputs, 1);
            for (name, value) in &step.attributes {
                mini.model.set_attribute(node, name, value.clone());
            }
            made.push(mini.model.outputs(node).first().copied().flatten()?);
        }
        mini.values.insert(anchored, *made.last()?);
        Some(())
    }
}
