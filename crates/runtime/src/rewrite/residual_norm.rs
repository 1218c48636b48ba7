//! Residual-normalization fusion: a sum of two tensors that is normalized next is added up while it
//! is normalized.
//!
//! `Add -> LayerNormalization` is how a transformer joins a block to the connection around it. As
//! one step each row is read once, added up, normalized from the first-level cache and written; the
//! sum is an output of its own where others read it, as the next connection does. Products have
//! taken sums into their [epilogues](super::epilogue) before, which saves more.

use sardonyx_kernels::elementwise::Binary;
use smallvec::SmallVec;

use super::{Joined, Readers, put_together, taken_apart};
use crate::program::{Link, Op, Program, Residual, Slot, Step, same_shape};

/// Lets normalizations take over the sums that they read.
pub(crate) fn run(program: &mut Program) -> Vec<Joined> {
    let mut joined = Vec::new();
    let readers = Readers::new(program);
    let mut steps = taken_apart(program);
    for index in 0..steps.len() {
        let Some([a, b, sum]) = steps[index].as_ref().and_then(|step| sum_of(program, step)) else {
            continue;
        };
        let Some(at) = normalization(program, &steps, &readers, sum) else {
            continue;
        };
        let (Some(add), Some(mut step)) = (steps[index].take(), steps[at].take()) else {
            continue;
        };
        let Op::Norm(norm) = &mut step.op else {
            continue;
        };
        norm.x = a;
        norm.residual = Some(Residual { with: b, sum: step.outputs.len() });
        // The normalization is one of the readers.
        let is_wanted = readers.of(sum).len() > 1;
        step.outputs.push(is_wanted.then_some(sum));
        joined.push(Joined { by: step.origins.clone(), nodes: add.origins.clone() });
        step.origins.extend(add.origins);
        steps[index] = Some(step);
    }
    put_together(program, steps);
    joined
}

/// Both operands and the result of a step, if it is the sum of two tensors of one shape.
fn sum_of(program: &Program, step: &Step) -> Option<[Slot; 3]> {
    let (Op::Pointwise(pointwise), &[Some(sum)]) = (&step.op, &step.outputs[..]) else {
        return None;
    };
    let ([Link::Binary { op: Binary::Add, .. }], &[a, b]) =
        (&pointwise.links[..], &pointwise.operands[..])
    else {
        return None;
    };
    let shape = program.shape(sum)?;
    let fits = |slot: Slot| program.shape(slot).is_some_and(|of| same_shape(shape, of));
    (fits(a) && fits(b)).then_some([a, b, sum])
}

/// The first normalization of a sum that can be where the sum is computed: all else that it reads is
/// constant.
fn normalization(
    program: &Program,
    steps: &[Option<Step>],
    readers: &Readers,
    sum: Slot,
) -> Option<usize> {
    let mut found: SmallVec<[usize; 2]> = readers.of(sum).into();
    found.sort_unstable();
    found.into_iter().find(|at| {
        let Some(Some(Step { op: Op::Norm(norm), .. })) = steps.get(*at) else {
            return false;
        };
        let others = [Some(norm.scale), norm.bias];
        let mut others = others.into_iter().flatten();
        norm.x == sum && norm.residual.is_none() && others.all(|slot| program.is_constant(slot))
    })
}
