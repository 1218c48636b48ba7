//! Broadcasting before opset 7, which an attribute has to demand.
//!
//! With `broadcast=1` the second input of a binary operator broadcasts to the shape of the first,
//! if its shape is a run of the first one's axes: the last ones, or those from `axis` on. A second
//! input of one element always fits. Current broadcasting includes all of this except `axis`, which
//! becomes axes of size 1 at the end of the second input.
//!
//! The standard does not define a negative `axis`. The only plausible meaning of -1 is the last
//! axes: it is the default of Caffe2, where the attribute came from, and for a second input of one
//! axis it is also the axis counted from the end; a longer input would not fit there.

use sardonyx_model::{Dim, Shape};

use crate::adapt::{Adapt, Refusal};
use crate::attributes::{AttrValue, Attributes};
use crate::downward::{squeeze, unsqueeze};
use crate::infer::{Infer, InferError};
use crate::tensor::rearrange::TILE;
use crate::tensor::unsqueeze::UNSQUEEZE;

/// Infers the shape of the result of a binary operator.
pub(crate) fn shape(cx: &Infer<'_>) -> Result<Option<Shape>, InferError> {
    if cx.int("broadcast").unwrap_or(0) == 0 {
        return same_shape(cx);
    }
    let Some(a) = cx.shape(0) else {
        return Ok(None);
    };
    let mut shape = a.clone();
    let Some(b) = cx.shape(1) else {
        return Ok(Some(shape));
    };
    let start = match cx.int("axis") {
        None | Some(-1) => Some(a.len().saturating_sub(b.len())),
        Some(axis) => usize::try_from(axis).ok(),
    };
    if b.len() > a.len() {
        return cx.fail(format_args!(
            "input 1 of rank {} does not broadcast to rank {}",
            b.len(),
            a.len()
        ));
    }
    let Some(start) = start.filter(|_| !one_element(b)) else {
        return Ok(Some(shape));
    };
    for (offset, size) in b.iter().enumerate() {
        let axis = start.saturating_add(offset);
        let Some(target) = shape.get_mut(axis) else {
            return cx
                .fail(format_args!("input 1 of rank {} does not fit at axis {start}", b.len()));
        };
        if size.known().is_some_and(|size| size != 1) {
            *target = cx.same_dim(target, size, format_args!("the sizes of axis {axis}"))?;
        }
    }
    Ok(Some(shape))
}

/// Returns the shape that all inputs must have.
pub(crate) fn same_shape(cx: &Infer<'_>) -> Result<Option<Shape>, InferError> {
    let mut result: Option<Shape> = None;
    for index in 0..cx.input_count() {
        let Some(shape) = cx.shape(index) else {
            continue;
        };
        let Some(merged) = &mut result else {
            result = Some(shape.clone());
            continue;
        };
        if merged.len() != shape.len() {
            return cx.fail(format_args!(
                "the ranks of its inputs differ ({} and {})",
                merged.len(),
                shape.len()
            ));
        }
        for (axis, (size, other)) in merged.iter_mut().zip(shape).enumerate() {
            *size = cx.same_dim(size, other, format_args!("the sizes of axis {axis}"))?;
        }
    }
    Ok(result)
}

fn one_element(shape: &Shape) -> bool {
    shape.iter().all(|size| size.known() == Some(1))
}

/// Adapts a binary operator from opset 6 to 7.
pub(crate) fn align(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let broadcasts = cx.int("broadcast").unwrap_or(0) != 0;
    let axis = cx.int("axis").filter(|axis| broadcasts && *axis != -1);
    if let Some(axis) = axis.filter(|axis| *axis >= 0 && cx.runs() && !is_alignment_known(cx)) {
        align_at(cx, axis);
    } else if let Some(axis) = axis {
        let missing = missing_axes(cx, axis)?;
        if !missing.is_empty() {
            let second = cx.input(1);
            let aligned =
                cx.before(UNSQUEEZE.name, &[second], &[("axes", AttrValue::from(&missing[..]))]);
            cx.set_input(1, Some(aligned));
        }
    }
    cx.remove("broadcast");
    cx.remove("axis");
    Ok(())
}

/// Whether the alignment of the second input can be derived.
fn is_alignment_known(cx: &Adapt<'_>) -> bool {
    let second = cx.input_type(1).and_then(|ty| ty.shape());
    second.is_some_and(|second| cx.rank(0).is_some() || one_element(second))
}

