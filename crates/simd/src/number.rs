//! Element types of kernels, and the operations on one element of each.
//!
//! Every type has a *wide* type in which it computes ([`Number::Wide`]): f32 for f16 and bf16, the
//! type itself for all others. Kernels load, widen, compute, narrow and store. All of these steps
//! are branch-free and inline, so that loops over any type vectorize, including the conversions of
//! f16 and bf16.
//!
//! Integers wrap. Integer division truncates; a division or remainder by zero gives 0, and MIN / -1
//! wraps to MIN.

use std::fmt::Debug;

use half::{bf16, f16};

use crate::buffer::AnyBits;
use crate::{Level, Loop, halves};

/// An element type.
pub trait Number: Copy + Default + PartialEq + PartialOrd + Debug + Send + Sync + 'static {
    /// Type in which this type computes.
    type Wide: Arith;
    /// Floating-point type of functions that only floats have (roots, logarithms): f32 for f32, f16
    /// and bf16, else f64.
    type Real: Math;
    const ZERO: Self;
    const ONE: Self;
    /// The smallest value: minus infinity for floats.
    const LOWEST: Self;
    /// The greatest value: infinity for floats.
    const HIGHEST: Self;
    const IS_FLOAT: bool;
    fn widen(self) -> Self::Wide;
    /// Rounds a number of the wide type to the nearest, ties to even.
    fn narrow(wide: Self::Wide) -> Self;
    fn to_real(self) -> Self::Real;
    /// Converts a real number. Floats round to the nearest; integers truncate and saturate, and NaN
    /// becomes 0.
    fn from_real(real: Self::Real) -> Self;
    fn to_f64(self) -> f64;
    /// Converts an f64 with the rules of [`Number::from_real`].
    fn from_f64(x: f64) -> Self;
    /// Returns the elements themselves if the wide type is the type itself.
    fn as_wide(elements: &[Self]) -> Option<&[Self::Wide]>;
    /// Returns the elements themselves for writing if the wide type is the type itself.
    fn as_wide_mut(elements: &mut [Self]) -> Option<&mut [Self::Wide]>;
    /// Widens the elements of `from` into `to`, which is as long.
    fn widen_all(level: Level, from: &[Self], to: &mut [Self::Wide]);
    /// Rounds the numbers of `from` to elements of `to`, which is as long, like [`Number::narrow`].
    fn narrow_all(level: Level, from: &[Self::Wide], to: &mut [Self]);
    /// Writes [`Number::to_real`] of each element of `from` to `to`, which is as long.
    fn to_reals_all(_: Level, from: &[Self], to: &mut [Self::Real]) {
        for (to, from) in to.iter_mut().zip(from) {
            *to = from.to_real();
        }
    }
    /// Writes [`Number::from_real`] of each number of `from` to `to`, which is as long.
    fn from_reals_all(_: Level, from: &[Self::Real], to: &mut [Self]) {
        for (to, from) in to.iter_mut().zip(from) {
            *to = Self::from_real(*from);
        }
    }
    /// Runs a loop over this type, compiled for a number of instruction sets that depends on the
    /// type: three for f32, AVX2 and the target's own for other floats, the target's own for
    /// integers. Every copy takes time to build and to load.
    #[doc(hidden)]
    fn run<B: Loop>(level: Level, body: B) -> B::Out;
}

/// A type that computes in itself: f32, f64 and the integers.
pub trait Arith: Number<Wide = Self> + AnyBits {
    /// Type of accumulators of long sums: f64 for floats, the type itself (wrapping) for integers.
    type Total: Arith<Total = Self::Total>;
    fn to_total(self) -> Self::Total;
    fn from_total(total: Self::Total) -> Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;
    /// Computes the remainder with the sign of the divisor, like Python's `%`.
    fn modulo(self, other: Self) -> Self;
    /// Computes the remainder with the sign of the dividend, like C's `fmod`.
    fn rem(self, other: Self) -> Self;
    /// Raises `self` to a power. A negative exponent of an integer gives the truncated quotient: 0
    /// unless the base is 1 or -1.
    fn pow(self, exponent: Self) -> Self;
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    /// Returns -1, 0 or 1 by the sign of `self`. NaN stays NaN.
    fn sign(self) -> Self;
    fn is_nan(self) -> bool;

