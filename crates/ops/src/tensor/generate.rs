//! Tensors made of an index, a size or bounds.

use sardonyx_tensor::DataType::{Bfloat16, Bool, Double, Float, Float16, Int16, Int32, Int64};

use crate::def::OpDef;
use crate::facts::{ALL, ALL_IR4, NUMERIC, NUMERIC_IR4, input, int, output, types};
use crate::typeset::TypeSet;

pub(crate) static EYE_LIKE: OpDef = OpDef::new("EyeLike")
    .about("Ones on one diagonal, zeros elsewhere, of the shape of a matrix.")
    .since(
        9,
        &[
            input("input", "T1"),
            output("output", "T2"),
            int("dtype"),
            int("k").or(0),
            types("T1", NUMERIC.and(TypeSet::tensors(&[Bool]))),
            types("T2", NUMERIC.and(TypeSet::tensors(&[Bool]))),
        ],
    )
    .since(
        22,
        &[
            types("T1", NUMERIC_IR4.and(TypeSet::tensors(&[Bool]))),
            types("T2", NUMERIC_IR4.and(TypeSet::tensors(&[Bool]))),
        ],
    );

pub(crate) static ONE_HOT: OpDef = OpDef::new("OneHot")
    .about("A new axis with one value at the index and another one everywhere else.")
    .since(
        9,
        &[
            input("indices", "T1"),
            input("depth", "T2"),
            input("values", "T3"),
            output("output", "T3"),
            int("axis").or(-1),
            types("T1", NUMERIC),
            types("T2", NUMERIC),
            types("T3", ALL),
        ],
    )
    .since(
        11,
        &[
            input("indices", "T1").non_differentiable(),
            input("depth", "T2").non_differentiable(),
            input("values", "T3").non_differentiable(),
            output("output", "T3").non_differentiable(),
        ],
    )
    .since(28, &[types("T3", ALL_IR4)]);

pub(crate) static RANGE: OpDef = OpDef::new("Range")
    .about("Numbers from a start up to, but not including, a limit, at equal distances.")
    .since(
        11,
        &[
            input("start", "T"),
            input("limit", "T"),
            input("delta", "T"),
            output("output", "T"),
            types("T", TypeSet::tensors(&[Float, Double, Int16, Int32, Int64])),
        ],
    )
    .since(
        27,
        &[
            int("stash_type").or(1),
            types(
                "T",
                TypeSet::tensors(&[Float16, Float, Double, Bfloat16, Int16, Int32, Int64]),
            ),
        ],
    );

pub(crate) static TRILU: OpDef = OpDef::new("Trilu")
    .about("The upper or lower triangle of matrices, zeros elsewhere; which diagonal is the border can be said.").since(
    14,
    &[
        input("input", "T").differentiable(),
        input("k", "tensor(int64)").optional().non_differentiable(),
        output("output", "T").differentiable(),
        int("upper").or(1),
        types("T", ALL_IR4),
    ],
);
