//! Reductions (`ReduceSum`, `ReduceMax` and others), which reduce axes to one element each, and
//! `ArgMax` and `ArgMin`, which return the position of that element.
//!
//! - `ReduceL1`, `ReduceL2`, `ReduceLogSum`, `ReduceLogSumExp`, `ReduceMean`, `ReduceProd`,
//!   `ReduceSumSquare`: since 1; 11 allows negative `axes`; 13 adds bfloat16; 18 takes `axes` as an
//!   input. The two with a logarithm: 28 takes floats only.
//! - `ReduceMax`, `ReduceMin`: as above; 12 adds 8-bit integers, 20 adds bool.
//! - `ReduceSum`: as above, with `axes` as an input since 13.
//! - `ArgMax`, `ArgMin`: since 1; 11 allows a negative `axis`; 12 adds `select_last_index` for when
//!   there are several; 13 adds bfloat16.
//!
//! Without axes all are reduced, unless `noop_with_empty_axes` is 1; then none are.

mod gradients;
mod parts;

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType;

use crate::adapt::{Adapt, Refusal};
use crate::attributes::Attributes;
use crate::def::{AdapterFn, InferFn, OpDef};
use crate::downward::{constant_ints, count_axes_from_front, count_axis_from_front};
use crate::facts::{
    FLOATS_IR4, Fact, HIGH_PRECISION, HIGH_PRECISION_IR4, NUMERIC, NUMERIC_IR4, input, int, ints,
    note, output, types, without_attribute,
};
use crate::infer::{Infer, InferError};
use crate::known::{Dims, elements, keep_if_exact};
use crate::math::floats_only;
use crate::math::shape_values::{self, Ints};
use crate::sharding::elements;
use crate::typeset::TypeSet;

pub(crate) static ARG_MAX: OpDef = position("ArgMax")
    .about(
        "Index of the maximum along an axis. `select_last_index` decides between equal maxima. NaN \
         counts as the maximum.",
    )
    .split_by(elements::arg)
    .split_body(parts::arg_max);

pub(crate) static ARG_MIN: OpDef = position("ArgMin")
    .about(
        "Index of the minimum along an axis. `select_last_index` decides between equal minima. NaN \
         counts as the minimum.",
    )
    .split_by(elements::arg)
    .split_body(parts::arg_min);

pub static REDUCE_L1: OpDef = reduction("ReduceL1", infer, |cx| move_axes_to_attribute(cx, "Abs"))
    .about("L1 norm over axes: the sum of absolute values. 0 over an empty set.")
    .body(&[18], concat!("sizes = Abs (data)\n", sum!("reduced", "sizes")))
    .gradient(gradients::l1)
    .split_by(elements::sum);

pub static REDUCE_L2: OpDef = reduction("ReduceL2", infer, |cx| move_axes_to_attribute(cx, "Abs"))
    .about("L2 norm over axes: the square root of the sum of squares. 0 over an empty set.")
    .body(
        &[18],
        concat!(
            "squares = Mul (data, data)\n",
            sum!("sum", "squares"),
            "sum_float = Cast <to = 1> (sum)
            root = Sqrt (sum_float)
            reduced = CastLike (root, data)",
        ),
    )
    .gradient(gradients::l2)
    .split_by(elements::norm);

pub static REDUCE_LOG_SUM: OpDef =
    reduction("ReduceLogSum", infer, |cx| move_axes_to_attribute(cx, "Log"))
        .about("Logarithm of the sum over axes. Minus infinity over an empty set.")
        .since(28, &[types("T", FLOATS_IR4)])
        .same_down()
        .adapter(27, 28, floats_only::check)
        .body(&[18, 28], concat!(sum!("sum", "data"), "reduced = Log (sum)"))
        .gradient(gradients::log_sum)
        .split_by(elements::log_sum);