    /// Returns the greater number, or NaN if either is NaN.
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        let greater = if self > other { self } else { other };
        // The comparison selects `other` when either is NaN.
        if self.is_nan() { self } else { greater }
    }

    /// Returns the smaller number, or NaN if either is NaN.
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        let smaller = if self < other { self } else { other };
        if self.is_nan() { self } else { smaller }
    }
}

/// Floats in which kernels compute: f32 and f64.
///
/// `FMA` is true in code compiled for a machine with fused multiply-add, where it is one
/// instruction. Elsewhere it would be a call into the C library.
pub trait Math: Arith<Real = Self> {
    /// Computes `self * b + c`, fused if `FMA`.
    fn mul_add<const FMA: bool>(self, b: Self, c: Self) -> Self;
    fn sqrt(self) -> Self;
    fn ceil(self) -> Self;
    fn floor(self) -> Self;
    /// Rounds to the nearest integer, ties to even.
    fn round_even(self) -> Self;
    fn exp<const FMA: bool>(self) -> Self;
    /// Computes the exponential of a number up to 0. Exponentials that would be subnormal may be 0.
    fn exp_nonpositive<const FMA: bool>(self) -> Self;
    fn ln<const FMA: bool>(self) -> Self;
    /// Computes `ln(1 + exp(self))`.
    fn softplus<const FMA: bool>(self) -> Self;
    fn expm1<const FMA: bool>(self) -> Self;
    fn tanh<const FMA: bool>(self) -> Self;
    fn sigmoid<const FMA: bool>(self) -> Self;
    fn erf<const FMA: bool>(self) -> Self;
    /// Computes `self / 2 * (1 + erf(self / sqrt 2))`.
    fn gelu<const FMA: bool>(self) -> Self;
    /// Computes the approximation of [`Math::gelu`] by tanh.
    fn gelu_tanh<const FMA: bool>(self) -> Self;
    fn sin<const FMA: bool>(self) -> Self;
    fn cos<const FMA: bool>(self) -> Self;
    fn tan<const FMA: bool>(self) -> Self;
    fn asin<const FMA: bool>(self) -> Self;
    fn acos<const FMA: bool>(self) -> Self;
    fn atan<const FMA: bool>(self) -> Self;
    fn sinh<const FMA: bool>(self) -> Self;
    fn cosh<const FMA: bool>(self) -> Self;
    fn asinh<const FMA: bool>(self) -> Self;
    fn acosh<const FMA: bool>(self) -> Self;
    fn atanh<const FMA: bool>(self) -> Self;
    fn copysign(self, sign: Self) -> Self;
    fn is_infinite(self) -> bool;
}

