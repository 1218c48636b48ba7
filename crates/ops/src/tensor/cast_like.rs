//! Other element types, by example or bit by bit.

use sardonyx_tensor::DataType::{Bool, Complex64, Complex128, String};

use crate::def::OpDef;
use crate::facts::{
    ALL_IR9, ALL_IR10, ALL_IR11, ALL_IR12, ALL_IR13, NUMERIC_IR4, input, int, output, string, types,
};
use crate::typeset::TypeSet;

pub(crate) static BIT_CAST: OpDef = OpDef::new("BitCast")
    .about("The same bits as another type of the same width.")
    .since(
        26,
        &[
            input("input", "T1").non_differentiable(),
            output("output", "T2").non_differentiable(),
            int("to").required(),
            types("T1", ALL_IR13.except(&[String])),
            types("T2", ALL_IR13.except(&[String])),
        ],
    );

pub(crate) static CAST_LIKE: OpDef = OpDef::new("CastLike")
    .about("Converts the first input to the element type of the second one; otherwise `Cast`.")
    .since(
        15,
        &[
            input("input", "T1").differentiable(),
            input("target_type", "T2").non_differentiable(),
            output("output", "T2").differentiable(),
            types("T1", NUMERIC_IR4.and(TypeSet::tensors(&[String, Bool]))),
            types("T2", NUMERIC_IR4.and(TypeSet::tensors(&[String, Bool]))),
        ],
    )
    .since(
        19,
        &[
            int("saturate").or(1),
            types("T1", ALL_IR9.except(&[Complex64, Complex128])),
            types("T2", ALL_IR9.except(&[Complex64, Complex128])),
        ],
    )
    .since(
        21,
        &[
            types("T1", ALL_IR10.except(&[Complex64, Complex128])),
            types("T2", ALL_IR10.except(&[Complex64, Complex128])),
        ],
    )
    .since(
        23,
        &[
            types("T1", ALL_IR11.except(&[Complex64, Complex128])),
            types("T2", ALL_IR11.except(&[Complex64, Complex128])),
        ],
    )
    .since(
        24,
        &[
            string("round_mode").or_string("up"),
            types("T1", ALL_IR12.except(&[Complex64, Complex128])),
            types("T2", ALL_IR12.except(&[Complex64, Complex128])),
        ],
    )
    .since(
        25,
        &[
            types("T1", ALL_IR13.except(&[Complex64, Complex128])),
            types("T2", ALL_IR13.except(&[Complex64, Complex128])),
        ],
    )
    .body_from(15, |cx| {
        let to = cx.elem(1)?;
        let saturate = if cx.since() < 19 {
            ""
        } else {
            ", saturate: int = @saturate"
        };
        Some(format!("output = Cast <to = {to}{saturate}> (input)"))
    });
