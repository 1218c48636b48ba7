//! Arithmetic in which a function is written once for single numbers and for vectors.
//!
//! Each method rounds once or moves bits, so that the bits of a result do not depend on the numbers
//! beside it.

use crate::{Integers, Simd};

/// Numbers that pass through a function together.
pub trait Lanes: Copy {
    fn splat(x: f32) -> Self;
    /// Computes `self * b + c`, fused if the instruction set has it.
    fn fma(self, b: Self, c: Self) -> Self;
    fn add(self, b: Self) -> Self;
    fn sub(self, b: Self) -> Self;
    fn mul(self, b: Self) -> Self;
    fn div(self, b: Self) -> Self;
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    fn copysign(self, sign: Self) -> Self;
    /// Clamps to numbers up to `high`. NaN stays NaN.
    fn at_most(self, high: f32) -> Self;
    /// Clamps to numbers from `low` on. NaN stays NaN.
    fn at_least(self, low: f32) -> Self;
    /// Returns the power of two whose biased exponent is in the low 8 bits, if bit 8 is 0. A biased
    /// exponent of 0 gives 0.
    fn low_bits_power(self) -> Self;
}

/// One number, with fused multiply-adds if `FMA`.
#[derive(Clone, Copy, Debug)]
pub struct Lane<const FMA: bool>(pub f32);

impl<const FMA: bool> Lanes for Lane<FMA> {
    #[inline(always)]
    fn splat(x: f32) -> Self {
        Lane(x)
    }
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        Lane(if FMA { self.0.mul_add(b.0, c.0) } else { self.0 * b.0 + c.0 })
    }
    #[inline(always)]
    fn add(self, b: Self) -> Self {
        Lane(self.0 + b.0)
    }
    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        Lane(self.0 - b.0)
    }
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        Lane(self.0 * b.0)
    }
    #[inline(always)]
    fn div(self, b: Self) -> Self {
        Lane(self.0 / b.0)
    }
    #[inline(always)]
    fn neg(self) -> Self {
        Lane(-self.0)
    }
    #[inline(always)]
    fn abs(self) -> Self {
        Lane(self.0.abs())
    }
    #[inline(always)]
    fn copysign(self, sign: Self) -> Self {
        Lane(self.0.copysign(sign.0))
    }
    #[inline(always)]
    fn at_most(self, high: f32) -> Self {
        Lane(if self.0 > high { high } else { self.0 })
    }
    #[inline(always)]
    fn at_least(self, low: f32) -> Self {
        Lane(if self.0 < low { low } else { self.0 })
    }
    #[inline(always)]
    fn low_bits_power(self) -> Self {
        Lane(f32::from_bits(self.0.to_bits() << 23))
    }
}

/// A vector, which exists only in code that may run `S`, as only [`map_vectors`] makes it.
#[derive(Clone, Copy)]
struct Vector<S: Simd>(S::V);

// The unsafe operations below run only where a vector exists or is made, and so where `S` may run.
impl<S: Simd> Lanes for Vector<S> {
    #[inline(always)]
    fn splat(x: f32) -> Self {
        // SAFETY: see the head of this impl.
        Vector(unsafe { S::splat(x) })
    }
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        // SAFETY: see the head of this impl.
        Vector(unsafe { S::fma(self.0, b.0, c.0) })
    }
    #[inline(always)]
    fn add(self, b: Self) -> Self {
        // SAFETY: see the head of this impl.
        Vector(unsafe { S::add(self.0, b.0) })
    }
    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        // SAFETY: see the head of this impl.
        Vector(unsafe { S::sub(self.0, b.0) })
    }
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        // SAFETY: see the head of this impl.
        Vector(unsafe { S::mul(self.0, b.0) })
    }
    #[inline(always)]
    fn div(self, b: Self) -> Self {
        // SAFETY: see the head of this impl.
        Vector(unsafe { S::div(self.0, b.0) })
    }
    #[inline(always)]
    fn neg(self) -> Self {
        Self::splat(-0.0).sub(self)
    }
    #[inline(always)]
    fn abs(self) -> Self {
        // SAFETY: see the head of this impl.
        Vector(unsafe { S::abs(self.0) })
    }
    #[inline(always)]
    fn copysign(self, sign: Self) -> Self {
        // SAFETY: see the head of this impl.
        Vector(unsafe { S::copysign(self.0, sign.0) })
    }
    #[inline(always)]
    fn at_most(self, high: f32) -> Self {
        // SAFETY: see the head of this impl.
        Vector(unsafe { S::min(S::splat(high), self.0) })
    }
    #[inline(always)]
    fn at_least(self, low: f32) -> Self {
        // SAFETY: see the head of this impl.
        Vector(unsafe { S::max(S::splat(low), self.0) })
    }
    #[inline(always)]
    fn low_bits_power(self) -> Self {
        // SAFETY: see the head of this impl.
        Vector(unsafe { S::I32::of_bits(self.0).shift_left_23().to_bits() })
    }
}

