//! Look-ups and updates by index.
//!
//! Indices are data of the model, so an index out of range is an error value and never a panic. All
//! are checked before anything is written. Negative indices count from the end.

use std::convert::Infallible;

use super::Plain;
use crate::AxisDims;
use sardonyx_simd::chunks::{fill, rows};
use sardonyx_simd::{Failure, Pace, Pool};
use smallvec::SmallVec;

/// An index outside its dim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexOutOfRange {
    /// The index as given, perhaps negative.
    pub index: i64,
    /// Size of the dim.
    pub dim: usize,
}

impl std::fmt::Display for IndexOutOfRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "index {} is outside of a dimension of size {}", self.index, self.dim)
    }
}

impl std::error::Error for IndexOutOfRange {}

/// Indices of either element type.
#[derive(Clone, Copy, Debug)]
pub enum Indices<'a> {
    Short(&'a [i32]),
    Long(&'a [i64]),
}

/// Element type of [`Indices`].
trait GatherIndex: Copy + Send + Sync + 'static {
    /// Widens the index.
    fn index(self) -> i64;
}

impl GatherIndex for i32 {
    fn index(self) -> i64 {
        i64::from(self)
    }
}

impl GatherIndex for i64 {
    fn index(self) -> i64 {
        self
    }
}

/// Resolves an index, which counts from the end if negative; `None` if it is outside its dim.
#[inline(always)]
fn position(index: i64, dim: usize) -> Option<usize> {
    let index = if index < 0 { index.wrapping_add(dim as i64) } else { index };
    usize::try_from(index).ok().filter(|&position| position < dim)
}

/// Resolves an index that has been checked.
#[inline(always)]
fn checked_position<I: GatherIndex>(index: I, dim: usize) -> usize {
    position(index.index(), dim).expect("indices were checked")
}

/// Checks that all indices are within `-dim..dim`.
fn check_indices<I: GatherIndex>(indices: &[I], dim: usize) -> Result<(), IndexOutOfRange> {
    /// Work: indices that are tested without a branch between them, so that the loop uses vectors.
    const TOGETHER: usize = 256;
    let range = -(dim as i64)..dim as i64;
    for indices in indices.chunks(TOGETHER) {
        let are_inside = indices.iter().fold(true, |all, i| all & range.contains(&i.index()));
        let outside = indices.iter().find(|i| !are_inside && !range.contains(&i.index()));
        if let Some(index) = outside {
            return Err(IndexOutOfRange { index: index.index(), dim });
        }
    }
    Ok(())
}

/// Gathers slices: `y[o, k, i] = x[o, indices[k], i]`, where `x` has dims `[outer, axis, inner]`.
///
/// # Errors
///
/// If an index is outside `axis`, in which case `y` is untouched, or if the run is cancelled.
///
/// # Panics
///
/// If lengths do not fit the dims.
pub fn gather<T: Plain>(
    pool: &Pool,
    dims: AxisDims,
    x: &[T],
    indices: Indices<'_>,
    y: &mut [T],
) -> Result<(), Failure<IndexOutOfRange>> {
    match indices {
        Indices::Short(indices) => gather_by(pool, dims, x, indices, y),
        Indices::Long(indices) => gather_by(pool, dims, x, indices, y),
    }
}

/// Gathers slices like [`gather`], with indices of one type.
fn gather_by<T: Plain, I: GatherIndex>(
    pool: &Pool,
    AxisDims { outer, axis, inner }: AxisDims,
    x: &[T],
    indices: &[I],
    y: &mut [T],
) -> Result<(), Failure<IndexOutOfRange>> {
    assert_eq!(x.len(), outer * axis * inner, "the input has other dims");
    let count = indices.len();
    assert_eq!(y.len(), outer * count * inner, "the output has other dims");
    check_indices(indices, axis).map_err(Failure::Operand)?;
    if inner == 1 {
        fill(pool, y, 2, |start, y| {
            let (mut row, mut k) = (start / count, start % count);
            for y in y {
                *y = x[row * axis + checked_position(indices[k], axis)];
                k += 1;
                if k == count {
                    (row, k) = (row + 1, 0);
                }
            }
        })?;
    } else if !y.is_empty() {
        rows(pool, y, inner, inner, |first, y| {
            for (i, y) in y.chunks_exact_mut(inner).enumerate() {
                let (row, k) = ((first + i) / count, (first + i) % count);
                let from = row * axis + checked_position(indices[k], axis);
                y.copy_from_slice(&x[from * inner..][..inner]);
            }
        })?;
    }
    Ok(())
}

