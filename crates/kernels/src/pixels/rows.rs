//! Softmax and layer normalization along the channels of each pixel, by loops over rows with a
//! pitch.

use super::{Pixels, PixelsMut, check_alike};
use crate::RowDims;
use crate::norm::{Parameters, PitchedRows};
use crate::softmax::{Softmax, each_row};
use sardonyx_simd::Exec;
use sardonyx_simd::chunks::ranges;
use sardonyx_simd::{Ended, check_isa, dispatch};

/// Computes `op` along the channels of each pixel, in place without `x`.
///
/// # Panics
///
/// If sizes do not fit.
pub fn softmax(
    exec: &Exec<'_>,
    op: Softmax,
    x: Option<Pixels<'_>>,
    y: PixelsMut<'_>,
) -> Result<(), Ended> {
    if let Some(x) = &x {
        check_alike(x, &y);
    }
    if y.channels == 0 {
        return Ok(());
    }
    each_row(exec, op, RowDims { count: y.count, width: y.channels }, |i| {
        // SAFETY: `each_row` calls this once for each pixel.
        let y = unsafe { y.row(i) };
        if let Some(x) = &x {
            y.copy_from_slice(x.row(i));
        }
        y
    })
}

/// Normalizes the channels of each pixel: `y = (x - mean(x)) / sqrt(variance(x) + epsilon) *
/// scale + bias`, in place without `x`.
///
/// # Panics
///
/// If sizes do not fit.
pub fn layer_norm(
    exec: &Exec<'_>,
    scale: &[f32],
    bias: Option<&[f32]>,
    epsilon: f64,
    x: Option<Pixels<'_>>,
    y: PixelsMut<'_>,
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    check_isa(isa);
    let x = x.unwrap_or(y.as_pixels());
    check_alike(&x, &y);
    let width = y.channels;
    for list in [Some(scale), bias].into_iter().flatten() {
        assert_eq!(list.len(), width, "one scale and shift per channel");
    }
    if width == 0 {
        return Ok(());
    }
    let parameters = Parameters { center: true, scale, bias, epsilon };
    ranges(pool, y.count, width, |pixels| {
        let rows = PitchedRows {
            parameters,
            count: pixels.len(),
            first: pixels.start,
            width,
            x: x.pixel(pixels.start),
            residual: None,
            x_pitch: x.pitch,
            y: y.pixel(pixels.start),
            sum: None,
            y_pitch: y.pitch,
            means: None,
            inverses: None,
        };
        // SAFETY: `check_isa` checked the instruction set; each pixel belongs to one thread, and
        // all its channels are valid.
        unsafe { dispatch(isa, rows) }
    })
}
