//! Broadcasting before opset 7: nothing stretches by itself.
//!
//! With `broadcast=1` the second input of a binary operator stretches to the shape of the first, if
//! its own shape is a run of the first one's axes: the last ones, or those from `axis` on. A second
//! input of one element always fits. Today's broadcasting contains all of this except `axis`, which
//! becomes axes of size 1 at the end of the second input.

use sardonyx_model::Shape;

use crate::adapt::{Adapt, Refusal};
use crate::attributes::{AttrValue, Attributes};
use crate::infer::{Infer, InferError};
use crate::tensor::unsqueeze::UNSQUEEZE;

/// The shape of the result of a binary operator.
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
        None => Some(a.len().saturating_sub(b.len())),
        // What a negative axis counts from has never been said.
        Some(axis) => usize::try_from(axis).ok(),
    };
    if b.len() > a.len() {
        return cx.fail(format_args!(
            "input 1 of rank {} does not stretch to rank {}",
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

/// The shape that all inputs must have.
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

/// Opset 6 to 7 for binary operators.
pub(crate) fn align(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let stretches = cx.int("broadcast").unwrap_or(0) != 0;
    if let Some(axis) = cx.int("axis").filter(|_| stretches) {
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

/// The axes of size 1 that the second input needs at its end to stand at `axis` of the first.
fn missing_axes(cx: &Adapt<'_>, axis: i64) -> Result<Vec<i64>, Refusal> {
    if cx.input_type(1).is_some_and(|ty| ty.shape().is_some_and(one_element)) {
        return Ok(Vec::new());
    }
    let Ok(axis) = usize::try_from(axis) else {
        return Err(cx.refuse(format_args!("what axis {axis} counts from is not defined")));
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
    use crate::math::testing::adapted;

    #[test]
    fn the_second_input_is_aligned() {
        let stretch = ("broadcast", Int(1));
        let at = |axis| ("axis", Int(axis));
        let rows = [
            (vec![], "-; -", "y = Add(a, b)"),
            (vec![stretch.clone()], "-; -", "y = Add(a, b)"),
            (vec![at(1)], "float[2, 3, 4]; float[2, 3, 4]", "y = Add(a, b)"),
            (vec![stretch.clone(), at(2)], "float[2, 3, 4, 5]; float[4, 5]", "y = Add(a, b)"),
            (
                vec![stretch.clone(), at(1)],
                "float[2, 3, 4, 5]; float[3]",
                "t3 = Unsqueeze(b) axes=[1, 2]; y = Add(a, t3)",
            ),
            (
                vec![stretch.clone(), at(0)],
                "float[?, ?, ?]; float[?, ?]",
                "t3 = Unsqueeze(b) axes=[2]; y = Add(a, t3)",
            ),
            (vec![stretch.clone(), at(0)], "float[...]; float[1, 1]", "y = Add(a, b)"),
            (
                vec![stretch.clone(), at(0)],
                "float[...]; float[2]",
                "Add: aligning the second input at `axis` takes the ranks of both inputs",
            ),
            (
                vec![stretch.clone(), at(2)],
                "float[2, 3]; float[3]",
                "Add: input 1 of rank 1 does not fit at axis 2 of rank 2",
            ),
            (
                vec![stretch, at(-1)],
                "float[2, 3]; float[3]",
                "Add: what axis -1 counts from is not defined",
            ),
        ];
        for (attributes, inputs, expected) in rows {
            assert_eq!(adapted(&ADD, 6, &attributes, inputs), expected, "{attributes:?} {inputs}");
        }
    }
}
