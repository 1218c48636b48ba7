//! Views: outputs that are the elements of an input in another layout.

use hashbrown::HashMap;

use super::{Place, Plan, Planner};
use crate::executable::{Body, Step};
use crate::layout::{Layout, ViewSite, is_whole};
use crate::program::{MoveKind, Order, Slot};

impl Planner<'_> {
    /// Makes outputs views where the kernel has a layout for them and all readers accept it. `ints`
    /// are the values that decide layouts.
    pub(super) fn place_views(&mut self, ints: &HashMap<Slot, Vec<i64>>) {
        let accepted = find_accepted_layouts(self.body, &self.plan);
        for (index, step) in self.body.steps.iter().enumerate() {
            if let (Some(movement), Some(Some(input))) = (&step.movement, step.inputs.first()) {
                let is_view = self.view_outputs(step, movement, *input, &accepted, ints);
                self.plan.skip[index] = is_view && step.outputs.iter().any(Option::is_some);
            }
        }
    }

    /// Makes the outputs of a move views of its input, and returns whether all are.
    fn view_outputs(
        &mut self,
        step: &Step,
        movement: &MoveKind,
        input: Slot,
        accepted: &[Accepted],
        ints: &HashMap<Slot, Vec<i64>>,
    ) -> bool {
        let Some((data_type, from)) = self.plan.types[input.index()].clone() else {
            return false;
        };
        // Strings have no bytes, and elements below one byte no address: only whole values of them
        // can be viewed.
        let Some(bits) = data_type.bits() else {
            return false;
        };
        let layout = match self.plan.layout(input) {
            Some(layout) => layout.clone(),
            None => self.plan.own_layout(self.body, input).unwrap_or_else(|| Layout::dense(&from)),
        };
        let ints = |position: usize| {
            let slot = step.inputs.get(position).copied().flatten()?;
            ints.get(&slot).cloned()
        };
        let has_input = |position: usize| step.inputs.get(position).is_some_and(Option::is_some);
        let mut are_views = true;
        for (output, slot) in step.outputs.iter().enumerate() {
            let Some(slot) = *slot else { continue };
            let viewed = match &self.plan.types[slot.index()] {
                Some((output_type, to))
                    if *output_type == data_type && !self.owns[slot.index()] =>
                {
                    let site = ViewSite {
                        output,
                        from: &from,
                        layout: &layout,
                        to,
                        ints: &ints,
                        has_input: &has_input,
                    };
                    movement
                        .view(&site)
                        .filter(|layout| self.is_readable(slot, layout, to, accepted[slot.index()]))
                        .map(|layout| (is_whole(to, &layout), layout))
                        .filter(|(whole, _)| *whole || bits % 8 == 0)
                }
                _ => None,
            };
            match viewed {
                Some((whole, layout)) => {
                    let root = self.plan.root(input);
                    // Memory of a state is longer than its rows.
                    let whole = whole
                        && !matches!(self.plan.places[root.index()], Place::Kept(_))
                        && self.plan.order(self.body, slot) == Order::Rows
                        && self.plan.count_own_bytes(self.body, root) == self.plan.bytes_of(slot);
                    self.plan.places[slot.index()] = Place::View(root, (!whole).then_some(layout));
                }
                None => are_views = false,
            }
        }
        are_views
    }

    /// Whether all readers of a slot can read it in a layout.
    fn is_readable(&self, slot: Slot, layout: &Layout, dims: &[usize], accepted: Accepted) -> bool {
        let is_accepted = match self.plan.order(self.body, slot) {
            Order::ChannelsLast => layout.pitch(dims).is_some(),
            Order::Rows => layout.is_dense(dims) || accepted.accepts(layout, dims),
        };
        // Readers accept positive strides only.
        is_accepted && layout.strides.iter().all(|stride| *stride >= 0)
    }
}

/// Layouts that all readers of a slot accept.
#[derive(Debug, Clone, Copy)]
struct Accepted {
    /// Any strides.
    strides: bool,
    /// Rows along the last axis with a pitch.
    pitch: bool,
}

impl Accepted {
    fn accepts(self, layout: &Layout, dims: &[usize]) -> bool {
        self.strides || (self.pitch && layout.row_pitch(dims).is_some())
    }
}

/// Returns the layouts that all readers of each slot accept.
fn find_accepted_layouts(body: &Body, plan: &Plan) -> Vec<Accepted> {
    let mut accepted = vec![Accepted { strides: true, pitch: true }; body.slots.len()];
    // Outputs are dense, except in memory of a state.
    for slot in &body.outputs {
        if matches!(plan.places[slot.index()], Place::Part(..)) {
            continue;
        }
        accepted[slot.index()] = Accepted { strides: false, pitch: false };
    }
    for step in &body.steps {
        for (position, slot) in step.inputs.iter().enumerate() {
            if let Some(slot) = slot {
                let accepted = &mut accepted[slot.index()];
                let strides = step.rules.strided.contains(position);
                accepted.strides &= strides;
                accepted.pitch &= strides || step.rules.pitched.contains(position);
            }
        }
    }
    accepted
}
