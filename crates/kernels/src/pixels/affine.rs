//! A scale and a shift for each channel.

use std::ops::Range;

use super::{Pixels, PixelsMut, check_alike, load, over_channels, store};
use sardonyx_simd::Exec;
use sardonyx_simd::chunks::ranges;
use sardonyx_simd::{Body, Ended, Simd, check_isa, dispatch};

/// `y = x * scale[c] + shift[c]`. Without `x`, `y` is changed in place.
///
/// # Panics
///
/// If sizes do not fit.
pub fn scale_shift(
    exec: &Exec<'_>,
    scale: &[f32],
    shift: &[f32],
    x: Option<Pixels<'_>>,
    y: PixelsMut<'_>,
) -> Result<(), Ended> {
    let parameters = Parameters { minus: None, scale, shift };
    apply(exec, 1, parameters, x, &y)
}

/// One of each per channel; lists may have as many for each image, all or none of the first two.
#[derive(Clone, Copy)]
pub(super) struct Parameters<'a> {
    /// What is added before scaling, for each image.
    pub(super) minus: Option<&'a [f32]>,
    /// For each image.
    pub(super) scale: &'a [f32],
    pub(super) shift: &'a [f32],
}

pub(super) fn apply(
    exec: &Exec<'_>,
    images: usize,
    parameters: Parameters<'_>,
    x: Option<Pixels<'_>>,
    y: &PixelsMut<'_>,
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    check_isa(isa);
    let per_image = y.as_pixels().per_image(images);
    let channels = y.channels;
    let x = x.unwrap_or(y.as_pixels());
    check_alike(&x, y);
    let Parameters { minus, scale, shift } = parameters;
    assert_eq!(scale.len(), images * channels, "one scale per channel");
    assert!(minus.is_none_or(|minus| minus.len() == scale.len()), "one center per channel");
    assert_eq!(shift.len(), channels, "one shift per channel");
    ranges(pool, y.count, channels, |pixels| {
        let scaled = Scaled { x: &x, y, parameters, pixels, per_image };
        // SAFETY: the machine has the instruction set; threads take pixels of their own.
        unsafe {
            match minus {
                None => dispatch(isa, With::<false>(scaled)),
                Some(_) => dispatch(isa, With::<true>(scaled)),
            }
        }
    })
}

/// Some pixels.
struct Scaled<'a> {
    x: &'a Pixels<'a>,
    y: &'a PixelsMut<'a>,
    parameters: Parameters<'a>,
    pixels: Range<usize>,
    per_image: usize,
}

/// Whether there are centers.
struct With<'a, const CENTERED: bool>(Scaled<'a>);

impl<const CENTERED: bool> Body for With<'_, CENTERED> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Scaled { x, y, parameters: Parameters { minus, scale, shift }, pixels, per_image } =
            self.0;
        let channels = y.channels;
        let mut next = pixels.start;
        while next < pixels.end {
            let image = next / per_image;
            let row = image * channels;
            let scale = scale[row..][..channels].as_ptr();
            let minus = minus.map_or(scale, |minus| minus[row..][..channels].as_ptr());
            let shift = shift.as_ptr();
            let end = pixels.end.min((image + 1) * per_image);
            for i in next..end {
                let (x, y) = (x.pixel(i), y.pixel(i));
                // SAFETY: the channels of both pixels are valid, and there is a parameter for each.
                unsafe {
                    over_channels!(S, channels, |c, mask| scaled::<CENTERED>(
                        x.add(c),
                        [minus.add(c), scale.add(c), shift.add(c)],
                        y.add(c),
                        mask
                    ));
                }
            }
            next = end;
        }
    }
}

/// `N` vectors.
///
/// # Safety
///
/// Must run with `S` enabled; all lanes meant must be readable, or writable for `y`.
#[inline(always)]
unsafe fn scaled<S: Simd, const CENTERED: bool, const N: usize, const MASKED: bool>(
    x: *const f32,
    [minus, scale, shift]: [*const f32; 3],
    y: *mut f32,
    mask: S::M,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut values = load::<S, N, MASKED>(x, mask);
        if CENTERED {
            let minus = load::<S, N, MASKED>(minus, mask);
            for (value, minus) in values.iter_mut().zip(&minus) {
                *value = S::add(*value, *minus);
            }
        }
        let scale = load::<S, N, MASKED>(scale, mask);
        let shift = load::<S, N, MASKED>(shift, mask);
        for ((value, scale), shift) in values.iter_mut().zip(&scale).zip(&shift) {
            *value = S::fma(*value, *scale, *shift);
        }
        store::<S, N, MASKED>(y, mask, values);
    }
}
