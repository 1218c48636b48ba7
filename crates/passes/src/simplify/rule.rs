//! The table of rules: names, levels, and the operators at which each is looked for.

use sardonyx_model::NodeId;
use sardonyx_ops::OpDef;
use sardonyx_ops::operators::{
    ABS, ADD, AND, ATTENTION, AVERAGE_POOL, BATCH_NORMALIZATION, CAST, CAST_LIKE, CEIL, CLIP,
    CONCAT, CONV, CONV_TRANSPOSE, DIV, DROPOUT, EINSUM, EXPAND, FLATTEN, FLOOR, GATHER, GEMM, GRU,
    IDENTITY, LOG, LSTM, MATMUL, MAX, MAX_POOL, MEAN, MIN, MUL, NEG, NOT, OR, PAD, POW, REDUCE_MAX,
    REDUCE_MEAN, REDUCE_MIN, REDUCE_PROD, REDUCE_SUM, RELU, RESHAPE, RNN, ROUND, SIGN, SLICE,
    SPLIT, SQRT, SQUEEZE, SUB, SUM, TILE, TRANSPOSE, UNSQUEEZE, WHERE, XOR,
};

use super::{arithmetic, chains, linear, no_ops, shapes, spelled, views};
use crate::fuse::{attention, normalization, rotary};
use crate::matcher::{Match, Matcher};

/// Extent of rewrites.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SimplifyLevel {
    /// No floating-point operation is changed, reordered or merged: results keep their bits.
    #[default]
    Exact,
    /// Floating-point operations may be merged: results change by rounding.
    Close,
}

impl SimplifyLevel {
    /// Returns the name, as in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            SimplifyLevel::Exact => "exact",
            SimplifyLevel::Close => "close",
        }
    }
}

/// A rule of simplification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimplifyRule {
    /// Name, as in reports and in options that leave rules out.
    pub name: &'static str,
    /// Level from which on the rule is applied.
    pub level: SimplifyLevel,
    /// Description of the rewrite, for people.
    pub about: &'static str,
}

/// Function that looks for a rewrite at a node.
type Find = for<'a, 'b> fn(&'a Matcher<'b>, NodeId) -> Match;

/// A rule that is looked for at single nodes.
pub(super) struct NodeRule {
    pub(super) rule: SimplifyRule,
    /// Operators of the nodes.
    pub(super) ops: &'static [&'static OpDef],
    pub(super) find: Find,
}

const fn exact(
    name: &'static str,
    ops: &'static [&'static OpDef],
    find: Find,
    about: &'static str,
) -> NodeRule {
    NodeRule { rule: SimplifyRule { name, level: SimplifyLevel::Exact, about }, ops, find }
}

const fn close(
    name: &'static str,
    ops: &'static [&'static OpDef],
    find: Find,
    about: &'static str,
) -> NodeRule {
    NodeRule { rule: SimplifyRule { name, level: SimplifyLevel::Close, about }, ops, find }
}

const fn whole(name: &'static str, about: &'static str) -> SimplifyRule {
    SimplifyRule { name, level: SimplifyLevel::Exact, about }
}

/// Rules that look at whole graphs.
pub(super) const FOLD: SimplifyRule = whole(
    "fold",
    "computes nodes that depend on constants alone; at `exact`, floating-point operators only if their results are defined to the bit, and no operands of products, as engines sum products with constants in another order",
);
pub(super) const SIZES: SimplifyRule = whole(
    "sizes",
    "computes integers that inference knows, such as `Shape` of known sizes, and computes equal symbolic sizes once",
);
pub(super) const DUPLICATES: SimplifyRule =
    whole("duplicates", "computes equal nodes once, and stores equal constants once");
pub(super) const DEAD: SimplifyRule =
    whole("dead", "removes nodes, initializers and functions that no output needs");
pub(super) const CONSTANTS: SimplifyRule = whole(
    "constants",
    "stores `Constant` nodes and the constants of inner graphs as initializers of the main graph",
);
pub(super) const BRANCHES: SimplifyRule = whole(
    "branches",
    "replaces `If` with a known condition by its branch, and `Loop` by its initial values where it has no iteration or by its body where it has one",
);
pub(super) const SEQUENCES: SimplifyRule =
    whole("sequences", "replaces sequences that are read at constant positions alone by tensors");

pub(super) const SLICES: SimplifyRule =
    whole("slices", "replaces `Slice`s that together are a whole tensor by `Split`");

pub(super) const ZERO_STATES: SimplifyRule =
    whole("zero-states", "omits initial states of `RNN`, `GRU` and `LSTM` that are zero");

pub(super) const WHOLE: [SimplifyRule; 9] =
    [FOLD, SIZES, DUPLICATES, DEAD, CONSTANTS, BRANCHES, SEQUENCES, SLICES, ZERO_STATES];

