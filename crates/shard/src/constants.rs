//! Memory that constants take on each device.

use std::collections::BTreeSet;

use sardonyx_model::{GraphId, ValueId};
use sardonyx_passes::order::{inner_graphs, tree};

use crate::form::Device;
use crate::plan::{FormId, Plan, Step};
use crate::sizes::stand_in;

impl Plan {
    /// Returns the number of bytes of constants that a device holds during a run: the parts that it
    /// reads, and the parts that it sends to other devices.
    pub fn constant_bytes(&self, device: Device) -> u64 {
        let mut held: BTreeSet<(ValueId, FormId)> = BTreeSet::new();
        let mut inside = 0;
        for step in &self.steps {
            match step {
                // A part that the device takes from a constant is counted where it is read.
                Step::Move(moved) if self.is_local(moved) => {}
                Step::Move(moved) => {
                    let gives = self.givers(moved).contains(&device);
                    held.extend(gives.then_some((moved.value, moved.from)));
                }
                Step::Node(computed) => {
                    if !computed.devices().any(|own| own == device) {
                        continue;
                    }
                    let inputs = self.model().inputs(computed.node).zip(&computed.inputs);
                    held.extend(inputs.filter_map(|(value, form)| Some((value?, (*form)?))));
                    held.extend(computed.captured.iter().copied());
                    if computed.bodies.is_some() {
                        continue;
                    }
                    let graphs = inner_graphs(self.model(), computed.node);
                    let graphs = graphs.flat_map(|graph| tree(self.model(), graph));
                    inside += graphs.map(|graph| self.bytes_in(graph)).sum::<u64>();
                }
            }
        }
        let own = held.into_iter().map(|(value, form)| self.bytes_held(value, form, device));
        inside + own.sum::<u64>()
    }

    /// Returns the size in bytes of a device's part of a constant; 0 for any other value.
    fn bytes_held(&self, value: ValueId, form: FormId, device: Device) -> u64 {
        if self.typed.is_constant(value) { self.part_bytes(value, form, device) } else { 0 }
    }

    /// Returns the size in bytes of a device's part of a tensor in a form, with open sizes counted
    /// as 1; 0 if the sizes are not known.
    pub(super) fn part_bytes(&self, value: ValueId, form: FormId, device: Device) -> u64 {
        let Some((elem, Some(dims))) = self.tensor(value) else { return 0 };
        let own = self.form(form).dims(device, &stand_in(&dims));
        let elements = own.map_or(0, |dims| dims.iter().product::<usize>());
        (elements * elem.bits().unwrap_or(0)).div_ceil(8) as u64
    }

    fn bytes_in(&self, graph: GraphId) -> u64 {
        let constants = self.model().graph(graph).initializers.iter();
        let bytes = constants.filter_map(|constant| {
            let (elem, dims) = self.tensor(constant.value?)?;
            let elements = stand_in(&dims?).iter().product::<usize>();
            Some((elements * elem.bits().unwrap_or(0)).div_ceil(8) as u64)
        });
        bytes.sum()
    }
}
