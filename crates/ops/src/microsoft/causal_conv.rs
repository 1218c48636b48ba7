//! `CausalConvWithState` of ONNX Runtime: the standard's operator with a dilation, channels last,
//! and a window of states.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType::{Bfloat16, Float, Float16};

use super::DOMAIN;
use super::window::{StateWindow, state_window};
use crate::def::OpDef;
use crate::facts::{input, int, output, string, types};
use crate::function::{Expand, FLOAT, vector};
use crate::infer::{Infer, InferError};
use crate::rules::shared_dim;
use crate::typeset::TypeSet;

pub(crate) static CAUSAL_CONV_WITH_STATE: OpDef = OpDef::new("CausalConvWithState")
    .domain(DOMAIN)
    .about(
        "Causal depthwise convolution with a carried state. Each output depends on the current \
         and earlier positions only. `present_state` holds the last `(k - 1) * dilation` \
         positions; passing it as `past_state` continues the sequence. With a `state_window` of \
         `W`, a first axis holds the states after each of the last `W` positions, the newest \
         last, and zeros where there was no such position.",
    )
    .since(
        1,
        &[
            input("input", "T"),
            input("weight", "T"),
            input("bias", "T").optional(),
            input("past_state", "T").optional(),
            output("output", "T"),
            output("present_state", "T"),
            string("activation").or_word("none"),
            int("channels_last").or(0),
            int("dilation").or(1),
            int("ndim").or(1),
            int("state_window").or(0),
            types("T", TypeSet::tensors(&[Float, Float16, Bfloat16])),
        ],
    )
    .infer(infer)
    .body_or_reason(1, body)
    .cost(|node| node.convolution(1));

const WEIGHT: usize = 1;
const BIAS: usize = 2;
const PAST: usize = 3;

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    match cx.string("activation").as_deref() {
        Some("none" | "silu" | "swish") | None => {}
        Some(other) => return cx.fail(format_args!("activation has no value \"{other}\"")),
    }
    let dilation = match cx.int("dilation").unwrap_or(1) {
        dilation @ 1.. => dilation,
        dilation => return cx.fail(format_args!("dilation must be positive, not {dilation}")),
    };
    let shape = cx.shape(0).cloned();
    cx.set_tensor(0, cx.elem(0), shape.clone());
    if cx.int("ndim").unwrap_or(1) != 1 {
        cx.set_tensor(1, cx.elem(0), None);
        return Ok(());
    }
    cx.demand_rank(WEIGHT, 3)?;
    cx.demand_rank(BIAS, 1)?;
    let is_last = cx.int("channels_last").unwrap_or(0) != 0;
    if !is_last {
        cx.demand_rank(0, 3)?;
    }
    let window = state_window(cx.int("state_window")).or_else(|why| cx.fail(why))?;
    let width = shared_dim(cx, "places", &[(WEIGHT, 2)])?;
    let before = width.sub(&Dim::Known(1)).mul(&Dim::Known(dilation));
    let first = usize::from(window.is_some());
    let (time, past_time) = if is_last { (1, first + 1) } else { (2, first + 2) };
    let past = shared_dim(cx, "places", &[(PAST, past_time)])?;
    let before = cx.same_dim(&before, &past, "places before the first and places of the state")?;
    let state = shape.filter(|shape| shape.len() >= 3).map(|shape| {
        let sizes = shape.iter().enumerate();
        let sizes = sizes.map(|(axis, size)| if axis == time { &before } else { size }.clone());
        window.map(Dim::Known).into_iter().chain(sizes).collect::<Shape>()
    });
    cx.set_tensor(1, cx.elem(0), state);
    Ok(())
}

