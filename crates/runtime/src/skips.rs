//! Skips: a sum of two tensors that is normalized next is added up while it is normalized.
//!
//! `Add -> LayerNormalization` is how a transformer joins a block to the connection around it. As
//! one step each row is read once, added up, normalized from the first-level cache and written; the
//! sum is an output of its own where others read it, as the next connection does. Products have
//! taken sums over as their [tails](crate::tails) before, which saves more.

use sardonyx_kernels::elementwise::Binary;
use smallvec::SmallVec;

use crate::compile::{Program, Slot, Step, Work};
use crate::kernel::Pointwise;
use crate::tails::{Readers, readers, same_shape};

/// Lets normalizations take over the sums that they read. Says what was taken over: the
/// normalization, then the sum.
pub(crate) fn take_sums(program: &mut Program) -> Vec<(Work, Work)> {
    let mut taken = Vec::new();
    let readers = readers(program);
    let steps = std::mem::take(&mut program.steps);
    let mut steps: Vec<Option<Step>> = steps.into_iter().map(Some).collect();
    for index in 0..steps.len() {
        let Some([a, b, sum]) = steps[index].as_ref().and_then(|step| sum_of(program, step)) else {
            continue;
        };
        let found = may_normalize(program, &steps, &readers, sum).into_iter().find(|at| {
            let step = steps[*at].as_mut();
            step.is_some_and(|step| step.kernel.take_sum(step.inputs.len(), step.outputs.len()))
        });
        let Some(mut step) = found.and_then(|at| steps[at].take()) else {
            continue;
        };
        step.inputs[0] = Some(a);
        step.inputs.push(Some(b));
        // The normalization is one of the readers.
        let is_wanted = readers.of(sum).len() > 1;
        step.outputs.push(is_wanted.then_some(sum));
        if let Some(add) = steps[index].take() {
            step.work.with.push(add.op);
            taken.push((step.work.clone(), add.work));
        }
        steps[index] = Some(step);
    }
    program.steps.reserve_exact(steps.len());
    program.steps.extend(steps.into_iter().flatten());
    taken
}

/// Both operands and the result of a step, if it is the sum of two tensors of one shape.
fn sum_of(program: &Program, step: &Step) -> Option<[Slot; 3]> {
    let (&[Some(a), Some(b)], &[Some(sum)]) = (&step.inputs[..], &step.outputs[..]) else {
        return None;
    };
    let is_sum = step.kernel.pointwise() == Some(Pointwise::Binary(Binary::Add));
    let shape = program.shape(sum)?;
    let fits = |slot: Slot| program.shape(slot).is_some_and(|of| same_shape(shape, of));
    (is_sum && fits(a) && fits(b)).then_some([a, b, sum])
}

/// The steps that can do what they do with a sum where that is computed: all else that they read is
/// constant.
fn may_normalize(
    program: &Program,
    steps: &[Option<Step>],
    readers: &Readers,
    sum: Slot,
) -> SmallVec<[usize; 2]> {
    let mut found: SmallVec<[usize; 2]> = readers.of(sum).into();
    found.sort_unstable();
    found.retain(|at| {
        let Some(Some(step)) = steps.get(*at) else {
            return false;
        };
        let Some((first, others)) = step.inputs.split_first() else {
            return false;
        };
        let mut others = others.iter().flatten();
        *first == Some(sum) && others.all(|slot| program.slots[slot.index()].is_constant())
    });
    found
}
