//! How the axes of a node's operands go together: what must be known to compute a node in parts, on
//! several devices.
//!
//! A rule writes each axis as a product of *factors*, from the outermost to the innermost. Operands
//! share factors: of a matrix product the rows of the first operand and of the result are one
//! factor. A factor can be cut into parts. Each device then has the same part of all operands with
//! that factor, and the node computes its part of the result from these. A factor that no output
//! has is summed over (or its maximum taken, and so on): the results of the devices are partial
//! then, and are combined.
//!
//! This is the way of describing operators of Xu et al., "GSPMD: General and Scalable
//! Parallelization for ML Computation Graphs", 2021, with products of factors for reshaped axes.
//! The rules stand beside the operators, those of whole families in the files here.

use sardonyx_model::{Dim, Model, NodeAttributes, NodeId, Shape};
use sardonyx_tensor::DataType;
use smallvec::{SmallVec, smallvec};

use crate::attributes::AttributeView;
use crate::schema::Schema;

pub(crate) mod contraction;
pub(crate) mod elements;
pub(crate) mod layers;
pub(crate) mod movement;

/// Says how the axes of the operands of a node go together. The node is in the newest form of its
/// operator. `None` if the node can only be computed whole.
pub type SplitFn = fn(&Operands<'_>) -> Option<Factors>;

/// Sizes of a tensor, all of them numbers.
pub type Sizes = SmallVec<[usize; 4]>;

/// What is known of an input or an output of a node.
#[derive(Debug, Clone)]
pub struct Operand {
    /// Element type.
    pub elem: DataType,
    /// Sizes of the whole tensor: numbers, or expressions over sizes of inputs that the plan leaves
    /// open.
    pub dims: Shape,
    /// Its elements, if they are integers that are known: numbers, or such expressions.
    pub known: Option<Vec<Dim>>,
}

/// A node whose operands are tensors of known rank.
pub struct Operands<'a> {
    schema: &'static Schema,
    attributes: NodeAttributes<'a>,
    inputs: &'a [Option<Operand>],
    outputs: &'a [Option<Operand>],
}

impl std::fmt::Debug for Operands<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operands")
            .field("operator", &self.schema.name)
            .field("inputs", &self.inputs)
            .field("outputs", &self.outputs)
            .finish_non_exhaustive()
    }
}

impl<'a> Operands<'a> {
    /// Those of a node that follows a schema; `None` stands for an operand that it does not have.
    pub fn new(
        (model, node): (&'a Model, NodeId),
        schema: &'static Schema,
        inputs: &'a [Option<Operand>],
        outputs: &'a [Option<Operand>],
    ) -> Operands<'a> {
        Operands { schema, attributes: NodeAttributes::new(model, node), inputs, outputs }
    }

    fn view(&self) -> AttributeView<'_> {
        AttributeView::new(self.schema, &self.attributes)
    }

    /// An integer attribute, or its default.
    pub(crate) fn int(&self, name: &str) -> Option<i64> {
        self.view().int(name)
    }

    /// A list of integers, or its default.
    pub(crate) fn ints(&self, name: &str) -> Option<Vec<i64>> {
        self.view().ints(name)
    }

    /// A text, or its default.
    pub(crate) fn string(&self, name: &str) -> Option<String> {
        self.view().string(name)
    }

    /// An input.
    pub(crate) fn input(&self, index: usize) -> Option<&'a Operand> {
        self.inputs.get(index)?.as_ref()
    }

    /// The sizes of an input.
    pub(crate) fn dims(&self, index: usize) -> Option<&'a [Dim]> {
        self.input(index).map(|operand| &operand.dims[..])
    }

    /// The elements of an input, if they are integers that are known, or known by their
    /// expressions.
    pub(crate) fn known(&self, index: usize) -> Option<&'a [Dim]> {
        self.input(index)?.known.as_deref()
    }

    /// The elements of an input, if they are integers that are known.
    pub(crate) fn numbers(&self, index: usize) -> Option<Vec<i64>> {
        self.known(index)?.iter().map(Dim::known).collect()
    }

    /// The sizes of an output.
    pub(crate) fn output_dims(&self, index: usize) -> Option<&'a [Dim]> {
        self.outputs.get(index)?.as_ref().map(|operand| &operand.dims[..])
    }

    /// The number of inputs, absent ones counted.
    pub(crate) fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// The number of outputs, absent ones counted.
    pub(crate) fn output_count(&self) -> usize {
        self.outputs.len()
    }

    /// An axis that counts from the back if it is negative.
    pub(crate) fn axis(&self, axis: i64, rank: usize) -> Option<usize> {
        let rank = i64::try_from(rank).ok()?;
        let axis = if axis < 0 { axis + rank } else { axis };
        (0..rank).contains(&axis).then(|| usize::try_from(axis).ok()).flatten()
    }
}

/// How partial results of devices become the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Combine {
    /// By a sum.
    Sum,
    /// By a product.
    Product,
    /// The smallest; NaN if one is NaN.
    Min,
    /// The largest; NaN if one is NaN.
    Max,
}

/// What it means to cut a factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Each part gives the same part of the outputs.
    Parts,
    /// Each part gives partial results.
    Combined(Combine),
    /// It cannot be cut.
    Never,
}

