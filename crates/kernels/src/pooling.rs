//! Pooling over spatial windows of any number of dims.
//!
//! Folds the rows of a window before its columns, for all outputs of a row at once, with neutral
//! elements in place of padding. So the time grows with the number of rows and columns of a window,
//! not with its elements, and no loop tests for borders. Positions of maxima are found tap by tap
//! instead, and planes of `narrow` rows are folded side by side.

#[cfg(feature = "training")]
pub(crate) mod gradient;
mod narrow;
pub(crate) mod taps;

use std::hint::select_unpredictable;
use std::ops::Range;

use crate::reduce::{Fold, Maximum, Sum, run_block};
use crate::wide::{Slices, by_slices};
#[cfg(feature = "training")]
pub use gradient::max_pool_gradient;
use narrow::NarrowPlanes;
use sardonyx_simd::Exec;
use sardonyx_simd::buffer::with_scratch_of;
use sardonyx_simd::chunks::{fill, rows};
use sardonyx_simd::number::{Arith, Number};
use sardonyx_simd::{Ended, Level, Loop};
use taps::Taps;

/// Geometry of a pooling. All lists have one entry per spatial dim, and there is at least one.
///
/// The caller chooses the output dims, which is how ceil mode works: windows may reach beyond the
/// padding.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    pub input: &'a [usize],
    pub output: &'a [usize],
    pub kernel: &'a [usize],
    pub strides: &'a [usize],
    pub dilations: &'a [usize],
    pub pads_begin: &'a [usize],
    /// Used by [`Divisor::WithPadding`] only.
    pub pads_end: &'a [usize],
}

impl Window<'_> {
    /// Panics unless all lists have one entry per spatial dim, and `x` and `y` are the numbers of
    /// elements of `planes` planes.
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

    /// Returns the planes as slices, which are pooled one by one.
    fn slices(&self, planes: usize) -> Slices {
        let (input, output) = (self.input.iter().product(), self.output.iter().product());
        Slices { count: planes, input, output, work: output * self.taps() }
    }

    /// Returns the number of taps of a window.
    pub(crate) fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Returns the number of outputs of a row.
    pub(crate) fn width(&self) -> usize {
        self.output[self.output.len() - 1]
    }
}

/// Divisor of an average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Divisor {
    /// Number of elements in the window.
    Inside,
    /// Number of elements in the window and in the padding that it covers, not beyond the padding.
    WithPadding,
}

/// Order of the positions in a plane that [`max_pool_with_indices`] writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The last dim varies fastest.
    RowMajor,
    /// The first spatial dim varies fastest.
    ColumnMajor,
}

/// Computes the maximum of each window, for `planes` (batch times channels) planes. A window with a
/// NaN gives NaN, and a window without elements the lowest value of the type.
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
        pool_planes(exec, planes.len(), window, x, y, pooling)
    })
}

/// Computes the average of each window, for `planes` planes. A window with divisor 0 gives NaN, or
/// 0 for integers.
///
/// # Panics
///
/// If lengths do not fit the geometry, a stride or dilation is 0, or there are more than nine
/// spatial dims.
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

/// Computes the sum of each window, divided if there is a divisor. [`average_pool`] and [`lp_pool`]
/// share its compiled loops.
fn sum_pool<T: Number>(
    exec: &Exec<'_>,
    planes: usize,
    window: &Window<'_>,
    divisor: Option<Divisor>,
    x: &[T],
    y: &mut [T],
) -> Result<(), Ended> {
    let finish = |sum: T::Wide, count: usize| T::narrow(sum.div(Number::from_f64(count as f64)));
    pool_planes(exec, planes, window, x, y, Pooling { fold: Sum, finish, divisor })
}

/// Returns the length of the scratch memory for [`lp_pool`]: for as many planes as fit half a
/// megabyte of f32, but at least one.
#[must_use]
pub fn lp_pool_scratch(planes: usize, window: &Window<'_>) -> usize {
    /// Limit: elements in half a megabyte of floats.
    const ELEMENTS: usize = 1 << 17;
    let plane = lp_plane(window);
    planes.min(ELEMENTS / plane.max(1)).max(1).saturating_mul(plane)
}

/// Returns the number of elements of a plane and of its output.
fn lp_plane(window: &Window<'_>) -> usize {
    window.input.iter().product::<usize>().saturating_add(window.output.iter().product())
}

