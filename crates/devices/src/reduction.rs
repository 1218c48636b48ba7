//! Reductions: operations that combine elements of several workers.
//!
//! Every reduction has two loops over bytes, one for each order of the operands, because results
//! must not depend on the worker that computes them. Half-precision types have three more loops,
//! for partial results in `float`.

use std::fmt;

use bytemuck::Pod;
use half::slice::HalfFloatSliceExt;
use sardonyx_tensor::{Bool8, DataType, Element, bf16, f16};

use crate::error::{TransportError, err};

/// Operation that combines the elements of several workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Sum; integers wrap.
    Sum,
    /// Product; integers wrap.
    Product,
    /// Minimum; NaN if an element is NaN.
    Min,
    /// Maximum; NaN if an element is NaN.
    Max,
    /// Logical conjunction. `bool` has only this reduction and [`Reduction::Or`].
    And,
    /// Logical disjunction.
    Or,
}

impl fmt::Display for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reduction::Sum => "sum",
            Reduction::Product => "product",
            Reduction::Min => "min",
            Reduction::Max => "max",
            Reduction::And => "and",
            Reduction::Or => "or",
        })
    }
}

/// Loops of a reduction for an element type. Both slices of a loop have the same number of
/// elements, in their own types.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Loops {
    /// Computes `x = x op y`, where `y` has elements of a later worker.
    pub(crate) with_later: fn(&mut [u8], &[u8]),
    /// Computes `x = y op x`, where `y` has elements of earlier workers.
    pub(crate) with_earlier: fn(&mut [u8], &[u8]),
    /// Loops over partial results of a wider type, if there is one.
    pub(crate) wide: Option<WideLoops>,
    /// Size of an element.
    pub(crate) element_bytes: usize,
}

/// Loops over partial results in `float`, for elements of half its width.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WideLoops {
    /// Computes `x = y`.
    pub(crate) widen: fn(&mut [f32], &[u8]),
    /// Computes `x = x op y`.
    pub(crate) with_later: fn(&mut [f32], &[u8]),
    /// Computes `x = y`, rounded.
    pub(crate) narrow: fn(&mut [u8], &[f32]),
}

/// Combines elements with those of a later worker, position by position: `data = data op later`.
/// Both slices have the same length, and neither has to be aligned.
///
/// # Errors
/// `Unsupported` if the reduction does not exist for the type.
pub fn combine(
    reduction: Reduction,
    data_type: DataType,
    data: &mut [u8],
    later: &[u8],
) -> Result<(), TransportError> {
    (Loops::new(reduction, data_type)?.with_later)(data, later);
    Ok(())
}

impl Loops {
    /// Returns the loops of a reduction.
    ///
    /// # Errors
    /// `Unsupported` if the reduction does not exist for the type.
    pub(crate) fn new(reduction: Reduction, data_type: DataType) -> Result<Loops, TransportError> {
        let loops = match data_type {
            DataType::Float => number_loops::<f32>(reduction),
            DataType::Double => number_loops::<f64>(reduction),
            DataType::Float16 => half_loops::<f16>(reduction),
            DataType::Bfloat16 => half_loops::<bf16>(reduction),
            DataType::Int8 => number_loops::<i8>(reduction),
            DataType::Int16 => number_loops::<i16>(reduction),
            DataType::Int32 => number_loops::<i32>(reduction),
            DataType::Int64 => number_loops::<i64>(reduction),
            DataType::Uint8 => number_loops::<u8>(reduction),
            DataType::Uint16 => number_loops::<u16>(reduction),
            DataType::Uint32 => number_loops::<u32>(reduction),
            DataType::Uint64 => number_loops::<u64>(reduction),
            DataType::Bool => bool_loops(reduction),
            _ => None,
        };
        match loops {
            Some(loops) => Ok(loops),
            None => err!(Unsupported, "{reduction} of {data_type} over workers is not supported"),
        }
    }
}

fn number_loops<T: Number>(reduction: Reduction) -> Option<Loops> {
    Some(match reduction {
        Reduction::Sum => make_number_loops::<T, Sum>(),
        Reduction::Product => make_number_loops::<T, Product>(),
        Reduction::Min => make_number_loops::<T, Min>(),
        Reduction::Max => make_number_loops::<T, Max>(),
        Reduction::And | Reduction::Or => return None,
    })
}

