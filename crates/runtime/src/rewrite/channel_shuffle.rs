//! Channel shuffle fusion: transposes the channels of images, seen as a matrix, in one step.
//!
//! The standard has no operator for the shuffle of ShuffleNet between grouped convolutions, so
//! exporters write a `Reshape` that splits the channels into two axes, a `Transpose` of these, and
//! a `Reshape` back. The values in between do not have the channels in axis 1, so the three run in
//! rows only. The convolution before them would convert pixels to planes, and the one after them
//! planes to pixels.
//!
//! This runs before [orders](super::orders): the one step has the order of its neighbours.

use super::{Note, Readers, put_steps, take_steps};
use crate::program::{Move, MoveKind, Op, Program, Shuffle, Slot, Step, same_shape};

/// Fuses the three moves of each shuffle.
pub(crate) fn run(program: &mut Program) -> Vec<Note> {
    let mut notes = Vec::new();
    // Only convolutions gain from channels last.
    if !program.steps.iter().any(|step| matches!(step.op, Op::Conv(_))) {
        return notes;
    }
    let readers = Readers::new(program);
    let makers = program.makers();
    let mut steps = take_steps(program);
    for index in 0..steps.len() {
        // Returns the producer of a value whose only reader is the step at `reader`.
        let made = |slot: Slot, reader: usize| {
            makers[slot.index()].filter(|_| readers.readers(slot) == [reader as u32])
        };
        let Some((places, x, shuffle)) = find(program, &steps, index, made) else { continue };
        let [first, second] = places.map(|place| steps[place].take());
        let (Some(first), Some(second), Some(last)) = (first, second, steps[index].as_mut()) else {
            continue;
        };
        for step in [first, second] {
            notes.push(Note::fused(last, &step));
            last.origins.extend(step.origins);
        }
        let kind = MoveKind::Shuffle(shuffle);
        last.op = Op::Move(Box::new(Move { kind, operands: [Some(x)].into_iter().collect() }));
    }
    put_steps(program, steps);
    notes
}

/// Returns the indices of the two steps before the one at `index`, their input, and the shuffle
/// that the three compute, if they shuffle channels and the values in between have no other
/// readers. `made` returns the producer of a value with a single reader.
fn find(
    program: &Program,
    steps: &[Option<Step>],
    index: usize,
    made: impl Fn(Slot, usize) -> Option<usize>,
) -> Option<([usize; 2], Slot, Shuffle)> {
    let (last, transposed) = as_move(steps[index].as_ref()?)?;
    if !last.only_reshapes() {
        return None;
    }
    let second = made(transposed, index)?;
    let (transpose, apart) = as_move(steps[second].as_ref()?)?;
    let order = transpose.order()?;
    let swaps = order.len() >= 4 && order[..3] == [0, 2, 1];
    if !swaps || !(3..order.len()).all(|axis| order[axis] == axis) {
        return None;
    }
    let first = made(apart, second)?;
    let (reshape, x) = as_move(steps[first].as_ref()?)?;
    let &[Some(result)] = &steps[index].as_ref()?.outputs[..] else { return None };
    let [whole, split, found] = [program.shape(x)?, program.shape(apart)?, program.shape(result)?];
    let channels = whole.get(1)?.known()?;
    let [groups, width] = [split.get(1)?.known()?, split.get(2)?.known()?];
    let mut pixels = whole.iter().skip(2).zip(split.iter().skip(3));
    let is_shuffle = reshape.only_reshapes()
        && groups.checked_mul(width) == Some(channels)
        && groups > 0
        && whole.len() >= 3
        && split.len() == whole.len() + 1
        && whole.first()?.surely_equals(split.first()?)
        && pixels.all(|(a, b)| a.surely_equals(b))
        && same_shape(whole, found);
    is_shuffle.then_some(([first, second], x, Shuffle { groups: usize::try_from(groups).ok()? }))
}

/// Returns the move of a step and its input.
fn as_move(step: &Step) -> Option<(&MoveKind, Slot)> {
    match &step.op {
        Op::Move(moved) => Some((&moved.kind, moved.operands.first().copied().flatten()?)),
        _ => None,
    }
}
