//! Memory that comes back: buffers whose bytes return to where they were taken when the last
//! reference goes.
//!
//! Fresh memory costs more than most things that are done with it: the system has to find and clear
//! its pages. Whoever makes tensors of the same sizes again and again takes their bytes from a
//! [`Recycler`]. Bytes come back together with the count of their references, so that to take them
//! again asks the system for nothing at all.

use std::cmp::Reverse;
use std::fmt;
use std::mem::take;
use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::buffer::{AlignedBytes, Buffer, Owner};
use crate::error::TensorError;

/// A stock of memory. Buffers made from it may outlive it; their bytes are then freed as usual.
#[derive(Default)]
pub struct Recycler {
    stock: Mutex<Stock>,
}

#[derive(Default)]
struct Stock {
    /// Smallest first.
    free: Vec<Free>,
    free_bytes: usize,
    /// Blocks that have come back so far.
    returns: u64,
    /// Bytes of buffers that exist, and the most that ever did: an eighth more is kept at most. As
    /// blocks differ in length, a program that repeats itself wants a few more than it ever has at
    /// a time.
    lent: usize,
    most_lent: usize,
}

/// A block to which nobody else has a reference.
struct Free {
    block: Arc<Lent>,
    /// Which of all returns brought it.
    returned: u64,
}

/// Memory that is lent or can be.
struct Lent {
    /// `None` only while dropping.
    bytes: Option<AlignedBytes>,
    /// Whether it took the place of one that was too small.
    has_grown: bool,
    /// Where it comes back to; nowhere while it is there.
    home: Weak<Recycler>,
}

/// A buffer shorter than this only takes a block of its own length, rounded up to 64. Sharing
/// blocks with other lengths saves little memory there, and a block that a shorter buffer has taken
/// is missing for its own length in the next step.
const PAGE: usize = 4096;

/// How many free blocks are kept: a training step returns one for each variable and for each
/// gradient, and large models have hundreds.
const MOST_FREE: usize = 4096;

impl Lent {
    fn len(&self) -> usize {
        self.bytes.as_ref().map_or(0, |bytes| bytes.len())
    }
}

impl Stock {
    fn lend(&mut self, bytes: usize) {
        self.lent += bytes;
        self.most_lent = self.most_lent.max(self.lent);
    }

    /// How many free blocks are shorter than that.
    fn shorter(&self, bytes: usize) -> usize {
        self.free.partition_point(|free| free.block.len() < bytes)
    }

    /// Takes out the smallest free block whose length is in a range; of equal ones that which came
    /// back last, as caches may still have it.
    fn smallest(&mut self, lens: RangeInclusive<usize>) -> Option<Arc<Lent>> {
        let len = self.free.get(self.shorter(*lens.start()))?.block.len();
        (len <= *lens.end()).then(|| self.remove(self.shorter(len + 1) - 1))
    }

    /// The same with the largest.
    fn largest(&mut self, lens: Range<usize>) -> Option<Arc<Lent>> {
        let index = self.shorter(lens.end).checked_sub(1)?;
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
        let index = self.shorter(block.len() + 1);
        self.free.insert(index, Free { block, returned: self.returns });
    }

    /// Frees all blocks but those that came back last, of which it keeps so many and no more than
    /// so many bytes.
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
    /// A buffer of `len` bytes of no particular values, aligned as all memory of this crate.
    ///
    /// # Errors
    /// If memory is refused.
    pub fn take(self: &Arc<Self>, len: usize) -> Result<Buffer, TensorError> {
        // Not much more than is wanted, so that a small buffer does not hold a large block.
        self.take_block(len, if len < PAGE { 63 } else { len / 2 })
    }

    /// As [`take`](Recycler::take), for a buffer that comes back before others are taken: it may
    /// have any block that is large enough. Buffers of several lengths, one after the other, then
    /// need the memory of the longest alone.
    ///
    /// # Errors
    /// If memory is refused.
    pub fn take_briefly(self: &Arc<Self>, len: usize) -> Result<Buffer, TensorError> {
        self.take_block(len, if len == 0 { 63 } else { usize::MAX })
    }

