//! Context in which an adapter turns a node into the form of a neighbouring version.

use std::cell::RefCell;
use std::fmt;

use sardonyx_model::{
    AttrValue, AttributeValue, Attributes, GraphId, Model, NoExternalData, NodeBuilder, NodeId,
    Producer, TensorProto, Type, ValueId,
};
use sardonyx_tensor::Tensor;

use crate::known::Known;

/// Results of inference for the values of a model.
pub trait ValueTypes {
    /// Returns the type of a value, as far as known.
    fn ty(&self, value: ValueId) -> Option<&Type>;

    /// Returns the contents of a value that are equal in every run, as far as known.
    fn known(&self, value: ValueId) -> Option<&Known>;

    /// Returns the default of an input of the graph, which counts where the caller of the model
    /// passes nothing for it.
    fn default(&self, _value: ValueId) -> Option<&Tensor> {
        None
    }
}

/// View of a node for its adapter, which changes the node through it.
///
/// An adapter makes a node that means exactly the same in the new version, or refuses; it never
/// guesses.
pub struct Adapt<'a> {
    build: NodeBuilder<'a>,
    types: &'a dyn ValueTypes,
    /// Nodes that the adapter made, in the form of the new version.
    made: Vec<NodeId>,
    granted: &'a [Assumption],
    /// See [`runs`](Adapt::runs).
    runs: bool,
    /// Whether the node's work moved into a graph of its own or between two other nodes.
    is_wrapped: bool,
    /// Assumptions that the adapter relied on. A cell, since looking at an operand may need one.
    used: RefCell<Vec<Assumption>>,
}

/// Effects of an adapter beside the change of its node.
#[derive(Debug)]
pub struct Adapted {
    /// Nodes that the adapter made.
    pub made: Vec<NodeId>,
    /// Assumptions that the adapter relied on.
    pub assumed: Vec<Assumption>,
    /// Whether the node's work moved into a graph of its own or between two other nodes.
    pub is_wrapped: bool,
}

/// Property that a conversion cannot derive from the model and that the caller may assert. A
/// conversion that relies on it is exact only if it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Assumption {
    /// Inputs of the graph that have a default value keep it: no caller overrides them.
    DefaultInputs,
    /// No index is negative, that is, counts from the end of its axis.
    IndicesInRange,
    /// Integers that a node converts to 64-bit floats, and those that it returns, fit in 53 bits.
    IntegersInFloats,
    /// `Dropout` and `BatchNormalization` of old models run in inference mode, regardless of
    /// `is_test`.
    Inference,
    /// Shapes that a `Reshape` with `allowzero` reads have no 0.
    SizesNotZero,
}

impl Assumption {
    /// All assumptions.
    pub const ALL: [Assumption; 5] = [
        Assumption::DefaultInputs,
        Assumption::IndicesInRange,
        Assumption::Inference,
        Assumption::IntegersInFloats,
        Assumption::SizesNotZero,
    ];

    /// Returns the name, such as `indices-in-range`.
    pub fn name(self) -> &'static str {
        match self {
            Assumption::DefaultInputs => "default-inputs",
            Assumption::IndicesInRange => "indices-in-range",
            Assumption::Inference => "inference",
            Assumption::IntegersInFloats => "integers-in-floats",
            Assumption::SizesNotZero => "sizes-not-zero",
        }
    }

    /// Returns the assumed condition as a clause, such as `no index is negative`.
    pub fn condition(self) -> &'static str {
        match self {
            Assumption::DefaultInputs => "no caller overrides an input that has a default",
            Assumption::IndicesInRange => "no index is negative",
            Assumption::Inference => "the model is for inference, not for training",
            Assumption::IntegersInFloats => {
                "all integers that are computed as floats fit in 53 bits"
            }
            Assumption::SizesNotZero => "no size in the shape is 0",
        }
    }
}

impl fmt::Debug for Adapt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adapt").field("node", &self.node()).finish_non_exhaustive()
    }
}

/// Refusal of an adapter to turn a node into the other version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Reason, as a clause.
    pub why: String,
    /// Assumption under which the adapter would not refuse, if there is one.
    pub unless: Option<Assumption>,
    /// Advice as a clause, if there is any.
    pub instead: Option<String>,
}

