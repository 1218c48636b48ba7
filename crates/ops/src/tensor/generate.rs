//! `Range`, `EyeLike`, `OneHot` and `Trilu`: tensors that are made from bounds, sizes or indices.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType::{Bfloat16, Bool, Double, Float, Float16, Int16, Int32, Int64};
use sardonyx_tensor::{CastOptions, Tensor, cast};

use crate::adapt::{Adapt, Refusal};
use crate::attributes::{AttrValue, Attributes};
use crate::def::OpDef;
use crate::downward::{counts_from_front, from_front, ints_of, replace_negative};
use crate::facts::{ALL, ALL_IR4, NUMERIC, NUMERIC_IR4, input, int, output, types};
use crate::function::{BFLOAT16, DOUBLE, Expand, FLOAT, FLOAT16};
use crate::infer::{Infer, InferError};
use crate::known::{Known, MAX_KNOWN};
use crate::math::gradients::zero;
use crate::math::shape_values::{self, Ints, of_input};
use crate::rules::{demand_rank_from, elem_attribute, same_as_first};
use crate::sharding::{elements, movement};
use crate::tensor::gradients;
use crate::typeset::TypeSet;

pub(crate) static EYE_LIKE: OpDef = OpDef::new("EyeLike")
    .about(
        "Creates a matrix with ones on a diagonal and zeros elsewhere, in the shape of the input.",
    )
    .since(
        9,
        &[
            input("input", "T1"),
            output("output", "T2"),
            int("dtype"),
            int("k").or(0),
            types("T1", NUMERIC.and(TypeSet::tensors(&[Bool]))),
            types("T2", NUMERIC.and(TypeSet::tensors(&[Bool]))),
        ],
    )
    .since(
        22,
        &[
            types("T1", NUMERIC_IR4.and(TypeSet::tensors(&[Bool]))),
            types("T2", NUMERIC_IR4.and(TypeSet::tensors(&[Bool]))),
        ],
    )
    .widens()
    .infer(eye_like)
    .gradient(zero);

pub(crate) static ONE_HOT: OpDef = OpDef::new("OneHot")
    .about(
        "One-hot encoding: inserts an axis with the `on` value at the index and the `off` value \
         elsewhere. An index outside of `[-depth, depth - 1]` gives `off` values only.",
    )
    .since(
        9,
        &[
            input("indices", "T1"),
            input("depth", "T2"),
            input("values", "T3"),
            output("output", "T3"),
            int("axis").or(-1),
            types("T1", NUMERIC),
            types("T2", NUMERIC),
            types("T3", ALL),
        ],
    )
    .since(
        11,
        &[
            input("indices", "T1").non_differentiable(),
            input("depth", "T2").non_differentiable(),
            input("values", "T3").non_differentiable(),
            output("output", "T3").non_differentiable(),
        ],
    )
    .adapter(10, 11, replace_negative_indices)
    .since(28, &[types("T3", ALL_IR4)])
    .widens()
    .infer(one_hot)
    .differs(|cx| {
        (cx.since() < 11).then(|| {
            "a negative index sets no element; on ONNX Runtime it counts from the end".to_string()
        })
    })
    .gradient(gradients::one_hot)
    .adapter(11, 10, |cx| {
        // An index below `-depth` has no 1. It is replaced by one that is too large, which has none
        // either.
        let depth = cx.constant(1).and_then(|depth| ints_of(&depth)?.first().copied());
        let is_constant = depth.filter(|depth| *depth >= 0).is_some_and(|depth| {
            let of = |index: i64| if index < -depth { depth } else { index + depth };
            replace_negative(cx, 0, of)
        });
        if !is_constant && !counts_from_front(cx, 0) {
            return Err(cx.refuse("an index may be negative, which version 9 does not support"));
        }
        if let Some(axis) = cx.int("axis").filter(|axis| *axis < -1) {
            let axis = from_front(cx, "axis", axis, cx.rank(0).map(|rank| rank + 1))?;
            cx.set("axis", axis);
        }
        Ok(())
    })
    .shapes_by(&[1])
    .split_by(movement::one_hot);

