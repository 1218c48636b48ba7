//! `SkipLayerNormalization`, `SkipSimplifiedLayerNormalization` and `EmbedLayerNormalization`,
//! which normalize sums; and `SimplifiedLayerNormalization`, the former name of `RMSNormalization`.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType::{Bfloat16, Double, Float, Float16, Int32};

use super::DOMAIN;
use super::early::{Common, cast_to_common_type};
use crate::def::OpDef;
use crate::facts::{FLOATS_IR4, Fact, float, input, int, output, types};
use crate::function::{Expand, scalar, vector};
use crate::infer::{Infer, InferError};
use crate::rules::{broadcast_over, same_as_first, shared_dim};
use crate::typeset::TypeSet;

const T: TypeSet = TypeSet::tensors(&[Float, Float16, Bfloat16]);

const SIMPLIFIED_FACTS: &[Fact] = &[
    input("X", "T"),
    input("scale", "V"),
    output("Y", "V"),
    output("inv_std_var", "U").optional(),
    int("axis").or(-1),
    float("epsilon").or_float(1e-05),
    int("stash_type").or(1),
    types("T", FLOATS_IR4),
    types("U", TypeSet::tensors(&[Float, Double])),
    types("V", FLOATS_IR4),
];

/// Defines root-mean-square normalization in a domain.
const fn define_simplified(domain: &'static str) -> OpDef {
    OpDef::new("SimplifiedLayerNormalization")
        .domain(domain)
        .about(
            "Root mean square normalization: the standard's `RMSNormalization` under its earlier \
             name in ONNX Runtime.",
        )
        .since(1, SIMPLIFIED_FACTS)
        .infer(infer_simplified)
        .body_or_reason(1, simplified_body)
}

pub(crate) static SIMPLIFIED: OpDef = define_simplified(DOMAIN);

/// ONNX Runtime writes it into the default domain, although the standard has no such operator.
pub(crate) static SIMPLIFIED_OF_DEFAULT_DOMAIN: OpDef = define_simplified("");

pub(crate) static SKIP: OpDef = OpDef::new("SkipLayerNormalization")
    .domain(DOMAIN)
    .about(
        "Adds a residual, and a bias if given, and applies `LayerNormalization` along the last \
         axis. The sum is an optional output.",
    )
    .since(
        1,
        &[
            input("input", "T"),
            input("skip", "T"),
            input("gamma", "T"),
            input("beta", "T").optional(),
            input("bias", "T").optional(),
            output("output", "T"),
            output("mean", "U").optional(),
            output("inv_std_var", "U").optional(),
            output("input_skip_bias_sum", "T").optional(),
            float("epsilon").or_float(1e-12),
            types("T", T),
            types("U", TypeSet::tensors(&[Float])),
        ],
    )
    .infer(infer_skip)
    .body_from(1, skip);

pub(crate) static SKIP_SIMPLIFIED: OpDef = OpDef::new("SkipSimplifiedLayerNormalization")
    .domain(DOMAIN)
    .about(
        "Adds a residual, and a bias if given, and applies `RMSNormalization` along the last axis. \
         The sum is an optional output.",
    )
    .since(
        1,
        &[
            input("input", "T"),
            input("skip", "T"),
            input("gamma", "T"),
            input("bias", "T").optional(),
            output("output", "T"),
            output("mean", "U").optional(),
            output("inv_std_var", "U").optional(),
            output("input_skip_bias_sum", "T").optional(),
            float("epsilon").or_float(1e-12),
            types("T", T),
            types("U", TypeSet::tensors(&[Float])),
        ],
    )
    .infer(infer_skip)
    .body_or_reason(1, skip_simplified);

pub(crate) static EMBED: OpDef = OpDef::new("EmbedLayerNormalization")
    .domain(DOMAIN)
    .about(
        "Sum of word, position and segment embeddings, followed by `LayerNormalization`. \
         `mask_index` is the number of words that the mask keeps in each sequence.",
    )
    .since(
        1,
        &[
            input("input_ids", "T1"),
            input("segment_ids", "T1").optional(),
            input("word_embedding", "T"),
            input("position_embedding", "T"),
            input("segment_embedding", "T").optional(),
            input("gamma", "T"),
            input("beta", "T"),
            input("mask", "T1").optional(),
            input("position_ids", "T1").optional(),
            output("output", "T"),
            output("mask_index", "T1").optional(),
            output("embedding_sum", "T").optional(),
            float("epsilon").or_float(1e-12),
            int("mask_index_type"),
            types("T1", TypeSet::tensors(&[Int32])),
            types("T", TypeSet::tensors(&[Float, Float16])),
        ],
    )
    .infer(infer_embed)
    .body_or_reason(1, embed);

