//! Views around other nodes: of one element of an axis, of sizes, of pooled images, and pairs of
//! views with nodes on single elements between them.

use sardonyx_model::{AttrValue, Attributes, Dim, NodeAttributes, NodeId, Shape, ValueId};
use sardonyx_ops::OpDef;
use sardonyx_ops::operators::{
    ABS, ADD, CAST, CEIL, COS, DIV, ERF, EXP, FLATTEN, FLOOR, GATHER, GELU, GLOBAL_AVERAGE_POOL,
    GLOBAL_MAX_POOL, GREATER, GREATER_OR_EQUAL, HARD_SIGMOID, HARD_SWISH, LESS, LESS_OR_EQUAL, MAX,
    MIN, MISH, MUL, NEG, NOT, REDUCE_MAX, REDUCE_MEAN, RELU, RESHAPE, ROUND, SHAPE, SIGMOID, SIGN,
    SIN, SLICE, SOFTPLUS, SOFTSIGN, SQRT, SQUEEZE, SUB, SWISH, TANH, TRANSPOSE, UNSQUEEZE,
};
use sardonyx_tensor::{DataType, Tensor};

use super::chains::{bounds_of, clamp_bound, is_view};
use super::no_ops::index_of;
use crate::matcher::{Match, Matcher, Rewrite, Source, Step};

/// Nodes that are followed between two views.
const MOST_BETWEEN: usize = 8;

/// Operators on single elements whose results are defined to the bit, wherever the elements lie.
const DEFINED: [&OpDef; 9] = [&ABS, &CAST, &CEIL, &FLOOR, &NEG, &NOT, &RELU, &ROUND, &SIGN];

/// Other operators on single elements. An engine may compute the last elements of a tensor in
/// another way, so that elements must not move.
const ROUNDED: [&OpDef; 14] = [
    &COS,
    &ERF,
    &EXP,
    &GELU,
    &HARD_SIGMOID,
    &HARD_SWISH,
    &MISH,
    &SIGMOID,
    &SIN,
    &SOFTPLUS,
    &SOFTSIGN,
    &SQRT,
    &SWISH,
    &TANH,
];

/// Operators on two elements, whose results are defined to the bit.
const BINARY: [&OpDef; 6] = [&ADD, &DIV, &MAX, &MIN, &MUL, &SUB];

/// Attributes of these operators.
const ATTRIBUTES: [&str; 6] = ["alpha", "approximate", "beta", "round_mode", "saturate", "to"];

/// Whether `after` is `before` without one axis.
fn lacks_axis(before: &Shape, after: &Shape, axis: usize) -> bool {
    let kept = before.iter().enumerate().filter(|(at, _)| *at != axis).map(|(_, dim)| dim);
    after.len() + 1 == before.len() && kept.zip(after).all(|(a, b)| a.surely_equals(b))
}

/// Whether `after` is `before` with a size of 1 at one axis.
fn has_one_at(before: &Shape, after: &Shape, axis: usize) -> bool {
    after.len() == before.len()
        && before.iter().zip(after).enumerate().all(|(at, (before, after))| {
            if at == axis { *after == Dim::Known(1) } else { before.surely_equals(after) }
        })
}

