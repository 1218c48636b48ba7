//! Optional values: `Optional`, `OptionalGetElement`, `OptionalHasElement`.

use sardonyx_model::{Dim, Shape, Type};
use sardonyx_tensor::DataType::Bool;

use crate::attributes::AttrValue;
use crate::def::OpDef;
use crate::facts::{ALL, ALL_IR14, input, note, output, type_proto, types};
use crate::infer::{Infer, InferError};
use crate::math::shape_values::{self, Ints};
use crate::rules::same_as_first;
use crate::typeset::TypeSet;

pub(crate) static OPTIONAL: OpDef = OpDef::new("Optional")
    .about(
        "Wraps a tensor or sequence in an optional, or creates an empty optional of the type \
         `type`.",
    )
    .since(
        15,
        &[
            input("input", "V").optional(),
            output("output", "O"),
            type_proto("type"),
            types("V", ALL.and(ALL.as_sequences())),
            types("O", ALL.and(ALL.as_sequences()).as_optionals()),
        ],
    )
    .since(
        28,
        &[
            types("V", ALL_IR14.and(ALL_IR14.as_sequences())),
            types("O", ALL_IR14.and(ALL_IR14.as_sequences()).as_optionals()),
        ],
    )
    .widens()
    .infer(optional);

pub(crate) static OPTIONAL_GET_ELEMENT: OpDef = OpDef::new("OptionalGetElement")
    .about("Returns the value of an optional. An empty optional is an error.")
    .since(
        15,
        &[
            input("input", "O"),
            output("output", "V"),
            types("O", ALL.and(ALL.as_sequences()).as_optionals()),
            types("V", ALL.and(ALL.as_sequences())),
        ],
    )
    .since(
        18,
        &[
            note("The input may also be a tensor or sequence; the operator then returns the input unchanged."),
            types("O", ALL.and(ALL.as_sequences()).and(ALL.and(ALL.as_sequences()).as_optionals())),
        ],
    )
    .widens()
    .since(
        28,
        &[
            types(
                "O",
                ALL_IR14
                    .and(ALL_IR14.as_sequences())
                    .and(ALL_IR14.and(ALL_IR14.as_sequences()).as_optionals()),
            ),
            types("V", ALL_IR14.and(ALL_IR14.as_sequences())),
        ],
    )
    .widens()
    .infer(element);

pub(crate) static OPTIONAL_HAS_ELEMENT: OpDef = OpDef::new("OptionalHasElement")
    .about("Tests whether an optional has a value.")
    .since(
        15,
        &[
            input("input", "O"),
            output("output", "B"),
            types("O", ALL.and(ALL.as_sequences()).as_optionals()),
            types("B", TypeSet::tensors(&[Bool])),
        ],
    )
    .since(
        18,
        &[
            input("input", "O").optional(),
            note("The input may also be a value of tensor or sequence type (true), or absent (false)."),
            types("O", ALL.and(ALL.as_sequences()).and(ALL.and(ALL.as_sequences()).as_optionals())),
        ],
    )
    .same_up()
    .types_down()
    .since(
        28,
        &[types(
            "O",
            ALL_IR14
                .and(ALL_IR14.as_sequences())
                .and(ALL_IR14.and(ALL_IR14.as_sequences()).as_optionals()),
        )],
    )
    .widens()
    .infer(has_element);

fn optional(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let inside = match (cx.has_input(0), cx.attribute("type")) {
        (false, Some(AttrValue::Type(ty))) => Some(ty),
        (false, None) => return cx.fail("the node has neither an input nor the attribute type"),
        (false, Some(_)) => None,
        (true, _) => cx.input(0).cloned(),
    };
    if let Some(inside) = inside {
        cx.set(0, Type::Optional(Box::new(inside)));
    }
    Ok(())
}

fn element(cx: &mut Infer<'_>) -> Result<(), InferError> {
    match cx.input(0) {
        Some(Type::Optional(element)) => cx.set(0, (**element).clone()),
        _ => same_as_first(cx)?,
    }
    Ok(())
}

fn has_element(cx: &mut Infer<'_>) -> Result<(), InferError> {
    cx.set_tensor(0, Some(Bool), Some(Shape::new()));
    let has = match (cx.has_input(0), cx.input(0)) {
        (false, _) => Some(false),
        (true, None | Some(Type::Optional(_))) => None,
        // A value of any other type is present.
        (true, Some(_)) => Some(true),
    };
    if let Some(has) = has {
        shape_values::set(cx, Ints::scalar(Bool, Dim::Known(has.into())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::testing::infer_value;
    use crate::tensor::testing::check;

    #[test]
    fn there_or_not() {
        // SHAPE-16
        let ty = || ("type", AttrValue::Type(Type::tensor(Bool, [2i64])));
        check(
            &OPTIONAL,
            15,
            &[
                (&[], "float[N]", "optional(float[N])"),
                (&[], "seq(float[N])", "optional(seq(float[N]))"),
                (&[ty()], "", "optional(bool[2])"),
                (&[ty()], "float", "optional(float)"),
                (&[], "-", "-"),
                (&[], "", "Optional: the node has neither an input nor the attribute type"),
            ],
        );
        check(
            &OPTIONAL_GET_ELEMENT,
            18,
            &[
                (&[], "optional(seq(float[N]))", "seq(float[N])"),
                (&[], "float[N]", "float[N]"),
                (&[], "-", "-"),
            ],
        );
        check(
            &OPTIONAL_HAS_ELEMENT,
            18,
            &[(&[], "optional(float)", "bool"), (&[], "", "bool"), (&[], "-", "bool")],
        );
        assert_eq!(infer_value(&OPTIONAL_HAS_ELEMENT, 18, &[], "[2]"), "1");
        assert_eq!(infer_value(&OPTIONAL_HAS_ELEMENT, 18, &[], "-"), "-");
    }
}