    /// A buffer in a block that has up to so many bytes more.
    fn take_block(self: &Arc<Self>, len: usize, more: usize) -> Result<Buffer, TensorError> {
        let (found, outgrown) = {
            let mut stock = self.stock.lock().unwrap_or_else(PoisonError::into_inner);
            match stock.smallest(len..=len.saturating_add(more)) {
                Some(block) => {
                    stock.lend(block.len());
                    (Some(block), None)
                }
                None => (None, stock.largest(len - len / 4..len)),
            }
        };
        let mut lent = match found {
            Some(block) => block,
            // Room to grow by a little: a sequence that gets longer with every call finds its
            // memory again. What has outgrown its memory will do so again, so it gets more room
            // each time: fresh pages cost more than the address space.
            None => {
                let room = match &outgrown {
                    _ if len < PAGE => 0,
                    None => len / 16,
                    Some(block) if !block.has_grown => len / 4,
                    Some(_) => len / 2,
                };
                let has_grown = outgrown.is_some();
                // The old block goes first: the two need never exist together.
                drop(outgrown);
                let len = len.saturating_add(room).next_multiple_of(64);
                let bytes = Some(AlignedBytes::zeroed_on_huge_pages(len)?);
                let block = Arc::new(Lent { bytes, has_grown, home: Weak::new() });
                let mut stock = self.stock.lock().unwrap_or_else(PoisonError::into_inner);
                stock.lend(len);
                block
            }
        };
        if let Some(lent) = Arc::get_mut(&mut lent) {
            lent.home = Arc::downgrade(self);
        }
        let mut buffer = Buffer::from_owner(lent);
        buffer.truncate(len);
        Ok(buffer)
    }

    /// Frees memory that nobody has on loan until no more than `bytes` of it are kept.
    pub fn keep_at_most(&self, bytes: usize) {
        let mut stock = self.stock.lock().unwrap_or_else(PoisonError::into_inner);
        stock.keep_newest(MOST_FREE, bytes);
    }

    fn give_back(&self, block: Arc<Lent>) {
        let mut stock = self.stock.lock().unwrap_or_else(PoisonError::into_inner);
        stock.lent -= block.len();
        stock.insert(block);
        // Many go together, as to find the oldest takes sorting: a list of a hundred thousand
        // tensors may come back at once, and inputs of ever new sizes leave blocks in every run.
        let most_lent = stock.most_lent;
        if stock.free.len() > MOST_FREE || stock.free_bytes > most_lent + most_lent / 8 {
            stock.keep_newest(MOST_FREE / 2, most_lent);
        }
    }
}

/// An empty list in the memory of another one. Types that differ in a lifetime only have the same
/// size and alignment, so nothing is allocated.
pub fn emptied<A, B>(mut list: Vec<A>) -> Vec<B> {
    list.clear();
    // Collecting in place keeps the memory.
    list.into_iter().filter_map(|_| None).collect()
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

    fn let_go(mut self: Arc<Self>) {
        let Some(lent) = Arc::get_mut(&mut self) else { return };
        if let Some(home) = take(&mut lent.home).upgrade() {
            home.give_back(self);
        }
    }
}

impl Drop for Lent {
    /// Where the last two references went at the same time, or a name is left, the bytes come back
    /// alone.
    fn drop(&mut self) {
        if let (Some(home), Some(bytes)) = (self.home.upgrade(), self.bytes.take()) {
            let has_grown = self.has_grown;
            home.give_back(Arc::new(Lent { bytes: Some(bytes), has_grown, home: Weak::new() }));
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
        // A part of it is still alive.
        let other = recycler.take(10_000).unwrap();
        assert_ne!(other.as_slice().as_ptr(), start);
        assert_eq!(part.as_slice(), [7; 10]);
        drop(part);
        // A little longer, and much shorter.
        let longer = recycler.take(10_400).unwrap();
        assert_eq!((longer.as_slice().as_ptr(), longer.len()), (start, 10_400));
        drop(longer);
        assert_ne!(recycler.take(1000).unwrap().as_slice().as_ptr(), start);
        drop(recycler);
        assert_eq!(other.len(), 10_000);
    }

    #[test]
    fn a_name_is_not_given_twice() {
        let recycler = Arc::new(Recycler::default());
        let first = recycler.take(1000).unwrap();
        let (name, start) = (first.name(), first.as_slice().as_ptr());
        drop(first);
        // The bytes come back all the same.
        let other = recycler.take(1000).unwrap();
        assert_eq!(other.as_slice().as_ptr(), start);
        assert_ne!(other.name(), name);
    }

    #[test]
    fn what_grows_finds_its_memory_again() {
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
        // A sixteenth more to begin with, then a quarter, then half.
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
        // The last three to come back.
        recycler.keep_at_most(3 * 2048 + 2048);
        let stock = recycler.stock.lock().unwrap();
        let kept = stock.free.iter().map(|free| free.block.bytes().as_ptr());
        assert_eq!(kept.collect::<Vec<_>>(), [starts[3], starts[2], starts[0]]);
    }

    #[test]
    fn what_is_taken_briefly_may_have_a_larger_block() {
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
