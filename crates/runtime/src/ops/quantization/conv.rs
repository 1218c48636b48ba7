//! ConvInteger and QLinearConv: convolutions of bytes with zero points, accumulated in 32 bits,
//! then quantized by QLinearConv. Packs constant weights once.

use std::sync::Arc;

use sardonyx_kernels::conv::{
    ByteConv, ByteEnding, ByteOperands, ByteWeights, conv_bytes, conv_bytes_scratch,
};
use sardonyx_kernels::gemm::{Bytes, PackedB};
use sardonyx_kernels::quantized::{Factors, Precision};
use sardonyx_kernels::{ByteConvLoops, Isa};
use sardonyx_tensor::{DataType, Dims, Element, shape};

use super::{bytes, is_byte, one_byte, one_number};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Selected, Site};
use crate::ops::nn::conv::window_and_groups;
use crate::ops::nn::window::Placed;
use crate::program::{ConvWindow, Window};

/// Positions of operands.
struct Positions {
    x: usize,
    x_zero: usize,
    weights: usize,
    weight_zeros: usize,
}

const INTEGER: Positions = Positions { x: 0, x_zero: 2, weights: 1, weight_zeros: 3 };
const QUANTIZED: Positions = Positions { x: 0, x_zero: 2, weights: 3, weight_zeros: 5 };
const X_SCALE: usize = 1;
const WEIGHT_SCALES: usize = 4;
const Y_SCALE: usize = 6;
const Y_ZERO: usize = 7;
const BIAS: usize = 8;

/// Binds `ConvInteger`.
pub(crate) fn bind_integer(site: &Site<'_>) -> Result<Selected, BindError> {
    bind(site, INTEGER, DataType::Int32)
}

/// Binds `QLinearConv`.
pub(crate) fn bind_quantized(site: &Site<'_>) -> Result<Selected, BindError> {
    let y = site.elem(Y_ZERO)?;
    if is_byte(y) { bind(site, QUANTIZED, y) } else { site.unsupported_type(y) }
}

fn bind(site: &Site<'_>, positions: Positions, y: DataType) -> Result<Selected, BindError> {
    let byte_type = |input: usize| {
        let elem = site.elem(input)?;
        if is_byte(elem) { Ok(elem) } else { site.unsupported_type(elem) }
    };
    let (x, weights) = (byte_type(positions.x)?, byte_type(positions.weights)?);
    let (window, groups) = window_and_groups(site, positions.weights)?;
    let packed = pack(site, positions.weights, groups);
    let position = packed.as_ref().map(|_| positions.weights);
    let kernel =
        ConvBytes { positions, types: [x, weights, y], window, groups, packed, isa: site.isa };
    Ok(Selected::new(kernel).with_packed(position))
}

/// Constant weights, one matrix for each group.
struct PackedWeights {
    dims: Dims,
    /// Packed matrices; empty if the session is only inspected.
    groups: Vec<Arc<PackedB<Bytes>>>,
}

/// Packs constant weights, if they are multiplied as matrices.
fn pack(site: &Site<'_>, index: usize, groups: usize) -> Option<PackedWeights> {
    let dims: Dims = site.weight(index)?.dims.into();
    if groups == 0 || ByteConv::reads_plain_weights(*dims.first()?, groups) {
        return None;
    }
    let packed = site.pack_groups_of_bytes(index, groups)?;
    let groups =
        packed.iter().map(|group| group.shared_panels().ok().cloned()).collect::<Option<_>>();
    Some(PackedWeights { dims, groups: groups.unwrap_or_default() })
}

struct ConvBytes {
    positions: Positions,
    /// Types of the input, the weights and the result.
    types: [DataType; 3],
    window: ConvWindow,
    groups: usize,
    packed: Option<PackedWeights>,
    isa: Isa,
}

impl ConvBytes {
    /// Checks that shapes fit each other, and returns the dimensions of the result.
    fn place(
        &self,
        x: &[usize],
        weights: &[usize],
        window: &Window,
    ) -> Result<(Placed, Dims), KernelError> {
        if weights[2..] != window.kernel[..] || weights[2..].contains(&0) {
            fail!("the weights are {weights:?}, but the kernel is {:?}", window.kernel);
        }
        let groups = self.groups;
        if groups == 0
            || weights[1].checked_mul(groups) != Some(x[1])
            || !weights[0].is_multiple_of(groups)
        {
            fail!(
                "the channels of the input {x:?} and the weights {weights:?} do not match with {groups} groups"
            );
        }
        let placed = window.place(&x[2..])?;
        let dims: Dims =
            [x[0], weights[0]].into_iter().chain(placed.counts.iter().copied()).collect();
        shape::elems(&dims)?;
        Ok((placed, dims))
    }

