//! Vectors of one instruction set.

use crate::number::f32_to_bf16;
use crate::{Body, Isa, Loop};

/// A vector of elements of one type, with the operations that products use.
///
/// # Safety
///
/// Every function must run on a machine with the instruction set of the vector. Pointers must be
/// valid for the lanes named, at any alignment.
pub trait Vector: Copy + 'static {
    /// Type of a lane.
    type Element: Copy;
    /// Number of lanes, at most 16.
    const LANES: usize;

    unsafe fn splat(x: Self::Element) -> Self;
    unsafe fn load(p: *const Self::Element) -> Self;
    unsafe fn store(self, p: *mut Self::Element);
    /// Computes `self * b + c`, fused if the instruction set has it.
    unsafe fn fma(self, b: Self, c: Self) -> Self;
}

/// A vector of integers of 32 bits, or of pairs of integers of 16 bits, in the lanes of a vector of
/// floats. Arithmetic wraps.
///
/// # Safety
///
/// Every function must run on a machine with the instruction set of the vector.
pub trait Integers: Copy + 'static {
    /// Vector of floats of equal size.
    type Floats: Copy;

    /// Reinterprets the bits of floats as integers.
    unsafe fn of_bits(floats: Self::Floats) -> Self;
    /// Reinterprets the bits as floats.
    unsafe fn to_bits(self) -> Self::Floats;
    unsafe fn splat(x: i32) -> Self;
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn and(self, other: Self) -> Self;
    unsafe fn or(self, other: Self) -> Self;
    /// Shifts each lane right by `count` bits, a constant of the caller less than 32, and fills
    /// with zeros.
    unsafe fn shift_right(self, count: u32) -> Self;
    /// Shifts each lane left by 23 bits, which moves biased exponents of floats to their place.
    unsafe fn shift_left_23(self) -> Self;
    /// Adds to each lane of `sum` the two products of the lanes as pairs of integers of 16 bits.
    unsafe fn dot_pairs(self, other: Self, sum: Self) -> Self;
}

/// Vectors of f32 on one instruction set, with the vector types of other elements.
///
/// # Safety
///
/// Every function must run on a machine with [`Simd::ISA`]. Pointers must be valid for the lanes
/// named. Lanes that a mask leaves out are never accessed.
pub trait Simd: Copy + 'static {
    /// Vector of floats.
    type V: Copy;
    /// Vector of doubles.
    type F64: Vector<Element = f64>;
    /// Vector of integers of 32 bits, with as many lanes as a vector of floats.
    type I32: Integers<Floats = Self::V>;
    /// Mask of the first lanes.
    type M: Copy;
    /// Table of 32 numbers, in registers where they fit.
    type Of32: Copy;
    const ISA: Isa;
    /// Number of lanes of a vector of floats, at most 16.
    const LANES: usize;
    /// Whether tiles prefetch their operands in software. Vectors of half a cache line would need
    /// twice as many requests, each of which takes the place of a load.
    const FETCHES: bool;

    /// Runs a loop that the compiler vectorizes.
    fn run_loop<L: Loop>(body: L) -> L::Out;
    /// Runs `body` in a function of its own that all callers share.
    ///
    /// # Safety
    ///
    /// The demands of the body must hold.
    unsafe fn call<B: Body>(body: B) -> B::Out;
    unsafe fn splat(x: f32) -> Self::V;
    unsafe fn load(p: *const f32) -> Self::V;
    unsafe fn store(p: *mut f32, v: Self::V);
    /// Returns the mask of the first `n` lanes. `n` may exceed [`Simd::LANES`].
    unsafe fn first(n: usize) -> Self::M;
    /// Loads the lanes of a mask. Other lanes are zero.
    unsafe fn load_m(p: *const f32, m: Self::M) -> Self::V;
    unsafe fn store_m(p: *mut f32, m: Self::M, v: Self::V);
    /// Computes `a * b + c`, fused if the instruction set has it.
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn div(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn sqrt(a: Self::V) -> Self::V;
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn min(a: Self::V, b: Self::V) -> Self::V;
    /// Returns the greater number of each lane, or NaN where either is NaN.
    unsafe fn max_or_nan(a: Self::V, b: Self::V) -> Self::V;
    /// Returns the smaller number of each lane, or NaN where either is NaN.
    unsafe fn min_or_nan(a: Self::V, b: Self::V) -> Self::V;
    /// Replaces lane `i` of `v` by `p[i * stride]` for each bit `i` set in `lanes`. `p` itself need
    /// not be a valid address.
    unsafe fn select(v: Self::V, lanes: u32, p: *const f32, stride: usize) -> Self::V;
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn abs(a: Self::V) -> Self::V;
    /// Returns the magnitudes of `a` with the signs of `sign`.
    unsafe fn copysign(a: Self::V, sign: Self::V) -> Self::V;
    /// Loads the table of 32 numbers at `p`.
    unsafe fn load_32(p: *const f32) -> Self::Of32;
    /// Looks up in each lane the number whose index is in the lane's lowest five bits.
    unsafe fn look_up_32(numbers: Self::Of32, indices: Self::V) -> Self::V;
    /// Prefetches the cache line of `p`, which need not be a valid address.
    unsafe fn prefetch(_p: *const f32) {}
    /// Prefetches a cache line that will be written.
    unsafe fn prefetch_write(_p: *const f32) {}
    /// Prefetches a cache line into the second-level cache only.
    unsafe fn prefetch_far(_p: *const f32) {}
    /// Loads f16 elements at any alignment and widens them.
    unsafe fn load_f16(p: *const u16) -> Self::V;
    /// Stores the numbers rounded to the nearest f16, ties to even.
    unsafe fn store_f16(p: *mut u16, v: Self::V);
    unsafe fn load_bf16(p: *const u16) -> Self::V;
    /// Stores the numbers rounded to the nearest bf16, ties to even.
    #[inline(always)]
    unsafe fn store_bf16(p: *mut u16, v: Self::V) {
        let mut lanes = [0.0f32; 16];
        // SAFETY: a vector has at most 16 lanes, and the caller has `LANES` writable elements at
        // `p`.
        unsafe {
            Self::store(lanes.as_mut_ptr(), v);
            for (i, x) in lanes.iter().enumerate().take(Self::LANES) {
                p.add(i).write_unaligned(f32_to_bf16(*x).to_bits());
            }
        }
    }
    /// Sums the lanes in an order that depends only on the instruction set.
    unsafe fn sum(v: Self::V) -> f32;
    /// Writes the transpose of the `LANES` x `LANES` block at `src` (rows `src_stride` apart) to
    /// `dst` (rows `dst_stride` apart).
    unsafe fn transpose(src: *const f32, src_stride: usize, dst: *mut f32, dst_stride: usize);
}

#[cfg(test)]
mod tests;