pub static REDUCE_LOG_SUM_EXP: OpDef = reduction("ReduceLogSumExp", infer, move_axes_of_selection)
    .about(
        "Logarithm of the sum of exponentials over axes. The maximum is subtracted first, so the \
         exponentials do not overflow. Minus infinity over an empty set.",
    )
    .since(28, &[types("T", FLOATS_IR4)])
    .same_down()
    .adapter(27, 28, floats_only::check)
    .body(
        &[18, 28],
        concat!(
            "data_double = Cast <to = 11> (data)
            powers = Exp (data_double)\n",
            sum!("sum", "powers"),
            "reduced_double = Log (sum)
            reduced = CastLike (reduced_double, data)",
        ),
    )
    .gradient(gradients::log_sum_exp)
    .split_by(elements::whole_axes)
    .split_body(parts::log_sum_exp);

pub static REDUCE_MAX: OpDef = extreme("ReduceMax", |cx| infer_folded(cx, Dim::larger, None))
    .about(
        "Maximum over axes. NaN if any element is NaN. Over an empty set: minus infinity, or the \
         smallest integer of the type.",
    )
    .gradient(gradients::extreme)
    .split_by(elements::max);

pub static REDUCE_MEAN: OpDef = reduction("ReduceMean", mean, move_axes_of_selection)
    .about(
        "Mean over axes. The mean of integers truncates toward zero. Over an empty set: NaN, or \
             0 for integers.",
    )
    .gradient(gradients::mean)
    .split_by(elements::mean);

pub static REDUCE_MIN: OpDef = extreme("ReduceMin", |cx| infer_folded(cx, Dim::smaller, None))
    .about(
        "Minimum over axes. NaN if any element is NaN. Over an empty set: infinity, or the largest \
         integer of the type.",
    )
    .gradient(gradients::extreme)
    .split_by(elements::min);

pub static REDUCE_PROD: OpDef =
    reduction("ReduceProd", |cx| infer_folded(cx, Dim::mul, Some(1)), move_axes_of_selection)
        .about("Product over axes. 1 over an empty set. Integers wrap around on overflow.")
        .gradient(gradients::product)
        .split_by(elements::product);

pub static REDUCE_SUM: OpDef = OpDef::new("ReduceSum")
    .about("Sum over axes. 0 over an empty set. Integers wrap around on overflow.")
    .since(1, FIRST)
    .since(11, NEGATIVE_AXES)
    .same_up()
    .since(
        13,
        &[
            SMOOTH_DATA,
            AXES,
            SMOOTH_REDUCED,
            without_attribute("axes"),
            int("noop_with_empty_axes").or(0),
            types("T", HIGH_PRECISION_IR4),
        ],
    )
    .infer(|cx| infer_folded(cx, Dim::add, Some(0)))
    .adapter(11, 10, |cx| count_axes_from_front(cx, "axes"))
    .adapter(12, 13, move_axes_to_input)
    .adapter(13, 12, move_axes_of_selection)
    .gradient(gradients::sum)
    .split_by(elements::sum);

pub static REDUCE_SUM_SQUARE: OpDef = reduction("ReduceSumSquare", infer, square)
    .about("Sum of squares over axes. 0 over an empty set. Integers wrap around on overflow.")
    .body(&[18], concat!("squares = Mul (data, data)\n", sum!("reduced", "squares")))
    .gradient(gradients::sum_of_squares)
    .split_by(elements::sum);

/// Expands to the sum of a value along the axes and in the form of the node.
macro_rules! sum {
    ($sum:literal, $of:literal) => {
        concat!(
            $sum, " = ReduceSum <keepdims: int = @keepdims, noop_with_empty_axes: int = @noop_with_empty_axes> (",
            $of, ", axes)\n",
        )
    };
}
use sum;

const SMOOTH_DATA: Fact = input("data", "T").differentiable();
const SMOOTH_REDUCED: Fact = output("reduced", "T").differentiable();
const AXES: Fact = input("axes", "tensor(int64)").optional().non_differentiable();
const FIRST: &[Fact] = &[
    input("data", "T"),
    output("reduced", "T"),
    ints("axes"),
    int("keepdims").or(1),
    types("T", HIGH_PRECISION),
];
const NEGATIVE_AXES: &[Fact] = &[note("Negative axes count from the end.")];
const AXES_AS_INPUT: &[Fact] =
    &[AXES, without_attribute("axes"), int("noop_with_empty_axes").or(0)];