impl From<String> for Refusal {
    fn from(why: String) -> Refusal {
        Refusal { why, unless: None, instead: None }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Refusal {}

impl<'a> Adapt<'a> {
    /// Wraps the node at which `build` makes nodes. `types` has the results of inference.
    pub fn new(build: NodeBuilder<'a>, types: &'a dyn ValueTypes) -> Self {
        let (made, used) = (Vec::new(), RefCell::default());
        Adapt { build, types, made, granted: &[], runs: false, is_wrapped: false, used }
    }

    /// Sets the assumptions that the caller grants.
    #[must_use]
    pub fn with_granted(self, granted: &'a [Assumption]) -> Self {
        Adapt { granted, ..self }
    }

    /// Sets whether the node is upgraded to its newest form in order to run.
    #[must_use]
    pub fn with_running(self, runs: bool) -> Self {
        Adapt { runs, ..self }
    }

    /// Whether the node is upgraded to its newest form in order to run. Results that no version
    /// defines are then those of this engine. Intermediate forms are never saved, so a form may use
    /// a feature that only a newer version has, which the adapter to that version expects.
    pub(crate) fn runs(&self) -> bool {
        self.runs
    }

    fn model(&self) -> &Model {
        self.build.model()
    }

    fn node(&self) -> NodeId {
        self.build.anchor()
    }

    /// Returns the effects of the adapter beside the change of the node.
    pub fn finish(self) -> Adapted {
        let Adapt { made, used, is_wrapped, .. } = self;
        Adapted { made, assumed: used.into_inner(), is_wrapped }
    }

    /// Whether the caller grants an assumption. Records it as used if so.
    pub(crate) fn assume(&self, assumption: Assumption) -> bool {
        let granted = self.granted.contains(&assumption);
        let mut used = self.used.borrow_mut();
        if granted && !used.contains(&assumption) {
            used.push(assumption);
        }
        granted
    }

    /// Returns the number of inputs, including absent ones.
    pub(crate) fn input_count(&self) -> usize {
        self.model().inputs(self.node()).count()
    }

    /// Returns the number of outputs, including absent ones.
    pub(crate) fn output_count(&self) -> usize {
        self.model().outputs(self.node()).len()
    }

    /// Whether the node has a named output at a position.
    pub(crate) fn has_output(&self, index: usize) -> bool {
        self.model().outputs(self.node()).get(index).is_some_and(Option::is_some)
    }

    /// Whether the output at a position has a reader.
    pub(crate) fn is_used(&self, index: usize) -> bool {
        let value = self.model().outputs(self.node()).get(index).copied().flatten();
        value.is_some_and(|value| self.model().is_read(value))
    }

    /// Returns the input at a position, or `None` if it is absent.
    pub(crate) fn input(&self, index: usize) -> Option<ValueId> {
        self.model().inputs(self.node()).nth(index).flatten()
    }

    /// Returns the inferred type of an input.
    pub(crate) fn input_type(&self, index: usize) -> Option<&'a Type> {
        self.types.ty(self.input(index)?)
    }

    /// Returns the inferred types of the outputs of a graph that is an attribute of the node.
    pub(crate) fn types_of_outputs(&self, graph: GraphId) -> Vec<Option<Type>> {
        let outputs = self.model().graph(graph).outputs.iter();
        outputs.map(|output| self.types.ty(output.value?).cloned()).collect()
    }

    /// Returns the inferred type of an output.
    pub(crate) fn output_type(&self, index: usize) -> Option<&'a Type> {
        self.types.ty(self.model().outputs(self.node()).get(index).copied().flatten()?)
    }

    /// Returns the inferred rank of an input.
    pub(crate) fn rank(&self, index: usize) -> Option<usize> {
        self.input_type(index)?.shape().map(|shape| shape.len())
    }

    /// Returns the value of an input that is a constant of the graph, the tensor of a `Constant`
    /// node, or known to inference for another reason. A default of an input of the graph counts if
    /// that is granted.
    pub(crate) fn constant(&self, index: usize) -> Option<Tensor> {
        let value = self.input(index)?;
        let constant = self.constant_value(value);
        constant.or_else(|| self.types.known(value)?.to_tensor()).or_else(|| {
            let default = self.types.default(value)?;
            self.assume(Assumption::DefaultInputs).then(|| default.clone())
        })
    }

    /// Whether the value of an input is in a data file, which adapters do not read.
    pub(crate) fn is_in_data_file(&self, index: usize) -> bool {
        let stored = self.input(index).and_then(|value| self.stored_value(value));
        stored.is_some_and(TensorProto::is_external)
    }

    fn constant_value(&self, value: ValueId) -> Option<Tensor> {
        self.model().tensor(self.stored_value(value)?, &NoExternalData).ok()
    }

    fn stored_value(&self, value: ValueId) -> Option<&TensorProto> {
        let model = self.model();
        Some(match model.value(value).producer {
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
        })
    }

