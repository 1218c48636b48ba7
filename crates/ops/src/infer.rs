//! Context in which an operator computes the types of its outputs.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt;

use sardonyx_model::{Dim, GraphId, Shape, TensorType, Type};
use sardonyx_tensor::DataType;
use smallvec::SmallVec;

use crate::attributes::{AttributeView, Attributes};
use crate::def::InferFn;
use crate::known::Known;
use crate::schema::Schema;

/// Author of a rule, where the rule of the reference implementation is not a weaker form of the
/// operator's. Users rely on facts that the reference leaves open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The operator's own rule, which returns all that is certain.
    Operator,
    /// The rule of the reference implementation.
    Reference,
}

/// Inputs and results of the inference of one node.
///
/// Everything may be unknown: an input's type, its rank, a dimension. A rule leaves out a result
/// that it cannot derive, and fails only where the inputs contradict the operator's conditions.
pub struct Infer<'a> {
    schema: &'a Schema,
    attributes: &'a dyn Attributes,
    inputs: &'a [Option<&'a Type>],
    known: &'a [Option<&'a Known>],
    subgraphs: Option<&'a dyn Subgraphs>,
    present: Option<Present<'a>>,
    outcome: RuleOutcome,
    /// Whether the rule read a known value.
    used_values: Cell<bool>,
    equal: RefCell<Vec<(Dim, Dim)>>,
    cut_windows: RefCell<Vec<String>>,
    /// `None` if the caller does not need demands.
    demands: Option<RefCell<Vec<Demand>>>,
}

/// Condition on sizes beyond equality. The node fails when it runs if it does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Demand {
    /// Two sizes are equal, although neither size follows from it.
    Equal(Dim, Dim),
    /// Two sizes are equal, or one of them is 1.
    Broadcast(Dim, Dim),
    /// The first size is 1 or equals the second.
    BroadcastTo(Dim, Dim),
    /// A number is at least 0.
    NotNegative(Dim),
}

impl Demand {
    /// Whether the condition holds for all sizes, or needs an unknown size.
    fn is_trivial(&self) -> bool {
        match self {
            Demand::Equal(a, b) => a == b || a.is_unknown() || b.is_unknown(),
            Demand::Broadcast(a, b) => {
                let is_one = |dim: &Dim| dim.known() == Some(1);
                a == b || a.is_unknown() || b.is_unknown() || is_one(a) || is_one(b)
            }
            Demand::BroadcastTo(from, to) => {
                from == to || from.is_unknown() || to.is_unknown() || from.known() == Some(1)
            }
            Demand::NotNegative(dim) => dim.is_unknown() || dim.is_never_negative(),
        }
    }
}

/// Known facts about a value: its type, and its contents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inferred {
    /// Type.
    pub ty: Option<Type>,
    /// Contents.
    pub known: Option<Known>,
}

/// Presence of a node's inputs and outputs, by position. One with an empty name is absent.
#[derive(Debug, Clone, Copy)]
pub struct Present<'a> {
    /// Inputs.
    pub inputs: &'a [bool],
    /// Outputs.
    pub outputs: &'a [bool],
}

/// Inference of the graphs that are attributes of a node.
pub trait Subgraphs {
    /// Returns the known facts about the outputs of a graph, given those about its inputs. The
    /// graph also reads values of outer graphs.
    ///
    /// # Errors
    ///
    /// A contradiction inside the graph.
    fn infer(&self, graph: GraphId, inputs: &[Inferred]) -> Result<Vec<Inferred>, InferError>;

    /// Discards the errors that were found in a graph while this node is inferred, since the graph
    /// is not run.
    fn forgive(&self, graph: GraphId);
}

/// Results of the inference rule of one node.
#[derive(Debug, Default)]
pub struct RuleOutcome {
    /// Types of the outputs.
    pub types: SmallVec<[Option<Type>; 1]>,
    /// Contents of the outputs. Shorter than the outputs if those of the last ones are unknown.
    pub known: Vec<Option<Known>>,
    /// Outputs with unknown sizes or types, and the reasons.
    pub reasons: Vec<(usize, Cow<'static, str>)>,
    /// Pairs of sizes that must be equal, or the node fails when it runs.
    pub equal: Vec<(Dim, Dim)>,
    /// Further conditions on sizes, if the caller needs them.
    pub demands: Vec<Demand>,
    /// Difference of the node's outputs on ONNX Runtime, if the caller asks for it.
    pub difference: Option<String>,
    /// Descriptions of windows that count although the formula of the standard excludes them.
    pub cut_windows: Vec<String>,
    /// Whether the rule read the contents of an input. Otherwise the results follow from types,
    /// attributes, and from which contents are known.
    pub used_values: bool,
}

impl fmt::Debug for Infer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Infer")
            .field("op", &self.schema.name)
            .field("inputs", &self.inputs)
            .field("outputs", &self.outcome.types)
            .finish_non_exhaustive()
    }
}

