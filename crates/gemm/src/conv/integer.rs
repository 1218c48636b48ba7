//! Convolution of integers of 8 bits with zero points, added up exactly in 32 bits.
//!
//! With more than a few output channels, it is a product of weights and the patches of some output
//! positions. Patches are stored tap by tap, so that each tap copies rows of the image, and the
//! patches that exist at a time fit a cache. With few channels the multiplier would idle, so each
//! tap is multiplied by the part of the image that it meets.

use std::ops::Range;
use std::sync::Arc;

use crate::gemm::{ByteMatrix, ByteRhs, Bytes, MatRef, PackedB, ZeroPoints};
use crate::gemm::{gemm_bytes, gemm_bytes_scratch};
use sardonyx_elementwise::quantized::{Code, Factors, Requantize};
use sardonyx_simd::buffer::with_scratch_of;
use sardonyx_simd::chunks::{Shared, ranges, rows};
use sardonyx_simd::{Caches, Exec};
use sardonyx_simd::{Ended, Level, Loop};

/// Sizes of a convolution of bytes. Lists have one entry per spatial axis.
#[derive(Clone, Copy, Debug)]
pub struct ByteConv<'a> {
    pub groups: usize,
    pub in_channels: usize,
    pub out_channels: usize,
    pub input: &'a [usize],
    pub output: &'a [usize],
    pub kernel: &'a [usize],
    pub strides: &'a [usize],
    pub dilations: &'a [usize],
    pub pads_begin: &'a [usize],
}

/// Weights of a convolution of bytes.
#[derive(Clone, Copy, Debug)]
pub enum ByteWeights<'a> {
    /// Weights `[out_channels, in_channels / groups, kernel...]`, and whether they are signed.
    Plain(&'a [u8], bool),
    /// Weights of each group as a right operand: the transpose of its output channels by the other
    /// axes.
    Packed(&'a [Arc<PackedB<Bytes>>]),
}

/// Operands of a convolution of bytes.
#[derive(Clone, Copy, Debug)]
pub struct ByteOperands<'a> {
    pub images: usize,
    /// Images, `[images, in_channels, input...]`.
    pub x: &'a [u8],
    pub x_signed: bool,
    /// Zero point of the images, which is also the value of padding.
    pub x_zero: u8,
    pub weights: ByteWeights<'a>,
    /// Zero points of the weights: none, one, or one for each output channel.
    pub weight_zeros: &'a [u8],
}

/// Conversion of sums to integers of few bits.
#[derive(Clone, Copy, Debug)]
pub struct ByteEnding<'a, T> {
    /// One number for each output channel.
    pub bias: Option<&'a [i32]>,
    /// Factors of one row, with a column for each output channel.
    pub factors: Factors<'a>,
    pub zero: T,
}

/// Choice: output channels of a group up to which taps are multiplied one by one.
const FEW_CHANNELS: usize = 4;

