//! Patterns of matrix positions: triangles, and one-hot encodings.

use super::Plain;
use crate::AxisDims;
use sardonyx_simd::chunks::rows;
use sardonyx_simd::{Ended, Pool};

/// Number and sizes of matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixDims {
    pub matrices: usize,
    /// Number of rows of a matrix.
    pub height: usize,
    /// Number of columns of a matrix.
    pub width: usize,
}

/// Copies the upper triangle of each matrix, on and above the diagonal that is `diagonal` columns
/// to the right of the main one, or the lower triangle, on and below it, and fills the rest with
/// the default value. `x` has dims `[matrices, rows, columns]`.
///
/// # Panics
///
/// If lengths do not fit the dims.
pub fn triangle<T: Plain>(
    pool: &Pool,
    upper: bool,
    diagonal: i64,
    MatrixDims { matrices, height, width }: MatrixDims,
    x: &[T],
    y: &mut [T],
) -> Result<(), Ended> {
    assert_eq!(x.len(), matrices * height * width, "the input has other dims");
    assert_eq!(y.len(), x.len(), "one output per input");
    if y.is_empty() {
        return Ok(());
    }
    rows(pool, y, width, width, |first, y| {
        let x = x[first * width..].chunks_exact(width);
        for (i, (y, x)) in y.chunks_exact_mut(width).zip(x).enumerate() {
            let row = ((first + i) % height) as i64;
            let on = row.saturating_add(diagonal);
            let border = if upper { on } else { on.saturating_add(1) };
            let border = border.clamp(0, width as i64) as usize;
            let (copied, left_out) =
                if upper { (border..width, 0..border) } else { (0..border, border..width) };
            y[copied.clone()].copy_from_slice(&x[copied]);
            y[left_out].fill(T::default());
        }
    })
}

/// Encodes indices as one-hot vectors: `y[o, d, i]` is `on` where `d` equals `indices[o, i]`, else
/// `off`. `y` has dims `[outer, depth, inner]`. A negative index counts from the end; an index out
/// of range gives only `off`.
///
/// # Panics
///
/// If lengths do not fit the dims.
pub fn one_hot<T: Plain>(
    pool: &Pool,
    AxisDims { outer, axis: depth, inner }: AxisDims,
    indices: &[i64],
    off: T,
    on: T,
    y: &mut [T],
) -> Result<(), Ended> {
    assert_eq!(indices.len(), outer * inner, "one index per position");
    assert_eq!(y.len(), outer * depth * inner, "the output has other dims");
    if y.is_empty() {
        return Ok(());
    }
    let block = depth * inner;
    rows(pool, y, block, block, |first, y| {
        for (o, y) in y.chunks_exact_mut(block).enumerate() {
            y.fill(off);
            for (i, &index) in indices[(first + o) * inner..][..inner].iter().enumerate() {
                let back = if index < 0 { depth as i64 } else { 0 };
                match usize::try_from(index.wrapping_add(back)) {
                    Ok(index) if index < depth => y[index * inner + i] = on,
                    _ => {}
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triangles() {
        for dims in [[2, 3, 5], [1, 4, 4], [3, 1, 2], [2, 0, 3], [1, 90, 401]] {
            let [matrices, height, width] = dims;
            let matrix_dims = MatrixDims { matrices, height, width };
            let x: Vec<u32> = (1..=(matrices * height * width) as u32).collect();
            for upper in [false, true] {
                for diagonal in [0, 1, -1, 3, -7, 400, i64::MAX, i64::MIN] {
                    let mut y = vec![9; x.len()];
                    triangle(&Pool::new(2), upper, diagonal, matrix_dims, &x, &mut y).unwrap();
                    for (at, (y, x)) in y.iter().zip(&x).enumerate() {
                        let (row, column) = (at / width % height, at % width);
                        let right = column as i128 - row as i128;
                        let kept = if upper {
                            right >= i128::from(diagonal)
                        } else {
                            right <= i128::from(diagonal)
                        };
                        assert_eq!(*y, if kept { *x } else { 0 }, "{dims:?} {upper} {diagonal}");
                    }
                }
            }
        }
    }

    #[test]
    fn single_ones() {
        for dims in [[2, 3, 5], [1, 4, 1], [30, 600, 1], [2, 0, 3], [0, 2, 2]] {
            let [outer, depth, inner] = dims;
            let indices: Vec<i64> = (0..outer * inner).map(|i| (i * 5 % 11) as i64 - 6).collect();
            let mut y = vec![9u8; outer * depth * inner];
            one_hot(&Pool::new(2), dims.into(), &indices, 1, 2, &mut y).unwrap();
            for (at, y) in y.iter().enumerate() {
                let (o, d, i) = (at / inner / depth, at / inner % depth, at % inner);
                let index = indices[o * inner + i];
                let hit = index == d as i64 || index == d as i64 - depth as i64;
                assert_eq!(*y, if hit { 2 } else { 1 }, "{dims:?} {at}");
            }
        }
    }
}
