//! Parts that the operators for attention share: masks of keys in all their forms, turned into a
//! bias of the scores, and the call of the standard's `Attention`.

use crate::function::{Expand, float_scalar, scalar, vector};

/// Score that is added to hidden keys by default.
const HIDDEN: f32 = -10000.0;

/// Masks of a node.
pub(super) struct Masks<'a> {
    /// Input that hides keys: its index and its name.
    pub(super) padding: (usize, &'a str),
    /// Input that is added to scores: its index and its name.
    pub(super) bias: (usize, &'a str),
    /// Value whose element type the scores have.
    pub(super) like: &'a str,
    /// Values of one integer each: batch, queries, keys before those of this call, all keys.
    pub(super) batch: &'a str,
    pub(super) queries: &'a str,
    pub(super) past: &'a str,
    pub(super) keys: &'a str,
}

impl Masks<'_> {
    /// Builds the nodes that make one bias of all masks, and returns its name if there are any
    /// masks.
    pub(super) fn text(&self, cx: &Expand<'_>) -> Result<(String, Option<&str>), String> {
        let (padding, bias) = (cx.has_input(self.padding.0), cx.has_input(self.bias.0));
        let mut text = if padding { self.padding(cx)? } else { String::new() };
        let name = match (padding, bias) {
            (false, false) => None,
            (true, false) => Some("padding_bias"),
            (false, true) => Some(self.bias.1),
            (true, true) => {
                text += &format!("all_bias = Add ({}, padding_bias)\n", self.bias.1);
                Some("all_bias")
            }
        };
        Ok((text, name))
    }

    /// Builds the bias that hides keys, with axes for batch, heads, queries and keys.
    fn padding(&self, cx: &Expand<'_>) -> Result<String, String> {
        let (input, mask) = self.padding;
        let zero = scalar("mask_zero_number", 0)
            + &format!("mask_zero = CastLike (mask_zero_number, {mask})\n");
        let seen = match cx.rank(input) {
            Some(1) => self.ends(cx)?,
            Some(2) => {
                zero + &vector("mask_axes", &[1, 2])
                    + &format!(
                        "is_seen = Greater ({mask}, mask_zero)
                        sees = Unsqueeze (is_seen, mask_axes)\n"
                    )
            }
            Some(3) => {
                zero + &vector("mask_axes", &[1])
                    + &format!(
                        "is_seen = Greater ({mask}, mask_zero)
                        sees = Unsqueeze (is_seen, mask_axes)\n"
                    )
            }
            // A mask for the longest possible sequence is cropped to these queries and keys.
            Some(4) => {
                let Masks { queries, past, keys, .. } = self;
                zero + &vector("mask_axes", &[2, 3])
                    + &vector("mask_from", &[0])
                    + &format!(
                        "mask_rows_end = Add ({past}, {queries})
                        mask_starts = Concat <axis = 0> ({past}, mask_from)
                        mask_ends = Concat <axis = 0> (mask_rows_end, {keys})
                        mask_part = Slice ({mask}, mask_starts, mask_ends, mask_axes)
                        sees = Greater (mask_part, mask_zero)\n"
                    )
            }
            Some(rank) => return Err(format!("its mask has rank {rank}, not 1 to 4")),
            None => return Err("the rank of its mask is unknown".to_string()),
        };
        let hidden = cx.float("mask_filter_value").unwrap_or(HIDDEN);
        Ok(format!(
            "{seen}{}{}hidden_bias = Where (sees, seen_score, hidden_score)
            padding_bias = CastLike (hidden_bias, {})\n",
            float_scalar("seen_score", 0.0),
            float_scalar("hidden_score", hidden),
            self.like,
        ))
    }

    /// Builds the truth values of visible keys from a mask that holds where the keys of each
    /// sequence end and perhaps where they begin. Missing beginnings are zeros.
    fn ends(&self, cx: &Expand<'_>) -> Result<String, String> {
        let (input, mask) = self.padding;
        let Masks { batch, keys, .. } = self;
        if let (Some(len), Some(batch)) = (cx.dim(input, 0), cx.dim(0, 0))
            && len != batch
            && len != batch * 2
        {
            return Err(format!("its mask has {len} elements for a batch of {batch}"));
        }
        let constants = scalar("key_from", 0)
            + &scalar("key_by", 1)
            + &vector("mask_from", &[0])
            + &vector("mask_second", &[1])
            + &vector("mask_axes", &[1, 2]);
        Ok(format!(
            "{constants}
            mask_ints = Cast <to = 7> ({mask})
            no_starts = ConstantOfShape <value = int64[1] {{0}}> ({batch})
            ends_and_starts = Concat <axis = 0> (mask_ints, no_starts)
            twice_batch = Add ({batch}, {batch})
            ends = Slice (ends_and_starts, mask_from, {batch}, mask_from)
            starts = Slice (ends_and_starts, {batch}, twice_batch, mask_from)
            ends_column = Unsqueeze (ends, mask_second)
            starts_column = Unsqueeze (starts, mask_second)
            key_end = Squeeze ({keys}, mask_from)
            key_positions = Range (key_from, key_end, key_by)
            is_before_end = Less (key_positions, ends_column)
            is_after_start = GreaterOrEqual (key_positions, starts_column)
            is_seen = And (is_before_end, is_after_start)
            sees = Unsqueeze (is_seen, mask_axes)\n"
        ))
    }
}

