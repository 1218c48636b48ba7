//! Backward pass through a node with subgraphs: a new node of the same operator.
//!
//! The subgraphs of the new node are copies, which recompute the values, each with a `Gradient`
//! node at its end. It differentiates the outputs of the subgraph with respect to its inputs,
//! carried values and captured values, and reads the gradients that arrive. It is replaced in a
//! later round.

mod iterations;

use hashbrown::HashSet;
use sardonyx_model::{AttrValue, GraphId, Model, NodeId, ValueId};
use sardonyx_ops::Refusal;
use sardonyx_ops::operators::GRADIENT;

use super::activity::{Flow, Kind, outputs_of};
use super::derive::Way;
use crate::order::tree;

/// Backward pass through one node with subgraphs.
pub(super) struct FlowBack<'w, 'a> {
    way: &'w mut Way<'a>,
    active: &'w HashSet<ValueId>,
    flow: &'w Flow,
    /// Gradient that arrives for each output of the node.
    arriving: &'w [Option<ValueId>],
}

impl<'w, 'a> FlowBack<'w, 'a> {
    pub(super) fn new(
        way: &'w mut Way<'a>,
        active: &'w HashSet<ValueId>,
        flow: &'w Flow,
        arriving: &'w [Option<ValueId>],
    ) -> FlowBack<'w, 'a> {
        FlowBack { way, active, flow, arriving }
    }

    /// Adds the node of the backward pass. Returns the values that the original node reads, with
    /// their gradients.
    pub(super) fn derive(mut self) -> Result<Vec<(ValueId, ValueId)>, Refusal> {
        match self.flow.kind {
            Kind::If => Ok(self.branches()),
            Kind::Loop => iterations::reverse_loop(&mut self),
            Kind::Scan => iterations::reverse_scan(&mut self),
        }
    }

    fn model(&self) -> &Model {
        self.way.resolved.model()
    }

    /// Adds an `If` whose branches compute the gradients of the original branches.
    fn branches(&mut self) -> Vec<(ValueId, ValueId)> {
        let captured = self.find_captured();
        let condition = self.model().inputs(self.flow.node).next().flatten();
        let (back, _) = self.way.add_before("If", &[condition], &[]);
        self.way.resolved.model_mut().fill_outputs(back, captured.len());
        for (name, branch) in ["then_branch", "else_branch"].into_iter().zip(&self.flow.bodies) {
            let copy = self.copy(*branch, back, name);
            let given = self.take_outputs(copy);
            let ends = given.into_iter().zip(self.arriving);
            let ends: Vec<_> = ends.filter_map(|(y, seed)| Some((y?, (*seed)?))).collect();
            for gradient in self.gradients(copy, &captured, &ends) {
                self.way.resolved.model_mut().add_graph_output(copy, gradient);
            }
        }
        let outputs = self.model().outputs(back).iter().flatten().copied();
        captured.into_iter().zip(outputs).collect()
    }

    /// Returns the active values that subgraphs of the node capture.
    fn find_captured(&self) -> Vec<ValueId> {
        let model = self.model();
        let graphs: HashSet<GraphId> =
            self.flow.bodies.iter().flat_map(|body| tree(model, *body)).collect();
        let mut found: Vec<ValueId> = Vec::new();
        for graph in self.flow.bodies.iter().flat_map(|body| tree(model, *body)) {
            let nodes = model.graph(graph).nodes.iter();
            let read = nodes.flat_map(|node| model.inputs(*node).flatten());
            let read = read.chain(outputs_of(model, graph).into_iter().flatten());
            let outer = read.filter(|value| !graphs.contains(&model.value(*value).graph));
            found.extend(outer.filter(|value| self.active.contains(value)));
        }
        let mut seen = HashSet::new();
        found.retain(|value| seen.insert(*value));
        found
    }

    /// Copies a subgraph of the node to an attribute of `back`, the node of the backward pass.
    fn copy(&mut self, graph: GraphId, back: NodeId, attribute: &str) -> GraphId {
        let (copy, copied) = self.way.resolved.build(self.way.gradient).copy_graph(graph, back);
        self.way.resolved.take_callees(&copied);
        for copied in &copied {
            self.way.resolved.note_derived(copied.of, &[copied.node]);
        }
        self.way.resolved.model_mut().set_attribute(back, attribute, AttrValue::Graph(copy));
        copy
    }

    /// Takes the outputs out of `graph`.
    fn take_outputs(&mut self, graph: GraphId) -> Vec<Option<ValueId>> {
        let outputs = outputs_of(self.model(), graph);
        self.way.resolved.model_mut().retain_outputs(graph, |_, _| false);
        outputs
    }

    /// Adds a `Gradient` node to a subgraph, and returns the gradients with respect to the `xs`.
    /// `ends` are the values to differentiate, each with the gradient that arrives for it.
    fn gradients(
        &mut self,
        graph: GraphId,
        xs: &[ValueId],
        ends: &[(ValueId, ValueId)],
    ) -> Vec<ValueId> {
        let inputs =
            xs.iter().chain(xs).copied().chain(ends.iter().flat_map(|(y, seed)| [*y, *seed]));
        let inputs: Vec<Option<ValueId>> = inputs.map(Some).collect();
        let mut build = self.way.resolved.build(self.way.gradient);
        let (name, domain) = (GRADIENT.name, GRADIENT.domain);
        let node = build.inside(graph, name, domain, &inputs, xs.len());
        let names = xs.iter().map(|x| {
            let model = build.model();
            model.text(model.value(*x).name).to_vec().into()
        });
        let names = AttrValue::Strings(names.collect());
        build.model_mut().set_attribute(node, "xs", names);
        self.way.resolved.set_opset(node, GRADIENT.newest());
        // New nodes originate from this node, unless they originate from a node in its subgraphs.
        self.way.resolved.note_derived(self.flow.node, &[node]);
        self.model().outputs(node).iter().flatten().copied().collect()
    }
}
