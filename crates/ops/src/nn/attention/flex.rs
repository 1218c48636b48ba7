//! The function of FlexAttention.

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
                features = Gather <axis = 0> (query_sizes, last)
                float_features = Cast <to = 1> (features)
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
    let (groups, keys, values) = (
        vector("third", &[2]),
        repeated("K", "keys"),
        repeated("V", "values"),
    );
    Some(format!(
        "batch = Shape <start = 0, end = 1> (Q)
        length = Shape <start = -2, end = -1> (K)
        heads = Shape <start = 1, end = 2> (Q)
        key_heads = Shape <start = 1, end = 2> (K)
        repeats = Div (heads, key_heads)
        {groups}
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

/// Each head as often as query heads share it.
fn repeated(input: &str, name: &str) -> String {
    format!(
        "{name}_apart = Unsqueeze ({input}, third)
        {name}_features = Shape <start = 3, end = 4> ({input})
        {name}_repeated_sizes = Concat <axis = 0> (batch, key_heads, repeats, length, {name}_features)
        {name}_repeated = Expand ({name}_apart, {name}_repeated_sizes)
        {name}_sizes = Concat <axis = 0> (batch, heads, length, {name}_features)
        {name} = Reshape ({name}_repeated, {name}_sizes)"
    )
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
