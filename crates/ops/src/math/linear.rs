//! Linear algebra beyond the matrix product.

use crate::def::OpDef;
use crate::facts::{
    FLOATS, FLOATS_IR4, NUMERIC, NUMERIC_IR4, input, inputs, output, string, types,
};

pub(crate) static DET: OpDef = OpDef::new("Det")
    .about("Determinant of square matrices in the last two axes.")
    .since(
        11,
        &[
            input("X", "T").differentiable(),
            output("Y", "T").differentiable(),
            types("T", FLOATS),
        ],
    )
    .since(22, &[types("T", FLOATS_IR4)]);

pub(crate) static EINSUM: OpDef = OpDef::new("Einsum")
    .about(
        "Products and sums over named axes, as the equation says: `ij,jk->ik` is a matrix product.",
    )
    .since(
        12,
        &[
            inputs("Inputs", "T").differentiable(),
            output("Output", "T").differentiable(),
            string("equation").required(),
            types("T", NUMERIC),
        ],
    )
    .since(28, &[types("T", NUMERIC_IR4)]);
