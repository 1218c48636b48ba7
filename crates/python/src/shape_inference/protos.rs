//! Types, values and attributes as messages, and messages as objects of the onnx package.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sardonyx_model::{Dim, GraphId, Model, Part, TensorType, Type};
use sardonyx_ops::AttrValue;
use sardonyx_proto::{
    AttributeType, Encoded, Encoder, attribute, dimension, graph, map_type, model, opaque_type,
    optional_type, sequence_type, sparse_tensor_type, tensor_shape, tensor_type, type_, value_info,
};
use sardonyx_tensor::{Buffer, Tensor, Value};

/// A message as an object of the onnx package, of the class with that name.
pub(super) fn to_python<'py>(
    py: Python<'py>,
    class: &str,
    bytes: &[u8],
) -> PyResult<Bound<'py, PyAny>> {
    let message = py.import("onnx")?.getattr(class)?.call0()?;
    message.call_method1("ParseFromString", (PyBytes::new(py, bytes),))?;
    Ok(message)
}

/// The bytes of a message that is such an object.
pub(super) fn from_python(message: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    match message.getattr_opt("SerializeToString")? {
        Some(serialize) => serialize.call0()?.extract(),
        None => Err(PyTypeError::new_err(format!(
            "a message of the onnx package is wanted, not {}",
            message.get_type().name()?
        ))),
    }
}

/// A type as a TypeProto; nothing for one that is not known.
pub(super) fn type_message(ty: Option<&Type>) -> Vec<u8> {
    let message = Encoded::by(|out| {
        if let Some(ty) = ty {
            write_type(out, ty);
        }
    });
    message.into_vec()
}

fn write_type(out: &mut Encoder<'_>, ty: &Type) {
    let elem = |ty: &TensorType| ty.elem.map(|elem| elem.number());
    match ty {
        Type::Tensor(ty) => out.message(type_::TensorType, |out| {
            out.put_some(tensor_type::ElemType, elem(ty));
            if let Some(shape) = &ty.shape {
                out.message(tensor_type::Shape, |out| write_shape(out, shape));
            }
        }),
        Type::SparseTensor(ty) => out.message(type_::SparseTensorType, |out| {
            out.put_some(sparse_tensor_type::ElemType, elem(ty));
            if let Some(shape) = &ty.shape {
                out.message(sparse_tensor_type::Shape, |out| write_shape(out, shape));
            }
        }),
        Type::Sequence(inner) => out.message(type_::SequenceType, |out| {
            out.message(sequence_type::ElemType, |out| write_type(out, inner));
        }),
        Type::Optional(inner) => out.message(type_::OptionalType, |out| {
            out.message(optional_type::ElemType, |out| write_type(out, inner));
        }),
        Type::Map(key, inner) => out.message(type_::MapType, |out| {
            out.put(map_type::KeyType, key.number());
            out.message(map_type::ValueType, |out| write_type(out, inner));
        }),
        Type::Opaque { domain, name } => out.message(type_::OpaqueType, |out| {
            out.put(opaque_type::Domain, domain.as_bytes());
            out.put(opaque_type::Name, name.as_bytes());
        }),
    }
}

/// Sizes as a TensorShapeProto.
pub(super) fn shape_message(dims: &[Dim]) -> Vec<u8> {
    Encoded::by(|out| write_shape(out, dims)).into_vec()
}

fn write_shape(out: &mut Encoder<'_>, dims: &[Dim]) {
    for dim in dims {
        out.message(tensor_shape::Dim, |out| match (dim, dim.as_symbol()) {
            (Dim::Known(size), _) => out.put(dimension::DimValue, *size),
            (_, Some(name)) => out.put(dimension::DimParam, name.as_bytes()),
            (_, None) => {}
        });
    }
}

/// Types from TypeProtos; one that says nothing, or cannot be read, is not known.
pub(crate) fn read_types(types: &[impl AsRef<[u8]>]) -> Vec<Option<Type>> {
    // As the inputs of a model.
    let wrapped = Encoded::by(|out| {
        out.message(model::Graph, |out| {
            for ty in types {
                out.message(graph::Input, |out| {
                    out.message(value_info::Type, |out| out.records(ty.as_ref()));
                });
            }
        });
    });
    let Ok(model) = Model::read(Buffer::from_vec(wrapped.into_vec())) else {
        return vec![None; types.len()];
    };
    let inputs = model.main_graph().map_or(&[][..], |graph| &graph.inputs);
    let declared = inputs.iter().map(|info| info.ty.as_ref());
    declared.map(|ty| model.type_of(ty?)).collect()
}

/// A tensor as a TensorProto without a name.
pub(super) fn tensor_message(tensor: Tensor) -> Vec<u8> {
    sardonyx_model::write_value(&Value::Tensor(tensor), "")
}

/// The value of an attribute as an AttributeProto.
pub(super) fn attribute_message(model: &Model, name: &str, value: &AttrValue<'_>) -> Vec<u8> {
    let message = Encoded::by(|out| {
        out.put(attribute::Name, name.as_bytes());
        let graph_of = |graph: GraphId| model.part_to_bytes(Part::Graph(graph));
        let ty = match value {
            AttrValue::Float(value) => {
                out.put(attribute::F, *value);
                AttributeType::FLOAT
            }
            AttrValue::Int(value) => {
                out.put(attribute::I, *value);
                AttributeType::INT
            }
            AttrValue::String(value) => {
                out.put(attribute::S, value);
                AttributeType::STRING
            }
            AttrValue::Tensor(tensor) => {
                let tensor = tensor_message(tensor.clone());
                out.message(attribute::T, |out| out.copy_of_records(&tensor));
                AttributeType::TENSOR
            }
            AttrValue::Graph(graph) => {
                let graph = graph_of(*graph);
                out.message(attribute::G, |out| out.copy_of_records(&graph));
                AttributeType::GRAPH
            }
            AttrValue::Floats(values) => {
                out.put(attribute::Floats, values);
                AttributeType::FLOATS
            }
            AttrValue::Ints(values) => {
                out.put(attribute::Ints, values);
                AttributeType::INTS
            }
            AttrValue::Strings(values) => {
                for value in values {
                    out.put(attribute::Strings, value);
                }
                AttributeType::STRINGS
            }
            AttrValue::Type(ty) => {
                out.message(attribute::Tp, |out| write_type(out, ty));
                AttributeType::TYPE_PROTO
            }
            AttrValue::Unread(_) | AttrValue::Other => AttributeType::UNDEFINED,
        };
        out.put(attribute::Type, ty);
    });
    message.into_vec()
}
