//! `FlexAttention`.

use sardonyx_model::{Shape, Type};
use sardonyx_tensor::DataType;

use super::{check_sharing, repeat_heads};
use crate::function::{BFLOAT16, DOUBLE, Expand, FLOAT, FLOAT16, float_scalar, scalar, vector};
use crate::infer::{Infer, InferError, Inferred};
use crate::rules::shared_dim;

/// Infers `[B, Hq, L, F]` from queries `[B, Hq, L, E]`, keys `[B, Hk, S, E]` and values `[B, Hk, S,
/// F]`.
pub(super) fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    for input in 0..3 {
        cx.demand_rank(input, 4)?;
        if let (Some(queries), Some(found)) = (cx.elem(0), cx.elem(input))
            && queries != found
        {
            return cx.fail(format_args!("input {input} is {found}, but queries are {queries}"));
        }
    }
    let batch = shared_dim(cx, "elements of the batch", &[(0, 0), (1, 0), (2, 0)])?;
    let heads = shared_dim(cx, "query heads", &[(0, 1)])?;
    let key_heads = shared_dim(cx, "key heads", &[(1, 1), (2, 1)])?;
    check_sharing(cx, &heads, &key_heads)?;
    let queries = shared_dim(cx, "queries", &[(0, 2)])?;
    let keys = shared_dim(cx, "keys", &[(1, 2), (2, 2)])?;
    shared_dim(cx, "the size of a head", &[(0, 3), (1, 3)])?;
    let size = shared_dim(cx, "the size of a head", &[(2, 3)])?;
    let scores = Type::Tensor(sardonyx_model::TensorType {
        elem: precision(cx)?,
        shape: Some([&batch, &heads, &queries, &keys].into_iter().cloned().collect()),
    });
    for graph in ["score_mod", "prob_mod"] {
        check_modifier(cx, graph, &scores)?;
    }
    let shape: Shape = [batch, heads, queries, size].into_iter().collect();
    let elem = (0..3).find_map(|input| cx.elem(input));
    cx.set_tensor(0, elem, Some(shape));
    Ok(())
}

/// Returns the type in which weights are computed.
fn precision(cx: &Infer<'_>) -> Result<Option<DataType>, InferError> {
    use DataType::{Bfloat16, Double, Float, Float16};
    let Some(number) = cx.int("softmax_precision") else {
        return Ok(cx.elem(0).map(|elem| if elem == Double { Double } else { Float }));
    };
    let given = i32::try_from(number).ok().and_then(DataType::from_number);
    match given.filter(|elem| [Float, Float16, Bfloat16, Double].contains(elem)) {
        Some(elem) => Ok(Some(elem)),
        None => cx.fail(format_args!("softmax_precision {number} is not supported")),
    }
}

/// Checks that a graph returns scores or weights of the type that it gets.
fn check_modifier(cx: &Infer<'_>, graph: &str, scores: &Type) -> Result<(), InferError> {
    let input = Inferred { ty: Some(scores.clone()), known: None };
    let Some(outputs) = cx.subgraph(graph, &[input])? else {
        return Ok(());
    };
    let [output] = &outputs[..] else {
        return cx.fail(format_args!("{graph} has {} outputs, not 1", outputs.len()));
    };
    match &output.ty {
        Some(found) if found.merge(scores).is_none() => {
            cx.fail(format_args!("{graph} returns {found} for {scores}"))
        }
        _ => Ok(()),
    }
}

