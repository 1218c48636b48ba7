//! Branches that are always taken, and loops of no or one iteration.

use sardonyx_model::{AttrValue, Attributes, GraphId, NodeAttributes, NodeId, ValueId};
use sardonyx_ops::operators::{IDENTITY, IF, LOOP};

use super::no_ops::fill_of;
use super::rule::BRANCHES;
use super::{Job, Scope};
use crate::infer::Inference;

impl Job<'_> {
    /// Replaces nodes with a known course by the nodes of their graphs. How many.
    pub(super) fn take_branches(&mut self, scope: Scope, inference: &Inference) -> usize {
        let mut count = 0;
        for graph in self.resolved.graphs().to_vec() {
            for node in self.resolved.order_of(graph).to_vec() {
                let taken = self.branch_of(node, inference);
                let Some(Taken { graph, given }) = taken else { continue };
                let is_taken = match graph {
                    Some(graph) => self.take(scope, inference, node, graph, &given),
                    None => {
                        self.give(scope, node, given);
                        true
                    }
                };
                count += usize::from(is_taken);
            }
        }
        self.resolved.place_made();
        if count > 0 {
            self.resolved.find_graphs();
        }
        self.note(BRANCHES.name, count, count);
        count
    }

    /// Finds the graph that a node certainly runs once, with its inputs.
    fn branch_of(&self, node: NodeId, inference: &Inference) -> Option<Taken> {
        let model = self.resolved.model();
        if self.resolved.is(node, &IF) {
            let is_taken = self.condition(model.inputs(node).next()??, inference)? != 0.0;
            let name = if is_taken { "then_branch" } else { "else_branch" };
            let AttrValue::Graph(graph) = NodeAttributes::new(model, node).attribute(name)? else {
                return None;
            };
            return Some(Taken { graph: Some(graph), given: Vec::new() });
        }
        if !self.resolved.is(node, &LOOP) {
            return None;
        }
        // Stacked results would have a new axis, and the condition after the iteration decides
        // nothing if there is one at most.
        let mut inputs = model.inputs(node);
        let (count, first) = (inputs.next().flatten()?, inputs.next().flatten());
        let carried: Vec<ValueId> = inputs.collect::<Option<_>>()?;
        let count = self.constants.get(&self.resolved, inference, count)?.to_vec::<i64>().ok()?;
        let first = first.map(|first| self.condition(first, inference).map(|first| first != 0.0));
        if model.outputs(node).len() > carried.len() {
            return None;
        }
        if matches!(count[..], [..=0]) || first == Some(Some(false)) {
            return Some(Taken { graph: None, given: carried });
        }
        if count != [1] || first == Some(None) {
            return None;
        }
        let AttrValue::Graph(graph) = NodeAttributes::new(model, node).attribute("body")? else {
            return None;
        };
        Some(Taken { graph: Some(graph), given: carried })
    }

    /// Returns the number that a constant condition is.
    fn condition(&self, value: ValueId, inference: &Inference) -> Option<f64> {
        fill_of(&self.constants.get(&self.resolved, inference, value)?)
    }

    /// Puts the nodes of a graph in the place of its node.
    fn take(
        &mut self,
        scope: Scope,
        inference: &Inference,
        node: NodeId,
        graph: GraphId,
        given: &[ValueId],
    ) -> bool {
        let model = self.resolved.model();
        let is_loop = self.resolved.is(node, &LOOP);
        let inner = model.graph(graph);
        let skipped = usize::from(is_loop);
        let results: Option<Vec<ValueId>> =
            inner.outputs.iter().skip(skipped).map(|output| output.value).collect();
        let Some(results) = results else { return false };
        let outputs = model.outputs(node).to_vec();
        if results.len() < outputs.len() || !inner.sparse_initializers.is_empty() {
            return false;
        }
        let mut others = hashbrown::HashMap::new();
        if is_loop {
            let inputs: Option<Vec<ValueId>> =
                inner.inputs.iter().map(|input| input.value).collect();
            let Some(inputs) = inputs.filter(|inputs| inputs.len() == given.len() + 2) else {
                return false;
            };
            // The number and the condition of the only iteration.
            if inputs[..2].iter().any(|value| model.is_read(*value)) {
                let number = sardonyx_tensor::Tensor::scalar(0i64);
                let condition = sardonyx_tensor::Tensor::from_bools([0usize; 0], &[true]);
                let Ok(condition) = condition else { return false };
                let mut build = self.resolved.build(node);
                others.insert(inputs[0], build.constant("iteration", &number));
                others.insert(inputs[1], build.constant("condition", &condition));
            }
            for (input, value) in inputs[2..].iter().zip(given) {
                // A product in the body would sum a constant in another order than an input.
                let is_constant = self.constants.is_constant(&self.resolved, inference, *value);
                let value = if is_constant && self.must_stay_computed(inference, *input) {
                    let mut build = self.resolved.build(node);
                    let (made, value) = build.before(IDENTITY.name, "", &[Some(*value)], &[]);
                    self.resolved.set_opset(made, scope.opset);
                    value
                } else {
                    *value
                };
                others.insert(*input, value);
            }
        } else if !inner.inputs.is_empty() {
            return false;
        }
        self.move_initializers(node, graph, &mut others);
        let nodes = self.resolved.model().graph(graph).nodes.clone();
        let (copied, results) = self.resolved.build(node).copy_before(&nodes, &others, &results);
        self.resolved.take_callees(&copied);
        self.give(scope, node, results);
        true
    }

    /// Lets values be the outputs of a node, which goes.
    fn give(&mut self, scope: Scope, node: NodeId, results: Vec<ValueId>) {
        let outputs = self.resolved.model().outputs(node).to_vec();
        for (output, result) in outputs.into_iter().zip(results) {
            let Some(output) = output else { continue };
            let (made, _) =
                self.resolved.build(node).before(IDENTITY.name, "", &[Some(result)], &[]);
            let model = self.resolved.model_mut();
            let index = model.outputs(node).iter().position(|found| *found == Some(output));
            if let Some(index) = index {
                model.drop_output(node, index);
            }
            model.redefine_output(made, 0, output);
            self.resolved.set_opset(made, scope.opset);
        }
        self.resolved.remove(node);
    }

    /// Copies the constants of a graph of a node to the graph around it.
    fn move_initializers(
        &mut self,
        node: NodeId,
        graph: GraphId,
        others: &mut hashbrown::HashMap<ValueId, ValueId>,
    ) {
        let initializers = self.resolved.model().graph(graph).initializers.clone();
        for initializer in initializers {
            let Some(value) = initializer.value else { continue };
            let model = self.resolved.model_mut();
            let around = model.node(node).graph;
            let hint = model.display(Some(model.value(value).name)).into_owned();
            let made = model.add_value(around, &hint);
            model.define_initializer(around, made, initializer.tensor, None);
            others.insert(value, made);
        }
    }
}

/// A graph whose nodes run once, or a loop that gives what it is given.
struct Taken {
    /// The graph; `None` for a loop without an iteration.
    graph: Option<GraphId>,
    /// Values that the graph is given, after the first two inputs of a body.
    given: Vec<ValueId>,
}
