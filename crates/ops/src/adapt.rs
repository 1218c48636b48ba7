//! The context in which a node is turned into the form of a neighbouring version.

use std::fmt;

use sardonyx_model::{
    AttrValue, AttributeValue, Attributes, Model, NoExternalData, NodeBuilder, NodeId, Producer,
    Type, ValueId,
};
use sardonyx_tensor::Tensor;

/// What inference found of values.
pub trait ValueTypes {
    /// The type of a value, as far as known.
    fn ty(&self, value: ValueId) -> Option<&Type>;
}

/// What an adapter sees of a node, and how it changes it.
///
/// An adapter either leaves a node that means exactly the same in the new version, or refuses; it
/// never guesses.
pub struct Adapt<'a> {
    build: NodeBuilder<'a>,
    types: &'a dyn ValueTypes,
    /// Nodes that the adapter made: in the form of the new version.
    made: Vec<NodeId>,
}

impl fmt::Debug for Adapt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adapt").field("node", &self.node()).finish_non_exhaustive()
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

impl<'a> Adapt<'a> {
    /// For the node at which `build` makes others, of whose values `types` knows what inference
    /// found.
    pub fn new(build: NodeBuilder<'a>, types: &'a dyn ValueTypes) -> Self {
        Adapt { build, types, made: Vec::new() }
    }

    fn model(&self) -> &Model {
        self.build.model()
    }

    fn node(&self) -> NodeId {
        self.build.anchor()
    }

    /// The nodes that the adapter made.
    pub fn into_made(self) -> Vec<NodeId> {
        self.made
    }

    /// Outputs, absent ones counted.
    pub(crate) fn output_count(&self) -> usize {
        self.model().outputs(self.node()).len()
    }

    /// Whether the node has that output, with a name.
    pub(crate) fn has_output(&self, index: usize) -> bool {
        self.model().outputs(self.node()).get(index).is_some_and(Option::is_some)
    }

    /// Whether somebody reads that output.
    pub(crate) fn is_used(&self, index: usize) -> bool {
        let value = self.model().outputs(self.node()).get(index).copied().flatten();
        value.is_some_and(|value| self.model().is_read(value))
    }

    /// What the node reads at a position; `None` for an input left out.
    pub(crate) fn input(&self, index: usize) -> Option<ValueId> {
        self.model().inputs(self.node()).nth(index).flatten()
    }

    /// The type of an input, as inferred.
    pub(crate) fn input_type(&self, index: usize) -> Option<&'a Type> {
        self.types.ty(self.input(index)?)
    }

    /// The rank of an input, as inferred.
    pub(crate) fn rank(&self, index: usize) -> Option<usize> {
        self.input_type(index)?.shape().map(|shape| shape.len())
    }

    /// The value of an input that is a constant of the graph, or the tensor of a `Constant` node.
    pub(crate) fn constant(&self, index: usize) -> Option<Tensor> {
        let (model, value) = (self.model(), self.input(index)?);
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

    /// Whether the node has an attribute of that name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.model().attribute_of(self.node(), name).is_some()
    }

    /// Takes an attribute away.
    pub(crate) fn remove(&mut self, name: &str) {
        let node = self.node();
        self.build.model_mut().remove_attribute(node, name);
    }

    /// Sets an attribute.
    pub(crate) fn set<'v>(&mut self, name: &str, value: impl Into<AttrValue<'v>>) {
        let node = self.node();
        self.build.model_mut().set_attribute(node, name, value);
    }

    /// Replaces an input; the list grows by absent inputs as needed.
    pub(crate) fn set_input(&mut self, index: usize, value: Option<ValueId>) {
        let node = self.node();
        self.build.model_mut().set_input(node, index, value);
    }

    /// Replaces all inputs.
    pub(crate) fn set_inputs(&mut self, inputs: &[Option<ValueId>]) {
        let node = self.node();
        self.build.model_mut().set_inputs(node, inputs);
    }

    /// Leaves an output out. The caller has made sure that nobody needs it.
    pub(crate) fn drop_output(&mut self, index: usize) {
        let node = self.node();
        self.build.model_mut().drop_output(node, index);
    }

    /// Adds a constant to the graph.
    pub(crate) fn add_constant(&mut self, tensor: Tensor) -> ValueId {
        self.build.constant("constant", &tensor)
    }

    /// Adds a vector of `int64` to the graph.
    pub(crate) fn add_ints(&mut self, values: &[i64]) -> ValueId {
        let tensor = Tensor::from_slice([values.len()], values)
            .expect("a vector has as many elements as its dimension");
        self.add_constant(tensor)
    }

    /// Makes a node of the default domain, in the form of the new version, before this one. Returns
    /// its output.
    pub(crate) fn before(
        &mut self,
        op: &'static str,
        inputs: &[Option<ValueId>],
        attributes: &[(&str, AttrValue<'_>)],
    ) -> ValueId {
        let (node, output) = self.build.before(op, "", inputs, attributes);
        self.made.push(node);
        output
    }

    /// Makes a node of the default domain, in the form of the new version, after this one. It reads
    /// the output at `output` and `more_inputs`; whatever read that output reads the new node's
    /// instead, and it takes its name over.
    pub(crate) fn after(
        &mut self,
        output: usize,
        op: &'static str,
        more_inputs: &[Option<ValueId>],
        attributes: &[(&str, AttrValue<'_>)],
    ) {
        let made = self.build.after(output, op, "", more_inputs, attributes);
        self.made.extend(made);
    }

    /// What an adapter returns when it cannot keep the meaning.
    pub(crate) fn refuse(&self, why: impl fmt::Display) -> Refusal {
        Refusal(format!("{}: {why}", self.model().display(self.model().node(self.node()).op_type)))
    }
}

impl Attributes for Adapt<'_> {
    fn attribute(&self, name: &str) -> Option<AttrValue<'_>> {
        let model = self.model();
        model.attribute_value(model.attribute_of(self.node(), name)?, None)
    }

    /// A present attribute without elements is an empty list, whatever it says of its type.
    fn ints(&self, name: &str) -> Option<Vec<i64>> {
        match self.attribute(name) {
            Some(AttrValue::Ints(values)) => Some(values.into_owned()),
            Some(_) => None,
            None => self.has(name).then(Vec::new),
        }
    }
}

#[cfg(test)]
impl ValueTypes for std::collections::HashMap<ValueId, Option<Type>> {
    fn ty(&self, value: ValueId) -> Option<&Type> {
        self.get(&value)?.as_ref()
    }
}
