//! Weight gradient fusion: computes the gradient of the weights of a convolution in one step.
//!
//! In nodes of the standard this gradient is a convolution with images and channels exchanged: both
//! operands are transposed, the gradient of the output acts as weights, and the result is
//! transposed back. Elements beyond the last stride are sliced off. A convolution with a kernel as
//! large as an image reads that kernel again for each of few outputs; the fused step computes the
//! sums in another order.
//!
//! This runs before other rewrites of convolutions, which would change this one.

use sardonyx_tensor::{DataType, Dims};

use super::{Note, Readers, put_steps, take_steps};
use crate::program::{
    Conv, Move, MoveKind, Op, Padding, Program, Slot, Step, WeightGradient, Window,
};

/// Fuses each such convolution with the steps after it.
pub(crate) fn run(program: &mut Program) -> Vec<Note> {
    let mut notes = Vec::new();
    if !program.steps.iter().any(|step| matches!(step.op, Op::Conv(_))) {
        return notes;
    }
    let readers = Readers::new(program);
    let makers = program.makers();
    let mut steps = take_steps(program);
    for index in 0..steps.len() {
        let maker = |slot: Slot| makers[slot.index()].and_then(|at| steps[at].as_ref());
        let Some(gradient) = find(program, &steps, index, maker) else { continue };
        // The transpose of the result, and the slice after it.
        let Some(transpose) = only_reader(&steps, &readers, index) else { continue };
        let last = match only_reader(&steps, &readers, transpose) {
            Some(slice) if cuts_ends(program, &steps[slice]) => Some(slice),
            _ => None,
        };
        let at = last.unwrap_or(transpose);
        let Some(window) = window(program, &steps[transpose], &steps[at], gradient.window) else {
            continue;
        };
        let replaced = [Some(index), last.map(|_| transpose)].into_iter().flatten();
        let before: Vec<Step> = replaced.filter_map(|place| steps[place].take()).collect();
        let Some(last) = &mut steps[at] else { continue };
        for step in before {
            notes.push(Note::fused(last, &step));
            last.origins.extend(step.origins);
        }
        // The node that multiplies names the step.
        last.origins.rotate_left(1);
        last.op = Op::WeightGradient(Box::new(WeightGradient { window, ..gradient }));
    }
    put_steps(program, steps);
    notes
}

/// Returns the only reader of the step at `index`.
fn only_reader(steps: &[Option<Step>], readers: &Readers, index: usize) -> Option<usize> {
    let &[Some(result)] = &steps[index].as_ref()?.outputs[..] else { return None };
    match readers.readers(result) {
        &[reader] if reader != u32::MAX => Some(reader as usize),
        _ => None,
    }
}

/// Returns the gradient that a convolution of transposed operands computes, with the window of that
/// convolution.
fn find<'s>(
    program: &Program,
    steps: &'s [Option<Step>],
    index: usize,
    maker: impl Fn(Slot) -> Option<&'s Step>,
) -> Option<WeightGradient> {
    let Op::Conv(conv) = &steps[index].as_ref()?.op else { return None };
    let Conv { elem: DataType::Float, group: 1, bias: None, expansion: None, .. } = **conv else {
        return None;
    };
    let window = conv.window.fixed().filter(|_| conv.takes_stages())?;
    let is_explicit = matches!(window.padding, Padding::Explicit(..));
    if !conv.epilogue.0.is_empty() || !is_explicit || program.is_constant(conv.weights) {
        return None;
    }
    let swapped = |slot: Slot| {
        let step = maker(slot)?;
        if swaps(&step.op) { step.op.operands().first().copied().flatten() } else { None }
    };
    let (x, dy) = (swapped(conv.x)?, swapped(conv.weights)?);
    Some(WeightGradient { x, dy, window: window.clone() })
}

/// Whether an operation exchanges the first two axes of images.
fn swaps(op: &Op) -> bool {
    let Op::Move(moved) = op else { return false };
    let swaps = |order: &Dims| {
        let rest = (2..order.len()).all(|axis| order[axis] == axis);
        order.len() >= 3 && order[..2] == [1, 0] && rest
    };
    moved.kind.order().is_some_and(swaps)
}

/// Returns the window of the original convolution, whose strides are the dilations of the
/// gradient's; `transpose` must transpose the result to the weights, and `last` outputs them.
fn window(
    program: &Program,
    transpose: &Option<Step>,
    last: &Option<Step>,
    window: Window,
) -> Option<Window> {
    if !swaps(&transpose.as_ref()?.op) {
        return None;
    }
    let result = last.as_ref()?.outputs.first().copied().flatten()?;
    let sizes: Option<Vec<usize>> = program.shape(result)?.iter().map(|dim| dim.size()).collect();
    let kernel = sizes?.split_off(2);
    let fits = kernel.len() == window.kernel.len() && !kernel.contains(&0);
    let Window { strides, dilations, padding, .. } = window;
    let (strides, dilations) = (dilations, strides);
    fits.then_some(Window { kernel, strides, dilations, padding, ceil: false, cut: false })
}

/// Whether a step keeps the first elements of spatial axes, and all of the others.
fn cuts_ends(program: &Program, step: &Option<Step>) -> bool {
    let Some(Step { op: Op::Move(moved), outputs, .. }) = step else { return false };
    let Move { kind: MoveKind::Slice(_), operands } = &**moved else { return false };
    let (Some(Some(x)), Some(Some(starts)), &[Some(result)]) =
        (operands.first(), operands.get(1), &outputs[..])
    else {
        return false;
    };
    let all = |slot: Slot, wanted: i64| {
        let numbers = program.small_constant(slot).and_then(|small| small.to_vec::<i64>().ok());
        numbers.is_some_and(|numbers| numbers.iter().all(|number| *number == wanted))
    };
    let steps_by_one = operands.get(4).copied().flatten().is_none_or(|steps| all(steps, 1));
    let (Some(from), Some(to)) = (program.shape(*x), program.shape(result)) else { return false };
    let keeps = |axis: usize| match (from.get(axis), to.get(axis)) {
        (Some(from), Some(to)) => from.surely_equals(to),
        _ => false,
    };
    all(*starts, 0) && steps_by_one && keeps(0) && keeps(1)
}
