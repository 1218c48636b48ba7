//! Reads attributes: the value of a node, or the default of its schema.

pub use sardonyx_model::{AttrValue, Attributes};

use crate::schema::{AttrDefault, Schema};

/// Attributes of a node, with the defaults of its operator's schema for missing ones. Each method
/// returns `None` if the node has no attribute of this name and type, and the schema no default.
#[derive(Clone, Copy)]
pub struct AttributeView<'a> {
    schema: &'a Schema,
    attributes: &'a dyn Attributes,
}

impl AttrDefault {
    /// Returns the default as the value of a node's attribute.
    pub fn value(self) -> AttrValue<'static> {
        match self {
            AttrDefault::Float(value) => AttrValue::Float(value),
            AttrDefault::Int(value) => AttrValue::Int(value),
            AttrDefault::String(text) | AttrDefault::Word(text) => AttrValue::from(text),
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
    /// Views the attributes of a node that follows `schema`.
    #[doc(hidden)]
    pub fn new(schema: &'a Schema, attributes: &'a dyn Attributes) -> Self {
        AttributeView { schema, attributes }
    }

    /// Returns the value of an attribute that the node itself has, ignoring defaults.
    #[doc(hidden)]
    pub fn get(&self, name: &str) -> Option<AttrValue<'a>> {
        self.attributes.attribute(name)
    }

    /// Returns an integer attribute or its default.
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

    /// Returns a float attribute or its default.
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

    /// Returns a string attribute or its default; `None` for text that is not UTF-8. An empty text
    /// means the default where the schema lists the permitted words.
    pub fn string(&self, name: &str) -> Option<String> {
        String::from_utf8(self.bytes(name)?).ok()
    }

    /// Returns a string attribute or its default as bytes, which need not be UTF-8. An empty text
    /// means the default where the schema lists the permitted words.
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let given = match self.attributes.attribute(name) {
            Some(AttrValue::String(value)) if !value.is_empty() => return Some(value.into_owned()),
            Some(AttrValue::String(value)) => Some(value.into_owned()),
            Some(_) => return None,
            None => None,
        };
        match (given, self.default(name)) {
            (_, Some(AttrDefault::Word(word))) => Some(word.into()),
            (None, Some(AttrDefault::String(text))) => Some(text.into()),
            (given, _) => given,
        }
    }

    /// Returns a list of integers or its default.
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
