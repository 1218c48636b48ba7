//! `NhwcConv`: the standard's `Conv` with channels last in input, filters and output.

use sardonyx_model::Shape;
use sardonyx_tensor::DataType::{Double, Float, Float16};

use super::DOMAIN;
use super::group_norm::channel_permutations;
use crate::def::OpDef;
use crate::facts::{input, int, ints, output, string, types};
use crate::function::Expand;
use crate::infer::{Infer, InferError};
use crate::nn::conv::Convolution;
use crate::typeset::TypeSet;

pub(crate) static NHWC_CONV: OpDef = OpDef::new("NhwcConv")
    .domain(DOMAIN)
    .about(
        "`Conv` with channels last: of an input `[N, D1, …, C]` with filters `[M, K1, …, C / \
         group]`, to an output `[N, E1, …, M]`.",
    )
    .since(
        1,
        &[
            input("X", "T"),
            input("W", "T"),
            input("B", "T").optional(),
            output("Y", "T"),
            string("auto_pad").or_word("NOTSET"),
            ints("dilations"),
            int("group").or(1),
            ints("kernel_shape"),
            ints("pads"),
            ints("strides"),
            types("T", TypeSet::tensors(&[Float16, Float, Double])),
        ],
    )
    .infer(infer)
    .body_or_reason(1, body)
    .cost(|node| node.convolution(1));

const CONVOLUTION: Convolution = Convolution { x: 0, w: 1, bias: Some(2) };

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let [x, w] = [0, 1].map(|input| {
        let shape = cx.shape(input).filter(|shape| shape.len() > 2)?;
        let [to_second, _] = channel_permutations(shape.len());
        Some(to_second.into_iter().map(|axis| shape[axis].clone()).collect::<Shape>())
    });
    let mut shape = CONVOLUTION.shape_of(cx, x.as_ref(), w.as_ref())?;
    if let Some(shape) = &mut shape {
        shape[1..].rotate_left(1);
    }
    cx.set_tensor(0, cx.elem(0).or(cx.elem(1)), shape);
    Ok(())
}

fn body(cx: &Expand<'_>) -> Result<String, String> {
    let rank = cx.rank(0).or(cx.rank(1)).ok_or("the ranks of its operands are unknown")?;
    if rank < 3 {
        return Err(format!("its input has rank {rank}, not 3 or more"));
    }
    let [to_second, to_last] = channel_permutations(rank);
    let bias = if cx.has_input(2) { ", B" } else { "" };
    Ok(format!(
        "image = Transpose <perm = {to_second:?}> (X)
        filters = Transpose <perm = {to_second:?}> (W)
        convolved = Conv <
            auto_pad: string = @auto_pad,
            dilations: ints = @dilations,
            group: int = @group,
            kernel_shape: ints = @kernel_shape,
            pads: ints = @pads,
            strides: ints = @strides
        > (image, filters{bias})
        Y = Transpose <perm = {to_last:?}> (convolved)"
    ))
}
