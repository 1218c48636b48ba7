//! Residual-normalization fusion: adds two tensors while their sum is normalized.
//!
//! A transformer joins a block to its residual connection by `Add -> LayerNormalization`. As one
//! step each row is read once, added, normalized from the first-level cache and written; the sum is
//! another output if it has other readers, such as the next connection. Products have absorbed sums
//! into their [epilogues](super::epilogue) before, which saves more.

use sardonyx_kernels::elementwise::Binary;

use super::{Note, Readers, put_steps, take_steps};
use crate::program::{Link, Norm, Op, Program, Residual, Slot, Step, same_shape};

/// Fuses sums into the normalizations that read them.
pub(crate) fn run(program: &mut Program) -> Vec<Note> {
    let mut notes = Vec::new();
    let readers = Readers::new(program);
    let mut steps = take_steps(program);
    for index in 0..steps.len() {
        let Some([a, b, sum]) = steps[index].as_ref().and_then(sum_of) else {
            continue;
        };
        let Some(at) = normalization(&steps, &readers, sum) else {
            continue;
        };
        let (Some(add), Some(mut step)) = (steps[index].take(), steps[at].take()) else {
            continue;
        };
        let joins = match &mut step.op {
            Op::Norm(norm) => takes_sum(program, norm, a, b, sum).map(|()| {
                norm.x = a;
                norm.residual = Some(Residual { with: b, sum: step.outputs.len() });
            }),
            _ => continue,
        };
        if let Err(why) = joins {
            notes.push(Note::near_miss(&step, &add, why));
            (steps[index], steps[at]) = (Some(add), Some(step));
            continue;
        }
        // One reader is the normalization.
        let is_wanted = readers.readers(sum).len() > 1;
        step.outputs.push(is_wanted.then_some(sum));
        notes.push(Note::fused(&step, &add));
        step.origins.extend(add.origins);
        steps[index] = Some(step);
    }
    put_steps(program, steps);
    notes
}

/// Returns both operands and the result of a step that adds.
fn sum_of(step: &Step) -> Option<[Slot; 3]> {
    let (Op::Pointwise(pointwise), &[Some(sum)]) = (&step.op, &step.outputs[..]) else {
        return None;
    };
    match (&pointwise.links[..], &pointwise.operands[..]) {
        ([Link::Binary { op: Binary::Add, .. }], &[a, b]) => Some([a, b, sum]),
        _ => None,
    }
}

/// Returns the first normalization of a sum.
fn normalization(steps: &[Option<Step>], readers: &Readers, sum: Slot) -> Option<usize> {
    let normalizes = |at: &usize| match steps.get(*at) {
        Some(Some(Step { op: Op::Norm(norm), .. })) => norm.x == sum && norm.residual.is_none(),
        _ => false,
    };
    readers.readers(sum).iter().map(|at| *at as usize).filter(normalizes).min()
}

/// Whether a normalization can move to the position of a sum and compute it; or the reason why not.
fn takes_sum(
    program: &Program,
    norm: &Norm,
    a: Slot,
    b: Slot,
    sum: Slot,
) -> Result<(), &'static str> {
    let shape = program.shape(sum);
    let is_like_sum =
        |slot: Slot| shape.zip(program.shape(slot)).is_some_and(|(a, b)| same_shape(a, b));
    if !is_like_sum(a) || !is_like_sum(b) {
        return Err("the operands of the sum may broadcast");
    }
    let others = [Some(norm.scale), norm.bias];
    if !others.into_iter().flatten().all(|slot| program.is_constant(slot)) {
        return Err(
            "scale or bias is not a constant, so it may not exist where the sum is computed",
        );
    }
    Ok(())
}
