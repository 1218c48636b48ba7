//! Chains of nodes that move elements, each in one node.

use sardonyx_model::{AttrValue, Dim, NodeId, ValueId};
use sardonyx_ops::operators::{
    CAST, CONCAT, FLATTEN, RESHAPE, SLICE, SQUEEZE, TRANSPOSE, UNSQUEEZE,
};
use sardonyx_tensor::DataType;

use super::no_ops::index_of;
use super::rule::REDUCTIONS;
use super::shapes::target_between;
use crate::matcher::{Match, Matcher, Rewrite, Source};

/// Operands of a merged `Concat` at most: a chain of them would otherwise be copied again and
/// again.
const MOST_OPERANDS: usize = 1 << 12;

/// Finds two casts of which the first loses nothing. Counterexamples: `int64` to `int32` and back,
/// which wraps; `float` to `float16` and back, which rounds; `float16` to `float` to `int8`, as
/// conversions out of range may differ; `bool` to `int` to `string`.
pub(super) fn find_casts(cx: &Matcher<'_>, node: NodeId) -> Match {
    let to = cx.int(node, "to").and_then(|to| i32::try_from(to).ok());
    let Some(to) = to.and_then(DataType::from_number) else { return Match::No };
    let Some(between) = cx.input(node, 0) else { return Match::No };
    let Some(inner) = cx.made_by(between, &CAST) else { return Match::No };
    let Some(x) = cx.input(inner, 0) else { return Match::No };
    let (Some(from), Some(middle)) = (cx.elem(x), cx.elem(between)) else { return Match::No };
    if !keeps_numbers(from, middle) {
        return Match::No;
    }
    if from == to {
        return Match::Yes(Rewrite::with_value(x, vec![inner]));
    }
    let fits = match (is_whole(from), is_whole(to)) {
        (true, true) => is_whole(middle),
        (true, false) => matches!(to, DataType::Float16 | DataType::Float | DataType::Double),
        (false, false) => matches!(to, DataType::Float | DataType::Double),
        (false, true) => to == DataType::Bool,
    };
    if !fits {
        return Match::No;
    }
    let mut rewrite = Rewrite::fusing(vec![inner]);
    let to = vec![("to", AttrValue::Int(i64::from(to.number())))];
    rewrite.step(&CAST, vec![Source::Value(x)], to);
    Match::Yes(rewrite)
}

/// Whether all values of a type are integers or Booleans.
fn is_whole(elem: DataType) -> bool {
    elem == DataType::Bool || elem.is_integer()
}

/// Whether a type holds each number of another one.
fn keeps_numbers(from: DataType, to: DataType) -> bool {
    use DataType as T;
    match from {
        T::Bool => to.is_integer() || matches!(to, T::Float16 | T::Float | T::Double),
        T::Int8 => matches!(to, T::Int16 | T::Int32 | T::Int64 | T::Float16 | T::Float | T::Double),
        T::Uint8 => matches!(
            to,
            T::Int16
                | T::Int32
                | T::Int64
                | T::Uint16
                | T::Uint32
                | T::Uint64
                | T::Float16
                | T::Float
                | T::Double
        ),
        T::Int16 => matches!(to, T::Int32 | T::Int64 | T::Float | T::Double),
        T::Uint16 => {
            matches!(to, T::Int32 | T::Int64 | T::Uint32 | T::Uint64 | T::Float | T::Double)
        }
        T::Int32 => matches!(to, T::Int64 | T::Double),
        T::Uint32 => matches!(to, T::Int64 | T::Uint64 | T::Double),
        T::Float16 | T::Bfloat16 => matches!(to, T::Float | T::Double),
        T::Float => to == T::Double,
        _ => false,
    }
}

/// Merges two transposes.
pub(super) fn find_transposes(cx: &Matcher<'_>, node: NodeId) -> Match {
    let Some(inner) = cx.input(node, 0).and_then(|x| cx.made_by(x, &TRANSPOSE)) else {
        return Match::No;
    };
    let (Some(outer), Some(first)) = (cx.permutation(node), cx.permutation(inner)) else {
        return Match::No;
    };
    let Some(x) = cx.input(inner, 0) else { return Match::No };
    let perm = outer.iter().map(|axis| first.get(usize::try_from(*axis).ok()?).copied());
    let Some(perm) = perm.collect::<Option<Vec<i64>>>() else {
        return Match::No;
    };
    if perm.iter().enumerate().all(|(index, axis)| index as i64 == *axis) {
        return Match::Yes(Rewrite::with_value(x, vec![inner]));
    }
    let mut rewrite = Rewrite::fusing(vec![inner]);
    rewrite.step(&TRANSPOSE, vec![Source::Value(x)], vec![("perm", perm.into())]);
    Match::Yes(rewrite)
}

