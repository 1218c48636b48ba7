//! Operators on elements, on axes one by one, and reductions.

use sardonyx_model::Dim;
use sardonyx_tensor::DataType;

use super::{Change, Combine, Cut, Factor, Factors, Operands, Then};

/// Element by element, broadcasting: each axis of the outputs is a factor, and inputs have those
/// along which they do not broadcast.
pub(crate) fn elementwise(cx: &Operands<'_>) -> Option<Factors> {
    broadcast(cx, cx.input_count())
}

/// The same of the first input; others are whole, whatever their sizes.
pub(crate) fn elements_of_first(cx: &Operands<'_>) -> Option<Factors> {
    broadcast(cx, 1)
}

fn broadcast(cx: &Operands<'_>, inputs: usize) -> Option<Factors> {
    let dims = cx.output_dims(0)?;
    let mut found = Factors::whole(cx);
    let axes: Vec<usize> = dims.iter().map(|size| found.factor(size.clone())).collect();
    for output in 0..cx.output_count() {
        match cx.output_dims(output) {
            Some(same) if same == dims => {
                axes.iter()
                    .enumerate()
                    .for_each(|(axis, factor)| found.output(output, axis, *factor));
            }
            Some(_) => return None,
            None => {}
        }
    }
    for input in 0..inputs {
        let Some(own) = cx.dims(input) else { continue };
        let before = dims.len().checked_sub(own.len())?;
        for axis in 0..own.len() {
            found.broadcast(cx, (input, axis), axes[before + axis])?;
        }
    }
    Some(found)
}

/// Inference of Dropout: element by element. Training draws random numbers for the whole tensor.
pub(crate) fn dropout(cx: &Operands<'_>) -> Option<Factors> {
    match (cx.input(2), cx.known(2)) {
        (None, _) | (_, Some([Dim::Known(0)])) => elements_of_first(cx),
        _ => None,
    }
}

/// The first input is whole along one axis, which an attribute names; all else has its form.
pub(crate) fn along_axis(cx: &Operands<'_>) -> Option<Factors> {
    except(cx, &[cx.axis(cx.int("axis")?, cx.dims(0)?.len())?])
}

/// The same where the second input names the axis.
pub(crate) fn along_axis_input(cx: &Operands<'_>) -> Option<Factors> {
    let [axis] = cx.known(1)? else { return None };
    except(cx, &[cx.axis(axis.known()?, cx.dims(0)?.len())?])
}

/// The first input and all outputs have the same axes, of which some are whole in both, and in
/// outputs may have other sizes. Other inputs are whole.
fn except(cx: &Operands<'_>, whole: &[usize]) -> Option<Factors> {
    let dims = cx.dims(0)?;
    let mut found = Factors::whole(cx);
    for (axis, size) in dims.iter().enumerate() {
        if whole.contains(&axis) {
            continue;
        }
        let factor = found.factor(size.clone());
        found.input(0, axis, factor);
        for output in 0..cx.output_count() {
            let Some(own) = cx.output_dims(output) else { continue };
            if own.len() != dims.len() || own[axis] != *size {
                return None;
            }
            found.output(output, axis, factor);
        }
    }
    Some(found)
}

/// Normalization over the last axes, from the one that an attribute names. Scale and bias are
/// whole; further outputs have size 1 there.
pub(crate) fn normalized_from_axis(cx: &Operands<'_>) -> Option<Factors> {
    let rank = cx.dims(0)?.len();
    let axis = cx.axis(cx.int("axis")?, rank)?;
    except(cx, &(axis..rank).collect::<Vec<_>>())
}

/// Normalization over the axes that an attribute lists.
pub(crate) fn normalized_over_axes(cx: &Operands<'_>) -> Option<Factors> {
    let rank = cx.dims(0)?.len();
    let axes: Option<Vec<usize>> =
        cx.ints("axes")?.iter().map(|axis| cx.axis(*axis, rank)).collect();
    except(cx, &axes?)
}

