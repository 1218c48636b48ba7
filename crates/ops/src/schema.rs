//! Schemas: the declarations of one version of an operator, with all differences added up.

use std::fmt;

use sardonyx_proto::AttributeType;

use crate::intern;
use crate::typeset::TypeSet;

/// One version of an operator, expanded.
#[derive(Debug, Clone, PartialEq)]
pub struct Schema {
    /// Operator name.
    pub name: &'static str,
    /// Domain; empty for `ai.onnx`.
    pub domain: &'static str,
    /// Opset version that introduced this form.
    pub since: u32,
    /// Whether models should not use it any more.
    pub deprecated: bool,
    /// Whether equal inputs give equal outputs.
    pub determinism: Determinism,
    /// Inputs, in order.
    pub inputs: Vec<Param>,
    /// Outputs, in order.
    pub outputs: Vec<Param>,
    /// Attributes, by name.
    pub attributes: Vec<Attribute>,
    /// Whether nodes may have attributes that are not listed.
    pub any_attributes: bool,
    /// Type variables, in the order of their declaration.
    pub types: Vec<TypeVar>,
    /// Remarks on this version beyond the declarations, as sentences.
    pub notes: Vec<&'static str>,
}

/// A formal input or output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Param {
    /// Name, for documentation.
    pub name: &'static str,
    /// A type variable, or a type such as `tensor(int64)`.
    pub ty: &'static str,
    /// Number of occurrences.
    pub arity: Arity,
    /// Whether a derivative with respect to the parameter exists.
    pub differentiability: Differentiability,
}

/// Number of occurrences of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arity {
    /// Exactly once.
    Single,
    /// Once or not at all.
    Optional,
    /// At least `min` times. Only the last parameter can be variadic.
    Variadic {
        /// Least number of occurrences.
        min: u32,
        /// Whether all occurrences have one type.
        homogeneous: bool,
    },
}

/// Existence of a derivative with respect to a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Differentiability {
    /// The standard leaves it open.
    Unknown,
    /// A derivative exists.
    Differentiable,
    /// No derivative exists.
    NonDifferentiable,
}

/// Whether equal inputs give equal outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Determinism {
    /// Equal inputs give equal outputs.
    Deterministic,
    /// Outputs may differ: the operator draws random numbers, or runs a graph that might.
    NonDeterministic,
    /// The standard leaves it open.
    Unknown,
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
    /// Value that an absent attribute means.
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

impl AttrType {
    const ALL: [(AttrType, AttributeType); 14] = [
        (AttrType::Float, AttributeType::FLOAT),
        (AttrType::Int, AttributeType::INT),
        (AttrType::String, AttributeType::STRING),
        (AttrType::Tensor, AttributeType::TENSOR),
        (AttrType::Graph, AttributeType::GRAPH),
        (AttrType::Floats, AttributeType::FLOATS),
        (AttrType::Ints, AttributeType::INTS),
        (AttrType::Strings, AttributeType::STRINGS),
        (AttrType::Tensors, AttributeType::TENSORS),
        (AttrType::Graphs, AttributeType::GRAPHS),
        (AttrType::SparseTensor, AttributeType::SPARSE_TENSOR),
        (AttrType::SparseTensors, AttributeType::SPARSE_TENSORS),
        (AttrType::TypeProto, AttributeType::TYPE_PROTO),
        (AttrType::TypeProtos, AttributeType::TYPE_PROTOS),
    ];

    /// Returns the type as a number of the file format.
    pub fn in_file(self) -> AttributeType {
        let found = Self::ALL.iter().find(|(ty, _)| *ty == self);
        found.map_or(AttributeType::UNDEFINED, |(_, in_file)| *in_file)
    }

    /// Converts a type from the file format. `None` for `UNDEFINED` and unknown numbers.
    pub fn of_file(in_file: AttributeType) -> Option<AttrType> {
        let found = Self::ALL.iter().find(|(_, known)| *known == in_file);
        found.map(|(ty, _)| *ty)
    }
}

