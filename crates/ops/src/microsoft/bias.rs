//! `BiasAdd` and `BiasSplitGelu`: a bias with the operation that follows it in diffusion models.

use sardonyx_model::Dim;
use sardonyx_tensor::DataType::{Float, Float16};

use super::DOMAIN;
use crate::def::OpDef;
use crate::facts::{input, output, types};
use crate::infer::{Infer, InferError};
use crate::rules::same_as_first;
use crate::typeset::TypeSet;

const T: TypeSet = TypeSet::tensors(&[Float16, Float]);

pub(crate) static BIAS_ADD: OpDef = OpDef::new("BiasAdd")
    .domain(DOMAIN)
    .about("Adds a bias along the last axis, then a residual: `Y = X + bias + skip`.")
    .since(
        1,
        &[input("X", "T"), input("bias", "T"), input("skip", "T"), output("Y", "T"), types("T", T)],
    )
    .infer(same_as_first)
    .body(&[1], "biased = Add (X, bias)\nY = Add (biased, skip)");

pub(crate) static BIAS_SPLIT_GELU: OpDef = OpDef::new("BiasSplitGelu")
    .domain(DOMAIN)
    .about(
        "Gated activation: adds a bias along the last axis and splits the sum into halves; the \
         first half is multiplied by the exact Gelu of the second.",
    )
    .since(1, &[input("X", "T"), input("bias", "T"), output("Y", "T"), types("T", T)])
    .infer(infer_halves)
    .body(
        &[1],
        "biased = Add (X, bias)
        values, gates = Split <axis = -1, num_outputs = 2> (biased)
        activated = Gelu (gates)
        Y = Mul (values, activated)",
    );

fn infer_halves(cx: &mut Infer<'_>) -> Result<(), InferError> {
    cx.demand_rank(1, 1)?;
    let shape = cx.shape(0).cloned();
    let shape = match shape {
        Some(mut shape) => {
            let Some(last) = shape.last_mut() else {
                return cx.fail("input 0 must not be a scalar");
            };
            if let Some(size) = last.known().filter(|size| size % 2 != 0) {
                return cx.fail(format_args!("the last axis has size {size}, which has no halves"));
            }
            *last = last.floor_div(&Dim::Known(2));
            Some(shape)
        }
        None => None,
    };
    cx.set_tensor(0, cx.elem(0).or(cx.elem(1)), shape);
    Ok(())
}