    /// Whether the node has an attribute with that name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.model().attribute_of(self.node(), name).is_some()
    }

    /// Removes an attribute.
    pub(crate) fn remove(&mut self, name: &str) {
        let node = self.node();
        self.build.model_mut().remove_attribute(node, name);
    }

    /// Sets an attribute.
    pub(crate) fn set<'v>(&mut self, name: &str, value: impl Into<AttrValue<'v>>) {
        let node = self.node();
        self.build.model_mut().set_attribute(node, name, value);
    }

    /// Whether the operator of the node is called `name`. Its domain is not compared.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.model().display(self.model().node(self.node()).op_type) == name
    }

    /// Makes the node call another operator of its domain, in the form of the new version.
    pub(crate) fn become_operator(&mut self, name: &str) {
        let node = self.node();
        let model = self.build.model_mut();
        let name = model.intern(name);
        model.node_mut(node).op_type = Some(name);
    }

    /// Makes the node call an operator of another domain.
    pub(crate) fn become_operator_of(&mut self, domain: &str, name: &str) {
        let node = self.node();
        let model = self.build.model_mut();
        let domain = Some(model.intern(domain));
        model.node_mut(node).domain = domain;
        self.become_operator(name);
    }

    /// Removes all attributes.
    pub(crate) fn clear_attributes(&mut self) {
        let node = self.node();
        self.build.model_mut().clear_attributes(node);
    }

    /// Makes an output of the node that of the producer of `value`, which must have no reader.
    pub(crate) fn hand_over(&mut self, output: usize, value: ValueId) {
        let node = self.node();
        let model = self.build.model_mut();
        let Some(handed_over) = model.outputs(node).get(output).copied().flatten() else { return };
        if let Producer::Node(maker, index) = model.value(value).producer {
            model.drop_output(node, output);
            model.redefine_output(maker, index as usize, handed_over);
        }
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

    /// Drops the inputs from a position on.
    pub(crate) fn keep_inputs(&mut self, count: usize) {
        let inputs: Vec<_> = self.model().inputs(self.node()).take(count).collect();
        self.set_inputs(&inputs);
    }

    /// Gives the node its first `count` outputs, whether or not they have readers.
    pub(crate) fn fill_outputs(&mut self, count: usize) {
        let node = self.node();
        self.build.model_mut().fill_outputs(node, count);
    }

    /// Removes an output. The caller has ensured that it has no reader.
    pub(crate) fn drop_output(&mut self, index: usize) {
        let node = self.node();
        self.build.model_mut().drop_output(node, index);
    }

    /// Adds a constant to the graph.
    pub(crate) fn add_constant(&mut self, tensor: Tensor) -> ValueId {
        self.build.constant("constant", &tensor)
    }

    /// Adds a scalar of `int64` to the graph.
    pub(crate) fn add_int(&mut self, value: i64) -> ValueId {
        let tensor = Tensor::from_slice([], &[value]).expect("a scalar has one element");
        self.add_constant(tensor)
    }

    /// Adds a vector of `int64` to the graph.
    pub(crate) fn add_ints(&mut self, values: &[i64]) -> ValueId {
        let tensor = Tensor::from_slice([values.len()], values)
            .expect("a vector has as many elements as its dimension");
        self.add_constant(tensor)
    }

    /// Adds a node of the default domain, in the form of the new version, before this one. Returns
    /// its output.
    pub(crate) fn before(
        &mut self,
        op: &'static str,
        inputs: &[Option<ValueId>],
        attributes: &[(&str, AttrValue<'_>)],
    ) -> ValueId {
        self.before_in("", op, inputs, attributes)
    }

    /// Adds a node of any domain, in the form of the new version, before this one. Returns its
    /// output.
    pub(crate) fn before_in(
        &mut self,
        domain: &str,
        op: &'static str,
        inputs: &[Option<ValueId>],
        attributes: &[(&str, AttrValue<'_>)],
    ) -> ValueId {
        let (node, output) = self.build.before(op, domain, inputs, attributes);
        self.made.push(node);
        output
    }

    /// Adds a node of the default domain, in the form of the new version, after this one. It reads
    /// the output at `output` and `more_inputs`. Readers of that output read the new node instead,
    /// which takes over its name.
    pub(crate) fn after(
        &mut self,
        output: usize,
        op: &'static str,
        more_inputs: &[Option<ValueId>],
        attributes: &[(&str, AttrValue<'_>)],
    ) {
        // The node stands between two nodes that were made for it, so values are computed in
        // another order.
        self.is_wrapped |= !self.made.is_empty();
        let made = self.build.after(output, op, "", more_inputs, attributes);
        self.made.extend(made);
    }

    /// Moves the node's work into a node of the same operator in a graph that becomes the attribute
    /// `name` of this node. This node keeps only its inputs and outputs.
    pub(crate) fn wrap(&mut self, name: &str) {
        let inner = self.build.wrap(name);
        self.is_wrapped = true;
        self.made.push(inner);
    }

    /// Refuses because the adapter cannot keep the meaning. Callers name the operator.
    pub(crate) fn refuse(&self, why: impl fmt::Display) -> Refusal {
        Refusal::from(why.to_string())
    }

    /// Refuses unless the caller grants an assumption.
    pub(crate) fn demand(
        &self,
        assumption: Assumption,
        why: impl fmt::Display,
    ) -> Result<(), Refusal> {
        if self.assume(assumption) {
            return Ok(());
        }
        Err(Refusal { unless: Some(assumption), ..self.refuse(why) })
    }
}

impl Attributes for Adapt<'_> {
    fn attribute(&self, name: &str) -> Option<AttrValue<'_>> {
        let model = self.model();
        model.attribute_value(model.attribute_of(self.node(), name)?, None)
    }

    /// Returns a text; an empty one counts as absent, and means the default of its word.
    fn string(&self, name: &str) -> Option<String> {
        match self.attribute(name)? {
            AttrValue::String(text) if text.is_empty() => None,
            AttrValue::String(text) => String::from_utf8(text.into_owned()).ok(),
            _ => None,
        }
    }

    /// Returns a list; a present attribute without elements is an empty one, whatever type it
    /// declares.
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

    fn known(&self, _: ValueId) -> Option<&Known> {
        None
    }
}
