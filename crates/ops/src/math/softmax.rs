//! `Softmax`, `LogSoftmax`, `Hardmax` along an axis: the share of each element in the sum of
//! exponentials, the logarithm of that share, or 1 for the first largest element and 0 for the
//! others.
//!
//! Since 1, with all axes from `axis` (by default 1) on taken as one; 11 allows negative `axis`; 13
//! works along the one axis `axis` (by default the last), and adds bfloat16.

use sardonyx_model::Shape;

use crate::adapt::{Adapt, Refusal};
use crate::attributes::{AttrValue, Attributes};
use crate::def::OpDef;
use crate::downward::{count_axis_from_front, from_front};
use crate::facts::{FLOATS, FLOATS_IR4, Fact, input, int, note, output, types};
use crate::function::{Expand, vector};
use crate::infer::{Infer, InferError};
use crate::math::gradients;
use crate::rules;
use crate::sharding::elements;
use crate::tensor::flatten::FLATTEN;
use crate::tensor::reshape::RESHAPE;
use crate::tensor::shape::SHAPE;
use crate::tensor::transpose::TRANSPOSE;

pub(crate) static HARDMAX: OpDef = along_axis("Hardmax")
    .about(
        "One-hot of the maximum: 1 at the first maximum along `axis`, 0 elsewhere. Before version \
         13 the input is treated as a matrix: all axes from `axis` on form one row.",
    )
    .gradient(gradients::zero)
    .split_by(elements::along_axis);

pub static LOG_SOFTMAX: OpDef = along_axis("LogSoftmax")
    .about(
        "Logarithm of the softmax along `axis`: `Y = X - log(sum(exp(X)))`. The maximum is \
         subtracted first, so the exponentials do not overflow. Before version 13 the input is \
         treated as a matrix: all axes from `axis` on form one row.",
    )
    .body_from(13, log_softmax)
    .body_from(18, log_softmax)
    .gradient(gradients::log_softmax)
    .split_by(elements::along_axis);

pub static SOFTMAX: OpDef = along_axis("Softmax")
    .about("Softmax along `axis`: `Y = exp(X) / sum(exp(X))`. The maximum is subtracted first, so the \
         exponentials do not overflow. Before version 13 the input is treated as a matrix: all axes \
         from `axis` on form one row.")
    .body_from(13, softmax)
    .body_from(18, softmax)
    .gradient(gradients::softmax)
    .split_by(elements::along_axis);

const NEGATIVE_AXIS: &[Fact] = &[note("A negative `axis` counts from the end.")];

const fn along_axis(name: &'static str) -> OpDef {
    const FIRST: &[Fact] =
        &[input("input", "T"), output("output", "T"), int("axis").or(1), types("T", FLOATS)];
    const ONE_AXIS: &[Fact] = &[
        input("input", "T").differentiable(),
        output("output", "T").differentiable(),
        int("axis").or(-1),
        types("T", FLOATS_IR4),
    ];
    OpDef::new(name)
        .since(1, FIRST)
        .since(11, NEGATIVE_AXIS)
        .same_up()
        .since(13, ONE_AXIS)
        .infer(infer)
        .adapter(11, 10, |cx| count_axis_from_front(cx, "axis"))
        .adapter(12, 13, flatten_axes)
        .adapter(13, 12, move_axis_to_end)
}

fn softmax(cx: &Expand<'_>) -> Option<String> {
    Some(powers(cx)? + "output = Div (powers, sum)")
}

fn log_softmax(cx: &Expand<'_>) -> Option<String> {
    Some(powers(cx)? + "log_sum = Log (sum)\noutput = Sub (shifted, log_sum)")
}

/// Computes exponentials of the differences to the largest element, and their sum.
fn powers(cx: &Expand<'_>) -> Option<String> {
    let axis = cx.int("axis")?;
    let axes = vector("axes", &[axis]);
    let largest = match cx.opset() {
        ..18 => format!("ReduceMax <axes = [{axis}], keepdims = 1> (input)"),
        _ => "ReduceMax <keepdims = 1> (input, axes)".to_string(),
    };
    Some(format!(
        "{axes}
        largest = {largest}
        shifted = Sub (input, largest)
        powers = Exp (shifted)
        sum = ReduceSum <keepdims = 1> (powers, axes)\n"
    ))
}

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    if let (Some(rank), Some(axis)) = (cx.rank(0), cx.int("axis")) {
        // Before version 11 the axis may be the rank: then each element is normalized alone.
        if cx.since() >= 11 || axis != rank as i64 {
            cx.axis(axis, rank)?;
        }
    }
    rules::same_as_first(cx)
}

/// Flattens the input if several axes were taken as one, and restores the shape of the result.
fn flatten_axes(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let axis = cx.int("axis").unwrap_or(1);
    let ty = cx.input_type(0);
    if let Some(axis) = only_axis(axis, ty.and_then(|ty| ty.shape())) {
        cx.set("axis", axis);
        return Ok(());
    }
    let original = cx.input(0);
    let shape = cx.before(SHAPE.name, &[original], &[]);
    let flat = cx.before(FLATTEN.name, &[original], &[("axis", AttrValue::Int(axis))]);
    cx.set_input(0, Some(flat));
    cx.set("axis", -1);
    // A size of 0 may only appear at run time. `Reshape` can restore it since version 14.
    let takes_zeros = [("allowzero", AttrValue::Int(1))];
    let attributes = if cx.runs() { &takes_zeros[..] } else { &[] };
    cx.after(0, RESHAPE.name, &[Some(shape)], attributes);
    Ok(())
}