impl ByteConv<'_> {
    /// Whether weights of `out_channels` output channels in `groups` groups, at least one, are read
    /// without packing.
    pub fn reads_plain_weights(out_channels: usize, groups: usize) -> bool {
        out_channels / groups <= FEW_CHANNELS
    }

    /// Whether taps are multiplied one by one.
    fn is_by_taps(&self) -> bool {
        ByteConv::reads_plain_weights(self.out_channels, self.groups)
    }

    /// Returns the number of multiplications for an element of the output.
    fn depth(&self) -> usize {
        self.in_channels / self.groups * self.taps()
    }

    fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    fn input_plane(&self) -> usize {
        self.input.iter().product()
    }

    fn output_plane(&self) -> usize {
        self.output.iter().product()
    }

    /// Whether each patch is one pixel of the image, in order.
    fn is_pointwise(&self) -> bool {
        let ones = [self.kernel, self.strides].into_iter().flatten().all(|one| *one == 1);
        ones && self.pads_begin.iter().all(|pad| *pad == 0) && self.input == self.output
    }

    /// Returns the number of output positions whose patches exist at a time. The patches, or the
    /// sums, take half of the second-level cache.
    fn block(&self, caches: &Caches) -> usize {
        let widest = self.depth().max(4 * (self.out_channels / self.groups)).max(1);
        (caches.own_bytes(1, 2) / widest).clamp(96, 4096).min(self.output_plane())
    }

    /// Checks sizes and lengths against each other. `output` is the length of the result.
    fn check(&self, operands: &ByteOperands<'_>, output: usize) {
        let rank = self.input.len();
        assert!(rank > 0, "no spatial axis");
        for list in [self.output, self.kernel, self.strides, self.dilations, self.pads_begin] {
            assert_eq!(list.len(), rank, "one entry per spatial axis");
        }
        let whole = |channels: usize| channels.is_multiple_of(self.groups);
        assert!(self.groups > 0 && whole(self.in_channels) && whole(self.out_channels), "groups");
        for list in [self.kernel, self.strides, self.dilations] {
            assert!(!list.contains(&0), "sizes are positive");
        }
        for axis in 0..rank {
            let reach = (self.kernel[axis] - 1).checked_mul(self.dilations[axis]);
            let last = self.output[axis].saturating_sub(1).checked_mul(self.strides[axis]);
            let end = reach.zip(last).and_then(|(reach, last)| reach.checked_add(last));
            let room = self.input[axis].checked_add(self.pads_begin[axis]);
            assert!(end.is_some() && room.is_some(), "axis {axis} is too long");
        }
        let images = operands.images;
        let x = images * self.in_channels * self.input_plane();
        assert_eq!(operands.x.len(), x, "elements of the images");
        let y = images * self.out_channels * self.output_plane();
        assert_eq!(output, y, "elements of the result");
        match operands.weights {
            ByteWeights::Plain(weights, _) => {
                assert_eq!(weights.len(), self.out_channels * self.depth(), "weights");
            }
            ByteWeights::Packed(groups) => assert_eq!(groups.len(), self.groups, "groups"),
        }
        let zeros = operands.weight_zeros.len();
        assert!(zeros <= 1 || zeros == self.out_channels, "{zeros} zero points of weights");
    }

    /// Returns the offsets of a tap along each axis in inputs, from the last axis on.
    fn offsets(&self, mut tap: usize) -> impl Iterator<Item = usize> {
        let axes = self.kernel.iter().zip(self.dilations).rev();
        axes.map(move |(kernel, dilation)| {
            let offset = tap % kernel * dilation;
            tap /= kernel;
            offset
        })
    }

    /// Returns the offset of the row of the image that a tap meets in row `row` of the output;
    /// `None` in the padding.
    fn row(&self, tap: usize, mut row: usize) -> Option<usize> {
        let (mut start, mut step) = (0, *self.input.last()?);
        let last = self.input.len() - 1;
        let offsets = self.offsets(tap).skip(1);
        for (axis, offset) in (0..last).rev().zip(offsets) {
            let place = row % self.output[axis] * self.strides[axis] + offset;
            row /= self.output[axis];
            let place = place.checked_sub(self.pads_begin[axis]);
            start += place.filter(|place| *place < self.input[axis])? * step;
            step *= self.input[axis];
        }
        Some(start)
    }

    /// Returns where a tap meets the image along the last axis: the range of the `count` places
    /// from place `first` on, counted from it, and the index in the image of the first of these.
    fn meets(&self, tap: usize, first: usize, count: usize) -> (Range<usize>, usize) {
        let last = self.input.len() - 1;
        let (size, stride, pad) = (self.input[last], self.strides[last], self.pads_begin[last]);
        let offset = self.offsets(tap).next().unwrap_or(0);
        let at_least = |place: usize| place.saturating_sub(offset).div_ceil(stride);
        let begin = at_least(pad).clamp(first, first + count);
        let end = at_least(pad + size).clamp(begin, first + count);
        let place = (begin * stride + offset).saturating_sub(pad);
        (begin - first..end - first, place)
    }
}

