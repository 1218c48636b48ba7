//! Memory for the time of a call of a kernel.
//!
//! A thread keeps the pieces that its calls have used: in the iterations of a loop, to ask the
//! system for a small piece of memory and to give it back takes longer than what is done in it.
//! What is kept is bounded, and goes with the thread.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use bytemuck::Pod;
use sardonyx_tensor::{AlignedBytes, TensorError};

/// Limit: most bytes that a thread keeps: as many as a cache of a core has, so that clearing a
/// piece that was kept takes less time than the pages of a new one would.
const MOST_BYTES: usize = 2 << 20;
/// Limit: most pieces that a thread keeps.
const MOST_PIECES: usize = 16;

thread_local! {
    /// The piece that was used last is the last one.
    static FREE: RefCell<Vec<AlignedBytes>> = const { RefCell::new(Vec::new()) };
}

/// Elements for the time of a call.
pub(crate) struct Scratch<T> {
    /// `None` only while dropping.
    bytes: Option<AlignedBytes>,
    len: usize,
    /// Whether an earlier call has used the memory.
    is_used: bool,
    elements: PhantomData<T>,
}

/// Elements that a kernel is given, or a form of them that it has made for the time of the call.
pub(crate) enum Contents<'a, T> {
    Borrowed(&'a [T]),
    Made(Scratch<T>),
}

impl<T: Pod> Scratch<T> {
    /// Takes elements that are all zero.
    ///
    /// # Errors
    ///
    /// If memory is refused.
    pub(crate) fn zeros(len: usize) -> Result<Scratch<T>, TensorError> {
        let mut scratch = Scratch::any(len)?;
        // Memory that no call has used before is clear.
        if scratch.is_used {
            let wanted = len * size_of::<T>();
            scratch.bytes.iter_mut().for_each(|bytes| bytes[..wanted].fill(0));
        }
        Ok(scratch)
    }

    /// Takes elements of any values, for loops that write them before they read them: clearing 1 MB
    /// takes 0.1 ms on the one thread that does it.
    ///
    /// # Errors
    ///
    /// If memory is refused.
    pub(crate) fn any(len: usize) -> Result<Scratch<T>, TensorError> {
        let wanted = len.saturating_mul(size_of::<T>());
        let used = kept(wanted);
        let is_used = used.is_some();
        let bytes = match used {
            Some(bytes) => bytes,
            // Room for a size that grows with every iteration.
            None if wanted <= MOST_BYTES => {
                AlignedBytes::zeroed((wanted + wanted / 8).next_multiple_of(64))?
            }
            None => AlignedBytes::zeroed(wanted)?,
        };
        Ok(Scratch { bytes: Some(bytes), len, is_used, elements: PhantomData })
    }
}

/// The smallest piece that a thread has kept and that is large enough. Not one that is much larger,
/// so that a few elements do not hold the piece that a later call wants.
fn kept(wanted: usize) -> Option<AlignedBytes> {
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
            // What was not used for longest goes.
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
        assert!(Scratch::<u8>::any(100).unwrap().iter().all(|x| *x == 7));
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