/// Computes the `p`-norm of each window of floats: the sum of `|x|^p`, to the power `1/p`.
/// `scratch`, of [`lp_pool_scratch`] elements, receives the powers and their sums.
///
/// # Panics
///
/// If `scratch` is too short for a plane and its output, lengths do not fit the geometry, a stride
/// or dilation is 0, or there are more than nine spatial dims.
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

/// Work: cost of a root, in operations.
const ROOT_WORK: usize = 8;
/// Sums: largest power that is computed by multiplications.
const MOST_FACTORS: u32 = 16;

/// Writes `|x|^p` to `powers`.
fn raise<T: Number>(exec: &Exec<'_>, p: u32, x: &[T], powers: &mut [T::Wide]) -> Result<(), Ended> {
    let level = Level::new(exec.isa);
    fill(exec.pool, powers, Ord::min(p, MOST_FACTORS) as usize, |start, powers| {
        let x = &x[start..][..powers.len()];
        T::run(level, Raise { p, x, powers });
    })
}

/// Loop that writes `|x|^p` to `powers`.
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

/// Fold of a window, and how its result becomes an output.
struct Pooling<F, G> {
    fold: F,
    /// Computes an output from the result of the fold and the divisor, or 1 without one.
    finish: G,
    divisor: Option<Divisor>,
}

/// Pools planes with a fold, divided between threads by rows, or by planes if their rows are
/// narrow.
fn pool_planes<T: Number, F: Fold>(
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
    if narrow::suits(window, planes) {
        let (inputs, outputs) = (x.len() / planes, y.len() / planes);
        return rows(pool, y, outputs.max(1), outputs * window.taps(), |first, y| {
            let [block, folded] = narrow::memory_of(window);
            with_scratch_of::<T::Wide, _>(block + folded, |memory| {
                memory.fill(fold.start());
                let (block, folded) = memory.split_at_mut(block);
                let x = &x[first * inputs..][..y.len() / outputs * inputs];
                let narrow = NarrowPlanes { fold, window, x, y, finish, divisor, block, folded };
                T::run(level, narrow);
            });
        });
    }
    let columns = &Columns::new(window);
    let in_width = window.input[window.input.len() - 1];
    let work = in_width * (window.taps() / columns.kernel.max(1)) + window.width() * columns.kernel;
    rows(pool, y, window.width().max(1), work, |first, y| {
        with_scratch_of::<T::Wide, _>(columns.len(), |lines| {
            with_scratch_of::<T::Wide, _>(columns.rows * columns.pitch + GROUP, |sums| {
                with_scratch_of::<T::Wide, _>(in_width, |row| {
                    let rows = PooledRows {
                        fold,
                        window,
                        columns,
                        x,
                        y,
                        first,
                        finish,
                        divisor,
                        lines,
                        sums,
                        row,
                    };
                    T::run(level, rows);
                });
            });
        });
    })
}

/// Geometry: outputs that are folded together: one vector of f32 in AVX-512, two in AVX2.
const GROUP: usize = 16;
/// Cache: columns of a band of output rows, which stay in a first-level cache beside the sums.
const BAND: usize = 4096;

/// Layout of the folded rows of a band, as the loops over taps read them: with neutral elements in
/// place of padding, and so that neighbouring outputs read neighbouring columns for each tap.
/// Columns whose distance is a multiple of the stride form a phase; the lines of a phase, one for
/// each output row of the band, are adjacent.
struct Columns {
    /// Columns of a line.
    pitch: usize,
    /// Number of phases that taps read.
    phases: usize,
    /// Output rows of a band.
    rows: usize,
    /// Stride, dilation, size and padding of the kernel along the last dim.
    stride: usize,
    dilation: usize,
    kernel: usize,
    pad: usize,
}

impl Columns {
    fn new(window: &Window<'_>) -> Columns {
        let last = window.input.len() - 1;
        let [kernel, stride, dilation, pad] =
            [window.kernel, window.strides, window.dilations, window.pads_begin]
                .map(|list| list[last]);
        let reach = kernel.saturating_sub(1) * dilation;
        let phases = if kernel == 1 { 1 } else { stride.min(reach + 1) };
        let pitch = window.width() + reach / stride;
        let rows = (BAND / (pitch * phases).max(1)).max(1);
        Columns { pitch, phases, rows, stride, dilation, kernel, pad }
    }

