//! Removal of steps that no device needs.

use std::collections::BTreeSet;

use hashbrown::HashSet;
use sardonyx_model::ValueId;

use crate::bodies::Bodies;
use crate::form::Device;
use crate::plan::{FormId, Move, Step};
use crate::planner::Planner;

impl Planner<'_> {
    /// Removes nodes from devices that read none of their outputs, and moves to devices that do not
    /// read the moved value.
    pub(crate) fn prune(&mut self) {
        let outputs = self.plan.outputs.iter().flatten().flat_map(|given| {
            let devices = self.all().filter(|device| self.plan.gives(*given, *device));
            devices.map(|device| (given.value, given.form, device))
        });
        let mut needed: HashSet<(ValueId, FormId, Device)> = outputs.collect();
        needed.extend(self.plan.kept_parts());
        let mut kept = Vec::with_capacity(self.plan.steps.len());
        for step in std::mem::take(&mut self.plan.steps).into_iter().rev() {
            match step {
                Step::Move(moved) => {
                    let all = self.plan.form(moved.to);
                    let is_needed =
                        |device: &Device| needed.contains(&(moved.value, moved.form, *device));
                    let takers: BTreeSet<Device> = all.devices().filter(is_needed).collect();
                    if takers.is_empty() {
                        continue;
                    }
                    let only = all.only_on(&takers);
                    let moved = Move { to: self.number(only), ..moved };
                    let givers = self.plan.givers(&moved);
                    needed.extend(givers.into_iter().map(|one| (moved.value, moved.from, one)));
                    kept.push(Step::Move(moved));
                }
                Step::Node(mut computed) => {
                    let outputs = self.plan.model.outputs(computed.node).iter();
                    let made: Vec<(ValueId, FormId)> = outputs
                        .zip(&computed.outputs)
                        .filter_map(|(value, form)| Some(((*value)?, (*form)?)))
                        .collect();
                    let is_needed = |device: Device| {
                        made.iter().any(|(value, form)| needed.contains(&(*value, *form, device)))
                    };
                    if !computed.devices().any(is_needed) {
                        continue;
                    }
                    // All devices take the steps in its graphs together.
                    if computed.bodies.is_none() {
                        computed.assignment.places.retain(|device, _| is_needed(*device));
                    }
                    let of_bodies = computed.bodies.iter().flat_map(Bodies::outputs);
                    needed.extend(of_bodies.flat_map(|(value, form)| {
                        computed.devices().map(move |device| (value, form, device))
                    }));
                    let inputs = self.plan.model.inputs(computed.node).zip(&computed.inputs);
                    let inputs = inputs.filter_map(|(value, form)| Some((value?, (*form)?)));
                    for (value, form) in inputs.chain(computed.captured.iter().copied()) {
                        let reads = |device: &Device| self.plan.form(form).is_on(*device);
                        let devices = computed.devices().filter(reads);
                        needed.extend(devices.map(|device| (value, form, device)));
                    }
                    kept.push(Step::Node(computed));
                }
            }
        }
        kept.reverse();
        self.plan.steps = kept;
        let main = self.plan.model.graph(self.resolved.main());
        let all = 0..u32::try_from(self.plan.devices).unwrap_or(u32::MAX);
        let residents: HashSet<ValueId> = self
            .plan
            .kept
            .iter()
            .filter(|kept| kept.is_given())
            .filter_map(|kept| kept.input)
            .collect();
        let readers = main.inputs.iter().map(|info| match info.value {
            Some(value) if !residents.contains(&value) => {
                let reads = |device: &Device| needed.contains(&(value, self.everywhere, *device));
                all.clone().filter(reads).collect()
            }
            _ => BTreeSet::new(),
        });
        self.plan.readers = readers.collect();
    }
}
