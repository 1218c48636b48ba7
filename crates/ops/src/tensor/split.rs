//! `Split`: cuts a tensor into pieces along one axis, of given sizes or of equal ones.
//!
//! Since 1; 2 drops the second input (sizes), gives `axis` a default and takes every type; 11
//! allows negative `axis`; 13 makes the sizes an input and adds bfloat16; 18 adds `num_outputs`,
//! which equal pieces need, and lets the last one be smaller.

use sardonyx_model::Dim;

use super::ints_to_input;
use crate::attributes::{AttrValue, Attributes};
use crate::downward::{constant_floats, count_axis_from_front, from_front, ints_to_attribute};
use crate::facts::*;
use crate::infer::Rule;
use crate::known::Dims;
use crate::math::shape_values;
use crate::sharding::movement;
use crate::tensor::gradients;
use crate::{Adapt, Demand, Infer, InferError, OpDef, Refusal};

pub static SPLIT: OpDef = OpDef::new("Split")
    .about(
        "Splits a tensor along an axis into parts of given or equal sizes. With `num_outputs` the \
         last part is smaller if the size is not divisible.",
    )
    .since(
        1,
        &[
            input("input", "T"),
            input("split", "T").optional(),
            outputs("outputs...", "T"),
            int("axis"),
            ints("split"),
            types("T", FLOATS),
        ],
    )
    .since_anew(
        2,
        &[
            input("input", "T"),
            outputs("outputs", "T"),
            int("axis").or(0),
            ints("split"),
            types("T", ALL),
        ],
    )
    .since(11, &[note("A negative `axis` counts from the end.")])
    .same_up()
    .since(
        13,
        &[
            input("input", "T").differentiable(),
            input("split", "tensor(int64)").optional().non_differentiable(),
            outputs("outputs", "T").differentiable(),
            without_attribute("split"),
            types("T", ALL_IR4),
        ],
    )
    .since(18, &[int("num_outputs")])
    .infer(infer)
    .infer_as_reference(infer_as_reference)
    .keeps_format(&[])
    .adapter(1, 2, move_sizes)
    .adapter(2, 1, write_axis)
    .adapter(11, 10, |cx| count_axis_from_front(cx, "axis"))
    .adapter(13, 12, |cx| ints_to_attribute(cx, 1, "split"))
    .adapter(18, 17, write_sizes)
    .adapter(12, 13, |cx| ints_to_input(cx, "split", 1))
    .adapter(17, 18, count_outputs)
    .shapes_by(&[1])
    .without_reference_rule(&[1])
    .gradient(gradients::split)
    .split_by(movement::split);

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    infer_by(cx, Rule::Operator)
}

fn infer_as_reference(cx: &mut Infer<'_>) -> Result<(), InferError> {
    infer_by(cx, Rule::Reference)
}

fn infer_by(cx: &mut Infer<'_>, rule: Rule) -> Result<(), InferError> {
    let count = cx.output_count();
    for output in 0..count {
        cx.set_tensor(output, cx.elem(0), None);
    }
    let Some(shape) = cx.shape(0) else {
        return Ok(());
    };
    // Version 1 leaves the meaning of an absent axis undefined.
    let axis = cx.int("axis").map(|axis| cx.axis(axis, shape.len())).transpose()?;
    let sizes = match axis {
        Some(axis) => sizes(cx, axis, &shape[axis], count, rule)?,
        None => vec![Dim::Unknown; count],
    };
    for (output, size) in sizes.iter().enumerate() {
        let mut piece = shape.clone();
        match axis {
            Some(axis) => piece[axis] = size.clone(),
            None => piece.fill(Dim::Unknown),
        }
        cx.set_tensor(output, cx.elem(0), Some(piece));
    }
    if let Some(axis) = axis {
        split_ints(cx, axis, &sizes);
    }
    Ok(())
}

