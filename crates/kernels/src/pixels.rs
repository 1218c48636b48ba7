//! Channels-last values, and the loops around convolutions over them.
//!
//! A value of dims `[N, C, S..]` lies in memory as `[N][S..][pitch]`: each pixel begins a pitch
//! after the last one, and its channels are adjacent. The pitch is at least the number of channels;
//! it is larger where the value consists of some channels of a larger one.
//!
//! Vectors run along channels, so that borders of images only decide which pixels are visited. No
//! kernel reads or writes lanes after the channels of a pixel: these may belong to another value,
//! and the memory may end there.
//!
//! The other layout, in which all pixels of a channel are adjacent, is called *rows* here.

mod affine;
mod local;
mod normalize;
mod pick;
mod pool;
mod reduce;
mod reorder;
mod rows;
mod shuffle;

pub use affine::scale_shift;
pub use local::local_response_norm;
pub use normalize::{GroupNorm, group_norm};
pub use pick::pick;
pub use pool::{average_pool, max_pool};
pub use reduce::{Total, reduce};
pub use reorder::{from_rows, to_rows};
pub use rows::{layer_norm, softmax};
pub use sardonyx_gemm::conv::pitch_of;
pub use shuffle::shuffle;

use std::marker::PhantomData;

use crate::reduce::{Fold, Least, Maximum, Squares, Sum};
use sardonyx_simd::Simd;

/// Pixels to read.
#[derive(Clone, Copy, Debug)]
pub struct Pixels<'a> {
    start: *const f32,
    /// Number of pixels in all images.
    count: usize,
    channels: usize,
    /// Distance from one pixel to the next, in floats.
    pitch: usize,
    data: PhantomData<&'a [f32]>,
}

// SAFETY: equivalent to a reference to floats.
unsafe impl Send for Pixels<'_> {}
// SAFETY: equivalent to a reference to floats.
unsafe impl Sync for Pixels<'_> {}

/// Pixels to write.
#[derive(Debug)]
pub struct PixelsMut<'a> {
    start: *mut f32,
    /// Number of pixels in all images.
    count: usize,
    channels: usize,
    /// Distance from one pixel to the next, in floats.
    pitch: usize,
    data: PhantomData<&'a mut [f32]>,
}

// SAFETY: equivalent to a mutable reference to floats.
unsafe impl Send for PixelsMut<'_> {}
// SAFETY: a shared `PixelsMut` only yields addresses; `row`, which writes, is unsafe, and its
// callers keep threads apart.
unsafe impl Sync for PixelsMut<'_> {}

/// Panics unless `len` floats hold all channels of `count` pixels, and pixels do not overlap.
fn check(len: usize, count: usize, channels: usize, pitch: usize) {
    assert!(channels <= pitch, "pixels overlap");
    let last = count.checked_sub(1).map_or(Some(0), |before| {
        before.checked_mul(pitch).and_then(|start| start.checked_add(channels))
    });
    assert!(last.is_some_and(|last| last <= len), "pixels outside of the memory");
}

impl<'a> Pixels<'a> {
    /// Creates a view of `count` pixels of `channels` channels, `pitch` floats apart, from the
    /// start of `data`.
    ///
    /// # Panics
    ///
    /// If a channel lies outside `data`, or the pitch is smaller than the number of channels.
    pub fn new(data: &'a [f32], count: usize, channels: usize, pitch: usize) -> Pixels<'a> {
        check(data.len(), count, channels, pitch);
        Pixels { start: data.as_ptr(), count, channels, pitch, data: PhantomData }
    }

    /// Creates a view like [`Pixels::new`], between whose channels other threads may write.
    ///
    /// # Safety
    ///
    /// For the lifetime of the view, the channels of all pixels must be readable, and no thread may
    /// write them.
    ///
    /// # Panics
    ///
    /// If the pitch is smaller than the number of channels.
    pub unsafe fn from_raw(
        start: *const f32,
        count: usize,
        channels: usize,
        pitch: usize,
    ) -> Pixels<'a> {
        assert!(channels <= pitch, "pixels overlap");
        Pixels { start, count, channels, pitch, data: PhantomData }
    }

