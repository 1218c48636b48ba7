//! Inference of `Attention`.
//!
//! Queries are `[B, Hq, L, E]` or, packed, `[B, L, Hq * E]`; keys `[B, Hk, S, E]` or `[B, S, Hk *
//! E]`; values are like keys but have a head size of their own. Keys and values of earlier calls
//! and of all calls are never packed.

use sardonyx_model::{Dim, Shape};

use super::{check_sharing, head_size, packed_size};
use crate::infer::{Infer, InferError};
use crate::rules::shared_dim;

const Q: usize = 0;
const K: usize = 1;
const V: usize = 2;
const PAST_KEY: usize = 4;
const PAST_VALUE: usize = 5;
const VALID_KEYS: usize = 6;

/// Sizes that several inputs share.
struct Sizes {
    batch: Dim,
    heads: Dim,
    key_heads: Dim,
    queries: Dim,
    /// Number of keys of this call and of earlier ones.
    all_keys: Dim,
    key_size: Dim,
    value_size: Dim,
    /// Size of all heads of the output, if heads are packed.
    packed: Option<Dim>,
}

/// Infers like the reference implementation, which compares fewer sizes.
pub(super) fn infer_as_reference(cx: &mut Infer<'_>) -> Result<(), InferError> {
    if cx.since() >= 25 {
        check_combinations(cx)?;
    }
    infer_like_reference(cx)
}

pub(super) fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    if cx.since() >= 25 {
        check_combinations(cx)?;
    }
    let keys = cx.elem(K).or(cx.elem(PAST_KEY)).or(cx.elem(Q));
    let values = cx.elem(V).or(cx.elem(PAST_VALUE));
    for past in [PAST_KEY, PAST_VALUE] {
        cx.demand_rank(past, 4)?;
    }
    let Some(rank) = [Q, K, V].into_iter().find_map(|input| cx.rank(input)) else {
        for (output, elem) in [cx.elem(Q), keys, values, cx.elem(Q)].into_iter().enumerate() {
            cx.set_tensor(output, elem, None);
        }
        return Ok(());
    };
    let sizes = match rank {
        3 => packed_sizes(cx)?,
        4 => open_sizes(cx)?,
        _ => {
            return cx.fail(format_args!("queries, keys and values have rank {rank}, not 3 or 4"));
        }
    };
    check_sharing(cx, &sizes.heads, &sizes.key_heads)?;
    let shape = |dims: [&Dim; 4]| dims.into_iter().cloned().collect::<Shape>();
    let output = match &sizes.packed {
        Some(packed) => [&sizes.batch, &sizes.queries, packed].into_iter().cloned().collect(),
        None => shape([&sizes.batch, &sizes.heads, &sizes.queries, &sizes.value_size]),
    };
    cx.set_tensor(0, cx.elem(Q), Some(output));
    let present = |size| Some(shape([&sizes.batch, &sizes.key_heads, &sizes.all_keys, size]));
    cx.set_tensor(1, keys, present(&sizes.key_size));
    cx.set_tensor(2, values, present(&sizes.value_size));
    let scores = shape([&sizes.batch, &sizes.heads, &sizes.queries, &sizes.all_keys]);
    cx.set_tensor(3, cx.elem(Q), Some(scores));
    Ok(())
}