/// Reason why the types of a node do not fit, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InferError(pub String);

impl fmt::Display for InferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InferError {}

impl<'a> Infer<'a> {
    /// Creates the context of a node with that many outputs.
    #[inline]
    pub fn new(
        schema: &'a Schema,
        attributes: &'a dyn Attributes,
        inputs: &'a [Option<&'a Type>],
        known: &'a [Option<&'a Known>],
        outputs: usize,
    ) -> Self {
        Infer {
            schema,
            attributes,
            inputs,
            known,
            subgraphs: None,
            present: None,
            outcome: RuleOutcome {
                types: (0..outputs).map(|_| None).collect(),
                ..RuleOutcome::default()
            },
            used_values: Cell::new(false),
            equal: RefCell::default(),
            cut_windows: RefCell::default(),
            demands: None,
        }
    }

    /// Sets the inference of the graphs that are attributes of the node.
    #[must_use]
    #[inline]
    pub fn with_subgraphs(self, subgraphs: &'a dyn Subgraphs) -> Self {
        Infer { subgraphs: Some(subgraphs), ..self }
    }

    /// Sets which inputs and outputs are present, to distinguish an absent one from an unknown one.
    /// Without it, all are taken to be present.
    #[must_use]
    #[inline]
    pub fn with_present(self, present: Present<'a>) -> Self {
        Infer { present: Some(present), ..self }
    }

    /// Sets whether the rule records the conditions that the node places on sizes.
    #[must_use]
    #[inline]
    pub fn with_demands(self, wanted: bool) -> Self {
        Infer { demands: wanted.then(RefCell::default), ..self }
    }

    /// Returns the results of the rule.
    #[inline]
    pub fn finish(self) -> RuleOutcome {
        let demands = self.demands.map(RefCell::into_inner).unwrap_or_default();
        let (equal, cut_windows) = (self.equal.into_inner(), self.cut_windows.into_inner());
        let used_values = self.used_values.get();
        RuleOutcome { equal, cut_windows, demands, used_values, ..self.outcome }
    }

    /// Applies the rule of another operator to the node.
    ///
    /// # Errors
    ///
    /// Any error of the rule.
    pub fn apply_rule_of(&self, schema: &Schema, rule: InferFn) -> Result<RuleOutcome, InferError> {
        let outputs = self.output_count();
        let mut other = Infer::new(schema, self.attributes, self.inputs, self.known, outputs);
        (other.subgraphs, other.present) = (self.subgraphs, self.present);
        self.apply(rule, other)
    }

    /// Applies the rule of another operator to other inputs, with the attributes and the name of
    /// this node.
    ///
    /// Any error of the rule.
    pub(crate) fn apply_rule_with(
        &self,
        rule: InferFn,
        inputs: &[Option<&Type>],
    ) -> Result<RuleOutcome, InferError> {
        let outputs = self.output_count();
        self.apply(rule, Infer::new(self.schema, self.attributes, inputs, &[], outputs))
    }

    /// Applies a rule in another context, which records demands if this one does.
    fn apply<'o>(&self, rule: InferFn, mut other: Infer<'o>) -> Result<RuleOutcome, InferError> {
        other.demands = self.demands.as_ref().map(|_| RefCell::default());
        rule(&mut other)?;
        let outcome = other.finish();
        self.used_values.set(self.used_values.get() | outcome.used_values);
        Ok(outcome)
    }

    /// Takes over the types and the conditions on sizes that another rule found.
    pub(crate) fn adopt(&mut self, outcome: RuleOutcome) {
        let RuleOutcome { types, equal, demands, cut_windows, .. } = outcome;
        for (output, ty) in types.into_iter().enumerate() {
            if let Some(ty) = ty {
                self.set(output, ty);
            }
        }
        self.equal.get_mut().extend(equal);
        self.cut_windows.get_mut().extend(cut_windows);
        demands.into_iter().for_each(|demand| self.demand(|| demand));
    }

    /// Returns the schema of the operator.
    pub fn schema(&self) -> &'a Schema {
        self.schema
    }

    /// Returns the version of the operator.
    pub fn since(&self) -> u32 {
        self.schema.since
    }

    /// Returns the number of inputs, including absent ones.
    pub fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// Returns the number of outputs, including absent ones.
    pub fn output_count(&self) -> usize {
        self.outcome.types.len()
    }

    /// Whether the node has an input, known or unknown.
    pub fn has_input(&self, index: usize) -> bool {
        let present = self.present.and_then(|present| present.inputs.get(index));
        index < self.inputs.len() && *present.unwrap_or(&true)
    }

    /// Whether the node has an output.
    pub fn has_output(&self, index: usize) -> bool {
        let present = self.present.and_then(|present| present.outputs.get(index));
        index < self.output_count() && *present.unwrap_or(&true)
    }

    /// Returns the type of an input.
    pub fn input(&self, index: usize) -> Option<&'a Type> {
        *self.inputs.get(index)?
    }

    /// Returns the tensor type of an input.
    pub fn tensor(&self, index: usize) -> Option<&'a TensorType> {
        self.input(index)?.as_tensor()
    }

    /// Returns the element type of an input.
    pub fn elem(&self, index: usize) -> Option<DataType> {
        self.tensor(index)?.elem
    }

    /// Returns the shape of an input.
    pub fn shape(&self, index: usize) -> Option<&'a Shape> {
        self.tensor(index)?.shape.as_ref()
    }

    /// Returns the rank of an input.
    pub fn rank(&self, index: usize) -> Option<usize> {
        self.shape(index).map(|shape| shape.len())
    }

    /// Returns the contents of an input, as far as known.
    pub fn known_value(&self, index: usize) -> Option<&'a Known> {
        let known = (*self.known.get(index)?)?;
        self.used_values.set(true);
        Some(known)
    }

    /// Whether the contents of an input are known. Does not count as reading them.
    pub(crate) fn is_known(&self, index: usize) -> bool {
        self.known.get(index).is_some_and(Option::is_some)
    }

    /// Returns the integers of an input that is a known scalar or vector.
    pub(crate) fn known_ints(&self, index: usize) -> Option<Vec<Dim>> {
        self.known_value(index)?.ints()
    }

    /// Returns the integers of an input that is a constant scalar or vector.
    pub(crate) fn constant_ints(&self, index: usize) -> Option<Vec<i64>> {
        self.known_ints(index)?.iter().map(Dim::known).collect()
    }

    /// Returns the node's attributes, with the schema's defaults.
    pub fn attributes(&self) -> AttributeView<'a> {
        AttributeView::new(self.schema, self.attributes)
    }

    /// Returns an integer attribute, or its default.
    pub fn int(&self, name: &str) -> Option<i64> {
        self.attributes().int(name)
    }

    /// Returns a float attribute, or its default.
    pub fn float(&self, name: &str) -> Option<f32> {
        self.attributes().float(name)
    }

    /// Returns a string attribute, or its default.
    pub fn string(&self, name: &str) -> Option<String> {
        self.attributes().string(name)
    }

    /// Returns an attribute of integers, or its default.
    pub fn ints(&self, name: &str) -> Option<Vec<i64>> {
        self.attributes().ints(name)
    }

    /// Returns the value of an attribute that the node itself has, ignoring defaults.
    pub fn attribute(&self, name: &str) -> Option<crate::AttrValue<'a>> {
        self.attributes.attribute(name)
    }

    /// Sets the type of an output. Ignores an output that the node does not have.
    pub fn set(&mut self, index: usize, ty: Type) {
        if let Some(output) = self.outcome.types.get_mut(index) {
            *output = Some(ty);
        }
    }

    /// Sets the type of an output to a tensor, as far as element type and shape are known.
    pub(crate) fn set_tensor(
        &mut self,
        index: usize,
        elem: Option<DataType>,
        shape: Option<Shape>,
    ) {
        self.set(index, Type::Tensor(TensorType { elem, shape }));
    }

    /// Sets the contents of an output.
    pub(crate) fn set_known(&mut self, index: usize, known: Known) {
        if index < self.output_count() {
            let outputs = &mut self.outcome.known;
            if outputs.len() <= index {
                outputs.resize_with(index + 1, || None);
            }
            outputs[index] = Some(known);
        }
    }

    /// Infers a graph that is an attribute from the known facts about its inputs. `None`
    /// without such a graph, or if the context cannot infer graphs.
    pub fn subgraph(
        &self,
        attribute: &str,
        inputs: &[Inferred],
    ) -> Result<Option<Vec<Inferred>>, InferError> {
        match (self.subgraphs, self.attribute(attribute)) {
            (Some(subgraphs), Some(crate::AttrValue::Graph(graph))) => {
                subgraphs.infer(graph, inputs).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Marks a graph as not run, so that errors in it are discarded.
    pub(crate) fn mark_not_run(&self, attribute: &str) {
        if let (Some(subgraphs), Some(crate::AttrValue::Graph(graph))) =
            (self.subgraphs, self.attribute(attribute))
        {
            subgraphs.forgive(graph);
        }
    }

    /// Records the reason why a size or type of an output stays unknown, if the data determines it
    /// and not only an unknown input: `the number of elements that are not zero`.
    pub(crate) fn set_reason(&mut self, output: usize, reason: impl Into<Cow<'static, str>>) {
        self.outcome.reasons.push((output, reason.into()));
    }

    /// Records that two sizes must be equal, or the node fails when it runs.
    pub(crate) fn equate(&self, a: &Dim, b: &Dim) {
        if a != b && !a.is_unknown() && !b.is_unknown() {
            self.equal.borrow_mut().push((a.clone(), b.clone()));
        }
    }

    /// Records a condition on sizes. The rule itself refuses numbers that contradict it.
    pub(crate) fn demand(&self, demand: impl FnOnce() -> Demand) {
        if let Some(demands) = &self.demands {
            let demand = demand();
            if !demand.is_trivial() {
                demands.borrow_mut().push(demand);
            }
        }
    }

    /// Records a condition and returns whether the rule may rely on it: it may if conditions are
    /// recorded, since they are then checked for the numbers that symbols become.
    pub(crate) fn assume(&self, demand: impl FnOnce() -> Demand) -> bool {
        self.demand(demand);
        self.demands.is_some()
    }

    /// Returns the quotient of two sizes and records that it must be exact, or the node fails when
    /// it runs.
    pub(crate) fn quotient(&self, whole: &Dim, part: &Dim) -> Dim {
        whole.exact_div(part).unwrap_or_else(|| {
            self.equate(&whole.rem(part), &Dim::Known(0));
            whole.floor_div(part)
        })
    }

    /// Records that a window counts although the formula of the standard excludes it.
    pub(crate) fn cut_window(&self, what: impl fmt::Display) {
        self.cut_windows.borrow_mut().push(format!("{}: {what}", self.schema.name));
    }

    /// Returns an error that names the operator.
    pub(crate) fn fail<T>(&self, what: impl fmt::Display) -> Result<T, InferError> {
        Err(InferError(format!("{}: {what}", self.schema.name)))
    }

    /// Fails if the rank of an input is known and is not `rank`.
    pub(crate) fn demand_rank(&self, index: usize, rank: usize) -> Result<(), InferError> {
        match self.rank(index) {
            Some(found) if found != rank => {
                self.fail(format_args!("input {index} must have rank {rank}, not {found}"))
            }
            _ => Ok(()),
        }
    }

    /// Counts an axis from the front that may count from the back. Fails if it is out of range.
    pub fn axis(&self, axis: i64, rank: usize) -> Result<usize, InferError> {
        let from_front = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
        match from_front.and_then(|axis| usize::try_from(axis).ok()) {
            Some(axis) if axis < rank => Ok(axis),
            _ => self.fail(format_args!("axis {axis} is out of range for rank {rank}")),
        }
    }

    /// Returns the size that two dimensions must share, or an error that describes how they differ
    /// in terms of `what`.
    pub(crate) fn same_dim(
        &self,
        a: &Dim,
        b: &Dim,
        what: impl fmt::Display,
    ) -> Result<Dim, InferError> {
        match (a, b) {
            (Dim::Known(x), Dim::Known(y)) if x != y => {
                self.fail(format_args!("{what} differ ({x} and {y})"))
            }
            _ => {
                self.equate(a, b);
                let takes_b = a.is_unknown() || (a.known().is_none() && b.known().is_some());
                Ok(if takes_b { b } else { a }.clone())
            }
        }
    }
}
