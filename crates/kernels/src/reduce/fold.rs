//! Folds, and the two loops that run them.

use sardonyx_elementwise::Walk;
use sardonyx_simd::number::{Arith, Number};
use sardonyx_simd::{Level, Loop};

/// Reduction that can be computed in pieces.
pub(crate) trait Fold: Copy + Sync {
    /// Whether the order of elements does not matter, as nothing is rounded.
    const IS_EXACT: bool;
    /// Returns the neutral element.
    fn start<W: Arith>(self) -> W;
    /// Folds one more element.
    fn step<W: Arith>(self, sum: W, x: W) -> W;
    /// Combines the results of two pieces.
    fn join<W: Arith>(self, a: W, b: W) -> W;
}

macro_rules! folds {
    ($(
        $name:ident, $is_exact:literal: $start:expr,
        |$sum:ident, $x:ident| $step:expr, |$a:ident, $b:ident| $join:expr;
    )*) => { $(
        #[derive(Clone, Copy)]
        pub(crate) struct $name;
        impl Fold for $name {
            const IS_EXACT: bool = $is_exact;
            #[inline(always)]
            fn start<W: Arith>(self) -> W { $start }
            #[inline(always)]
            fn step<W: Arith>(self, $sum: W, $x: W) -> W { $step }
            #[inline(always)]
            fn join<W: Arith>(self, $a: W, $b: W) -> W { $join }
        }
    )* };
}

folds! {
    Sum, false: W::ZERO, |sum, x| sum.add(x), |a, b| a.add(b);
    Norm1, false: W::ZERO, |sum, x| sum.add(Arith::abs(x)), |a, b| a.add(b);
    Squares, false: W::ZERO, |sum, x| sum.add(x.mul(x)), |a, b| a.add(b);
    Product, false: W::ONE, |sum, x| sum.mul(x), |a, b| a.mul(b);
    Maximum, true: W::LOWEST, |sum, x| Arith::max(sum, x), |a, b| Arith::max(a, b);
    Least, true: W::HIGHEST, |sum, x| Arith::min(sum, x), |a, b| Arith::min(a, b);
}

/// Sums: parallel accumulators: two registers of f32 in AVX-512, four in AVX2, which hides the
/// latency of an addition.
const LANES: usize = 32;
/// Sums: elements that enter the accumulators before these are added to the total.
const BLOCK: usize = 32 * LANES;
/// Cache: columns that are accumulated together.
const COLUMNS: usize = 128;
/// Sums: rows that enter the accumulators before these are added to the totals.
const ROWS: usize = 32;

/// Parallel accumulators, aligned to a cache line: they stay in memory, and an AVX-512 access
/// across two lines takes 1.5 times as long.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Lanes<W>([W; LANES]);

/// Folds contiguous elements.
#[inline(always)]
pub(crate) fn run<T: Number, F: Fold>(fold: F, x: &[T]) -> <T::Wide as Arith>::Total {
    let mut total = fold.start::<<T::Wide as Arith>::Total>();
    for block in x.chunks(BLOCK) {
        total = fold.join(total, run_block(fold, block).to_total());
    }
    total
}

/// Folds at most [`BLOCK`] contiguous elements.
#[inline(always)]
pub(crate) fn run_block<T: Number, F: Fold>(fold: F, x: &[T]) -> T::Wide {
    let mut sum = fold.start::<T::Wide>();
    let (groups, rest) = x.as_chunks::<LANES>();
    if !groups.is_empty() {
        let Lanes(lanes) = &mut Lanes([sum; LANES]);
        for group in groups {
            // A length unknown to the compiler keeps this a loop, which is vectorized for all
            // folds. Unrolled, only additions would be.
            let count = std::hint::black_box(LANES).min(LANES);
            for (lane, x) in lanes[..count].iter_mut().zip(group) {
                *lane = fold.step(*lane, x.widen());
            }
        }
        sum = join_lanes(fold, lanes);
    }
    let rest = if F::IS_EXACT { fold_eights(fold, &mut sum, rest) } else { rest };
    for x in rest {
        sum = fold.step(sum, x.widen());
    }
    sum
}

