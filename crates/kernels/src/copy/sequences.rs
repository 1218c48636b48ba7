//! Sequences of a batch: reversed, or written into ring buffers.

use super::Plain;
use sardonyx_simd::chunks::rows;
use sardonyx_simd::{Ended, Pool};

/// Reverses the first `lengths[b]` entries of each sequence `b` and copies the others. `x` and `y`
/// have dims `[batch, time, inner]`, or `[time, batch, inner]` if `time_first`.
///
/// # Panics
///
/// If lengths of slices do not fit the dims, or a sequence is longer than `time`.
pub fn reverse_sequences<T: Plain>(
    pool: &Pool,
    time_first: bool,
    [first, second, inner]: [usize; 3],
    lengths: &[i64],
    x: &[T],
    y: &mut [T],
) -> Result<(), Ended> {
    assert_eq!(x.len(), first * second * inner, "the input has other dims");
    assert_eq!(y.len(), x.len(), "one output per input");
    let (batch, time) = if time_first { (second, first) } else { (first, second) };
    assert_eq!(lengths.len(), batch, "one length per sequence");
    assert!(
        lengths.iter().all(|length| (0..=time as i64).contains(length)),
        "a sequence is longer than its axis"
    );
    if y.is_empty() {
        return Ok(());
    }
    rows(pool, y, inner, inner + 4, |start, y| {
        let (mut i, mut j) = (start / second, start % second);
        for y in y.chunks_exact_mut(inner) {
            let (sequence, step) = if time_first { (j, i) } else { (i, j) };
            let length = lengths[sequence] as usize;
            let from = if step < length { length - 1 - step } else { step };
            let from = if time_first { from * second + j } else { i * second + from };
            y.copy_from_slice(&x[from * inner..][..inner]);
            j += 1;
            if j == second {
                (i, j) = (i + 1, 0);
            }
        }
    })
}

/// Sizes of a batch of ring buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingDims {
    /// Number of sequences.
    pub batch: usize,
    /// Product of the dims between the batch and the axis of entries.
    pub outer: usize,
    /// Number of entries of a buffer.
    pub axis: usize,
    /// Number of elements of an entry.
    pub inner: usize,
}

/// Writes `count` new entries into each sequence of a batch as into a ring buffer: `y[b, o,
/// (starts[b] + k) % axis, i] = updates[b, o, k, i]`. `y` has dims `[batch, outer, axis, inner]`
/// and already holds the data. Without `starts`, all sequences start at 0.
///
/// # Panics
///
/// If lengths do not fit the dims, `starts` is shorter than the batch, or `count` exceeds `axis`.
pub fn write_around<T: Plain>(
    RingDims { batch, outer, axis, inner }: RingDims,
    count: usize,
    starts: Option<&[i64]>,
    updates: &[T],
    y: &mut [T],
) {
    assert_eq!(y.len(), batch * outer * axis * inner, "the output has other dims");
    assert_eq!(updates.len(), batch * outer * count * inner, "the updates have other dims");
    assert!(count <= axis, "an entry would be written twice");
    if updates.is_empty() {
        return;
    }
    let sequences = y.chunks_exact_mut(axis * inner).zip(updates.chunks_exact(count * inner));
    for (index, (y, updates)) in sequences.enumerate() {
        let start =
            starts.map_or(0, |starts| starts[index / outer]).rem_euclid(axis as i64) as usize;
        let (before_end, after) = updates.split_at(count.min(axis - start) * inner);
        y[start * inner..][..before_end.len()].copy_from_slice(before_end);
        y[..after.len()].copy_from_slice(after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_turn_around() {
        for dims in [[3, 5, 1], [2, 4, 3], [1, 1, 1], [0, 3, 2], [3, 0, 2], [3, 2, 0], [70, 90, 7]]
        {
            let [first, second, inner] = dims;
            let x: Vec<u32> = (0..first * second * inner).map(|at| at as u32).collect();
            for time_first in [false, true] {
                let (batch, time) = if time_first { (second, first) } else { (first, second) };
                let lengths: Vec<i64> = (0..batch).map(|b| (b * 7 % (time + 1)) as i64).collect();
                for threads in [1, 2] {
                    let (pool, mut y) = (Pool::new(threads), vec![u32::MAX; x.len()]);
                    reverse_sequences(&pool, time_first, dims, &lengths, &x, &mut y).unwrap();
                    for (at, y) in y.iter().enumerate() {
                        let [i, j, k] = [at / inner / second, at / inner % second, at % inner];
                        let (b, t) = if time_first { (j, i) } else { (i, j) };
                        let length = lengths[b] as usize;
                        let t = if t < length { length - 1 - t } else { t };
                        let (i, j) = if time_first { (t, b) } else { (b, t) };
                        assert_eq!(*y, x[(i * second + j) * inner + k], "{dims:?} {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn entries_go_around_the_end() {
        for (dims, count) in
            [([2, 3, 5, 2], 3), ([1, 1, 4, 1], 4), ([3, 1, 1, 2], 1), ([2, 2, 3, 2], 0)]
        {
            let [batch, outer, axis, inner] = dims;
            let ring = RingDims { batch, outer, axis, inner };
            let updates: Vec<i32> = (0..(batch * outer * count * inner) as i32).collect();
            for first in [-7i64, 0, 2, i64::MAX - 3] {
                let starts: Vec<i64> = (0..batch as i64).map(|b| first + b).collect();
                let mut y = vec![-1; batch * outer * axis * inner];
                write_around(ring, count, Some(&starts), &updates, &mut y);
                let mut expected = vec![-1; y.len()];
                for (at, update) in updates.iter().enumerate() {
                    let (row, i) = (at / inner, at % inner);
                    let (o, k) = (row / count, row % count);
                    let place = i128::from(starts[o / outer]) + k as i128;
                    let place = place.rem_euclid(axis as i128) as usize;
                    expected[(o * axis + place) * inner + i] = *update;
                }
                assert_eq!(y, expected, "{dims:?} {count} {first}");
            }
        }
        let ring = RingDims { batch: 2, outer: 1, axis: 0, inner: 3 };
        write_around::<u8>(ring, 0, None, &[], &mut []);
    }
}