/// Returns the shape of one statistic for all axes from `axis` on.
fn statistic(shape: &Shape, axis: usize) -> Shape {
    let mut shape = shape.clone();
    shape[axis..].fill(Dim::Known(1));
    shape
}

fn infer_simplified(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let mut reduced = None;
    let mut shape = cx.shape(0).cloned();
    if let Some(sizes) = &shape {
        let axis = cx.axis(cx.int("axis").unwrap_or(-1), sizes.len())?;
        reduced = Some(statistic(sizes, axis));
        if let Some(scale) = cx.shape(1) {
            shape = Some(broadcast_over(cx, sizes, scale, "the scale")?);
        }
    }
    let wide = if cx.elem(0) == Some(Double) { Double } else { Float };
    cx.set_tensor(0, cx.elem(1).or(cx.elem(0)), shape);
    cx.set_tensor(1, Some(wide), reduced);
    Ok(())
}

/// Returns the axes from `axis` on; `None` if that needs an unknown rank.
fn axes_from(axis: i64, rank: Option<usize>) -> Option<Vec<i64>> {
    let end = if axis < 0 { 0 } else { i64::try_from(rank?).ok()? };
    Some((axis..end).collect())
}

/// Builds the reciprocal of the root of the mean square of a value along axes.
fn inverse_root(of: &str, axes: &[i64], wide: i64, epsilon: f32, into: &str) -> String {
    format!(
        "{axes}wide_input = Cast <to = {wide}> ({of})
        wide_squares = Mul (wide_input, wide_input)
        wide_mean = ReduceMean (wide_squares, statistic_axes)
        wide_epsilon_number = Constant <value = float {{{epsilon:?}}}> ()
        wide_epsilon = Cast <to = {wide}> (wide_epsilon_number)
        wide_raised = Add (wide_mean, wide_epsilon)
        wide_root = Sqrt (wide_raised)
        {into} = Reciprocal (wide_root)\n",
        axes = vector("statistic_axes", axes),
    )
}

fn simplified_body(cx: &Expand<'_>) -> Result<String, String> {
    let Common { casts, operands, output, last } = cast_to_common_type(cx, &["X", "scale"])?;
    let epsilon = cx.float("epsilon").unwrap_or_default();
    let mut text = format!(
        "{casts}{output} = RMSNormalization <
            axis: int = @axis, epsilon: float = @epsilon, stash_type: int = @stash_type
        > ({operands})
        {last}"
    );
    if cx.has_output(1) {
        let axes = axes_from(cx.int("axis").unwrap_or(-1), cx.rank(0));
        let axes = axes.ok_or("the rank of its input is unknown")?;
        let is_double = cx.tensor(0).is_some_and(|tensor| tensor.elem == Some(Double));
        let wide = if is_double { Double } else { Float }.number();
        text += &inverse_root("X", &axes, wide.into(), epsilon, "inv_std_var");
    }
    Ok(text)
}

fn infer_skip(cx: &mut Infer<'_>) -> Result<(), InferError> {
    same_as_first(cx)?;
    let reduced = cx.shape(0).filter(|shape| !shape.is_empty());
    let reduced = reduced.map(|shape| statistic(shape, shape.len() - 1));
    cx.set_tensor(1, Some(Float), reduced.clone());
    cx.set_tensor(2, Some(Float), reduced);
    if let Some(ty) = cx.input(0) {
        cx.set(3, ty.clone());
    }
    Ok(())
}

/// Builds the sum that is normalized, and returns its name.
fn skip_sum(cx: &Expand<'_>, bias: usize) -> (String, &'static str) {
    let sum = if cx.has_output(3) { "input_skip_bias_sum" } else { "sum" };
    let text = if cx.has_input(bias) {
        format!("partial_sum = Add (input, skip)\n{sum} = Add (partial_sum, bias)\n")
    } else {
        format!("{sum} = Add (input, skip)\n")
    };
    (text, sum)
}