    /// Returns the zero points of the weights: none, one, or one per output channel.
    fn weight_zeros<'a>(&self, call: &Call<'a>, channels: usize) -> Result<&'a [u8], KernelError> {
        let index = self.positions.weight_zeros;
        if !call.has_input(index) {
            return Ok(&[]);
        }
        let zeros = bytes(call, index, self.types[1])?;
        if zeros.len() != 1 && (zeros.len() != channels || call.tensor(index)?.dims().len() != 1) {
            let dims = call.tensor(index)?.dims();
            fail!(
                "zero points of weights have shape {dims:?}, but there are {channels} output channels"
            );
        }
        Ok(zeros)
    }

    /// Quantizes sums to integers of 8 bits.
    fn write<T: ByteConvLoops + Element>(
        &self,
        call: &mut Call<'_>,
        conv: &ByteConv<'_>,
        operands: &ByteOperands<'_>,
        zero: T,
        dims: &Dims,
    ) -> Result<(), KernelError> {
        let channels = conv.out_channels;
        let (x_scale, y_scale) = (one_number(call, X_SCALE)?, one_number(call, Y_SCALE)?);
        let columns = call.slice::<f32>(WEIGHT_SCALES)?;
        if columns.len() != 1 && columns.len() != channels {
            fail!("{} scales of weights for {channels} output channels", columns.len());
        }
        let bias = call.maybe_slice::<i32>(BIAS)?;
        if let Some(bias) = bias.filter(|bias| bias.len() != channels) {
            fail!("the bias has {} elements for {channels} output channels", bias.len());
        }
        let factors =
            Factors { rows: &[x_scale], columns, result: y_scale, precision: Precision::Same };
        let ending = ByteEnding { bias, factors, zero };
        let exec = call.exec;
        T::conv_codes(exec, conv, operands, &ending, call.output_slice(0, dims)?)?;
        Ok(())
    }
}

