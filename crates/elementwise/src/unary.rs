//! Operations on each element of one buffer.

use std::marker::PhantomData;

use half::{bf16, f16};

use super::operations::{self as op, Map, clamp};
use sardonyx_simd::chunks::fill;
use sardonyx_simd::number::{Arith, Math, Number};
use sardonyx_simd::vecmath::{MAX_REDUCED, cos_reduced, sin_reduced, tan_reduced};
use sardonyx_simd::{Ended, Exec, Isa};
use sardonyx_simd::{Level, Loop};

/// Operation on one element.
///
/// NaN gives NaN, and so do domain errors such as the square root of -1. Integers compute `Abs`,
/// `Neg`, `Sign`, `Relu` and `Square` in their own type, wrapping, and all other operations in f64,
/// truncated and saturated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unary {
    Abs,
    Neg,
    Ceil,
    Floor,
    /// Nearest integer, ties to even.
    Round,
    /// Sign: -1, 0 or 1.
    Sign,
    Sqrt,
    Reciprocal,
    Square,
    Exp,
    Log,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
    Erf,
    Sigmoid,
    Relu,
    /// `ln(1 + exp(x))`
    Softplus,
    /// `x / (1 + |x|)`
    Softsign,
    /// `x * sigmoid(x)`
    Silu,
    /// GELU with the error function.
    Gelu,
    /// Approximation of GELU with tanh.
    GeluTanh,
    /// `x * tanh(softplus(x))`
    Mish,
    /// `x * HardSigmoid(1/6, 1/2)`
    HardSwish,
    /// `alpha * x` below zero, else `x`.
    LeakyRelu {
        alpha: f32,
    },
    /// `alpha * (exp(x) - 1)` below zero, else `x`.
    Elu {
        alpha: f32,
    },
    /// `gamma * Elu(alpha)`
    Selu {
        alpha: f32,
        gamma: f32,
    },
    /// `alpha * (exp(x / alpha) - 1)` below zero, else `x`.
    Celu {
        alpha: f32,
    },
    /// `alpha * x + beta`, clamped to 0 and 1.
    HardSigmoid {
        alpha: f32,
        beta: f32,
    },
    /// `x * sigmoid(alpha * x)`
    Swish {
        alpha: f32,
    },
    /// `x` above `alpha`, else 0.
    ThresholdedRelu {
        alpha: f32,
    },
    /// `x` moved towards zero by `bias` if `|x| > lambda`, else 0.
    Shrink {
        lambda: f32,
        bias: f32,
    },
}

impl Unary {
    /// Estimates the cost of one element, in cheap operations.
    pub(super) fn work(self) -> usize {
        use Unary::*;
        match self {
            Abs | Neg | Ceil | Floor | Round | Sign | Relu | Square | LeakyRelu { .. } => 1,
            Sqrt | Reciprocal | Softsign | HardSwish | HardSigmoid { .. } => 2,
            ThresholdedRelu { .. } | Shrink { .. } => 2,
            Exp | Log | Sin | Cos | Tanh | Sigmoid | Silu | Swish { .. } => 6,
            Tan | Asin | Acos | Atan => 6,
            _ => 12,
        }
    }
}

