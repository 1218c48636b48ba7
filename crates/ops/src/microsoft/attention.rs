//! `Attention` of ONNX Runtime: projects its input to queries, keys and values, then computes
//! attention.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType::{self, Bfloat16, Float, Float16, Int32};

use super::DOMAIN;
use super::mask::{Attend, Masks, heads, scale};
use crate::def::OpDef;
use crate::facts::{float, input, int, ints, output, types};
use crate::function::{Expand, vector};
use crate::infer::{Infer, InferError};
use crate::rules::shared_dim;
use crate::typeset::TypeSet;

pub(crate) static ATTENTION: OpDef = OpDef::new("Attention")
    .domain(DOMAIN)
    .about(
        "Multi-head attention that includes the input projection. One matrix projects `input` to \
         queries, keys and values. Supports masks, an attention bias, and past keys and values in \
         one tensor.",
    )
    .since(
        1,
        &[
            input("input", "T"),
            input("weights", "T"),
            input("bias", "T").optional(),
            input("mask_index", "M").optional(),
            input("past", "T").optional(),
            input("attention_bias", "T").optional(),
            input("past_sequence_length", "M").optional(),
            output("output", "T"),
            output("present", "T").optional(),
            int("do_rotary"),
            float("mask_filter_value"),
            int("num_heads").required(),
            int("past_present_share_buffer"),
            ints("qkv_hidden_sizes"),
            int("rotary_embedding_dim"),
            float("scale"),
            int("unidirectional").or(0),
            types("T", TypeSet::tensors(&[Float, Float16, Bfloat16])),
            types("M", TypeSet::tensors(&[Int32])),
        ],
    )
    .infer(infer)
    .body_or_reason(1, body)
    .unknown_cost();

const MASK: usize = 3;
const PAST: usize = 4;
const BIAS: usize = 5;

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    infer_projected(cx, Places { weights: 1, bias: 2, past: PAST }, cx.elem(0).or(cx.elem(1)))
}

/// Indices of the inputs whose shapes determine those of the outputs.
pub(super) struct Places {
    pub(super) weights: usize,
    pub(super) bias: usize,
    pub(super) past: usize,
}

/// Infers the outputs of attention that projects its first input.
pub(super) fn infer_projected(
    cx: &mut Infer<'_>,
    places: Places,
    elem: Option<DataType>,
) -> Result<(), InferError> {
    let Places { weights, bias, past } = places;
    cx.demand_rank(0, 3)?;
    cx.demand_rank(weights, 2)?;
    cx.demand_rank(bias, 1)?;
    cx.demand_rank(past, 5)?;
    let has_past = cx.has_input(past);
    let batch = shared_dim(cx, "the batch", &[(0, 0), (past, 1)])?;
    let length = shared_dim(cx, "the length", &[(0, 1)])?;
    shared_dim(cx, "features", &[(0, 2), (weights, 0)])?;
    let width = shared_dim(cx, "projections", &[(weights, 1), (bias, 0)])?;
    let (keys, values) = match cx.ints("qkv_hidden_sizes").as_deref() {
        Some([_, keys, values]) => (Dim::Known(*keys), Dim::Known(*values)),
        Some(sizes) => {
            return cx.fail(format_args!("qkv_hidden_sizes has {} numbers, not 3", sizes.len()));
        }
        None => {
            let third = width.floor_div(&Dim::Known(3));
            (third.clone(), third)
        }
    };
    cx.set_tensor(0, elem, Some(Shape::from_iter([batch.clone(), length.clone(), values])));
    let heads = Dim::Known(cx.int("num_heads").filter(|heads| *heads > 0).unwrap_or(1));
    let past = shared_dim(cx, "past keys", &[(past, 3)])?;
    let all = match (cx.int("past_present_share_buffer"), has_past) {
        (Some(1), _) => past,
        (_, true) => past.add(&length),
        (_, false) => length,
    };
    let present = [Dim::Known(2), batch, heads.clone(), all, keys.floor_div(&heads)];
    cx.set_tensor(1, elem, Some(Shape::from_iter(present)));
    Ok(())
}

