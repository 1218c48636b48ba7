//! Values that are known before a run: constants, and integers that shapes are computed from.

use sardonyx_model::Dim;
use sardonyx_tensor::{Bool8, CastOptions, DataType, Element, Tensor, cast};
use smallvec::SmallVec;

/// Contents of a tensor, as far as they are known before a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    /// Symbolic array of integers, from which shapes are computed. [`Known::array`] makes one that
    /// satisfies the conditions on its fields.
    Ints {
        /// Element type: an integer type, `bool` (0 and 1), or `float` and `double`, of which only
        /// whole numbers are known.
        elem: DataType,
        /// Sizes; empty for a scalar.
        dims: Dims,
        /// Elements in row-major order, at most [`MAX_KNOWN`].
        values: Vec<Dim>,
    },
    /// Constant.
    Tensor(Tensor),
}

/// Sizes of a known value.
pub type Dims = SmallVec<[usize; 2]>;

/// Maximum number of elements that are tracked: larger arrays describe no shape.
pub const MAX_KNOWN: usize = 1024;

impl Known {
    /// Makes a vector of `int64`.
    pub fn vector(values: impl IntoIterator<Item = Dim>) -> Known {
        let values: Vec<Dim> = values.into_iter().collect();
        Known::Ints { elem: DataType::Int64, dims: [values.len()].into_iter().collect(), values }
    }

    /// Makes a scalar of `int64`.
    pub fn scalar(value: Dim) -> Known {
        Known::Ints { elem: DataType::Int64, dims: Dims::new(), values: vec![value] }
    }

    /// Makes an array of elements in row-major order. Elements that the element type cannot hold
    /// become unknown. `None` if all are unknown or there are too many.
    pub fn array(elem: DataType, dims: Dims, values: Vec<Dim>) -> Option<Known> {
        limits(elem)?;
        if values.len() > MAX_KNOWN || elements(&dims) != Some(values.len()) {
            return None;
        }
        let values: Vec<Dim> = values.into_iter().map(|value| keep_if_exact(elem, value)).collect();
        // An array of unknown elements adds nothing to its type.
        let is_informative = values.is_empty() || !values.iter().all(Dim::is_unknown);
        is_informative.then_some(Known::Ints { elem, dims, values })
    }

    /// Returns the element type.
    pub fn elem(&self) -> DataType {
        match self {
            Known::Ints { elem, .. } => *elem,
            Known::Tensor(tensor) => tensor.data_type(),
        }
    }

    /// Returns the sizes.
    pub fn dims(&self) -> &[usize] {
        match self {
            Known::Ints { dims, .. } => dims,
            Known::Tensor(tensor) => tensor.dims(),
        }
    }

    /// Returns the elements of an array of any rank in row-major order. Those that are not whole
    /// numbers are unknown.
    pub fn elements(&self) -> Option<Vec<Dim>> {
        match self {
            Known::Ints { values, .. } => Some(values.clone()),
            Known::Tensor(tensor) => whole_numbers(tensor),
        }
    }

    /// Returns the integers of a scalar or vector, symbolic or not.
    pub fn ints(&self) -> Option<Vec<Dim>> {
        if self.dims().len() > 1 || !self.elem().is_integer() {
            return None;
        }
        self.elements()
    }

    /// Whether it is a scalar.
    pub fn is_scalar(&self) -> bool {
        self.dims().is_empty()
    }

    /// Returns the value as a tensor if it has no symbols.
    pub fn to_tensor(&self) -> Option<Tensor> {
        match self {
            Known::Tensor(tensor) => Some(tensor.clone()),
            Known::Ints { elem, dims, values } => {
                let (least, most) = limits(*elem)?;
                let numbers: Vec<i64> = values.iter().map(Dim::known).collect::<Option<_>>()?;
                // The sign of a floating-point zero is not tracked.
                let exact = |number: &i64| {
                    (least..=most).contains(number) && (*number != 0 || !elem.is_float())
                };
                if !numbers.iter().all(exact) {
                    return None;
                }
                let numbers = Tensor::from_vec(&dims[..], numbers).ok()?;
                cast(&numbers, *elem, CastOptions::default()).ok()
            }
        }
    }
}

