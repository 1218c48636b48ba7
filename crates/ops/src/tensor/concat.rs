//! `Concat`: joins tensors along one axis.
//!
//! Since 1; 4 makes `axis` required and takes every type; 11 allows negative `axis`; 13 adds
//! bfloat16.

use sardonyx_model::{Dim, Shape};

use crate::downward::count_axis_from_front;
use crate::facts::*;
use crate::known::Dims;
use crate::math::shape_values::{self, Ints};
use crate::rules::check_overflow;
use crate::sharding::movement;
use crate::tensor::gradients;
use crate::{Adapt, Infer, InferError, OpDef, Refusal};

pub static CONCAT: OpDef = OpDef::new("Concat")
    .about("Concatenates tensors along an axis. Their shapes must be equal except on that axis.")
    .since(
        1,
        &[inputs("inputs", "T"), output("concat_result", "T"), int("axis"), types("T", FLOATS)],
    )
    .since(4, &[int("axis").required(), types("T", ALL)])
    .types_down()
    .since(11, &[note("A negative `axis` counts from the end.")])
    .same_up()
    .since(
        13,
        &[
            inputs("inputs", "T").differentiable(),
            output("concat_result", "T").differentiable(),
            types("T", ALL_IR4),
        ],
    )
    .widens()
    .infer(infer)
    .adapter(3, 4, write_axis)
    .adapter(11, 10, |cx| count_axis_from_front(cx, "axis"))
    .without_reference_rule(&[1])
    .gradient(gradients::concat)
    .split_by(movement::concat);

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let elem = (0..cx.input_count()).find_map(|index| cx.elem(index));
    let axis = cx.int("axis").or((cx.since() < 4).then_some(1));
    let shape = match axis {
        Some(axis) => join_shapes(cx, axis)?,
        None => None,
    };
    cx.set_tensor(0, elem, shape);
    if let Some(axis) = axis {
        join_ints(cx, axis);
    }
    Ok(())
}

fn join_shapes(cx: &Infer<'_>, axis: i64) -> Result<Option<Shape>, InferError> {
    let mut joined: Option<Shape> = None;
    let mut sum = Dim::Known(0);
    for index in 0..cx.input_count() {
        let Some(shape) = cx.shape(index) else {
            sum = Dim::Unknown;
            continue;
        };
        let axis = cx.axis(axis, shape.len())?;
        let longer = sum.add(&shape[axis]);
        sum = check_overflow(cx, "the joined size", longer, &[&sum, &shape[axis]])?;
        let Some(joined) = &mut joined else {
            joined = Some(shape.clone());
            continue;
        };
        cx.demand_rank(index, joined.len())?;
        for (other, (a, b)) in
            joined.iter_mut().zip(shape).enumerate().filter(|(other, _)| *other != axis)
        {
            *a =
                cx.same_dim(a, b, format_args!("sizes of axis {other} of inputs 0 and {index}"))?;
        }
    }
    if let Some(shape) = &mut joined {
        let axis = cx.axis(axis, shape.len())?;
        shape[axis] = sum;
    }
    Ok(joined)
}

/// Joins arrays of integers. An unknown one becomes unknown elements.
fn join_ints(cx: &mut Infer<'_>, axis: i64) {
    let parts: Option<Vec<Ints>> =
        (0..cx.input_count()).map(|index| shape_values::of_input_or_unknown(cx, index)).collect();
    let Some(parts) = parts else { return };
    let Some(first) = parts.first() else { return };
    let Ok(axis) = cx.axis(axis, first.dims.len()) else {
        return;
    };
    let mut dims = first.dims.clone();
    dims[axis] = 0;
    for part in &parts {
        let Some(size) = part.dims.get(axis) else {
            return;
        };
        dims[axis] = dims[axis].saturating_add(*size);
    }
    let joined = Ints::build(first.elem, dims, |index| {
        let mut index = Dims::from_slice(index);
        for part in &parts {
            if index[axis] < part.dims[axis] {
                return part.at(&index);
            }
            index[axis] -= part.dims[axis];
        }
        Dim::Unknown
    });
    shape_values::set_if(cx, joined);
}

