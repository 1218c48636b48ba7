//! Pooling over spatial windows of any number of dims.
//!
//! The one idea: an output row is accumulated tap by tap. The outputs whose windows do not touch
//! the left and right edges form one range, known before the loop; over it the inner loop reads a
//! contiguous (or evenly strided) piece of an input row per tap, without any test. The few others
//! are done one by one. Padding is never read: it does not win a maximum and adds nothing to a sum.

pub(crate) mod gradient;
pub(crate) mod taps;

use std::hint::select_unpredictable;
use std::ops::Range;

use crate::reduce::{Fold, Maximum, Sum, run_block};
use crate::wide::{Slices, by_slices};
pub use gradient::max_pool_gradient;
use sardonyx_simd::Exec;
use sardonyx_simd::buffer::with_scratch_of;
use sardonyx_simd::chunks::{fill, rows};
use sardonyx_simd::number::{Arith, Number};
use sardonyx_simd::{Ended, Level, Loop};
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

    /// Returns the planes as slices that are pooled one by one.
    fn slices(&self, planes: usize) -> Slices {
        let (input, output) = (self.input.iter().product(), self.output.iter().product());
        Slices { count: planes, input, output, work: output * self.taps() }
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
) -> Result<(), Ended> {
    window.check(planes, x.len(), y.len());
    by_slices(exec, window.slices(planes), Some(x), y, &|exec, planes, x, y| {
        let pooling = Pooling { fold: Maximum, finish: |max, _| max, divisor: None };
        pooled(exec, planes.len(), window, x, y, pooling)
    })
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
) -> Result<(), Ended> {
    window.check(planes, x.len(), y.len());
    by_slices(exec, window.slices(planes), Some(x), y, &|exec, planes, x, y| {
        sum_pool(exec, planes.len(), window, Some(divisor), x, y)
    })
}

/// The sum of each window, divided by what `divisor` says. [`average_pool`] and [`lp_pool`] share
/// the copies of its loops.
fn sum_pool<T: Number>(
    exec: &Exec<'_>,
    planes: usize,
    window: &Window<'_>,
    divisor: Option<Divisor>,
    x: &[T],
    y: &mut [T],
) -> Result<(), Ended> {
    let finish = |sum: T::Wide, count: usize| T::narrow(sum.div(Number::from_f64(count as f64)));
    pooled(exec, planes, window, x, y, Pooling { fold: Sum, finish, divisor })
}

/// Elements that [`lp_pool`] wants as memory: for as many planes as half a megabyte holds, but for
/// one at least.
#[must_use]
pub fn lp_pool_scratch(planes: usize, window: &Window<'_>) -> usize {
    /// Limit: elements of half a megabyte of floats.
    const ELEMENTS: usize = 1 << 17;
    let plane = lp_plane(window);
    planes.min(ELEMENTS / plane.max(1)).max(1).saturating_mul(plane)
}

/// The elements of a plane and of its output.
fn lp_plane(window: &Window<'_>) -> usize {
    window.input.iter().product::<usize>().saturating_add(window.output.iter().product())
}

/// The `p`-norm of each window of floats: the sum of `|x|^p`, to the power `1/p`. See [`max_pool`]
/// for the rest. Powers are taken in `scratch`, of [`lp_pool_scratch`] elements, and summed there
/// as for an average.
///
/// # Panics
///
/// If `scratch` has no room for a plane and its output, and as [`max_pool`].
pub fn lp_pool<T: Number>(
    exec: &Exec<'_>,
    planes: usize,
    window: &Window<'_>,
    p: u32,
    x: &[T],
    scratch: &mut [T::Wide],
    y: &mut [T],
) -> Result<(), Ended> {
    window.check(planes, x.len(), y.len());
    if y.is_empty() {
        return Ok(());
    }
    let (inputs, outputs) = (x.len() / planes, y.len() / planes);
    let at_once = scratch.len() / lp_plane(window);
    assert!(at_once > 0, "no room for the powers of a plane");
    for (i, y) in y.chunks_mut(at_once * outputs).enumerate() {
        let planes = y.len() / outputs;
        let x = &x[i * at_once * inputs..][..planes * inputs];
        let (powers, sums) = scratch.split_at_mut(x.len());
        let sums = &mut sums[..y.len()];
        raise(exec, p, x, powers)?;
        sum_pool(exec, planes, window, None, powers, sums)?;
        let sums = &*sums;
        fill(exec.pool, y, ROOT_WORK, |start, y| {
            for (y, sum) in y.iter_mut().zip(&sums[start..]) {
                *y = match p {
                    1 => T::narrow(*sum),
                    2 => T::from_f64(sum.to_f64().sqrt()),
                    _ => T::from_f64(sum.to_f64().powf(1.0 / f64::from(p))),
                };
            }
        })?;
    }
    Ok(())
}

