//! Random numbers: `Bernoulli`, `Multinomial`, `RandomNormal`, `RandomUniform`, and the last two
//! with the shape of another value. Their results do not depend on inputs alone.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType::{Bool, Int32, Int64};

use crate::def::OpDef;
use crate::facts::{
    ALL, ALL_IR4, FLOATS, FLOATS_IR4, NUMERIC_IR4, float, input, int, ints, non_deterministic,
    output, types,
};
use crate::infer::{Infer, InferError};
use crate::math::gradients;
use crate::rules::elem_attribute;
use crate::typeset::TypeSet;

pub(crate) static BERNOULLI: OpDef = OpDef::new("Bernoulli")
    .about("Draws 0 or 1 for each element; the element is the probability of 1.")
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
    .widens()
    .infer(infer_like_first)
    // The reference has Greater here, which makes the element the probability of 0.
    .body_from(15, |cx| {
        let elem = cx.elem(0)?;
        let dtype = cx.int("dtype").unwrap_or(elem);
        Some(format!(
            "drawn = RandomUniformLike <low = 0.0, high = 1.0, seed: float = @seed, dtype = {elem}> (input)
            is_one = Less (drawn, input)
            output = Cast <to = {dtype}> (is_one)"
        ))
    });

pub(crate) static MULTINOMIAL: OpDef = OpDef::new("Multinomial")
    .about("Draws class indices from unnormalized log-probabilities.")
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
    .since(22, &[types("T1", FLOATS_IR4)])
    .widens()
    .infer(multinomial);

pub(crate) static RANDOM_NORMAL: OpDef = OpDef::new("RandomNormal")
    .about(
        "Draws from the normal distribution, in a given shape. With a seed Sardonyx draws the same \
         numbers in each run.",
    )
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
    .since(22, &[types("T", FLOATS_IR4)])
    .widens()
    .infer(infer_shape);

pub(crate) static RANDOM_NORMAL_LIKE: OpDef = OpDef::new("RandomNormalLike")
    .about(
        "Draws from the normal distribution, in the shape of the input. With a seed Sardonyx draws \
         the same numbers in each run.",
    )
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
    .since(22, &[types("T1", ALL_IR4), types("T2", FLOATS_IR4)])
    .widens()
    .infer(infer_like_first)
    .gradient(gradients::zero);

pub(crate) static RANDOM_UNIFORM: OpDef = OpDef::new("RandomUniform")
    .about(
        "Draws from the uniform distribution on `[low, high)`, in a given shape. With a seed \
         Sardonyx draws the same numbers in each run.",
    )
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
    .since(22, &[types("T", FLOATS_IR4)])
    .widens()
    .infer(infer_shape);

pub(crate) static RANDOM_UNIFORM_LIKE: OpDef = OpDef::new("RandomUniformLike")
    .about(
        "Draws from the uniform distribution on `[low, high)`, in the shape of the input. With a \
         seed Sardonyx draws the same numbers in each run.",
    )
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
    .since(22, &[types("T1", ALL_IR4), types("T2", FLOATS_IR4)])
    .widens()
    .infer(infer_like_first)
    .gradient(gradients::zero);

/// Infers the shape of the input, and its element type unless the node names another one.
fn infer_like_first(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let elem = elem_attribute(cx, "dtype")?.or(cx.elem(0));
    cx.set_tensor(0, elem, cx.shape(0).cloned());
    Ok(())
}

fn infer_shape(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let elem = elem_attribute(cx, "dtype")?;
    let shape = cx.ints("shape");
    if let Some(size) = shape.iter().flatten().find(|size| **size < 0) {
        return cx.fail(format_args!("the shape has the negative size {size}"));
    }
    let shape = shape.map(|sizes| sizes.into_iter().map(Dim::Known).collect());
    cx.set_tensor(0, elem, shape);
    Ok(())
}

fn multinomial(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let elem = match elem_attribute(cx, "dtype")? {
        Some(elem) if ![Int32, Int64].contains(&elem) => {
            return cx.fail(format_args!("dtype must be int32 or int64, not {}", elem.name()));
        }
        elem => elem,
    };
    let samples = cx.int("sample_size").unwrap_or(1);
    if samples < 0 {
        return cx.fail(format_args!("sample_size is {samples}"));
    }
    cx.demand_rank(0, 2)?;
    let batch = cx.shape(0).and_then(|shape| shape.first());
    let shape = [batch.cloned().unwrap_or(Dim::Unknown), Dim::Known(samples)];
    cx.set_tensor(0, elem, Some(Shape::from_iter(shape)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::AttrValue::Int;
    use crate::tensor::testing::{check, ints};

    #[test]
    fn shapes_and_element_types() {
        // SHAPE-16, SHAPE-22
        let dtype = |number| ("dtype", Int(number));
        for def in [&BERNOULLI, &RANDOM_NORMAL_LIKE, &RANDOM_UNIFORM_LIKE] {
            check(
                def,
                22,
                &[
                    (&[], "float[2, N]", "float[2, N]"),
                    (&[dtype(11)], "float[2, N]", "double[2, N]"),
                    (&[dtype(11)], "-", "double[...]"),
                ],
            );
        }
        check(
            &RANDOM_NORMAL,
            1,
            &[
                (&[("shape", ints(&[3, 4]))], "", "float[3, 4]"),
                (&[("shape", ints(&[])), dtype(11)], "", "double"),
                (&[], "", "float[...]"),
                (
                    &[("shape", ints(&[3, -4]))],
                    "",
                    "RandomNormal: the shape has the negative size -4",
                ),
                (
                    &[("shape", ints(&[3])), dtype(0)],
                    "",
                    "RandomNormal: dtype = 0 is not an element type",
                ),
            ],
        );
        check(
            &MULTINOMIAL,
            7,
            &[
                (&[], "float[N, 5]", "int32[N, 1]"),
                (&[("sample_size", Int(9)), dtype(7)], "-", "int64[?, 9]"),
                (
                    &[dtype(1)],
                    "float[N, 5]",
                    "Multinomial: dtype must be int32 or int64, not float",
                ),
                (&[("sample_size", Int(-9))], "float[N, 5]", "Multinomial: sample_size is -9"),
                (&[], "float[5]", "Multinomial: input 0 must have rank 2, not 1"),
            ],
        );
    }
}