fn skip(cx: &Expand<'_>) -> Option<String> {
    let (text, sum) = skip_sum(cx, 4);
    let shift = if cx.has_input(3) { ", beta" } else { "" };
    let outputs = match (cx.has_output(1), cx.has_output(2)) {
        (false, false) => "output",
        (true, false) => "output, mean",
        (_, true) => "output, mean, inv_std_var",
    };
    Some(format!(
        "{text}{outputs} = LayerNormalization <epsilon: float = @epsilon> ({sum}, gamma{shift})"
    ))
}

fn skip_simplified(cx: &Expand<'_>) -> Result<String, String> {
    if cx.has_output(1) {
        return Err("the output mean is not supported".to_string());
    }
    let (mut text, sum) = skip_sum(cx, 3);
    if cx.has_output(2) {
        let epsilon = cx.float("epsilon").unwrap_or_default();
        text += &inverse_root(sum, &[-1], Float.number().into(), epsilon, "inv_std_var");
    }
    Ok(format!("{text}output = RMSNormalization <epsilon: float = @epsilon> ({sum}, gamma)"))
}

fn infer_embed(cx: &mut Infer<'_>) -> Result<(), InferError> {
    for (input, rank) in [(0, 2), (1, 2), (2, 2), (3, 2), (4, 2), (5, 1), (6, 1), (7, 2), (8, 2)] {
        cx.demand_rank(input, rank)?;
    }
    let batch = shared_dim(cx, "the batch", &[(0, 0), (1, 0), (7, 0)])?;
    let length = shared_dim(cx, "the length", &[(0, 1), (1, 1), (7, 1), (8, 1)])?;
    let hidden =
        shared_dim(cx, "the size of an embedding", &[(2, 1), (3, 1), (4, 1), (5, 0), (6, 0)])?;
    let elem = cx.elem(2).or(cx.elem(3)).or(cx.elem(5));
    let shape = Shape::from_iter([batch.clone(), length, hidden]);
    cx.set_tensor(0, elem, Some(shape.clone()));
    cx.set_tensor(1, Some(Int32), Some(Shape::from_iter([batch])));
    cx.set_tensor(2, elem, Some(shape));
    Ok(())
}

fn embed(cx: &Expand<'_>) -> Result<String, String> {
    let has_segments = cx.has_input(4);
    if has_segments && !cx.has_input(1) {
        return Err("segment_embedding requires segment_ids".to_string());
    }
    let mut text = "words = Gather (word_embedding, input_ids)\n".to_string();
    text += &if cx.has_input(8) {
        "positions = Gather (position_embedding, position_ids)\n".to_string()
    } else {
        first_positions("position_embedding", "positions")
    };
    let sum = if cx.has_output(2) { "embedding_sum" } else { "sum" };
    text += &if has_segments {
        format!(
            "at_positions = Add (words, positions)
            segments = Gather (segment_embedding, segment_ids)
            {sum} = Add (at_positions, segments)\n"
        )
    } else {
        format!("{sum} = Add (words, positions)\n")
    };
    text +=
        &format!("output = LayerNormalization <epsilon: float = @epsilon> ({sum}, gamma, beta)\n");
    if cx.has_output(1) {
        text += &mask_index(cx.has_input(7), "mask_index");
    }
    Ok(text)
}

/// Builds the first rows of a table, one for each word of `input_ids`: the positions from 0 on.
pub(super) fn first_positions(table: &str, into: &str) -> String {
    vector("from", &[0])
        + &format!(
            "length = Shape <start = 1, end = 2> (input_ids)
            {into} = Slice ({table}, from, length, from)\n"
        )
}

/// Builds the number of words of each sequence of `input_ids`, from `mask` if the node has it.
pub(super) fn mask_index(has_mask: bool, into: &str) -> String {
    if has_mask {
        vector("last_axis", &[1])
            + &scalar("one_number", 1)
            + &format!(
                "one_word = CastLike (one_number, mask)
                is_kept = Equal (mask, one_word)
                kept = CastLike (is_kept, mask)
                {into} = ReduceSum <keepdims = 0> (kept, last_axis)\n"
            )
    } else {
        format!(
            "batch = Shape <start = 0, end = 1> (input_ids)
            {into} = ConstantOfShape <value = int32[1] {{0}}> (batch)\n"
        )
    }
}
