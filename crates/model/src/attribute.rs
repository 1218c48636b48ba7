//! Attributes of nodes.

use sardonyx_proto::AttributeType;
use smallvec::SmallVec;

use crate::constant::{SparseTensorProto, TensorProto};
use crate::ids::GraphId;
use crate::names::Symbol;
use crate::source::{Span, Unknowns};
use crate::type_proto::TypeProto;

/// A named value of a node, or a reference to an attribute of the enclosing function.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Attribute {
    /// Name.
    pub name: Option<Symbol>,
    /// Which value field counts. Absent in files of IR version 1.
    pub ty: Option<AttributeType>,
    /// The function's attribute that this one stands for.
    pub ref_attr_name: Option<Symbol>,
    /// Documentation.
    pub doc_string: Option<Symbol>,
    /// The value fields present, in order of their numbers. A valid attribute has at most one; none stands for an empty
    /// list, or for zero.
    pub values: SmallVec<[AttributeValue; 1]>,
    /// Fields of the future.
    pub unknown: Unknowns,
}

/// A value field of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum AttributeValue {
    /// `f`
    Float(f32),
    /// `i`
    Int(i64),
    /// `s`
    String(Span),
    /// `t`
    Tensor(Box<TensorProto>),
    /// `g`
    Graph(GraphId),
    /// `floats`
    Floats(Vec<f32>),
    /// `ints`
    Ints(Vec<i64>),
    /// `strings`
    Strings(Vec<Span>),
    /// `tensors`
    Tensors(Vec<TensorProto>),
    /// `graphs`
    Graphs(Vec<GraphId>),
    /// `tp`
    Type(Box<TypeProto>),
    /// `type_protos`
    Types(Vec<TypeProto>),
    /// `sparse_tensor`
    SparseTensor(Box<SparseTensorProto>),
    /// `sparse_tensors`
    SparseTensors(Vec<SparseTensorProto>),
}

impl AttributeValue {
    /// Number of the field.
    pub fn number(&self) -> u32 {
        use sardonyx_proto::{Field, attribute};
        match self {
            AttributeValue::Float(_) => attribute::F::NUMBER,
            AttributeValue::Int(_) => attribute::I::NUMBER,
            AttributeValue::String(_) => attribute::S::NUMBER,
            AttributeValue::Tensor(_) => attribute::T::NUMBER,
            AttributeValue::Graph(_) => attribute::G::NUMBER,
            AttributeValue::Floats(_) => attribute::Floats::NUMBER,
            AttributeValue::Ints(_) => attribute::Ints::NUMBER,
            AttributeValue::Strings(_) => attribute::Strings::NUMBER,
            AttributeValue::Tensors(_) => attribute::Tensors::NUMBER,
            AttributeValue::Graphs(_) => attribute::Graphs::NUMBER,
            AttributeValue::Type(_) => attribute::Tp::NUMBER,
            AttributeValue::Types(_) => attribute::TypeProtos::NUMBER,
            AttributeValue::SparseTensor(_) => attribute::SparseTensor::NUMBER,
            AttributeValue::SparseTensors(_) => attribute::SparseTensors::NUMBER,
        }
    }

    /// The attribute type that goes with the field.
    #[inline]
    pub fn ty(&self) -> AttributeType {
        match self {
            AttributeValue::Float(_) => AttributeType::FLOAT,
            AttributeValue::Int(_) => AttributeType::INT,
            AttributeValue::String(_) => AttributeType::STRING,
            AttributeValue::Tensor(_) => AttributeType::TENSOR,
            AttributeValue::Graph(_) => AttributeType::GRAPH,
            AttributeValue::Floats(_) => AttributeType::FLOATS,
            AttributeValue::Ints(_) => AttributeType::INTS,
            AttributeValue::Strings(_) => AttributeType::STRINGS,
            AttributeValue::Tensors(_) => AttributeType::TENSORS,
            AttributeValue::Graphs(_) => AttributeType::GRAPHS,
            AttributeValue::Type(_) => AttributeType::TYPE_PROTO,
            AttributeValue::Types(_) => AttributeType::TYPE_PROTOS,
            AttributeValue::SparseTensor(_) => AttributeType::SPARSE_TENSOR,
            AttributeValue::SparseTensors(_) => AttributeType::SPARSE_TENSORS,
        }
    }
}

impl Attribute {
    /// The value field that counts: the one of the declared type, or the only one if no type is declared.
    pub fn value(&self) -> Option<&AttributeValue> {
        match self.ty {
            Some(ty) if ty != AttributeType::UNDEFINED => {
                self.values.iter().find(|value| value.ty() == ty)
            }
            _ => self.values.first(),
        }
    }

    /// The graphs in it.
    #[inline]
    pub fn graphs(&self) -> impl Iterator<Item = GraphId> {
        self.values
            .iter()
            .flat_map(|value| match value {
                AttributeValue::Graph(graph) => std::slice::from_ref(graph).iter(),
                AttributeValue::Graphs(graphs) => graphs.iter(),
                _ => [].iter(),
            })
            .copied()
    }
}
