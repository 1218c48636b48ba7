//! Convolutions and transposed convolutions of types without loops of their own, as products: of
//! weights and patches of the input, and of weights and inputs, whose parts are added where they
//! overlap.

use std::ops::Range;

use super::transpose::BufferLens;
use super::{
    ConvError, ConvParams, Geometry, ImageSizes, TransposeParams, TransposeSizes, check_len,
    conv_transpose_naive, product, three_dims,
};
use crate::gemm::{MatRef, Number, gemm_generic};
use sardonyx_simd::buffer::with_scratch_of;
use sardonyx_simd::chunks::{Shared, ranges};
use sardonyx_simd::{Ended, Exec, Pool};

/// Cache: bytes of the patches of a tile of outputs, a quarter of a second-level cache.
const PATCH_BYTES: usize = 512 << 10;
/// Geometry: fewest and most outputs of a tile.
const LEAST_OUTPUTS: usize = 48;
const MOST_OUTPUTS: usize = 4096;
/// Sums: most inputs of a transposed convolution that are multiplied at a time. Each block of
/// output channels reads all of them again, and more inputs leave room for fewer channels.
const MOST_INPUTS: usize = 256;

/// Positions of one side of a convolution, and the positions of the other side to which taps join
/// them.
#[derive(Clone, Copy)]
struct Grid {
    /// Dimensions of the side whose positions are visited.
    dims: [usize; 3],
    /// Dimensions of the other side.
    other: [usize; 3],
    geometry: Geometry,
}

/// Neighbouring positions of a row that a tap joins to positions inside the other side.
struct Run {
    /// First position.
    at: usize,
    len: usize,
    /// Position of the other side that a tap joins to the first one.
    other: usize,
}

impl Grid {
    /// Returns the index on the other side to which a tap joins index `at` of an axis; `None` if it
    /// is outside.
    #[inline(always)]
    fn place(&self, axis: usize, at: usize, tap: usize) -> Option<usize> {
        let g = &self.geometry;
        (at * g.strides[axis] + tap * g.dilations[axis])
            .checked_sub(g.pads_begin[axis])
            .filter(|place| *place < self.other[axis])
    }

    /// Calls `visit` for each run of the positions `range` that a tap joins to the other side.
    #[inline(always)]
    fn runs(&self, range: &Range<usize>, tap: usize, mut visit: impl FnMut(Run)) {
        let g = &self.geometry;
        let [_, kernel_h, kernel_w] = g.kernel;
        let tap = [tap / (kernel_h * kernel_w), tap / kernel_w % kernel_h, tap % kernel_w];
        let [_, height, width] = self.dims;
        let (shift, pad) = (tap[2] * g.dilations[2], g.pads_begin[2]);
        let first = pad.saturating_sub(shift).div_ceil(g.strides[2]);
        let end = (pad + self.other[2]).saturating_sub(shift).div_ceil(g.strides[2]).min(width);
        let mut at = range.start;
        while at < range.end {
            let (row, column) = (at / width, at % width);
            let row_end = range.end.min((row + 1) * width);
            let columns = first.max(column)..end.min(column + row_end - at);
            if !columns.is_empty()
                && let Some(depth) = self.place(0, row / height, tap[0])
                && let Some(line) = self.place(1, row % height, tap[1])
            {
                let start = columns.start * g.strides[2] + shift - pad;
                visit(Run {
                    at: row * width + columns.start,
                    len: columns.len(),
                    other: (depth * self.other[1] + line) * self.other[2] + start,
                });
            }
            at = row_end;
        }
    }
}

/// Elements that a convolution reads.
#[derive(Clone, Copy, Debug)]
pub struct ConvOperands<'a, T> {
    pub input: &'a [T],
    pub weights: &'a [T],
    /// One number for each output channel.
    pub bias: Option<&'a [T]>,
}

