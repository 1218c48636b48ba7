//! Types of values for analyses: known element types, and dimensions with algebra.
//!
//! A [`TypeProto`](crate::TypeProto) is a type as the file declares it, valid or not.

use std::fmt;

use sardonyx_tensor::{DataType, OpaqueType, ValueType};
use smallvec::SmallVec;

use crate::dim::Dim;

/// Dimensions of a tensor, outermost first; empty for a scalar.
pub type Shape = SmallVec<[Dim; 4]>;

/// Type of a value, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Type {
    /// A dense tensor.
    Tensor(TensorType),
    /// A sparse tensor.
    SparseTensor(TensorType),
    /// A sequence of values of one type.
    Sequence(Box<Type>),
    /// A map from keys of an element type to values of one type.
    Map(DataType, Box<Type>),
    /// An optional: a value of a type, or none.
    Optional(Box<Type>),
    /// An opaque type, which only operators of its domain can read.
    Opaque {
        /// Domain of the type; empty for `ai.onnx`.
        domain: String,
        /// Name of the type in its domain.
        name: String,
    },
}

/// Element type and shape of a tensor, as far as they are known.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct TensorType {
    /// Element type; `None` if it is unknown.
    pub elem: Option<DataType>,
    /// Shape, outermost dimension first; `None` if the rank is unknown.
    pub shape: Option<Shape>,
}

impl Type {
    /// Makes the type of a dense tensor with an element type and a shape, such as
    /// `Type::tensor(DataType::Float, [1, 3])`.
    pub fn tensor(elem: DataType, shape: impl IntoIterator<Item = impl Into<Dim>>) -> Type {
        Type::Tensor(TensorType {
            elem: Some(elem),
            shape: Some(shape.into_iter().map(Into::into).collect()),
        })
    }

    /// Makes the type of a dense tensor of unknown rank.
    pub fn unranked(elem: DataType) -> Type {
        Type::Tensor(TensorType { elem: Some(elem), shape: None })
    }