/// Rules at single nodes, tried in this order. An earlier one may make the anchor of a later one.
pub(super) static NODE_RULES: &[NodeRule] = &[
    exact("identity", &[&IDENTITY], no_ops::find_identity, "removes `Identity`"),
    exact(
        "cast",
        &[&CAST, &CAST_LIKE],
        no_ops::find_cast,
        "removes `Cast` and `CastLike` to the type of the input",
    ),
    exact(
        "cast-chain",
        &[&CAST],
        chains::find_casts,
        "removes the first of two `Cast`s if it loses nothing",
    ),
    exact("dropout", &[&DROPOUT], no_ops::find_dropout, "removes `Dropout` outside of training"),
    exact(
        "same-shape",
        &[&RESHAPE, &FLATTEN, &SQUEEZE, &UNSQUEEZE, &EXPAND, &TILE, &SLICE],
        no_ops::find_same_shape,
        "removes `Reshape`, `Flatten`, `Squeeze`, `Unsqueeze`, `Expand`, `Tile` and `Slice` that keep the shape",
    ),
    exact("pad", &[&PAD], no_ops::find_pad, "removes `Pad` of nothing"),
    exact(
        "transpose",
        &[&TRANSPOSE],
        no_ops::find_transpose,
        "removes `Transpose` that keeps the order of axes",
    ),
    exact(
        "single-operand",
        &[&CONCAT, &SPLIT, &SUM, &MAX, &MIN, &MEAN],
        no_ops::find_single,
        "removes `Concat`, `Sum`, `Max`, `Min` and `Mean` of one tensor, and `Split` into one",
    ),
    exact(
        "empty-operand",
        &[&CONCAT],
        no_ops::find_empty,
        "removes operands of `Concat` without elements",
    ),
    exact(
        "split-concat",
        &[&CONCAT],
        no_ops::find_split,
        "removes `Concat` of all parts of a `Split`",
    ),
    exact(
        "neutral",
        &[&ADD, &SUB, &MUL, &DIV, &AND, &OR, &XOR],
        arithmetic::find_neutral,
        "removes `x * 1`, `x / 1`, `x - 0`, `x + -0.0`, `x and true`, `x or false`",
    ),
    exact(
        "twice",
        &[&NEG, &NOT, &ABS, &RELU, &CEIL, &FLOOR, &ROUND, &SIGN],
        arithmetic::find_twice,
        "removes the second of two equal `Abs`, `Relu`, `Ceil`, `Floor`, `Round` or `Sign`, and pairs of `Neg` or `Not`",
    ),
    exact("clip", &[&CLIP], arithmetic::find_clip, "removes `Clip` without bounds"),
    exact(
        "where",
        &[&WHERE],
        arithmetic::find_where,
        "removes `Where` with a constant condition or equal operands",
    ),
    exact("transpose-chain", &[&TRANSPOSE], chains::find_transposes, "merges two `Transpose`s"),
    exact(
        "transpose-of-views",
        &[&SQUEEZE],
        chains::find_transpose_of_views,
        "merges `Unsqueeze`, `Transpose` and `Squeeze` of the same axes",
    ),
    exact(
        "view-chain",
        &[&RESHAPE, &FLATTEN, &SQUEEZE, &UNSQUEEZE],
        chains::find_views,
        "merges chains of `Reshape`, `Flatten`, `Squeeze` and `Unsqueeze`",
    ),
    exact(
        "target-shape",
        &[&RESHAPE, &EXPAND],
        shapes::find_target,
        "replaces a computed target shape of `Reshape` or `Expand` by a constant with at most one open size",
    ),
    exact("slice-chain", &[&SLICE], chains::find_slices, "merges two `Slice`s of different axes"),
    exact("concat-chain", &[&CONCAT], chains::find_concats, "merges `Concat`s along the same axis"),
    exact(
        "keepdims",
        &[&RESHAPE, &FLATTEN, &SQUEEZE],
        chains::find_keepdims,
        "drops reduced axes in `ReduceMax`, `ReduceMean`, `ReduceMin`, `ReduceProd` and `ReduceSum` rather than after them",
    ),
    exact(
        "one-element",
        &[&RESHAPE, &SQUEEZE, &UNSQUEEZE],
        views::find_one_element,
        "merges `Gather` or `Slice` of one element with the `Squeeze`, `Unsqueeze` or `Reshape` after it",
    ),
    exact(
        "part-of-shape",
        &[&GATHER, &SLICE],
        views::find_part_of_shape,
        "replaces `Gather` or `Slice` of a `Shape` by a `Shape` of these axes",
    ),
    exact(
        "not",
        &[&NOT],
        views::find_not,
        "replaces `Not` of a comparison of integers by the opposite comparison",
    ),
    exact(
        "around",
        views::AROUND_ANCHORS,
        views::find_around,
        "removes two views or `Transpose`s that cancel each other around operators on single elements",
    ),
    exact(
        "moving-einsum",
        &[&EINSUM],
        linear::find_moving_einsum,
        "replaces `Einsum` that only moves axes by `Transpose`",
    ),
    close(
        "nearly-neutral",
        &[&ADD, &POW],
        arithmetic::find_nearly_neutral,
        "removes `x + 0.0`, which makes `0.0` of `-0.0`, and `x ^ 1`, which engines round",
    ),
    close(
        "activation",
        spelled::ACTIVATION_ANCHORS,
        spelled::find_activation,
        "replaces spelled out `Gelu`, `Swish`, `HardSigmoid`, `HardSwish`, `Mish`, `Softplus`, `Softsign`, `Sigmoid` and `Relu`",
    ),
    close(
        "reduction",
        &[&SQRT, &LOG, &REDUCE_SUM],
        spelled::find_reduction,
        "replaces spelled out `ReduceL2`, `ReduceL1`, `ReduceSumSquare`, `ReduceLogSum`, `ReduceLogSumExp` and `LogSoftmax`",
    ),
    close(
        "quotient",
        &[&MUL],
        spelled::find_quotient,
        "replaces the product with a `Reciprocal` by a quotient",
    ),
    close(
        "layer-norm",
        &[&ADD, &MUL],
        find_layer_norm,
        "replaces spelled out `LayerNormalization`",
    ),
    close("rms-norm", &[&MUL], normalization::rms, "replaces spelled out `RMSNormalization`"),
    close("rotary", &[&ADD], rotary::rotary, "replaces spelled out `RotaryEmbedding`"),
    close(
        "attention",
        &[&MATMUL],
        find_attention,
        "replaces spelled out `Attention` without a mask",
    ),
    close(
        "batch-norm",
        &[&BATCH_NORMALIZATION],
        linear::find_batch_norm,
        "merges `BatchNormalization` into the `Conv`, `ConvTranspose` or `Gemm` before it",
    ),
    close(
        "scaled-weight",
        &[&MUL, &DIV],
        linear::find_scaled,
        "multiplies a constant factor into the weight of the `Conv`, `Gemm` or `MatMul` before it",
    ),
    close(
        "scaled-operand",
        &[&MUL, &DIV],
        linear::find_scaled_operand,
        "multiplies a constant factor of an operand into the other operand, a weight",
    ),
    close(
        "bias",
        &[&ADD],
        linear::find_bias,
        "makes a constant that is added the bias of `Conv` or `ConvTranspose`, or of `Gemm`",
    ),
    close(
        "global-pool",
        &[&RESHAPE, &FLATTEN, &SQUEEZE],
        views::find_pooled,
        "replaces `GlobalAveragePool` and `GlobalMaxPool` whose axes are dropped by `ReduceMean` and `ReduceMax`",
    ),
    close(
        "weighted-sum",
        &[&REDUCE_SUM],
        linear::find_weighted_sum,
        "replaces the sum of products with a constant vector by `MatMul`",
    ),
    close("gemm", &[&ADD], linear::find_gemm, "replaces `MatMul` and `Add` of matrices by `Gemm`"),
    close(
        "matmul",
        &[&RESHAPE],
        linear::find_matmul,
        "replaces `Gemm` between two `Reshape`s by `MatMul` and `Add`",
    ),
    close(
        "conv-pad",
        &[&CONV, &AVERAGE_POOL],
        linear::find_conv_pad,
        "moves `Pad` with zeros into `Conv` or `AveragePool`",
    ),
    close(
        "max-pool-pad",
        &[&MAX_POOL],
        linear::find_max_pool_pad,
        "moves `Pad` with minus infinity into `MaxPool`; of NaN, engines find the maximum by position",
    ),
    close(
        "einsum",
        &[&EINSUM],
        linear::find_einsum,
        "replaces `Einsum` that is a product of matrices by `MatMul`",
    ),
];

