//! `RotaryEmbedding` of ONNX Runtime: positions come before the caches, and one may hold for all.

use sardonyx_tensor::DataType::{Bfloat16, Float, Float16, Int64};

use super::DOMAIN;
use super::mask::pack_heads;
use crate::def::OpDef;
use crate::facts::{float, input, int, output, types};
use crate::function::{Expand, scalar, vector};
use crate::infer::{Infer, InferError};
use crate::rules::same_as_first;
use crate::typeset::TypeSet;

pub(crate) static ROTARY_EMBEDDING: OpDef = OpDef::new("RotaryEmbedding")
    .domain(DOMAIN)
    .about(
        "Rotary position embedding (RoPE): rotates pairs of features by angles that depend on the \
         position. `position_ids` has the position of each element, or of the first element of the \
         sequences.",
    )
    .since(
        1,
        &[
            input("input", "T"),
            input("position_ids", "M"),
            input("cos_cache", "T"),
            input("sin_cache", "T"),
            output("output", "T"),
            int("interleaved"),
            int("is_packed_batching"),
            int("num_heads"),
            int("rotary_embedding_dim"),
            float("scale"),
            types("T", TypeSet::tensors(&[Float, Float16, Bfloat16])),
            types("M", TypeSet::tensors(&[Int64])),
        ],
    )
    .infer(infer)
    .body_or_reason(1, body);

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    cx.demand_rank(2, 2)?;
    cx.demand_rank(3, 2)?;
    same_as_first(cx)
}

fn body(cx: &Expand<'_>) -> Result<String, String> {
    if cx.int("is_packed_batching").unwrap_or(0) != 0 {
        return Err("is_packed_batching is not supported".to_string());
    }
    if cx.float("scale").is_some_and(|scale| scale != 1.0) {
        return Err("a scale is not supported".to_string());
    }
    let rotated = cx.int("rotary_embedding_dim").unwrap_or(0);
    let length = match cx.rank(0) {
        Some(3) => 1,
        Some(4) => 2,
        Some(rank) => return Err(format!("its input has rank {rank}, not 3 or 4")),
        None => return Err("the rank of its input is unknown".to_string()),
    };
    let heads = cx.int("num_heads").filter(|heads| *heads > 0);
    let (apart, attribute, back) = match (length, heads) {
        (1, Some(heads)) => (String::new(), format!(", num_heads = {heads}"), String::new()),
        (1, None) => {
            let (apart, back) = split_by_caches(cx, rotated)?;
            (apart, String::new(), back)
        }
        _ => (String::new(), String::new(), String::new()),
    };
    let [from, into] = if back.is_empty() { ["input", "output"] } else { ["heads", "turned"] };
    let positions = match cx.rank(1) {
        Some(2) => "positions = Identity (position_ids)\n".to_string(),
        Some(1) => format!(
            "{}{}{}batch = Shape <start = 0, end = 1> (input)
            length = Shape <start = {length}, end = {}> (input)
            end = Squeeze (length, first_axis)
            steps = Range (from, end, by)
            row = Add (steps, position_ids)
            position_sizes = Concat <axis = 0> (batch, length)
            positions = Expand (row, position_sizes)\n",
            scalar("from", 0),
            scalar("by", 1),
            vector("first_axis", &[0]),
            length + 1,
        ),
        _ => return Err("the rank of its positions is unknown, or not 1 or 2".to_string()),
    };
    let interleaved = cx.int("interleaved").unwrap_or(0);
    Ok(format!(
        "{positions}{apart}{into} = RotaryEmbedding <
            interleaved = {interleaved}, rotary_embedding_dim = {rotated}{attribute}
        > ({from}, cos_cache, sin_cache, positions)
        {back}"
    ))
}

/// Builds the nodes that separate heads and pack them again, if only the caches determine their
/// size. Then whole heads are rotated.
fn split_by_caches(cx: &Expand<'_>, rotated: i64) -> Result<(String, String), String> {
    let half = cx.dim(2, 1).filter(|half| rotated == 0 && *half > 0);
    let half = half.ok_or("the number of heads is unknown")?;
    let apart = vector("apart_sizes", &[0, 0, -1, 2 * half])
        + "apart = Reshape (input, apart_sizes)
        heads = Transpose <perm = [0, 2, 1, 3]> (apart)\n";
    Ok((apart, pack_heads("turned", "output")))
}
