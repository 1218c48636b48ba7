//! `RotaryEmbedding`.

use crate::function::{Expand, vector};
use crate::infer::{Infer, InferError};
use crate::rules::{same_as_first, shared_dim};

/// Infers the output like the input. The caches have an entry for each position.
pub(super) fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    match cx.rank(0) {
        Some(3) if cx.int("num_heads").is_none() => {
            return cx.fail("an input of rank 3 requires num_heads");
        }
        Some(3 | 4) | None => {}
        Some(rank) => return cx.fail(format_args!("the input has rank {rank}, not 3 or 4")),
    }
    let by_position = cx.has_input(3);
    for cache in [1, 2] {
        cx.demand_rank(cache, if by_position { 2 } else { 3 })?;
    }
    let last = if by_position { 1 } else { 2 };
    shared_dim(cx, "the size of a cache", &[(1, 0), (2, 0)])?;
    shared_dim(cx, "the last size of a cache", &[(1, last), (2, last)])?;
    cx.demand_rank(3, 2)?;
    same_as_first(cx)
}

pub(super) fn body(cx: &Expand<'_>) -> Option<String> {
    // Heads come before positions in a tensor of rank 4, and after them inside the function.
    const SWAPPED: &str = "Transpose <perm = [0, 2, 1, 3]>";
    let (input, swapped_back) = match cx.rank(0)? {
        3 => (
            "split = Concat <axis = 0> (zero, zero, heads, rest)
            heads_third = Reshape (X, split)"
                .to_string(),
            "Identity",
        ),
        4 => (format!("heads_third = {SWAPPED} (X)"), SWAPPED),
        _ => return None,
    };
    let constants = [
        vector("zero", &[0]),
        vector("heads", &[cx.int("num_heads").unwrap_or(0)]),
        vector("rest", &[-1]),
        vector("two", &[2]),
    ]
    .concat();
    let rotated = match cx.int("rotary_embedding_dim")? {
        rotated @ 1.. => vector("rotated", &[rotated]),
        _ => "rotated = Identity (head_size)".to_string(),
    };
    let at_positions = |cache: &str| {
        if cx.has_input(3) {
            format!("Gather ({cache}, position_ids)")
        } else {
            format!("Identity ({cache})")
        }
    };
    let (cos, sin) = (at_positions("cos_cache"), at_positions("sin_cache"));
    let pairs_alternate = cx.int("interleaved")? != 0;
    let (pairs, joined) = if pairs_alternate {
        (
            vector("one", &[1])
                + &vector("last", &[3])
                + "rotated_end = Add (rotated, one)
                x = Slice (to_rotate, zero, rotated, last, two)
                y = Slice (to_rotate, one, rotated_end, last, two)",
            "real_column = Unsqueeze (real, rest)
            imaginary_column = Unsqueeze (imaginary, rest)
            columns = Concat <axis = -1> (real_column, imaginary_column)
            columns_size = Shape (to_rotate)
            after = Reshape (columns, columns_size)",
        )
    } else {
        (
            "x, y = Split <axis = -1, num_outputs = 2> (to_rotate)".to_string(),
            "after = Concat <axis = -1> (real, imaginary)",
        )
    };
    Some(format!(
        "{constants}
        {input}
        head_size = Shape <start = 3, end = 4> (heads_third)
        {rotated}
        kept = Sub (head_size, rotated)
        lengths = Concat <axis = 0> (rotated, kept)
        to_rotate, to_keep = Split <axis = -1> (heads_third, lengths)
        all_cos = {cos}
        all_sin = {sin}
        half = Div (rotated, two)
        half_int = Cast <to = 7> (half)
        some_cos = Slice (all_cos, zero, half_int, two)
        some_sin = Slice (all_sin, zero, half_int, two)
        cos = Unsqueeze (some_cos, two)
        sin = Unsqueeze (some_sin, two)
        {pairs}
        cos_x = Mul (cos, x)
        sin_y = Mul (sin, y)
        real = Sub (cos_x, sin_y)
        sin_x = Mul (sin, x)
        cos_y = Mul (cos, y)
        imaginary = Add (sin_x, cos_y)
        {joined}
        whole = Concat <axis = -1> (after, to_keep)
        heads_back = {swapped_back} (whole)
        sizes = Shape (X)
        Y = Reshape (heads_back, sizes)"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::ROTARY_EMBEDDING;
    use crate::AttrValue::Int;
    use crate::tensor::testing::check;

    #[test]
    fn the_output_is_like_the_input() {
        check(
            &ROTARY_EMBEDDING,
            23,
            &[
                (
                    &[],
                    "float[B, H, S, E]; float[M, F]; float[M, F]; int64[B, S]",
                    "float[B, H, S, E]",
                ),
                (
                    &[("num_heads", Int(4))],
                    "float[B, S, E]; float[B, S, F]; float[B, S, F]",
                    "float[B, S, E]",
                ),
                (&[], "-; -; -", "-"),
                (
                    &[],
                    "float[B, S, E]; -; -",
                    "RotaryEmbedding: an input of rank 3 requires num_heads",
                ),
                (&[], "float[S, E]; -; -", "RotaryEmbedding: the input has rank 2, not 3 or 4"),
                (
                    &[],
                    "float[B, H, S, E]; float[B, S, F]; -; int64[B, S]",
                    "RotaryEmbedding: input 1 must have rank 2, not 3",
                ),
            ],
        );
    }
}