macro_rules! integers {
    ($($t:ty),*) => { $(
        impl Number for $t {
            type Wide = $t;
            type Real = f64;
            const ZERO: $t = 0;
            const ONE: $t = 1;
            const LOWEST: $t = <$t>::MIN;
            const HIGHEST: $t = <$t>::MAX;
            const IS_FLOAT: bool = false;
            #[inline(always)]
            fn widen(self) -> $t { self }
            #[inline(always)]
            fn narrow(wide: $t) -> $t { wide }
            #[inline(always)]
            fn to_real(self) -> f64 { self as f64 }
            #[inline(always)]
            fn from_real(real: f64) -> $t { real as $t }
            #[inline(always)]
            fn to_f64(self) -> f64 { self as f64 }
            #[inline(always)]
            fn from_f64(x: f64) -> $t { x as $t }
            #[inline(always)]
            fn as_wide(elements: &[$t]) -> Option<&[$t]> { Some(elements) }
            #[inline(always)]
            fn as_wide_mut(elements: &mut [$t]) -> Option<&mut [$t]> { Some(elements) }
            #[inline(always)]
            fn widen_all(_: Level, from: &[$t], to: &mut [$t]) { to.copy_from_slice(from) }
            #[inline(always)]
            fn narrow_all(_: Level, from: &[$t], to: &mut [$t]) { to.copy_from_slice(from) }
            #[inline(always)]
            fn run<B: Loop>(_: Level, body: B) -> B::Out { body.run::<false>() }
        }

        impl Arith for $t {
            type Total = $t;
            #[inline(always)]
            fn to_total(self) -> $t { self }
            #[inline(always)]
            fn from_total(total: $t) -> $t { total }
            #[inline(always)]
            fn add(self, other: $t) -> $t { self.wrapping_add(other) }
            #[inline(always)]
            fn sub(self, other: $t) -> $t { self.wrapping_sub(other) }
            #[inline(always)]
            fn mul(self, other: $t) -> $t { self.wrapping_mul(other) }
            #[inline(always)]
            fn div(self, other: $t) -> $t {
                if other == 0 { 0 } else { self.wrapping_div(other) }
            }
            #[inline(always)]
            fn modulo(self, other: $t) -> $t {
                let rem = self.rem(other);
                #[allow(unused_comparisons)]
                let opposite = rem != 0 && (rem < 0) != (other < 0);
                if opposite { rem.wrapping_add(other) } else { rem }
            }
            #[inline(always)]
            fn rem(self, other: $t) -> $t {
                if other == 0 { 0 } else { self.wrapping_rem(other) }
            }
            #[inline(always)]
            fn pow(self, exponent: $t) -> $t {
                #[allow(unused_comparisons)]
                if exponent < 0 {
                    return match self {
                        1 => 1,
                        // -1, if the type has it: odd exponents keep the sign.
                        x if x == (0 as $t).wrapping_sub(1) => if exponent & 1 == 0 { 1 } else { x },
                        _ => 0,
                    };
                }
                let (mut base, mut left, mut power) = (self, exponent, 1 as $t);
                while left > 0 {
                    if left & 1 == 1 {
                        power = power.wrapping_mul(base);
                    }
                    base = base.wrapping_mul(base);
                    left >>= 1;
                }
                power
            }
            #[inline(always)]
            fn neg(self) -> $t { self.wrapping_neg() }
            #[inline(always)]
            fn abs(self) -> $t {
                #[allow(unused_comparisons)]
                if self < 0 { self.wrapping_neg() } else { self }
            }
            #[inline(always)]
            fn sign(self) -> $t {
                #[allow(unused_comparisons)]
                if self < 0 { (0 as $t).wrapping_sub(1) } else { (self > 0) as $t }
            }
            #[inline(always)]
            fn is_nan(self) -> bool { false }
        }
    )* };
}