/// Gathers elements: `y[o, k, i] = x[o, indices[o, k, i], i]`. `x` has dims `dims`; `indices` and
/// `y` have dims `index_dims`, which may be smaller than `dims` outside `axis`.
///
/// # Errors
///
/// If an index is outside the axis, in which case `y` is untouched, or if the run is cancelled.
///
/// # Panics
///
/// If ranks or lengths do not fit, or `index_dims` exceed `dims` outside of `axis`.
pub fn gather_elements<T: Plain>(
    pool: &Pool,
    axis: usize,
    dims: &[usize],
    x: &[T],
    index_dims: &[usize],
    indices: Indices<'_>,
    y: &mut [T],
) -> Result<(), Failure<IndexOutOfRange>> {
    match indices {
        Indices::Short(indices) => gather_elements_by(pool, axis, dims, x, index_dims, indices, y),
        Indices::Long(indices) => gather_elements_by(pool, axis, dims, x, index_dims, indices, y),
    }
}

/// Gathers elements like [`gather_elements`], with indices of one type.
fn gather_elements_by<T: Plain, I: GatherIndex>(
    pool: &Pool,
    axis: usize,
    dims: &[usize],
    x: &[T],
    index_dims: &[usize],
    indices: &[I],
    y: &mut [T],
) -> Result<(), Failure<IndexOutOfRange>> {
    assert_eq!(y.len(), indices.len(), "one output per index");
    assert_eq!(x.len(), dims.iter().product(), "the input has other dims");
    check_elements(axis, dims, index_dims, indices).map_err(Failure::Operand)?;
    let runs = Runs::new(axis, dims, index_dims);
    fill(pool, y, 4, |start, y| {
        let end = start + y.len();
        let done = runs.for_each(start, end, |run| {
            let y = &mut y[run.at - start..][..run.len];
            runs.for_each_of(&run, indices, |i, from| y[i] = x[from]);
            Ok::<(), Infallible>(())
        });
        let Ok(()) = done;
    })?;
    Ok(())
}

/// Checks the dims and indices of [`gather_elements`] and [`scatter_elements`].
fn check_elements<I: GatherIndex>(
    axis: usize,
    dims: &[usize],
    index_dims: &[usize],
    indices: &[I],
) -> Result<(), IndexOutOfRange> {
    assert!(axis < dims.len() && dims.len() == index_dims.len(), "ranks differ");
    assert_eq!(indices.len(), index_dims.iter().product(), "the indices have other dims");
    for (d, (&dim, &index_dim)) in dims.iter().zip(index_dims).enumerate() {
        assert!(d == axis || index_dim <= dim || indices.is_empty(), "dim {d} is too large");
    }
    check_indices(indices, dims[axis])
}

/// Run of adjacent indices in a row.
struct Run {
    /// Position of the first index among all indices.
    at: usize,
    /// Number of indices.
    len: usize,
    /// Offset in the data for the first index, as if it were 0.
    first: usize,
}

/// Dim of the indices.
struct RunDim {
    /// Number of indices along the dim.
    count: usize,
    /// Distance in the data between the elements of two neighbours, as if both indices were 0: 0
    /// along the axis, where the index alone is the position.
    stride: usize,
}

/// Maps positions of indices to offsets in the data.
struct Runs {
    /// Size of the axis.
    axis: usize,
    /// Stride of the axis in the data.
    step: usize,
    /// Dims of the indices from the last to the first; neighbours are merged where one stride
    /// serves both.
    dims: SmallVec<[RunDim; 4]>,
}

impl Runs {
    /// Computes the strides for data of dims `dims` and indices of dims `index_dims`.
    fn new(axis: usize, dims: &[usize], index_dims: &[usize]) -> Runs {
        let mut runs = Runs { axis: dims[axis], step: 1, dims: SmallVec::new() };
        let mut distance = 1;
        for (d, (&dim, &count)) in dims.iter().zip(index_dims).enumerate().rev() {
            let stride = if d == axis { 0 } else { distance };
            if d == axis {
                runs.step = distance;
            }
            distance *= dim;
            match runs.dims.last_mut() {
                _ if count == 1 => {}
                Some(inner) if stride > 0 && stride == inner.stride * inner.count => {
                    inner.count *= count;
                }
                _ => runs.dims.push(RunDim { count, stride }),
            }
        }
        if runs.dims.is_empty() {
            runs.dims.push(RunDim { count: 1, stride: 0 });
        }
        runs
    }

