//! Elementwise operators on any number of tensors, as rows.
//!
//! - `Sum`, `Mean`: since 1; 6 drops `consumed_inputs`; 8 broadcasts, where all shapes had to be
//!   the same; 13 adds bfloat16.
//! - `Max`, `Min`: the same, and 12 adds integers.

use sardonyx_model::{Dim, ValueId};
use sardonyx_tensor::{CastOptions, DataType, Tensor, cast};

use crate::adapt::{Adapt, Refusal};
use crate::def::OpDef;
use crate::facts::{
    FLOATS, FLOATS_IR4, Fact, NUMERIC, NUMERIC_IR4, inputs, ints, note, output, types,
    without_attribute,
};
use crate::infer::{Infer, InferError};
use crate::math::binary::{ADD, DIV};
use crate::math::gradients;
use crate::math::{consumed_inputs, legacy_broadcast, shape_values};
use crate::rules;
use crate::sharding::{Linear, elements};

pub static MAX: OpDef = OpDef::new("Max")
    .about("Element-wise maximum of one or more tensors. NaN if any operand is NaN.")
    .since(1, &[DATA, output("max", "T"), IN_PLACE, types("T", FLOATS)])
    .since(6, NOT_IN_PLACE)
    .same_down()
    .since(8, BROADCAST)
    .same_up()
    .since(12, &[types("T", NUMERIC)])
    .widens()
    .since(13, &[SMOOTH_DATA, output("max", "T").differentiable(), types("T", NUMERIC_IR4)])
    .widens()
    .infer(|cx| infer_folded(cx, Dim::larger))
    .adapter(5, 6, consumed_inputs::remove)
    .adapter(12, 11, |cx| select_by_comparison(cx, "Greater"))
    .adapter(8, 7, |cx| legacy_broadcast::expand_to_one_shape(cx, cx.input_count()))
    .without_reference_rule(&[1])
    .gradient(gradients::extreme)
    .split_by(elements::elementwise);

pub static MEAN: OpDef = OpDef::new("Mean")
    .about("Element-wise mean of one or more tensors.")
    .since(1, &[DATA, output("mean", "T"), IN_PLACE, types("T", FLOATS)])
    .since(6, NOT_IN_PLACE)
    .same_down()
    .since(8, BROADCAST)
    .same_up()
    .since(13, &[SMOOTH_DATA, output("mean", "T").differentiable(), types("T", FLOATS_IR4)])
    .widens()
    .infer(infer)
    .adapter(5, 6, consumed_inputs::remove)
    .adapter(8, 7, divide_sum)
    .without_reference_rule(&[1])
    .gradient(gradients::mean)
    .split_by(elements::elementwise);

pub static MIN: OpDef = OpDef::new("Min")
    .about("Element-wise minimum of one or more tensors. NaN if any operand is NaN.")
    .since(1, &[DATA, output("min", "T"), IN_PLACE, types("T", FLOATS)])
    .since(6, NOT_IN_PLACE)
    .same_down()
    .since(8, BROADCAST)
    .same_up()
    .since(12, &[types("T", NUMERIC)])
    .widens()
    .since(13, &[SMOOTH_DATA, output("min", "T").differentiable(), types("T", NUMERIC_IR4)])
    .widens()
    .infer(|cx| infer_folded(cx, Dim::smaller))
    .adapter(5, 6, consumed_inputs::remove)
    .adapter(12, 11, |cx| select_by_comparison(cx, "Less"))
    .adapter(8, 7, |cx| legacy_broadcast::expand_to_one_shape(cx, cx.input_count()))
    .without_reference_rule(&[1])
    .gradient(gradients::extreme)
    .split_by(elements::elementwise);

pub static SUM: OpDef = OpDef::new("Sum")
    .about("Element-wise sum of one or more tensors.")
    .since(1, &[DATA, output("sum", "T"), IN_PLACE, types("T", FLOATS)])
    .since(6, NOT_IN_PLACE)
    .same_down()
    .since(8, BROADCAST)
    .same_up()
    .since(13, &[SMOOTH_DATA, output("sum", "T").differentiable(), types("T", FLOATS_IR4)])
    .widens()
    .infer(|cx| infer_folded(cx, Dim::add))
    .adapter(5, 6, consumed_inputs::remove)
    .adapter(8, 7, add_in_pairs)
    .without_reference_rule(&[1])
    .gradient(gradients::sum)
    .linear_in(Linear::Sum(&["Sum"]))
    .split_by(elements::elementwise);

/// Replaces `Max` or `Min` of integers, which older versions lack, by comparisons of each input
/// with the element that was selected so far.
fn select_by_comparison(cx: &mut Adapt<'_>, order: &'static str) -> Result<(), Refusal> {
    let elem = cx.input_type(0).and_then(|ty| ty.elem());
    if !elem.is_some_and(DataType::is_integer) {
        return Ok(());
    }
    let inputs: Vec<_> = (0..cx.input_count()).map(|index| cx.input(index)).collect();
    let [first, between @ .., last] = &inputs[..] else {
        cx.become_operator("Identity");
        return Ok(());
    };
    let mut chosen = *first;
    for other in between {
        let is_first = cx.before(order, &[chosen, *other], &[]);
        chosen = Some(cx.before("Where", &[Some(is_first), chosen, *other], &[]));
    }
    let is_first = cx.before(order, &[chosen, *last], &[]);
    cx.become_operator("Where");
    cx.set_inputs(&[Some(is_first), chosen, *last]);
    Ok(())
}

