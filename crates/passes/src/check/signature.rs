//! Rules about the inputs and outputs of graphs in nodes, compared with their nodes.

use sardonyx_model::{Attribute, AttributeValue, Id, NodeId};

use super::{Checker, count};
use crate::codes;
use crate::finding::Spot;

/// Number of inputs of the graph of a node, and least number of outputs: the last ones may be
/// unused.
struct Wanted {
    inputs: usize,
    outputs: usize,
}

impl Checker<'_> {
    /// Compares the inputs and outputs of inner graphs with those of their node, for operators of
    /// the standard.
    pub(super) fn subgraphs(&mut self, id: NodeId, callee: u32) {
        let Some(schema) = self.callees.get(callee).schema else {
            return;
        };
        if !schema.domain.is_empty() {
            return;
        }
        let model = self.model;
        let (inputs, outputs) = (model.inputs(id).len(), model.outputs(id).len());
        let wanted = match schema.name {
            "If" => Wanted { inputs: 0, outputs },
            // The body gets the number of the iteration, the condition, and the carried values, but
            // not the trip count of the node. It returns the condition first. The last outputs of
            // the node may be absent.
            "Loop" => {
                Wanted { inputs: inputs.max(2), outputs: inputs.saturating_sub(1).max(1 + outputs) }
            }
            "Scan" => {
                // The first version also has lengths of sequences, which the body does not get.
                let lengths = usize::from(schema.since < 9);
                Wanted { inputs: inputs.saturating_sub(lengths), outputs }
            }
            "SequenceMap" => Wanted { inputs, outputs },
            _ => return,
        };
        for (index, attribute) in model.attributes(id).iter().enumerate() {
            let attribute = model.attribute(*attribute);
            if let [AttributeValue::Graph(_)] = &attribute.values[..] {
                self.subgraph(id, index, attribute, &wanted);
            }
        }
    }

    fn subgraph(&mut self, id: NodeId, index: usize, attribute: &Attribute, wanted: &Wanted) {
        let model = self.model;
        let Some(inner) = attribute.graphs().next() else {
            return;
        };
        let spot = Spot::node(id).item("attribute", index);
        let graph = model.graph(inner);
        let formals = graph.inputs.len();
        // Up to IR version 3 constants are also among the inputs, after those that are passed.
        let are_constants: Vec<bool> = if self.ir_version < 4 {
            let constants: hashbrown::HashSet<usize> =
                graph.initializers.iter().filter_map(|found| found.value.map(Id::index)).collect();
            let inputs = graph.inputs.iter();
            let values = inputs.map(|info| info.value.map(Id::index));
            let is_constant = |value: Option<usize>| value.is_some_and(|v| constants.contains(&v));
            values.map(is_constant).collect()
        } else {
            Vec::new()
        };
        let constants = are_constants.iter().filter(|is| **is).count();
        // A constant before an input without a value is reported with the inputs of the graph.
        let last = are_constants.iter().rev().take_while(|is| **is).count();
        let first = formals - last;
        if last > 0 && last == constants && first < wanted.inputs {
            let spot = Spot::graph(inner).item("input", first);
            self.add(&codes::PASSED_CONSTANT_INPUT, spot, |_| {
                "the input is an initializer, but the node passes a value for it".into()
            });
        }
        if formals != wanted.inputs && formals.saturating_sub(constants) != wanted.inputs {
            self.add(&codes::SUBGRAPH_INPUTS, spot, |_| {
                format!(
                    "the graph has {}, but the node passes {}",
                    count(formals as u64, "input"),
                    wanted.inputs
                )
            });
        }
        let results = graph.outputs.len();
        if results < wanted.outputs {
            self.add(&codes::SUBGRAPH_OUTPUTS, spot, |_| {
                format!(
                    "the graph has {}, but the node expects {}",
                    count(results as u64, "output"),
                    wanted.outputs
                )
            });
        }
    }
}
