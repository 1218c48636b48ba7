//! Sums and products up to each element of an axis.

use sardonyx_tensor::DataType::{Float16, Int32, Int64};

use crate::def::OpDef;
use crate::facts::{HIGH_PRECISION, HIGH_PRECISION_IR4, input, int, output, types};
use crate::typeset::TypeSet;

pub(crate) static CUM_PROD: OpDef = OpDef::new("CumProd")
    .about("Product of all elements up to each one along an axis, with it or without it, from either end.").since(
    26,
    &[
        input("x", "T").differentiable(),
        input("axis", "T2").non_differentiable(),
        output("y", "T").differentiable(),
        int("exclusive").or(0),
        int("reverse").or(0),
        types("T", HIGH_PRECISION_IR4),
        types("T2", TypeSet::tensors(&[Int32, Int64])),
    ],
);

pub(crate) static CUM_SUM: OpDef = OpDef::new("CumSum")
    .about(
        "Sum of all elements up to each one along an axis, with it or without it, from either end.",
    )
    .since(
        11,
        &[
            input("x", "T").differentiable(),
            input("axis", "T2").non_differentiable(),
            output("y", "T").differentiable(),
            int("exclusive").or(0),
            int("reverse").or(0),
            types("T", HIGH_PRECISION.except(&[Float16])),
            types("T2", TypeSet::tensors(&[Int32, Int64])),
        ],
    )
    .since(14, &[types("T", HIGH_PRECISION_IR4)]);
