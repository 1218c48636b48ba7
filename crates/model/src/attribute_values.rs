//! Values of attributes for rules, kernels and passes.
//!
//! A file stores an [`AttributeValue`], whose texts are spans of a source and whose tensors may be
//! in other files. An [`AttrValue`] is the decoded value.

use std::borrow::Cow;

use sardonyx_proto::AttributeType;
use sardonyx_tensor::{Buffer, DataType, Tensor};

use crate::attribute::{Attribute, AttributeValue};
use crate::constant::NoExternalData;
use crate::graph::{Function, Model, Texts};
use crate::ids::{GraphId, NodeId};
use crate::types::{TensorType, Type};

/// Value of an attribute, borrowed if possible.
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
    /// Type of a tensor whose elements cannot be read, because they are in a data file or their
    /// number does not match the shape.
    Unread(Type),
    /// A graph.
    Graph(GraphId),
    /// A type.
    Type(Type),
    /// A value of another type, or one that cannot be read.
    Other,
}

impl AttrValue<'_> {
    /// Whether the values are certainly equal, floats by their bits. Values that are not available
    /// here ([`Unread`](Self::Unread), [`Other`](Self::Other)) are never certainly equal.
    pub fn surely_equals(&self, other: &AttrValue<'_>) -> bool {
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        match (self, other) {
            (AttrValue::Float(a), AttrValue::Float(b)) => a.to_bits() == b.to_bits(),
            (AttrValue::Int(a), AttrValue::Int(b)) => a == b,
            (AttrValue::String(a), AttrValue::String(b)) => a == b,
            (AttrValue::Floats(a), AttrValue::Floats(b)) => bits(a) == bits(b),
            (AttrValue::Ints(a), AttrValue::Ints(b)) => a == b,
            (AttrValue::Strings(a), AttrValue::Strings(b)) => a == b,
            (AttrValue::Tensor(a), AttrValue::Tensor(b)) => a == b,
            (AttrValue::Graph(a), AttrValue::Graph(b)) => a == b,
            (AttrValue::Type(a), AttrValue::Type(b)) => a == b,
            _ => false,
        }
    }

    /// Copies the borrowed parts.
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
            AttrValue::Unread(ty) => AttrValue::Unread(ty),
            AttrValue::Graph(graph) => AttrValue::Graph(graph),
            AttrValue::Type(ty) => AttrValue::Type(ty),
            AttrValue::Other => AttrValue::Other,
        }
    }
}

impl From<i64> for AttrValue<'_> {
    fn from(value: i64) -> Self {
        AttrValue::Int(value)
    }
}

impl From<f32> for AttrValue<'_> {
    fn from(value: f32) -> Self {
        AttrValue::Float(value)
    }
}

impl<'a> From<&'a str> for AttrValue<'a> {
    fn from(text: &'a str) -> Self {
        AttrValue::String(Cow::Borrowed(text.as_bytes()))
    }
}

impl<'a> From<&'a [i64]> for AttrValue<'a> {
    fn from(values: &'a [i64]) -> Self {
        AttrValue::Ints(Cow::Borrowed(values))
    }
}

impl<'a, const N: usize> From<&'a [i64; N]> for AttrValue<'a> {
    fn from(values: &'a [i64; N]) -> Self {
        AttrValue::Ints(Cow::Borrowed(values))
    }
}

impl From<Vec<i64>> for AttrValue<'_> {
    fn from(values: Vec<i64>) -> Self {
        AttrValue::Ints(Cow::Owned(values))
    }
}

impl<'a> From<&'a [f32]> for AttrValue<'a> {
    fn from(values: &'a [f32]) -> Self {
        AttrValue::Floats(Cow::Borrowed(values))
    }
}

impl From<Tensor> for AttrValue<'_> {
    fn from(tensor: Tensor) -> Self {
        AttrValue::Tensor(tensor)
    }
}

/// Lookup of a node's attributes. Defaults are part of the schema, which this trait does not know.
pub trait Attributes {
    /// Returns the value of an attribute, if the node has it.
    fn attribute(&self, name: &str) -> Option<AttrValue<'_>>;

