//! Reductions of all pixels of an image to one value per channel.
//!
//! Pixels are cut into segments, independently of the number of threads. The results of the
//! segments are combined in f64.

use std::marker::PhantomData;
use std::ops::Range;

use super::{Pixels, PixelsMut, VectorFold, load, over_channels, store};
use crate::reduce::{Least, Maximum, Sum};
use sardonyx_simd::Exec;
use sardonyx_simd::buffer::{with_scratch, with_scratch_of};
use sardonyx_simd::chunks::{Shared, ranges};
use sardonyx_simd::split_even;
use sardonyx_simd::{Body, Ended, Level, Loop, Simd, check_isa, dispatch};

/// Reduction over the pixels of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Total {
    /// Sum; 0 without pixels.
    Sum,
    /// Mean; NaN without pixels.
    Mean,
    /// Maximum; minus infinity without pixels.
    Max,
    /// Minimum; infinity without pixels.
    Min,
}

/// Reduces each channel of each of `images` images. `y` has one pixel per image.
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
            // SAFETY: only this thread writes pixels of `y`.
            let y = unsafe { y.row(i) };
            for (y, total) in y.iter_mut().zip(totals) {
                *y = (total / divisor) as f32;
            }
        }
        Ok(())
    })
}

/// Sums: most pixels whose bands are added up in f32.
const SEGMENT: usize = 64;
/// Sums: pixels of which all channels are read before the next ones, in two chains of additions.
const BAND: usize = 32;
/// Work: channels of a piece, in which one thread folds all pixels of a segment.
const CHANNELS: usize = 256;

/// Folds all pixels of each image to `totals`, which has an element for each image and channel.
/// `minus`, which has as many, is added to each element first.
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
                // SAFETY: `check_isa` checked the instruction set.
                unsafe { dispatch(isa, segment) }
            }
        })?;
        let level = Level::new(isa);
        let totals = Shared::new(totals);
        ranges(pool, images, segments * channels, |images| {
            for image in images {
                let parts = segments * channels;
                let partial = &partial[image * parts..][..parts];
                // SAFETY: each image belongs to one thread.
                let totals = unsafe { totals.part(image * channels, channels) };
                level.run(SegmentTotals { fold, partial, totals });
            }
        })
    })
}

/// Body that folds some channels of the pixels of a segment.
struct Segment<'a, F> {
    fold: PhantomData<F>,
    x: &'a Pixels<'a>,
    pixels: Range<usize>,
    /// First channel.
    low: usize,
    /// Added to each element first, by channel from `low` on.
    minus: Option<&'a [f32]>,
    /// Receives the result of each channel from `low` on.
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
                        over_channels!(S, channels, |c, mask| fold_centered::<F>(
                            x.add(c),
                            pitch,
                            count,
                            minus.add(c),
                            to.add(c),
                            mask
                        ));
                    }
                    None => {
                        over_channels!(S, channels, |c, mask| fold_plain::<F>(
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
/// The machine has the instruction set of `S`; all lanes, with `MASKED` those of the mask, are
/// readable in all pixels, and readable and writable in `to`.
#[inline(always)]
unsafe fn fold_plain<S: Simd, F: VectorFold, const N: usize, const MASKED: bool>(
    x: *const f32,
    pitch: usize,
    count: usize,
    to: *mut f32,
    mask: S::M,
) {
    // SAFETY: the caller promises the instruction set of `S` and valid lanes.
    unsafe {
        let zeros = [S::splat(0.0); N];
        fold_band::<S, F, false, N, MASKED>(x, pitch, count, zeros, to, mask);
    }
}

/// Folds pixels like [`fold_plain`], but adds `minus` to each element first.
///
/// # Safety
///
/// The promises of [`fold_plain`]; the lanes of `minus` are readable, too.
#[inline(always)]
unsafe fn fold_centered<S: Simd, F: VectorFold, const N: usize, const MASKED: bool>(
    x: *const f32,
    pitch: usize,
    count: usize,
    minus: *const f32,
    to: *mut f32,
    mask: S::M,
) {
    // SAFETY: the caller promises the instruction set of `S` and valid lanes.
    unsafe {
        let minus = load::<S, N, MASKED>(minus, mask);
        fold_band::<S, F, true, N, MASKED>(x, pitch, count, minus, to, mask);
    }
}

/// Folds `N` vectors of `count` pixels into `to`, in two chains.
///
/// # Safety
///
/// The promises of [`fold_plain`].
#[inline(always)]
unsafe fn fold_band<
    S: Simd,
    F: VectorFold,
    const CENTERED: bool,
    const N: usize,
    const MASKED: bool,
>(
    x: *const f32,
    pitch: usize,
    count: usize,
    minus: [S::V; N],
    to: *mut f32,
    mask: S::M,
) {
    // SAFETY: the caller promises the instruction set of `S` and valid lanes.
    unsafe {
        let (mut even, mut odd) = ([S::splat(F::START); N], [S::splat(F::START); N]);
        let (mut x, last) = (x, x.wrapping_add(count.saturating_sub(1) * pitch));
        for _ in 0..count / 2 {
            fold_pixel::<S, F, CENTERED, N, MASKED>(x, &minus, mask, &mut even);
            fold_pixel::<S, F, CENTERED, N, MASKED>(x.add(pitch), &minus, mask, &mut odd);
            x = x.wrapping_add(2 * pitch);
        }
        if count % 2 == 1 {
            fold_pixel::<S, F, CENTERED, N, MASKED>(last, &minus, mask, &mut even);
        }
        let mut sums = load::<S, N, MASKED>(to, mask);
        for ((sum, a), b) in sums.iter_mut().zip(&even).zip(&odd) {
            *sum = F::unite::<S>(*sum, F::unite::<S>(*a, *b));
        }
        store::<S, N, MASKED>(to, mask, sums);
    }
}

/// Folds `N` vectors of one more pixel into `sums`.
///
/// # Safety
///
/// The machine has the instruction set of `S`; all lanes, with `MASKED` those of the mask, are
/// readable.
#[inline(always)]
unsafe fn fold_pixel<
    S: Simd,
    F: VectorFold,
    const CENTERED: bool,
    const N: usize,
    const MASKED: bool,
>(
    x: *const f32,
    minus: &[S::V; N],
    mask: S::M,
    sums: &mut [S::V; N],
) {
    // SAFETY: the caller promises the instruction set of `S` and readable lanes.
    unsafe {
        let pixel = load::<S, N, MASKED>(x, mask);
        for ((sum, x), minus) in sums.iter_mut().zip(&pixel).zip(minus) {
            *sum = F::add::<S>(*sum, if CENTERED { S::add(*x, *minus) } else { *x });
        }
    }
}

/// Loop that combines the segments of an image in f64.
struct SegmentTotals<'a, F> {
    fold: F,
    /// Results of the segments, one row each.
    partial: &'a [f32],
    totals: &'a mut [f64],
}

impl<F: VectorFold> Loop for SegmentTotals<'_, F> {
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
