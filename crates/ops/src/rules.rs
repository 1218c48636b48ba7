//! Inference rules that many operators share, by name.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType;

use crate::infer::{Infer, InferError};

/// The first output has the type of the first input.
pub fn same_as_first(cx: &mut Infer<'_>) -> Result<(), InferError> {
    if let Some(ty) = cx.input(0) {
        cx.set(0, ty.clone());
    }
    Ok(())
}

/// All inputs broadcast together; the output has the element type of the first.
pub fn broadcast(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let elem = cx.elem(0);
    let shape = broadcast_inputs(cx)?;
    cx.set_tensor(0, elem, shape);
    Ok(())
}

/// All inputs broadcast together; the output is `bool`.
pub fn broadcast_to_bool(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = broadcast_inputs(cx)?;
    cx.set_tensor(0, Some(DataType::Bool), shape);
    Ok(())
}

/// The shape to which all inputs broadcast, if all ranks are known.
pub fn broadcast_inputs(cx: &Infer<'_>) -> Result<Option<Shape>, InferError> {
    let shapes: Option<Vec<&Shape>> = (0..cx.input_count()).map(|index| cx.shape(index)).collect();
    shapes
        .map(|shapes| broadcast_shapes(cx, &shapes))
        .transpose()
}

/// Multidirectional broadcasting: aligned at the right, sizes equal or 1.
pub fn broadcast_shapes(cx: &Infer<'_>, shapes: &[&Shape]) -> Result<Shape, InferError> {
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
    Ok(match (a, b) {
        (Dim::Known(1), other) | (other, Dim::Known(1)) => other.clone(),
        (Dim::Known(x), Dim::Known(y)) if x != y => {
            return cx.fail(format_args!(
                "sizes {x} and {y} of axis {axis} do not broadcast"
            ));
        }
        // A size other than 1 decides, whatever the other side turns out to be.
        (Dim::Known(_), _) => a.clone(),
        (_, Dim::Known(_)) => b.clone(),
        _ if a.surely_equals(b) => a.clone(),
        _ => Dim::Unknown,
    })
}