    /// Calls `body` with the runs that cover the indices `start..end`, in order.
    #[inline(always)]
    fn for_each<E>(
        &self,
        start: usize,
        end: usize,
        mut body: impl FnMut(Run) -> Result<(), E>,
    ) -> Result<(), E> {
        let RunDim { count, stride } = self.dims[0];
        let outer = &self.dims[1..];
        if start == end {
            return Ok(());
        }
        let (mut rest, mut skipped, mut offset) = (start / count, start % count, 0);
        let mut counters = SmallVec::<[usize; 4]>::new();
        for dim in outer {
            counters.push(rest % dim.count);
            offset += rest % dim.count * dim.stride;
            rest /= dim.count;
        }
        let mut at = start;
        while at < end {
            let len = (count - skipped).min(end - at);
            body(Run { at, len, first: offset + skipped * stride })?;
            (at, skipped) = (at + len, 0);
            for (counter, dim) in counters.iter_mut().zip(outer) {
                *counter += 1;
                offset += dim.stride;
                if *counter < dim.count {
                    break;
                }
                offset -= dim.count * dim.stride;
                *counter = 0;
            }
        }
        Ok(())
    }

    /// Calls `body` with the number of each index in a run and the offset of its element in the
    /// data.
    #[inline(always)]
    fn for_each_of<I: GatherIndex>(
        &self,
        run: &Run,
        indices: &[I],
        mut body: impl FnMut(usize, usize),
    ) {
        let indices = &indices[run.at..][..run.len];
        let stride = self.dims[0].stride;
        for (i, index) in indices.iter().enumerate() {
            body(i, run.first + i * stride + checked_position(*index, self.axis) * self.step);
        }
    }
}

/// Gathers a slice for each tuple of `depth` indices: `y[b, k] = x[b, indices[b, k, 0], ..,
/// indices[b, k, last]]`. `x` has dims `dims`, the first `batch_dims` of which are shared with the
/// indices.
///
/// # Errors
///
/// If an index is outside its dim, in which case `y` is untouched, or if the run is cancelled.
///
/// # Panics
///
/// If lengths do not fit, or `depth` is 0 or too large.
pub fn gather_nd<T: Plain>(
    pool: &Pool,
    dims: &[usize],
    batch_dims: usize,
    depth: usize,
    x: &[T],
    indices: &[i64],
    y: &mut [T],
) -> Result<(), Failure<IndexOutOfRange>> {
    assert!(depth > 0 && batch_dims + depth <= dims.len(), "tuples too long");
    assert_eq!(x.len(), dims.iter().product(), "the input has other dims");
    assert!(indices.len().is_multiple_of(depth), "whole tuples");
    let batch: usize = dims[..batch_dims].iter().product();
    let indexed = &dims[batch_dims..batch_dims + depth];
    let slice: usize = dims[batch_dims + depth..].iter().product();
    let tuples = indices.len() / depth;
    assert_eq!(y.len(), tuples * slice, "the output has other dims");
    assert!(tuples == 0 || (batch > 0 && tuples.is_multiple_of(batch)), "whole batches");
    check_tuples(indexed, indices).map_err(Failure::Operand)?;
    if y.is_empty() {
        return Ok(());
    }
    let per_batch = tuples / batch;
    let batch_len: usize = dims[batch_dims..].iter().product();
    rows(pool, y, slice, slice + depth, |first, y| {
        for (i, y) in y.chunks_exact_mut(slice).enumerate() {
            let tuple = first + i;
            let from = tuple / per_batch * batch_len
                + slice * tuple_offset(indexed, &indices[tuple * depth..][..depth]);
            y.copy_from_slice(&x[from..][..slice]);
        }
    })?;
    Ok(())
}

/// Checks each index of each tuple against its dim.
fn check_tuples(indexed: &[usize], indices: &[i64]) -> Result<(), IndexOutOfRange> {
    for tuple in indices.chunks_exact(indexed.len()) {
        for (&index, &dim) in tuple.iter().zip(indexed) {
            if position(index, dim).is_none() {
                return Err(IndexOutOfRange { index, dim });
            }
        }
    }
    Ok(())
}

/// Returns the number of the slice that a checked tuple selects, in row-major order over the dims
/// `indexed`.
fn tuple_offset(indexed: &[usize], tuple: &[i64]) -> usize {
    tuple
        .iter()
        .zip(indexed)
        .fold(0, |offset, (&index, &dim)| offset * dim + checked_position(index, dim))
}

