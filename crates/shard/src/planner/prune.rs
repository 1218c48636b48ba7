//! Removal of steps that no device needs.

use std::collections::BTreeSet;

use hashbrown::HashSet;
use sardonyx_model::ValueId;

use super::Planner;
use crate::bodies::Bodies;
use crate::form::Device;
use crate::plan::{Computed, FormId, Given, Move, Step};
use crate::resident::Kept;
use crate::transfers::givers;

/// Values in a form that a device needs.
type Needed = HashSet<(ValueId, FormId, Device)>;

impl Planner<'_> {
    /// Removes nodes from devices that read none of their outputs, and moves to devices that do not
    /// read the moved value. Returns for each input of the model the devices that read it.
    pub(super) fn prune(
        &mut self,
        outputs: &[Option<Given>],
        kept: &[Kept],
    ) -> Vec<BTreeSet<Device>> {
        let mut needed = self.needed_at_the_end(outputs, kept);
        let mut left = Vec::with_capacity(self.steps.list.len());
        for step in std::mem::take(&mut self.steps.list).into_iter().rev() {
            left.extend(match step {
                Step::Move(moved) => self.prune_move(moved, &mut needed).map(Step::Move),
                Step::Node(computed) => self.prune_node(computed, &mut needed).map(Step::Node),
            });
        }
        left.reverse();
        self.steps.list = left;
        self.readers(kept, &needed)
    }

    /// Returns the outputs that devices return, and the new values of residents.
    fn needed_at_the_end(&self, outputs: &[Option<Given>], kept: &[Kept]) -> Needed {
        let given = outputs.iter().flatten().flat_map(|given| {
            let form = self.forms.get(given.form);
            let devices = self.forms.all().filter(|device| given.is_by(*device, form));
            devices.map(|device| (given.value, given.form, device))
        });
        let new = kept.iter().filter_map(|kept| kept.new).flat_map(|(value, form)| {
            self.forms.get(form).devices().map(move |device| (value, form, device))
        });
        given.chain(new).collect()
    }

    fn prune_move(&mut self, moved: Move, needed: &mut Needed) -> Option<Move> {
        let all = self.forms.get(moved.to);
        let is_needed = |device: &Device| needed.contains(&(moved.value, moved.form, *device));
        let takers: BTreeSet<Device> = all.devices().filter(is_needed).collect();
        if takers.is_empty() {
            return None;
        }
        let only = all.only_on(&takers);
        let moved = Move { to: self.forms.number(only), ..moved };
        let (from, to) = (self.forms.get(moved.from), self.forms.get(moved.to));
        let givers = givers(from, to, moved.dims.as_deref());
        needed.extend(givers.into_iter().map(|one| (moved.value, moved.from, one)));
        Some(moved)
    }

    fn prune_node(&self, mut computed: Computed, needed: &mut Needed) -> Option<Computed> {
        let model = &self.typed.model;
        let outputs = model.outputs(computed.node).iter().zip(&computed.outputs);
        let made: Vec<(ValueId, FormId)> =
            outputs.filter_map(|(value, form)| Some(((*value)?, (*form)?))).collect();
        let is_needed = |device: Device| {
            made.iter().any(|(value, form)| needed.contains(&(*value, *form, device)))
        };
        if !computed.devices().any(is_needed) {
            return None;
        }
        // All devices take the steps in its graphs together.
        if computed.bodies.is_none() {
            computed.assignment.places.retain(|device, _| is_needed(*device));
        }
        let of_bodies = computed.bodies.iter().flat_map(Bodies::outputs);
        needed.extend(
            of_bodies.flat_map(|(value, form)| {
                computed.devices().map(move |device| (value, form, device))
            }),
        );
        let inputs = model.inputs(computed.node).zip(&computed.inputs);
        let inputs = inputs.filter_map(|(value, form)| Some((value?, (*form)?)));
        for (value, form) in inputs.chain(computed.captured.iter().copied()) {
            let reads = |device: &Device| self.forms.get(form).is_on(*device);
            let devices = computed.devices().filter(reads);
            needed.extend(devices.map(|device| (value, form, device)));
        }
        Some(computed)
    }

    /// Returns for each input of the model the devices that read it. No device reads a resident
    /// that it has before the run.
    fn readers(&self, kept: &[Kept], needed: &Needed) -> Vec<BTreeSet<Device>> {
        let main = self.typed.model.graph(self.prepared.resolved.main());
        let residents: HashSet<ValueId> =
            kept.iter().filter(|kept| kept.is_given()).filter_map(|kept| kept.input).collect();
        let everywhere = self.forms.everywhere;
        let readers = main.inputs.iter().map(|info| match info.value {
            Some(value) if !residents.contains(&value) => {
                let reads = |device: &Device| needed.contains(&(value, everywhere, *device));
                self.forms.all().filter(reads).collect()
            }
            _ => BTreeSet::new(),
        });
        readers.collect()
    }
}
