//! `LinearAttention`. Its function is a scan over time in float32.

use sardonyx_model::Dim;

use super::{check_sharing, head_size, packed_size};
use crate::function::{Expand, float_scalar, vector};
use crate::infer::{Infer, InferError};
use crate::rules::shared_dim;

/// Indices of inputs.
const Q: usize = 0;
const K: usize = 1;
const V: usize = 2;
const PAST: usize = 3;
const DECAY: usize = 4;
const BETA: usize = 5;

/// Infers from inputs `[B, T, …]` with packed heads; the states `[B, Hk, E, F]` are not packed.
pub(super) fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    check_rule(cx)?;
    let [heads, key_heads] = ["q_num_heads", "kv_num_heads"].map(|name| match cx.int(name) {
        Some(heads @ 1..) => Ok(heads),
        Some(heads) => cx.fail(format_args!("{name} must be positive, not {heads}")),
        None => cx.fail(format_args!("attribute {name} is missing")),
    });
    let (heads, key_heads) = (heads?, key_heads?);
    check_sharing(cx, &Dim::Known(heads), &Dim::Known(key_heads))?;
    for input in [Q, K, V, DECAY, BETA] {
        cx.demand_rank(input, 3)?;
    }
    cx.demand_rank(PAST, 4)?;
    let batch = [Q, K, V, PAST, DECAY, BETA].map(|input| (input, 0));
    let batch = shared_dim(cx, "elements of the batch", &batch)?;
    let steps = shared_dim(cx, "steps", &[Q, K, V, DECAY, BETA].map(|input| (input, 1)))?;
    let past_heads = shared_dim(cx, "heads", &[(PAST, 1)])?;
    cx.same_dim(&Dim::Known(key_heads), &past_heads, "kv_num_heads and heads of the state")?;

    let size = |input: usize, heads: i64, name: &str| {
        head_size(cx, &shared_dim(cx, "heads", &[(input, 2)])?, heads, name)
    };
    let past = |axis: usize| shared_dim(cx, "the size of a head", &[(PAST, axis)]);
    let what = "sizes of a head of queries and of keys";
    let key_size = cx.same_dim(&size(K, key_heads, "key")?, &size(Q, heads, "query")?, what)?;
    let what = "sizes of a head and of the state";
    let key_size = cx.same_dim(&key_size, &past(2)?, what)?;
    let value_size = cx.same_dim(&size(V, key_heads, "value")?, &past(3)?, what)?;
    check_factors(cx, key_heads, &key_size)?;

    let values = shared_dim(cx, "heads", &[(V, 2)])?;
    let packed = packed_size(&value_size, heads, &values, key_heads);
    let output = [batch.clone(), steps, packed];
    cx.set_tensor(0, cx.elem(Q), Some(output.into_iter().collect()));
    // Without an initial state, the states have the type of the queries.
    let elem = if cx.has_input(PAST) { cx.elem(PAST) } else { cx.elem(Q) };
    let state = [batch, Dim::Known(key_heads), key_size, value_size];
    cx.set_tensor(1, elem, Some(state.into_iter().collect()));
    Ok(())
}