/// Computes `weights * input + bias` as products of matrices of `T`, accumulated in `T`.
///
/// Shapes are those of [`super::PackedConv::run`], with up to three spatial dimensions.
///
/// # Errors
///
/// If the parameters do not fit each other or a length does not fit them.
pub fn conv_by_products<T: Number>(
    exec: &Exec<'_>,
    params: &ConvParams,
    batch: usize,
    spatial: &[usize],
    operands: ConvOperands<'_, T>,
    output: &mut [T],
) -> Result<(), ConvError> {
    let ConvOperands { input, weights, bias } = operands;
    params.check()?;
    let geometry = Geometry::new(params)?;
    let sizes = ImageSizes::new(params, batch, spatial)?;
    let (in_plane, out_plane) = (sizes.in_plane, sizes.out_plane);
    let too_large = ConvError::TooLarge;
    let inputs = product(&[batch, params.in_channels, in_plane]).ok_or(too_large)?;
    let outputs = product(&[batch, params.out_channels, out_plane]).ok_or(too_large)?;
    check_len("input", inputs, input.len())?;
    check_len("output", outputs, output.len())?;
    check_len("weights", params.weights_len().ok_or(ConvError::TooLarge)?, weights.len())?;
    if let Some(bias) = bias {
        check_len("bias", params.out_channels, bias.len())?;
    }
    if output.is_empty() {
        return Ok(());
    }
    let (group_in, group_out) =
        (params.in_channels / params.groups, params.out_channels / params.groups);
    let taps = geometry.taps();
    let depth = group_in * taps;
    let grid = Grid { dims: sizes.out_dims, other: sizes.in_dims, geometry };
    let outputs = outputs_of_tile::<T>(depth, group_out).min(out_plane);
    let tiles = out_plane.div_ceil(outputs);
    let output = Shared::new(output);
    let serial = Exec { pool: Pool::serial(), ..*exec };
    let work = outputs.saturating_mul(depth).saturating_mul(group_out);
    ranges(exec.pool, batch * params.groups * tiles, work, |units| {
        for unit in units {
            let (tile, rest) = (unit % tiles, unit / tiles);
            let (group, image) = (rest % params.groups, rest / params.groups);
            let range = tile * outputs..out_plane.min((tile + 1) * outputs);
            let n = range.len();
            let first = (image * params.in_channels + group * group_in) * in_plane;
            let x = &input[first..][..group_in * in_plane];
            let w = &weights[group * group_out * depth..][..group_out * depth];
            let is_pointwise = geometry.is_pointwise();
            let patches = if is_pointwise { 0 } else { depth * n };
            with_scratch_of(patches + group_out * n, |memory: &mut [T]| {
                let (patches, sums) = memory.split_at_mut(patches);
                let b = if is_pointwise {
                    MatRef::new(&x[range.start..], depth, n, in_plane, 1)
                } else {
                    for (step, to) in patches.chunks_exact_mut(n).enumerate() {
                        let plane = &x[step / taps * in_plane..][..in_plane];
                        copy_tap(&grid, &range, step % taps, plane, to);
                    }
                    MatRef::row_major(patches, depth, n)
                };
                let a = MatRef::row_major(w, group_out, depth);
                gemm_generic(&serial, T::ONE, a, b, None, sums, n)?;
                for (channel, sums) in sums.chunks_exact(n).enumerate() {
                    let channel = group * group_out + channel;
                    let at = (image * params.out_channels + channel) * out_plane + range.start;
                    // SAFETY: each output is in one tile of one group.
                    let y = unsafe { output.part(at, n) };
                    match bias {
                        Some(bias) => {
                            for (y, sum) in y.iter_mut().zip(sums) {
                                *y = sum.plus(bias[channel]);
                            }
                        }
                        None => y.copy_from_slice(sums),
                    }
                }
                Ok::<_, Ended>(())
            })?;
        }
        Ok(())
    })?;
    Ok(())
}

/// Writes the inputs that a tap of outputs `range` reads, and zeros for padding.
fn copy_tap<T: Number>(grid: &Grid, range: &Range<usize>, tap: usize, plane: &[T], to: &mut [T]) {
    to.fill(T::ZERO);
    let stride = grid.geometry.strides[2];
    grid.runs(range, tap, |run| {
        let to = &mut to[run.at - range.start..][..run.len];
        let from = &plane[run.other..];
        if stride == 1 {
            to.copy_from_slice(&from[..run.len]);
        } else {
            for (to, from) in to.iter_mut().zip(from.iter().step_by(stride)) {
                *to = *from;
            }
        }
    });
}

