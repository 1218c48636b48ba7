//! `Flatten`: a matrix with the axes before `axis` in its rows and the others in its columns.
//!
//! Since 1; 9 takes every type; 11 allows negative `axis`; 13 adds bfloat16; 21 adds 8-bit floats
//! and 4-bit integers; 23 adds the 4-bit float; 24 adds the power-of-two scale; 25 adds 2-bit
//! integers.

use sardonyx_model::{Dim, Shape};

use super::{product, widened};
use crate::downward::count_axis_from_front;
use crate::facts::*;
use crate::math::shape_values;
use crate::sharding::movement;
use crate::tensor::gradients;
use crate::{Infer, InferError, OpDef};

pub static FLATTEN: OpDef = OpDef::new("Flatten")
    .about(
        "Flattens a tensor to a matrix. The axes before `axis` become rows, the others columns. \
         With `axis` 0 the matrix has one row.",
    )
    .since(1, &[input("input", "T"), output("output", "T"), int("axis").or(1), types("T", FLOATS)])
    .since(9, widened!("T", ALL))
    .widens()
    .since(11, &[note("A negative `axis` counts from the end.")])
    .same_up()
    .since(
        13,
        &[
            input("input", "T").differentiable(),
            output("output", "T").differentiable(),
            types("T", ALL_IR4),
        ],
    )
    .widens()
    .since(21, widened!("T", ALL_IR10))
    .widens()
    .since(23, widened!("T", ALL_IR11))
    .widens()
    .since(24, widened!("T", ALL_IR12))
    .widens()
    .since(25, widened!("T", ALL_IR13))
    .widens()
    .infer(infer)
    .adapter(11, 10, |cx| count_axis_from_front(cx, "axis"))
    .gradient(gradients::reshape)
    .split_by(movement::regroup);

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let axis = cx.int("axis").unwrap_or(1);
    let [rows, columns] = match cx.shape(0) {
        Some(shape) => {
            // The rank itself is in range, since all axes may be in the rows.
            let axis = if usize::try_from(axis) == Ok(shape.len()) {
                shape.len()
            } else {
                cx.axis(axis, shape.len())?
            };
            [product(&shape[..axis]), product(&shape[axis..])]
        }
        None if axis == 0 => [Dim::Known(1), Dim::Unknown],
        None => [Dim::Unknown, Dim::Unknown],
    };
    let shape = Shape::from_iter([rows, columns]);
    cx.set_tensor(0, cx.elem(0), Some(shape.clone()));
    shape_values::pass(cx, Some(&shape));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::FLATTEN;
    use crate::AttrValue::Int;
    use crate::tensor::testing::check;

    #[test]
    fn the_result_is_a_matrix() {
        check(
            &FLATTEN,
            11,
            &[
                (&[], "float[N, 3, 4]", "float[N, 12]"),
                (&[("axis", Int(0))], "float[N, 3, 4]", "float[1, 12*N]"),
                (&[("axis", Int(3))], "float[N, 3, 4]", "float[12*N, 1]"),
                (&[("axis", Int(-1))], "float[N, 3, 4]", "float[3*N, 4]"),
                (&[], "float[5]", "float[5, 1]"),
                (&[("axis", Int(0))], "float", "float[1, 1]"),
                (&[], "float[?, 3, 0]", "float[?, 0]"),
                (&[], "float[...]", "float[?, ?]"),
                (&[("axis", Int(0))], "-", "?[1, ?]"),
                (
                    &[("axis", Int(4))],
                    "float[N, 3, 4]",
                    "Flatten: axis 4 is out of range for rank 3",
                ),
                (
                    &[("axis", Int(-4))],
                    "float[N, 3, 4]",
                    "Flatten: axis -4 is out of range for rank 3",
                ),
            ],
        );
    }
}
