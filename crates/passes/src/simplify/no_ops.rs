//! Nodes that give one of their inputs.

use sardonyx_model::{Dim, NodeId, Producer, ValueId};
use sardonyx_ops::operators::{CAST, CONCAT, SLICE, SPLIT};
use sardonyx_tensor::Tensor;

use crate::matcher::{Match, Matcher, Rewrite, Source};

/// Replaces the first output of an anchor by a value.
pub(super) fn give(value: ValueId) -> Match {
    Match::Yes(Rewrite::with_value(value, Vec::new()))
}

pub(super) fn find_identity(cx: &Matcher<'_>, node: NodeId) -> Match {
    cx.input(node, 0).map_or(Match::No, give)
}

/// Finds a cast to the type of the input. Counterexample: `Cast` from a type that inference does
/// not know.
pub(super) fn find_cast(cx: &Matcher<'_>, node: NodeId) -> Match {
    let Some(x) = cx.input(node, 0) else { return Match::No };
    let to = if cx.is(node, &CAST) {
        cx.int(node, "to").and_then(|to| i32::try_from(to).ok())
    } else {
        cx.input(node, 1).and_then(|like| cx.elem(like)).map(|elem| elem.number())
    };
    let from = cx.elem(x).map(|elem| elem.number());
    if to.is_some() && to == from { give(x) } else { Match::No }
}

/// Finds a `Dropout` outside of training. Counterexamples: `training_mode` that is an input of the
/// model; a mask that is read; before version 7, nodes without `is_test`, which drop elements.
pub(super) fn find_dropout(cx: &Matcher<'_>, node: NodeId) -> Match {
    let Some(since) = cx.resolved.schema(node).map(|schema| schema.since) else {
        return Match::No;
    };
    let mask = cx.model.outputs(node).get(1).copied().flatten();
    if mask.is_some_and(|mask| cx.model.is_read(mask)) {
        return Match::No;
    }
    let is_inference = match since {
        12.. => match cx.input(node, 2) {
            None => true,
            Some(mode) => cx.constant(mode).is_some_and(|mode| mode.bytes() == [0]),
        },
        7..12 => true,
        _ => cx.int(node, "is_test").is_some_and(|is_test| is_test != 0),
    };
    match cx.input(node, 0) {
        Some(x) if is_inference => give(x),
        _ => Match::No,
    }
}

/// Finds a view that keeps the shape. Counterexamples: equal numbers of elements in another shape;
/// a `Slice` with a negative step; a size that is open.
pub(super) fn find_same_shape(cx: &Matcher<'_>, node: NodeId) -> Match {
    let (Some(x), Some(y)) = (cx.input(node, 0), cx.output(node)) else { return Match::No };
    if !cx.same_shape(x, y) {
        return Match::No;
    }
    // As many elements as the axis has, from its first one on: all of them in order.
    if cx.is(node, &SLICE) && cx.has_list(node, "steps", 4) {
        let steps = cx.list(node, "steps", 4);
        if !steps.is_some_and(|steps| steps.iter().all(|step| *step > 0)) {
            return Match::No;
        }
    }
    give(x)
}

/// Finds a `Pad` of nothing. Counterexample: -1 before and 1 after, which keeps the shape.
pub(super) fn find_pad(cx: &Matcher<'_>, node: NodeId) -> Match {
    let pads = cx.list(node, "pads", 1).or_else(|| cx.int_list(node, "paddings"));
    match (pads, cx.input(node, 0)) {
        (Some(pads), Some(x)) if pads.iter().all(|pad| *pad == 0) => give(x),
        _ => Match::No,
    }
}

/// Finds a `Transpose` that moves nothing. Counterexample: no `perm`, which reverses the axes.
pub(super) fn find_transpose(cx: &Matcher<'_>, node: NodeId) -> Match {
    let Some(x) = cx.input(node, 0) else { return Match::No };
    let keeps = match cx.permutation(node) {
        Some(perm) => perm.iter().enumerate().all(|(index, axis)| index as i64 == *axis),
        None => false,
    };
    if keeps { give(x) } else { Match::No }
}

/// Finds nodes of one operand. Counterexample: a `Split` whose other parts are not named, but
/// exist.
pub(super) fn find_single(cx: &Matcher<'_>, node: NodeId) -> Match {
    let Some(x) = cx.input(node, 0) else { return Match::No };
    if cx.is(node, &SPLIT) {
        let same = cx.output(node).is_some_and(|y| cx.same_shape(x, y));
        return if same && cx.model.outputs(node).len() == 1 { give(x) } else { Match::No };
    }
    if cx.model.inputs(node).len() == 1 { give(x) } else { Match::No }
}