/// Returns the sizes of the pieces along the axis, one for each output.
fn sizes(
    cx: &Infer<'_>,
    axis: usize,
    whole: &Dim,
    count: usize,
    rule: Rule,
) -> Result<Vec<Dim>, InferError> {
    let given = match cx.ints("split") {
        Some(sizes) => Some(sizes.into_iter().map(Dim::Known).collect()),
        None => cx.known_ints(1),
    };
    if let Some(sizes) = given {
        if sizes.len() != count {
            return cx.fail(format_args!(
                "split has {} sizes, but the node has {count} outputs",
                sizes.len()
            ));
        }
        if let Some(size) = sizes.iter().filter_map(Dim::known).find(|size| *size < 0) {
            return cx.fail(format_args!("a piece has the negative size {size}"));
        }
        let sum = sizes.iter().fold(Dim::Known(0), |sum, size| sum.add(size));
        if whole.surely_differs(&sum) {
            return cx.fail(format_args!(
                "the parts have {sum} elements in total, but axis {axis} has {whole}"
            ));
        }
        cx.demand(|| Demand::Equal(whole.clone(), sum));
        // The reference implementation ignores them if it cannot compare their sum.
        let trusted = whole.known().is_some() || rule == Rule::Operator;
        return Ok(if trusted { sizes } else { vec![Dim::Unknown; count] });
    }
    if cx.has_input(1) {
        return Ok(vec![Dim::Unknown; count]);
    }
    let pieces = match cx.int("num_outputs") {
        Some(pieces) if usize::try_from(pieces) != Ok(count) => {
            return cx
                .fail(format_args!("num_outputs is {pieces}, but the node has {count} outputs"));
        }
        _ => Dim::from(count),
    };
    if let Some(size) = whole.exact_div(&pieces) {
        return Ok(vec![size; count]);
    }
    if cx.since() < 18 {
        if whole.known().is_some() {
            return cx.fail(format_args!(
                "axis {axis} of size {whole} does not split into {count} equal pieces"
            ));
        }
        return Ok(vec![cx.quotient(whole, &pieces); count]);
    }
    let size = whole.ceil_div(&pieces);
    let mut last = whole.sub(&size.mul(&pieces.sub(&Dim::Known(1))));
    if last.known().is_some_and(|last| last < 0) {
        if rule == Rule::Operator {
            return cx.fail(format_args!(
                "axis {axis} of size {whole} cannot be split into {count} parts of {size}"
            ));
        }
        // The reference implementation does not fail, since the node may be in a branch that is
        // never taken.
        last = Dim::Unknown;
    }
    cx.demand(|| Demand::NotNegative(last.clone()));
    let mut sizes = vec![size; count];
    if let Some(end) = sizes.last_mut() {
        *end = last;
    }
    Ok(sizes)
}

fn split_ints(cx: &mut Infer<'_>, axis: usize, sizes: &[Dim]) {
    let Some(ints) = shape_values::of_input(cx, 0).filter(|ints| axis < ints.dims.len()) else {
        return;
    };
    let mut start = 0usize;
    for (output, size) in sizes.iter().enumerate() {
        let Some(size) = size.size() else { return };
        let mut dims = ints.dims.clone();
        dims[axis] = size;
        let piece = ints.pick(dims, |index| {
            let mut from = Dims::from_slice(index);
            from[axis] = from[axis].checked_add(start)?;
            Some(from)
        });
        if let Some(piece) = piece {
            shape_values::set_output(cx, output, piece);
        }
        start = start.saturating_add(size);
    }
}

/// Moves sizes of version 1 from an input of the type of the data to the attribute. An absent axis
/// is taken to be the first one, which version 2 declares as its default. In order to run, computed
/// sizes stay an input, which version 13 has again.
fn move_sizes(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    if cx.runs() && cx.input(1).is_some() && cx.constant(1).is_none() && !cx.has("split") {
        let sizes = cx.before("Cast", &[cx.input(1)], &[("to", AttrValue::from("INT64"))]);
        cx.set_input(1, Some(sizes));
        return Ok(());
    }
    let Some(sizes) = constant_floats(cx, 1, "split")? else { return Ok(()) };
    if cx.has("split") {
        return Err(cx.refuse("it has sizes as an attribute and as an input"));
    }
    let whole = |size: &f32| *size >= 0.0 && size.fract() == 0.0 && *size < 16_777_216.0;
    if !sizes.iter().all(whole) {
        return Err(cx.refuse("split has a size that is not a whole number"));
    }
    let sizes: Vec<i64> = sizes.into_iter().map(|size| size as i64).collect();
    cx.keep_inputs(1);
    cx.set("split", &sizes[..]);
    Ok(())
}

/// Writes the number of equal pieces, which absent sizes meant before.
fn count_outputs(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    if cx.input(1).is_none() {
        cx.set("num_outputs", cx.output_count() as i64);
    }
    Ok(())
}

/// Writes the axis, for which version 1 has no default.
fn write_axis(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    if !cx.has("axis") {
        cx.set("axis", 0);
    }
    Ok(())
}

