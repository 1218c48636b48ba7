//! Recycled memory: buffers whose bytes return to a stock when the last reference is dropped.
//!
//! Fresh memory costs more than most operations on it, as the system has to find and clear its
//! pages. A program that repeatedly makes tensors of the same sizes takes their bytes from a
//! [`Recycler`]. Bytes are kept together with their reference count, so that taking them again
//! needs no allocation at all.

use std::cmp::Reverse;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Range, RangeInclusive};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::buffer::{AlignedBytes, Buffer, Owner};
use crate::error::TensorError;

/// Stock of memory. Buffers made from it may outlive it; their bytes are then freed.
#[derive(Default)]
pub struct Recycler {
    stock: Mutex<Stock>,
}

#[derive(Default)]
struct Stock {
    /// Free blocks, smallest first.
    free: Vec<Free>,
    free_bytes: usize,
    /// Number of blocks that were returned so far.
    returns: u64,
    /// Bytes of blocks in use, and their maximum so far. At most an eighth more than the maximum is
    /// kept free: as blocks differ in length, a program that repeats itself needs slightly more
    /// than it ever uses at a time.
    lent: usize,
    most_lent: usize,
}

/// Block without other references.
struct Free {
    block: Arc<Lent>,
    /// Number of the return that brought it.
    returned: u64,
}

/// Block of memory that is or was lent.
struct Lent {
    /// Bytes; `None` only while dropping.
    bytes: Option<AlignedBytes>,
    /// Whether it replaced a block that was too small.
    has_grown: bool,
    /// Stock that it returns to.
    home: Weak<Recycler>,
    /// Whether it is outside of the stock. Written by its only owner.
    is_lent: AtomicBool,
    /// Whether there has been more than one reference since it was lent.
    was_shared: AtomicBool,
}

/// Size in bytes below which a buffer only takes a block of its own length, rounded up to 64.
/// Sharing blocks between lengths would save little memory there, and a block that a shorter buffer
/// has taken is missing for its own length in the next step.
const PAGE: usize = 4096;

/// Maximum number of free blocks: a training step returns one for each variable and each gradient,
/// and large models have hundreds.
const MOST_FREE: usize = 4096;

impl Lent {
    /// Makes a block that is lent.
    fn new(bytes: Option<AlignedBytes>, has_grown: bool, home: Weak<Recycler>) -> Lent {
        let (is_lent, was_shared) = (AtomicBool::new(true), AtomicBool::new(false));
        Lent { bytes, has_grown, home, is_lent, was_shared }
    }

    fn len(&self) -> usize {
        self.bytes.as_ref().map_or(0, |bytes| bytes.len())
    }
}

impl Stock {
    fn lend(&mut self, bytes: usize) {
        self.lent += bytes;
        self.most_lent = self.most_lent.max(self.lent);
    }

    /// Counts the free blocks that are shorter than `bytes`.
    fn count_shorter(&self, bytes: usize) -> usize {
        self.free.partition_point(|free| free.block.len() < bytes)
    }

    /// Takes the smallest free block in a range of lengths. Of equal ones, takes the one returned
    /// last, which may still be in a cache.
    fn take_smallest(&mut self, lens: RangeInclusive<usize>) -> Option<Arc<Lent>> {
        let len = self.free.get(self.count_shorter(*lens.start()))?.block.len();
        (len <= *lens.end()).then(|| self.remove(self.count_shorter(len + 1) - 1))
    }

    /// Takes the largest free block in a range of lengths.
    fn take_largest(&mut self, lens: Range<usize>) -> Option<Arc<Lent>> {
        let index = self.count_shorter(lens.end).checked_sub(1)?;
        (self.free[index].block.len() >= lens.start).then(|| self.remove(index))
    }

    fn remove(&mut self, index: usize) -> Arc<Lent> {
        let block = self.free.remove(index).block;
        self.free_bytes -= block.len();
        block
    }

    fn insert(&mut self, block: Arc<Lent>) {
        self.free_bytes += block.len();
        self.returns += 1;
        let index = self.count_shorter(block.len() + 1);
        self.free.insert(index, Free { block, returned: self.returns });
    }