/// Folds groups of eight elements into `sum`, side by side, and returns the elements after the last
/// group. A serial fold would wait for each result.
#[inline(always)]
fn fold_eights<'a, T: Number, F: Fold>(fold: F, sum: &mut T::Wide, x: &'a [T]) -> &'a [T] {
    let (groups, rest) = x.as_chunks::<8>();
    if let Some((first, others)) = groups.split_first() {
        let mut lanes = first.map(T::widen);
        for group in others {
            for (lane, x) in lanes.iter_mut().zip(group) {
                *lane = fold.step(*lane, x.widen());
            }
        }
        let half: [T::Wide; 4] = std::array::from_fn(|i| fold.join(lanes[i], lanes[i + 4]));
        let quarter = [fold.join(half[0], half[2]), fold.join(half[1], half[3])];
        *sum = fold.join(*sum, fold.join(quarter[0], quarter[1]));
    }
    rest
}

/// Joins each lane of the upper half with its counterpart in the lower half until one is left.
#[inline(always)]
fn join_lanes<W: Arith, F: Fold>(fold: F, lanes: &[W; LANES]) -> W {
    /// Sums: accumulators that are left after two halvings.
    const LEFT: usize = LANES / 4;
    // The compiler joins vectors that are stored, so two halvings end in memory. All five in
    // registers compile to moves of single lanes.
    let left: [W; LEFT] = std::hint::black_box(std::array::from_fn(|i| {
        let half = |i: usize| fold.join(lanes[i], lanes[i + 2 * LEFT]);
        fold.join(half(i), half(i + LEFT))
    }));
    let quarter = |i: usize| fold.join(left[i], left[i + 4]);
    let eighth = |i: usize| fold.join(quarter(i), quarter(i + 2));
    fold.join(eighth(0), eighth(1))
}

/// Last step of a reduction, from a total to a result.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Finish {
    /// The total.
    Total,
    /// The total divided by the number of elements.
    Mean(usize),
    /// The square root of the total.
    Root,
    /// The natural logarithm of the total.
    Logarithm,
}

impl Finish {
    /// Computes the result from a total.
    #[inline]
    fn apply<T: Number>(self, total: <T::Wide as Arith>::Total) -> T {
        let narrow = |total| T::narrow(T::Wide::from_total(total));
        match self {
            Finish::Total => narrow(total),
            Finish::Mean(count) => narrow(total.div(Number::from_f64(count as f64))),
            Finish::Root => T::from_f64(total.to_f64().sqrt()),
            Finish::Logarithm => T::from_f64(total.to_f64().ln()),
        }
    }

    /// Computes the results from many totals. Not inlined, so that it is compiled once for each
    /// type rather than for each fold.
    #[inline(never)]
    fn apply_to_all<T: Number>(self, totals: &[<T::Wide as Arith>::Total], out: &mut [T]) {
        for (out, total) in out.iter_mut().zip(totals) {
            *out = self.apply(*total);
        }
    }
}

/// Folds contiguous elements like [`run`]; narrow floats are widened block by block.
#[inline(always)]
fn widened_run<T: Number, F: Fold>(level: Level, fold: F, x: &[T]) -> <T::Wide as Arith>::Total {
    if let Some(x) = T::as_wide(x) {
        return run(fold, x);
    }
    let mut total = fold.start::<<T::Wide as Arith>::Total>();
    let mut wide = [T::Wide::ZERO; BLOCK];
    for x in x.chunks(BLOCK) {
        let wide = &mut wide[..x.len()];
        T::widen_all(level, x, wide);
        total = fold.join(total, run_block(fold, &*wide).to_total());
    }
    total
}

/// Loop over outputs `start..start + out.len()`.
pub(crate) struct Reduction<'a, T, F> {
    pub(crate) level: Level,
    pub(crate) fold: F,
    pub(crate) x: &'a [T],
    /// Walk over the dims of the output.
    pub(crate) kept: &'a Walk<1>,
    /// Walk over the reduced dims.
    pub(crate) reduced: &'a Walk<1>,
    pub(crate) start: usize,
    pub(crate) out: &'a mut [T],
    pub(crate) finish: Finish,
}