impl Kernel for ConvBytes {
    fn describe(&self) -> String {
        let form = if self.packed.is_some() { "packed weights" } else { "plain weights" };
        format!("{form} of bytes, {:?}", self.isa)
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let Positions { x, x_zero, weights, .. } = self.positions;
        let [x_type, weights_type, y_type] = self.types;
        let x_dims: Dims = call.tensor(x)?.dims().into();
        let weights_dims: Dims = match &self.packed {
            Some(packed) => packed.dims.clone(),
            None => call.tensor(weights)?.dims().into(),
        };
        let window = self.window.for_weights(&x_dims, &weights_dims)?;
        let window = &*window;
        let (placed, dims) = self.place(&x_dims, &weights_dims, window)?;
        let conv = ByteConv {
            groups: self.groups,
            in_channels: x_dims[1],
            out_channels: weights_dims[0],
            input: &x_dims[2..],
            output: &placed.counts,
            kernel: &window.kernel,
            strides: &window.strides,
            dilations: &window.dilations,
            pads_begin: &placed.pads_begin,
        };
        let operands = ByteOperands {
            images: x_dims[0],
            x: bytes(call, x, x_type)?,
            x_signed: x_type == DataType::Int8,
            x_zero: if call.has_input(x_zero) { one_byte(call, x_zero, x_type)? } else { 0 },
            weights: match &self.packed {
                Some(packed) if packed.groups.is_empty() => {
                    fail!("the session was built without weights and cannot run")
                }
                Some(packed) => ByteWeights::Packed(&packed.groups),
                None => {
                    let signed = weights_type == DataType::Int8;
                    ByteWeights::Plain(bytes(call, weights, weights_type)?, signed)
                }
            },
            weight_zeros: self.weight_zeros(call, weights_dims[0])?,
        };
        let exec = call.exec;
        call.reserve(conv_bytes_scratch(exec, &conv, &operands))?;
        match y_type {
            DataType::Int32 => {
                conv_bytes(exec, &conv, &operands, call.output_slice(0, &dims)?)?;
                Ok(())
            }
            _ => {
                let zero = one_byte(call, Y_ZERO, y_type)?;
                if y_type == DataType::Int8 {
                    self.write(call, &conv, &operands, zero.cast_signed(), &dims)
                } else {
                    self.write(call, &conv, &operands, zero, &dims)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::{self, Int, Ints};
    use sardonyx_tensor::{CastOptions, cast};

    use super::*;
    use crate::ops::testing::{any_bytes, run, run_with_constants, tensor};

    /// Computes sums along one axis, by the definition.
    fn sums(
        (x, x_dims, zero): (&[i32], [usize; 3], i32),
        (weights, weights_dims, zeros): (&[i32], [usize; 3], &[i32]),
        (groups, stride, dilation, pads): (usize, usize, usize, [usize; 2]),
    ) -> (Vec<i32>, usize) {
        let ([images, channels, size], [outputs, inputs, kernel]) = (x_dims, weights_dims);
        let count = (size + pads[0] + pads[1] - (kernel - 1) * dilation - 1) / stride + 1;
        let mut y = Vec::new();
        for at in 0..images * outputs * count {
            let (image, output, place) = (at / (outputs * count), at / count % outputs, at % count);
            let first = output / (outputs / groups) * inputs;
            let terms = (0..inputs * kernel).map(|term| {
                let (input, tap) = (term / kernel, term % kernel);
                let from = (place * stride + tap * dilation).checked_sub(pads[0]);
                let Some(from) = from.filter(|from| *from < size) else { return 0 };
                let weight = weights[(output * inputs + input) * kernel + tap];
                let weight = weight - zeros[if zeros.len() == 1 { 0 } else { output }];
                (x[(image * channels + first + input) * size + from] - zero) * weight
            });
            y.push(terms.sum());
        }
        (y, count)
    }

    #[test]
    fn groups_strides_and_padding() {
        for (index, (x_dims, weights_dims, groups, stride, dilation, pads)) in [
            ([2, 3, 9], [7, 3, 3], 1, 1, 1, [0, 0]),
            ([1, 3, 9], [2, 3, 3], 1, 2, 2, [3, 1]),
            ([2, 4, 8], [12, 2, 2], 2, 1, 3, [0, 4]),
            ([1, 6, 8], [6, 1, 3], 6, 1, 1, [1, 1]),
            ([0, 3, 9], [7, 3, 3], 1, 1, 1, [1, 1]),
        ]
        .into_iter()
        .enumerate()
        {
            let (x_signed, w_signed) = (index % 2 == 0, index % 3 == 0);
            let channels = weights_dims[0];
            let ((x, x_is), (w, w_is)) =
                (any_bytes(&x_dims, x_signed, 1), any_bytes(&weights_dims, w_signed, 2));
            let (z, z_is) = any_bytes(&[], x_signed, 3);
            let (v, v_is) = any_bytes(&[channels], w_signed, 4);
            let pair = |pair: [usize; 2]| Ints(pair.map(|x| x as i64).to_vec().into());
            let attributes = [
                ("group", Int(groups as i64)),
                ("strides", Ints(vec![stride as i64].into())),
                ("dilations", Ints(vec![dilation as i64].into())),
                ("pads", pair(pads)),
            ];
            let form = (groups, stride, dilation, pads);
            let (want, count) = sums((&x_is, x_dims, z_is[0]), (&w_is, weights_dims, &v_is), form);
            let (s, t, r) = (
                tensor(&[], &[0.02f32]),
                tensor(&[channels], &vec![0.03f32; channels]),
                tensor(&[], &[2.5f32]),
            );
            let (y, y_is) = any_bytes(&[], true, 5);
            let bias: Vec<i32> = (0..channels as i32).map(|channel| channel * 900).collect();
            let b = tensor(&[channels], &bias);
            let codes = want.iter().enumerate().map(|(at, sum)| {
                let factor = 0.02f32 * 0.03 / 2.5;
                let sum = sum + bias[at / count % channels];
                let real = (f64::from(sum) * f64::from(factor)).round_ties_even();
                (real + f64::from(y_is[0])).clamp(-128.0, 127.0) as i32
            });
            let codes: Vec<i32> = codes.collect();
            for constants in [false, true] {
                let inputs = [&x, &w, &z, &v].map(Some);
                let of = if constants { &[1, 3][..] } else { &[] };
                let found = run_with_constants("ConvInteger", &attributes, &inputs, of, 1).unwrap();
                assert_eq!(found[0].dims(), [x_dims[0], channels, count]);
                assert_eq!(found[0].to_vec::<i32>().unwrap(), want, "{attributes:?}");
                let inputs = [&x, &s, &z, &w, &t, &v, &r, &y, &b].map(Some);
                let of = if constants { &[3, 4, 5][..] } else { &[] };
                let found = run_with_constants("QLinearConv", &attributes, &inputs, of, 1).unwrap();
                let found = cast(&found[0], DataType::Int32, CastOptions::default()).unwrap();
                assert_eq!(found.to_vec::<i32>().unwrap(), codes, "{attributes:?}");
            }
        }
    }

    /// Checks calls without zero points, and padding that depends on the input's size.
    #[test]
    fn what_may_be_left_out() {
        let x = tensor(&[1, 1, 2, 3], &[1u8, 2, 3, 4, 5, 6]);
        let w = tensor(&[1, 1, 2, 2], &[1i8, -1, 2, -2]);
        let same = [("auto_pad", AttrValue::String(b"SAME_UPPER".into()))];
        for constants in [&[][..], &[1]] {
            let found =
                run_with_constants("ConvInteger", &same, &[Some(&x), Some(&w)], constants, 1);
            let found = found.unwrap();
            assert_eq!(found[0].to_vec::<i32>().unwrap(), [-3, -3, 15, -1, -1, 6]);
            let found = run_with_constants("ConvInteger", &[], &[Some(&x), Some(&w)], constants, 1);
            assert_eq!(found.unwrap()[0].to_vec::<i32>().unwrap(), [-3, -3]);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (x, w) = (tensor(&[1, 2, 4], &[1u8; 8]), tensor(&[3, 2, 2], &[1i8; 12]));
        let (u8s, i8s) = (tensor(&[], &[0u8]), tensor(&[], &[0i8]));
        let two = tensor(&[2], &[0i8; 2]);
        let none: Vec<(&str, AttrValue<'static>)> = vec![];
        let ints = |name, ints: &[i64]| vec![(name, Ints(ints.to_vec().into()))];
        for (attributes, inputs, why) in [
            (
                none.clone(),
                [&x, &w, &u8s, &two],
                "zero points of weights have shape [2], but there are 3 output channels",
            ),
            (none.clone(), [&x, &w, &i8s, &i8s], "input 2 is int8, not uint8"),
            (none.clone(), [&x, &w, &u8s, &u8s], "input 3 is uint8, not int8"),
            (
                none.clone(),
                [&x, &w, &tensor(&[2], &[0u8; 2]), &i8s],
                "input 2 has 2 elements, not 1",
            ),
            (
                none.clone(),
                [&x, &tensor(&[3, 2], &[1i8; 6]), &u8s, &i8s],
                "the input [1, 2, 4] and the weights [3, 2] must have the same number of dimensions, at least three",
            ),
            (
                vec![("group", Int(2))],
                [&x, &w, &u8s, &i8s],
                "the channels of the input [1, 2, 4] and the weights [3, 2, 2] do not match with 2 groups",
            ),
            (
                vec![("group", Int(0))],
                [&x, &w, &u8s, &i8s],
                "the channels of the input [1, 2, 4] and the weights [3, 2, 2] do not match with 0 groups",
            ),
            (
                ints("kernel_shape", &[3]),
                [&x, &w, &u8s, &i8s],
                "the weights are [3, 2, 2], but the kernel is [3]",
            ),
            (
                ints("dilations", &[9]),
                [&x, &w, &u8s, &i8s],
                "the kernel spans 10 elements, but spatial axis 0 has 4 with padding 0 and 0",
            ),
            (
                ints("dilations", &[i64::MAX]),
                [&x, &w, &u8s, &i8s],
                "the kernel spans 9223372036854775808 elements, but spatial axis 0 has 4 with padding 0 and 0",
            ),
            (
                ints("pads", &[i64::MAX, i64::MAX]),
                [&x, &w, &u8s, &i8s],
                "spatial axis 0 of 4 elements is too long with padding 9223372036854775807 and 9223372036854775807",
            ),
        ] {
            for constants in [&[][..], &[1]] {
                let inputs = inputs.map(Some);
                let error = run_with_constants("ConvInteger", &attributes, &inputs, constants, 1);
                assert_eq!(error.unwrap_err(), why);
            }
        }
        let one = tensor(&[], &[1.0f32]);
        let bias = tensor(&[2], &[1i32; 2]);
        let scales = tensor(&[2], &[1.0f32; 2]);
        for (inputs, why) in [
            (
                [&x, &scales, &u8s, &w, &one, &i8s, &one, &u8s, &tensor(&[3], &[1i32; 3])],
                "input 1 has 2 elements, not 1",
            ),
            (
                [&x, &one, &u8s, &w, &scales, &i8s, &one, &u8s, &tensor(&[3], &[1i32; 3])],
                "2 scales of weights for 3 output channels",
            ),
            (
                [&x, &one, &u8s, &w, &one, &i8s, &one, &u8s, &bias],
                "the bias has 2 elements for 3 output channels",
            ),
            ([&x, &one, &u8s, &w, &one, &i8s, &one, &one, &bias], "type not implemented: float"),
        ] {
            assert_eq!(run("QLinearConv", &[], &inputs.map(Some), 1).unwrap_err(), why);
        }
    }
}