integers!(i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! wide_floats {
    ($($t:ident, $run:ident);*) => { $(
        impl Number for $t {
            type Wide = $t;
            type Real = $t;
            const ZERO: $t = 0.0;
            const ONE: $t = 1.0;
            const LOWEST: $t = $t::NEG_INFINITY;
            const HIGHEST: $t = $t::INFINITY;
            const IS_FLOAT: bool = true;
            #[inline(always)]
            fn widen(self) -> $t { self }
            #[inline(always)]
            fn narrow(wide: $t) -> $t { wide }
            #[inline(always)]
            fn to_real(self) -> $t { self }
            #[inline(always)]
            fn from_real(real: $t) -> $t { real }
            #[inline(always)]
            fn to_f64(self) -> f64 { self as f64 }
            #[inline(always)]
            fn from_f64(x: f64) -> $t { x as $t }
            #[inline(always)]
            fn as_wide(elements: &[$t]) -> Option<&[$t]> { Some(elements) }
            #[inline(always)]
            fn as_wide_mut(elements: &mut [$t]) -> Option<&mut [$t]> { Some(elements) }
            #[inline(always)]
            fn widen_all(_: Level, from: &[$t], to: &mut [$t]) { to.copy_from_slice(from) }
            #[inline(always)]
            fn narrow_all(_: Level, from: &[$t], to: &mut [$t]) { to.copy_from_slice(from) }
            #[inline(always)]
            fn run<B: Loop>(level: Level, body: B) -> B::Out { level.$run(body) }
        }

        impl Arith for $t {
            type Total = f64;
            #[inline(always)]
            fn to_total(self) -> f64 { self as f64 }
            #[inline(always)]
            fn from_total(total: f64) -> $t { total as $t }
            #[inline(always)]
            fn add(self, other: $t) -> $t { self + other }
            #[inline(always)]
            fn sub(self, other: $t) -> $t { self - other }
            #[inline(always)]
            fn mul(self, other: $t) -> $t { self * other }
            #[inline(always)]
            fn div(self, other: $t) -> $t { self / other }
            #[inline(always)]
            fn modulo(self, other: $t) -> $t {
                let rem = self % other;
                // A remainder of zero has the sign of the divisor too.
                let signed = if rem == 0.0 { rem.copysign(other) } else { rem };
                if rem != 0.0 && (rem < 0.0) != (other < 0.0) { rem + other } else { signed }
            }
            #[inline(always)]
            fn rem(self, other: $t) -> $t { self % other }
            #[inline(always)]
            fn pow(self, exponent: $t) -> $t { self.powf(exponent) }
            #[inline(always)]
            fn neg(self) -> $t { -self }
            #[inline(always)]
            fn abs(self) -> $t { $t::abs(self) }
            #[inline(always)]
            fn sign(self) -> $t {
                if self > 0.0 { 1.0 } else if self < 0.0 { -1.0 } else { self }
            }
            #[inline(always)]
            fn is_nan(self) -> bool { $t::is_nan(self) }
            // One instruction takes the greater, or `other` where either is NaN; setting bits
            // restores a NaN in `self`. A second selection would do as well, but makes the compiler
            // use masked stores, which later loads wait for.
            #[inline(always)]
            fn max(self, other: $t) -> $t {
                let greater = if self > other { self } else { other };
                let nan = if self.is_nan() { $t::NAN.to_bits() } else { 0 };
                $t::from_bits(greater.to_bits() | nan)
            }
            #[inline(always)]
            fn min(self, other: $t) -> $t {
                let smaller = if self < other { self } else { other };
                let nan = if self.is_nan() { $t::NAN.to_bits() } else { 0 };
                $t::from_bits(smaller.to_bits() | nan)
            }
        }
    )* };
}

wide_floats!(f32, run; f64, run_avx2);

macro_rules! narrow_floats {
    ($($t:ident, $widen:ident, $narrow:ident);*) => { $(
        impl Number for $t {
            type Wide = f32;
            type Real = f32;
            const ZERO: $t = $t::ZERO;
            const ONE: $t = $t::ONE;
            const LOWEST: $t = $t::NEG_INFINITY;
            const HIGHEST: $t = $t::INFINITY;
            const IS_FLOAT: bool = true;
            #[inline(always)]
            fn widen(self) -> f32 { $widen(self) }
            #[inline(always)]
            fn narrow(wide: f32) -> $t { $narrow(wide) }
            #[inline(always)]
            fn to_real(self) -> f32 { $widen(self) }
            #[inline(always)]
            fn from_real(real: f32) -> $t { $narrow(real) }
            #[inline(always)]
            fn to_f64(self) -> f64 { $widen(self) as f64 }
            #[inline(always)]
            fn from_f64(x: f64) -> $t { $narrow(to_f32_odd(x)) }
            #[inline(always)]
            fn as_wide(_: &[$t]) -> Option<&[f32]> { None }
            #[inline(always)]
            fn as_wide_mut(_: &mut [$t]) -> Option<&mut [f32]> { None }
            fn widen_all(level: Level, from: &[$t], to: &mut [f32]) { halves::widen(level, from, to) }
            fn narrow_all(level: Level, from: &[f32], to: &mut [$t]) { halves::narrow(level, from, to) }
            fn to_reals_all(level: Level, from: &[$t], to: &mut [f32]) { halves::widen(level, from, to) }
            fn from_reals_all(level: Level, from: &[f32], to: &mut [$t]) { halves::narrow(level, from, to) }
            #[inline(always)]
            fn run<B: Loop>(level: Level, body: B) -> B::Out { level.run_avx2(body) }
        }
    )* };
}

narrow_floats!(f16, f16_to_f32, f32_to_f16; bf16, bf16_to_f32, f32_to_bf16);

// The `half` crate checks the CPU for its conversion instructions at every element, which keeps
// loops from vectorizing. The functions below use integer arithmetic and selects only. They follow
// the idea that Fabian Giesen published as "half_to_float" and "float_to_half_fast3_rtne":
// floating-point addition does the shifting and rounding of subnormals.

/// Rounds `x` to odd: returns `x` if it is an f32, else the adjacent f32 whose last bit is set.
/// That lies on the same side as `x` of all numbers of narrower types and of all ties between them,
/// so that it can be rounded once more (Boldo and Melquiond, "Emulation of a FMA and correctly
/// rounded sums: proved algorithms using rounding to odd", 2008). The `half` crate reads only the
/// upper half of a double, and so takes a number just above a tie for the tie.
#[inline(always)]
pub fn to_f32_odd(x: f64) -> f32 {
    let nearest = x as f32;
    let bits = nearest.to_bits();
    let is_odd = bits & 1 == 1;
    let towards_x = if f64::from(nearest).abs() > x.abs() {
        bits.wrapping_sub(1)
    } else {
        bits.wrapping_add(1)
    };
    let is_exact = f64::from(nearest) == x || x.is_nan();
    f32::from_bits(if is_exact || is_odd { bits } else { towards_x })
}

/// Converts an f16 to an f32, exactly.
#[inline(always)]
pub fn f16_to_f32(x: f16) -> f32 {
    let x = u32::from(x.to_bits());
    let magnitude = (x & 0x7fff) << 13;
    // Exponent bias 15 to 127.
    let normal = magnitude + (112 << 23);
    // A subnormal is mantissa * 2^-24. Put the mantissa below an implicit one of weight 2^-14 and
    // subtract that.
    let subnormal = f32::from_bits(magnitude + (113 << 23)) - f32::from_bits(113 << 23);
    let bits = if magnitude >= 0x1f << 23 {
        normal + (112 << 23)
    } else if magnitude < 1 << 23 {
        subnormal.to_bits()
    } else {
        normal
    };
    f32::from_bits(bits | (x & 0x8000) << 16)
}

/// Rounds an f32 to the nearest f16, ties to even.
#[inline(always)]
pub fn f32_to_f16(x: f32) -> f16 {
    let bits = x.to_bits();
    let sign = bits >> 16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    // Rounds up the lower half of the mantissa unless it is below a tie, or at a tie with an even
    // upper half.
    let odd = magnitude >> 13 & 1;
    let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + odd) >> 13;
    // Adding 0.5 leaves an ulp of 2^-24, the unit of half's subnormals.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let special = if magnitude > 0x7f80_0000 { 0x7e00 | magnitude >> 13 & 0x3ff } else { 0x7c00 };
    let half = if magnitude >= 143 << 23 {
        special
    } else if magnitude < 113 << 23 {
        subnormal
    } else {
        normal
    };
    f16::from_bits((half | sign) as u16)
}

