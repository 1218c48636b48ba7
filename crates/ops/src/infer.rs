//! The context in which an operator computes the types of its outputs.

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

/// Whose rule speaks, where a rule of the reference implementation is not the operator's with less
/// said. People rely on what the reference leaves open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The operator's: it says all that is certain.
    Operator,
    /// The reference implementation's.
    Reference,
}

/// What inference of one node sees and says.
///
/// Everything may be missing: an input's type, its rank, a dimension. A rule that cannot say
/// something leaves it out; it fails only where the inputs contradict what the operator demands.
pub struct Infer<'a> {
    schema: &'a Schema,
    attributes: &'a dyn Attributes,
    inputs: &'a [Option<&'a Type>],
    known: &'a [Option<&'a Known>],
    subgraphs: Option<&'a dyn Subgraphs>,
    present: Option<Present<'a>>,
    said: Said,
    /// Whether a known value was handed out.
    used_values: Cell<bool>,
    equal: RefCell<Vec<(Dim, Dim)>>,
    cut_windows: RefCell<Vec<String>>,
    /// `None` if they are not asked for.
    demands: Option<RefCell<Vec<Demand>>>,
}

/// What a node demands of sizes beyond equality, or it fails.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Demand {
    /// Two sizes are equal, although no size is known by it.
    Equal(Dim, Dim),
    /// Two sizes are equal, or one of them is 1.
    Broadcast(Dim, Dim),
    /// The first size is 1 or the second.
    BroadcastTo(Dim, Dim),
    /// A number is 0 or more.
    NotNegative(Dim),
}

impl Demand {
    /// Whether it holds for all sizes, or needs something of which nothing is known.
    fn says_nothing(&self) -> bool {
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

/// What is known of a value: its type, and the value itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inferred {
    /// Its type.
    pub ty: Option<Type>,
    /// The value.
    pub known: Option<Known>,
}

/// By position, which inputs and outputs a node has: an empty name is none.
#[derive(Debug, Clone, Copy)]
pub struct Present<'a> {
    /// Inputs.
    pub inputs: &'a [bool],
    /// Outputs.
    pub outputs: &'a [bool],
}

/// Infers the graphs that are attributes of a node.
pub trait Subgraphs {
    /// What is known of the outputs of a graph if this is known of its inputs. Values of outer
    /// graphs are seen as well.
    ///
    /// # Errors
    ///
    /// What contradicts itself inside of the graph.
    fn infer(&self, graph: GraphId, inputs: &[Inferred]) -> Result<Vec<Inferred>, InferError>;

    /// Takes back what was found to be wrong in a graph since the node is looked at: it is not run.
    fn forgive(&self, graph: GraphId);
}

/// What a rule said.
#[derive(Debug, Default)]
pub struct Said {
    /// By output: its type.
    pub types: SmallVec<[Option<Type>; 1]>,
    /// By output: its value. Shorter where nothing is known of the last ones.
    pub known: Vec<Option<Known>>,
    /// Outputs of which something stays unknown, and why.
    pub reasons: Vec<(usize, Cow<'static, str>)>,
    /// Sizes that must be equal, or the node fails when it runs.
    pub equal: Vec<(Dim, Dim)>,
    /// What else must hold of sizes, if it is asked for.
    pub demands: Vec<Demand>,
    /// The difference of the node's outputs on ONNX Runtime, if that is asked for.
    pub difference: Option<String>,
    /// Windows that count although the formula of the standard gives none, in words.
    pub cut_windows: Vec<String>,
    /// Whether the rule read the value of an input. Otherwise all follows from types, attributes,
    /// and from which values are known.
    pub used_values: bool,
}

impl fmt::Debug for Infer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Infer")
            .field("op", &self.schema.name)
            .field("inputs", &self.inputs)
            .field("outputs", &self.said.types)
            .finish_non_exhaustive()
    }
}

/// Why the types of a node do not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InferError(pub String);

impl fmt::Display for InferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InferError {}

