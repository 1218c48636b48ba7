//! Interpolation along one axis, by a table of the inputs of each output.
//!
//! For each interpolation, an output is a weighted sum of neighbours along the axis. A resize of
//! several axes is one pass per axis. Sums use no fused multiply-add and add in the order of the
//! inputs, so that all instruction sets give the same bits.

use crate::AxisDims;
use sardonyx_simd::Exec;
use sardonyx_simd::chunks::{fill, rows};
use sardonyx_simd::number::{Math, Number};
use sardonyx_simd::{Ended, Level, Loop};

/// Inputs and weights of each output along the axis.
#[derive(Clone, Copy, Debug)]
pub struct Taps<'a, R> {
    /// First input of each output.
    pub first: &'a [usize],
    /// Number of adjacent inputs of each output. Without inputs the output is `outside`.
    pub count: &'a [usize],
    /// Weights: `stride` for each output, of which the first `count` are used.
    pub weights: &'a [R],
    /// Number of weights of an output.
    pub stride: usize,
    /// Value of outputs without inputs.
    pub outside: R,
}

impl<R: Copy> Taps<'_, R> {
    /// Panics unless all lists fit and all inputs are among the `len` elements of the axis.
    fn check(&self, len: usize) {
        assert_eq!(self.first.len(), self.count.len(), "one count per output");
        assert_eq!(self.weights.len(), self.first.len() * self.stride, "weights of each output");
        for (first, count) in self.first.iter().zip(self.count) {
            assert!(*count <= self.stride, "more inputs than weights");
            assert!(*count <= len && *first <= len - *count, "inputs outside of the axis");
        }
    }

    /// Returns the first input of an output, and its weights.
    #[inline(always)]
    fn inputs_of(&self, output: usize) -> (usize, &[R]) {
        (self.first[output], &self.weights[output * self.stride..][..self.count[output]])
    }
}

/// Returns the weight of an element at a distance in the cubic convolution of Keys, "Cubic
/// convolution interpolation for digital image processing", 1981, with parameter `a`. NaN stays
/// NaN.
pub fn cubic_weight(a: f64, distance: f64) -> f64 {
    let x = distance.abs();
    if x >= 2.0 {
        0.0
    } else if x > 1.0 {
        ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
    } else {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    }
}

/// Interpolates along the middle axis of `x`, with dims `[outer, len, inner]`. `y` has as many
/// elements along that axis as there are taps.
///
/// # Panics
///
/// If lengths do not fit, or inputs are outside the axis.
pub fn along_axis<R: Math>(
    exec: &Exec<'_>,
    dims: AxisDims,
    taps: &Taps<'_, R>,
    x: &[R],
    y: &mut [R],
) -> Result<(), Ended> {
    let AxisDims { outer, axis: len, inner } = dims;
    taps.check(len);
    assert_eq!(x.len(), dims.elements(), "the input has other dims");
    assert_eq!(y.len(), outer * taps.first.len() * inner, "the output has other dims");
    if y.is_empty() {
        return Ok(());
    }
    let level = Level::new(exec.isa);
    let work = inner.saturating_mul(taps.stride.max(1));
    rows(exec.pool, y, inner, work, |first, y| {
        R::run(level, AxisRows { taps, len, inner, first, x, y });
    })
}

/// Converts elements to the type in which they are interpolated.
pub fn to_reals<T: Number>(exec: &Exec<'_>, x: &[T], y: &mut [T::Real]) -> Result<(), Ended> {
    assert_eq!(x.len(), y.len(), "as many elements");
    let level = Level::new(exec.isa);
    fill(exec.pool, y, 1, |first, y| T::to_reals_all(level, &x[first..][..y.len()], y))
}

/// Converts interpolated values to elements. Integers are rounded to the nearest, ties to even, and
/// saturate.
pub fn from_reals<T: Number>(exec: &Exec<'_>, x: &[T::Real], y: &mut [T]) -> Result<(), Ended> {
    assert_eq!(x.len(), y.len(), "as many elements");
    let level = Level::new(exec.isa);
    fill(exec.pool, y, 1, |first, y| {
        let x = &x[first..][..y.len()];
        if T::IS_FLOAT {
            return T::from_reals_all(level, x, y);
        }
        for (y, x) in y.iter_mut().zip(x) {
            *y = T::from_real(x.round_even());
        }
    })
}

/// Loop over rows of `inner` elements, from row `first` on.
struct AxisRows<'a, R> {
    taps: &'a Taps<'a, R>,
    len: usize,
    inner: usize,
    first: usize,
    x: &'a [R],
    y: &'a mut [R],
}