    /// Returns the number of elements of a band, with room for a group after the last.
    fn len(&self) -> usize {
        self.phases * self.rows * self.pitch + GROUP
    }
}

/// Loop over output rows from row `first` on. Folds the rows of a window first, all columns at a
/// time, then its columns: as many steps as a window has rows and columns, rather than elements.
struct PooledRows<'a, T: Number, F, G> {
    fold: F,
    window: &'a Window<'a>,
    columns: &'a Columns,
    x: &'a [T],
    y: &'a mut [T],
    first: usize,
    /// Computes an output from the result of the fold and the divisor.
    finish: G,
    divisor: Option<Divisor>,
    /// Scratch memory for the columns of a band, and for the sums of its outputs.
    lines: &'a mut [T::Wide],
    sums: &'a mut [T::Wide],
    /// Scratch memory for a row of columns before they are distributed to phases.
    row: &'a mut [T::Wide],
}

impl<T: Number, F: Fold, G: Fn(T::Wide, usize) -> T> Loop for PooledRows<'_, T, F, G> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(mut self) {
        let width = self.window.width();
        let rows = self.y.len() / width.max(1);
        self.lines.fill(self.fold.start());
        for start in (0..rows).step_by(self.columns.rows) {
            let band = start..rows.min(start + self.columns.rows);
            for row in band.clone() {
                self.fold_rows(row, row - start);
            }
            self.fold_columns(band.len());
            for row in band {
                self.write(row, row - start);
            }
        }
    }
}

impl<T: Number, F: Fold, G: Fn(T::Wide, usize) -> T> PooledRows<'_, T, F, G> {
    /// Folds the input rows of output row `row`, which is row `index` of its band.
    #[inline(always)]
    fn fold_rows(&mut self, row: usize, index: usize) {
        let PooledRows { fold, window, columns, x, first, .. } = *self;
        let last = window.input.len() - 1;
        let in_width = window.input[last];
        let mut taps = Taps::new(window, first + row);
        let line = index * columns.pitch;
        let Some(first_row) = taps.next_row(window) else {
            for phase in 0..columns.phases {
                let line = phase * columns.rows * columns.pitch + line;
                self.lines[line..][..columns.pitch].fill(fold.start());
            }
            return;
        };
        let is_whole = columns.stride == 1;
        let to = if is_whole {
            // Columns after the last window are left out.
            let line = &mut self.lines[line..][..columns.pitch];
            let inside = line.split_at_mut(columns.pad.min(columns.pitch)).1;
            let count = in_width.min(inside.len());
            &mut inside[..count]
        } else {
            &mut self.row[..in_width]
        };
        let widened = x[first_row * in_width..][..to.len()].iter().map(|x| x.widen());
        to.iter_mut().zip(widened).for_each(|(to, x)| *to = x);
        while let Some(row) = taps.next_row(window) {
            let x = &x[row * in_width..][..to.len()];
            to.iter_mut().zip(x).for_each(|(to, x)| *to = fold.step(*to, x.widen()));
        }
        if is_whole {
            return;
        }
        for phase in 0..columns.phases {
            // First column of the phase that is inside the input.
            let skipped = columns.pad.saturating_sub(phase).div_ceil(columns.stride);
            let column = phase + skipped * columns.stride - columns.pad;
            let line = phase * columns.rows * columns.pitch + line + skipped;
            let Some(from) = self.row[..in_width].get(column..) else { continue };
            let count = columns.pitch.saturating_sub(skipped);
            let count = count.min(from.len().div_ceil(columns.stride));
            if count > 0 {
                let to = &mut self.lines[line..][..count];
                each_strided(from, columns.stride, count, |i, x| to[i] = x);
            }
        }
    }

    /// Folds the columns of the windows of `rows` output rows: of a band, or fewer at the end.
    #[inline(always)]
    fn fold_columns(&mut self, rows: usize) {
        let PooledRows { fold, window, columns, .. } = *self;
        let (pitch, width) = (columns.pitch, window.width());
        if width == 1 && columns.dilation == 1 && columns.stride == 1 {
            // One output per row, as in global pooling: its taps are a contiguous run.
            for row in 0..rows {
                let line = &self.lines[row * pitch..][..columns.kernel];
                let runs = line.chunks(1024).map(|run| run_block(fold, run));
                self.sums[row * pitch] = runs.fold(fold.start(), |sum, run| fold.join(sum, run));
            }
            return;
        }
        let phase_len = columns.rows * pitch;
        let phase_step = columns.dilation % columns.stride;
        let offset_step = columns.dilation / columns.stride;
        // Lines of a band are treated as one line if the columns between their outputs are few.
        let groups = width.div_ceil(GROUP);
        let (lines, groups, pitch) = if pitch <= groups * GROUP {
            (1, ((rows - 1) * pitch + width).div_ceil(GROUP), 0)
        } else {
            (rows, groups, pitch)
        };
        for line in 0..lines {
            for group in 0..groups {
                let at = line * pitch + group * GROUP;
                let mut sums = [fold.start::<T::Wide>(); GROUP];
                // Phase of a tap, and its distance in columns from the first tap of the phase.
                let (mut phase, mut offset) = (0, 0);
                for _ in 0..columns.kernel {
                    let from = &self.lines[phase * phase_len + offset + at..][..GROUP];
                    for (sum, x) in sums.iter_mut().zip(from) {
                        *sum = fold.step(*sum, *x);
                    }
                    (phase, offset) = (phase + phase_step, offset + offset_step);
                    if phase >= columns.stride {
                        (phase, offset) = (phase - columns.stride, offset + 1);
                    }
                }
                self.sums[at..][..GROUP].copy_from_slice(&sums);
            }
        }
    }

    /// Writes output row `row`, which is row `index` of its band.
    #[inline(always)]
    fn write(&mut self, row: usize, index: usize) {
        let PooledRows { window, columns, first, divisor, ref finish, .. } = *self;
        let width = window.width();
        let sums = &self.sums[index * columns.pitch..][..width];
        let y = &mut self.y[row * width..][..width];
        let Some(divisor) = divisor else {
            y.iter_mut().zip(sums).for_each(|(y, sum)| *y = finish(*sum, 1));
            return;
        };
        let rows = Taps::new(window, first + row).divisor(window, divisor);
        let last = window.input.len() - 1;
        // Outputs whose windows are inside the input: the first and the last tap are.
        let low = taps::outputs(window, 0, width);
        let high = taps::outputs(window, columns.kernel.max(1) - 1, width);
        let inside = low.start.max(high.start)..low.end.min(high.end);
        let inside = inside.start.min(inside.end)..inside.end;
        for o in (0..inside.start).chain(inside.end..width) {
            y[o] = finish(sums[o], rows * taps::count(window, last, o, divisor));
        }
        let count = rows * columns.kernel;
        let y = &mut y[inside.clone()];
        y.iter_mut().zip(&sums[inside]).for_each(|(y, sum)| *y = finish(*sum, count));
    }
}

