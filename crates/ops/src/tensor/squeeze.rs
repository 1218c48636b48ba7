//! `Squeeze`: removes axes of size 1, either given ones or all.
//!
//! Since 1; 11 allows negative axes; 13 makes the axes an input and adds bfloat16; 21 adds 8-bit
//! floats and 4-bit integers; 23 adds the 4-bit float; 24 adds the power-of-two scale; 25 adds
//! 2-bit integers.

use sardonyx_model::Shape;

use super::{Axes, axes, ints_to_input, unknown_dims, widened};
use crate::downward::{count_axes_from_front, ints_to_attribute};
use crate::facts::*;
use crate::math::shape_values;
use crate::sharding::{Linear, movement};
use crate::tensor::gradients;
use crate::{Demand, Infer, InferError, OpDef};

pub static SQUEEZE: OpDef = OpDef::new("Squeeze")
    .about("Removes axes of size 1: the given ones, or all.")
    .since(1, &[input("data", "T"), output("squeezed", "T"), ints("axes"), types("T", ALL)])
    .since(11, &[note("Negative `axes` count from the end.")])
    .same_up()
    .since(
        13,
        &[
            input("data", "T").differentiable(),
            input("axes", "tensor(int64)").optional().non_differentiable(),
            output("squeezed", "T").differentiable(),
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
    .adapter(11, 10, |cx| count_axes_from_front(cx, "axes"))
    .adapter(12, 13, |cx| ints_to_input(cx, "axes", 1))
    .adapter(13, 12, |cx| ints_to_attribute(cx, 1, "axes"))
    .shapes_by(&[1])
    .gradient(gradients::reshape)
    .split_by(movement::regroup)
    .linear_in(Linear::First);

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = match cx.shape(0) {
        Some(shape) => squeeze_shape(cx, shape)?,
        None => None,
    };
    cx.set_tensor(0, cx.elem(0), shape.clone());
    shape_values::pass(cx, shape.as_ref());
    Ok(())
}

fn squeeze_shape(cx: &Infer<'_>, shape: &Shape) -> Result<Option<Shape>, InferError> {
    let mut stays = vec![true; shape.len()];
    match axes(cx, 1) {
        Axes::Known(axes) => {
            for axis in axes {
                let axis = cx.axis(axis, shape.len())?;
                if let Some(size) = shape[axis].known().filter(|size| *size != 1) {
                    return cx.fail(format_args!("axis {axis} has size {size}, not 1"));
                }
                cx.demand(|| Demand::Equal(shape[axis].clone(), 1.into()));
                stays[axis] = false;
            }
        }
        Axes::Unknown(count) => {
            return Ok(count.and_then(|count| shape.len().checked_sub(count)).map(unknown_dims));
        }
        Axes::Absent => {
            for (stays, size) in stays.iter_mut().zip(shape) {
                // A size that may be 1 leaves the rank unknown.
                let Some(size) = size.known() else {
                    return Ok(None);
                };
                *stays = size != 1;
            }
        }
    }
    let kept = shape.iter().zip(stays).filter(|(_, stays)| *stays).map(|(size, _)| size);
    Ok(Some(kept.cloned().collect::<Shape>()))
}

#[cfg(test)]
mod tests {
    use super::SQUEEZE;
    use crate::math::testing::raise_version;
    use crate::math::testing::{infer, infer_value, ty, value};
    use crate::tensor::testing::{check, ints};
    use sardonyx_model::AttrValue;

    #[test]
    fn axes_of_size_1_are_removed() {
        check(
            &SQUEEZE,
            13,
            &[
                (&[], "float[1, 3, 1, N]; =[0, -2]", "float[3, N]"),
                (&[], "float[1, 3, 1]", "float[3]"),
                (&[], "float[?, N]; =[1]", "float[?]"),
                (&[], "float[1, N]", "float[...]"),
                (&[], "float[1, 3, 1]; int64[1]", "float[?, ?]"),
                (&[], "float[1, 3, 1]; int64[?]", "float[...]"),
                (&[], "float[...]; =[0]", "float[...]"),
                (&[], "float[1, 3]; =[1]", "Squeeze: axis 1 has size 3, not 1"),
                (&[], "float[1, 3]; =[2]", "Squeeze: axis 2 is out of range for rank 2"),
            ],
        );
        check(
            &SQUEEZE,
            1,
            &[
                (&[("axes", ints(&[0]))], "float[1, 3, 1]", "float[3, 1]"),
                (&[], "float[1, 3, 1]", "float[3]"),
            ],
        );
    }

    #[test]
    fn a_vector_of_one_becomes_a_scalar() {
        assert_eq!(infer_value(&SQUEEZE, 13, &[], "[N]; [0]"), "N");
        let (_, values) = infer(&SQUEEZE, 13, &[], &[ty("int64[2]")], &[value("[N, 2]")], 1)
            .expect("no contradiction");
        assert_eq!(format!("{:?}", values[0].as_ref().expect("a value").ints()), "Some([N, 2])");
    }

    #[test]
    fn axes_become_an_input() {
        assert_eq!(
            raise_version(&SQUEEZE, 12, &[("axes", AttrValue::from(&[0]))], "float[1]"),
            "y = Squeeze(a, [0])"
        );
        assert_eq!(raise_version(&SQUEEZE, 12, &[], "float[1]"), "y = Squeeze(a)");
    }
}
