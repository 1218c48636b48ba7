//! Pointwise fusion: functions of elements that follow each other become one step, which passes
//! over memory once.
//!
//! `Add -> Gelu -> Mul` reads and writes its value three times when each is a step of its own. A
//! step joins the one before it if it is the sole reader of its result, nothing else wants that,
//! and the result keeps its shape and type to the end. What else the steps read may broadcast to
//! that shape. The fused step stands where its last part stood, where everything that it reads
//! exists. Products and convolutions have taken what follows them into their
//! [epilogues](super::epilogue) before.

use sardonyx_kernels::elementwise::{MAX_LINKS, MAX_RANK, Side};
use smallvec::{SmallVec, smallvec};

use super::{Note, Readers, put_together, taken_apart};
use crate::program::{Link, Op, Pointwise, Program, Slot, Step, same_shape};

/// Limit: most operands of a step. Each that does not broadcast is one more stream from memory, and
/// lies in the first cache together with the output; its sets hold about as many lines.
const MAX_OPERANDS: usize = 8;

/// Makes one step of functions that follow each other.
pub(crate) fn run(program: &mut Program) -> Vec<Note> {
    let mut notes = Vec::new();
    let readers = Readers::new(program);
    let mut steps = taken_apart(program);
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
            notes.push(Note::joined(&fused, &step));
            origins.extend(step.origins);
            fused.outputs = step.outputs;
            last = member;
        }
        fused.origins = origins;
        fused.op = Op::Pointwise(Box::new(pointwise));
        steps[last] = Some(fused);
    }
    put_together(program, steps);
    notes
}

/// The most steps that follow a step and can be one with it, and what that does.
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
    // A slot that several links read is there several times: then nothing may write over it.
    let mut operands = first.operands.clone();
    let mut links: SmallVec<[Link; 1]> = smallvec![link.clone()];
    let mut members = SmallVec::new();
    let next = |value: Slot, position: usize| {
        // Outputs of the graph have a reader that is no step.
        let [at] = *readers.of(value) else {
            return None;
        };
        let at = at as usize;
        let (next, made) = pointwise(steps, at)?;
        let [link] = &next.links[..] else {
            return None;
        };
        let (link, other) = continued(link, &next.operands, value, position)?;
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

/// A step that is a function of elements, and its result.
fn pointwise(steps: &[Option<Step>], at: usize) -> Option<(&Pointwise, Slot)> {
    match steps.get(at)?.as_ref()? {
        Step { op: Op::Pointwise(pointwise), outputs, .. } => match outputs[..] {
            [Some(slot)] => Some((pointwise, slot)),
            _ => None,
        },
        _ => None,
    }
}

/// A link that continues with `value`, and what else it reads: that becomes the operand at
/// `position`.
fn continued(
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
