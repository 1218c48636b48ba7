//! `Expand`: broadcasts to a shape in both directions. Where the shape has 1, the input's size
//! stays.
//!
//! Since 8; 13 adds bfloat16.

use sardonyx_model::{Dim, Shape};

use super::{unknown_dims, vector_len};
use crate::facts::*;
use crate::math::shape_values;
use crate::rules::broadcast_shapes;
use crate::sharding::movement;
use crate::tensor::gradients;
use crate::{Infer, InferError, OpDef};

pub static EXPAND: OpDef = OpDef::new("Expand")
    .about(
        "Broadcasts a tensor to a shape. The output shape is the broadcast of the input shape and \
         `shape`; a size of 1 in `shape` keeps the size of the input.",
    )
    .since(
        8,
        &[
            input("input", "T"),
            input("shape", "tensor(int64)"),
            output("output", "T"),
            types("T", ALL),
        ],
    )
    .since(
        13,
        &[
            input("input", "T").differentiable(),
            input("shape", "tensor(int64)").non_differentiable(),
            output("output", "T").differentiable(),
            types("T", ALL_IR4),
        ],
    )
    .widens()
    .infer(infer)
    .shapes_by(&[1])
    .gradient(gradients::expand)
    .split_by(movement::expand);

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    cx.demand_rank(1, 1)?;
    let target: Option<Shape> = match cx.known_ints(1) {
        Some(dims) => Some(dims.into()),
        None => vector_len(cx, 1).map(unknown_dims),
    };
    if let Some(size) = target.iter().flatten().filter_map(Dim::known).find(|size| *size < 0) {
        return cx.fail(format_args!("the shape has the negative size {size}"));
    }
    let shape = match (cx.shape(0), &target) {
        (Some(input), Some(target)) => Some(broadcast_shapes(cx, &[input, target])?),
        _ => None,
    };
    cx.set_tensor(0, cx.elem(0), shape.clone());
    if let Some(shape) = shape {
        repeat_ints(cx, &shape);
    }
    Ok(())
}

fn repeat_ints(cx: &mut Infer<'_>, shape: &Shape) {
    let (Some(ints), Some(dims)) = (shape_values::of_input(cx, 0), shape_values::sizes(shape))
    else {
        return;
    };
    let repeated = ints.broadcast(dims);
    shape_values::set_if(cx, repeated);
}

#[cfg(test)]
mod tests {
    use super::EXPAND;
    use crate::math::testing::infer_value;
    use crate::tensor::testing::check;

    #[test]
    fn sizes_broadcast_in_both_directions() {
        check(
            &EXPAND,
            13,
            &[
                (&[], "float[3, 1]; =[2, 1, 6]", "float[2, 3, 6]"),
                (&[], "float[3, 1]; =[N, 1, M]", "float[N, 3, M]"),
                (&[], "float[3, 4]; =[1]", "float[3, 4]"),
                (&[], "float; =[]", "float"),
                (&[], "float[3, N]; int64[3]", "float[?, 3, ?]"),
                (&[], "float[3, 1]; int64[?]", "float[...]"),
                (&[], "float[...]; =[2]", "float[...]"),
                (&[], "float[3]; =[2]", "Expand: sizes 3 and 2 of axis 0 do not broadcast"),
                (&[], "float[3]; =[-1]", "Expand: the shape has the negative size -1"),
                (&[], "float[3]; int64[1, 1]", "Expand: input 1 must have rank 1, not 2"),
            ],
        );
    }

    #[test]
    fn known_integers_repeat() {
        assert_eq!(infer_value(&EXPAND, 8, &[], "N; [3]"), "[N, N, N]");
        assert_eq!(infer_value(&EXPAND, 8, &[], "[N, 2]; [1]"), "[N, 2]");
        assert_eq!(infer_value(&EXPAND, 8, &[], "[1]; [2, 2]"), "[[1, 1], [1, 1]]");
        assert_eq!(infer_value(&EXPAND, 8, &[], "[5]; [M]"), "-");
    }
}
