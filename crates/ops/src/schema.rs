//! A schema: what one version of an operator says, with all differences added up.

use crate::typeset::TypeSet;

/// One version of an operator, expanded.
#[derive(Debug, Clone)]
pub struct Schema {
    /// Operator name.
    pub name: &'static str,
    /// Domain; empty for `ai.onnx`.
    pub domain: &'static str,
    /// The opset version that introduced this form.
    pub since: u32,
    /// Whether models should not use it any more.
    pub deprecated: bool,
    /// Inputs, in order.
    pub inputs: Vec<Param>,
    /// Outputs, in order.
    pub outputs: Vec<Param>,
    /// Attributes, by name.
    pub attributes: Vec<Attribute>,
    /// Type variables, in the order of their declaration.
    pub types: Vec<TypeVar>,
}

/// A formal input or output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Param {
    /// Name, for people.
    pub name: &'static str,
    /// A type variable, or a type such as `tensor(int64)`.
    pub ty: &'static str,
    /// How often it occurs.
    pub arity: Arity,
    /// What training may do with it.
    pub differentiability: Differentiability,
}

/// How often a parameter occurs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arity {
    /// Exactly once.
    Single,
    /// Once or not at all.
    Optional,
    /// At least `min` times; it is the last parameter.
    Variadic {
        /// The smallest number.
        min: u32,
        /// Whether all have one type.
        homogeneous: bool,
    },
}

/// Whether a derivative with respect to a parameter exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Differentiability {
    /// The standard does not say.
    Unknown,
    /// It does.
    Differentiable,
    /// It does not.
    NonDifferentiable,
}

/// A formal attribute.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attribute {
    /// Name.
    pub name: &'static str,
    /// Type of its value.
    pub ty: AttrType,
    /// Whether every node must have it.
    pub required: bool,
    /// What an absent attribute means.
    pub default: Option<AttrDefault>,
}

/// Types of attribute values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttrType {
    /// One 32-bit float.
    Float,
    /// One 64-bit integer.
    Int,
    /// One byte string.
    String,
    /// A tensor.
    Tensor,
    /// A graph.
    Graph,
    /// A sparse tensor.
    SparseTensor,
    /// A type.
    TypeProto,
    /// Floats.
    Floats,
    /// Integers.
    Ints,
    /// Byte strings.
    Strings,
    /// Tensors.
    Tensors,
    /// Graphs.
    Graphs,
    /// Sparse tensors.
    SparseTensors,
    /// Types.
    TypeProtos,
}

/// What an absent attribute means.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AttrDefault {
    /// A float.
    Float(f32),
    /// An integer.
    Int(i64),
    /// A string.
    String(&'static str),
    /// Floats.
    Floats(&'static [f32]),
    /// Integers.
    Ints(&'static [i64]),
    /// Strings.
    Strings(&'static [&'static str]),
}

/// A type variable and what it may stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypeVar {
    /// Name, such as `T`.
    pub name: &'static str,
    /// The types it may take.
    pub allowed: TypeSet,
}

impl Schema {
    /// The formal attribute with that name.
    pub fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes
            .iter()
            .find(|attribute| attribute.name == name)
    }

    /// The formal input at a position; a variadic one stands for all positions from its own on.
    pub fn input(&self, index: usize) -> Option<&Param> {
        at(&self.inputs, index)
    }

    /// The formal output at a position.
    pub fn output(&self, index: usize) -> Option<&Param> {
        at(&self.outputs, index)
    }

    /// The type variable with that name.
    pub fn type_var(&self, name: &str) -> Option<&TypeVar> {
        self.types.iter().find(|var| var.name == name)
    }

    /// Fewest and most inputs; no most for a variadic operator.
    pub fn input_count(&self) -> (usize, Option<usize>) {
        count(&self.inputs)
    }

    /// Fewest and most outputs.
    pub fn output_count(&self) -> (usize, Option<usize>) {
        count(&self.outputs)
    }
}

fn at(params: &[Param], index: usize) -> Option<&Param> {
    match params.get(index) {
        Some(param) => Some(param),
        None => params
            .last()
            .filter(|last| matches!(last.arity, Arity::Variadic { .. })),
    }
}

fn count(params: &[Param]) -> (usize, Option<usize>) {
    let mut fewest = 0;
    let mut most = Some(params.len());
    for (index, param) in params.iter().enumerate() {
        match param.arity {
            Arity::Single => fewest = index + 1,
            Arity::Optional => {}
            Arity::Variadic { min, .. } => {
                // A variadic parameter that needs nobody leaves the ones before it as they are.
                if min > 0 {
                    fewest = index + min as usize;
                }
                most = None;
            }
        }
    }
    (fewest, most)
}
