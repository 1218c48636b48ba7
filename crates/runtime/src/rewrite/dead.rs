//! Dead steps: those whose results nothing reads.

use super::Note;
use crate::program::Program;

/// Leaves out steps whose results nothing reads, and results that nothing reads.
pub(crate) fn run(program: &mut Program) -> Vec<Note> {
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