/// Checks that the node has the inputs that `update_rule` needs, and no others.
pub(crate) fn check_rule(cx: &Infer<'_>) -> Result<(), InferError> {
    let rule = cx.string("update_rule").unwrap_or_default();
    let (decays, corrects) = match rule.as_str() {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        other => return cx.fail(format_args!("update_rule has no value \"{other}\"")),
    };
    for (input, is_needed, name) in [(DECAY, decays, "decay"), (BETA, corrects, "beta")] {
        match (cx.has_input(input), is_needed) {
            (true, false) => {
                return cx.fail(format_args!("the rule {rule} has no input {name}"));
            }
            (false, true) => {
                return cx.fail(format_args!("the rule {rule} requires the input {name}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks the sizes of decay, one for each head or each of its features, and of beta, one for each
/// head or for all.
pub(crate) fn check_factors(cx: &Infer<'_>, heads: i64, size: &Dim) -> Result<(), InferError> {
    let last = |input: usize| Ok(shared_dim(cx, "factors", &[(input, 2)])?.known());
    let features = Dim::Known(heads).mul(size).known();
    if let Some(found) = last(DECAY)?.filter(|found| *found != heads) {
        let is_per_feature = match features {
            Some(features) => found == features,
            None => size.known().is_none() && found.checked_rem(heads) == Some(0),
        };
        if !is_per_feature {
            return cx.fail(format_args!(
                "decay has {found} factors, not one for each of {heads} heads or of their features"
            ));
        }
    }
    if let Some(found) = last(BETA)?.filter(|found| *found != heads && *found != 1) {
        return cx.fail(format_args!("beta has {found} factors, not 1 or {heads}"));
    }
    Ok(())
}

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
    // Scanned inputs, in the order of the inputs of a step.
    let mut scanned = vec![("query", "query_sizes"), ("key", "key_sizes"), ("value", "key_sizes")];
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
    let first = if cx.has_input(3) {
        "first_state = Cast <to = 1> (past_state)"
    } else {
        "state_sizes = Concat <axis = 0> (batch, key_heads, key_features, value_features)
            first_state = ConstantOfShape (state_sizes)"
    };
    let scale = match cx.float("scale")? {
        0.0 => "features = Squeeze (key_features)
            float_features = Cast <to = 1> (features)
            root = Sqrt (float_features)
            scale = Reciprocal (root)"
            .to_string(),
        scale => float_scalar("scale", scale),
    };
    let Copies { copies, copied, read } = copy_state(heads / key_heads);
    let Change { decayed, old, corrected, written } = change(decays, corrects);
    let state_like = if cx.has_input(3) { "past_state" } else { "query" };
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
        last_state, outputs = Scan <
          num_scan_inputs = {count},
          body = step (state_before{names}) => (state, output_now) {{
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

/// Nodes that copy a state for each query head that shares it.
struct Copies {
    /// Nodes before the scan.
    copies: String,
    /// Nodes of a step.
    copied: &'static str,
    /// The state that a step reads.
    read: &'static str,
}

/// Returns the nodes for `group` query heads per state.
fn copy_state(group: i64) -> Copies {
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
    Copies { copies, copied, read }
}

/// Nodes that change the state before the product is added to it.
struct Change {
    /// Nodes that multiply the state by the decay.
    decayed: &'static str,
    /// The state after them.
    old: &'static str,
    /// Nodes that subtract from the value the prediction of the state.
    corrected: String,
    /// Name of the value that is written.
    written: &'static str,
}

fn change(decays: bool, corrects: bool) -> Change {
    let (decayed, old) = if decays {
        (
            "factors = Exp (decay_float)
            factor_column = Unsqueeze (factors, rest)
            state_decayed = Mul (state_before, factor_column)",
            "state_decayed",
        )
    } else {
        ("", "state_before")
    };
    // The delta rules write the difference between the value and the prediction of the state.
    let (corrected, written) = if corrects {
        (
            format!(
                "state_turned = Transpose <perm = [0, 1, 3, 2]> ({old})
                found_column = MatMul (state_turned, key_column)
                found = Squeeze (found_column, rest)
                difference = Sub (value_float, found)
                change = Mul (beta_float, difference)"
            ),
            "change",
        )
    } else {
        (String::new(), "value_float")
    };
    Change { decayed, old, corrected, written }
}

#[cfg(test)]
mod tests {
    use super::super::LINEAR_ATTENTION;
    use crate::AttrValue::Int;
    use crate::tensor::testing::{outputs, word};

    fn infer(heads: i64, key_heads: i64, rule: &'static str, inputs: &str) -> String {
        let attributes = [
            ("q_num_heads", Int(heads)),
            ("kv_num_heads", Int(key_heads)),
            ("update_rule", word(rule)),
        ];
        outputs(&LINEAR_ATTENTION, 27, &attributes, inputs, 2)
    }

    #[test]
    fn output_and_state() {
        let rows = [
            (
                (4, 4, "linear"),
                "float[B, T, 64]; float[?, T, 64]; float[2, ?, 64]",
                "float[2, T, 64]; float[2, 4, 16, 16]",
            ),
            (
                (8, 2, "linear"),
                "float[2, 4, 128]; float[2, 4, 32]; float[2, 4, 10]",
                "float[2, 4, 40]; float[2, 2, 16, 5]",
            ),
            (
                (4, 4, "gated_delta"),
                "float[2, 1, 64]; float[2, 1, 64]; -; float16[2, 4, 16, 9]; float[2, 1, 64]; float[2, 1, 4]",
                "float[2, 1, 36]; float16[2, 4, 16, 9]",
            ),
            (
                (2, 2, "gated"),
                "float[2, 3, 16]; float[2, 3, 16]; float[2, 3, F]; _; float[2, 3, 2]",
                "float[2, 3, F]; float[2, 2, 8, floor(F/2)]",
            ),
            (
                (4, 4, "linear"),
                "float[...]; float[...]; -; float[2, 4, 16, 5]",
                "float[2, ?, 20]; float[2, 4, 16, 5]",
            ),
            (
                (4, 4, "linear"),
                "float[2, 3, 4]; float[2, 3, 4]; float[2, 3, F]; float[2, 4, 1, 5]",
                "float[2, 3, 20]; float[2, 4, 1, 5]",
            ),
            ((4, 4, "linear"), "-; -; -", "?[?, ?, ?]; ?[?, 4, ?, ?]"),
        ];
        for ((heads, key_heads, rule), inputs, expected) in rows {
            assert_eq!(infer(heads, key_heads, rule, inputs), expected, "{inputs}");
        }
    }

    #[test]
    fn contradictions() {
        let three = "float[2, 3, 64]; float[2, 3, 64]; float[2, 3, 64]";
        let rows = [
            (
                (4, 3, "linear"),
                three.to_string(),
                "4 query heads are not a multiple of 3 key heads",
            ),
            ((0, 4, "linear"), three.to_string(), "q_num_heads must be positive, not 0"),
            ((4, 4, "quadratic"), three.to_string(), "update_rule has no value \"quadratic\""),
            ((4, 4, "gated"), three.to_string(), "the rule gated requires the input decay"),
            (
                (4, 4, "linear"),
                format!("{three}; _; _; float[2, 3, 4]"),
                "the rule linear has no input beta",
            ),
            (
                (4, 4, "gated"),
                format!("{three}; _; float[2, 3, 7]"),
                "decay has 7 factors, not one for each of 4 heads or of their features",
            ),
            (
                (4, 4, "delta"),
                format!("{three}; _; _; float[2, 3, 7]"),
                "beta has 7 factors, not 1 or 4",
            ),
            (
                (4, 4, "linear"),
                format!("{three}; float[4, 16, 16]"),
                "input 3 must have rank 4, not 3",
            ),
            (
                (5, 5, "linear"),
                three.to_string(),
                "the last axis of key has size 64, which cannot be divided into 5 heads",
            ),
        ];
        for ((heads, key_heads, rule), inputs, expected) in rows {
            let found = infer(heads, key_heads, rule, &inputs);
            assert_eq!(found, format!("LinearAttention: {expected}"));
        }
    }
}
