//! `Dropout`: sets random elements to 0 in training, otherwise returns its input unchanged.
//!
//! Since 1; 6 drops the hint `consumed_inputs`; 7 drops `is_test`, since the caller decides; 10
//! makes the mask `bool`; 12 makes `ratio` and the mode inputs and adds `seed`; 13 adds bfloat16;
//! 22 adds 8-bit floats.

use sardonyx_tensor::{Bool8, DataType, Tensor};

use crate::attributes::{AttrValue, Attributes};
use crate::downward::{constant, exact_float};
use crate::facts::*;
use crate::math::consumed_inputs;
use crate::nn::gradients;
use crate::sharding::elements;
use crate::tensor::cast::CAST;
use crate::{Adapt, Assumption, Infer, InferError, OpDef, Refusal, TypeSet};

pub static DROPOUT: OpDef = OpDef::new("Dropout")
    .about(
        "Dropout: in training, sets random elements to 0 and scales the others by `1 / (1 - \
         ratio)`. In inference the input is returned unchanged.",
    )
    .since(
        1,
        &[
            input("data", "T"),
            output("output", "T"),
            output("mask", "T").optional(),
            ints("consumed_inputs"),
            int("is_test").or(0),
            float("ratio").or_float(0.5),
            types("T", FLOATS),
            non_deterministic(),
        ],
    )
    .since(6, &[without_attribute("consumed_inputs")])
    .same_down()
    .since(7, &[without_attribute("is_test")])
    .since(10, &[output("mask", "T1").optional(), types("T1", BOOL)])
    .since(
        12,
        &[
            input("ratio", "T1").optional(),
            input("training_mode", "T2").optional(),
            output("mask", "T2").optional(),
            without_attribute("ratio"),
            int("seed"),
            types("T1", FLOATS),
            types("T2", BOOL),
        ],
    )
    .since(
        13,
        &[
            input("data", "T").differentiable(),
            input("ratio", "T1").optional().non_differentiable(),
            input("training_mode", "T2").optional().non_differentiable(),
            output("output", "T").differentiable(),
            output("mask", "T2").optional().non_differentiable(),
            types("T", FLOATS_IR4),
        ],
    )
    .widens()
    .since(22, &[types("T", FLOATS_IR9), types("T1", FLOATS_IR9)])
    .widens()
    .infer(infer)
    .adapter(5, 6, consumed_inputs::remove)
    .adapter(6, 7, drop_is_test)
    .adapter(7, 6, |cx| {
        cx.set("is_test", 1);
        Ok(())
    })
    .adapter(9, 10, cast_bool_mask)
    .adapter(10, 9, cast_typed_mask)
    .adapter(11, 12, move_ratio_to_input)
    .adapter(12, 11, move_ratio_to_attribute)
    .without_reference_rule(&[1])
    .gradient(gradients::dropout)
    .split_by(elements::dropout);

const BOOL: TypeSet = TypeSet::tensors(&[DataType::Bool]);
const FLOATS_IR9: TypeSet = FLOATS_IR4.and(TypeSet::tensors(&[
    DataType::Float8e4m3fn,
    DataType::Float8e4m3fnuz,
    DataType::Float8e5m2,
    DataType::Float8e5m2fnuz,
]));

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    if cx.since() >= 12 {
        cx.demand_rank(1, 0)?;
        cx.demand_rank(2, 0)?;
    }
    if let Some(ty) = cx.input(0) {
        cx.set(0, ty.clone());
    }
    let mask = if cx.since() >= 10 { Some(DataType::Bool) } else { cx.elem(0) };
    cx.set_tensor(1, mask, cx.shape(0).cloned());
    Ok(())
}

fn drop_is_test(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let trains = cx.int("is_test").unwrap_or(0) == 0 && cx.float("ratio") != Some(0.0);
    if trains && cx.runs() {
        // Version 12 has an input for training.
        cx.set("is_test", 0);
        return Ok(());
    }
    if trains && cx.is_used(1) {
        return Err(cx.refuse(
            "is_test = 0 means training, whose mask is used; versions 7 to 11 do not support it",
        ));
    }
    if trains {
        let why = "is_test = 0 means training, which versions 7 to 11 do not support";
        cx.demand(Assumption::Inference, why)?;
    }
    cx.remove("is_test");
    Ok(())
}

