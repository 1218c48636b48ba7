//! `QAttention`: attention that includes the projection of a quantized input by quantized weights.

use sardonyx_tensor::DataType::{Float, Float16, Int32};

use super::DOMAIN;
use super::attention::{EQUAL_PARTS, Places, Projected, infer_projected, refuse_device_forms};
use super::integer_products::Sums;
use super::linear::BYTES;
use crate::def::OpDef;
use crate::facts::{float, input, int, output, types};
use crate::function::{Expand, FLOAT};
use crate::typeset::TypeSet;

pub(crate) static Q_ATTENTION: OpDef = OpDef::new("QAttention")
    .domain(DOMAIN)
    .about(
        "`Attention` with a quantized input and a quantized projection matrix, which may have a scale \
         and a zero point for each column. What comes after the projection is computed with floats.",
    )
    .since(
        1,
        &[
            input("input", "T1"),
            input("weight", "T2"),
            input("bias", "T3"),
            input("input_scale", "T3"),
            input("weight_scale", "T3"),
            input("mask_index", "T4").optional(),
            input("input_zero_point", "T1").optional(),
            input("weight_zero_point", "T2").optional(),
            input("past", "T3").optional(),
            output("output", "T3"),
            output("present", "T3").optional(),
            int("do_rotary"),
            float("mask_filter_value"),
            int("num_heads").required(),
            int("past_present_share_buffer"),
            float("scale"),
            int("unidirectional").or(0),
            types("T1", BYTES),
            types("T2", BYTES),
            types("T3", TypeSet::tensors(&[Float, Float16])),
            types("T4", TypeSet::tensors(&[Int32])),
        ],
    )
    .infer(|cx| {
        let elem = cx.elem(3).or(cx.elem(2)).or(cx.elem(4));
        infer_projected(cx, Places { weights: 1, bias: 2, past: PAST }, elem)
    })
    .body_or_reason(1, body)
    .scalars(&[3, 6])
    .unknown_cost();

const MASK: usize = 5;
const PAST: usize = 8;

/// Index beyond all inputs.
const NO_INPUT: usize = 9;

fn body(cx: &Expand<'_>) -> Result<String, String> {
    refuse_device_forms(cx)?;
    let zero = |index, name| cx.has_input(index).then_some(name);
    let sums = Sums {
        left: ("input", "input_scale", zero(6, "input_zero_point")),
        right: ("weight", "weight_scale", zero(7, "weight_zero_point")),
        bias: Some("bias"),
        like: "bias",
        is_float: cx.elem(2) == Some(FLOAT),
    };
    let projected = sums.text("projected");
    let bias = (NO_INPUT, "");
    let attended = Projected { mask: MASK, past: PAST, bias, like: "bias" }.attend(cx)?;
    Ok(format!("{projected}{EQUAL_PARTS}{attended}"))
}
