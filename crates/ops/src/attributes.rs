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
    /// The attributes of a node that follows a schema.
    #[doc(hidden)]
    pub fn new(schema: &'a Schema, attributes: &'a dyn Attributes) -> Self {
        AttributeView { schema, attributes }
    }

    /// The value of any attribute that the node has; defaults are not looked up.
    #[doc(hidden)]
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
    /// such a word. An empty text means the default where that is an [`AttrDefault::Word`].
    pub fn string(&self, name: &str) -> Option<String> {
        String::from_utf8(self.bytes(name)?).ok()
    }

    /// A string attribute as bytes, of which any are allowed, or its default. An empty text means
    /// the default where that is an [`AttrDefault::Word`].
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