/// Finds `Gather` or `Slice` of one element of an axis, of which a view adds or removes that axis:
/// a `Gather` with another rank of indices. Counterexamples: a slice of several elements; a start
/// from the end that may lie before the beginning; a result that others read.
pub(super) fn find_one_element(cx: &Matcher<'_>, node: NodeId) -> Match {
    let Some(inner) = cx.input(node, 0).and_then(|z| cx.producer(z)) else { return Match::No };
    let (Some(x), Some(y)) = (cx.input(inner, 0), cx.output(node)) else { return Match::No };
    let (Some(before), Some(after)) = (cx.shape(x), cx.shape(y)) else { return Match::No };
    let found = if cx.is(inner, &GATHER) {
        gathered_element(cx, inner, before.len())
    } else if cx.is(inner, &SLICE) {
        sliced_element(cx, inner)
    } else {
        None
    };
    let Some((axis, index)) = found.filter(|_| cx.are_inner(&[inner], node)) else {
        return Match::No;
    };
    let dims: &[usize] = if lacks_axis(before, after, axis) {
        &[]
    } else if has_one_at(before, after, axis) {
        &[1]
    } else {
        return Match::No;
    };
    let Ok(indices) = Tensor::from_vec(dims, vec![index]) else { return Match::No };
    let mut rewrite = Rewrite::fusing(vec![inner]);
    let inputs = vec![Source::Value(x), Source::Constant(indices)];
    rewrite.step(&GATHER, inputs, vec![("axis", AttrValue::Int(axis as i64))]);
    Match::Yes(rewrite)
}

/// Returns the axis and the index of a `Gather` of one element.
fn gathered_element(cx: &Matcher<'_>, node: NodeId, rank: usize) -> Option<(usize, i64)> {
    let indices = cx.constant(cx.input(node, 1)?).filter(|indices| indices.len() == 1)?;
    let index = match indices.data_type() {
        DataType::Int64 => indices.item::<i64>().ok()?,
        DataType::Int32 => i64::from(indices.item::<i32>().ok()?),
        _ => return None,
    };
    Some((index_of(cx.int(node, "axis").unwrap_or(0), rank)?, index))
}

/// Returns the axis and the first index of a `Slice` of one axis. How many elements it has is up to
/// the view.
fn sliced_element(cx: &Matcher<'_>, node: NodeId) -> Option<(usize, i64)> {
    let bounds = bounds_of(cx, node)?;
    let ([start], [axis], [1]) = (&bounds.starts[..], &bounds.axes[..], &bounds.steps[..]) else {
        return None;
    };
    // Before version 11, indices of `Gather` count from the front.
    let fits = *start >= 0 || *start == -1 && cx.is_from(11);
    fits.then_some((usize::try_from(*axis).ok()?, *start))
}

/// Finds `Gather` or `Slice` of neighboring sizes of a shape: a `Shape` of these alone.
/// Counterexamples: a single size without an axis; sizes in another order; before version 15,
/// `Shape` of all sizes only.
pub(super) fn find_part_of_shape(cx: &Matcher<'_>, node: NodeId) -> Match {
    let Some(shape) = cx.input(node, 0).and_then(|sizes| cx.made_by(sizes, &SHAPE)) else {
        return Match::No;
    };
    let Some(x) = cx.input(shape, 0).filter(|_| cx.is_from(15)) else { return Match::No };
    let Some(rank) = cx.rank(x) else { return Match::No };
    let rank = rank as i64;
    let from = clamp_bound(cx.int(shape, "start").unwrap_or(0), rank);
    let length = clamp_bound(cx.int(shape, "end").unwrap_or(rank), rank) - from;
    let part = if cx.is(node, &SLICE) {
        bounds_of(cx, node).and_then(|bounds| match (&bounds.starts[..], &bounds.ends[..]) {
            ([start], [end]) if bounds.steps == [1] => {
                Some((clamp_bound(*start, length), clamp_bound(*end, length)))
            }
            _ => None,
        })
    } else {
        find_neighbors(cx, node, length)
    };
    let Some((start, end)) = part.filter(|(start, end)| start < end) else { return Match::No };
    let mut rewrite = Rewrite::fusing(vec![shape]);
    let bounds = [("start", from + start), ("end", from + end)];
    let attributes = bounds.map(|(name, bound)| (name, AttrValue::Int(bound)));
    rewrite.step(&SHAPE, vec![Source::Value(x)], attributes.to_vec());
    Match::Yes(rewrite)
}

