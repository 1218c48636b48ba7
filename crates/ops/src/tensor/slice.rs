//! `Slice`: every `step`-th element from a start to an end, along some of the axes.
//!
//! Since 1; 10 makes everything inputs and adds `steps`; 11 allows negative axes and steps; 13 adds
//! bfloat16.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::{CastOptions, Tensor, cast};

use super::INDICES;
use crate::attributes::Attributes;
use crate::downward::{constant_ints, from_front, ints_of};
use crate::facts::*;
use crate::infer::Rule;
use crate::math::shape_values;
use crate::sharding::movement;
use crate::tensor::gradients;
use crate::{Adapt, Demand, Infer, InferError, OpDef, Refusal};

pub static SLICE: OpDef = OpDef::new("Slice")
    .about(
        "Extracts a slice of a tensor along some axes, as `x[start:end:step]` in NumPy. Starts and \
         ends out of range are clamped. Negative values count from the end. Since version 10 the \
         positions are inputs.",
    )
    .since(
        1,
        &[
            input("data", "T"),
            output("output", "T"),
            ints("axes"),
            ints("ends").required(),
            ints("starts").required(),
            types("T", ALL),
        ],
    )
    .since(
        10,
        &[
            input("starts", "Tind"),
            input("ends", "Tind"),
            input("axes", "Tind").optional(),
            input("steps", "Tind").optional(),
            without_attribute("axes"),
            without_attribute("ends"),
            without_attribute("starts"),
            types("Tind", INDICES),
        ],
    )
    .since(11, &[note("Negative `axes` count from the end, and negative `steps` go backward.")])
    .same_up()
    .since(
        13,
        &[
            input("data", "T").differentiable(),
            input("starts", "Tind").non_differentiable(),
            input("ends", "Tind").non_differentiable(),
            input("axes", "Tind").optional().non_differentiable(),
            input("steps", "Tind").optional().non_differentiable(),
            output("output", "T").differentiable(),
            types("T", ALL_IR4),
        ],
    )
    .widens()
    .infer(infer)
    .infer_as_reference(infer_as_reference)
    .keeps_format(&[])
    .adapter(9, 10, attributes_to_inputs)
    .adapter(10, 9, inputs_to_attributes)
    .adapter(11, 10, restrict_to_forward)
    .shapes_by(&[1, 2, 3, 4])
    .reads_part_of_first()
    .gradient(gradients::slice)
    .split_by(movement::slice);

/// Slice along one axis.
struct Range {
    axis: i64,
    start: Dim,
    end: Dim,
    /// Never 0.
    step: i64,
}

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    infer_by(cx, Rule::Operator)
}

fn infer_as_reference(cx: &mut Infer<'_>) -> Result<(), InferError> {
    infer_by(cx, Rule::Reference)
}

fn infer_by(cx: &mut Infer<'_>, rule: Rule) -> Result<(), InferError> {
    let ranges = ranges(cx, rule)?;
    let shape = match (cx.shape(0), &ranges) {
        (Some(shape), Some(ranges)) => Some(slice_shape(cx, shape, ranges)?),
        // Some axes change, and it is unknown which.
        (Some(shape), None) => Some(super::unknown_dims(shape.len())),
        (None, _) => None,
    };
    cx.set_tensor(0, cx.elem(0), shape);
    if let Some(ranges) = ranges {
        slice_ints(cx, &ranges);
    }
    Ok(())
}

fn slice_shape(cx: &Infer<'_>, shape: &Shape, ranges: &[Range]) -> Result<Shape, InferError> {
    let mut result = shape.clone();
    for range in ranges {
        let axis = cx.axis(range.axis, shape.len())?;
        // A computed size could be negative, and would then count from the end.
        let is_from_start = |value: &Dim| {
            value.is_never_negative() || cx.assume(|| Demand::NotNegative(value.clone()))
        };
        result[axis] = len(&shape[axis], range, &is_from_start);
    }
    Ok(result)
}

