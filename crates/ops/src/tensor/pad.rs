//! `Pad`: adds elements before and after each axis, or removes some if the number is negative.
//!
//! Since 1; 2 renames `paddings` to `pads`; 11 makes everything but `mode` inputs and adds
//! integers; 13 takes every type; 18 adds `axes`; 19 adds the mode `wrap`; 21 adds 8-bit floats and
//! 4-bit integers; 23 adds the 4-bit float; 24 adds the power-of-two scale; 25 adds 2-bit integers.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::{CastOptions, Tensor, cast};

use super::{INDICES, ints_to_input, unknown_dims, widened};
use crate::attributes::Attributes;
use crate::downward::{constant, constant_ints, exact_float, from_front, refuse_other_words};
use crate::facts::*;
use crate::known::Dims;
use crate::math::shape_values::{self, Ints};
use crate::rules::check_overflow;
use crate::sharding::movement;
use crate::tensor::gradients;
use crate::{Adapt, Infer, InferError, OpDef, Refusal};

pub static PAD: OpDef = OpDef::new("Pad")
    .about(
        "Pads a tensor at the start and end of its axes with a constant, the edge elements, a \
         reflection or wrapped elements. Negative pads remove elements.",
    )
    .since(
        1,
        &[
            input("data", "T"),
            output("output", "T"),
            string("mode").or_word("constant"),
            ints("paddings").required(),
            float("value").or_float(0.0),
            types("T", FLOATS),
        ],
    )
    .since(2, &[without_attribute("paddings"), ints("pads").required()])
    .since(
        11,
        &[
            input("pads", "tensor(int64)"),
            input("constant_value", "T").optional(),
            without_attribute("pads"),
            without_attribute("value"),
            types("T", NUMERIC),
        ],
    )
    .since(
        13,
        &[
            input("data", "T").differentiable(),
            input("pads", "tensor(int64)").non_differentiable(),
            input("constant_value", "T").optional().non_differentiable(),
            output("output", "T").differentiable(),
            types("T", ALL_IR4),
        ],
    )
    .widens()
    .since(18, &[input("axes", "Tind").optional().non_differentiable(), types("Tind", INDICES)])
    .same_up()
    .since(19, &[note("Adds the mode `wrap`.")])
    .same_up()
    .since(21, widened!("T", ALL_IR10))
    .widens()
    .since(23, widened!("T", ALL_IR11))
    .widens()
    .since(24, widened!("T", ALL_IR12))
    .widens()
    .since(25, widened!("T", ALL_IR13))
    .widens()
    .infer(infer)
    .adapter(1, 2, rename_paddings)
    .adapter(2, 1, |cx| {
        let pads = cx.ints("pads").ok_or_else(|| cx.refuse("the attribute pads is missing"))?;
        cx.remove("pads");
        cx.set("paddings", &pads[..]);
        Ok(())
    })
    .adapter(10, 11, attributes_to_inputs)
    .adapter(11, 10, inputs_to_attributes)
    .adapter(18, 17, pad_all_axes)
    .adapter(19, 18, |cx| refuse_other_words(cx, "mode", &["constant", "reflect", "edge"]))
    .shapes_by(&[1])
    .without_reference_rule(&[1])
    .differs(wrap_differs)
    .gradient(gradients::pad)
    .split_by(movement::pad);

/// Returns the difference of wrapping after negative padding: elements that one end loses are
/// wrapped around to the other.
fn wrap_differs(cx: &Infer<'_>) -> Option<String> {
    cx.string("mode").filter(|mode| mode == "wrap")?;
    let pads = cx.constant_ints(1)?;
    let (begins, ends) = pads.split_at(pads.len() / 2);
    let mut both = begins.iter().zip(ends);
    both.any(|(begin, end)| begin.min(end) < &0 && begin.max(end) > &0).then(|| {
        "elements that a negative pad removes are still wrapped to the other end of the axis; ONNX \
         Runtime wraps those that remain"
            .to_string()
    })
}

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = infer_shape(cx)?;
    cx.set_tensor(0, cx.elem(0), shape);
    let padded = pad_ints(cx);
    shape_values::set_if(cx, padded);
    Ok(())
}