/// Adds nodes that reshape the second input so that its first axis is at `axis` of the first input:
/// they append axes of size 1.
pub(crate) fn align_at(cx: &mut Adapt<'_>, axis: i64) {
    let (zero, one) = (cx.add_ints(&[0]), cx.add_ints(&[1]));
    let start = cx.add_ints(&[axis]);
    let [all, sizes] = [0, 1].map(|index| cx.before("Shape", &[cx.input(index)], &[]));
    let [rank, taken] = [all, sizes].map(|sizes| cx.before("Shape", &[Some(sizes)], &[]));
    let after = cx.before("Sub", &[Some(rank), Some(start)], &[]);
    let missing = cx.before("Sub", &[Some(after), Some(taken)], &[]);
    // A single element fits at any axis.
    let missing = cx.before("Max", &[Some(missing), Some(zero)], &[]);
    let ones = cx.before("Tile", &[Some(one), Some(missing)], &[]);
    let both = [Some(sizes), Some(ones)];
    let shape = cx.before("Concat", &both, &[("axis", AttrValue::Int(0))]);
    let aligned = cx.before("Reshape", &[cx.input(1), Some(shape)], &[]);
    cx.set_input(1, Some(aligned));
}

/// Adapts a binary operator from opset 7 to 6.
///
/// # Errors
///
/// The shapes are not known well enough to derive the alignment of the operands.
pub(crate) fn lower(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    lower_either(cx, false)
}

/// Adapts an operator whose inputs may be swapped from opset 7 to 6.
pub(crate) fn lower_commutative(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    lower_either(cx, true)
}

fn lower_either(cx: &mut Adapt<'_>, may_swap: bool) -> Result<(), Refusal> {
    let shape = |index: usize| cx.input_type(index).and_then(|ty| ty.shape().cloned());
    let (Some(a), Some(b)) = (shape(0), shape(1)) else {
        return Err(cx.refuse(
            "that version has no implicit broadcasting, and the ranks of the inputs are unknown",
        ));
    };
    if is_same(&a, &b) {
        return Ok(());
    }
    let run = run_of(&a, &b).or_else(|| {
        let run = run_of(&b, &a).filter(|_| may_swap)?;
        cx.set_inputs(&[cx.input(1), cx.input(0)]);
        Some(run)
    });
    let Some(Run { squeezed, axis }) = run else { return expand_to_one_shape(cx, 2) };
    squeeze(cx, 1, &squeezed);
    cx.set("broadcast", 1);
    if let Some(axis) = axis {
        cx.set("axis", axis);
    }
    Ok(())
}

fn is_same(a: &Shape, b: &Shape) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same_size(a, b))
}

fn is_same_size(a: &Dim, b: &Dim) -> bool {
    a == b && *a != Dim::Unknown
}

/// Position of the axes of a shape in another one.
struct Run {
    /// Axes of size 1 that are not part of the run.
    squeezed: Vec<i64>,
    /// First axis; `None` for the last axes and for a single element.
    axis: Option<i64>,
}

/// Finds the axes of `b` in `a`, if they are a run of axes of `a` apart from axes of size 1.
fn run_of(a: &Shape, b: &Shape) -> Option<Run> {
    let offset = a.len().checked_sub(b.len())?;
    let is_wide = |size: &Dim| size.known() != Some(1);
    let Some(first) = b.iter().position(is_wide) else {
        return Some(Run { squeezed: Vec::new(), axis: None });
    };
    let last = b.iter().rposition(is_wide)?;
    let run = first..=last;
    if !run.clone().all(|axis| is_same_size(&a[offset + axis], &b[axis])) {
        return None;
    }
    let squeezed = (0..b.len()).filter(|axis| !run.contains(axis)).map(|axis| axis as i64);
    let is_at_the_end = last + 1 == b.len();
    let axis = (!is_at_the_end).then_some((offset + first) as i64);
    Some(Run { squeezed: squeezed.collect(), axis })
}

fn shapes_of(cx: &Adapt<'_>, count: usize) -> Option<Vec<Shape>> {
    (0..count).map(|index| cx.input_type(index)?.shape().cloned()).collect()
}

/// Whether the first `count` inputs are certain to have one shape.
pub(crate) fn are_same(cx: &Adapt<'_>, count: usize) -> bool {
    let same = |shapes: &[Shape]| shapes.iter().all(|shape| is_same(shape, &shapes[0]));
    count < 2 || shapes_of(cx, count).as_deref().is_some_and(same)
}

