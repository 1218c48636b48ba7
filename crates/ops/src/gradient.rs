//! The context of a gradient rule: given the gradients of a node's outputs, the rule makes nodes of
//! the standard that compute those of its inputs.
//!
//! This is reverse-mode differentiation: Griewank, Walther, "Evaluating Derivatives", SIAM 2008,
//! chapter 3. A rule sees a node in the newest form of its operator and makes nodes in the newest
//! forms of theirs, which have rules as well: what was derived can be derived again.

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

/// A node whose outputs have gradients, and the place where nodes are made that compute those of
/// its inputs.
pub struct Backward<'a> {
    build: RefCell<NodeBuilder<'a>>,
    types: &'a dyn ValueTypes,
    node: NodeId,
    schema: &'static Schema,
    around: Around<'a>,
    /// By input.
    given: RefCell<Vec<Option<Given>>>,
    made: RefCell<Vec<NodeId>>,
}

/// Gradients around a node, and those that are wanted.
#[derive(Debug, Clone, Copy)]
pub struct Around<'a> {
    /// By output: its gradient; `None` stands for zeros.
    pub arriving: &'a [Option<ValueId>],
    /// By input: whether its gradient is wanted.
    pub wanted: &'a [bool],
    /// By input that is a sequence: the sum of the gradients that later readers gave, if any did.
    pub gathered: &'a [Option<ValueId>],
}

/// The gradient of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// Of this node alone, to be added to those of other readers.
    Part(ValueId),
    /// With [`Around::gathered`] in it.
    Total(ValueId),
}

/// What a rule made.
#[derive(Debug)]
pub struct Derived {
    /// By input: its gradient; `None` stands for zeros.
    pub gradients: Vec<Option<Given>>,
    /// The nodes, in order.
    pub made: Vec<NodeId>,
}

impl fmt::Debug for Backward<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backward").field("node", &self.node).finish_non_exhaustive()
    }
}

impl<'a> Backward<'a> {
    /// For `node`, which follows `schema`. New nodes come before the anchor of `build`.
    pub fn new(
        build: NodeBuilder<'a>,
        types: &'a dyn ValueTypes,
        (node, schema): (NodeId, &'static Schema),
        around: Around<'a>,
    ) -> Self {
        let (build, made) = (RefCell::new(build), RefCell::default());
        let given = RefCell::new(vec![None; around.wanted.len()]);
        Backward { build, types, node, schema, around, given, made }
    }

    /// What the rule made.
    pub fn finish(self) -> Derived {
        Derived { gradients: self.given.into_inner(), made: self.made.into_inner() }
    }

    /// Says something of the model as it is.
    fn look<T>(&self, what: impl FnOnce(&Model) -> T) -> T {
        what(self.build.borrow().model())
    }

    /// Says something of the attributes of the node and their defaults.
    fn attributes<T>(&self, what: impl FnOnce(&AttributeView<'_>) -> T) -> T {
        self.look(|model| {
            let attributes = NodeAttributes::new(model, self.node);
            what(&AttributeView::new(self.schema, &attributes))
        })
    }

    /// An integer attribute, or its default.
    pub(crate) fn int(&self, name: &str) -> Option<i64> {
        self.attributes(|attributes| attributes.int(name))
    }

    /// A float attribute, or its default.
    pub(crate) fn float(&self, name: &str) -> Option<f32> {
        self.attributes(|attributes| attributes.float(name))
    }

    /// A list of integers, or its default.
    pub(crate) fn ints(&self, name: &str) -> Option<Vec<i64>> {
        self.attributes(|attributes| attributes.ints(name))
    }

    /// A list with an integer for each of `len` axes, or so many times `value`.
    ///
    /// # Errors
    ///
    /// It has another length.
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

    /// A string attribute, or its default.
    pub(crate) fn string(&self, name: &str) -> Option<String> {
        self.attributes(|attributes| attributes.string(name))
    }

    /// Inputs, absent ones counted.
    pub(crate) fn input_count(&self) -> usize {
        self.around.wanted.len()
    }

    /// Outputs, absent ones counted.
    pub(crate) fn output_count(&self) -> usize {
        self.around.arriving.len()
    }

    /// Whether the gradient of an input is wanted.
    pub(crate) fn wants(&self, index: usize) -> bool {
        self.around.wanted.get(index).copied().unwrap_or(false)
    }

    /// An input; `None` if it is left out.
    pub(crate) fn input_if(&self, index: usize) -> Option<Expr<'_>> {
        let value = self.look(|model| model.inputs(self.node).nth(index).flatten())?;
        self.of_file(value)
    }

    /// An input that the operator demands.
    ///
    /// # Errors
    ///
    /// It is left out, or its element type is not known.
    pub(crate) fn input(&self, index: usize) -> Result<Expr<'_>, Refusal> {
        let refusal = || self.refuse(format_args!("the type of input {index} is unknown"));
        self.input_if(index).ok_or_else(refusal)
    }

