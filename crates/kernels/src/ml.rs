//! Loops of models that are no networks: features that are scaled or replaced, scores of classes
//! and what becomes of them, support vectors.
//!
//! The idea to know: floats are computed in their own type, integers in f64. Scores stay in that
//! type up to the end, so that the class is found before anything is rounded to f32.

mod svm;

use crate::softmax::{Row, ShortRows, Softmax};
use sardonyx_gemm::gemm::{self, Bias, Epilogue, Lhs, MatRef, Rhs, gemm_generic, gemm_scratch};
use sardonyx_simd::Exec;
use sardonyx_simd::Pool;
use sardonyx_simd::chunks::{self, Shared, rows};
use sardonyx_simd::number::{Arith, Math, Number};
use sardonyx_simd::{Ended, Level, Loop};

pub use svm::{KernelFunction, Pairs, Sigmoids, couple, decide, pair_count, similarities, weigh};

/// What the elements of a row are divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowNorm {
    /// The largest absolute value.
    Max,
    /// The sum of absolute values.
    L1,
    /// The root of the sum of squares.
    L2,
}

/// What becomes of scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostTransform {
    /// They stay.
    None,
    /// `exp(x) / sum(exp(x))` by row.
    Softmax,
    /// `1 / (1 + exp(-x))`.
    Logistic,
    /// As [`PostTransform::Softmax`], but a score next to 0 stays next to 0.
    SoftmaxZero,
    /// The quantile of the normal distribution.
    Probit,
}

impl PostTransform {
    /// Whether a greater score stays the greater one. Such scores are best compared before the
    /// transform: after it, different ones may have been rounded to the same number.
    pub fn keeps_order(self) -> bool {
        matches!(self, PostTransform::None | PostTransform::Softmax | PostTransform::Logistic)
    }
}

/// `y = (x - offset) * factor` by rows of `features` elements, where offsets and factors are
/// numbers for each feature, or one for all.
///
/// # Panics
///
/// If lengths do not fit each other.
pub fn scale<T: Number>(
    exec: &Exec<'_>,
    features: usize,
    [offsets, factors]: [&[T::Real]; 2],
    x: &[T],
    y: &mut [f32],
) -> Result<(), Ended> {
    assert_eq!(x.len(), y.len(), "one output per input");
    let lengths = [offsets.len(), factors.len()];
    assert!(lengths.iter().all(|len| [1, features].contains(len)), "numbers for each feature");
    let steps = lengths.map(|len| usize::from(len > 1));
    rows(exec.pool, y, features, 4 * features, |first, y| {
        let x = x[first * features..].chunks_exact(features);
        for (y, x) in y.chunks_exact_mut(features).zip(x) {
            for (at, (y, x)) in y.iter_mut().zip(x).enumerate() {
                let (offset, factor) = (offsets[at * steps[0]], factors[at * steps[1]]);
                *y = to_single(x.to_real().sub(offset).mul(factor));
            }
        }
    })
}

/// Rows of `width` elements divided by their norm, or by 1e-30 if that is greater.
///
/// # Panics
///
/// If lengths do not fit each other.
pub fn normalize<T: Number>(
    exec: &Exec<'_>,
    norm: RowNorm,
    width: usize,
    x: &[T],
    y: &mut [f32],
) -> Result<(), Ended> {
    assert_eq!(x.len(), y.len(), "one output per input");
    rows(exec.pool, y, width, 6 * width, |first, y| {
        let x = x[first * width..].chunks_exact(width);
        for (y, x) in y.chunks_exact_mut(width).zip(x) {
            let absolute = x.iter().map(|x| x.to_f64().abs());
            let norm = match norm {
                RowNorm::Max => absolute.fold(0.0, Arith::max),
                RowNorm::L1 => absolute.sum(),
                RowNorm::L2 => absolute.map(|x| x * x).sum::<f64>().sqrt(),
            };
            let divisor = Arith::max(norm, 1e-30);
            for (y, x) in y.iter_mut().zip(x) {
                *y = (x.to_f64() / divisor) as f32;
            }
        }
    })
}

