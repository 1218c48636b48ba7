//! Random numbers. They are what a node gives that does not depend on its inputs alone.

use sardonyx_tensor::DataType::{Bool, Int32, Int64};

use crate::def::OpDef;
use crate::facts::{
    ALL, ALL_IR4, FLOATS, FLOATS_IR4, NUMERIC_IR4, float, input, int, ints, non_deterministic,
    output, types,
};
use crate::typeset::TypeSet;

pub(crate) static BERNOULLI: OpDef = OpDef::new("Bernoulli")
    .about("Draws 0 or 1 for each element, which is the probability of 1.")
    .since(
        15,
        &[
            input("input", "T1"),
            output("output", "T2"),
            int("dtype"),
            float("seed"),
            types("T1", FLOATS),
            types("T2", NUMERIC_IR4.and(TypeSet::tensors(&[Bool]))),
            non_deterministic(),
        ],
    )
    .since(22, &[types("T1", FLOATS_IR4)])
    .body_from(15, |cx| {
        let elem = cx.elem(0)?;
        let dtype = cx.int("dtype").unwrap_or(elem);
        Some(format!(
            "drawn = RandomUniformLike <low = 0.0, high = 1.0, seed: float = @seed, dtype = {elem}> (input)
            above = Greater (drawn, input)
            output = Cast <to = {dtype}> (above)"
        ))
    });

pub(crate) static MULTINOMIAL: OpDef = OpDef::new("Multinomial")
    .about("Draws classes with the probabilities whose logarithms are given, up to a constant.")
    .since(
        7,
        &[
            input("input", "T1"),
            output("output", "T2"),
            int("dtype").or(6),
            int("sample_size").or(1),
            float("seed"),
            types("T1", FLOATS),
            types("T2", TypeSet::tensors(&[Int32, Int64])),
            non_deterministic(),
        ],
    )
    .since(22, &[types("T1", FLOATS_IR4)]);

pub(crate) static RANDOM_NORMAL: OpDef = OpDef::new("RandomNormal")
    .about("Numbers of a normal distribution, of a shape that is given.")
    .since(
        1,
        &[
            output("output", "T"),
            int("dtype").or(1),
            float("mean").or_float(0.0),
            float("scale").or_float(1.0),
            float("seed"),
            ints("shape").required(),
            types("T", FLOATS),
            non_deterministic(),
        ],
    )
    .since(22, &[types("T", FLOATS_IR4)]);

pub(crate) static RANDOM_NORMAL_LIKE: OpDef = OpDef::new("RandomNormalLike")
    .about("Numbers of a normal distribution, of the shape of the input.")
    .since(
        1,
        &[
            input("input", "T1"),
            output("output", "T2"),
            int("dtype"),
            float("mean").or_float(0.0),
            float("scale").or_float(1.0),
            float("seed"),
            types("T1", ALL),
            types("T2", FLOATS),
            non_deterministic(),
        ],
    )
    .since(22, &[types("T1", ALL_IR4), types("T2", FLOATS_IR4)]);

pub(crate) static RANDOM_UNIFORM: OpDef = OpDef::new("RandomUniform")
    .about("Numbers spread evenly between two bounds, of a shape that is given.")
    .since(
        1,
        &[
            output("output", "T"),
            int("dtype").or(1),
            float("high").or_float(1.0),
            float("low").or_float(0.0),
            float("seed"),
            ints("shape").required(),
            types("T", FLOATS),
            non_deterministic(),
        ],
    )
    .since(22, &[types("T", FLOATS_IR4)]);

pub(crate) static RANDOM_UNIFORM_LIKE: OpDef = OpDef::new("RandomUniformLike")
    .about("Numbers spread evenly between two bounds, of the shape of the input.")
    .since(
        1,
        &[
            input("input", "T1"),
            output("output", "T2"),
            int("dtype"),
            float("high").or_float(1.0),
            float("low").or_float(0.0),
            float("seed"),
            types("T1", ALL),
            types("T2", FLOATS),
            non_deterministic(),
        ],
    )
    .since(22, &[types("T1", ALL_IR4), types("T2", FLOATS_IR4)]);