/// Call of the standard's `Attention`.
#[derive(Default)]
pub(super) struct Attend<'a> {
    /// Number of heads of queries, and of keys and values, if they are packed into the last axis.
    pub(super) packed: Option<[i64; 2]>,
    pub(super) is_causal: bool,
    /// Number of keys before its own position that a query sees.
    pub(super) left_window: Option<i64>,
    pub(super) softcap: f32,
    /// Factor of the scores instead of the reciprocal of the root of a head's size.
    pub(super) scale: Option<f32>,
    /// Stage of the scores that the last output holds.
    pub(super) stage: i64,
    pub(super) outputs: [Option<&'a str>; 4],
    pub(super) inputs: [Option<&'a str>; 7],
}

impl Attend<'_> {
    pub(super) fn text(&self) -> String {
        let mut attributes = vec![format!("is_causal = {}", i64::from(self.is_causal))];
        if let Some([heads, key_heads]) = self.packed {
            attributes.push(format!("q_num_heads = {heads}, kv_num_heads = {key_heads}"));
        }
        if let Some(size) = self.left_window {
            attributes.push(format!("left_window_size = {size}"));
        }
        if self.softcap != 0.0 {
            attributes.push(format!("softcap = {:?}", self.softcap));
        }
        if let Some(scale) = self.scale {
            attributes.push(format!("scale = {scale:?}"));
        }
        if self.outputs[3].is_some() {
            attributes.push(format!("qk_matmul_output_mode = {}", self.stage));
        }
        let (attributes, outputs) = (attributes.join(", "), list(&self.outputs));
        format!("{outputs} = Attention <{attributes}> ({})\n", list(&self.inputs))
    }
}

/// Lists operands with commas between them, without absent ones at the end.
pub(super) fn list(operands: &[Option<&str>]) -> String {
    let end = operands.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    let names: Vec<&str> = operands[..end].iter().map(|name| name.unwrap_or("\"\"")).collect();
    names.join(", ")
}

/// Returns the scale of a node, unless it is the default.
pub(super) fn scale(cx: &Expand<'_>) -> Option<f32> {
    cx.float("scale").filter(|scale| *scale != 0.0)
}

/// Returns the number of heads from an attribute.
pub(super) fn heads(cx: &Expand<'_>, name: &str) -> Result<i64, String> {
    match cx.int(name) {
        Some(heads @ 1..) => Ok(heads),
        Some(heads) => Err(format!("attribute '{name}' is {heads}")),
        None => Err(format!("attribute '{name}' is missing")),
    }
}

/// Builds heads as an axis before rows: `[B, S, N * H]` becomes `[B, N, S, H]`.
pub(super) fn open_heads(packed: &str, heads: i64, into: &str) -> String {
    vector(&format!("{into}_sizes"), &[0, 0, heads, -1])
        + &format!(
            "{into}_apart = Reshape ({packed}, {into}_sizes)
            {into} = Transpose <perm = [0, 2, 1, 3]> ({into}_apart)\n"
        )
}

/// Builds heads packed into the last axis: `[B, N, S, H]` becomes `[B, S, N * H]`.
pub(super) fn pack_heads(open: &str, into: &str) -> String {
    vector(&format!("{into}_sizes"), &[0, 0, -1])
        + &format!(
            "{into}_apart = Transpose <perm = [0, 2, 1, 3]> ({open})
            {into} = Reshape ({into}_apart, {into}_sizes)\n"
        )
}
