//! `MultiHeadAttention`: attention of queries, keys and values that are already projected.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType::{Bfloat16, Float, Float16, Int32};

use super::DOMAIN;
use super::mask::{Attend, Masks, heads, open_heads, pack_heads, scale};
use crate::def::OpDef;
use crate::facts::{float, input, int, output, types};
use crate::function::{Expand, vector};
use crate::infer::{Infer, InferError};
use crate::rules::shared_dim;
use crate::typeset::TypeSet;

const T: TypeSet = TypeSet::tensors(&[Float, Float16, Bfloat16]);

pub(crate) static MULTI_HEAD_ATTENTION: OpDef = OpDef::new("MultiHeadAttention")
    .domain(DOMAIN)
    .about(
        "Multi-head attention of projected queries, keys and values. Supports a projection bias, \
         padding masks, an attention bias, and past keys and values. Keys and values may be packed \
         into `key`; queries, keys and values may be packed into `query`.",
    )
    .since(
        1,
        &[
            input("query", "T"),
            input("key", "T").optional(),
            input("value", "T").optional(),
            input("bias", "T").optional(),
            input("key_padding_mask", "M").optional(),
            input("attention_bias", "T").optional(),
            input("past_key", "T").optional(),
            input("past_value", "T").optional(),
            input("past_sequence_length", "M").optional(),
            input("cache_indirection", "M").optional(),
            output("output", "T"),
            output("present_key", "T").optional(),
            output("present_value", "T").optional(),
            output("qk", "QK").optional(),
            float("mask_filter_value"),
            int("num_heads").required(),
            float("scale"),
            int("unidirectional").or(0),
            types("T", T),
            types("QK", T),
            types("M", TypeSet::tensors(&[Int32])),
        ],
    )
    .infer(infer)
    .body_or_reason(1, body)
    .unknown_cost();

const QUERY: usize = 0;
const KEY: usize = 1;
const VALUE: usize = 2;
const BIAS: usize = 3;
const PADDING: usize = 4;
const ATTENTION_BIAS: usize = 5;
const PAST_KEY: usize = 6;
const PAST_VALUE: usize = 7;
const PAST_LENGTH: usize = 8;
const CACHE_INDIRECTION: usize = 9;

/// Layouts of the operands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `[B, S, N * H]` each.
    Apart,
    /// Keys and values `[B, N, L, H]`, as returned by an earlier call.
    OpenKeys,
    /// Keys with values `[B, L, N, 2, H]`.
    PackedKeys,
    /// Queries, keys and values `[B, S, N, 3, H]`.
    Packed,
}

fn form(query: Option<usize>, key: Option<usize>, has_key: bool) -> Option<Form> {
    match (query, key) {
        (Some(5), _) if !has_key => Some(Form::Packed),
        (Some(3), Some(3)) => Some(Form::Apart),
        (Some(3), Some(4)) => Some(Form::OpenKeys),
        (Some(3), Some(5)) => Some(Form::PackedKeys),
        _ => None,
    }
}

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let elem = cx.elem(QUERY);
    let past = shared_dim(cx, "past keys", &[(PAST_KEY, 2), (PAST_VALUE, 2)])?;
    let heads = Dim::Known(cx.int("num_heads").filter(|heads| *heads > 0).unwrap_or(1));
    let form = form(cx.rank(QUERY), cx.rank(KEY), cx.has_input(KEY));
    let Some(form) = form else {
        for output in 0..4 {
            cx.set_tensor(output, elem, None);
        }
        return Ok(());
    };
    let batch = shared_dim(cx, "the batch", &[(QUERY, 0), (KEY, 0), (VALUE, 0), (PAST_KEY, 0)])?;
    let queries = shared_dim(cx, "queries", &[(QUERY, 1)])?;
    let packed = |input: usize| -> Result<Dim, InferError> {
        Ok(shared_dim(cx, "heads", &[(input, 2)])?.floor_div(&heads))
    };
    let whole = |size: &Dim| size.mul(&heads);
    let (keys, size, value_size, values) = match form {
        Form::Apart => {
            let keys = shared_dim(cx, "keys", &[(KEY, 1), (VALUE, 1)])?;
            let values = shared_dim(cx, "heads", &[(VALUE, 2)])?;
            (keys, packed(QUERY)?, packed(VALUE)?, values)
        }
        Form::OpenKeys => {
            let keys = shared_dim(cx, "keys", &[(KEY, 2), (VALUE, 2)])?;
            let size = shared_dim(cx, "the size of a head", &[(VALUE, 3)])?;
            (keys, packed(QUERY)?, size.clone(), whole(&size))
        }
        Form::PackedKeys => {
            let keys = shared_dim(cx, "keys", &[(KEY, 1)])?;
            let size = shared_dim(cx, "the size of a head", &[(KEY, 4)])?;
            (keys, size.clone(), size.clone(), whole(&size))
        }
        Form::Packed => {
            let size = shared_dim(cx, "the size of a head", &[(QUERY, 4)])?;
            (queries.clone(), size.clone(), size.clone(), whole(&size))
        }
    };
    // The size of a buffer that is written to does not depend on the length of the sequences.
    let all = match (cx.has_input(PAST_KEY), cx.has_input(PAST_LENGTH)) {
        (_, true) => Dim::Unknown,
        (true, false) => past.add(&keys),
        (false, false) => keys,
    };
    let shape = |dims: &[&Dim]| Some(dims.iter().copied().cloned().collect::<Shape>());
    let output = shape(&[&batch, &queries, &values]);
    cx.set_tensor(0, elem, output);
    let present_key = shape(&[&batch, &heads, &all, &size]);
    cx.set_tensor(1, elem, present_key);
    let present_value = shape(&[&batch, &heads, &all, &value_size]);
    cx.set_tensor(2, elem, present_value);
    cx.set_tensor(3, elem, shape(&[&batch, &heads, &queries, &all]));
    Ok(())
}