/// Returns the slices of the node, if the axes are known.
fn ranges(cx: &Infer<'_>, rule: Rule) -> Result<Option<Vec<Range>>, InferError> {
    let known = |values: Vec<i64>| Some(values.into_iter().map(Dim::Known).collect());
    let old = cx.since() < 10;
    let part = |name: &str, index: usize| {
        if old { cx.ints(name).and_then(known) } else { cx.known_ints(index) }
    };
    let (starts, ends): (Option<Vec<Dim>>, Option<Vec<Dim>>) = (part("starts", 1), part("ends", 2));
    let (axes, steps) = (part("axes", 3), part("steps", 4));
    let is_given = |name: &str, index: usize| {
        if old {
            cx.attribute(name).is_some()
        } else {
            // The reference implementation treats an input of unknown rank as absent.
            cx.has_input(index) && (rule == Rule::Operator || cx.rank(index).is_some())
        }
    };

    let count = [&starts, &ends, &axes].into_iter().flatten().map(Vec::len).next();
    let Some(count) = count else { return Ok(None) };
    let named = [("starts", &starts), ("ends", &ends), ("axes", &axes), ("steps", &steps)];
    for (name, part) in named {
        if let Some(part) = part.as_ref().filter(|part| part.len() != count) {
            return cx
                .fail(format_args!("{name} has {} elements, others have {count}", part.len()));
        }
    }
    let axes = match axes {
        Some(axes) => axes,
        None if is_given("axes", 3) => return Ok(None),
        None => (0..count).map(Dim::from).collect(),
    };
    let at = |part: &Option<Vec<Dim>>, index: usize| {
        part.as_ref().map_or(Dim::Unknown, |part| part[index].clone())
    };
    let mut ranges = Vec::new();
    for (index, axis) in axes.iter().enumerate() {
        let Some(axis) = axis.known() else {
            return Ok(None);
        };
        let mut range = Range { axis, start: at(&starts, index), end: at(&ends, index), step: 1 };
        match &steps {
            Some(steps) => match steps[index].known() {
                Some(0) => return cx.fail(format_args!("the step of axis {axis} is 0")),
                Some(step) => range.step = step,
                None => range.end = Dim::Unknown,
            },
            None if is_given("steps", 4) => range.end = Dim::Unknown,
            None => {}
        }
        ranges.push(range);
    }
    Ok(Some(ranges))
}

/// Returns the number of elements that a range picks from an axis.
fn len(size: &Dim, range: &Range, is_from_start: &dyn Fn(&Dim) -> bool) -> Dim {
    match (size, &range.start, &range.end) {
        (Dim::Known(size), Dim::Known(start), Dim::Known(end)) => {
            picks(*size, *start, *end, range.step).count.into()
        }
        // A bound beyond 32 bits means the end of the axis, by convention and since bounds are
        // limited to the size: no axis is as long.
        (_, start, end) if range.step > 0 => {
            let bound = |value| Bound::new(value, size, is_from_start);
            let (Some(start), Some(end)) = (bound(start), bound(end)) else {
                return Dim::Unknown;
            };
            count_forward(size, start, end).ceil_div(&Dim::Known(range.step))
        }
        (_, Dim::Known(start), Dim::Known(end)) if *end <= i64::from(i32::MIN) => {
            let count = match *start {
                -1 | 0x7fff_ffff.. => size.clone(),
                0.. => Dim::Known(*start + 1).smaller(size),
                _ => return Dim::Unknown,
            };
            range.step.checked_neg().map_or(Dim::Unknown, |step| count.ceil_div(&Dim::Known(step)))
        }
        _ => Dim::Unknown,
    }
}

/// Bound of a forward slice.
enum Bound {
    /// Distance from the start, limited to the end.
    FromStart(Dim),
    /// Positive distance from the end, limited to the start.
    FromEnd(i64),
    End,
}

impl Bound {
    fn new(value: &Dim, size: &Dim, is_from_start: &dyn Fn(&Dim) -> bool) -> Option<Bound> {
        match value.known() {
            Some(value) if value >= i32::MAX.into() => Some(Bound::End),
            Some(value) if value >= 0 => Some(Bound::FromStart(Dim::Known(value))),
            Some(value) if value <= i32::MIN.into() => Some(Bound::FromStart(Dim::Known(0))),
            Some(value) => Some(Bound::FromEnd(-value)),
            None if size.sub(value).known().is_some_and(|distance| distance <= 0) => {
                Some(Bound::End)
            }
            None if !value.is_unknown() && is_from_start(value) => {
                Some(Bound::FromStart(value.clone()))
            }
            None => None,
        }
    }
}

