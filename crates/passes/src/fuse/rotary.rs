//! Rotary position embedding: Su et al., "RoFormer" (2021), in the form with halves that exporters
//! spell out.

use sardonyx_model::{NodeId, Producer, ValueId};
use sardonyx_ops::OpDef;
use sardonyx_ops::operators::{
    CONCAT, COS, MUL, NEG, ROTARY_EMBEDDING, SIN, SLICE, SPLIT, UNSQUEEZE,
};
use sardonyx_tensor::DataType::Float;

use crate::matcher::{Match, Matcher, Rewrite, Source, give_up};

/// `x * cos + concat(-x[half..], x[..half]) * sin`, where cosine and sine are those of angles that
/// stand twice in a row.
pub(crate) fn rotary(cx: &Matcher<'_>, anchor: NodeId) -> Match {
    for (first, second) in cx.either_way(anchor) {
        let (Some(straight), Some(crossed)) = (cx.made_by(first, &MUL), cx.made_by(second, &MUL))
        else {
            continue;
        };
        for (rotated, sin) in cx.either_way(crossed) {
            let Some((x, mut fused)) = half_turn(cx, rotated) else {
                continue;
            };
            let Some((_, cos)) = cx.either_way(straight).find(|(value, _)| *value == x) else {
                continue;
            };
            if cx.elem(x) != Some(Float) || cx.rank(x) != Some(4) {
                give_up!();
            }
            let (Some(cos), Some(sin)) = (once(cx, cos, &COS), once(cx, sin, &SIN)) else {
                give_up!("cosine and sine may not be of angles that are repeated in each row");
            };
            if !of_all_tokens(cx, cos, x) || !of_all_tokens(cx, sin, x) {
                give_up!("there may not be angles for each position");
            }
            fused.extend([straight, crossed]);
            if !cx.are_inner(&fused, anchor) {
                give_up!("an intermediate value is also used by another node");
            }
            let mut rewrite = Rewrite::fusing(fused);
            let cos = rewrite.step(&COS, vec![Source::Value(cos)], Vec::new());
            let sin = rewrite.step(&SIN, vec![Source::Value(sin)], Vec::new());
            rewrite.step(&ROTARY_EMBEDDING, vec![Source::Value(x), cos, sin], Vec::new());
            return Match::Yes(rewrite);
        }
    }
    Match::No
}

/// `x`, if `value` is `concat(-x[half..], x[..half])` along the last axis.
fn half_turn(cx: &Matcher<'_>, value: ValueId) -> Option<(ValueId, Vec<NodeId>)> {
    let concat = cx.made_by(value, &CONCAT)?;
    let (negated, low) = cx.pair(concat)?;
    if !cx.is_last_axis(cx.int(concat, "axis")?, value) {
        return None;
    }
    let negation = cx.made_by(negated, &NEG)?;
    let high = cx.input(negation, 0)?;
    let (x, halving) = find_halves(cx, low, high)?;
    let fused = [concat, negation].into_iter().chain(halving).collect();
    Some((x, fused))
}

/// Returns the value whose halves along the last axis are `low` and `high`, with the nodes that
/// halve it: a `Split`, or two slices.
fn find_halves(cx: &Matcher<'_>, low: ValueId, high: ValueId) -> Option<(ValueId, Vec<NodeId>)> {
    if let (Producer::Node(split, 0), Producer::Node(other, 1)) =
        (cx.model.value(low).producer, cx.model.value(high).producer)
        && split == other
        && cx.is(split, &SPLIT)
        && cx.model.node(split).graph == cx.graph
        && cx.model.outputs(split).len() == 2
    {
        let x = cx.input(split, 0)?;
        let half = cx.size_from_end(x, 1)?.known()? / 2;
        let is_last = cx.is_last_axis(cx.int(split, "axis").unwrap_or(0), x);
        let is_halved = [low, high]
            .iter()
            .all(|part| cx.size_from_end(*part, 1).and_then(|dim| dim.known()) == Some(half));
        return (is_last && is_halved).then(|| (x, vec![split]));
    }
    let (x, low_from, low_to, low_node) = slice_of_last_axis(cx, low)?;
    let (also_x, high_from, high_to, high_node) = slice_of_last_axis(cx, high)?;
    let size = cx.size_from_end(x, 1)?.known()?;
    let fits = x == also_x
        && size % 2 == 0
        && low_from == 0
        && low_to == size / 2
        && high_from == size / 2
        && high_to >= size;
    fits.then(|| (x, vec![low_node, high_node]))
}

/// What is sliced, from where to where, if it is a slice of neighbours along the last axis.
fn slice_of_last_axis(cx: &Matcher<'_>, value: ValueId) -> Option<(ValueId, i64, i64, NodeId)> {
    let node = cx.made_by(value, &SLICE)?;
    let list = |index: usize| cx.input(node, index).map(|value| cx.ints(value));
    let x = cx.input(node, 0)?;
    let [from] = list(1)??[..] else { return None };
    let [to] = list(2)??[..] else { return None };
    let [axis] = list(3)??[..] else { return None };
    if let Some(steps) = list(4)
        && steps? != [1]
    {
        return None;
    }
    cx.is_last_axis(axis, x).then_some((x, from, to, node))
}

/// Whether there are angles `[batch or 1, sequence, pairs]` for `x`,
/// `[batch, heads, sequence, features]`.
fn of_all_tokens(cx: &Matcher<'_>, angles: ValueId, x: ValueId) -> bool {
    let (Some([batch, length, _]), Some([x_batch, _, x_length, _])) =
        (cx.shape(angles).map(|s| &s[..]), cx.shape(x).map(|s| &s[..]))
    else {
        return false;
    };
    (batch.known() == Some(1) || batch.surely_equals(x_batch)) && length.surely_equals(x_length)
}

/// The angles, if `value` is `function(concat(angles, angles))`, perhaps with an axis of heads put
/// in.
fn once(cx: &Matcher<'_>, value: ValueId, function: &OpDef) -> Option<ValueId> {
    let unsqueezed = cx.made_by(value, &UNSQUEEZE)?;
    // [batch, sequence, angles] becomes [batch, 1, sequence, angles].
    if cx.rank(value)? != 4 || cx.ints(cx.input(unsqueezed, 1)?)? != [1] {
        return None;
    }
    let function = cx.made_by(cx.input(unsqueezed, 0)?, function)?;
    let concat = cx.made_by(cx.input(function, 0)?, &CONCAT)?;
    let (a, b) = cx.pair(concat)?;
    let along_last = cx.is_last_axis(cx.int(concat, "axis")?, cx.output(concat)?);
    (a == b && along_last).then_some(a)
}