/// Calls `$run!(operation)` with the operation type for `$op`, whose parameters are of type `$w`.
macro_rules! with_operation {
    ($op:expr, $w:ty, $run:ident) => {{
        let p = PhantomData::<$w>;
        let f = |x: f32| <$w as Number>::from_f64(f64::from(x));
        match $op {
            Unary::Abs => $run!(op::Abs(p, [])),
            Unary::Neg => $run!(op::Neg(p, [])),
            Unary::Ceil => $run!(op::Ceil(p, [])),
            Unary::Floor => $run!(op::Floor(p, [])),
            Unary::Round => $run!(op::Round(p, [])),
            Unary::Sign => $run!(op::Sign(p, [])),
            Unary::Sqrt => $run!(op::Sqrt(p, [])),
            Unary::Reciprocal => $run!(op::Reciprocal(p, [])),
            Unary::Square => $run!(op::Square(p, [])),
            Unary::Exp => $run!(op::Exp(p, [])),
            Unary::Log => $run!(op::Log(p, [])),
            Unary::Sin => $run!(op::Sin(p, [])),
            Unary::Cos => $run!(op::Cos(p, [])),
            Unary::Tanh => $run!(op::Tanh(p, [])),
            Unary::Erf => $run!(op::Erf(p, [])),
            Unary::Sigmoid => $run!(op::Sigmoid(p, [])),
            Unary::Relu => $run!(op::Relu(p, [])),
            Unary::Softplus => $run!(op::Softplus(p, [])),
            Unary::Softsign => $run!(op::Softsign(p, [])),
            Unary::Silu => $run!(op::Silu(p, [])),
            Unary::Gelu => $run!(op::Gelu(p, [])),
            Unary::GeluTanh => $run!(op::GeluTanh(p, [])),
            Unary::Mish => $run!(op::Mish(p, [])),
            Unary::HardSwish => $run!(op::HardSwish(p, [])),
            Unary::LeakyRelu { alpha } => $run!(op::LeakyRelu(p, [f(alpha)])),
            Unary::Elu { alpha } => $run!(op::Elu(p, [f(alpha)])),
            Unary::Selu { alpha, gamma } => $run!(op::Selu(p, [f(alpha), f(gamma)])),
            Unary::Celu { alpha } => $run!(op::Celu(p, [f(alpha)])),
            Unary::HardSigmoid { alpha, beta } => $run!(op::HardSigmoid(p, [f(alpha), f(beta)])),
            Unary::Swish { alpha } => $run!(op::Swish(p, [f(alpha)])),
            Unary::ThresholdedRelu { alpha } => $run!(op::ThresholdedRelu(p, [f(alpha)])),
            Unary::Shrink { lambda, bias } => $run!(op::Shrink(p, [f(lambda), f(bias)])),
            Unary::Tan => $run!(op::Tan(p, [])),
            Unary::Asin => $run!(op::Asin(p, [])),
            Unary::Acos => $run!(op::Acos(p, [])),
            Unary::Atan => $run!(op::Atan(p, [])),
            Unary::Sinh => $run!(op::Sinh(p, [])),
            Unary::Cosh => $run!(op::Cosh(p, [])),
            Unary::Asinh => $run!(op::Asinh(p, [])),
            Unary::Acosh => $run!(op::Acosh(p, [])),
            Unary::Atanh => $run!(op::Atanh(p, [])),
        }
    }};
}

/// Applies `op` to each element of `x`.
///
/// # Panics
///
/// If the lengths differ.
pub fn unary<T: UnaryElement>(
    exec: &Exec<'_>,
    op: Unary,
    x: &[T],
    y: &mut [T],
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    assert_eq!(x.len(), y.len(), "one output per input");
    let level = Level::new(isa);
    fill(pool, y, op.work(), |start, y| {
        T::unary(level, op, &x[start..start + y.len()], y);
    })
}

/// Replaces each element of `x` by `op` of it.
pub fn unary_in_place<T: UnaryElement>(
    exec: &Exec<'_>,
    op: Unary,
    x: &mut [T],
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    let level = Level::new(isa);
    fill(pool, x, op.work(), |_, x| T::unary_in_place(level, op, x))
}

/// Clamps each element of `x` to `low..=high`. NaN stays; if `low > high`, the result is `high`.
///
/// # Panics
///
/// If the lengths differ.
pub fn clip<T: Number>(
    exec: &Exec<'_>,
    low: T,
    high: T,
    x: &[T],
    y: &mut [T],
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    assert_eq!(x.len(), y.len(), "one output per input");
    let level = Level::new(isa);
    fill(pool, y, 1, |start, y| {
        clip_all(level, low, high, &x[start..start + y.len()], y);
    })
}

/// Clamps each element of `x` in place, like [`clip`].
pub fn clip_in_place<T: Number>(
    exec: &Exec<'_>,
    low: T,
    high: T,
    x: &mut [T],
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    let level = Level::new(isa);
    fill(pool, x, 1, |_, x| clip_all_in_place(level, low, high, x))
}

/// Clamps the elements of a chunk.
pub(super) fn clip_all<T: Number>(level: Level, low: T, high: T, x: &[T], y: &mut [T]) {
    if let (Some(x), Some(y)) = (T::as_wide(x), T::as_wide_mut(y)) {
        let (low, high) = (low.widen(), high.widen());
        return <T::Wide as Number>::run(level, Clip { low, high, x, y });
    }
    y.copy_from_slice(x);
    clip_all_in_place(level, low, high, y);
}

