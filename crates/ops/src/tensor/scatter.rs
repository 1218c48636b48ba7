//! Writing elements by index.

use sardonyx_tensor::DataType::{Int32, Int64};

use crate::def::OpDef;
use crate::facts::{ALL, ALL_IR4, ALL_IR12, deprecated, input, int, output, string, types};
use crate::typeset::TypeSet;

pub(crate) static SCATTER: OpDef = OpDef::new("Scatter")
    .about("The first form of `ScatterElements`.")
    .since(
        9,
        &[
            input("data", "T"),
            input("indices", "Tind"),
            input("updates", "T"),
            output("output", "T"),
            int("axis").or(0),
            types("T", ALL),
            types("Tind", TypeSet::tensors(&[Int32, Int64])),
        ],
    )
    .since(
        11,
        &[
            input("data", "T").differentiable(),
            input("indices", "Tind").non_differentiable(),
            input("updates", "T").differentiable(),
            output("output", "T").differentiable(),
            deprecated(),
        ],
    );

pub(crate) static SCATTER_ELEMENTS: OpDef = OpDef::new("ScatterElements")
    .about("A copy of a tensor in which an element for each index is replaced, or combined with the update; the index \
         replaces the position on one axis.")
    .since(
        11,
        &[
            input("data", "T"),
            input("indices", "Tind"),
            input("updates", "T"),
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
            input("updates", "T").differentiable(),
            output("output", "T").differentiable(),
            types("T", ALL_IR4),
        ],
    )
    .since(16, &[string("reduction").or_string("none")])
    .since(18, &[]);

pub(crate) static SCATTER_ND: OpDef = OpDef::new("ScatterND")
    .about("A copy of a tensor in which elements or slices, each found by a tuple of indices, are replaced or combined \
         with the update.")
    .since(
        11,
        &[
            input("data", "T"),
            input("indices", "tensor(int64)"),
            input("updates", "T"),
            output("output", "T"),
            types("T", ALL),
        ],
    )
    .since(
        13,
        &[
            input("data", "T").differentiable(),
            input("indices", "tensor(int64)").non_differentiable(),
            input("updates", "T").differentiable(),
            output("output", "T").differentiable(),
            types("T", ALL_IR4),
        ],
    )
    .since(16, &[string("reduction").or_string("none")])
    .since(18, &[]);

pub(crate) static TENSOR_SCATTER: OpDef = OpDef::new("TensorScatter")
    .about("Writes new entries into a cache of keys or values at the position of each sequence, also around its end.").since(
    24,
    &[
        input("past_cache", "T").differentiable(),
        input("update", "T").differentiable(),
        input("write_indices", "tensor(int64)")
            .optional()
            .non_differentiable(),
        output("present_cache", "T").differentiable(),
        int("axis").or(-2),
        string("mode").or_string("linear"),
        types("T", ALL_IR12),
    ],
);
