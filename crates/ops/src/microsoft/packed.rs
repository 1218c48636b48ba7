//! Unpacking of codes of a few bits in functions.

use crate::function::vector;

/// Builds the codes of 2, 4 or 8 bits in bytes along the last axis, as uint8. A byte holds its
/// lowest bits first, or its highest bits if `is_high_first`.
pub(super) fn unpack(bytes: &str, bits: i64, is_high_first: bool, into: &str) -> String {
    if bits == 8 {
        return format!("{into} = Identity ({bytes})\n");
    }
    let mut shifts: Vec<i64> = (0..8 / bits).map(|place| place * bits).collect();
    if is_high_first {
        shifts.reverse();
    }
    let (count, mask) = (shifts.len(), (1 << bits) - 1);
    let shifts: Vec<String> = shifts.iter().map(i64::to_string).collect();
    format!(
        "{last}{into}_shifts = Constant <value = uint8[{count}] {{{shifts}}}> ()
        {into}_mask = Constant <value = uint8 {{{mask}}}> ()
        {into}_column = Unsqueeze ({bytes}, {into}_last)
        {into}_shifted = BitShift <direction = \"RIGHT\"> ({into}_column, {into}_shifts)
        {into}_apart = BitwiseAnd ({into}_shifted, {into}_mask)
        {into}_axes = Shape <end = -1> ({bytes})
        {into}_sizes = Concat <axis = 0> ({into}_axes, {into}_last)
        {into} = Reshape ({into}_apart, {into}_sizes)\n",
        last = vector(&format!("{into}_last"), &[-1]),
        shifts = shifts.join(", "),
    )
}
