//! The context in which a node is turned into the form of a neighbouring version.

use std::cell::RefCell;
use std::fmt;

use sardonyx_model::{
    AttrValue, AttributeValue, Attributes, GraphId, Model, NoExternalData, NodeBuilder, NodeId,
    Producer, TensorProto, Type, ValueId,
};
use sardonyx_tensor::Tensor;

use crate::known::Known;

/// What inference found of values.
pub trait ValueTypes {
    /// The type of a value, as far as known.
    fn ty(&self, value: ValueId) -> Option<&Type>;

    /// What a value is in every run, as far as known.
    fn known(&self, value: ValueId) -> Option<&Known>;

    /// What an input of the graph is where the caller of the model passes nothing for it.
    fn default(&self, _value: ValueId) -> Option<&Tensor> {
        None
    }
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
    granted: &'a [Assumption],
    /// See [`runs`](Adapt::runs).
    runs: bool,
    /// Whether the node does now in a graph of its own, or between two nodes, what it did.
    is_wrapped: bool,
    /// Looking at an operand may need one.
    used: RefCell<Vec<Assumption>>,
}

/// What an adapter did beside changing its node.
#[derive(Debug)]
pub struct Adapted {
    /// The nodes that it made.
    pub made: Vec<NodeId>,
    /// The assumptions that it needed.
    pub assumed: Vec<Assumption>,
    /// Whether the node does now in a graph of its own, or between two nodes, what it did.
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

/// Why a node cannot be turned into the other version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Why, in words.
    pub why: String,
    /// What a caller may grant so that it can.
    pub unless: Option<Assumption>,
    /// What to do instead, in a clause, if that is known.
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
    /// For the node at which `build` makes others, of whose values `types` knows what inference
    /// found.
    pub fn new(build: NodeBuilder<'a>, types: &'a dyn ValueTypes) -> Self {
        let (made, used) = (Vec::new(), RefCell::default());
        Adapt { build, types, made, granted: &[], runs: false, is_wrapped: false, used }
    }

    /// The same with what the caller grants.
    #[must_use]
    pub fn granting(self, granted: &'a [Assumption]) -> Self {
        Adapt { granted, ..self }
    }

    /// The same for a node that is brought to its newest form in order to run, if `runs`.
    #[must_use]
    pub fn running(self, runs: bool) -> Self {
        Adapt { runs, ..self }
    }

    /// Whether the node is brought to its newest form in order to run. Then results that no version
    /// defines are those that this engine decides on. The forms on the way are in no file: one may
    /// say what only a newer version can, and the adapter to that version expects it.
    pub(crate) fn runs(&self) -> bool {
        self.runs
    }

    fn model(&self) -> &Model {
        self.build.model()
    }

    fn node(&self) -> NodeId {
        self.build.anchor()
    }

    /// What the adapter did beside changing the node.
    pub fn finish(self) -> Adapted {
        let Adapt { made, used, is_wrapped, .. } = self;
        Adapted { made, assumed: used.into_inner(), is_wrapped }
    }

    /// Whether the caller grants an assumption, which the adapter needs.
    pub(crate) fn assume(&self, assumption: Assumption) -> bool {
        let granted = self.granted.contains(&assumption);
        let mut used = self.used.borrow_mut();
        if granted && !used.contains(&assumption) {
            used.push(assumption);
        }
        granted
    }

    /// Inputs, absent ones counted.
    pub(crate) fn input_count(&self) -> usize {
        self.model().inputs(self.node()).count()
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

    /// The types of the outputs of a graph of the node, as inferred.
    pub(crate) fn types_of_outputs(&self, graph: GraphId) -> Vec<Option<Type>> {
        let outputs = self.model().graph(graph).outputs.iter();
        outputs.map(|output| self.types.ty(output.value?).cloned()).collect()
    }

    /// The type of an output, as inferred.
    pub(crate) fn output_type(&self, index: usize) -> Option<&'a Type> {
        self.types.ty(self.model().outputs(self.node()).get(index).copied().flatten()?)
    }

    /// The rank of an input, as inferred.
    pub(crate) fn rank(&self, index: usize) -> Option<usize> {
        self.input_type(index)?.shape().map(|shape| shape.len())
    }

    /// The value of an input that is a constant of the graph, the tensor of a `Constant` node, or
    /// the same in every run for another reason that inference knows. The default of an input of
    /// the graph is one if that is granted.
    pub(crate) fn constant(&self, index: usize) -> Option<Tensor> {
        let value = self.input(index)?;
        let constant = self.constant_value(value);
        constant.or_else(|| self.types.known(value)?.to_tensor()).or_else(|| {
            let default = self.types.default(value)?;
            self.assume(Assumption::DefaultInputs).then(|| default.clone())
        })
    }

    /// Whether the value of an input lies in a data file, which adapters do not read.
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

    /// Whether the node is of that operator of its domain.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.model().display(self.model().node(self.node()).op_type) == name
    }

    /// Makes the node one of another operator of its domain, in the form of the new version.
    pub(crate) fn become_operator(&mut self, name: &str) {
        let node = self.node();
        let model = self.build.model_mut();
        let name = model.intern(name);
        model.node_mut(node).op_type = Some(name);
    }

    /// Makes the node one of an operator of another domain.
    pub(crate) fn become_operator_of(&mut self, domain: &str, name: &str) {
        let node = self.node();
        let model = self.build.model_mut();
        let domain = Some(model.intern(domain));
        model.node_mut(node).domain = domain;
        self.become_operator(name);
    }

    /// Takes all attributes away.
    pub(crate) fn clear_attributes(&mut self) {
        let node = self.node();
        self.build.model_mut().clear_attributes(node);
    }

    /// Lets the maker of `value`, which nobody reads, make an output of the node instead.
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

    /// Lets the node have its first `count` outputs, whether or not anybody reads them.
    pub(crate) fn fill_outputs(&mut self, count: usize) {
        let node = self.node();
        self.build.model_mut().fill_outputs(node, count);
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

    /// Makes a node of the default domain, in the form of the new version, before this one. Returns
    /// its output.
    pub(crate) fn before(
        &mut self,
        op: &'static str,
        inputs: &[Option<ValueId>],
        attributes: &[(&str, AttrValue<'_>)],
    ) -> ValueId {
        self.before_in("", op, inputs, attributes)
    }

    /// The same with an operator of another domain.
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
        // Between nodes that were made for it, it computes in another order.
        self.is_wrapped |= !self.made.is_empty();
        let made = self.build.after(output, op, "", more_inputs, attributes);
        self.made.extend(made);
    }

    /// Puts what the node does into a node of the same operator in a graph that becomes the
    /// attribute `name` of this node, which keeps nothing but its inputs and outputs.
    pub(crate) fn wrap(&mut self, name: &str) {
        let inner = self.build.wrap(name);
        self.is_wrapped = true;
        self.made.push(inner);
    }

    /// Refusal of an adapter that cannot keep the meaning. Callers name the operator.
    pub(crate) fn refuse(&self, why: impl fmt::Display) -> Refusal {
        Refusal::from(why.to_string())
    }

    /// A refusal, unless the caller grants an assumption.
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

    /// An empty text counts as absent: it means the default of the word that it stands for.
    fn string(&self, name: &str) -> Option<String> {
        match self.attribute(name)? {
            AttrValue::String(text) if text.is_empty() => None,
            AttrValue::String(text) => String::from_utf8(text.into_owned()).ok(),
            _ => None,
        }
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

    fn known(&self, _: ValueId) -> Option<&Known> {
        None
    }
}