impl<'a> Infer<'a> {
    /// For a node with that many outputs.
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
            said: Said { types: (0..outputs).map(|_| None).collect(), ..Said::default() },
            used_values: Cell::new(false),
            equal: RefCell::default(),
            cut_windows: RefCell::default(),
            demands: None,
        }
    }

    /// With somebody who infers the graphs that are attributes of the node.
    #[must_use]
    #[inline]
    pub fn with_subgraphs(self, subgraphs: &'a dyn Subgraphs) -> Self {
        Infer { subgraphs: Some(subgraphs), ..self }
    }

    /// With what tells an absent input or output from one of which nothing is known. Otherwise all
    /// are taken to be there.
    #[must_use]
    #[inline]
    pub fn with_present(self, present: Present<'a>) -> Self {
        Infer { present: Some(present), ..self }
    }

    /// With a list of what the node demands of sizes, if it is wanted.
    #[must_use]
    #[inline]
    pub fn with_demands(self, wanted: bool) -> Self {
        Infer { demands: wanted.then(RefCell::default), ..self }
    }

    /// What the rule said.
    #[inline]
    pub fn finish(self) -> Said {
        let demands = self.demands.map(RefCell::into_inner).unwrap_or_default();
        let (equal, cut_windows) = (self.equal.into_inner(), self.cut_windows.into_inner());
        let used_values = self.used_values.get();
        Said { equal, cut_windows, demands, used_values, ..self.said }
    }

    /// Applies the rule of another operator to the node.
    ///
    /// # Errors
    ///
    /// An error of the rule.
    pub fn by_rule_of(&self, schema: &Schema, rule: InferFn) -> Result<Said, InferError> {
        let outputs = self.output_count();
        let mut other = Infer::new(schema, self.attributes, self.inputs, self.known, outputs);
        (other.subgraphs, other.present) = (self.subgraphs, self.present);
        self.apply(rule, other)
    }

    /// Applies the rule of another operator to a node with other inputs, and with the attributes
    /// and the name of this node.
    ///
    /// # Errors
    ///
    /// An error of the rule.
    pub(crate) fn by_rule_with(
        &self,
        rule: InferFn,
        inputs: &[Option<&Type>],
    ) -> Result<Said, InferError> {
        let outputs = self.output_count();
        self.apply(rule, Infer::new(self.schema, self.attributes, inputs, &[], outputs))
    }

    /// Applies a rule in another context, which lists demands if this one does.
    fn apply<'o>(&self, rule: InferFn, mut other: Infer<'o>) -> Result<Said, InferError> {
        other.demands = self.demands.as_ref().map(|_| RefCell::default());
        rule(&mut other)?;
        let said = other.finish();
        self.used_values.set(self.used_values.get() | said.used_values);
        Ok(said)
    }

    /// Takes over the types that a rule gave, and what it demands of sizes.
    pub(crate) fn adopt(&mut self, said: Said) {
        let Said { types, equal, demands, cut_windows, .. } = said;
        for (output, ty) in types.into_iter().enumerate() {
            if let Some(ty) = ty {
                self.set(output, ty);
            }
        }
        self.equal.get_mut().extend(equal);
        self.cut_windows.get_mut().extend(cut_windows);
        demands.into_iter().for_each(|demand| self.demand(|| demand));
    }

    /// What the operator says of itself.
    pub fn schema(&self) -> &'a Schema {
        self.schema
    }

    /// The operator's version.
    pub fn since(&self) -> u32 {
        self.schema.since
    }

    /// Inputs of the node, absent ones counted.
    pub fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// Outputs of the node, absent ones counted.
    pub fn output_count(&self) -> usize {
        self.said.types.len()
    }

    /// Whether the node has an input, be anything known of it or not.
    pub fn has_input(&self, index: usize) -> bool {
        let present = self.present.and_then(|present| present.inputs.get(index));
        index < self.inputs.len() && *present.unwrap_or(&true)
    }

    /// Whether the node has an output.
    pub fn has_output(&self, index: usize) -> bool {
        let present = self.present.and_then(|present| present.outputs.get(index));
        index < self.output_count() && *present.unwrap_or(&true)
    }

    /// The type of an input.
    pub fn input(&self, index: usize) -> Option<&'a Type> {
        *self.inputs.get(index)?
    }

    /// The tensor type of an input.
    pub fn tensor(&self, index: usize) -> Option<&'a TensorType> {
        self.input(index)?.as_tensor()
    }

    /// The element type of an input.
    pub fn elem(&self, index: usize) -> Option<DataType> {
        self.tensor(index)?.elem
    }

    /// The shape of an input.
    pub fn shape(&self, index: usize) -> Option<&'a Shape> {
        self.tensor(index)?.shape.as_ref()
    }

    /// The rank of an input.
    pub fn rank(&self, index: usize) -> Option<usize> {
        self.shape(index).map(|shape| shape.len())
    }

    /// The value of an input, as far as known.
    pub fn known(&self, index: usize) -> Option<&'a Known> {
        let known = (*self.known.get(index)?)?;
        self.used_values.set(true);
        Some(known)
    }

    /// Whether something is known of the value of an input.
    pub(crate) fn is_known(&self, index: usize) -> bool {
        self.known.get(index).is_some_and(Option::is_some)
    }

    /// The integers of an input that is a known scalar or vector.
    pub(crate) fn known_ints(&self, index: usize) -> Option<Vec<Dim>> {
        self.known(index)?.ints()
    }

    /// The integers of an input that is a constant scalar or vector.
    pub(crate) fn constant_ints(&self, index: usize) -> Option<Vec<i64>> {
        self.known_ints(index)?.iter().map(Dim::known).collect()
    }

    /// The node's attributes, with the schema's defaults.
    pub fn attributes(&self) -> AttributeView<'a> {
        AttributeView::new(self.schema, self.attributes)
    }

    /// An integer attribute, or its default.
    pub fn int(&self, name: &str) -> Option<i64> {
        self.attributes().int(name)
    }

    /// A float attribute, or its default.
    pub fn float(&self, name: &str) -> Option<f32> {
        self.attributes().float(name)
    }

    /// A string attribute, or its default.
    pub fn string(&self, name: &str) -> Option<String> {
        self.attributes().string(name)
    }

    /// An attribute of integers, or its default.
    pub fn ints(&self, name: &str) -> Option<Vec<i64>> {
        self.attributes().ints(name)
    }

    /// The value of any attribute that the node has; defaults are not looked up.
    pub fn attribute(&self, name: &str) -> Option<crate::AttrValue<'a>> {
        self.attributes.attribute(name)
    }

    /// Says the type of an output. An output that the node does not have is passed over.
    pub fn set(&mut self, index: usize, ty: Type) {
        if let Some(output) = self.said.types.get_mut(index) {
            *output = Some(ty);
        }
    }

    /// Says that an output is a tensor, as far as element type and shape are known.
    pub(crate) fn set_tensor(
        &mut self,
        index: usize,
        elem: Option<DataType>,
        shape: Option<Shape>,
    ) {
        self.set(index, Type::Tensor(TensorType { elem, shape }));
    }

    /// Says the value of an output.
    pub(crate) fn set_known(&mut self, index: usize, known: Known) {
        if index < self.output_count() {
            let outputs = &mut self.said.known;
            if outputs.len() <= index {
                outputs.resize_with(index + 1, || None);
            }
            outputs[index] = Some(known);
        }
    }

    /// What is known of the outputs of the graph that is an attribute, if this is known of its
    /// inputs. `None` if there is no such graph, or nobody to look into it.
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

    /// Says that a graph is not run, so that what is wrong in it does not matter.
    pub(crate) fn is_not_run(&self, attribute: &str) {
        if let (Some(subgraphs), Some(crate::AttrValue::Graph(graph))) =
            (self.subgraphs, self.attribute(attribute))
        {
            subgraphs.forgive(graph);
        }
    }

    /// Says why something of an output stays unknown, where that is not simply because something of
    /// an input is: what in the data decides it, as in `the number of elements that are not zero`.
    pub(crate) fn because(&mut self, output: usize, reason: impl Into<Cow<'static, str>>) {
        self.said.reasons.push((output, reason.into()));
    }

    /// Says that two sizes must be equal, or the node fails when it runs.
    pub(crate) fn equate(&self, a: &Dim, b: &Dim) {
        if a != b && !a.is_unknown() && !b.is_unknown() {
            self.equal.borrow_mut().push((a.clone(), b.clone()));
        }
    }

    /// Says what else the node demands of sizes. What numbers contradict, the rule itself refuses.
    pub(crate) fn demand(&self, demand: impl FnOnce() -> Demand) {
        if let Some(demands) = &self.demands {
            let demand = demand();
            if !demand.says_nothing() {
                demands.borrow_mut().push(demand);
            }
        }
    }

    /// Whether a rule may take for granted what the node does not demand: it may if demands are
    /// listed, because they are then checked for the numbers that symbols become.
    pub(crate) fn assume(&self, demand: impl FnOnce() -> Demand) -> bool {
        self.demand(demand);
        self.demands.is_some()
    }

    /// The quotient of two sizes that the node demands to divide, or it fails when it runs.
    pub(crate) fn quotient(&self, whole: &Dim, part: &Dim) -> Dim {
        whole.exact_div(part).unwrap_or_else(|| {
            self.equate(&whole.rem(part), &Dim::Known(0));
            whole.floor_div(part)
        })
    }

    /// Says that a window counts although the formula of the standard gives none.
    pub(crate) fn cut_window(&self, what: impl fmt::Display) {
        self.cut_windows.borrow_mut().push(format!("{}: {what}", self.schema.name));
    }

    /// Fails, naming the operator.
    pub(crate) fn fail<T>(&self, what: impl fmt::Display) -> Result<T, InferError> {
        Err(InferError(format!("{}: {what}", self.schema.name)))
    }

    /// Fails unless the input, if its rank is known, has that rank.
    pub(crate) fn demand_rank(&self, index: usize, rank: usize) -> Result<(), InferError> {
        match self.rank(index) {
            Some(found) if found != rank => {
                self.fail(format_args!("input {index} must have rank {rank}, not {found}"))
            }
            _ => Ok(()),
        }
    }

    /// An axis counted from the front, given one that may count from the back. Fails when it is out
    /// of range.
    pub fn axis(&self, axis: i64, rank: usize) -> Result<usize, InferError> {
        let from_front = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
        match from_front.and_then(|axis| usize::try_from(axis).ok()) {
            Some(axis) if axis < rank => Ok(axis),
            _ => self.fail(format_args!("axis {axis} is out of range for rank {rank}")),
        }
    }

    /// The one size that two dimensions must share, or a failure that says what does not fit.
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