fn half_loops<T: Half>(reduction: Reduction) -> Option<Loops> {
    Some(match reduction {
        Reduction::Sum => make_half_loops::<T, Sum>(),
        Reduction::Product => make_half_loops::<T, Product>(),
        Reduction::Min => make_half_loops::<T, Min>(),
        Reduction::Max => make_half_loops::<T, Max>(),
        Reduction::And | Reduction::Or => return None,
    })
}

fn bool_loops(reduction: Reduction) -> Option<Loops> {
    let of = |with_later, with_earlier| Loops {
        with_later,
        with_earlier,
        wide: None,
        element_bytes: size_of::<Bool8>(),
    };
    let and = |x: &mut [u8], y: &[u8]| zip(x, y, |x: Bool8, y| Bool8::from(x.get() && y.get()));
    let or = |x: &mut [u8], y: &[u8]| zip(x, y, |x: Bool8, y| Bool8::from(x.get() || y.get()));
    match reduction {
        Reduction::And => Some(of(and, and)),
        Reduction::Or => Some(of(or, or)),
        _ => None,
    }
}

fn make_number_loops<T: Number, O: Operation>() -> Loops {
    Loops {
        with_later: |x, y| zip(x, y, |x: T, y| O::apply(x, y)),
        with_earlier: |x, y| zip(x, y, |x: T, y| O::apply(y, x)),
        wide: None,
        element_bytes: size_of::<T>(),
    }
}

fn make_half_loops<T: Half, O: Operation>() -> Loops {
    Loops {
        with_later: |x, y| zip_halves::<T>(x, y, |x, y| O::apply(x, y)),
        with_earlier: |x, y| zip_halves::<T>(x, y, |x, y| O::apply(y, x)),
        wide: Some(WideLoops {
            widen: |x, y| {
                for (x, y) in x.chunks_mut(BLOCK).zip(y.chunks(BLOCK * size_of::<T>())) {
                    widen::<T>(y, x);
                }
            },
            with_later: |x, y| {
                let mut wide = [0f32; BLOCK];
                for (x, y) in x.chunks_mut(BLOCK).zip(y.chunks(BLOCK * size_of::<T>())) {
                    let wide = &mut wide[..x.len()];
                    widen::<T>(y, wide);
                    x.iter_mut().zip(wide).for_each(|(x, y)| *x = O::apply(*x, *y));
                }
            },
            narrow: |x, y| {
                for (x, y) in x.chunks_mut(BLOCK * size_of::<T>()).zip(y.chunks(BLOCK)) {
                    narrow::<T>(y, x);
                }
            },
        }),
        element_bytes: size_of::<T>(),
    }
}

/// Computes `x = f(x, y)` for all elements.
fn zip<T: Pod>(x: &mut [u8], y: &[u8], f: impl Fn(T, T) -> T) {
    let aligned = bytemuck::try_cast_slice_mut::<u8, T>(x).ok();
    if let (Some(x), Ok(y)) = (aligned, bytemuck::try_cast_slice::<u8, T>(y)) {
        x.iter_mut().zip(y).for_each(|(x, y)| *x = f(*x, *y));
        return;
    }
    let width = size_of::<T>();
    for (x, y) in x.chunks_exact_mut(width).zip(y.chunks_exact(width)) {
        let result = f(bytemuck::pod_read_unaligned(x), bytemuck::pod_read_unaligned(y));
        x.copy_from_slice(bytemuck::bytes_of(&result));
    }
}

/// Number of elements that are converted at a time.
const BLOCK: usize = 256;

/// Computes `x = f(x, y)` for all elements, each in `float` and rounded.
fn zip_halves<T: Half>(x: &mut [u8], y: &[u8], f: impl Fn(f32, f32) -> f32) {
    let (mut wide_x, mut wide_y) = ([0f32; BLOCK], [0f32; BLOCK]);
    let block = BLOCK * size_of::<T>();
    for (x, y) in x.chunks_mut(block).zip(y.chunks(block)) {
        let elems = x.len() / size_of::<T>();
        let (wide_x, wide_y) = (&mut wide_x[..elems], &mut wide_y[..elems]);
        widen::<T>(x, wide_x);
        widen::<T>(y, wide_y);
        wide_x.iter_mut().zip(wide_y).for_each(|(x, y)| *x = f(*x, *y));
        narrow::<T>(wide_x, x);
    }
}

