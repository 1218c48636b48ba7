//! The function of LinearAttention: a scan over time, in float32.

use crate::function::{Expand, float_scalar, vector};

pub(super) fn body(cx: &Expand<'_>) -> Option<String> {
    let (decays, corrects) = match cx.string("update_rule")?.as_str() {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        _ => return None,
    };
    cx.input_type(0)?;
    let (heads, key_heads) = (cx.int("q_num_heads")?, cx.int("kv_num_heads")?);
    if heads <= 0 || key_heads <= 0 || heads % key_heads != 0 {
        return None;
    }
    let constants = [
        vector("rest", &[-1]),
        vector("one", &[1]),
        vector("before_last", &[-2]),
        vector("heads", &[heads]),
        vector("key_heads", &[key_heads]),
    ]
    .concat();
    // What is scanned, in the order of the inputs of a step.
    let mut scanned = vec![
        ("query", "query_sizes"),
        ("key", "key_sizes"),
        ("value", "key_sizes"),
    ];
    let mut beta_sizes = "";
    if decays {
        scanned.push(("decay", "key_sizes"));
    }
    if corrects {
        scanned.push(("beta", "beta_sizes"));
        beta_sizes = "beta_sizes = Concat <axis = 0> (batch, length, rest, one)";
    }
    let [mut by_time, mut steps, mut names, mut casts] = [const { String::new() }; 4];
    for (name, sizes) in &scanned {
        by_time += &format!(
            "{name}_apart = Reshape ({name}, {sizes})
            {name}_by_time = Transpose <perm = [1, 0, 2, 3]> ({name}_apart)\n"
        );
        steps += &format!(", {name}_by_time");
        names += &format!(", {name}_now");
        casts += &format!("{name}_float = Cast <to = 1> ({name}_now)\n");
    }
    let first = match cx.has_input(3) {
        true => "first_state = Cast <to = 1> (past_state)",
        false => {
            "state_sizes = Concat <axis = 0> (batch, key_heads, key_features, value_features)
            first_state = ConstantOfShape (state_sizes)"
        }
    };
    let scale = match cx.float("scale")? {
        0.0 => "features = Squeeze (key_features)
            float_features = Cast <to = 1> (features)
            root = Sqrt (float_features)
            scale = Reciprocal (root)"
            .to_string(),
        scale => float_scalar("scale", scale),
    };
    // Query heads that share a state each get a copy of it.
    let group = heads / key_heads;
    let (copies, copied, read) = match group {
        1 => (String::new(), "", "state"),
        _ => (
            vector("group", &[group])
                + &vector("third", &[2])
                + "copies_sizes = Concat <axis = 0> (batch, key_heads, group, key_features, value_features)
                read_sizes = Concat <axis = 0> (batch, heads, key_features, value_features)",
            "states_apart = Unsqueeze (state, third)
            states_copied = Expand (states_apart, copies_sizes)
            states_read = Reshape (states_copied, read_sizes)",
            "states_read",
        ),
    };
    let (decayed, old) = match decays {
        false => ("", "state_before"),
        true => (
            "factors = Exp (decay_float)
            factor_column = Unsqueeze (factors, rest)
            state_decayed = Mul (state_before, factor_column)",
            "state_decayed",
        ),
    };
    // A correction writes what the state does not yet say.
    let (corrected, written) = match corrects {
        false => (String::new(), "value_float"),
        true => (
            format!(
                "state_turned = Transpose <perm = [0, 1, 3, 2]> ({old})
                found_column = MatMul (state_turned, key_column)
                found = Squeeze (found_column, rest)
                difference = Sub (value_float, found)
                change = Mul (beta_float, difference)"
            ),
            "change",
        ),
    };
    let state_like = if cx.has_input(3) {
        "past_state"
    } else {
        "query"
    };
    let count = scanned.len();
    Some(format!(
        "{constants}
        batch = Shape <start = 0, end = 1> (query)
        length = Shape <start = 1, end = 2> (query)
        query_sizes = Concat <axis = 0> (batch, length, heads, rest)
        key_sizes = Concat <axis = 0> (batch, length, key_heads, rest)
        {beta_sizes}
        {by_time}
        query_width = Shape <start = 2, end = 3> (query)
        value_width = Shape <start = 2, end = 3> (value)
        key_features = Div (query_width, heads)
        value_features = Div (value_width, key_heads)
        {first}
        {scale}
        {copies}
        last_state, outputs = Scan <num_scan_inputs = {count}, body = step (state_before{names}) => (state, output_now) {{
        {casts}
        {decayed}
        key_column = Unsqueeze (key_float, rest)
        {corrected}
        written_row = Unsqueeze ({written}, before_last)
        product = MatMul (key_column, written_row)
        state = Add ({old}, product)
        {copied}
        query_row = Unsqueeze (query_float, before_last)
        read_row = MatMul (query_row, {read})
        read = Squeeze (read_row, before_last)
        output_float = Mul (scale, read)
        output_now = CastLike (output_float, query_now)
        }}> (first_state{steps})
        outputs_by_batch = Transpose <perm = [1, 0, 2, 3]> (outputs)
        output_sizes = Concat <axis = 0> (batch, length, rest)
        output = Reshape (outputs_by_batch, output_sizes)
        present_state = CastLike (last_state, {state_like})"
    ))
}