    /// Returns the number of pixels in all images.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of channels.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Returns a pointer to the first channel of pixel `i`, which may be out of range.
    #[inline(always)]
    fn pixel(&self, i: usize) -> *const f32 {
        self.start.wrapping_add(i * self.pitch)
    }

    /// Returns the channels of pixel `i`.
    #[inline(always)]
    fn row(&self, i: usize) -> &'a [f32] {
        assert!(i < self.count, "no such pixel");
        // SAFETY: `new` checked, or the caller of `from_raw` promised, that all channels are
        // readable.
        unsafe { std::slice::from_raw_parts(self.pixel(i), self.channels) }
    }

    /// Returns the number of pixels of each of `images` images.
    fn per_image(&self, images: usize) -> usize {
        per_image(self.count, images)
    }
}

impl<'a> PixelsMut<'a> {
    /// Creates a view of `count` pixels of `channels` channels, `pitch` floats apart, from the
    /// start of `data`.
    ///
    /// # Panics
    ///
    /// If a channel lies outside `data`, or the pitch is smaller than the number of channels.
    pub fn new(data: &'a mut [f32], count: usize, channels: usize, pitch: usize) -> PixelsMut<'a> {
        check(data.len(), count, channels, pitch);
        PixelsMut { start: data.as_mut_ptr(), count, channels, pitch, data: PhantomData }
    }

    /// Creates a view like [`PixelsMut::new`], between whose channels other threads may write.
    ///
    /// # Safety
    ///
    /// For the lifetime of the view, the channels of all pixels must be writable, and no other code
    /// may access them.
    ///
    /// # Panics
    ///
    /// If the pitch is smaller than the number of channels.
    pub unsafe fn from_raw(
        start: *mut f32,
        count: usize,
        channels: usize,
        pitch: usize,
    ) -> PixelsMut<'a> {
        assert!(channels <= pitch, "pixels overlap");
        PixelsMut { start, count, channels, pitch, data: PhantomData }
    }

    /// Returns the number of pixels in all images.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of channels.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Returns a view of the pixels that only reads.
    pub fn as_pixels(&self) -> Pixels<'_> {
        let &PixelsMut { start, count, channels, pitch, .. } = self;
        Pixels { start, count, channels, pitch, data: PhantomData }
    }

    /// Returns a pointer to the first channel of pixel `i`, which may be out of range.
    #[inline(always)]
    fn pixel(&self, i: usize) -> *mut f32 {
        self.start.wrapping_add(i * self.pitch)
    }

    /// Returns the channels of pixel `i`.
    ///
    /// # Safety
    ///
    /// No other slice of the pixel may live at the same time.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // Threads share the view and borrow different pixels.
    unsafe fn row(&self, i: usize) -> &mut [f32] {
        assert!(i < self.count, "no such pixel");
        // SAFETY: `new` checked, or the caller of `from_raw` promised, that all channels are
        // writable; the caller promises that no other slice of the pixel lives.
        unsafe { std::slice::from_raw_parts_mut(self.pixel(i), self.channels) }
    }
}

/// Returns the number of pixels of each of `images` images that have `count` pixels in total.
fn per_image(count: usize, images: usize) -> usize {
    assert!(images > 0 || count == 0, "pixels of no image");
    let pixels = count / images.max(1);
    assert_eq!(pixels * images, count, "images of equal size");
    pixels
}

/// Panics unless `x` and `y` have equal numbers of pixels and channels.
fn check_alike(x: &Pixels<'_>, y: &PixelsMut<'_>) {
    assert_eq!(x.count, y.count, "as many pixels out as in");
    assert_eq!(x.channels, y.channels, "as many channels out as in");
}

