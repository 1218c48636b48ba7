//! Values that a body passes through: an output that is only the `Identity` of another value is
//! that value.
//!
//! Outputs of a graph have names, so exporters give the condition of a loop, and whatever it
//! carries unchanged, a second one by `Identity`, which would copy it in every iteration. What is
//! inside of a region needs no names.

use super::Note;
use crate::program::{MoveKind, Op, Program, Reshape, Slot};

/// Lets bodies of regions give what they would copy. The steps that copy may be dead afterwards.
pub(crate) fn run(program: &mut Program) -> Vec<Note> {
    for step in &mut program.steps {
        if let Op::Region(region) = &mut step.op {
            region.bodies.iter_mut().for_each(pass_through);
        }
    }
    Vec::new()
}

fn pass_through(body: &mut Program) {
    // By slot: what it is a copy of.
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
