//! Types of values as analyses see them: element types that exist, dimensions with algebra.
//!
//! What a file declares, however odd, is a [`TypeProto`](crate::TypeProto); this is what can be
//! reasoned about.

use std::fmt;

use sardonyx_tensor::{DataType, OpaqueType, ValueType};
use smallvec::SmallVec;

use crate::dim::Dim;

/// Dimensions of a tensor, outermost first. Empty for a scalar.
pub type Shape = SmallVec<[Dim; 4]>;

/// The type of a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Type {
    /// A dense tensor.
    Tensor(TensorType),
    /// A sparse tensor.
    SparseTensor(TensorType),
    /// A sequence of values of one type.
    Sequence(Box<Type>),
    /// A map from keys of an element type to values of a type.
    Map(DataType, Box<Type>),
    /// A value that may be missing.
    Optional(Box<Type>),
    /// A type that only its domain understands.
    Opaque {
        /// Its domain.
        domain: String,
        /// Its name.
        name: String,
    },
}

/// Element type and shape of a tensor, as far as known.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct TensorType {
    /// Element type.
    pub elem: Option<DataType>,
    /// Shape; `None` when not even the rank is known.
    pub shape: Option<Shape>,
}

impl Type {
    /// A tensor type of which everything is known.
    pub fn tensor(elem: DataType, shape: impl IntoIterator<Item = impl Into<Dim>>) -> Type {
        Type::Tensor(TensorType {
            elem: Some(elem),
            shape: Some(shape.into_iter().map(Into::into).collect()),
        })
    }

    /// A tensor type of unknown rank.
    pub fn unranked(elem: DataType) -> Type {
        Type::Tensor(TensorType { elem: Some(elem), shape: None })
    }

    /// The tensor type, if it is one.
    pub fn as_tensor(&self) -> Option<&TensorType> {
        match self {
            Type::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// The kind of its values, down to element types; `None` if an element type in it is not
    /// known.
    pub fn value_type(&self) -> Option<ValueType> {
        self.value_type_or(None)
    }

    /// As [`Type::value_type`], where element types that are not known are `elem`.
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

    /// Element type of a tensor.
    pub fn elem(&self) -> Option<DataType> {
        self.as_tensor().and_then(|tensor| tensor.elem)
    }

    /// Element type of a tensor, or of the tensors in a sequence.
    pub fn elem_of_items(&self) -> Option<DataType> {
        match self {
            Type::Sequence(item) => item.elem(),
            _ => self.elem(),
        }
    }

    /// Returns the shape of a dense or sparse tensor: a slice of dimensions. `None` for other types
    /// and where the rank is unknown.
    pub fn shape(&self) -> Option<&Shape> {
        self.as_tensor().and_then(|tensor| tensor.shape.as_ref())
    }

    /// Whether it leaves nothing open. Sizes that are called by names are not open.
    pub fn is_whole(&self) -> bool {
        match self {
            Type::Tensor(tensor) | Type::SparseTensor(tensor) => {
                let shape = tensor.shape.as_ref();
                let is_open = |shape: &Shape| shape.iter().any(Dim::is_unknown);
                tensor.elem.is_some() && shape.is_some_and(|shape| !is_open(shape))
            }
            Type::Sequence(inner) | Type::Optional(inner) | Type::Map(_, inner) => inner.is_whole(),
            Type::Opaque { .. } => true,
        }
    }

    /// Does something to each size in it.
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

    /// The same with every symbol replaced by what `value` says of it.
    pub fn substitute(&self, value: &dyn Fn(&str) -> Option<Dim>) -> Type {
        let mut ty = self.clone();
        ty.for_each_dim(&mut |dim| *dim = dim.substitute(value));
        ty
    }

    /// What both say together, or `None` if they contradict each other. A number beats a symbol;
    /// where both are symbols, `self` stays.
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
    /// See [`Type::merge`].
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
    /// Of no known dimensions.
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
