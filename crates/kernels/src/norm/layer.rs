//! Layer and root-mean-square normalization, with the residual sum that often precedes it.
//!
//! A row fits the first-level cache, so memory is read once for all passes over a row, and the
//! first pass adds the residual. Means and variances are two passes, since the difference of two
//! large sums loses all digits.

use crate::RowDims;
use crate::reduce::{Sum, run};
use sardonyx_simd::buffer::with_scratch;
use sardonyx_simd::chunks::{Shared, ranges};
use sardonyx_simd::number::{Math, Number};
use sardonyx_simd::{Body, Ended, Simd, dispatch};
use sardonyx_simd::{Exec, Isa};
use sardonyx_simd::{Level, Loop};

/// Inputs of [`layer_norm`] and [`rms_norm`].
#[derive(Clone, Copy, Debug)]
pub struct RowInputs<'a, T> {
    pub x: &'a [T],
    /// Second operand of the sum that is normalized.
    pub residual: Option<&'a [T]>,
    /// Scales: one row, or several that the rows of `x` use cyclically.
    pub scale: &'a [T],
    pub epsilon: f64,
}

/// Outputs of [`layer_norm`].
#[derive(Debug)]
pub struct RowOutputs<'a, T> {
    pub y: &'a mut [T],
    /// Receives `x + residual`, rounded to the element type.
    pub sum: Option<&'a mut [T]>,
    /// Receives the mean of each row.
    pub means: Option<&'a mut [f32]>,
    /// Receives `1 / sqrt(variance + epsilon)` of each row.
    pub inverse_deviations: Option<&'a mut [f32]>,
}

/// Normalizes rows `s = x + residual` of `width` elements: `y = (s - mean(s)) / sqrt(variance(s) +
/// epsilon) * scale + bias`. `dims` are the number of rows and `width`. `bias` has one row, or
/// several that are used cyclically.
///
/// # Panics
///
/// If lengths do not fit.
pub fn layer_norm<T: RowNorm>(
    exec: &Exec<'_>,
    dims: RowDims,
    inputs: RowInputs<'_, T>,
    bias: Option<&[T]>,
    outputs: RowOutputs<'_, T>,
) -> Result<(), Ended> {
    normalize(exec, dims, Inputs::new(inputs, true, bias), outputs)
}

/// Normalizes rows like [`layer_norm`], but without mean and bias: `y = s / sqrt(mean(s * s) +
/// epsilon) * scale`.
///
/// # Panics
///
/// If lengths do not fit.
pub fn rms_norm<T: RowNorm>(
    exec: &Exec<'_>,
    dims: RowDims,
    inputs: RowInputs<'_, T>,
    y: &mut [T],
    sum: Option<&mut [T]>,
) -> Result<(), Ended> {
    let outputs = RowOutputs { y, sum, means: None, inverse_deviations: None };
    normalize(exec, dims, Inputs::new(inputs, false, None), outputs)
}

/// Inputs of all rows, of either normalization.
#[derive(Clone, Copy, Debug)]
struct Inputs<'a, T> {
    /// Whether the mean is subtracted.
    center: bool,
    x: &'a [T],
    residual: Option<&'a [T]>,
    scale: &'a [T],
    bias: Option<&'a [T]>,
    epsilon: f64,
}

impl<'a, T> Inputs<'a, T> {
    fn new(rows: RowInputs<'a, T>, center: bool, bias: Option<&'a [T]>) -> Self {
        let RowInputs { x, residual, scale, epsilon } = rows;
        Inputs { center, x, residual, scale, bias, epsilon }
    }
}

/// Checks all lengths and normalizes rows, divided between threads.
fn normalize<T: RowNorm>(
    exec: &Exec<'_>,
    RowDims { count, width }: RowDims,
    inputs: Inputs<'_, T>,
    outputs: RowOutputs<'_, T>,
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    let RowOutputs { y, sum, means, inverse_deviations } = outputs;
    let statistics = [means, inverse_deviations];
    let len = count * width;
    assert_eq!(inputs.x.len(), len, "the input has other dims");
    assert_eq!(y.len(), len, "one output per input");
    let others = [inputs.residual, sum.as_deref()];
    assert!(
        others.into_iter().flatten().all(|other| other.len() == len),
        "residual and sum have the dims of the input"
    );
    assert!(statistics.iter().flatten().all(|list| list.len() == count), "one statistic per row");
    let level = Level::new(isa);
    if len == 0 {
        // The mean of no elements is NaN.
        for list in statistics.into_iter().flatten() {
            list.fill(f32::NAN);
        }
        return Ok(());
    }
    for list in [Some(inputs.scale), inputs.bias].into_iter().flatten() {
        assert!(
            !list.is_empty() && list.len().is_multiple_of(width),
            "one scale and shift per element"
        );
    }
    let y = Shared::new(y);
    let sum = sum.map(Shared::new);
    let [means, inverses] = statistics.map(|list| list.map(Shared::new));
    ranges(pool, count, width, |rows| {
        let (first, n) = (rows.start, rows.len());
        // SAFETY: ranges are disjoint, so each row is borrowed by one thread.
        let (y, sum, means, inverses) = unsafe {
            (
                y.part(first * width, n * width),
                sum.as_ref().map(|sum| sum.part(first * width, n * width)),
                means.as_ref().map(|list| list.part(first, n)),
                inverses.as_ref().map(|list| list.part(first, n)),
            )
        };
        T::normalize(level, isa, Rows { inputs, first, width, y, sum, means, inverses })
    })
}

