//! Factors that the axes of a node's operands share: the facts needed to compute a node in parts,
//! on several devices.
//!
//! A rule writes each axis as a product of *factors*, from the outermost to the innermost. Operands
//! share factors: the rows of the first operand of a matrix product and of its result are one
//! factor. A factor can be cut into parts. Each device then has the same part of all operands with
//! that factor, and the node computes its part of the result from these. A factor that no output
//! has is summed over (or its maximum taken, and so on): the results of the devices are then
//! partial and are combined.
//!
//! Xu et al., "GSPMD: General and Scalable Parallelization for ML Computation Graphs", 2021,
//! describe operators this way; products of factors for reshaped axes are an addition. The rule of
//! one operator stands beside its definition, rules of whole families are in the files below.

use sardonyx_model::{Dim, Model, NodeAttributes, NodeId, Shape};
use sardonyx_tensor::DataType;
use smallvec::{SmallVec, smallvec};

use crate::attributes::AttributeView;
use crate::schema::Schema;

pub(crate) mod contraction;
pub(crate) mod elements;
pub(crate) mod layers;
pub(crate) mod movement;

/// Returns the factors that the axes of a node's operands share, or `None` if the node can only be
/// computed whole. The node is in the newest form of its operator.
pub type SplitFn = fn(&Operands<'_>) -> Option<Factors>;

/// Sizes of a tensor whose sizes are all numbers.
pub type Sizes = SmallVec<[usize; 4]>;

/// Known facts about an input or an output of a node.
#[derive(Debug, Clone)]
pub struct Operand {
    /// Element type.
    pub elem: DataType,
    /// Sizes of the whole tensor: numbers, or expressions over sizes of inputs that the plan leaves
    /// open.
    pub dims: Shape,
    /// Elements of an integer tensor where they are known: numbers, or expressions over open sizes.
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
    /// Describes a node that follows `schema`; `None` stands for an absent operand.
    pub fn new(
        model: &'a Model,
        node: NodeId,
        schema: &'static Schema,
        inputs: &'a [Option<Operand>],
        outputs: &'a [Option<Operand>],
    ) -> Operands<'a> {
        Operands { schema, attributes: NodeAttributes::new(model, node), inputs, outputs }
    }

    fn view(&self) -> AttributeView<'_> {
        AttributeView::new(self.schema, &self.attributes)
    }

    /// Returns an integer attribute, or its default.
    pub(crate) fn int(&self, name: &str) -> Option<i64> {
        self.view().int(name)
    }

    /// Returns a list of integers, or its default.
    pub(crate) fn ints(&self, name: &str) -> Option<Vec<i64>> {
        self.view().ints(name)
    }

    /// Returns a string attribute, or its default.
    pub(crate) fn string(&self, name: &str) -> Option<String> {
        self.view().string(name)
    }

    /// Returns an input, or `None` if it is absent.
    pub(crate) fn input(&self, index: usize) -> Option<&'a Operand> {
        self.inputs.get(index)?.as_ref()
    }

    /// Returns the sizes of an input.
    pub(crate) fn dims(&self, index: usize) -> Option<&'a [Dim]> {
        self.input(index).map(|operand| &operand.dims[..])
    }

    /// Returns the elements of an input if they are integers that are known as numbers or as
    /// expressions.
    pub(crate) fn known_elements(&self, index: usize) -> Option<&'a [Dim]> {
        self.input(index)?.known.as_deref()
    }

    /// Returns the elements of an input if they are integers that are known as numbers.
    pub(crate) fn numbers(&self, index: usize) -> Option<Vec<i64>> {
        self.known_elements(index)?.iter().map(Dim::known).collect()
    }

    /// Returns the sizes of an output.
    pub(crate) fn output_dims(&self, index: usize) -> Option<&'a [Dim]> {
        self.outputs.get(index)?.as_ref().map(|operand| &operand.dims[..])
    }

    /// Returns the number of inputs, including absent ones.
    pub(crate) fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// Returns the number of outputs, including absent ones.
    pub(crate) fn output_count(&self) -> usize {
        self.outputs.len()
    }

    /// Returns the index of an axis, which counts from the back if it is negative, or `None` if it
    /// is out of range.
    pub(crate) fn axis(&self, axis: i64, rank: usize) -> Option<usize> {
        let rank = i64::try_from(rank).ok()?;
        let axis = if axis < 0 { axis + rank } else { axis };
        (0..rank).contains(&axis).then(|| usize::try_from(axis).ok()).flatten()
    }
}

/// Operation that combines the partial results of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Combine {
    /// Sum.
    Sum,
    /// Product.
    Product,
    /// Minimum, or NaN if an operand is NaN.
    Min,
    /// Maximum, or NaN if an operand is NaN.
    Max,
}

/// Effect of cutting a factor on the outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Each part computes its part of the outputs.
    Parts,
    /// Each part computes partial results, which are combined.
    Combined(Combine),
    /// The factor cannot be cut.
    Never,
}

/// Factor of the sizes of axes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Factor {
    /// Size in the whole tensor. A factor of open size cannot be cut.
    pub size: Dim,
    /// Effect of cutting the factor.
    pub cut: Cut,
}

