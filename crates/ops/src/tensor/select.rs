//! `Compress`, `NonZero`, `TopK` and `Unique`: select elements by their values or by a condition.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType::{Bool, Int64};

use crate::adapt::{Adapt, Refusal};
use crate::attributes::Attributes;
use crate::def::OpDef;
use crate::downward::{constant_ints, count_axis_from_front};
use crate::facts::{
    ALL, ALL_IR4, FLOATS, NUMERIC, NUMERIC_IR4, input, int, output, types, without_attribute,
};
use crate::infer::{Infer, InferError};
use crate::known::Dims;
use crate::math::shape_values::{self, Ints, equal, of_input};
use crate::math::unary::NEG;
use crate::rules::demand_rank_from;
use crate::sharding::elements;
use crate::tensor::gradients;
use crate::tensor::product;
use crate::typeset::TypeSet;

pub(crate) static COMPRESS: OpDef = OpDef::new("Compress")
    .about(
        "Selects the slices along an axis for which a condition is true. Without an axis, elements \
         of the flattened input.",
    )
    .since(
        9,
        &[
            input("input", "T"),
            input("condition", "T1"),
            output("output", "T"),
            int("axis"),
            types("T", ALL),
            types("T1", TypeSet::tensors(&[Bool])),
        ],
    )
    .since(
        11,
        &[
            input("input", "T").differentiable(),
            input("condition", "T1").non_differentiable(),
            output("output", "T").differentiable(),
        ],
    )
    .same_up()
    .since(28, &[types("T", ALL_IR4)])
    .widens()
    .infer(compress)
    .adapter(11, 10, |cx| count_axis_from_front(cx, "axis"))
    .without_reference_rule(&[9])
    .gradient(gradients::compress);

pub(crate) static NON_ZERO: OpDef = OpDef::new("NonZero")
    .about(
        "Indices of all elements that are not zero, in row-major order, as a matrix with a row for \
         each axis. An empty string counts as zero.",
    )
    .since(9, &[input("X", "T"), output("Y", "tensor(int64)"), types("T", ALL)])
    .since(
        13,
        &[
            input("X", "T").non_differentiable(),
            output("Y", "tensor(int64)").non_differentiable(),
            types("T", ALL_IR4),
        ],
    )
    .widens()
    .infer(non_zero);

pub static TOP_K: OpDef = OpDef::new("TopK")
    .about(
        "The `K` largest or smallest elements along an axis, and their indices. Of equal elements, \
         the one with the lower index comes first. NaN counts as larger than any number.",
    )
    .since(
        1,
        &[
            input("X", "T"),
            output("Values", "T"),
            output("Indices", "I"),
            int("axis").or(-1),
            int("k").required(),
            types("T", FLOATS),
            types("I", TypeSet::tensors(&[Int64])),
        ],
    )
    .since(10, &[input("K", "tensor(int64)"), without_attribute("k")])
    .since(
        11,
        &[
            input("X", "T").differentiable(),
            input("K", "tensor(int64)").non_differentiable(),
            output("Values", "T").differentiable(),
            output("Indices", "I").non_differentiable(),
            int("largest").or(1),
            int("sorted").or(1),
            types("T", NUMERIC),
        ],
    )
    .same_up()
    .since(24, &[types("T", NUMERIC_IR4)])
    .widens()
    .infer(top_k)
    .adapter(9, 10, move_count_to_input)
    .adapter(10, 9, move_count_to_attribute)
    .adapter(11, 10, take_largest)
    .shapes_by(&[1])
    .gradient(gradients::top_k)
    .split_by(elements::along_axis);

pub static UNIQUE: OpDef = OpDef::new("Unique")
    .about(
        "Unique elements of a tensor, or unique slices along an axis. Optional outputs are the \
         indices of their first occurrences, the inverse indices and the counts.",
    )
    .since(
        11,
        &[
            input("X", "T").non_differentiable(),
            output("Y", "T").non_differentiable(),
            output("indices", "tensor(int64)").optional().non_differentiable(),
            output("inverse_indices", "tensor(int64)").optional().non_differentiable(),
            output("counts", "tensor(int64)").optional().non_differentiable(),
            int("axis"),
            int("sorted").or(1),
            types("T", ALL),
        ],
    )
    .since(28, &[types("T", ALL_IR4)])
    .widens()
    .infer(unique)
    .gradient(gradients::unique);

/// Negates the input and the result if the smallest elements are wanted, since version 10 selects
/// the largest. `Neg` changes only the sign, so equal elements stay equal, and their order is that
/// of their positions either way.
fn take_largest(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    // An unspecified order may be sorted.
    cx.remove("sorted");
    let largest = cx.int("largest").unwrap_or(1);
    cx.remove("largest");
    if largest == 0 {
        let opposite = cx.before(NEG.name, &[cx.input(0)], &[]);
        cx.set_input(0, Some(opposite));
        cx.after(0, NEG.name, &[], &[]);
    }
    Ok(())
}