/// Replaces negative indices by one that is too large: before version 11, both have no 1.
fn replace_negative_indices(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let depth = cx.constant(1).and_then(|depth| ints_of(&depth)?.first().copied());
    if let Some(depth) = depth.filter(|depth| *depth >= 0)
        && replace_negative(cx, 0, |_| depth)
    {
        return Ok(());
    }
    let elem = cx.input_type(0).and_then(|ty| ty.elem());
    let elem = elem.or_else(|| Some(cx.constant(0)?.data_type()));
    let Some(elem) = elem else {
        return Err(cx.refuse("the element type of its indices is unknown"));
    };
    if !elem.is_signed() || counts_from_front(cx, 0) {
        return Ok(());
    }
    let indices = cx.input(0);
    let zero = cast(&Tensor::scalar(0i64), elem, CastOptions::default());
    let zero = cx.add_constant(zero.map_err(|error| cx.refuse(error))?);
    let below = cx.before("Less", &[indices, Some(zero)], &[]);
    let to = [("to", AttrValue::Int(elem.number().into()))];
    let beyond = cx.before("Cast", &[cx.input(1)], &to);
    let outside = cx.before("Where", &[Some(below), Some(beyond), indices], &[]);
    cx.set_input(0, Some(outside));
    Ok(())
}

pub static RANGE: OpDef = OpDef::new("Range")
    .about(
        "Sequence of evenly spaced numbers from `start` to `limit` (exclusive) with step `delta`. \
         It has `max(ceil((limit - start) / delta), 0)` elements. A `delta` of 0 is an error.",
    )
    .since(
        11,
        &[
            input("start", "T"),
            input("limit", "T"),
            input("delta", "T"),
            output("output", "T"),
            types("T", TypeSet::tensors(&[Float, Double, Int16, Int32, Int64])),
        ],
    )
    .since(
        27,
        &[
            int("stash_type").or(1),
            types("T", TypeSet::tensors(&[Float16, Float, Double, Bfloat16, Int16, Int32, Int64])),
        ],
    )
    .same_up()
    .infer(infer_range)
    .adapter(27, 26, |cx| {
        // The attribute concerns the types that this version adds.
        cx.remove("stash_type");
        Ok(())
    })
    .body(&[11], concat!("distance = Sub (limit, start)\n", steps_and_loop!()))
    .body_from(27, range)
    .call_body(build_narrow_range)
    .scalars(&[0, 1, 2])
    .shapes_by(&[0, 1, 2]);

macro_rules! steps_and_loop {
    () => {
        concat!(
            "distance_float = Cast <to = 1> (distance)
            delta_float = Cast <to = 1> (delta)
            steps = Div (distance_float, delta_float)\n",
            add_up!("start", "delta", "output"),
        )
    };
}
use steps_and_loop;

