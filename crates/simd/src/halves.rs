//! Floats of 16 bits to floats and back in vectors: the one place that widens and rounds slices.

use half::{bf16, f16};

use crate::number::Number;
use crate::{Body, Level, Simd};

/// A type of 16 bits that computes in f32.
pub trait Half: Number<Wide = f32> {
    /// Loads a vector of elements, which may lie at any address.
    ///
    /// # Safety
    ///
    /// `from` must be readable for a vector, on a machine with `S`.
    unsafe fn load<S: Simd>(from: *const Self) -> S::V;

    /// Rounds to the nearest, ties to even.
    ///
    /// # Safety
    ///
    /// `to` must be writable for a vector, on a machine with `S`.
    unsafe fn store<S: Simd>(to: *mut Self, v: S::V);
}

impl Half for f16 {
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const f16) -> S::V {
        // SAFETY: the caller's promise; a half is its 16 bits.
        unsafe { S::load_f16(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store<S: Simd>(to: *mut f16, v: S::V) {
        // SAFETY: as above.
        unsafe { S::store_f16(to.cast(), v) }
    }
}

impl Half for bf16 {
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const bf16) -> S::V {
        // SAFETY: the caller's promise; a bfloat16 is its 16 bits.
        unsafe { S::load_bf16(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store<S: Simd>(to: *mut bf16, v: S::V) {
        // SAFETY: as above.
        unsafe { S::store_bf16(to.cast(), v) }
    }
}

/// Widens the elements of `from` into `to`.
///
/// # Panics
///
/// If the lengths differ.
pub(crate) fn widen<T: Half>(level: Level, from: &[T], to: &mut [f32]) {
    assert_eq!(from.len(), to.len(), "one float for each half");
    // SAFETY: the lengths are the same.
    unsafe { level.run_body(Widen { from, to }) }
}

/// Rounds the floats of `from` to elements of `to`.
///
/// # Panics
///
/// If the lengths differ.
pub(crate) fn narrow<T: Half>(level: Level, from: &[f32], to: &mut [T]) {
    assert_eq!(from.len(), to.len(), "one half for each float");
    // SAFETY: the lengths are the same.
    unsafe { level.run_body(Narrow { from, to }) }
}

/// Slices of one length.
struct Widen<'a, T> {
    from: &'a [T],
    to: &'a mut [f32],
}

impl<T: Half> Body for Widen<'_, T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Some(last) = self.from.len().checked_sub(S::LANES) else {
            for (to, from) in self.to.iter_mut().zip(self.from) {
                *to = from.widen();
            }
            return;
        };
        let (from, to) = (self.from.as_ptr(), self.to.as_mut_ptr());
        let mut at = 0;
        // SAFETY: vectors up to the one that begins at `last` are inside both slices.
        unsafe {
            while at < last {
                S::store(to.add(at), T::load::<S>(from.add(at)));
                at += S::LANES;
            }
            S::store(to.add(last), T::load::<S>(from.add(last)));
        }
    }
}

/// Slices of one length.
struct Narrow<'a, T> {
    from: &'a [f32],
    to: &'a mut [T],
}

impl<T: Half> Body for Narrow<'_, T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Some(last) = self.from.len().checked_sub(S::LANES) else {
            for (to, from) in self.to.iter_mut().zip(self.from) {
                *to = T::narrow(*from);
            }
            return;
        };
        let (from, to) = (self.from.as_ptr(), self.to.as_mut_ptr());
        let mut at = 0;
        // SAFETY: vectors up to the one that begins at `last` are inside both slices.
        unsafe {
            while at < last {
                T::store::<S>(to.add(at), S::load(from.add(at)));
                at += S::LANES;
            }
            T::store::<S>(to.add(last), S::load(from.add(last)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    /// Checks every half through the vectors of each instruction set, and through the loop for few.
    fn check<T: Half>(from_bits: fn(u16) -> T, to_bits: fn(T) -> u16) {
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
            // Between halves: just below, at and above the middle.
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