/// Computes a transposed convolution as products of matrices of `T`. Falls back to
/// [`conv_transpose_naive`] for more than three spatial dimensions, or
/// outputs before the first one that the input reaches.
///
/// Shapes are those of [`conv_transpose_naive`].
///
/// # Errors
///
/// If the parameters do not fit each other or a length does not fit them.
pub fn transpose_by_products<T: Number>(
    exec: &Exec<'_>,
    params: &TransposeParams,
    batch: usize,
    spatial: &[usize],
    output: &[usize],
    operands: ConvOperands<'_, T>,
    y: &mut [T],
) -> Result<(), ConvError> {
    let ConvOperands { input: x, weights, bias } = operands;
    let (pool, sizes) = (exec.pool, TransposeSizes { spatial, output });
    if spatial.len() > 3 || params.pads_begin.iter().any(|pad| *pad < 0) {
        return conv_transpose_naive(pool, params, batch, sizes, operands, y);
    }
    params.check(spatial, output)?;
    let lens = BufferLens { x: x.len(), bias: bias.map(<[T]>::len), y: y.len() };
    let [in_plane, out_plane, taps] = params.check_lens(batch, sizes, lens)?;
    check_len("weights", params.weights_len().ok_or(ConvError::TooLarge)?, weights.len())?;
    if y.is_empty() {
        return Ok(());
    }
    let pads = params.pads_begin.iter().map(|pad| pad.unsigned_abs()).collect();
    let geometry = Geometry::new(&ConvParams { pads_begin: pads, ..params.as_conv() })?;
    let grid = Grid { dims: three_dims(spatial), other: three_dims(output), geometry };
    let (group_in, group_out) =
        (params.in_channels / params.groups, params.out_channels / params.groups);
    let elements = PATCH_BYTES / size_of::<T>();
    let inputs = MOST_INPUTS.min(elements / taps).max(LEAST_OUTPUTS).min(in_plane.max(1));
    let channels = (elements / (taps * inputs)).clamp(1, group_out);
    let blocks = group_out.div_ceil(channels);
    let channels = group_out.div_ceil(blocks);
    let y = Shared::new(y);
    let serial = Exec { pool: Pool::serial(), ..*exec };
    let work = channels.saturating_mul(taps).saturating_mul(in_plane).saturating_mul(group_in);
    ranges(pool, batch * params.groups * blocks, work.max(out_plane), |units| {
        for unit in units {
            let (block, rest) = (unit % blocks, unit / blocks);
            let (group, image) = (rest % params.groups, rest / params.groups);
            let block = block * channels..group_out.min((block + 1) * channels);
            let first = image * params.out_channels + group * group_out + block.start;
            // SAFETY: each channel is in one block.
            let y = unsafe { y.part(first * out_plane, block.len() * out_plane) };
            for (channel, y) in block.clone().zip(y.chunks_exact_mut(out_plane)) {
                y.fill(bias.map_or(T::ZERO, |bias| bias[group * group_out + channel]));
            }
            let first = image * params.in_channels + group * group_in;
            let x = &x[first * in_plane..][..group_in * in_plane];
            let w = &weights[group * group_in * group_out * taps..];
            let rows = block.len() * taps;
            if group_in == 0 {
                continue;
            }
            let a = MatRef::new(&w[block.start * taps..], rows, group_in, 1, group_out * taps);
            for start in (0..in_plane).step_by(inputs) {
                let range = start..in_plane.min(start + inputs);
                let n = range.len();
                with_scratch_of(rows * n, |parts: &mut [T]| {
                    let b = MatRef::new(&x[start..], group_in, n, in_plane, 1);
                    gemm_generic(&serial, T::ONE, a, b, None, parts, n)?;
                    for (channel, y) in
                        parts.chunks_exact(taps * n).zip(y.chunks_exact_mut(out_plane))
                    {
                        for (tap, part) in channel.chunks_exact(n).enumerate() {
                            add_tap(&grid, &range, tap, part, y);
                        }
                    }
                    Ok::<_, Ended>(())
                })?;
            }
        }
        Ok(())
    })?;
    Ok(())
}

/// Adds the products of inputs `range` and a tap to the outputs of a channel.
fn add_tap<T: Number>(grid: &Grid, range: &Range<usize>, tap: usize, part: &[T], y: &mut [T]) {
    let stride = grid.geometry.strides[2];
    grid.runs(range, tap, |run| {
        let part = &part[run.at - range.start..][..run.len];
        let y = &mut y[run.other..];
        if stride == 1 {
            for (y, part) in y.iter_mut().zip(part) {
                *y = y.plus(*part);
            }
        } else {
            for (y, part) in y.iter_mut().step_by(stride).zip(part) {
                *y = y.plus(*part);
            }
        }
    });
}

/// Returns the number of outputs of a tile, whose patches and sums fit the cache.
fn outputs_of_tile<T>(depth: usize, channels: usize) -> usize {
    (PATCH_BYTES / size_of::<T>() / depth.max(channels).max(1)).clamp(LEAST_OUTPUTS, MOST_OUTPUTS)
}