/// Removes the number of pieces: absent sizes mean equal pieces. Unequal pieces are written as
/// sizes.
fn write_sizes(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let pieces = cx.int("num_outputs");
    cx.remove("num_outputs");
    let Some(pieces) = pieces.filter(|_| cx.input(1).is_none()) else { return Ok(()) };
    let axis = from_front(cx, "axis", cx.int("axis").unwrap_or(0), cx.rank(0))?;
    let shape = cx.input_type(0).and_then(|ty| ty.shape());
    let size = shape.and_then(|shape| shape.get(usize::try_from(axis).ok()?));
    if size.is_some_and(|size| size.exact_div(&Dim::Known(pieces)).is_some()) {
        return Ok(());
    }
    let Some(size) = size.and_then(Dim::known).filter(|_| pieces > 0) else {
        return Err(cx.refuse(format_args!(
            "the last of {pieces} pieces may be smaller, and the size of axis {axis} is not known"
        )));
    };
    let whole = (size + pieces - 1) / pieces;
    let sizes: Vec<i64> = (0..pieces).map(|piece| (size - piece * whole).clamp(0, whole)).collect();
    let sizes = cx.add_ints(&sizes);
    cx.set_input(1, Some(sizes));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::SPLIT;
    use crate::AttrValue::{self, Int};
    use crate::known::Known;
    use crate::math::testing::raise_version;
    use crate::math::testing::{infer, ty, value};
    use crate::tensor::testing::{ints, outputs};

    #[test]
    fn pieces_have_their_sizes() {
        let rows: [(u32, &[(&'static str, AttrValue<'static>)], &str, usize, &str); 19] = [
            (13, &[], "float[6, N]", 2, "float[3, N]; float[3, N]"),
            (13, &[("axis", Int(-1))], "float[6, N]; =[2, 4]", 2, "float[6, 2]; float[6, 4]"),
            (2, &[("split", ints(&[1, 5]))], "float[6]", 2, "float[1]; float[5]"),
            (1, &[("split", ints(&[1, 5])), ("axis", Int(0))], "float[6]", 2, "float[1]; float[5]"),
            (1, &[], "float[6, 2]", 2, "float[?, ?]; float[?, ?]"),
            (13, &[], "float[2*N]", 1, "float[2*N]"),
            (13, &[], "float[N]", 2, "float[floor(N/2)]; float[floor(N/2)]"),
            (
                18,
                &[("num_outputs", Int(2))],
                "float[N]",
                2,
                "float[-floor((-N)/2)]; float[N + floor((-N)/2)]",
            ),
            (18, &[("num_outputs", Int(3))], "float[7]", 3, "float[3]; float[3]; float[1]"),
            (18, &[("num_outputs", Int(2))], "float[6]", 2, "float[3]; float[3]"),
            (13, &[], "float[6]; int64[2]", 2, "float[?]; float[?]"),
            (13, &[], "float[...]", 2, "float[...]; float[...]"),
            (13, &[], "float[?, 2]", 2, "float[?, 2]; float[?, 2]"),
            (13, &[], "float[7]", 2, "Split: axis 0 of size 7 does not split into 2 equal pieces"),
            (
                13,
                &[],
                "float[7]; =[3, 3]",
                2,
                "Split: the parts have 6 elements in total, but axis 0 has 7",
            ),
            (
                13,
                &[],
                "float[6]; =[3, 3]",
                3,
                "Split: split has 2 sizes, but the node has 3 outputs",
            ),
            (13, &[], "float[6]; =[9, -3]", 2, "Split: a piece has the negative size -3"),
            (
                18,
                &[("num_outputs", Int(3))],
                "float[6]",
                2,
                "Split: num_outputs is 3, but the node has 2 outputs",
            ),
            (
                18,
                &[("num_outputs", Int(4))],
                "float[5]",
                4,
                "Split: axis 0 of size 5 cannot be split into 4 parts of 2",
            ),
        ];
        for (opset, attributes, inputs, count, expected) in rows {
            assert_eq!(
                outputs(&SPLIT, opset, attributes, inputs, count),
                expected,
                "{opset} {inputs}"
            );
        }
    }

    #[test]
    fn integers_are_split() {
        let known = [value("[N, 3, 4]"), value("[1, 2]")];
        let (_, values) = infer(&SPLIT, 13, &[], &[ty("int64[3]"), ty("int64[2]")], &known, 2)
            .expect("no contradiction");
        let values: Vec<_> =
            values.iter().map(|known| known.as_ref().and_then(Known::ints)).collect();
        assert_eq!(format!("{values:?}"), "[Some([N]), Some([3, 4])]");
    }

    #[test]
    fn the_number_of_pieces_is_written() {
        let axis = ("axis", Int(0));
        assert_eq!(
            raise_version(&SPLIT, 1, std::slice::from_ref(&axis), "float[4]"),
            "y = Split(a) axis=0"
        );
        assert_eq!(raise_version(&SPLIT, 1, &[], "float[4]"), "y = Split(a)");
        let input = "Split: split is an attribute in that version, but not a constant here";
        assert_eq!(raise_version(&SPLIT, 1, &[axis], "float[4]; float[1]"), input);
        assert_eq!(
            raise_version(&SPLIT, 12, &[("split", AttrValue::from(&[4]))], "float[4]"),
            "y = Split(a, [4])"
        );
        assert_eq!(raise_version(&SPLIT, 12, &[], "float[4]"), "y = Split(a)");
        assert_eq!(raise_version(&SPLIT, 17, &[], "float[4]"), "y = Split(a) num_outputs=1");
        assert_eq!(raise_version(&SPLIT, 17, &[], "float[4]; int64[1]"), "y = Split(a, b)");
    }
}