/// Returns the number of elements between two bounds.
fn count_forward(size: &Dim, start: Bound, end: Bound) -> Dim {
    let zero = Dim::Known(0);
    let from_end = |distance: i64| size.sub(&Dim::Known(distance));
    match (start, end) {
        (Bound::End, _) => zero,
        (Bound::FromStart(start), Bound::End) if start == zero => size.clone(),
        (Bound::FromStart(start), Bound::FromStart(end)) if start == zero => end.smaller(size),
        (Bound::FromStart(start), Bound::End) => size.sub(&start).larger(&zero),
        (Bound::FromStart(start), Bound::FromStart(end)) => {
            end.smaller(size).sub(&start).larger(&zero)
        }
        (Bound::FromStart(start), Bound::FromEnd(end)) => from_end(end).sub(&start).larger(&zero),
        (Bound::FromEnd(start), Bound::End) => Dim::Known(start).smaller(size),
        (Bound::FromEnd(start), Bound::FromEnd(end)) if start <= end => zero,
        (Bound::FromEnd(start), Bound::FromEnd(end)) => {
            Dim::Known(start - end).smaller(&from_end(end)).larger(&zero)
        }
        (Bound::FromEnd(start), Bound::FromStart(end)) => {
            end.smaller(size).sub(&from_end(start).larger(&zero)).larger(&zero)
        }
    }
}

/// Elements that a known range picks from an axis of known size.
struct Picks {
    first: i64,
    count: i64,
}

fn picks(size: i64, start: i64, end: i64, step: i64) -> Picks {
    if size <= 0 {
        return Picks { first: 0, count: 0 };
    }
    let from_start = |bound: i64| {
        if bound < 0 { bound.saturating_add(size) } else { bound }
    };
    let (first, distance) = if step > 0 {
        let first = from_start(start).clamp(0, size);
        (first, from_start(end).clamp(0, size) - first)
    } else {
        let first = from_start(start).clamp(0, size - 1);
        (first, first - from_start(end).clamp(-1, size - 1))
    };
    let stride = i64::try_from(step.unsigned_abs()).unwrap_or(i64::MAX);
    Picks { first, count: if distance <= 0 { 0 } else { (distance - 1) / stride + 1 } }
}

fn slice_ints(cx: &mut Infer<'_>, ranges: &[Range]) {
    let Some(data) = shape_values::of_input(cx, 0) else {
        return;
    };
    let mut dims = data.dims.clone();
    let mut all: Vec<(i64, i64)> = vec![(0, 1); dims.len()];
    for range in ranges {
        let (Some(start), Some(end), Ok(axis)) =
            (range.start.known(), range.end.known(), cx.axis(range.axis, data.dims.len()))
        else {
            return;
        };
        let picks = picks(data.dims[axis] as i64, start, end, range.step);
        dims[axis] = usize::try_from(picks.count).unwrap_or(0);
        all[axis] = (picks.first, range.step);
    }
    let sliced = data.pick(dims, |index| {
        let from = |(index, (first, step)): (&usize, &(i64, i64))| {
            // Only the first element may be outside the axis, since an empty range has none.
            usize::try_from(first + *index as i64 * step).ok()
        };
        index.iter().zip(&all).map(from).collect()
    });
    shape_values::set_if(cx, sliced);
}

fn attributes_to_inputs(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let (Some(starts), Some(ends)) = (cx.ints("starts"), cx.ints("ends")) else {
        return Err(cx.refuse("attributes 'starts' and 'ends' are required"));
    };
    // In version 1 absent axes mean the first ones, in version 10 all of them.
    let axes = cx.ints("axes").unwrap_or_else(|| (0i64..).take(starts.len()).collect());
    for (index, (name, values)) in
        [("starts", starts), ("ends", ends), ("axes", axes)].into_iter().enumerate()
    {
        cx.remove(name);
        let values = cx.add_ints(&values);
        cx.set_input(index + 1, Some(values));
    }
    Ok(())
}

fn inputs_to_attributes(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    if constant_ints(cx, 4, "steps")?.is_some_and(|steps| steps.iter().any(|step| *step != 1)) {
        return Err(cx.refuse("that version has no input `steps`, but a step is not 1"));
    }
    for (index, name) in [(1, "starts"), (2, "ends"), (3, "axes")] {
        if let Some(values) = constant_ints(cx, index, name)? {
            cx.set(name, &values[..]);
        }
    }
    cx.keep_inputs(1);
    Ok(())
}

