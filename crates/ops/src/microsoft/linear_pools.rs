//! `QLinearAveragePool`, `QLinearGlobalAveragePool`, `QLinearReduceMean` and `NhwcMaxPool`: means
//! and maxima of quantized tensors; and `QLinearConv` for images with channels last.

use sardonyx_model::{Shape, TensorType, Type};
use sardonyx_tensor::DataType::Int32;

use super::DOMAIN;
use super::linear::{BYTES, Codes, Lines, channels_first, channels_last};
use crate::def::OpDef;
use crate::facts::{input, int, ints, output, string, types};
use crate::function::{Expand, FLOAT, vector};
use crate::infer::{Infer, InferError};
use crate::nn::average_pool::AVERAGE_POOL;
use crate::nn::global_pool::GLOBAL_AVERAGE_POOL;
use crate::nn::max_pool::MAX_POOL;
use crate::quantization::QLINEAR_CONV;
use crate::reduction::REDUCE_MEAN;
use crate::typeset::TypeSet;

pub(crate) static AVERAGE: OpDef = OpDef::new("QLinearAveragePool")
    .domain(DOMAIN)
    .about(
        "`AveragePool` of a quantized tensor, quantized. Rounds the mean after the zero point of the \
         result is added to it, half to even, and saturates.",
    )
    .since(
        1,
        &[
            input("X", "T"),
            input("x_scale", "tensor(float)"),
            input("x_zero_point", "T").optional(),
            input("y_scale", "tensor(float)"),
            input("y_zero_point", "T").optional(),
            output("Y", "T"),
            string("auto_pad").or_word("NOTSET"),
            int("ceil_mode").or(0),
            int("channels_last").or(0),
            int("count_include_pad").or(0),
            ints("kernel_shape").required(),
            ints("pads"),
            ints("strides"),
            types("T", BYTES),
        ],
    )
    .infer(|cx| {
        let is_last = has_channels_last(cx);
        infer_images(cx, &AVERAGE_POOL, is_last)
    })
    .body_or_reason(1, average)
    .scalars(&[1, 2, 3, 4]);

pub(crate) static GLOBAL_AVERAGE: OpDef = OpDef::new("QLinearGlobalAveragePool")
    .domain(DOMAIN)
    .about(
        "`GlobalAveragePool` of a quantized tensor, quantized. The sum of a channel is that of \
         integers, so it is exact.",
    )
    .since(
        1,
        &[
            input("X", "T"),
            input("x_scale", "tensor(float)"),
            input("x_zero_point", "T"),
            input("y_scale", "tensor(float)"),
            input("y_zero_point", "T"),
            output("Y", "T"),
            int("channels_last").or(0),
            types("T", BYTES),
        ],
    )
    .infer(|cx| {
        let is_last = has_channels_last(cx);
        infer_images(cx, &GLOBAL_AVERAGE_POOL, is_last)
    })
    .body_or_reason(1, global_average)
    .scalars(&[1, 2, 3, 4]);

pub(crate) static MEAN: OpDef = OpDef::new("QLinearReduceMean")
    .domain(DOMAIN)
    .about("`ReduceMean` of a quantized tensor along axes, quantized.")
    .since(
        1,
        &[
            input("data", "T"),
            input("data_scale", "tensor(float)"),
            input("data_zero_point", "T").optional(),
            input("reduced_scale", "tensor(float)"),
            input("reduced_zero_point", "T").optional(),
            output("reduced", "T"),
            ints("axes").required(),
            int("keepdims").required(),
            types("T", BYTES),
        ],
    )
    .infer(|cx| infer_images(cx, &REDUCE_MEAN, false))
    .body_from(1, mean)
    .scalars(&[1, 2, 3, 4]);

pub(crate) static NHWC_MAX_POOL: OpDef = OpDef::new("NhwcMaxPool")
    .domain(DOMAIN)
    .about("`MaxPool` of 8-bit integers in images whose channels come last.")
    .since(
        1,
        &[
            input("x", "T"),
            output("y", "T"),
            string("auto_pad").or_word("NOTSET"),
            int("ceil_mode").or(0),
            ints("dilations"),
            ints("kernel_shape").required(),
            ints("pads"),
            ints("strides"),
            types("T", BYTES),
        ],
    )
    .infer(|cx| infer_images(cx, &MAX_POOL, true))
    .body_or_reason(1, nhwc_max);

pub(crate) static CONV: OpDef = OpDef::new("QLinearConv")
    .domain(DOMAIN)
    .about("The standard's `QLinearConv`, with an attribute for images whose channels come last.")
    .since(
        1,
        &[
            input("x", "T1"),
            input("x_scale", "tensor(float)"),
            input("x_zero_point", "T1"),
            input("w", "T2"),
            input("w_scale", "tensor(float)"),
            input("w_zero_point", "T2"),
            input("y_scale", "tensor(float)"),
            input("y_zero_point", "T3"),
            input("B", "T4").optional(),
            output("y", "T3"),
            string("auto_pad").or_word("NOTSET"),
            int("channels_last").or(0),
            ints("dilations"),
            int("group").or(1),
            ints("kernel_shape"),
            ints("pads"),
            ints("strides"),
            types("T1", BYTES),
            types("T2", BYTES),
            types("T3", BYTES),
            types("T4", TypeSet::tensors(&[Int32])),
        ],
    )
    .infer(|cx| {
        let is_last = has_channels_last(cx);
        infer_images(cx, &QLINEAR_CONV, is_last)
    })
    .body_or_reason(1, conv)
    .cost(|node| node.convolution(3));

