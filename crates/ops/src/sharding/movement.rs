//! Operators that move elements: axes that they leave alone can be split.

use sardonyx_model::Dim;
use sardonyx_tensor::DataType;
use smallvec::SmallVec;

use super::{Change, Combine, Factors, Operands};

/// `Transpose`.
pub(crate) fn transpose(cx: &Operands<'_>) -> Option<Factors> {
    let dims = cx.dims(0)?;
    let mut found = Factors::whole(cx);
    let from: Vec<usize> = match cx.ints("perm") {
        Some(perm) => {
            let axes = perm.iter().map(|axis| cx.axis(*axis, dims.len()));
            axes.collect::<Option<Vec<usize>>>()?
        }
        None => (0..dims.len()).rev().collect(),
    };
    for (to, from) in from.into_iter().enumerate() {
        let factor = found.factor(dims[from].clone());
        found.input(0, from, factor);
        found.output(0, to, factor);
    }
    Some(found)
}

/// The same elements in the same order in other axes. Axes are cut into the factors that both sides
/// have: `[12 * 64]` and `[12, 64]` share 12 and 64.
pub(crate) fn regrouped(cx: &Operands<'_>) -> Option<Factors> {
    let (from, to) = (cx.dims(0)?, cx.output_dims(0)?);
    let mut found = Factors::whole(cx);
    if from.contains(&Dim::Known(0)) {
        return None;
    }
    let (left, right) = (between_open(from), between_open(to));
    let count = left.len().min(right.len());
    let product = |sizes: &[usize]| sizes.iter().product::<usize>();
    let is_alike = |i: usize, j: usize| product(&left[i].1) == product(&right[j].1);
    // From the outermost: axes of numbers with the same product, and the open size after them.
    let mut front = 0;
    while front < count && is_alike(front, front) {
        share(&mut found, &left[front], &right[front]);
        let (own, other) = (end(&left[front]), end(&right[front]));
        front += 1;
        if !share_open(cx, &mut found, own, other) {
            break;
        }
    }
    if front == 0 && left.len() == 1 && right.len() == 1 {
        return None;
    }
    // From the innermost: those, and the open size before them.
    for back in 1..=count - front {
        let (i, j) = (left.len() - back, right.len() - back);
        if !is_alike(i, j) {
            break;
        }
        share(&mut found, &left[i], &right[j]);
        let before = left[i].0.checked_sub(1).zip(right[j].0.checked_sub(1));
        if !before.is_some_and(|(own, other)| share_open(cx, &mut found, own, other)) {
            break;
        }
    }
    Some(fill(found, cx))
}

/// Makes an axis on both sides one factor, if it has the same size there and is no factor yet.
fn share_open(cx: &Operands<'_>, found: &mut Factors, own: usize, other: usize) -> bool {
    let size = cx.dims(0).and_then(|dims| dims.get(own));
    let is_same = size.is_some() && size == cx.output_dims(0).and_then(|dims| dims.get(other));
    let Some(size) = size.filter(|_| is_same) else { return false };
    if !(found.inputs[0][own].is_empty() && found.outputs[0][other].is_empty()) {
        return false;
    }
    let factor = found.factor(size.clone());
    found.input(0, own, factor);
    found.output(0, other, factor);
    true
}

/// The number of an axis, and the sizes of the axes from there on that are numbers.
type Run = (usize, Vec<usize>);

/// The axis after a run.
fn end(run: &Run) -> usize {
    run.0 + run.1.len()
}

/// The axes before, between and after those of open size.
fn between_open(dims: &[Dim]) -> Vec<Run> {
    let mut found = vec![(0, Vec::new())];
    for (axis, size) in dims.iter().enumerate() {
        match (size.size(), found.last_mut()) {
            (Some(size), Some(run)) => run.1.push(size),
            _ => found.push((axis + 1, Vec::new())),
        }
    }
    found
}

