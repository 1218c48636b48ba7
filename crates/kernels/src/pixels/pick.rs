//! Pixels selected by one table of indices per dim, as for nearest-neighbour resizing.

use super::{Pixels, PixelsMut};
use crate::copy::PickDims;
use sardonyx_simd::chunks::ranges;
use sardonyx_simd::{Ended, Exec};

/// Selects pixels: pixel `[i, j, ..]` of `y` is pixel `[tables[0][i], tables[1][j], ..]` of `x`.
/// The dims are images and spatial axes; `tables` holds the tables of all dims one after the other,
/// with one index for each output.
///
/// # Panics
///
/// If sizes do not fit, or an index is out of range.
pub fn pick(
    exec: &Exec<'_>,
    PickDims { input, output }: PickDims<'_>,
    tables: &[usize],
    x: Pixels<'_>,
    y: PixelsMut<'_>,
) -> Result<(), Ended> {
    assert_eq!(output.len(), input.len(), "dims of the same number");
    assert_eq!(tables.len(), output.iter().sum::<usize>(), "one index per output");
    assert_eq!(x.count, input.iter().product::<usize>(), "the input has other dims");
    assert_eq!(y.count, output.iter().product::<usize>(), "the output has other dims");
    assert_eq!(x.channels, y.channels, "as many channels out as in");
    let mut start = 0;
    for (dim, out) in input.iter().zip(output) {
        assert!(tables[start..start + out].iter().all(|at| at < dim), "an index is outside");
        start += out;
    }
    let (Some(last), false) = (output.last(), y.count == 0) else {
        return Ok(());
    };
    let columns = &tables[start - last..];
    let width = input[input.len() - 1];
    ranges(exec.pool, y.count / last, last * (x.channels + 8), |rows| {
        for row in rows {
            let (mut rest, mut stride, mut from, mut end) = (row, width, 0, start - last);
            for (dim, out) in input.iter().zip(output).rev().skip(1) {
                from += tables[end - out + rest % out] * stride;
                (rest, stride, end) = (rest / out, stride * dim, end - out);
            }
            for (col, at) in columns.iter().enumerate() {
                // SAFETY: each row of outputs is written by one thread, and one pixel is borrowed
                // at a time.
                unsafe { y.row(row * last + col) }.copy_from_slice(x.row(from + at));
            }
        }
    })
}