fn compress(cx: &mut Infer<'_>) -> Result<(), InferError> {
    demand_rank_from(cx, 0, 1)?;
    cx.demand_rank(1, 1)?;
    let chosen = of_input(cx, 1).and_then(|condition| positions(&condition));
    let count = chosen.map_or(Dim::Unknown, |chosen| Dim::from(chosen.len()));
    let shape = match (cx.int("axis"), cx.shape(0)) {
        (None, _) => Some(Shape::from_iter([count.clone()])),
        (Some(_), None) => None,
        (Some(axis), Some(data)) => {
            let mut shape = data.clone();
            shape[cx.axis(axis, data.len())?] = count.clone();
            Some(shape)
        }
    };
    cx.set_tensor(0, cx.elem(0), shape);
    if count.is_unknown() {
        cx.set_reason(0, "the number of conditions that hold");
    }
    Ok(())
}

/// Returns the indices of the elements that are not zero, if that is known of all elements.
fn positions(values: &Ints) -> Option<Vec<Dims>> {
    let mut found = Vec::new();
    let mut all = true;
    Ints::build(values.elem, values.dims.clone(), |index| {
        let value = values.at(index);
        match equal(&value, &Dim::Known(0)) {
            Some(false) => found.push(Dims::from_slice(index)),
            Some(true) => {}
            None => all = false,
        }
        value
    })?;
    all.then_some(found)
}

fn non_zero(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let rows = cx.rank(0).map_or(Dim::Unknown, Dim::from);
    let values = of_input(cx, 0);
    let found = values.as_ref().and_then(positions);
    let count = found.as_ref().map_or(Dim::Unknown, |found| found.len().into());
    if count.is_unknown() {
        cx.set_reason(0, "the number of elements that are not zero");
    }
    cx.set_tensor(0, Some(Int64), Some(Shape::from_iter([rows, count])));
    if let (Some(values), Some(found)) = (values, found) {
        let dims = Dims::from_slice(&[values.dims.len(), found.len()]);
        let indices = Ints::build(Int64, dims, |place| found[place[1]][place[0]].into());
        shape_values::set_if(cx, indices);
    }
    Ok(())
}

fn top_k(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = match cx.shape(0) {
        Some(data) => {
            let axis = cx.axis(cx.int("axis").unwrap_or(-1), data.len())?;
            let count = count_top(cx, &data[axis])?;
            let mut shape = data.clone();
            shape[axis] = count;
            Some(shape)
        }
        None => None,
    };
    cx.set_tensor(0, cx.elem(0), shape.clone());
    cx.set_tensor(1, Some(Int64), shape);
    Ok(())
}

/// Returns the number of elements that are taken from an axis of a size.
fn count_top(cx: &Infer<'_>, size: &Dim) -> Result<Dim, InferError> {
    let count = if cx.since() < 10 {
        match cx.int("k") {
            Some(count) if count < 1 => return cx.fail(format_args!("k is {count}")),
            count => count.map_or(Dim::Unknown, Dim::Known),
        }
    } else {
        cx.demand_rank(1, 1)?;
        match cx.known_ints(1) {
            Some(mut counts) if counts.len() == 1 => counts.pop().unwrap_or(Dim::Unknown),
            Some(counts) => {
                return cx.fail(format_args!("K must have one element, not {}", counts.len()));
            }
            None => Dim::Unknown,
        }
    };
    match (count.known(), size.known()) {
        (Some(count), _) if count < 0 => cx.fail(format_args!("K is {count}")),
        (Some(count), Some(size)) if count > size => {
            cx.fail(format_args!("the axis has {size} elements, fewer than the {count} asked for"))
        }
        _ => Ok(count),
    }
}

fn unique(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = match (cx.int("axis"), cx.shape(0)) {
        (None, _) => Some(Shape::from_iter([Dim::Unknown])),
        (Some(_), None) => None,
        (Some(axis), Some(data)) => {
            let mut shape = data.clone();
            shape[cx.axis(axis, data.len())?] = Dim::Unknown;
            Some(shape)
        }
    };
    cx.set_tensor(0, cx.elem(0), shape);
    let vector = |size: Dim| Some(Shape::from_iter([size]));
    cx.set_tensor(1, Some(Int64), vector(Dim::Unknown));
    cx.set_tensor(2, Some(Int64), vector(count_candidates(cx)));
    cx.set_tensor(3, Some(Int64), vector(Dim::Unknown));
    for output in [0, 1, 3] {
        cx.set_reason(output, "the number of elements that differ");
    }
    Ok(())
}

/// Returns the number of elements or slices that are compared.
fn count_candidates(cx: &Infer<'_>) -> Dim {
    match (cx.shape(0), cx.int("axis")) {
        (Some(data), None) => product(data),
        (Some(data), Some(axis)) => {
            let axis = cx.axis(axis, data.len()).ok();
            axis.map_or(Dim::Unknown, |axis| data[axis].clone())
        }
        (None, _) => Dim::Unknown,
    }
}

