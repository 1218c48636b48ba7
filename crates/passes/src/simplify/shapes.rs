//! Target shapes that are computed, although inference knows them.

use sardonyx_model::{Dim, NodeId};
use sardonyx_ops::operators::{EXPAND, RESHAPE};

use super::chains::reshape;
use crate::matcher::{Match, Matcher, Rewrite, Source};

/// Makes the constant target of a `Reshape` from one shape to another: sizes that are known, 0 for
/// a size that stays at its position, or -1 for the only open size. `None` if more are open.
///
/// A size of 0 beside an open one makes -1 ambiguous, so the result is `None` then.
pub(super) fn target_between(before: &[Dim], after: &[Dim]) -> Option<Vec<i64>> {
    let open = after.iter().filter(|dim| dim.size().is_none()).count();
    let has_zero = after.contains(&Dim::Known(0));
    if open == 0 {
        // 0 copies a size of the input.
        let fits = after
            .iter()
            .enumerate()
            .all(|(at, dim)| *dim != Dim::Known(0) || before.get(at) == Some(&Dim::Known(0)));
        return fits.then(|| after.iter().filter_map(Dim::known).collect());
    }
    if has_zero {
        return None;
    }
    if open == 1 {
        return Some(after.iter().map(|dim| dim.known().unwrap_or(-1)).collect());
    }
    // A -1 beside a copied size would be ambiguous where that is 0 in a run.
    let sizes = after.iter().enumerate().map(|(at, dim)| match dim.known() {
        Some(size) => Some(size),
        None => before.get(at)?.surely_equals(dim).then_some(0),
    });
    sizes.collect()
}

/// Replaces a computed target shape by a constant. Counterexamples: two sizes that the caller
/// chooses and that move; a size of 0, which a `Reshape` copies; a computed -1.
pub(super) fn find_target(cx: &Matcher<'_>, node: NodeId) -> Match {
    let (Some(x), Some(target)) = (cx.input(node, 0), cx.input(node, 1)) else {
        return Match::No;
    };
    let Some(y) = cx.output(node) else { return Match::No };
    if cx.constant(target).is_some() {
        return Match::No;
    }
    let (Some(before), Some(after)) = (cx.shape(x), cx.shape(y)) else { return Match::No };
    if cx.is(node, &RESHAPE) {
        let Some(target) = target_between(before, after) else { return Match::No };
        return reshape(cx, x, target, Vec::new());
    }
    // 1 keeps the size of the input.
    let offset = after.len() - before.len().min(after.len());
    let target = after.iter().enumerate().map(|(at, dim)| match dim.known() {
        Some(size) => Some(size),
        None => {
            let before = before.get(at.checked_sub(offset)?)?;
            before.surely_equals(dim).then_some(1)
        }
    });
    let Some(target) = target.collect::<Option<Vec<i64>>>() else {
        return Match::No;
    };
    let Some(target) = Source::ints(target) else { return Match::No };
    let mut rewrite = Rewrite::default();
    rewrite.step(&EXPAND, vec![Source::Value(x), target], Vec::new());
    Match::Yes(rewrite)
}
