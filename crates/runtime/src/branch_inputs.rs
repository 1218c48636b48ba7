//! Inputs that only one branch of an `If` reads. Their sizes are checked when that branch is taken.

use hashbrown::HashMap;
use sardonyx_model::ValueId;

use crate::executable::{Body, Executable};
use crate::inputs::Branch;
use crate::program::{RegionKind, Slot};

/// Returns, by input of the model, the branch that alone reads it.
pub(crate) fn only_readers(executable: &Executable) -> Vec<Option<Branch>> {
    let body = &executable.body;
    let mut readers: HashMap<ValueId, Option<Branch>> = HashMap::new();
    let mut note = |value: ValueId, reader: Option<Branch>| {
        let known = readers.entry(value).or_insert(reader);
        if *known != reader {
            *known = None;
        }
    };
    let value = |slot: Slot| body.slots[slot.index()].value;
    body.outputs.iter().for_each(|slot| note(value(*slot), None));
    for step in &body.steps {
        let is_if = step.region().is_some_and(|region| is_if(&region.kind));
        // Captured values follow the condition.
        let own = if is_if { 1 } else { step.inputs.len() };
        step.inputs.iter().take(own).flatten().for_each(|slot| note(value(*slot), None));
        for (index, inner) in step.bodies().iter().enumerate() {
            let reader = is_if.then_some(Branch { step: step.number, index });
            visit_values(inner, &mut |value| note(value, reader));
        }
    }
    let graph = executable.resolved.model().graph(executable.resolved.main());
    graph.inputs.iter().map(|info| readers.get(&info.value?).copied().flatten()).collect()
}

fn is_if(kind: &RegionKind) -> bool {
    matches!(kind, RegionKind::If { .. })
}

/// Calls `act` for each value of a program and of the programs within its steps.
fn visit_values(body: &Body, act: &mut dyn FnMut(ValueId)) {
    body.slots.iter().for_each(|slot| act(slot.value));
    for inner in body.steps.iter().flat_map(|step| step.bodies()) {
        visit_values(inner, act);
    }
}
