//! Reductions over a set of axes, and the positions of extremes along one.
//!
//! The one idea: a reduction is a *fold* (a start value and two inlined functions), and two loops
//! run every fold. When the innermost dim is reduced, contiguous runs go through 32 parallel
//! accumulators; when it is kept, whole rows are accumulated into a row of results. Either way at
//! most a thousand elements enter one f32 accumulator before it is added to an f64 one, in an order
//! that depends on the dims alone: the error of a sum is that of pairwise summation or smaller, and
//! no thread count shows in it.
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

/// What to reduce to. The value of an empty reduction is given in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// (0)
    Sum,
    /// (NaN; 0 for integers, whose mean truncates)
    Mean,
    /// (minus infinity; the least integer)
    Max,
    /// (infinity; the greatest integer)
    Min,
    /// (1)
    Prod,
    /// The sum of absolute values (0)
    L1,
    /// The root of the sum of squares (0)
    L2,
    /// (0)
    SumSquare,
    /// The logarithm of the sum (minus infinity)
    LogSum,
    /// The logarithm of the sum of exponentials, without overflow (minus infinity)
    LogSumExp,
}

/// Reduces `x`, contiguous with dims `dims`, over the axes marked in `axes`. `out` has the
/// remaining dims.
///
/// # Panics
///
/// If lengths do not fit `dims`, or more than [`MAX_RANK`] dims remain after merging neighbours, or
/// `op` is not a sum, mean or extreme of integers of fewer than 32 bits: no operator has others.
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
        // One loop for all that fold alike.
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

/// The walk over the dims whose mark is `wanted`.
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
    // Empty inputs have no elements to be inside of; their walks are never followed into them.
    let available = if len == 0 { usize::MAX >> 1 } else { len };
    Walk::new(&chosen[..rank], [&strides[..rank]], [available])
}

/// Sums: exponentials taken before they are summed.
const BLOCK: usize = 128;

/// Turns maxima in `out` into logarithms of sums of exponentials.
struct LogSumExp<'a, T> {
    x: &'a [T],
    kept: &'a Walk<1>,
    reduced: &'a Walk<1>,
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