/// Clamps the elements of a chunk in place. Narrow floats are widened for the loop of f32.
pub(super) fn clip_all_in_place<T: Number>(level: Level, low: T, high: T, x: &mut [T]) {
    let (low, high) = (low.widen(), high.widen());
    if let Some(x) = T::as_wide_mut(x) {
        return <T::Wide as Number>::run(level, ClipInPlace { low, high, x });
    }
    let mut wide = [T::Wide::ZERO; CONVERTED];
    for x in x.chunks_mut(CONVERTED) {
        let wide = &mut wide[..x.len()];
        T::widen_all(level, x, wide);
        <T::Wide as Number>::run(level, ClipInPlace { low, high, x: &mut *wide });
        T::narrow_all(level, wide, x);
    }
}

/// Element type of [`unary`]: each [`Number`].
///
/// The methods are loops over one chunk.
pub trait UnaryElement: Number {
    /// Computes `y = op(x)`.
    #[doc(hidden)]
    fn unary(level: Level, op: Unary, x: &[Self], y: &mut [Self]);
    /// Computes `x = op(x)`.
    #[doc(hidden)]
    fn unary_in_place(level: Level, op: Unary, x: &mut [Self]);
}

impl UnaryElement for f32 {
    fn unary(level: Level, op: Unary, x: &[f32], y: &mut [f32]) {
        macro_rules! run {
            ($op:expr) => {
                level.run(MapTo { op: $op, x, y })
            };
        }
        match op {
            Unary::Sin | Unary::Cos | Unary::Tan => {
                y.copy_from_slice(x);
                compute_trigonometric(level, op, y);
            }
            _ => with_operation!(op, f32, run),
        }
    }

    fn unary_in_place(level: Level, op: Unary, x: &mut [f32]) {
        macro_rules! run {
            ($op:expr) => {
                level.run(MapInPlace { op: $op, x })
            };
        }
        match op {
            Unary::Sin | Unary::Cos | Unary::Tan => compute_trigonometric(level, op, x),
            _ => with_operation!(op, f32, run),
        }
    }
}

/// Computes sine, cosine or tangent of f32: vectorized first, then by the C library for the few
/// arguments beyond the reduction.
fn compute_trigonometric(level: Level, op: Unary, x: &mut [f32]) {
    let mut arguments = [0.0; 256];
    for x in x.chunks_mut(arguments.len()) {
        let arguments = &mut arguments[..x.len()];
        arguments.copy_from_slice(x);
        match op {
            Unary::Sin => level.run(MapInPlace { op: SinReduced, x }),
            Unary::Cos => level.run(MapInPlace { op: CosReduced, x }),
            _ => level.run(MapInPlace { op: TanReduced, x }),
        }
        for (y, &x) in x.iter_mut().zip(&*arguments) {
            if x.abs() > MAX_REDUCED {
                *y = match op {
                    Unary::Sin => x.sin(),
                    Unary::Cos => x.cos(),
                    _ => f64::from(x).tan() as f32,
                };
            }
        }
    }
}

#[derive(Clone, Copy)]
struct SinReduced;
#[derive(Clone, Copy)]
struct CosReduced;
#[derive(Clone, Copy)]
struct TanReduced;

impl Map<f32> for SinReduced {
    #[inline(always)]
    fn apply<const FMA: bool>(self, x: f32) -> f32 {
        sin_reduced::<FMA>(x)
    }
}

impl Map<f32> for CosReduced {
    #[inline(always)]
    fn apply<const FMA: bool>(self, x: f32) -> f32 {
        cos_reduced::<FMA>(x)
    }
}

impl Map<f32> for TanReduced {
    #[inline(always)]
    fn apply<const FMA: bool>(self, x: f32) -> f32 {
        tan_reduced::<FMA>(x)
    }
}

impl UnaryElement for f64 {
    fn unary(level: Level, op: Unary, x: &[f64], y: &mut [f64]) {
        copy_and_run(x, y, |y| f64::unary_in_place(level, op, y));
    }

    fn unary_in_place(level: Level, op: Unary, x: &mut [f64]) {
        macro_rules! run {
            ($op:expr) => {
                level.run(MapInPlace { op: $op, x })
            };
        }
        with_operation!(op, f64, run);
    }
}

/// Copies `x` to `y` part by part and calls `body` on each part of `y`: one more pass through the
/// first-level cache, but half the code.
fn copy_and_run<T: Number>(x: &[T], y: &mut [T], mut body: impl FnMut(&mut [T])) {
    for (x, y) in x.chunks(1024).zip(y.chunks_mut(1024)) {
        y.copy_from_slice(x);
        body(y);
    }
}

