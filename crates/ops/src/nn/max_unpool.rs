//! The way back from `MaxPool`.

use sardonyx_tensor::DataType::Int64;

use crate::def::OpDef;
use crate::facts::{FLOATS, FLOATS_IR4, input, ints, output, types};
use crate::typeset::TypeSet;

pub(crate) static MAX_UNPOOL: OpDef = OpDef::new("MaxUnpool")
    .about("Puts the elements that `MaxPool` found back to the places that its indices name, and zeros elsewhere.")
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
    .since(22, &[types("T1", FLOATS_IR4)]);
