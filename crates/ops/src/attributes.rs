//! Reading attributes: the value that a node has, or the default that its schema gives.

use std::borrow::Cow;

use sardonyx_model::{GraphId, Type};
use sardonyx_tensor::Tensor;

use crate::schema::{AttrDefault, Schema};

/// The value of an attribute, borrowed where it can be.
#[derive(Debug, Clone)]
pub enum AttrValue<'a> {
    /// A float.
    Float(f32),
    /// An integer.
    Int(i64),
    /// A string.
    String(Cow<'a, [u8]>),
    /// Floats.
    Floats(Cow<'a, [f32]>),
    /// Integers.
    Ints(Cow<'a, [i64]>),
    /// Strings.
    Strings(Vec<Cow<'a, [u8]>>),
    /// A tensor.
    Tensor(Tensor),
    /// A graph.
    Graph(GraphId),
    /// A type.
    Type(Type),
    /// Something that no rule has asked for yet.
    Other,
}

impl AttrValue<'_> {
    /// The same with all that is borrowed copied.
    pub fn into_owned(self) -> AttrValue<'static> {
        let own = |text: Cow<'_, [u8]>| Cow::Owned(text.into_owned());
        match self {
            AttrValue::Float(value) => AttrValue::Float(value),
            AttrValue::Int(value) => AttrValue::Int(value),
            AttrValue::String(value) => AttrValue::String(own(value)),
            AttrValue::Floats(values) => AttrValue::Floats(Cow::Owned(values.into_owned())),
            AttrValue::Ints(values) => AttrValue::Ints(Cow::Owned(values.into_owned())),
            AttrValue::Strings(values) => AttrValue::Strings(values.into_iter().map(own).collect()),
            AttrValue::Tensor(tensor) => AttrValue::Tensor(tensor),
            AttrValue::Graph(graph) => AttrValue::Graph(graph),
            AttrValue::Type(ty) => AttrValue::Type(ty),
            AttrValue::Other => AttrValue::Other,
        }
    }
}

/// Where a node's attributes are looked up.
pub trait Attributes {
    /// The value of an attribute, if the node has it.
    fn attribute(&self, name: &str) -> Option<AttrValue<'_>>;
}

/// The attributes of a node together with the defaults of its schema.
#[derive(Clone, Copy)]
pub struct AttributeView<'a> {
    schema: &'a Schema,
    attributes: &'a dyn Attributes,
}

impl std::fmt::Debug for AttributeView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "attributes of {}", self.schema.name)
    }
}

impl<'a> AttributeView<'a> {
    /// The attributes of a node that follows a schema.
    pub fn new(schema: &'a Schema, attributes: &'a dyn Attributes) -> Self {
        AttributeView { schema, attributes }
    }

    /// The value of any attribute that the node has; defaults are not looked up.
    pub fn get(&self, name: &str) -> Option<AttrValue<'a>> {
        self.attributes.attribute(name)
    }

    /// An integer attribute, or its default.
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.attributes.attribute(name) {
            Some(AttrValue::Int(value)) => Some(value),
            Some(_) => None,
            None => match self.default(name)? {
                AttrDefault::Int(value) => Some(value),
                _ => None,
            },
        }
    }

    /// A float attribute, or its default.
    pub fn float(&self, name: &str) -> Option<f32> {
        match self.attributes.attribute(name) {
            Some(AttrValue::Float(value)) => Some(value),
            Some(_) => None,
            None => match self.default(name)? {
                AttrDefault::Float(value) => Some(value),
                _ => None,
            },
        }
    }

    /// A string attribute, or its default. Text that is not UTF-8 counts as absent: no rule knows such a word.
    pub fn string(&self, name: &str) -> Option<String> {
        match self.attributes.attribute(name) {
            Some(AttrValue::String(value)) => String::from_utf8(value.into_owned()).ok(),
            Some(_) => None,
            None => match self.default(name)? {
                AttrDefault::String(value) => Some(value.to_string()),
                _ => None,
            },
        }
    }

    /// An attribute of integers, or its default.
    pub fn ints(&self, name: &str) -> Option<Vec<i64>> {
        match self.attributes.attribute(name) {
            Some(AttrValue::Ints(values)) => Some(values.into_owned()),
            Some(_) => None,
            None => match self.default(name)? {
                AttrDefault::Ints(values) => Some(values.to_vec()),
                _ => None,
            },
        }
    }

    fn default(&self, name: &str) -> Option<AttrDefault> {
        self.schema.attribute(name)?.default
    }
}