fn body(cx: &Expand<'_>) -> Result<String, String> {
    let axes = cx.int("ndim").unwrap_or(1);
    if axes != 1 {
        return Err(format!("ndim is {axes}, and only 1 is supported"));
    }
    let is_last = cx.int("channels_last").unwrap_or(0) != 0;
    let channels = cx.dim(WEIGHT, 0).or_else(|| cx.dim(BIAS, 0));
    let channels = channels.or_else(|| cx.dim(0, 1).filter(|_| !is_last));
    let channels = channels.ok_or("the number of channels is unknown")?;
    let dilation = cx.int("dilation").unwrap_or(1);
    let window = state_window(cx.int("state_window"))?;
    let with_time_last = |from: &str, into: &str| {
        if !is_last {
            return format!("{into} = Identity ({from})\n");
        }
        // Channels may be several axes.
        format!(
            "{into}_places = Shape <start = 0, end = 2> ({from})
            {into}_sizes = Concat <axis = 0> ({into}_places, channels)
            {into}_flat = Reshape <allowzero = 1> ({from}, {into}_sizes)
            {into} = Transpose <perm = [0, 2, 1]> ({into}_flat)\n"
        )
    };
    let past = match (cx.has_input(PAST), window) {
        (true, Some(window)) => {
            format!(
                "newest = Constant <value = int64 {{{}}}> ()
                newest_state = Gather <axis = 0> (past_state, newest)\n",
                window - 1
            ) + &with_time_last("newest_state", "past")
        }
        (true, None) => with_time_last("past_state", "past"),
        (false, _) => "batch = Shape <start = 0, end = 1> (input)
            past_sizes = Concat <axis = 0> (batch, channels, before)
            float_zeros = ConstantOfShape (past_sizes)
            past = CastLike (float_zeros, input)\n"
            .to_string(),
    };
    let bias = if cx.has_input(BIAS) { ", bias" } else { "" };
    let activated = match cx.string("activation").unwrap_or_default().as_str() {
        "none" => "result = Identity (convolved)\n".to_string(),
        "silu" | "swish" => format!(
            "wide = Cast <to = {FLOAT}> (convolved)
            gated = Swish (wide)
            result = CastLike (gated, convolved)\n"
        ),
        other => return Err(format!("its activation '{other}' is not implemented")),
    };
    let restored = if is_last {
        "result_turned = Transpose <perm = [0, 2, 1]> (result)
        sizes = Shape (input)
        output = Reshape <allowzero = 1> (result_turned, sizes)\n"
    } else {
        "output = Identity (result)\n"
    };
    Ok([
        vector("one", &[1]),
        vector("zero", &[0]),
        vector("time", &[2]),
        vector("channels", &[channels]),
        vector("dilation", &[dilation]),
        with_time_last("input", "timed"),
        "width = Shape <start = 2, end = 3> (weight)
        gaps = Sub (width, one)
        before = Mul (gaps, dilation)\n"
            .to_string(),
        past,
        format!(
            "extended = Concat <axis = 2> (past, timed)
            convolved = Conv <dilations = [{dilation}], group = {channels}> (extended, weight{bias})
            {activated}{restored}count = Shape <start = 2, end = 3> (timed)\n"
        ),
        states(window, is_last),
    ]
    .concat())
}

/// Builds the nodes that make `present_state` from the operand of the convolution.
fn states(window: Option<i64>, is_last: bool) -> String {
    let state = |from: &str, into: &str| {
        let mut text = format!(
            "{into}_end = Add ({from}, before)
            {into}_timed = Slice (extended, {from}, {into}_end, time)\n"
        );
        text += &if is_last {
            format!(
                "{into}_turned = Transpose <perm = [0, 2, 1]> ({into}_timed)
                {into} = Reshape <allowzero = 1> ({into}_turned, state_sizes)\n"
            )
        } else {
            format!("{into} = Identity ({into}_timed)\n")
        };
        text
    };
    let sizes = if is_last {
        "state_batch = Shape <start = 0, end = 1> (input)
        state_channels = Shape <start = 2> (input)
        state_sizes = Concat <axis = 0> (state_batch, before, state_channels)\n"
    } else {
        ""
    };
    let Some(window) = window else {
        return sizes.to_string() + &state("count", "present_state");
    };
    let slot = |slot: i64, into: &str| {
        format!("{into}_from = Max (slot_{slot}_given, zero)\n")
            + &state(&format!("{into}_from"), into)
    };
    sizes.to_string() + &StateWindow { window, count: "count" }.text(&slot)
}
