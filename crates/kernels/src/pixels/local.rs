//! Local response normalization: neighbouring channels are adjacent in memory, so the sum over a
//! window is a sum of loads that begin one float apart.

use std::ops::Range;

use super::{Pixels, PixelsMut, check_alike};
use crate::norm::LocalResponse;
use sardonyx_simd::Exec;
use sardonyx_simd::chunks::ranges;
use sardonyx_simd::number::Math;
use sardonyx_simd::{Body, Ended, Loop, Simd, check_isa, dispatch};

/// Normalizes pixels: `y = x / (bias + alpha / size * squares)^beta`, where `squares` is the sum of
/// squares over the `size` channels around an element's own. The results are bit-identical to those
/// of [`norm::local_response_norm`](crate::norm::local_response_norm).
///
/// # Panics
///
/// If sizes do not fit, or that of the window is 0.
pub fn local_response_norm(
    exec: &Exec<'_>,
    response: LocalResponse,
    x: Pixels<'_>,
    y: PixelsMut<'_>,
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    check_isa(isa);
    check_alike(&x, &y);
    assert!(response.size > 0, "no channel to look at");
    // A window may have more channels than the pixel.
    let seen = response.size.min(y.channels);
    ranges(pool, y.count, y.channels * (seen + 6), |pixels| {
        let local = LocalPixels { response, x: &x, y: &y, pixels };
        // SAFETY: `check_isa` checked the instruction set; each pixel belongs to one thread.
        unsafe {
            if response.beta == 0.75 {
                dispatch(isa, Power::<THREE_QUARTERS>(local));
            } else if response.beta == 0.5 {
                dispatch(isa, Power::<HALF>(local));
            } else if response.beta == 1.0 {
                dispatch(isa, Power::<ONE>(local));
            } else {
                dispatch(isa, Power::<ANY>(local));
            }
        }
    })
}

/// Range of pixels of one thread.
struct LocalPixels<'a> {
    response: LocalResponse,
    x: &'a Pixels<'a>,
    y: &'a PixelsMut<'a>,
    pixels: Range<usize>,
}

/// Body over a range of pixels, for one of the exponents below.
struct Power<'a, const BETA: u8>(LocalPixels<'a>);

/// Value: exponents with a loop of their own, and any other.
const ANY: u8 = 0;
const HALF: u8 = 2;
const THREE_QUARTERS: u8 = 3;
const ONE: u8 = 4;

impl<const BETA: u8> Body for Power<'_, BETA> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let LocalPixels { response, x, y, pixels } = self.0;
        let channels = y.channels;
        let factor = (f64::from(response.alpha) / response.size as f64) as f32;
        for i in pixels {
            let (from, to) = (x.pixel(i), y.pixel(i));
            for c in (0..channels).step_by(S::LANES) {
                // SAFETY: the caller promises the instruction set of `S`; all lanes read or written
                // are channels of the pixel.
                unsafe {
                    let squares = sum_squares::<S>(from, channels, c, response.size);
                    let base = S::fma(squares, S::splat(factor), S::splat(response.bias));
                    let mask = S::first(channels - c);
                    let own = S::load_m(from.add(c), mask);
                    let result = match BETA {
                        HALF => S::div(own, S::sqrt(base)),
                        THREE_QUARTERS => {
                            let root = S::sqrt(base);
                            S::div(own, S::mul(root, S::sqrt(root)))
                        }
                        ONE => S::div(own, base),
                        _ => base,
                    };
                    S::store_m(to.add(c), mask, result);
                }
            }
            if BETA == ANY {
                // SAFETY: this thread has the pixel, and no other slice of it lives.
                let y = unsafe { y.row(i) };
                S::run_loop(Divide { beta: response.beta, x: x.row(i), y });
            }
        }
    }
}

/// Sums the squares around each channel of a vector, from channel `c` on.
///
/// # Safety
///
/// The machine has the instruction set of `S`; `x` has `channels` readable floats.
#[inline(always)]
unsafe fn sum_squares<S: Simd>(x: *const f32, channels: usize, c: usize, size: usize) -> S::V {
    let (before, after) = ((size - 1) / 2, size / 2);
    // SAFETY: loads are unmasked only where all lanes are channels; elsewhere lanes outside are
    // masked.
    unsafe {
        let mut sum = S::splat(0.0);
        if c >= before && c + S::LANES + after <= channels {
            let first = x.add(c - before);
            for k in 0..size {
                let x = S::load(first.add(k));
                sum = S::fma(x, x, sum);
            }
            return sum;
        }
        // Offsets for which at least one lane is a channel.
        let seen = before.saturating_sub(c + S::LANES - 1)..size.min(channels + before - c);
        for k in seen {
            // Lane `i` is channel `c + k - before + i`.
            let low = before.saturating_sub(c + k);
            let high = (channels + before).saturating_sub(c + k).min(S::LANES);
            if low >= high {
                continue;
            }
            let lanes = (1u32 << high) - (1u32 << low);
            let first = x.wrapping_add(c + k).wrapping_sub(before);
            let x = S::select(S::splat(0.0), lanes, first, 1);
            sum = S::fma(x, x, sum);
        }
        sum
    }
}

/// Loop that computes `y = x / y^beta`.
struct Divide<'a> {
    beta: f32,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl Loop for Divide<'_> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for (y, x) in self.y.iter_mut().zip(self.x) {
            *y = x / Math::exp::<FMA>(Math::ln::<FMA>(*y) * self.beta);
        }
    }
}