/// Expands to a loop over the steps, rounded up, that adds a step to a start.
macro_rules! add_up {
    ($start:literal, $step:literal, $output:literal) => {
        concat!(
            "rounded = Ceil (steps)
            not_negative = Relu (rounded)
            count = Cast <to = 7> (not_negative)
            any = Cast <to = 9> (not_negative)
            end, ",
            $output,
            " = Loop (count, any, ",
            $start,
            ") <
                body = add_up (int64 index, bool go_on, current) => (still, next, value) {
                    still = Identity (go_on)
                    next = Add (current, ",
            $step,
            ")
                    value = Identity (current)
                }
            >\n",
        )
    };
}
use add_up;

/// Computes 16-bit integers in 32 bits, since Sub and Add take no narrower ones before version 14.
fn build_narrow_range(cx: &Expand<'_>) -> Result<Option<String>, String> {
    let (narrow, wide) = (Int16.number(), Int32.number());
    match cx.elem(0) {
        _ if cx.opset() >= 14 => return Ok(None),
        None => return Err(cx.needs_type(0)),
        Some(elem) if elem != i64::from(narrow) => return Ok(None),
        Some(_) => {}
    }
    Ok(Some(format!(
        "wide_start = Cast <to = {wide}> (start)
        wide_limit = Cast <to = {wide}> (limit)
        wide_delta = Cast <to = {wide}> (delta)
        distance = Sub (wide_limit, wide_start)
        distance_float = Cast <to = 1> (distance)
        delta_float = Cast <to = 1> (wide_delta)
        steps = Div (distance_float, delta_float)
        {}
        output = Cast <to = {narrow}> (wide_output)",
        add_up!("wide_start", "wide_delta", "wide_output"),
    )))
}

fn range(cx: &Expand<'_>) -> Option<String> {
    let elem = cx.elem(0)?;
    if ![FLOAT16, BFLOAT16].contains(&elem) {
        return Some(concat!("distance = Sub (limit, start)\n", steps_and_loop!()).to_string());
    }
    let stash = cx.int("stash_type")?;
    if ![FLOAT, DOUBLE].contains(&stash) {
        return None;
    }
    Some(format!(
        "wide_start = Cast <to = {stash}> (start)
        wide_limit = Cast <to = {stash}> (limit)
        wide_delta = Cast <to = {stash}> (delta)
        distance = Sub (wide_limit, wide_start)
        steps = Div (distance, wide_delta)
        {}
        output = Cast <to = {elem}> (wide_output)",
        add_up!("wide_start", "wide_delta", "wide_output"),
    ))
}

pub(crate) static TRILU: OpDef = OpDef::new("Trilu")
    .about(
        "Upper or lower triangle of matrices; the other elements are 0. `k` selects the diagonal.",
    )
    .since(
        14,
        &[
            input("input", "T").differentiable(),
            input("k", "tensor(int64)").optional().non_differentiable(),
            output("output", "T").differentiable(),
            int("upper").or(1),
            types("T", ALL_IR4),
        ],
    )
    .infer(triangle)
    .adapter(14, 13, select_by_distance)
    .gradient(gradients::trilu)
    .split_by(elements::matrices);

/// Selects elements by the distance of their column from the diagonal.
fn select_by_distance(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let ty = cx.input_type(0);
    let sizes = ty.and_then(|ty| ty.shape()).and_then(|shape| shape.last_chunk::<2>());
    let (Some(elem), Some([Dim::Known(rows), Dim::Known(columns)])) =
        (ty.and_then(|ty| ty.elem()), sizes)
    else {
        return Err(cx.refuse(
            "it was added in version 14, and older operators require the sizes of its matrices, which are unknown",
        ));
    };
    let mut vector = |count: i64, is_column: bool| {
        let size = usize::try_from(count).unwrap_or_default();
        let dims = if is_column { vec![size, 1] } else { vec![size] };
        let numbers = Tensor::from_vec(&dims[..], (0..count).collect());
        numbers.map(|numbers| Some(cx.add_constant(numbers))).map_err(|error| cx.refuse(error))
    };
    let (rows, columns) = (vector(*rows, true)?, vector(*columns, false)?);
    let zero = cast(&Tensor::scalar(0i64), elem, CastOptions::default());
    let zero = Some(cx.add_constant(zero.map_err(|error| cx.refuse(error))?));
    let diagonal = cx.input(1).unwrap_or_else(|| cx.add_int(0));
    let right = cx.before("Sub", &[columns, rows], &[]);
    let is_upper = cx.int("upper").unwrap_or(1) != 0;
    let order = if is_upper { "Less" } else { "Greater" };
    let beyond = cx.before(order, &[Some(right), Some(diagonal)], &[]);
    let data = cx.input(0);
    cx.clear_attributes();
    cx.become_operator("Where");
    cx.set_inputs(&[Some(beyond), zero, data]);
    Ok(())
}

fn eye_like(cx: &mut Infer<'_>) -> Result<(), InferError> {
    cx.demand_rank(0, 2)?;
    let elem = elem_attribute(cx, "dtype")?.or(cx.elem(0));
    cx.set_tensor(0, elem, cx.shape(0).cloned());
    Ok(())
}

fn one_hot(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let depth = depth(cx)?;
    if let Some([values]) = demand_vector(cx, 2)?
        && let Some(count) = values.known().filter(|count| *count != 2)
    {
        return cx.fail(format_args!("values must have two elements, not {count}"));
    }
    // Version 9 requires non-negative indices. Since version 11 negative ones count from the end.
    if cx.since() < 11
        && let Some(index) = of_input(cx, 0)
            .iter()
            .flat_map(|ints| &ints.values)
            .find(|index| index.known().is_some_and(|index| index < 0))
    {
        return cx.fail(format_args!("index {index} is negative"));
    }
    demand_rank_from(cx, 0, 1)?;
    let shape = match (cx.shape(0), cx.int("axis")) {
        (Some(indices), Some(axis)) => {
            let mut shape = indices.clone();
            shape.insert(cx.axis(axis, indices.len() + 1)?, depth);
            Some(shape)
        }
        _ => None,
    };
    cx.set_tensor(0, cx.elem(2), shape);
    Ok(())
}

/// Returns the only size of an input that must be a vector.
fn demand_vector<'a>(cx: &Infer<'a>, index: usize) -> Result<Option<&'a [Dim; 1]>, InferError> {
    cx.demand_rank(index, 1)?;
    Ok(cx.shape(index).and_then(|shape| shape[..].first_chunk()))
}

