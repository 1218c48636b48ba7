//! Permutation of channels.

use sardonyx_gemm::conv::interleave;
use std::ops::Range;

use super::{Pixels, PixelsMut};
use sardonyx_simd::Exec;
use sardonyx_simd::chunks::ranges;
use sardonyx_simd::{Body, Ended, Simd, check_isa, dispatch};

/// Transposes the channels of each pixel, as a matrix of `groups` rows: channel `j` of group `i`
/// becomes channel `i` of group `j`.
///
/// # Panics
///
/// If sizes do not fit, or `groups` does not divide the channels.
pub fn shuffle(
    exec: &Exec<'_>,
    groups: usize,
    x: Pixels<'_>,
    y: PixelsMut<'_>,
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    check_isa(isa);
    assert_eq!([y.count, y.channels], [x.count, x.channels], "as many pixels and channels");
    assert!(groups > 0 && x.channels.is_multiple_of(groups), "channels are no {groups} rows");
    ranges(pool, x.count, 2 * x.channels, |pixels| {
        let shuffled = Shuffled { groups, x: &x, y: &y, pixels };
        // SAFETY: `check_isa` checked the instruction set; each pixel belongs to one thread.
        unsafe { dispatch(isa, shuffled) }
    })
}

/// Body over a range of pixels.
struct Shuffled<'a> {
    groups: usize,
    x: &'a Pixels<'a>,
    y: &'a PixelsMut<'a>,
    pixels: Range<usize>,
}

impl Body for Shuffled<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Shuffled { groups, x, y, pixels } = self;
        let width = x.channels / groups;
        for pixel in pixels {
            let (from, to) = (x.pixel(pixel), y.pixel(pixel));
            // SAFETY: each pixel belongs to one thread; both views have `groups` times `width`
            // channels.
            unsafe {
                match groups {
                    2 => interleave::<2>(from, width, to, width),
                    3 => interleave::<3>(from, width, to, width),
                    4 => interleave::<4>(from, width, to, width),
                    8 => interleave::<8>(from, width, to, width),
                    _ => {
                        for i in 0..groups {
                            for j in 0..width {
                                *to.add(j * groups + i) = *from.add(i * width + j);
                            }
                        }
                    }
                }
            }
        }
    }
}
