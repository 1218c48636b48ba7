//! Dead code elimination: removes steps whose results have no readers.

use super::Note;
use crate::program::{Op, Program, Region};

/// Removes steps without readers, and single results without readers.
pub(crate) fn run(program: &mut Program) -> Vec<Note> {
    for step in &mut program.steps {
        if let Op::Region(region) = &mut step.op {
            forget_captures(region);
        }
    }
    let mut is_read = vec![false; program.values.len()];
    for slot in &program.outputs {
        is_read[slot.index()] = true;
    }
    let mut is_needed = vec![false; program.steps.len()];
    for (index, step) in program.steps.iter().enumerate().rev() {
        is_needed[index] = step.outputs.iter().flatten().any(|slot| is_read[slot.index()]);
        if is_needed[index] {
            for slot in step.op.operands().into_iter().flatten() {
                is_read[slot.index()] = true;
            }
        }
    }
    let mut is_needed = is_needed.into_iter();
    program.steps.retain(|_| is_needed.next().unwrap_or(true));
    Vec::new()
}

/// Removes captures that no body reads any more.
fn forget_captures(region: &mut Region) {
    for body in &mut region.bodies {
        let mut is_read = vec![false; body.values.len()];
        for step in &body.steps {
            step.op.visit_operands(|slot| slot.into_iter().for_each(|s| is_read[s.index()] = true));
        }
        body.outputs.iter().for_each(|slot| is_read[slot.index()] = true);
        for input in &mut body.inputs {
            *input = input.filter(|slot| is_read[slot.index()]);
        }
    }
    let own = region.kind.input_count();
    // Inputs of an iteration keep their positions.
    let all = own + region.captures.len();
    let bodies = &region.bodies;
    let read: Vec<bool> = (0..all)
        .map(|input| input < own || bodies.iter().any(|body| body.inputs[input].is_some()))
        .collect();
    keep(&mut region.captures, &read[own..]);
    for body in &mut region.bodies {
        keep(&mut body.inputs, &read);
    }
}

/// Keeps the items marked in `kept`.
fn keep<T>(items: &mut Vec<T>, kept: &[bool]) {
    let mut kept = kept.iter().copied();
    items.retain(|_| kept.next().unwrap_or(true));
}