/// Factors of one axis, from the outermost.
pub type Axis = SmallVec<[usize; 2]>;

/// Adjustment of a node that is computed in parts, such as an operand or attribute that holds
/// sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The elements of an input are the sizes of an output.
    Sizes {
        /// Index of the input.
        input: usize,
        /// Index of the output.
        output: usize,
        /// Attribute that must be 1 where a size of 0 is meant literally, if the operator has one.
        zeros: Option<&'static str>,
    },
    /// An attribute is the product of factors.
    Attribute {
        /// Name of the attribute.
        name: &'static str,
        /// Factors whose sizes are multiplied.
        factors: [Option<usize>; 2],
    },
    /// The elements of the output are the sizes of axes of the first input, beginning at `start`.
    Shape {
        /// First axis whose size is returned.
        start: usize,
    },
    /// The elements of an input are the sizes of the outputs along an axis.
    Lengths {
        /// Index of the input.
        input: usize,
        /// Axis of all outputs.
        axis: usize,
    },
    /// An input is added to the result. It is added to one of the partial results and left out
    /// elsewhere.
    Once {
        /// Index of the input.
        input: usize,
        /// Operator that the node becomes without this input, if that is another operator.
        rest: Option<&'static str>,
    },
    /// The second input holds indices along an axis of the first input. A device returns zeros for
    /// indices outside its part of the axis.
    Own {
        /// Axis of the first input.
        axis: usize,
    },
    /// The elements of an output are positions in the first input, counted in elements from its
    /// first one. The number of elements before the part of a device is added to its positions.
    Places {
        /// Index of the output.
        output: usize,
        /// Factor that is the first axis of the first input.
        factor: usize,
        /// Number of elements in one index of that axis.
        stride: usize,
    },
    /// The node becomes another operator where its results are partial.
    Partly {
        /// Operator of the default domain with the same inputs and attributes.
        operator: &'static str,
        /// Function that is applied after the partial results are combined.
        then: Then,
    },
}

/// Condition under which the result for partial sums is itself a partial sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Linear {
    /// Never: the result for the sum is not the sum of the results.
    #[default]
    No,
    /// The first input is a partial sum and the others are whole.
    First,
    /// One input is a partial sum and the other one is whole.
    Factor,
    /// The inputs are added, so any of them may be partial sums; whole ones are added on one
    /// device. Names by input the operator that the node becomes without this input. The last name
    /// stands for all further inputs.
    Sum(&'static [&'static str]),
}

/// Function that turns combined partial results into the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Square root.
    Sqrt,
    /// Natural logarithm.
    Log,
    /// Division by the product of the sizes of all combined factors.
    Divide,
}

/// Axes of a node's operands as products of factors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Factors {
    /// All factors. Axes refer to them by index.
    pub factors: Vec<Factor>,
    /// Axes of each input. An axis without factors is whole on each device.
    pub inputs: Vec<SmallVec<[Axis; 4]>>,
    /// Axes of each output.
    pub outputs: Vec<SmallVec<[Axis; 4]>>,
    /// Adjustments of the node where it is computed in parts.
    pub changes: Vec<Change>,
}

impl Factors {
    /// Leaves all axes whole.
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

    /// Adds a factor that outputs have, and returns its index.
    pub(crate) fn add_factor(&mut self, size: impl Into<Dim>) -> usize {
        self.add(size.into(), Cut::Parts)
    }

    /// Adds a factor that no output has: partial results are combined by `combine`.
    pub(crate) fn add_combined(&mut self, size: impl Into<Dim>, combine: Combine) -> usize {
        self.add(size.into(), Cut::Combined(combine))
    }

    /// Adds a factor that is never cut. It stands inside other factors of its axis.
    pub(crate) fn add_fixed(&mut self, size: impl Into<Dim>) -> usize {
        self.add(size.into(), Cut::Never)
    }

    fn add(&mut self, size: Dim, cut: Cut) -> usize {
        self.factors.push(Factor { size, cut });
        self.factors.len() - 1
    }

    /// Appends a factor to an axis of an input, inside the factors that the axis already has.
    pub(crate) fn append_to_input(&mut self, input: usize, axis: usize, factor: usize) {
        self.inputs[input][axis].push(factor);
    }

    /// Appends a factor to an axis of an input unless the input broadcasts along that axis of the
    /// result, which makes its size 1 there. Returns `None` if it is unknown whether the input
    /// broadcasts.
    pub(crate) fn broadcast(
        &mut self,
        cx: &Operands<'_>,
        input: usize,
        axis: usize,
        factor: usize,
    ) -> Option<()> {
        let own = cx.dims(input)?.get(axis)?;
        if *own == self.factors[factor].size {
            self.append_to_input(input, axis, factor);
        } else if *own != Dim::Known(1) {
            return None;
        }
        Some(())
    }

    /// Appends a factor to an axis of an output, inside the factors that the axis already has.
    pub(crate) fn append_to_output(&mut self, output: usize, axis: usize, factor: usize) {
        self.outputs[output][axis].push(factor);
    }
}