/// Work: time of a root, in operations.
const ROOT_WORK: usize = 8;
/// Sums: largest power that is computed as products.
const MOST_FACTORS: u32 = 16;

/// Writes `|x|^p`.
fn raise<T: Number>(exec: &Exec<'_>, p: u32, x: &[T], powers: &mut [T::Wide]) -> Result<(), Ended> {
    let level = Level::new(exec.isa);
    fill(exec.pool, powers, Ord::min(p, MOST_FACTORS) as usize, |start, powers| {
        let x = &x[start..][..powers.len()];
        T::run(level, Raise { p, x, powers });
    })
}

struct Raise<'a, T: Number> {
    p: u32,
    x: &'a [T],
    powers: &'a mut [T::Wide],
}

impl<T: Number> Loop for Raise<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Raise { p, x, powers } = self;
        for (power, x) in powers.iter_mut().zip(x) {
            *power = x.widen().abs();
        }
        if p > MOST_FACTORS {
            let p = T::Wide::from_f64(f64::from(p));
            for power in powers {
                *power = power.pow(p);
            }
            return;
        }
        for _ in 1..p {
            for (power, x) in powers.iter_mut().zip(x) {
                *power = power.mul(x.widen().abs());
            }
        }
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
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    let Pooling { fold, finish, divisor } = what;
    window.check(planes, x.len(), y.len());
    let level = Level::new(isa);
    let width = window.width();
    rows(pool, y, width.max(1), width * window.taps(), |first, y| {
        T::run(level, PooledRows { fold, window, x, y, first, finish, divisor });
    })
}

/// Geometry: outputs that fill vectors: one of AVX-512, two of AVX2.
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
    each_strided(x, stride, sums.len(), |i, x| sums[i] = fold.step(sums[i], x.widen()));
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
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    window.check(planes, x.len(), y.len());
    assert_eq!(y.len(), indices.len(), "one index per output");
    let (level, width) = (Level::new(isa), window.width());
    Seen::with(window, |seen| {
        let by_tap = PlacesByTap::<T>::suits(window, seen);
        rows(pool, indices, width.max(1), 2 * width * window.taps(), |first, indices| {
            let places = Places { window, seen, x, indices, first };
            if by_tap {
                T::run(level, PlacesByTap(places));
            } else {
                T::run(level, places);
            }
        })
    })?;
    // Where the greatest element is says what it is.
    let places = &*indices;
    fill(pool, y, 1, |start, y| {
        for (y, &place) in y.iter_mut().zip(&places[start..]) {
            *y = usize::try_from(place).map_or(T::LOWEST, |place| x[place]);
        }
    })?;
    if order == Order::ColumnMajor {
        fill(pool, indices, 2 * window.input.len(), |_, indices| {
            for place in indices {
                *place = usize::try_from(*place).map_or(-1, |at| column_major(window.input, at));
            }
        })?;
    }
    Ok(())
}

/// What the outputs of a plane see of it.
struct Seen<'a> {
    /// For each output of a row: the first column, and how many columns.
    columns: &'a [[usize; 2]],
    /// The outputs of a row that see as many columns as the kernel has.
    whole: Range<usize>,
    /// Offsets of input rows, those of each output row one after the other.
    starts: &'a [usize],
    /// By output row: where the next one's begin.
    ends: &'a [usize],
}

