//! Gradients of the weights of convolutions in one step.
//!
//! As nodes of the standard such a gradient is a convolution in which images and channels have
//! changed places: both operands are transposed, the gradient of the output takes the part of
//! weights, and the result is transposed back. What a stride left over is cut off at last. A
//! convolution with a kernel as large as an image reads that kernel again for each of few outputs;
//! the one step has the same sums in another order.
//!
//! This comes before other rewrites of convolutions, which would see one of these.

use sardonyx_tensor::{DataType, Dims};

use super::{Note, Readers, put_together, taken_apart};
use crate::program::{
    Conv, Move, MoveKind, Op, Padding, Program, Slot, Step, WeightGradient, Window,
};

/// Makes one step of each such convolution and of what follows it.
pub(crate) fn run(program: &mut Program) -> Vec<Note> {
    let mut notes = Vec::new();
    if !program.steps.iter().any(|step| matches!(step.op, Op::Conv(_))) {
        return notes;
    }
    let readers = Readers::new(program);
    let makers = program.makers();
    let mut steps = taken_apart(program);
    for index in 0..steps.len() {
        let maker = |slot: Slot| makers[slot.index()].and_then(|at| steps[at].as_ref());
        let Some(gradient) = find(program, &steps, index, maker) else { continue };
        // The transpose of the result, and what cuts it.
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
            notes.push(Note::joined(last, &step));
            last.origins.extend(step.origins);
        }
        // The node that multiplies names the step.
        last.origins.rotate_left(1);
        last.op = Op::WeightGradient(Box::new(WeightGradient { window, ..gradient }));
    }
    put_together(program, steps);
    notes
}

/// The step that alone reads what the one at `index` gives.
fn only_reader(steps: &[Option<Step>], readers: &Readers, index: usize) -> Option<usize> {
    let &[Some(result)] = &steps[index].as_ref()?.outputs[..] else { return None };
    match readers.of(result) {
        &[reader] if reader != u32::MAX => Some(reader as usize),
        _ => None,
    }
}

/// What a convolution of transposed operands is the gradient of, with its own window.
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
    let window = conv.window.known().filter(|_| conv.takes_stages())?;
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

/// Whether an operation lets the first two axes of images change places.
fn swaps(op: &Op) -> bool {
    let Op::Move(moved) = op else { return false };
    let swaps = |order: &Dims| {
        let rest = (2..order.len()).all(|axis| order[axis] == axis);
        order.len() >= 3 && order[..2] == [1, 0] && rest
    };
    moved.kind.order().is_some_and(swaps)
}

/// The window of the convolution, whose strides are the dilations of the gradient: `transpose`
/// must make its result the weights, and `last` gives what is left of them.
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
        let numbers = program.small(slot).and_then(|small| small.to_vec::<i64>().ok());
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