/// Infers like the reference implementation, which compares ranks and takes each size from one
/// input.
fn infer_like_reference(cx: &mut Infer<'_>) -> Result<(), InferError> {
    cx.set_tensor(0, cx.elem(Q), None);
    cx.set_tensor(3, cx.elem(Q), None);
    let mut keys = Dim::Unknown;
    let mut scores = None;
    if let Some(q) = cx.shape(Q) {
        for input in [Q, K, V] {
            if let Some(rank) = cx.rank(input).filter(|rank| ![3, 4].contains(rank)) {
                return cx.fail(format_args!("input {input} has rank {rank}, not 3 or 4"));
            }
        }
        let heads = ["q_num_heads", "kv_num_heads"].map(|name| cx.int(name));
        if q.len() == 3 && heads.contains(&None) {
            return cx.fail("inputs of rank 3 require q_num_heads and kv_num_heads");
        }
        let (output, rows) = match (&q[..], cx.shape(V).map(|v| &v[..]), heads) {
            ([batch, heads, queries, _], Some([_, _, count, size]), _) => {
                keys = count.clone();
                let output = [batch, heads, queries, size].map(Dim::clone);
                (Some(output.to_vec()), Some([batch, heads, queries].map(Dim::clone)))
            }
            ([batch, queries, _], Some([_, count, size]), [Some(heads), Some(key_heads)]) => {
                if heads < 1 || key_heads < 1 {
                    return cx.fail("q_num_heads and kv_num_heads must be positive");
                }
                keys = count.clone();
                let size = match size.known() {
                    Some(size) => Dim::Known(size / key_heads).mul(&Dim::Known(heads)),
                    None => Dim::Unknown,
                };
                let rows = [batch.clone(), Dim::Known(heads), queries.clone()];
                (Some(vec![batch.clone(), queries.clone(), size]), Some(rows))
            }
            _ => (None, None),
        };
        cx.set_tensor(0, cx.elem(Q), output.map(Shape::from_vec));
        scores = rows;
    }
    let mut all_keys = keys.clone();
    let present = [PAST_KEY, PAST_VALUE].map(|input| cx.shape(input).cloned());
    let has_past = cx.has_input(PAST_KEY) && cx.has_input(PAST_VALUE);
    if cx.has_output(1) && cx.has_output(2) && has_past {
        for (output, input) in [(1, PAST_KEY), (2, PAST_VALUE)] {
            cx.set_tensor(output, cx.elem(input), None);
        }
        if let [Some(mut key), Some(mut value)] = present {
            for input in [PAST_KEY, PAST_VALUE] {
                cx.demand_rank(input, 4)?;
            }
            if keys.known().is_some_and(|keys| keys > 0) && key[2].known().is_some() {
                all_keys = keys.add(&key[2]);
                (key[2], value[2]) = (all_keys.clone(), all_keys.clone());
                cx.set_tensor(1, cx.elem(PAST_KEY), Some(key));
                cx.set_tensor(2, cx.elem(PAST_VALUE), Some(value));
            }
        }
    }
    if let Some(rows) = scores {
        let shape = rows.into_iter().chain([all_keys]).collect();
        cx.set_tensor(3, cx.elem(Q), Some(shape));
    }
    Ok(())
}

fn open_sizes(cx: &Infer<'_>) -> Result<Sizes, InferError> {
    for input in [Q, K, V] {
        cx.demand_rank(input, 4)?;
    }
    Ok(Sizes {
        batch: batch(cx)?,
        heads: shared_dim(cx, "query heads", &[(Q, 1)])?,
        key_heads: shared_dim(cx, "key heads", &[(K, 1), (V, 1), (PAST_KEY, 1), (PAST_VALUE, 1)])?,
        queries: shared_dim(cx, "queries", &[(Q, 2)])?,
        all_keys: all_keys(cx, &shared_dim(cx, "keys", &[(K, 2), (V, 2)])?)?,
        key_size: shared_dim(cx, "the size of a head", &[(Q, 3), (K, 3), (PAST_KEY, 3)])?,
        value_size: shared_dim(cx, "the size of a head", &[(V, 3), (PAST_VALUE, 3)])?,
        packed: None,
    })
}

