//! Types of attributes.

use sardonyx_ops::AttrType;
use sardonyx_proto::AttributeType;

/// Returns the number of a type of attributes in a file.
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