/// Two numbers or vectors whose instructions alternate, so that latencies overlap.
#[derive(Clone, Copy)]
struct Pair<L>(L, L);

impl<L: Lanes> Lanes for Pair<L> {
    #[inline(always)]
    fn splat(x: f32) -> Self {
        Pair(L::splat(x), L::splat(x))
    }
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        Pair(self.0.fma(b.0, c.0), self.1.fma(b.1, c.1))
    }
    #[inline(always)]
    fn add(self, b: Self) -> Self {
        Pair(self.0.add(b.0), self.1.add(b.1))
    }
    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        Pair(self.0.sub(b.0), self.1.sub(b.1))
    }
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        Pair(self.0.mul(b.0), self.1.mul(b.1))
    }
    #[inline(always)]
    fn div(self, b: Self) -> Self {
        Pair(self.0.div(b.0), self.1.div(b.1))
    }
    #[inline(always)]
    fn neg(self) -> Self {
        Pair(self.0.neg(), self.1.neg())
    }
    #[inline(always)]
    fn abs(self) -> Self {
        Pair(self.0.abs(), self.1.abs())
    }
    #[inline(always)]
    fn copysign(self, sign: Self) -> Self {
        Pair(self.0.copysign(sign.0), self.1.copysign(sign.1))
    }
    #[inline(always)]
    fn at_most(self, high: f32) -> Self {
        Pair(self.0.at_most(high), self.1.at_most(high))
    }
    #[inline(always)]
    fn at_least(self, low: f32) -> Self {
        Pair(self.0.at_least(low), self.1.at_least(low))
    }
    #[inline(always)]
    fn low_bits_power(self) -> Self {
        Pair(self.0.low_bits_power(), self.1.low_bits_power())
    }
}

/// A function applied to each number.
pub trait Function: Copy {
    fn apply<L: Lanes>(self, x: L) -> L;
}

/// Rows of numbers, and the rows that receive a function of them.
#[derive(Clone, Copy, Debug)]
pub struct RowPair {
    pub from: *const f32,
    pub to: *mut f32,
    pub rows: usize,
    pub cols: usize,
    /// Row stride of `from`, in floats.
    pub from_stride: usize,
    /// Row stride of `to`, in floats.
    pub to_stride: usize,
}

/// Writes the function of each number of some rows.
///
/// # Safety
///
/// The demands of [`Simd`] must hold. Both sides are valid, and are either one place or do not
/// overlap.
#[inline(always)]
pub unsafe fn map_vectors<S: Simd, F: Function>(function: F, places: &RowPair) {
    let &RowPair { from, to, rows, cols, from_stride, to_stride } = places;
    let lanes = S::LANES;
    for row in 0..rows {
        let mut at = 0;
        // SAFETY: the caller has both sides valid; lanes beyond the end are masked.
        unsafe {
            let (from, to) = (from.add(row * from_stride), to.add(row * to_stride));
            while at + 2 * lanes <= cols {
                let (first, second) = (S::load(from.add(at)), S::load(from.add(at + lanes)));
                let Pair(first, second) =
                    function.apply(Pair(Vector::<S>(first), Vector::<S>(second)));
                S::store(to.add(at), first.0);
                S::store(to.add(at + lanes), second.0);
                at += 2 * lanes;
            }
            while at < cols {
                let mask = S::first(cols - at);
                let y = function.apply(Vector::<S>(S::load_m(from.add(at), mask)));
                S::store_m(to.add(at), mask, y.0);
                at += lanes;
            }
        }
    }
}
