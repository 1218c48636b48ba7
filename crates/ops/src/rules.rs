//! Inference rules that many operators share.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType;

use crate::infer::{Demand, Infer, InferError};

/// Gives the first output the type of the first input.
pub(crate) fn same_as_first(cx: &mut Infer<'_>) -> Result<(), InferError> {
    if let Some(ty) = cx.input(0) {
        cx.set(0, ty.clone());
    }
    Ok(())
}

/// Returns the element type that an attribute of the node names by its number.
pub(crate) fn elem_attribute(cx: &Infer<'_>, name: &str) -> Result<Option<DataType>, InferError> {
    let Some(number) = cx.int(name) else {
        return Ok(None);
    };
    match i32::try_from(number).ok().and_then(DataType::from_number) {
        Some(elem) => Ok(Some(elem)),
        None => cx.fail(format_args!("{name} = {number} is not an element type")),
    }
}

/// Fails if the rank of an input is known and is less than `least`.
pub(crate) fn demand_rank_from(
    cx: &Infer<'_>,
    index: usize,
    least: usize,
) -> Result<(), InferError> {
    match cx.rank(index) {
        Some(rank) if rank < least => {
            cx.fail(format_args!("input {index} must have rank {least} or more, not {rank}"))
        }
        _ => Ok(()),
    }
}

/// Returns the shape that all inputs must have, combined from the known sizes of each.
pub(crate) fn same_shape(cx: &Infer<'_>, inputs: &[usize]) -> Result<Option<Shape>, InferError> {
    let mut shared: Option<(usize, Shape)> = None;
    for index in inputs {
        let Some(shape) = cx.shape(*index) else {
            continue;
        };
        let Some((first, shared)) = &mut shared else {
            shared = Some((*index, shape.clone()));
            continue;
        };
        cx.demand_rank(*index, shared.len())?;
        for (axis, (size, other)) in shared.iter_mut().zip(shape).enumerate() {
            let what = format_args!("sizes of axis {axis} of inputs {first} and {index}");
            *size = cx.same_dim(size, other, what)?;
        }
    }
    Ok(shared.map(|(_, shape)| shape))
}

/// Returns the size that some axes must share, each given by an input and its position there.
/// Ignores inputs of unknown rank.
pub(crate) fn shared_dim(
    cx: &Infer<'_>,
    what: &str,
    places: &[(usize, usize)],
) -> Result<Dim, InferError> {
    let mut size = Dim::Unknown;
    for (input, axis) in places {
        if let Some(found) = cx.shape(*input).and_then(|shape| shape.get(*axis)) {
            let what = format_args!("{what} of input {input} and of others");
            size = cx.same_dim(&size, found, what)?;
        }
    }
    Ok(size)
}

/// Counts axes from the front. Fails if an axis is listed twice.
pub(crate) fn distinct_axes(
    cx: &Infer<'_>,
    axes: &[i64],
    rank: usize,
) -> Result<Vec<usize>, InferError> {
    let mut found = Vec::new();
    for axis in axes {
        let axis = cx.axis(*axis, rank)?;
        if found.contains(&axis) {
            return cx.fail(format_args!("axis {axis} is given twice"));
        }
        found.push(axis);
    }
    Ok(found)
}

/// Returns a size, or fails if it is unknown although all operands are numbers, which means that it
/// overflows 64 bits.
pub(crate) fn check_overflow(
    cx: &Infer<'_>,
    what: &str,
    result: Dim,
    of: &[&Dim],
) -> Result<Dim, InferError> {
    if result.is_unknown() && of.iter().all(|dim| dim.known().is_some()) {
        return cx.fail(format_args!("{what} overflows 64 bits"));
    }
    Ok(result)
}

/// Returns the sizes that two possible shapes of a tensor share, or `None` if the ranks differ.
pub(crate) fn common_shape(a: &Shape, b: &Shape) -> Option<Shape> {
    let common = |(a, b): (&Dim, &Dim)| if a.surely_equals(b) { a.clone() } else { Dim::Unknown };
    (a.len() == b.len()).then(|| a.iter().zip(b).map(common).collect())
}

/// Broadcasts `other` to `shape` in one direction, aligned at the right, and returns `shape`. Sizes
/// that are unknown in `shape` may follow from `other`.
pub(crate) fn broadcast_over(
    cx: &Infer<'_>,
    shape: &Shape,
    other: &Shape,
    name: &str,
) -> Result<Shape, InferError> {
    let Some(missing) = shape.len().checked_sub(other.len()) else {
        return cx.fail(format_args!(
            "{name} has rank {}, which does not broadcast to rank {}",
            other.len(),
            shape.len()
        ));
    };
    let mut shape = shape.clone();
    for (axis, size) in shape.iter_mut().enumerate().skip(missing) {
        let other = &other[axis - missing];
        cx.demand(|| Demand::BroadcastTo(other.clone(), size.clone()));
        // A symbol may be 1 at run time, from which no size follows.
        if other.known().is_some_and(|other| other != 1) {
            let what = format_args!("the sizes of axis {axis} of input 0 and {name}");
            *size = cx.same_dim(size, other, what)?;
        }
    }
    Ok(shape)
}

/// Infers an output to which all inputs broadcast, with the element type of the first one.
pub(crate) fn broadcast(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let elem = cx.elem(0);
    let shape = broadcast_inputs(cx)?;
    cx.set_tensor(0, elem, shape);
    Ok(())
}

/// Infers a `bool` output to which all inputs broadcast.
pub(crate) fn broadcast_to_bool(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = broadcast_inputs(cx)?;
    cx.set_tensor(0, Some(DataType::Bool), shape);
    Ok(())
}

/// Returns the shape to which all inputs broadcast, if all ranks are known.
pub(crate) fn broadcast_inputs(cx: &Infer<'_>) -> Result<Option<Shape>, InferError> {
    let shapes: Option<Vec<&Shape>> = (0..cx.input_count()).map(|index| cx.shape(index)).collect();
    shapes.map(|shapes| broadcast_shapes(cx, &shapes)).transpose()
}

/// Broadcasts shapes to each other, aligned at the right: sizes are equal or 1.
pub(crate) fn broadcast_shapes(cx: &Infer<'_>, shapes: &[&Shape]) -> Result<Shape, InferError> {
    let rank = shapes.iter().map(|shape| shape.len()).max().unwrap_or(0);
    let mut result = Shape::new();
    for axis in 0..rank {
        let mut size = Dim::Known(1);
        for shape in shapes {
            // Axes that a shorter shape lacks count as 1.
            let Some(index) = (axis + shape.len()).checked_sub(rank) else {
                continue;
            };
            size = broadcast_dims(cx, &size, &shape[index], axis)?;
        }
        result.push(size);
    }
    Ok(result)
}

fn broadcast_dims(cx: &Infer<'_>, a: &Dim, b: &Dim, axis: usize) -> Result<Dim, InferError> {
    match (a, b) {
        (Dim::Known(x), Dim::Known(y)) if x != y && *x != 1 && *y != 1 => {
            cx.fail(format_args!("sizes {x} and {y} of axis {axis} do not broadcast"))
        }
        _ => {
            cx.demand(|| Demand::Broadcast(a.clone(), b.clone()));
            Ok(a.broadcast(b))
        }
    }
}