/// Converts at most [`BLOCK`] elements to `float`.
fn widen<T: Half>(bytes: &[u8], wide: &mut [f32]) {
    let mut block = [T::zeroed(); BLOCK];
    let block = &mut block[..wide.len()];
    bytemuck::cast_slice_mut(block).copy_from_slice(bytes);
    T::to_wide(block, wide);
}

/// Rounds at most [`BLOCK`] elements from `float`.
fn narrow<T: Half>(wide: &[f32], bytes: &mut [u8]) {
    let mut block = [T::zeroed(); BLOCK];
    let block = &mut block[..wide.len()];
    T::round(wide, block);
    bytes.copy_from_slice(bytemuck::cast_slice(block));
}

/// Element type with its own arithmetic.
trait Number: Element {
    fn sum(self, later: Self) -> Self;
    fn product(self, later: Self) -> Self;
    fn min(self, later: Self) -> Self;
    fn max(self, later: Self) -> Self;
}

/// Element type whose arithmetic is that of `float`.
trait Half: Element {
    fn to_wide(from: &[Self], into: &mut [f32]);
    fn round(from: &[f32], into: &mut [Self]);
}

macro_rules! integers {
    ($($t:ty)*) => {$(
        impl Number for $t {
            fn sum(self, later: Self) -> Self {
                self.wrapping_add(later)
            }
            fn product(self, later: Self) -> Self {
                self.wrapping_mul(later)
            }
            fn min(self, later: Self) -> Self {
                Ord::min(self, later)
            }
            fn max(self, later: Self) -> Self {
                Ord::max(self, later)
            }
        }
    )*};
}
integers! { i8 i16 i32 i64 u8 u16 u32 u64 }

// All computed NaNs become one bit pattern, because the compiler may swap operands, and machine
// instructions return the NaN of a fixed operand. Minima and maxima of zeros with different signs
// are those of the earlier worker.
macro_rules! floats {
    ($($t:ident)*) => {$(
        impl Number for $t {
            fn sum(self, later: Self) -> Self {
                let sum = self + later;
                if sum.is_nan() { $t::NAN } else { sum }
            }
            fn product(self, later: Self) -> Self {
                let product = self * later;
                if product.is_nan() { $t::NAN } else { product }
            }
            fn min(self, later: Self) -> Self {
                let min = if later < self { later } else { self };
                if self.is_nan() | later.is_nan() { $t::NAN } else { min }
            }
            fn max(self, later: Self) -> Self {
                let max = if later > self { later } else { self };
                if self.is_nan() | later.is_nan() { $t::NAN } else { max }
            }
        }
    )*};
}
floats! { f32 f64 }

macro_rules! halves {
    ($($t:ident)*) => {$(
        impl Half for $t {
            fn to_wide(from: &[Self], into: &mut [f32]) {
                from.convert_to_f32_slice(into);
            }
            fn round(from: &[f32], into: &mut [Self]) {
                into.convert_from_f32_slice(from);
            }
        }
    )*};
}
halves! { f16 bf16 }

trait Operation {
    fn apply<T: Number>(earlier: T, later: T) -> T;
}

