//! Scratch memory of kernel calls.
//!
//! A thread keeps the blocks that its calls have used: within the iterations of a loop, allocating
//! and freeing a small block would take longer than the work on it. The kept memory is bounded, and
//! is freed with the thread.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use bytemuck::Pod;
use sardonyx_tensor::{AlignedBytes, TensorError};

/// Limit: bytes that a thread keeps, about a core's cache, so that clearing a kept block takes less
/// time than the page faults of a new one.
const MOST_BYTES: usize = 2 << 20;
/// Limit: blocks that a thread keeps.
const MOST_PIECES: usize = 16;

thread_local! {
    /// Kept blocks, the last used one last.
    static FREE: RefCell<Vec<AlignedBytes>> = const { RefCell::new(Vec::new()) };
}

/// Elements for the time of a call.
pub(crate) struct Scratch<T> {
    /// `None` only during drop.
    bytes: Option<AlignedBytes>,
    len: usize,
    /// Whether an earlier call has used the memory.
    is_used: bool,
    elements: PhantomData<T>,
}

/// Elements borrowed from an operand, or converted for the time of the call.
pub(crate) enum Contents<'a, T> {
    Borrowed(&'a [T]),
    Made(Scratch<T>),
}

impl<T: Pod> Scratch<T> {
    /// Allocates zeros.
    ///
    /// # Errors
    ///
    /// If memory is refused.
    pub(crate) fn zeros(len: usize) -> Result<Scratch<T>, TensorError> {
        let mut scratch = Scratch::uninit(len)?;
        // A new block is zero.
        if scratch.is_used {
            let wanted = len * size_of::<T>();
            scratch.bytes.iter_mut().for_each(|bytes| bytes[..wanted].fill(0));
        }
        Ok(scratch)
    }

    /// Allocates elements of undefined content, for loops that write them before they read them:
    /// clearing 1 MB takes 0.1 ms on the one thread that does it.
    ///
    /// # Errors
    ///
    /// If memory is refused.
    pub(crate) fn uninit(len: usize) -> Result<Scratch<T>, TensorError> {
        let wanted = len.saturating_mul(size_of::<T>());
        let used = take_kept(wanted);
        let is_used = used.is_some();
        let bytes = match used {
            Some(bytes) => bytes,
            // Reserves for a size that grows with every iteration.
            None if wanted <= MOST_BYTES => {
                AlignedBytes::zeroed((wanted + wanted / 8).next_multiple_of(64))?
            }
            None => AlignedBytes::zeroed(wanted)?,
        };
        Ok(Scratch { bytes: Some(bytes), len, is_used, elements: PhantomData })
    }
}

/// Takes the smallest kept block that is large enough. Skips much larger ones, so that a few
/// elements do not occupy a block that a later call needs.
fn take_kept(wanted: usize) -> Option<AlignedBytes> {
    let sizes = wanted..=wanted.saturating_mul(2).saturating_add(4096);
    FREE.with_borrow_mut(|free| {
        let fits = (0..free.len()).filter(|index| sizes.contains(&free[*index].len()));
        let index = fits.min_by_key(|index| free[*index].len())?;
        Some(free.remove(index))
    })
}

impl<T: Pod> Deref for Scratch<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let bytes = self.bytes.as_deref().unwrap_or_default();
        bytemuck::cast_slice(&bytes[..self.len * size_of::<T>()])
    }
}

impl<T: Pod> DerefMut for Scratch<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let bytes = self.bytes.as_deref_mut().unwrap_or_default();
        bytemuck::cast_slice_mut(&mut bytes[..self.len * size_of::<T>()])
    }
}

impl<T> Drop for Scratch<T> {
    fn drop(&mut self) {
        let Some(bytes) = self.bytes.take().filter(|bytes| (1..=MOST_BYTES).contains(&bytes.len()))
        else {
            return;
        };
        // A thread that ends has no list any more.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            let mut all = bytes.len() + free.iter().map(|piece| piece.len()).sum::<usize>();
            // Evicts the least recently used blocks.
            while all > MOST_BYTES || free.len() >= MOST_PIECES {
                all -= free.remove(0).len();
            }
            free.push(bytes);
        });
    }
}

impl<T: Pod> Deref for Contents<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Contents::Borrowed(elements) => elements,
            Contents::Made(elements) => elements,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes() -> Vec<usize> {
        FREE.with_borrow(|free| free.iter().map(|piece| piece.len()).collect())
    }

    #[test]
    fn a_piece_comes_back_and_is_zero_again() {
        let mut first = Scratch::<i64>::zeros(100).unwrap();
        first.fill(7);
        let place = first.as_ptr().addr();
        drop(first);
        let again = Scratch::<f32>::zeros(210).unwrap();
        assert_eq!(again.as_ptr().addr(), place);
        assert!(again.iter().all(|x| *x == 0.0));
        // Not while it is in use.
        let other = Scratch::<u8>::zeros(10).unwrap();
        assert_ne!(other.as_ptr().addr(), place);
        assert!(Scratch::<u8>::zeros(0).unwrap().is_empty());
        assert!(Scratch::<u64>::zeros(usize::MAX / 4).is_err());
        assert!(Scratch::<u64>::zeros(isize::MAX as usize / 8).is_err());
    }

    #[test]
    fn only_zeros_are_cleared_when_memory_is_used_again() {
        let mut first = Scratch::<u8>::zeros(100).unwrap();
        first.fill(7);
        drop(first);
        assert!(Scratch::<u8>::uninit(100).unwrap().iter().all(|x| *x == 7));
        assert!(Scratch::<u8>::zeros(100).unwrap().iter().all(|x| *x == 0));
    }

    #[test]
    fn what_a_thread_keeps_is_bounded() {
        drop(Scratch::<u8>::zeros(MOST_BYTES + 1).unwrap());
        assert!(sizes().is_empty());
        let many: Vec<_> = (0..3 * MOST_PIECES).map(|_| Scratch::<u8>::zeros(64)).collect();
        drop(many);
        assert_eq!(sizes().len(), MOST_PIECES);
        drop(Scratch::<u8>::zeros(MOST_BYTES / 2).unwrap());
        drop((Scratch::<u8>::zeros(MOST_BYTES / 3), Scratch::<u8>::zeros(MOST_BYTES / 4)));
        assert!(sizes().iter().sum::<usize>() <= MOST_BYTES, "{:?}", sizes());
        // The one that was used last is there.
        assert!(sizes().iter().any(|size| *size >= MOST_BYTES / 3), "{:?}", sizes());
    }
}
