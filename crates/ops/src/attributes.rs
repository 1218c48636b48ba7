//! Reading attributes: the value that a node has, or the default that its schema gives.

pub use sardonyx_model::{AttrValue, Attributes};

use crate::schema::{AttrDefault, Schema};

/// The attributes of a node together with the defaults of its schema.
#[derive(Clone, Copy)]
pub struct AttributeView<'a> {
    schema: &'a Schema,
    attributes: &'a dyn Attributes,
}

impl AttrDefault {
    /// As the value of a node's attribute.
    pub fn value(self) -> AttrValue<'static> {
        match self {
            AttrDefault::Float(value) => AttrValue::Float(value),
            AttrDefault::Int(value) => AttrValue::Int(value),
            AttrDefault::String(text) => AttrValue::from(text),
            AttrDefault::Floats(values) => AttrValue::from(values),
            AttrDefault::Ints(values) => AttrValue::from(values),
            AttrDefault::Strings(texts) => {
                AttrValue::Strings(texts.iter().map(|text| text.as_bytes().into()).collect())
            }
        }
    }
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

    /// A string attribute, or its default. Text that is not UTF-8 counts as absent: no rule knows
    /// such a word.
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
