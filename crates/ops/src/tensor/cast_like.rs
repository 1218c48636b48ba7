//! `CastLike`, which casts to the type of another value, and `BitCast`, which keeps the bits.

use sardonyx_tensor::DataType;
use sardonyx_tensor::DataType::{Bool, Complex64, Complex128, String};

use crate::def::OpDef;
use crate::facts::{
    ALL_IR9, ALL_IR10, ALL_IR11, ALL_IR12, ALL_IR13, NUMERIC_IR4, input, int, output, string, types,
};
use crate::infer::{Infer, InferError};
use crate::rules::elem_attribute;
use crate::sharding::elements;
use crate::tensor::cast;
use crate::typeset::TypeSet;

pub(crate) static BIT_CAST: OpDef = OpDef::new("BitCast")
    .about(
        "Reinterprets the bits of each element as another type of the same width. The bytes are \
         little-endian.",
    )
    .since(
        26,
        &[
            input("input", "T1").non_differentiable(),
            output("output", "T2").non_differentiable(),
            int("to").required(),
            types("T1", ALL_IR13.except(&[String])),
            types("T2", ALL_IR13.except(&[String])),
        ],
    )
    .infer(bit_cast)
    .split_by(elements::elements_of_first);

pub static CAST_LIKE: OpDef = OpDef::new("CastLike")
    .about(
        "Converts each element of the first input to the element type of the second, as `Cast` \
         does.",
    )
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
    .same_up()
    .since(
        21,
        &[
            types("T1", ALL_IR10.except(&[Complex64, Complex128])),
            types("T2", ALL_IR10.except(&[Complex64, Complex128])),
        ],
    )
    .widens()
    .since(
        23,
        &[
            types("T1", ALL_IR11.except(&[Complex64, Complex128])),
            types("T2", ALL_IR11.except(&[Complex64, Complex128])),
        ],
    )
    .widens()
    .since(
        24,
        &[
            string("round_mode").or_word("up"),
            types("T1", ALL_IR12.except(&[Complex64, Complex128])),
            types("T2", ALL_IR12.except(&[Complex64, Complex128])),
        ],
    )
    .same_up()
    .since(
        25,
        &[
            types("T1", ALL_IR13.except(&[Complex64, Complex128])),
            types("T2", ALL_IR13.except(&[Complex64, Complex128])),
        ],
    )
    .widens()
    // These attributes concern types that were added in 19 and in 24.
    .adapter(19, 18, |cx| {
        cx.remove("saturate");
        Ok(())
    })
    .adapter(24, 23, |cx| {
        cx.remove("round_mode");
        Ok(())
    })
    .infer(cast_like)
    .body_from(15, |cx| {
        let to = cx.elem(1)?;
        let saturate = if cx.since() < 19 { "" } else { ", saturate: int = @saturate" };
        let round_mode = if cx.since() < 24 { "" } else { ", round_mode: string = @round_mode" };
        Some(format!("output = Cast <to = {to}{saturate}{round_mode}> (input)"))
    })
    .split_by(elements::elements_of_first);

fn bit_cast(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let to = elem_attribute(cx, "to")?;
    let (from_bits, to_bits) = (cx.elem(0).and_then(DataType::bits), to.and_then(DataType::bits));
    if let (Some(from), Some(to)) = (from_bits, to_bits)
        && from != to
    {
        return cx
            .fail(format_args!("elements of {from} bits cannot be reinterpreted as {to} bits"));
    }
    cx.set_tensor(0, to, cx.shape(0).cloned());
    Ok(())
}

fn cast_like(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let to = cx.elem(1);
    cx.set_tensor(0, to, cx.shape(0).cloned());
    if let Some(to) = to {
        cast::pass_numbers(cx, to);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::AttrValue::Int;
    use crate::math::testing::infer_value;
    use crate::tensor::testing::check;

    #[test]
    fn bits_keep_their_number() {
        // SHAPE-22
        check(
            &BIT_CAST,
            26,
            &[
                (&[("to", Int(6))], "float[2, N]", "int32[2, N]"),
                (&[("to", Int(6))], "-", "int32[...]"),
                (&[], "float[2]", "?[2]"),
                (&[("to", Int(9))], "int8", "bool"),
                (
                    &[("to", Int(7))],
                    "float[2]",
                    "BitCast: elements of 32 bits cannot be reinterpreted as 64 bits",
                ),
                (&[("to", Int(-1))], "float[2]", "BitCast: to = -1 is not an element type"),
            ],
        );
    }

    #[test]
    fn the_second_input_sets_the_type() {
        check(
            &CAST_LIKE,
            15,
            &[
                (&[], "float[2, N]; float16[M]", "float16[2, N]"),
                (&[], "float[2]; -", "?[2]"),
                (&[], "-; int64", "int64[...]"),
            ],
        );
        assert_eq!(infer_value(&CAST_LIKE, 15, &[], "[N, 2]; float:1"), "[N, 2]");
    }
}