impl Seen<'_> {
    /// Calls back with lists that are in scratch memory.
    fn with<R>(window: &Window<'_>, read: impl FnOnce(&Seen<'_>) -> R) -> R {
        let last = window.input.len() - 1;
        let rows: usize = window.output[..last].iter().product();
        let rows_seen: usize = (0..rows).map(|row| rows_seen_by(window, row).count()).sum();
        with_scratch_of(window.width(), |columns: &mut [[usize; 2]]| {
            for (o, column) in columns.iter_mut().enumerate() {
                let inside = taps::inside(window, last, o);
                let first = o * window.strides[last] + inside.start * window.dilations[last];
                *column = [first.saturating_sub(window.pads_begin[last]), inside.len()];
            }
            let is_whole = |[_, count]: &[usize; 2]| *count == window.kernel[last];
            let first = columns.iter().position(is_whole).unwrap_or(0);
            let count = columns[first..].iter().take_while(|seen| is_whole(seen)).count();
            let whole = first..first + count;
            with_scratch_of(rows + rows_seen, |lists| {
                let (ends, starts) = lists.split_at_mut(rows);
                let mut count = 0;
                for (row, end) in ends.iter_mut().enumerate() {
                    for row in rows_seen_by(window, row) {
                        starts[count] = row * window.input[last];
                        count += 1;
                    }
                    *end = count;
                }
                read(&Seen { columns, whole, starts, ends })
            })
        })
    }
}

/// The input rows that an output row sees.
fn rows_seen_by(window: &Window<'_>, row: usize) -> impl Iterator<Item = usize> {
    let mut taps = Taps::new(window, row);
    std::iter::from_fn(move || taps.next_row(window))
}

/// Positions of the greatest elements, for output rows from number `first` on: output by output.
struct Places<'a, T> {
    window: &'a Window<'a>,
    seen: &'a Seen<'a>,
    x: &'a [T],
    indices: &'a mut [i64],
    first: usize,
}

impl<'a, T> Places<'a, T> {
    /// For each output row: where its plane begins, the rows that it sees, and its positions. Not
    /// a function that calls back, as that might be compiled without the vectors of the loop.
    #[inline(always)]
    fn rows(self) -> impl Iterator<Item = (usize, &'a [usize], &'a mut [i64])> {
        let Seen { columns, starts, ends, .. } = self.seen;
        let plane_len: usize = self.window.input.iter().product();
        let (mut plane, mut row) = (self.first / ends.len() * plane_len, self.first % ends.len());
        self.indices.chunks_exact_mut(columns.len()).map(move |indices| {
            let begin = if row == 0 { 0 } else { ends[row - 1] };
            let found = (plane, &starts[begin..ends[row]], indices);
            row += 1;
            if row == ends.len() {
                (plane, row) = (plane + plane_len, 0);
            }
            found
        })
    }
}

impl<T: Number> Loop for Places<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let (columns, x) = (self.seen.columns, self.x);
        let dilation = self.window.dilations[self.window.dilations.len() - 1];
        for (plane, starts, indices) in self.rows() {
            for (index, &[column, count]) in indices.iter_mut().zip(columns) {
                *index = place_of(x, plane, starts, column, (count, dilation));
            }
        }
    }
}

/// The same where rows are long: a group of neighbouring outputs tap by tap.
struct PlacesByTap<'a, T>(Places<'a, T>);

impl<T> PlacesByTap<'_, T> {
    fn suits(window: &Window<'_>, seen: &Seen<'_>) -> bool {
        let plane: usize = window.input.iter().product();
        seen.whole.len() >= GROUP && u32::try_from(plane).is_ok()
    }
}