/// Finds `Squeeze(Transpose(Unsqueeze(x)))` where the axes put in are those taken out.
pub(super) fn find_transpose_of_views(cx: &Matcher<'_>, node: NodeId) -> Match {
    let transpose = cx.input(node, 0).and_then(|moved| cx.made_by(moved, &TRANSPOSE));
    let unsqueeze = transpose
        .and_then(|transpose| cx.input(transpose, 0))
        .and_then(|wide| cx.made_by(wide, &UNSQUEEZE));
    let (Some(transpose), Some(unsqueeze)) = (transpose, unsqueeze) else { return Match::No };
    if !cx.are_inner(&[transpose, unsqueeze], node) {
        return Match::No;
    }
    let (Some(perm), Some(x)) = (cx.permutation(transpose), cx.input(unsqueeze, 0)) else {
        return Match::No;
    };
    let rank = perm.len();
    let (Some(put_in), Some(taken)) = (axes_of(cx, unsqueeze, rank), axes_of(cx, node, rank))
    else {
        return Match::No;
    };
    let mut taken_from: Vec<i64> = taken.iter().map(|axis| perm[*axis]).collect();
    let mut put: Vec<i64> = put_in.iter().map(|axis| *axis as i64).collect();
    taken_from.sort_unstable();
    put.sort_unstable();
    if taken_from != put {
        return Match::No;
    }
    let kept = perm.iter().enumerate().filter(|(at, _)| !taken.contains(at)).map(|(_, axis)| *axis);
    // Axes before those that were put in.
    let renumbered =
        kept.map(|axis| axis - put.iter().filter(|other| **other < axis).count() as i64);
    let perm: Vec<i64> = renumbered.collect();
    let mut rewrite = Rewrite::fusing(vec![transpose, unsqueeze]);
    rewrite.step(&TRANSPOSE, vec![Source::Value(x)], vec![("perm", perm.into())]);
    Match::Yes(rewrite)
}

/// Returns the axes that a node adds or removes, counted from the front of a rank.
fn axes_of(cx: &Matcher<'_>, node: NodeId, rank: usize) -> Option<Vec<usize>> {
    let axes = cx.list(node, "axes", 1)?;
    axes.into_iter().map(|axis| index_of(axis, rank)).collect()
}

/// Whether a node gives the elements of its first input in the same order in another shape.
pub(super) fn is_view(cx: &Matcher<'_>, node: NodeId) -> bool {
    [&RESHAPE, &FLATTEN, &SQUEEZE, &UNSQUEEZE].iter().any(|op| cx.is(node, op))
}

/// Merges two views. Counterexamples: a 0 in the target of the second `Reshape`, which copies a
/// size of the first; two open sizes.
pub(super) fn find_views(cx: &Matcher<'_>, node: NodeId) -> Match {
    let Some(between) = cx.input(node, 0) else { return Match::No };
    let Some(inner) = cx.producer(between).filter(|inner| is_view(cx, *inner)) else {
        return Match::No;
    };
    let (Some(x), Some(y)) = (cx.input(inner, 0), cx.output(node)) else { return Match::No };
    if let (Some(before), Some(after)) = (cx.shape(x), cx.shape(y)) {
        if cx.same_shape(x, y) {
            return Match::Yes(Rewrite::with_value(x, vec![inner]));
        }
        // If the first view stays, a `Reshape` is less general than an `Unsqueeze`.
        let is_worth = cx.only_reader(inner).is_some() || cx.is(node, &RESHAPE);
        if let Some(target) = target_between(before, after).filter(|_| is_worth) {
            return reshape(cx, x, target, vec![inner]);
        }
    }
    let axes = cx.list(node, "axes", 1);
    if cx.is(node, &SQUEEZE)
        && cx.is(inner, &UNSQUEEZE)
        && axes.is_some()
        && axes == cx.list(inner, "axes", 1)
    {
        return Match::Yes(Rewrite::with_value(x, vec![inner]));
    }
    if cx.is(node, &RESHAPE) {
        let target = cx.input(node, 1).and_then(|target| cx.ints(target));
        let target = target.filter(|target| !target.contains(&0));
        if let Some(target) = target {
            return reshape(cx, x, target, vec![inner]);
        }
    }
    Match::No
}