/// Conversion of a sum to an element of the result.
trait Ending: Copy + Sync {
    type Out: Send;
    /// Numbers that the conversion needs for a channel.
    type Channel: Copy;
    /// Returns the numbers of a channel.
    fn channel(&self, channel: usize) -> Self::Channel;
    /// Converts a sum of a channel.
    fn end(self, channel: Self::Channel, sum: i32) -> Self::Out;
}

/// Conversion that keeps sums.
#[derive(Clone, Copy)]
struct Sums;

impl Ending for Sums {
    type Out = i32;
    type Channel = ();

    fn channel(&self, _: usize) {}

    #[inline(always)]
    fn end(self, (): (), sum: i32) -> i32 {
        sum
    }
}

/// Conversion to integers of few bits, after adding a bias.
#[derive(Clone, Copy)]
struct Codes<'a, T> {
    ending: ByteEnding<'a, T>,
    to: Requantize,
}

/// Bias and factor of an output channel.
#[derive(Clone, Copy)]
struct CodeChannel {
    bias: i32,
    factor: f32,
}

impl<T: Code> Ending for Codes<'_, T> {
    type Out = T;
    type Channel = CodeChannel;

    fn channel(&self, channel: usize) -> CodeChannel {
        let ByteEnding { bias, factors, .. } = &self.ending;
        let column = factors.columns.get(channel).unwrap_or(&factors.columns[0]);
        let bias = bias.map_or(0, |bias| bias[channel]);
        CodeChannel { bias, factor: factors.of(factors.rows[0], *column) }
    }

    #[inline(always)]
    fn end(self, channel: CodeChannel, sum: i32) -> T {
        self.to.of(sum.wrapping_add(channel.bias), channel.factor)
    }
}

/// Returns the bytes of scratch memory that a convolution takes.
pub fn conv_bytes_scratch(
    exec: &Exec<'_>,
    conv: &ByteConv<'_>,
    operands: &ByteOperands<'_>,
) -> usize {
    let plane = conv.output_plane();
    if plane == 0 || conv.out_channels == 0 {
        return 0;
    }
    let product =
        |sizes: &[usize]| sizes.iter().fold(1usize, |all, size| all.saturating_mul(*size));
    if let (true, ByteWeights::Plain(..)) = (conv.is_by_taps(), operands.weights) {
        return product(&[plane, exec.pool.threads(), size_of::<i32>()]);
    }
    let (block, depth, columns) =
        (conv.block(&exec.caches), conv.depth(), conv.out_channels / conv.groups);
    let patches = MatRef::new(&[0], block, depth, 0, 0);
    let left = ByteMatrix { bits: patches, signed: operands.x_signed };
    let of_product = match operands.weights {
        ByteWeights::Plain(weights, signed) => {
            let bits = MatRef::new(weights, depth, columns, 1, depth);
            gemm_bytes_scratch(exec, &left, &ByteRhs::Plain(ByteMatrix { bits, signed }))
        }
        ByteWeights::Packed(groups) => {
            gemm_bytes_scratch(exec, &left, &ByteRhs::Packed(&groups[0]))
        }
    };
    let of_block = product(&[block, depth]).saturating_add(product(&[block, columns, 4]));
    of_product.saturating_add(of_block)
}

/// Writes the convolution to `y`, `[images, out_channels, output...]`: sums of products of
/// elements less their zero point and weights less theirs, which wrap at 32 bits.
///
/// # Panics
///
/// If sizes or lengths do not fit each other, or this machine does not have the instruction set.
pub fn conv_bytes(
    exec: &Exec<'_>,
    conv: &ByteConv<'_>,
    operands: &ByteOperands<'_>,
    y: &mut [i32],
) -> Result<(), Ended> {
    run(exec, conv, operands, Sums, y)
}

