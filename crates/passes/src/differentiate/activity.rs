//! Activity analysis: values that depend on the `xs` through elements with a derivative, also in
//! subgraphs.

use hashbrown::HashSet;
use sardonyx_model::{
    AttrValue, Attributes, GraphId, Model, NodeAttributes, NodeId, Producer, ValueId,
};
use sardonyx_ops::operators::{IF, LOOP, SCAN};
use sardonyx_tensor::DataType;

use crate::infer::{Inference, element};
use crate::order::reads;
use crate::resolve::Resolved;

/// Operator of a node with subgraphs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    If,
    Loop,
    Scan,
}

/// Node with subgraphs, in its newest form.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) node: NodeId,
    pub(super) kind: Kind,
    pub(super) bodies: Vec<GraphId>,
    /// Number of values that are carried from iteration to iteration.
    pub(super) states: usize,
}

impl Flow {
    /// Describes a node. `None` for any other node, for a `Scan` with sequence lengths, which is an
    /// old form, and if a subgraph has fewer inputs or outputs than the node needs.
    pub(super) fn of(resolved: &Resolved, node: NodeId) -> Option<Flow> {
        let model = resolved.model();
        let attributes = NodeAttributes::new(model, node);
        let body = |name| match attributes.attribute(name) {
            Some(AttrValue::Graph(graph)) => Some(graph),
            _ => None,
        };
        let (inputs, outputs) = (model.inputs(node).len(), model.outputs(node).len());
        let (kind, bodies, states) = if resolved.is(node, &IF) {
            (Kind::If, vec![body("then_branch")?, body("else_branch")?], 0)
        } else if resolved.is(node, &LOOP) {
            (Kind::Loop, vec![body("body")?], inputs.checked_sub(2)?)
        } else if resolved.is(node, &SCAN) && resolved.schema(node)?.since >= 9 {
            let scanned = usize::try_from(attributes.int("num_scan_inputs")?).ok()?;
            (Kind::Scan, vec![body("body")?], inputs.checked_sub(scanned)?)
        } else {
            return None;
        };
        let flow = Flow { node, kind, bodies, states };
        // A subgraph that no run executes may be malformed.
        let fits = |body: &GraphId| {
            let graph = model.graph(*body);
            let wanted = flow.first_output() + outputs.max(states);
            graph.outputs.len() >= wanted && (kind == Kind::If || graph.inputs.len() == inputs)
        };
        flow.bodies.iter().all(fits).then_some(flow)
    }

    /// Returns the number of inputs of the node and of its subgraph before the first carried value.
    pub(super) fn first_input(&self) -> usize {
        match self.kind {
            Kind::Loop => 2,
            Kind::If | Kind::Scan => 0,
        }
    }

    /// Returns the number of outputs of a subgraph before the first one that is an output of the
    /// node.
    pub(super) fn first_output(&self) -> usize {
        match self.kind {
            Kind::Loop => 1,
            Kind::If | Kind::Scan => 0,
        }
    }

    /// Marks values in the subgraphs that depend on active values, and returns the active outputs.
    fn spread(
        &self,
        resolved: &Resolved,
        inference: &Inference,
        active: &mut HashSet<ValueId>,
    ) -> Vec<ValueId> {
        let model = resolved.model();
        for body in &self.bodies {
            let (taken, given) = (inputs_of(model, *body), outputs_of(model, *body));
            let first = self.first_input();
            let pairs = model.inputs(self.node).zip(&taken).skip(first);
            for (outer, inner) in pairs {
                let Some(inner) = inner.filter(|inner| has_derivative(inference, *inner)) else {
                    continue;
                };
                if self.kind != Kind::If && outer.is_some_and(|outer| active.contains(&outer)) {
                    active.insert(inner);
                }
            }
            let nodes = needed_nodes(model, *body);
            let states = || taken.iter().skip(first).zip(given.iter().skip(self.first_output()));
            loop {
                nodes.iter().for_each(|node| spread(resolved, inference, *node, active));
                let next: Vec<ValueId> = states()
                    .take(self.states)
                    .filter(|(_, after)| after.is_some_and(|after| active.contains(&after)))
                    .filter_map(|(before, _)| *before)
                    .filter(|before| has_derivative(inference, *before))
                    .filter(|before| !active.contains(before))
                    .collect();
                if next.is_empty() {
                    break;
                }
                active.extend(next);
            }
        }
        let is_active = |index: usize| {
            self.bodies.iter().any(|body| {
                let given = outputs_of(model, *body).get(index + self.first_output()).copied();
                let taken = inputs_of(model, *body).get(index + self.first_input()).copied();
                let taken = taken.filter(|_| index < self.states);
                let mut values = [given, taken].into_iter().flatten().flatten();
                values.any(|value| active.contains(&value))
            })
        };
        let outputs = model.outputs(self.node).iter().enumerate();
        outputs.filter(|(index, _)| is_active(*index)).filter_map(|(_, value)| *value).collect()
    }
}