    /// Returns the value of an integer attribute.
    fn int(&self, name: &str) -> Option<i64> {
        match self.attribute(name)? {
            AttrValue::Int(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the value of a float attribute.
    fn float(&self, name: &str) -> Option<f32> {
        match self.attribute(name)? {
            AttrValue::Float(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the value of a string attribute; `None` if it is not UTF-8, as no rule defines such
    /// a value.
    fn string(&self, name: &str) -> Option<String> {
        match self.attribute(name)? {
            AttrValue::String(value) => String::from_utf8(value.into_owned()).ok(),
            _ => None,
        }
    }

    /// Returns the value of an attribute of integers.
    fn ints(&self, name: &str) -> Option<Vec<i64>> {
        match self.attribute(name)? {
            AttrValue::Ints(values) => Some(values.into_owned()),
            _ => None,
        }
    }
}

/// Attributes of a node of a model.
#[derive(Debug, Clone, Copy)]
pub struct NodeAttributes<'a> {
    model: &'a Model,
    texts: Texts<'a>,
    node: NodeId,
    bindings: Option<&'a Bindings>,
}

impl<'a> NodeAttributes<'a> {
    /// Creates a lookup of the attributes of a node.
    pub fn new(model: &'a Model, node: NodeId) -> Self {
        NodeAttributes::in_call(model, model.texts(), node, None)
    }

    /// Creates a lookup of the attributes of a node in a function's body, for a call that binds the
    /// function's attributes to `bindings`.
    pub fn in_call(
        model: &'a Model,
        texts: Texts<'a>,
        node: NodeId,
        bindings: Option<&'a Bindings>,
    ) -> Self {
        NodeAttributes { model, texts, node, bindings }
    }
}

impl Attributes for NodeAttributes<'_> {
    fn attribute(&self, name: &str) -> Option<AttrValue<'_>> {
        let attribute = self.texts.attribute_of(self.node, name)?;
        self.model.attribute_value(attribute, self.bindings)
    }
}

/// Values of a function's attributes in one call: those of the call, else the defaults.
#[derive(Debug, Clone, Default)]
pub struct Bindings(Vec<(Vec<u8>, AttrValue<'static>)>);

impl Bindings {
    /// Collects the values of a call of `function`.
    pub fn from_call(model: &Model, function: &Function, call: &NodeAttributes<'_>) -> Bindings {
        let mut bindings = Vec::new();
        let defaults = function.attribute_protos.iter();
        let defaults = defaults.filter_map(|default| Some((default.name?, Some(default))));
        let required = function.attributes.iter().map(|name| (*name, None));
        for (name, default) in required.chain(defaults) {
            let text = model.text(name);
            let given = std::str::from_utf8(text).ok();
            let given = given.and_then(|name| call.attribute(name));
            let value = given.or_else(|| model.attribute_value(default?, None));
            if let Some(value) = value {
                bindings.push((text.to_vec(), value.into_owned()));
            }
        }
        Bindings(bindings)
    }

    /// Whether two calls certainly bind the same values.
    pub fn surely_equal(&self, other: &Bindings) -> bool {
        let mut pairs = self.0.iter().zip(&other.0);
        self.0.len() == other.0.len()
            && pairs.all(|((name, a), (other, b))| name == other && a.surely_equals(b))
    }

    /// Returns the value that a reference resolves to; `None` if the call has none.
    pub fn get(&self, name: &[u8]) -> Option<&AttrValue<'static>> {
        let found = self.0.iter().find(|(bound, _)| bound == name);
        found.map(|(_, value)| value)
    }
}

/// Builds the value of a tensor whose elements cannot be read.
fn make_unread(data_type: Option<i32>, dims: &[i64]) -> AttrValue<'static> {
    AttrValue::Unread(Type::Tensor(TensorType {
        elem: data_type.and_then(DataType::from_number),
        shape: Some(dims.iter().map(|size| (*size).into()).collect()),
    }))
}

impl Model {
    /// Decodes the value of an attribute. A reference resolves to the value in `bindings`; without
    /// one there, the node has no such attribute. Without `bindings`, the value of a reference is
    /// unknown.
    pub fn attribute_value<'a>(
        &'a self,
        attribute: &'a Attribute,
        bindings: Option<&'a Bindings>,
    ) -> Option<AttrValue<'a>> {
        let text = |span| Cow::Borrowed(self.bytes(span));
        if let Some(reference) = self.maybe_text(attribute.ref_attr_name()) {
            return match bindings {
                Some(bindings) => bindings.get(reference).cloned(),
                None => Some(AttrValue::Other),
            };
        }
        Some(match attribute.value() {
            Some(AttributeValue::Float(value)) => AttrValue::Float(*value),
            Some(AttributeValue::Int(value)) => AttrValue::Int(*value),
            Some(AttributeValue::String(span)) => AttrValue::String(text(*span)),
            Some(AttributeValue::Floats(values)) => AttrValue::Floats(Cow::Borrowed(values)),
            Some(AttributeValue::Ints(values)) => AttrValue::Ints(Cow::Borrowed(values)),
            Some(AttributeValue::Strings(spans)) => {
                AttrValue::Strings(spans.iter().map(|span| text(*span)).collect())
            }
            Some(AttributeValue::Tensor(tensor)) => match self.tensor(tensor, &NoExternalData) {
                Ok(tensor) => AttrValue::Tensor(tensor),
                Err(_) => make_unread(tensor.data_type, &tensor.dims),
            },
            Some(AttributeValue::Graph(graph)) => AttrValue::Graph(*graph),
            Some(AttributeValue::Type(ty)) => {
                self.type_of(ty).map_or(AttrValue::Other, AttrValue::Type)
            }
            Some(AttributeValue::SparseTensor(sparse)) => {
                let read = self.sparse_tensor(sparse, &NoExternalData).ok();
                match read.and_then(|read| read.to_dense().ok()) {
                    Some(tensor) => AttrValue::Tensor(tensor),
                    None => {
                        let values = sparse.values.as_ref();
                        make_unread(values.and_then(|values| values.data_type), &sparse.dims)
                    }
                }
            }
            Some(_) => AttrValue::Other,
            // A scalar 0 and an empty list may be stored without a value field.
            None => match attribute.ty? {
                AttributeType::FLOAT => AttrValue::Float(0.0),
                AttributeType::INT => AttrValue::Int(0),
                AttributeType::STRING => AttrValue::String(Cow::Borrowed(b"")),
                AttributeType::FLOATS => AttrValue::Floats(Cow::Borrowed(&[])),
                AttributeType::INTS => AttrValue::Ints(Cow::Borrowed(&[])),
                AttributeType::STRINGS => AttrValue::Strings(Vec::new()),
                _ => AttrValue::Other,
            },
        })
    }

    /// Converts a value to its stored form. Returns `None` for types and other values that no pass
    /// creates.
    pub(crate) fn store_value(&mut self, value: AttrValue<'_>) -> Option<AttributeValue> {
        let mut text = |text: Cow<'_, [u8]>| self.add_bytes(Buffer::from_vec(text.into_owned()));
        Some(match value {
            AttrValue::Float(value) => AttributeValue::Float(value),
            AttrValue::Int(value) => AttributeValue::Int(value),
            AttrValue::String(value) => AttributeValue::String(text(value)),
            AttrValue::Floats(values) => AttributeValue::Floats(values.into_owned()),
            AttrValue::Ints(values) => AttributeValue::Ints(values.into_owned()),
            AttrValue::Strings(values) => {
                AttributeValue::Strings(values.into_iter().map(text).collect())
            }
            AttrValue::Tensor(tensor) => {
                AttributeValue::Tensor(Box::new(self.tensor_proto(&tensor)))
            }
            AttrValue::Graph(graph) => AttributeValue::Graph(graph),
            AttrValue::Unread(_) | AttrValue::Type(_) | AttrValue::Other => return None,
        })
    }
}