    /// Frees all blocks but the ones returned last, up to `most` blocks and `bytes` bytes.
    fn keep_newest(&mut self, most: usize, bytes: usize) {
        if self.free.len() <= most && self.free_bytes <= bytes {
            return;
        }
        self.free.sort_unstable_by_key(|free| Reverse(free.returned));
        let mut kept = 0;
        let fits = |free: &&Free| {
            kept += free.block.len();
            kept <= bytes
        };
        let count = self.free.iter().take(most).take_while(fits).count();
        self.free.truncate(count);
        self.free_bytes = self.free.iter().map(|free| free.block.len()).sum();
        self.free.sort_unstable_by_key(|free| (free.block.len(), free.returned));
    }
}

impl Recycler {
    /// Returns a buffer of `len` bytes with arbitrary values, aligned like all memory of this
    /// crate.
    ///
    /// # Errors
    /// Memory cannot be allocated.
    pub fn take(self: &Arc<Self>, len: usize) -> Result<Buffer, TensorError> {
        // Limits the excess, so that a small buffer does not hold a large block.
        self.take_block(len, if len < PAGE { 63 } else { len / 2 })
    }

    /// Returns a buffer like [`take`](Recycler::take) that is returned before others are taken: it
    /// may use any block that is large enough. Buffers of several lengths, one after the other,
    /// then only need the memory of the longest.
    ///
    /// # Errors
    /// Memory cannot be allocated.
    pub fn take_briefly(self: &Arc<Self>, len: usize) -> Result<Buffer, TensorError> {
        self.take_block(len, if len == 0 { 63 } else { usize::MAX })
    }

    /// Returns a buffer in a block with up to `more` excess bytes.
    fn take_block(self: &Arc<Self>, len: usize, more: usize) -> Result<Buffer, TensorError> {
        let (found, outgrown) = {
            let mut stock = self.stock.lock().unwrap_or_else(PoisonError::into_inner);
            match stock.take_smallest(len..=len.saturating_add(more)) {
                Some(block) => {
                    stock.lend(block.len());
                    (Some(block), None)
                }
                None => (None, stock.take_largest(len - len / 4..len)),
            }
        };
        let lent = match found {
            Some(block) => {
                block.is_lent.store(true, Ordering::Relaxed);
                block.was_shared.store(false, Ordering::Relaxed);
                block
            }
            // Leaves room for slight growth, so that a sequence that grows with every call finds
            // its memory again. A tensor that has outgrown its block will probably do so again, so
            // it gets more room each time: fresh pages cost more than the address space.
            None => {
                let room = match &outgrown {
                    _ if len < PAGE => 0,
                    None => len / 16,
                    Some(block) if !block.has_grown => len / 4,
                    Some(_) => len / 2,
                };
                let has_grown = outgrown.is_some();
                // The old block is freed first, so that only one of them exists at a time.
                drop(outgrown);
                let len = len.saturating_add(room).next_multiple_of(64);
                let bytes = Some(AlignedBytes::zeroed_on_huge_pages(len)?);
                let block = Arc::new(Lent::new(bytes, has_grown, Arc::downgrade(self)));
                let mut stock = self.stock.lock().unwrap_or_else(PoisonError::into_inner);
                stock.lend(len);
                block
            }
        };
        Ok(Buffer::from_start(lent, len))
    }

    /// Frees unused memory until at most `bytes` of it are kept.
    pub fn keep_at_most(&self, bytes: usize) {
        let mut stock = self.stock.lock().unwrap_or_else(PoisonError::into_inner);
        stock.keep_newest(MOST_FREE, bytes);
    }

    fn give_back(&self, block: Arc<Lent>) {
        let mut stock = self.stock.lock().unwrap_or_else(PoisonError::into_inner);
        stock.lent -= block.len();
        stock.insert(block);
        // Frees many at once, as finding the oldest requires sorting: a list of a hundred thousand
        // tensors may be returned at once, and inputs of ever new sizes leave blocks in every run.
        let most_lent = stock.most_lent;
        if stock.free.len() > MOST_FREE || stock.free_bytes > most_lent + most_lent / 8 {
            stock.keep_newest(MOST_FREE / 2, most_lent);
        }
    }
}

/// Returns an empty list that reuses the memory of another one, whose items have the same size and
/// alignment: types that differ only in a lifetime.
pub fn emptied<A, B>(mut list: Vec<A>) -> Vec<B> {
    const { assert!(size_of::<A>() == size_of::<B>() && align_of::<A>() == align_of::<B>()) };
    list.clear();
    let mut list = ManuallyDrop::new(list);
    // SAFETY: the memory was allocated for as many items of the same size and alignment, nothing
    // else owns it, and no item is in it.
    unsafe { Vec::from_raw_parts(list.as_mut_ptr().cast(), 0, list.capacity()) }
}

