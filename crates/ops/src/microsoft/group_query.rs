//! `GroupQueryAttention`: causal attention of decoders, whose past is a buffer that the sequences
//! of a batch fill to different lengths.
//!
//! The present is the past with new keys and values written where each sequence ends. The
//! standard's `Attention` gets their number as the number of valid keys. A summand of the weights
//! that does not belong to a key is expressed by a key of zeros whose bias is the logarithm of the
//! weight.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType::{Bfloat16, Float, Float8e4m3fn, Float16, Int8, Int32, Uint8};

use super::DOMAIN;
use super::cache::{
    KEY, PAST_KEY, PAST_VALUE, QUERY, VALUE, find_lengths, find_missing_rows, rotate,
    separate_operands, write_rows,
};
use super::mask::{Attend, heads, open_heads, pack_heads, scale};
use crate::def::OpDef;
use crate::facts::{float, input, int, output, string, types};
use crate::function::{Expand, float_scalar, float_vector, scalar, vector};
use crate::infer::{Infer, InferError};
use crate::rules::shared_dim;
use crate::typeset::TypeSet;

pub(crate) static GROUP_QUERY_ATTENTION: OpDef = OpDef::new("GroupQueryAttention")
    .domain(DOMAIN)
    .about("Causal grouped-query attention with a key-value cache. Groups of query heads share the \
         heads of keys and values. New keys and values are written into the cache; queries and keys \
         may be rotated by their positions first (rotary embedding).")
    .since(
        1,
        &[
            input("query", "T"),
            input("key", "T").optional(),
            input("value", "T").optional(),
            input("past_key", "T_CACHE").optional(),
            input("past_value", "T_CACHE").optional(),
            input("seqlens_k", "M"),
            input("total_sequence_length", "M"),
            input("cos_cache", "T").optional(),
            input("sin_cache", "T").optional(),
            input("position_ids", "tensor(int64)").optional(),
            input("attention_bias", "T").optional(),
            input("head_sink", "T").optional(),
            input("k_scale", "T_KV_SCALE").optional(),
            input("v_scale", "T_KV_SCALE").optional(),
            input("q_norm_weight", "T").optional(),
            input("k_norm_weight", "T").optional(),
            output("output", "T"),
            output("present_key", "T_CACHE").optional(),
            output("present_value", "T_CACHE").optional(),
            output("output_qk", "T").optional(),
            int("causal").or(1),
            int("do_rotary"),
            string("k_quant_type").or_word("NONE"),
            int("kv_cache_bit_width"),
            int("kv_num_heads").required(),
            int("local_window_size").or(-1),
            int("num_heads").required(),
            float("qk_norm_epsilon").or_float(1e-06),
            int("qk_output").or(0),
            int("rotary_interleaved"),
            float("scale"),
            int("sliding_window_cache").or(0),
            int("smooth_softmax").or(-1),
            float("softcap"),
            string("v_quant_type").or_word("NONE"),
            types("T", TypeSet::tensors(&[Float16, Bfloat16, Float])),
            types(
                "T_CACHE",
                TypeSet::tensors(&[Float, Float16, Bfloat16, Uint8, Int8, Float8e4m3fn]),
            ),
            types("T_KV_SCALE", TypeSet::tensors(&[Float])),
            types("M", TypeSet::tensors(&[Int32])),
        ],
    )
    .infer(infer)
    .body_or_reason(1, body)
    .unknown_cost();