/// Makes a `Reshape` to a constant target.
pub(super) fn reshape(cx: &Matcher<'_>, x: ValueId, target: Vec<i64>, fused: Vec<NodeId>) -> Match {
    let mut rewrite = Rewrite::fusing(fused);
    // Before version 5 the target is an attribute.
    if !cx.is_from(5) {
        rewrite.step(&RESHAPE, vec![Source::Value(x)], vec![("shape", target.into())]);
        return Match::Yes(rewrite);
    }
    let Some(target) = Source::ints(target) else { return Match::No };
    rewrite.step(&RESHAPE, vec![Source::Value(x), target], Vec::new());
    Match::Yes(rewrite)
}

/// Bounds of a `Slice` with constants.
pub(super) struct Bounds {
    pub(super) starts: Vec<i64>,
    pub(super) ends: Vec<i64>,
    /// Axes, counted from the front.
    pub(super) axes: Vec<i64>,
    pub(super) steps: Vec<i64>,
}

/// Returns the index that a bound of a `Slice` stands for, on an axis of a size.
pub(super) fn clamp_bound(bound: i64, size: i64) -> i64 {
    if bound < 0 { bound.saturating_add(size).max(0) } else { bound.min(size) }
}

/// Reads the bounds of a `Slice`.
pub(super) fn bounds_of(cx: &Matcher<'_>, node: NodeId) -> Option<Bounds> {
    let starts = cx.list(node, "starts", 1)?;
    let ends = cx.list(node, "ends", 2)?;
    let axes = if cx.has_list(node, "axes", 3) {
        cx.list(node, "axes", 3)?
    } else {
        (0..starts.len() as i64).collect()
    };
    let steps = if cx.has_list(node, "steps", 4) {
        cx.list(node, "steps", 4)?
    } else {
        vec![1; starts.len()]
    };
    let rank = cx.rank(cx.input(node, 0)?)?;
    let axes = axes.into_iter().map(|axis| Some(index_of(axis, rank)? as i64));
    let axes = axes.collect::<Option<Vec<i64>>>()?;
    let fits = [ends.len(), axes.len(), steps.len()] == [starts.len(); 3];
    fits.then_some(Bounds { starts, ends, axes, steps })
}

/// Merges slices of different axes. Counterexample: the same axis twice, where bounds of the second
/// count from those of the first.
pub(super) fn find_slices(cx: &Matcher<'_>, node: NodeId) -> Match {
    let Some(inner) = cx.input(node, 0).and_then(|x| cx.made_by(x, &SLICE)) else {
        return Match::No;
    };
    let Some(x) = cx.input(inner, 0).filter(|_| cx.is_from(10)) else { return Match::No };
    let (Some(mut first), Some(second)) = (bounds_of(cx, inner), bounds_of(cx, node)) else {
        return Match::No;
    };
    if !cx.are_inner(&[inner], node) && !is_only_sliced(cx, inner, &first) {
        return Match::No;
    }
    if second.axes.iter().any(|axis| first.axes.contains(axis)) {
        return Match::No;
    }
    first.starts.extend(second.starts);
    first.ends.extend(second.ends);
    first.axes.extend(second.axes);
    first.steps.extend(second.steps);
    let lists = [first.starts, first.ends, first.axes, first.steps];
    let Some(lists) = lists.into_iter().map(Source::ints).collect::<Option<Vec<_>>>() else {
        return Match::No;
    };
    let mut rewrite = Rewrite::fusing(vec![inner]);
    let inputs = std::iter::once(Source::Value(x)).chain(lists).collect();
    rewrite.step(&SLICE, inputs, Vec::new());
    Match::Yes(rewrite)
}

/// Most readers of a `Slice` that are looked at.
const MOST_READERS: usize = 16;

