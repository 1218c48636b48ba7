//! `Cast`: converts elements to another type.
//!
//! Since 1; 6 names the type by number instead of by word; 9 adds strings; 13 adds bfloat16; 19
//! adds 8-bit floats and `saturate` for them; 21 adds 4-bit integers; 23 adds the 4-bit float; 24
//! adds the power-of-two scale and `round_mode` for it; 25 adds 2-bit integers; 28 adds 6-bit
//! floats.

use sardonyx_model::Dim;
use sardonyx_tensor::{CastOptions, DataType, cast};

use crate::attributes::AttrValue;
use crate::attributes::Attributes;
use crate::facts::*;
use crate::known::{Known, MAX_KNOWN};
use crate::math::shape_values;
use crate::rules::elem_attribute;
use crate::sharding::elements;
use crate::tensor::gradients;
use crate::{Adapt, Infer, InferError, OpDef, Refusal, TypeSet};

pub static CAST: OpDef = OpDef::new("Cast")
    .about("Converts each element to another type. Floats convert to integers by truncation toward \
         zero, to bool as `x != 0`. Numbers convert to strings in decimal notation, and strings are \
         parsed as numbers. `saturate` and `round_mode` concern 8-bit floats.")
    .since(
        1,
        &[
            input("input", "T1"),
            output("output", "T2"),
            string("to").required(),
            types("T1", REAL.except(STRING)),
            types("T2", REAL.except(STRING)),
        ],
    )
    .since(6, &[int("to").required()])
    .since(9, &[types("T1", REAL), types("T2", REAL)])
    .widens()
    .since(
        13,
        &[
            input("input", "T1").differentiable(),
            output("output", "T2").differentiable(),
            types("T1", ALL_IR4.except(COMPLEX)),
            types("T2", ALL_IR4.except(COMPLEX)),
        ],
    )
    .widens()
    .since(
        19,
        &[
            int("saturate").or(1),
            types("T1", ALL_IR9.except(COMPLEX)),
            types("T2", ALL_IR9.except(COMPLEX)),
        ],
    )
    .same_up()
    .since(21, &[types("T1", ALL_IR10.except(COMPLEX)), types("T2", ALL_IR10.except(COMPLEX))])
    .widens()
    .since(23, &[types("T1", ALL_IR11.except(COMPLEX)), types("T2", ALL_IR11.except(COMPLEX))])
    .widens()
    .since(
        24,
        &[
            string("round_mode").or_word("up"),
            types("T1", ALL_IR12.except(COMPLEX)),
            types("T2", ALL_IR12.except(COMPLEX)),
        ],
    )
    .same_up()
    .since(25, &[types("T1", ALL_IR13.except(COMPLEX)), types("T2", ALL_IR13.except(COMPLEX))])
    .widens()
    .since(28, &[types("T1", ALL_IR14.except(COMPLEX)), types("T2", ALL_IR14.except(COMPLEX))])
    .widens()
    .infer(infer)
    .adapter(5, 6, replace_word)
    .adapter(6, 5, replace_number)
    // These attributes concern types that were added in 19 and in 24.
    .adapter(19, 18, |cx| {
        cx.remove("saturate");
        Ok(())
    })
    .adapter(24, 23, |cx| {
        cx.remove("round_mode");
        Ok(())
    })
    .without_reference_rule(&[1])
    .gradient(gradients::cast)
    .split_by(elements::elements_of_first);

const STRING: &[DataType] = &[DataType::String];
const COMPLEX: &[DataType] = &[DataType::Complex64, DataType::Complex128];
const REAL: TypeSet = ALL.except(COMPLEX);

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let to = match cx.string("to") {
        Some(word) => match parse_word(&word) {
            Some(elem) => Some(elem),
            None => return cx.fail(format_args!("to = \"{word}\" is not an element type")),
        },
        None => elem_attribute(cx, "to")?,
    };
    cx.set_tensor(0, to, cx.shape(0).cloned());
    if let Some(to) = to {
        pass_numbers(cx, to);
    }
    Ok(())
}