fn body(cx: &Expand<'_>) -> Result<String, String> {
    let heads = heads(cx, "num_heads")?;
    if cx.has_input(PAST_LENGTH) || cx.has_input(CACHE_INDIRECTION) {
        return Err("shared buffers of past keys and values are not supported".to_string());
    }
    if cx.has_input(PAST_KEY) != cx.has_input(PAST_VALUE) {
        return Err("past_key and past_value must both be present or absent".to_string());
    }
    let form = form(cx.rank(QUERY), cx.rank(KEY), cx.has_input(KEY));
    let form = form.ok_or("the ranks of its operands are unknown or not supported")?;
    let is_open = form == Form::OpenKeys;
    if is_open && cx.has_input(PAST_KEY) {
        return Err("key is of an earlier call, but past_key is present".to_string());
    }
    let operands = operands(cx, form, heads)?;
    let keys = if is_open { 2 } else { 1 };
    let source = if form == Form::Packed { "query" } else { "key" };
    let past = if cx.has_input(PAST_KEY) {
        "past = Shape <start = 2, end = 3> (past_key)\n".to_string()
    } else {
        vector("past", &[0])
    };
    let sizes = format!(
        "batch = Shape <start = 0, end = 1> (query)
        queries = Shape <start = 1, end = 2> (query)
        new_keys = Shape <start = {keys}, end = {}> ({source})
        {past}all_keys = Add (past, new_keys)\n",
        keys + 1
    );
    let masks = Masks {
        padding: (PADDING, "key_padding_mask"),
        bias: (ATTENTION_BIAS, "attention_bias"),
        like: "query",
        batch: "batch",
        queries: "queries",
        past: "past",
        keys: "all_keys",
    };
    let (mask_text, mask) = masks.text(cx)?;
    let has_present = cx.has_output(1) || cx.has_output(2);
    let past = |name| cx.has_input(PAST_KEY).then_some(name);
    let attend = Attend {
        packed: (!is_open).then_some([heads, heads]),
        is_causal: cx.int("unidirectional") == Some(1),
        scale: scale(cx),
        stage: STAGE,
        outputs: [
            Some(if is_open { "attended" } else { "output" }),
            has_present.then_some("present_key"),
            has_present.then_some("present_value"),
            cx.has_output(3).then_some("qk"),
        ],
        inputs: [Some("q"), Some("k"), Some("v"), mask, past("past_key"), past("past_value"), None],
        ..Attend::default()
    };
    let last = if is_open { pack_heads("attended", "output") } else { String::new() };
    Ok(format!("{operands}{sizes}{mask_text}{}{last}", attend.text()))
}

/// Stage of the scores that the operator returns: with all masks, before softmax.
const STAGE: i64 = 2;

/// Builds queries, keys and values for the standard's `Attention`.
fn operands(cx: &Expand<'_>, form: Form, heads: i64) -> Result<String, String> {
    let pack = |from: &str, into: &str| format!("{into} = Reshape ({from}, packed_sizes)\n");
    match form {
        Form::Packed | Form::PackedKeys if cx.has_input(BIAS) => {
            Err("a bias with packed operands is not supported".to_string())
        }
        Form::Packed => Ok(vector("packed_sizes", &[0, 0, -1])
            + "q_apart, k_apart, v_apart = Split <axis = 3, num_outputs = 3> (query)\n"
            + &pack("q_apart", "q")
            + &pack("k_apart", "k")
            + &pack("v_apart", "v")),
        Form::PackedKeys => Ok(vector("packed_sizes", &[0, 0, -1])
            + "q = Identity (query)
            k_apart, v_apart = Split <axis = 3, num_outputs = 2> (key)\n"
            + &pack("k_apart", "k")
            + &pack("v_apart", "v")),
        Form::OpenKeys => {
            let biased = if cx.has_input(BIAS) {
                query_bias()
            } else {
                "biased_query = Identity (query)\n".to_string()
            };
            Ok(biased
                + &open_heads("biased_query", heads, "q")
                + "k = Identity (key)\nv = Identity (value)\n")
        }
        Form::Apart if cx.has_input(BIAS) => Ok("q_width = Shape <start = 2, end = 3> (query)
            v_width = Shape <start = 2, end = 3> (value)
            widths = Concat <axis = 0> (q_width, q_width, v_width)
            q_bias, k_bias, v_bias = Split <axis = 0> (bias, widths)
            q = Add (query, q_bias)
            k = Add (key, k_bias)
            v = Add (value, v_bias)\n"
            .to_string()),
        Form::Apart => {
            Ok("q = Identity (query)\nk = Identity (key)\nv = Identity (value)\n".to_string())
        }
    }
}

/// Builds a bias for queries alone, since keys and values of an earlier call include theirs.
fn query_bias() -> String {
    vector("bias_from", &[0])
        + "q_width = Shape <start = 2, end = 3> (query)
        q_bias = Slice (bias, bias_from, q_width, bias_from)
        biased_query = Add (query, q_bias)\n"
}