/// Returns the padded value, if the padding is one known number everywhere.
fn pad_ints(cx: &Infer<'_>) -> Option<Ints> {
    if cx.since() < 11 || !matches!(cx.string("mode").as_deref(), None | Some("constant")) {
        return None;
    }
    let data = shape_values::of_input(cx, 0)?;
    let rank = data.dims.len();
    let pads: Vec<isize> =
        cx.constant_ints(1)?.into_iter().map(|pad| pad.try_into().ok()).collect::<Option<_>>()?;
    let axes: Dims = if cx.has_input(3) {
        let axes = cx.constant_ints(3)?.into_iter();
        axes.map(|axis| cx.axis(axis, rank).ok()).collect::<Option<_>>()?
    } else {
        (0..rank).collect()
    };
    let value =
        if cx.has_input(2) { shape_values::of_input(cx, 2)?.values.pop()? } else { Dim::Known(0) };
    if pads.len() != 2 * axes.len() {
        return None;
    }
    let (mut dims, mut starts) = (data.dims.clone(), vec![0; rank]);
    for (index, axis) in axes.iter().enumerate() {
        let (before, after) = (pads[index], pads[index + axes.len()]);
        dims[*axis] = dims[*axis].checked_add_signed(before)?.checked_add_signed(after)?;
        starts[*axis] = before;
    }
    Ints::build(data.elem, dims, |index| {
        let inside = index
            .iter()
            .zip(&starts)
            .map(|(index, start)| index.checked_add_signed(start.checked_neg()?));
        let inside: Option<Dims> = inside.collect();
        let offset = inside.and_then(|index| data.offset(&index));
        offset.map_or_else(|| value.clone(), |offset| data.values[offset].clone())
    })
}

fn infer_shape(cx: &Infer<'_>) -> Result<Option<Shape>, InferError> {
    let known = |pads: Vec<i64>| pads.into_iter().map(Dim::Known).collect();
    let pads: Option<Vec<Dim>> = match cx.since() {
        1 => cx.ints("paddings").map(known),
        2..11 => cx.ints("pads").map(known),
        _ => {
            cx.demand_rank(1, 1)?;
            cx.known_ints(1)
        }
    };
    let axes = cx.constant_ints(3);
    let all_axes = !cx.has_input(3);
    let shape = match (cx.shape(0), &pads) {
        (Some(shape), _) => shape.clone(),
        // Pads of all axes determine the rank.
        (None, Some(pads)) if all_axes => unknown_dims(pads.len() / 2),
        (None, _) => return Ok(None),
    };
    let axes = match axes {
        Some(axes) => axes
            .into_iter()
            .map(|axis| cx.axis(axis, shape.len()))
            .collect::<Result<Vec<_>, _>>()?,
        None if all_axes => (0..shape.len()).collect(),
        None => return Ok(Some(unknown_dims(shape.len()))),
    };
    let mut padded = shape;
    let Some(pads) = pads else {
        axes.into_iter().for_each(|axis| padded[axis] = Dim::Unknown);
        return Ok(Some(padded));
    };
    if pads.len() != 2 * axes.len() {
        return cx.fail(format_args!(
            "pads has {} elements, but {} axes require {}",
            pads.len(),
            axes.len(),
            2 * axes.len()
        ));
    }
    let (before, after) = pads.split_at(axes.len());
    for ((axis, before), after) in axes.into_iter().zip(before).zip(after) {
        let both = check_overflow(cx, "padding", before.add(after), &[before, after])?;
        let size = padded[axis].add(&both);
        let size = check_overflow(cx, "a size", size, &[&padded[axis], &both])?;
        if size.known().is_some_and(|size| size < 0) {
            return cx.fail(format_args!(
                "pads {before} and {after} remove more than the {} elements of axis {axis}",
                padded[axis]
            ));
        }
        padded[axis] = size;
    }
    Ok(Some(padded))
}

/// Renames `paddings`. The order of the numbers stays, although the example in the document of
/// version 1 has another one.
fn rename_paddings(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    if let Some(pads) = cx.ints("paddings") {
        cx.remove("paddings");
        cx.set("pads", pads);
    }
    Ok(())
}

fn attributes_to_inputs(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    ints_to_input(cx, "pads", 1)?;
    let value = cx.float("value").unwrap_or(0.0);
    cx.remove("value");
    // An absent input means zero.
    if value.to_bits() != 0 {
        // The value must have the type of the data.
        let Some(elem) = cx.input_type(0).and_then(|ty| ty.elem()) else {
            return Err(cx.refuse(
                "the padding value requires the element type of the data, which is unknown",
            ));
        };
        let value = match cast(&Tensor::scalar(value), elem, CastOptions::default()) {
            Ok(value) => cx.add_constant(value),
            Err(error) => {
                return Err(cx.refuse(format_args!(
                    "the padding value cannot be converted to the type of the data: {error}"
                )));
            }
        };
        cx.set_input(2, Some(value));
    }
    Ok(())
}

fn inputs_to_attributes(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let pads = constant_ints(cx, 1, "pads")?;
    let pads = pads.ok_or_else(|| cx.refuse("the input pads is missing"))?;
    if let Some(value) = constant(cx, 2, "constant_value")? {
        let Some(value) = exact_float(&value) else {
            return Err(cx.refuse("constant_value does not fit into a 32-bit float"));
        };
        cx.set("value", value);
    }
    cx.keep_inputs(1);
    cx.set("pads", &pads[..]);
    Ok(())
}

