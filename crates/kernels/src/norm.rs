//! Normalization: scale and shift per channel, over rows, and across neighbouring channels.
//!
//! Parameters are folded into one multiplication and one addition per element before the loop, and
//! statistics are computed in f64 (see [`reduce`](super::reduce)), so that the loops over elements
//! are simple.

mod layer;
mod local;
mod lp;
mod rows;

pub(crate) use layer::{Parameters, PitchedRows};
pub use layer::{RowInputs, RowNorm, RowOutputs, layer_norm, rms_norm};
pub use local::{LocalResponse, local_response_norm};
pub use lp::{Norm, lp_norm};
pub use rows::{Affine, RowNormalization, Statistics, normalize_rows};

use crate::AxisDims;
use crate::wide::{Slices, by_slices};
use sardonyx_simd::Exec;
use sardonyx_simd::chunks::{fill, rows as in_rows};
use sardonyx_simd::number::{Math, Number};
use sardonyx_simd::{Ended, Level, Loop};

/// Folds the parameters of a batch normalization: `scale = gamma / sqrt(variance + epsilon)` and
/// `shift = beta - mean * scale`, computed in f64.
///
/// # Panics
///
/// If the lengths differ.
pub fn fold_batch_norm<P: Number, S: Number, R: Math>(
    gamma: &[P],
    beta: &[P],
    mean: &[S],
    variance: &[S],
    epsilon: f64,
    scale: &mut [R],
    shift: &mut [R],
) {
    let n = gamma.len();
    let lens = [beta.len(), mean.len(), variance.len(), scale.len(), shift.len()];
    assert_eq!(lens, [n; 5], "one parameter per channel");
    for c in 0..n {
        let factor = gamma[c].to_f64() / (variance[c].to_f64() + epsilon).sqrt();
        scale[c] = R::from_f64(factor);
        shift[c] = R::from_f64(beta[c].to_f64() - mean[c].to_f64() * factor);
    }
}

/// Computes mean and variance (the mean squared distance from the mean) of each channel of `[batch,
/// channels, inner]` in f64. Both are NaN for channels without elements.
///
/// # Panics
///
/// If lengths do not fit the dims.
pub fn channel_statistics<T: Number>(
    exec: &Exec<'_>,
    AxisDims { outer: batch, axis: channels, inner }: AxisDims,
    x: &[T],
    statistics: &mut [[f64; 2]],
) -> Result<(), Ended> {
    assert_eq!(x.len(), batch * channels * inner, "the input has other dims");
    assert_eq!(statistics.len(), channels, "one per channel");
    let count = (batch * inner) as f64;
    fill(exec.pool, statistics, (batch * inner).max(1), |first, statistics| {
        for (channel, statistics) in (first..).zip(statistics) {
            let planes = (0..batch).map(|n| &x[(n * channels + channel) * inner..][..inner]);
            let sums = planes.clone().map(|plane| plane.iter().map(|x| x.to_f64()).sum::<f64>());
            let mean = sums.sum::<f64>() / count;
            let squares = planes.map(|plane| {
                let distances = plane.iter().map(|x| x.to_f64() - mean);
                distances.map(|distance| distance * distance).sum::<f64>()
            });
            *statistics = [mean, squares.sum::<f64>() / count];
        }
    })
}

/// Scales and shifts channels: `y = x * scale[c] + shift[c]`, for `x` with dims `[batch, channels,
/// inner]`, where `channels` is the length of `scale`.
///
/// # Panics
///
/// If lengths do not fit.
pub fn scale_shift<T: Number<Wide = R, Real = R>, R: Math>(
    exec: &Exec<'_>,
    inner: usize,
    scale: &[R],
    shift: &[R],
    x: &[T],
    y: &mut [T],
) -> Result<(), Ended> {
    assert_eq!(x.len(), y.len(), "one output per input");
    scale_shift_planes(exec, inner, scale, shift, Some(x), y)
}

