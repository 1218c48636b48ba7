//! The attributes of a node as inference and kernels read them.

use std::borrow::Cow;

use sardonyx_model::{Attribute, AttributeValue, Model, NoExternalData, NodeId, Texts};
use sardonyx_ops::{AttrType, AttrValue, Attributes};
use sardonyx_proto::AttributeType;

use crate::infer::Bindings;

/// Looks attributes up in the model.
#[derive(Debug, Clone, Copy)]
pub struct NodeAttributes<'a> {
    model: &'a Model,
    texts: Texts<'a>,
    node: NodeId,
    bindings: Option<&'a Bindings>,
}

impl<'a> NodeAttributes<'a> {
    /// The attributes of a node.
    pub fn new(model: &'a Model, node: NodeId) -> Self {
        NodeAttributes::in_call(model, model.texts(), node, None)
    }

    /// The attributes of a node in a function, for a call that gives these values to the function's attributes.
    pub(crate) fn in_call(
        model: &'a Model,
        texts: Texts<'a>,
        node: NodeId,
        bindings: Option<&'a Bindings>,
    ) -> Self {
        NodeAttributes {
            model,
            texts,
            node,
            bindings,
        }
    }
}

impl Attributes for NodeAttributes<'_> {
    fn attribute(&self, name: &str) -> Option<AttrValue<'_>> {
        let attribute = self.texts.attribute_of(self.node, name)?;
        value_of(self.model, attribute, self.bindings)
    }
}

/// The value of an attribute. A reference is replaced by what the call gives; if that is nothing, the node has no such
/// attribute.
pub(crate) fn value_of<'a>(
    model: &'a Model,
    attribute: &'a Attribute,
    bindings: Option<&'a Bindings>,
) -> Option<AttrValue<'a>> {
    let text = |span| Cow::Borrowed(model.bytes(span));
    if let (Some(reference), Some(bindings)) =
        (model.maybe_text(attribute.ref_attr_name()), bindings)
        && !reference.is_empty()
    {
        return bindings.get(reference).cloned();
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
        Some(AttributeValue::Tensor(tensor)) => match model.tensor(tensor, &NoExternalData) {
            Ok(tensor) => AttrValue::Tensor(tensor),
            Err(_) => AttrValue::Other,
        },
        Some(AttributeValue::Graph(graph)) => AttrValue::Graph(*graph),
        Some(AttributeValue::Type(ty)) => {
            model.type_of(ty).map_or(AttrValue::Other, AttrValue::Type)
        }
        Some(AttributeValue::SparseTensor(sparse)) => {
            let sparse = model.sparse_tensor(sparse, &NoExternalData).ok();
            match sparse.and_then(|sparse| sparse.to_dense().ok()) {
                Some(tensor) => AttrValue::Tensor(tensor),
                None => AttrValue::Other,
            }
        }
        Some(_) => AttrValue::Other,
        // A scalar that is zero, and a list that is empty, may have no value field at all.
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

/// The number that stands for a type of attributes in a file.
pub(crate) fn attribute_type(ty: AttrType) -> AttributeType {
    match ty {
        AttrType::Float => AttributeType::FLOAT,
        AttrType::Int => AttributeType::INT,
        AttrType::String => AttributeType::STRING,
        AttrType::Tensor => AttributeType::TENSOR,
        AttrType::Graph => AttributeType::GRAPH,
        AttrType::SparseTensor => AttributeType::SPARSE_TENSOR,
        AttrType::TypeProto => AttributeType::TYPE_PROTO,
        AttrType::Floats => AttributeType::FLOATS,
        AttrType::Ints => AttributeType::INTS,
        AttrType::Strings => AttributeType::STRINGS,
        AttrType::Tensors => AttributeType::TENSORS,
        AttrType::Graphs => AttributeType::GRAPHS,
        AttrType::SparseTensors => AttributeType::SPARSE_TENSORS,
        AttrType::TypeProtos => AttributeType::TYPE_PROTOS,
    }
}