/// Replaces a `Sum` of several shapes by additions, since only binary operators broadcast before
/// version 8.
fn add_in_pairs(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    if legacy_broadcast::are_same(cx, cx.input_count()) {
        return Ok(());
    }
    let inputs: Vec<_> = (0..cx.input_count()).map(|index| cx.input(index)).collect();
    if let [before @ .., last] = &inputs[..]
        && let Some(sum) = sum_of(cx, before)
    {
        cx.become_operator(ADD.name);
        cx.set_inputs(&[Some(sum), *last]);
    }
    Ok(())
}

/// Replaces a `Mean` of several shapes by the sum divided by the number of inputs.
fn divide_sum(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    if legacy_broadcast::are_same(cx, cx.input_count()) {
        return Ok(());
    }
    let inputs: Vec<_> = (0..cx.input_count()).map(|index| cx.input(index)).collect();
    let Some(elem) = (0..inputs.len()).find_map(|index| cx.input_type(index)?.elem()) else {
        return Err(cx.refuse(
            "that version has no implicit broadcasting, and the element type of its inputs is unknown",
        ));
    };
    let options = CastOptions::default();
    let wide = Tensor::scalar(inputs.len() as f64);
    let count = cast(&wide, elem, options).map_err(|error| cx.refuse(error))?;
    if cast(&count, DataType::Double, options).ok().as_ref() != Some(&wide) {
        return Err(cx.refuse(format_args!("{elem} cannot represent the number of its inputs")));
    }
    if let Some(sum) = sum_of(cx, &inputs) {
        let count = cx.add_constant(count);
        cx.become_operator(DIV.name);
        cx.set_inputs(&[Some(sum), Some(count)]);
    }
    Ok(())
}

/// Adds values from the first to the last.
fn sum_of(cx: &mut Adapt<'_>, values: &[Option<ValueId>]) -> Option<ValueId> {
    let (first, others) = values.split_first()?;
    let mut sum = (*first)?;
    for other in others {
        sum = cx.before(ADD.name, &[Some(sum), *other], &[]);
    }
    Some(sum)
}

const DATA: Fact = inputs("data_0", "T");
const SMOOTH_DATA: Fact = DATA.differentiable();
const IN_PLACE: Fact = ints("consumed_inputs");
const NOT_IN_PLACE: &[Fact] = &[without_attribute("consumed_inputs")];
const BROADCAST: &[Fact] =
    &[note("The shapes of the inputs are broadcast; before, they had to be equal.")];

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = if cx.since() < 8 {
        legacy_broadcast::same_shape(cx)?
    } else {
        rules::broadcast_inputs(cx)?
    };
    let elem = (0..cx.input_count()).find_map(|index| cx.elem(index));
    cx.set_tensor(0, elem, shape);
    Ok(())
}

fn infer_folded(cx: &mut Infer<'_>, f: fn(&Dim, &Dim) -> Dim) -> Result<(), InferError> {
    infer(cx)?;
    shape_values::combine(cx, f);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::testing::{infer_type, infer_value, lower_version};

    #[test]
    fn inputs_of_any_number_broadcast() {
        // NODE-10, SHAPE-19, SHAPE-16
        let rows = [
            (&SUM, 13, "float[2, 1]; float[3]; float[4, 1, 1]", "float[4, 2, 3]"),
            (&MEAN, 8, "float[N]", "float[N]"),
            (&MAX, 12, "int8[N]; int8[M]", "int8[broadcast(M, N)]"),
            (&MIN, 13, "-; int8[M]", "int8[...]"),
            (&SUM, 8, "float[2]; float[3]", "Sum: sizes 2 and 3 of axis 0 do not broadcast"),
            (&SUM, 6, "float[...]; float[2, ?]; float[N, 3]", "float[2, 3]"),
            (&SUM, 1, "float[2]; float[3]", "Sum: the sizes of axis 0 differ (2 and 3)"),
            (&MAX, 6, "-; -", "?[...]"),
        ];
        for (def, opset, inputs, expected) in rows {
            assert_eq!(
                infer_type(def, opset, &[], inputs),
                expected,
                "{}-{opset} of {inputs}",
                def.name
            );
        }
    }

    #[test]
    fn pairs_broadcast_before_version_8() {
        let rows = [
            (&SUM, "float[N]; float[N]", "y = Sum(a, b)"),
            (&SUM, "float[N]; float[2, N]", "y = Add(a, b)"),
            (&SUM, "float[...]; -; float", "t4 = Add(a, b); y = Add(t4, c)"),
            (&MEAN, "float[2]", "y = Mean(a)"),
            (&MEAN, "float[N]; float[2, N]", "t4 = Add(a, b); y = Div(t4, 2.0)"),
            (
                &MEAN,
                "-; -",
                "Mean: that version has no implicit broadcasting, and the element type of its inputs is unknown",
            ),
        ];
        for (def, inputs, expected) in rows {
            assert_eq!(lower_version(def, 8, &[], inputs), expected, "{} of {inputs}", def.name);
        }
    }

    #[test]
    fn shapes_are_computed() {
        let rows = [
            (&MAX, "[2, 5]; 3; [4]", "[4, 5]"),
            (&MAX, "N", "N"),
            (&MIN, "[N, 5]; [7, 7]", "[min(7, N), 5]"),
            (&MIN, "[N]; -", "-"),
        ];
        for (def, inputs, expected) in rows {
            assert_eq!(infer_value(def, 13, &[], inputs), expected, "{} of {inputs}", def.name);
        }
    }
}
