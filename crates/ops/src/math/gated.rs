//! `SwiGLU`, `Swish` and `Shrink`: activations with a gate, a factor or a bias.

use crate::def::OpDef;
use crate::facts::{FLOATS_IR4, NUMERIC, float, input, output, types};
use crate::function::{attribute_like, number_like};
use crate::infer::{Infer, InferError};
use crate::rules::{same_as_first, same_shape};
use crate::sharding::elements;

pub(crate) static SHRINK: OpDef = OpDef::new("Shrink")
    .about(
        "Soft shrinkage: moves each element toward 0 by `bias` and sets elements near 0 to 0. `x + \
         bias` if `x < -lambd`, `x - bias` if `x > lambd`, 0 otherwise.",
    )
    .since(
        9,
        &[
            input("input", "T").differentiable(),
            output("output", "T").differentiable(),
            float("bias").or_float(0.0),
            float("lambd").or_float(0.5),
            types("T", NUMERIC),
        ],
    )
    .infer(same_as_first)
    .body(
        &[18],
        concat!(
            attribute_like!("lambd", "input"),
            attribute_like!("bias", "input"),
            number_like!("zero", "0", "input"),
            "lower = Neg (lambd)
            below = Less (input, lower)
            raised = Add (input, bias)
            lowered = Sub (input, bias)
            above = Less (lambd, input)
            not_below = Where (above, lowered, zero)
            output = Where (below, raised, not_below)",
        ),
    )
    .split_by(elements::elementwise);

pub static SWIGLU: OpDef = OpDef::new("SwiGLU")
    .about(
        "Swish gated linear unit: `Y = A * sigmoid(alpha * A) * B`. Both inputs have the same \
         shape; they are not broadcast.",
    )
    .since(
        28,
        &[
            input("A", "T").differentiable(),
            input("B", "T").differentiable(),
            output("Y", "T").differentiable(),
            float("alpha").or_float(1.0),
            types("T", FLOATS_IR4),
        ],
    )
    .infer(infer_without_broadcasting)
    .body(
        &[28],
        "gate = Swish <alpha: float = @alpha> (A)
        Y = Mul (gate, B)",
    );

pub static SWISH: OpDef = OpDef::new("Swish")
    .about("Swish activation (SiLU if `alpha` is 1): `Y = X * sigmoid(alpha * X)`.")
    .since(
        24,
        &[
            input("X", "T").differentiable(),
            output("Y", "T").differentiable(),
            float("alpha").or_float(1.0),
            types("T", FLOATS_IR4),
        ],
    )
    .infer(same_as_first)
    .body(
        &[24],
        concat!(
            attribute_like!("alpha", "X"),
            "scaled = Mul (alpha, X)
            gate = Sigmoid (scaled)
            Y = Mul (X, gate)",
        ),
    )
    .split_by(elements::elementwise);

/// Infers the shape that both inputs must have, without broadcasting.
fn infer_without_broadcasting(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = same_shape(cx, &[0, 1])?;
    cx.set_tensor(0, cx.elem(0).or(cx.elem(1)), shape);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::testing::infer_type;

    #[test]
    fn inputs_do_not_broadcast() {
        // SHAPE-09, SHAPE-20
        let rows = [
            ("float[N, 3, ?]; float[2, 3, 8]", "float[2, 3, 8]"),
            ("float[N, 3, D]; float[N, C, 8]", "float[N, 3, 8]"),
            ("-; double[2]", "double[2]"),
            (
                "float[2, 1]; float[2, 3]",
                "SwiGLU: sizes of axis 1 of inputs 0 and 1 differ (1 and 3)",
            ),
            ("float[2, 1]; float[2]", "SwiGLU: input 1 must have rank 2, not 1"),
        ];
        for (inputs, expected) in rows {
            assert_eq!(infer_type(&SWIGLU, 28, &[], inputs), expected);
        }
    }
}