/// Rows of one thread and their outputs. Public only as an argument of a hidden method.
#[derive(Debug)]
pub struct Rows<'a, T> {
    inputs: Inputs<'a, T>,
    /// Index of the first row.
    first: usize,
    width: usize,
    y: &'a mut [T],
    sum: Option<&'a mut [T]>,
    means: Option<&'a mut [f32]>,
    inverses: Option<&'a mut [f32]>,
}

/// Returns the row of `scale` or `bias` for a row of the input.
#[inline(always)]
fn row_of<T>(list: &[T], row: usize, width: usize) -> &[T] {
    &list[row % (list.len() / width) * width..][..width]
}

/// Element type of [`layer_norm`] and [`rms_norm`].
pub trait RowNorm: Number {
    /// Normalizes rows on the calling thread.
    #[doc(hidden)]
    fn normalize(level: Level, isa: Isa, rows: Rows<'_, Self>);
}

impl RowNorm for f32 {
    fn normalize(_: Level, isa: Isa, mut rows: Rows<'_, f32>) {
        let Inputs { center, x, residual, scale, bias, epsilon } = rows.inputs;
        let (first, width, len) = (rows.first, rows.width, rows.y.len());
        let start_of_rows = |list: &[f32]| list[first * width..][..len].as_ptr();
        let pitched = PitchedRows {
            parameters: Parameters { center, scale, bias, epsilon },
            count: len / width,
            first,
            width,
            x: start_of_rows(x),
            residual: residual.map(start_of_rows),
            x_pitch: width,
            y: rows.y.as_mut_ptr(),
            sum: rows.sum.as_mut().map(|sum| sum[..len].as_mut_ptr()),
            y_pitch: width,
            means: rows.means,
            inverses: rows.inverses,
        };
        // SAFETY: the constructor of `level` has checked that the machine has `isa`; all pointers
        // are to `count` rows of `width` elements.
        unsafe { dispatch(isa, pitched) }
    }
}

impl RowNorm for f64 {
    fn normalize(level: Level, _: Isa, rows: Rows<'_, f64>) {
        level.run(rows);
    }
}

macro_rules! through_floats {
    ($($t:ty),*) => { $(
        impl RowNorm for $t {
            fn normalize(level: Level, isa: Isa, rows: Rows<'_, $t>) {
                normalize_wide(level, isa, rows);
            }
        }
    )* };
}

through_floats!(half::f16, half::bf16);

/// Cache: elements of rows that are widened together.
const WIDENED: usize = 2048;

/// Normalizes rows of a 16-bit type: widens some rows at a time, rounds the sum with the residual,
/// runs the loops of f32, and rounds their results.
fn normalize_wide<T: Number<Wide = f32>>(level: Level, isa: Isa, rows: Rows<'_, T>) {
    let Rows { inputs, first, width, y, mut sum, mut means, mut inverses } = rows;
    let Inputs { center, x, residual, scale, bias, epsilon } = inputs;
    let (count, together) = (y.len() / width, (WIDENED / width).max(1));
    // Parameters with several rows are widened with the rows that use them, others once.
    let parameters = [Some(scale), bias].map(|list| list.map_or(0, <[T]>::len));
    let is_shared = parameters.iter().all(|len| *len <= width);
    let together = if is_shared { together } else { 1 };
    let len = together.min(count) * width;
    with_scratch(4 * len.max(width), |memory| {
        let mut parts = memory.chunks_exact_mut(len.max(width));
        let (Some(wide_x), Some(wide_y), Some(wide_scale), Some(wide_bias)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return;
        };
        let (wide_scale, wide_bias) = (&mut wide_scale[..width], &mut wide_bias[..width]);
        for start in (0..count).step_by(together) {
            let rows = start..count.min(start + together);
            let (from, own) = ((first + start) * width, rows.start * width..rows.end * width);
            let n = own.len();
            let (wide_x, wide_y) = (&mut wide_x[..n], &mut wide_y[..n]);
            T::widen_all(level, &x[from..][..n], wide_x);
            if let Some(residual) = residual {
                T::widen_all(level, &residual[from..][..n], wide_y);
                for (x, residual) in wide_x.iter_mut().zip(&*wide_y) {
                    *x += residual;
                }
                let rounded = sum.as_deref_mut().unwrap_or(&mut *y);
                T::narrow_all(level, wide_x, &mut rounded[own.clone()]);
                T::widen_all(level, &rounded[own.clone()], wide_x);
            } else if let Some(sum) = &mut sum {
                sum[own.clone()].copy_from_slice(&x[from..][..n]);
            }
            if start == 0 || !is_shared {
                T::widen_all(level, row_of(scale, first + start, width), wide_scale);
                if let Some(bias) = bias {
                    T::widen_all(level, row_of(bias, first + start, width), wide_bias);
                }
            }
            let bias = bias.map(|_| &*wide_bias);
            let pitched = PitchedRows {
                parameters: Parameters { center, scale: wide_scale, bias, epsilon },
                count: rows.len(),
                first: 0,
                width,
                x: wide_x.as_ptr(),
                residual: None,
                x_pitch: width,
                y: wide_y.as_mut_ptr(),
                sum: None,
                y_pitch: width,
                means: means.as_deref_mut().map(|list| &mut list[rows.clone()]),
                inverses: inverses.as_deref_mut().map(|list| &mut list[rows.clone()]),
            };
            // SAFETY: the constructor of `level` has checked that the machine has `isa`; all
            // pointers are to whole rows of the scratch memory.
            unsafe { dispatch(isa, pitched) }
            T::narrow_all(level, wide_y, &mut y[own]);
        }
    });
}

impl<T: Math> Loop for Rows<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(mut self) {
        let (inputs, width) = (self.inputs, self.width);
        let mut block = [T::ZERO; 256];
        for i in 0..self.y.len() / width {
            let from = (self.first + i) * width;
            let own = i * width..(i + 1) * width;
            if let Some(residual) = inputs.residual {
                let terms = inputs.x[from..].iter().zip(&residual[from..]);
                for (y, (x, residual)) in self.y[own.clone()].iter_mut().zip(terms) {
                    *y = x.add(*residual);
                }
            } else {
                self.y[own.clone()].copy_from_slice(&inputs.x[from..][..width]);
            }
            if let Some(sum) = &mut self.sum {
                sum[own.clone()].copy_from_slice(&self.y[own.clone()]);
            }
            let (scale, bias) = (
                row_of(inputs.scale, self.first + i, width),
                inputs.bias.map(|bias| row_of(bias, self.first + i, width)),
            );
            let y = &mut self.y[own];
            let mean = if inputs.center { run(Sum, y).to_f64() / width as f64 } else { 0.0 };
            let center = T::from_f64(mean);
            let mut squares = 0.0;
            for x in y.chunks(block.len()) {
                for (square, x) in block.iter_mut().zip(x) {
                    let d = x.sub(center);
                    *square = d.mul(d);
                }
                squares += run(Sum, &block[..x.len()]).to_f64();
            }
            let inverse = 1.0 / (squares / width as f64 + inputs.epsilon).sqrt();
            let factor = T::from_f64(inverse);
            match bias {
                Some(bias) => {
                    for ((y, scale), bias) in y.iter_mut().zip(scale).zip(bias) {
                        let normal = y.sub(center).mul(factor);
                        *y = Math::mul_add::<FMA>(normal, *scale, *bias);
                    }
                }
                None => {
                    for (y, scale) in y.iter_mut().zip(scale) {
                        let normal = y.sub(center).mul(factor);
                        *y = normal.mul(*scale);
                    }
                }
            }
            for (list, value) in [(&mut self.means, mean), (&mut self.inverses, inverse)] {
                if let Some(list) = list {
                    list[i] = value as f32;
                }
            }
        }
    }
}