/// Whether all readers of a `Slice` are slices of other axes, which merge with it as well.
fn is_only_sliced(cx: &Matcher<'_>, node: NodeId, bounds: &Bounds) -> bool {
    let Some(value) = cx.output(node).filter(|value| !cx.model.value(*value).is_output) else {
        return false;
    };
    cx.model.uses(value).take(MOST_READERS + 1).count() <= MOST_READERS
        && cx.model.uses(value).all(|(reader, index)| {
            index == 0
                && cx.is(reader, &SLICE)
                && cx.model.node(reader).graph == cx.graph
                && bounds_of(cx, reader)
                    .is_some_and(|found| found.axes.iter().all(|axis| !bounds.axes.contains(axis)))
        })
}

/// Returns the axis of a `Concat`, counted from the front.
fn axis_of_concat(cx: &Matcher<'_>, node: NodeId) -> Option<usize> {
    let rank = cx.rank(cx.output(node)?)?;
    index_of(cx.int(node, "axis")?, rank)
}

/// Merges nested `Concat`s along the same axis.
pub(super) fn find_concats(cx: &Matcher<'_>, node: NodeId) -> Match {
    let operands: Option<Vec<ValueId>> = cx.model.inputs(node).collect();
    let Some(operands) = operands else { return Match::No };
    let Some(along) = axis_of_concat(cx, node) else { return Match::No };
    let (mut inputs, mut fused) = (Vec::new(), Vec::new());
    for operand in operands {
        let inner = cx.made_by(operand, &CONCAT).filter(|inner| {
            cx.only_reader(*inner) == Some(node) && axis_of_concat(cx, *inner) == Some(along)
        });
        match inner {
            Some(inner) if inputs.len() < MOST_OPERANDS => {
                let Some(values) = cx.model.inputs(inner).collect::<Option<Vec<ValueId>>>() else {
                    return Match::No;
                };
                inputs.extend(values.into_iter().map(Source::Value));
                fused.push(inner);
            }
            _ => inputs.push(Source::Value(operand)),
        }
    }
    if fused.is_empty() {
        return Match::No;
    }
    let mut rewrite = Rewrite::fusing(fused);
    rewrite.step(&CONCAT, inputs, vec![("axis", (along as i64).into())]);
    Match::Yes(rewrite)
}

/// Finds a reduction whose reduced axes a view removes. Counterexamples: an axis of size 1 that is
/// not reduced; `keepdims` of 0; a result that something else reads.
pub(super) fn find_keepdims(cx: &Matcher<'_>, node: NodeId) -> Match {
    let Some(reduced) = cx.input(node, 0).and_then(|x| cx.producer(x)) else { return Match::No };
    let Some(op) = REDUCTIONS.iter().find(|op| cx.is(reduced, op)) else { return Match::No };
    if cx.int(reduced, "keepdims").unwrap_or(1) != 1 || !cx.are_inner(&[reduced], node) {
        return Match::No;
    }
    let (Some(x), Some(y)) = (cx.input(reduced, 0), cx.output(node)) else { return Match::No };
    let (Some(before), Some(after)) = (cx.shape(x), cx.shape(y)) else { return Match::No };
    let Some(axes) = cx.list(reduced, "axes", 1) else { return Match::No };
    let indices = axes.iter().map(|axis| index_of(*axis, before.len()));
    let Some(indices) = indices.collect::<Option<Vec<usize>>>() else { return Match::No };
    let kept: Vec<&Dim> =
        before.iter().enumerate().filter(|(at, _)| !indices.contains(at)).map(|(_, d)| d).collect();
    let fits = kept.len() == after.len()
        && !axes.is_empty()
        && kept.iter().zip(after).all(|(a, b)| a.surely_equals(b));
    if !fits {
        return Match::No;
    }
    let mut rewrite = Rewrite::fusing(vec![reduced]);
    let mut inputs = vec![Source::Value(x)];
    let mut attributes = vec![("keepdims", AttrValue::Int(0))];
    match cx.input(reduced, 1) {
        Some(axes) => inputs.push(Source::Value(axes)),
        None => attributes.push(("axes", axes.into())),
    }
    rewrite.step(op, inputs, attributes);
    Match::Yes(rewrite)
}
