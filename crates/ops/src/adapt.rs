//! The context in which a node is turned into the form of a neighbouring version.

use std::fmt;

use sardonyx_model::{
    AttributeValue, Model, NewAttribute, NoExternalData, NodeId, Producer, Type, ValueId,
};
use sardonyx_tensor::Tensor;

/// What an adapter sees of a node, and how it changes it.
///
/// An adapter either leaves a node that means exactly the same in the new version, or refuses; it never guesses.
pub struct Adapt<'a> {
    model: &'a mut Model,
    node: NodeId,
    types: &'a dyn Fn(ValueId) -> Option<Type>,
    /// Nodes that the adapter made: in the form of the new version.
    made: Vec<NodeId>,
}

impl fmt::Debug for Adapt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adapt")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

/// Why a node cannot be turned into the other version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(pub String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

/// An attribute of a node that an adapter makes.
#[derive(Debug, Clone, Copy)]
pub enum AttrArg<'a> {
    /// An integer.
    Int(i64),
    /// A float.
    Float(f32),
    /// Integers.
    Ints(&'a [i64]),
    /// A string.
    String(&'a str),
}

impl<'a> Adapt<'a> {
    /// For a node of a model, of whose values `types` knows what inference found.
    pub fn new(
        model: &'a mut Model,
        node: NodeId,
        types: &'a dyn Fn(ValueId) -> Option<Type>,
    ) -> Self {
        Adapt {
            model,
            node,
            types,
            made: Vec::new(),
        }
    }

    /// The nodes that the adapter made.
    pub fn into_made(self) -> Vec<NodeId> {
        self.made
    }

    /// Inputs, absent ones counted.
    pub fn input_count(&self) -> usize {
        self.model.inputs(self.node).len()
    }

    /// Outputs, absent ones counted.
    pub fn output_count(&self) -> usize {
        self.model.outputs(self.node).len()
    }

    /// Whether the node has that output, with a name.
    pub fn has_output(&self, index: usize) -> bool {
        self.model
            .outputs(self.node)
            .get(index)
            .is_some_and(Option::is_some)
    }

    /// Whether somebody reads that output.
    pub fn is_used(&self, index: usize) -> bool {
        let value = self.model.outputs(self.node).get(index).copied().flatten();
        value.is_some_and(|value| self.model.is_read(value))
    }

    /// What the node reads at a position; `None` for an input left out.
    pub fn input(&self, index: usize) -> Option<ValueId> {
        self.model.inputs(self.node).nth(index).flatten()
    }

    /// The type of an input, as inferred.
    pub fn input_type(&self, index: usize) -> Option<Type> {
        (self.types)(self.input(index)?)
    }

    /// The rank of an input, as inferred.
    pub fn rank(&self, index: usize) -> Option<usize> {
        self.input_type(index)?.shape().map(|shape| shape.len())
    }

    /// The value of an input that is a constant of the graph, or the tensor of a `Constant` node.
    pub fn constant(&self, index: usize) -> Option<Tensor> {
        let (model, value) = (&*self.model, self.input(index)?);
        let tensor = match model.value(value).producer {
            Producer::Node(node, _) => {
                let is_constant = model.display(model.node(node).op_type) == "Constant"
                    && model.domain_of(node).is_empty();
                let attribute = model.attribute_of(node, "value").filter(|_| is_constant)?;
                match attribute.value()? {
                    AttributeValue::Tensor(tensor) => tensor,
                    _ => return None,
                }
            }
            _ => &model.initializer(value)?.tensor,
        };
        model.tensor(tensor, &NoExternalData).ok()
    }

    fn value(&self, name: &str) -> Option<&AttributeValue> {
        self.model.attribute_of(self.node, name)?.value()
    }

    /// Whether the node has an attribute of that name.
    pub fn has(&self, name: &str) -> bool {
        self.model.attribute_of(self.node, name).is_some()
    }

    /// An integer attribute of the node; defaults are not looked up.
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.value(name)? {
            AttributeValue::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// A float attribute of the node.
    pub fn float(&self, name: &str) -> Option<f32> {
        match self.value(name)? {
            AttributeValue::Float(value) => Some(*value),
            _ => None,
        }
    }

    /// An attribute of integers of the node. A present attribute without elements is an empty list.
    pub fn ints(&self, name: &str) -> Option<Vec<i64>> {
        match self.value(name) {
            Some(AttributeValue::Ints(values)) => Some(values.clone()),
            Some(_) => None,
            None => self.has(name).then(Vec::new),
        }
    }

    /// A string attribute of the node.
    pub fn string(&self, name: &str) -> Option<String> {
        match self.value(name)? {
            AttributeValue::String(span) => {
                String::from_utf8(self.model.bytes(*span).to_vec()).ok()
            }
            _ => None,
        }
    }

    /// Takes an attribute away.
    pub fn remove(&mut self, name: &str) {
        self.model.remove_attribute(self.node, name);
    }

    /// Sets an attribute.
    pub fn set(&mut self, name: &str, value: AttrArg<'_>) {
        set(self.model, self.node, name, value);
    }

    /// Sets an integer attribute.
    pub fn set_int(&mut self, name: &str, value: i64) {
        self.set(name, AttrArg::Int(value));
    }

    /// Sets a float attribute.
    pub fn set_float(&mut self, name: &str, value: f32) {
        self.set(name, AttrArg::Float(value));
    }

    /// Sets an attribute of integers.
    pub fn set_ints(&mut self, name: &str, values: &[i64]) {
        self.set(name, AttrArg::Ints(values));
    }

    /// Sets a string attribute.
    pub fn set_string(&mut self, name: &str, value: &str) {
        self.set(name, AttrArg::String(value));
    }

    /// Replaces an input; the list grows by absent inputs as needed.
    pub fn set_input(&mut self, index: usize, value: Option<ValueId>) {
        self.model.set_input(self.node, index, value);
    }

    /// Replaces all inputs.
    pub fn set_inputs(&mut self, inputs: &[Option<ValueId>]) {
        self.model.set_inputs(self.node, inputs);
    }

    /// Leaves an output out. The caller has made sure that nobody needs it.
    pub fn drop_output(&mut self, index: usize) {
        self.model.drop_output(self.node, index);
    }

    /// Adds a constant to the graph.
    pub fn add_constant(&mut self, tensor: Tensor) -> ValueId {
        let graph = self.model.node(self.node).graph;
        self.model.add_initializer(graph, "constant", &tensor)
    }

    /// Adds a vector of `int64` to the graph.
    pub fn add_ints(&mut self, values: &[i64]) -> ValueId {
        let tensor = Tensor::from_slice([values.len()], values)
            .expect("a vector has as many elements as its dimension");
        self.add_constant(tensor)
    }

    /// Makes a node of the default domain, in the form of the new version, before this one. Returns its output.
    pub fn before(
        &mut self,
        op: &'static str,
        inputs: &[Option<ValueId>],
        attributes: &[(&str, AttrArg<'_>)],
    ) -> ValueId {
        let node = self.make(self.position(), op, inputs, attributes);
        self.model.outputs(node)[0].expect("a new node has its outputs")
    }

    /// Makes a node of the default domain, in the form of the new version, after this one. It reads the output at
    /// `output` and `more_inputs`; whoever read that output reads the new node's instead, and it takes its name over.
    pub fn after(
        &mut self,
        output: usize,
        op: &'static str,
        more_inputs: &[Option<ValueId>],
        attributes: &[(&str, AttrArg<'_>)],
    ) {
        let Some(value) = self.model.outputs(self.node).get(output).copied().flatten() else {
            return;
        };
        // The value keeps its name and its readers and gets a new producer; the node gets a fresh value to write to.
        let graph = self.model.node(self.node).graph;
        let between = self.model.add_value(graph, "adapted");
        self.model.redefine_output(self.node, output, between);
        let inputs: Vec<Option<ValueId>> = std::iter::once(Some(between))
            .chain(more_inputs.iter().copied())
            .collect();
        let node = self.make(self.position() + 1, op, &inputs, attributes);
        self.model.redefine_output(node, 0, value);
    }

    fn make(
        &mut self,
        position: usize,
        op: &'static str,
        inputs: &[Option<ValueId>],
        attributes: &[(&str, AttrArg<'_>)],
    ) -> NodeId {
        let graph = self.model.node(self.node).graph;
        let node = self.model.add_node(graph, position, op, "", inputs, 1);
        for (name, value) in attributes {
            set(self.model, node, name, *value);
        }
        self.made.push(node);
        node
    }

    fn position(&self) -> usize {
        let graph = self.model.graph(self.model.node(self.node).graph);
        graph
            .nodes
            .iter()
            .position(|node| *node == self.node)
            .unwrap_or(graph.nodes.len())
    }

    /// What an adapter returns when it cannot keep the meaning.
    pub fn refuse(&self, why: impl fmt::Display) -> Refusal {
        Refusal(format!(
            "{}: {why}",
            self.model.display(self.model.node(self.node).op_type)
        ))
    }
}

fn set(model: &mut Model, node: NodeId, name: &str, value: AttrArg<'_>) {
    let value = match value {
        AttrArg::Int(value) => NewAttribute::Int(value),
        AttrArg::Float(value) => NewAttribute::Float(value),
        AttrArg::Ints(values) => NewAttribute::Ints(values),
        AttrArg::String(value) => NewAttribute::String(value),
    };
    model.set_attribute(node, name, value);
}
