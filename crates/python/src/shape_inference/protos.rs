//! Types, values and attributes as messages, and messages as objects of the onnx package.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sardonyx_model::{Dim, GraphId, Model, Part, TensorType, Type};
use sardonyx_ops::AttrValue;
use sardonyx_proto::{
    AttributeType, Encode, Encoder, attribute, dimension, encode_to_vec, graph, map_type, model,
    opaque_type, optional_type, sequence_type, sparse_tensor_type, tensor_shape, tensor_type,
    type_, value_info,
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
    ty.map_or(Vec::new(), |ty| encode_to_vec(&TypeMessage(ty)))
}

struct TypeMessage<'a>(&'a Type);

impl Encode for TypeMessage<'_> {
    fn encode(&self, out: &mut Encoder<'_>) {
        let elem = |ty: &TensorType| ty.elem.map(|elem| elem.number());
        match self.0 {
            Type::Tensor(ty) => out.message(type_::TensorType, |out| {
                out.put_some(tensor_type::ElemType, elem(ty));
                if let Some(shape) = &ty.shape {
                    out.encode(tensor_type::Shape, &ShapeMessage(shape));
                }
            }),
            Type::SparseTensor(ty) => out.message(type_::SparseTensorType, |out| {
                out.put_some(sparse_tensor_type::ElemType, elem(ty));
                if let Some(shape) = &ty.shape {
                    out.encode(sparse_tensor_type::Shape, &ShapeMessage(shape));
                }
            }),
            Type::Sequence(inner) => out.message(type_::SequenceType, |out| {
                out.encode(sequence_type::ElemType, &TypeMessage(inner));
            }),
            Type::Optional(inner) => out.message(type_::OptionalType, |out| {
                out.encode(optional_type::ElemType, &TypeMessage(inner));
            }),
            Type::Map(key, inner) => out.message(type_::MapType, |out| {
                out.put(map_type::KeyType, key.number());
                out.encode(map_type::ValueType, &TypeMessage(inner));
            }),
            Type::Opaque { domain, name } => out.message(type_::OpaqueType, |out| {
                out.put(opaque_type::Domain, domain.as_bytes());
                out.put(opaque_type::Name, name.as_bytes());
            }),
        }
    }
}

/// Sizes as a TensorShapeProto.
pub(super) struct ShapeMessage<'a>(pub(super) &'a [Dim]);

impl Encode for ShapeMessage<'_> {
    fn encode(&self, out: &mut Encoder<'_>) {
        for dim in self.0 {
            out.message(tensor_shape::Dim, |out| match (dim, dim.as_symbol()) {
                (Dim::Known(size), _) => out.put(dimension::DimValue, *size),
                (_, Some(name)) => out.put(dimension::DimParam, name.as_bytes()),
                (_, None) => {}
            });
        }
    }
}

/// Types from TypeProtos; one that says nothing, or cannot be read, is not known.
pub(crate) fn read_types(types: &[impl AsRef<[u8]>]) -> Vec<Option<Type>> {
    let wrapped = encode_to_vec(&InInputs(types));
    let Ok(model) = Model::read(Buffer::from_vec(wrapped)) else {
        return vec![None; types.len()];
    };
    let inputs = model.main_graph().map_or(&[][..], |graph| &graph.inputs);
    let declared = inputs.iter().map(|info| info.ty.as_ref());
    declared.map(|ty| model.type_of(ty?)).collect()
}

/// A model whose inputs have these types.
struct InInputs<'a, T>(&'a [T]);

impl<T: AsRef<[u8]>> Encode for InInputs<'_, T> {
    fn encode(&self, out: &mut Encoder<'_>) {
        out.message(model::Graph, |out| {
            for ty in self.0 {
                out.message(graph::Input, |out| {
                    out.message(value_info::Type, |out| out.unknown(ty.as_ref()));
                });
            }
        });
    }
}

/// A tensor as a TensorProto without a name.
pub(super) fn tensor_message(tensor: Tensor) -> Vec<u8> {
    sardonyx_model::write_value(&Value::Tensor(tensor), "")
}

/// The value of an attribute as an AttributeProto.
pub(super) fn attribute_message(model: &Model, name: &str, value: &AttrValue<'_>) -> Vec<u8> {
    encode_to_vec(&AttributeMessage { model, name, value })
}

struct AttributeMessage<'a> {
    model: &'a Model,
    name: &'a str,
    value: &'a AttrValue<'a>,
}

impl Encode for AttributeMessage<'_> {
    fn encode(&self, out: &mut Encoder<'_>) {
        out.put(attribute::Name, self.name.as_bytes());
        let graph_of = |graph: GraphId| self.model.part_to_bytes(Part::Graph(graph));
        let ty = match self.value {
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
                out.message(attribute::T, |out| out.unknown(&tensor));
                AttributeType::TENSOR
            }
            AttrValue::Graph(graph) => {
                let graph = graph_of(*graph);
                out.message(attribute::G, |out| out.unknown(&graph));
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
                out.encode(attribute::Tp, &TypeMessage(ty));
                AttributeType::TYPE_PROTO
            }
            AttrValue::Other => AttributeType::UNDEFINED,
        };
        out.put(attribute::Type, ty);
    }
}
