//! Slabs: huge pages that several packed arrays share.
//!
//! An array of 1.1 MiB alone is either in small pages, each of which costs a TLB miss in every run,
//! or takes a huge page of 2 MiB. Half of a 768 x 768 matrix has this size, so that a device with
//! half of the weights of BERT-base held 41 MB more than its part.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{CACHE_LINE, HUGE_FROM_BYTES, HUGE_PAGE, advise_huge};

/// Choice: size in bytes from which arrays share huge pages: one half of them. A smaller array does
/// not fill the first page of a slab, which is resident as a whole.
const SHARED_FROM_BYTES: usize = HUGE_PAGE / 2;
/// Choice: bytes of a slab. What its last array leaves free is not touched, except for the rest of
/// one huge page.
const SLAB_BYTES: usize = 8 << 20;

/// Slab that the next arrays are placed in. Only arrays keep it alive.
static OPEN: Mutex<Weak<Slab>> = Mutex::new(Weak::new());

/// Memory that arrays are placed in, one after the other. It is freed with the last of them.
pub(super) struct Slab {
    memory: NonNull<u8>,
    /// Bytes from the beginning up to the end of the last array.
    used: AtomicUsize,
}

// SAFETY: Owns its memory. Arrays are disjoint ranges of it, and `used` is atomic.
unsafe impl Send for Slab {}
// SAFETY: See `Send`.
unsafe impl Sync for Slab {}

/// Range of a slab that an array owns.
pub(super) struct Range {
    slab: Arc<Slab>,
    start: usize,
    bytes: usize,
}

impl Slab {
    fn layout() -> Layout {
        Layout::from_size_align(SLAB_BYTES, HUGE_PAGE).expect("both are powers of two")
    }

    fn new() -> Slab {
        // SAFETY: The size is not zero.
        let memory = unsafe { alloc(Slab::layout()) };
        let Some(memory) = NonNull::new(memory) else { handle_alloc_error(Slab::layout()) };
        advise_huge(memory.as_ptr(), SLAB_BYTES);
        Slab { memory, used: AtomicUsize::new(0) }
    }

    /// Places an array after the last one. `None` if too few bytes are left.
    fn place(self: &Arc<Slab>, bytes: usize) -> Option<Range> {
        let placed = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            Some(used + bytes).filter(|end| *end <= SLAB_BYTES)
        });
        let start = placed.ok()?;
        Some(Range { slab: Arc::clone(self), start, bytes })
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: Allocated with this layout; each array held the slab alive.
        unsafe { dealloc(self.memory.as_ptr(), Slab::layout()) }
    }
}

impl Range {
    /// Returns a range of the open slab, or of a new one, for an array of `bytes` bytes. `None` if
    /// an array of this size does not share huge pages: it is small, or fills several alone.
    pub(super) fn new(bytes: usize) -> Option<Range> {
        if !(SHARED_FROM_BYTES..HUGE_FROM_BYTES).contains(&bytes) {
            return None;
        }
        let bytes = bytes.next_multiple_of(CACHE_LINE);
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(range) = open.upgrade().and_then(|slab| slab.place(bytes)) {
            return Some(range);
        }
        let slab = Arc::new(Slab::new());
        *open = Arc::downgrade(&slab);
        slab.place(bytes)
    }

    /// Returns the first byte.
    pub(super) fn start(&self) -> NonNull<u8> {
        // SAFETY: The range is within the memory of the slab.
        unsafe { self.slab.memory.add(self.start) }
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        // The last array of a slab leaves its place to the next one.
        let end = self.start + self.bytes;
        let used = &self.slab.used;
        let _ = used.compare_exchange(end, self.start, Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::{Mutex, PoisonError};

    use crate::buffer::{Lasts, PackedBuf};

    /// Lock of the tests, as all arrays of a process share the open slab.
    static ALONE: Mutex<()> = Mutex::new(());

    /// Half of a 768 x 768 matrix.
    const HALF: usize = 768 * 384;

    #[test]
    fn packed_arrays_take_few_more_huge_pages_than_their_bytes_fill() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let arrays: Vec<PackedBuf> =
            (0..48).map(|_| PackedBuf::new_zeroed(HALF, Lasts::ForGood)).collect();
        let bytes = 48 * HALF * size_of::<f32>();
        let pages = arrays.iter().flat_map(|array| {
            let start = array.as_ptr().addr();
            (start >> 21)..=((start + size_of_val(&array[..]) - 1) >> 21)
        });
        let pages = pages.collect::<BTreeSet<usize>>().len();
        assert!(pages << 21 <= bytes + bytes / 16, "{pages} huge pages for {bytes} bytes");
        // Seven arrays fill a slab, which begins with a huge page.
        let first = arrays.iter().filter(|array| array.as_ptr().addr().is_multiple_of(1 << 21));
        assert_eq!(first.count(), 7);
    }

    /// Places the array of a number, with more floats for higher numbers.
    fn place(number: usize) -> PackedBuf {
        PackedBuf::new_zeroed((256 << 10) + 1 + number, Lasts::ForGood)
    }

    #[test]
    fn arrays_of_a_slab_are_apart_and_aligned() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut arrays: Vec<PackedBuf> = (0..30).map(place).collect();
        // Drop some arrays; later arrays reuse the places of the last ones.
        let left: Vec<usize> = (0..30).step_by(3).chain([29]).collect();
        for number in &left {
            arrays[*number] = PackedBuf::new_zeroed(0, Lasts::ForGood);
        }
        for number in &left {
            arrays[*number] = place(*number);
        }
        for (number, array) in arrays.iter_mut().enumerate() {
            assert_eq!(array.as_ptr().addr() % 64, 0);
            array.fill(number as f32);
        }
        for (number, array) in arrays.iter().enumerate() {
            assert_eq!(array.len(), (256 << 10) + 1 + number);
            assert!(array.iter().all(|float| *float == number as f32));
        }
    }
}
