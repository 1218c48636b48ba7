//! Types as declared in a file, valid or not.

use sardonyx_tensor::DataType;
use smallvec::SmallVec;

use crate::dim::Dim;
use crate::domain::normalize_domain;
use crate::graph::Model;
use crate::names::Symbol;
use crate::source::Unknowns;
use crate::types::{Shape, TensorType, Type};

/// Declared type.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TypeProto {
    /// Type variant, if one is set.
    pub kind: Option<TypeKind>,
    /// Meaning of the value, such as `IMAGE`.
    pub denotation: Option<Symbol>,
    /// Fields of newer format versions.
    pub unknown: Unknowns,
}

/// Type variants, each with the unknown fields of its own message.
#[derive(Debug, Clone, PartialEq)]
pub enum TypeKind {
    /// A dense tensor. `elem_type` is a number, as newer versions may have more types.
    Tensor {
        /// Element type.
        elem_type: Option<i32>,
        /// Shape; `None` for any rank, empty for a scalar.
        shape: Option<ShapeProto>,
        /// Fields of newer format versions.
        unknown: Unknowns,
    },
    /// A sparse tensor.
    SparseTensor {
        /// Element type.
        elem_type: Option<i32>,
        /// Shape of the dense form.
        shape: Option<ShapeProto>,
        /// Fields of newer format versions.
        unknown: Unknowns,
    },
    /// A sequence.
    Sequence {
        /// Type of the elements.
        elem_type: Option<Box<TypeProto>>,
        /// Fields of newer format versions.
        unknown: Unknowns,
    },
    /// A map.
    Map {
        /// Type of the keys.
        key_type: Option<i32>,
        /// Type of the values.
        value_type: Option<Box<TypeProto>>,
        /// Fields of newer format versions.
        unknown: Unknowns,
    },
    /// An optional.
    Optional {
        /// Type of the element.
        elem_type: Option<Box<TypeProto>>,
        /// Fields of newer format versions.
        unknown: Unknowns,
    },
    /// An opaque type.
    Opaque {
        /// Domain.
        domain: Option<Symbol>,
        /// Name.
        name: Option<Symbol>,
        /// Fields of newer format versions.
        unknown: Unknowns,
    },
}

/// Declared shape.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ShapeProto {
    /// Dimensions.
    pub dims: SmallVec<[DimProto; 4]>,
    /// Fields of newer format versions.
    pub unknown: Unknowns,
}

/// Declared dimension.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DimProto {
    /// Number or name, if any.
    pub value: Option<DimValue>,
    /// Meaning of the axis, such as `DATA_BATCH`.
    pub denotation: Option<Symbol>,
    /// Fields of newer format versions.
    pub unknown: Unknowns,
}

/// Number or name of a declared dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DimValue {
    /// A number.
    Value(i64),
    /// A name.
    Param(Symbol),
}

impl TypeProto {
    /// Returns the shape of the tensor type. For a sequence, map or optional, this is the type of
    /// its elements at any depth.
    pub fn innermost_shape(&self) -> Option<&ShapeProto> {
        match self.kind.as_ref()? {
            TypeKind::Tensor { shape, .. } | TypeKind::SparseTensor { shape, .. } => shape.as_ref(),
            TypeKind::Sequence { elem_type, .. } | TypeKind::Optional { elem_type, .. } => {
                elem_type.as_deref()?.innermost_shape()
            }
            TypeKind::Map { value_type, .. } => value_type.as_deref()?.innermost_shape(),
            TypeKind::Opaque { .. } => None,
        }
    }

    /// Returns the shape of the tensor type, to be changed, like
    /// [`innermost_shape`](Self::innermost_shape).
    pub fn innermost_shape_mut(&mut self) -> Option<&mut ShapeProto> {
        match self.kind.as_mut()? {
            TypeKind::Tensor { shape, .. } | TypeKind::SparseTensor { shape, .. } => shape.as_mut(),
            TypeKind::Sequence { elem_type, .. } | TypeKind::Optional { elem_type, .. } => {
                elem_type.as_deref_mut()?.innermost_shape_mut()
            }
            TypeKind::Map { value_type, .. } => value_type.as_deref_mut()?.innermost_shape_mut(),
            TypeKind::Opaque { .. } => None,
        }
    }
}

impl Model {
    /// Converts a declared type for analysis. Returns `None` if it has no variant, or an element
    /// type that does not exist.
    pub fn type_of(&self, proto: &TypeProto) -> Option<Type> {
        self.type_with(proto, &mut |value| match value {
            DimValue::Value(size @ 0..) => Dim::Known(size),
            // Old exporters write -1 for "any".
            DimValue::Value(_) => Dim::Unknown,
            DimValue::Param(name) => match std::str::from_utf8(self.text(name)) {
                Ok(name) if Dim::is_name(name.as_bytes()) => Dim::symbol(name),
                _ => Dim::Unknown,
            },
        })
    }

    /// Converts a declared type like [`type_of`](Self::type_of), but `read` converts the dimensions
    /// that have a number or a name.
    pub fn type_with(
        &self,
        proto: &TypeProto,
        read: &mut dyn FnMut(DimValue) -> Dim,
    ) -> Option<Type> {
        let mut tensor = |elem: Option<i32>, shape: &Option<ShapeProto>| -> Option<TensorType> {
            let elem = match elem {
                None | Some(0) => None,
                Some(number) => Some(DataType::from_number(number)?),
            };
            Some(TensorType { elem, shape: shape.as_ref().map(|shape| shape_of(shape, read)) })
        };
        Some(match proto.kind.as_ref()? {
            TypeKind::Tensor { elem_type, shape, .. } => Type::Tensor(tensor(*elem_type, shape)?),
            TypeKind::SparseTensor { elem_type, shape, .. } => {
                Type::SparseTensor(tensor(*elem_type, shape)?)
            }
            TypeKind::Sequence { elem_type, .. } => {
                Type::Sequence(Box::new(self.type_with(elem_type.as_ref()?, read)?))
            }
            TypeKind::Optional { elem_type, .. } => {
                Type::Optional(Box::new(self.type_with(elem_type.as_ref()?, read)?))
            }
            TypeKind::Map { key_type, value_type, .. } => Type::Map(
                DataType::from_number((*key_type)?)?,
                Box::new(self.type_with(value_type.as_ref()?, read)?),
            ),
            TypeKind::Opaque { domain, name, .. } => Type::Opaque {
                domain: normalize_domain(&self.display(*domain)).to_string(),
                name: self.display(*name).into_owned(),
            },
        })
    }
}

fn shape_of(shape: &ShapeProto, read: &mut dyn FnMut(DimValue) -> Dim) -> Shape {
    let dim = |dim: &DimProto| dim.value.map_or(Dim::Unknown, &mut *read);
    shape.dims.iter().map(dim).collect()
}