/// Computes maxima like [`max_pool`], and the position of each in the whole input: the first of
/// equal elements, or the first NaN. Positions count planes before positions in the plane; a window
/// without elements has position -1.
///
/// # Panics
///
/// If lengths do not fit the geometry, a stride or dilation is 0, or there are more than nine
/// spatial dims.
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
    // The position determines the maximum.
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

/// Columns and rows of a plane that its outputs read.
struct Seen<'a> {
    /// First column and number of columns, for each output of a row.
    columns: &'a [[usize; 2]],
    /// Outputs of a row that read as many columns as the kernel has.
    whole: Range<usize>,
    /// Offsets of the input rows that each output row reads, one output row after the other.
    starts: &'a [usize],
    /// End of each output row's part of `starts`.
    ends: &'a [usize],
}

impl Seen<'_> {
    /// Computes the lists in scratch memory and calls `read` with them.
    fn with<R>(window: &Window<'_>, read: impl FnOnce(&Seen<'_>) -> R) -> R {
        let last = window.input.len() - 1;
        let rows: usize = window.output[..last].iter().product();
        let rows_seen: usize = (0..rows).map(|row| input_rows(window, row).count()).sum();
        with_scratch_of(window.width(), |columns: &mut [[usize; 2]]| {
            for (o, column) in columns.iter_mut().enumerate() {
                let inside = taps::positions_inside(window, last, o);
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
                    for row in input_rows(window, row) {
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

/// Returns the input rows that an output row reads.
fn input_rows(window: &Window<'_>, row: usize) -> impl Iterator<Item = usize> {
    let mut taps = Taps::new(window, row);
    std::iter::from_fn(move || taps.next_row(window))
}

/// Loop that finds positions of maxima for output rows from row `first` on, output by output.
struct Places<'a, T> {
    window: &'a Window<'a>,
    seen: &'a Seen<'a>,
    x: &'a [T],
    indices: &'a mut [i64],
    first: usize,
}

impl<'a, T> Places<'a, T> {
    /// Returns, for each output row, the offset of its plane, the offsets of the input rows that it
    /// reads, and its positions. An iterator, as a function with a callback might be compiled
    /// without the instruction set of the loop.
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
                *index =
                    find_place(x, plane, starts, TapColumns { first: column, count, dilation });
            }
        }
    }
}

/// Loop like [`Places`], but over groups of neighbouring outputs, tap by tap.
struct PlacesByTap<'a, T>(Places<'a, T>);