/// Expands the first `count` inputs to the shape to which they broadcast, for a version without
/// broadcasting.
pub(crate) fn expand_to_one_shape(cx: &mut Adapt<'_>, count: usize) -> Result<(), Refusal> {
    if are_same(cx, count) {
        return Ok(());
    }
    let shapes = shapes_of(cx, count);
    let sizes = shapes.and_then(|shapes| {
        let sizes = |shape: &Shape| shape.iter().map(|size| size.size()).collect();
        shapes.iter().map(sizes).collect::<Option<Vec<Vec<usize>>>>()
    });
    let Some(sizes) = sizes else {
        return Err(cx.refuse(
            "that version has no implicit broadcasting, and the sizes of the inputs are unknown",
        ));
    };
    let rank = sizes.iter().map(Vec::len).max().unwrap_or(0);
    let of_axis = |sizes: &[usize], axis: usize| {
        (axis + sizes.len()).checked_sub(rank).map_or(1, |axis| sizes[axis])
    };
    let whole: Vec<usize> = (0..rank)
        .map(|axis| {
            let wide = sizes.iter().map(|sizes| of_axis(sizes, axis)).find(|size| *size != 1);
            wide.unwrap_or(1)
        })
        .collect();
    for (index, sizes) in sizes.iter().enumerate() {
        let missing: Vec<i64> = (0..(rank - sizes.len()) as i64).collect();
        unsqueeze(cx, index, &missing);
        let repeats = whole.iter().enumerate().map(|(axis, whole)| match of_axis(sizes, axis) {
            1 => *whole as i64,
            _ => 1,
        });
        let repeats: Vec<i64> = repeats.collect();
        if repeats.iter().any(|times| *times != 1) {
            let repeats = cx.add_ints(&repeats);
            let tiled = cx.before(TILE.name, &[cx.input(index), Some(repeats)], &[]);
            cx.set_input(index, Some(tiled));
        }
    }
    Ok(())
}

/// Returns the axes of size 1 that the second input needs at its end to stand at `axis` of the
/// first.
fn missing_axes(cx: &Adapt<'_>, axis: i64) -> Result<Vec<i64>, Refusal> {
    if cx.input_type(1).is_some_and(|ty| ty.shape().is_some_and(one_element)) {
        return Ok(Vec::new());
    }
    let Ok(axis) = usize::try_from(axis) else {
        return Err(cx.refuse(format_args!("the meaning of axis {axis} is not defined")));
    };
    let (Some(first), Some(second)) = (cx.rank(0), cx.rank(1)) else {
        return Err(cx.refuse("aligning the second input at `axis` takes the ranks of both inputs"));
    };
    match axis.checked_add(second) {
        Some(end) if end <= first => {
            Ok((0..first - end).map(|offset| (second + offset) as i64).collect())
        }
        _ => Err(cx.refuse(format_args!(
            "input 1 of rank {second} does not fit at axis {axis} of rank {first}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_model::AttrValue::Int;

    use crate::math::binary::ADD;
    use crate::math::testing::raise_version;

    #[test]
    fn the_second_input_is_aligned() {
        let broadcast = ("broadcast", Int(1));
        let at = |axis| ("axis", Int(axis));
        let rows = [
            (vec![], "-; -", "y = Add(a, b)"),
            (vec![broadcast.clone()], "-; -", "y = Add(a, b)"),
            (vec![at(1)], "float[2, 3, 4]; float[2, 3, 4]", "y = Add(a, b)"),
            (vec![broadcast.clone(), at(2)], "float[2, 3, 4, 5]; float[4, 5]", "y = Add(a, b)"),
            (
                vec![broadcast.clone(), at(1)],
                "float[2, 3, 4, 5]; float[3]",
                "t3 = Unsqueeze(b) axes=[1, 2]; y = Add(a, t3)",
            ),
            (
                vec![broadcast.clone(), at(0)],
                "float[?, ?, ?]; float[?, ?]",
                "t3 = Unsqueeze(b) axes=[2]; y = Add(a, t3)",
            ),
            (vec![broadcast.clone(), at(0)], "float[...]; float[1, 1]", "y = Add(a, b)"),
            (
                vec![broadcast.clone(), at(0)],
                "float[...]; float[2]",
                "Add: aligning the second input at `axis` takes the ranks of both inputs",
            ),
            (
                vec![broadcast.clone(), at(2)],
                "float[2, 3]; float[3]",
                "Add: input 1 of rank 1 does not fit at axis 2 of rank 2",
            ),
            (vec![broadcast.clone(), at(-1)], "float[2, 3, 4]; float[3, 4]", "y = Add(a, b)"),
            (
                vec![broadcast, at(-2)],
                "float[2, 3]; float[2]",
                "Add: the meaning of axis -2 is not defined",
            ),
        ];
        for (attributes, inputs, expected) in rows {
            assert_eq!(
                raise_version(&ADD, 6, &attributes, inputs),
                expected,
                "{attributes:?} {inputs}"
            );
        }
    }
}
