//! `Unsqueeze`: inserts axes of size 1, at positions counted in the result.
//!
//! Since 1; 11 allows negative axes; 13 makes the axes an input and adds bfloat16; 21 adds 8-bit
//! floats and 4-bit integers; 23 adds the 4-bit float; 24 adds the power-of-two scale; 25 adds
//! 2-bit integers.

use sardonyx_model::{Dim, Shape};

use super::{Axes, axes, ints_to_input, unknown_dims, widened};
use crate::attributes::Attributes;
use crate::downward::{count_axes_of_rank, ints_to_attribute};
use crate::facts::*;
use crate::math::shape_values;
use crate::sharding::{Linear, movement};
use crate::tensor::gradients;
use crate::{Adapt, Infer, InferError, OpDef, Refusal};

pub static UNSQUEEZE: OpDef = OpDef::new("Unsqueeze")
    .about("Inserts axes of size 1. `axes` are positions in the output.")
    .since(
        1,
        &[input("data", "T"), output("expanded", "T"), ints("axes").required(), types("T", ALL)],
    )
    .since(11, &[note("Negative `axes` count from the end.")])
    .same_up()
    .since(
        13,
        &[
            input("data", "T").differentiable(),
            input("axes", "tensor(int64)").non_differentiable(),
            output("expanded", "T").differentiable(),
            without_attribute("axes"),
            types("T", ALL_IR4),
        ],
    )
    .since(21, widened!("T", ALL_IR10))
    .widens()
    .since(23, widened!("T", ALL_IR11))
    .widens()
    .since(24, widened!("T", ALL_IR12))
    .widens()
    .since(25, widened!("T", ALL_IR13))
    .widens()
    .infer(infer)
    .adapter(11, 10, count_axes_of_result)
    .adapter(12, 13, |cx| ints_to_input(cx, "axes", 1))
    .adapter(13, 12, |cx| ints_to_attribute(cx, 1, "axes"))
    .shapes_by(&[1])
    .gradient(gradients::reshape)
    .split_by(movement::regroup)
    .linear_in(Linear::First);

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = match (cx.shape(0), axes(cx, 1)) {
        (Some(shape), Axes::Known(axes)) => Some(insert_axes(cx, shape, &axes)?),
        (Some(shape), Axes::Unknown(Some(count))) => Some(unknown_dims(shape.len() + count)),
        _ => None,
    };
    cx.set_tensor(0, cx.elem(0), shape.clone());
    shape_values::pass(cx, shape.as_ref());
    Ok(())
}

fn insert_axes(cx: &Infer<'_>, shape: &Shape, axes: &[i64]) -> Result<Shape, InferError> {
    let rank = shape.len() + axes.len();
    let mut is_new = vec![false; rank];
    for axis in axes {
        let axis = cx.axis(*axis, rank)?;
        if std::mem::replace(&mut is_new[axis], true) {
            return cx.fail(format_args!("axis {axis} is given twice"));
        }
    }
    let mut old = shape.iter();
    let size = |is_new: bool| {
        if is_new { Some(Dim::Known(1)) } else { old.next().cloned() }
    };
    Ok(is_new.into_iter().filter_map(size).collect())
}

/// Counts axes from the front of the result.
fn count_axes_of_result(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let count = cx.ints("axes").map_or(0, |axes| axes.len());
    let rank = cx.rank(0).map(|rank| rank + count);
    count_axes_of_rank(cx, "axes", rank)
}

#[cfg(test)]
mod tests {
    use super::UNSQUEEZE;
    use crate::math::testing::infer_value;
    use crate::math::testing::raise_version;
    use crate::tensor::testing::{check, ints};
    use sardonyx_model::AttrValue;

    #[test]
    fn axes_of_size_1_are_inserted() {
        check(
            &UNSQUEEZE,
            13,
            &[
                (&[], "float[3, 4, N]; =[0, 4]", "float[1, 3, 4, N, 1]"),
                (&[], "float[3, 4]; =[-1, 0]", "float[1, 3, 4, 1]"),
                (&[], "float; =[0]", "float[1]"),
                (&[], "float[N]; int64[2]", "float[?, ?, ?]"),
                (&[], "float[N]; int64[?]", "float[...]"),
                (&[], "float[...]; =[0]", "float[...]"),
                (&[], "float[3]; =[0, -3]", "Unsqueeze: axis 0 is given twice"),
                (&[], "float[3]; =[2]", "Unsqueeze: axis 2 is out of range for rank 2"),
            ],
        );
        check(&UNSQUEEZE, 1, &[(&[("axes", ints(&[1]))], "float[3, 4]", "float[3, 1, 4]")]);
    }

    #[test]
    fn a_scalar_becomes_a_vector() {
        assert_eq!(infer_value(&UNSQUEEZE, 13, &[], "N; [0]"), "[N]");
        assert_eq!(infer_value(&UNSQUEEZE, 13, &[], "[N, 2]; [0]"), "[[N, 2]]");
    }

    #[test]
    fn axes_become_an_input() {
        assert_eq!(
            raise_version(&UNSQUEEZE, 12, &[("axes", AttrValue::from(&[0, 2]))], "float[1]"),
            "y = Unsqueeze(a, [0, 2])"
        );
    }
}
