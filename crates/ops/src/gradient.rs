//! Context of a gradient rule: given the gradients of a node's outputs, the rule makes nodes of the
//! standard that compute those of its inputs.
//!
//! This is reverse-mode differentiation: Griewank, Walther, "Evaluating Derivatives", SIAM 2008,
//! chapter 3. A rule reads a node in the newest form of its operator and makes nodes in the newest
//! forms of theirs. Those have rules too, so gradients can be differentiated again.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Add, Div, Mul, Neg, Sub};

use sardonyx_model::{
    AttrValue, Model, NodeAttributes, NodeBuilder, NodeId, Producer, Shape, Type, ValueId,
};
use sardonyx_tensor::{CastOptions, DataType, Tensor, cast};

use crate::adapt::{Refusal, ValueTypes};
use crate::attributes::AttributeView;
use crate::schema::Schema;
use crate::sequence::items::{PerItem, make_per_item};

/// Makes the nodes that compute the gradients of a node's inputs.
pub type GradientFn = for<'c> fn(&'c Backward<'_>) -> Result<(), Refusal>;

/// Node whose outputs have gradients, with a builder for the nodes that compute those of its
/// inputs.
pub struct Backward<'a> {
    build: RefCell<NodeBuilder<'a>>,
    types: &'a dyn ValueTypes,
    node: NodeId,
    schema: &'static Schema,
    around: Around<'a>,
    /// Gradients of the inputs.
    given: RefCell<Vec<Option<Given>>>,
    made: RefCell<Vec<NodeId>>,
}

/// Gradients that reach a node, and the ones that the caller needs.
#[derive(Debug, Clone, Copy)]
pub struct Around<'a> {
    /// Gradients of the outputs; `None` stands for zeros.
    pub arriving: &'a [Option<ValueId>],
    /// Whether the caller needs the gradient, for each input.
    pub wanted: &'a [bool],
    /// Sums of the gradients from later readers, for inputs that are sequences with such gradients.
    pub gathered: &'a [Option<ValueId>],
}

/// Gradient of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// Contribution of this node alone, to be added to those of other readers.
    Part(ValueId),
    /// Sum that includes [`Around::gathered`].
    Total(ValueId),
}

/// Results of a gradient rule.
#[derive(Debug)]
pub struct Derived {
    /// Gradients of the inputs; `None` stands for zeros.
    pub gradients: Vec<Option<Given>>,
    /// Nodes that the rule made, in order.
    pub made: Vec<NodeId>,
}

impl fmt::Debug for Backward<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backward").field("node", &self.node).finish_non_exhaustive()
    }
}

impl<'a> Backward<'a> {
    /// Creates the context of `node`, which follows `schema`. New nodes come before the anchor of
    /// `build`.
    pub fn new(
        build: NodeBuilder<'a>,
        types: &'a dyn ValueTypes,
        node: NodeId,
        schema: &'static Schema,
        around: Around<'a>,
    ) -> Self {
        let (build, made) = (RefCell::new(build), RefCell::default());
        let given = RefCell::new(vec![None; around.wanted.len()]);
        Backward { build, types, node, schema, around, given, made }
    }

    /// Returns the results of the rule.
    pub fn finish(self) -> Derived {
        Derived { gradients: self.given.into_inner(), made: self.made.into_inner() }
    }

    /// Reads the model.
    fn look<T>(&self, what: impl FnOnce(&Model) -> T) -> T {
        what(self.build.borrow().model())
    }

