//! Where: elements of one tensor or of another, as a condition says.
//!
//! Since 9; 16 adds bfloat16.

use sardonyx_model::Dim;
use sardonyx_tensor::{Bool8, DataType};

use crate::facts::*;
use crate::infer::Known;
use crate::math::shape_values::{self, Ints};
use crate::rules::broadcast_inputs;
use crate::{Infer, InferError, OpDef, TypeSet};

pub static WHERE: OpDef = OpDef::new("Where")
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
    .infer(infer);

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = broadcast_inputs(cx)?;
    cx.set_tensor(0, cx.elem(1).or(cx.elem(2)), shape);
    if let Some(ints) = choose_ints(cx) {
        shape_values::set(cx, ints);
    }
    Ok(())
}

/// From scalars and vectors of integers, if the condition is known.
fn choose_ints(cx: &Infer<'_>) -> Option<Ints> {
    let Some(Known::Tensor(condition)) = cx.known(0) else { return None };
    let choice = condition.to_vec::<Bool8>().ok().filter(|_| condition.rank() <= 1)?;
    let (x, y) = (shape_values::of_input(cx, 1)?, shape_values::of_input(cx, 2)?);
    let len = [choice.len(), x.values.len(), y.values.len()].into_iter().find(|len| *len != 1).unwrap_or(1);
    let at = |values: &[Dim], index: usize| if values.len() == 1 { values.first().cloned() } else { values.get(index).cloned() };
    let pick = |index: usize| {
        let choice = if choice.len() == 1 { choice[0] } else { *choice.get(index)? };
        at(if choice.get() { &x.values } else { &y.values }, index)
    };
    let values = (0..len).map(pick).collect::<Option<Vec<_>>>()?;
    Some(Ints { elem: x.elem, scalar: condition.rank() == 0 && x.scalar && y.scalar, values })
}