fn packed_sizes(cx: &Infer<'_>) -> Result<Sizes, InferError> {
    for input in [Q, K, V] {
        cx.demand_rank(input, 3)?;
    }
    let [heads, key_heads] = ["q_num_heads", "kv_num_heads"].map(|name| match cx.int(name) {
        Some(heads @ 1..) => Ok(heads),
        Some(heads) => cx.fail(format_args!("{name} must be positive, not {heads}")),
        None => cx.fail(format_args!("inputs of rank 3 require {name}")),
    });
    let (heads, key_heads) = (heads?, key_heads?);
    let key_heads_found = shared_dim(cx, "key heads", &[(PAST_KEY, 1), (PAST_VALUE, 1)])?;
    let size = |input: usize, heads: i64, name: &str| {
        head_size(cx, &shared_dim(cx, "heads", &[(input, 2)])?, heads, name)
    };
    let past_size = |input: usize| shared_dim(cx, "the size of a head", &[(input, 3)]);
    let what = "sizes of a head of queries and of keys";
    let key_size = cx.same_dim(&size(K, key_heads, "K")?, &size(Q, heads, "Q")?, what)?;
    let what = "sizes of a head now and before";
    let key_size = cx.same_dim(&key_size, &past_size(PAST_KEY)?, what)?;
    let value_size = cx.same_dim(&size(V, key_heads, "V")?, &past_size(PAST_VALUE)?, what)?;
    let values = shared_dim(cx, "heads", &[(V, 2)])?;
    Ok(Sizes {
        batch: batch(cx)?,
        heads: Dim::Known(heads),
        key_heads: cx.same_dim(
            &Dim::Known(key_heads),
            &key_heads_found,
            "kv_num_heads and key heads",
        )?,
        queries: shared_dim(cx, "queries", &[(Q, 1)])?,
        all_keys: all_keys(cx, &shared_dim(cx, "keys", &[(K, 1), (V, 1)])?)?,
        packed: Some(packed_size(&value_size, heads, &values, key_heads)),
        key_size,
        value_size,
    })
}

fn batch(cx: &Infer<'_>) -> Result<Dim, InferError> {
    let places = [Q, K, V, PAST_KEY, PAST_VALUE].map(|input| (input, 0));
    shared_dim(cx, "elements of the batch", &places)
}

/// Returns the number of keys of this call and of earlier ones.
fn all_keys(cx: &Infer<'_>, keys: &Dim) -> Result<Dim, InferError> {
    if cx.has_input(PAST_KEY) || cx.has_input(PAST_VALUE) {
        Ok(keys.add(&shared_dim(cx, "past keys", &[(PAST_KEY, 2), (PAST_VALUE, 2)])?))
    } else {
        Ok(keys.clone())
    }
}