pub(super) fn body(cx: &Expand<'_>) -> Option<String> {
    let elem = cx.elem(0)?;
    if cx.elem(1)? != elem || cx.elem(2)? != elem {
        return None;
    }
    let precision = match (cx.int("softmax_precision"), elem) {
        (Some(precision), _) => precision,
        (None, DOUBLE) => DOUBLE,
        (None, _) => FLOAT,
    };
    if ![FLOAT, FLOAT16, BFLOAT16, DOUBLE].contains(&precision) {
        return None;
    }
    let scale = match cx.float("scale") {
        Some(scale) => float_scalar("scale", scale),
        None => {
            scalar("last", 3)
                + &float_scalar("one", 1.0)
                + "query_sizes = Shape (Q)
                query_features = Gather <axis = 0> (query_sizes, last)
                float_features = Cast <to = 1> (query_features)
                root = Sqrt (float_features)
                quotient = Div (one, root)
                scale = Identity (quotient)"
        }
    };
    let (score, score_mod) = build_modified(
        cx,
        "score_mod",
        "typed_scores",
        &format!("Cast <to = {precision}> (scores)"),
    )?;
    let softmax = format!("Softmax <axis = 3> ({score})");
    let (weights, prob_mod) = build_modified(cx, "prob_mod", "shares", &softmax)?;
    let product = if precision == elem {
        format!("Y = MatMul ({weights}, values)")
    } else {
        format!(
            "wide_values = Cast <to = {precision}> (values)
            wide = MatMul ({weights}, wide_values)
            Y = Cast <to = {elem}> (wide)"
        )
    };
    let third = vector("third", &[2]);
    let keys = repeat_heads("keys", "K", "features");
    let values = repeat_heads("values", "V", "value_features");
    Some(format!(
        "batch = Shape <start = 0, end = 1> (Q)
        key_count = Shape <start = -2, end = -1> (K)
        heads = Shape <start = 1, end = 2> (Q)
        key_heads = Shape <start = 1, end = 2> (K)
        repeats = Div (heads, key_heads)
        features = Shape <start = 3, end = 4> (K)
        value_features = Shape <start = 3, end = 4> (V)
        {third}
        {keys}
        {values}
        {scale}
        scale_root = Sqrt (scale)
        typed_root = Cast <to = {elem}> (scale_root)
        scaled_queries = Mul (Q, typed_root)
        scaled_keys = Mul (keys, typed_root)
        turned_keys = Transpose <perm = [0, 1, 3, 2]> (scaled_keys)
        scores = MatMul (scaled_queries, turned_keys)
        {score_mod}
        {prob_mod}
        {product}"
    ))
}

/// Builds a value and the graph of an attribute that changes it. Returns the name of the result and
/// the nodes.
fn build_modified(
    cx: &Expand<'_>,
    attribute: &str,
    name: &str,
    value: &str,
) -> Option<(String, String)> {
    if cx.has(attribute) {
        let graph = cx.graph(attribute, &format!("{attribute}_"))?;
        let ([input], [output]) = (&graph.inputs[..], &graph.outputs[..]) else {
            return None;
        };
        if !graph.nodes.is_empty() || input != output {
            // The graph keeps its own names, so that its input and output need no further nodes.
            return Some((output.clone(), format!("{input} = {value}\n{}", graph.nodes)));
        }
    }
    let result = format!("modified_{name}");
    let nodes = format!("{name} = {value}\n{result} = Identity ({name})");
    Some((result, nodes))
}

#[cfg(test)]
mod tests {
    use super::super::FLEX_ATTENTION;
    use crate::AttrValue::Int;
    use crate::tensor::testing::check;

    #[test]
    fn the_result_has_a_row_per_query() {
        check(
            &FLEX_ATTENTION,
            1,
            &[
                (
                    &[],
                    "float[B, Hq, L, E]; float[B, Hk, S, E]; float[2, Hk, S, F]",
                    "float[2, Hq, L, F]",
                ),
                (&[], "-; -; double[...]", "double[?, ?, ?, ?]"),
                (&[], "float[2, 8, 64]; -; -", "FlexAttention: input 0 must have rank 4, not 3"),
                (
                    &[],
                    "float[2, 8, 3, 64]; float16[...]; -",
                    "FlexAttention: input 1 is float16, but queries are float",
                ),
                (
                    &[],
                    "float[2, 8, 3, 64]; float[2, 3, 5, 64]; -",
                    "FlexAttention: 8 query heads are not a multiple of 3 key heads",
                ),
                (
                    &[],
                    "float[2, 8, 3, 64]; float[2, 8, 5, 64]; float[2, 8, 6, 64]",
                    "FlexAttention: keys of input 2 and of others differ (5 and 6)",
                ),
                (
                    &[("softmax_precision", Int(7))],
                    "-; -; -",
                    "FlexAttention: softmax_precision 7 is not supported",
                ),
            ],
        );
    }
}