/// Returns the single axis that is equivalent to all axes from `axis` on, if there is one.
fn only_axis(axis: i64, shape: Option<&Shape>) -> Option<i64> {
    if axis == -1 {
        return Some(-1);
    }
    let shape = shape?;
    let start = usize::try_from(if axis < 0 { axis + shape.len() as i64 } else { axis }).ok()?;
    let flattened = shape.get(start..)?;
    if shape.iter().any(|size| size.known() == Some(0)) {
        // Without elements any axis is right, and `Reshape` could not restore such a shape.
        return Some(-1);
    }
    let mut wide = (start..)
        .zip(flattened)
        .filter(|(_, size)| size.known() != Some(1))
        .map(|(axis, _)| axis as i64);
    // Axes of size 1 change nothing; without others, the last one is right.
    match (wide.next(), wide.next()) {
        (None, _) if flattened.is_empty() => None,
        (None, _) => Some(-1),
        (only, None) => only,
        _ => None,
    }
}

/// Moves the axis to the end, where both forms mean the same.
fn move_axis_to_end(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let axis = cx.int("axis").unwrap_or(-1);
    let Some(rank) = cx.rank(0) else {
        if axis == -1 {
            cx.set("axis", -1);
            return Ok(());
        }
        return Err(cx.refuse("the rank of the input is unknown, and axis is not the last one"));
    };
    let axis = from_front(cx, "axis", axis, Some(rank))?;
    let last = rank as i64 - 1;
    cx.set("axis", last);
    if axis < last {
        let mut order: Vec<i64> = (0..rank as i64).collect();
        order.swap(axis as usize, rank - 1);
        let perm = || [("perm", AttrValue::from(&order[..]))];
        let transposed = cx.before(TRANSPOSE.name, &[cx.input(0)], &perm());
        cx.set_input(0, Some(transposed));
        cx.after(0, TRANSPOSE.name, &[], &perm());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sardonyx_model::AttrValue;

    use super::*;
    use crate::math::testing::{infer_type, raise_version, ty};

    #[test]
    fn the_axis_must_exist() {
        // SHAPE-16, NODE-22
        let rows = [
            (13, None, "float[2, N]", "float[2, N]"),
            (13, Some(2), "float[2, N]", "Softmax: axis 2 is out of range for rank 2"),
            (13, Some(5), "float[...]", "float[...]"),
            (13, None, "-", "-"),
            (13, None, "float[3]", "float[3]"),
            (13, None, "float", "Softmax: axis -1 is out of range for rank 0"),
            (11, None, "float[3]", "Softmax: axis 1 is out of range for rank 1"),
            (11, Some(-3), "float[2, 3, 4]", "float[2, 3, 4]"),
            (1, None, "float[2, 3, 4]", "float[2, 3, 4]"),
            (1, None, "float[3]", "float[3]"),
        ];
        for (opset, axis, input, expected) in rows {
            let attributes: Vec<_> =
                axis.map(|axis| ("axis", AttrValue::Int(axis))).into_iter().collect();
            assert_eq!(
                infer_type(&SOFTMAX, opset, &attributes, input),
                expected,
                "{opset} {axis:?} {input}"
            );
        }
    }

    #[test]
    fn an_equivalent_single_axis_is_kept() {
        let rows = [
            (-1, "-", Some(-1)),
            (1, "-", None),
            (1, "float[N, 1000]", Some(1)),
            (1, "float[N, 1000, 1, 1]", Some(1)),
            (1, "float[N, 1, M, 1]", Some(2)),
            (1, "float[N, 1, 1]", Some(-1)),
            (1, "float[N, 3, 4]", None),
            (-2, "float[N, 3, 4]", None),
            (-2, "float[N, 3, 1]", Some(1)),
            (1, "float[N, M, ?]", None),
            (1, "float[2, 3, 0]", Some(-1)),
            (1, "float[3]", None),
        ];
        for (axis, input, expected) in rows {
            let ty = ty(input);
            assert_eq!(
                only_axis(axis, ty.as_ref().and_then(|ty| ty.shape())),
                expected,
                "{axis} of {input}"
            );
        }
    }

    #[test]
    fn several_axes_are_flattened() {
        // NODE-22
        let at = |axis| vec![("axis", AttrValue::Int(axis))];
        let flat = |axis| {
            format!(
                "t2 = Shape(a); t3 = Flatten(a) axis={axis}; t4 = Softmax(t3) axis=-1; y = Reshape(t4, t2)"
            )
        };
        let rows = [
            (vec![], "float[N, 10]", "y = Softmax(a) axis=1".to_string()),
            (at(-1), "-", "y = Softmax(a) axis=-1".to_string()),
            (vec![], "float[N, 3, 4]", flat(1)),
            (at(-2), "-", flat(-2)),
        ];
        for (attributes, input, expected) in rows {
            assert_eq!(
                raise_version(&SOFTMAX, 12, &attributes, input),
                expected,
                "{attributes:?} {input}"
            );
        }
    }
}