/// Returns the depth from a scalar, or from a vector of one number.
fn depth(cx: &Infer<'_>) -> Result<Dim, InferError> {
    match cx.shape(1).map(|shape| &shape[..]) {
        Some([count]) if count.known().is_some_and(|count| count > 1) => {
            return cx.fail(format_args!("depth must have one element, not {count}"));
        }
        None | Some([] | [_]) => {}
        Some(shape) => {
            return cx.fail(format_args!("depth must be a scalar, not of rank {}", shape.len()));
        }
    }
    let depth = of_input(cx, 1).and_then(|mut depth| depth.values.pop());
    match depth {
        Some(Dim::Known(depth)) if depth < 0 => cx.fail(format_args!("depth is {depth}")),
        depth => Ok(depth.unwrap_or(Dim::Unknown)),
    }
}

fn infer_range(cx: &mut Infer<'_>) -> Result<(), InferError> {
    for input in 0..3 {
        // A vector of one number is accepted too.
        if let Some(rank) = cx.rank(input).filter(|rank| *rank > 1) {
            return cx.fail(format_args!("input {input} must be a scalar, not of rank {rank}"));
        }
    }
    let elem = (0..3).find_map(|index| cx.elem(index));
    let [start, limit, delta] = [0, 1, 2].map(|index| scalar(cx, index));
    let count = match (&start, &limit, &delta) {
        (Some(start), Some(limit), Some(delta)) => count(cx, start, limit, delta)?,
        _ => Dim::Unknown,
    };
    cx.set_tensor(0, elem, Some(Shape::from_iter([count.clone()])));
    if let (Some(Number::Whole(start)), Some(Number::Whole(delta)), Some(elem)) =
        (start, delta, elem)
        && let Some(count) = count.size().filter(|count| *count <= MAX_KNOWN)
    {
        let values = (0..count).map(|index| start.add(&delta.mul(&Dim::from(index))));
        let values = values.collect();
        shape_values::set(cx, Ints::vector(elem, values));
    }
    Ok(())
}

/// Bound or step of a range.
enum Number {
    Whole(Dim),
    Float(f64),
}

fn scalar(cx: &Infer<'_>, index: usize) -> Option<Number> {
    let known = cx.known_value(index)?;
    let value = known.elements().and_then(|mut values| values.pop());
    match (value, known) {
        (Some(value), _) if !value.is_unknown() => Some(Number::Whole(value)),
        (_, Known::Tensor(tensor)) => float(tensor).map(Number::Float),
        _ => None,
    }
}

fn float(tensor: &Tensor) -> Option<f64> {
    match tensor.data_type() {
        Float => tensor.item::<f32>().ok().map(f64::from),
        Double => tensor.item::<f64>().ok(),
        _ => None,
    }
}

/// Computes the number of steps to the limit.
fn count(
    cx: &Infer<'_>,
    start: &Number,
    limit: &Number,
    delta: &Number,
) -> Result<Dim, InferError> {
    if let (Number::Whole(start), Number::Whole(limit), Number::Whole(delta)) =
        (start, limit, delta)
    {
        if delta.known() == Some(0) {
            return cx.fail("the step is 0");
        }
        return Ok(limit.sub(start).ceil_div(delta).larger(&Dim::Known(0)));
    }
    let [Some(start), Some(limit), Some(delta)] =
        [start, limit, delta].map(|number| match number {
            Number::Whole(number) => number.known().map(|number| number as f64),
            Number::Float(number) => Some(*number),
        })
    else {
        return Ok(Dim::Unknown);
    };
    // 32-bit elements are subtracted in 32 bits.
    let distance = match cx.elem(0) {
        Some(Float) => f64::from(limit as f32 - start as f32),
        _ => limit - start,
    };
    let count = (distance / delta).ceil();
    // A larger count is not the size of a tensor, and neither is NaN.
    let in_range = count.abs() < (1u64 << 53) as f64;
    Ok(if in_range { Dim::Known((count as i64).max(0)) } else { Dim::Unknown })
}