fn has_channels_last(cx: &Infer<'_>) -> bool {
    cx.int("channels_last").unwrap_or(0) != 0
}

fn permute_shape(shape: &Shape, order: &[usize]) -> Shape {
    order.iter().map(|axis| shape[*axis].clone()).collect()
}

/// Permutes the axes of a tensor type, if the rank is known.
fn permute_type(ty: &Type, order: fn(usize) -> Vec<usize>) -> Type {
    let Type::Tensor(tensor) = ty else { return ty.clone() };
    let shape = tensor.shape.as_ref().map(|shape| match shape.len() {
        rank @ 2.. => permute_shape(shape, &order(rank)),
        _ => shape.clone(),
    });
    Type::Tensor(TensorType { elem: tensor.elem, shape })
}

/// Infers a standard operator on images whose channels come second or last.
fn infer_images(cx: &mut Infer<'_>, operator: &OpDef, is_last: bool) -> Result<(), InferError> {
    let Some(rule) = operator.inference_at(operator.newest()) else { return Ok(()) };
    let first = cx.input(0).filter(|_| is_last).map(|ty| permute_type(ty, channels_first));
    let mut inputs: Vec<_> = (0..cx.input_count()).map(|index| cx.input(index)).collect();
    if let (Some(first), Some(input)) = (&first, inputs.first_mut()) {
        *input = Some(first);
    }
    let mut outcome = cx.apply_rule_with(rule, &inputs)?;
    if is_last && let Some(Some(ty)) = outcome.types.first_mut() {
        *ty = permute_type(ty, channels_last);
    }
    cx.adopt(outcome);
    Ok(())
}

/// Builds the images of a node with their channels second. Returns the nodes and the name.
fn move_channels(cx: &Expand<'_>, of: &str, rank: usize, is_last: bool) -> (String, String) {
    if !is_last || cx.rank(0).is_some_and(|rank| rank < 2) {
        return (String::new(), of.to_string());
    }
    let order = channels_first(rank);
    (format!("{of}_images = Transpose <perm = {order:?}> ({of})\n"), format!("{of}_images"))
}

/// Builds the node that permutes images to the order of axes of the input.
fn move_channels_back(from: &str, into: &str, rank: usize, is_last: bool) -> String {
    if is_last {
        format!("{into} = Transpose <perm = {:?}> ({from})", channels_last(rank))
    } else {
        format!("{into} = Identity ({from})")
    }
}

/// Returns the number of axes of images for a kernel with a size for each spatial axis.
fn rank_of_kernel(cx: &Expand<'_>) -> Result<usize, String> {
    let kernel = cx.ints("kernel_shape").ok_or("attribute 'kernel_shape' is missing")?;
    Ok(kernel.len() + 2)
}

fn is_channels_last(cx: &Expand<'_>) -> bool {
    cx.int("channels_last").unwrap_or(0) != 0
}

const X: Codes = Codes { value: "X", scale: "x_scale", zero: (2, "x_zero_point") };

fn average(cx: &Expand<'_>) -> Result<String, String> {
    let (rank, is_last) = (rank_of_kernel(cx)?, is_channels_last(cx));
    let mut lines = Lines::new(cx, "X");
    lines.dequantize(X, "X_float");
    let (turn, images) = move_channels(cx, "X_float", rank, is_last);
    let pooled = match build_counting_pool(cx, &images, rank - 2)? {
        Some(pooled) => pooled,
        None => format!(
            "pooled = AveragePool <
                auto_pad: string = @auto_pad,
                ceil_mode: int = @ceil_mode,
                count_include_pad: int = @count_include_pad,
                kernel_shape: ints = @kernel_shape,
                pads: ints = @pads,
                strides: ints = @strides
            > ({images})"
        ),
    };
    lines.line(format_args!("{turn}{pooled}"));
    lines.quantize_moved("pooled", "y_scale", (4, "y_zero_point"), "means");
    lines.line(format_args!("{}", move_channels_back("means", "Y", rank, is_last)));
    Ok(lines.finish())
}

