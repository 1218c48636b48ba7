//! Copies through strides.

use super::Plain;
use sardonyx_elementwise::{MAX_RANK, Walk};
use sardonyx_simd::chunks::{Shared, fill as fill_chunks, ranges, rows};
use sardonyx_simd::{Ended, Pool};

/// Fills `y` with `value`.
pub fn fill<T: Plain>(pool: &Pool, value: T, y: &mut [T]) -> Result<(), Ended> {
    fill_chunks(pool, y, 1, |_, y| y.fill(value))
}

/// Copies `x` through strides into a contiguous `y` with dims `dims`: `y[i, j, ..] = x[start + i *
/// strides[0] + j * strides[1] + ..]`. Strides count elements and may be zero or negative.
///
/// # Panics
///
/// If the length of `y` is not the product of `dims`, an element would be read outside `x`, or more
/// than [`MAX_RANK`] dims remain after merging neighbours.
pub fn copy_strided<T: Plain>(
    pool: &Pool,
    dims: &[usize],
    start: usize,
    strides: &[isize],
    x: &[T],
    y: &mut [T],
) -> Result<(), Ended> {
    assert_eq!(dims.len(), strides.len(), "one stride per dim");
    let walk = Walk::with_starts(dims, |_, d| strides[d], [start as isize], [x.len()]);
    assert_eq!(y.len(), walk.len, "the output has other dims");
    if y.is_empty() {
        return Ok(());
    }
    let rank = walk.dims().len();
    let [step] = walk.strides(rank - 1);
    let transposed = (0..rank - 1).rev().find(|&d| walk.strides(d) == [1] && walk.dims()[d] > 1);
    // Tiles do not pay for a short run of contiguous elements if the span of a row stays in the
    // cache.
    let last = walk.dims()[rank - 1];
    let reach = last.saturating_mul(step.unsigned_abs());
    let transposed = transposed.filter(|&d| walk.dims()[d] >= TILE / 2 || reach > NEAR);
    match transposed {
        Some(d) if !(0..=1).contains(&step) => transpose_tiles(pool, &walk, start, d, x, y),
        _ if last <= SHORT && rank > 1 && walk.dims()[rank - 2] >= FEWEST_ROWS => {
            copy_short_rows(pool, &walk, x, y)
        }
        _ => fill_chunks(pool, y, 1, |first, y| {
            for ([from], at, n) in walk.rows(first, first + y.len()) {
                let y = &mut y[at - first..][..n];
                match step {
                    0 => y.fill(x[from]),
                    1 => y.copy_from_slice(&x[from..][..n]),
                    2 => {
                        // Whole pairs compile to shuffles; the last element may have no partner.
                        let last = n - 1;
                        let (pairs, _) = x[from..][..2 * last].as_chunks::<2>();
                        for (y, pair) in y.iter_mut().zip(pairs) {
                            *y = pair[0];
                        }
                        y[last] = x[from + 2 * last];
                    }
                    3.. => {
                        for (y, x) in y.iter_mut().zip(x[from..].iter().step_by(step as usize)) {
                            *y = *x;
                        }
                    }
                    _ => {
                        // A negative step reads backwards from the first element.
                        let back = step.unsigned_abs();
                        for (y, x) in y.iter_mut().zip(x[..=from].iter().rev().step_by(back)) {
                            *y = *x;
                        }
                    }
                }
            }
        }),
    }
}

/// Elements to read through strides.
#[derive(Clone, Copy, Debug)]
pub struct StridedRef<'a, T> {
    pub data: &'a [T],
    /// Index of the first element.
    pub start: usize,
    /// Stride of each dim, in elements; may be zero or negative.
    pub strides: &'a [isize],
}

/// Elements to write through strides.
#[derive(Debug)]
pub struct StridedMut<'a, T> {
    pub data: &'a mut [T],
    /// Index of the first element.
    pub start: usize,
    /// Stride of each dim, in elements.
    pub strides: &'a [usize],
}