/// 1 where an element is above the threshold, else 0.
///
/// # Panics
///
/// If there is not one output per input.
pub fn binarize<T: Number>(
    exec: &Exec<'_>,
    threshold: f32,
    x: &[T],
    y: &mut [T],
) -> Result<(), Ended> {
    assert_eq!(x.len(), y.len(), "one output per input");
    let threshold = f64::from(threshold);
    chunks::fill(exec.pool, y, 2, |start, y| {
        for (y, x) in y.iter_mut().zip(&x[start..]) {
            *y = if x.to_f64() > threshold { T::ONE } else { T::ZERO };
        }
    })
}

/// `x` with the number of its feature in place of each `missing` element, which may be NaN. There
/// are numbers for each of the `features` of a row, or one for all.
///
/// # Panics
///
/// If lengths do not fit each other.
pub fn impute<T: Number>(
    exec: &Exec<'_>,
    features: usize,
    missing: T,
    numbers: &[T],
    x: &[T],
    y: &mut [T],
) -> Result<(), Ended> {
    assert_eq!(x.len(), y.len(), "one output per input");
    assert!([1, features].contains(&numbers.len()), "numbers for each feature");
    let step = usize::from(numbers.len() > 1);
    let is_nan = missing.widen().is_nan();
    rows(exec.pool, y, features, 3 * features, |first, y| {
        let x = x[first * features..].chunks_exact(features);
        for (y, x) in y.chunks_exact_mut(features).zip(x) {
            for (at, (y, x)) in y.iter_mut().zip(x).enumerate() {
                let is_missing = *x == missing || is_nan && x.widen().is_nan();
                *y = if is_missing { numbers[at * step] } else { *x };
            }
        }
    })
}

/// A function of each element, by as many threads as `work` per element is worth.
///
/// # Panics
///
/// If there is not one output per input.
pub fn map<T: Sync, O: Send>(
    pool: &Pool,
    work: usize,
    x: &[T],
    y: &mut [O],
    function: impl Fn(&T) -> O + Sync,
) -> Result<(), Ended> {
    assert_eq!(x.len(), y.len(), "one output per input");
    chunks::fill(pool, y, work, |start, y| {
        for (y, x) in y.iter_mut().zip(&x[start..]) {
            *y = function(x);
        }
    })
}

/// A function of the position of each output, by as many threads as `work` per element is worth.
pub fn fill<O: Send>(
    pool: &Pool,
    work: usize,
    y: &mut [O],
    function: impl Fn(usize) -> O + Sync,
) -> Result<(), Ended> {
    chunks::fill(pool, y, work, |start, y| {
        for (at, y) in y.iter_mut().enumerate() {
            *y = function(start + at);
        }
    })
}

/// Zeros but for a 1 in each row of `width` elements, at the place that `places` has for it. A row
/// whose place is outside has none.
///
/// # Panics
///
/// If there is not one place per row.
pub fn one_hot(pool: &Pool, width: usize, places: &[u32], y: &mut [f32]) -> Result<(), Ended> {
    assert_eq!(y.len(), places.len() * width, "one place per row");
    rows(pool, y, width, width, |first, y| {
        for (y, place) in y.chunks_exact_mut(width).zip(&places[first..]) {
            y.fill(0.0);
            if let Some(y) = y.get_mut(*place as usize) {
                *y = 1.0;
            }
        }
    })
}

/// `y[i] = table[places[i]]`.
///
/// # Panics
///
/// If there is not one place per output, or a place is outside.
pub fn look_up<T: Copy + Send + Sync>(
    pool: &Pool,
    table: &[T],
    places: &[u32],
    y: &mut [T],
) -> Result<(), Ended> {
    map(pool, 2, places, y, |place| table[*place as usize])
}