const BYTES: TypeSet = TypeSet::tensors(&[DataType::Int8, DataType::Uint8]);

const fn reduction(name: &'static str, infer: InferFn, down: AdapterFn) -> OpDef {
    OpDef::new(name)
        .since(1, FIRST)
        .since(11, NEGATIVE_AXES)
        .same_up()
        .since(13, const { &[SMOOTH_DATA, SMOOTH_REDUCED, types("T", HIGH_PRECISION_IR4)] })
        .widens()
        .since(18, AXES_AS_INPUT)
        .infer(infer)
        .adapter(11, 10, |cx| count_axes_from_front(cx, "axes"))
        .adapter(17, 18, move_axes_to_input)
        .adapter(18, 17, down)
}

const fn extreme(name: &'static str, infer: InferFn) -> OpDef {
    const TYPES: TypeSet = HIGH_PRECISION_IR4.and(BYTES);
    OpDef::new(name)
        .since(1, FIRST)
        .since(11, NEGATIVE_AXES)
        .same_up()
        .since(12, const { &[types("T", HIGH_PRECISION.and(BYTES))] })
        .widens()
        .since(13, const { &[SMOOTH_DATA, SMOOTH_REDUCED, types("T", TYPES)] })
        .widens()
        .since(18, AXES_AS_INPUT)
        .since(20, const { &[types("T", TYPES.and(TypeSet::tensors(&[DataType::Bool])))] })
        .widens()
        .infer(infer)
        .adapter(11, 10, |cx| count_axes_from_front(cx, "axes"))
        .adapter(17, 18, move_axes_to_input)
        .adapter(18, 17, move_axes_of_selection)
}

const fn position(name: &'static str) -> OpDef {
    const FIRST: &[Fact] = &[
        input("data", "T"),
        output("reduced", "tensor(int64)"),
        int("axis").or(0),
        int("keepdims").or(1),
        types("T", NUMERIC),
    ];
    const BFLOAT16_TOO: &[Fact] = &[
        input("data", "T").non_differentiable(),
        output("reduced", "tensor(int64)").non_differentiable(),
        types("T", NUMERIC_IR4),
    ];
    OpDef::new(name)
        .since(1, FIRST)
        .since(11, NEGATIVE_AXES)
        .same_up()
        .since(12, const { &[int("select_last_index").or(0)] })
        .same_up()
        .types_down()
        .since(13, BFLOAT16_TOO)
        .widens()
        .infer(infer_position)
        .adapter(11, 10, |cx| count_axis_from_front(cx, "axis"))
}

/// Axes that a node reduces.
enum Axes {
    All,
    Nothing,
    These(Vec<i64>),
    Unknown,
}

fn axes(cx: &Infer<'_>) -> Axes {
    let listed = match cx.ints("axes") {
        Some(axes) => axes,
        None if !cx.has_input(1) => Vec::new(),
        None if has_no_elements(cx, 1) => Vec::new(),
        // An absent input looks like one that is unknown.
        None => match cx.constant_ints(1) {
            Some(axes) => axes,
            None => return Axes::Unknown,
        },
    };
    match (listed.is_empty(), cx.int("noop_with_empty_axes").unwrap_or(0)) {
        (true, 0) => Axes::All,
        (true, _) => Axes::Nothing,
        (false, _) => Axes::These(listed),
    }
}

fn has_no_elements(cx: &Infer<'_>, index: usize) -> bool {
    let mut sizes = cx.shape(index).into_iter().flatten();
    sizes.any(|size| size.known() == Some(0))
}

