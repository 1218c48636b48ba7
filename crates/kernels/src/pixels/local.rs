//! Local response normalisation: the neighbouring channels of an element are beside it, so the sum
//! over a window is a sum of loads that begin one lane apart.

use std::ops::Range;

use super::{Pixels, PixelsMut, check_alike};
use crate::norm::LocalResponse;
use sardonyx_simd::Exec;
use sardonyx_simd::chunks::ranges;
use sardonyx_simd::number::Math;
use sardonyx_simd::{Body, Ended, Loop, Simd, check_isa, dispatch};

/// `y = x / (bias + alpha / size * squares)^beta`, where `squares` is the sum of squares over the
/// `size` channels around an element's own. The bits are those of
/// [`norm::local_response_norm`](crate::norm::local_response_norm).
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
    // A window may be larger than there are channels.
    let seen = response.size.min(y.channels);
    ranges(pool, y.count, y.channels * (seen + 6), |pixels| {
        let local = Local { response, x: &x, y: &y, pixels };
        // SAFETY: the machine has the instruction set; threads take pixels of their own.
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

/// Some pixels.
struct Local<'a> {
    response: LocalResponse,
    x: &'a Pixels<'a>,
    y: &'a PixelsMut<'a>,
    pixels: Range<usize>,
}

/// With one of these exponents.
struct Power<'a, const BETA: u8>(Local<'a>);

const ANY: u8 = 0;
const HALF: u8 = 2;
const THREE_QUARTERS: u8 = 3;
const ONE: u8 = 4;

impl<const BETA: u8> Body for Power<'_, BETA> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Local { response, x, y, pixels } = self.0;
        let channels = y.channels;
        let factor = (f64::from(response.alpha) / response.size as f64) as f32;
        for i in pixels {
            let (from, to) = (x.pixel(i), y.pixel(i));
            for c in (0..channels).step_by(S::LANES) {
                // SAFETY: `S` is enabled; all lanes that are read or written are channels of the
                // pixel.
                unsafe {
                    let squares = squares::<S>(from, channels, c, response.size);
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
                // SAFETY: this thread's pixel, of which no other slice lives.
                let y = unsafe { y.row(i) };
                S::run_loop(Divide { beta: response.beta, x: x.row(i), y });
            }
        }
    }
}

/// The sums of squares around channels `c..`, a vector of them.
///
/// # Safety
///
/// Must run with `S` enabled; `x` must have `channels` readable elements.
#[inline(always)]
unsafe fn squares<S: Simd>(x: *const f32, channels: usize, c: usize, size: usize) -> S::V {
    let (before, after) = ((size - 1) / 2, size / 2);
    // SAFETY: without a mask only where all loads are inside; lanes outside are left out else.
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
        // Those of which a lane sees a channel.
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

/// `y = x / y^beta`
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
