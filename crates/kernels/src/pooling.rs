//! Pooling over spatial windows of any number of dims.
//!
//! The one idea: an output row is accumulated tap by tap. The outputs whose windows do not touch
//! the left and right edges form one range, known before the loop; over it the inner loop reads a
//! contiguous (or evenly strided) piece of an input row per tap, without any test. The few others
//! are done one by one. Padding is never read: it does not win a maximum and adds nothing to a sum.

pub(crate) mod taps;

use std::hint::select_unpredictable;

use crate::Exec;
use crate::elementwise::chunks::{fill, rows};
use crate::number::{Arith, Number};
use crate::reduce::{Fold, Maximum, Sum, run_block};
use crate::simd::{Level, Loop};
use taps::{TILE, Taps};

/// The geometry of a pooling. All lists have one entry per spatial dim, and there is at least one.
///
/// Output dims are the caller's choice (that is all there is to ceil mode); windows may reach
/// beyond the padding.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    pub input: &'a [usize],
    pub output: &'a [usize],
    pub kernel: &'a [usize],
    pub strides: &'a [usize],
    pub dilations: &'a [usize],
    pub pads_begin: &'a [usize],
    /// Matters only to [`Divisor::WithPadding`].
    pub pads_end: &'a [usize],
}

impl Window<'_> {
    pub(crate) fn check(&self, planes: usize, x: usize, y: usize) {
        let rank = self.input.len();
        assert!(rank > 0, "no spatial dim");
        for list in
            [self.output, self.kernel, self.strides, self.dilations, self.pads_begin, self.pads_end]
        {
            assert_eq!(list.len(), rank, "one entry per spatial dim");
        }
        assert!(!self.strides.contains(&0) && !self.dilations.contains(&0), "steps of zero");
        assert_eq!(x, planes * self.input.iter().product::<usize>(), "the input has other dims");
        assert_eq!(y, planes * self.output.iter().product::<usize>(), "the output has other dims");
    }

    pub(crate) fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    pub(crate) fn width(&self) -> usize {
        self.output[self.output.len() - 1]
    }
}

/// What an average divides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Divisor {
    /// The elements in the window.
    Inside,
    /// The elements in the window and the padding it covers, but not what lies beyond the padding.
    WithPadding,
}

/// The order in which [`max_pool_with_indices`] counts positions in a plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The last dim is counted fastest.
    RowMajor,
    /// The first spatial dim is counted fastest.
    ColumnMajor,
}

/// The greatest element of each window, for `planes` (batch times channels) planes. A window
/// without any element gives the least value of the type; NaN wins.
///
/// # Panics
///
/// If lengths do not fit the geometry, a stride or dilation is 0, or there are more than nine
/// spatial dims.
pub fn max_pool<T: Number>(
    exec: &Exec<'_>,
    planes: usize,
    window: &Window<'_>,
    x: &[T],
    y: &mut [T],
) {
    let finish = |max, _| T::narrow(max);
    pooled(exec, planes, window, x, y, Pooling { fold: Maximum, finish, divisor: None });
}

/// The average of each window; see [`max_pool`] for the rest. A window without anything to divide
/// by gives NaN (0 for integers).
///
/// # Panics
///
/// As [`max_pool`].
pub fn average_pool<T: Number>(
    exec: &Exec<'_>,
    planes: usize,
    window: &Window<'_>,
    divisor: Divisor,
    x: &[T],
    y: &mut [T],
) {
    let finish = |sum: T::Wide, count: usize| T::narrow(sum.div(Number::from_f64(count as f64)));
    pooled(exec, planes, window, x, y, Pooling { fold: Sum, finish, divisor: Some(divisor) });
}

/// The `p`-norm of each window: the sum of `|x|^p`, to the power `1/p`. See [`max_pool`] for the
/// rest.
///
/// # Panics
///
/// As [`max_pool`].
pub fn lp_pool<T: Number>(
    exec: &Exec<'_>,
    planes: usize,
    window: &Window<'_>,
    p: u32,
    x: &[T],
    y: &mut [T],
) {
    match p {
        1 => {
            let finish = |sum: T::Wide, _| T::narrow(sum);
            pooled(exec, planes, window, x, y, Pooling { fold: Norm(1), finish, divisor: None });
        }
        2 => {
            let finish = |sum: T::Wide, _| T::from_f64(sum.to_f64().sqrt());
            pooled(exec, planes, window, x, y, Pooling { fold: Norm(2), finish, divisor: None });
        }
        _ => {
            let finish = move |sum: T::Wide, _| T::from_f64(sum.to_f64().powf(1.0 / f64::from(p)));
            pooled(exec, planes, window, x, y, Pooling { fold: Norm(p), finish, divisor: None });
        }
    }
}

/// Powers up to this one are products.
const MOST_FACTORS: u32 = 16;

/// The sum of powers of absolute values.
#[derive(Clone, Copy)]
struct Norm(u32);