/// Returns an upper bound of the scratch memory in bytes that [`conv_by_products`] takes on all
/// threads, except a few hundred KB.
pub fn products_scratch<T>(exec: &Exec<'_>, params: &ConvParams) -> usize {
    let groups = params.groups.max(1);
    let depth = params.kernel.iter().fold(params.in_channels / groups, |a, b| a.saturating_mul(*b));
    let channels = params.out_channels / groups;
    let outputs = outputs_of_tile::<T>(depth, channels);
    let elements = depth.saturating_add(channels).saturating_mul(outputs);
    elements.saturating_mul(size_of::<T>()).saturating_mul(exec.pool.threads())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conv::conv_naive;
    use sardonyx_simd::Isa;
    use smallvec::smallvec;

    /// Makes small integers, whose products and sums are exact.
    fn numbers(len: usize, salt: usize) -> Vec<f64> {
        (0..len).map(|i| ((i * 7 + salt) % 9) as f64 - 4.0).collect()
    }

    fn len(list: &[usize]) -> usize {
        list.iter().product()
    }

    /// Lists convolutions with strides, dilations and padding that differ by axis.
    fn convolutions() -> Vec<(ConvParams, Vec<usize>)> {
        let plain = ConvParams::new;
        vec![
            (plain(3, 5, &[3, 3]), vec![7, 9]),
            (plain(16, 8, &[1, 1]), vec![5, 11]),
            (ConvParams { groups: 6, ..plain(6, 6, &[3, 3]) }, vec![10, 13]),
            (
                ConvParams {
                    groups: 2,
                    strides: smallvec![2, 3],
                    dilations: smallvec![2, 1],
                    pads_begin: smallvec![3, 1],
                    pads_end: smallvec![0, 4],
                    ..plain(4, 6, &[2, 4])
                },
                vec![9, 17],
            ),
            (ConvParams { pads_begin: smallvec![40], ..plain(2, 3, &[5]) }, vec![9]),
            (
                ConvParams {
                    strides: smallvec![2, 1, 2],
                    pads_begin: smallvec![1, 2, 0],
                    pads_end: smallvec![1, 0, 2],
                    ..plain(3, 4, &[3, 2, 3])
                },
                vec![6, 5, 7],
            ),
            // Several tiles of outputs.
            (plain(64, 4, &[3, 3]), vec![40, 41]),
        ]
    }

    #[test]
    fn convolutions_are_those_of_the_definition() {
        for (params, spatial) in convolutions() {
            let out_dims = params.output_dims(&spatial).unwrap();
            let x = numbers(2 * params.in_channels * len(&spatial), 1);
            let w = numbers(params.weights_len().unwrap(), 2);
            let bias = numbers(params.out_channels, 3);
            let mut expected = vec![0.0; 2 * params.out_channels * len(&out_dims)];
            for bias in [None, Some(&bias[..])] {
                conv_naive(&params, 2, &spatial, &x, &w, bias, &mut expected).unwrap();
                for &isa in Isa::available() {
                    for threads in [1, 3] {
                        let pool = Pool::new(threads);
                        let exec = Exec::new(&pool, isa);
                        let mut y = vec![7.0; expected.len()];
                        let operands = ConvOperands { input: &x, weights: &w, bias };
                        conv_by_products(&exec, &params, 2, &spatial, operands, &mut y).unwrap();
                        assert_eq!(y, expected, "{isa:?} {params:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn transposed_convolutions_are_those_of_the_definition() {
        for (params, spatial) in convolutions() {
            let pads = params.pads_begin.iter().map(|pad| *pad as isize).collect();
            let params = TransposeParams {
                in_channels: params.out_channels,
                out_channels: params.in_channels,
                groups: params.groups,
                kernel: params.kernel,
                strides: params.strides,
                dilations: params.dilations,
                pads_begin: pads,
            };
            // Larger than the input reaches along the first axis, smaller along the last.
            let axes = spatial.iter().zip(&params.strides);
            let output: Vec<usize> = axes.map(|(size, stride)| size * stride + 2).collect();
            let x = numbers(2 * params.in_channels * len(&spatial), 1);
            let w = numbers(params.weights_len().unwrap(), 2);
            let bias = numbers(params.out_channels, 3);
            let mut expected = vec![0.0; 2 * params.out_channels * len(&output)];
            let sizes = TransposeSizes { spatial: &spatial, output: &output };
            for bias in [None, Some(&bias[..])] {
                let operands = ConvOperands { input: &x[..], weights: &w[..], bias };
                let pool = Pool::new(1);
                conv_transpose_naive(&pool, &params, 2, sizes, operands, &mut expected).unwrap();
                for &isa in Isa::available() {
                    for threads in [1, 3] {
                        let pool = Pool::new(threads);
                        let exec = Exec::new(&pool, isa);
                        let mut y = vec![7.0; expected.len()];
                        let operands = ConvOperands { input: &x, weights: &w, bias };
                        transpose_by_products(
                            &exec, &params, 2, &spatial, &output, operands, &mut y,
                        )
                        .unwrap();
                        assert_eq!(y, expected, "{isa:?} {params:?}");
                    }
                }
            }
        }
    }
}
