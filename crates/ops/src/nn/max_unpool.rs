//! `MaxUnpool`: puts the results of `MaxPool` back to their positions.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType::Int64;

use super::window::{explicit_pads, per_axis};
use crate::def::OpDef;
use crate::denotation::IMAGES;
use crate::facts::{FLOATS, FLOATS_IR4, input, ints, output, types};
use crate::infer::{Infer, InferError};
use crate::nn::gradients;
use crate::rules;
use crate::typeset::TypeSet;

pub static MAX_UNPOOL: OpDef = OpDef::new("MaxUnpool")
    .about("Partial inverse of `MaxPool`: places each maximum at its index and 0 elsewhere.")
    .since(
        9,
        &[
            input("X", "T1"),
            input("I", "T2"),
            input("output_shape", "T2").optional(),
            output("output", "T1"),
            ints("kernel_shape").required(),
            ints("pads"),
            ints("strides"),
            types("T1", FLOATS),
            types("T2", TypeSet::tensors(&[Int64])),
        ],
    )
    .since(
        11,
        &[
            input("X", "T1").differentiable(),
            input("I", "T2").non_differentiable(),
            input("output_shape", "T2").optional().non_differentiable(),
            output("output", "T1").differentiable(),
        ],
    )
    .same()
    .since(22, &[types("T1", FLOATS_IR4)])
    .widens()
    .infer(infer)
    .differs(|cx| {
        cx.has_input(2).then(|| {
            "indices count in the shape that the windows reach; on ONNX Runtime they count in \
             output_shape"
                .to_string()
        })
    })
    .keeps_format(&[(0, IMAGES)])
    .gradient(gradients::max_unpool);

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = output_shape(cx)?;
    if cx.has_input(2) && cx.known_value(2).is_none() {
        cx.set_reason(0, "the values of output_shape");
    }
    cx.set_tensor(0, cx.elem(0), shape);
    Ok(())
}

fn output_shape(cx: &Infer<'_>) -> Result<Option<Shape>, InferError> {
    for input in [0, 1] {
        rules::demand_rank_from(cx, input, 2)?;
    }
    let Some(x) = cx.shape(0) else {
        return Ok(None);
    };
    cx.demand_rank(1, x.len())?;
    let axes = x.len() - 2;
    let strides = per_axis(cx, "strides", axes, 1)?.unwrap_or_else(|| vec![1; axes]);
    let kernel = per_axis(cx, "kernel_shape", axes, 1)?;
    let pads = explicit_pads(cx, axes)?;
    if cx.has_input(2) {
        return given_shape(cx, x);
    }
    let batch = rules::shared_dim(cx, "elements of the batch", &[(0, 0), (1, 0)])?;
    let channels = rules::shared_dim(cx, "channels", &[(0, 1), (1, 1)])?;
    let mut shape: Shape = [batch, channels].into_iter().collect();
    for (axis, stride) in strides.iter().enumerate() {
        let places = [(0, axis + 2), (1, axis + 2)];
        let size = rules::shared_dim(cx, "a spatial size", &places)?;
        let Some(kernel) = &kernel else {
            shape.push(Dim::Unknown);
            continue;
        };
        let (before, after) = pads[axis];
        let spread = size
            .sub(&Dim::Known(1))
            .mul(&Dim::Known(*stride))
            .add(&Dim::Known(kernel[axis]))
            .sub(&Dim::Known(before))
            .sub(&Dim::Known(after));
        let spread = rules::check_overflow(cx, "the output", spread, &[&size])?;
        if let Some(found) = spread.known().filter(|found| *found < 0) {
            return cx.fail(format_args!(
                "the pads are too large: spatial axis {axis} would have size {found}"
            ));
        }
        shape.push(spread);
    }
    Ok(Some(shape))
}

/// Returns the shape that an input holds, or at least its rank.
fn given_shape(cx: &Infer<'_>, x: &Shape) -> Result<Option<Shape>, InferError> {
    cx.demand_rank(2, 1)?;
    let rank = rules::shared_dim(cx, "sizes", &[(2, 0)])?;
    cx.same_dim(&rank, &x.len().into(), "the number of sizes and the rank of X")?;
    let sizes = cx.known_ints(2).unwrap_or_else(|| vec![Dim::Unknown; x.len()]);
    Ok(Some(sizes.into_iter().collect()))
}

#[cfg(test)]
mod tests {
    use super::MAX_UNPOOL;
    use crate::tensor::testing::{check, ints};

    #[test]
    fn sizes_of_windows_are_restored() {
        let two = || [("kernel_shape", ints(&[2, 2])), ("strides", ints(&[2, 2]))];
        for opset in [9, 11, 22] {
            check(
                &MAX_UNPOOL,
                opset,
                &[
                    (&two(), "float[1, 1, 2, 2]; int64[1, 1, 2, 2]", "float[1, 1, 4, 4]"),
                    (&two(), "float[N, C, H, ?]; int64[N, 3, H, 2]", "float[N, 3, 2*H, 4]"),
                    (
                        &two(),
                        "float[1, 1, 2, 2]; int64[1, 1, 2, 2]; =[1, 1, H, 5]",
                        "float[1, 1, H, 5]",
                    ),
                    (&two(), "float[1, 1, 2, 2]; int64[1, 1, 2, 2]; int64[4]", "float[?, ?, ?, ?]"),
                    (&two(), "float[1, 1, 2, 2]; -", "float[1, 1, 4, 4]"),
                    (&two(), "-; -", "?[...]"),
                    (&[], "float[1, 1, 2]; -", "float[1, 1, ?]"),
                    (
                        &[("kernel_shape", ints(&[1])), ("pads", ints(&[1, 1]))],
                        "float[1, 1, 1]; -",
                        "MaxUnpool: the pads are too large: spatial axis 0 would have size -1",
                    ),
                    (
                        &two(),
                        "float[1, 1, 2, 2]; int64",
                        "MaxUnpool: input 1 must have rank 2 or more, not 0",
                    ),
                    (
                        &two(),
                        "float[1, 1, 2, 2]; -; int64[3]",
                        "MaxUnpool: the number of sizes and the rank of X differ (3 and 4)",
                    ),
                    (
                        &two(),
                        "float[1, 1, 2]; -",
                        "MaxUnpool: strides has 2 elements, but there are 1 spatial axes",
                    ),
                ],
            );
        }
    }
}