/// The columns of features that go to rows of `width` floats, from column `at` on: as many of those
/// `[rows, columns]` as there are, and zeros up to `count`.
///
/// # Panics
///
/// If lengths do not fit each other.
pub fn place_columns<T: Number>(
    exec: &Exec<'_>,
    columns: usize,
    [width, at, count]: [usize; 3],
    x: &[T],
    y: &mut [f32],
) -> Result<(), Ended> {
    assert!(at + count <= width, "columns of the output");
    let kept = count.min(columns);
    rows(exec.pool, y, width, 2 * count, |first, y| {
        for (row, y) in y.chunks_exact_mut(width).enumerate() {
            let (copied, zeros) = y[at..at + count].split_at_mut(kept);
            let x = &x[(first + row) * columns..][..kept];
            copied.iter_mut().zip(x).for_each(|(y, x)| *y = to_single(x.to_real()));
            zeros.fill(0.0);
        }
    })
}

/// The types that scores are computed in: f32 and f64.
pub trait Score: Math {
    /// `y = x w^T + bias`, where `x` has dims `[rows, features]`, `w` has dims `[sums, features]`
    /// and row i of the result is `y[i * pitch..][..sums]`.
    ///
    /// # Panics
    ///
    /// If lengths do not fit each other.
    fn sums(
        exec: &Exec<'_>,
        sizes: Sums,
        x: &[Self],
        w: &[Self],
        bias: &[Self],
        y: &mut [Self],
    ) -> Result<(), Ended>;

    /// The most bytes of scratch memory that [`Score::sums`] takes for such operands.
    fn sums_scratch(exec: &Exec<'_>, sizes: Sums, x: &[Self], w: &[Self]) -> usize;
}

/// The sizes of weighted sums of features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    pub rows: usize,
    pub features: usize,
    pub sums: usize,
    /// From row to row of the result.
    pub pitch: usize,
}

impl Sums {
    fn operands<'a, T: Copy>(&self, x: &'a [T], w: &'a [T]) -> [MatRef<'a, T>; 2] {
        [
            MatRef::row_major(x, self.rows, self.features),
            MatRef::col_major(w, self.features, self.sums),
        ]
    }
}

impl Score for f32 {
    fn sums(
        exec: &Exec<'_>,
        sizes: Sums,
        x: &[f32],
        w: &[f32],
        bias: &[f32],
        y: &mut [f32],
    ) -> Result<(), Ended> {
        let [x, w] = sizes.operands(x, w);
        let epilogue = Epilogue { bias: Some(Bias::Col(bias)), ..Epilogue::default() };
        gemm::gemm(exec, Lhs::Plain(x), Rhs::Plain(w), y, sizes.pitch, &epilogue)
    }

    fn sums_scratch(exec: &Exec<'_>, sizes: Sums, x: &[f32], w: &[f32]) -> usize {
        let [x, w] = sizes.operands(x, w);
        gemm_scratch(exec, &Lhs::Plain(x), &Rhs::Plain(w))
    }
}

impl Score for f64 {
    fn sums(
        exec: &Exec<'_>,
        sizes: Sums,
        x: &[f64],
        w: &[f64],
        bias: &[f64],
        y: &mut [f64],
    ) -> Result<(), Ended> {
        let [x, w] = sizes.operands(x, w);
        let bias = MatRef::new(bias, sizes.rows, sizes.sums, 0, 1);
        gemm_generic(exec, 1.0, x, w, Some((1.0, bias)), y, sizes.pitch)
    }

    /// Tiles of each thread only, whatever the sizes.
    fn sums_scratch(_: &Exec<'_>, _: Sums, _: &[f64], _: &[f64]) -> usize {
        0
    }
}

/// Transforms rows of `width` scores.
///
/// # Panics
///
/// If `scores` is not a whole number of rows.
pub fn post_transform<T: Math>(
    exec: &Exec<'_>,
    how: PostTransform,
    width: usize,
    scores: &mut [T],
) -> Result<(), Ended> {
    if scores.is_empty() || how == PostTransform::None {
        return Ok(());
    }
    let level = Level::new(exec.isa);
    rows(exec.pool, scores, width, 16 * width, |_, scores| {
        transform_rows(level, how, width, scores);
    })
}

