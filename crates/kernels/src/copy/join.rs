//! Joining buffers along an axis.

use super::Plain;
use crate::Pool;
use crate::elementwise::chunks::fill;

/// Joins `parts` along an axis: each is `outer` rows, and row `i` of `y` is row `i` of every part
/// in turn.
///
/// # Panics
///
/// If a part is not a whole number of rows, or `y` has not the size of all parts together.
pub fn concat<T: Plain>(pool: &Pool, outer: usize, parts: &[&[T]], y: &mut [T]) {
    let total: usize = parts.iter().map(|part| part.len()).sum();
    assert_eq!(y.len(), total, "the output has another size");
    if y.is_empty() {
        return;
    }
    for part in parts {
        assert!(part.len().is_multiple_of(outer), "whole rows");
    }
    let row_len = total / outer;
    // Chunks of elements rather than rows, since joining along the first axis is one row.
    fill(pool, y, 1, |start, y| {
        let mut done = 0;
        while done < y.len() {
            let row = (start + done) / row_len;
            let mut skip = (start + done) % row_len;
            for part in parts {
                let len = part.len() / outer;
                if skip >= len {
                    skip -= len;
                    continue;
                }
                let n = (len - skip).min(y.len() - done);
                y[done..done + n].copy_from_slice(&part[row * len + skip..][..n]);
                done += n;
                skip = 0;
                if done == y.len() {
                    break;
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_join() {
        for threads in [1, 2, 3] {
            let pool = Pool::new(threads);
            for (outer, lens) in [
                (1, &[3, 0, 5][..]),
                (4, &[1, 2, 3]),
                (0, &[2, 3]),
                (3, &[]),
                (2, &[40_001, 7]),
                (30_001, &[1, 2]),
            ] {
                let parts: Vec<Vec<u32>> = lens
                    .iter()
                    .enumerate()
                    .map(|(k, len)| (0..outer * len).map(|i| (k * 1_000_000 + i) as u32).collect())
                    .collect();
                let mut expected = Vec::new();
                for row in 0..outer {
                    for (part, len) in parts.iter().zip(lens) {
                        expected.extend_from_slice(&part[row * len..][..*len]);
                    }
                }
                let mut y = vec![0; expected.len()];
                let slices: Vec<&[u32]> = parts.iter().map(|part| part.as_slice()).collect();
                concat(&pool, outer, &slices, &mut y);
                assert_eq!(y, expected);
            }
        }
    }
}
