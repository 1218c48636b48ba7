//! One value per image and channel from all pixels of the image.
//!
//! Pixels are cut into segments whatever the number of threads. What the segments of a channel
//! give is put together in f64.

use std::marker::PhantomData;
use std::ops::Range;

use super::{Pixels, PixelsMut, VectorFold, load, over_channels, store};
use crate::reduce::{Least, Maximum, Sum};
use sardonyx_simd::Exec;
use sardonyx_simd::buffer::{with_scratch, with_scratch_of};
use sardonyx_simd::chunks::{Shared, ranges};
use sardonyx_simd::split_even;
use sardonyx_simd::{Body, Ended, Level, Loop, Simd, check_isa, dispatch};

/// What to reduce to. The value of an image without pixels is given in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Total {
    /// (0)
    Sum,
    /// (NaN)
    Mean,
    /// (minus infinity)
    Max,
    /// (infinity)
    Min,
}

/// Reduces each channel of each of `images` images, which become pixels of `y`.
///
/// # Panics
///
/// If sizes do not fit.
pub fn reduce(
    exec: &Exec<'_>,
    total: Total,
    images: usize,
    x: Pixels<'_>,
    y: PixelsMut<'_>,
) -> Result<(), Ended> {
    let pixels = x.per_image(images);
    assert_eq!(y.count, images, "one pixel per image");
    assert_eq!(x.channels, y.channels, "as many channels out as in");
    let channels = x.channels;
    with_scratch_of::<f64, _>(images * channels, |totals| {
        match total {
            Total::Sum | Total::Mean => fold_images(exec, Sum, images, &x, None, totals)?,
            Total::Max => fold_images(exec, Maximum, images, &x, None, totals)?,
            Total::Min => fold_images(exec, Least, images, &x, None, totals)?,
        }
        let divisor = if total == Total::Mean { pixels as f64 } else { 1.0 };
        for (i, totals) in totals.chunks_exact(channels.max(1)).enumerate() {
            // SAFETY: one thread writes all.
            let y = unsafe { y.row(i) };
            for (y, total) in y.iter_mut().zip(totals) {
                *y = (total / divisor) as f32;
            }
        }
        Ok(())
    })
}

/// Sums: most pixels whose bands are added up in f32. There are several segments where there are
/// threads to take them: each those whose pixels it has computed before.
const SEGMENT: usize = 64;
/// Sums: pixels of which all channels are taken before the next ones. Their values are added in two
/// chains.
const BAND: usize = 32;
/// Work: channels of which a thread takes all pixels of a segment.
const CHANNELS: usize = 256;

/// Folds all pixels of each image to `totals`, which has `images` times as many elements as there
/// are channels; with `minus`, of the same size, what it has for image and channel is added to each
/// element first.
pub(super) fn fold_images<F: VectorFold>(
    exec: &Exec<'_>,
    fold: F,
    images: usize,
    x: &Pixels<'_>,
    minus: Option<&[f32]>,
    totals: &mut [f64],
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    check_isa(isa);
    let (pixels, channels) = (x.per_image(images), x.channels);
    assert_eq!(totals.len(), images * channels, "one total per image and channel");
    assert!(minus.is_none_or(|minus| minus.len() == totals.len()), "as many centers as totals");
    let (segments, blocks) = (pixels.div_ceil(SEGMENT), channels.div_ceil(CHANNELS));
    with_scratch(images * segments * channels, |partial| {
        let shared = Shared::new(partial);
        let work = SEGMENT.min(pixels) * CHANNELS.min(channels);
        ranges(pool, images * segments * blocks, work, |pieces| {
            for piece in pieces {
                let (segment, block) = (piece / blocks, piece % blocks);
                let (image, index) = (segment / segments, segment % segments);
                let low = block * CHANNELS;
                let wide = CHANNELS.min(channels - low);
                let within = split_even(pixels, segments, index);
                let pixels = image * pixels + within.start..image * pixels + within.end;
                let minus = minus.map(|minus| &minus[image * channels + low..][..wide]);
                // SAFETY: pieces are disjoint parts of the buffer.
                let to = unsafe { shared.part(segment * channels + low, wide) };
                let segment = Segment { fold: PhantomData::<F>, x, pixels, low, minus, to };
                // SAFETY: the machine has the instruction set.
                unsafe { dispatch(isa, segment) }
            }
        })?;
        let level = Level::new(isa);
        let totals = Shared::new(totals);
        ranges(pool, images, segments * channels, |images| {
            for image in images {
                let parts = segments * channels;
                let partial = &partial[image * parts..][..parts];
                // SAFETY: each image is taken by one thread.
                let totals = unsafe { totals.part(image * channels, channels) };
                level.run(Together { fold, partial, totals });
            }
        })
    })
}

