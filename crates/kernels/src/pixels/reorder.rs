//! Conversions between rows and pixels: each image is transposed.

use std::ops::Range;

use super::{Pixels, PixelsMut};
use crate::AxisDims;
use sardonyx_simd::Exec;
use sardonyx_simd::chunks::{Shared, ranges};
use sardonyx_simd::{Body, Ended, Simd, check_isa, dispatch};

/// Cache: pixels whose blocks are transposed one after the other, so that cache lines of the output
/// are complete before they are evicted.
const BAND: usize = 64;

/// Choice: most rows or columns of a block for which single elements are faster than vectors.
const FEW: usize = 4;

/// Converts rows to pixels: in `x`, each channel of each of `images` images is contiguous.
///
/// # Panics
///
/// If lengths do not fit.
pub fn from_rows(exec: &Exec<'_>, images: usize, x: &[f32], y: PixelsMut<'_>) -> Result<(), Ended> {
    let pixels = y.as_pixels().per_image(images);
    assert_eq!(x.len(), y.count * y.channels, "the input has other dims");
    let channels = y.channels;
    transpose_bands(exec, [images, channels, pixels].into(), |image, band| {
        let (first, columns) = (band.start, band.len());
        Block {
            from: x[image * channels * pixels..].as_ptr().wrapping_add(first),
            from_stride: pixels,
            to: y.pixel(image * pixels + first),
            to_stride: y.pitch,
            rows: channels,
            columns,
        }
    })
}

/// Converts pixels to rows: in `y`, each channel of each of `images` images is contiguous.
///
/// # Panics
///
/// If lengths do not fit.
pub fn to_rows(exec: &Exec<'_>, images: usize, x: Pixels<'_>, y: &mut [f32]) -> Result<(), Ended> {
    let pixels = x.per_image(images);
    assert_eq!(y.len(), x.count * x.channels, "the output has other dims");
    let channels = x.channels;
    let y = Shared::new(y);
    transpose_bands(exec, [images, channels, pixels].into(), |image, band| {
        let (first, rows) = (band.start, band.len());
        Block {
            from: x.pixel(image * pixels + first),
            from_stride: x.pitch,
            to: y.at(image * channels * pixels + first),
            to_stride: pixels,
            rows,
            columns: channels,
        }
    })
}

/// Transposes the block that `block` returns for each band of pixels of each image.
fn transpose_bands(
    exec: &Exec<'_>,
    AxisDims { outer: images, axis: channels, inner: pixels }: AxisDims,
    block: impl Fn(usize, Range<usize>) -> Block + Sync,
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    check_isa(isa);
    if channels == 0 {
        return Ok(());
    }
    let per_image = pixels.div_ceil(BAND);
    ranges(pool, images * per_image, 2 * channels * BAND.min(pixels), |pieces| {
        for piece in pieces {
            let (image, first) = (piece / per_image, piece % per_image * BAND);
            // SAFETY: `check_isa` checked the instruction set. The callers have checked that all
            // channels of all pixels are inside both buffers; bands are disjoint.
            unsafe { dispatch(isa, block(image, first..pixels.min(first + BAND))) }
        }
    })
}

/// Body that transposes a block: `to[j * to_stride + i] = from[i * from_stride + j]` for `i < rows`
/// and `j < columns`.
struct Block {
    from: *const f32,
    from_stride: usize,
    to: *mut f32,
    to_stride: usize,
    rows: usize,
    columns: usize,
}

impl Body for Block {
    type Out = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Block { from, from_stride, to, to_stride, rows, columns } = self;
        let (mut cut, mut transposed) = ([0.0f32; 256], [0.0f32; 256]);
        for i in (0..rows).step_by(S::LANES) {
            for j in (0..columns).step_by(S::LANES) {
                let (n, m) = (S::LANES.min(rows - i), S::LANES.min(columns - j));
                // SAFETY: the caller promises the instruction set of `S` and valid elements below
                // `rows` and `columns`; all other accesses are inside the arrays.
                unsafe {
                    let from = from.add(i * from_stride + j);
                    let to = to.add(j * to_stride + i);
                    if n == S::LANES && m == S::LANES {
                        S::transpose(from, from_stride, to, to_stride);
                        continue;
                    }
                    if n.min(m) <= FEW {
                        for k in 0..n {
                            for l in 0..m {
                                *to.add(l * to_stride + k) = *from.add(k * from_stride + l);
                            }
                        }
                        continue;
                    }
                    let mask = S::first(m);
                    for k in 0..n {
                        let row = S::load_m(from.add(k * from_stride), mask);
                        S::store(cut.as_mut_ptr().add(k * S::LANES), row);
                    }
                    S::transpose(cut.as_ptr(), S::LANES, transposed.as_mut_ptr(), S::LANES);
                    let mask = S::first(n);
                    for k in 0..m {
                        let row = S::load(transposed.as_ptr().add(k * S::LANES));
                        S::store_m(to.add(k * to_stride), mask, row);
                    }
                }
            }
        }
    }
}