/// The factors that axes with the same product share.
fn share(found: &mut Factors, (first, from): &Run, (other, to): &Run) {
    let (mut i, mut j) = (0, 0);
    let (mut left, mut right) = (1, 1);
    // What is left of the two axes that are being matched, from the outside.
    loop {
        while left == 1 && i < from.len() {
            left = from[i];
            i += 1;
        }
        while right == 1 && j < to.len() {
            right = to[j];
            j += 1;
        }
        if left == 1 || right == 1 {
            break;
        }
        let shared = left.min(right);
        if left % shared == 0 && right % shared == 0 {
            let factor = found.factor(shared);
            found.input(0, first + i - 1, factor);
            found.output(0, other + j - 1, factor);
            (left, right) = (left / shared, right / shared);
            continue;
        }
        // The factors of these axes are not shared from here until both sides end together.
        let (mut under, mut over) = (left, right);
        while under != over {
            if under < over {
                under *= from[i];
                i += 1;
            } else {
                over *= to[j];
                j += 1;
            }
        }
        (left, right) = (1, 1);
    }
}

/// Takes factors away from axes that are not made of factors alone, apart from those outside of
/// what is not shared.
fn fill(mut found: Factors, cx: &Operands<'_>) -> Factors {
    let factors = found.factors.clone();
    let size = |axis: &[usize]| {
        let sizes = axis.iter().map(|factor| factors[*factor].size.size());
        sizes.product::<Option<usize>>()
    };
    let mut rest = Vec::new();
    let operands = [(&found.inputs[0], cx.dims(0)), (&found.outputs[0], cx.output_dims(0))];
    for (which, (axes, dims)) in operands.into_iter().enumerate() {
        for (axis, whole) in dims.into_iter().flatten().enumerate() {
            // An open size is one factor.
            let Some((whole, own)) = whole.size().zip(size(&axes[axis])) else { continue };
            if !axes[axis].is_empty() && own != whole {
                rest.push((which, axis, whole / own));
            }
        }
    }
    for (which, axis, size) in rest {
        let factor = found.fixed(size);
        if which == 0 { found.input(0, axis, factor) } else { found.output(0, axis, factor) }
    }
    found
}

/// `Reshape`, whose second input has the sizes.
pub(crate) fn reshape(cx: &Operands<'_>) -> Option<Factors> {
    let mut found = regrouped(cx)?;
    found.changes.push(Change::Sizes { input: 1, output: 0, zeros: Some("allowzero") });
    Some(found)
}

/// `Expand`: axes of the result, which the input has unless it broadcasts.
pub(crate) fn expand(cx: &Operands<'_>) -> Option<Factors> {
    let mut found = super::elements::elements_of_first(cx)?;
    found.changes.push(Change::Sizes { input: 1, output: 0, zeros: None });
    Some(found)
}

/// Axes of the first input and of all outputs that are not `whole`.
fn untouched(cx: &Operands<'_>, whole: &dyn Fn(usize) -> bool) -> Option<Factors> {
    let dims = cx.dims(0)?;
    let mut found = Factors::whole(cx);
    for (axis, size) in dims.iter().enumerate().filter(|(axis, _)| !whole(*axis)) {
        let factor = found.factor(size.clone());
        found.input(0, axis, factor);
        for output in 0..cx.output_count() {
            let Some(own) = cx.output_dims(output) else { continue };
            (own.get(axis) == Some(size)).then(|| found.output(output, axis, factor))?;
        }
    }
    Some(found)
}

/// `Split`: all axes but the one that is split. Outputs of one size can have the same part each, of
/// that axis too: queries, keys and values have heads.
pub(crate) fn split(cx: &Operands<'_>) -> Option<Factors> {
    let dims = cx.dims(0)?;
    let along = cx.axis(cx.int("axis")?, dims.len())?;
    let mut found = untouched(cx, &|axis| axis == along)?;
    let count = cx.output_count();
    let size = &cx.output_dims(0)?[along];
    let are_equal =
        (1..count).all(|output| cx.output_dims(output).is_some_and(|own| own[along] == *size));
    let size = size.size().filter(|size| *size > 0 && dims[along].size() == Some(size * count));
    if let Some(size) = size.filter(|_| are_equal) {
        let (parts, within) = (found.fixed(count), found.factor(size));
        found.input(0, along, parts);
        found.input(0, along, within);
        (0..count).for_each(|output| found.output(output, along, within));
        if cx.input(1).is_some() {
            found.changes.push(Change::Lengths { input: 1, axis: along });
        }
    }
    Some(found)
}