/// Marks the outputs of a node, and values in its subgraphs, that depend on active values.
pub(super) fn spread(
    resolved: &Resolved,
    inference: &Inference,
    node: NodeId,
    active: &mut HashSet<ValueId>,
) {
    let model = resolved.model();
    if !reads(model, node).iter().any(|value| active.contains(value)) {
        return;
    }
    let outputs: Vec<ValueId> = match Flow::of(resolved, node) {
        Some(flow) => flow.spread(resolved, inference, active),
        None => model.outputs(node).iter().flatten().copied().collect(),
    };
    active.extend(outputs.into_iter().filter(|value| has_derivative(inference, *value)));
}

/// Collects the nodes with active outputs, also in subgraphs, whose operators have no gradient
/// rule.
pub(super) fn without_rule(
    resolved: &Resolved,
    nodes: &[NodeId],
    active: &HashSet<ValueId>,
    found: &mut HashSet<NodeId>,
) {
    let model = resolved.model();
    for node in nodes.iter().copied().filter(|node| makes_active(model, *node, active)) {
        if let Some(flow) = Flow::of(resolved, node) {
            for body in flow.bodies {
                without_rule(resolved, &needed_nodes(model, body), active, found);
            }
        } else if resolved.op(node).is_none_or(|op| op.def.gradient_rule().is_none()) {
            found.insert(node);
        }
    }
}

/// Whether a node has an active output.
pub(super) fn makes_active(model: &Model, node: NodeId, active: &HashSet<ValueId>) -> bool {
    model.outputs(node).iter().flatten().any(|value| active.contains(value))
}

/// Returns the nodes of a subgraph that its outputs depend on, in order.
pub(super) fn needed_nodes(model: &Model, graph: GraphId) -> Vec<NodeId> {
    let mut needed = HashSet::new();
    let mut open: Vec<ValueId> = outputs_of(model, graph).into_iter().flatten().collect();
    while let Some(value) = open.pop() {
        if let Producer::Node(node, _) = model.value(value).producer
            && model.node(node).graph == graph
            && needed.insert(node)
        {
            open.extend(reads(model, node));
        }
    }
    model.graph(graph).nodes.iter().copied().filter(|node| needed.contains(node)).collect()
}

/// Returns the inputs of a graph.
pub(super) fn inputs_of(model: &Model, graph: GraphId) -> Vec<Option<ValueId>> {
    model.graph(graph).inputs.iter().map(|info| info.value).collect()
}

/// Returns the outputs of a graph.
pub(super) fn outputs_of(model: &Model, graph: GraphId) -> Vec<Option<ValueId>> {
    model.graph(graph).outputs.iter().map(|info| info.value).collect()
}

/// Whether the elements of a tensor, or of the tensors in a sequence or optional, are or may be
/// floats.
pub(super) fn has_derivative(inference: &Inference, value: ValueId) -> bool {
    let elem = inference.ty(value).and_then(|ty| element(ty).flatten());
    elem.is_none_or(DataType::is_float)
}
