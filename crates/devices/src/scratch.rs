//! Pool of memory for messages and partial results.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Mutex;

use sardonyx_tensor::{ALIGNMENT, AlignedBytes};

use crate::error::{TransportError, TransportErrorKind};
use crate::lock;

/// Pool of memory. Returned pieces stay here until the pool is dropped, so that repeated calls with
/// known sizes do not allocate.
#[derive(Default)]
pub struct Scratch {
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    /// Unused pieces by size in bytes.
    pieces: BTreeMap<usize, Vec<AlignedBytes>>,
    /// Total size of all pieces of this pool, including pieces in use.
    bytes: usize,
}

/// Piece of memory in use, aligned to a cache line. [`Scratch::give_back`] returns it to the pool.
pub struct Piece {
    memory: AlignedBytes,
    used: Range<usize>,
}

impl Piece {
    /// Drops the first bytes from the front of the piece.
    #[cfg(all(unix, feature = "mpi", not(target_feature = "crt-static")))]
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.used.start = (self.used.start + bytes).min(self.used.end);
    }
}

impl Scratch {
    /// Creates an empty pool.
    pub fn new() -> Scratch {
        Scratch::default()
    }

    /// Takes a piece of `len` bytes, whose content is undefined.
    ///
    /// # Errors
    /// Memory cannot be allocated.
    pub fn take(&self, len: usize) -> Result<Piece, TransportError> {
        let size = size_class(len);
        let used_again = lock(&self.free).pieces.get_mut(&size).and_then(Vec::pop);
        if let Some(memory) = used_again {
            return Ok(Piece { memory, used: 0..len });
        }
        let memory = AlignedBytes::zeroed(size)
            .map_err(|error| TransportError::new(TransportErrorKind::System, error.message()))?;
        lock(&self.free).bytes += size;
        Ok(Piece { memory, used: 0..len })
    }

    /// Returns a piece of this pool for later calls.
    pub fn give_back(&self, piece: Piece) {
        let mut free = lock(&self.free);
        free.pieces.entry(piece.memory.len()).or_default().push(piece.memory);
    }

    /// Returns the total size in bytes of all pieces of this pool, those in use included.
    pub fn bytes(&self) -> usize {
        lock(&self.free).bytes
    }
}

/// Returns the size of the memory for `len` bytes: larger by at most an eighth or a cache line.
/// Coarse sizes let pieces be reused when the sizes of messages change a little.
fn size_class(len: usize) -> usize {
    let power = 1usize << len.max(1).ilog2();
    let step = (power / 8).max(ALIGNMENT);
    len.max(1).checked_next_multiple_of(step).unwrap_or(len)
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.used.clone()]
    }
}

impl DerefMut for Piece {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.used.clone()]
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scratch({} bytes)", self.bytes())
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Piece({} bytes)", self.used.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_by_an_eighth_at_most() {
        for len in [0, 1, 63, 64, 65, 511, 512, 513, 1000, 1 << 20, (1 << 20) + 1, 3_000_001] {
            let size = size_class(len);
            assert!(size >= len && size <= len + (len / 8).max(ALIGNMENT), "{len}: {size}");
        }
        assert_eq!(size_class(usize::MAX), usize::MAX);
    }

    #[test]
    fn a_piece_is_used_again() {
        let scratch = Scratch::new();
        let mut piece = scratch.take(1000).unwrap();
        piece.fill(7);
        scratch.give_back(piece);
        assert_eq!(scratch.take(990).unwrap()[..], [7; 990]);
        assert_eq!(scratch.bytes(), 1024);
        let refused = scratch.take(usize::MAX).unwrap_err();
        assert_eq!(refused.kind(), TransportErrorKind::System);
    }
}