/// `Concat`: all axes but the one along which tensors are joined.
pub(crate) fn concat(cx: &Operands<'_>) -> Option<Factors> {
    let dims = cx.output_dims(0)?;
    let along = cx.axis(cx.int("axis")?, dims.len())?;
    let mut found = Factors::whole(cx);
    for (axis, size) in dims.iter().enumerate().filter(|(axis, _)| *axis != along) {
        let factor = found.factor(size.clone());
        found.output(0, axis, factor);
        for input in 0..cx.input_count() {
            (cx.dims(input)?.get(axis) == Some(size)).then(|| found.input(input, axis, factor))?;
        }
    }
    Some(found)
}

/// `Slice`: axes of which everything is taken, in order.
pub(crate) fn slice(cx: &Operands<'_>) -> Option<Factors> {
    let (starts, ends) = (cx.known(1)?, cx.known(2)?);
    let rank = cx.dims(0)?.len();
    let count = i64::try_from(starts.len()).ok()?;
    let axes = match cx.input(3) {
        None => (0..count).collect(),
        Some(_) => cx.numbers(3)?,
    };
    let steps = match cx.input(4) {
        None => vec![1; starts.len()],
        Some(_) => cx.numbers(4)?,
    };
    let mut touched: SmallVec<[bool; 8]> = smallvec::smallvec![false; rank];
    for (index, axis) in axes.iter().enumerate() {
        let axis = cx.axis(*axis, rank)?;
        let size = &cx.dims(0)?[axis];
        let (start, end, step) = (starts.get(index)?, ends.get(index)?, *steps.get(index)?);
        let reaches_end = match (end.known(), size.known()) {
            (Some(end), Some(size)) => end >= size,
            // What exporters write for all that there is.
            (Some(end), None) => end >= i64::from(i32::MAX),
            _ => end == size,
        };
        // Also where the size of a part stands in place of that of the whole.
        touched[axis] = !(*start == Dim::Known(0) && reaches_end && step == 1);
    }
    untouched(cx, &|axis| touched[axis])
}

/// `Pad`: axes to which nothing is added.
pub(crate) fn pad(cx: &Operands<'_>) -> Option<Factors> {
    let (from, to) = (cx.dims(0)?, cx.output_dims(0)?);
    let pads = cx.known(1)?;
    let rank = from.len();
    let axes: Vec<usize> = match cx.input(3) {
        None => (0..rank).collect(),
        Some(_) => {
            let axes = cx.numbers(3)?.into_iter().map(|axis| cx.axis(axis, rank));
            axes.collect::<Option<Vec<usize>>>()?
        }
    };
    let mut touched: SmallVec<[bool; 8]> = smallvec::smallvec![false; rank];
    for (index, axis) in axes.iter().enumerate() {
        let ends = [index, axes.len() + index].map(|at| pads.get(at));
        touched[*axis] = ends.iter().any(|pad| *pad != Some(&Dim::Known(0)));
    }
    (from.len() == to.len()).then_some(())?;
    untouched(cx, &|axis| touched[axis])
}

/// `Tile`: axes that are not repeated.
pub(crate) fn tile(cx: &Operands<'_>) -> Option<Factors> {
    let repeats = cx.known(1)?;
    untouched(cx, &|axis| repeats.get(axis) != Some(&Dim::Known(1)))
}