/// A factor of axes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Factor {
    /// Its size in the whole tensor. One that is no number cannot be cut.
    pub size: Dim,
    /// What it means to cut it.
    pub cut: Cut,
}

/// The factors of an axis, from the outermost.
pub type Axis = SmallVec<[usize; 2]>;

/// Something of a node that holds sizes, which are those of the part where the node is computed in
/// parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The elements of an input are the sizes of an output.
    Sizes {
        /// Which input.
        input: usize,
        /// Which output.
        output: usize,
        /// The attribute that has to be 1 for a size to be 0, if there is one.
        zeros: Option<&'static str>,
    },
    /// An attribute is the product of factors.
    Attribute {
        /// Its name.
        name: &'static str,
        /// The factors.
        factors: [Option<usize>; 2],
    },
    /// The elements of the output are the sizes of axes of the first input, from this one on.
    Shape {
        /// The axis.
        start: usize,
    },
    /// The elements of an input are the sizes of the outputs along an axis.
    Lengths {
        /// Which input.
        input: usize,
        /// The axis of all outputs.
        axis: usize,
    },
    /// An input is added to the result, and can be left out: it is added to one of the partial
    /// results.
    Once {
        /// Which input.
        input: usize,
        /// Without it, the node is one of this operator of its other inputs, if it is not the same.
        rest: Option<&'static str>,
    },
    /// The second input says which indices of an axis of the first one are taken. What a device
    /// does not have is zero in what it takes.
    Own {
        /// The axis of the first input.
        axis: usize,
    },
    /// The elements of an output are places in the first input, counted from its first element.
    /// What is before a part moves those of the part up.
    Places {
        /// Which output.
        output: usize,
        /// The factor that is the first axis of the first input.
        factor: usize,
        /// The elements of one index of that axis.
        stride: usize,
    },
    /// Where results are partial, the node is one of this operator.
    Partly {
        /// The operator of the default domain, with the same inputs and attributes.
        operator: &'static str,
        /// What makes the result of the combined parts.
        then: Then,
    },
}

/// How a result follows from inputs that are partial sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Linear {
    /// It is not what the same makes of the sums.
    #[default]
    No,
    /// It is a partial sum if the first input is one and the others are whole.
    First,
    /// It is a partial sum if one input is one and the other one is whole.
    Factor,
    /// The inputs are added: it is a partial sum of those that are ones, and of those that are
    /// whole once. By input, the operator of the others that the node is without it; the last one
    /// stands for all that follow.
    Sum(&'static [&'static str]),
}

/// What makes a result of the combined parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The square root.
    Sqrt,
    /// The natural logarithm.
    Log,
    /// Division by the product of the sizes of all factors that are combined.
    Divide,
}

/// The axes of a node's operands in factors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Factors {
    /// All factors.
    pub factors: Vec<Factor>,
    /// The axes of each input. An axis without factors is whole everywhere.
    pub inputs: Vec<SmallVec<[Axis; 4]>>,
    /// The axes of each output.
    pub outputs: Vec<SmallVec<[Axis; 4]>>,
    /// What else of the node holds sizes.
    pub changes: Vec<Change>,
}

impl Factors {
    /// All axes whole.
    pub(crate) fn whole(cx: &Operands<'_>) -> Factors {
        let axes = |operand: &Option<Operand>| {
            let rank = operand.as_ref().map_or(0, |operand| operand.dims.len());
            smallvec![Axis::new(); rank]
        };
        Factors {
            factors: Vec::new(),
            inputs: cx.inputs.iter().map(axes).collect(),
            outputs: cx.outputs.iter().map(axes).collect(),
            changes: Vec::new(),
        }
    }

    /// A new factor that outputs have.
    pub(crate) fn factor(&mut self, size: impl Into<Dim>) -> usize {
        self.add(size.into(), Cut::Parts)
    }

    /// A new factor that no output has.
    pub(crate) fn combined(&mut self, size: impl Into<Dim>, combine: Combine) -> usize {
        self.add(size.into(), Cut::Combined(combine))
    }

    /// A new factor that is always whole, inside of others.
    pub(crate) fn fixed(&mut self, size: impl Into<Dim>) -> usize {
        self.add(size.into(), Cut::Never)
    }

    fn add(&mut self, size: Dim, cut: Cut) -> usize {
        self.factors.push(Factor { size, cut });
        self.factors.len() - 1
    }

    /// Says that an axis of an input is a factor, or ends with it.
    pub(crate) fn input(&mut self, input: usize, axis: usize, factor: usize) {
        self.inputs[input][axis].push(factor);
    }

    /// Says that an axis of an input is a factor, unless it broadcasts along the axis of the
    /// result that is this factor: its size is 1 then. `None` if it is not known whether it does.
    pub(crate) fn broadcast(
        &mut self,
        cx: &Operands<'_>,
        (input, axis): (usize, usize),
        factor: usize,
    ) -> Option<()> {
        let own = cx.dims(input)?.get(axis)?;
        if *own == self.factors[factor].size {
            self.input(input, axis, factor);
        } else if *own != Dim::Known(1) {
            return None;
        }
        Some(())
    }

    /// Says that an axis of an output is a factor, or ends with it.
    pub(crate) fn output(&mut self, output: usize, axis: usize, factor: usize) {
        self.outputs[output][axis].push(factor);
    }
}