/// Parameters of a normalization.
#[derive(Clone, Copy)]
pub(crate) struct Parameters<'a> {
    /// Whether the mean is subtracted.
    pub(crate) center: bool,
    /// Scales: one row, or several that are used cyclically.
    pub(crate) scale: &'a [f32],
    /// Biases: one row, or several that are used cyclically.
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) epsilon: f64,
}

/// Body that normalizes rows of f32, whose starts are a pitch apart, in vectors.
///
/// The pointers must be to `count` rows of `width` elements. No output may overlap an input, except
/// that `y` may be `x`, and `y` may be the sum.
pub(crate) struct PitchedRows<'a> {
    pub(crate) parameters: Parameters<'a>,
    pub(crate) count: usize,
    /// Index of the first row, which selects the rows of the parameters.
    pub(crate) first: usize,
    pub(crate) width: usize,
    pub(crate) x: *const f32,
    pub(crate) residual: Option<*const f32>,
    /// Row stride of `x` and `residual`, in floats.
    pub(crate) x_pitch: usize,
    pub(crate) y: *mut f32,
    pub(crate) sum: Option<*mut f32>,
    /// Row stride of `y` and `sum`, in floats.
    pub(crate) y_pitch: usize,
    /// Receives the mean of each row.
    pub(crate) means: Option<&'a mut [f32]>,
    /// Receives the inverse deviation of each row.
    pub(crate) inverses: Option<&'a mut [f32]>,
}

