//! Rules for operators that move elements. Axes whose order they keep can be split.

use sardonyx_model::Dim;
use sardonyx_tensor::DataType;
use smallvec::SmallVec;

use super::{Change, Combine, Factors, Operands};

/// Splits `Transpose` by all axes.
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
        let factor = found.add_factor(dims[from].clone());
        found.append_to_input(0, from, factor);
        found.append_to_output(0, to, factor);
    }
    Some(found)
}

/// Splits an operator that keeps the order of elements and changes their axes. Axes are cut into
/// the factors that both sides share: `[12 * 64]` and `[12, 64]` share 12 and 64.
pub(crate) fn regroup(cx: &Operands<'_>) -> Option<Factors> {
    let (from, to) = (cx.dims(0)?, cx.output_dims(0)?);
    let mut found = Factors::whole(cx);
    if from.contains(&Dim::Known(0)) {
        return None;
    }
    let (left, right) = (find_runs(from), find_runs(to));
    let count = left.len().min(right.len());
    // From the outermost: runs of known sizes with equal products, and the open size after each.
    let mut front = 0;
    while front < count && left[front].product() == right[front].product() {
        share_factors(&mut found, &left[front], &right[front]);
        let (own, other) = (left[front].end(), right[front].end());
        front += 1;
        if !share_open(cx, &mut found, own, other) {
            break;
        }
    }
    if front == 0 && left.len() == 1 && right.len() == 1 {
        return None;
    }
    // From the innermost: such runs, and the open size before each.
    for back in 1..=count - front {
        let (i, j) = (left.len() - back, right.len() - back);
        if left[i].product() != right[j].product() {
            break;
        }
        share_factors(&mut found, &left[i], &right[j]);
        let before = left[i].first.checked_sub(1).zip(right[j].first.checked_sub(1));
        if !before.is_some_and(|(own, other)| share_open(cx, &mut found, own, other)) {
            break;
        }
    }
    Some(complete_axes(found, cx))
}

/// Makes an axis of both sides one factor if its size is equal there and it has no factor yet.
/// Returns whether it did.
fn share_open(cx: &Operands<'_>, found: &mut Factors, own: usize, other: usize) -> bool {
    let size = cx.dims(0).and_then(|dims| dims.get(own));
    let is_same = size.is_some() && size == cx.output_dims(0).and_then(|dims| dims.get(other));
    let Some(size) = size.filter(|_| is_same) else { return false };
    if !(found.inputs[0][own].is_empty() && found.outputs[0][other].is_empty()) {
        return false;
    }
    let factor = found.add_factor(size.clone());
    found.append_to_input(0, own, factor);
    found.append_to_output(0, other, factor);
    true
}

/// Consecutive axes of known size.
struct Run {
    /// Index of the first axis.
    first: usize,
    /// Sizes of the axes.
    sizes: Vec<usize>,
}

