//! MaxPool: the largest element of each window, and where it was found.
//!
//! Since 1; 8 adds the output `Indices` and `storage_order`; 10 adds `ceil_mode` and `dilations`; 11 only words defaults; 12
//! adds 8-bit integers; 22 adds bfloat16.
//!
//! No adapter is needed: each new attribute's default is the older behaviour.

use sardonyx_tensor::DataType;

use super::window::pooled_shape;
use crate::facts::*;
use crate::{Infer, InferError, OpDef, TypeSet};

pub static MAX_POOL: OpDef = OpDef::new("MaxPool")
    .since(
        1,
        &[
            input("X", "T"),
            output("Y", "T"),
            string("auto_pad").or_string("NOTSET"),
            ints("kernel_shape").required(),
            ints("pads"),
            ints("strides"),
            types("T", FLOATS),
        ],
    )
    .since(
        8,
        &[
            output("Indices", "I").optional(),
            int("storage_order").or(0),
            types("I", TypeSet::tensors(&[DataType::Int64])),
        ],
    )
    .since(10, &[int("ceil_mode").or(0), ints("dilations")])
    .since(11, &[])
    .since(
        12,
        &[
            input("X", "T").differentiable(),
            output("Y", "T").differentiable(),
            output("Indices", "I").optional().non_differentiable(),
            types("T", FLOATS.and(BYTES)),
        ],
    )
    .since(22, &[types("T", FLOATS_IR4.and(BYTES))])
    .infer(infer);

const BYTES: TypeSet = TypeSet::tensors(&[DataType::Int8, DataType::Uint8]);

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = pooled_shape(cx)?;
    cx.set_tensor(0, cx.elem(0), shape.clone());
    cx.set_tensor(1, Some(DataType::Int64), shape);
    Ok(())
}