    /// Returns the tensor type of a dense tensor; `None` for other types.
    pub fn as_tensor(&self) -> Option<&TensorType> {
        match self {
            Type::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// Returns the type without its dims; `None` if an element type in it is unknown.
    pub fn value_type(&self) -> Option<ValueType> {
        self.value_type_or(None)
    }

    /// Returns the type without its dims, with `elem` in place of unknown element types. `None` if
    /// an element type is unknown and `elem` is `None`.
    pub fn value_type_or(&self, elem: Option<DataType>) -> Option<ValueType> {
        let boxed = |ty: &Type| ty.value_type_or(elem).map(Box::new);
        Some(match self {
            Type::Tensor(tensor) => ValueType::Tensor(tensor.elem.or(elem)?),
            Type::SparseTensor(tensor) => ValueType::Sparse(tensor.elem.or(elem)?),
            Type::Sequence(inner) => ValueType::Sequence(boxed(inner)?),
            Type::Map(key, inner) => ValueType::Map(*key, boxed(inner)?),
            Type::Optional(inner) => ValueType::Optional(boxed(inner)?),
            Type::Opaque { domain, name } => ValueType::Opaque(Box::new(OpaqueType {
                domain: domain.clone(),
                name: name.clone(),
            })),
        })
    }

    /// Returns the element type of a dense tensor; `None` for other types and if it is unknown.
    pub fn elem(&self) -> Option<DataType> {
        self.as_tensor().and_then(|tensor| tensor.elem)
    }

    /// Returns the element type of a dense tensor, or of the dense tensors in a sequence.
    pub fn elem_of_items(&self) -> Option<DataType> {
        match self {
            Type::Sequence(item) => item.elem(),
            _ => self.elem(),
        }
    }

    /// Returns the shape of a dense tensor: a slice of dimensions, outermost first. `None` for
    /// other types, sparse tensors included, and if the rank is unknown.
    pub fn shape(&self) -> Option<&Shape> {
        self.as_tensor().and_then(|tensor| tensor.shape.as_ref())
    }

    /// Whether element types and ranks are known and no dimension is unknown. Symbolic sizes are
    /// known.
    pub fn is_whole(&self) -> bool {
        match self {
            Type::Tensor(tensor) | Type::SparseTensor(tensor) => {
                let shape = tensor.shape.as_ref();
                tensor.elem.is_some()
                    && shape.is_some_and(|shape| !shape.iter().any(Dim::is_unknown))
            }
            Type::Sequence(inner) | Type::Optional(inner) | Type::Map(_, inner) => inner.is_whole(),
            Type::Opaque { .. } => true,
        }
    }

    /// Calls `change` with each dimension of each shape in the type.
    pub fn for_each_dim(&mut self, change: &mut dyn FnMut(&mut Dim)) {
        match self {
            Type::Tensor(tensor) | Type::SparseTensor(tensor) => {
                tensor.shape.iter_mut().flatten().for_each(change);
            }
            Type::Sequence(inner) | Type::Optional(inner) | Type::Map(_, inner) => {
                inner.for_each_dim(change);
            }
            Type::Opaque { .. } => {}
        }
    }

    /// Replaces symbols in the dimensions, like [`Dim::substitute`].
    pub fn substitute(&self, value: &dyn Fn(&str) -> Option<Dim>) -> Type {
        let mut ty = self.clone();
        ty.for_each_dim(&mut |dim| *dim = dim.substitute(value));
        ty
    }

    /// Combines the information of two types; `None` if they contradict each other. A number
    /// replaces a symbol; of two symbols, that of `self` is kept.
    pub fn merge(&self, other: &Type) -> Option<Type> {
        Some(match (self, other) {
            (Type::Tensor(a), Type::Tensor(b)) => Type::Tensor(a.merge(b)?),
            (Type::SparseTensor(a), Type::SparseTensor(b)) => Type::SparseTensor(a.merge(b)?),
            (Type::Sequence(a), Type::Sequence(b)) => Type::Sequence(Box::new(a.merge(b)?)),
            (Type::Optional(a), Type::Optional(b)) => Type::Optional(Box::new(a.merge(b)?)),
            (Type::Map(k, a), Type::Map(l, b)) if k == l => Type::Map(*k, Box::new(a.merge(b)?)),
            (Type::Opaque { .. }, Type::Opaque { .. }) if self == other => self.clone(),
            _ => return None,
        })
    }
}

impl TensorType {
    /// Combines the information of two tensor types, like [`Type::merge`].
    pub fn merge(&self, other: &TensorType) -> Option<TensorType> {
        let elem = match (self.elem, other.elem) {
            (Some(a), Some(b)) if a != b => return None,
            (a, b) => a.or(b),
        };
        let shape = match (&self.shape, &other.shape) {
            (Some(a), Some(b)) => {
                if a.len() != b.len() {
                    return None;
                }
                let mut merged = Shape::new();
                for (a, b) in a.iter().zip(b) {
                    merged.push(match (a, b) {
                        (Dim::Known(x), Dim::Known(y)) if x != y => return None,
                        (Dim::Known(_), _) | (Dim::Expr(_), Dim::Expr(_) | Dim::Unknown) => {
                            a.clone()
                        }
                        _ => b.clone(),
                    });
                }
                Some(merged)
            }
            (a, b) => a.as_ref().or(b.as_ref()).cloned(),
        };
        Some(TensorType { elem, shape })
    }
}

impl From<&ValueType> for Type {
    /// Makes a type of unknown dimensions.
    fn from(ty: &ValueType) -> Type {
        match ty {
            ValueType::Tensor(elem) => Type::unranked(*elem),
            ValueType::Sparse(elem) => {
                Type::SparseTensor(TensorType { elem: Some(*elem), shape: None })
            }
            ValueType::Sequence(inner) => Type::Sequence(Box::new(Type::from(&**inner))),
            ValueType::Map(key, inner) => Type::Map(*key, Box::new(Type::from(&**inner))),
            ValueType::Optional(inner) => Type::Optional(Box::new(Type::from(&**inner))),
            ValueType::Opaque(opaque) => {
                Type::Opaque { domain: opaque.domain.clone(), name: opaque.name.clone() }
            }
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Tensor(tensor) => tensor.fmt(f),
            Type::SparseTensor(tensor) => write!(f, "sparse_tensor({tensor})"),
            Type::Sequence(inner) => write!(f, "seq({inner})"),
            Type::Map(key, inner) => write!(f, "map({}, {inner})", key.name()),
            Type::Optional(inner) => write!(f, "optional({inner})"),
            Type::Opaque { domain, name } if domain.is_empty() => write!(f, "opaque({name})"),
            Type::Opaque { domain, name } => write!(f, "opaque({domain}, {name})"),
        }
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.elem.map_or("?", DataType::name))?;
        match &self.shape {
            None => f.write_str("[...]"),
            Some(shape) if shape.is_empty() => Ok(()),
            Some(shape) => {
                f.write_str("[")?;
                for (index, dim) in shape.iter().enumerate() {
                    write!(f, "{}{dim}", if index > 0 { ", " } else { "" })?;
                }
                f.write_str("]")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_merge() {
        // SHAPE-17+-, SHAPE-09-
        let shape = |dims: &[Dim]| Type::tensor(DataType::Float, dims.iter().cloned());
        let (any, n) = (Dim::Unknown, Dim::symbol("N"));
        let rows = [
            (
                shape(&[any.clone(), 3i64.into()]),
                shape(&[2i64.into(), any.clone()]),
                Some(shape(&[2i64.into(), 3i64.into()])),
            ),
            (shape(&[2i64.into()]), shape(&[3i64.into()]), None),
            (shape(std::slice::from_ref(&n)), shape(&[3i64.into()]), Some(shape(&[3i64.into()]))),
            (shape(std::slice::from_ref(&n)), shape(&[any]), Some(shape(std::slice::from_ref(&n)))),
            (shape(&[]), shape(std::slice::from_ref(&n)), None),
            (
                Type::unranked(DataType::Float),
                shape(std::slice::from_ref(&n)),
                Some(shape(std::slice::from_ref(&n))),
            ),
            (Type::unranked(DataType::Double), shape(&[n]), None),
        ];
        for (a, b, expected) in rows {
            assert_eq!(a.merge(&b), expected, "{a} and {b}");
        }
    }
}