/// Some channels of the pixels of a segment.
struct Segment<'a, F> {
    fold: PhantomData<F>,
    x: &'a Pixels<'a>,
    pixels: Range<usize>,
    /// The first channel.
    low: usize,
    minus: Option<&'a [f32]>,
    /// One element per channel.
    to: &'a mut [f32],
}

impl<F: VectorFold> Body for Segment<'_, F> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Segment { fold: _, x, pixels, low, minus, to } = self;
        to.fill(F::START);
        let (channels, pitch) = (to.len(), x.pitch);
        let to = to.as_mut_ptr();
        for first in pixels.clone().step_by(BAND) {
            let count = BAND.min(pixels.end - first);
            let x = x.pixel(first).wrapping_add(low);
            // SAFETY: the channels of the pixels are readable, and `minus` and `to` have one
            // element for each.
            unsafe {
                match minus {
                    Some(minus) => {
                        let minus = minus.as_ptr();
                        over_channels!(S, channels, |c, mask| centered::<F>(
                            x.add(c),
                            pitch,
                            count,
                            minus.add(c),
                            to.add(c),
                            mask
                        ));
                    }
                    None => {
                        over_channels!(S, channels, |c, mask| plain::<F>(
                            x.add(c),
                            pitch,
                            count,
                            to.add(c),
                            mask
                        ));
                    }
                }
            }
        }
    }
}

/// Folds `N` vectors of `count` pixels into `to`.
///
/// # Safety
///
/// Must run with `S` enabled; the pixels must be readable, and `to` writable, in the lanes meant.
#[inline(always)]
unsafe fn plain<S: Simd, F: VectorFold, const N: usize, const MASKED: bool>(
    x: *const f32,
    pitch: usize,
    count: usize,
    to: *mut f32,
    mask: S::M,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let zeros = [S::splat(0.0); N];
        band::<S, F, false, N, MASKED>((x, pitch), count, zeros, to, mask);
    }
}

/// As [`plain`], of what is left when `minus` is added.
///
/// # Safety
///
/// As [`plain`]; `minus` must be readable too.
#[inline(always)]
unsafe fn centered<S: Simd, F: VectorFold, const N: usize, const MASKED: bool>(
    x: *const f32,
    pitch: usize,
    count: usize,
    minus: *const f32,
    to: *mut f32,
    mask: S::M,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let minus = load::<S, N, MASKED>(minus, mask);
        band::<S, F, true, N, MASKED>((x, pitch), count, minus, to, mask);
    }
}

/// # Safety
///
/// As [`plain`].
#[inline(always)]
unsafe fn band<S: Simd, F: VectorFold, const CENTERED: bool, const N: usize, const MASKED: bool>(
    (x, pitch): (*const f32, usize),
    count: usize,
    minus: [S::V; N],
    to: *mut f32,
    mask: S::M,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let (mut even, mut odd) = ([S::splat(F::START); N], [S::splat(F::START); N]);
        let (mut x, last) = (x, x.wrapping_add(count.saturating_sub(1) * pitch));
        for _ in 0..count / 2 {
            take::<S, F, CENTERED, N, MASKED>(x, &minus, mask, &mut even);
            take::<S, F, CENTERED, N, MASKED>(x.add(pitch), &minus, mask, &mut odd);
            x = x.wrapping_add(2 * pitch);
        }
        if count % 2 == 1 {
            take::<S, F, CENTERED, N, MASKED>(last, &minus, mask, &mut even);
        }
        let mut sums = load::<S, N, MASKED>(to, mask);
        for ((sum, a), b) in sums.iter_mut().zip(&even).zip(&odd) {
            *sum = F::unite::<S>(*sum, F::unite::<S>(*a, *b));
        }
        store::<S, N, MASKED>(to, mask, sums);
    }
}

/// One pixel more.
///
/// # Safety
///
/// As [`plain`].
#[inline(always)]
unsafe fn take<S: Simd, F: VectorFold, const CENTERED: bool, const N: usize, const MASKED: bool>(
    x: *const f32,
    minus: &[S::V; N],
    mask: S::M,
    sums: &mut [S::V; N],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let pixel = load::<S, N, MASKED>(x, mask);
        for ((sum, x), minus) in sums.iter_mut().zip(&pixel).zip(minus) {
            *sum = F::add::<S>(*sum, if CENTERED { S::add(*x, *minus) } else { *x });
        }
    }
}

/// Puts the segments of an image together.
struct Together<'a, F> {
    fold: F,
    /// One row per segment.
    partial: &'a [f32],
    totals: &'a mut [f64],
}

impl<F: VectorFold> Loop for Together<'_, F> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        self.totals.fill(self.fold.start());
        for row in self.partial.chunks_exact(self.totals.len().max(1)) {
            for (total, x) in self.totals.iter_mut().zip(row) {
                *total = self.fold.join(*total, f64::from(*x));
            }
        }
    }
}
