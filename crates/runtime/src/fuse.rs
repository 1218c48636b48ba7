//! Fusing tails: what only reads the result of a product or convolution is done while that result is written.
//!
//! `Conv -> Add -> Relu` becomes one step: the kernel takes the sum as a residual input and the activation as the last
//! thing it does before storing. A step is absorbed only if it is the sole reader and nothing else wants the value in
//! between.

use std::collections::HashMap;

use crate::compile::{Program, Slot, Step};
use crate::kernel::Tail;

/// Lets every step that can take over what follows it.
pub(crate) fn absorb_tails(program: &mut Program) {
    let mut readers = count_readers(program);
    let mut index = 0;
    while index < program.steps.len() {
        let Some((at, tail, residual)) = next_tail(program, index, &readers) else {
            index += 1;
            continue;
        };
        if !program.steps[index].kernel.absorb(tail) {
            index += 1;
            continue;
        }
        let absorbed = program.steps.remove(at);
        let step = &mut program.steps[index];
        if let Some(between) = std::mem::replace(&mut step.outputs[0], absorbed.outputs[0]) {
            readers.remove(&between);
        }
        step.place = format!("{} with {}", step.place, absorbed.op);
        if let Some(residual) = residual {
            step.inputs.push(Some(residual));
            // The residual must exist when the kernel runs, so it runs where the sum did. It is looked at again there,
            // and whoever stands here now is looked at next.
            let step = program.steps.remove(index);
            program.steps.insert(at - 1, step);
        }
    }
}

/// The step that may be absorbed by the one at `index`: its position, what it does, and what else it reads.
fn next_tail(
    program: &Program,
    index: usize,
    readers: &HashMap<Slot, usize>,
) -> Option<(usize, Tail, Option<Slot>)> {
    let step = &program.steps[index];
    let output = (*step.outputs.first()?)?;
    if readers.get(&output) != Some(&1) {
        return None;
    }
    let reads = |step: &Step| step.inputs.iter().flatten().any(|slot| *slot == output);
    let at = index + 1 + program.steps[index + 1..].iter().position(reads)?;
    let next = &program.steps[at];
    match next.op {
        "Relu" => Some((at, Tail::Relu, None)),
        "Clip" => {
            // Limits that are known, or absent; NaN limits nothing the same way everywhere, so it is left alone.
            let limit = |index: usize, absent: f32| match next.inputs.get(index).copied().flatten()
            {
                None => Some(absent),
                Some(slot) => {
                    let limit = program.slots[slot.index()].constant.as_ref()?;
                    limit.item::<f32>().ok().filter(|limit| !limit.is_nan())
                }
            };
            let (low, high) = (limit(1, f32::NEG_INFINITY)?, limit(2, f32::INFINITY)?);
            Some((at, Tail::Clip(low, high), None))
        }
        "Add" => {
            let other = next
                .inputs
                .iter()
                .flatten()
                .copied()
                .find(|slot| *slot != output)?;
            let shape = |slot: Slot| {
                let ty = program.inference.ty(program.slots[slot.index()].value)?;
                Some((ty.elem()?, ty.shape()?))
            };
            // Only equal shapes: a broadcast sum is no residual.
            let (a, b) = (shape(output)?, shape(other)?);
            let same = a.0 == b.0
                && a.1.len() == b.1.len()
                && a.1.iter().zip(b.1).all(|(a, b)| a.surely_equals(b));
            same.then_some((at, Tail::Residual, Some(other)))
        }
        _ => None,
    }
}

fn count_readers(program: &Program) -> HashMap<Slot, usize> {
    let mut readers = HashMap::new();
    for slot in program
        .steps
        .iter()
        .flat_map(|step| step.inputs.iter().flatten())
    {
        *readers.entry(*slot).or_default() += 1;
    }
    // A graph output is wanted as it is.
    for slot in &program.outputs {
        *readers.entry(*slot).or_default() += 2;
    }
    readers
}