impl Fold for Norm {
    #[inline(always)]
    fn start<W: Arith>(self) -> W {
        W::ZERO
    }
    #[inline(always)]
    fn step<W: Arith>(self, sum: W, x: W) -> W {
        let x = Arith::abs(x);
        if self.0 > MOST_FACTORS {
            return sum.add(x.pow(W::from_f64(f64::from(self.0))));
        }
        let mut power = x;
        for _ in 1..self.0 {
            power = power.mul(x);
        }
        sum.add(power)
    }
    #[inline(always)]
    fn join<W: Arith>(self, a: W, b: W) -> W {
        a.add(b)
    }
}

/// What becomes of a window.
struct Pooling<F, G> {
    fold: F,
    /// The output from what folding gives and what to divide by.
    finish: G,
    divisor: Option<Divisor>,
}

fn pooled<T: Number, F: Fold>(
    exec: &Exec<'_>,
    planes: usize,
    window: &Window<'_>,
    x: &[T],
    y: &mut [T],
    what: Pooling<F, impl Fn(T::Wide, usize) -> T + Copy + Sync>,
) {
    let &Exec { pool, isa } = exec;
    let Pooling { fold, finish, divisor } = what;
    window.check(planes, x.len(), y.len());
    let level = Level::new(isa);
    let width = window.width();
    rows(pool, y, width.max(1), width * window.taps(), |first, y| {
        T::run(level, PooledRows { fold, window, x, y, first, finish, divisor });
    });
}

/// Outputs that fill vectors: one of AVX-512, two of AVX2.
const GROUP: usize = 16;

/// Output rows from number `first` on.
struct PooledRows<'a, T, F, G> {
    fold: F,
    window: &'a Window<'a>,
    x: &'a [T],
    y: &'a mut [T],
    first: usize,
    /// From the accumulated value and the divisor to the result.
    finish: G,
    divisor: Option<Divisor>,
}

impl<T: Number, F: Fold, G: Fn(T::Wide, usize) -> T> Loop for PooledRows<'_, T, F, G> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let PooledRows { fold, window, x, y, first, finish, divisor } = self;
        let last = window.input.len() - 1;
        let (width, in_width, kernel) = (window.width(), window.input[last], window.kernel[last]);
        let (stride, dilation) = (window.strides[last], window.dilations[last]);
        // The outputs whose windows are inside along the last dim: those that see the first and the
        // last tap.
        let low = taps::outputs(window, 0, width);
        let high = taps::outputs(window, kernel.max(1) - 1, width);
        let interior = low.start.max(high.start)..low.end.min(high.end);
        let interior = interior.start.min(interior.end)..interior.end;
        let mut sums = [fold.start::<T::Wide>(); TILE];
        for (i, y) in y.chunks_exact_mut(width).enumerate() {
            let mut taps = Taps::new(window, first + i);
            let outer_count = divisor.map_or(1, |divisor| taps.divisor(window, divisor));
            for o in (0..interior.start).chain(interior.end..width) {
                let inside = taps::inside(window, last, o);
                let mut sum = fold.start::<T::Wide>();
                taps.restart();
                while let Some(row) = taps.next_row(window) {
                    for k in inside.clone() {
                        let column = o * stride + k * dilation - window.pads_begin[last];
                        sum = fold.step(sum, x[row * in_width + column].widen());
                    }
                }
                let count = divisor.map_or(1, |divisor| taps::count(window, last, o, divisor));
                y[o] = finish(sum, outer_count * count);
            }
            // Every tap goes to the same accumulators at the same addresses. Ranges that start
            // elsewhere for some taps would read vectors across two that were just written, which
            // processors cannot forward.
            let mut done = interior.start;
            while done < interior.end {
                let left = interior.end - done;
                let (o, n) = if left >= GROUP {
                    (done, left.min(TILE) / GROUP * GROUP)
                } else if interior.len() >= GROUP {
                    // A few outputs twice are cheaper than a few one by one.
                    (interior.end - GROUP, GROUP)
                } else {
                    (done, left)
                };
                done = o + n;
                let start = o * stride - window.pads_begin[last];
                let y = &mut y[o..o + n];
                let sums = &mut sums[..y.len()];
                sums.fill(fold.start());
                taps.restart();
                while let Some(row) = taps.next_row(window) {
                    let x = &x[row * in_width..][..in_width];
                    if width == 1 && dilation == 1 {
                        // A single output per row, as in global pooling: its taps are a run.
                        for x in x[start..start + kernel].chunks(1024) {
                            sums[0] = fold.join(sums[0], run_block(fold, x));
                        }
                        continue;
                    }
                    for k in 0..kernel {
                        accumulate(fold, sums, &x[start + k * dilation..], stride);
                    }
                }
                let count = divisor.map_or(1, |_| outer_count * kernel);
                for (y, sum) in y.iter_mut().zip(sums) {
                    *y = finish(*sum, count);
                }
            }
        }
    }
}