/// Turns pads of some axes into pads of all.
fn pad_all_axes(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let Some(axes) = constant_ints(cx, 3, "axes")? else {
        cx.keep_inputs(3);
        return Ok(());
    };
    let pads = constant_ints(cx, 1, "pads")?.filter(|pads| pads.len() == 2 * axes.len());
    let (Some(pads), Some(rank)) = (pads, cx.rank(0)) else {
        return Err(cx.refuse("pads of some axes require the rank of the input, which is unknown"));
    };
    let mut all = vec![0; 2 * rank];
    for (index, axis) in axes.iter().enumerate() {
        let axis = from_front(cx, "axes", *axis, Some(rank))?;
        let Some(axis) = usize::try_from(axis).ok().filter(|axis| *axis < rank) else {
            return Err(
                cx.refuse(format_args!("axes has {axis}, which is out of range for rank {rank}"))
            );
        };
        all[axis] = pads[index];
        all[axis + rank] = pads[index + axes.len()];
    }
    let all = cx.add_ints(&all);
    cx.keep_inputs(3);
    cx.set_input(1, Some(all));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::PAD;
    use crate::math::testing::{infer_value, raise_version};
    use crate::tensor::testing::{check, ints};
    use sardonyx_model::AttrValue;

    #[test]
    fn sizes_grow_and_shrink() {
        check(
            &PAD,
            18,
            &[
                (&[], "float[2, N]; =[1, 0, 2, 3]", "float[5, N + 3]"),
                (&[], "float[4, N]; =[-1, 0, -3, -1]", "float[0, N - 1]"),
                (&[], "float[2, 3]; =[P, 0, 0, 0]", "float[P + 2, 3]"),
                (&[], "float[2, 3, 4]; =[1, 1]; float; =[-1]", "float[2, 3, 6]"),
                (&[], "float[2, 3]; int64[4]", "float[?, ?]"),
                (&[], "float[2, 3]; int64[2]; float; =[0]", "float[?, 3]"),
                (&[], "float[2, 3]; =[1, 1]; float; int64[1]", "float[?, ?]"),
                (&[], "float[...]; =[1, 1, 1, 1]", "float[?, ?]"),
                (&[], "float[...]; =[1, 1]; float; =[0]", "float[...]"),
                (&[], "float[...]; int64[?]", "float[...]"),
                (&[], "float[N]; =[9223372036854775807, 1]", "Pad: padding overflows 64 bits"),
                (&[], "float[2, 3]; =[1, 1]", "Pad: pads has 2 elements, but 2 axes require 4"),
                (
                    &[],
                    "float[2]; =[-1, -2]",
                    "Pad: pads -1 and -2 remove more than the 2 elements of axis 0",
                ),
                (&[], "float[2]; =[1, 1]; float; =[1]", "Pad: axis 1 is out of range for rank 1"),
                (&[], "float[2]; int64[2, 1]", "Pad: input 1 must have rank 1, not 2"),
            ],
        );
        check(&PAD, 1, &[(&[("paddings", ints(&[0, 1, 0, 1]))], "float[2, 3]", "float[2, 5]")]);
        check(&PAD, 2, &[(&[("pads", ints(&[0, 1, 0, 1]))], "float[2, 3]", "float[2, 5]")]);
    }

    #[test]
    fn integers_are_padded() {
        // SHAPE-25
        let rows = [
            ("[N, 2]; [1, 2]", "[0, N, 2, 0, 0]"),
            ("[N, 2, 3]; [-1, 0]; 7", "[2, 3]"),
            ("[[N, 2]]; [1, 0]; 7; [0]", "[[7, 7], [N, 2]]"),
            ("[N, 2]; [P, 2]", "-"),
        ];
        for (inputs, expected) in rows {
            assert_eq!(infer_value(&PAD, 18, &[], inputs), expected);
        }
    }

    #[test]
    fn attributes_become_inputs() {
        let paddings = [("paddings", AttrValue::from(&[1, 2]))];
        assert_eq!(raise_version(&PAD, 1, &paddings, "float[3]"), "y = Pad(a) pads=[1, 2]");
        let pads = || ("pads", AttrValue::from(&[1, 2]));
        assert_eq!(raise_version(&PAD, 10, &[pads()], "-"), "y = Pad(a, [1, 2])");
        let value = [pads(), ("value", AttrValue::Float(0.5))];
        assert_eq!(raise_version(&PAD, 10, &value, "double[3]"), "y = Pad(a, [1, 2], 0.5)");
        let refused =
            "Pad: the padding value requires the element type of the data, which is unknown";
        assert_eq!(raise_version(&PAD, 10, &value, "-"), refused);
    }
}