    /// Reads the attributes of the node, with their defaults.
    fn attributes<T>(&self, what: impl FnOnce(&AttributeView<'_>) -> T) -> T {
        self.look(|model| {
            let attributes = NodeAttributes::new(model, self.node);
            what(&AttributeView::new(self.schema, &attributes))
        })
    }

    /// Returns an integer attribute, or its default.
    pub(crate) fn int(&self, name: &str) -> Option<i64> {
        self.attributes(|attributes| attributes.int(name))
    }

    /// Returns a float attribute, or its default.
    pub(crate) fn float(&self, name: &str) -> Option<f32> {
        self.attributes(|attributes| attributes.float(name))
    }

    /// Returns a list of integers, or its default.
    pub(crate) fn ints(&self, name: &str) -> Option<Vec<i64>> {
        self.attributes(|attributes| attributes.ints(name))
    }

    /// Returns a list with an integer for each of `len` axes; `value` for each if the attribute is
    /// absent.
    ///
    /// # Errors
    ///
    /// The list has another length.
    pub(crate) fn ints_per_axis(
        &self,
        name: &str,
        len: usize,
        value: i64,
    ) -> Result<Vec<i64>, Refusal> {
        match self.ints(name) {
            None => Ok(vec![value; len]),
            Some(values) if values.len() == len => Ok(values),
            Some(values) => {
                Err(self.refuse(format_args!("{name} has {} elements, not {len}", values.len())))
            }
        }
    }

    /// Returns a string attribute, or its default.
    pub(crate) fn string(&self, name: &str) -> Option<String> {
        self.attributes(|attributes| attributes.string(name))
    }

    /// Returns the number of inputs, including absent ones.
    pub(crate) fn input_count(&self) -> usize {
        self.around.wanted.len()
    }

    /// Returns the number of outputs, including absent ones.
    pub(crate) fn output_count(&self) -> usize {
        self.around.arriving.len()
    }

    /// Whether the caller needs the gradient of an input.
    pub(crate) fn wants(&self, index: usize) -> bool {
        self.around.wanted.get(index).copied().unwrap_or(false)
    }

    /// Returns an input; `None` if it is absent or its element type is unknown.
    pub(crate) fn input_if(&self, index: usize) -> Option<Expr<'_>> {
        let value = self.look(|model| model.inputs(self.node).nth(index).flatten())?;
        self.of_file(value)
    }

