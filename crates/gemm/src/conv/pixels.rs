//! Layout of pixels whose channels are adjacent, and the conversion from rows to it.

/// Returns the pitch in floats of a value with `channels` channels that has memory of its own:
/// whole vectors, and not a multiple of 1 KiB, as equal channels of many pixels would share few
/// sets of the cache.
pub fn pitch_of(channels: usize) -> usize {
    let vectors = channels.next_multiple_of(16);
    if vectors.is_multiple_of(256) { vectors + 16 } else { vectors }
}

/// Interleaves `C` rows, `distance` floats apart, element by element. The compiler turns the loop
/// into vectors and permutations.
///
/// # Safety
///
/// Rows of `count` elements must be readable, and `C` times as many elements writable.
#[inline(always)]
pub unsafe fn interleave<const C: usize>(
    from: *const f32,
    distance: usize,
    to: *mut f32,
    count: usize,
) {
    for i in 0..count {
        for c in 0..C {
            // SAFETY: the caller has `count` elements of each row readable, and room for all of
            // them.
            unsafe { *to.add(i * C + c) = *from.add(c * distance + i) };
        }
    }
}