const TOTAL: usize = 6;
const COS: usize = 7;
const BIAS: usize = 10;
const SINK: usize = 11;

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    cx.demand_rank(QUERY, 3)?;
    cx.demand_rank(PAST_KEY, 4)?;
    cx.demand_rank(PAST_VALUE, 4)?;
    let [heads, key_heads] = ["num_heads", "kv_num_heads"].map(|name| match cx.int(name) {
        Some(heads @ 1..) => Ok(heads),
        Some(heads) => cx.fail(format_args!("{name} must be positive, not {heads}")),
        None => cx.fail(format_args!("attribute '{name}' is missing")),
    });
    let (heads, key_heads) = (heads?, key_heads?);
    let batch = shared_dim(cx, "the batch", &[(QUERY, 0), (KEY, 0), (PAST_KEY, 0)])?;
    let length = shared_dim(cx, "the length", &[(QUERY, 1), (KEY, 1), (VALUE, 1)])?;
    let width = shared_dim(cx, "the last axis", &[(QUERY, 2)])?;
    let in_query = if cx.has_input(KEY) { heads } else { heads + 2 * key_heads };
    let size = width.floor_div(&Dim::Known(in_query));
    let output_width = if in_query == heads { width } else { size.mul(&Dim::Known(heads)) };
    let elem = cx.elem(QUERY);
    let shape = Shape::from_iter([batch.clone(), length.clone(), output_width]);
    cx.set_tensor(0, elem, Some(shape));
    let total = cx.known_ints(TOTAL).and_then(|total| total.first().cloned());
    let total = total.unwrap_or(Dim::Unknown);
    let all = if cx.has_input(PAST_KEY) {
        let past = shared_dim(cx, "past keys", &[(PAST_KEY, 2), (PAST_VALUE, 2)])?;
        if cx.int("sliding_window_cache") == Some(1) { past } else { past.larger(&total) }
    } else {
        length.clone()
    };
    let present = Shape::from_iter([batch.clone(), Dim::Known(key_heads), all, size]);
    cx.set_tensor(1, cx.elem(PAST_KEY).or(elem), Some(present.clone()));
    cx.set_tensor(2, cx.elem(PAST_VALUE).or(elem), Some(present));
    let scores = Shape::from_iter([batch, Dim::Known(heads), length, total]);
    cx.set_tensor(3, elem, Some(scores));
    if !cx.has_input(PAST_KEY) {
        return Ok(());
    }
    for output in [1, 2] {
        cx.set_reason(output, "total_sequence_length, of which keys there may be more than before");
    }
    Ok(())
}

/// Fails for forms that only a device has, or that nodes cannot express.
fn refuse_unsupported(cx: &Expand<'_>) -> Result<(), String> {
    let is_quantized = |name: &str| cx.string(name).is_some_and(|kind| kind != "NONE");
    let reason = if is_quantized("k_quant_type") || is_quantized("v_quant_type") {
        "a quantized cache is not supported (k_quant_type, v_quant_type)"
    } else if cx.int("sliding_window_cache").unwrap_or(0) != 0 {
        "sliding_window_cache is not supported"
    } else if cx.has_input(14) || cx.has_input(15) {
        "normalization of queries and keys is not supported (q_norm_weight, k_norm_weight)"
    } else if cx.has_output(3) {
        "the output output_qk is not supported"
    } else if cx.has_input(PAST_KEY) != cx.has_input(PAST_VALUE) {
        "past_key and past_value must both be present or absent"
    } else if cx.has_input(KEY) != cx.has_input(VALUE) {
        "key and value must both be present or absent"
    } else if cx.int("causal") == Some(0) && cx.int("local_window_size").unwrap_or(-1) >= 0 {
        "a window without causal is not supported"
    } else {
        return Ok(());
    };
    Err(reason.to_string())
}

fn body(cx: &Expand<'_>) -> Result<String, String> {
    refuse_unsupported(cx)?;
    let (heads, key_heads) = (heads(cx, "num_heads")?, heads(cx, "kv_num_heads")?);
    let valid = "last_keys_given = Cast <to = 7> (seqlens_k)
        last_keys = Reshape (last_keys_given, all)
        valid = Add (last_keys, one)\n";
    let mut text = find_lengths(valid);
    text += &separate_operands(cx, heads, key_heads);
    text += &rotate(cx, COS, heads, key_heads)?;
    text += &open_heads("turned_query", heads, "q");
    text += &open_heads("turned_key", key_heads, "new_k");
    text += &open_heads("packed_value", key_heads, "new_v");
    if cx.has_input(PAST_KEY) {
        text += &find_missing_rows(key_heads);
        text += &write_rows("past_key", "new_k", "present_key");
        text += &write_rows("past_value", "new_v", "present_value");
    } else {
        text += "present_key = Identity (new_k)\npresent_value = Identity (new_v)\n";
    }
    let window = cx.int("local_window_size").filter(|size| *size > 0);
    let attend = Attend {
        softcap: cx.float("softcap").unwrap_or(0.0),
        scale: scale(cx),
        outputs: [Some("attended"), None, None, None],
        ..Attend::default()
    };
    let bias = cx.has_input(BIAS).then_some("attention_bias");
    let is_causal = cx.int("causal") != Some(0);
    text += &if cx.has_input(SINK) || cx.int("smooth_softmax") == Some(1) {
        let inputs = [
            Some("q"),
            Some("sink_keys"),
            Some("sink_values"),
            Some("sink_bias"),
            None,
            None,
            None,
        ];
        let attend = Attend { inputs, ..attend };
        build_sink(cx, heads, is_causal, window) + &attend.text()
    } else {
        let valid = if is_causal { "ends_after" } else { "valid" };
        let inputs =
            [Some("q"), Some("present_key"), Some("present_value"), bias, None, None, Some(valid)];
        let left_window = window.map(window_before);
        Attend { is_causal, left_window, inputs, ..attend }.text()
    };
    Ok(text + &pack_heads("attended", "output"))
}