/// Convolves like [`conv_bytes`], adds a bias to the sums, and converts them to integers of few
/// bits, see [`Requantize::of`].
///
/// # Panics
///
/// In the cases of [`conv_bytes`], or if the numbers of biases or factors differ from that of
/// output channels.
pub fn conv_codes<T: Code>(
    exec: &Exec<'_>,
    conv: &ByteConv<'_>,
    operands: &ByteOperands<'_>,
    ending: &ByteEnding<'_, T>,
    y: &mut [T],
) -> Result<(), Ended> {
    let (bias, factors) = (ending.bias, &ending.factors);
    let channels = conv.out_channels;
    assert!(bias.is_none_or(|bias| bias.len() == channels), "a bias for each channel");
    let scales = factors.columns.len();
    assert!(scales == 1 || scales == channels, "{scales} scales for {channels} channels");
    assert_eq!(factors.rows.len(), 1, "scales of images");
    let to = Requantize::to(ending.zero);
    run(exec, conv, operands, Codes { ending: *ending, to }, y)
}

/// Computes a convolution with any conversion of its sums.
fn run<E: Ending>(
    exec: &Exec<'_>,
    conv: &ByteConv<'_>,
    operands: &ByteOperands<'_>,
    ending: E,
    y: &mut [E::Out],
) -> Result<(), Ended> {
    conv.check(operands, y.len());
    if y.is_empty() {
        return Ok(());
    }
    match operands.weights {
        ByteWeights::Plain(weights, signed) if conv.is_by_taps() => convolve_by_taps(
            exec,
            conv,
            operands,
            PlainWeights { bits: weights, signed },
            ending,
            y,
        ),
        _ => convolve_by_products(exec, conv, operands, ending, y),
    }
}

/// Converts bits to the number that is multiplied. Unsigned numbers move by 128, and so do their
/// zero points.
#[inline(always)]
fn number(bits: u8, signed: bool) -> i32 {
    i32::from((bits ^ if signed { 0 } else { 0x80 }).cast_signed())
}

/// Loop that adds the products of a weight and elements less their zero point to sums.
struct AddTap<'a> {
    x: &'a [u8],
    signed: bool,
    zero: i32,
    stride: usize,
    weight: i32,
    sums: &'a mut [i32],
}

impl Loop for AddTap<'_> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let AddTap { x, signed, zero, stride, weight, sums } = self;
        let add = |sum: &mut i32, x: u8| {
            *sum = sum.wrapping_add((number(x, signed) - zero) * weight);
        };
        if stride == 1 {
            sums.iter_mut().zip(x).for_each(|(sum, x)| add(sum, *x));
        } else {
            sums.iter_mut().zip(x.iter().step_by(stride)).for_each(|(sum, x)| add(sum, *x));
        }
    }
}

/// Weights of a convolution that are not packed.
struct PlainWeights<'a> {
    bits: &'a [u8],
    signed: bool,
}

/// Multiplies each tap by the part of the image that it meets.
fn convolve_by_taps<E: Ending>(
    exec: &Exec<'_>,
    conv: &ByteConv<'_>,
    operands: &ByteOperands<'_>,
    weights: PlainWeights<'_>,
    ending: E,
    y: &mut [E::Out],
) -> Result<(), Ended> {
    let PlainWeights { bits: weights, signed: weights_signed } = weights;
    let level = Level::new(exec.isa);
    let (plane, in_plane) = (conv.output_plane(), conv.input_plane());
    let (depth, taps) = (conv.depth(), conv.taps());
    let (group_in, group_out) = (conv.in_channels / conv.groups, conv.out_channels / conv.groups);
    let last = conv.input.len() - 1;
    let (width, stride) = (conv.output[last], conv.strides[last]);
    let zero = number(operands.x_zero, operands.x_signed);
    rows(exec.pool, y, plane, plane.saturating_mul(depth), |first, y| {
        with_scratch_of::<i32, _>(plane, |sums| {
            for (at, y) in (first..).zip(y.chunks_exact_mut(plane)) {
                let (image, channel) = (at / conv.out_channels, at % conv.out_channels);
                let of_zero = match operands.weight_zeros {
                    [] => 0,
                    [one] => *one,
                    several => several[channel],
                };
                let of_zero = number(of_zero, weights_signed);
                let from = image * conv.in_channels + channel / group_out * group_in;
                sums.fill(0);
                for (step, weight) in weights[channel * depth..][..depth].iter().enumerate() {
                    let weight = number(*weight, weights_signed) - of_zero;
                    let x = &operands.x[(from + step / taps) * in_plane..][..in_plane];
                    let tap = step % taps;
                    let (places, place) = conv.meets(tap, 0, width);
                    if weight == 0 || places.is_empty() {
                        continue;
                    }
                    for (row, sums) in sums.chunks_exact_mut(width).enumerate() {
                        let Some(start) = conv.row(tap, row) else { continue };
                        let x = &x[start + place..];
                        let (sums, signed) = (&mut sums[places.clone()], operands.x_signed);
                        level.run_avx2(AddTap { x, signed, zero, stride, weight, sums });
                    }
                }
                let of_channel = ending.channel(channel);
                level.run_avx2(End { ending, channel: of_channel, sums, step: 1, y });
            }
        });
    })
}

