//! The function of `Attention`.

use sardonyx_tensor::DataType::Bool;

use super::repeat_heads;
use crate::function::{
    BFLOAT16, DOUBLE, Expand, FLOAT, FLOAT16, float_scalar, float_vector, scalar, vector,
};

// Some names are those of the reference's function, since its tests find nodes by them.

/// Indices of inputs and outputs.
const MASK: usize = 3;
const PAST_KEY: usize = 4;
const PAST_VALUE: usize = 5;
/// Number of valid keys of an outer cache, for each element of the batch. Since 24.
const VALID_KEYS: usize = 6;
const PRESENT_KEY: usize = 1;
const PRESENT_VALUE: usize = 2;
const SCORES: usize = 3;

pub(super) fn body(cx: &Expand<'_>) -> Option<String> {
    let elem = cx.elem(0)?;
    let precision = cx.int("softmax_precision").unwrap_or(elem);
    if ![FLOAT, BFLOAT16, FLOAT16, DOUBLE].contains(&precision)
        || (cx.since() >= 25 && !is_valid(cx))
    {
        return None;
    }
    let packed = heads(cx, "q_num_heads") > 0 && heads(cx, "kv_num_heads") > 0;
    let parts = [
        split_heads(cx, packed),
        scale(cx, elem),
        cache(cx),
        mask(cx)?,
        causal_limit(cx),
        window(cx),
        padding(cx),
        shared_heads(),
        scores(cx, elem, precision),
        output(packed),
    ];
    Some(parts.join("\n"))
}

fn heads(cx: &Expand<'_>, attribute: &str) -> i64 {
    cx.int(attribute).unwrap_or(0)
}

fn is_causal(cx: &Expand<'_>) -> bool {
    cx.int("is_causal") == Some(1)
}

/// Whether the caller keeps the cache of keys and values.
fn cache_is_outside(cx: &Expand<'_>) -> bool {
    cx.has_input(VALID_KEYS) && !cx.has_input(PAST_KEY)
}

/// Whether the call meets the conditions of the standard since 25.
fn is_valid(cx: &Expand<'_>) -> bool {
    let counts_heads = cx.has("q_num_heads") || cx.has("kv_num_heads");
    let outer_and_inner = cx.has_input(PAST_KEY) || cx.has_output(PRESENT_KEY);
    limits(cx).iter().all(|limit| *limit >= -1)
        && cx.has_input(PAST_KEY) == cx.has_input(PAST_VALUE)
        && cx.has_output(PRESENT_KEY) == cx.has_output(PRESENT_VALUE)
        && !(cx.has_input(VALID_KEYS) && outer_and_inner)
        && !(cx.rank(0) == Some(4) && counts_heads)
}

/// Returns the numbers of keys to the left and to the right that a query sees; -1 for all.
fn limits(cx: &Expand<'_>) -> [i64; 2] {
    ["left_window_size", "right_window_size"].map(|name| cx.int(name).unwrap_or(-1))
}

/// Builds queries, keys and values with an axis for heads, and their sizes.
fn split_heads(cx: &Expand<'_>, packed: bool) -> String {
    let split = if packed {
        let (query, key) = (heads(cx, "q_num_heads"), heads(cx, "kv_num_heads"));
        let split = |name: &str, input: &str, sizes: &str| {
            format!(
                "{name}_split = Reshape ({input}, {sizes})
                    {name} = Transpose <perm = [0, 2, 1, 3]> ({name}_split)\n"
            )
        };
        [
            vector("given_heads", &[query]),
            vector("given_key_heads", &[key]),
            vector("rest", &[-1]),
            "query_sizes = Concat <axis = 0> (batch, queries, given_heads, rest)
                key_sizes = Concat <axis = 0> (batch, keys, given_key_heads, rest)\n"
                .to_string(),
            split("query", "Q", "query_sizes"),
            split("key", "K", "key_sizes"),
            split("value", "V", "key_sizes"),
        ]
        .concat()
    } else {
        "query = Identity (Q)\nkey = Identity (K)\nvalue = Identity (V)".to_string()
    };
    format!(
        "batch = Shape <start = 0, end = 1> (Q)
        queries = Shape <start = -2, end = -1> (Q)
        keys = Shape <start = -2, end = -1> (K)
        {split}
        heads = Shape <start = 1, end = 2> (query)
        key_heads = Shape <start = 1, end = 2> (key)
        features = Shape <start = 3, end = 4> (query)
        value_features = Shape <start = 3, end = 4> (value)"
    )
}