impl Run {
    /// Returns the number of elements along the axes.
    fn product(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Returns the axis after the last one.
    fn end(&self) -> usize {
        self.first + self.sizes.len()
    }
}

/// Splits axes into the runs of known sizes before, between and after those of open size.
fn find_runs(dims: &[Dim]) -> Vec<Run> {
    let mut found = vec![Run { first: 0, sizes: Vec::new() }];
    for (axis, size) in dims.iter().enumerate() {
        match (size.size(), found.last_mut()) {
            (Some(size), Some(run)) => run.sizes.push(size),
            _ => found.push(Run { first: axis + 1, sizes: Vec::new() }),
        }
    }
    found
}

/// Adds the factors that two runs with the same product share.
fn share_factors(found: &mut Factors, input: &Run, output: &Run) {
    let (from, to) = (&input.sizes, &output.sizes);
    let (mut i, mut j) = (0, 0);
    let (mut left, mut right) = (1, 1);
    // Parts of the two current axes that are not matched yet, from the outside.
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
            let factor = found.add_factor(shared);
            found.append_to_input(0, input.first + i - 1, factor);
            found.append_to_output(0, output.first + j - 1, factor);
            (left, right) = (left / shared, right / shared);
            continue;
        }
        // The two axes have no common factor: skips axes until both products are equal again.
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

/// Completes axes whose factors do not multiply to their size by a factor that is never cut.
fn complete_axes(mut found: Factors, cx: &Operands<'_>) -> Factors {
    let mut rest = Vec::new();
    let operands = [(&found.inputs[0], cx.dims(0)), (&found.outputs[0], cx.output_dims(0))];
    for (which, (axes, dims)) in operands.into_iter().enumerate() {
        for (axis, whole) in dims.into_iter().flatten().enumerate() {
            // The factor of an axis of open size is complete.
            let sizes = axes[axis].iter().map(|factor| found.factors[*factor].size.size());
            let own = sizes.product::<Option<usize>>();
            let Some((whole, own)) = whole.size().zip(own) else { continue };
            if !axes[axis].is_empty() && own != whole {
                rest.push((which, axis, whole / own));
            }
        }
    }
    for (which, axis, size) in rest {
        let factor = found.add_fixed(size);
        if which == 0 {
            found.append_to_input(0, axis, factor)
        } else {
            found.append_to_output(0, axis, factor)
        }
    }
    found
}

/// Splits `Reshape`, whose second input holds the sizes.
pub(crate) fn reshape(cx: &Operands<'_>) -> Option<Factors> {
    let mut found = regroup(cx)?;
    found.changes.push(Change::Sizes { input: 1, output: 0, zeros: Some("allowzero") });
    Some(found)
}

/// Splits `Expand` by the axes of the result. The input has a factor unless it broadcasts along the
/// axis.
pub(crate) fn expand(cx: &Operands<'_>) -> Option<Factors> {
    let mut found = super::elements::elements_of_first(cx)?;
    found.changes.push(Change::Sizes { input: 1, output: 0, zeros: None });
    Some(found)
}

/// Splits the axes of the first input and of all outputs except those that are `whole`.
fn split_unless(cx: &Operands<'_>, whole: &dyn Fn(usize) -> bool) -> Option<Factors> {
    let dims = cx.dims(0)?;
    let mut found = Factors::whole(cx);
    for (axis, size) in dims.iter().enumerate().filter(|(axis, _)| !whole(*axis)) {
        let factor = found.add_factor(size.clone());
        found.append_to_input(0, axis, factor);
        for output in 0..cx.output_count() {
            let Some(own) = cx.output_dims(output) else { continue };
            (own.get(axis) == Some(size)).then(|| found.append_to_output(output, axis, factor))?;
        }
    }
    Some(found)
}

/// Splits `Split` by all axes but the one that is split. Outputs of equal sizes can also be cut
/// along that axis, each at the same places, so heads of queries, keys and values stay split.
pub(crate) fn split(cx: &Operands<'_>) -> Option<Factors> {
    let dims = cx.dims(0)?;
    let along = cx.axis(cx.int("axis")?, dims.len())?;
    let mut found = split_unless(cx, &|axis| axis == along)?;
    let count = cx.output_count();
    let size = &cx.output_dims(0)?[along];
    let are_equal =
        (1..count).all(|output| cx.output_dims(output).is_some_and(|own| own[along] == *size));
    let size = size.size().filter(|size| *size > 0 && dims[along].size() == Some(size * count));
    if let Some(size) = size.filter(|_| are_equal) {
        let (parts, within) = (found.add_fixed(count), found.add_factor(size));
        found.append_to_input(0, along, parts);
        found.append_to_input(0, along, within);
        (0..count).for_each(|output| found.append_to_output(output, along, within));
        if cx.input(1).is_some() {
            found.changes.push(Change::Lengths { input: 1, axis: along });
        }
    }
    Some(found)
}

/// Splits `Concat` by all axes but the one along which tensors are joined.
pub(crate) fn concat(cx: &Operands<'_>) -> Option<Factors> {
    let dims = cx.output_dims(0)?;
    let along = cx.axis(cx.int("axis")?, dims.len())?;
    let mut found = Factors::whole(cx);
    for (axis, size) in dims.iter().enumerate().filter(|(axis, _)| *axis != along) {
        let factor = found.add_factor(size.clone());
        found.append_to_output(0, axis, factor);
        for input in 0..cx.input_count() {
            (cx.dims(input)?.get(axis) == Some(size))
                .then(|| found.append_to_input(input, axis, factor))?;
        }
    }
    Some(found)
}

/// Splits `Slice` by the axes that are taken whole and in order.
pub(crate) fn slice(cx: &Operands<'_>) -> Option<Factors> {
    let (starts, ends) = (cx.known_elements(1)?, cx.known_elements(2)?);
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
            // Exporters write a large number for the end of an axis of unknown size.
            (Some(end), None) => end >= i64::from(i32::MAX),
            _ => end == size,
        };
        // A start of 0 and an end that is the size remain valid for a part of the axis.
        touched[axis] = !(*start == Dim::Known(0) && reaches_end && step == 1);
    }
    split_unless(cx, &|axis| touched[axis])
}

/// Splits `Pad` by the axes without padding.
pub(crate) fn pad(cx: &Operands<'_>) -> Option<Factors> {
    let (from, to) = (cx.dims(0)?, cx.output_dims(0)?);
    let pads = cx.known_elements(1)?;
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
    split_unless(cx, &|axis| touched[axis])
}

/// Splits `Tile` by the axes that are not repeated.
pub(crate) fn tile(cx: &Operands<'_>) -> Option<Factors> {
    let repeats = cx.known_elements(1)?;
    split_unless(cx, &|axis| repeats.get(axis) != Some(&Dim::Known(1)))
}