impl<T: Number> Loop for PlacesByTap<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Places { window, seen: Seen { columns, whole, .. }, x, .. } = self.0;
        let last = window.kernel.len() - 1;
        let [kernel, stride, dilation] =
            [window.kernel[last], window.strides[last], window.dilations[last]];
        for (plane, starts, indices) in self.0.rows() {
            for output in (0..whole.start).chain(whole.end..columns.len()) {
                let [column, count] = columns[output];
                indices[output] = place_of(x, plane, starts, column, (count, dilation));
            }
            let columns = &columns[whole.clone()];
            let indices = &mut indices[whole.clone()];
            if starts.is_empty() {
                indices.fill(-1);
                continue;
            }
            let row = RowOfPlaces { x: &x[plane..], starts, stride, plane };
            for first in (0..columns.len()).step_by(GROUP) {
                // A few outputs twice are cheaper than a few one by one.
                let first = first.min(columns.len() - GROUP);
                if let Some(indices) = indices[first..].first_chunk_mut() {
                    row.find(columns[first][0], (kernel, dilation), indices);
                }
            }
        }
    }
}

/// Where the greatest element of one window is, or -1: in rows that begin at `starts` of a plane,
/// `count` columns from number `column` on, so many apart.
#[inline(always)]
fn place_of<T: Number>(
    x: &[T],
    plane: usize,
    starts: &[usize],
    column: usize,
    (count, dilation): (usize, usize),
) -> i64 {
    if starts.is_empty() || count == 0 {
        return -1;
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
    place as i64
}

/// Neighbouring windows of a row that lie inside of the input.
struct RowOfPlaces<'a, T> {
    /// From the plane on, which begins at element `plane` of all.
    x: &'a [T],
    starts: &'a [usize],
    stride: usize,
    plane: usize,
}

impl<T: Number> RowOfPlaces<'_, T> {
    /// The positions for neighbouring windows, the first of which begins at a column.
    #[inline(always)]
    fn find(&self, column: usize, (count, dilation): (usize, usize), indices: &mut [i64; GROUP]) {
        let first = self.starts[0] + column;
        let mut best = group(&self.x[first..], self.stride);
        // Where the first window has them.
        let mut taps = [first as u32; GROUP];
        for start in self.starts {
            for k in 0..count {
                let at = start + column + k * dilation;
                let x = group(&self.x[at..], self.stride);
                for i in 0..GROUP {
                    let wins = (x[i] > best[i]) | (x[i].is_nan() & !best[i].is_nan());
                    best[i] = if wins { x[i] } else { best[i] };
                    taps[i] = if wins { at as u32 } else { taps[i] };
                }
            }
        }
        for (i, (index, tap)) in indices.iter_mut().zip(taps).enumerate() {
            *index = (self.plane + tap as usize + i * self.stride) as i64;
        }
    }
}

/// `x[0], x[stride], ..`
#[inline(always)]
fn group<T: Number>(x: &[T], stride: usize) -> [T::Wide; GROUP] {
    let mut found = [T::LOWEST.widen(); GROUP];
    match stride {
        1 => found.iter_mut().zip(&x[..GROUP]).for_each(|(to, x)| *to = x.widen()),
        2 => {
            // A fixed length, in which every second element is a shuffle of vectors.
            /// Geometry: inputs of a group with stride 2.
            const PAIRS: usize = 2 * GROUP - 1;
            if let Some(x) = x.first_chunk::<PAIRS>() {
                (0..GROUP).for_each(|i| found[i] = x[2 * i].widen());
            }
        }
        _ => (0..GROUP).for_each(|i| found[i] = x[i * stride].widen()),
    }
    found
}

/// The first `n` of `x[0], x[stride], ..`, at least one, with their numbers.
#[inline(always)]
fn each_strided<T: Copy>(x: &[T], stride: usize, n: usize, mut see: impl FnMut(usize, T)) {
    match stride {
        1 => x[..n].iter().enumerate().for_each(|(i, x)| see(i, *x)),
        2 => {
            // All but the last have a whole pair, which lets the loop read pairs and vectorise.
            let (pairs, _) = x.as_chunks::<2>();
            pairs[..n - 1].iter().enumerate().for_each(|(i, pair)| see(i, pair[0]));
            see(n - 1, x[2 * (n - 1)]);
        }
        _ => x.iter().step_by(stride).take(n).enumerate().for_each(|(i, x)| see(i, *x)),
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
