//! Loops of classical machine learning: scaled and imputed features, scores of classes and their
//! transforms, support vectors.
//!
//! Floats are computed in their own type, integers in f64. Scores stay in that type up to the end,
//! so that the best class is found before scores are rounded to f32.

mod svm;

use crate::softmax::{Row, ShortRows, Softmax};
use sardonyx_gemm::gemm::{self, Bias, Epilogue, Lhs, MatRef, Rhs, gemm_generic, gemm_scratch};
use sardonyx_simd::Exec;
use sardonyx_simd::Pool;
use sardonyx_simd::chunks::{self, Shared, rows};
use sardonyx_simd::number::{Arith, Math, Number};
use sardonyx_simd::{Ended, Level, Loop};

pub use svm::{
    KernelFunction, Pairs, Sigmoids, SupportVectors, couple, decide, pair_count, similarities,
    weigh,
};

/// Norm by which rows are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowNorm {
    /// The largest absolute value.
    Max,
    /// The sum of absolute values.
    L1,
    /// The root of the sum of squares.
    L2,
}

/// Transform of scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostTransform {
    /// Scores stay.
    None,
    /// Softmax of each row.
    Softmax,
    /// `1 / (1 + exp(-x))`.
    Logistic,
    /// Like [`PostTransform::Softmax`], but scores within 1e-7 of 0 are multiplied by `exp(-max)`,
    /// so that 0 stays 0.
    SoftmaxZero,
    /// Quantile of the normal distribution.
    Probit,
}

impl PostTransform {
    /// Whether the transform is monotonic. Then scores are best compared before it: it may round
    /// different scores to equal ones.
    pub fn keeps_order(self) -> bool {
        matches!(self, PostTransform::None | PostTransform::Softmax | PostTransform::Logistic)
    }
}

/// Parameters of [`scale`]: an element for each feature, or one for all.
#[derive(Clone, Copy, Debug)]
pub struct FeatureScale<'a, R> {
    /// Subtracted first.
    pub offsets: &'a [R],
    pub factors: &'a [R],
}

/// Scales features: `y = (x - offset) * factor`, by rows of `features` elements. Offsets and
/// factors have an element for each feature, or one for all.
///
/// # Panics
///
/// If lengths do not fit each other.
pub fn scale<T: Number>(
    exec: &Exec<'_>,
    features: usize,
    FeatureScale { offsets, factors }: FeatureScale<'_, T::Real>,
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

/// Divides rows of `width` elements by their norm, or by 1e-30 if the norm is smaller.
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

/// Writes 1 for elements above the threshold and 0 for others.
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

/// Replaces each `missing` element, which may be NaN, by the number of its feature. `numbers` has
/// an element for each of the `features` of a row, or one for all.
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

/// Writes `function` of each element. `work` is the cost of one call, in elementary operations.
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

/// Writes `function` of the index of each output. `work` is the cost of one call, in elementary
/// operations.
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

/// Encodes each row of `width` elements as zeros with a 1 at its index in `places`. An index out of
/// range gives only zeros.
///
/// # Panics
///
/// If there is not one index per row.
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

/// Looks up table entries: `y[i] = table[places[i]]`.
///
/// # Panics
///
/// If there is not one index per output, or an index is out of range.
pub fn look_up<T: Copy + Send + Sync>(
    pool: &Pool,
    table: &[T],
    places: &[u32],
    y: &mut [T],
) -> Result<(), Ended> {
    map(pool, 2, places, y, |place| table[*place as usize])
}

/// Columns of an output that features are copied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnRange {
    /// Number of columns of the output.
    pub width: usize,
    /// First column.
    pub start: usize,
    /// Number of columns.
    pub count: usize,
}

/// Copies columns of features, `[rows, columns]`, into the columns of `range` of output rows of
/// `width` floats; `count - columns` columns are filled with zeros if there are fewer, and excess
/// features are left out.
///
/// # Panics
///
/// If lengths do not fit each other.
pub fn place_columns<T: Number>(
    exec: &Exec<'_>,
    columns: usize,
    ColumnRange { width, start: at, count }: ColumnRange,
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

/// Types in which scores are computed: f32 and f64.
pub trait Score: Math {
    /// Computes weighted sums: `y = x w^T + bias`. `x` has dims `[rows, features]`, `w` has dims
    /// `[sums, features]`, and row `i` of the result is `y[i * pitch..][..sums]`.
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

    /// Returns the most bytes of scratch memory that [`Score::sums`] uses for such operands.
    fn sums_scratch(exec: &Exec<'_>, sizes: Sums, x: &[Self], w: &[Self]) -> usize;
}

/// Sizes of weighted sums of features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    pub rows: usize,
    pub features: usize,
    /// Number of sums of a row.
    pub sums: usize,
    /// Row stride of the result.
    pub pitch: usize,
}

impl Sums {
    /// Returns both operands as matrices.
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

    /// Returns 0: only the tiles of each thread are used, for all sizes.
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

/// Transforms rows of `width` scores on the calling thread.
pub(crate) fn transform_rows<T: Math>(
    level: Level,
    how: PostTransform,
    width: usize,
    scores: &mut [T],
) {
    T::run(level, TransformLoop { how, width, scores });
}

/// Loop of [`post_transform`].
struct TransformLoop<'a, T> {
    how: PostTransform,
    width: usize,
    scores: &'a mut [T],
}

impl<T: Math> Loop for TransformLoop<'_, T> {
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

/// Value: distance from 0 up to which [`PostTransform::SoftmaxZero`] treats a score as 0.
const NEXT_TO_ZERO: f64 = 1e-7;

/// Computes [`PostTransform::SoftmaxZero`] of a row; each score becomes 0.5 if their sum is 0.
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

/// Computes the quantile of the normal distribution by the approximation of the inverse of erf that
/// exporters of such models assume: S. Winitzki, "A handy approximation for the error function and
/// its inverse", 2008, with a = 0.147. The error is at most 0.2 %. Returns 0 at 0 and 1, where the
/// quantile is infinite.
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

/// Expands one score `s`, the second element of each pair, to the scores `[-s, s]` of two classes.
pub fn mirror<T: Arith>(exec: &Exec<'_>, scores: &mut [T]) -> Result<(), Ended> {
    fill_pairs(exec.pool, scores, |[other, score]| *other = score.neg())
}

/// Calls `pair` for each pair of scores.
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

/// Rounds a real to f32.
#[inline(always)]
fn to_single<R: Math>(real: R) -> f32 {
    real.to_f64() as f32
}

#[cfg(test)]
mod tests;