/// Builds `pooled` if `ceil_mode` lets windows reach beyond the padding and padding counts. ONNX
/// Runtime divides the sum of each window by the number of elements of the kernel, the standard by
/// the number of elements inside the padding. Here all elements are inside.
fn build_counting_pool(cx: &Expand<'_>, of: &str, axes: usize) -> Result<Option<String>, String> {
    let is_set = |name: &str| cx.int(name).unwrap_or(0) != 0;
    let is_padded_explicitly = cx.string("auto_pad").is_none_or(|word| word == "NOTSET");
    if !is_set("ceil_mode") || !is_set("count_include_pad") || !is_padded_explicitly {
        return Ok(None);
    }
    let strides = cx.ints("strides").unwrap_or_else(|| vec![1; axes]);
    let pads = cx.ints("pads").unwrap_or_else(|| vec![0; 2 * axes]);
    if strides.len() != axes || pads.len() != 2 * axes || strides.iter().any(|step| *step < 1) {
        return Err(format!("its pads and strides must be those of {axes} axes"));
    }
    let (before, after) = pads.split_at(axes);
    let more = |pads: &[i64]| -> Vec<i64> {
        pads.iter().zip(&strides).map(|(pad, stride)| pad.saturating_add(stride - 1)).collect()
    };
    let all_pads = [&[0, 0], before, &[0, 0], &more(after)[..]].concat();
    let spatial: Vec<i64> = (2..).take(axes).collect();
    Ok(Some(format!(
        "{all_pads}{starts}{spatial}{reach}{strides}padded = Pad ({of}, all_pads)
        all_means = AveragePool <
            kernel_shape: ints = @kernel_shape,
            strides: ints = @strides
        > (padded)
        spatial_sizes = Shape <start = 2> ({of})
        window_ends = Add (spatial_sizes, window_reach)
        window_counts = Div (window_ends, window_strides)
        pooled = Slice (all_means, window_starts, window_counts, spatial_axes)",
        all_pads = vector("all_pads", &all_pads),
        starts = vector("window_starts", &vec![0; axes]),
        spatial = vector("spatial_axes", &spatial),
        // Windows start before the padding at the end.
        reach = vector("window_reach", &more(before)),
        strides = vector("window_strides", &strides),
    )))
}

/// Builds the exact sum of each channel, scaled once by a factor that includes the division by the
/// number of elements.
fn global_average(cx: &Expand<'_>) -> Result<String, String> {
    let rank = cx.rank(0).ok_or("the rank of its input is unknown")?;
    let from = if is_channels_last(cx) { 1 } else { 2 };
    let axes: Vec<i64> = (from..).take(rank.saturating_sub(2)).collect();
    let span = if from == 1 { "start = 1, end = -1" } else { "start = 2" };
    let mut lines = Lines::new(cx, "X");
    lines.line(format_args!(
        "{}X_wide = Cast <to = {INT32}> (X)
        zero_wide = Cast <to = {INT32}> (x_zero_point)
        centered = Sub (X_wide, zero_wide)
        total = ReduceSum <noop_with_empty_axes = 1> (centered, axes)
        sizes = Shape <{span}> (X)
        elements = ReduceProd <keepdims = 0> (sizes)
        count = Cast <to = {FLOAT}> (elements)
        divisor = Mul (y_scale, count)
        factor = Div (x_scale, divisor)
        total_float = Cast <to = {FLOAT}> (total)
        scaled = Mul (total_float, factor)",
        vector("axes", &axes)
    ));
    let one = lines.one();
    lines.quantize("scaled", one, (4, "y_zero_point"), "Y");
    Ok(lines.finish())
}

const INT32: i64 = Int32.number() as i64;

fn mean(cx: &Expand<'_>) -> Option<String> {
    let mut lines = Lines::new(cx, "data");
    let data = Codes { value: "data", scale: "data_scale", zero: (2, "data_zero_point") };
    lines.dequantize(data, "data_float");
    lines.line(format_args!(
        "axes = Constant <value_ints: ints = @axes> ()
        means = ReduceMean <keepdims: int = @keepdims> (data_float, axes)"
    ));
    lines.quantize("means", "reduced_scale", (4, "reduced_zero_point"), "reduced");
    Some(lines.finish())
}

fn nhwc_max(cx: &Expand<'_>) -> Result<String, String> {
    let rank = rank_of_kernel(cx)?;
    let (turn, images) = move_channels(cx, "x", rank, true);
    Ok(format!(
        "{turn}pooled = MaxPool <
            auto_pad: string = @auto_pad,
            ceil_mode: int = @ceil_mode,
            dilations: ints = @dilations,
            kernel_shape: ints = @kernel_shape,
            pads: ints = @pads,
            strides: ints = @strides
        > ({images})
        {}",
        move_channels_back("pooled", "y", rank, true)
    ))
}

fn conv(cx: &Expand<'_>) -> Result<String, String> {
    let is_last = is_channels_last(cx);
    let rank = match (cx.rank(0), is_last) {
        (Some(rank), _) => rank,
        (None, true) => return Err("the rank of its input is unknown".to_string()),
        (None, false) => 0,
    };
    let (turn, images) = move_channels(cx, "x", rank, is_last);
    let bias = if cx.has_input(8) { ", B" } else { "" };
    Ok(format!(
        "{turn}convolved = QLinearConv <
            auto_pad: string = @auto_pad,
            dilations: ints = @dilations,
            group: int = @group,
            kernel_shape: ints = @kernel_shape,
            pads: ints = @pads,
            strides: ints = @strides
        > ({images}, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point{bias})
        {}",
        move_channels_back("convolved", "y", rank, is_last)
    ))
}