impl Body for PitchedRows<'_> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let PitchedRows { parameters, count, first, width, x, residual, .. } = self;
        let PitchedRows { x_pitch, y, sum, y_pitch, mut means, mut inverses, .. } = self;
        let Parameters { center, scale, bias, epsilon } = parameters;
        let together = if width <= NARROW { TOGETHER } else { 1 };
        // Destination of the sum with the residual, which later passes read.
        let summed = sum.unwrap_or(y);
        let (read, pitch) = match residual {
            Some(_) => (summed.cast_const(), y_pitch),
            None => (x, x_pitch),
        };
        for start in (0..count).step_by(together) {
            let n = together.min(count - start);
            let (mut centers, mut squares) = ([0.0; TOGETHER], [0.0; TOGETHER]);
            // SAFETY: the caller promises the instruction set of `S` and pointers to rows of
            // `width` elements. Outputs overlap no inputs, except a sum in `y`, each element of
            // which is read before it is replaced.
            unsafe {
                for (g, squares) in squares[..n].iter_mut().enumerate() {
                    let i = start + g;
                    let (x, to) = (x.add(i * x_pitch), summed.add(i * y_pitch));
                    // Adding -0 changes no value, not even the sign of 0.
                    let total = match residual {
                        Some(residual) => {
                            let residual = residual.add(i * x_pitch);
                            if center {
                                fold::<S, true, false>(x, residual, to, 0.0, width)
                            } else {
                                fold::<S, true, true>(x, residual, to, -0.0, width)
                            }
                        }
                        None => {
                            if sum.is_some() {
                                std::ptr::copy_nonoverlapping(x, to, width);
                            }
                            if center {
                                fold::<S, false, false>(x, x, to, 0.0, width)
                            } else {
                                fold::<S, false, true>(x, x, to, -0.0, width)
                            }
                        }
                    };
                    *squares = total;
                }
                if center {
                    for g in 0..n {
                        let row = read.add((start + g) * pitch);
                        centers[g] = squares[g] / width as f64;
                        squares[g] = fold::<S, false, true>(row, row, y, -centers[g] as f32, width);
                    }
                }
                for g in 0..n {
                    let (i, mean) = (start + g, centers[g]);
                    let inverse = 1.0 / (squares[g] / width as f64 + epsilon).sqrt();
                    let (row, y) = (read.add(i * pitch), y.add(i * y_pitch));
                    let (minus, factor) = (-mean as f32, inverse as f32);
                    let scale = row_of(scale, first + i, width).as_ptr();
                    match bias {
                        Some(bias) => {
                            let bias = row_of(bias, first + i, width).as_ptr();
                            finish::<S, true>(row, minus, factor, scale, bias, y, width);
                        }
                        None => finish::<S, false>(row, minus, factor, scale, scale, y, width),
                    }
                    for (list, value) in [(&mut means, mean), (&mut inverses, inverse)] {
                        if let Some(list) = list {
                            list[i] = value as f32;
                        }
                    }
                }
            }
        }
    }
}

/// Geometry: rows that go through each pass together, so that loads of the next row overlap with
/// the division and square root of the last one.
const TOGETHER: usize = 4;
/// Cache: row length up to which [`TOGETHER`] rows, read and written, fit a first-level cache of 32
/// KB.
const NARROW: usize = 1024;