/// Passes numbers on from one numeric type to another.
pub(super) fn pass_numbers(cx: &mut Infer<'_>, to: DataType) {
    let is_plain = |elem: DataType| {
        use DataType::{Bool, Double, Float};
        matches!(elem, Bool | Float | Double) || elem.is_integer() && !elem.is_packed()
    };
    let Some(known) = cx.known_value(0).filter(|known| is_plain(known.elem()) && is_plain(to))
    else {
        return;
    };
    match known {
        // Numbers that are not whole may become whole.
        Known::Tensor(tensor) if tensor.len() <= MAX_KNOWN => {
            if let Ok(converted) = cast(tensor, to, CastOptions::default()) {
                cx.set_known(0, Known::Tensor(converted));
            }
        }
        Known::Tensor(_) => {}
        Known::Ints { .. } if to == DataType::Bool => {
            shape_values::map_to(cx, to, |value| {
                shape_values::truth(
                    shape_values::equal(value, &Dim::Known(0)).map(|is_zero| !is_zero),
                )
            });
        }
        Known::Ints { .. } => shape_values::map_to(cx, to, Dim::clone),
    }
}

/// Returns the element type for a word of version 1: a name as in the enumeration of the file
/// format, such as `FLOAT16`.
fn parse_word(word: &str) -> Option<DataType> {
    DataType::from_name(word.to_ascii_lowercase())
}

fn replace_word(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let Some(word) = cx.string("to") else {
        return Err(cx.refuse("attribute to is not a string"));
    };
    let Some(elem) = parse_word(&word) else {
        return Err(cx.refuse(format_args!("to = \"{word}\" is not an element type")));
    };
    cx.remove("to");
    cx.set("to", i64::from(elem.number()));
    Ok(())
}

fn replace_number(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let elem = cx.int("to").and_then(|to| DataType::from_number(i32::try_from(to).ok()?));
    let Some(elem) = elem else {
        return Err(cx.refuse("the attribute to is not the number of an element type"));
    };
    cx.remove("to");
    let word = elem.to_string().to_ascii_uppercase();
    cx.set("to", AttrValue::String(word.into_bytes().into()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::CAST;
    use crate::AttrValue::Int;
    use crate::known::Known;
    use crate::math::testing::raise_version;
    use crate::math::testing::{infer, infer_value};
    use crate::tensor::testing::{check, word};
    use sardonyx_model::AttrValue;
    use sardonyx_tensor::Tensor;

    #[test]
    fn the_attribute_sets_the_type() {
        // SHAPE-22+
        check(
            &CAST,
            13,
            &[
                (&[("to", Int(10))], "float[N, 3]", "float16[N, 3]"),
                (&[("to", Int(10))], "-", "float16[...]"),
                (&[], "float[2]", "?[2]"),
                (&[("to", Int(99))], "float[2]", "Cast: to = 99 is not an element type"),
                (&[("to", Int(0))], "float[2]", "Cast: to = 0 is not an element type"),
            ],
        );
        check(
            &CAST,
            1,
            &[
                (&[("to", word("FLOAT16"))], "double[2]", "float16[2]"),
                (&[("to", word("INT64"))], "double[2]", "int64[2]"),
                (
                    &[("to", word("NUMBER"))],
                    "double[2]",
                    "Cast: to = \"NUMBER\" is not an element type",
                ),
            ],
        );
    }

    #[test]
    fn integers_stay_known() {
        assert_eq!(infer_value(&CAST, 13, &[("to", Int(6))], "[N, 2]"), "[N, 2]");
        assert_eq!(infer_value(&CAST, 13, &[("to", Int(7))], "int32:5"), "5");
        assert_eq!(infer_value(&CAST, 13, &[("to", Int(1))], "[N, 2]"), "[N, 2]");
        assert_eq!(infer_value(&CAST, 13, &[("to", Int(7))], "float:[N, 2]"), "[N, 2]");
        let truths = infer_value(&CAST, 13, &[("to", Int(9))], "[N, -2, 0]");
        assert_eq!(truths, "[?, 1, 0]");
        // These numbers exceed 32 bits.
        assert_eq!(infer_value(&CAST, 13, &[("to", Int(6))], "[1, 4294967296]"), "[1, ?]");
        let known =
            [Some(Known::Tensor(Tensor::from_vec([2], vec![3u8, 200]).expect("the sizes fit")))];
        let (_, values) =
            infer(&CAST, 13, &[("to", Int(7))], &[None], &known, 1).expect("no contradiction");
        assert_eq!(
            values[0].as_ref().and_then(Known::ints),
            Some(vec![3i64.into(), 200i64.into()])
        );
    }

    #[test]
    fn words_become_numbers() {
        let raise_version = |word: &'static str| {
            raise_version(&CAST, 5, &[("to", AttrValue::from(word))], "float[2]")
        };
        assert_eq!(raise_version("FLOAT16"), "y = Cast(a) to=10");
        assert_eq!(raise_version("BOOL"), "y = Cast(a) to=9");
        assert_eq!(raise_version("bits"), "Cast: to = \"bits\" is not an element type");
    }
}