/// Function that combines an element with its update; `None` replaces the element.
pub type ScatterInto<T> = Option<fn(old: T, update: T) -> T>;

/// Scatters updates into `y`, in order: `y[o, indices[o, k, i], i] = into(y[..], updates[o, k,
/// i])`. `updates` and `indices` have dims `index_dims`; `y` has dims `dims` and already holds the
/// data.
///
/// # Errors
///
/// If an index is outside the axis, in which case `y` is untouched, or if the run is cancelled, in
/// which case some updates are done.
///
/// # Panics
///
/// If ranks or lengths do not fit, or `index_dims` exceed `dims` outside `axis`.
pub fn scatter_elements<T: Plain>(
    into: ScatterInto<T>,
    axis: usize,
    dims: &[usize],
    index_dims: &[usize],
    indices: Indices<'_>,
    updates: &[T],
    y: &mut [T],
) -> Result<(), Failure<IndexOutOfRange>> {
    match indices {
        Indices::Short(indices) => {
            scatter_elements_by(into, axis, dims, index_dims, indices, updates, y)
        }
        Indices::Long(indices) => {
            scatter_elements_by(into, axis, dims, index_dims, indices, updates, y)
        }
    }
}

/// Scatters updates like [`scatter_elements`], with indices of one type.
fn scatter_elements_by<T: Plain, I: GatherIndex>(
    into: ScatterInto<T>,
    axis: usize,
    dims: &[usize],
    index_dims: &[usize],
    indices: &[I],
    updates: &[T],
    y: &mut [T],
) -> Result<(), Failure<IndexOutOfRange>> {
    assert_eq!(updates.len(), indices.len(), "one update per index");
    assert_eq!(y.len(), dims.iter().product(), "the output has other dims");
    check_elements(axis, dims, index_dims, indices).map_err(Failure::Operand)?;
    let (runs, pace) = (Runs::new(axis, dims, index_dims), Pace::default());
    runs.for_each(0, indices.len(), |run| {
        for start in (0..run.len).step_by(PIECE) {
            let len = PIECE.min(run.len - start);
            pace.count(len)?;
            let piece =
                Run { at: run.at + start, len, first: run.first + start * runs.dims[0].stride };
            let updates = &updates[piece.at..][..len];
            match into {
                None => runs.for_each_of(&piece, indices, |i, to| y[to] = updates[i]),
                Some(into) => {
                    runs.for_each_of(&piece, indices, |i, to| y[to] = into(y[to], updates[i]));
                }
            }
        }
        Ok::<(), Failure<IndexOutOfRange>>(())
    })
}

/// Work: most updates between two checks for cancellation.
const PIECE: usize = 1 << 12;

/// Scatters a slice for each tuple of `depth` indices, in order: `y[indices[k, 0], .., indices[k,
/// last]] = into(y[..], updates[k])`. `y` has dims `dims` and already holds the data. A tuple of 0
/// indices selects all of `y`.
///
/// # Errors
///
/// If an index is outside its dim, in which case `y` is untouched, or if the run is cancelled, in
/// which case some updates are done.
///
/// # Panics
///
/// If lengths do not fit, or `depth` is too large.
pub fn scatter_nd<T: Plain>(
    into: ScatterInto<T>,
    dims: &[usize],
    depth: usize,
    indices: &[i64],
    updates: &[T],
    y: &mut [T],
) -> Result<(), Failure<IndexOutOfRange>> {
    assert!(depth <= dims.len(), "tuples too long");
    assert_eq!(y.len(), dims.iter().product(), "the output has other dims");
    assert!(indices.len().is_multiple_of(depth), "whole tuples");
    let slice: usize = dims[depth..].iter().product();
    if let Some(tuples) = indices.len().checked_div(depth) {
        assert_eq!(updates.len(), tuples * slice, "the updates have other dims");
        check_tuples(&dims[..depth], indices).map_err(Failure::Operand)?;
    }
    if slice == 0 {
        return Ok(());
    }
    let pace = Pace::default();
    for (k, updates) in updates.chunks_exact(slice).enumerate() {
        pace.count(slice)?;
        let to = slice * tuple_offset(&dims[..depth], &indices[k * depth..][..depth]);
        let y = &mut y[to..to + slice];
        match into {
            // A call of `memcpy` costs more than one element.
            None if slice == 1 => y[0] = updates[0],
            None => y.copy_from_slice(updates),
            Some(into) => {
                for (y, update) in y.iter_mut().zip(updates) {
                    *y = into(*y, *update);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