impl<R: Math> Loop for AxisRows<'_, R> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let AxisRows { taps, len, inner, first, x, y } = self;
        let outputs = taps.first.len();
        let (mut outer, mut output) = (first / outputs, first % outputs);
        let mut y = y;
        while !y.is_empty() {
            let count = (outputs - output).min(y.len() / inner);
            let (now, rest) = std::mem::take(&mut y).split_at_mut(count * inner);
            let x = &x[outer * len * inner..][..len * inner];
            if inner == 1 {
                for (y, output) in now.iter_mut().zip(output..) {
                    *y = interpolate_element(taps, output, x);
                }
            } else {
                for (y, output) in now.chunks_exact_mut(inner).zip(output..) {
                    interpolate_row(taps, output, x, y);
                }
            }
            (outer, output, y) = (outer + 1, 0, rest);
        }
    }
}

/// Computes one output from adjacent elements.
#[inline(always)]
fn interpolate_element<R: Math>(taps: &Taps<'_, R>, output: usize, x: &[R]) -> R {
    let (first, weights) = taps.inputs_of(output);
    let x = &x[first..][..weights.len()];
    match (weights, x) {
        ([], _) => taps.outside,
        ([a], [x]) => a.mul(*x),
        ([a, b], [x, y]) => a.mul(*x).add(b.mul(*y)),
        _ => {
            let mut sum = weights[0].mul(x[0]);
            for (weight, x) in weights.iter().zip(x).skip(1) {
                sum = sum.add(weight.mul(*x));
            }
            sum
        }
    }
}

/// Computes a row of outputs from rows of elements.
#[inline(always)]
fn interpolate_row<R: Math>(taps: &Taps<'_, R>, output: usize, x: &[R], y: &mut [R]) {
    let inner = y.len();
    let (first, weights) = taps.inputs_of(output);
    let input_row = |tap: usize| &x[(first + tap) * inner..][..inner];
    match *weights {
        [] => y.fill(taps.outside),
        [a] => y.iter_mut().zip(input_row(0)).for_each(|(y, x)| *y = a.mul(*x)),
        [a, b] => {
            for ((y, x0), x1) in y.iter_mut().zip(input_row(0)).zip(input_row(1)) {
                *y = a.mul(*x0).add(b.mul(*x1));
            }
        }
        [a, b, c, d] => {
            let inputs = input_row(0).iter().zip(input_row(1)).zip(input_row(2)).zip(input_row(3));
            for (y, (((x0, x1), x2), x3)) in y.iter_mut().zip(inputs) {
                *y = a.mul(*x0).add(b.mul(*x1)).add(c.mul(*x2)).add(d.mul(*x3));
            }
        }
        [a, ref more @ ..] => {
            y.iter_mut().zip(input_row(0)).for_each(|(y, x)| *y = a.mul(*x));
            for (tap, weight) in more.iter().enumerate() {
                for (y, x) in y.iter_mut().zip(input_row(tap + 1)) {
                    *y = y.add(weight.mul(*x));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_simd::{Isa, Pool};

    #[test]
    fn weighted_sums_along_every_axis() {
        // Outputs of 0 to 5 inputs.
        let len = 6;
        let count: Vec<usize> = (0..40).map(|o| o % 6).collect();
        let first: Vec<usize> =
            count.iter().zip(0..).map(|(c, o)| (o * 7) % (len - c + 1)).collect();
        let weights: Vec<f32> = (0..200).map(|i| (i % 11) as f32 - 4.5).collect();
        let taps =
            Taps { first: &first, count: &count, weights: &weights, stride: 5, outside: -7.0 };
        for (outer, inner) in [(1, 1), (300, 1), (2, 3), (3, 700)] {
            let x: Vec<f32> =
                (0..outer * len * inner).map(|i| ((i * 37) % 101) as f32 * 0.25).collect();
            let expected: Vec<f32> = (0..outer * 40 * inner)
                .map(|at| {
                    let (i, o, p) = (at % inner, at / inner % 40, at / inner / 40);
                    let x_at = |tap: usize| x[(p * len + first[o] + tap) * inner + i];
                    let terms = (0..count[o]).map(|tap| weights[o * 5 + tap] * x_at(tap));
                    terms.reduce(|a, b| a + b).unwrap_or(-7.0)
                })
                .collect();
            for isa in Isa::available() {
                for threads in [1, 3] {
                    let pool = Pool::new(threads);
                    let exec = Exec::new(&pool, *isa);
                    let mut y = vec![0.0; expected.len()];
                    along_axis(&exec, [outer, len, inner].into(), &taps, &x, &mut y).unwrap();
                    assert_eq!(y, expected, "{isa:?} {threads} {outer} {inner}");
                }
            }
        }
    }

    #[test]
    fn integers_are_rounded_and_saturate() {
        let pool = Pool::new(1);
        let exec = Exec::new(&pool, Isa::detect());
        let mut y = [0i8; 6];
        from_reals(&exec, &[0.5, 1.5, -2.5, 127.6, -1000.0, f64::NAN], &mut y).unwrap();
        assert_eq!(y, [0, 2, -2, 127, -128, 0]);
        let mut reals = [0f64; 6];
        to_reals(&exec, &y, &mut reals).unwrap();
        assert_eq!(reals, [0.0, 2.0, -2.0, 127.0, -128.0, 0.0]);
    }
}
