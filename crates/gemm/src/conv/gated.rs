//! A pointwise convolution of an input whose channels are multiplied by numbers first, as after
//! squeeze and excitation (Hu et al., "Squeeze-and-excitation networks", 2018).
//!
//! The products are computed while pixels are copied for the tiles, a few pixels at a time if the
//! weights stay in the second-level cache, so that they are never in memory. Each is rounded like a
//! product that is written, so the results have the same bits.

use std::ops::Range;

use super::copy::CopyPixels;
use super::{
    Algorithm, ConvEpilogue, ConvError, ImageSizes, Job, Order, Ordered, OrderedMut, PackedConv,
    Padded, RawOrdered, check_len,
};
use crate::gemm::TileEpilogue;
use sardonyx_simd::Pool;
use sardonyx_simd::{Body, Simd};

/// A pointwise convolution, and a number for each channel of each image of its input.
#[derive(Clone, Copy, Debug)]
pub struct GatedConv<'a> {
    conv: &'a PackedConv,
    gate: &'a [f32],
}

impl<'a> GatedConv<'a> {
    /// Combines a convolution with the factors of its input, `gate`, of shape `[images,
    /// in_channels]`.
    ///
    /// # Errors
    ///
    /// If the convolution is not a pointwise one of one group and stride 1.
    pub fn new(conv: &'a PackedConv, gate: &'a [f32]) -> Result<GatedConv<'a>, ConvError> {
        let is_direct = matches!(conv.algorithm, Algorithm::Direct(_));
        if !is_direct || !conv.geometry.is_pointwise() || conv.params.groups != 1 {
            return Err(ConvError::Algorithm(conv.algorithm));
        }
        Ok(GatedConv { conv, gate })
    }

    /// Returns an upper bound of the scratch memory in bytes, like [`PackedConv::scratch`].
    ///
    /// # Errors
    ///
    /// In the cases of [`PackedConv::scratch`], or if there are not as many numbers as channels.
    pub fn scratch(
        &self,
        pool: &Pool,
        images: usize,
        spatial: &[usize],
        input: Order,
        output: Order,
    ) -> Result<usize, ConvError> {
        let sizes = self.sizes(images, spatial)?;
        if sizes.is_empty(&self.conv.params) {
            return Ok(0);
        }
        let (input, output) = (RawOrdered::without_data(input), RawOrdered::without_data(output));
        self.job(&sizes, input, output, TileEpilogue::PLAIN).scratch(pool)
    }

    /// Multiplies the input by the gate and convolves it, like [`PackedConv::run`].
    ///
    /// # Errors
    ///
    /// In the cases of [`PackedConv::run`], or if there are not as many numbers as channels.
    pub fn run(
        &self,
        pool: &Pool,
        images: usize,
        spatial: &[usize],
        input: Ordered<'_>,
        output: OrderedMut<'_>,
        epilogue: &ConvEpilogue<'_>,
    ) -> Result<(), ConvError> {
        let sizes = self.sizes(images, spatial)?;
        self.conv.check_input(&sizes, &input)?;
        self.conv.check_output(&sizes, &output, epilogue)?;
        if sizes.is_empty(&self.conv.params) {
            return Ok(());
        }
        let raw = epilogue.raw(output.order, sizes.out_plane);
        self.job(&sizes, input.raw(), output.raw(), raw).run(pool)
    }

    /// Checks the length of the gate, and returns the sizes of input and output.
    fn sizes(&self, images: usize, spatial: &[usize]) -> Result<ImageSizes, ConvError> {
        let count = images.checked_mul(self.conv.params.in_channels);
        check_len("gate", count.ok_or(ConvError::TooLarge)?, self.gate.len())?;
        ImageSizes::new(&self.conv.params, images, spatial)
    }

    /// Makes the loops of a call whose sizes have been checked.
    fn job<'s>(
        &'s self,
        sizes: &'s ImageSizes,
        input: RawOrdered,
        output: RawOrdered,
        epilogue: TileEpilogue,
    ) -> Job<'s> {
        let padded = Padded { geometry: &self.conv.geometry, sizes };
        self.conv.gated_job(Some(self.gate), padded, input, output, epilogue)
    }
}

/// Body that copies channels of neighbouring pixels, each multiplied by its number in `gate`.
pub(super) struct GatePixels<'a> {
    pub(super) pixels: CopyPixels<'a>,
    /// Factors of the channels that are copied.
    pub(super) gate: &'a [f32],
}

impl Body for GatePixels<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let GatePixels { pixels, gate } = self;
        let CopyPixels { input, image, pixel, ref channels, .. } = pixels;
        let (count, step) = (pixels.to.len() / pixels.step.max(1), pixels.step);
        let to = pixels.to.as_mut_ptr();
        // SAFETY: the caller has the channels of `count` pixels readable, as many as there are
        // factors, and the copy has room for them.
        unsafe {
            match input.order {
                Order::ChannelsLast { pitch } => {
                    let from = input.pixel(image, pixel).wrapping_add(channels.start);
                    for i in 0..count {
                        let from = from.cast_const().wrapping_add(i * pitch);
                        multiply::<S>(from, gate, to.add(i * step));
                    }
                }
                Order::Rows => {
                    pixels.run::<S>();
                    for i in 0..count {
                        let to = to.add(i * step);
                        multiply::<S>(to.cast_const(), gate, to);
                    }
                }
            }
        }
    }
}

/// Writes the products of floats and as many numbers, in place or elsewhere.
///
/// # Safety
///
/// The demands of [`Simd`] must hold, and as many floats must be readable and writable.
#[inline(always)]
unsafe fn multiply<S: Simd>(from: *const f32, by: &[f32], to: *mut f32) {
    let whole = by.len() / S::LANES * S::LANES;
    // SAFETY: the caller has as many floats readable and writable as there are numbers.
    unsafe {
        for c in (0..whole).step_by(S::LANES) {
            S::store(to.add(c), S::mul(S::load(from.add(c)), S::load(by.as_ptr().add(c))));
        }
        if whole < by.len() {
            let mask = S::first(by.len() - whole);
            let x = S::load_m(from.add(whole), mask);
            let y = S::load_m(by.as_ptr().add(whole), mask);
            S::store_m(to.add(whole), mask, S::mul(x, y));
        }
    }
}

/// Returns the factors of some channels of an image.
pub(super) fn select_factors(
    gate: &[f32],
    image: usize,
    in_channels: usize,
    channels: Range<usize>,
) -> &[f32] {
    &gate[image * in_channels..][channels]
}
