//! Conversion of slices between floats of 16 bits and of 32 bits, in vectors.

use half::{bf16, f16};

use crate::number::Number;
use crate::{Body, Level, Simd};

/// A float type of 16 bits, or f32 itself, whose elements load as vectors of f32.
pub trait FloatVectors: Number<Wide = f32> {
    /// Loads a vector of elements, which may lie at any address.
    ///
    /// # Safety
    ///
    /// `from` must be readable for a vector, on a machine with `S`.
    unsafe fn load<S: Simd>(from: *const Self) -> S::V;

    /// Stores a vector of floats, rounded to the nearest element, ties to even.
    ///
    /// # Safety
    ///
    /// `to` must be writable for a vector, on a machine with `S`.
    unsafe fn store<S: Simd>(to: *mut Self, v: S::V);
}

impl FloatVectors for f32 {
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const f32) -> S::V {
        // SAFETY: the caller has `from` readable for a vector on a machine with `S`.
        unsafe { S::load(from) }
    }

    #[inline(always)]
    unsafe fn store<S: Simd>(to: *mut f32, v: S::V) {
        // SAFETY: the caller has `to` writable for a vector on a machine with `S`.
        unsafe { S::store(to, v) }
    }
}

impl FloatVectors for f16 {
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const f16) -> S::V {
        // SAFETY: the caller has `from` readable for a vector on a machine with `S`; an f16 is its
        // 16 bits.
        unsafe { S::load_f16(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store<S: Simd>(to: *mut f16, v: S::V) {
        // SAFETY: the caller has `to` writable for a vector on a machine with `S`; an f16 is its 16
        // bits.
        unsafe { S::store_f16(to.cast(), v) }
    }
}

impl FloatVectors for bf16 {
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const bf16) -> S::V {
        // SAFETY: the caller has `from` readable for a vector on a machine with `S`; a bf16 is its
        // 16 bits.
        unsafe { S::load_bf16(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store<S: Simd>(to: *mut bf16, v: S::V) {
        // SAFETY: the caller has `to` writable for a vector on a machine with `S`; a bf16 is its 16
        // bits.
        unsafe { S::store_bf16(to.cast(), v) }
    }
}

/// Widens the elements of `from` into `to`.
///
/// # Panics
///
/// If the lengths differ.
pub(crate) fn widen<T: FloatVectors>(level: Level, from: &[T], to: &mut [f32]) {
    convert(level, from, to);
}

/// Rounds the floats of `from` to elements of `to`.
///
/// # Panics
///
/// If the lengths differ.
pub(crate) fn narrow<T: FloatVectors>(level: Level, from: &[f32], to: &mut [T]) {
    convert(level, from, to);
}

fn convert<A: FloatVectors, B: FloatVectors>(level: Level, from: &[A], to: &mut [B]) {
    assert_eq!(from.len(), to.len(), "one element for each");
    // SAFETY: the lengths are equal.
    unsafe { level.run_body(Convert { from, to }) }
}

/// Conversion of a slice into another one of equal length.
struct Convert<'a, A, B> {
    from: &'a [A],
    to: &'a mut [B],
}

impl<A: FloatVectors, B: FloatVectors> Body for Convert<'_, A, B> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Some(last) = self.from.len().checked_sub(S::LANES) else {
            for (to, from) in self.to.iter_mut().zip(self.from) {
                *to = B::narrow(from.widen());
            }
            return;
        };
        let (from, to) = (self.from.as_ptr(), self.to.as_mut_ptr());
        let mut at = 0;
        // SAFETY: vectors up to the one that begins at `last` are inside both slices.
        unsafe {
            while at < last {
                B::store::<S>(to.add(at), A::load::<S>(from.add(at)));
                at += S::LANES;
            }
            B::store::<S>(to.add(last), A::load::<S>(from.add(last)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    /// Checks every half through the vectors of each instruction set, and through the loop for few.
    fn check<T: FloatVectors>(from_bits: fn(u16) -> T, to_bits: fn(T) -> u16) {
        let all: Vec<T> = (0..=u16::MAX).chain(0..5).map(from_bits).collect();
        for &isa in Isa::available() {
            let level = Level::new(isa);
            let mut wide = vec![1.0; all.len()];
            widen(level, &all, &mut wide);
            let mut back = vec![T::ONE; all.len()];
            narrow(level, &wide, &mut back);
            for ((half, wide), back) in all.iter().zip(&wide).zip(&back) {
                let (expected, bits) = (half.widen(), to_bits(*half));
                if expected.is_nan() {
                    assert!(wide.is_nan() && back.widen().is_nan(), "{isa:?} {bits:#x}");
                } else {
                    assert_eq!(wide.to_bits(), expected.to_bits(), "{isa:?} {bits:#x}");
                    assert_eq!(to_bits(*back), bits, "{isa:?}");
                }
            }
            // Test between neighbouring halves: just below, at and just above the middle.
            let mut between: Vec<f32> = wide.iter().filter(|x| x.is_finite()).copied().collect();
            between.dedup();
            let ties: Vec<f32> = between
                .windows(2)
                .map(|pair| pair[0] / 2.0 + pair[1] / 2.0)
                .flat_map(|tie| [tie.next_down(), tie, tie.next_up()])
                .collect();
            let mut rounded = vec![T::ONE; ties.len()];
            narrow(level, &ties, &mut rounded);
            for (x, rounded) in ties.iter().zip(rounded) {
                assert_eq!(to_bits(rounded), to_bits(T::narrow(*x)), "{isa:?} {x:e}");
            }
        }
    }

    #[test]
    fn every_half() {
        check(f16::from_bits, f16::to_bits);
        check(bf16::from_bits, bf16::to_bits);
    }
}
