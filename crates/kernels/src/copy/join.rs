//! Concatenation along an axis.

use super::Plain;
use sardonyx_simd::chunks::{fill, rows};
use sardonyx_simd::{Ended, Pool};

/// Choice: average row length of the parts, in elements, below which rows are copied element by
/// element: a call for each row would take longer than the copy.
const SHORT: usize = 8;
/// Cache: elements of the result that are filled at a time, few enough for the first-level cache.
const BLOCK: usize = 2048;

/// Concatenates `parts` along an axis: each has `outer` rows, and row `i` of `y` is row `i` of each
/// part in turn.
///
/// # Panics
///
/// If a part is not a whole number of rows, or the length of `y` is not the sum of the parts.
pub fn concat<T: Plain>(
    pool: &Pool,
    outer: usize,
    parts: &[&[T]],
    y: &mut [T],
) -> Result<(), Ended> {
    let total: usize = parts.iter().map(|part| part.len()).sum();
    assert_eq!(y.len(), total, "the output has another size");
    if y.is_empty() {
        return Ok(());
    }
    for part in parts {
        assert!(part.len().is_multiple_of(outer), "whole rows");
    }
    let row_len = total / outer;
    if outer > 1 && row_len < SHORT * parts.len() {
        return rows(pool, y, row_len, row_len, |first, y| {
            fill_short_rows(outer, first, parts, row_len, y);
        });
    }
    // Chunks are elements rather than rows, since concatenation along the first axis has one row.
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
    })
}

/// Writes the rows from row `first` on, part by part through a block of rows that stays in the
/// first-level cache.
fn fill_short_rows<T: Plain>(
    outer: usize,
    first: usize,
    parts: &[&[T]],
    row_len: usize,
    y: &mut [T],
) {
    let block = (BLOCK / row_len).max(1);
    for (index, y) in y.chunks_mut(block * row_len).enumerate() {
        let (first, count) = (first + index * block, y.len() / row_len);
        let mut at = 0;
        for part in parts {
            let len = part.len() / outer;
            let from = &part[first * len..][..count * len];
            let places = y.chunks_exact_mut(row_len).map(|row| &mut row[at..at + len]);
            match len {
                0 => {}
                1 => places.zip(from).for_each(|(to, from)| to[0] = *from),
                SHORT.. => {
                    places
                        .zip(from.chunks_exact(len))
                        .for_each(|(to, from)| to.copy_from_slice(from));
                }
                _ => places.zip(from.chunks_exact(len)).for_each(|(to, from)| {
                    for (to, from) in to.iter_mut().zip(from) {
                        *to = *from;
                    }
                }),
            }
            at += len;
        }
    }
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
                (5_000, &[1, 1, 1, 1, 0, 3, 12]),
                (3, &[1; 3_000]),
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
                concat(&pool, outer, &slices, &mut y).unwrap();
                assert_eq!(y, expected);
            }
        }
    }
}
