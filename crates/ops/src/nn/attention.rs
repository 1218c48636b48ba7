//! `Attention`, `FlexAttention`, `LinearAttention`, `CausalConvWithState` and `RotaryEmbedding`.
//! Functions and inference have their own files.

mod causal_conv;
mod dot_product;
mod flex;
mod linear;
mod rotary;
mod shapes;

use sardonyx_model::Dim;
use sardonyx_tensor::DataType::{Bfloat16, Bool, Float, Float16, Int64};

use crate::attributes::Attributes;
use crate::cost::Counted;
use crate::def::OpDef;
use crate::facts::{
    FLOATS_IR4, NUMERIC_IR4, deterministic, float, graph, input, int, output, string, types,
    unknown_determinism,
};
use crate::infer::{Demand, Infer, InferError};
use crate::sharding::layers;
use crate::typeset::TypeSet;

pub(crate) use linear::{check_factors, check_rule};

pub static ATTENTION: OpDef = OpDef::new("Attention")
    .about(
        "Scaled dot-product attention: `Y = softmax(scale * Q * K^T + mask) * V`. Supports \
         multi-head, grouped-query and multi-query attention: each key-value head is shared by \
         `q_num_heads / kv_num_heads` query heads. Options are a boolean or additive mask, causal \
         masking, a soft cap of the scores, past keys and values, and since version 25 a sliding \
         window. A query that may not attend to any key gives zeros.",
    )
    .since(
        23,
        &[
            input("Q", "T1"),
            input("K", "T1"),
            input("V", "T2"),
            input("attn_mask", "U").optional(),
            input("past_key", "T1").optional(),
            input("past_value", "T2").optional(),
            output("Y", "T1"),
            output("present_key", "T1").optional(),
            output("present_value", "T2").optional(),
            output("qk_matmul_output", "T1").optional(),
            int("is_causal").or(0),
            int("kv_num_heads"),
            int("q_num_heads"),
            int("qk_matmul_output_mode").or(0),
            float("scale"),
            float("softcap").or_float(0.0),
            int("softmax_precision"),
            types("T1", FLOATS_IR4),
            types("T2", FLOATS_IR4),
            types("U", NUMERIC_IR4.and(TypeSet::tensors(&[Bool]))),
        ],
    )
    .since(24, &[input("nonpad_kv_seqlen", "tensor(int64)").optional()])
    .same_up()
    .types_down()
    .since(25, &[int("left_window_size").or(-1), int("right_window_size").or(-1)])
    .same_up()
    .infer(shapes::infer)
    .infer_as_reference(shapes::infer_as_reference)
    .body_from(23, dot_product::body)
    .adapter(25, 24, |cx| {
        for name in ["left_window_size", "right_window_size"] {
            if let Some(size) = cx.int(name) {
                return Err(cx.refuse(format_args!(
                    "{name} must be -1 in that version, got {size}. Windowed attention was added in version 25"
                )));
            }
        }
        Ok(())
    })
    .cost(count_attention)
    .split_by(layers::attention);

pub(crate) static CAUSAL_CONV_WITH_STATE: OpDef = OpDef::new("CausalConvWithState")
    .about(
        "Causal depthwise 1-D convolution with a carried state. Each output depends on the current \
         and earlier positions only. `present_state` holds the last `k - 1` positions; passing it \
         as `past_state` continues the sequence.",
    )
    .since(
        27,
        &[
            input("input", "T").differentiable(),
            input("weight", "T").differentiable(),
            input("bias", "T").optional().differentiable(),
            input("past_state", "T").optional().non_differentiable(),
            output("output", "T").differentiable(),
            output("present_state", "T").non_differentiable(),
            string("activation").or_word("none"),
            types("T", TypeSet::tensors(&[Float16, Float, Bfloat16])),
            unknown_determinism(),
        ],
    )
    .infer(causal_conv::infer)
    .body_from(27, causal_conv::body)
    .cost(|node| node.convolution(1));

pub static FLEX_ATTENTION: OpDef = OpDef::new("FlexAttention")
    .about("Scaled dot-product attention with subgraphs that modify the scores and the probabilities. \
         `score_mod` is applied to the scaled products before the softmax, `prob_mod` to the result \
         of the softmax.").domain("ai.onnx.preview").since(
    1,
    &[
        input("Q", "T1"),
        input("K", "T1"),
        input("V", "T1"),
        output("Y", "T1"),
        graph("prob_mod"),
        float("scale"),
        graph("score_mod"),
        int("softmax_precision"),
        types("T1", FLOATS_IR4), deterministic()],
)
    .infer(flex::infer)
    .body_from(1, flex::body)
    .cost(count_flex_attention);

pub(crate) static LINEAR_ATTENTION: OpDef = OpDef::new("LinearAttention")
    .about("Linear attention: a recurrent state accumulates keys and values, and queries read it. The \
         cost grows linearly with the sequence length. For each step with key `k`, value `v`, query \
         `q`, decay `g` and rate `beta`, the state `S` becomes `S + k ⊗ v` (`linear`), `exp(g) * S \
         + k ⊗ v` (`gated`), `S + beta * k ⊗ (v - S^T k)` (`delta`), or the latter with `exp(g) * \
         S` in place of `S` (`gated_delta`). The output is `scale * q^T S`.").since(
    27,
    &[
        input("query", "T").differentiable(),
        input("key", "T").differentiable(),
        input("value", "T").differentiable(),
        input("past_state", "S").optional().non_differentiable(),
        input("decay", "T").optional().differentiable(),
        input("beta", "T").optional().differentiable(),
        output("output", "T").differentiable(),
        output("present_state", "S").non_differentiable(),
        int("chunk_size").or(64),
        int("kv_num_heads").required(),
        int("q_num_heads").required(),
        float("scale").or_float(0.0),
        string("update_rule").or_word("gated_delta"),
        types("T", TypeSet::tensors(&[Float16, Float, Bfloat16])),
        types("S", TypeSet::tensors(&[Float16, Float, Bfloat16])), unknown_determinism()],
)
    .infer(linear::infer)
    .body_from(27, linear::body)
    .cost(count_linear_attention);

