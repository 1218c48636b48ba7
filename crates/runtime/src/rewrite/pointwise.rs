//! Pointwise fusion: successive pointwise functions become one step, which passes over memory once.
//!
//! `Add -> Gelu -> Mul` as three steps reads and writes its value three times. A step is fused with
//! the one before it if it is the sole reader of its result, and the result keeps its shape and
//! type. Other operands may broadcast to that shape. The fused step takes the position of its last
//! part, where all of its operands exist. Products and convolutions have absorbed the functions
//! after them into their [epilogues](super::epilogue) before.

use sardonyx_kernels::elementwise::{MAX_LINKS, MAX_RANK, Side};
use smallvec::{SmallVec, smallvec};

use super::{Note, Readers, put_steps, take_steps};
use crate::program::{Link, Op, Pointwise, Program, Slot, Step, same_shape};

/// Limit: operands of a step. Each that does not broadcast is one more stream from memory, and
/// shares the first-level cache with the output; its sets hold about as many lines.
const MAX_OPERANDS: usize = 8;

/// Fuses successive functions.
pub(crate) fn run(program: &mut Program) -> Vec<Note> {
    let mut notes = Vec::new();
    let readers = Readers::new(program);
    let mut steps = take_steps(program);
    for index in 0..steps.len() {
        let Some((members, pointwise)) = fused_from(program, &steps, &readers, index) else {
            continue;
        };
        let Some(mut fused) = steps[index].take() else {
            continue;
        };
        let mut last = index;
        let mut origins = fused.origins.clone();
        for member in members {
            let Some(step) = steps[member].take() else {
                continue;
            };
            notes.push(Note::fused(&fused, &step));
            origins.extend(step.origins);
            fused.outputs = step.outputs;
            last = member;
        }
        fused.origins = origins;
        fused.op = Op::Pointwise(Box::new(pointwise));
        steps[last] = Some(fused);
    }
    put_steps(program, steps);
    notes
}

/// Returns the longest sequence of steps after a step that can be fused with it, and the fused
/// function.
fn fused_from(
    program: &Program,
    steps: &[Option<Step>],
    readers: &Readers,
    index: usize,
) -> Option<(SmallVec<[usize; MAX_LINKS]>, Pointwise)> {
    let (first, mut value) = pointwise(steps, index)?;
    let shape = program.shape(value)?;
    if shape.len() > MAX_RANK {
        return None;
    }
    let [link] = &first.links[..] else {
        return None;
    };
    let elem = first.elem;
    // A slot that several links read is listed several times, so that it is not overwritten in
    // place.
    let mut operands = first.operands.clone();
    let mut links: SmallVec<[Link; 1]> = smallvec![link.clone()];
    let mut members = SmallVec::new();
    let next = |value: Slot, position: usize| {
        // An output of the graph has a reader that is not a step.
        let [at] = *readers.readers(value) else {
            return None;
        };
        let at = at as usize;
        let (next, made) = pointwise(steps, at)?;
        let [link] = &next.links[..] else {
            return None;
        };
        let (link, other) = append_link(link, &next.operands, value, position)?;
        let fits = next.elem == elem && same_shape(shape, program.shape(made)?);
        fits.then_some((at, made, link, other))
    };
    while let Some((at, made, link, other)) = next(value, operands.len())
        && links.len() < MAX_LINKS
        && operands.len() + usize::from(other.is_some()) <= MAX_OPERANDS
    {
        members.push(at);
        links.push(link);
        operands.extend(other);
        value = made;
    }
    (!members.is_empty()).then_some((members, Pointwise { elem, links, operands }))
}

/// Returns the function and the result of a pointwise step.
fn pointwise(steps: &[Option<Step>], at: usize) -> Option<(&Pointwise, Slot)> {
    match steps.get(at)?.as_ref()? {
        Step { op: Op::Pointwise(pointwise), outputs, .. } => match outputs[..] {
            [Some(slot)] => Some((pointwise, slot)),
            _ => None,
        },
        _ => None,
    }
}

/// Converts a step on `value` to a link, whose other operand becomes the one at `position`.
fn append_link(
    link: &Link,
    operands: &[Slot],
    value: Slot,
    position: usize,
) -> Option<(Link, Option<Slot>)> {
    match (link, operands) {
        (Link::Unary(_), _) => Some((link.clone(), None)),
        (Link::Clip(_), [first, ..]) if *first == value => Some((link.clone(), None)),
        (Link::Binary { op, .. }, &[a, b]) => {
            let (side, other) = if a == value { (Side::Left, b) } else { (Side::Right, a) };
            Some((Link::Binary { op: *op, side, other: position }, Some(other)))
        }
        _ => None,
    }
}
