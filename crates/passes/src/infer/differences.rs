//! Nodes whose outputs differ on ONNX Runtime beyond rounding.

use hashbrown::HashSet;
use sardonyx_model::{GraphId, Id, Model, NodeId, Producer, Symbol, ValueId};
use sardonyx_ops::Registry;

use super::engine::Engine;
use super::{InferOptions, Inference};
use crate::codes;
use crate::finding::{Code, Findings, Severity, Spot};

impl Inference {
    /// Adds a finding for each node whose outputs differ on ONNX Runtime, in the order of the file.
    pub fn differences(
        &self,
        model: &Model,
        found: &mut Findings,
        level: impl Fn(&'static Code) -> Option<Severity>,
    ) {
        let code = &codes::RUNTIMES_DIFFER;
        let Some(severity) = level(code) else { return };
        let mut nodes: Vec<(&NodeId, &String)> = self.differences.iter().collect();
        nodes.sort_by_key(|(node, _)| node.index());
        for (node, fact) in nodes {
            found.add(model, code, severity, Spot::node(*node), || (fact.clone(), "".into()));
        }
    }
}

/// Finds nodes whose outputs differ on ONNX Runtime according to the declared types of their
/// inputs, without inference.
pub fn find_differences(model: &Model, registry: &Registry) -> Inference {
    let nodes = candidates(model, registry);
    if nodes.is_empty() {
        return Inference::default();
    }
    let options = InferOptions { check_types: true, differences: true, ..InferOptions::default() };
    Engine::new(model, registry, options).run_apart(&nodes)
}

/// Returns the nodes of the main graph, and of graphs in it, whose operator's name is that of an
/// operator with differences.
fn candidates(model: &Model, registry: &Registry) -> Vec<NodeId> {
    let operators = registry.operators().filter(|operator| operator.difference_rule().is_some());
    let names: HashSet<Symbol> =
        operators.filter_map(|operator| model.symbol(operator.name.as_bytes())).collect();
    if names.is_empty() {
        return Vec::new();
    }
    let graphs = model.graphs().map(|(id, _)| id).filter(|id| is_in_main(model, *id));
    let nodes = graphs.flat_map(|id| model.graph(id).nodes.iter().copied());
    let is_named =
        |node: &NodeId| model.node(*node).op_type.is_some_and(|op_type| names.contains(&op_type));
    nodes.filter(is_named).collect()
}

/// Whether a graph is the main graph or inside it.
fn is_in_main(model: &Model, id: GraphId) -> bool {
    let around = std::iter::successors(Some(id), |id| model.graph(*id).parent);
    around.last() == model.main
}

impl Engine<'_> {
    /// Visits some nodes with the declared types of their inputs and the constants that they read.
    fn run_apart(mut self, nodes: &[NodeId]) -> Inference {
        let mut begun: HashSet<GraphId> = HashSet::new();
        for node in nodes {
            let operands: Vec<ValueId> = self.model.inputs(*node).flatten().collect();
            let own = self.model.node(*node).graph;
            let graphs = operands.iter().map(|value| self.model.value(*value).graph);
            for graph in graphs.chain([own]).collect::<Vec<_>>() {
                if begun.insert(graph) {
                    self.begin(graph);
                }
            }
            for value in operands {
                if let Producer::Node(maker, _) = self.model.value(value).producer
                    && self.model.inputs(maker).len() == 0
                {
                    self.node(maker);
                }
            }
            self.node(*node);
        }
        self.found
    }
}