/// Returns the number of elements of a tensor, or `None` if a size is open.
fn count_elements(dims: &[Dim]) -> Option<usize> {
    dims.iter().map(Dim::size).product()
}

/// Splits `Gather` by the axes of the data and of the indices. If the axis that is indexed is
/// split, each device returns zeros for elements that it does not hold, and the results are added.
/// That is done only if the result has no more elements than the data, since combining then moves
/// no more than sending the data would.
pub(crate) fn gather(cx: &Operands<'_>) -> Option<Factors> {
    let (data, indices) = (cx.dims(0)?, cx.dims(1)?);
    let along = cx.axis(cx.int("axis")?, data.len())?;
    let mut found = Factors::whole(cx);
    for (axis, size) in data.iter().enumerate().filter(|(axis, _)| *axis != along) {
        let factor = found.add_factor(size.clone());
        found.append_to_input(0, axis, factor);
        let to = if axis < along { axis } else { axis + indices.len() - 1 };
        found.append_to_output(0, to, factor);
    }
    for (axis, size) in indices.iter().enumerate() {
        let factor = found.add_factor(size.clone());
        found.append_to_input(1, axis, factor);
        found.append_to_output(0, along + axis, factor);
    }
    let taken = count_elements(cx.output_dims(0)?);
    let adds = matches!(
        cx.input(0)?.elem,
        DataType::Float
            | DataType::Double
            | DataType::Float16
            | DataType::Bfloat16
            | DataType::Int32
            | DataType::Int64
    );
    // Open sizes mostly belong to indices, and the data is a table.
    if adds && taken.zip(count_elements(data)).is_none_or(|(taken, all)| taken <= all) {
        let rows = found.add_combined(data[along].clone(), Combine::Sum);
        found.append_to_input(0, along, rows);
        found.changes.push(Change::Own { axis: along });
    }
    Some(found)
}

/// Splits `GatherElements` by the indexed axis of the indices, and by other axes whose sizes agree
/// in data and indices.
pub(crate) fn gather_elements(cx: &Operands<'_>) -> Option<Factors> {
    let (data, indices) = (cx.dims(0)?, cx.dims(1)?);
    let along = cx.axis(cx.int("axis")?, data.len())?;
    let mut found = Factors::whole(cx);
    for (axis, size) in indices.iter().enumerate() {
        let factor = found.add_factor(size.clone());
        if axis == along {
            found.append_to_input(1, axis, factor);
            found.append_to_output(0, axis, factor);
        } else if data.get(axis) == Some(size) {
            found.append_to_input(0, axis, factor);
            found.append_to_input(1, axis, factor);
            found.append_to_output(0, axis, factor);
        }
    }
    Some(found)
}

/// Splits `ScatterElements` by the axes other than the indexed one whose sizes agree in all inputs.
pub(crate) fn scatter_elements(cx: &Operands<'_>) -> Option<Factors> {
    let (data, indices) = (cx.dims(0)?, cx.dims(1)?);
    let along = cx.axis(cx.int("axis")?, data.len())?;
    let mut found = Factors::whole(cx);
    for (axis, size) in data.iter().enumerate() {
        if axis != along && indices.get(axis) == Some(size) {
            let factor = found.add_factor(size.clone());
            (0..3).for_each(|input| found.append_to_input(input, axis, factor));
            found.append_to_output(0, axis, factor);
        }
    }
    Some(found)
}

/// Splits all axes of the input of `Shape`. The result holds the sizes of the whole tensor.
pub(crate) fn shape(cx: &Operands<'_>) -> Option<Factors> {
    let dims = cx.dims(0)?;
    let mut found = Factors::whole(cx);
    for (axis, size) in dims.iter().enumerate() {
        let factor = found.add_factor(size.clone());
        found.append_to_input(0, axis, factor);
    }
    let rank = i64::try_from(dims.len()).ok()?;
    let start = cx.int("start")?;
    let start = if start < 0 { start + rank } else { start };
    let start = usize::try_from(start.clamp(0, rank)).ok()?;
    found.changes.push(Change::Shape { start });
    Some(found)
}

/// Splits `OneHot` by the axes of the indices.
pub(crate) fn one_hot(cx: &Operands<'_>) -> Option<Factors> {
    let (indices, out) = (cx.dims(0)?, cx.output_dims(0)?);
    let along = cx.axis(cx.int("axis")?, out.len())?;
    let mut found = Factors::whole(cx);
    for (axis, size) in indices.iter().enumerate() {
        let factor = found.add_factor(size.clone());
        found.append_to_input(0, axis, factor);
        found.append_to_output(0, if axis < along { axis } else { axis + 1 }, factor);
    }
    Some(found)
}
