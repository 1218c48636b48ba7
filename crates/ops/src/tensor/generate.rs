//! Tensors made of an index, a size or bounds.

use sardonyx_tensor::DataType::{Bfloat16, Bool, Double, Float, Float16, Int16, Int32, Int64};

use crate::def::OpDef;
use crate::facts::{ALL, ALL_IR4, NUMERIC, NUMERIC_IR4, input, int, output, types};
use crate::function::{BFLOAT16, DOUBLE, Expand, FLOAT, FLOAT16};
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
    )
    .body(
        &[11],
        concat!("distance = Sub (limit, start)\n", steps_and_loop!()),
    )
    .body_from(27, range);

macro_rules! steps_and_loop {
    () => {
        concat!(
            "distance_float = Cast <to = 1> (distance)
            delta_float = Cast <to = 1> (delta)
            steps = Div (distance_float, delta_float)\n",
            add_up!("start", "delta", "output"),
        )
    };
}
use steps_and_loop;

/// A loop over the steps, rounded up, from a start by a step.
macro_rules! add_up {
    ($start:literal, $step:literal, $output:literal) => {
        concat!(
            "rounded = Ceil (steps)
            not_negative = Relu (rounded)
            count = Cast <to = 7> (not_negative)
            any = Cast <to = 9> (not_negative)
            end, ",
            $output,
            " = Loop (count, any, ",
            $start,
            ") <
                body = add_up (int64 index, bool go_on, current) => (still, next, value) {
                    still = Identity (go_on)
                    next = Add (current, ",
            $step,
            ")
                    value = Identity (current)
                }
            >\n",
        )
    };
}
use add_up;

fn range(cx: &Expand<'_>) -> Option<String> {
    let elem = cx.elem(0)?;
    if ![FLOAT16, BFLOAT16].contains(&elem) {
        return Some(concat!("distance = Sub (limit, start)\n", steps_and_loop!()).to_string());
    }
    let stash = cx.int("stash_type")?;
    if ![FLOAT, DOUBLE].contains(&stash) {
        return None;
    }
    Some(format!(
        "wide_start = Cast <to = {stash}> (start)
        wide_limit = Cast <to = {stash}> (limit)
        wide_delta = Cast <to = {stash}> (delta)
        distance = Sub (wide_limit, wide_start)
        steps = Div (distance, wide_delta)
        {}
        output = Cast <to = {elem}> (wide_output)",
        add_up!("wide_start", "wide_delta", "wide_output"),
    ))
}

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
