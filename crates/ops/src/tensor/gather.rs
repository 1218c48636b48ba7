//! `Gather`: picks slices along one axis by index; the shape of the indices replaces the axis.
//!
//! Since 1; 11 allows negative indices; 13 adds bfloat16.

use sardonyx_model::{Dim, Shape};

use super::INDICES;
use crate::attributes::Attributes;
use crate::downward::count_indices_from_front;
use crate::facts::*;
use crate::math::shape_values;
use crate::sharding::movement;
use crate::tensor::gradients;
use crate::{Demand, Infer, InferError, OpDef};

pub static GATHER: OpDef = OpDef::new("Gather")
    .about(
        "Gathers slices along an axis by index. The output shape is that of `data` with `axis` \
         replaced by the shape of `indices`. An index out of range is an error.",
    )
    .since(
        1,
        &[
            input("data", "T"),
            input("indices", "Tind"),
            output("output", "T"),
            int("axis").or(0),
            types("T", ALL),
            types("Tind", INDICES),
        ],
    )
    .since(11, &[note("Negative indices count from the end.")])
    .same_up()
    .since(
        13,
        &[
            input("data", "T").differentiable(),
            input("indices", "Tind").non_differentiable(),
            output("output", "T").differentiable(),
            types("T", ALL_IR4),
        ],
    )
    .widens()
    .infer(infer)
    .adapter(11, 10, |cx| {
        let axis = cx.int("axis").unwrap_or(0);
        count_indices_from_front(cx, 1, axis)
    })
    .reads_part_of_first()
    .gradient(gradients::gather)
    .split_by(movement::gather);

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let axis = cx.int("axis").unwrap_or(0);
    let mut shape = None;
    if let Some(data) = cx.shape(0) {
        let axis = cx.axis(axis, data.len())?;
        check_indices(cx, axis, &data[axis])?;
        if let Some(indices) = cx.shape(1) {
            shape = Some(
                data[..axis]
                    .iter()
                    .chain(indices)
                    .chain(&data[axis + 1..])
                    .cloned()
                    .collect::<Shape>(),
            );
        }
    }
    cx.set_tensor(0, cx.elem(0), shape);
    pick_ints(cx, axis);
    Ok(())
}

fn check_indices(cx: &Infer<'_>, axis: usize, size: &Dim) -> Result<(), InferError> {
    let indices = shape_values::of_input(cx, 1).map_or(Vec::new(), |indices| indices.values);
    let Some(size) = size.known() else {
        for index in &indices {
            // -1 is the index of the last element.
            let is_from_end = index.known().is_some_and(|index| index < 0);
            let left =
                if is_from_end { size.add(index) } else { size.sub(index).sub(&Dim::Known(1)) };
            cx.demand(|| Demand::NotNegative(left));
        }
        return Ok(());
    };
    for index in indices.iter().filter_map(Dim::known) {
        let from_start = if index < 0 { index.saturating_add(size) } else { index };
        if !(0..size).contains(&from_start) {
            return cx.fail(format_args!(
                "index {index} is out of range for axis {axis} of size {size}"
            ));
        }
    }
    Ok(())
}

fn pick_ints(cx: &mut Infer<'_>, axis: i64) {
    let (Some(data), Some(indices)) =
        (shape_values::of_input(cx, 0), shape_values::of_input(cx, 1))
    else {
        return;
    };
    let Ok(axis) = cx.axis(axis, data.dims.len()) else {
        return;
    };
    let (before, after) = (&data.dims[..axis], &data.dims[axis + 1..]);
    let dims = before.iter().chain(&indices.dims).chain(after);
    let picked = data.pick(dims.copied().collect(), |index| {
        let (before, rest) = index.split_at(axis);
        let (number, after) = rest.split_at(indices.dims.len());
        let position = shape_values::position(&indices.at(number), data.dims[axis])?;
        let from = before.iter().chain([&position]).chain(after);
        Some(from.copied().collect())
    });
    shape_values::set_if(cx, picked);
}

#[cfg(test)]
mod tests {
    use super::GATHER;
    use crate::AttrValue::Int;
    use crate::math::testing::infer_value;
    use crate::tensor::testing::check;

    #[test]
    fn indices_replace_the_axis() {
        check(
            &GATHER,
            13,
            &[
                (&[], "float[5, N, 3]; int64[2, M]", "float[2, M, N, 3]"),
                (&[("axis", Int(-1))], "float[5, N, 3]; int64[2]", "float[5, N, 2]"),
                (&[("axis", Int(1))], "float[5, N, 3]; int64", "float[5, 3]"),
                (&[], "float[5]; =-5", "float"),
                (&[], "float[...]; int64", "float[...]"),
                (&[], "float[2]; -", "float[...]"),
                (
                    &[("axis", Int(1))],
                    "float[5]; int64",
                    "Gather: axis 1 is out of range for rank 1",
                ),
                (
                    &[],
                    "float[5, 2]; =[0, 5]",
                    "Gather: index 5 is out of range for axis 0 of size 5",
                ),
                (
                    &[],
                    "float[5, 2]; =[-6]",
                    "Gather: index -6 is out of range for axis 0 of size 5",
                ),
                (&[], "float[N]; =[7]", "float[1]"),
            ],
        );
    }

    #[test]
    fn integers_are_picked() {
        // SHAPE-25
        assert_eq!(infer_value(&GATHER, 13, &[], "[N, 3, 4]; 0"), "N");
        assert_eq!(infer_value(&GATHER, 13, &[], "[N, 3, 4]; [-1, 1]"), "[4, 3]");
        assert_eq!(infer_value(&GATHER, 13, &[], "[N, 3]; [0, I]"), "[N, ?]");
        assert_eq!(
            infer_value(&GATHER, 13, &[], "[[N, 2], [4, 5]]; [[1], [0]]"),
            "[[[4, 5]], [[N, 2]]]"
        );
        assert_eq!(infer_value(&GATHER, 13, &[("axis", Int(1))], "[[N, 2], [4, 5]]; -1"), "[2, 5]");
        assert_eq!(
            infer_value(&GATHER, 13, &[], "[]; 0"),
            "Gather: index 0 is out of range for axis 0 of size 0"
        );
    }
}
