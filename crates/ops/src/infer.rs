//! The context in which an operator computes the types of its outputs.

use std::fmt;

use sardonyx_model::{Dim, Shape, TensorType, Type};
use sardonyx_tensor::{DataType, Tensor};

use crate::attributes::{AttributeView, Attributes};
use crate::schema::Schema;

/// What inference of one node sees and says.
///
/// Everything may be missing: an input's type, its rank, a dimension. A rule that cannot say something leaves it out; it
/// fails only where the inputs contradict what the operator demands.
pub struct Infer<'a> {
    schema: &'a Schema,
    attributes: &'a dyn Attributes,
    inputs: &'a [Option<Type>],
    known: &'a [Option<Known>],
    outputs: Vec<Option<Type>>,
    known_outputs: Vec<Option<Known>>,
}

impl fmt::Debug for Infer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Infer")
            .field("op", &self.schema.name)
            .field("inputs", &self.inputs)
            .field("outputs", &self.outputs)
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

/// What is known of the value of a tensor before anything runs.
#[derive(Debug, Clone)]
pub enum Known {
    /// A scalar or a vector of integers, symbolic: what shapes are computed with.
    Ints {
        /// Element type: `int64` or `int32`.
        elem: DataType,
        /// Whether it has rank 0; otherwise it has rank 1.
        scalar: bool,
        /// The elements.
        values: Vec<Dim>,
    },
    /// A constant.
    Tensor(Tensor),
}

/// Vectors longer than this describe no shape.
pub const MAX_KNOWN: usize = 1024;

impl Known {
    /// A vector of `int64`.
    pub fn vector(values: impl IntoIterator<Item = Dim>) -> Known {
        Known::Ints {
            elem: DataType::Int64,
            scalar: false,
            values: values.into_iter().collect(),
        }
    }

    /// A scalar `int64`.
    pub fn scalar(value: Dim) -> Known {
        Known::Ints {
            elem: DataType::Int64,
            scalar: true,
            values: vec![value],
        }
    }

    /// The integers of a scalar or vector, symbolic or not.
    pub fn ints(&self) -> Option<Vec<Dim>> {
        match self {
            Known::Ints { values, .. } => Some(values.clone()),
            Known::Tensor(tensor) => {
                if tensor.rank() > 1 || tensor.len() > MAX_KNOWN {
                    return None;
                }
                match tensor.data_type() {
                    DataType::Int64 => Some(
                        tensor
                            .to_vec::<i64>()
                            .ok()?
                            .into_iter()
                            .map(Dim::Known)
                            .collect(),
                    ),
                    DataType::Int32 => Some(
                        tensor
                            .to_vec::<i32>()
                            .ok()?
                            .into_iter()
                            .map(|value| Dim::Known(value.into()))
                            .collect(),
                    ),
                    _ => None,
                }
            }
        }
    }

    /// Whether it is a scalar.
    pub fn is_scalar(&self) -> bool {
        match self {
            Known::Ints { scalar, .. } => *scalar,
            Known::Tensor(tensor) => tensor.rank() == 0,
        }
    }

    /// The value as a tensor, if no symbol is in it.
    pub fn to_tensor(&self) -> Option<Tensor> {
        match self {
            Known::Tensor(tensor) => Some(tensor.clone()),
            Known::Ints {
                elem,
                scalar,
                values,
            } => {
                let numbers: Vec<i64> = values.iter().map(Dim::known).collect::<Option<_>>()?;
                let dims: &[usize] = if *scalar { &[] } else { &[numbers.len()] };
                match elem {
                    DataType::Int32 => {
                        let numbers: Vec<i32> = numbers
                            .iter()
                            .map(|n| i32::try_from(*n))
                            .collect::<Result<_, _>>()
                            .ok()?;
                        Tensor::from_vec(dims, numbers).ok()
                    }
                    _ => Tensor::from_vec(dims, numbers).ok(),
                }
            }
        }
    }
}

impl<'a> Infer<'a> {
    /// For a node with so many outputs.
    pub fn new(
        schema: &'a Schema,
        attributes: &'a dyn Attributes,
        inputs: &'a [Option<Type>],
        known: &'a [Option<Known>],
        outputs: usize,
    ) -> Self {
        Infer {
            schema,
            attributes,
            inputs,
            known,
            outputs: vec![None; outputs],
            known_outputs: vec![None; outputs],
        }
    }

    /// Types and known values of the outputs.
    pub fn finish(self) -> (Vec<Option<Type>>, Vec<Option<Known>>) {
        (self.outputs, self.known_outputs)
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
        self.outputs.len()
    }

    /// The type of an input.
    pub fn input(&self, index: usize) -> Option<&'a Type> {
        self.inputs.get(index)?.as_ref()
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
        self.known.get(index)?.as_ref()
    }

    /// The integers of an input that is a known scalar or vector.
    pub fn known_ints(&self, index: usize) -> Option<Vec<Dim>> {
        self.known(index)?.ints()
    }

    /// The integers of an input that is a constant scalar or vector.
    pub fn constant_ints(&self, index: usize) -> Option<Vec<i64>> {
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
        if let Some(output) = self.outputs.get_mut(index) {
            *output = Some(ty);
        }
    }

    /// Says that an output is a tensor, as far as element type and shape are known.
    pub fn set_tensor(&mut self, index: usize, elem: Option<DataType>, shape: Option<Shape>) {
        self.set(index, Type::Tensor(TensorType { elem, shape }));
    }

    /// Says the value of an output.
    pub fn set_known(&mut self, index: usize, known: Known) {
        if let Some(output) = self.known_outputs.get_mut(index) {
            *output = Some(known);
        }
    }

    /// Fails, naming the operator.
    pub fn fail<T>(&self, what: impl fmt::Display) -> Result<T, InferError> {
        Err(InferError(format!("{}: {what}", self.schema.name)))
    }

    /// Fails unless the input, if its rank is known, has that rank.
    pub fn demand_rank(&self, index: usize, rank: usize) -> Result<(), InferError> {
        match self.rank(index) {
            Some(found) if found != rank => self.fail(format_args!(
                "input {index} must have rank {rank}, not {found}"
            )),
            _ => Ok(()),
        }
    }

    /// An axis counted from the front, given one that may count from the back. Fails when it is out of range.
    pub fn axis(&self, axis: i64, rank: usize) -> Result<usize, InferError> {
        let from_front = if axis < 0 {
            axis.checked_add(rank as i64)
        } else {
            Some(axis)
        };
        match from_front.and_then(|axis| usize::try_from(axis).ok()) {
            Some(axis) if axis < rank => Ok(axis),
            _ => self.fail(format_args!("axis {axis} is out of range for rank {rank}")),
        }
    }

    /// The one size that two dimensions must share, or a failure that says what does not fit.
    pub fn same_dim(&self, a: &Dim, b: &Dim, what: impl fmt::Display) -> Result<Dim, InferError> {
        match (a, b) {
            (Dim::Known(x), Dim::Known(y)) if x != y => {
                self.fail(format_args!("{what} differ ({x} and {y})"))
            }
            (Dim::Known(_), _) | (_, Dim::Unknown) => Ok(a.clone()),
            (_, Dim::Known(_)) | (Dim::Unknown, _) => Ok(b.clone()),
            _ => Ok(a.clone()),
        }
    }
}
