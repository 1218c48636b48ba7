//! Rules about nodes, constants and inputs without a reader.

use hashbrown::HashMap;
use sardonyx_model::{GraphId, NodeId, Producer, ValueId};

use super::{Checker, Root};
use crate::codes;
use crate::finding::Spot;

impl Checker<'_> {
    /// Reports nodes, constants and inputs of a graph that have no reader and are not outputs.
    pub(super) fn report_unused(&mut self, id: GraphId, root: Root) {
        let wanted = [&codes::UNUSED_NODE, &codes::UNUSED_INITIALIZER, &codes::UNUSED_INPUT];
        // The bindings of a training step read its values.
        if matches!(root, Root::Training(_)) || !wanted.iter().any(|code| self.wants(code)) {
            return;
        }
        let model = self.model;
        let graph = model.graph(id);
        let trained = !model.training_info.is_empty();
        let is_unused = |value: ValueId| !model.is_read(value);
        let named = |node: NodeId| model.outputs(node).iter().flatten().count();
        let mut dead: Vec<NodeId> = Vec::new();
        // Number of unused outputs, for nodes with some.
        let mut idle: HashMap<NodeId, usize> = HashMap::new();
        for node in &graph.nodes {
            let outputs = model.outputs(*node).iter().flatten();
            match outputs.filter(|value| is_unused(**value)).count() {
                0 => {}
                count if count == named(*node) => dead.push(*node),
                count => {
                    idle.insert(*node, count);
                }
            }
        }
        // Number of live readers, for values that dead nodes read.
        let mut readers: HashMap<ValueId, usize> = HashMap::new();
        let mut next = 0;
        while let Some(node) = dead.get(next).copied() {
            next += 1;
            self.add(&codes::UNUSED_NODE, Spot::node(node), |_| {
                "no output depends on the node".into()
            });
            for value in model.inputs(node).flatten() {
                self.steps += 1;
                let found = model.value(value);
                let Producer::Node(maker, _) = found.producer else {
                    continue;
                };
                if found.graph != id || found.is_output {
                    continue;
                }
                let steps = &mut self.steps;
                let readers = readers.entry(value).or_insert_with(|| {
                    let count = model.uses(value).count();
                    *steps += count as u64;
                    count
                });
                *readers -= 1;
                if *readers == 0 {
                    let idle = idle.entry(maker).or_default();
                    *idle += 1;
                    if *idle == named(maker) {
                        dead.push(maker);
                    }
                }
            }
        }
        for (index, found) in graph.initializers.iter().enumerate() {
            let lonely = found.value.is_some_and(|value| {
                matches!(model.value(value).producer, Producer::Initializer(_)) && is_unused(value)
            });
            if lonely && !trained {
                let spot = Spot::graph(id).item("initializer", index);
                self.add(&codes::UNUSED_INITIALIZER, spot, |_| "nothing reads it".into());
            }
        }
        // Callers pass the inputs of inner graphs and functions.
        if model.main == Some(id) {
            for (index, info) in graph.inputs.iter().enumerate() {
                if info.value.is_some_and(is_unused) && !trained {
                    let spot = Spot::graph(id).item("input", index);
                    self.add(&codes::UNUSED_INPUT, spot, |_| "nothing reads it".into());
                }
            }
        }
    }
}