/// Casts the mask to the type of the data, which it had before and which its readers expect.
fn cast_bool_mask(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    if !cx.is_used(1) {
        // Exporters name it with or without readers.
        cx.drop_output(1);
        return Ok(());
    }
    match cx.input_type(0).and_then(|ty| ty.elem()) {
        Some(elem) => cx.after(1, CAST.name, &[], &[("to", AttrValue::Int(elem.number().into()))]),
        None => {
            return Err(cx.refuse("the mask becomes bool, and its previous type is unknown"));
        }
    }
    Ok(())
}

/// Moves the ratio to an input. The mode stays absent, which means inference, unless the node still
/// has `is_test`.
fn move_ratio_to_input(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    if let Some(ratio) = cx.float("ratio") {
        cx.remove("ratio");
        let ratio = cx.add_constant(Tensor::scalar(ratio));
        cx.set_input(1, Some(ratio));
    }
    if cx.has("is_test") {
        cx.remove("is_test");
        let trains = cx.add_constant(Tensor::scalar(Bool8::from(true)));
        cx.set_input(2, Some(trains));
    }
    Ok(())
}

/// Casts the mask, which has the type of the data, to the truth values that its readers expect.
fn cast_typed_mask(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    if cx.is_used(1) {
        cx.after(1, CAST.name, &[], &[("to", AttrValue::Int(DataType::Bool.number().into()))]);
    } else if cx.has_output(1) {
        cx.drop_output(1);
    }
    Ok(())
}

fn move_ratio_to_attribute(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    if let Some(mode) = constant(cx, 2, "training_mode")? {
        let trains = mode.to_vec::<Bool8>().is_ok_and(|mode| mode.iter().any(|on| on.get()));
        if trains {
            return Err(
                cx.refuse("training_mode is true, and versions 7 to 11 do not support training")
            );
        }
    }
    let ratio = constant(cx, 1, "ratio")?;
    cx.keep_inputs(1);
    // The seed only matters in training.
    cx.remove("seed");
    if let Some(ratio) = ratio {
        match exact_float(&ratio) {
            Some(ratio) => cx.set("ratio", ratio),
            None => return Err(cx.refuse("ratio does not fit into a 32-bit float")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::DROPOUT;
    use crate::Assumption;
    use crate::math::testing::raise_version;
    use crate::tensor::testing::{cross_outputs, outputs};
    use sardonyx_model::AttrValue;

    #[test]
    fn the_mask_has_the_shape_of_the_data() {
        let rows = [
            (7, "float[N, 3]", "float[N, 3]; float[N, 3]"),
            (10, "float[N, 3]", "float[N, 3]; bool[N, 3]"),
            (13, "float[...]; float; bool", "float[...]; bool[...]"),
            (22, "-", "-; bool[...]"),
            (12, "float[N]; float[1]", "Dropout: input 1 must have rank 0, not 1"),
        ];
        for (opset, inputs, expected) in rows {
            assert_eq!(outputs(&DROPOUT, opset, &[], inputs, 2), expected, "{opset} {inputs}");
        }
    }

    #[test]
    fn only_inference_crosses_to_version_7() {
        let test = [("is_test", AttrValue::Int(1)), ("ratio", AttrValue::Float(0.25))];
        assert_eq!(raise_version(&DROPOUT, 6, &test, "float[2]"), "y = Dropout(a) ratio=0.25");
        let refused = "Dropout: is_test = 0 means training, which versions 7 to 11 do not support";
        assert_eq!(raise_version(&DROPOUT, 6, &[], "float[2]"), refused);
        let granted =
            |read: &[usize]| cross_outputs(&DROPOUT, 6, 7, &[], 2, read, &[Assumption::Inference]);
        assert_eq!(granted(&[0]), "2 outputs");
        assert!(granted(&[0, 1]).contains("whose mask is used"));
    }

    #[test]
    fn a_mask_without_readers_is_removed() {
        let crossed = |read: &[usize]| cross_outputs(&DROPOUT, 9, 10, &[], 2, read, &[]);
        assert_eq!(crossed(&[0]), "1 outputs");
        assert!(crossed(&[0, 1]).starts_with("Dropout: the mask becomes bool"));
    }

    #[test]
    fn the_ratio_becomes_an_input() {
        assert_eq!(
            raise_version(&DROPOUT, 11, &[("ratio", AttrValue::Float(0.25))], "float[2]"),
            "y = Dropout(a, 0.25)"
        );
        assert_eq!(raise_version(&DROPOUT, 11, &[], "float[2]"), "y = Dropout(a)");
        assert_eq!(raise_version(&DROPOUT, 9, &[], "float[2]"), "y = Dropout(a)");
    }
}
