//! Rules for elementwise operators, operators along some axes, and reductions.

use sardonyx_model::Dim;
use sardonyx_tensor::DataType;

use super::{Change, Combine, Cut, Factors, Operands, Then};

/// Splits all axes of an elementwise operator that broadcasts. An input has the factors of those
/// axes along which it does not broadcast.
pub(crate) fn elementwise(cx: &Operands<'_>) -> Option<Factors> {
    broadcast(cx, cx.input_count())
}

/// Splits all axes of the first input and the outputs. Other inputs are whole, whatever their
/// sizes.
pub(crate) fn elements_of_first(cx: &Operands<'_>) -> Option<Factors> {
    broadcast(cx, 1)
}

fn broadcast(cx: &Operands<'_>, inputs: usize) -> Option<Factors> {
    let dims = cx.output_dims(0)?;
    let mut found = Factors::whole(cx);
    let axes: Vec<usize> = dims.iter().map(|size| found.add_factor(size.clone())).collect();
    for output in 0..cx.output_count() {
        match cx.output_dims(output) {
            Some(same) if same == dims => {
                axes.iter()
                    .enumerate()
                    .for_each(|(axis, factor)| found.append_to_output(output, axis, *factor));
            }
            Some(_) => return None,
            None => {}
        }
    }
    for input in 0..inputs {
        let Some(own) = cx.dims(input) else { continue };
        let before = dims.len().checked_sub(own.len())?;
        for axis in 0..own.len() {
            found.broadcast(cx, input, axis, axes[before + axis])?;
        }
    }
    Some(found)
}

/// Splits all axes of `Dropout` in inference. In training it stays whole, since it draws random
/// numbers for the whole tensor.
pub(crate) fn dropout(cx: &Operands<'_>) -> Option<Factors> {
    match (cx.input(2), cx.known_elements(2)) {
        (None, _) | (_, Some([Dim::Known(0)])) => elements_of_first(cx),
        _ => None,
    }
}

/// Splits all axes but the one that the attribute `axis` names. Outputs have the rank of the first
/// input, and further inputs are whole.
pub(crate) fn along_axis(cx: &Operands<'_>) -> Option<Factors> {
    keep_whole(cx, &[cx.axis(cx.int("axis")?, cx.dims(0)?.len())?])
}

/// Splits all axes but the one that the second input names. Outputs have the rank of the first
/// input, and further inputs are whole.
pub(crate) fn along_axis_input(cx: &Operands<'_>) -> Option<Factors> {
    let [axis] = cx.known_elements(1)? else { return None };
    keep_whole(cx, &[cx.axis(axis.known()?, cx.dims(0)?.len())?])
}

/// Splits all axes of the first input and the outputs but `whole`, whose sizes may differ in
/// outputs. Other inputs are whole.
fn keep_whole(cx: &Operands<'_>, whole: &[usize]) -> Option<Factors> {
    let dims = cx.dims(0)?;
    let mut found = Factors::whole(cx);
    for (axis, size) in dims.iter().enumerate() {
        if whole.contains(&axis) {
            continue;
        }
        let factor = found.add_factor(size.clone());
        found.append_to_input(0, axis, factor);
        for output in 0..cx.output_count() {
            let Some(own) = cx.output_dims(output) else { continue };
            if own.len() != dims.len() || own[axis] != *size {
                return None;
            }
            found.append_to_output(output, axis, factor);
        }
    }
    Some(found)
}

/// Splits a normalization by the axes before the attribute `axis`. Scale and bias are whole;
/// further outputs have size 1 in the normalized axes.
pub(crate) fn normalized_from_axis(cx: &Operands<'_>) -> Option<Factors> {
    let rank = cx.dims(0)?.len();
    let axis = cx.axis(cx.int("axis")?, rank)?;
    keep_whole(cx, &(axis..rank).collect::<Vec<_>>())
}

/// Splits a normalization by all axes that its attribute `axes` does not list.
pub(crate) fn normalized_over_axes(cx: &Operands<'_>) -> Option<Factors> {
    let rank = cx.dims(0)?.len();
    let axes: Option<Vec<usize>> =
        cx.ints("axes")?.iter().map(|axis| cx.axis(*axis, rank)).collect();
    keep_whole(cx, &axes?)
}

/// Splits all axes but the last two, which hold matrices.
pub(crate) fn matrices(cx: &Operands<'_>) -> Option<Factors> {
    let rank = cx.dims(0)?.len();
    let first = rank.checked_sub(2)?;
    keep_whole(cx, &[first, first + 1])
}

/// Splits `ArgMax` and `ArgMin` by all axes but the one that is searched.
pub(crate) fn arg(cx: &Operands<'_>) -> Option<Factors> {
    let rank = cx.dims(0)?.len();
    let axis = cx.axis(cx.int("axis")?, rank)?;
    split_reduced(cx, &[axis], cx.int("keepdims")? != 0, None)
}

