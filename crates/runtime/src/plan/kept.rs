//! Rows in memory of a state: an input, and the output that has new rows after it, share memory
//! with room for both. So the step that joins them writes only the new rows.

use sardonyx_tensor::Dims;

use super::{Place, Planner};
use crate::layout::Layout;
use crate::program::Slot;

/// Input in memory of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeptRows {
    /// Slot of the input.
    pub(crate) past: Slot,
    /// Slot of the output: the rows of the input, then new ones.
    pub(crate) present: Slot,
    /// Axis of the rows.
    pub(crate) axis: usize,
    /// Number of rows that the memory has room for.
    pub(crate) capacity: usize,
}

/// Step that copies rows in memory of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeptCopy {
    /// Index of the step.
    pub(crate) step: usize,
    /// Slot of the input in the memory.
    pub(crate) past: Slot,
    pub(crate) bytes: usize,
}

impl Planner<'_> {
    /// Places inputs and outputs in memory of a state.
    pub(super) fn place_kept(&mut self, kept: &[KeptRows]) {
        for KeptRows { past, present, axis, capacity } in kept {
            let Some((_, dims)) = &self.plan.types[past.index()] else { continue };
            let mut whole = Dims::clone(dims);
            whole[*axis] = *capacity;
            let layout = Layout::dense(&whole);
            self.plan.places[past.index()] = Place::Kept(layout.clone());
            self.plan.places[present.index()] = Place::Part(*past, layout);
        }
    }

    /// Lists the moves that copy rows in memory of a state, as they cannot become views.
    pub(super) fn list_copies(&mut self, kept: &[KeptRows]) {
        if kept.is_empty() {
            return;
        }
        let plan = &self.plan;
        let copies = self.body.steps.iter().enumerate().filter_map(|(index, step)| {
            let mut appends = kept.iter().filter(|rows| step.outputs[..] == [Some(rows.present)]);
            if plan.skip[index] || step.movement.is_none() || appends.next().is_some() {
                return None;
            }
            let past = plan.root((*step.inputs.first()?)?);
            if !matches!(plan.places[past.index()], Place::Kept(_)) {
                return None;
            }
            let copied = step.outputs.iter().flatten().filter(|slot| !plan.is_view(**slot));
            let bytes = copied.filter_map(|slot| plan.bytes_of(*slot)).sum();
            Some(KeptCopy { step: index, past, bytes })
        });
        self.plan.copies = copies.collect();
    }
}