/// Builds the root of the scale, for both factors of the product, and constants for later parts.
fn scale(cx: &Expand<'_>, elem: i64) -> String {
    let given = cx.float("scale");
    let mut constants = vector("one", &[1])
        + &vector("zero", &[0])
        + &float_vector("float_one", 1.0)
        + &float_scalar("given_scale", given.unwrap_or(1.0));
    if cx.since() >= 24 {
        constants += &vector("last", &[-1]);
    }
    let scale = if given.is_some() { "given_scale" } else { "usual_scale" };
    format!(
        "{constants}
        float_features = Cast <to = 1> (features)
        root_of_features = Sqrt (float_features)
        usual_scale = Div (float_one, root_of_features)
        scale = Identity ({scale})
        scale_root = Sqrt (scale)
        factor = Cast <to = {elem}> (scale_root)"
    )
}

/// Builds the keys and values of earlier calls followed by those of this one.
fn cache(cx: &Expand<'_>) -> String {
    let mut text = if cx.has_input(PAST_KEY) {
        "all_keys = Concat <axis = 2> (past_key, key)
            past = Shape <start = -2, end = -1> (past_key)\n"
            .to_string()
    } else {
        "all_keys = Identity (key)\n".to_string() + &vector("past", &[0])
    };
    text += if cx.has_input(PAST_VALUE) {
        "all_values = Concat <axis = 2> (past_value, value)\n"
    } else {
        "all_values = Identity (value)\n"
    };
    if cx.has_output(PRESENT_KEY) {
        text += "present_key = Identity (all_keys)\n";
    }
    if cx.has_output(PRESENT_VALUE) {
        text += "present_value = Identity (all_values)\n";
    }
    text
}

/// Builds the summand of the scores for the mask of the call.
fn mask(cx: &Expand<'_>) -> Option<String> {
    let constants = float_vector("minus_inf", f32::NEG_INFINITY) + &float_vector("float_zero", 0.0);
    let given = if cx.has_input(MASK) {
        let bias = if cx.tensor(MASK)?.elem == Some(Bool) {
            "Where (attn_mask, float_zero, minus_inf)"
        } else {
            "Identity (attn_mask)"
        };
        // Since 24 a mask may be shorter than the keys; the other keys are hidden.
        let filled = match cx.since() {
            ..24 => "AttnBias = Identity (short_bias)",
            _ => {
                "mask_keys = Shape <start = -1> (attn_mask)
                    missing_keys = Sub (key_count, mask_keys)
                    pads = Concat <axis = 0> (zero, missing_keys)
                    hidden = CastLike (minus_inf, short_bias)
                    AttnBias = Pad (short_bias, pads, hidden, last)"
            }
        };
        format!("short_bias = {bias}\n{filled}")
    } else {
        "AttnBias = ConstantOfShape (bias_sizes)".to_string()
    };
    Some(format!(
        "key_count = Shape <start = -2, end = -1> (all_keys)
        bias_sizes = Concat <axis = 0> (queries, key_count)
        {constants}
        {given}"
    ))
}

