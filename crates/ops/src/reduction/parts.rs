//! Reductions over axes that are split, expressed by reductions whose partial results can be
//! combined.

use sardonyx_tensor::DataType;

use crate::function::{Expand, scalar, vector};

/// Builds `ArgMax`: the smallest of the positions of the largest element, or the largest position
/// if the last one is wanted.
pub(super) fn arg_max(call: &Expand<'_>) -> Option<String> {
    position(call, "ReduceMax")
}

/// Builds `ArgMin`: the position of the smallest element.
pub(super) fn arg_min(call: &Expand<'_>) -> Option<String> {
    position(call, "ReduceMin")
}

fn position(call: &Expand<'_>, extreme: &str) -> Option<String> {
    let elem = call.tensor(0)?.elem?;
    let is_float = elem.is_float();
    // Types that both reductions and comparisons accept.
    let takes = matches!(
        elem,
        DataType::Float
            | DataType::Double
            | DataType::Float16
            | DataType::Int64
            | DataType::Int32
            | DataType::Int8
            | DataType::Uint8
    );
    let rank = i64::try_from(call.rank(0)?).ok()?;
    let axis = call.int("axis")?;
    let axis = if axis < 0 { axis + rank } else { axis };
    let size = call.dim(0, usize::try_from(axis).ok()?)?;
    // Axes are an input since 18.
    if !takes || size < 1 || call.opset() < 18 {
        return None;
    }
    let keeps = call.int("keepdims")?;
    let (none, chosen) = if call.int("select_last_index")? == 0 {
        (i64::MAX, "ReduceMin")
    } else {
        (-1, "ReduceMax")
    };
    let mut text = vector("axes", &[axis]);
    text += &format!("most = {extreme} <keepdims = 1> (data, axes)\nequal = Equal (data, most)\n");
    // NaN counts as the extreme, and is not equal to itself.
    text += if is_float { "nan = IsNaN (data)\nfound = Or (equal, nan)\n" } else { "" };
    text += &(scalar("zero", 0) + &scalar("one", 1) + &scalar("size", size));
    let trailing = usize::try_from(rank - axis - 1).ok()?;
    let mut shape = vec![size];
    shape.resize(1 + trailing, 1);
    text += &(vector("shape", &shape) + &scalar("none", none));
    let found = if is_float { "found" } else { "equal" };
    text += &format!(
        "list = Range (zero, size, one)
        positions = Reshape (list, shape)
        candidates = Where ({found}, positions, none)
        reduced = {chosen} <keepdims = {keeps}> (candidates, axes)"
    );
    Some(text)
}

/// Builds `ReduceLogSumExp`, subtracting the largest element first unless that is infinite or NaN.
pub(super) fn log_sum_exp(call: &Expand<'_>) -> Option<String> {
    let elem = call.tensor(0)?.elem?;
    let takes = matches!(elem, DataType::Float | DataType::Double);
    if !takes || call.opset() < 18 || call.int("noop_with_empty_axes")? != 0 {
        return None;
    }
    let keeps = call.int("keepdims")?;
    let axes = if call.has_input(1) { ", axes" } else { "" };
    let base = if keeps == 0 {
        format!("base = Squeeze (around{axes})")
    } else {
        "base = Identity (around)".to_string()
    };
    Some(format!(
        "most = ReduceMax <keepdims = 1> (data{axes})
        is_infinite = IsInf (most)
        number = Constant <value = float {{0.0}}> ()
        zero = CastLike (number, data)
        around = Where (is_infinite, zero, most)
        below = Sub (data, around)
        powers = Exp (below)
        sum = ReduceSum <keepdims = {keeps}> (powers{axes})
        log = Log (sum)
        {base}
        reduced = Add (log, base)"
    ))
}