impl<T> PlacesByTap<'_, T> {
    /// Whether output rows are long enough for a group, and positions in a plane fit 32 bits.
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
                indices[output] =
                    find_place(x, plane, starts, TapColumns { first: column, count, dilation });
            }
            let columns = &columns[whole.clone()];
            let indices = &mut indices[whole.clone()];
            if starts.is_empty() {
                indices.fill(-1);
                continue;
            }
            let row = RowOfPlaces { x: &x[plane..], starts, stride, plane };
            for first in (0..columns.len()).step_by(GROUP) {
                // Recomputing a few outputs is cheaper than computing the last few one by one.
                let first = first.min(columns.len() - GROUP);
                if let Some(indices) = indices[first..].first_chunk_mut() {
                    let columns = TapColumns { first: columns[first][0], count: kernel, dilation };
                    row.find(columns, indices);
                }
            }
        }
    }
}

/// Columns of a window in each row.
#[derive(Clone, Copy)]
struct TapColumns {
    first: usize,
    count: usize,
    /// Distance from one column to the next.
    dilation: usize,
}

/// Finds the position of the maximum of one window, or -1. The window has `columns` in the
/// rows with offsets `starts` of the plane at offset `plane`.
#[inline(always)]
fn find_place<T: Number>(
    x: &[T],
    plane: usize,
    starts: &[usize],
    TapColumns { first: column, count, dilation }: TapColumns,
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
            // The outcome is random: a branch would be mispredicted every few elements.
            best = select_unpredictable(wins, x, best);
            place = select_unpredictable(wins, at, place);
        }
    }
    place as i64
}

/// Neighbouring windows of a row, all inside the input.
struct RowOfPlaces<'a, T> {
    /// Elements from the plane on, which begins at offset `plane`.
    x: &'a [T],
    /// Offsets of the input rows that the windows read.
    starts: &'a [usize],
    stride: usize,
    plane: usize,
}

impl<T: Number> RowOfPlaces<'_, T> {
    /// Finds the positions of a group of neighbouring windows, given the columns of the first.
    #[inline(always)]
    fn find(&self, columns: TapColumns, indices: &mut [i64; GROUP]) {
        let TapColumns { first: column, count, dilation } = columns;
        let first = self.starts[0] + column;
        let mut best = group(&self.x[first..], self.stride);
        // Positions of the taps for the first window of the group.
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

/// Reads `x[0], x[stride], ..`, widened.
#[inline(always)]
fn group<T: Number>(x: &[T], stride: usize) -> [T::Wide; GROUP] {
    let mut found = [T::LOWEST.widen(); GROUP];
    match stride {
        1 => found.iter_mut().zip(&x[..GROUP]).for_each(|(to, x)| *to = x.widen()),
        2 => {
            // A constant length compiles to shuffles of vectors for every second element.
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

/// Calls `see` with the index and the value of the first `n` of `x[0], x[stride], ..`; `n` is at
/// least 1.
#[inline(always)]
fn each_strided<T: Copy>(x: &[T], stride: usize, n: usize, mut see: impl FnMut(usize, T)) {
    match stride {
        1 => x[..n].iter().enumerate().for_each(|(i, x)| see(i, *x)),
        2 => {
            // Each but the last has a whole pair: the loop reads pairs, which the compiler
            // vectorizes.
            let (pairs, _) = x.as_chunks::<2>();
            pairs[..n - 1].iter().enumerate().for_each(|(i, pair)| see(i, pair[0]));
            see(n - 1, x[2 * (n - 1)]);
        }
        _ => x.iter().step_by(stride).take(n).enumerate().for_each(|(i, x)| see(i, *x)),
    }
}

/// Converts a position in all planes to one with the first dim of a plane varying fastest.
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
