//! Cutting an output buffer into chunks that threads fill.
//!
//! All kernels here share memory between threads in this one way: each chunk is a `&mut` slice of
//! its own. Where the cuts fall never matters for the bits of a result, since an output element is
//! computed by one thread in one order.

use std::marker::PhantomData;

use crate::Pool;

/// Below this much work (in elements touched) a chunk costs less than waking a thread.
pub(crate) const MIN_WORK: usize = 16 * 1024;

/// A mutable slice that several threads take disjoint parts of.
pub(crate) struct Shared<'a, T> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: a `Shared` only hands out disjoint parts (the duty of `part`'s caller), which may be used
// by any thread when T may be sent.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Shared { start: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// Where element `start` is.
    pub(crate) fn at(&self, start: usize) -> *mut T {
        self.start.wrapping_add(start)
    }

    /// The elements `start..start + len`.
    ///
    /// # Safety
    ///
    /// No two parts that live at the same time may overlap.
    ///
    /// # Panics
    ///
    /// If the range is not inside the slice.
    #[allow(clippy::mut_from_ref)] // The point of the type.
    pub(crate) unsafe fn part(&self, start: usize, len: usize) -> &mut [T] {
        assert!(start <= self.len && len <= self.len - start, "part outside");
        // SAFETY: inside the slice; not overlapping by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }
}

/// The length of chunks for `items` that take `work` elements of work each.
pub(crate) fn chunk_len(pool: &Pool, items: usize, work: usize) -> usize {
    // A few chunks per thread even out threads that start late.
    let even = items.div_ceil(4 * pool.threads());
    even.max(MIN_WORK.div_ceil(work.max(1))).max(1)
}

/// Calls `body(start, chunk)` for chunks that make up `out`, whose elements take `work` each.
pub(crate) fn fill<T: Send>(
    pool: &Pool,
    out: &mut [T],
    work: usize,
    body: impl Fn(usize, &mut [T]) + Sync,
) {
    rows(pool, out, 1, work, body);
}

/// As [`fill`], with chunks of whole rows of `row` elements; `body` gets the number of the first
/// row. `work` is per row.
///
/// # Panics
///
/// If `out` is not a whole number of rows.
pub(crate) fn rows<T: Send>(
    pool: &Pool,
    out: &mut [T],
    row: usize,
    work: usize,
    body: impl Fn(usize, &mut [T]) + Sync,
) {
    if out.is_empty() {
        return;
    }
    assert!(out.len().is_multiple_of(row), "whole rows");
    let count = out.len() / row;
    let per_chunk = chunk_len(pool, count, work);
    if per_chunk >= count {
        return body(0, out);
    }
    let shared = Shared::new(out);
    pool.run(count.div_ceil(per_chunk), |chunk| {
        let first = chunk * per_chunk;
        let len = per_chunk.min(count - first);
        // SAFETY: chunks are disjoint row ranges.
        body(first, unsafe { shared.part(first * row, len * row) });
    });
}

/// Calls `body(range)` for ranges that make up `0..items`.
pub(crate) fn ranges(
    pool: &Pool,
    items: usize,
    work: usize,
    body: impl Fn(std::ops::Range<usize>) + Sync,
) {
    let per_chunk = chunk_len(pool, items, work);
    if per_chunk >= items {
        if items > 0 {
            body(0..items);
        }
        return;
    }
    pool.run(items.div_ceil(per_chunk), |chunk| {
        body(chunk * per_chunk..items.min((chunk + 1) * per_chunk));
    });
}