/// Returns the least and the greatest number of the range in which an element type holds every
/// integer that a [`Dim`] can be.
fn limits(elem: DataType) -> Option<(i64, i64)> {
    Some(match elem {
        DataType::Int64 => (i64::MIN, i64::MAX),
        DataType::Int32 => (i32::MIN.into(), i32::MAX.into()),
        DataType::Int16 => (i16::MIN.into(), i16::MAX.into()),
        DataType::Int8 => (i8::MIN.into(), i8::MAX.into()),
        DataType::Uint64 => (0, i64::MAX),
        DataType::Uint32 => (0, u32::MAX.into()),
        DataType::Uint16 => (0, u16::MAX.into()),
        DataType::Uint8 => (0, u8::MAX.into()),
        DataType::Bool => (0, 1),
        DataType::Float => (-(1 << 24), 1 << 24),
        DataType::Double => (-(1 << 53), 1 << 53),
        _ => return None,
    })
}

/// Returns a number if an element type holds it exactly, else an unknown one: numbers out of range
/// wrap or are rounded at run time, which a [`Dim`] cannot express.
pub(crate) fn keep_if_exact(elem: DataType, value: Dim) -> Dim {
    let Some((least, most)) = limits(elem) else {
        return Dim::Unknown;
    };
    let holds = match &value {
        Dim::Known(value) => (least..=most).contains(value),
        // A symbolic size is assumed to fit types of at least 25 bits, as the program that wrote
        // the model relied on it.
        Dim::Expr(_) => most >= 1 << 24 && (least < 0 || value.is_never_negative()),
        Dim::Unknown => false,
    };
    if holds { value } else { Dim::Unknown }
}

fn whole_numbers(tensor: &Tensor) -> Option<Vec<Dim>> {
    fn each<T: Element>(tensor: &Tensor, number: impl Fn(T) -> Dim) -> Option<Vec<Dim>> {
        Some(tensor.to_vec().ok()?.into_iter().map(number).collect())
    }
    fn integer<T: Element>(tensor: &Tensor) -> Option<Vec<Dim>>
    where
        i64: TryFrom<T>,
    {
        each(tensor, |value: T| i64::try_from(value).map_or(Dim::Unknown, Dim::Known))
    }
    fn to_dim(value: f64) -> Dim {
        // Every float beyond 2^53 is a whole number, but may be a rounded one.
        if value.fract() == 0.0 && value.abs() <= (1i64 << 53) as f64 {
            Dim::Known(value as i64)
        } else {
            Dim::Unknown
        }
    }
    if tensor.len() > MAX_KNOWN {
        return None;
    }
    match tensor.data_type() {
        DataType::Int64 => integer::<i64>(tensor),
        DataType::Int32 => integer::<i32>(tensor),
        DataType::Int16 => integer::<i16>(tensor),
        DataType::Int8 => integer::<i8>(tensor),
        DataType::Uint64 => integer::<u64>(tensor),
        DataType::Uint32 => integer::<u32>(tensor),
        DataType::Uint16 => integer::<u16>(tensor),
        DataType::Uint8 => integer::<u8>(tensor),
        DataType::Bool => each(tensor, |value: Bool8| Dim::Known(value.get().into())),
        DataType::Float => each(tensor, |value: f32| to_dim(value.into())),
        DataType::Double => each(tensor, to_dim),
        _ => None,
    }
}

/// Returns the number of elements of an array.
pub(crate) fn elements(dims: &[usize]) -> Option<usize> {
    dims.iter().try_fold(1usize, |product, size| product.checked_mul(*size))
}
