//! Copy propagation in bodies: an output that is the `Identity` of a value becomes that value.
//!
//! Outputs of a graph have names, so exporters rename the condition of a loop, and values that it
//! carries unchanged, by `Identity`, which would copy them in every iteration. Values inside of a
//! region need no names.

use super::Note;
use crate::program::{MoveKind, Op, Program, Reshape, Slot};

/// Replaces outputs of bodies that are copies by their sources. The copying steps may be dead
/// afterwards.
pub(crate) fn run(program: &mut Program) -> Vec<Note> {
    for step in &mut program.steps {
        if let Op::Region(region) = &mut step.op {
            region.bodies.iter_mut().for_each(pass_through);
        }
    }
    Vec::new()
}

fn pass_through(body: &mut Program) {
    // Source of each slot that is a copy.
    let mut same: Vec<Slot> = (0..body.values.len()).map(|slot| Slot(slot as u32)).collect();
    for step in &body.steps {
        if let Op::Move(moved) = &step.op
            && matches!(moved.kind, MoveKind::Reshape(Reshape::Same))
            && let (Some(Some(from)), Some(Some(to))) =
                (moved.operands.first(), step.outputs.first())
        {
            same[to.index()] = same[from.index()];
        }
    }
    for output in &mut body.outputs {
        *output = same[output.index()];
    }
}
