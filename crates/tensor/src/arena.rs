//! The arena: one aligned block of bytes, from which a step borrows all its operands at once.
//!
//! A memory plan consists of offsets, not slices. [`Arena::borrow`] turns ranges into slices after
//! checking that no exclusive range overlaps any other. The check alone makes it sound, so the plan
//! need not be trusted. Does not allocate for up to 8 reads and 4 writes.

use std::fmt;
use std::ops::Range;

use smallvec::SmallVec;

use crate::buffer::AlignedBytes;
use crate::error::TensorError;

/// Slices to read, in the order of the requested ranges.
pub type ReadSlices<'a> = SmallVec<[&'a [u8]; 8]>;
/// Slices to write, in the order of the requested ranges.
pub type WriteSlices<'a> = SmallVec<[&'a mut [u8]; 4]>;

/// Scratch memory: a block of initialised bytes with arbitrary values.
#[derive(Debug)]
pub struct Arena {
    block: AlignedBytes,
}

/// Reason why ranges cannot be borrowed together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArenaError {
    /// The range is reversed or ends after the arena.
    OutOfBounds {
        /// Requested range, in bytes.
        range: Range<usize>,
        /// Size of the arena in bytes.
        len: usize,
    },
    /// A range to write overlaps another range.
    Overlap {
        /// Range to write, in bytes.
        write: Range<usize>,
        /// Overlapping range, in bytes.
        other: Range<usize>,
    },
}

impl Arena {
    /// Allocates an arena of `len` bytes, on huge pages if it is large.
    ///
    /// # Errors
    /// Memory cannot be allocated.
    pub fn new(len: usize) -> Result<Arena, TensorError> {
        Ok(Arena { block: AlignedBytes::zeroed_on_huge_pages(len)? })
    }

    /// Returns the size in bytes.
    pub fn len(&self) -> usize {
        self.block.len()
    }

    /// Whether the arena has no bytes.
    pub fn is_empty(&self) -> bool {
        self.block.is_empty()
    }

    /// Grows the arena to at least `len` bytes. Contents are lost when it grows.
    ///
    /// # Errors
    /// Memory cannot be allocated; the arena is then empty.
    pub fn reserve(&mut self, len: usize) -> Result<(), TensorError> {
        if len > self.len() {
            // The old block is freed first, so that only one of them exists at a time.
            self.block = AlignedBytes::zeroed(0)?;
            self.block = AlignedBytes::zeroed_on_huge_pages(len)?;
        }
        Ok(())
    }

    /// Returns all bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.block
    }

    /// Borrows slices of many ranges at once: `reads` may overlap each other, `writes` must not
    /// overlap any range. Empty ranges overlap nothing. An operation in place requests its range
    /// once, as a write.
    ///
    /// # Errors
    /// A range is not within the arena, or a write overlaps another range.
    pub fn borrow(
        &mut self,
        reads: &[Range<usize>],
        writes: &[Range<usize>],
    ) -> Result<(ReadSlices<'_>, WriteSlices<'_>), ArenaError> {
        let (mut read, mut written) = (ReadSlices::new(), WriteSlices::new());
        self.borrow_into(reads, writes, &mut read, &mut written)?;
        Ok((read, written))
    }

    /// Borrows slices like [`Arena::borrow`], and adds them to lists of the caller: a result of
    /// both lists would be copied.
    ///
    /// # Errors
    /// See [`Arena::borrow`].
    pub fn borrow_into<'a>(
        &'a mut self,
        reads: &[Range<usize>],
        writes: &[Range<usize>],
        read: &mut ReadSlices<'a>,
        written: &mut WriteSlices<'a>,
    ) -> Result<(), ArenaError> {
        if reads.is_empty() && writes.is_empty() {
            return Ok(());
        }
        let len = self.block.len();
        for range in reads.iter().chain(writes) {
            if range.start > range.end || range.end > len {
                return Err(ArenaError::OutOfBounds { range: range.clone(), len });
            }
        }
        for (i, write) in writes.iter().enumerate() {
            let clash = |other: &&Range<usize>| {
                write.start < other.end
                    && other.start < write.end
                    && !write.is_empty()
                    && !other.is_empty()
            };
            if let Some(other) = reads.iter().chain(&writes[i + 1..]).find(clash) {
                return Err(ArenaError::Overlap { write: write.clone(), other: other.clone() });
            }
        }
        let start = self.block.start();
        for range in reads {
            // SAFETY: the range lies within the block (checked above), whose bytes are initialised.
            // The slice lives as long as the exclusive borrow of `self`, through which alone the
            // block is reachable, and no write overlaps it.
            read.push(unsafe {
                std::slice::from_raw_parts(start.add(range.start), range.end - range.start)
            });
        }
        for range in writes {
            // SAFETY: as above; and no other slice handed out, read or write, overlaps this one.
            written.push(unsafe {
                std::slice::from_raw_parts_mut(start.add(range.start), range.end - range.start)
            });
        }
        Ok(())
    }
}