    /// An output; it gets a name if it has none.
    ///
    /// # Errors
    ///
    /// Its element type is not known.
    pub(crate) fn output(&self, index: usize) -> Result<Expr<'_>, Refusal> {
        let value = self.look(|model| model.outputs(self.node).get(index).copied().flatten());
        let refusal = || self.refuse(format_args!("the type of output {index} is unknown"));
        value.and_then(|value| self.of_file(value)).ok_or_else(refusal)
    }

    /// The gradient of an output; `None` if it is zeros.
    pub(crate) fn arriving_if(&self, index: usize) -> Option<Expr<'_>> {
        let value = self.around.arriving.get(index).copied().flatten()?;
        let of = self.look(|model| model.outputs(self.node).get(index).copied().flatten())?;
        let elem = self.types.ty(of)?.elem_of_items()?;
        Some(Expr { nodes: self, value, elem })
    }

    /// The sum of the gradients that later readers of a sequence gave; `None` if none did.
    pub(crate) fn gathered(&self, index: usize) -> Option<Expr<'_>> {
        let value = self.around.gathered.get(index).copied().flatten()?;
        let elem = self.input_if(index)?.elem;
        Some(Expr { nodes: self, value, elem })
    }

    /// The gradient of the first output, of a node of one output.
    ///
    /// # Errors
    ///
    /// The element type of the output is not known.
    pub(crate) fn arriving(&self) -> Result<Expr<'_>, Refusal> {
        self.arriving_if(0).ok_or_else(|| self.refuse("the type of its output is unknown"))
    }

    fn of_file(&self, value: ValueId) -> Option<Expr<'_>> {
        let elem = self.types.ty(value)?.elem_of_items()?;
        Some(Expr { nodes: self, value, elem })
    }

    /// The shape of a value of the node, as inferred.
    pub(crate) fn shape_of(&self, term: Expr<'_>) -> Option<Shape> {
        self.types.ty(term.value).and_then(Type::shape).cloned()
    }

    /// The rank of a value of the node, as inferred.
    ///
    /// # Errors
    ///
    /// It is not known.
    pub(crate) fn rank_of(&self, term: Expr<'_>) -> Result<usize, Refusal> {
        let rank = self.shape_of(term).map(|shape| shape.len());
        rank.ok_or_else(|| self.refuse("its rank is unknown"))
    }

    /// The value of an input that is the same in every run, if that is known.
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

    /// Whether an input may have elements that are not finite: all but what the file holds as
    /// finite numbers. Weights that training changes are of that kind; if they become infinite,
    /// nothing is left to train.
    pub(crate) fn may_be_infinite(&self, index: usize) -> bool {
        let value = self.look(|model| model.inputs(self.node).nth(index).flatten());
        // An input with a default takes other values.
        let is_stored = |value: ValueId| {
            self.look(|model| matches!(model.value(value).producer, Producer::Initializer(_)))
        };
        if !value.is_some_and(is_stored) {
            return true;
        }
        // What lies in another file is not opened for this.
        self.constant(index).is_some_and(|stored| !is_finite(&stored))
    }

    /// Says what the gradient of an input is.
    pub(crate) fn give(&self, index: usize, gradient: Expr<'_>) {
        self.set(index, Given::Part(gradient.value));
    }

    /// Says what the gradient of an input is with what was [`gathered`](Self::gathered) for it.
    pub(crate) fn give_total(&self, index: usize, gradient: Expr<'_>) {
        self.set(index, Given::Total(gradient.value));
    }

    fn set(&self, index: usize, gradient: Given) {
        if let Some(given) = self.given.borrow_mut().get_mut(index) {
            *given = Some(gradient);
        }
    }

    /// A sequence with a tensor for each item of `sequences`, which are equally long.
    pub(crate) fn per_item(&self, sequences: &[Expr<'_>], what: PerItem) -> Expr<'_> {
        let sequences: Vec<ValueId> = sequences.iter().map(|sequence| sequence.value).collect();
        let made = make_per_item(&mut self.build.borrow_mut(), &sequences, what);
        self.made.borrow_mut().extend(made.nodes);
        Expr { nodes: self, value: made.sequence, elem: what.elem() }
    }

    /// The same for an input that broadcast to the shape of the first output: the sum over what it
    /// was repeated along.
    ///
    /// # Errors
    ///
    /// The element type of the input is not known.
    pub(crate) fn give_broadcast(&self, index: usize, gradient: Expr<'_>) -> Result<(), Refusal> {
        let (input, output) = (self.input(index)?, self.output(0)?);
        let reduced = self.unbroadcast(gradient, output, input);
        self.give(index, reduced);
        Ok(())
    }

    /// The sum of `gradient`, which has the shape of `whole`, over the axes along which `part` was
    /// repeated to get that shape; in the shape of `part`.
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
                // The same unknown size on both sides does not broadcast.
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

    /// The same where nothing is known of the shape of `gradient`. If `is_vector`, `part` has one
    /// axis that stands for the last two of `gradient`, one of which is 1.
    pub(crate) fn unbroadcast_to<'c>(
        &'c self,
        gradient: Expr<'c>,
        part: Expr<'c>,
        is_vector: bool,
    ) -> Expr<'c> {
        if !is_vector {
            return self.unbroadcast_at_run(gradient, part);
        }
        // All that is before the last two axes is a repetition.
        let matrix = gradient.sizes(-2, None);
        let all = self.ints_of(&[-1]).op_with("Concat", &[matrix], &[("axis", AttrValue::Int(0))]);
        gradient.op_with("Reshape", &[all], &[]).sum(&[0], false).reshape(part.shape())
    }

    /// The same where sizes are known only at run time: a run computes the axes.
    fn unbroadcast_at_run<'c>(&'c self, gradient: Expr<'c>, part: Expr<'c>) -> Expr<'c> {
        let one = self.ints_of(&[1]);
        let sizes = part.shape();
        let added = gradient.shape().shape() - sizes.shape();
        let ones = one.op_with("Expand", &[added], &[]);
        let aligned = ones.op_with("Concat", &[sizes], &[("axis", AttrValue::Int(0))]);
        let repeated = aligned.compare("Equal", one);
        let axes = repeated.op("NonZero").of(DataType::Int64);
        let axes = axes.op_with("Reshape", &[self.ints_of(&[-1])], &[]);
        let options =
            [("keepdims", AttrValue::Int(1)), ("noop_with_empty_axes", AttrValue::Int(1))];
        gradient.op_with("ReduceSum", &[axes], &options).reshape(sizes)
    }

    /// A vector of `int64` constants.
    pub(crate) fn ints_of(&self, values: &[i64]) -> Expr<'_> {
        Expr::constant(self, &ints(values))
    }

    /// A position in a sequence.
    pub(crate) fn position(&self, index: i64) -> Expr<'_> {
        Expr::constant(self, &Tensor::scalar(index))
    }

    /// The integers from 0 on, as many as a scalar says.
    pub(crate) fn count_up<'c>(&'c self, count: Expr<'c>) -> Expr<'c> {
        let scalar = |value: i64| Expr::constant(self, &Tensor::scalar(value));
        scalar(0).op_with("Range", &[count, scalar(1)], &[])
    }

    /// A vector of constants of the type `elem`.
    pub(crate) fn numbers_of(&self, values: &[f64], elem: DataType) -> Expr<'_> {
        let double = Tensor::from_slice([values.len()], values)
            .expect("a vector has as many elements as its dimension");
        let tensor = cast(&double, elem, CastOptions::default());
        Expr::constant(self, &tensor.unwrap_or(double))
    }

    /// An output of the node that nobody needed so far.
    pub(crate) fn also_output(&self, index: usize, elem: DataType) -> Expr<'_> {
        let mut build = self.build.borrow_mut();
        build.model_mut().fill_outputs(self.node, index + 1);
        let value = build.model().outputs(self.node)[index].expect("the output was just made");
        Expr { nodes: self, value, elem }
    }

    /// A node of the default domain with several outputs, all of them of the type `elem`.
    pub(crate) fn make_many(
        &self,
        op: &'static str,
        inputs: &[Expr<'_>],
        attributes: &[(&str, AttrValue<'_>)],
        (elem, count): (DataType, usize),
    ) -> Vec<Expr<'_>> {
        let inputs: Vec<Option<ValueId>> = inputs.iter().map(|input| Some(input.value)).collect();
        self.make(op, &inputs, attributes);
        let node = *self.made.borrow().last().expect("a node was just made");
        let mut build = self.build.borrow_mut();
        build.model_mut().fill_outputs(node, count);
        let outputs = build.model().outputs(node).iter().flatten();
        outputs.map(|value| Expr { nodes: self, value: *value, elem }).collect()
    }

    /// What a rule returns when it has no gradient for the node.
    pub(crate) fn refuse(&self, why: impl fmt::Display) -> Refusal {
        Refusal::from(format!("{}: {why}", self.schema.name))
    }
}

/// Where nodes are made.
trait Nodes {
    /// A node of the default domain with one output.
    fn make(
        &self,
        op: &'static str,
        inputs: &[Option<ValueId>],
        attributes: &[(&str, AttrValue<'_>)],
    ) -> ValueId;

    /// A constant of the graph.
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

/// A value with which rules compute: a tensor, on which arithmetic makes nodes, or a sequence of
/// tensors.
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

    /// The type of its elements, or of the elements of its items.
    pub(crate) fn elem(self) -> DataType {
        self.elem
    }

    /// The same value, whose elements have that type.
    pub(crate) fn of(self, elem: DataType) -> Expr<'c> {
        Expr { elem, ..self }
    }

    /// The node `op` of this value.
    pub(crate) fn op(self, op: &'static str) -> Expr<'c> {
        self.op_with(op, &[], &[])
    }

    /// The node `op` of this value and others. The elements are of the type of this one.
    pub(crate) fn op_with(
        self,
        op: &'static str,
        others: &[Expr<'_>],
        attributes: &[(&str, AttrValue<'_>)],
    ) -> Expr<'c> {
        let others: Vec<Option<Expr<'_>>> = others.iter().copied().map(Some).collect();
        self.op_with_some(op, &others, attributes)
    }

    /// The same where some of the others are left out.
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

    /// A scalar of the type of this value.
    pub(crate) fn number(self, value: f64) -> Expr<'c> {
        Expr::constant(self.nodes, &scalar(self.elem, value))
    }

    /// Zeros in the shape of this value.
    pub(crate) fn zeros(self) -> Expr<'c> {
        self.number(0.0).op_with("Expand", &[self.shape()], &[])
    }

    /// Its elements in another type.
    pub(crate) fn cast(self, to: DataType) -> Expr<'c> {
        if self.elem == to {
            return self;
        }
        self.op_with("Cast", &[], &[("to", AttrValue::Int(to.number().into()))]).of(to)
    }

    /// Its sizes.
    pub(crate) fn shape(self) -> Expr<'c> {
        self.op("Shape").of(DataType::Int64)
    }

    /// Its sizes from an axis on, up to another one.
    pub(crate) fn sizes(self, start: i64, end: Option<i64>) -> Expr<'c> {
        let mut attributes = vec![("start", AttrValue::Int(start))];
        attributes.extend(end.map(|end| ("end", AttrValue::Int(end))));
        self.op_with("Shape", &[], &attributes).of(DataType::Int64)
    }

    /// The sum over axes.
    pub(crate) fn sum(self, axes: &[i64], keeps: bool) -> Expr<'c> {
        let axes = Expr::constant(self.nodes, &ints(axes));
        self.op_with("ReduceSum", &[axes], &[("keepdims", AttrValue::Int(keeps.into()))])
    }

    /// The product of the elements of a vector, as a vector of one.
    pub(crate) fn product(self) -> Expr<'c> {
        self.op_with("ReduceProd", &[], &[("keepdims", AttrValue::Int(1))])
    }

    /// The mean over axes, which stay with size 1.
    pub(crate) fn mean(self, axes: &[i64]) -> Expr<'c> {
        let axes = Expr::constant(self.nodes, &ints(axes));
        self.op_with("ReduceMean", &[axes], &[("keepdims", AttrValue::Int(1))])
    }

    /// The value without axes of size 1.
    pub(crate) fn squeeze(self, axes: &[i64]) -> Expr<'c> {
        let axes = Expr::constant(self.nodes, &ints(axes));
        self.op_with("Squeeze", &[axes], &[])
    }

    /// The value with more axes of size 1.
    pub(crate) fn unsqueeze(self, axes: &[i64]) -> Expr<'c> {
        let axes = Expr::constant(self.nodes, &ints(axes));
        self.op_with("Unsqueeze", &[axes], &[])
    }

    /// Its elements repeated to another shape.
    pub(crate) fn expand(self, shape: Expr<'_>) -> Expr<'c> {
        self.op_with("Expand", &[shape], &[])
    }

    /// It and other values, one after the other along an axis.
    pub(crate) fn concat(self, others: &[Expr<'_>], axis: i64) -> Expr<'c> {
        self.op_with("Concat", others, &[("axis", AttrValue::Int(axis))])
    }

    /// Its elements at indices of an axis.
    pub(crate) fn gather(self, indices: Expr<'_>, axis: i64) -> Expr<'c> {
        self.op_with("Gather", &[indices], &[("axis", AttrValue::Int(axis))])
    }

    /// The elements of integers, none below 0 or above `high`.
    pub(crate) fn clamped(self, high: Expr<'_>) -> Expr<'c> {
        self.op_with("Max", &[self.number(0.0)], &[]).op_with("Min", &[high], &[])
    }

    /// Its elements in another shape.
    pub(crate) fn reshape(self, shape: Expr<'_>) -> Expr<'c> {
        self.op_with("Reshape", &[shape], &[("allowzero", AttrValue::Int(1))])
    }

    /// Its axes in another order.
    pub(crate) fn transpose(self, axes: &[i64]) -> Expr<'c> {
        self.op_with("Transpose", &[], &[("perm", AttrValue::from(axes))])
    }

    /// The matrix product.
    pub(crate) fn matmul(self, other: Expr<'_>) -> Expr<'c> {
        self.op_with("MatMul", &[other], &[])
    }

    /// Compares it with another value by `op`.
    pub(crate) fn compare(self, op: &'static str, other: Expr<'_>) -> Expr<'c> {
        self.op_with(op, &[other], &[]).of(DataType::Bool)
    }

    /// Of truth values: one value where they hold, and the other elsewhere.
    pub(crate) fn choose(self, then: Expr<'_>, otherwise: Expr<'_>) -> Expr<'c> {
        self.op_with("Where", &[then, otherwise], &[]).of(then.elem)
    }

    /// An item of a sequence.
    pub(crate) fn at(self, position: Expr<'_>) -> Expr<'c> {
        self.op_with("SequenceAt", &[position], &[])
    }

    /// A sequence without an item, the last one if no position is given.
    pub(crate) fn without(self, position: Option<Expr<'_>>) -> Expr<'c> {
        self.op_with("SequenceErase", position.as_slice(), &[])
    }

    /// A sequence with one more item, at its end if no position is given.
    pub(crate) fn with_item(self, item: Expr<'_>, position: Option<Expr<'_>>) -> Expr<'c> {
        let inputs: Vec<Expr<'_>> = std::iter::once(item).chain(position).collect();
        self.op_with("SequenceInsert", &inputs, &[])
    }

    /// The number of items of a sequence.
    pub(crate) fn length(self) -> Expr<'c> {
        self.op("SequenceLength").of(DataType::Int64)
    }

    /// The square.
    pub(crate) fn squared(self) -> Expr<'c> {
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
    /// 0. A function whose result is masked may be infinite or NaN there, and so is its slope,
    /// which must not make NaN of the 0 that arrives. Other elements stay: NaN and infinity still
    /// reach gradients that depend on them, and the product has its derivative by `gradient`.
    pub(crate) fn drop_unused(self, gradient: Expr<'_>) -> Expr<'c> {
        let is_finite = self.op("Abs").compare("Less", self.number(f64::INFINITY));
        is_finite.or(gradient.cast(DataType::Bool)).choose(self, self.number(0.0))
    }

    /// Replaces lines along `axes` by 0 that are not finite and do not count, in an operand of
    /// products that are summed. What such a line takes part in is not finite either, so it counts
    /// for nothing where all of that is masked: then `gradient`, the sum of the magnitudes of the
    /// gradients of all of it, is 0.
    pub(crate) fn drop_unused_lines(self, axes: &[i64], gradient: Expr<'_>) -> Expr<'c> {
        let infinity = self.number(f64::INFINITY);
        let is_finite = self.sum_magnitudes(axes).compare("Less", infinity);
        is_finite.or(gradient.cast(DataType::Bool)).choose(self, self.number(0.0))
    }

    /// Whether either of two truth values holds.
    pub(crate) fn or(self, other: Expr<'_>) -> Expr<'c> {
        self.op_with("Or", &[other], &[])
    }

    /// The sum of magnitudes over axes, which stay with size 1: 0 if all are 0, and not finite if
    /// any is not.
    pub(crate) fn sum_magnitudes(self, axes: &[i64]) -> Expr<'c> {
        let axes = Expr::constant(self.nodes, &ints(axes));
        self.op_with("ReduceL1", &[axes], &[("keepdims", AttrValue::Int(1))])
    }
}

/// A scalar of a type of numbers, rounded as by Cast.
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

/// A vector of `int64`.
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