macro_rules! operations {
    ($($name:ident $method:ident)*) => {$(
        struct $name;
        impl Operation for $name {
            fn apply<T: Number>(earlier: T, later: T) -> T {
                earlier.$method(later)
            }
        }
    )*};
}
operations! { Sum sum Product product Min min Max max }

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Element>(reduction: Reduction, x: &[T], y: &[T], expected: &[T]) {
        let loops = Loops::new(reduction, T::DATA_TYPE).unwrap();
        let mut later = x.to_vec();
        (loops.with_later)(bytemuck::cast_slice_mut(&mut later), bytemuck::cast_slice(y));
        let mut earlier = y.to_vec();
        (loops.with_earlier)(bytemuck::cast_slice_mut(&mut earlier), bytemuck::cast_slice(x));
        let bytes = |elements: &[T]| bytemuck::cast_slice::<T, u8>(elements).to_vec();
        assert_eq!(bytes(&later), bytes(expected), "{reduction} {later:?}");
        assert_eq!(bytes(&earlier), bytes(expected), "{reduction} {earlier:?}");

        // Repeats the computation with unaligned data.
        let mut odd = [&[0][..], &bytes(x)].concat();
        (loops.with_later)(&mut odd[1..], &[&[0][..], &bytes(y)].concat()[1..]);
        assert_eq!(odd[1..], bytes(expected));
    }

    #[test]
    fn numbers_are_combined_in_their_type() {
        check(Reduction::Sum, &[1f32, 1e30], &[2.5, -1e30], &[3.5, 0.0]);
        check(Reduction::Product, &[3f64], &[-0.5], &[-1.5]);
        check(Reduction::Sum, &[i8::MAX], &[1], &[i8::MIN]);
        check(Reduction::Product, &[u64::MAX], &[2], &[u64::MAX - 1]);
        check(Reduction::Min, &[-3i16, 5], &[4, -6], &[-3, -6]);
        check(Reduction::Max, &[3u32], &[u32::MAX], &[u32::MAX]);
    }

    #[test]
    fn a_nan_stays_and_is_always_the_same() {
        let odd_nan = f32::from_bits(0xffc1_2345);
        for reduction in [Reduction::Sum, Reduction::Product, Reduction::Min, Reduction::Max] {
            check(reduction, &[odd_nan, 1.0], &[1.0, odd_nan], &[f32::NAN, f32::NAN]);
            let half_nan = f16::from_bits(0xfe12);
            check(reduction, &[half_nan, f16::ONE], &[f16::ONE, half_nan], &[f16::NAN; 2]);
        }
        check(Reduction::Sum, &[f64::INFINITY], &[f64::NEG_INFINITY], &[f64::NAN]);
    }

    #[test]
    fn the_earlier_of_equal_zeros_stays() {
        for reduction in [Reduction::Min, Reduction::Max] {
            check(reduction, &[0f32, -0.0], &[-0.0, 0.0], &[0.0, -0.0]);
        }
    }

    #[test]
    fn halves_are_combined_in_float() {
        let (one, small) = (f16::ONE, f16::from_f32(1.0 / 2048.0));
        // Each sum of two elements alone rounds back to 1.
        check(Reduction::Sum, &[one], &[small], &[one]);
        let wide = Loops::new(Reduction::Sum, DataType::Float16).unwrap().wide.unwrap();
        let bytes = |x: f16| x.to_bits().to_ne_bytes().repeat(300);
        let mut sum = vec![0f32; 300];
        (wide.widen)(&mut sum, &bytes(one));
        for _ in 0..2 {
            (wide.with_later)(&mut sum, &bytes(small));
        }
        let mut rounded = bytes(one);
        (wide.narrow)(&mut rounded, &sum);
        assert_eq!(rounded, bytes(f16::from_f32(1.0 + 1.0 / 1024.0)));
        check(Reduction::Max, &[bf16::from_f32(-2.0)], &[bf16::ONE], &[bf16::ONE]);
    }

    #[test]
    fn truth_values_have_and_and_or() {
        let (f, t) = (Bool8(0), Bool8(1));
        check(Reduction::And, &[f, f, t, t], &[f, t, f, t], &[f, f, f, t]);
        check(Reduction::Or, &[f, f, t, t], &[f, t, f, t], &[f, t, t, t]);
        // Any byte except 0 is true.
        check(Reduction::And, &[Bool8(2)], &[Bool8(4)], &[t]);
    }

    #[test]
    fn missing_reductions_are_refused() {
        for (reduction, data_type, message) in [
            (Reduction::Sum, DataType::Bool, "sum of bool over workers is not supported"),
            (Reduction::And, DataType::Int8, "and of int8 over workers is not supported"),
            (Reduction::Or, DataType::Float16, "or of float16 over workers is not supported"),
            (Reduction::Max, DataType::String, "max of string over workers is not supported"),
            (Reduction::Sum, DataType::Int4, "sum of int4 over workers is not supported"),
        ] {
            assert_eq!(Loops::new(reduction, data_type).unwrap_err().message(), message);
        }
    }
}
