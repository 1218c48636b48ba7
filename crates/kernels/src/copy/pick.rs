//! Elements selected by one table of indices per dim.

use super::Plain;
use sardonyx_simd::chunks::rows;
use sardonyx_simd::{Ended, Pool};

/// Value: index of no element, for which the output is a given value.
pub const NOWHERE: usize = usize::MAX;

/// Dims of the input and of the output of [`pick`], which have one rank.
#[derive(Clone, Copy, Debug)]
pub struct PickDims<'a> {
    pub input: &'a [usize],
    pub output: &'a [usize],
}

/// Selects elements by one table per dim: element `[i, j, ..]` of `y` is element `[tables[0][i],
/// tables[1][j], ..]` of `x`, or `value` where a table has [`NOWHERE`]. An element is a run of
/// `run` values. `tables` holds the tables of all dims one after the other, with one index for each
/// output.
///
/// # Panics
///
/// If lengths do not fit, or an index is outside of its dim.
pub fn pick<T: Plain>(
    pool: &Pool,
    dims: PickDims<'_>,
    run: usize,
    tables: &[usize],
    value: T,
    x: &[T],
    y: &mut [T],
) -> Result<(), Ended> {
    let PickDims { input, output } = dims;
    let rank = input.len();
    assert_eq!(output.len(), rank, "dims of the same number");
    assert_eq!(tables.len(), output.iter().sum::<usize>(), "one index per output");
    assert_eq!(x.len(), input.iter().product::<usize>() * run, "the input has other dims");
    assert_eq!(y.len(), output.iter().product::<usize>() * run, "the output has other dims");
    let mut start = 0;
    for (dim, out) in input.iter().zip(output) {
        let table = &tables[start..start + out];
        assert!(table.iter().all(|at| at < dim || *at == NOWHERE), "an index is outside");
        start += out;
    }
    if y.is_empty() {
        return Ok(());
    }
    let Some(last) = rank.checked_sub(1) else {
        y.copy_from_slice(x);
        return Ok(());
    };
    let (width, columns) = (output[last] * run, &tables[start - output[last]..]);
    rows(pool, y, width, 2 * width + 8 * rank, |first, y| {
        let mut before = None;
        for row in 0..y.len() / width {
            let from = row_start(dims, tables, first + row).map(|from| from * run);
            let (done, rest) = y.split_at_mut(row * width);
            let y = &mut rest[..width];
            match from {
                None => y.fill(value),
                // Enlarging repeats rows.
                Some(_) if before == Some(from) => y.copy_from_slice(&done[(row - 1) * width..]),
                Some(from) => pick_row(columns, run, value, &x[from..][..input[last] * run], y),
            }
            before = Some(from);
        }
    })
}

/// Returns the element of the input at which the row starts that `row` of the output selects from,
/// or `None` if a table has [`NOWHERE`].
#[inline]
fn row_start(
    PickDims { input, output }: PickDims<'_>,
    tables: &[usize],
    row: usize,
) -> Option<usize> {
    let last = input.len() - 1;
    let (mut rest, mut stride, mut from) = (row, input[last], 0);
    let mut end = tables.len() - output[last];
    for d in (0..last).rev() {
        let at = tables[end - output[d] + rest % output[d]];
        if at == NOWHERE {
            return None;
        }
        from += at * stride;
        stride *= input[d];
        rest /= output[d];
        end -= output[d];
    }
    Some(from)
}

/// Fills a row of the output from a row of the input by the table of the last dim.
#[inline]
fn pick_row<T: Plain>(columns: &[usize], run: usize, value: T, x: &[T], y: &mut [T]) {
    if run == 1 {
        for (y, at) in y.iter_mut().zip(columns) {
            *y = if *at == NOWHERE { value } else { x[*at] };
        }
        return;
    }
    for (y, at) in y.chunks_exact_mut(run).zip(columns) {
        if *at == NOWHERE {
            y.fill(value);
        } else {
            y.copy_from_slice(&x[at * run..][..run]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_by_tables() {
        let (dims, out_dims) = ([3, 2, 4], [5, 3, 6]);
        let mut tables = vec![2, 2, 0, NOWHERE, 1, 1, 1, 0, 3, 0, 0, NOWHERE, 2, 1];
        tables[7] = NOWHERE;
        for run in [1, 3] {
            let x: Vec<u32> = (0..24 * run as u32).collect();
            let expected: Vec<u32> = (0..90 * run)
                .map(|at| {
                    let (r, at) = (at % run, at / run);
                    let at = [at / 18, at / 6 % 3, at % 6];
                    let [a, b, c] = [tables[at[0]], tables[5 + at[1]], tables[8 + at[2]]];
                    let is_inside = [a, b, c].iter().all(|index| *index != NOWHERE);
                    if is_inside { x[((a * 2 + b) * 4 + c) * run + r] } else { 99 }
                })
                .collect();
            for threads in [1, 3] {
                let mut y = vec![0; expected.len()];
                let dims = PickDims { input: &dims, output: &out_dims };
                pick(&Pool::new(threads), dims, run, &tables, 99, &x, &mut y).unwrap();
                assert_eq!(y, expected);
            }
        }
        let mut y = [0];
        pick(&Pool::new(1), PickDims { input: &[], output: &[] }, 1, &[], 9, &[5], &mut y).unwrap();
        assert_eq!(y, [5]);
    }
}