fn keeps_dims(cx: &Infer<'_>) -> bool {
    cx.int("keepdims").unwrap_or(1) != 0
}

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = match (axes(cx), cx.shape(0)) {
        (Axes::Nothing, shape) => shape.cloned(),
        (Axes::All, _) if !keeps_dims(cx) => Some(Shape::new()),
        (_, None) => None,
        (Axes::All, Some(shape)) => Some(reduce_shape(cx, shape, &vec![true; shape.len()])),
        (Axes::These(axes), Some(shape)) => {
            let mut marked = vec![false; shape.len()];
            for axis in axes {
                marked[cx.axis(axis, shape.len())?] = true;
            }
            Some(reduce_shape(cx, shape, &marked))
        }
        // Each axis may be reduced, but one of size 1 keeps its size.
        (Axes::Unknown, Some(shape)) if keeps_dims(cx) => Some(
            shape
                .iter()
                .map(|size| if size.known() == Some(1) { Dim::Known(1) } else { Dim::Unknown })
                .collect(),
        ),
        (Axes::Unknown, Some(_)) => None,
    };
    cx.set_tensor(0, cx.elem(0), shape);
    Ok(())
}

/// Returns the shape without the marked axes, or with size 1 in their place.
fn reduce_shape(cx: &Infer<'_>, shape: &Shape, marked: &[bool]) -> Shape {
    let keeps_dims = keeps_dims(cx);
    let sizes = shape.iter().zip(marked);
    sizes
        .filter_map(|(size, marked)| match (marked, keeps_dims) {
            (false, _) => Some(size.clone()),
            (true, true) => Some(Dim::Known(1)),
            (true, false) => None,
        })
        .collect()
}

/// Infers the type, and the value if the input describes a shape.
fn infer_folded(
    cx: &mut Infer<'_>,
    f: fn(&Dim, &Dim) -> Dim,
    initial: Option<i64>,
) -> Result<(), InferError> {
    infer(cx)?;
    let folded = fold_ints(cx, f, initial);
    shape_values::set_if(cx, folded.map(|(ints, _)| ints));
    Ok(())
}

fn mean(cx: &mut Infer<'_>) -> Result<(), InferError> {
    infer(cx)?;
    if let Some((mut sums, count)) = fold_ints(cx, Dim::add, None) {
        for value in &mut sums.values {
            // The standard leaves the rounding of integers open.
            let mean = value.exact_div(&Dim::from(count));
            *value = mean.unwrap_or(Dim::Unknown);
        }
        shape_values::set(cx, sums);
    }
    Ok(())
}

/// Returns the reduced value, and the number of elements that each of its elements combines.
fn fold_ints(
    cx: &Infer<'_>,
    f: fn(&Dim, &Dim) -> Dim,
    initial: Option<i64>,
) -> Option<(Ints, usize)> {
    let ints = shape_values::of_input(cx, 0)?;
    let rank = ints.dims.len();
    let mut marked = vec![false; rank];
    match axes(cx) {
        Axes::Unknown => return None,
        Axes::Nothing => return Some((ints, 1)),
        Axes::All => marked.fill(true),
        Axes::These(axes) => {
            for axis in axes {
                marked[cx.axis(axis, rank).ok()?] = true;
            }
        }
    }
    let (mut whole, mut left, mut away) = (Dims::new(), Dims::new(), Dims::new());
    for (size, marked) in ints.dims.iter().zip(&marked) {
        whole.push(if *marked { 1 } else { *size });
        if *marked { &mut away } else { &mut left }.push(*size);
    }
    let count = elements(&away)?;
    let reduced = Ints::build(ints.elem, whole, |index| {
        let part = ints.pick(away.clone(), |inner| {
            let mut inner = inner.iter();
            let axes = index.iter().zip(&marked);
            axes.map(|(outer, marked)| if *marked { inner.next() } else { Some(outer) }.copied())
                .collect()
        });
        let result = part.and_then(|part| {
            let values = part.values.into_iter();
            values.reduce(|a, b| keep_if_exact(ints.elem, f(&a, &b)))
        });
        result.or(initial.map(Dim::Known)).unwrap_or(Dim::Unknown)
    })?;
    let dims = if keeps_dims(cx) { reduced.dims } else { left };
    let Ints { elem, values, .. } = reduced;
    Some((Ints { elem, dims, values }, count))
}