/// Converts a bf16 to an f32, exactly.
#[inline(always)]
pub fn bf16_to_f32(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << 16)
}

/// Rounds an f32 to the nearest bf16, ties to even.
#[inline(always)]
pub fn f32_to_bf16(x: f32) -> bf16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    // Rounding could carry a NaN into infinity.
    let bits = if x.is_nan() { bits | 0x40_0000 } else { rounded };
    bf16::from_bits((bits >> 16) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_widens_and_narrows_back() {
        for bits in 0..=u16::MAX {
            let half = f16::from_bits(bits);
            let wide = f16_to_f32(half);
            if half.is_nan() {
                assert!(wide.is_nan() && f32_to_f16(wide).is_nan());
            } else {
                assert_eq!(wide.to_bits(), half.to_f32().to_bits(), "{bits:#x}");
                assert_eq!(f32_to_f16(wide).to_bits(), bits);
            }
            let brain = bf16::from_bits(bits);
            let wide = bf16_to_f32(brain);
            if brain.is_nan() {
                assert!(wide.is_nan() && f32_to_bf16(wide).is_nan());
            } else {
                assert_eq!(wide.to_bits(), brain.to_f32().to_bits());
                assert_eq!(f32_to_bf16(wide).to_bits(), bits);
            }
        }
    }

    #[test]
    fn floats_narrow_to_the_nearest() {
        // A stride coprime to the mantissa walks through ties, overflow, subnormals and NaN. The
        // neighbours of every tie are added.
        let sampled = (0..u32::MAX).step_by(4099);
        let ties = (0..=u16::MAX).flat_map(|h| {
            let tie = (f16_to_f32(f16::from_bits(h)).to_bits()).wrapping_add(0x1000);
            [tie.wrapping_sub(1), tie, tie.wrapping_add(1)]
        });
        for bits in sampled.chain(ties) {
            let x = f32::from_bits(bits);
            if x.is_nan() {
                assert!(f32_to_f16(x).is_nan() && f32_to_bf16(x).is_nan());
            } else {
                assert_eq!(f32_to_f16(x), f16::from_f32_const(x), "{x:e}");
                assert_eq!(f32_to_bf16(x), bf16::from_f32(x), "{x:e}");
            }
        }
    }

    #[test]
    fn doubles_narrow_to_the_nearest() {
        // Only the last bits of a double distinguish its neighbours from a tie.
        fn check<T: Number>(numbers: impl Iterator<Item = T>) {
            let numbers: Vec<f64> = numbers.map(|x| x.to_f64()).collect();
            for pair in numbers.windows(2) {
                let (low, high) = (pair[0], pair[1]);
                let tie = low + (high - low) / 2.0;
                for sign in [1.0, -1.0] {
                    let rounded = |x: f64| T::from_f64(sign * x).to_f64() * sign;
                    assert_eq!((rounded(low), rounded(high)), (low, high));
                    assert_eq!(rounded(tie.next_down()), low, "below {tie:e}");
                    assert_eq!(rounded(tie.next_up()), high, "above {tie:e}");
                    assert!([low, high].contains(&rounded(tie)));
                }
            }
        }
        check((0..0x7c00).map(f16::from_bits));
        check((0..0x7f80).map(bf16::from_bits));
        assert_eq!(<bf16 as Number>::from_f64(4.29687509), bf16::from_f32(4.3125));
        for (x, expected) in [(1e300, f16::INFINITY), (-1e300, f16::NEG_INFINITY)] {
            assert_eq!(<f16 as Number>::from_f64(x), expected);
        }
        assert_eq!(<bf16 as Number>::from_f64(f64::INFINITY), bf16::INFINITY);
        assert!(<bf16 as Number>::from_f64(f64::NAN).is_nan());
        assert_eq!(<bf16 as Number>::from_f64(-1e-300).to_bits(), 0x8000);
    }

    #[test]
    fn integers_never_panic() {
        assert_eq!(Arith::div(5i32, 0), 0);
        assert_eq!(Arith::div(i32::MIN, -1), i32::MIN);
        assert_eq!(Arith::div(-7i32, 2), -3);
        assert_eq!(Arith::rem(i8::MIN, -1), 0);
        assert_eq!(Arith::rem(-7i32, 3), -1);
        assert_eq!(Arith::modulo(-7i32, 3), 2);
        assert_eq!(Arith::modulo(7i32, -3), -2);
        assert_eq!(Arith::modulo(7u8, 0), 0);
        assert_eq!(Arith::pow(3u8, 6), 217);
        assert_eq!(Arith::pow(-1i64, -3), -1);
        assert_eq!(Arith::pow(2i64, -3), 0);
        assert_eq!(Arith::abs(i8::MIN), i8::MIN);
        assert_eq!(Arith::sign(-9i16), -1);
        assert_eq!(Arith::sign(9u16), 1);
    }

    #[test]
    fn max_and_min_keep_nan() {
        for (a, b) in [(f32::NAN, 1.0), (1.0, f32::NAN)] {
            assert!(Arith::max(a, b).is_nan());
            assert!(Arith::min(a, b).is_nan());
        }
        assert_eq!(Arith::max(-1.0f32, f32::NEG_INFINITY), -1.0);
        assert_eq!(Arith::modulo(-7.5f32, 2.0), 0.5);
        assert!(
            Arith::modulo(6.0f32, -2.0).is_sign_negative()
                && Arith::modulo(-6.0f32, 2.0).is_sign_positive()
        );
    }
}