/// Loop that converts the sums of a channel, which are `step` apart.
struct End<'a, E: Ending> {
    ending: E,
    channel: E::Channel,
    sums: &'a [i32],
    step: usize,
    y: &'a mut [E::Out],
}

impl<E: Ending> Loop for End<'_, E> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let End { ending, channel, sums, step, y } = self;
        if step == 1 {
            y.iter_mut().zip(sums).for_each(|(y, sum)| *y = ending.end(channel, *sum));
        } else {
            let sums = sums.iter().step_by(step);
            y.iter_mut().zip(sums).for_each(|(y, sum)| *y = ending.end(channel, *sum));
        }
    }
}

/// Row of patches that is filled: the inputs that one tap in one channel meets at consecutive
/// output positions.
struct PatchRow<'a> {
    conv: &'a ByteConv<'a>,
    /// Plane of the input channel.
    x: &'a [u8],
    tap: usize,
    first: usize,
    pad: u8,
    out: &'a mut [u8],
}

impl PatchRow<'_> {
    fn fill(self) {
        let PatchRow { conv, x, tap, first, pad, out } = self;
        let last = conv.input.len() - 1;
        let (width, stride) = (conv.output[last], conv.strides[last]);
        let (mut at, mut rest) = (first, out);
        while !rest.is_empty() {
            let (row, column) = (at / width, at % width);
            let (part, after) = rest.split_at_mut(rest.len().min(width - column));
            match conv.row(tap, row) {
                Some(start) => {
                    let (places, place) = conv.meets(tap, column, part.len());
                    part[..places.start].fill(pad);
                    part[places.end..].fill(pad);
                    let met = &mut part[places];
                    match (met.len(), stride) {
                        (0, _) => {}
                        (len, 1) => met.copy_from_slice(&x[start + place..][..len]),
                        _ => {
                            let x = x[start + place..].iter().step_by(stride);
                            met.iter_mut().zip(x).for_each(|(out, x)| *out = *x);
                        }
                    }
                }
                None => part.fill(pad),
            }
            at += part.len();
            rest = after;
        }
    }
}

