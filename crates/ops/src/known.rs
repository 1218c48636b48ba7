//! Values that are known before a run: constants, and the integers that shapes are computed from.

use sardonyx_model::Dim;
use sardonyx_tensor::{Bool8, CastOptions, DataType, Element, Tensor, cast};
use smallvec::SmallVec;

/// What is known of the value of a tensor before anything runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    /// An array of integers, symbolic: what shapes are computed with. [`Known::array`] makes one
    /// that keeps its promises.
    Ints {
        /// Element type: integers, `bool` (0 and 1), or `float` and `double`, of which only whole
        /// numbers are ever known.
        elem: DataType,
        /// Sizes; none for a scalar.
        dims: Dims,
        /// The elements, row by row, no more than [`MAX_KNOWN`].
        values: Vec<Dim>,
    },
    /// A constant.
    Tensor(Tensor),
}

/// Sizes of a known value.
pub type Dims = SmallVec<[usize; 2]>;

/// Arrays of more elements than this describe no shape.
pub const MAX_KNOWN: usize = 1024;

impl Known {
    /// A vector of `int64`.
    pub fn vector(values: impl IntoIterator<Item = Dim>) -> Known {
        let values: Vec<Dim> = values.into_iter().collect();
        Known::Ints { elem: DataType::Int64, dims: [values.len()].into_iter().collect(), values }
    }

    /// A scalar `int64`.
    pub fn scalar(value: Dim) -> Known {
        Known::Ints { elem: DataType::Int64, dims: Dims::new(), values: vec![value] }
    }

    /// An array of these elements, row by row, as far as the element type holds them. `None` if
    /// nothing is left, or too much.
    pub fn array(elem: DataType, dims: Dims, values: Vec<Dim>) -> Option<Known> {
        limits(elem)?;
        if values.len() > MAX_KNOWN || elements(&dims) != Some(values.len()) {
            return None;
        }
        let values: Vec<Dim> = values.into_iter().map(|value| held(elem, value)).collect();
        // Mere unknowns would say no more than the type does.
        let says_something = values.is_empty() || !values.iter().all(Dim::is_unknown);
        says_something.then_some(Known::Ints { elem, dims, values })
    }

    /// Its element type.
    pub fn elem(&self) -> DataType {
        match self {
            Known::Ints { elem, .. } => *elem,
            Known::Tensor(tensor) => tensor.data_type(),
        }
    }

    /// Its sizes.
    pub fn dims(&self) -> &[usize] {
        match self {
            Known::Ints { dims, .. } => dims,
            Known::Tensor(tensor) => tensor.dims(),
        }
    }

    /// The elements of an array of any rank, row by row. Those that are no whole numbers are
    /// unknown.
    pub fn elements(&self) -> Option<Vec<Dim>> {
        match self {
            Known::Ints { values, .. } => Some(values.clone()),
            Known::Tensor(tensor) => whole_numbers(tensor),
        }
    }

    /// The integers of a scalar or vector, symbolic or not.
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

    /// The value as a tensor, if no symbol is in it.
    pub fn to_tensor(&self) -> Option<Tensor> {
        match self {
            Known::Tensor(tensor) => Some(tensor.clone()),
            Known::Ints { elem, dims, values } => {
                let (least, most) = limits(*elem)?;
                let numbers: Vec<i64> = values.iter().map(Dim::known).collect::<Option<_>>()?;
                // A zero of floats has a sign, which nobody followed.
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

/// The least and the largest number up to which an element type holds all integers that a [`Dim`]
/// can be.
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

/// A number, if an element type holds it exactly: others wrap or are rounded at run time, and a
/// [`Dim`] does neither.
pub(crate) fn held(elem: DataType, value: Dim) -> Dim {
    let Some((least, most)) = limits(elem) else {
        return Dim::Unknown;
    };
    let holds = match &value {
        Dim::Known(value) => (least..=most).contains(value),
        // A size that is too large for the type would have been so for the program that wrote the
        // model.
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
    fn whole(value: f64) -> Dim {
        // Beyond that, every float is a whole number, but not the one that was meant.
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
        DataType::Float => each(tensor, |value: f32| whole(value.into())),
        DataType::Double => each(tensor, whole),
        _ => None,
    }
}

/// The number of elements of an array.
pub(crate) fn elements(dims: &[usize]) -> Option<usize> {
    dims.iter().try_fold(1usize, |product, size| product.checked_mul(*size))
}