/// Only matrices of the last two axes are whole.
pub(crate) fn matrices(cx: &Operands<'_>) -> Option<Factors> {
    let rank = cx.dims(0)?.len();
    let first = rank.checked_sub(2)?;
    except(cx, &[first, first + 1])
}

/// The largest or smallest along an axis, by their places.
pub(crate) fn arg(cx: &Operands<'_>) -> Option<Factors> {
    let rank = cx.dims(0)?.len();
    let axis = cx.axis(cx.int("axis")?, rank)?;
    reduced(cx, &[axis], cx.int("keepdims")? != 0, None)
}

fn reduced(
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
                let factor = found.combined(size.clone(), combine);
                found.input(0, axis, factor);
            }
            to += usize::from(keeps);
        } else {
            let factor = found.factor(size.clone());
            found.input(0, axis, factor);
            (to < cx.output_dims(0)?.len()).then(|| found.output(0, to, factor))?;
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
        // What some reductions do to each element is not undone by combining.
        return None;
    }
    let axes = if axes.is_empty() { (0..rank).collect() } else { axes };
    reduced(cx, &axes, cx.int("keepdims")? != 0, combine)
}

/// Sums, also of absolute values or squares.
pub(crate) fn sum(cx: &Operands<'_>) -> Option<Factors> {
    reduction(cx, Some(Combine::Sum))
}

/// Products.
pub(crate) fn product(cx: &Operands<'_>) -> Option<Factors> {
    reduction(cx, Some(Combine::Product))
}

/// The largest.
pub(crate) fn max(cx: &Operands<'_>) -> Option<Factors> {
    reduction(cx, Some(Combine::Max))
}

/// The smallest.
pub(crate) fn min(cx: &Operands<'_>) -> Option<Factors> {
    reduction(cx, Some(Combine::Min))
}

/// A reduction that is made of sums. Sums of narrow floats may be too large for their type, and
/// integers round in the end: what these are reduced over is whole.
fn of_sums(cx: &Operands<'_>, operator: &'static str, then: Then) -> Option<Factors> {
    if !matches!(cx.input(0)?.elem, DataType::Float | DataType::Double) {
        return reduction(cx, None);
    }
    let mut found = reduction(cx, Some(Combine::Sum))?;
    let is_open = |factor: &Factor| factor.cut != Cut::Parts && factor.size.known().is_none();
    if then == Then::Divide && found.factors.iter().any(is_open) {
        // The number to divide by is not known.
        return reduction(cx, None);
    }
    found.changes.push(Change::Partly { operator, then });
    Some(found)
}

/// Means.
pub(crate) fn mean(cx: &Operands<'_>) -> Option<Factors> {
    of_sums(cx, "ReduceSum", Then::Divide)
}

/// Euclidean norms.
pub(crate) fn norm(cx: &Operands<'_>) -> Option<Factors> {
    of_sums(cx, "ReduceSumSquare", Then::Sqrt)
}

/// Logarithms of sums.
pub(crate) fn log_sum(cx: &Operands<'_>) -> Option<Factors> {
    of_sums(cx, "ReduceSum", Then::Log)
}

/// Reductions whose axes are whole.
pub(crate) fn whole_axes(cx: &Operands<'_>) -> Option<Factors> {
    reduction(cx, None)
}

/// Quantization: one scale for the tensor, or one for each index of an axis. Blocks are whole.
pub(crate) fn quantized(cx: &Operands<'_>) -> Option<Factors> {
    let scale = cx.dims(1)?;
    let mut found = broadcast(cx, 1)?;
    match scale.len() {
        0 => Some(found),
        1 if scale[0] == Dim::Known(1) => Some(found),
        1 => {
            let axis = cx.axis(cx.int("axis")?, cx.dims(0)?.len())?;
            let factor = *found.inputs[0][axis].first()?;
            found.input(1, 0, factor);
            if cx.dims(2).is_some_and(|dims| dims.len() == 1) {
                found.input(2, 0, factor);
            }
            Some(found)
        }
        _ => None,
    }
}
