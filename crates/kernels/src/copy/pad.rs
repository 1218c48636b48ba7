//! Padding, and cropping for negative pads.

use super::Plain;
use sardonyx_simd::chunks::rows;
use sardonyx_simd::{Ended, Pool};

/// Source of the elements of padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pad {
    /// A given value.
    Constant,
    /// The nearest element of the data.
    Edge,
    /// The data mirrored at its first and last element, which are not repeated; mirrored again for
    /// longer pads.
    Reflect,
    /// The data repeated periodically.
    Wrap,
}

impl Pad {
    /// Maps a coordinate, perhaps outside the dim, to that of the element that the output repeats;
    /// `None` for the padding value.
    fn source(self, at: isize, dim: usize) -> Option<usize> {
        let n = dim as isize;
        let inside = match self {
            _ if (0..n).contains(&at) => at,
            _ if n == 0 => return None,
            Pad::Constant => return None,
            Pad::Edge => at.clamp(0, n - 1),
            Pad::Wrap => at.rem_euclid(n),
            Pad::Reflect => {
                let period = (2 * (n - 1)).max(1);
                let at = at.rem_euclid(period);
                at.min(period - at).min(n - 1)
            }
        };
        Some(inside as usize)
    }
}

/// Padding of each dim. Negative pads crop.
#[derive(Clone, Copy, Debug)]
pub struct Padding<'a, T> {
    pub mode: Pad,
    /// Elements added before the data, for each dim.
    pub before: &'a [isize],
    /// Elements added after the data, for each dim.
    pub after: &'a [isize],
    /// Padding value: for [`Pad::Constant`], and in the other modes for dims without elements.
    pub value: T,
}

/// Writes `x`, whose dims are `dims`, to `y` with padding.
///
/// # Panics
///
/// If lists differ in length, or lengths do not fit, as for a dim cropped below zero.
pub fn pad<T: Plain>(
    pool: &Pool,
    padding: Padding<'_, T>,
    dims: &[usize],
    x: &[T],
    y: &mut [T],
) -> Result<(), Ended> {
    let Padding { mode, before, after, value } = padding;
    let rank = dims.len();
    assert!(before.len() == rank && after.len() == rank, "two pads per dim");
    assert_eq!(x.len(), dims.iter().product(), "the input has other dims");
    let padded_dim = |d: usize| {
        let dim = dims[d] as isize + before[d] + after[d];
        assert!(dim >= 0, "dim {d} is cropped below zero");
        dim as usize
    };
    let total: usize = (0..rank).map(padded_dim).product();
    assert_eq!(y.len(), total, "the output has other dims");
    if y.is_empty() {
        return Ok(());
    }
    let Some(last) = rank.checked_sub(1) else {
        y.copy_from_slice(x);
        return Ok(());
    };
    let (width, in_width) = (padded_dim(last), dims[last]);
    // Range of output columns that hold data.
    let low = before[last].clamp(0, width as isize) as usize;
    let high = (before[last] + in_width as isize).clamp(low as isize, width as isize) as usize;
    rows(pool, y, width, width + 8 * rank, |first, y| {
        for (row, y) in y.chunks_exact_mut(width).enumerate() {
            let (mut rest, mut stride, mut from) = (first + row, in_width, Some(0));
            for d in (0..last).rev() {
                let at = (rest % padded_dim(d)) as isize - before[d];
                rest /= padded_dim(d);
                from = from.zip(mode.source(at, dims[d])).map(|(from, at)| from + at * stride);
                stride *= dims[d];
            }
            let Some(from) = from else {
                y.fill(value);
                continue;
            };
            let (left, rest) = y.split_at_mut(low);
            let (middle, right) = rest.split_at_mut(high - low);
            let x = &x[from..];
            if !middle.is_empty() {
                let skipped = (low as isize - before[last]) as usize;
                middle.copy_from_slice(&x[skipped..][..high - low]);
            }
            for (start, side) in [(0, left), (high, right)] {
                for (i, y) in side.iter_mut().enumerate() {
                    let at = (start + i) as isize - before[last];
                    *y = mode.source(at, in_width).map_or(value, |at| x[at]);
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_as_numpy_has_them() {
        let pool = Pool::new(1);
        for (mode, before, after, expected) in [
            (Pad::Constant, 2, 3, &[9, 9, 1, 2, 3, 9, 9, 9][..]),
            (Pad::Edge, 2, 3, &[1, 1, 1, 2, 3, 3, 3, 3]),
            (Pad::Reflect, 2, 2, &[3, 2, 1, 2, 3, 2, 1]),
            (Pad::Reflect, 5, 0, &[2, 1, 2, 3, 2, 1, 2, 3]),
            (Pad::Wrap, 4, 2, &[3, 1, 2, 3, 1, 2, 3, 1, 2]),
            (Pad::Edge, -1, 1, &[2, 3, 3]),
            (Pad::Constant, -2, -1, &[]),
            (Pad::Constant, 1, -2, &[9, 1]),
            (Pad::Constant, 4, -4, &[9, 9, 9]),
        ] {
            let mut y = vec![0; expected.len()];
            pad(
                &pool,
                Padding { mode, before: &[before], after: &[after], value: 9 },
                &[3],
                &[1, 2, 3],
                &mut y,
            )
            .unwrap();
            assert_eq!(y, expected, "{mode:?} {before} {after}");
        }
        let mut y = [0; 3];
        pad(
            &pool,
            Padding { mode: Pad::Reflect, before: &[1], after: &[1], value: 9 },
            &[1],
            &[4],
            &mut y,
        )
        .unwrap();
        assert_eq!(y, [4; 3]);
        pad(
            &pool,
            Padding { mode: Pad::Edge, before: &[1], after: &[2], value: 9 },
            &[0],
            &[],
            &mut y,
        )
        .unwrap();
        assert_eq!(y, [9; 3]);
    }

    #[test]
    fn every_dim_against_a_plain_loop() {
        let dims = [3, 4, 5, 30];
        let x: Vec<u32> = (0..1800).collect();
        for threads in [1, 3] {
            let pool = Pool::new(threads);
            for mode in [Pad::Constant, Pad::Edge, Pad::Reflect, Pad::Wrap] {
                for (before, after) in
                    [([1, 2, 0, 40], [0, 3, 2, 1]), ([-1, 2, -2, 5], [0, -3, 1, -30])]
                {
                    let out: Vec<usize> = (0..4)
                        .map(|d| (dims[d] as isize + before[d] + after[d]) as usize)
                        .collect();
                    let expected: Vec<u32> = (0..out.iter().product())
                        .map(|at: usize| {
                            let (mut rest, mut stride, mut from) = (at, 1, Some(0));
                            for d in (0..4).rev() {
                                let i = mode.source((rest % out[d]) as isize - before[d], dims[d]);
                                rest /= out[d];
                                from = from.zip(i).map(|(f, i)| f + i * stride);
                                stride *= dims[d];
                            }
                            from.map_or(7777, |from| x[from])
                        })
                        .collect();
                    let mut y = vec![0; expected.len()];
                    pad(
                        &pool,
                        Padding { mode, before: &before, after: &after, value: 7777 },
                        &dims,
                        &x,
                        &mut y,
                    )
                    .unwrap();
                    assert_eq!(y, expected, "{mode:?}");
                }
            }
        }
    }
}
