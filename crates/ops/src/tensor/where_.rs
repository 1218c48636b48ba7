//! `Where`: selects each element from one of two tensors, by a condition.
//!
//! Since 9; 16 adds bfloat16.

use sardonyx_model::Dim;
use sardonyx_tensor::DataType;

use crate::facts::*;
use crate::math::gradients;
use crate::math::shape_values::{self, Ints};
use crate::rules::broadcast_inputs;
use crate::sharding::elements;
use crate::{Infer, InferError, OpDef, TypeSet};

pub static WHERE: OpDef = OpDef::new("Where")
    .about("Selects elements of `X` where the condition is true and of `Y` elsewhere.")
    .since(
        9,
        &[
            input("condition", "B").non_differentiable(),
            input("X", "T").differentiable(),
            input("Y", "T").differentiable(),
            output("output", "T").differentiable(),
            types("B", TypeSet::tensors(&[DataType::Bool])),
            types("T", ALL),
        ],
    )
    .since(16, &[types("T", ALL_IR4)])
    .widens()
    .infer(infer)
    .gradient(gradients::choose)
    .split_by(elements::elementwise);

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = broadcast_inputs(cx)?;
    cx.set_tensor(0, cx.elem(1).or(cx.elem(2)), shape);
    let chosen = choose_ints(cx);
    shape_values::set_if(cx, chosen);
    Ok(())
}

/// Selects known integers if the condition is known or does not matter.
fn choose_ints(cx: &Infer<'_>) -> Option<Ints> {
    let condition = shape_values::of_input(cx, 0)?;
    let [x, y] = [1, 2].map(|index| shape_values::of_input_or_unknown(cx, index));
    let (x, y) = (x?, y?);
    shape_values::broadcast(x.elem, [&condition, &x, &y], |[condition, x, y]| match condition {
        Dim::Known(0) => y.clone(),
        Dim::Known(_) => x.clone(),
        _ if x.surely_equals(y) => x.clone(),
        _ => Dim::Unknown,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known::Known;
    use crate::math::testing::{infer, ty, value};
    use crate::tensor::testing::check;
    use sardonyx_tensor::Tensor;

    #[test]
    fn three_inputs_broadcast() {
        check(
            &WHERE,
            16,
            &[
                (&[], "bool[N, 1]; float[3]; float", "float[N, 3]"),
                (&[], "bool[...]; float[3]; float", "float[...]"),
                (
                    &[],
                    "bool[2]; float[3]; float",
                    "Where: sizes 2 and 3 of axis 0 do not broadcast",
                ),
            ],
        );
    }

    #[test]
    fn integers_are_selected() {
        let condition =
            Known::Tensor(Tensor::from_bools([2], &[true, false]).expect("the sizes fit"));
        let types = [ty("bool[2]"), ty("int64[2]"), ty("int64")];
        let known = [Some(condition), value("[N, 3]"), value("7")];
        let (_, values) = infer(&WHERE, 16, &[], &types, &known, 1).expect("no contradiction");
        assert_eq!(format!("{:?}", values[0].as_ref().and_then(Known::ints)), "Some([N, 7])");
    }
}