/// Finds operands without elements. Counterexample: operands whose size along the axis is open.
pub(super) fn find_empty(cx: &Matcher<'_>, node: NodeId) -> Match {
    let operands: Option<Vec<ValueId>> = cx.model.inputs(node).collect();
    let (Some(operands), Some(axis)) = (operands, cx.int(node, "axis")) else { return Match::No };
    let kept = operands.iter().copied().filter(|value| {
        let Some(shape) = cx.shape(*value) else { return true };
        index_of(axis, shape.len()).is_none_or(|index| shape[index] != Dim::Known(0))
    });
    let kept: Vec<ValueId> = kept.collect();
    match kept[..] {
        _ if kept.len() == operands.len() => Match::No,
        [] => Match::No,
        [one] => give(one),
        _ => {
            let mut rewrite = Rewrite::default();
            let inputs = kept.into_iter().map(Source::Value).collect();
            rewrite.step(&CONCAT, inputs, vec![("axis", axis.into())]);
            Match::Yes(rewrite)
        }
    }
}

/// Finds a `Concat` of a `Split`. Counterexamples: parts in another order, a part that is missing,
/// another axis.
pub(super) fn find_split(cx: &Matcher<'_>, node: NodeId) -> Match {
    let operands: Option<Vec<ValueId>> = cx.model.inputs(node).collect();
    let Some(operands) = operands else { return Match::No };
    let Producer::Node(split, 0) = cx.model.value(operands[0]).producer else { return Match::No };
    if !cx.is(split, &SPLIT) || cx.model.node(split).graph != cx.graph {
        return Match::No;
    }
    let Some(x) = cx.input(split, 0) else { return Match::No };
    let parts: Vec<Option<ValueId>> = cx.model.outputs(split).to_vec();
    let is_whole = parts.len() == operands.len()
        && parts.iter().zip(&operands).all(|(part, operand)| *part == Some(*operand));
    let Some(axis) = cx.int(node, "axis") else { return Match::No };
    let axes = [cx.int(split, "axis").unwrap_or(0), axis];
    let [from, to] = axes.map(|axis| index_of(axis, cx.rank(x)?));
    if is_whole && from.is_some() && from == to { give(x) } else { Match::No }
}

/// Returns the index of an axis that may be counted from the end.
pub(super) fn index_of(axis: i64, rank: usize) -> Option<usize> {
    let rank = i64::try_from(rank).ok()?;
    let index = if axis < 0 { axis + rank } else { axis };
    usize::try_from(index).ok().filter(|index| (*index as i64) < rank)
}

/// Returns the number that all elements of a tensor equal, bit for bit.
pub(super) fn fill_of(tensor: &Tensor) -> Option<f64> {
    let width = tensor.bytes().len().checked_div(tensor.len())?;
    let bytes = tensor.bytes();
    let is_filled = tensor.strings().is_none()
        && width > 0
        && bytes.chunks_exact(width).all(|element| element == &bytes[..width]);
    is_filled.then(|| number_at(tensor)).flatten()
}

/// Reads the first element of a tensor as a number.
fn number_at(tensor: &Tensor) -> Option<f64> {
    use sardonyx_tensor::DataType as T;
    let bytes = tensor.bytes();
    macro_rules! first {
        ($type:ty) => {
            <$type>::from_le_bytes(bytes.get(..size_of::<$type>())?.try_into().ok()?)
        };
    }
    Some(match tensor.data_type() {
        T::Float => f64::from(first!(f32)),
        T::Double => first!(f64),
        T::Int64 => first!(i64) as f64,
        T::Int32 => f64::from(first!(i32)),
        T::Int16 => f64::from(first!(i16)),
        T::Int8 => f64::from(first!(i8)),
        T::Uint64 => first!(u64) as f64,
        T::Uint32 => f64::from(first!(u32)),
        T::Uint16 => f64::from(first!(u16)),
        T::Uint8 | T::Bool => f64::from(first!(u8)),
        // One and zero; other numbers are not asked for.
        T::Float16 => match first!(u16) {
            0x3c00 => 1.0,
            0 => 0.0,
            0x8000 => -0.0,
            _ => return None,
        },
        T::Bfloat16 => f64::from(f32::from_bits(u32::from(first!(u16)) << 16)),
        _ => return None,
    })
}