/// Returns the bounds of the elements of a `Gather` that are neighbors in a vector of a length.
fn find_neighbors(cx: &Matcher<'_>, node: NodeId, length: i64) -> Option<(i64, i64)> {
    let indices = cx.constant(cx.input(node, 1)?).filter(|indices| indices.dims().len() == 1)?;
    let indices = indices.to_vec::<i64>().ok()?;
    let mut bounds: Option<(i64, i64)> = None;
    for index in indices {
        let index = if index < 0 { index + length } else { index };
        bounds = match bounds {
            None => Some((index, index.saturating_add(1))),
            Some((first, end)) if index == end => Some((first, end.saturating_add(1))),
            Some(_) => return None,
        };
    }
    bounds.filter(|(first, end)| *first >= 0 && *end <= length)
}

/// Finds `Not` of a comparison of integers. Counterexample: floats, of which NaN is neither less
/// nor not less.
pub(super) fn find_not(cx: &Matcher<'_>, node: NodeId) -> Match {
    let Some(inner) = cx.input(node, 0).and_then(|x| cx.producer(x)) else { return Match::No };
    let opposites = [
        (&LESS, &GREATER_OR_EQUAL),
        (&GREATER, &LESS_OR_EQUAL),
        (&LESS_OR_EQUAL, &GREATER),
        (&GREATER_OR_EQUAL, &LESS),
    ];
    let opposite = opposites.into_iter().find(|(op, _)| cx.is(inner, op));
    let (Some((_, op)), Some((a, b))) = (opposite, cx.pair(inner)) else { return Match::No };
    let are_integers = cx.elem(a).is_some_and(DataType::is_integer);
    if !are_integers || !cx.are_inner(&[inner], node) {
        return Match::No;
    }
    let mut rewrite = Rewrite::fusing(vec![inner]);
    rewrite.step(op, [a, b].map(Source::Value).to_vec(), Vec::new());
    Match::Yes(rewrite)
}

/// Finds a global pool whose result loses the axes of the image: a reduction. Counterexamples: a
/// view that keeps an axis of 1; a result that others read.
pub(super) fn find_pooled(cx: &Matcher<'_>, node: NodeId) -> Match {
    let Some(pool) = cx.input(node, 0).and_then(|z| cx.producer(z)) else { return Match::No };
    let op = if cx.is(pool, &GLOBAL_AVERAGE_POOL) {
        &REDUCE_MEAN
    } else if cx.is(pool, &GLOBAL_MAX_POOL) {
        &REDUCE_MAX
    } else {
        return Match::No;
    };
    let (Some(x), Some(y)) = (cx.input(pool, 0), cx.output(node)) else { return Match::No };
    let (Some(before), Some(after)) = (cx.shape(x), cx.shape(y)) else { return Match::No };
    let keeps = before.len() > 2
        && after.len() == 2
        && before.iter().zip(after).all(|(a, b)| a.surely_equals(b));
    if !keeps || !cx.are_inner(&[pool], node) {
        return Match::No;
    }
    let axes: Vec<i64> = (2..before.len() as i64).collect();
    let (mut inputs, mut attributes) = (vec![Source::Value(x)], Vec::new());
    attributes.push(("keepdims", AttrValue::Int(0)));
    if cx.is_from(18) {
        let Some(axes) = Source::ints(axes) else { return Match::No };
        inputs.push(axes);
    } else {
        attributes.push(("axes", axes.into()));
    }
    let mut rewrite = Rewrite::fusing(vec![pool]);
    rewrite.step(op, inputs, attributes);
    Match::Yes(rewrite)
}

/// A node on single elements between two views.
struct Between {
    node: NodeId,
    /// Index of the input that comes from the node before.
    index: usize,
}