fn write_axis(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    if !cx.has("axis") {
        cx.set("axis", 1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::CONCAT;
    use crate::AttrValue::Int;
    use crate::math::testing::raise_version;
    use crate::math::testing::{infer, infer_value, ty, value};
    use crate::tensor::testing::check;

    #[test]
    fn sizes_add_up() {
        check(
            &CONCAT,
            13,
            &[
                (&[("axis", Int(0))], "float[5, 2]; float[7, 2]", "float[12, 2]"),
                // SHAPE-18-: N stops being the size of that axis.
                (&[("axis", Int(0))], "float[5, 2]; float[N, 2]", "float[N + 5, 2]"),
                (&[("axis", Int(-1))], "float[N, 2]; float[?, M]; float[4, 3]", "float[4, M + 5]"),
                (&[("axis", Int(1))], "float[2, ?]; float[2, 3]", "float[2, ?]"),
                (&[("axis", Int(1))], "float[2, 1]; float[...]", "float[2, ?]"),
                (&[("axis", Int(1))], "float[...]; -", "float[...]"),
                (&[], "float[2, 1]; float[2, 1]", "float[...]"),
                (&[("axis", Int(0))], "float[2, 1]", "float[2, 1]"),
                (
                    &[("axis", Int(0))],
                    "float[5, 2]; float[7, 3]",
                    "Concat: sizes of axis 1 of inputs 0 and 1 differ (2 and 3)",
                ),
                (
                    &[("axis", Int(0))],
                    "float[9223372036854775807]; float[1]",
                    "Concat: the joined size overflows 64 bits",
                ),
                (
                    &[("axis", Int(0))],
                    "float[5, 2]; float[7]",
                    "Concat: input 1 must have rank 2, not 1",
                ),
                (
                    &[("axis", Int(2))],
                    "float[5, 2]; float[7, 2]",
                    "Concat: axis 2 is out of range for rank 2",
                ),
                (&[("axis", Int(0))], "float; float", "Concat: axis 0 is out of range for rank 0"),
            ],
        );
        check(&CONCAT, 1, &[(&[], "float[2, 1]; float[2, N]", "float[2, N + 1]")]);
    }

    #[test]
    fn shape_vectors_join() {
        // SHAPE-25
        assert_eq!(infer_value(&CONCAT, 13, &[("axis", Int(1))], "[[N, 2]]; [[3]]"), "[[N, 2, 3]]");
        assert_eq!(infer_value(&CONCAT, 13, &[("axis", Int(0))], "[N, 2]; []; [-1]"), "[N, 2, -1]");
        // Unknown elements keep their positions.
        let types = [ty("int64[2]"), ty("int64[1]")];
        let known = [value("[N, 3]"), None];
        let (_, values) =
            infer(&CONCAT, 13, &[("axis", Int(0))], &types, &known, 1).expect("no contradiction");
        assert_eq!(
            format!("{:?}", values[0].as_ref().and_then(|known| known.ints())),
            "Some([N, 3, ?])"
        );
        let types = [ty("int64[2]"), ty("int64[?]")];
        let (_, values) =
            infer(&CONCAT, 13, &[("axis", Int(0))], &types, &known, 1).expect("no contradiction");
        assert!(values[0].is_none());
    }

    #[test]
    fn the_old_default_is_written() {
        assert_eq!(raise_version(&CONCAT, 3, &[], "float[2]; float[2]"), "y = Concat(a, b) axis=1");
        let given = [("axis", Int(0))];
        assert_eq!(
            raise_version(&CONCAT, 3, &given, "float[2]; float[2]"),
            "y = Concat(a, b) axis=0"
        );
    }
}