/// Copies the elements of `from` at all coordinates below `dims` to the same coordinates of `to`;
/// its other elements stay.
///
/// # Panics
///
/// If an element would be read or written outside its buffer, more than [`MAX_RANK`] dims remain
/// after merging neighbours, or a stride of `y` does not exceed the span of the axes after it, so
/// that elements could be written twice.
pub fn copy_between<T: Plain>(
    pool: &Pool,
    dims: &[usize],
    from: StridedRef<'_, T>,
    to: StridedMut<'_, T>,
) -> Result<(), Ended> {
    let StridedRef { data: x, start: x_start, strides: x_strides } = from;
    let StridedMut { data: y, start: y_start, strides: y_strides } = to;
    assert_eq!([x_strides.len(), y_strides.len()], [dims.len(); 2], "one stride per dim");
    if dims.contains(&0) {
        // Strides are not checked: those of an image may overflow the span.
        return Ok(());
    }
    let mut span = 0;
    for (&dim, &stride) in dims.iter().zip(y_strides).rev() {
        assert!(dim <= 1 || stride > span, "outputs overlap");
        span += dim.saturating_sub(1) * stride;
    }
    let walk = Walk::with_starts(
        dims,
        |operand, d| match operand {
            0 => x_strides[d],
            _ => y_strides[d] as isize,
        },
        [x_start as isize, y_start as isize],
        [x.len(), y.len()],
    );
    if walk.len == 0 {
        return Ok(());
    }
    let [x_step, y_step] = walk.strides(walk.dims().len() - 1);
    let shared = Shared::new(y);
    let len = walk.len;
    // `move`: a variable captured by reference would be reloaded after each element is written.
    ranges(pool, len, 1, move |range| {
        for ([from, to], _, n) in walk.rows(range.start, range.end) {
            if (x_step, y_step) == (1, 1) {
                // SAFETY: the strides of `y` are checked above, so no two coordinates share an
                // element, and each coordinate belongs to one chunk.
                unsafe { shared.part(to, n) }.copy_from_slice(&x[from..][..n]);
                continue;
            }
            for i in 0..n {
                let at = (from as isize + i as isize * x_step) as usize;
                // SAFETY: no two coordinates share an element of `y`, and each belongs to one
                // chunk.
                let y = unsafe { shared.part(to + i * y_step as usize, 1) };
                y[0] = x[at];
            }
        }
    })
}

/// Choice: most elements of a short row of the output.
const SHORT: usize = 16;
/// Choice: fewest rows along one axis that are worth a loop of their own.
const FEWEST_ROWS: usize = 4;
/// Cache: most elements spanned by a row that stay in a second-level cache until the next row reads
/// their neighbours.
const NEAR: usize = 1 << 16;

/// Copies short rows, with one inner loop for all rows along the axis before the last.
fn copy_short_rows<T: Plain>(
    pool: &Pool,
    walk: &Walk<1>,
    x: &[T],
    y: &mut [T],
) -> Result<(), Ended> {
    let rank = walk.dims().len();
    let (count, width) = (walk.dims()[rank - 2], walk.dims()[rank - 1]);
    let ([distance], [step]) = (walk.strides(rank - 2), walk.strides(rank - 1));
    rows(pool, y, width, width, |first, mut y| {
        let mut row = first;
        while !y.is_empty() {
            let together = (count - row % count).min(y.len() / width);
            let Some(([from], ..)) = walk.rows(row * width, row * width + 1).next() else {
                return;
            };
            let (now, after) = y.split_at_mut(together * width);
            let from = ShortRows { x, from: from as isize, distance, step };
            match width {
                2 => from.copy::<2>(now),
                3 => from.copy::<3>(now),
                4 => from.copy::<4>(now),
                _ => from.copy_any(width, now),
            }
            (row, y) = (row + together, after);
        }
    })
}

/// Source of short rows, which are copied one after the other.
struct ShortRows<'a, T> {
    x: &'a [T],
    /// Index of the first element.
    from: isize,
    /// Distance from one row to the next, in elements.
    distance: isize,
    /// Distance from one element of a row to the next.
    step: isize,
}

