//! Transposed convolution by products that are accumulated in the outputs.
//!
//! A row of a matrix product has the products of an input pixel and the weights of all taps. Each
//! tap is added to the output that it reaches from there, which takes fewer multiply-adds than
//! convolutions over the outputs if the kernel reaches far beyond the input. Channels of an output
//! are adjacent meanwhile, so a tap, or all taps of a kernel row if these reach neighbouring
//! outputs, are added in vectors. It is the reverse of the unrolling of Chellapilla, Puri and
//! Simard, "High performance convolutional neural networks for document processing" (2006).
//!
//! Products are added in the order of the pixels, so neither threads nor the number of pixels at a
//! time change a bit of the result.

use super::super::ConvError;
use super::{TransposeParams, pad_to_three};
use crate::gemm::{
    Epilogue, FinishTransposed, Lhs, MatRef, PackedB, Rhs, SendPtr, Storage, TileEpilogue, gemm,
};
use sardonyx_simd::buffer::{Lasts, with_scratch};
use sardonyx_simd::{Body, Ended, Exec, Isa, Operation, Pool, Simd, Work, dispatch, split_even};
use smallvec::SmallVec;

/// Geometry: most output channels of a block.
const MOST_CHANNELS: usize = 32;
/// Geometry: fewest and most pixels that are multiplied at a time.
const FEWEST_PIXELS: usize = 12;
const MOST_PIXELS: usize = 256;

/// Weights of all groups, by blocks of output channels: a row for each input channel, with the
/// channels of the block for each tap.
#[derive(Debug)]
pub(super) struct Products {
    weights: SmallVec<[PackedB; 4]>,
    /// Number of blocks of a group.
    blocks: usize,
}

/// One call, with checked sizes in three dimensions.
pub(super) struct Call<'a> {
    pub(super) params: &'a TransposeParams,
    pub(super) batch: usize,
    pub(super) spatial: [usize; 3],
    pub(super) output: [usize; 3],
    pub(super) x: &'a [f32],
    pub(super) bias: Option<&'a [f32]>,
}

impl Call<'_> {
    fn in_plane(&self) -> usize {
        self.spatial.iter().product()
    }

    fn out_plane(&self) -> usize {
        self.output.iter().product()
    }
}

/// Output channels that are computed together.
struct Channels<'a> {
    weights: &'a PackedB,
    image: usize,
    group: usize,
    /// First of all output channels, and their number.
    first: usize,
    count: usize,
}

impl Products {
    /// Packs the weights.
    pub(super) fn new(
        isa: Isa,
        params: &TransposeParams,
        weights: &[f32],
        lasts: Lasts,
    ) -> Result<Products, ConvError> {
        let [group_in, group_out] = params.group_channels();
        let taps: usize = params.kernel.iter().product();
        let blocks = group_out.div_ceil(MOST_CHANNELS);
        let mut packed = SmallVec::with_capacity(params.groups * blocks);
        for (group, block) in
            (0..params.groups).flat_map(|group| (0..blocks).map(move |block| (group, block)))
        {
            let channels = split_even(group_out, blocks, block);
            let count = channels.len();
            let row = taps * count;
            let matrix = with_scratch(group_in * row, |rows| {
                for (c, row) in rows.chunks_exact_mut(row.max(1)).enumerate() {
                    for (i, channel) in channels.clone().enumerate() {
                        let from = ((group * group_in + c) * group_out + channel) * taps;
                        let to = row[i..].iter_mut().step_by(count);
                        to.zip(&weights[from..][..taps]).for_each(|(to, weight)| *to = *weight);
                    }
                }
                PackedB::from_matrix(isa, MatRef::row_major(rows, group_in, row), lasts)
            });
            packed.push(matrix?);
        }
        Ok(Products { weights: packed, blocks })
    }

    /// Returns the bytes of the packed weights.
    pub(super) fn bytes_of(isa: Isa, params: &TransposeParams) -> Result<usize, ConvError> {
        let [group_in, group_out] = params.group_channels();
        let taps: usize = params.kernel.iter().product();
        let blocks = group_out.div_ceil(MOST_CHANNELS);
        let mut bytes = 0usize;
        for block in 0..blocks {
            let cols = split_even(group_out, blocks, block).len().checked_mul(taps);
            let packed = cols.and_then(|cols| {
                PackedB::bytes_of(isa, Storage::F32, group_in, cols)?.checked_add(bytes)
            });
            bytes = packed.ok_or(ConvError::TooLarge)?;
        }
        bytes.checked_mul(params.groups).ok_or(ConvError::TooLarge)
    }

    /// Returns the most output channels of a block.
    fn width(&self, params: &TransposeParams) -> usize {
        let [_, group_out] = params.group_channels();
        group_out.div_ceil(self.blocks.max(1))
    }