fn infer_position(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = match (cx.shape(0), cx.int("axis")) {
        (Some(shape), Some(axis)) => {
            let mut marked = vec![false; shape.len()];
            marked[cx.axis(axis, shape.len())?] = true;
            Some(reduce_shape(cx, shape, &marked))
        }
        _ => None,
    };
    cx.set_tensor(0, Some(DataType::Int64), shape);
    Ok(())
}

/// Moves the axes to an input. Absent or empty axes mean all axes on both sides.
fn move_axes_to_input(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    if let Some(axes) = cx.ints("axes").filter(|axes| !axes.is_empty()) {
        let axes = cx.add_ints(&axes);
        cx.set_input(1, Some(axes));
    }
    cx.remove("axes");
    Ok(())
}

/// Moves constant axes to an attribute. A node that reduces no axes becomes `element`, which does
/// the same to each element.
fn move_axes_to_attribute(cx: &mut Adapt<'_>, element: &str) -> Result<(), Refusal> {
    let axes = constant_ints(cx, 1, "axes")?.filter(|axes| !axes.is_empty());
    cx.keep_inputs(1);
    let reduces_nothing = axes.is_none() && cx.int("noop_with_empty_axes").unwrap_or(0) != 0;
    cx.remove("noop_with_empty_axes");
    if reduces_nothing {
        cx.remove("keepdims");
        cx.become_operator(element);
    } else if let Some(axes) = axes {
        cx.set("axes", &axes[..]);
    }
    Ok(())
}

/// Moves the axes to an attribute, for an operator that returns a single element unchanged.
fn move_axes_of_selection(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    move_axes_to_attribute(cx, "Identity")
}