impl<T: Plain> ShortRows<'_, T> {
    /// Copies rows of `N` elements.
    #[inline(always)]
    fn copy<const N: usize>(&self, y: &mut [T]) {
        let mut from = self.from;
        for y in y.as_chunks_mut::<N>().0 {
            for (i, y) in y.iter_mut().enumerate() {
                *y = self.x[(from + i as isize * self.step) as usize];
            }
            from += self.distance;
        }
    }

    /// Copies rows of `width` elements.
    #[inline(always)]
    fn copy_any(&self, width: usize, y: &mut [T]) {
        let mut from = self.from;
        for y in y.chunks_exact_mut(width) {
            if self.step == 1 {
                y.copy_from_slice(&self.x[from as usize..][..width]);
            } else {
                let mut at = from;
                for y in y {
                    *y = self.x[at as usize];
                    at += self.step;
                }
            }
            from += self.distance;
        }
    }
}

/// Geometry: elements of a side of a tile: one cache line of 4-byte elements in both buffers.
const TILE: usize = 16;
/// Work: rows of a band, the unit of work of a transposition.
const BAND: usize = 64;

/// Copies with a transposition, where a dim `d` other than the last is contiguous in `x`: tile by
/// tile, so that both buffers are accessed a cache line at a time.
fn transpose_tiles<T: Plain>(
    pool: &Pool,
    walk: &Walk<1>,
    start: usize,
    d: usize,
    x: &[T],
    y: &mut [T],
) -> Result<(), Ended> {
    let dims = walk.dims();
    let last = dims.len() - 1;
    let (height, width) = (dims[d], dims[last]);
    let [step] = walk.strides(last);
    // Offsets of planes in both buffers: over all dims but `d` and the last.
    let (mut others, mut x_strides, mut y_strides) = ([0; MAX_RANK], [0; MAX_RANK], [0; MAX_RANK]);
    let (mut rank, mut y_stride, mut row_stride) = (0, y.len(), 0);
    for (i, &dim) in dims.iter().enumerate() {
        y_stride /= dim.max(1);
        if i == d {
            row_stride = y_stride;
        } else if i != last {
            others[rank] = dim;
            [x_strides[rank]] = walk.strides(i);
            y_strides[rank] = y_stride as isize;
            rank += 1;
        }
    }
    let planes = Walk::with_starts(
        &others[..rank],
        |operand, i| {
            if operand == 0 { x_strides[i] } else { y_strides[i] }
        },
        [start as isize, 0],
        [x.len(), y.len().max(1)],
    );
    let bands = height.div_ceil(BAND);
    let pieces = planes.len * bands;
    let shared = Shared::new(y);
    // `move`: a variable captured by reference would be reloaded after each element is written.
    ranges(pool, pieces, 2 * BAND * width, move |pieces| {
        let mut tile = [[T::default(); TILE]; TILE];
        for piece in pieces {
            let (plane, band) = (piece / bands, piece % bands);
            let Some(([from, to], ..)) = planes.rows(plane, plane + 1).next() else {
                continue;
            };
            let bottom = height.min((band + 1) * BAND);
            // Down the band first: the hardware prefetches the next elements of the same input
            // rows.
            let lefts = (0..width).step_by(TILE);
            let tops = (band * BAND..bottom).step_by(TILE);
            for (left, top) in lefts.flat_map(|left| tops.clone().map(move |top| (left, top))) {
                let (columns, rows) = (TILE.min(width - left), TILE.min(bottom - top));
                for (j, run) in tile[..columns].iter_mut().enumerate() {
                    let at = from as isize + top as isize + (left + j) as isize * step;
                    run[..rows].copy_from_slice(&x[at as usize..][..rows]);
                }
                for i in 0..rows {
                    // SAFETY: each element of the output belongs to one tile, and the slice of one
                    // row ends before the next begins.
                    let y = unsafe { shared.part(to + (top + i) * row_stride + left, columns) };
                    if columns == TILE {
                        // A constant length unrolls the loop.
                        for (y, run) in y.iter_mut().zip(&tile) {
                            *y = run[i];
                        }
                    } else {
                        for (y, run) in y.iter_mut().zip(&tile) {
                            *y = run[i];
                        }
                    }
                }
            }
        }
    })
}

#[cfg(test)]
mod tests;
