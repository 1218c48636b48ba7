//! Caches that grow: extends a cache in the step that writes new entries into it.
//!
//! `GroupQueryAttention` extends its cache by a `Concat` where new entries exceed it, and writes
//! them by a `TensorScatter`. One step of both copies the cache once, and in the memory of a
//! [state](crate::session::KeptState) it writes the new entries alone.

use sardonyx_tensor::shape::normalize_axis;

use super::{Note, Readers};
use crate::program::{MoveKind, Op, Program, Slot};

/// Lets steps that write rows extend the cache. The steps that extend it are dead afterwards.
pub(crate) fn run(program: &mut Program) -> Vec<Note> {
    let mut notes = Vec::new();
    let makers = program.makers();
    let readers = Readers::new(program);
    for index in 0..program.steps.len() {
        let Some((extending, [cache, extension])) =
            find_extension(program, &makers, &readers, index)
        else {
            continue;
        };
        notes.push(Note::fused(&program.steps[index], &program.steps[extending]));
        let origins = program.steps[extending].origins.clone();
        let step = &mut program.steps[index];
        step.origins.extend(origins);
        if let Op::Move(written) = &mut step.op {
            written.operands[0] = Some(cache);
            written.operands.resize(3, None);
            written.operands.push(Some(extension));
        }
    }
    notes
}

/// Returns the step that extends the cache of a step that writes rows, with the cache and what
/// follows it, if nothing else reads the result.
fn find_extension(
    program: &Program,
    makers: &[Option<usize>],
    readers: &Readers,
    index: usize,
) -> Option<(usize, [Slot; 2])> {
    let Op::Move(written) = &program.steps[index].op else { return None };
    let MoveKind::WriteRows(rows) = &written.kind else { return None };
    let long = (*written.operands.first()?)?;
    let extending = makers[long.index()]?;
    let Op::Move(extended) = &program.steps[extending].op else { return None };
    let (MoveKind::Concat(concat), [Some(cache), Some(extension)]) =
        (&extended.kind, &extended.operands[..])
    else {
        return None;
    };
    let rank = program.shape(long)?.len();
    let axes = [rows.axis, concat.axis].map(|axis| normalize_axis(axis, rank).ok());
    let is_meant = axes[0].is_some() && axes[0] == axes[1] && rows.in_bytes;
    (is_meant && readers.readers(long).len() == 1).then_some((extending, [*cache, *extension]))
}