/// Sums: accumulators of a fold, enough additions in flight to hide their latency.
const ACCUMULATORS: usize = 8;
/// Sums: elements that enter the accumulators before these are added to the f64 total: a multiple
/// of the elements that all accumulators take at a time.
const BLOCK: usize = 32 * ACCUMULATORS * 16;

/// Sums `n` elements, or the squares of elements plus `minus`. With `ADD`, the elements are `x +
/// residual`, and are also written to `to`.
///
/// # Safety
///
/// The machine has the instruction set of `S`; `x` is valid for `n` elements, and so are `residual`
/// and `to` with `ADD`.
#[inline(always)]
unsafe fn fold<S: Simd, const ADD: bool, const SQUARE: bool>(
    x: *const f32,
    residual: *const f32,
    to: *mut f32,
    minus: f32,
    n: usize,
) -> f64 {
    // SAFETY: each access is at an index below `n`, or masked to such; the caller promises valid
    // pointers and `S`.
    unsafe {
        let step = ACCUMULATORS * S::LANES;
        let minuses = [minus; 16];
        let minus = S::splat(minus);
        let mut total = 0.0;
        for start in (0..n).step_by(BLOCK) {
            let (mut at, end) = (start, n.min(start + BLOCK));
            let mut sums = [S::splat(0.0); ACCUMULATORS];
            while end - at >= step {
                for (k, sum) in sums.iter_mut().enumerate() {
                    let i = at + k * S::LANES;
                    let mut v = S::load(x.add(i));
                    if ADD {
                        v = S::add(v, S::load(residual.add(i)));
                        S::store(to.add(i), v);
                    }
                    *sum = if SQUARE {
                        let d = S::add(v, minus);
                        S::fma(d, d, *sum)
                    } else {
                        S::add(*sum, v)
                    };
                }
                at += step;
            }
            for sum in &mut sums {
                if at >= end {
                    break;
                }
                // Lanes past the end stay 0 in all terms, so they add nothing.
                let mask = S::first(end - at);
                let mut v = S::load_m(x.add(at), mask);
                if ADD {
                    v = S::add(v, S::load_m(residual.add(at), mask));
                    S::store_m(to.add(at), mask, v);
                }
                *sum = if SQUARE {
                    let d = S::add(v, S::load_m(minuses.as_ptr(), mask));
                    S::fma(d, d, *sum)
                } else {
                    S::add(*sum, v)
                };
                at += S::LANES;
            }
            let mut half = ACCUMULATORS / 2;
            while half > 0 {
                for k in 0..half {
                    sums[k] = S::add(sums[k], sums[k + half]);
                }
                half /= 2;
            }
            total += f64::from(S::sum(sums[0]));
        }
        total
    }
}

/// Computes `y = (x + minus) * factor * scale + bias` for `n` elements.
///
/// # Safety
///
/// The machine has the instruction set of `S`; all pointers are valid for `n` elements, `bias` only
/// with `SHIFT`. `x` may be `y`.
#[inline(always)]
unsafe fn finish<S: Simd, const SHIFT: bool>(
    x: *const f32,
    minus: f32,
    factor: f32,
    scale: *const f32,
    bias: *const f32,
    y: *mut f32,
    n: usize,
) {
    /// Geometry: vectors per iteration of the loop.
    const VECTORS: usize = 4;
    // SAFETY: each access is at an index below `n`, or masked to such; the caller promises valid
    // pointers and `S`.
    unsafe {
        let (minus, factor) = (S::splat(minus), S::splat(factor));
        let mut at = 0;
        while n - at >= VECTORS * S::LANES {
            let mut results = [minus; VECTORS];
            for (k, result) in results.iter_mut().enumerate() {
                let i = at + k * S::LANES;
                let normal = S::mul(S::add(S::load(x.add(i)), minus), factor);
                *result = if SHIFT {
                    S::fma(normal, S::load(scale.add(i)), S::load(bias.add(i)))
                } else {
                    S::mul(normal, S::load(scale.add(i)))
                };
            }
            for (k, result) in results.iter().enumerate() {
                S::store(y.add(at + k * S::LANES), *result);
            }
            at += VECTORS * S::LANES;
        }
        while at < n {
            let mask = S::first(n - at);
            let normal = S::mul(S::add(S::load_m(x.add(at), mask), minus), factor);
            let scale = S::load_m(scale.add(at), mask);
            let result = if SHIFT {
                S::fma(normal, scale, S::load_m(bias.add(at), mask))
            } else {
                S::mul(normal, scale)
            };
            S::store_m(y.add(at), mask, result);
            at += S::LANES;
        }
    }
}

#[cfg(test)]
mod tests;