impl<T: Number, F: Fold> Loop for Reduction<'_, T, F> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(mut self) {
        let all = std::mem::take(&mut self.out);
        let [kept_step] = self.kept.steps();
        let [reduced_step] = self.reduced.steps();
        let mut memory = ColumnMemory {
            sums: [Number::ZERO; COLUMNS],
            totals: [Number::ZERO; COLUMNS],
            wide: [Number::ZERO; COLUMNS],
        };
        for ([base], at, n) in self.kept.rows(self.start, self.start + all.len()) {
            let out = &mut all[at - self.start..][..n];
            // Depends on the dims alone, as the order of a sum determines its bits.
            if kept_step == 1 && reduced_step != 1 {
                for (i, out) in out.chunks_mut(COLUMNS).enumerate() {
                    let base = base + i * COLUMNS;
                    self.fold_columns(base, &mut memory, out);
                }
                continue;
            }
            for (i, out) in out.iter_mut().enumerate() {
                let base = base + i * kept_step;
                let mut total = self.fold.start::<<T::Wide as Arith>::Total>();
                for ([offset], _, n) in self.reduced.rows(0, self.reduced.len) {
                    let x = &self.x[base + offset..];
                    let piece = if reduced_step == 1 {
                        widened_run(self.level, self.fold, &x[..n])
                    } else {
                        fold_strided(self.fold, x, reduced_step, n)
                    };
                    total = self.fold.join(total, piece);
                }
                *out = self.finish.apply(total);
            }
        }
    }
}

/// Folds `n` elements that are `step` apart.
#[inline(always)]
fn fold_strided<T: Number, F: Fold>(
    fold: F,
    x: &[T],
    step: usize,
    n: usize,
) -> <T::Wide as Arith>::Total {
    let mut total = fold.start::<<T::Wide as Arith>::Total>();
    for x in x.iter().step_by(step.max(1)).take(n) {
        total = fold.step(total, x.widen().to_total());
    }
    total
}

/// Scratch memory of [`Reduction::fold_columns`], which is reused without clearing it.
struct ColumnMemory<W: Arith> {
    sums: [W; COLUMNS],
    totals: [W::Total; COLUMNS],
    /// Widened elements of a row, for narrow types.
    wide: [W; COLUMNS],
}

impl<T: Number, F: Fold> Reduction<'_, T, F> {
    /// Folds the columns of rows that start at `base` plus the offsets of the reduced dims.
    #[inline(always)]
    fn fold_columns(&self, base: usize, memory: &mut ColumnMemory<T::Wide>, out: &mut [T]) {
        let (fold, width) = (self.fold, out.len());
        let (sums, totals) = (&mut memory.sums[..width], &mut memory.totals[..width]);
        sums.fill(fold.start());
        totals.fill(fold.start());
        let [step] = self.reduced.steps();
        let mut rows = 0;
        for ([offset], _, n) in self.reduced.rows(0, self.reduced.len) {
            for i in 0..n {
                let row = &self.x[base + offset + i * step..][..width];
                let row = match T::as_wide(row) {
                    Some(row) => row,
                    None => {
                        T::widen_all(self.level, row, &mut memory.wide[..width]);
                        &memory.wide[..width]
                    }
                };
                for (sum, x) in sums.iter_mut().zip(row) {
                    *sum = fold.step(*sum, *x);
                }
                rows += 1;
                if rows == ROWS {
                    rows = 0;
                    for (total, sum) in totals.iter_mut().zip(sums.iter_mut()) {
                        *total = fold.join(*total, sum.to_total());
                        *sum = fold.start();
                    }
                }
            }
        }
        for (total, sum) in totals.iter_mut().zip(sums) {
            *total = fold.join(*total, sum.to_total());
        }
        self.finish.apply_to_all(totals, out);
    }
}