fn triangle(cx: &mut Infer<'_>) -> Result<(), InferError> {
    demand_rank_from(cx, 0, 2)?;
    if let Some(rank) = cx.rank(1).filter(|rank| *rank > 1) {
        return cx.fail(format_args!("k must be a scalar, not of rank {rank}"));
    }
    same_as_first(cx)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::AttrValue::Int;
    use crate::math::testing::{infer, infer_value, ty};
    use crate::tensor::testing::check;

    #[test]
    fn eye_like_needs_a_matrix() {
        // SHAPE-16, SHAPE-22
        check(
            &EYE_LIKE,
            9,
            &[
                (&[], "float[2, N]", "float[2, N]"),
                (&[("dtype", Int(7))], "float[2, N]", "int64[2, N]"),
                (&[], "-", "?[...]"),
                (&[], "float[2]", "EyeLike: input 0 must have rank 2, not 1"),
                (
                    &[("dtype", Int(77))],
                    "float[2, 2]",
                    "EyeLike: dtype = 77 is not an element type",
                ),
            ],
        );
        check(
            &TRILU,
            14,
            &[
                (&[], "float[2, N, 3]; int64", "float[2, N, 3]"),
                (&[], "float[...]", "float[...]"),
                (&[], "float[2]", "Trilu: input 0 must have rank 2 or more, not 1"),
            ],
        );
    }

    #[test]
    fn the_depth_becomes_an_axis() {
        check(
            &ONE_HOT,
            11,
            &[
                (&[], "int64[2, N]; =5; float[2]", "float[2, N, 5]"),
                (&[("axis", Int(1))], "int64[2, N]; =[D]; float[2]", "float[2, D, N]"),
                (&[("axis", Int(0))], "int64[N]; int64; float[?]", "float[?, N]"),
                (&[], "int64[2]; =[]; float[2]", "float[2, ?]"),
                (&[], "int64[2]; =float:3; -", "?[2, 3]"),
                (&[], "-; =3; float[2]", "float[...]"),
                (
                    &[("axis", Int(3))],
                    "int64[2, N]; =5; float[2]",
                    "OneHot: axis 3 is out of range for rank 3",
                ),
                (&[], "int64[2]; =-3; float[2]", "OneHot: depth is -3"),
                (&[], "int64[2]; =[3, 4]; float[2]", "OneHot: depth must have one element, not 2"),
                (
                    &[],
                    "int64[2]; int64[1, 1]; float[2]",
                    "OneHot: depth must be a scalar, not of rank 2",
                ),
                (&[], "int64[2]; =3; float[3]", "OneHot: values must have two elements, not 3"),
                (&[], "int64; =3; float[2]", "OneHot: input 0 must have rank 1 or more, not 0"),
                (&[], "=[0, -1]; =3; float[2]", "float[2, 3]"),
            ],
        );
        check(&ONE_HOT, 9, &[(&[], "=[0, -1]; =3; float[2]", "OneHot: index -1 is negative")]);
    }

    #[test]
    fn steps_to_the_limit() {
        // SHAPE-25
        check(
            &RANGE,
            11,
            &[
                (&[], "=1; =N; =1", "int64[max(0, N - 1)]"),
                (&[], "=0; =10; =3", "int64[4]"),
                (&[], "=10; =0; =-3", "int64[4]"),
                (&[], "=10; =0; =3", "int64[0]"),
                (&[], "=float:0; =float:N; =float:1", "float[N]"),
                (&[], "int64; =10; =3", "int64[?]"),
                (&[], "-; -; -", "?[?]"),
                (&[], "=0; =10; =0", "Range: the step is 0"),
                (&[], "int64[1, 1]; -; -", "Range: input 0 must be a scalar, not of rank 2"),
            ],
        );
        assert_eq!(infer_value(&RANGE, 11, &[], "N; 7; 2"), "-");
        assert_eq!(infer_value(&RANGE, 11, &[], "1; 7; 2"), "[1, 3, 5]");
        let known = [0.5f32, 3.0, 1.0].map(|value| Some(Known::Tensor(Tensor::scalar(value))));
        let types = [0, 1, 2].map(|_| ty("float"));
        let (types, _) = infer(&RANGE, 11, &[], &types, &known, 1).expect("no contradiction");
        assert_eq!(types, [ty("float[3]")]);
    }
}