fn body(cx: &Expand<'_>) -> Result<String, String> {
    refuse_device_forms(cx)?;
    let projected = if cx.has_input(2) {
        "products = MatMul (input, weights)\nprojected = Add (products, bias)\n"
    } else {
        "projected = MatMul (input, weights)\n"
    };
    let split = match cx.ints("qkv_hidden_sizes").as_deref() {
        Some(sizes @ [_, _, _]) => {
            vector("widths", sizes) + "q, k, v = Split <axis = 2> (projected, widths)\n"
        }
        Some(_) => return Err("its qkv_hidden_sizes does not have three elements".to_string()),
        None => EQUAL_PARTS.to_string(),
    };
    let bias = (BIAS, "attention_bias");
    let attended = Projected { mask: MASK, past: PAST, bias, like: "input" }.attend(cx)?;
    Ok(format!("{projected}{split}{attended}"))
}

/// Fails for forms that only devices have.
pub(super) fn refuse_device_forms(cx: &Expand<'_>) -> Result<(), String> {
    for name in ["do_rotary", "past_present_share_buffer"] {
        if cx.int(name).unwrap_or(0) != 0 {
            return Err(format!("{name} is not supported"));
        }
    }
    Ok(())
}

/// Nodes that split a projection into queries, keys and values of equal sizes.
pub(super) const EQUAL_PARTS: &str = "q, k, v = Split <axis = 2, num_outputs = 3> (projected)\n";

/// Queries, keys and values that a node has projected from its `input`.
pub(super) struct Projected {
    /// Indices of the inputs `mask_index` and `past`.
    pub(super) mask: usize,
    pub(super) past: usize,
    /// Input that is added to scores: its index and its name.
    pub(super) bias: (usize, &'static str),
    /// Value whose element type the scores have.
    pub(super) like: &'static str,
}

impl Projected {
    /// Builds the nodes that compute attention of `q`, `k` and `v`.
    pub(super) fn attend(&self, cx: &Expand<'_>) -> Result<String, String> {
        let heads = heads(cx, "num_heads")?;
        let has_past = cx.has_input(self.past);
        let past = if has_past {
            vector("first_axis", &[0])
                + "past_length = Shape <start = 3, end = 4> (past)
                one_past_key, one_past_value = Split <axis = 0, num_outputs = 2> (past)
                past_key = Squeeze (one_past_key, first_axis)
                past_value = Squeeze (one_past_value, first_axis)\n"
        } else {
            vector("past_length", &[0])
        };
        let sizes = format!(
            "batch = Shape <start = 0, end = 1> (input)
            length = Shape <start = 1, end = 2> (input)
            {past}all_keys = Add (past_length, length)\n"
        );
        let masks = Masks {
            padding: (self.mask, "mask_index"),
            bias: self.bias,
            like: self.like,
            batch: "batch",
            queries: "length",
            past: "past_length",
            keys: "all_keys",
        };
        let (mask_text, mask) = masks.text(cx)?;
        let has_present = cx.has_output(1);
        let attend = Attend {
            packed: Some([heads, heads]),
            is_causal: cx.int("unidirectional") == Some(1),
            scale: scale(cx),
            outputs: [
                Some("output"),
                has_present.then_some("present_key"),
                has_present.then_some("present_value"),
                None,
            ],
            inputs: [
                Some("q"),
                Some("k"),
                Some("v"),
                mask,
                has_past.then_some("past_key"),
                has_past.then_some("past_value"),
                None,
            ],
            ..Attend::default()
        };
        let present = if has_present {
            vector("stack_axis", &[0])
                + "one_present_key = Unsqueeze (present_key, stack_axis)
                one_present_value = Unsqueeze (present_value, stack_axis)
                present = Concat <axis = 0> (one_present_key, one_present_value)\n"
        } else {
            String::new()
        };
        Ok(format!("{sizes}{mask_text}{}{present}", attend.text()))
    }
}