/// Returns the number of keys before its own that a query sees in a window that includes its own.
fn window_before(window: i64) -> i64 {
    window - 1
}

/// Builds keys and values followed by one that takes part in the sum of the weights but contributes
/// nothing, and a bias that hides keys.
fn build_sink(cx: &Expand<'_>, heads: i64, is_causal: bool, window: Option<i64>) -> String {
    let mut text = float_scalar("seen_score", 0.0)
        + &float_scalar("hidden_score", f32::NEG_INFINITY)
        + &float_vector("no_weight", 0.0)
        + &vector("heads", &[heads])
        + &vector("sink_sizes", &[1, heads, 1, 1])
        + "seen_axis = Constant <value = int64[1] {2}> ()
        key_axes = Constant <value = int64[2] {1, 2}> ()
        key_count = Shape <start = 2, end = 3> (present_key)
        key_total = Squeeze (key_count, zero)
        key_list = Range (first, key_total, step)
        query_positions = Unsqueeze (new_positions, seen_axis)\n";
    text += if is_causal {
        "is_seen_0 = LessOrEqual (key_list, query_positions)\n"
    } else {
        "valid_column = Unsqueeze (valid, key_axes)
        is_seen_0 = Less (key_list, valid_column)\n"
    };
    text += &match window {
        Some(window) => {
            scalar("window", window_before(window))
                + "distances = Sub (query_positions, key_list)
                is_near = LessOrEqual (distances, window)
                is_seen = And (is_seen_0, is_near)\n"
        }
        None => "is_seen = Identity (is_seen_0)\n".to_string(),
    };
    text += "seen_float = Where (is_seen, seen_score, hidden_score)
        seen_typed = CastLike (seen_float, query)
        seen_bias = Unsqueeze (seen_typed, one)\n";
    text += if cx.has_input(BIAS) {
        // A bias may be shorter than the buffers.
        "bias_keys = Shape <start = 3, end = 4> (attention_bias)
        bias_missing = Sub (key_count, bias_keys)
        bias_pads = Concat <axis = 0> (zero, bias_missing)
        bias_axis = Constant <value = int64[1] {3}> ()
        wide_bias = Pad (attention_bias, bias_pads, \"\", bias_axis)
        key_bias = Add (seen_bias, wide_bias)\n"
    } else {
        "key_bias = Identity (seen_bias)\n"
    };
    text += if cx.has_input(SINK) {
        "sink_weights = Reshape (head_sink, sink_sizes)\n"
    } else {
        "no_sink = CastLike (no_weight, query)
        sink_weights = Expand (no_sink, sink_sizes)\n"
    };
    text + "key_bias_sizes = Concat <axis = 0> (batch, heads, length, key_count)
        key_bias_all = Expand (key_bias, key_bias_sizes)
        sink_bias_sizes = Concat <axis = 0> (batch, heads, length, one)
        sink_bias_all = Expand (sink_weights, sink_bias_sizes)
        sink_bias = Concat <axis = 3> (key_bias_all, sink_bias_all)
        sink_pads = Constant <value = int64[2] {0, 1}> ()
        sink_keys = Pad (present_key, sink_pads, \"\", seen_axis)
        sink_values = Pad (present_value, sink_pads, \"\", seen_axis)\n"
}