/// Calls a function for all channels of a pixel: for groups of four vectors, then for single
/// vectors with a mask of the lanes that exist. The last two constant arguments of the function are
/// the number of vectors and whether the mask is used.
macro_rules! over_channels {
    (
        $simd:ident, $channels:expr, |$c:ident, $mask:ident|
        $block:ident::<$($parameter:ident),*>($($argument:expr),* $(,)?)
    ) => {
        let channels = $channels;
        let mut $c = 0;
        let $mask = $simd::first($simd::LANES);
        while channels - $c >= 4 * $simd::LANES {
            $block::<$simd, $($parameter,)* 4, false>($($argument),*);
            $c += 4 * $simd::LANES;
        }
        while $c < channels {
            let $mask = $simd::first(channels - $c);
            $block::<$simd, $($parameter,)* 1, true>($($argument),*);
            $c += $simd::LANES;
        }
    };
}
use over_channels;

/// Loads `N` adjacent vectors; with `MASKED`, the lanes of the mask.
///
/// # Safety
///
/// The machine has the instruction set of `S`; the lanes are readable.
#[inline(always)]
unsafe fn load<S: Simd, const N: usize, const MASKED: bool>(
    p: *const f32,
    mask: S::M,
) -> [S::V; N] {
    // SAFETY: the caller promises the instruction set of `S` and readable lanes.
    unsafe {
        let mut vectors = [S::splat(0.0); N];
        for (i, v) in vectors.iter_mut().enumerate() {
            let p = p.add(i * S::LANES);
            *v = if MASKED { S::load_m(p, mask) } else { S::load(p) };
        }
        vectors
    }
}

/// Stores `N` adjacent vectors; with `MASKED`, the lanes of the mask.
///
/// # Safety
///
/// The machine has the instruction set of `S`; the lanes are writable.
#[inline(always)]
unsafe fn store<S: Simd, const N: usize, const MASKED: bool>(
    p: *mut f32,
    mask: S::M,
    vectors: [S::V; N],
) {
    // SAFETY: the caller promises the instruction set of `S` and writable lanes.
    unsafe {
        for (i, v) in vectors.iter().enumerate() {
            let p = p.add(i * S::LANES);
            if MASKED { S::store_m(p, mask, *v) } else { S::store(p, *v) }
        }
    }
}

/// Fold over vectors of f32.
trait VectorFold: Fold {
    /// Neutral element.
    const START: f32;
    /// Folds one more element into each lane.
    ///
    /// # Safety
    ///
    /// The machine has the instruction set of `S`.
    unsafe fn add<S: Simd>(sum: S::V, x: S::V) -> S::V;
    /// Combines two partial results.
    ///
    /// # Safety
    ///
    /// The machine has the instruction set of `S`.
    unsafe fn unite<S: Simd>(a: S::V, b: S::V) -> S::V;
}

macro_rules! vector_folds {
    ($($name:ident: $start:expr, |$sum:ident, $x:ident| $add:expr, |$a:ident, $b:ident| $unite:expr;)*) => { $(
        impl VectorFold for $name {
            const START: f32 = $start;
            #[inline(always)]
            unsafe fn add<S: Simd>($sum: S::V, $x: S::V) -> S::V {
                // SAFETY: the caller promises the instruction set of `S`.
                unsafe { $add }
            }
            #[inline(always)]
            unsafe fn unite<S: Simd>($a: S::V, $b: S::V) -> S::V {
                // SAFETY: the caller promises the instruction set of `S`.
                unsafe { $unite }
            }
        }
    )* };
}

vector_folds! {
    Sum: 0.0, |sum, x| S::add(sum, x), |a, b| S::add(a, b);
    Squares: 0.0, |sum, x| S::fma(x, x, sum), |a, b| S::add(a, b);
    Maximum: f32::NEG_INFINITY, |max, x| S::max_or_nan(max, x), |a, b| S::max_or_nan(a, b);
    Least: f32::INFINITY, |min, x| S::min_or_nan(min, x), |a, b| S::min_or_nan(a, b);
}

#[cfg(test)]
mod tests;
