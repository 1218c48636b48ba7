//! The function of FlexAttention.

use super::copied_heads;
use crate::function::{BFLOAT16, DOUBLE, Expand, FLOAT, FLOAT16, float_scalar, scalar, vector};

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
    let (score, score_mod) = modified(
        cx,
        "score_mod",
        "typed_scores",
        &format!("Cast <to = {precision}> (scores)"),
    )?;
    let softmax = format!("Softmax <axis = 3> ({score})");
    let (weights, prob_mod) = modified(cx, "prob_mod", "shares", &softmax)?;
    let product = match precision == elem {
        true => format!("Y = MatMul ({weights}, values)"),
        false => format!(
            "wide_values = Cast <to = {precision}> (values)
            wide = MatMul ({weights}, wide_values)
            Y = Cast <to = {elem}> (wide)"
        ),
    };
    let third = vector("third", &[2]);
    let keys = copied_heads("keys", "K", "features");
    let values = copied_heads("values", "V", "value_features");
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

/// A value and what the graph of an attribute makes of it: the name of the result, and the nodes.
fn modified(cx: &Expand<'_>, attribute: &str, name: &str, value: &str) -> Option<(String, String)> {
    if cx.has(attribute) {
        let graph = cx.graph(attribute, &format!("{attribute}_"))?;
        let ([input], [output]) = (&graph.inputs[..], &graph.outputs[..]) else {
            return None;
        };
        if !graph.nodes.is_empty() || input != output {
            // The graph's own names are kept, and so it gets its input and gives its output without more nodes.
            return Some((
                output.clone(),
                format!("{input} = {value}\n{}", graph.nodes),
            ));
        }
    }
    let result = format!("modified_{name}");
    let nodes = format!("{name} = {value}\n{result} = Identity ({name})");
    Some((result, nodes))
}