/// Moves the number of elements to an input. Every version selects the largest elements by default,
/// the first of equal ones first.
fn move_count_to_input(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let Some(k) = cx.int("k") else {
        return Err(cx.refuse("the attribute k is missing"));
    };
    cx.remove("k");
    let k = cx.add_ints(&[k]);
    cx.set_input(1, Some(k));
    Ok(())
}

fn move_count_to_attribute(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let count = constant_ints(cx, 1, "k")?;
    let Some(&[count]) = count.as_deref() else {
        return Err(cx.refuse("the number of elements is not one number"));
    };
    cx.keep_inputs(1);
    cx.set("k", count);
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_smallest_have_the_largest_opposites() {
        use crate::math::testing::lower_version;
        use sardonyx_model::AttrValue::Int;
        let found =
            |largest| lower_version(&TOP_K, 11, &[("largest", Int(largest))], "float[4]; int64[1]");
        assert_eq!(found(1), "y = TopK(a, b)");
        assert_eq!(found(0), "t3 = Neg(a); t4 = TopK(t3, b); y = Neg(t4)");
    }

    use super::*;
    use crate::attributes::AttrValue::Int;
    use crate::math::testing::infer_value;
    use crate::tensor::testing::{check, outputs};

    #[test]
    fn conditions_select_slices() {
        // SHAPE-16
        check(
            &COMPRESS,
            11,
            &[
                (&[], "float[2, N]; bool[?]", "float[?]"),
                (&[("axis", Int(-1))], "float[2, N]; bool[N]", "float[2, ?]"),
                (&[("axis", Int(0))], "float[2, N]; =bool:[1, 0]", "float[1, N]"),
                (&[("axis", Int(0))], "float[...]; bool[2]", "float[...]"),
                (&[], "-; -", "?[?]"),
                (
                    &[("axis", Int(2))],
                    "float[2, N]; bool[?]",
                    "Compress: axis 2 is out of range for rank 2",
                ),
                (&[], "float; bool[?]", "Compress: input 0 must have rank 1 or more, not 0"),
                (&[], "float[2]; bool", "Compress: input 1 must have rank 1, not 0"),
            ],
        );
    }

    #[test]
    fn non_zero_elements_are_listed() {
        check(
            &NON_ZERO,
            13,
            &[
                (&[], "float[N, 3]", "int64[2, ?]"),
                (&[], "float", "int64[0, ?]"),
                (&[], "float[...]", "int64[?, ?]"),
                (&[], "=[[0, 1], [1, 1]]", "int64[2, 3]"),
            ],
        );
        assert_eq!(infer_value(&NON_ZERO, 13, &[], "[[0, 1], [1, 1]]"), "[[0, 1, 1], [1, 0, 1]]");
        assert_eq!(infer_value(&NON_ZERO, 13, &[], "[N, 1]"), "-");
    }

    #[test]
    fn the_largest_are_taken_along_an_axis() {
        let rows = [
            (11, None, "float[3, N]; =[2]", "float[3, 2]; int64[3, 2]"),
            (11, Some(0), "float[3, N]; =[K]", "float[K, N]; int64[K, N]"),
            (11, None, "float[3, N]; int64[1]", "float[3, ?]; int64[3, ?]"),
            (11, None, "-; =[2]", "?[...]; int64[...]"),
            (
                11,
                None,
                "float[3, 4]; =[5]",
                "TopK: the axis has 4 elements, fewer than the 5 asked for",
            ),
            (11, None, "float[3, 4]; =[1, 2]", "TopK: K must have one element, not 2"),
            (11, None, "float[3, 4]; =2", "TopK: input 1 must have rank 1, not 0"),
            (11, Some(2), "float[3, 4]; =[1]", "TopK: axis 2 is out of range for rank 2"),
        ];
        for (opset, axis, inputs, expected) in rows {
            let attributes: Vec<_> = axis.map(|axis| ("axis", Int(axis))).into_iter().collect();
            assert_eq!(outputs(&TOP_K, opset, &attributes, inputs, 2), expected, "{inputs}");
        }
        let k = |k| [("k", Int(k))];
        assert_eq!(outputs(&TOP_K, 1, &k(2), "float[3, N]", 2), "float[3, 2]; int64[3, 2]");
        assert_eq!(outputs(&TOP_K, 1, &k(0), "float[3, N]", 2), "TopK: k is 0");
    }

    #[test]
    fn unique_elements_are_listed() {
        let rows = [
            (None, "float[2, N]", "float[?]; int64[?]; int64[2*N]; int64[?]"),
            (Some(1), "float[2, N]", "float[2, ?]; int64[?]; int64[N]; int64[?]"),
            (Some(1), "-", "?[...]; int64[?]; int64[?]; int64[?]"),
            (Some(2), "float[2]", "Unique: axis 2 is out of range for rank 1"),
        ];
        for (axis, input, expected) in rows {
            let attributes: Vec<_> = axis.map(|axis| ("axis", Int(axis))).into_iter().collect();
            assert_eq!(outputs(&UNIQUE, 11, &attributes, input, 4), expected, "{input}");
        }
    }
}
