//! Scale and shift of each channel.

use std::ops::Range;

use super::{Pixels, PixelsMut, check_alike, load, over_channels, store};
use sardonyx_simd::Exec;
use sardonyx_simd::chunks::ranges;
use sardonyx_simd::{Body, Ended, Simd, check_isa, dispatch};

/// Scales and shifts channels: `y = x * scale[c] + shift[c]`, in place without `x`.
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
    scale_pixels(exec, 1, parameters, x, &y)
}

/// Parameters of each channel. `minus` and `scale` have elements for each image, `shift` only for
/// each channel.
#[derive(Clone, Copy)]
pub(super) struct Parameters<'a> {
    /// Added before scaling, by image and channel.
    pub(super) minus: Option<&'a [f32]>,
    /// Factor, by image and channel.
    pub(super) scale: &'a [f32],
    /// Added after scaling, by channel.
    pub(super) shift: &'a [f32],
}

/// Computes `y = (x + minus) * scale + shift`, in place without `x`, divided between threads.
pub(super) fn scale_pixels(
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
        let scaled = ScaledPixels { x: &x, y, parameters, pixels, per_image };
        // SAFETY: `check_isa` checked the instruction set; each pixel belongs to one thread.
        unsafe {
            match minus {
                None => dispatch(isa, ScaleBody::<false>(scaled)),
                Some(_) => dispatch(isa, ScaleBody::<true>(scaled)),
            }
        }
    })
}

/// Range of pixels of one thread, and their parameters.
struct ScaledPixels<'a> {
    x: &'a Pixels<'a>,
    y: &'a PixelsMut<'a>,
    parameters: Parameters<'a>,
    pixels: Range<usize>,
    per_image: usize,
}

/// Body over a range of pixels; `CENTERED` if there is a `minus`.
struct ScaleBody<'a, const CENTERED: bool>(ScaledPixels<'a>);

impl<const CENTERED: bool> Body for ScaleBody<'_, CENTERED> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let ScaledPixels {
            x,
            y,
            parameters: Parameters { minus, scale, shift },
            pixels,
            per_image,
        } = self.0;
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
                // SAFETY: the channels of both pixels are valid, and each has parameters.
                unsafe {
                    over_channels!(S, channels, |c, mask| scale_vectors::<CENTERED>(
                        x.add(c),
                        ChannelPointers {
                            minus: minus.add(c),
                            scale: scale.add(c),
                            shift: shift.add(c)
                        },
                        y.add(c),
                        mask
                    ));
                }
            }
            next = end;
        }
    }
}

/// Pointers to the parameters of a channel and those after it.
#[derive(Clone, Copy)]
struct ChannelPointers {
    minus: *const f32,
    scale: *const f32,
    shift: *const f32,
}

/// Scales and shifts `N` vectors.
///
/// # Safety
///
/// The machine has the instruction set of `S`; all lanes, with `MASKED` those of the mask, are
/// readable, or writable for `y`.
#[inline(always)]
unsafe fn scale_vectors<S: Simd, const CENTERED: bool, const N: usize, const MASKED: bool>(
    x: *const f32,
    ChannelPointers { minus, scale, shift }: ChannelPointers,
    y: *mut f32,
    mask: S::M,
) {
    // SAFETY: the caller promises the instruction set of `S` and valid lanes.
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