    /// Returns an input that the operator requires.
    ///
    /// # Errors
    ///
    /// The input is absent, or its element type is unknown.
    pub(crate) fn input(&self, index: usize) -> Result<Expr<'_>, Refusal> {
        let refusal = || self.refuse(format_args!("the type of input {index} is unknown"));
        self.input_if(index).ok_or_else(refusal)
    }

    /// Returns an output.
    ///
    /// # Errors
    ///
    /// The output is absent, or its element type is unknown.
    pub(crate) fn output(&self, index: usize) -> Result<Expr<'_>, Refusal> {
        let value = self.look(|model| model.outputs(self.node).get(index).copied().flatten());
        let refusal = || self.refuse(format_args!("the type of output {index} is unknown"));
        value.and_then(|value| self.of_file(value)).ok_or_else(refusal)
    }

    /// Returns the gradient of an output; `None` if it is zeros.
    pub(crate) fn arriving_if(&self, index: usize) -> Option<Expr<'_>> {
        let value = self.around.arriving.get(index).copied().flatten()?;
        let of = self.look(|model| model.outputs(self.node).get(index).copied().flatten())?;
        let elem = self.types.ty(of)?.elem_of_items()?;
        Some(Expr { nodes: self, value, elem })
    }

    /// Returns the sum of the gradients of a sequence from later readers; `None` if there are none.
    pub(crate) fn gathered_gradient(&self, index: usize) -> Option<Expr<'_>> {
        let value = self.around.gathered.get(index).copied().flatten()?;
        let elem = self.input_if(index)?.elem;
        Some(Expr { nodes: self, value, elem })
    }

    /// Returns the gradient of the first output of a node with one output.
    ///
    /// # Errors
    ///
    /// The element type of the output is unknown.
    pub(crate) fn arriving(&self) -> Result<Expr<'_>, Refusal> {
        self.arriving_if(0).ok_or_else(|| self.refuse("the type of its output is unknown"))
    }

    fn of_file(&self, value: ValueId) -> Option<Expr<'_>> {
        let elem = self.types.ty(value)?.elem_of_items()?;
        Some(Expr { nodes: self, value, elem })
    }

    /// Returns the inferred shape of a value of the node.
    pub(crate) fn shape_of(&self, term: Expr<'_>) -> Option<Shape> {
        self.types.ty(term.value).and_then(Type::shape).cloned()
    }

    /// Returns the inferred rank of a value of the node.
    ///
    /// # Errors
    ///
    /// The rank is unknown.
    pub(crate) fn rank_of(&self, term: Expr<'_>) -> Result<usize, Refusal> {
        let rank = self.shape_of(term).map(|shape| shape.len());
        rank.ok_or_else(|| self.refuse("its rank is unknown"))
    }

    /// Returns the value of an input if it is known and equal in every run.
    pub(crate) fn constant(&self, index: usize) -> Option<Tensor> {
        let value = self.look(|model| model.inputs(self.node).nth(index).flatten())?;
        if let Some(known) = self.types.known(value).and_then(crate::known::Known::to_tensor) {
            return Some(known);
        }
        self.look(|model| {
            let stored = &model.initializer(value)?.tensor;
            model.tensor(stored, &sardonyx_model::NoExternalData).ok()
        })
    }

    /// Whether an input may have elements that are not finite. Only stored finite numbers cannot:
    /// these include weights that training changes, since training has failed once they become
    /// infinite.
    pub(crate) fn may_be_infinite(&self, index: usize) -> bool {
        let value = self.look(|model| model.inputs(self.node).nth(index).flatten());
        // An input with a default can take other values.
        let is_stored = |value: ValueId| {
            self.look(|model| matches!(model.value(value).producer, Producer::Initializer(_)))
        };
        if !value.is_some_and(is_stored) {
            return true;
        }
        // Values in data files are not read for this.
        self.constant(index).is_some_and(|stored| !is_finite(&stored))
    }

    /// Sets the gradient of an input.
    pub(crate) fn give(&self, index: usize, gradient: Expr<'_>) {
        self.set(index, Given::Part(gradient.value));
    }

    /// Sets the gradient of an input to a sum that includes the
    /// [`gathered`](Self::gathered_gradient) one.
    pub(crate) fn give_total(&self, index: usize, gradient: Expr<'_>) {
        self.set(index, Given::Total(gradient.value));
    }

    fn set(&self, index: usize, gradient: Given) {
        if let Some(given) = self.given.borrow_mut().get_mut(index) {
            *given = Some(gradient);
        }
    }

    /// Makes a sequence of a tensor for each item of `sequences`, which have equal lengths.
    pub(crate) fn per_item(&self, sequences: &[Expr<'_>], what: PerItem) -> Expr<'_> {
        let sequences: Vec<ValueId> = sequences.iter().map(|sequence| sequence.value).collect();
        let made = make_per_item(&mut self.build.borrow_mut(), &sequences, what);
        self.made.borrow_mut().extend(made.nodes);
        Expr { nodes: self, value: made.sequence, elem: what.elem() }
    }

    /// Sets the gradient of an input that broadcast to the shape of the first output: sums it over
    /// the axes along which the input was repeated.
    ///
    /// # Errors
    ///
    /// The element type of the input or the output is unknown.
    pub(crate) fn give_broadcast(&self, index: usize, gradient: Expr<'_>) -> Result<(), Refusal> {
        let (input, output) = (self.input(index)?, self.output(0)?);
        let reduced = self.unbroadcast(gradient, output, input);
        self.give(index, reduced);
        Ok(())
    }

    /// Sums `gradient`, which has the shape of `whole`, over the axes along which `part` was
    /// repeated to get that shape. Returns it in the shape of `part`.
    pub(crate) fn unbroadcast<'c>(
        &'c self,
        gradient: Expr<'c>,
        whole: Expr<'c>,
        part: Expr<'c>,
    ) -> Expr<'c> {
        let (Some(to), Some(from)) = (self.shape_of(part), self.shape_of(whole)) else {
            return self.unbroadcast_at_run(gradient, part);
        };
        let Some(added) = from.len().checked_sub(to.len()) else {
            return self.unbroadcast_at_run(gradient, part);
        };
        let mut axes: Vec<i64> = (0..added as i64).collect();
        for (axis, size) in to.iter().enumerate() {
            match size.known() {
                Some(1) if from[added + axis].known() != Some(1) => {
                    axes.push((added + axis) as i64);
                }
                Some(_) => {}
                // Equal symbolic sizes do not broadcast.
                None if *size == from[added + axis] && !size.is_unknown() => {}
                None => return self.unbroadcast_at_run(gradient, part),
            }
        }
        if axes.is_empty() {
            return gradient;
        }
        let sum = gradient.sum(&axes, true);
        if added == 0 { sum } else { sum.squeeze(&(0..added as i64).collect::<Vec<_>>()) }
    }

    /// Sums `gradient` over the axes along which `part` was repeated, where the shape of `gradient`
    /// is unknown. If `is_vector`, `part` has one axis that stands for the last two of `gradient`,
    /// one of which is 1.
    pub(crate) fn unbroadcast_to<'c>(
        &'c self,
        gradient: Expr<'c>,
        part: Expr<'c>,
        is_vector: bool,
    ) -> Expr<'c> {
        if !is_vector {
            return self.unbroadcast_at_run(gradient, part);
        }
        // Axes before the last two are repetitions.
        let matrix = gradient.sizes(-2, None);
        let all = self.ints_of(&[-1]).op_with("Concat", &[matrix], &[("axis", AttrValue::Int(0))]);
        gradient.op_with("Reshape", &[all], &[]).sum(&[0], false).reshape(part.shape())
    }

    /// Sums `gradient` over the axes along which `part` was repeated, which nodes compute at run
    /// time.
    fn unbroadcast_at_run<'c>(&'c self, gradient: Expr<'c>, part: Expr<'c>) -> Expr<'c> {
        let one = self.ints_of(&[1]);
        let sizes = part.shape();
        let added = gradient.shape().shape() - sizes.shape();
        let ones = one.op_with("Expand", &[added], &[]);
        let aligned = ones.op_with("Concat", &[sizes], &[("axis", AttrValue::Int(0))]);
        let repeated = aligned.compare("Equal", one);
        let axes = repeated.op("NonZero").with_elem(DataType::Int64);
        let axes = axes.op_with("Reshape", &[self.ints_of(&[-1])], &[]);
        let options =
            [("keepdims", AttrValue::Int(1)), ("noop_with_empty_axes", AttrValue::Int(1))];
        gradient.op_with("ReduceSum", &[axes], &options).reshape(sizes)
    }

    /// Makes a constant vector of `int64`.
    pub(crate) fn ints_of(&self, values: &[i64]) -> Expr<'_> {
        Expr::constant(self, &ints(values))
    }

    /// Makes a constant position in a sequence.
    pub(crate) fn position(&self, index: i64) -> Expr<'_> {
        Expr::constant(self, &Tensor::scalar(index))
    }

    /// Makes the integers from 0 up to a scalar, exclusive.
    pub(crate) fn count_up<'c>(&'c self, count: Expr<'c>) -> Expr<'c> {
        let scalar = |value: i64| Expr::constant(self, &Tensor::scalar(value));
        scalar(0).op_with("Range", &[count, scalar(1)], &[])
    }

    /// Makes a constant vector of the type `elem`.
    pub(crate) fn numbers_of(&self, values: &[f64], elem: DataType) -> Expr<'_> {
        let double = Tensor::from_slice([values.len()], values)
            .expect("a vector has as many elements as its dimension");
        let tensor = cast(&double, elem, CastOptions::default());
        Expr::constant(self, &tensor.unwrap_or(double))
    }

    /// Returns an output of the node, adding it if the node does not have it yet.
    pub(crate) fn also_output(&self, index: usize, elem: DataType) -> Expr<'_> {
        let mut build = self.build.borrow_mut();
        build.model_mut().fill_outputs(self.node, index + 1);
        let value = build.model().outputs(self.node)[index].expect("the output was just made");
        Expr { nodes: self, value, elem }
    }

    /// Makes a node of the default domain with `count` outputs of the type `elem`.
    pub(crate) fn make_many(
        &self,
        op: &'static str,
        inputs: &[Expr<'_>],
        attributes: &[(&str, AttrValue<'_>)],
        elem: DataType,
        count: usize,
    ) -> Vec<Expr<'_>> {
        let inputs: Vec<Option<ValueId>> = inputs.iter().map(|input| Some(input.value)).collect();
        self.make(op, &inputs, attributes);
        let node = *self.made.borrow().last().expect("a node was just made");
        let mut build = self.build.borrow_mut();
        build.model_mut().fill_outputs(node, count);
        let outputs = build.model().outputs(node).iter().flatten();
        outputs.map(|value| Expr { nodes: self, value: *value, elem }).collect()
    }

    /// Refuses because the rule has no gradient for the node. Names the operator.
    pub(crate) fn refuse(&self, why: impl fmt::Display) -> Refusal {
        Refusal::from(format!("{}: {why}", self.schema.name))
    }
}

/// Builder of nodes.
trait Nodes {
    /// Makes a node of the default domain with one output.
    fn make(
        &self,
        op: &'static str,
        inputs: &[Option<ValueId>],
        attributes: &[(&str, AttrValue<'_>)],
    ) -> ValueId;

    /// Adds a constant to the graph.
    fn constant(&self, tensor: &Tensor) -> ValueId;
}

impl Nodes for Backward<'_> {
    fn make(
        &self,
        op: &'static str,
        inputs: &[Option<ValueId>],
        attributes: &[(&str, AttrValue<'_>)],
    ) -> ValueId {
        let (node, value) = self.build.borrow_mut().before(op, "", inputs, attributes);
        self.made.borrow_mut().push(node);
        value
    }

    fn constant(&self, tensor: &Tensor) -> ValueId {
        self.build.borrow_mut().constant("constant", tensor)
    }
}

/// Value in a rule: a tensor, on which arithmetic makes nodes, or a sequence of tensors.
#[derive(Clone, Copy)]
pub(crate) struct Expr<'c> {
    nodes: &'c dyn Nodes,
    value: ValueId,
    elem: DataType,
}

impl<'c> Expr<'c> {
    fn constant(nodes: &'c dyn Nodes, tensor: &Tensor) -> Expr<'c> {
        Expr { nodes, value: nodes.constant(tensor), elem: tensor.data_type() }
    }

    /// Returns the type of its elements, or of the elements of its items.
    pub(crate) fn elem(self) -> DataType {
        self.elem
    }

    /// Sets the element type that the value is known to have.
    pub(crate) fn with_elem(self, elem: DataType) -> Expr<'c> {
        Expr { elem, ..self }
    }

    /// Makes the node `op` of this value.
    pub(crate) fn op(self, op: &'static str) -> Expr<'c> {
        self.op_with(op, &[], &[])
    }

    /// Makes the node `op` of this value and others. The result has the element type of this value.
    pub(crate) fn op_with(
        self,
        op: &'static str,
        others: &[Expr<'_>],
        attributes: &[(&str, AttrValue<'_>)],
    ) -> Expr<'c> {
        let others: Vec<Option<Expr<'_>>> = others.iter().copied().map(Some).collect();
        self.op_with_some(op, &others, attributes)
    }

    /// Makes the node `op` of this value and others, some of which may be absent. The result has
    /// the element type of this value.
    pub(crate) fn op_with_some(
        self,
        op: &'static str,
        others: &[Option<Expr<'_>>],
        attributes: &[(&str, AttrValue<'_>)],
    ) -> Expr<'c> {
        let others = others.iter().map(|other| other.map(|other| other.value));
        let inputs: Vec<Option<ValueId>> =
            std::iter::once(Some(self.value)).chain(others).collect();
        Expr { value: self.nodes.make(op, &inputs, attributes), ..self }
    }

    /// Makes a constant scalar of the type of this value.
    pub(crate) fn number(self, value: f64) -> Expr<'c> {
        Expr::constant(self.nodes, &scalar(self.elem, value))
    }

    /// Makes zeros in the shape of this value.
    pub(crate) fn zeros(self) -> Expr<'c> {
        self.number(0.0).op_with("Expand", &[self.shape()], &[])
    }

    /// Converts the elements to another type.
    pub(crate) fn cast(self, to: DataType) -> Expr<'c> {
        if self.elem == to {
            return self;
        }
        self.op_with("Cast", &[], &[("to", AttrValue::Int(to.number().into()))]).with_elem(to)
    }

    /// Makes the vector of all sizes.
    pub(crate) fn shape(self) -> Expr<'c> {
        self.op("Shape").with_elem(DataType::Int64)
    }

    /// Makes the vector of sizes from axis `start` up to `end`, exclusive.
    pub(crate) fn sizes(self, start: i64, end: Option<i64>) -> Expr<'c> {
        let mut attributes = vec![("start", AttrValue::Int(start))];
        attributes.extend(end.map(|end| ("end", AttrValue::Int(end))));
        self.op_with("Shape", &[], &attributes).with_elem(DataType::Int64)
    }

    /// Adds up the elements over axes, which stay with size 1 if `keeps`.
    pub(crate) fn sum(self, axes: &[i64], keeps: bool) -> Expr<'c> {
        let axes = Expr::constant(self.nodes, &ints(axes));
        self.op_with("ReduceSum", &[axes], &[("keepdims", AttrValue::Int(keeps.into()))])
    }

    /// Multiplies the elements of a vector. The result is a vector of one element.
    pub(crate) fn product(self) -> Expr<'c> {
        self.op_with("ReduceProd", &[], &[("keepdims", AttrValue::Int(1))])
    }

    /// Averages over axes, which stay with size 1.
    pub(crate) fn mean(self, axes: &[i64]) -> Expr<'c> {
        let axes = Expr::constant(self.nodes, &ints(axes));
        self.op_with("ReduceMean", &[axes], &[("keepdims", AttrValue::Int(1))])
    }

    /// Removes axes of size 1.
    pub(crate) fn squeeze(self, axes: &[i64]) -> Expr<'c> {
        let axes = Expr::constant(self.nodes, &ints(axes));
        self.op_with("Squeeze", &[axes], &[])
    }

    /// Inserts axes of size 1.
    pub(crate) fn unsqueeze(self, axes: &[i64]) -> Expr<'c> {
        let axes = Expr::constant(self.nodes, &ints(axes));
        self.op_with("Unsqueeze", &[axes], &[])
    }

    /// Repeats the elements to another shape.
    pub(crate) fn expand(self, shape: Expr<'_>) -> Expr<'c> {
        self.op_with("Expand", &[shape], &[])
    }

    /// Joins this and other values along an axis.
    pub(crate) fn concat(self, others: &[Expr<'_>], axis: i64) -> Expr<'c> {
        self.op_with("Concat", others, &[("axis", AttrValue::Int(axis))])
    }

    /// Picks elements by their indices along an axis.
    pub(crate) fn gather(self, indices: Expr<'_>, axis: i64) -> Expr<'c> {
        self.op_with("Gather", &[indices], &[("axis", AttrValue::Int(axis))])
    }

    /// Limits integers to the range from 0 to `high`.
    pub(crate) fn clamp(self, high: Expr<'_>) -> Expr<'c> {
        self.op_with("Max", &[self.number(0.0)], &[]).op_with("Min", &[high], &[])
    }

    /// Gives the elements another shape.
    pub(crate) fn reshape(self, shape: Expr<'_>) -> Expr<'c> {
        self.op_with("Reshape", &[shape], &[("allowzero", AttrValue::Int(1))])
    }

    /// Permutes the axes.
    pub(crate) fn transpose(self, axes: &[i64]) -> Expr<'c> {
        self.op_with("Transpose", &[], &[("perm", AttrValue::from(axes))])
    }

    /// Multiplies matrices.
    pub(crate) fn matmul(self, other: Expr<'_>) -> Expr<'c> {
        self.op_with("MatMul", &[other], &[])
    }

    /// Compares the elements with those of another value by the operator `op`.
    pub(crate) fn compare(self, op: &'static str, other: Expr<'_>) -> Expr<'c> {
        self.op_with(op, &[other], &[]).with_elem(DataType::Bool)
    }

    /// Picks elements of `then` where this value is true, and of `otherwise` elsewhere.
    pub(crate) fn choose(self, then: Expr<'_>, otherwise: Expr<'_>) -> Expr<'c> {
        self.op_with("Where", &[then, otherwise], &[]).with_elem(then.elem)
    }

    /// Picks an item of a sequence.
    pub(crate) fn at(self, position: Expr<'_>) -> Expr<'c> {
        self.op_with("SequenceAt", &[position], &[])
    }

    /// Removes an item of a sequence, the last one without a position.
    pub(crate) fn remove_item(self, position: Option<Expr<'_>>) -> Expr<'c> {
        self.op_with("SequenceErase", position.as_slice(), &[])
    }

    /// Inserts an item into a sequence, at its end without a position.
    pub(crate) fn with_item(self, item: Expr<'_>, position: Option<Expr<'_>>) -> Expr<'c> {
        let inputs: Vec<Expr<'_>> = std::iter::once(item).chain(position).collect();
        self.op_with("SequenceInsert", &inputs, &[])
    }

    /// Counts the items of a sequence.
    pub(crate) fn length(self) -> Expr<'c> {
        self.op("SequenceLength").with_elem(DataType::Int64)
    }

    /// Squares the elements.
    pub(crate) fn square(self) -> Expr<'c> {
        self * self
    }

    /// Multiplies a gradient by a slope: 0 where the gradient is 0, whatever the slope is.
    pub(crate) fn scale_by(self, slope: Expr<'c>) -> Expr<'c> {
        self * slope.drop_unused(self)
    }

    /// Divides a gradient by the divisor of a slope: 0 where the gradient is 0, also where the
    /// divisor is 0 or NaN.
    pub(crate) fn divide_by(self, divisor: Expr<'c>) -> Expr<'c> {
        let is_divisor = divisor.op("Abs").compare("Greater", divisor.number(0.0));
        let counts = is_divisor.or(self.cast(DataType::Bool));
        self / counts.choose(divisor, divisor.number(1.0))
    }

    /// Replaces elements that are not finite by 0 where `gradient`, which broadcasts with them, is
    /// 0. A function whose result is masked may be infinite or NaN there, and so may its slope, and
    /// their product with a gradient of 0 would be NaN. Other elements stay, so NaN and infinity
    /// still reach gradients that depend on them, and the product has its derivative by `gradient`.
    /// 0. A function whose result is masked may be infinite or NaN there, and so is its slope,
    /// which must not make NaN of the 0 that arrives. Other elements stay: NaN and infinity still
    /// reach gradients that depend on them, and the product has its derivative by `gradient`.
    pub(crate) fn drop_unused(self, gradient: Expr<'_>) -> Expr<'c> {
        let is_finite = self.op("Abs").compare("Less", self.number(f64::INFINITY));
        is_finite.or(gradient.cast(DataType::Bool)).choose(self, self.number(0.0))
    }

    /// Replaces lines along `axes` that are not finite by 0 if they do not contribute, in an
    /// operand of summed products. All results that depend on such a line are not finite either, so
    /// it contributes nothing if all of them are masked: then `gradient`, the sum of the magnitudes
    /// of their gradients, is 0.
    pub(crate) fn drop_unused_lines(self, axes: &[i64], gradient: Expr<'_>) -> Expr<'c> {
        let infinity = self.number(f64::INFINITY);
        let is_finite = self.sum_magnitudes(axes).compare("Less", infinity);
        is_finite.or(gradient.cast(DataType::Bool)).choose(self, self.number(0.0))
    }

    /// Makes the logical or of two values.
    pub(crate) fn or(self, other: Expr<'_>) -> Expr<'c> {
        self.op_with("Or", &[other], &[])
    }

    /// Adds up the magnitudes over axes, which stay with size 1. The result is 0 if all elements
    /// are 0, and not finite if any element is not.
    pub(crate) fn sum_magnitudes(self, axes: &[i64]) -> Expr<'c> {
        let axes = Expr::constant(self.nodes, &ints(axes));
        self.op_with("ReduceL1", &[axes], &[("keepdims", AttrValue::Int(1))])
    }
}

/// Makes a scalar of a numeric type, rounded as `Cast` rounds.
pub fn scalar(elem: DataType, value: f64) -> Tensor {
    let double = Tensor::scalar(value);
    cast(&double, elem, CastOptions::default()).unwrap_or(double)
}

/// Whether all elements are finite numbers.
fn is_finite(tensor: &Tensor) -> bool {
    if let Ok(elements) = tensor.as_slice::<f32>() {
        return elements.iter().all(|element| element.is_finite());
    }
    let wide = cast(tensor, DataType::Double, CastOptions::default());
    let elements = wide.ok().and_then(|wide| wide.to_vec::<f64>().ok());
    elements.is_some_and(|elements| elements.iter().all(|element| element.is_finite()))
}

/// Makes a vector of `int64`.
fn ints(values: &[i64]) -> Tensor {
    Tensor::from_slice([values.len()], values)
        .expect("a vector has as many elements as its dimension")
}

macro_rules! arithmetic {
    ($($trait:ident::$method:ident $op:literal),*) => {$(
        impl<'c> $trait for Expr<'c> {
            type Output = Expr<'c>;

            fn $method(self, other: Expr<'c>) -> Expr<'c> {
                self.op_with($op, &[other], &[])
            }
        }

        impl<'c> $trait<f64> for Expr<'c> {
            type Output = Expr<'c>;

            fn $method(self, other: f64) -> Expr<'c> {
                self.op_with($op, &[self.number(other)], &[])
            }
        }

        impl<'c> $trait<Expr<'c>> for f64 {
            type Output = Expr<'c>;

            fn $method(self, other: Expr<'c>) -> Expr<'c> {
                other.number(self).op_with($op, &[other], &[])
            }
        }
    )*};
}

arithmetic! { Add::add "Add", Sub::sub "Sub", Mul::mul "Mul", Div::div "Div" }

impl<'c> Neg for Expr<'c> {
    type Output = Expr<'c>;

    fn neg(self) -> Expr<'c> {
        self.op("Neg")
    }
}
