//! `MoE`: a mixture of experts, each of two or three matrices, of which a router picks some for
//! each token.
//!
//! The function computes all experts for all tokens and drops the results that are not picked,
//! since nodes cannot gather tokens by expert without loops.

use sardonyx_tensor::DataType::{Bfloat16, Float, Float16};

use super::DOMAIN;
use crate::def::OpDef;
use crate::facts::{float, input, int, output, string, types};
use crate::function::{Expand, FLOAT, float_scalar, vector};
use crate::infer::{Infer, InferError};
use crate::rules::{same_as_first, shared_dim};
use crate::typeset::TypeSet;

pub(crate) static MOE: OpDef = OpDef::new("MoE")
    .domain(DOMAIN)
    .about(
        "Mixture of experts. The `k` experts of a token with the largest softmax of \
         `router_probs` each compute `fc2 * activation(fc1 * token)`; the results are weighted by \
         the softmax and added up. With `swiglu`, or with `fc3`, the activation is gated: \
         `swiglu` is `g * sigmoid(activation_alpha * g) * (l + activation_beta)` of a gate `g` and \
         a linear part `l`, which fc1 gives interleaved or one after the other, or fc1 and fc3 \
         give.",
    )
    .since(
        1,
        &[
            input("input", "T"),
            input("router_probs", "T"),
            input("fc1_experts_weights", "T"),
            input("fc1_experts_bias", "T").optional(),
            input("fc2_experts_weights", "T"),
            input("fc2_experts_bias", "T").optional(),
            input("fc3_experts_weights", "T").optional(),
            input("fc3_experts_bias", "T").optional(),
            output("output", "T"),
            float("activation_alpha").or_float(1.0),
            float("activation_beta").or_float(0.0),
            string("activation_type").or_word("relu"),
            int("k").or(1),
            int("normalize_routing_weights").or(0),
            int("swiglu_fusion").or(0),
            float("swiglu_limit"),
            int("use_sparse_mixer").or(0),
            types("T", TypeSet::tensors(&[Float, Float16, Bfloat16])),
        ],
    )
    .infer(infer)
    .body_or_reason(1, body)
    .unknown_cost();

const ROUTER: usize = 1;
const FC1: usize = 2;
const FC1_BIAS: usize = 3;
const FC2: usize = 4;
const FC2_BIAS: usize = 5;
const FC3: usize = 6;
const FC3_BIAS: usize = 7;

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    for (input, rank) in
        [(ROUTER, 2), (FC1, 3), (FC1_BIAS, 2), (FC2, 3), (FC2_BIAS, 2), (FC3, 3), (FC3_BIAS, 2)]
    {
        cx.demand_rank(input, rank)?;
    }
    let experts = [(ROUTER, 1), (FC1, 0), (FC1_BIAS, 0), (FC2, 0), (FC2_BIAS, 0), (FC3, 0)];
    let experts = shared_dim(cx, "experts", &experts)?;
    if let (Some(k), Some(experts)) = (cx.int("k"), experts.known())
        && !(1..=experts).contains(&k)
    {
        return cx.fail(format_args!("k is {k}, but there are {experts} experts"));
    }
    let features = shared_dim(cx, "features", &[(FC1, 2), (FC2, 1), (FC3, 2)])?;
    if let Some(last) = cx.shape(0).and_then(|shape| shape.last().cloned()) {
        cx.same_dim(&last, &features, "features of the input and of the experts")?;
    }
    same_as_first(cx)
}

fn body(cx: &Expand<'_>) -> Result<String, String> {
    if cx.int("use_sparse_mixer").unwrap_or(0) != 0 {
        return Err("use_sparse_mixer is not supported".to_string());
    }
    Ok([
        vector("bias_axis", &[1]),
        "tokens = Flatten <axis = -1> (input)\n".to_string(),
        routes(cx),
        layer("fc1", "tokens", cx.has_input(FC1_BIAS), "hidden"),
        activation(cx)?,
        layer("fc2", "activated", cx.has_input(FC2_BIAS), "experts_output"),
        sum(),
    ]
    .concat())
}

/// Builds `weights`, the factor of the result of each expert and token, or 0 if it is not picked.
/// The last one of equal experts is picked, so the search begins at the end.
fn routes(cx: &Expand<'_>) -> String {
    let normalized = match cx.int("normalize_routing_weights") {
        Some(1) => {
            "best_sum = ReduceSum <keepdims = 1> (best, expert_axis)
            picked = Div (best, best_sum)\n"
        }
        _ => "picked = Identity (best)\n",
    };
    vector("picks", &[cx.int("k").unwrap_or(1)])
        + &vector("expert_axis", &[1])
        + &vector("from_last", &[-1])
        + &vector("to_first", &[i64::MIN])
        + &vector("one_back", &[-1])
        + &vector("one", &[1])
        + &format!(
            "logits = Cast <to = {FLOAT}> (router_probs)
            probabilities = Softmax <axis = 1> (logits)
            turned = Slice (probabilities, from_last, to_first, expert_axis, one_back)
            best, best_places = TopK <axis = 1> (turned, picks)
            expert_count = Shape <start = 1, end = 2> (router_probs)
            last_expert = Sub (expert_count, one)
            best_experts = Sub (last_expert, best_places)
            {normalized}route_sizes = Shape (probabilities)
            no_routes = ConstantOfShape (route_sizes)
            routes = ScatterElements <axis = 1> (no_routes, best_experts, picked)
            routes_by_expert = Transpose <perm = [1, 0]> (routes)
            weight_axis = Constant <value = int64[1] {{2}}> ()
            weights = Unsqueeze (routes_by_expert, weight_axis)\n"
        )
}

