//! `SparseAttention`: causal attention over a cache, in which each block of queries sees some
//! blocks of keys.
//!
//! The blocks come in compressed sparse rows. They become a matrix of zeros and ones: entry `j`
//! belongs to a row if it is between the starts of this row and the next, and to the column that it
//! names. The product of both tables holds which blocks exist. Models have them as constants, so it
//! is computed once.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType::{Bfloat16, Float, Float16, Int32};

use super::DOMAIN;
use super::cache::{
    KEY, PAST_KEY, PAST_VALUE, QUERY, VALUE, find_lengths, find_missing_rows, rotate,
    separate_operands, write_rows,
};
use super::mask::{Attend, heads, open_heads, pack_heads, scale};
use crate::def::OpDef;
use crate::facts::{float, input, int, output, types};
use crate::function::{Expand, FLOAT, float_scalar, scalar, vector};
use crate::infer::{Infer, InferError};
use crate::rules::shared_dim;
use crate::typeset::TypeSet;

pub(crate) static SPARSE_ATTENTION: OpDef = OpDef::new("SparseAttention")
    .domain(DOMAIN)
    .about(
        "Causal grouped-query attention with a key-value cache and a block-sparse mask. Queries of \
         a block of `sparse_block_size` positions attend only to the blocks of keys that a layout \
         lists; heads take the layouts in turn. New keys and values are written into the cache; \
         queries and keys may be rotated by their positions first (rotary embedding).",
    )
    .since(
        1,
        &[
            input("query", "T"),
            input("key", "T").optional(),
            input("value", "T").optional(),
            input("past_key", "T"),
            input("past_value", "T"),
            input("block_row_indices", "M"),
            input("block_col_indices", "M"),
            input("total_sequence_length", "M"),
            input("key_total_sequence_lengths", "M"),
            input("cos_cache", "T").optional(),
            input("sin_cache", "T").optional(),
            output("output", "T"),
            output("present_key", "T"),
            output("present_value", "T"),
            int("do_rotary"),
            int("kv_num_heads").required(),
            int("num_heads").required(),
            int("rotary_interleaved"),
            float("scale"),
            int("sparse_block_size").required(),
            types("T", TypeSet::tensors(&[Float, Float16, Bfloat16])),
            types("M", TypeSet::tensors(&[Int32])),
        ],
    )
    .infer(infer)
    .body_or_reason(1, body)
    .unknown_cost();

const ROWS: usize = 5;
const COLUMNS: usize = 6;
const LENGTHS: usize = 8;
const COS: usize = 9;

/// Score of a hidden key: the least finite float, so that a query that sees no block attends
/// equally to the keys before it.
const HIDDEN: f32 = f32::MIN;

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    for (input, rank) in
        [(QUERY, 3), (PAST_KEY, 4), (PAST_VALUE, 4), (ROWS, 2), (COLUMNS, 2), (LENGTHS, 1)]
    {
        cx.demand_rank(input, rank)?;
    }
    let [heads, key_heads] = ["num_heads", "kv_num_heads"].map(|name| match cx.int(name) {
        Some(heads @ 1..) => Ok(heads),
        Some(heads) => cx.fail(format_args!("{name} must be positive, not {heads}")),
        None => cx.fail(format_args!("attribute '{name}' is missing")),
    });
    let (heads, key_heads) = (heads?, key_heads?);
    let batch = shared_dim(cx, "the batch", &[(QUERY, 0), (KEY, 0), (PAST_KEY, 0), (LENGTHS, 0)])?;
    let length = shared_dim(cx, "the length", &[(QUERY, 1), (KEY, 1), (VALUE, 1)])?;
    shared_dim(cx, "layouts", &[(ROWS, 0), (COLUMNS, 0)])?;
    let capacity = shared_dim(cx, "the cache", &[(PAST_KEY, 2), (PAST_VALUE, 2)])?;
    let width = shared_dim(cx, "the last axis", &[(QUERY, 2)])?;
    let in_query = if cx.has_input(KEY) { heads } else { heads + 2 * key_heads };
    let size = width.floor_div(&Dim::Known(in_query));
    let past_size = shared_dim(cx, "the size of a head", &[(PAST_KEY, 3), (PAST_VALUE, 3)])?;
    let size = cx.same_dim(&size, &past_size, "sizes of a head of queries and of the cache")?;
    let output_width = if in_query == heads { width } else { size.mul(&Dim::Known(heads)) };
    let elem = cx.elem(QUERY).or(cx.elem(PAST_KEY));
    cx.set_tensor(0, elem, Some(Shape::from_iter([batch.clone(), length, output_width])));
    let present = Shape::from_iter([batch, Dim::Known(key_heads), capacity, size]);
    cx.set_tensor(1, elem, Some(present.clone()));
    cx.set_tensor(2, elem, Some(present));
    Ok(())
}