    /// Returns the number of pixels that are multiplied at a time, whose products stay in half of a
    /// second-level cache.
    fn pixels(&self, exec: &Exec<'_>, call: &Call<'_>) -> usize {
        let row = self.width(call.params) * call.params.kernel.iter().product::<usize>();
        let most = exec.caches.own_floats(1, 2) / row.max(1);
        most.clamp(FEWEST_PIXELS, MOST_PIXELS).min(call.in_plane())
    }

    /// Returns the floats of the sums of a block of output channels, or 0 if they are accumulated
    /// in the output.
    fn sums(&self, call: &Call<'_>) -> usize {
        let width = self.width(call.params);
        if width == 1 { 0 } else { (call.out_plane() + 32).saturating_mul(width) + 32 }
    }

    /// Returns the work of a call, in pieces of one block of one image.
    fn work(&self, call: &Call<'_>) -> Work {
        let [group_in, _] = call.params.group_channels();
        let taps: usize = call.params.kernel.iter().product();
        let products = call.in_plane().saturating_mul(taps * call.params.out_channels);
        let macs = products.saturating_mul(call.batch).saturating_mul(group_in.max(4));
        let pieces = call.batch * call.params.groups * self.blocks;
        Work::new(Operation::MultiplyAdd, macs).in_pieces(pieces)
    }

    /// Returns the bytes of scratch memory of all threads.
    pub(super) fn scratch(&self, exec: &Exec<'_>, call: &Call<'_>) -> usize {
        let work = self.work(call);
        let threads = exec.pool.threads().min(work.pieces);
        let row = self.width(call.params) * call.params.kernel.iter().product::<usize>();
        let [group_in, _] = call.params.group_channels();
        let pixels = self.pixels(exec, call);
        let floats = self.sums(call).saturating_add(pixels.saturating_mul(row + group_in));
        floats.saturating_mul(threads).saturating_mul(size_of::<f32>())
    }

    /// Computes all outputs.
    pub(super) fn run(&self, exec: &Exec<'_>, call: &Call<'_>, y: &mut [f32]) -> Result<(), Ended> {
        let work = self.work(call);
        let parts = work.cut(exec.pool);
        let to = SendPtr(y.as_mut_ptr());
        parts.run(exec.pool, |part| {
            split_even(work.pieces, parts.count, part)
                .try_for_each(|unit| self.run_channels(exec, call, &self.channels(call, unit), to))
        })
    }

    /// Returns the output channels of a work unit.
    fn channels(&self, call: &Call<'_>, unit: usize) -> Channels<'_> {
        let [_, group_out] = call.params.group_channels();
        let (index, image) = (unit % self.weights.len(), unit / self.weights.len());
        let (block, group) = (index % self.blocks, index / self.blocks);
        let channels = split_even(group_out, self.blocks, block);
        Channels {
            weights: &self.weights[index],
            image,
            group,
            first: group * group_out + channels.start,
            count: channels.len(),
        }
    }

    /// Computes some output channels of an image, which this thread alone writes.
    fn run_channels(
        &self,
        exec: &Exec<'_>,
        call: &Call<'_>,
        channels: &Channels<'_>,
        to: SendPtr,
    ) -> Result<(), Ended> {
        let plane = call.out_plane();
        let &Channels { image, first, count, .. } = channels;
        let planes = to.get().wrapping_add((image * call.params.out_channels + first) * plane);
        if count == 1 {
            // SAFETY: only this thread writes the plane of this channel.
            let sums = unsafe { std::slice::from_raw_parts_mut(planes, plane) };
            sums.fill(call.bias.map_or(0.0, |bias| bias[first]));
            return self.add_products(exec, call, channels, sums);
        }
        with_scratch(self.sums(call), |sums| {
            sums.fill(0.0);
            self.add_products(exec, call, channels, sums)?;
            let bias = call.bias.map_or(std::ptr::null(), |bias| bias[first..].as_ptr());
            let body = FinishTransposed {
                src: sums.as_ptr(),
                ld: count,
                out: planes,
                ldc: plane,
                rows: count,
                cols: plane,
                epilogue: TileEpilogue { row_bias: bias, ..TileEpilogue::PLAIN },
            };
            // SAFETY: the machine has `isa`, sums have room for whole vectors of pixels and of
            // channels after the last, and this thread alone writes these planes.
            unsafe { dispatch(exec.isa, body) };
            Ok(())
        })
    }

    /// Adds the products of all pixels to `sums`, outputs by channels.
    fn add_products(
        &self,
        exec: &Exec<'_>,
        call: &Call<'_>,
        channels: &Channels<'_>,
        sums: &mut [f32],
    ) -> Result<(), Ended> {
        let [group_in, _] = call.params.group_channels();
        let plane = call.in_plane();
        let at = (channels.image * call.params.in_channels + channels.group * group_in) * plane;
        let row = channels.weights.cols();
        let pixels = self.pixels(exec, call);
        let here = Exec { pool: Pool::serial(), ..*exec };
        with_scratch(pixels * row, |products| {
            for start in (0..plane).step_by(pixels.max(1)) {
                let count = pixels.min(plane - start);
                let products = &mut products[..count * row];
                let x = call.x.get(at + start..).unwrap_or_default();
                let a = Lhs::Plain(MatRef::new(x, count, group_in, 1, plane));
                let plain = Epilogue::default();
                gemm(&here, a, Rhs::Packed(channels.weights), products, row, &plain)?;
                let count = channels.count;
                let body = Spread { call, products, start, channels: count, sums: &mut *sums };
                // SAFETY: the machine has `isa`.
                unsafe { dispatch(exec.isa, body) };
            }
            Ok(())
        })
    }
}

/// Body that adds the products of some pixels to the outputs that they reach.
struct Spread<'a> {
    call: &'a Call<'a>,
    /// Products, a row for each pixel.
    products: &'a [f32],
    /// Index of the first pixel.
    start: usize,
    channels: usize,
    sums: &'a mut [f32],
}

