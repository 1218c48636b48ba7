//! Operations on elements that change nothing.

use sardonyx_model::{NodeId, ValueId};
use sardonyx_ops::operators::{ADD, AND, DIV, MUL, NEG, NOT, OR, POW, SUB, XOR};
use sardonyx_tensor::DataType;

use super::no_ops::{fill_of, give};
use crate::matcher::{Match, Matcher, Rewrite};

/// Returns the number that all elements of a constant equal.
fn fill(cx: &Matcher<'_>, value: ValueId) -> Option<f64> {
    fill_of(&cx.constant(value)?)
}

/// Whether the result of a node has the type and shape of `x`.
fn keeps_type(cx: &Matcher<'_>, node: NodeId, x: ValueId) -> bool {
    cx.output(node)
        .is_some_and(|y| cx.same_shape(x, y) && cx.elem(x).is_some() && cx.elem(x) == cx.elem(y))
}

/// Finds operands that change nothing. Counterexamples: `0 - x`, `1 / x`; `x + 0.0`, as
/// `-0.0 + 0.0` is `0.0`; `0 * x`, as `0 * NaN` is NaN; a one that has more axes than `x`.
pub(super) fn find_neutral(cx: &Matcher<'_>, node: NodeId) -> Match {
    let Some((a, b)) = cx.pair(node) else { return Match::No };
    for (operand, x, fits) in [
        (b, a, is_neutral(cx, node, b) || is_neutral_right(cx, node, b)),
        (a, b, is_neutral(cx, node, a)),
    ] {
        if fits && operand != x && keeps_type(cx, node, x) {
            return give(x);
        }
    }
    Match::No
}

/// Whether an operand changes nothing, on either side.
fn is_neutral(cx: &Matcher<'_>, node: NodeId, operand: ValueId) -> bool {
    let Some(number) = fill(cx, operand) else { return false };
    let is_float = cx.elem(operand).is_none_or(DataType::is_float);
    if cx.is(node, &MUL) || cx.is(node, &AND) {
        number == 1.0
    } else if cx.is(node, &ADD) {
        number == 0.0 && (!is_float || number.is_sign_negative())
    } else {
        number == 0.0 && (cx.is(node, &OR) || cx.is(node, &XOR))
    }
}

/// Whether an operand changes nothing on the right side.
fn is_neutral_right(cx: &Matcher<'_>, node: NodeId, operand: ValueId) -> bool {
    let Some(number) = fill(cx, operand) else { return false };
    if cx.is(node, &DIV) {
        number == 1.0
    } else {
        cx.is(node, &SUB) && number == 0.0 && number.is_sign_positive()
    }
}

/// Finds operands that change nothing but the sign of a zero. Counterexamples: `x - x`; `1 ^ x`; a
/// zero that makes the result larger.
pub(super) fn find_nearly_neutral(cx: &Matcher<'_>, node: NodeId) -> Match {
    let Some((a, b)) = cx.pair(node) else { return Match::No };
    if cx.is(node, &POW) {
        let is_one = fill(cx, b) == Some(1.0);
        return if is_one && keeps_type(cx, node, a) { give(a) } else { Match::No };
    }
    for (zero, x) in [(b, a), (a, b)] {
        if zero != x && fill(cx, zero) == Some(0.0) && keeps_type(cx, node, x) {
            return give(x);
        }
    }
    Match::No
}

/// Finds operations that undo or repeat the one before. Counterexample: `Neg` of `Abs`.
pub(super) fn find_twice(cx: &Matcher<'_>, node: NodeId) -> Match {
    let Some(op) = cx.resolved.op(node) else { return Match::No };
    let Some(x) = cx.input(node, 0) else { return Match::No };
    let Some(inner) = cx.made_by(x, op.def) else { return Match::No };
    let cancels = op.def.is(&NEG) || op.def.is(&NOT);
    match cx.input(inner, 0) {
        Some(before) if cancels => Match::Yes(Rewrite::with_value(before, vec![inner])),
        _ if cancels => Match::No,
        _ => Match::Yes(Rewrite::with_value(x, vec![inner])),
    }
}

/// Finds a `Clip` without bounds. Counterexamples: before version 11, the largest floats are the
/// bounds, so that infinities change; a bound that a function may leave out.
pub(super) fn find_clip(cx: &Matcher<'_>, node: NodeId) -> Match {
    let has_bound = cx.model.inputs(node).skip(1).any(|bound| bound.is_some());
    match cx.input(node, 0) {
        Some(x) if !has_bound && cx.is_from(11) => give(x),
        _ => Match::No,
    }
}

/// Finds a `Where` that chooses one operand. Counterexample: a condition with more axes than the
/// operand that it chooses.
pub(super) fn find_where(cx: &Matcher<'_>, node: NodeId) -> Match {
    let mut inputs = cx.model.inputs(node);
    let (Some(Some(condition)), Some(Some(yes)), Some(Some(no))) =
        (inputs.next(), inputs.next(), inputs.next())
    else {
        return Match::No;
    };
    let chosen = match fill(cx, condition) {
        _ if yes == no => yes,
        Some(1.0) => yes,
        Some(0.0) => no,
        _ => return Match::No,
    };
    if keeps_type(cx, node, chosen) { give(chosen) } else { Match::No }
}