/// Cache: elements that are converted at a time to the type that computes them.
const CONVERTED: usize = 512;

/// Implements [`UnaryElement`] for 16-bit floats, by widening blocks for the loops of f32.
macro_rules! halves {
    ($($t:ty),*) => { $(
        impl UnaryElement for $t {
            fn unary(level: Level, op: Unary, x: &[$t], y: &mut [$t]) {
                let mut wide = [0.0; CONVERTED];
                for (x, y) in x.chunks(CONVERTED).zip(y.chunks_mut(CONVERTED)) {
                    let wide = &mut wide[..x.len()];
                    <$t>::widen_all(level, x, wide);
                    f32::unary_in_place(level, op, wide);
                    <$t>::narrow_all(level, wide, y);
                }
            }

            fn unary_in_place(level: Level, op: Unary, x: &mut [$t]) {
                let mut wide = [0.0; CONVERTED];
                for x in x.chunks_mut(CONVERTED) {
                    let wide = &mut wide[..x.len()];
                    <$t>::widen_all(level, x, wide);
                    f32::unary_in_place(level, op, wide);
                    <$t>::narrow_all(level, wide, x);
                }
            }
        }
    )* };
}

halves!(f16, bf16);

macro_rules! integers {
    ($($t:ty),*) => { $(
        impl UnaryElement for $t {
            fn unary(level: Level, op: Unary, x: &[$t], y: &mut [$t]) {
                copy_and_run(x, y, |y| <$t>::unary_in_place(level, op, y));
            }

            fn unary_in_place(_: Level, op: Unary, x: &mut [$t]) {
                match op {
                    Unary::Abs => x.iter_mut().for_each(|x| *x = Arith::abs(*x)),
                    Unary::Neg => x.iter_mut().for_each(|x| *x = Arith::neg(*x)),
                    Unary::Sign => x.iter_mut().for_each(|x| *x = Arith::sign(*x)),
                    Unary::Relu => x.iter_mut().for_each(|x| *x = Arith::max(*x, 0)),
                    Unary::Square => x.iter_mut().for_each(|x| *x = Arith::mul(*x, *x)),
                    Unary::Ceil | Unary::Floor | Unary::Round => {}
                    _ => run_in_f64(op, x),
                }
            }
        }
    )* };
}

integers!(i8, i16, i32, i64, u8, u16, u32, u64);

/// Computes an operation on integers in f64, without fused multiply-adds, so that results are the
/// same on all machines.
fn run_in_f64<T: Number>(op: Unary, x: &mut [T]) {
    let portable = Level::new(Isa::Portable);
    let mut doubles = [0.0; CONVERTED];
    for x in x.chunks_mut(CONVERTED) {
        let doubles = &mut doubles[..x.len()];
        for (double, x) in doubles.iter_mut().zip(&*x) {
            *double = x.to_f64();
        }
        f64::unary_in_place(portable, op, doubles);
        for (x, double) in x.iter_mut().zip(&*doubles) {
            *x = T::from_f64(*double);
        }
    }
}

/// Loop from one slice to another.
struct MapTo<'a, O> {
    op: O,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl<O: Map<f32>> Loop for MapTo<'_, O> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for (y, x) in self.y.iter_mut().zip(self.x) {
            *y = self.op.apply::<FMA>(*x);
        }
    }
}

/// Loop over one slice in place.
struct MapInPlace<'a, T, O> {
    op: O,
    x: &'a mut [T],
}

impl<T: Math, O: Map<T>> Loop for MapInPlace<'_, T, O> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for x in self.x {
            *x = self.op.apply::<FMA>(*x);
        }
    }
}

/// Loop that clamps one slice into another.
struct Clip<'a, W> {
    low: W,
    high: W,
    x: &'a [W],
    y: &'a mut [W],
}

impl<W: Arith> Loop for Clip<'_, W> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for (y, x) in self.y.iter_mut().zip(self.x) {
            *y = clamp(*x, self.low, self.high);
        }
    }
}

/// Loop that clamps one slice in place.
struct ClipInPlace<'a, W> {
    low: W,
    high: W,
    x: &'a mut [W],
}

impl<W: Arith> Loop for ClipInPlace<'_, W> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for x in self.x {
            *x = clamp(*x, self.low, self.high);
        }
    }
}

#[cfg(test)]
mod tests;
