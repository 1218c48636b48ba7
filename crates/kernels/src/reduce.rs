//! Reductions over a set of axes, and positions of extremes along one.
//!
//! A reduction is a *fold* (a start value and two inlined functions), and two loops run all folds.
//! If the innermost dim is reduced, contiguous runs go through 32 parallel accumulators; if it is
//! kept, whole rows are accumulated into a row of results. Either way at most a thousand elements
//! enter one f32 accumulator before it is added to an f64 one, in an order that depends on the dims
//! alone: the error of a sum is at most that of pairwise summation, and results do not depend on
//! the number of threads.
//!
//! Integers wrap. NaN propagates through `Max` and `Min`.

mod arg;
mod fold;

pub use arg::{Extreme, Ties, arg_extreme};
pub(crate) use fold::{Fold, Least, Maximum, Norm1, Squares, Sum, run, run_block};

use fold::{Finish, Product, Reduction};
use sardonyx_elementwise::{MAX_RANK, Walk};
use sardonyx_simd::Exec;
use sardonyx_simd::chunks::fill;
use sardonyx_simd::number::{Arith as _, Math, Number};
use sardonyx_simd::{Ended, Level, Loop};

/// Reduction over the elements of some axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// Sum; 0 without elements.
    Sum,
    /// Mean; NaN without elements. Integers: truncated, and 0 without elements.
    Mean,
    /// Maximum; minus infinity or the least integer without elements.
    Max,
    /// Minimum; infinity or the greatest integer without elements.
    Min,
    /// Product; 1 without elements.
    Prod,
    /// Sum of absolute values; 0 without elements.
    L1,
    /// Square root of the sum of squares; 0 without elements.
    L2,
    /// Sum of squares; 0 without elements.
    SumSquare,
    /// Logarithm of the sum; minus infinity without elements.
    LogSum,
    /// Logarithm of the sum of exponentials, without overflow; minus infinity without elements.
    LogSumExp,
}

/// Reduces `x`, contiguous with dims `dims`, over the axes marked in `axes`. `out` has the
/// remaining dims.
///
/// # Panics
///
/// If lengths do not fit `dims`, more than [`MAX_RANK`] dims remain after merging neighbours, or
/// `op` is not a sum, mean or extreme of integers of fewer than 32 bits, which no operator reduces
/// otherwise.
pub fn reduce<T: Number>(
    exec: &Exec<'_>,
    op: Reduce,
    dims: &[usize],
    axes: &[bool],
    x: &[T],
    out: &mut [T],
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    assert_eq!(dims.len(), axes.len(), "one mark per dim");
    assert_eq!(x.len(), dims.iter().product(), "the input has other dims");
    let (kept, reduced) = (walk(dims, axes, false, x.len()), walk(dims, axes, true, x.len()));
    assert_eq!(out.len(), kept.len, "the output has other dims");
    let level = Level::new(isa);
    let count = reduced.len;
    fill(pool, out, count, |start, out| {
        macro_rules! fold {
            ($fold:ident, $finish:expr) => {{
                let (kept, reduced) = (&kept, &reduced);
                let finish = $finish;
                let fold = $fold;
                T::run(level, Reduction { level, fold, x, kept, reduced, start, out, finish })
            }};
        }
        // Reductions with one fold share one compiled loop.
        match op {
            Reduce::Max => fold!(Maximum, Finish::Total),
            Reduce::Min => fold!(Least, Finish::Total),
            Reduce::Sum | Reduce::Mean | Reduce::LogSum => fold!(
                Sum,
                match op {
                    Reduce::Mean => Finish::Mean(count),
                    Reduce::LogSum => Finish::Logarithm,
                    _ => Finish::Total,
                }
            ),
            _ if const { !T::IS_FLOAT && size_of::<T>() < 4 } => {
                panic!("{op:?} of integers of {} bits", 8 * size_of::<T>())
            }
            Reduce::L2 | Reduce::SumSquare => {
                let is_root = op == Reduce::L2;
                fold!(Squares, if is_root { Finish::Root } else { Finish::Total })
            }
            Reduce::LogSumExp => {
                fold!(Maximum, Finish::Total);
                T::run(level, LogSumExp { x, kept: &kept, reduced: &reduced, start, out });
            }
            Reduce::Prod => fold!(Product, Finish::Total),
            Reduce::L1 => fold!(Norm1, Finish::Total),
        }
    })
}

/// Creates the walk over the dims whose mark is `wanted`, with neighbours merged.
fn walk(dims: &[usize], axes: &[bool], wanted: bool, len: usize) -> Walk<1> {
    let (mut chosen, mut strides, mut rank) = ([0; MAX_RANK], [0; MAX_RANK], 0);
    let mut stride = len;
    for (&dim, &reduced) in dims.iter().zip(axes) {
        stride /= dim.max(1);
        if reduced != wanted || dim == 1 {
            continue;
        }
        if rank > 0 && strides[rank - 1] == stride * dim {
            chosen[rank - 1] *= dim;
            strides[rank - 1] = stride;
            continue;
        }
        assert!(rank < MAX_RANK, "more than {MAX_RANK} dims");
        (chosen[rank], strides[rank]) = (dim, stride);
        rank += 1;
    }
    // Without elements, no walk is followed, but its bounds are checked.
    let available = if len == 0 { usize::MAX >> 1 } else { len };
    Walk::new(&chosen[..rank], [&strides[..rank]], [available])
}

/// Sums: exponentials that are computed before they are summed.
const BLOCK: usize = 128;

/// Loop that turns the maxima in `out` into logarithms of sums of exponentials.
struct LogSumExp<'a, T> {
    x: &'a [T],
    kept: &'a Walk<1>,
    reduced: &'a Walk<1>,
    /// Index of the first output.
    start: usize,
    out: &'a mut [T],
}

impl<T: Number> Loop for LogSumExp<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let [kept_step] = self.kept.steps();
        let [step] = self.reduced.steps();
        for ([base], at, n) in self.kept.rows(self.start, self.start + self.out.len()) {
            for i in 0..n {
                let out = &mut self.out[at - self.start + i];
                let max = out.to_real();
                // An infinite maximum would give infinity minus infinity.
                let shift = if max.is_infinite() { T::Real::ZERO } else { max };
                let mut sum = 0.0;
                let mut block = [T::Real::ZERO; BLOCK];
                for ([offset], _, n) in self.reduced.rows(0, self.reduced.len) {
                    let x = &self.x[base + i * kept_step + offset..];
                    if step == 1 {
                        for x in x[..n].chunks(BLOCK) {
                            for (e, x) in block.iter_mut().zip(x) {
                                *e = Math::exp::<FMA>(x.to_real().sub(shift));
                            }
                            sum += run(Sum, &block[..x.len()]).to_f64();
                        }
                    } else {
                        for x in x.iter().step_by(step.max(1)).take(n) {
                            sum += Math::exp::<FMA>(x.to_real().sub(shift)).to_f64();
                        }
                    }
                }
                *out = T::from_f64(shift.to_f64() + sum.ln());
            }
        }
    }
}

#[cfg(test)]
mod tests;