/// The same by one thread.
pub(crate) fn transform_rows<T: Math>(
    level: Level,
    how: PostTransform,
    width: usize,
    scores: &mut [T],
) {
    T::run(level, Transformed { how, width, scores });
}

struct Transformed<'a, T> {
    how: PostTransform,
    width: usize,
    scores: &'a mut [T],
}

impl<T: Math> Loop for Transformed<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        match self.how {
            PostTransform::None => {}
            PostTransform::Softmax if self.width < ShortRows::<T>::SHORT => {
                ShortRows { width: self.width, rows: self.scores }.run::<FMA>();
            }
            PostTransform::Softmax => {
                for row in self.scores.chunks_exact_mut(self.width) {
                    Row { op: Softmax::Softmax, row }.run::<FMA>();
                }
            }
            PostTransform::Logistic => {
                self.scores.iter_mut().for_each(|score| *score = score.sigmoid::<FMA>());
            }
            PostTransform::Probit => {
                self.scores
                    .iter_mut()
                    .for_each(|score| *score = T::from_f64(probit(score.to_f64())));
            }
            PostTransform::SoftmaxZero => {
                self.scores.chunks_exact_mut(self.width).for_each(softmax_zero::<T, FMA>);
            }
        }
    }
}

/// Scores within this distance of 0 count as 0 in [`PostTransform::SoftmaxZero`].
const NEXT_TO_ZERO: f64 = 1e-7;

#[inline(always)]
fn softmax_zero<T: Math, const FMA: bool>(row: &mut [T]) {
    let greatest = row.iter().copied().fold(T::LOWEST, Arith::max);
    let at_zero = greatest.neg().exp::<FMA>();
    let mut sum = 0.0;
    for score in row.iter_mut() {
        *score = if score.to_f64().abs() > NEXT_TO_ZERO {
            score.sub(greatest).exp::<FMA>()
        } else {
            score.mul(at_zero)
        };
        sum += score.to_f64();
    }
    let half = T::from_f64(0.5);
    let divisor = T::from_f64(sum);
    for score in row {
        *score = if sum == 0.0 { half } else { score.div(divisor) };
    }
}

/// The quantile of the normal distribution, by the approximation of the inverse of erf that models
/// were made with: S. Winitzki, "A handy approximation for the error function and its inverse",
/// 2008, with a = 0.147. It is off by 0.2 % at most. At 0 and 1, where it would be infinite, it is
/// 0.
fn probit(p: f64) -> f64 {
    const A: f64 = 0.147;
    let x = 2.0 * p - 1.0;
    let rest = (1.0 - x) * (1.0 + x);
    if rest == 0.0 {
        return 0.0;
    }
    let ln = rest.ln();
    let half = 2.0 / (std::f64::consts::PI * A) + 0.5 * ln;
    let inverse = ((half * half - ln / A).sqrt() - half).sqrt();
    std::f64::consts::SQRT_2 * inverse.copysign(x)
}

/// The scores of two classes `[-s, s]` for one score `s`, which lies at the end of each row of two.
pub fn mirror<T: Arith>(exec: &Exec<'_>, scores: &mut [T]) -> Result<(), Ended> {
    fill_pairs(exec.pool, scores, |[other, score]| *other = score.neg())
}

fn fill_pairs<T: Send>(
    pool: &Pool,
    scores: &mut [T],
    pair: impl Fn(&mut [T; 2]) + Sync,
) -> Result<(), Ended> {
    rows(pool, scores, 2, 4, |_, scores| scores.as_chunks_mut().0.iter_mut().for_each(&pair))
}

/// Rounds scores to f32.
///
/// # Panics
///
/// If there is not one output per score.
pub fn to_singles<T: Number>(exec: &Exec<'_>, scores: &[T], y: &mut [f32]) -> Result<(), Ended> {
    map(exec.pool, 2, scores, y, |score| score.to_f64() as f32)
}

/// A real as the f32 next to it.
#[inline(always)]
fn to_single<R: Math>(real: R) -> f32 {
    real.to_f64() as f32
}

#[cfg(test)]
mod tests;
