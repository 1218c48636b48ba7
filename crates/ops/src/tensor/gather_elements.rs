//! Taking elements by index, one by one or by tuples.

use sardonyx_tensor::DataType::{Int32, Int64};

use crate::def::OpDef;
use crate::facts::{ALL, ALL_IR4, input, int, output, types};
use crate::typeset::TypeSet;

pub(crate) static GATHER_ELEMENTS: OpDef = OpDef::new("GatherElements")
    .about(
        "Takes an element for each index, which replaces the element's own position on one axis.",
    )
    .since(
        11,
        &[
            input("data", "T"),
            input("indices", "Tind"),
            output("output", "T"),
            int("axis").or(0),
            types("T", ALL),
            types("Tind", TypeSet::tensors(&[Int32, Int64])),
        ],
    )
    .since(
        13,
        &[
            input("data", "T").differentiable(),
            input("indices", "Tind").non_differentiable(),
            output("output", "T").differentiable(),
            types("T", ALL_IR4),
        ],
    );

pub(crate) static GATHER_ND: OpDef = OpDef::new("GatherND")
    .about("Takes elements or slices, each found by a tuple of indices: the last axis of `indices`. The first \
         `batch_dims` axes are walked through in parallel.")
    .since(
        11,
        &[
            input("data", "T"),
            input("indices", "tensor(int64)"),
            output("output", "T"),
            types("T", ALL),
        ],
    )
    .since(12, &[int("batch_dims").or(0)])
    .since(
        13,
        &[
            input("data", "T").differentiable(),
            input("indices", "tensor(int64)").non_differentiable(),
            output("output", "T").differentiable(),
            types("T", ALL_IR4),
        ],
    );