fn square(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    move_axes_to_attribute(cx, "Mul")?;
    if cx.is("Mul") {
        cx.set_inputs(&[cx.input(0), cx.input(0)]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sardonyx_model::AttrValue;

    use super::*;
    use crate::math::testing::{infer, infer_type, infer_value, raise_version, ty, value};

    fn axes(axes: &'static [i64]) -> (&'static str, AttrValue<'static>) {
        ("axes", AttrValue::Ints(axes.into()))
    }

    const DROP: (&str, AttrValue<'static>) = ("keepdims", AttrValue::Int(0));
    const NOOP: (&str, AttrValue<'static>) = ("noop_with_empty_axes", AttrValue::Int(1));

    #[test]
    fn move_axes_to_attribute() {
        // SHAPE-16, SHAPE-22, NODE-22
        let rows = [
            (vec![axes(&[1])], "float[N, 3, 4]", "float[N, 1, 4]"),
            (vec![axes(&[1, -1]), DROP], "float[N, 3, 4]", "float[N]"),
            (vec![], "float[N, 3]", "float[1, 1]"),
            (vec![axes(&[])], "float[N, 3]", "float[1, 1]"),
            (vec![DROP], "float[N, 3]", "float"),
            (vec![DROP], "double[...]", "double"),
            (vec![], "float[...]", "float[...]"),
            (vec![axes(&[0]), DROP], "-", "?[...]"),
            (vec![axes(&[3])], "float[N, 3]", "ReduceMean: axis 3 is out of range for rank 2"),
            (vec![], "float", "float"),
        ];
        for (attributes, input, expected) in rows {
            assert_eq!(
                infer_type(&REDUCE_MEAN, 11, &attributes, input),
                expected,
                "{attributes:?} {input}"
            );
        }
    }

    #[test]
    fn move_axes_to_input() {
        // SHAPE-16, NODE-13, NODE-15
        let rows = [
            (vec![], "float[N, 3, 4]", "[1]", "float[N, 1, 4]"),
            (vec![DROP], "float[N, 3, 4]", "[-1, 1]", "float[N]"),
            (vec![DROP], "float[N, 3]", "[2]", "ReduceL2: axis 2 is out of range for rank 2"),
            (vec![], "float[N, 3]", "[]", "float[1, 1]"),
            (vec![NOOP], "float[N, 3]", "[]", "float[N, 3]"),
            (vec![NOOP], "float[...]", "[]", "float[...]"),
            (vec![], "float[N, 3, 1]", "-", "float[?, ?, 1]"),
            (vec![DROP], "float[N, 3, 1]", "-", "float[...]"),
            (vec![], "-", "[0]", "?[...]"),
        ];
        for (attributes, data, axes, expected) in rows {
            let types = [ty(data), ty("int64[?]")];
            let result = match infer(&REDUCE_L2, 18, &attributes, &types, &[None, value(axes)], 1) {
                Ok((types, _)) => types[0].as_ref().map_or("-".to_string(), |ty| ty.to_string()),
                Err(error) => error.to_string(),
            };
            assert_eq!(result, expected, "{attributes:?} {data} {axes}");
        }
        assert_eq!(infer_type(&REDUCE_SUM, 13, &[NOOP], "float[N, 3]"), "float[N, 3]");
        assert_eq!(infer_type(&REDUCE_SUM, 13, &[], "float[N, 3]; int64[0]"), "float[1, 1]");
    }

    #[test]
    fn symbolic_shape_values_are_reduced() {
        // SHAPE-25
        let rows = [
            (&REDUCE_PROD, vec![DROP], "[N, 3, 4]", "12*N"),
            (&REDUCE_PROD, vec![], "[N, 3, 4]; [0]", "[12*N]"),
            (&REDUCE_PROD, vec![DROP], "[]", "1"),
            (&REDUCE_SUM, vec![DROP], "[N, 3, 4]", "N + 7"),
            (&REDUCE_SUM, vec![], "5", "5"),
            (&REDUCE_MAX, vec![DROP], "[2, 7, 3]", "7"),
            (&REDUCE_MIN, vec![DROP], "[2, 7, 3]", "2"),
            (&REDUCE_MIN, vec![DROP], "[]", "-"),
            (&REDUCE_SUM, vec![NOOP], "[N, 3]; []", "[N, 3]"),
            (&REDUCE_SUM, vec![], "[N, 3]; -", "-"),
            (&REDUCE_SUM, vec![], "[[N, 3], [4, 5]]; [1]", "[[N + 3], [9]]"),
            (&REDUCE_PROD, vec![DROP], "[[N, 3], [4, 5]]; [0]", "[4*N, 15]"),
            (&REDUCE_MEAN, vec![DROP], "[4, 6]; [0]", "5"),
            (&REDUCE_MEAN, vec![DROP], "float:[4, 7]; [0]", "-"),
        ];
        for (def, attributes, inputs, expected) in rows {
            assert_eq!(
                infer_value(def, 18, &attributes, inputs),
                expected,
                "{} {attributes:?} {inputs}",
                def.name
            );
        }
    }

    #[test]
    fn positions_have_no_reduced_axis() {
        let axis = |axis| ("axis", AttrValue::Int(axis));
        let rows = [
            (vec![], "float[2, N]", "int64[1, N]"),
            (vec![axis(-1), DROP], "float[2, N]", "int64[2]"),
            (vec![axis(2)], "float[2, N]", "ArgMax: axis 2 is out of range for rank 2"),
            (vec![], "-", "int64[...]"),
        ];
        for (attributes, input, expected) in rows {
            assert_eq!(
                infer_type(&ARG_MAX, 13, &attributes, input),
                expected,
                "{attributes:?} {input}"
            );
        }
    }

    #[test]
    fn axes_become_an_input() {
        let (some, none) = (("axes", AttrValue::from(&[0, -1])), ("axes", AttrValue::from(&[])));
        let keep = ("keepdims", AttrValue::Int(0));
        let rows = [
            (&REDUCE_SUM, 12, vec![some.clone(), keep], "y = ReduceSum(a, [0, -1]) keepdims=0"),
            (&REDUCE_MEAN, 17, vec![some], "y = ReduceMean(a, [0, -1])"),
            (&REDUCE_MAX, 17, vec![none], "y = ReduceMax(a)"),
            (&REDUCE_L1, 17, vec![], "y = ReduceL1(a)"),
        ];
        for (def, from, attributes, expected) in rows {
            assert_eq!(raise_version(def, from, &attributes, "-"), expected);
        }
    }
}