impl Body for Spread<'_> {
    type Out = ();

    /// Adds all products.
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Spread { call, products, start, channels, sums } = self;
        let params = call.params;
        let (kernel, pads) = (pad_to_three(&params.kernel, 1), pad_to_three(&params.pads_begin, 0));
        let (strides, dilations) =
            (pad_to_three(&params.strides, 1), pad_to_three(&params.dilations, 1));
        let [out_d, out_h, out_w] = call.output;
        let [_, in_h, in_w] = call.spatial;
        let row = kernel.iter().product::<usize>() * channels;
        // Taps that reach neighbouring outputs are added together.
        let joined = if dilations[2] == 1 { kernel[2] } else { 1 };
        let reach = Reach { strides, dilations, pads };
        for (i, products) in products.chunks_exact(row.max(1)).enumerate() {
            let (line, w) = ((start + i) / in_w, (start + i) % in_w);
            let (d, h) = (line / in_h, line % in_h);
            for kd in 0..kernel[0] {
                let Some(to_d) = reach.output(0, d, kd, out_d) else { continue };
                for kh in 0..kernel[1] {
                    let Some(to_h) = reach.output(1, h, kh, out_h) else { continue };
                    let line = (to_d * out_h + to_h) * out_w;
                    let taps = (kd * kernel[1] + kh) * kernel[2];
                    for kw in (0..kernel[2]).step_by(joined) {
                        let to_w = reach.distance(2, w, kw);
                        // Range of the taps that reach an output.
                        let skipped = usize::try_from(-to_w).unwrap_or(0).min(joined);
                        let end = usize::try_from(out_w as isize - to_w).unwrap_or(0).min(joined);
                        if skipped >= end {
                            continue;
                        }
                        let from = &products[(taps + kw + skipped) * channels..];
                        let at = line + to_w.wrapping_add_unsigned(skipped) as usize;
                        let to = &mut sums[at * channels..][..(end - skipped) * channels];
                        // SAFETY: both slices are equally long.
                        unsafe { add::<S>(&from[..to.len()], to) };
                    }
                }
            }
        }
    }
}

/// Distances that taps reach from inputs.
struct Reach {
    strides: [usize; 3],
    dilations: [usize; 3],
    pads: [isize; 3],
}

impl Reach {
    /// Returns the distance along axis `i` from the first output to the one that a tap reaches from
    /// an input.
    #[inline(always)]
    fn distance(&self, i: usize, input: usize, tap: usize) -> isize {
        (input * self.strides[i] + tap * self.dilations[i]) as isize - self.pads[i]
    }

    /// Returns the output along axis `i`, of `size`, that a tap reaches from an input; `None` if it
    /// is outside.
    #[inline(always)]
    fn output(&self, i: usize, input: usize, tap: usize, size: usize) -> Option<usize> {
        usize::try_from(self.distance(i, input, tap)).ok().filter(|output| *output < size)
    }
}

/// Adds numbers to as many others.
///
/// # Safety
///
/// The demands of [`Simd`] must hold, and both must be equally long.
#[inline(always)]
unsafe fn add<S: Simd>(from: &[f32], to: &mut [f32]) {
    let whole = to.len() / S::LANES * S::LANES;
    let (from, count, to) = (from.as_ptr(), to.len(), to.as_mut_ptr());
    // SAFETY: the caller has both slices equally long; masks leave out lanes beyond the end.
    unsafe {
        for i in (0..whole).step_by(S::LANES) {
            S::store(to.add(i), S::add(S::load(to.add(i)), S::load(from.add(i))));
        }
        if whole < count {
            let mask = S::first(count - whole);
            let (from, to) = (from.add(whole), to.add(whole));
            S::store_m(to, mask, S::add(S::load_m(to, mask), S::load_m(from, mask)));
        }
    }
}