impl fmt::Display for ArenaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArenaError::OutOfBounds { range, len } => {
                write!(f, "bytes {range:?} do not lie in an arena of {len} bytes")
            }
            ArenaError::Overlap { write, other } => {
                write!(f, "bytes {write:?}, to be written, overlap bytes {other:?}")
            }
        }
    }
}

impl std::error::Error for ArenaError {}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, clippy::reversed_empty_ranges)]
mod tests {
    use super::*;

    #[test]
    fn disjoint_ranges_are_lent_together() {
        let mut arena = Arena::new(256).unwrap();
        arena.bytes_mut()[..64].fill(7);
        let (reads, mut writes) = arena.borrow(&[0..64, 32..64], &[64..128, 200..256]).unwrap();
        assert_eq!((reads[1], reads[0].as_ptr().addr() % 64), (&[7u8; 32][..], 0));
        let (first, rest) = writes.split_first_mut().unwrap();
        first.copy_from_slice(reads[0]);
        rest[0].fill(9);
        drop((reads, writes));
        assert_eq!(&arena.bytes_mut()[64..128], [7; 64]);
        assert_eq!(arena.bytes_mut()[255], 9);
    }

    #[test]
    fn overlaps_and_bounds_are_refused() {
        let mut arena = Arena::new(100).unwrap();
        let mut fails = |reads: &[Range<usize>], writes: &[Range<usize>]| {
            arena.borrow(reads, writes).unwrap_err()
        };
        assert_eq!(fails(&[0..10], &[9..20]), ArenaError::Overlap { write: 9..20, other: 0..10 });
        assert_eq!(fails(&[], &[0..10, 5..6]), ArenaError::Overlap { write: 0..10, other: 5..6 });
        assert_eq!(fails(&[], &[3..4, 3..4]), ArenaError::Overlap { write: 3..4, other: 3..4 });
        assert_eq!(fails(&[90..101], &[]), ArenaError::OutOfBounds { range: 90..101, len: 100 });
        assert_eq!(fails(&[], &[5..4]), ArenaError::OutOfBounds { range: 5..4, len: 100 });
        assert!(matches!(fails(&[usize::MAX..usize::MAX], &[]), ArenaError::OutOfBounds { .. }));
        // Neighbours and empty ranges do not overlap; reads may.
        arena.borrow(&[0..10, 0..10, 15..15, 100..100], &[10..20, 20..20]).unwrap();
    }

    #[test]
    fn growing() {
        let mut arena = Arena::new(0).unwrap();
        assert!(arena.is_empty());
        arena.reserve(5 << 20).unwrap();
        arena.reserve(10).unwrap();
        assert_eq!(arena.len(), 5 << 20);
        let both = arena.borrow(&[], &[0..64, 64..5 << 20]).unwrap();
        assert_eq!(both.1[1].len(), (5 << 20) - 64);
        drop(both);
        assert!(arena.reserve(usize::MAX).is_err());
        assert!(arena.is_empty());
    }
}