fn split_reduced(
    cx: &Operands<'_>,
    axes: &[usize],
    keeps: bool,
    combine: Option<Combine>,
) -> Option<Factors> {
    let mut found = Factors::whole(cx);
    let mut to = 0;
    for (axis, size) in cx.dims(0)?.iter().enumerate() {
        if axes.contains(&axis) {
            if let Some(combine) = combine {
                let factor = found.add_combined(size.clone(), combine);
                found.append_to_input(0, axis, factor);
            }
            to += usize::from(keeps);
        } else {
            let factor = found.add_factor(size.clone());
            found.append_to_input(0, axis, factor);
            (to < cx.output_dims(0)?.len()).then(|| found.append_to_output(0, to, factor))?;
            to += 1;
        }
    }
    (to == cx.output_dims(0)?.len()).then_some(found)
}

fn reduction(cx: &Operands<'_>, combine: Option<Combine>) -> Option<Factors> {
    let rank = cx.dims(0)?.len();
    let axes: Vec<usize> = match cx.input(1) {
        None => Vec::new(),
        Some(_) => {
            let axes = cx.numbers(1)?.into_iter().map(|axis| cx.axis(axis, rank));
            axes.collect::<Option<Vec<usize>>>()?
        }
    };
    if axes.is_empty() && cx.int("noop_with_empty_axes")? != 0 {
        // Without axes, some reductions still change each element (ReduceSumSquare squares it),
        // which combining does not undo.
        return None;
    }
    let axes = if axes.is_empty() { (0..rank).collect() } else { axes };
    split_reduced(cx, &axes, cx.int("keepdims")? != 0, combine)
}

/// Splits sums, including sums of absolute values or squares.
pub(crate) fn sum(cx: &Operands<'_>) -> Option<Factors> {
    reduction(cx, Some(Combine::Sum))
}

/// Splits products.
pub(crate) fn product(cx: &Operands<'_>) -> Option<Factors> {
    reduction(cx, Some(Combine::Product))
}

/// Splits maxima.
pub(crate) fn max(cx: &Operands<'_>) -> Option<Factors> {
    reduction(cx, Some(Combine::Max))
}

/// Splits minima.
pub(crate) fn min(cx: &Operands<'_>) -> Option<Factors> {
    reduction(cx, Some(Combine::Min))
}

/// Splits a reduction that is a function of a sum. Its reduced axes stay whole in other types than
/// `float` and `double`: partial sums may overflow narrow floats, and integers are rounded at the
/// end.
fn split_function_of_sum(cx: &Operands<'_>, operator: &'static str, then: Then) -> Option<Factors> {
    if !matches!(cx.input(0)?.elem, DataType::Float | DataType::Double) {
        return reduction(cx, None);
    }
    let mut found = reduction(cx, Some(Combine::Sum))?;
    let mut summed = found.factors.iter().filter(|factor| factor.cut != Cut::Parts);
    if then == Then::Divide && summed.any(|factor| factor.size.known().is_none()) {
        // The divisor is unknown.
        return reduction(cx, None);
    }
    found.changes.push(Change::Partly { operator, then });
    Some(found)
}

/// Splits means.
pub(crate) fn mean(cx: &Operands<'_>) -> Option<Factors> {
    split_function_of_sum(cx, "ReduceSum", Then::Divide)
}

/// Splits Euclidean norms.
pub(crate) fn norm(cx: &Operands<'_>) -> Option<Factors> {
    split_function_of_sum(cx, "ReduceSumSquare", Then::Sqrt)
}

/// Splits logarithms of sums.
pub(crate) fn log_sum(cx: &Operands<'_>) -> Option<Factors> {
    split_function_of_sum(cx, "ReduceSum", Then::Log)
}

/// Splits reductions by the axes that are not reduced.
pub(crate) fn whole_axes(cx: &Operands<'_>) -> Option<Factors> {
    reduction(cx, None)
}

/// Splits quantization with one scale for the tensor or for each index of an axis. Has no rule for
/// blocks.
pub(crate) fn quantize(cx: &Operands<'_>) -> Option<Factors> {
    let scale = cx.dims(1)?;
    let mut found = broadcast(cx, 1)?;
    match scale.len() {
        0 => Some(found),
        1 if scale[0] == Dim::Known(1) => Some(found),
        1 => {
            let axis = cx.axis(cx.int("axis")?, cx.dims(0)?.len())?;
            let factor = *found.inputs[0][axis].first()?;
            found.append_to_input(1, 0, factor);
            if cx.dims(2).is_some_and(|dims| dims.len() == 1) {
                found.append_to_input(2, 0, factor);
            }
            Some(found)
        }
        _ => None,
    }
}