/// Scales and shifts channels like [`scale_shift`], in place.
///
/// # Panics
///
/// If lengths do not fit.
pub fn scale_shift_in_place<T: Number<Wide = R, Real = R>, R: Math>(
    exec: &Exec<'_>,
    inner: usize,
    scale: &[R],
    shift: &[R],
    x: &mut [T],
) -> Result<(), Ended> {
    scale_shift_planes(exec, inner, scale, shift, None, x)
}

/// Scales and shifts channels of `x`, or of `y` in place if `x` is `None`.
fn scale_shift_planes<T: Number<Wide = R, Real = R>, R: Math>(
    exec: &Exec<'_>,
    inner: usize,
    scale: &[R],
    shift: &[R],
    x: Option<&[T]>,
    y: &mut [T],
) -> Result<(), Ended> {
    let channels = scale.len();
    assert_eq!(shift.len(), channels, "one shift per channel");
    let plane = channels * inner;
    if y.is_empty() {
        return Ok(());
    }
    assert!(plane > 0 && y.len().is_multiple_of(plane), "whole planes");
    if x.is_none()
        && let Some(y) = T::as_wide_mut(y)
    {
        return apply(exec, inner, scale, shift, 0, None, y);
    }
    // Channels-last data has rows of all channels; otherwise a row belongs to one channel.
    let len = if inner == 1 { channels } else { inner };
    let slices = Slices { count: y.len() / len.max(1), input: len, output: len, work: len };
    by_slices(exec, slices, x, y, &|exec, slices, x, y| {
        let first = if inner == 1 { 0 } else { slices.start % channels };
        apply(exec, inner, scale, shift, first, Some(x), y)
    })
}

/// Scales and shifts rows, each of one channel counted from `first_channel`, or of all channels if
/// `inner` is 1.
fn apply<T: Math>(
    exec: &Exec<'_>,
    inner: usize,
    scale: &[T],
    shift: &[T],
    first_channel: usize,
    x: Option<&[T]>,
    y: &mut [T],
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    let channels = scale.len();
    if y.is_empty() {
        return Ok(());
    }
    let level = Level::new(isa);
    let row = if inner == 1 { channels } else { inner };
    in_rows(pool, y, row, row, |first, y| {
        for (i, y) in y.chunks_exact_mut(row).enumerate() {
            let x = x.map(|x| &x[(first + i) * row..][..row]);
            if inner == 1 {
                T::run(level, Elements { scale, shift, x, y });
            } else {
                let c = (first_channel + first + i) % channels;
                T::run(level, Plane { scale: scale[c], shift: shift[c], x, y });
            }
        }
    })
}

/// Loop over a row of one channel.
struct Plane<'a, T: Math> {
    scale: T,
    shift: T,
    x: Option<&'a [T]>,
    y: &'a mut [T],
}

impl<T: Math> Loop for Plane<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let (scale, shift) = (self.scale, self.shift);
        match self.x {
            Some(x) => {
                for (y, x) in self.y.iter_mut().zip(x) {
                    *y = Math::mul_add::<FMA>(*x, scale, shift);
                }
            }
            None => {
                for y in self.y {
                    *y = Math::mul_add::<FMA>(*y, scale, shift);
                }
            }
        }
    }
}

/// Loop over a row of all channels.
struct Elements<'a, T: Math> {
    scale: &'a [T],
    shift: &'a [T],
    x: Option<&'a [T]>,
    y: &'a mut [T],
}

impl<T: Math> Loop for Elements<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let parameters = self.scale.iter().zip(self.shift);
        match self.x {
            Some(x) => {
                for ((y, x), (scale, shift)) in self.y.iter_mut().zip(x).zip(parameters) {
                    *y = Math::mul_add::<FMA>(*x, *scale, *shift);
                }
            }
            None => {
                for (y, (scale, shift)) in self.y.iter_mut().zip(parameters) {
                    *y = Math::mul_add::<FMA>(*y, *scale, *shift);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
