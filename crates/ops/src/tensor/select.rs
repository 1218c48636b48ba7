//! Taking elements by what they are.

use sardonyx_tensor::DataType::{Bool, Int64};

use crate::def::OpDef;
use crate::facts::{
    ALL, ALL_IR4, FLOATS, NUMERIC, NUMERIC_IR4, input, int, output, types, without_attribute,
};
use crate::typeset::TypeSet;

pub(crate) static COMPRESS: OpDef = OpDef::new("Compress")
    .about("Takes the slices along an axis for which a condition holds; without an axis, elements of the flattened \
         input.")
    .since(
        9,
        &[
            input("input", "T"),
            input("condition", "T1"),
            output("output", "T"),
            int("axis"),
            types("T", ALL),
            types("T1", TypeSet::tensors(&[Bool])),
        ],
    )
    .since(
        11,
        &[
            input("input", "T").differentiable(),
            input("condition", "T1").non_differentiable(),
            output("output", "T").differentiable(),
        ],
    )
    .since(28, &[types("T", ALL_IR4)]);

pub(crate) static NON_ZERO: OpDef = OpDef::new("NonZero")
    .about("Indices of all elements that are not zero, in row-major order, one row for each axis.")
    .since(
        9,
        &[
            input("X", "T"),
            output("Y", "tensor(int64)"),
            types("T", ALL),
        ],
    )
    .since(
        13,
        &[
            input("X", "T").non_differentiable(),
            output("Y", "tensor(int64)").non_differentiable(),
            types("T", ALL_IR4),
        ],
    );

pub(crate) static TOP_K: OpDef = OpDef::new("TopK")
    .about("The k largest or smallest elements along an axis, with their positions.")
    .since(
        1,
        &[
            input("X", "T"),
            output("Values", "T"),
            output("Indices", "I"),
            int("axis").or(-1),
            int("k").required(),
            types("T", FLOATS),
            types("I", TypeSet::tensors(&[Int64])),
        ],
    )
    .since(10, &[input("K", "tensor(int64)"), without_attribute("k")])
    .since(
        11,
        &[
            input("X", "T").differentiable(),
            input("K", "tensor(int64)").non_differentiable(),
            output("Values", "T").differentiable(),
            output("Indices", "I").non_differentiable(),
            int("largest").or(1),
            int("sorted").or(1),
            types("T", NUMERIC),
        ],
    )
    .since(24, &[types("T", NUMERIC_IR4)]);

pub(crate) static UNIQUE: OpDef = OpDef::new("Unique")
    .about("The different elements or slices, sorted or as they come, with their first positions, where each went, and \
         how often it was there.")
    .since(
        11,
        &[
            input("X", "T").non_differentiable(),
            output("Y", "T").non_differentiable(),
            output("indices", "tensor(int64)")
                .optional()
                .non_differentiable(),
            output("inverse_indices", "tensor(int64)")
                .optional()
                .non_differentiable(),
            output("counts", "tensor(int64)")
                .optional()
                .non_differentiable(),
            int("axis"),
            int("sorted").or(1),
            types("T", ALL),
        ],
    )
    .since(28, &[types("T", ALL_IR4)]);
