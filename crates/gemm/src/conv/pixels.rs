//! The layout of pixels whose channels are side by side, and the way there from rows.

/// The pitch of a value with this many channels that is no part of another: whole vectors, and not
/// a multiple of 1 KiB, as the same channels of many pixels would share few places in the cache.
pub fn pitch_of(channels: usize) -> usize {
    let vectors = channels.next_multiple_of(16);
    if vectors.is_multiple_of(256) { vectors + 16 } else { vectors }
}

/// Copies `C` rows, `distance` apart, next to each other element by element. The compiler makes
/// vectors and permutations of it.
///
/// # Safety
///
/// Rows of `count` elements are readable, and `C` times as many writable.
#[inline(always)]
pub unsafe fn interleave<const C: usize>(
    from: *const f32,
    distance: usize,
    to: *mut f32,
    count: usize,
) {
    for i in 0..count {
        for c in 0..C {
            // SAFETY: the caller's promise.
            unsafe { *to.add(i * C + c) = *from.add(c * distance + i) };
        }
    }
}