/// Operators that sum products. An engine packs constant operands ahead of time and may sum in
/// another order then.
pub(super) const PRODUCTS: [&OpDef; 9] =
    [&ATTENTION, &CONV, &CONV_TRANSPOSE, &EINSUM, &GEMM, &GRU, &LSTM, &MATMUL, &RNN];

/// Reductions whose results keep their bits without `keepdims`.
pub(super) const REDUCTIONS: [&OpDef; 5] =
    [&REDUCE_MAX, &REDUCE_MEAN, &REDUCE_MIN, &REDUCE_PROD, &REDUCE_SUM];

/// Operators with a constant weight, which a factor or a bias can be merged into.
pub(super) const CONVOLUTIONS: [&OpDef; 2] = [&CONV, &CONV_TRANSPOSE];

fn find_layer_norm(cx: &Matcher<'_>, anchor: NodeId) -> Match {
    if cx.is(anchor, &ADD) {
        normalization::layer(cx, anchor)
    } else {
        normalization::layer_without_bias(cx, anchor)
    }
}

fn find_attention(cx: &Matcher<'_>, anchor: NodeId) -> Match {
    attention::attention_without_mask(cx, anchor)
}

/// Returns all rules, those of whole graphs first.
pub fn simplify_rules() -> Vec<SimplifyRule> {
    WHOLE.into_iter().chain(NODE_RULES.iter().map(|rule| rule.rule)).collect()
}