/// Counts axes from the front and refuses negative steps, since version 10 takes neither negative
/// axes nor negative steps.
fn restrict_to_forward(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let constant_of = |index: usize, name: &str| match (cx.input(index), cx.constant(index)) {
        (None, _) => Ok(None),
        (_, Some(tensor)) => Ok(ints_of(&tensor).map(|values| (values, tensor))),
        (_, None) => {
            Err(cx.refuse(format_args!("{name} may be negative, as it is not a constant")))
        }
    };
    if constant_of(4, "steps")?.is_some_and(|(steps, _)| steps.iter().any(|step| *step < 0)) {
        return Err(cx.refuse("a step is negative"));
    }
    let Some((axes, tensor)) = constant_of(3, "axes")? else { return Ok(()) };
    if axes.iter().all(|axis| *axis >= 0) {
        return Ok(());
    }
    let rank = cx.rank(0);
    let axes = axes.into_iter().map(|axis| from_front(cx, "axes", axis, rank));
    let axes = axes.collect::<Result<Vec<i64>, _>>()?;
    // All of these inputs must have one type.
    let wide = Tensor::from_vec(tensor.dims(), axes).ok();
    let same = wide.and_then(|wide| cast(&wide, tensor.data_type(), CastOptions::default()).ok());
    if let Some(axes) = same {
        let axes = cx.add_constant(axes);
        cx.set_input(3, Some(axes));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::testing::infer_value;
    use crate::math::testing::raise_version;
    use crate::tensor::testing::{check, ints};
    use sardonyx_model::AttrValue;

    #[test]
    fn known_ranges_give_sizes() {
        check(
            &SLICE,
            13,
            &[
                (&[], "float[20, 10, 5]; =[0, 0]; =[3, 10]; =[0, 1]; =[1, 1]", "float[3, 10, 5]"),
                (&[], "float[20, 10]; =[1, 0]; =[2, 3]", "float[1, 3]"),
                (&[], "float[20, 10]; =[0, 1]; =[-1, 1000]", "float[19, 9]"),
                (&[], "float[20, 10]; =[1000]; =[2000]; =[1]", "float[20, 0]"),
                (&[], "float[20]; =[19]; =[-1000]; =[0]; =[-3]", "float[7]"),
                (&[], "float[0]; =[-1]; =[-1000]; =[0]; =[-1]", "float[0]"),
                (
                    &[],
                    "float[5]; =[0]; =[9223372036854775807]; =[0]; =[9223372036854775807]",
                    "float[1]",
                ),
                (
                    &[],
                    "float[5]; =[-1]; =[-9223372036854775808]; =[0]; =[-9223372036854775808]",
                    "float[1]",
                ),
                (&[], "float[5]; =[0, 0]; =[1]", "Slice: ends has 1 elements, others have 2"),
                (&[], "float[5]; =[0]; =[1]; =[1]", "Slice: axis 1 is out of range for rank 1"),
                (&[], "float[5]; =[0]; =[1]; =[0]; =[0]", "Slice: the step of axis 0 is 0"),
            ],
        );
        check(
            &SLICE,
            1,
            &[
                (&[("starts", ints(&[1])), ("ends", ints(&[3]))], "float[5, N]", "float[2, N]"),
                (
                    &[("starts", ints(&[1])), ("ends", ints(&[3])), ("axes", ints(&[1]))],
                    "float[5, 2]",
                    "float[5, 1]",
                ),
            ],
        );
    }

    #[test]
    fn symbolic_ranges_give_expressions() {
        let max = i64::MAX.to_string();
        let min = i64::MIN.to_string();
        let rows = [
            ("0", max.as_str(), "1", "N"),
            ("1", &max, "1", "max(0, N - 1)"),
            ("0", "-1", "1", "max(0, N - 1)"),
            ("0", "2147483647", "2", "-floor((-N)/2)"),
            ("0", "5", "1", "min(5, N)"),
            ("2", "5", "1", "max(0, min(5, N) - 2)"),
            ("-3", &max, "1", "min(3, N)"),
            ("-3", "-1", "1", "max(0, min(2, N - 1))"),
            ("-1", "-3", "1", "0"),
            (&max, &max, "1", "0"),
            ("-1", &min, "-1", "N"),
            ("0", "N", "1", "N"),
            ("0", "M", "1", "min(M, N)"),
            ("M", &max, "1", "max(0, -M + N)"),
            ("0", "?", "1", "?"),
            ("0", "1", "?", "?"),
        ];
        for (start, end, step, expected) in rows {
            let inputs = format!("float[N, 3]; =[{start}]; =[{end}]; =[0]; =[{step}]");
            check(&SLICE, 13, &[(&[], &inputs, &format!("float[{expected}, 3]"))]);
        }
    }

    #[test]
    fn unknown_ranges_keep_the_rank() {
        check(
            &SLICE,
            13,
            &[
                (&[], "float[N, 3]; int64[1]; =[2]; =[0]", "float[?, 3]"),
                (&[], "float[N, 3]; =[0]; =[2]; int64[1]", "float[?, ?]"),
                (&[], "float[N, 3]; =[0]; =[2]; =[1]; int64[1]", "float[N, ?]"),
                (&[], "float[N, 3]; int64[?]; int64[?]", "float[?, ?]"),
                (&[], "float[...]; =[0]; =[2]", "float[...]"),
                (&[], "float[?, 3]; =[0]; =[2]", "float[?, 3]"),
            ],
        );
    }

    /// Checks that symbolic lengths, evaluated for numbers, equal known lengths.
    #[test]
    fn symbolic_lengths_are_exact() {
        let bounds = [i64::MIN, -7, -4, -2, -1, 0, 1, 3, 6, i32::MAX.into(), i64::MAX];
        for start in bounds {
            for end in bounds {
                for step in [-2, -1, 1, 2, 3] {
                    let range = Range { axis: 0, start: start.into(), end: end.into(), step };
                    let symbolic = len(&Dim::symbol("N"), &range, &Dim::is_never_negative);
                    for size in 0..9i64 {
                        let put_in = symbolic.substitute(&|_| Some(size.into()));
                        let exact = len(&size.into(), &range, &Dim::is_never_negative);
                        assert!(
                            symbolic.is_unknown() || put_in == exact,
                            "{start}:{end}:{step} of {size}: {symbolic}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn integers_are_sliced() {
        // SHAPE-25
        assert_eq!(infer_value(&SLICE, 13, &[], "[N, 3, 4]; [1]; [3]"), "[3, 4]");
        assert_eq!(
            infer_value(&SLICE, 13, &[], "[N, 3, 4]; [-2]; [9223372036854775807]; [0]"),
            "[3, 4]"
        );
        assert_eq!(infer_value(&SLICE, 13, &[], "[N, 3, 4]; [2]; [-9]; [0]; [-2]"), "[4, N]");
        assert_eq!(infer_value(&SLICE, 13, &[], "[N, 3, 4]; [5]; [9]"), "[]");
        // Exporters reverse the pads of `Pad` like this.
        assert_eq!(
            infer_value(
                &SLICE,
                13,
                &[],
                "[[N, 1], [2, 3], [4, 5]]; [-1]; [-9223372036854775807]; [0]; [-1]"
            ),
            "[[4, 5], [2, 3], [N, 1]]"
        );
        assert_eq!(infer_value(&SLICE, 13, &[], "[N, 3, 4]; [I]; [2]"), "-");
    }

    #[test]
    fn attributes_become_inputs() {
        let given = [("starts", AttrValue::from(&[1, 0])), ("ends", AttrValue::from(&[2, -1]))];
        assert_eq!(
            raise_version(&SLICE, 9, &given, "float[5, 5, 5]"),
            "y = Slice(a, [1, 0], [2, -1], [0, 1])"
        );
        let [starts, ends] = given;
        let given = [starts, ends, ("axes", AttrValue::from(&[2, 1]))];
        assert_eq!(
            raise_version(&SLICE, 9, &given, "float[5, 5, 5]"),
            "y = Slice(a, [1, 0], [2, -1], [2, 1])"
        );
        assert_eq!(
            raise_version(&SLICE, 9, &[], "float[5]"),
            "Slice: attributes 'starts' and 'ends' are required"
        );
    }
}