/// Folds `x[0], x[stride], ..` into `sums`.
#[inline(always)]
fn accumulate<T: Number, F: Fold>(fold: F, sums: &mut [T::Wide], x: &[T], stride: usize) {
    match stride {
        1 => {
            for (sum, x) in sums.iter_mut().zip(x) {
                *sum = fold.step(*sum, x.widen());
            }
        }
        2 => {
            // All but the last have a whole pair, which lets the loop read pairs and vectorise.
            let n = sums.len() - 1;
            let (pairs, _) = x[..2 * n].as_chunks::<2>();
            for (sum, pair) in sums.iter_mut().zip(pairs) {
                *sum = fold.step(*sum, pair[0].widen());
            }
            sums[n] = fold.step(sums[n], x[2 * n].widen());
        }
        _ => {
            for (sum, x) in sums.iter_mut().zip(x.iter().step_by(stride)) {
                *sum = fold.step(*sum, x.widen());
            }
        }
    }
}

/// As [`max_pool`], with the position of each greatest element (the first of equals; the first NaN
/// if there is one) in the whole input: planes are counted before positions in the plane. A window
/// without any element gets -1.
///
/// # Panics
///
/// As [`max_pool`].
pub fn max_pool_with_indices<T: Number>(
    exec: &Exec<'_>,
    planes: usize,
    window: &Window<'_>,
    order: Order,
    x: &[T],
    y: &mut [T],
    indices: &mut [i64],
) {
    let &Exec { pool, isa } = exec;
    window.check(planes, x.len(), y.len());
    assert_eq!(y.len(), indices.len(), "one index per output");
    let (level, width) = (Level::new(isa), window.width());
    let seen = Seen::of(window);
    let seen = &seen;
    rows(pool, indices, width.max(1), 2 * width * window.taps(), |first, indices| {
        T::run(level, Places { window, seen, x, indices, first });
    });
    // Where the greatest element is says what it is.
    let places = &*indices;
    fill(pool, y, 1, |start, y| {
        for (y, &place) in y.iter_mut().zip(&places[start..]) {
            *y = usize::try_from(place).map_or(T::LOWEST, |place| x[place]);
        }
    });
    if order == Order::ColumnMajor {
        fill(pool, indices, 2 * window.input.len(), |_, indices| {
            for place in indices {
                *place = usize::try_from(*place).map_or(-1, |at| column_major(window.input, at));
            }
        });
    }
}

/// What the outputs of a plane see of it.
struct Seen {
    /// For each output of a row: the first column, and how many columns.
    columns: Vec<(usize, usize)>,
    /// Offsets of input rows, those of each output row one after the other.
    starts: Vec<usize>,
    /// By output row: where the next one's begin.
    ends: Vec<usize>,
}

impl Seen {
    fn of(window: &Window<'_>) -> Seen {
        let last = window.input.len() - 1;
        let column = |o| {
            let inside = taps::inside(window, last, o);
            let first = o * window.strides[last] + inside.start * window.dilations[last];
            (first.saturating_sub(window.pads_begin[last]), inside.len())
        };
        let (mut starts, mut ends) = (Vec::new(), Vec::new());
        for row in 0..window.output[..last].iter().product() {
            let mut taps = Taps::new(window, row);
            while let Some(row) = taps.next_row(window) {
                starts.push(row * window.input[last]);
            }
            ends.push(starts.len());
        }
        Seen { columns: (0..window.width()).map(column).collect(), starts, ends }
    }
}

/// Positions of the greatest elements, for output rows from number `first` on: output by output,
/// as output rows are often short, and loops over them would begin more often than they turn.
struct Places<'a, T> {
    window: &'a Window<'a>,
    seen: &'a Seen,
    x: &'a [T],
    indices: &'a mut [i64],
    first: usize,
}

impl<T: Number> Loop for Places<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Places { window, seen: Seen { columns, starts, ends }, x, indices, first } = self;
        let dilation = window.dilations[window.dilations.len() - 1];
        let plane_len: usize = window.input.iter().product();
        let (mut plane, mut row) = (first / ends.len() * plane_len, first % ends.len());
        for indices in indices.chunks_exact_mut(columns.len()) {
            let begin = if row == 0 { 0 } else { ends[row - 1] };
            let starts = &starts[begin..ends[row]];
            for (index, &(column, count)) in indices.iter_mut().zip(columns) {
                if starts.is_empty() || count == 0 {
                    *index = -1;
                    continue;
                }
                let mut place = plane + starts[0] + column;
                let mut best = x[place].widen();
                for start in starts {
                    let start = plane + start + column;
                    for k in 0..count {
                        let at = start + k * dilation;
                        let x = x[at].widen();
                        let wins = (x > best) | (x.is_nan() & !best.is_nan());
                        // Nobody can foretell it: a jump would be taken wrongly every few times.
                        best = select_unpredictable(wins, x, best);
                        place = select_unpredictable(wins, at, place);
                    }
                }
                *index = place as i64;
            }
            row += 1;
            if row == ends.len() {
                (plane, row) = (plane + plane_len, 0);
            }
        }
    }
}

/// A position in all planes with the first dim of a plane counted fastest.
fn column_major(plane: &[usize], at: usize) -> i64 {
    let (mut rest, mut position) = (at, 0);
    for &dim in plane.iter().rev() {
        position = position * dim + rest % dim;
        rest /= dim;
    }
    (rest * plane.iter().product::<usize>() + position) as i64
}

#[cfg(test)]
pub(crate) mod tests;