/// Builds the bias that hides keys after a query's own position.
fn causal_limit(cx: &Expand<'_>) -> String {
    if !is_causal(cx) {
        return "AttnBiasCausalOrNot = Identity (AttnBias)".to_string();
    }
    let mut constants = vector("at_0", &[0]) + &vector("at_1", &[1]);
    let hidden = if cache_is_outside(cx) {
        constants += &vector("outer_axes", &[0, 1]);
        constants += &vector("inner_axes", &[1, 2, 3]);
        "offsets = Sub (nonpad_kv_seqlen, queries)
            each_rows = Unsqueeze (rows, outer_axes)
            each_columns = Unsqueeze (columns, outer_axes)
            each_offset = Unsqueeze (offsets, inner_axes)
            positions = Add (each_rows, each_offset)
            is_behind = Less (positions, each_columns)"
    } else {
        "positions = Add (rows, past)
            is_behind = Less (positions, columns)"
    };
    format!(
        "{constants}
        from = Squeeze (at_0, at_0)
        by = Squeeze (at_1, at_0)
        row_count = Gather (bias_sizes, from)
        column_count = Gather (bias_sizes, by)
        row_list = Range (from, row_count, by)
        rows = Unsqueeze (row_list, at_1)
        column_list = Range (from, column_count, by)
        columns = Unsqueeze (column_list, at_0)
        {hidden}
        MaskTriFloat = Where (is_behind, minus_inf, float_zero)
        MaskTri = CastLike (MaskTriFloat, AttnBias)
        AttnBiasCausalOrNot = Add (AttnBias, MaskTri)"
    )
}

/// Builds the bias that hides keys that are too far away. Since 25.
fn window(cx: &Expand<'_>) -> String {
    let [left, right] = limits(cx);
    if cx.since() < 25 {
        return String::new();
    }
    if left < 0 && right < 0 {
        return "window_bias = Identity (AttnBiasCausalOrNot)".to_string();
    }
    let mut text = vector("window_0", &[0])
        + &vector("window_1", &[1])
        + "window_from = Squeeze (window_0, window_0)
        window_by = Squeeze (window_1, window_0)
        window_queries = Squeeze (queries, window_0)
        window_keys = Squeeze (key_count, window_0)
        window_row_list = Range (window_from, window_queries, window_by)
        window_column_list = Range (window_from, window_keys, window_by)
        window_rows = Unsqueeze (window_row_list, window_1)
        window_columns = Unsqueeze (window_column_list, window_0)\n";
    if cache_is_outside(cx) {
        text += &vector("window_inner", &[1, 2, 3]);
        text += &vector("window_outer", &[0, 1]);
        text += "window_offsets = Sub (nonpad_kv_seqlen, queries)
            window_offset = Unsqueeze (window_offsets, window_inner)
            each_window_rows = Unsqueeze (window_rows, window_outer)
            each_window_columns = Unsqueeze (window_columns, window_outer)
            window_positions = Add (each_window_rows, window_offset)
            distances = Sub (window_positions, each_window_columns)\n";
    } else {
        text += "window_positions = Add (window_rows, past)
            distances = Sub (window_positions, window_columns)\n";
    }
    let limited = |distances: &str, limit: &str, name: &str| {
        format!("{name} = LessOrEqual ({distances}, {limit})\n")
    };
    let (left_name, right_name) = match (left >= 0, right >= 0) {
        (true, true) => ("near_left", "near_right"),
        _ => ("is_near", "is_near"),
    };
    if left >= 0 {
        text += &vector("left_list", &[left]);
        text += "left = Squeeze (left_list, window_0)\n";
        text += &limited("distances", "left", left_name);
    }
    if right >= 0 {
        text += &vector("right_list", &[right]);
        text += "right = Squeeze (right_list, window_0)\nto_the_right = Neg (distances)\n";
        text += &limited("to_the_right", "right", right_name);
    }
    if left >= 0 && right >= 0 {
        text += "is_near = And (near_left, near_right)\n";
    }
    text + "window_float = Where (is_near, float_zero, minus_inf)
        window = CastLike (window_float, AttnBiasCausalOrNot)
        window_bias = Add (AttnBiasCausalOrNot, window)"
}

