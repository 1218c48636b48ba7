//! Cuts an output buffer into chunks that threads fill.
//!
//! Kernels share memory between threads in this one way: each chunk is a `&mut` slice of its own.
//! The cuts never change the bits of a result, since each output element is computed by one thread
//! in one order.

use std::marker::PhantomData;
use std::ops::Range;

use crate::{Ended, Operation, Outcome, Pool, Work, split_even};

/// A mutable slice whose disjoint parts several threads borrow.
#[derive(Debug)]
pub struct Shared<'a, T> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: callers of `part` and `read` keep parts disjoint, and any thread may use a part when `T`
// may be sent.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub fn new(slice: &'a mut [T]) -> Self {
        Shared { start: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// Returns the address of element `start`, which need not be inside the slice.
    pub fn at(&self, start: usize) -> *mut T {
        self.start.wrapping_add(start)
    }

    /// Borrows the elements `start..start + len`.
    ///
    /// # Safety
    ///
    /// No two parts that live at the same time may overlap.
    ///
    /// # Panics
    ///
    /// If the range is not inside the slice.
    #[allow(clippy::mut_from_ref)] // The point of the type.
    pub unsafe fn part(&self, start: usize, len: usize) -> &mut [T] {
        assert!(start <= self.len && len <= self.len - start, "part outside");
        // SAFETY: inside the slice; the caller lets no other part overlap.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }
}

impl<T> Shared<'_, T> {
    /// Borrows the elements `start..start + len` for reading.
    ///
    /// # Safety
    ///
    /// No [part](Shared::part) that overlaps them may live at the same time.
    ///
    /// # Panics
    ///
    /// If the range is not inside the slice.
    pub unsafe fn read(&self, start: usize, len: usize) -> &[T] {
        assert!(start <= self.len && len <= self.len - start, "part outside");
        // SAFETY: inside the slice; the caller lets no mutable part overlap.
        unsafe { std::slice::from_raw_parts(self.start.add(start), len) }
    }
}

/// Geometry: elements in a block that one thread fills, at least a cache line.
const TOGETHER: usize = 64;

/// Calls `body(start, chunk)` for chunks that make up `out`. `work` is the number of operations per
/// element.
///
/// # Errors
///
/// The work ended before all chunks were done ([`Pool::run`]).
pub fn fill<T: Send, R: Outcome>(
    pool: &Pool,
    out: &mut [T],
    work: usize,
    body: impl Fn(usize, &mut [T]) -> R + Sync,
) -> Result<(), Ended> {
    let shared = Shared::new(out);
    elements(pool, shared.len, work, |range| {
        // SAFETY: ranges are disjoint.
        body(range.start, unsafe { shared.part(range.start, range.len()) })
    })
}

/// Calls `body(range)` for ranges that make up `0..len`. `work` is the number of operations per
/// element. No two ranges share a cache line.
///
/// # Errors
///
/// The work ended before all ranges were done ([`Pool::run`]).
pub fn elements<R: Outcome>(
    pool: &Pool,
    len: usize,
    work: usize,
    body: impl Fn(Range<usize>) -> R + Sync,
) -> Result<(), Ended> {
    ranges(pool, len.div_ceil(TOGETHER), work.saturating_mul(TOGETHER), |blocks| {
        body(blocks.start * TOGETHER..len.min(blocks.end * TOGETHER))
    })
}

/// Calls `body(row, chunk)` for chunks of whole rows of `row` elements that make up `out`, with the
/// index of the first row. `work` is the number of operations per row.
///
/// # Errors
///
/// The work ended before all rows were done ([`Pool::run`]).
///
/// # Panics
///
/// If `out` is not a whole number of rows.
pub fn rows<T: Send, R: Outcome>(
    pool: &Pool,
    out: &mut [T],
    row: usize,
    work: usize,
    body: impl Fn(usize, &mut [T]) -> R + Sync,
) -> Result<(), Ended> {
    if out.is_empty() {
        return Ok(());
    }
    assert!(out.len().is_multiple_of(row), "whole rows");
    let shared = Shared::new(out);
    ranges(pool, shared.len / row, work, |range| {
        // SAFETY: ranges are disjoint.
        body(range.start, unsafe { shared.part(range.start * row, range.len() * row) })
    })
}

/// Calls `body(range)` for ranges that make up `0..items`. `work` is the number of operations per
/// item.
///
/// # Errors
///
/// The work ended before all ranges were done ([`Pool::run`]).
#[inline]
pub fn ranges<R: Outcome>(
    pool: &Pool,
    items: usize,
    work: usize,
    body: impl Fn(Range<usize>) -> R + Sync,
) -> Result<(), Ended> {
    ranges_dyn(pool, items, work, &|range| body(range).into_result())
}

/// Body of [`ranges`].
type RangeBody<'a> = dyn Fn(Range<usize>) -> Result<(), Ended> + Sync + 'a;

/// Runs [`ranges`] with a body behind a pointer, so that its body is compiled once and not in both
/// arms.
fn ranges_dyn(pool: &Pool, items: usize, work: usize, body: &RangeBody<'_>) -> Result<(), Ended> {
    if items == 0 {
        return Ok(());
    }
    let operations = items.saturating_mul(work.max(1));
    let parts = Work::new(Operation::Element, operations).in_pieces(items).cut(pool);
    if parts.count == 1 {
        return body(0..items);
    }
    parts.run(pool, |chunk| body(split_even(items, parts.count, chunk)))
}