/// Checks the conditions of the standard since 25.
fn check_combinations(cx: &Infer<'_>) -> Result<(), InferError> {
    for name in ["left_window_size", "right_window_size"] {
        if let Some(size) = cx.int(name).filter(|size| *size < -1) {
            return cx.fail(format_args!("{name} must be -1 or more, not {size}"));
        }
    }
    if cx.has_input(PAST_KEY) != cx.has_input(PAST_VALUE) {
        return cx.fail("past_key and past_value go together");
    }
    if cx.has_output(1) != cx.has_output(2) {
        return cx.fail("present_key and present_value go together");
    }
    if cx.has_input(VALID_KEYS) && (cx.has_input(PAST_KEY) || cx.has_output(1)) {
        return cx.fail("past and present keys are not allowed with nonpad_kv_seqlen");
    }
    let counts_heads =
        ["q_num_heads", "kv_num_heads"].into_iter().any(|name| cx.attribute(name).is_some());
    if cx.rank(Q) == Some(4) && counts_heads {
        return cx.fail("q_num_heads and kv_num_heads are not allowed with inputs of rank 4");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::ATTENTION;
    use crate::AttrValue::Int;
    use crate::tensor::testing::outputs;

    #[test]
    fn open_heads() {
        // SHAPE-16
        let rows = [
            (
                "float[B, Hq, L, E]; float[B, Hk, S, E]; float16[B, Hk, S, F]",
                "float[B, Hq, L, F]; float[B, Hk, S, E]; float16[B, Hk, S, F]; float[B, Hq, L, S]",
            ),
            (
                "float[2, 4, 3, 8]; float[?, 2, 5, ?]; float[?, ?, ?, 6]; _; float[2, 2, P, 8]; float[2, 2, ?, ?]",
                "float[2, 4, 3, 6]; float[2, 2, P + 5, 8]; float[2, 2, P + 5, 6]; float[2, 4, 3, P + 5]",
            ),
            // Past keys are present but unknown.
            (
                "float[2, 4, 3, 8]; float[2, 2, 5, 8]; -; _; -; -",
                "float[2, 4, 3, ?]; float[2, 2, ?, 8]; ?[2, 2, ?, ?]; float[2, 4, 3, ?]",
            ),
            ("float[...]; -; -", "float[...]; float[...]; ?[...]; float[...]"),
            ("-; -; -", "?[...]; ?[...]; ?[...]; ?[...]"),
            (
                "float[2, 3, 1, 8]; float[2, 2, 5, 8]; -",
                "Attention: 3 query heads are not a multiple of 2 key heads",
            ),
            ("float[2, 4]; -; -", "Attention: queries, keys and values have rank 2, not 3 or 4"),
            ("float[2, 4, 3, 8]; float[2, 5, 8]; -", "Attention: input 1 must have rank 4, not 3"),
            (
                "float[2, 4, 3, 8]; float[2, 4, 3, 7]; -",
                "Attention: the size of a head of input 1 and of others differ (8 and 7)",
            ),
        ];
        for (inputs, expected) in rows {
            for opset in [23, 24, 25] {
                assert_eq!(outputs(&ATTENTION, opset, &[], inputs, 4), expected, "{inputs}");
            }
        }
    }

    #[test]
    fn packed_heads() {
        let heads = |q, k| [("q_num_heads", Int(q)), ("kv_num_heads", Int(k))];
        let infer = |attributes: &[_], inputs| outputs(&ATTENTION, 23, attributes, inputs, 4);
        assert_eq!(
            infer(&heads(8, 2), "float[B, L, 128]; float[B, S, 32]; float[B, S, 10]"),
            "float[B, L, 40]; float[B, 2, S, 16]; float[B, 2, S, 5]; float[B, 8, L, S]"
        );
        assert_eq!(
            infer(&heads(4, 4), "float[B, L, E]; float[B, S, E]; float[B, S, F]"),
            "float[B, L, F]; float[B, 4, S, floor(E/4)]; float[B, 4, S, floor(F/4)]; float[B, 4, L, S]"
        );
        let inputs = "float[2, 3, 64]; float[2, 5, 64]; float[2, 5, 63]";
        assert_eq!(
            infer(&heads(4, 4), inputs),
            "Attention: the last axis of V has size 63, which cannot be divided into 4 heads"
        );
        assert_eq!(infer(&heads(0, 4), inputs), "Attention: q_num_heads must be positive, not 0");
        assert_eq!(
            infer(&heads(4, 4)[..1], inputs),
            "Attention: inputs of rank 3 require kv_num_heads"
        );
    }

    #[test]
    fn version_25_forbids_combinations() {
        let qkv = "float[2, 4, 3, 8]; float[2, 2, 5, 8]; float[2, 2, 5, 6]";
        let past = "float[2, 2, 4, 8]; float[2, 2, 4, 6]";
        let rows = [
            (vec![("left_window_size", Int(-2))], qkv.to_string(), 1),
            (vec![("right_window_size", Int(-2))], qkv.to_string(), 1),
            (vec![], format!("{qkv}; _; float[2, 2, 4, 8]"), 1),
            (vec![], qkv.to_string(), 2),
            (vec![], format!("{qkv}; _; {past}; int64[2]"), 1),
            (vec![("q_num_heads", Int(4))], qkv.to_string(), 1),
        ];
        for (attributes, inputs, count) in rows {
            let found = outputs(&ATTENTION, 25, &attributes, &inputs, count);
            assert!(found.starts_with("Attention: "), "{inputs}: {found}");
        }
    }
}