/// Multiplies the patches of some positions at a time by all weights of a group.
fn convolve_by_products<E: Ending>(
    exec: &Exec<'_>,
    conv: &ByteConv<'_>,
    operands: &ByteOperands<'_>,
    ending: E,
    y: &mut [E::Out],
) -> Result<(), Ended> {
    let (plane, in_plane, block) =
        (conv.output_plane(), conv.input_plane(), conv.block(&exec.caches));
    let (depth, taps) = (conv.depth(), conv.taps());
    let (group_in, columns) = (conv.in_channels / conv.groups, conv.out_channels / conv.groups);
    let level = Level::new(exec.isa);
    let patches = if conv.is_pointwise() { 0 } else { block * depth };
    let y = &Shared::new(y);
    let of_block = |image: usize,
                    group: usize,
                    positions: Range<usize>,
                    patches: &mut [u8],
                    sums: &mut [i32]| {
        let from = image * conv.in_channels + group * group_in;
        let x = &operands.x[from * in_plane..][..group_in * in_plane];
        let len = positions.len();
        let bits = if conv.is_pointwise() {
            let x = x.get(positions.start..).unwrap_or_default();
            MatRef::new(x, len, depth, 1, in_plane)
        } else {
            let patches = &mut patches[..len * depth];
            rows(exec.pool, patches, len, len, |first, patches| {
                for (step, out) in (first..).zip(patches.chunks_exact_mut(len)) {
                    let x = &x[step / taps * in_plane..][..in_plane];
                    let (tap, first, pad) = (step % taps, positions.start, operands.x_zero);
                    PatchRow { conv, x, tap, first, pad, out }.fill();
                }
            })?;
            MatRef::col_major(patches, len, depth)
        };
        let left = ByteMatrix { bits, signed: operands.x_signed };
        let right = match operands.weights {
            ByteWeights::Plain(weights, signed) => {
                let weights = &weights[group * columns * depth..][..columns * depth];
                let bits = MatRef::col_major(weights, depth, columns);
                ByteRhs::Plain(ByteMatrix { bits, signed })
            }
            ByteWeights::Packed(groups) => ByteRhs::Packed(&groups[group]),
        };
        let of_weights = match operands.weight_zeros {
            several if several.len() > 1 => &several[group * columns..][..columns],
            one => one,
        };
        let zero_points = ZeroPoints { a: &[operands.x_zero], b: of_weights };
        let sums = &mut sums[..len * columns];
        gemm_bytes(exec, left, right, zero_points, sums)?;
        let first = group * columns;
        ranges(exec.pool, columns, 2 * len, |channels| {
            for channel in channels {
                let start = (image * conv.out_channels + first + channel) * plane;
                // SAFETY: each channel has its own part.
                let y = unsafe { y.part(start + positions.start, len) };
                let of_channel = ending.channel(first + channel);
                let sums = &sums[channel..];
                level.run_avx2(End { ending, channel: of_channel, sums, step: columns, y });
            }
        })
    };
    with_scratch_of::<u8, _>(patches, |patches| {
        with_scratch_of::<i32, _>(block * columns, |sums| {
            for image in 0..operands.images {
                for group in 0..conv.groups {
                    for start in (0..plane).step_by(block) {
                        let positions = start..plane.min(start + block);
                        of_block(image, group, positions, patches, sums)?;
                    }
                }
            }
            Ok(())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conv::{ConvParams, conv_naive};
    use sardonyx_elementwise::quantized::Precision;
    use sardonyx_simd::number::Math;
    use sardonyx_simd::{Isa, Pool};

    struct Case {
        images: usize,
        channels: [usize; 2],
        groups: usize,
        input: &'static [usize],
        kernel: &'static [usize],
        strides: &'static [usize],
        dilations: &'static [usize],
        pads: [&'static [usize]; 2],
    }

    /// Makes a case with one group, stride and dilation 1, and no padding.
    const fn case(
        images: usize,
        channels: [usize; 2],
        input: &'static [usize],
        kernel: &'static [usize],
    ) -> Case {
        const ONES: &[usize] = &[1; 3];
        const NONE: &[usize] = &[0; 3];
        let (ones, none) = (ONES.split_at(input.len()).0, NONE.split_at(input.len()).0);
        let pads = [none, none];
        Case { images, channels, groups: 1, input, kernel, strides: ones, dilations: ones, pads }
    }

    const CASES: &[Case] = &[
        case(1, [1, 1], &[1], &[1]),
        case(2, [3, 7], &[9], &[3]),
        case(2, [3, 2], &[9], &[3]),
        case(0, [3, 7], &[9], &[3]),
        case(1, [0, 7], &[9], &[3]),
        case(1, [3, 0], &[9], &[3]),
        // Pointwise, over several blocks of positions.
        case(2, [70, 33], &[91, 60], &[1, 1]),
        case(1, [5, 40], &[7, 7], &[7, 7]),
        case(1, [2, 9], &[3, 4, 5], &[2, 3, 2]),
        Case {
            strides: &[2, 3],
            dilations: &[2, 1],
            pads: [&[3, 1], &[2, 4]],
            ..case(2, [4, 10], &[11, 13], &[3, 3])
        },
        // All positions of a tap in the padding.
        Case { pads: [&[9, 0], &[9, 7]], ..case(1, [2, 6], &[2, 3], &[3, 2]) },
        Case { pads: [&[0, 5], &[0, 0]], strides: &[1, 4], ..case(1, [2, 6], &[2, 3], &[2, 2]) },
        // Groups: depthwise, with a multiplier, and with many channels.
        Case { groups: 6, pads: [&[1, 1], &[1, 1]], ..case(2, [6, 6], &[8, 9], &[3, 3]) },
        Case {
            groups: 3,
            strides: &[2, 2],
            pads: [&[2, 0], &[1, 3]],
            ..case(1, [6, 9], &[10, 7], &[3, 4])
        },
        Case {
            groups: 2,
            dilations: &[1, 2, 1],
            pads: [&[1, 2, 0], &[0, 1, 1]],
            ..case(2, [4, 12], &[3, 6, 4], &[2, 3, 2])
        },
    ];

    fn bytes(len: usize, salt: usize) -> Vec<u8> {
        (0..len).map(|i| ((i + salt) * 7919 % 65_537 * 31 % 257) as u8).collect()
    }

    fn values(bytes: &[u8], signed: bool) -> Vec<i32> {
        let value = |x: &u8| if signed { i32::from(x.cast_signed()) } else { i32::from(*x) };
        bytes.iter().map(value).collect()
    }

    /// Computes the convolution by its definition, in integers of 32 bits.
    fn naive(
        case: &Case,
        output: &[usize],
        operands: &ByteOperands<'_>,
        weights: &[u8],
        w_signed: bool,
    ) -> Vec<i32> {
        let [inputs, outputs] = case.channels;
        let params = ConvParams {
            groups: case.groups,
            strides: case.strides.into(),
            dilations: case.dilations.into(),
            pads_begin: case.pads[0].into(),
            pads_end: case.pads[1].into(),
            ..ConvParams::new(inputs, outputs, case.kernel)
        };
        let zero = values(&[operands.x_zero], operands.x_signed)[0];
        let x: Vec<i32> = values(operands.x, operands.x_signed).iter().map(|x| x - zero).collect();
        let zeros = values(operands.weight_zeros, w_signed);
        let each = weights.len() / outputs.max(1);
        let weights = values(weights, w_signed).into_iter().enumerate().map(|(at, weight)| {
            weight - zeros.get(at / each).or(zeros.first()).copied().unwrap_or(0)
        });
        let weights: Vec<i32> = weights.collect();
        let mut y = vec![0; case.images * outputs * output.iter().product::<usize>()];
        conv_naive(&params, case.images, case.input, &x, &weights, None, &mut y).unwrap();
        y
    }

    fn check(case: &Case, signed: [bool; 2], zeros: &[u8], packed: bool) {
        let [inputs, outputs] = case.channels;
        let output: Vec<usize> = (0..case.input.len())
            .map(|axis| {
                let room = case.input[axis] + case.pads[0][axis] + case.pads[1][axis];
                (room - (case.kernel[axis] - 1) * case.dilations[axis] - 1) / case.strides[axis] + 1
            })
            .collect();
        let conv = ByteConv {
            groups: case.groups,
            in_channels: inputs,
            out_channels: outputs,
            input: case.input,
            output: &output,
            kernel: case.kernel,
            strides: case.strides,
            dilations: case.dilations,
            pads_begin: case.pads[0],
        };
        let (depth, columns) = (conv.depth(), outputs / case.groups);
        let x = bytes(case.images * inputs * conv.input_plane(), 1);
        let weights = bytes(outputs * depth, 2);
        let plain = ByteWeights::Plain(&weights, signed[1]);
        let operands = ByteOperands {
            images: case.images,
            x: &x,
            x_signed: signed[0],
            x_zero: 77,
            weights: plain,
            weight_zeros: zeros,
        };
        let want = naive(case, &output, &operands, &weights, signed[1]);
        for &isa in Isa::available() {
            let of_group = |group: usize| {
                let bits = &weights[group * columns * depth..][..columns * depth];
                let bits = MatRef::col_major(bits, depth, columns);
                Arc::new(PackedB::from_bytes(isa, ByteMatrix { bits, signed: signed[1] }).unwrap())
            };
            let groups: Vec<_> = (0..case.groups).map(of_group).collect();
            let weights = if packed { ByteWeights::Packed(&groups) } else { plain };
            let operands = ByteOperands { weights, ..operands };
            for threads in [1, 3] {
                let pool = Pool::new(threads);
                let exec = Exec::new(&pool, isa);
                let mut y = vec![-1; want.len()];
                conv_bytes(&exec, &conv, &operands, &mut y).unwrap();
                assert!(y == want, "{conv:?} {signed:?} {zeros:?} {packed} {isa:?}");
                conv_bytes_scratch(&exec, &conv, &operands);
                let bias: Vec<i32> =
                    (0..outputs as i32).map(|channel| channel * 50 - 100).collect();
                let scales: Vec<f32> = (1..=outputs).map(|i| 0.001 * i as f32).collect();
                let precision = Precision::Same;
                let factors = Factors { rows: &[0.5], columns: &scales, result: 0.25, precision };
                let ending = ByteEnding { bias: Some(&bias), factors, zero: -3i8 };
                let mut y = vec![0; want.len()];
                conv_codes(&exec, &conv, &operands, &ending, &mut y).unwrap();
                let plane = conv.output_plane();
                let want = want.iter().enumerate().map(|(at, sum)| {
                    let channel = at / plane % outputs;
                    let factor = factors.of(0.5, scales[channel]);
                    let product = f64::from(sum + bias[channel]) * f64::from(factor);
                    (product.round_even() - 3.0).clamp(-128.0, 127.0) as i8
                });
                assert!(y.iter().copied().eq(want), "{conv:?} {signed:?} {zeros:?} {packed}");
            }
        }
    }

    #[test]
    fn sums_and_codes_are_those_of_the_definition() {
        for case in CASES {
            let each = bytes(case.channels[1], 3);
            for signed in [[false, false], [false, true], [true, false], [true, true]] {
                for zeros in [&[][..], &[9], &each] {
                    for packed in [false, true] {
                        check(case, signed, zeros, packed);
                    }
                }
            }
        }
    }

    /// Checks the largest products, at which steps of 16 bits would saturate.
    #[test]
    fn products_are_exact() {
        for (channels, groups) in [([1024, 8], 1), ([1024, 2], 1), ([4, 4], 4)] {
            let conv = ByteConv {
                groups,
                in_channels: channels[0],
                out_channels: channels[1],
                input: &[2],
                output: &[2],
                kernel: &[1],
                strides: &[1],
                dilations: &[1],
                pads_begin: &[0],
            };
            let depth = channels[0] / groups;
            let (x, weights) = (vec![255; channels[0] * 2], vec![0x80; channels[1] * depth]);
            let operands = ByteOperands {
                images: 1,
                x: &x,
                x_signed: false,
                x_zero: 0,
                weights: ByteWeights::Plain(&weights, true),
                weight_zeros: &[127],
            };
            for &isa in Isa::available() {
                let exec = Exec::new(Pool::serial(), isa);
                let mut y = vec![0; channels[1] * 2];
                conv_bytes(&exec, &conv, &operands, &mut y).unwrap();
                assert!(y.iter().all(|y| *y == 255 * -255 * depth as i32), "{isa:?} {y:?}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "elements of the images")]
    fn lengths_are_checked() {
        let conv = ByteConv {
            groups: 1,
            in_channels: 2,
            out_channels: 2,
            input: &[2],
            output: &[2],
            kernel: &[1],
            strides: &[1],
            dilations: &[1],
            pads_begin: &[0],
        };
        let operands = ByteOperands {
            images: 1,
            x: &[0; 3],
            x_signed: false,
            x_zero: 0,
            weights: ByteWeights::Plain(&[0; 4], false),
            weight_zeros: &[],
        };
        let exec = Exec::new(Pool::serial(), Isa::Portable);
        conv_bytes(&exec, &conv, &operands, &mut [0; 4]).unwrap();
    }
}