/// Builds the bias that hides keys of an outer cache that are not valid, which completes the bias.
/// Since 24.
fn padding(cx: &Expand<'_>) -> String {
    let bias = if cx.since() < 25 { "AttnBiasCausalOrNot" } else { "window_bias" };
    match (cx.since(), cx.has_input(VALID_KEYS)) {
        (..24, _) => String::new(),
        (_, false) => format!("bias = Identity ({bias})"),
        (_, true) => {
            let constants = scalar("first_key", 0) + &scalar("next_key", 1);
            format!(
                "{constants}
                valid_column = Unsqueeze (nonpad_kv_seqlen, one)
                valid = Squeeze (keys)
                key_list = Range (first_key, valid, next_key)
                is_valid = Less (key_list, valid_column)
                padding_float = Where (is_valid, float_zero, minus_inf)
                padding_rows = Unsqueeze (padding_float, one)
                PaddingMask4DFloat = Unsqueeze (padding_rows, one)
                PaddingMask4D = CastLike (PaddingMask4DFloat, {bias})
                bias = Add ({bias}, PaddingMask4D)"
            )
        }
    }
}

/// Builds each head of keys and values, repeated for all query heads that share it.
fn shared_heads() -> String {
    let third = vector("third", &[2]);
    let keys = repeat_heads("each_key", "all_keys", "features");
    let values = repeat_heads("each_value", "all_values", "value_features");
    format!(
        "is_equal = Equal (heads, key_heads)
        is_different = Not (is_equal)
        quotient = Div (heads, key_heads)
        quotient_int = Cast <to = 7> (quotient)
        remainder = Mod (heads, key_heads)
        divides = Equal (remainder, zero)
        is_shared = And (is_different, divides)
        repeats = Where (is_shared, quotient_int, one)
        {third}
        {keys}
        {values}"
    )
}

/// Builds products of queries and keys, the bias, and the softmax of their sum.
fn scores(cx: &Expand<'_>, elem: i64, precision: i64) -> String {
    let last_axis = vector("last_axis", &[-1]);
    let bias = if cx.since() < 24 { "AttnBiasCausalOrNot" } else { "bias" };
    let soft_cap = cx.float("softcap").unwrap_or(0.0);
    let (capped, capped_scores) = match soft_cap {
        0.0 => (String::new(), "typed_scores"),
        cap => (
            float_vector("float_cap", cap)
                + &format!(
                    "cap = Cast <to = {elem}> (float_cap)
                    share_of_cap = Div (typed_scores, cap)
                    bent = Tanh (share_of_cap)
                    capped_scores = Mul (bent, cap)"
                ),
            "capped_scores",
        ),
    };
    let given = match cx.int("qk_matmul_output_mode") {
        _ if !cx.has_output(SCORES) => String::new(),
        mode => {
            let stage = match mode {
                Some(1) => capped_scores,
                Some(2) => "biased_scores",
                Some(3) => "shares",
                _ => "scores",
            };
            format!("qk_matmul_output = Identity ({stage})")
        }
    };
    // Softmax returns NaN for queries that see no key, whose weights must be 0.
    format!(
        "typed_bias = Cast <to = {elem}> ({bias})
        turned_keys = Transpose <perm = [0, 1, 3, 2]> (each_key)
        scaled_query = Mul (query, factor)
        scaled_keys = Mul (turned_keys, factor)
        scores = MatMul (scaled_query, scaled_keys)
        typed_scores = Cast <to = {elem}> (scores)
        {capped}
        biased_scores = Add ({capped_scores}, typed_bias)
        precise_scores = Cast <to = {precision}> (biased_scores)
        precise_shares = Softmax (precise_scores)
        typed_shares = Cast <to = {elem}> (precise_shares)
        {last_axis}
        largest_bias = ReduceMax (typed_bias, last_axis)
        typed_minus_inf = CastLike (minus_inf, typed_bias)
        sees_nothing = Equal (largest_bias, typed_minus_inf)
        typed_zero = CastLike (float_zero, typed_shares)
        shares = Where (sees_nothing, typed_zero, typed_shares)
        {given}"
    )
}

fn output(packed: bool) -> String {
    let joined = if packed {
        "heads_third = Transpose <perm = [0, 2, 1, 3]> (sums)
            joined_sizes = Concat <axis = 0> (zero, zero, rest)
            Y = Reshape (heads_third, joined_sizes)"
    } else {
        "Y = Identity (sums)"
    };
    format!("sums = MatMul (shares, each_value)\n{joined}")
}
