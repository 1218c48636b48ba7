//! Attention over a cache of keys and values that the sequences of a batch fill to different
//! lengths: positions, rotation, and rows of the cache. Inputs have the names that
//! `GroupQueryAttention` and `SparseAttention` share.

use crate::function::{Expand, float_scalar, scalar, vector};

/// Indices of inputs.
pub(super) const QUERY: usize = 0;
pub(super) const KEY: usize = 1;
pub(super) const VALUE: usize = 2;
pub(super) const PAST_KEY: usize = 3;
pub(super) const PAST_VALUE: usize = 4;

/// Builds the nodes that find where the keys of each sequence begin and end: `begins`, `ends_after`
/// and `new_positions`. `valid` makes the value of that name, the number of keys after this call.
/// In the first call keys begin at the start, whatever the length of each sequence.
pub(super) fn find_lengths(valid: &str) -> String {
    vector("one", &[1])
        + &vector("zero", &[0])
        + &vector("all", &[-1])
        + &scalar("first", 0)
        + &scalar("step", 1)
        + valid
        + "batch = Shape <start = 0, end = 1> (query)
        length = Shape <start = 1, end = 2> (query)
        total_given = Cast <to = 7> (total_sequence_length)
        total = Reshape (total_given, one)
        begins_later = Sub (valid, length)
        is_first_call = Equal (length, total)
        begins = Where (is_first_call, zero, begins_later)
        ends_after = Add (begins, length)
        new_count = Squeeze (length, zero)
        new_list = Range (first, new_count, step)
        begins_column = Unsqueeze (begins, one)
        new_positions = Add (begins_column, new_list)\n"
}

/// Builds the nodes that separate queries, keys and values, with heads packed.
pub(super) fn separate_operands(cx: &Expand<'_>, heads: i64, key_heads: i64) -> String {
    if cx.has_input(KEY) {
        return "packed_query = Identity (query)
            packed_key = Identity (key)
            packed_value = Identity (value)\n"
            .to_string();
    }
    vector("all_heads", &[heads + 2 * key_heads])
        + &vector("shares", &[heads, key_heads, key_heads])
        + "width = Shape <start = 2, end = 3> (query)
        head_size = Div (width, all_heads)
        widths = Mul (shares, head_size)
        packed_query, packed_key, packed_value = Split <axis = 2> (query, widths)\n"
}

/// Builds the nodes that rotate queries and keys by their positions. `cos` is the input that holds
/// cosines; sines and perhaps positions follow it.
pub(super) fn rotate(
    cx: &Expand<'_>,
    cos: usize,
    heads: i64,
    key_heads: i64,
) -> Result<String, String> {
    if cx.int("do_rotary").unwrap_or(0) == 0 {
        return Ok("turned_query = Identity (packed_query)
            turned_key = Identity (packed_key)\n"
            .to_string());
    }
    if !cx.has_input(cos) || !cx.has_input(cos + 1) {
        return Err("do_rotary requires cos_cache and sin_cache".to_string());
    }
    let packed = if cx.has_input(KEY) { heads } else { heads + 2 * key_heads };
    let size = cx.dim(QUERY, 2).map(|width| width / packed);
    let rotated = match (cx.dim(cos, 1), size) {
        (Some(half), Some(size)) if 2 * half == size => 0,
        (Some(half), _) => 2 * half,
        (None, _) => return Err("the size of cos_cache is unknown".to_string()),
    };
    // In the first call the first position determines all others.
    let positions = if cx.has_input(cos + 2) {
        "first_axes = Constant <value = int64[2] {0, 1}> ()
        first_position = Slice (position_ids, from_start, to_one, first_axes)
        first_positions = Add (first_position, new_list)
        all_positions = Add (begins_of_none, first_positions)
        positions = Where (is_first_call, all_positions, position_ids)\n"
    } else {
        "positions = Identity (new_positions)\n"
    };
    let constants = if cx.has_input(cos + 2) {
        vector("from_start", &[0, 0])
            + &vector("to_one", &[1, 1])
            + "begins_of_none = Sub (begins_column, begins_column)\n"
    } else {
        String::new()
    };
    let interleaved = cx.int("rotary_interleaved").unwrap_or(0);
    let turn = |from: &str, heads: i64, into: &str| {
        format!(
            "{into} = RotaryEmbedding <
                interleaved = {interleaved}, num_heads = {heads}, rotary_embedding_dim = {rotated}
            > ({from}, cos_cache, sin_cache, positions)\n"
        )
    };
    Ok(constants
        + positions
        + &turn("packed_query", heads, "turned_query")
        + &turn("packed_key", key_heads, "turned_key"))
}

/// Builds the nodes that find the number of rows that the buffers lack for all keys: `missing`.
pub(super) fn find_missing_rows(key_heads: i64) -> String {
    vector("key_heads", &[key_heads])
        + &float_scalar("no_number", 0.0)
        + "capacity = Shape <start = 2, end = 3> (past_key)
        present_count = Max (capacity, total)
        missing = Sub (present_count, capacity)\n"
}

/// Builds the nodes that extend a buffer by the missing rows, and write new rows where each
/// sequence ends.
pub(super) fn write_rows(past: &str, new: &str, into: &str) -> String {
    format!(
        "{into}_zero = CastLike (no_number, {past})
        {into}_features = Shape <start = 3, end = 4> ({past})
        {into}_sizes = Concat <axis = 0> (batch, key_heads, missing, {into}_features)
        {into}_extension = Expand ({into}_zero, {into}_sizes)
        {into}_extended = Concat <axis = 2> ({past}, {into}_extension)
        {into} = TensorScatter <axis = 2> ({into}_extended, {new}, begins)\n"
    )
}
