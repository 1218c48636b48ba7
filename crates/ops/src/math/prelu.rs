//! `PRelu`: multiplies negative elements by a learned slope.
//!
//! Since 1, with one slope for all or one per channel (axis 1); 6 drops `consumed_inputs`; 7
//! broadcasts the slope to the input, aligned at the right; 9 adds integers; 16 adds bfloat16.

use sardonyx_model::Dim;

use crate::adapt::{Adapt, Refusal};
use crate::attributes::AttrValue;
use crate::def::OpDef;
use crate::downward::{squeeze, unsqueeze};
use crate::facts::{
    FLOATS, HIGH_PRECISION, HIGH_PRECISION_IR4, input, ints, note, output, types, without_attribute,
};
use crate::function::number_like;
use crate::infer::{Infer, InferError};
use crate::math::consumed_inputs;
use crate::math::legacy_broadcast::align_at;
use crate::math::unary::slope_below_zero;
use crate::rules;
use crate::sharding::elements;
use crate::tensor::unsqueeze::UNSQUEEZE;

pub(crate) static PRELU: OpDef = OpDef::new("PRelu")
    .about("Parametric rectified linear unit: `Y = X` where `X >= 0`, else `Y = slope * X`. Since \
         version 7 `slope` is broadcast to the shape of `X`; before, it holds one number or one for \
         each channel (axis 1).")
    .since(
        1,
        &[
            input("X", "T"),
            input("slope", "T"),
            output("Y", "T"),
            ints("consumed_inputs"),
            types("T", FLOATS),
        ],
    )
    .since(6, &[without_attribute("consumed_inputs")])
    .same_down()
    .since(7, &[note("`slope` is broadcast to the shape of `X`.")])
    .since(
        9,
        &[
            input("X", "T").differentiable(),
            input("slope", "T").differentiable(),
            output("Y", "T").differentiable(),
            types("T", HIGH_PRECISION),
        ],
    )
    .widens()
    .since(16, &[types("T", HIGH_PRECISION_IR4)])
    .widens()
    .infer(infer)
    .adapter(5, 6, consumed_inputs::remove)
    .adapter(6, 7, align_channels)
    .adapter(7, 6, unalign_channels)
    .body(&[16], slope_below_zero!("slope"))
    .without_reference_rule(&[1])
    .split_by(elements::elementwise);

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let Some(ty) = cx.tensor(0) else {
        return Ok(());
    };
    let mut ty = ty.clone();
    if let (7.., Some(shape), Some(slope)) = (cx.since(), &mut ty.shape, cx.shape(1)) {
        *shape = rules::broadcast_over(cx, shape, slope, "the slope")?;
    }
    cx.set_tensor(0, ty.elem, ty.shape);
    Ok(())
}

/// Gives a slope per channel axes of size 1 for the axes after the channels.
fn align_channels(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let slope = cx.input_type(1);
    let slope = slope.and_then(|ty| ty.shape()).map(|shape| &shape[..]);
    let are_ranked = slope.is_some() && cx.rank(0).is_some();
    match slope {
        // One slope per channel, or a single one.
        _ if cx.runs() && !are_ranked && slope.is_none_or(|slope| slope.len() < 2) => {
            align_at(cx, 1);
            return Ok(());
        }
        None => return Err(cx.refuse("aligning the slope at the channels takes its rank")),
        // The slope of a scalar has one axis there, but later none: it may not have more axes than
        // X.
        Some([_]) if cx.rank(0) == Some(0) => {
            squeeze(cx, 1, &[0]);
            return Ok(());
        }
        Some([size]) if size.known() != Some(1) => {}
        // A single slope, or an aligned one.
        Some(_) => return Ok(()),
    }
    let Some(rank) = cx.rank(0) else {
        return Err(cx.refuse("aligning the slope at the channels takes the rank of the input"));
    };
    let axes: Vec<i64> = (1..rank as i64 - 1).collect();
    if !axes.is_empty() {
        let slope = cx.input(1);
        let aligned = cx.before(UNSQUEEZE.name, &[slope], &[("axes", AttrValue::from(&axes[..]))]);
        cx.set_input(1, Some(aligned));
    }
    Ok(())
}

/// Removes the axes of the slope, since version 6 has one slope, or one for each channel (axis 1).
fn unalign_channels(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let shape = |index: usize| cx.input_type(index).and_then(|ty| ty.shape().cloned());
    let (Some(data), Some(slope)) = (shape(0), shape(1)) else {
        return Err(cx.refuse(
            "the slope must be one number or one for each channel in that version, and its shape is unknown",
        ));
    };
    if slope.is_empty() {
        unsqueeze(cx, 1, &[0]);
        return Ok(());
    }
    let wide = || (0..slope.len()).filter(|axis| slope[*axis].known() != Some(1));
    let offset = data.len().checked_sub(slope.len());
    let kept = match (wide().next(), wide().count(), offset) {
        (None, ..) => 0,
        (Some(axis), 1, Some(offset))
            if axis + offset == 1 && data[1] == slope[axis] && data[1] != Dim::Unknown =>
        {
            axis
        }
        _ => return Err(cx.refuse("the slope is neither for all elements nor for a channel")),
    };
    let others: Vec<i64> =
        (0..slope.len()).filter(|axis| *axis != kept).map(|axis| axis as i64).collect();
    squeeze(cx, 1, &others);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::testing::{infer_type, raise_version};

    #[test]
    fn the_slope_broadcasts() {
        // SHAPE-20, SHAPE-16
        let rows = [
            (16, "float[2, 3, 4, 5]; float[1, 3, 1, 5]", "float[2, 3, 4, 5]"),
            (
                16,
                "float[2, 3]; float[1, 2, 3]",
                "PRelu: the slope has rank 3, which does not broadcast to rank 2",
            ),
            (
                16,
                "float[2, 1]; float[3]",
                "PRelu: the sizes of axis 1 of input 0 and the slope differ (1 and 3)",
            ),
            (16, "float[N, ?]; float[3]", "float[N, 3]"),
            (16, "float[...]; float[3]", "float[...]"),
            (6, "float[2, 3, 4, 5]; float[3]", "float[2, 3, 4, 5]"),
            (16, "-; -", "-"),
        ];
        for (opset, inputs, expected) in rows {
            assert_eq!(infer_type(&PRELU, opset, &[], inputs), expected, "{opset} {inputs}");
        }
    }

    #[test]
    fn slopes_per_channel_are_aligned() {
        let rows = [
            ("float[N, 3, 4, 5]; float[3]", "t3 = Unsqueeze(b) axes=[1, 2]; y = PRelu(a, t3)"),
            ("float[N, 3, 4, 5]; float[1]", "y = PRelu(a, b)"),
            ("float[N, 3]; float[3]", "y = PRelu(a, b)"),
            ("float; float[1]", "t3 = Squeeze(b) axes=[0]; y = PRelu(a, t3)"),
            (
                "float[...]; float[3]",
                "PRelu: aligning the slope at the channels takes the rank of the input",
            ),
            ("float[N, 3]; -", "PRelu: aligning the slope at the channels takes its rank"),
        ];
        for (inputs, expected) in rows {
            assert_eq!(raise_version(&PRELU, 6, &[], inputs), expected, "{inputs}");
        }
    }
}