/// Finds two views, or two transposes, that cancel each other, with nodes on single elements
/// between them. Counterexamples: an operand with several elements, which would have to move, too;
/// a node between that others read.
pub(super) fn find_around(cx: &Matcher<'_>, anchor: NodeId) -> Match {
    let is_transpose = cx.is(anchor, &TRANSPOSE);
    let Some(mut value) = cx.input(anchor, 0) else { return Match::No };
    let (mut between, mut reader) = (Vec::new(), anchor);
    let inner = loop {
        let Some(node) = cx.producer(value) else { return Match::No };
        let is_end = if is_transpose { cx.is(node, &TRANSPOSE) } else { is_view(cx, node) };
        if is_end {
            break node;
        }
        let Some(index) = followed_input(cx, node, is_transpose) else { return Match::No };
        if between.len() == MOST_BETWEEN || cx.only_reader(node) != Some(reader) {
            return Match::No;
        }
        let Some(before) = cx.input(node, index) else { return Match::No };
        between.push(Between { node, index });
        (value, reader) = (before, node);
    };
    let (Some(x), Some(y)) = (cx.input(inner, 0), cx.output(anchor)) else { return Match::No };
    let cancels = if is_transpose { are_inverse(cx, inner, anchor) } else { cx.same_shape(x, y) };
    if between.is_empty() || !cancels {
        return Match::No;
    }
    match make_between(cx, x, &between) {
        Some(mut rewrite) => {
            rewrite.fused.push(inner);
            Match::Yes(rewrite)
        }
        None => Match::No,
    }
}

/// Returns the index of the input whose elements a node changes one by one.
fn followed_input(cx: &Matcher<'_>, node: NodeId, is_transpose: bool) -> Option<usize> {
    if DEFINED.iter().any(|op| cx.is(node, op)) {
        return Some(0);
    }
    if ROUNDED.iter().any(|op| cx.is(node, op)) {
        return (!is_transpose).then_some(0);
    }
    if !BINARY.iter().any(|op| cx.is(node, op)) {
        return None;
    }
    let (a, b) = cx.pair(node)?;
    // A constant without axes fits any shape.
    let is_single = |value: ValueId| (cx.is_constant)(value) && cx.rank(value) == Some(0);
    if is_single(b) { Some(0) } else { is_single(a).then_some(1) }
}

/// Whether two transposes cancel each other.
fn are_inverse(cx: &Matcher<'_>, first: NodeId, second: NodeId) -> bool {
    let (Some(first), Some(second)) = (cx.permutation(first), cx.permutation(second)) else {
        return false;
    };
    let moved = second.iter().map(|axis| first.get(usize::try_from(*axis).ok()?).copied());
    first.len() == second.len() && moved.zip(0..).all(|(axis, at)| axis == Some(at))
}

/// Makes the nodes between two views again, the last one first in the list, on the value before
/// both.
fn make_between(cx: &Matcher<'_>, x: ValueId, between: &[Between]) -> Option<Rewrite> {
    let mut rewrite = Rewrite::fusing(between.iter().map(|between| between.node).collect());
    let mut before = Source::Value(x);
    for Between { node, index } in between.iter().rev() {
        let inputs = cx.model.inputs(*node).enumerate().map(|(at, input)| match input {
            _ if at == *index => before.clone(),
            Some(value) => Source::Value(value),
            None => Source::Absent,
        });
        let inputs = inputs.collect();
        let found = NodeAttributes::new(cx.model, *node);
        let attributes = ATTRIBUTES
            .iter()
            .filter_map(|name| Some((*name, found.attribute(name)?.into_owned())))
            .collect::<Vec<_>>();
        if attributes.len() != cx.model.attributes(*node).len() {
            return None;
        }
        let op = cx.resolved.op(*node)?.def;
        rewrite.steps.push(Step { op, inputs, attributes });
        before = Source::Step(rewrite.steps.len() - 1);
    }
    Some(rewrite)
}

/// Operators at which pairs of views are looked for.
pub(super) const AROUND_ANCHORS: &[&OpDef] =
    &[&TRANSPOSE, &RESHAPE, &FLATTEN, &SQUEEZE, &UNSQUEEZE];