fn body(cx: &Expand<'_>) -> Result<String, String> {
    if cx.has_input(KEY) != cx.has_input(VALUE) {
        return Err("key and value must both be present or absent".to_string());
    }
    let (heads, key_heads) = (heads(cx, "num_heads")?, heads(cx, "kv_num_heads")?);
    let size = match cx.int("sparse_block_size") {
        Some(size @ 1..) => size,
        Some(size) => return Err(format!("attribute 'sparse_block_size' is {size}")),
        None => return Err("attribute 'sparse_block_size' is missing".to_string()),
    };
    if let Some(layouts) = cx.dim(ROWS, 0).filter(|layouts| *layouts < 1 || heads % layouts != 0) {
        return Err(format!("{heads} heads cannot take {layouts} layouts in turn"));
    }
    let valid = "valid_given = Cast <to = 7> (key_total_sequence_lengths)
        valid = Reshape (valid_given, all)\n";
    let attend = Attend {
        is_causal: true,
        scale: scale(cx),
        outputs: [Some("attended"), None, None, None],
        inputs: [
            Some("q"),
            Some("present_key"),
            Some("present_value"),
            Some("block_bias"),
            None,
            None,
            Some("ends_after"),
        ],
        ..Attend::default()
    };
    Ok([
        find_lengths(valid),
        separate_operands(cx, heads, key_heads),
        rotate(cx, COS, heads, key_heads)?,
        open_heads("turned_query", heads, "q"),
        open_heads("turned_key", key_heads, "new_k"),
        open_heads("packed_value", key_heads, "new_v"),
        find_missing_rows(key_heads),
        write_rows("past_key", "new_k", "present_key"),
        write_rows("past_value", "new_v", "present_value"),
        blocks(),
        bias(heads, size),
        attend.text(),
        pack_heads("attended", "output"),
    ]
    .concat())
}

/// Builds `has_block` from the sparse rows: `[layouts, rows, columns]`.
fn blocks() -> String {
    vector("last", &[-1])
        + &vector("past_the_end", &[i64::MAX])
        + &vector("entry_axes", &[0, 1])
        + &vector("entry_column_axes", &[-1])
        + &format!(
            "row_starts = Slice (block_row_indices, zero, last, one)
            row_ends = Slice (block_row_indices, one, past_the_end, one)
            entries = Shape <start = 1, end = 2> (block_col_indices)
            entry_count = Squeeze (entries, zero)
            entry_list = Range (first, entry_count, step)
            entry_numbers = Cast <to = 6> (entry_list)
            entry_row = Unsqueeze (entry_numbers, entry_axes)
            start_column = Unsqueeze (row_starts, entry_column_axes)
            end_column = Unsqueeze (row_ends, entry_column_axes)
            is_after_start = GreaterOrEqual (entry_row, start_column)
            is_before_end = Less (entry_row, end_column)
            is_in_row = And (is_after_start, is_before_end)
            row_sizes_given = Shape <start = 1, end = 2> (block_row_indices)
            block_count = Sub (row_sizes_given, one)
            block_total = Squeeze (block_count, zero)
            block_list = Range (first, block_total, step)
            block_numbers = Cast <to = 6> (block_list)
            entry_columns = Unsqueeze (block_col_indices, entry_column_axes)
            is_in_column = Equal (entry_columns, block_numbers)
            row_table = Cast <to = {FLOAT}> (is_in_row)
            column_table = Cast <to = {FLOAT}> (is_in_column)
            block_table = MatMul (row_table, column_table)
            has_block = Cast <to = 9> (block_table)\n"
        )
}

/// Builds a bias from `has_block`, by the blocks of queries and keys.
fn bias(heads: i64, size: i64) -> String {
    vector("heads", &[heads])
        + &scalar("block_size", size)
        + &float_scalar("seen_score", 0.0)
        + &float_scalar("hidden_score", HIDDEN)
        + "last_block = Sub (block_count, one)
        query_block = Div (new_positions, block_size)
        known_query_block = Min (query_block, last_block)
        key_total = Squeeze (present_count, zero)
        key_list = Range (first, key_total, step)
        key_block = Div (key_list, block_size)
        known_key_block = Min (key_block, last_block)
        query_rows = Gather <axis = 1> (has_block, known_query_block)
        seen_by_layout = Gather <axis = 3> (query_rows, known_key_block)
        seen_by_sequence = Transpose <perm = [1, 0, 2, 3]> (seen_by_layout)
        layouts = Shape <start = 0, end = 1> (block_row_indices)
        turns = Div (heads, layouts)
        repeats = Concat <axis = 0> (one, turns, one, one)
        is_seen = Tile (seen_by_sequence, repeats)
        wide_bias = Where (is_seen, seen_score, hidden_score)
        wide_like = CastLike (wide_bias, query)
        block_bias = Identity (wide_like)\n"
}