pub static ROTARY_EMBEDDING: OpDef = OpDef::new("RotaryEmbedding")
    .about(
        "Rotary position embedding (RoPE): rotates pairs of features by angles that depend on the \
         position. `(a, b)` becomes `(a * cos - b * sin, a * sin + b * cos)`. Features beyond \
         `rotary_embedding_dim` are copied.",
    )
    .since(
        23,
        &[
            input("X", "T"),
            input("cos_cache", "T"),
            input("sin_cache", "T"),
            input("position_ids", "M").optional(),
            output("Y", "T"),
            int("interleaved").or(0),
            int("num_heads"),
            int("rotary_embedding_dim").or(0),
            types("T", TypeSet::tensors(&[Float16, Float, Bfloat16])),
            types("M", TypeSet::tensors(&[Int64])),
        ],
    )
    .infer(rotary::infer)
    .body_from(23, rotary::body)
    .split_by(layers::rotary_embedding);

/// Counts the products of queries with keys and of weights with values: one multiply-add per key
/// for each element of the queries and of the result. Graphs that change scores are counted
/// separately.
fn count_products_with_keys(node: &Counted<'_>, past: Option<usize>) -> Option<Dim> {
    let keys = node.shape(1)?;
    // The second axis from the end holds positions, whether heads have an axis or are part of the
    // last one.
    let mut length = keys.get(keys.len().checked_sub(2)?)?.clone();
    if let Some(past) = past {
        length = length.add(node.shape(past)?.get(2)?);
    }
    let taken = node.elements(0)?.add(&node.output_elements()?);
    Some(taken.mul(&length))
}

fn count_attention(node: &Counted<'_>) -> Option<Dim> {
    count_products_with_keys(node, node.cx.has_input(4).then_some(4))
}

fn count_flex_attention(node: &Counted<'_>) -> Option<Dim> {
    count_products_with_keys(node, None)
}

/// Counts the work per step: the state of each head adds a product of key and value and is
/// multiplied with the query; the delta rules also multiply it with the key. Sizes of heads follow
/// from their numbers.
fn count_linear_attention(node: &Counted<'_>) -> Option<Dim> {
    let heads = Dim::Known(node.cx.int("kv_num_heads")?);
    let value = node.shape(2)?.last()?.floor_div(&heads);
    let with_keys = match node.cx.string("update_rule")?.as_str() {
        "delta" | "gated_delta" => 2,
        _ => 1,
    };
    let keys = node.elements(1)?.mul(&Dim::Known(with_keys));
    Some(keys.add(&node.elements(0)?).mul(&value))
}

/// Returns nodes that repeat each head of keys or values for all query heads that share it. The
/// names of sizes are those of the functions here.
fn repeat_heads(name: &str, heads: &str, features: &str) -> String {
    format!(
        "{name}_apart = Unsqueeze ({heads}, third)
        {name}_copies_sizes = Concat <axis = 0> (batch, key_heads, repeats, key_count, {features})
        {name}_copies = Expand ({name}_apart, {name}_copies_sizes)
        {name}_all_sizes = Concat <axis = 0> (batch, heads, key_count, {features})
        {name} = Reshape ({name}_copies, {name}_all_sizes)"
    )
}

/// Returns the size of a head, given several heads that are packed into one axis.
fn head_size(cx: &Infer<'_>, packed: &Dim, heads: i64, name: &str) -> Result<Dim, InferError> {
    match packed.known() {
        Some(size) if heads < 1 || size % heads != 0 => cx.fail(format_args!(
            "the last axis of {name} has size {size}, which cannot be divided into {heads} heads"
        )),
        _ => {
            let heads = Dim::Known(heads);
            cx.demand(|| Demand::Equal(packed.rem(&heads), Dim::Known(0)));
            Ok(packed.floor_div(&heads))
        }
    }
}

/// Returns the size of several heads packed into one axis, each with the size of one of other
/// packed heads.
fn packed_size(head: &Dim, heads: i64, others: &Dim, other_heads: i64) -> Dim {
    match head {
        // Avoids a division that could not be undone.
        Dim::Expr(_) if heads == other_heads => others.clone(),
        _ => head.mul(&Dim::Known(heads)),
    }
}

/// Checks that each head of keys is shared by an equal number of query heads.
fn check_sharing(cx: &Infer<'_>, heads: &Dim, key_heads: &Dim) -> Result<(), InferError> {
    match (heads.known(), key_heads.known()) {
        (Some(heads), Some(key_heads)) if key_heads < 1 || heads % key_heads != 0 => {
            cx.fail(format_args!("{heads} query heads are not a multiple of {key_heads} key heads"))
        }
        _ => {
            cx.demand(|| Demand::Equal(heads.rem(key_heads), Dim::Known(0)));
            Ok(())
        }
    }
}
