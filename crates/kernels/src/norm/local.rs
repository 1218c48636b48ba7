//! Local response normalization: divides each element by a power of the sum of squares over
//! neighbouring channels.

use crate::AxisDims;
use crate::wide::{Slices, by_slices};
use sardonyx_simd::Exec;
use sardonyx_simd::chunks::rows;
use sardonyx_simd::number::{Arith, Math, Number};
use sardonyx_simd::{Ended, Level, Loop};

/// Parameters of [`local_response_norm`].
#[derive(Clone, Copy, Debug)]
pub struct LocalResponse {
    /// Number of channels in a window.
    pub size: usize,
    pub alpha: f32,
    pub beta: f32,
    pub bias: f32,
}

/// Normalizes `x` with dims `[batch, channels, inner]`: `y = x / (bias + alpha / size *
/// squares)^beta`, where `squares` is the sum of squares over the `size` channels around an
/// element's own; an even `size` has one more channel after it than before.
///
/// Computes the power by square roots for `beta` 0.5 and 0.75, and by exponential and logarithm for
/// others but 1, which leaves a relative error of about `beta * |ln(base)|` ULP.
///
/// # Panics
///
/// If lengths do not fit the dims, or `size` is 0.
pub fn local_response_norm<T: Number>(
    exec: &Exec<'_>,
    AxisDims { outer: batch, axis: channels, inner }: AxisDims,
    response: LocalResponse,
    x: &[T],
    y: &mut [T],
) -> Result<(), Ended> {
    let size = response.size;
    assert_eq!(x.len(), batch * channels * inner, "the input has other dims");
    assert_eq!(y.len(), x.len(), "one output per input");
    assert!(size > 0, "no channel to look at");
    // A window may have more channels than the image.
    let image = channels * inner;
    let work = image * (size.min(channels) + 6);
    let slices = Slices { count: batch, input: image, output: image, work };
    by_slices(exec, slices, Some(x), y, &|exec, _, x, y| {
        normalize_images(exec, channels, inner, response, x, y)
    })
}

/// Normalizes whole images in a type with arithmetic.
fn normalize_images<T: Arith>(
    exec: &Exec<'_>,
    channels: usize,
    inner: usize,
    response: LocalResponse,
    x: &[T],
    y: &mut [T],
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    let LocalResponse { size, alpha, beta, bias } = response;
    let level = Level::new(isa);
    let factor = f64::from(alpha) / size as f64;
    rows(pool, y, inner.max(1), inner * (size.min(channels) + 6), |first, y| {
        for (i, y) in y.chunks_exact_mut(inner).enumerate() {
            let (plane, c) = ((first + i) / channels, (first + i) % channels);
            let low = c.saturating_sub((size - 1) / 2);
            let high = channels.min(c + size / 2 + 1);
            T::run(
                level,
                Row {
                    x: &x[(plane * channels + low) * inner..(plane * channels + high) * inner],
                    own: c - low,
                    factor: T::Real::from_f64(factor),
                    beta,
                    bias: T::Real::from_f64(f64::from(bias)),
                    y,
                },
            );
        }
    })
}

/// Loop over one channel of one image.
struct Row<'a, T: Number> {
    /// Channels in the window, one after the other.
    x: &'a [T],
    /// Index in the window of the output's channel.
    own: usize,
    factor: T::Real,
    beta: f32,
    bias: T::Real,
    y: &'a mut [T],
}

/// Cache: elements of a channel whose sums are computed together.
const TILE: usize = 256;

impl<T: Number> Loop for Row<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let inner = self.y.len();
        let beta = T::Real::from_f64(f64::from(self.beta));
        for (tile, y) in self.y.chunks_mut(TILE).enumerate() {
            let mut bases = [T::Real::ZERO; TILE];
            let bases = &mut bases[..y.len()];
            // Summed anew for each channel. A running sum would save little, as windows are small,
            // and subtracting squares from it would lose digits, or everything after an infinity.
            for x in self.x.chunks_exact(inner) {
                for (sum, x) in bases.iter_mut().zip(&x[tile * TILE..]) {
                    let x = x.to_real();
                    *sum = x.mul_add::<FMA>(x, *sum);
                }
            }
            for base in bases.iter_mut() {
                *base = base.mul_add::<FMA>(self.factor, self.bias);
            }
            let x = &self.x[self.own * inner + tile * TILE..][..y.len()];
            macro_rules! divide {
                (|$base:ident| $power:expr) => {
                    for ((y, x), $base) in y.iter_mut().zip(x).zip(bases) {
                        let $base = *$base;
                        *y = T::from_real(x.to_real().div($power));
                    }
                };
            }
            if self.beta == 0.75 {
                divide!(|base| {
                    let root = Math::sqrt(base);
                    root.mul(Math::sqrt(root))
                });
            } else if self.beta == 0.5 {
                divide!(|base| Math::sqrt(base));
            } else if self.beta == 1.0 {
                divide!(|base| base);
            } else {
                divide!(|base| Math::exp::<FMA>(Math::ln::<FMA>(base).mul(beta)));
            }
        }
    }
}