/// Builds the nodes of one matrix of each expert.
fn layer(name: &str, of: &str, has_bias: bool, into: &str) -> String {
    let product = if has_bias { format!("{name}_product") } else { into.to_string() };
    let mut text = format!(
        "{name}_turned = Transpose <perm = [0, 2, 1]> ({name}_experts_weights)
        {product} = MatMul ({of}, {name}_turned)\n"
    );
    if has_bias {
        text += &format!(
            "{name}_bias_rows = Unsqueeze ({name}_experts_bias, bias_axis)
            {into} = Add ({product}, {name}_bias_rows)\n"
        );
    }
    text
}

/// Builds `activated` from `hidden`.
fn activation(cx: &Expand<'_>) -> Result<String, String> {
    let kind = cx.string("activation_type").unwrap_or_default();
    let has_third = cx.has_input(FC3);
    let third = || layer("fc3", "tokens", cx.has_input(FC3_BIAS), "linear");
    if kind == "swiglu" {
        return swiglu(cx, has_third.then(third));
    }
    let into = if has_third { "gate" } else { "activated" };
    let mut text = match kind.as_str() {
        "relu" => format!("{into} = Relu (hidden)\n"),
        "gelu" => format!("{into} = Gelu <approximate = \"tanh\"> (hidden)\n"),
        "silu" => format!("{into} = Swish (hidden)\n"),
        "identity" => format!("{into} = Identity (hidden)\n"),
        _ => return Err(format!("its activation_type '{kind}' is not implemented")),
    };
    if has_third {
        text += &third();
        text += "activated = Mul (gate, linear)\n";
    }
    Ok(text)
}

/// Builds the gated activation. `third` makes `linear` if there is another matrix for it.
fn swiglu(cx: &Expand<'_>, third: Option<String>) -> Result<String, String> {
    let mut text = match (cx.int("swiglu_fusion").unwrap_or(0), third) {
        (0, Some(third)) => third + "gate = Identity (hidden)\n",
        (0, None) => return Err("swiglu without swiglu_fusion requires fc3".to_string()),
        (1 | 2, Some(_)) => return Err("swiglu_fusion is given beside fc3".to_string()),
        (1, None) => {
            vector("even", &[0])
                + &vector("odd", &[1])
                + &vector("past_the_end", &[i64::MAX])
                + &vector("by_two", &[2])
                + &vector("feature_axis", &[2])
                + "gate = Slice (hidden, even, past_the_end, feature_axis, by_two)
                linear = Slice (hidden, odd, past_the_end, feature_axis, by_two)\n"
        }
        (2, None) => "gate, linear = Split <axis = 2, num_outputs = 2> (hidden)\n".to_string(),
        (other, _) => return Err(format!("attribute 'swiglu_fusion' is {other}, not 0, 1 or 2")),
    };
    let (gate, linear) = match cx.float("swiglu_limit") {
        Some(limit) => {
            text += &float_scalar("limit_number", limit);
            text += "limit = CastLike (limit_number, input)
                least = Neg (limit)
                low_gate = Min (gate, limit)
                low_linear = Clip (linear, least, limit)\n";
            ("low_gate", "low_linear")
        }
        None => ("gate", "linear"),
    };
    text += &float_scalar("beta_number", cx.float("activation_beta").unwrap_or(0.0));
    Ok(text
        + &format!(
            "beta = CastLike (beta_number, input)
            swish = Swish <alpha: float = @activation_alpha> ({gate})
            shifted = Add ({linear}, beta)
            activated = Mul (swish, shifted)\n"
        ))
}

/// Builds the sum of the results of experts. Results that are not picked are dropped before the
/// multiplication, since they may be infinite.
fn sum() -> String {
    float_scalar("nothing", 0.0)
        + &vector("experts_axis", &[0])
        + &format!(
            "wide_output = Cast <to = {FLOAT}> (experts_output)
            is_picked = Greater (weights, nothing)
            kept = Where (is_picked, wide_output, nothing)
            weighted = Mul (kept, weights)
            total = ReduceSum <keepdims = 0> (weighted, experts_axis)
            typed = CastLike (total, input)
            sizes = Shape (input)
            output = Reshape <allowzero = 1> (typed, sizes)"
        )
}