/// `Gather`: axes of the data and of the indices. Where the axis that is looked up is split, each
/// device takes what it has, and zeros for the rest; this is no more work to combine than to send
/// the data if no more is taken than there is.
pub(crate) fn gather(cx: &Operands<'_>) -> Option<Factors> {
    let (data, indices) = (cx.dims(0)?, cx.dims(1)?);
    let along = cx.axis(cx.int("axis")?, data.len())?;
    let mut found = Factors::whole(cx);
    for (axis, size) in data.iter().enumerate().filter(|(axis, _)| *axis != along) {
        let factor = found.factor(size.clone());
        found.input(0, axis, factor);
        let to = if axis < along { axis } else { axis + indices.len() - 1 };
        found.output(0, to, factor);
    }
    for (axis, size) in indices.iter().enumerate() {
        let factor = found.factor(size.clone());
        found.input(1, axis, factor);
        found.output(0, along + axis, factor);
    }
    let elements = |dims: &[Dim]| dims.iter().map(Dim::size).product::<Option<usize>>();
    let taken = elements(cx.output_dims(0)?);
    let adds = matches!(
        cx.input(0)?.elem,
        DataType::Float
            | DataType::Double
            | DataType::Float16
            | DataType::Bfloat16
            | DataType::Int32
            | DataType::Int64
    );
    // Open sizes are those of indices, mostly, and data are a table.
    if adds && taken.zip(elements(data)).is_none_or(|(taken, all)| taken <= all) {
        let rows = found.combined(data[along].clone(), Combine::Sum);
        found.input(0, along, rows);
        found.changes.push(Change::Own { axis: along });
    }
    Some(found)
}

/// `GatherElements`: all axes but the one that is looked up, where data and indices are alike.
pub(crate) fn gather_elements(cx: &Operands<'_>) -> Option<Factors> {
    let (data, indices) = (cx.dims(0)?, cx.dims(1)?);
    let along = cx.axis(cx.int("axis")?, data.len())?;
    let mut found = Factors::whole(cx);
    for (axis, size) in indices.iter().enumerate() {
        let factor = found.factor(size.clone());
        if axis == along {
            found.input(1, axis, factor);
            found.output(0, axis, factor);
        } else if data.get(axis) == Some(size) {
            found.input(0, axis, factor);
            found.input(1, axis, factor);
            found.output(0, axis, factor);
        }
    }
    Some(found)
}

/// `ScatterElements`: all axes but the one along which elements are written, where all are alike.
pub(crate) fn scatter_elements(cx: &Operands<'_>) -> Option<Factors> {
    let (data, indices) = (cx.dims(0)?, cx.dims(1)?);
    let along = cx.axis(cx.int("axis")?, data.len())?;
    let mut found = Factors::whole(cx);
    for (axis, size) in data.iter().enumerate() {
        if axis != along && indices.get(axis) == Some(size) {
            let factor = found.factor(size.clone());
            (0..3).for_each(|input| found.input(input, axis, factor));
            found.output(0, axis, factor);
        }
    }
    Some(found)
}

/// `Shape`: the sizes of the whole, whatever a device has of it.
pub(crate) fn shape(cx: &Operands<'_>) -> Option<Factors> {
    let dims = cx.dims(0)?;
    let mut found = Factors::whole(cx);
    for (axis, size) in dims.iter().enumerate() {
        let factor = found.factor(size.clone());
        found.input(0, axis, factor);
    }
    let rank = i64::try_from(dims.len()).ok()?;
    let start = cx.int("start")?;
    let start = if start < 0 { start + rank } else { start };
    let start = usize::try_from(start.clamp(0, rank)).ok()?;
    found.changes.push(Change::Shape { start });
    Some(found)
}

/// `OneHot`: axes of the indices.
pub(crate) fn one_hot(cx: &Operands<'_>) -> Option<Factors> {
    let (indices, out) = (cx.dims(0)?, cx.output_dims(0)?);
    let along = cx.axis(cx.int("axis")?, out.len())?;
    let mut found = Factors::whole(cx);
    for (axis, size) in indices.iter().enumerate() {
        let factor = found.factor(size.clone());
        found.input(0, axis, factor);
        found.output(0, if axis < along { axis } else { axis + 1 }, factor);
    }
    Some(found)
}
