//! Converts types and shapes to protobuf messages and back.

use sardonyx_model::{Dim, ReadLimits, TensorType, Type};
use sardonyx_proto::{
    Encoded, Encoder, dimension, graph, map_type, model, opaque_type, optional_type, sequence_type,
    sparse_tensor_type, tensor_shape, tensor_type, type_, value_info,
};
use sardonyx_tensor::Buffer;

use crate::load::read_graph;

/// Serializes a type as a `TypeProto`; `None` gives no bytes.
pub fn type_to_bytes(ty: Option<&Type>) -> Vec<u8> {
    let message = Encoded::from_fields(|out| {
        if let Some(ty) = ty {
            write_type(out, ty);
        }
    });
    message.into_vec()
}

/// Encodes the fields of a type's `TypeProto`.
pub(super) fn write_type(out: &mut Encoder<'_>, ty: &Type) {
    let elem = |ty: &TensorType| ty.elem.map(|elem| elem.number());
    match ty {
        Type::Tensor(ty) => out.put_message(type_::TensorType, |out| {
            out.put_some(tensor_type::ElemType, elem(ty));
            if let Some(shape) = &ty.shape {
                out.put_message(tensor_type::Shape, |out| write_shape(out, shape));
            }
        }),
        Type::SparseTensor(ty) => out.put_message(type_::SparseTensorType, |out| {
            out.put_some(sparse_tensor_type::ElemType, elem(ty));
            if let Some(shape) = &ty.shape {
                out.put_message(sparse_tensor_type::Shape, |out| write_shape(out, shape));
            }
        }),
        Type::Sequence(inner) => out.put_message(type_::SequenceType, |out| {
            out.put_message(sequence_type::ElemType, |out| write_type(out, inner));
        }),
        Type::Optional(inner) => out.put_message(type_::OptionalType, |out| {
            out.put_message(optional_type::ElemType, |out| write_type(out, inner));
        }),
        Type::Map(key, inner) => out.put_message(type_::MapType, |out| {
            out.put(map_type::KeyType, key.number());
            out.put_message(map_type::ValueType, |out| write_type(out, inner));
        }),
        Type::Opaque { domain, name } => out.put_message(type_::OpaqueType, |out| {
            out.put(opaque_type::Domain, domain.as_bytes());
            out.put(opaque_type::Name, name.as_bytes());
        }),
    }
}

/// Serializes a shape as a `TensorShapeProto`. Dimensions that are expressions such as `2*N` become
/// unknown.
pub fn shape_to_bytes(dims: &[Dim]) -> Vec<u8> {
    Encoded::from_fields(|out| write_shape(out, dims)).into_vec()
}

/// Encodes the fields of a shape's `TensorShapeProto`.
fn write_shape(out: &mut Encoder<'_>, dims: &[Dim]) {
    for dim in dims {
        out.put_message(tensor_shape::Dim, |out| match (dim, dim.as_symbol()) {
            (Dim::Known(size), _) => out.put(dimension::DimValue, *size),
            (_, Some(name)) => out.put(dimension::DimParam, name.as_bytes()),
            (_, None) => {}
        });
    }
}

/// Reads types from serialized `TypeProto`s. An empty message gives `None`; if one message cannot
/// be read, all types are `None`.
pub fn types_from_bytes(types: &[impl AsRef<[u8]>]) -> Vec<Option<Type>> {
    // Wrapped as the inputs of a model, which the graph reader takes.
    let wrapped = Encoded::from_fields(|out| {
        out.put_message(model::Graph, |out| {
            for ty in types {
                out.put_message(graph::Input, |out| {
                    out.put_message(value_info::Type, |out| out.put_records(ty.as_ref()));
                });
            }
        });
    });
    let wrapped = Buffer::from_vec(wrapped.into_vec());
    let Ok(model) = read_graph(wrapped, ReadLimits::default(), true) else {
        return vec![None; types.len()];
    };
    let inputs = model.main_graph().map_or(&[][..], |graph| &graph.inputs);
    let declared = inputs.iter().map(|info| info.ty.as_ref());
    declared.map(|ty| model.type_of(ty?)).collect()
}
