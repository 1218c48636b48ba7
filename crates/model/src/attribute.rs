//! Attributes of nodes.

use std::ops::{Deref, DerefMut};

use sardonyx_proto::AttributeType;

use crate::constant::{SparseTensorProto, TensorProto};
use crate::ids::GraphId;
use crate::names::Symbol;
use crate::source::{Span, Unknowns};
use crate::type_proto::TypeProto;

/// Named value of a node, or reference to an attribute of the enclosing function.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Attribute {
    /// Name.
    pub name: Option<Symbol>,
    /// Attribute type, which selects the value field. Absent in files of IR version 1.
    pub ty: Option<AttributeType>,
    /// Value fields that are present, in order of their numbers. A valid attribute has at most one;
    /// without any it is an empty list or zero.
    pub values: AttributeValues,
    /// Parts that few attributes have.
    pub extras: Option<Box<AttributeExtras>>,
}

/// Parts that few attributes have, in an allocation of their own.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AttributeExtras {
    /// Name of the function attribute whose value this attribute takes; never empty.
    ref_attr_name: Option<Symbol>,
    /// Whether the file has an empty reference, which has no effect.
    has_empty_ref_attr_name: bool,
    /// Documentation.
    pub doc_string: Option<Symbol>,
    /// Fields of newer format versions.
    pub unknown: Unknowns,
}

/// Value fields of an attribute: a list that rarely has more than one entry, in the size of one
/// entry.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AttributeValues(Held);

#[derive(Debug, Clone, Default, PartialEq)]
enum Held {
    #[default]
    None,
    One(AttributeValue),
    Several(Vec<AttributeValue>),
}

impl AttributeValues {
    /// Inserts a value at a position.
    #[inline]
    pub fn insert(&mut self, index: usize, value: AttributeValue) {
        match self.0 {
            Held::None => self.0 = Held::One(value),
            _ => self.insert_another(index, value),
        }
    }

    #[cold]
    fn insert_another(&mut self, index: usize, value: AttributeValue) {
        let mut values = match std::mem::take(&mut self.0) {
            Held::None => Vec::new(),
            Held::One(value) => vec![value],
            Held::Several(values) => values,
        };
        values.insert(index, value);
        self.0 = Held::Several(values);
    }

    /// Appends a value.
    #[inline]
    pub fn push(&mut self, value: AttributeValue) {
        self.insert(self.len(), value);
    }
}

impl From<AttributeValue> for AttributeValues {
    fn from(value: AttributeValue) -> Self {
        AttributeValues(Held::One(value))
    }
}

impl Deref for AttributeValues {
    type Target = [AttributeValue];

    #[inline]
    fn deref(&self) -> &[AttributeValue] {
        match &self.0 {
            Held::None => &[],
            Held::One(value) => std::slice::from_ref(value),
            Held::Several(values) => values,
        }
    }
}

impl DerefMut for AttributeValues {
    #[inline]
    fn deref_mut(&mut self) -> &mut [AttributeValue] {
        match &mut self.0 {
            Held::None => &mut [],
            Held::One(value) => std::slice::from_mut(value),
            Held::Several(values) => values,
        }
    }
}

impl<'a> IntoIterator for &'a AttributeValues {
    type Item = &'a AttributeValue;
    type IntoIter = std::slice::Iter<'a, AttributeValue>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Value field of an attribute.
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
    /// Returns the number of the field.
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

    /// Returns the attribute type that selects the field.
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
    /// Returns the name of the function attribute whose value this attribute takes. `None` also if
    /// the file has an empty name: then the attribute has its own value.
    #[inline]
    pub fn ref_attr_name(&self) -> Option<Symbol> {
        self.extras.as_ref()?.ref_attr_name
    }

    /// Whether the file has an empty name of a function attribute. It has no effect; only writers
    /// that preserve each field of a file use it.
    #[inline]
    pub fn has_empty_ref_attr_name(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.has_empty_ref_attr_name)
    }

    /// Makes the attribute a reference to the function attribute `name` with the text `text`, or to
    /// none if the text is empty.
    pub fn set_ref_attr_name(&mut self, name: Symbol, text: &[u8]) {
        let extras = self.extras_mut();
        extras.has_empty_ref_attr_name = text.is_empty();
        extras.ref_attr_name = (!text.is_empty()).then_some(name);
    }

    /// Returns the rare parts, which are added if the attribute has none.
    #[inline]
    pub fn extras_mut(&mut self) -> &mut AttributeExtras {
        self.extras.get_or_insert_default()
    }

    /// Returns the value field of the declared type, or the first one if no type is declared.
    pub fn value(&self) -> Option<&AttributeValue> {
        match self.ty {
            Some(ty) if ty != AttributeType::UNDEFINED => {
                self.values.iter().find(|value| value.ty() == ty)
            }
            _ => self.values.first(),
        }
    }

    /// Iterates over the graphs in the attribute.
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