/// Value that an absent attribute means.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AttrDefault {
    /// A float.
    Float(f32),
    /// An integer.
    Int(i64),
    /// A string.
    String(&'static str),
    /// One of the words that the operator knows. An empty string is not among them and also means
    /// the default, since some writers leave the value of an unset attribute empty.
    Word(&'static str),
    /// Floats.
    Floats(&'static [f32]),
    /// Integers.
    Ints(&'static [i64]),
    /// Strings.
    Strings(&'static [&'static str]),
}

/// Type variable and the types it may stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypeVar {
    /// Name, such as `T`.
    pub name: &'static str,
    /// Types that it may stand for.
    pub allowed: TypeSet,
}

impl Schema {
    /// Creates a version of an operator without any declarations. The names are never freed; see
    /// [`intern`](crate::intern).
    pub fn new(domain: &str, name: &str, since: u32) -> Schema {
        Schema {
            name: intern::text(name),
            domain: intern::text(domain),
            since,
            deprecated: false,
            determinism: Determinism::Unknown,
            inputs: Vec::new(),
            outputs: Vec::new(),
            attributes: Vec::new(),
            any_attributes: false,
            types: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Creates version 1 of an operator of which only the name is known: it has any number of
    /// inputs and outputs of any type, and any attributes.
    pub fn open(domain: &str, name: &str) -> Schema {
        let param = |name| Param {
            name,
            ty: "T",
            arity: Arity::Variadic { min: 0, homogeneous: false },
            differentiability: Differentiability::Unknown,
        };
        Schema {
            inputs: vec![param("inputs")],
            outputs: vec![param("outputs")],
            any_attributes: true,
            types: vec![TypeVar { name: "T", allowed: TypeSet::ANY }],
            ..Schema::new(domain, name, 1)
        }
    }

    /// Returns the formal attribute with that name.
    pub fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|attribute| attribute.name == name)
    }

    /// Returns the formal input at a position. A variadic one stands for its own position and all
    /// further ones.
    pub fn input(&self, index: usize) -> Option<&Param> {
        at(&self.inputs, index)
    }

    /// Returns the formal output at a position. A variadic one stands for its own position and all
    /// further ones.
    pub fn output(&self, index: usize) -> Option<&Param> {
        at(&self.outputs, index)
    }

    /// Returns the type variable with that name.
    pub fn type_var(&self, name: &str) -> Option<&TypeVar> {
        self.types.iter().find(|var| var.name == name)
    }

    /// Returns the least and the greatest number of inputs; variadic operators have no greatest
    /// one.
    pub fn input_count(&self) -> (usize, Option<usize>) {
        count(&self.inputs)
    }

    /// Returns the least and the greatest number of outputs; variadic operators have no greatest
    /// one.
    pub fn output_count(&self) -> (usize, Option<usize>) {
        count(&self.outputs)
    }
}

fn at(params: &[Param], index: usize) -> Option<&Param> {
    match params.get(index) {
        Some(param) => Some(param),
        None => params.last().filter(|last| matches!(last.arity, Arity::Variadic { .. })),
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
                // Parameters before a variadic one are counted, even if each may be an empty name:
                // `Loop` has at least two inputs.
                fewest = index + min as usize;
                most = None;
            }
        }
    }
    (fewest, most)
}

/// Prints a description: a line for each parameter, attribute and type variable.
impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.domain.is_empty() {
            write!(f, "{}.", self.domain)?;
        }
        write!(f, "{} since opset version {}", self.name, self.since)?;
        f.write_str(if self.deprecated { ", deprecated" } else { "" })?;
        writeln!(f, "{}", self.determinism)?;
        for (what, params) in [("input", &self.inputs), ("output", &self.outputs)] {
            for param in params {
                writeln!(f, "  {what:9} {param}")?;
            }
        }
        for attribute in &self.attributes {
            writeln!(f, "  attribute {attribute}")?;
        }
        for var in &self.types {
            writeln!(f, "  type      {}: {}", var.name, var.allowed.names().join(" "))?;
        }
        for note in &self.notes {
            writeln!(f, "  note      {note}")?;
        }
        Ok(())
    }
}

/// Prints a remark to append to the name; empty for a deterministic operator.
impl fmt::Display for Determinism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Determinism::Deterministic => "",
            Determinism::NonDeterministic => ", not deterministic",
            Determinism::Unknown => ", determinism unknown",
        })
    }
}

impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.ty)?;
        match self.arity {
            Arity::Single => {}
            Arity::Optional => f.write_str(", optional")?,
            Arity::Variadic { min, homogeneous } => {
                write!(f, ", {min} or more")?;
                f.write_str(if homogeneous { "" } else { " of any types" })?;
            }
        }
        f.write_str(match self.differentiability {
            Differentiability::Unknown => "",
            Differentiability::Differentiable => ", differentiable",
            Differentiability::NonDifferentiable => ", not differentiable",
        })
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.ty)?;
        match (self.required, self.default) {
            (true, _) => f.write_str(", required"),
            (false, Some(default)) => write!(f, " = {default}"),
            (false, None) => Ok(()),
        }
    }
}

/// Prints the keyword of ONNX text, such as `ints`.
impl fmt::Display for AttrType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AttrType::Float => "float",
            AttrType::Int => "int",
            AttrType::String => "string",
            AttrType::Tensor => "tensor",
            AttrType::Graph => "graph",
            AttrType::SparseTensor => "sparse_tensor",
            AttrType::TypeProto => "type_proto",
            AttrType::Floats => "floats",
            AttrType::Ints => "ints",
            AttrType::Strings => "strings",
            AttrType::Tensors => "tensors",
            AttrType::Graphs => "graphs",
            AttrType::SparseTensors => "sparse_tensors",
            AttrType::TypeProtos => "type_protos",
        })
    }
}

impl fmt::Display for AttrDefault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttrDefault::Float(value) => write!(f, "{value:?}"),
            AttrDefault::Int(value) => write!(f, "{value}"),
            AttrDefault::String(value) | AttrDefault::Word(value) => write!(f, "{value:?}"),
            AttrDefault::Floats(values) => write!(f, "{values:?}"),
            AttrDefault::Ints(values) => write!(f, "{values:?}"),
            AttrDefault::Strings(values) => write!(f, "{values:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attribute_types_have_the_numbers_of_the_file() {
        assert_eq!(AttrType::of_file(AttributeType::UNDEFINED), None);
        assert_eq!(AttrType::of_file(AttributeType(15)), None);
        for number in 1..=14 {
            let in_file = AttributeType(number);
            let ty = AttrType::of_file(in_file);
            assert_eq!(ty.map(AttrType::in_file), Some(in_file));
            let name = in_file.name().map(str::to_lowercase);
            assert_eq!(ty.map(|ty| ty.to_string()), name);
        }
    }
}
