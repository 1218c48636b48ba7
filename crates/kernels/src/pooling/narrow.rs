//! Pooling of planes whose rows do not fill vectors: the lanes of a vector are neighbouring planes
//! instead.
//!
//! Planes are transposed in blocks. Elements are folded in the order of [`PooledRows`], so that
//! results have the same bits.
//!
//! [`PooledRows`]: super::PooledRows

use super::taps::{self, Taps};
use super::{Divisor, Window};
use crate::reduce::Fold;
use sardonyx_simd::Loop;
use sardonyx_simd::number::Number;

/// Geometry: planes of a block: a vector of f32 in AVX-512.
const PLANES: usize = 16;
/// Choice: most outputs of a narrow row.
const MOST_OUTPUTS: usize = 8;
/// Choice: most outputs of a narrow row with a stride, whose columns other loops would distribute
/// to phases.
const MOST_STRIDED: usize = 32;
/// Cache: most elements of a plane, so that a block of planes stays in a second-level cache.
const MOST_ELEMENTS: usize = 8192;

/// Whether so many planes are pooled faster side by side.
pub(super) fn suits(window: &Window<'_>, planes: usize) -> bool {
    let last = window.input.len() - 1;
    let is_strided = window.strides[last] > 1;
    // Windows of a whole row are folded in lanes elsewhere, in another order of sums.
    let is_run = window.width() == 1 && window.dilations[last] == 1 && !is_strided;
    let most = if is_strided { MOST_STRIDED } else { MOST_OUTPUTS };
    let elements: usize = window.input.iter().product();
    !is_run
        && planes >= PLANES / 2
        && window.width() <= most
        && window.input[last] <= 4 * MOST_STRIDED
        && (1..=MOST_ELEMENTS).contains(&elements)
}

/// Returns the numbers of elements of scratch memory for a block of planes, and for the folded rows
/// of an output row.
pub(super) fn memory_of(window: &Window<'_>) -> [usize; 2] {
    let width = window.input[window.input.len() - 1];
    [window.input.iter().product::<usize>() * PLANES, width * PLANES]
}

/// Loop over planes, block by block.
pub(super) struct NarrowPlanes<'a, T: Number, F, G> {
    pub(super) fold: F,
    pub(super) window: &'a Window<'a>,
    pub(super) x: &'a [T],
    pub(super) y: &'a mut [T],
    /// Computes an output from the result of the fold and the divisor.
    pub(super) finish: G,
    pub(super) divisor: Option<Divisor>,
    /// Scratch memory for a block of planes; [`memory_of`] returns its length.
    pub(super) block: &'a mut [T::Wide],
    /// Scratch memory for folded rows; [`memory_of`] returns its length. All elements are neutral.
    pub(super) folded: &'a mut [T::Wide],
}

impl<T: Number, F: Fold, G: Fn(T::Wide, usize) -> T> Loop for NarrowPlanes<'_, T, F, G> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let NarrowPlanes { fold, window, x, y, finish, divisor, block, folded } = self;
        let last = window.input.len() - 1;
        let (in_width, width) = (window.input[last], window.width());
        let in_plane: usize = window.input.iter().product();
        let out_plane: usize = window.output.iter().product();
        let planes = x.chunks(in_plane * PLANES).zip(y.chunks_mut(out_plane * PLANES));
        for (x, y) in planes {
            for (plane, x) in x.chunks_exact(in_plane).enumerate() {
                for (to, x) in block[plane..].iter_mut().step_by(PLANES).zip(x) {
                    *to = x.widen();
                }
            }
            for row in 0..out_plane / width.max(1) {
                let mut taps = Taps::new(window, row);
                let rows = divisor.map(|divisor| taps.divisor(window, divisor));
                match taps.next_row(window) {
                    Some(first) => {
                        let first = &block[first * folded.len()..][..folded.len()];
                        folded.copy_from_slice(first);
                    }
                    None => folded.fill(fold.start()),
                }
                while let Some(next) = taps.next_row(window) {
                    let next = &block[next * folded.len()..][..folded.len()];
                    for (sum, x) in folded.iter_mut().zip(next) {
                        *sum = fold.step(*sum, *x);
                    }
                }
                for o in 0..width {
                    let inside = taps::positions_inside(window, last, o);
                    let mut sums = [fold.start::<T::Wide>(); PLANES];
                    for tap in inside {
                        let column = o * window.strides[last] + tap * window.dilations[last]
                            - window.pads_begin[last];
                        debug_assert!(column < in_width, "taps inside");
                        let from = &folded[column * PLANES..][..PLANES];
                        for (sum, x) in sums.iter_mut().zip(from) {
                            *sum = fold.step(*sum, *x);
                        }
                    }
                    let count = match (rows, divisor) {
                        (Some(rows), Some(divisor)) => rows * taps::count(window, last, o, divisor),
                        _ => 1,
                    };
                    let to = y[row * width + o..].iter_mut().step_by(out_plane);
                    for (to, sum) in to.zip(&sums) {
                        *to = finish(*sum, count);
                    }
                }
            }
        }
    }
}