impl fmt::Debug for Recycler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stock = self.stock.lock().unwrap_or_else(PoisonError::into_inner);
        write!(f, "Recycler({} bytes free, {} lent)", stock.free_bytes, stock.lent)
    }
}

impl Owner for Lent {
    fn bytes(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or_default()
    }

    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        self.bytes.as_deref_mut()
    }

    // Relaxed, as a buffer is shared by a thread that has it, and other threads get theirs from it.
    fn note_sharing(&self) {
        self.was_shared.store(true, Ordering::Relaxed);
    }

    fn was_shared(&self) -> bool {
        self.was_shared.load(Ordering::Relaxed)
    }

    fn release(mut self: Arc<Self>) {
        if self.was_shared() && Arc::get_mut(&mut self).is_none() {
            return;
        }
        let Some(home) = self.home.upgrade() else { return };
        self.is_lent.store(false, Ordering::Relaxed);
        home.give_back(self);
    }
}

impl Drop for Lent {
    /// Returns the bytes alone if the last two references were dropped at the same time, or a name
    /// of the buffer exists.
    fn drop(&mut self) {
        // What the stock drops does not return to it: its lock may be held.
        if !*self.is_lent.get_mut() {
            return;
        }
        if let (Some(home), Some(bytes)) = (self.home.upgrade(), self.bytes.take()) {
            let mut block = Lent::new(Some(bytes), self.has_grown, self.home.clone());
            *block.is_lent.get_mut() = false;
            home.give_back(Arc::new(block));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_and_is_used_again() {
        let recycler = Arc::new(Recycler::default());
        let mut first = recycler.take(10_000).unwrap();
        first.make_mut().unwrap().fill(7);
        let start = first.as_slice().as_ptr();
        assert!(first.is_aligned_to(64));
        let part = first.slice(10..20).unwrap();
        drop(first);
        // A slice of it is still alive.
        let other = recycler.take(10_000).unwrap();
        assert_ne!(other.as_slice().as_ptr(), start);
        assert_eq!(part.as_slice(), [7; 10]);
        drop(part);
        // Slightly longer, and much shorter.
        let longer = recycler.take(10_400).unwrap();
        assert_eq!((longer.as_slice().as_ptr(), longer.len()), (start, 10_400));
        drop(longer);
        assert_ne!(recycler.take(1000).unwrap().as_slice().as_ptr(), start);
        drop(recycler);
        assert_eq!(other.len(), 10_000);
    }

    #[test]
    fn a_block_that_was_shared_is_written_in_place_by_its_next_owner_only() {
        let recycler = Arc::new(Recycler::default());
        let mut first = recycler.take(1000).unwrap();
        let place = first.as_slice().as_ptr();

        assert!(first.is_unique());
        let (copy, part, name) = (first.clone(), first.slice(0..10).unwrap(), first.name());
        for other in [Some(copy), Some(part), None] {
            drop(other);
            assert!(!first.is_unique(), "a part or a name is left");
        }
        let again = name.buffer().unwrap();
        drop(name);
        assert!(!first.is_unique());
        drop(again);
        assert!(first.is_unique());
        first.make_mut().unwrap().fill(1);
        drop(first);
        let mut next = recycler.take(1000).unwrap();
        assert_eq!((next.as_slice().as_ptr(), next.is_unique()), (place, true));
        let kept = next.clone();
        next.make_mut().unwrap().fill(2);
        assert_eq!(
            (kept.as_slice().as_ptr(), kept.as_slice()[0], next.as_slice()[0]),
            (place, 1, 2)
        );
    }

    #[test]
    fn what_the_stock_drops_does_not_return() {
        let recycler = Arc::new(Recycler::default());
        let blocks = [1000, 2000, 3000].map(|len| recycler.take(len).unwrap());
        drop(blocks);
        // Drops all of them while it is locked.
        recycler.keep_at_most(1024);
        assert_eq!(recycler.stock.lock().unwrap().free.len(), 0);
        let (first, other) = (recycler.take(1000).unwrap(), recycler.take(1000).unwrap());
        drop((first, other));
        let free = &recycler.stock.lock().unwrap().free;
        assert!(
            free.len() == 2 && free.iter().all(|free| !free.block.is_lent.load(Ordering::Relaxed))
        );
    }

    #[test]
    fn an_emptied_list_keeps_its_memory() {
        let list = vec![Some("a"), None];
        let start = list.as_ptr();
        let mut emptied: Vec<Option<&'static str>> = emptied(list);
        assert!(emptied.is_empty() && emptied.capacity() == 2);
        emptied.push(Some("b"));
        assert_eq!(emptied.as_ptr().addr(), start.addr());
    }

    #[test]
    fn a_name_is_not_given_twice() {
        let recycler = Arc::new(Recycler::default());
        let first = recycler.take(1000).unwrap();
        let (name, start) = (first.name(), first.as_slice().as_ptr());
        drop(first);
        // The bytes are reused although a name exists.
        let other = recycler.take(1000).unwrap();
        assert_eq!(other.as_slice().as_ptr(), start);
        assert_ne!(other.name(), name);
    }

    #[test]
    fn growing_tensors_find_their_memory_again() {
        let recycler = Arc::new(Recycler::default());
        let mut sizes = Vec::new();
        for len in (1 << 16..1 << 17).step_by(512) {
            let grown = [recycler.take(len).unwrap(), recycler.take(len).unwrap()];
            drop(grown);
            let stock = recycler.stock.lock().unwrap();
            assert_eq!(stock.free.len(), 2, "memory that is outgrown goes");
            sizes.extend(stock.free.iter().map(|free| free.block.len()));
        }
        sizes.dedup();
        // First a sixteenth more, then a quarter, then half.
        assert!(sizes.len() <= 3, "{sizes:?}");
    }

    #[test]
    fn few_blocks_are_kept() {
        let recycler = Arc::new(Recycler::default());
        let many: Vec<Buffer> = (0..4 * MOST_FREE).map(|_| recycler.take(16).unwrap()).collect();
        drop(many);
        let stock = recycler.stock.lock().unwrap();
        assert!((MOST_FREE / 2..=MOST_FREE).contains(&stock.free.len()), "{}", stock.free.len());
        assert_eq!(stock.lent, 0);
        let bytes: usize = stock.free.iter().map(|free| free.block.len()).sum();
        assert_eq!(stock.free_bytes, bytes);
    }

    #[test]
    fn the_smallest_that_fits_is_taken_and_the_newest_is_kept() {
        let recycler = Arc::new(Recycler::default());
        let sizes = [4096, 1024, 2048, 1024, 8192];
        let blocks = sizes.map(|len| recycler.take(len).unwrap());
        let starts = blocks.each_ref().map(|block| block.as_slice().as_ptr());
        blocks.into_iter().for_each(drop);
        let taken = |len| recycler.take(len).unwrap().as_slice().as_ptr();
        assert_eq!(taken(1000), starts[3], "of equal ones the last");
        assert_eq!(taken(2000), starts[2]);
        assert_eq!(taken(4096), starts[0]);
        // Keeps the last three that were returned.
        recycler.keep_at_most(3 * 2048 + 2048);
        let stock = recycler.stock.lock().unwrap();
        let kept = stock.free.iter().map(|free| free.block.bytes().as_ptr());
        assert_eq!(kept.collect::<Vec<_>>(), [starts[3], starts[2], starts[0]]);
    }

    #[test]
    fn a_brief_take_may_have_a_larger_block() {
        let recycler = Arc::new(Recycler::default());
        let taken = |len| recycler.take_briefly(len).unwrap().as_slice().as_ptr();
        taken(1 << 12);
        let large = taken(1 << 14);
        assert_eq!([taken(1 << 12), taken(1 << 14), taken(64)], [large; 3]);
        assert_ne!(recycler.take(64).unwrap().as_slice().as_ptr(), large);
    }

    #[test]
    fn no_more_is_kept_than_was_ever_in_use() {
        let recycler = Arc::new(Recycler::default());
        for len in [1 << 10, 1 << 14, 1 << 12, 1 << 16] {
            drop(recycler.take(len).unwrap());
        }
        let stock = recycler.stock.lock().unwrap();
        assert!(stock.free_bytes <= stock.most_lent / 8 * 9 && stock.lent == 0);
        assert!(stock.most_lent <= (1 << 16) + (1 << 12) + 64);
    }
}
