//! Values that may be absent.

use sardonyx_tensor::DataType::Bool;

use crate::def::OpDef;
use crate::facts::{ALL, ALL_IR14, input, note, output, type_proto, types};
use crate::typeset::TypeSet;

pub(crate) static OPTIONAL: OpDef = OpDef::new("Optional")
    .about("Makes an optional value of a tensor or sequence, or an empty one of a given type.")
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
    );

pub(crate) static OPTIONAL_GET_ELEMENT: OpDef = OpDef::new("OptionalGetElement")
    .about("What is in an optional value.")
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
            note("A value of a tensor or sequence type is taken as well: the operator returns the input."),
            types(
            "O",
            ALL.and(ALL.as_sequences())
                .and(ALL.and(ALL.as_sequences()).as_optionals()),
        )],
    )
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
    );

pub(crate) static OPTIONAL_HAS_ELEMENT: OpDef = OpDef::new("OptionalHasElement")
    .about("Whether there is something in an optional value.")
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
            note("A value of a tensor or sequence type is taken as well, and is something; an input left out is not."),
            types(
                "O",
                ALL.and(ALL.as_sequences())
                    .and(ALL.and(ALL.as_sequences()).as_optionals()),
            ),
        ],
    )
    .since(
        28,
        &[types(
            "O",
            ALL_IR14
                .and(ALL_IR14.as_sequences())
                .and(ALL_IR14.and(ALL_IR14.as_sequences()).as_optionals()),
        )],
    );
