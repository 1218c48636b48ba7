//! Part of a model between the `xs` of a `Gradient` node and its `y`.

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{GraphId, Model, NodeId, Producer, Type, ValueId};
use sardonyx_ops::Refusal;
use sardonyx_ops::operators::{CAST, GRADIENT};

use super::activity::{has_derivative, makes_active, needed_nodes, spread, without_rule};
use super::{Counts, finding, names};
use crate::finding::Finding;
use crate::infer::{Inference, element};
use crate::order::{inner_graphs, reads, tree};
use crate::resolve::Resolved;

/// Part of a model that leads from the `xs` of a `Gradient` node to its `y`.
///
/// The node has these inputs: the values at which the gradient is computed, the values that its
/// attributes name, and `y`. A node that this pass makes in a subgraph has several `y`, each
/// followed by the gradient that arrives for it. Values that such a node does not name are
/// constants.
pub(super) struct Region {
    pub(super) gradient: NodeId,
    /// Values at which the gradient is computed: the `xs` and then the `zs`.
    pub(super) given: Vec<Option<ValueId>>,
    /// Values that the attributes name: the `xs` and then the `zs`.
    pub(super) named: Vec<ValueId>,
    pub(super) xs: usize,
    pub(super) ys: Vec<Target>,
    /// Nodes between the named values and the `ys`, in topological order.
    pub(super) nodes: Vec<NodeId>,
    /// Values that depend on one of the `xs` through elements with a derivative.
    pub(super) active: HashSet<ValueId>,
}

/// Value that is differentiated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    pub(super) y: ValueId,
    /// Gradient that arrives for the value; `None` means ones.
    pub(super) seed: Option<ValueId>,
}

impl Region {
    pub(super) fn of(
        resolved: &Resolved,
        inference: &Inference,
        gradient: NodeId,
    ) -> Result<Region, Vec<Finding>> {
        let model = resolved.model();
        let (Counts { xs, all }, _) = names(model, gradient);
        let inputs: Vec<Option<ValueId>> = model.inputs(gradient).collect();
        let fault = |fact: String| vec![finding(model, gradient, fact)];
        let bound: Option<Vec<ValueId>> = inputs[all..].iter().copied().collect();
        let Some((named, targets)) = bound.as_deref().and_then(|bound| bound.split_at_checked(all))
        else {
            return Err(fault("a value that it names is missing".to_string()));
        };
        let is_inner = targets.len() > 1;
        let ys: Vec<Target> = match *targets {
            [y] => vec![Target { y, seed: None }],
            _ => targets.chunks_exact(2).map(|of| Target { y: of[0], seed: Some(of[1]) }).collect(),
        };
        let mut region = Region {
            gradient,
            given: inputs[..all].to_vec(),
            named: named.to_vec(),
            xs,
            ys,
            nodes: Vec::new(),
            active: named[..xs].iter().copied().collect(),
        };
        let needed = region.find_needed(resolved, is_inner).map_err(fault)?;
        region.walk(resolved, inference, &needed, is_inner).map_err(fault)?;
        let has_gradient = |x: &ValueId| {
            let is_tensor = inference.ty(*x).is_none_or(|ty| ty.as_tensor().is_some());
            has_derivative(inference, *x) && (is_tensor || is_inner)
        };
        let without = region.named[..xs].iter().find(|x| !has_gradient(x));
        if let Some(x) = without {
            let of = match inference.ty(*x) {
                Some(Type::Tensor(tensor)) => tensor.elem.map(|elem| elem.to_string()),
                ty => ty.map(ToString::to_string),
            };
            let of = of.unwrap_or_else(|| "an unknown type".to_string());
            let name = resolved.name_of(*x);
            return Err(fault(format!(
                "'{name}' has type {of}: only floating-point tensors have gradients"
            )));
        }
        Ok(region)
    }

    /// Returns the nodes that the `ys` depend on, back to the named values.
    fn find_needed(&self, resolved: &Resolved, is_inner: bool) -> Result<HashSet<NodeId>, String> {
        let model = resolved.model();
        let ends: HashSet<ValueId> = self.named.iter().copied().collect();
        let own = model.node(self.gradient).graph;
        let around = |graph: &GraphId| model.graph(*graph).parent.filter(|_| !is_inner);
        let around: HashSet<GraphId> = std::iter::successors(Some(own), around).collect();
        let mut needed = HashSet::new();
        for Target { y, .. } in &self.ys {
            let mut open = vec![*y];
            while let Some(value) = open.pop() {
                // Values of subgraphs belong to the node around them.
                if ends.contains(&value) || !around.contains(&model.value(value).graph) {
                    continue;
                }
                match model.value(value).producer {
                    Producer::Node(node, _) if needed.insert(node) => {
                        open.extend(reads(model, node));
                    }
                    Producer::Input(_) if !is_inner => {
                        return Err(format!(
                            "'{}' depends on the input '{}', which is not in xs or zs",
                            resolved.name_of(*y),
                            resolved.name_of(value)
                        ));
                    }
                    _ => {}
                }
            }
        }
        Ok(needed)
    }

    /// Sorts the needed nodes, and marks active values.
    fn walk(
        &mut self,
        resolved: &Resolved,
        inference: &Inference,
        needed: &HashSet<NodeId>,
        is_inner: bool,
    ) -> Result<(), String> {
        let model = resolved.model();
        let ends: HashSet<ValueId> = self.named.iter().copied().collect();
        let own = model.node(self.gradient).graph;
        let graphs = resolved.graphs().iter().filter(|graph| !is_inner || **graph == own);
        let order = graphs.flat_map(|graph| resolved.order_of(*graph)).copied();
        let mut depends: HashSet<ValueId> = HashSet::new();
        for node in order {
            if !is_inner {
                let read = reads(model, node);
                if read.iter().any(|value| ends.contains(value) || depends.contains(value)) {
                    let outputs = model.outputs(node).iter().flatten();
                    if let Some(end) = outputs.clone().find(|value| ends.contains(*value)) {
                        return Err(format!(
                            "'{}' can be computed from other values in xs and zs",
                            resolved.name_of(*end)
                        ));
                    }
                    depends.extend(outputs);
                }
            }
            if needed.contains(&node) {
                self.nodes.push(node);
                spread(resolved, inference, node, &mut self.active);
            }
        }
        Ok(())
    }

    /// Refuses gradients in types without arithmetic: floats of 8 bits or fewer. A cast to such a
    /// type and back has a gradient, since the gradient of a cast is a cast. If several nodes read
    /// the value, it has none, since their gradients would have to be added.
    pub(super) fn refuse_narrow(
        &self,
        resolved: &Resolved,
        inference: &Inference,
    ) -> Result<(), Refusal> {
        let narrow = |value: ValueId| {
            let elem = inference.ty(value).and_then(|ty| element(ty).flatten())?;
            let is_narrow = elem.is_float() && elem.bits().is_some_and(|bits| bits <= 8);
            (is_narrow && self.active.contains(&value)).then_some(elem)
        };
        let model = resolved.model();
        let mut readers: HashSet<ValueId> = HashSet::new();
        let nodes = self.nodes.iter().filter(|node| makes_active(model, **node, &self.active));
        for node in nodes {
            let is_cast = resolved.is(*node, &CAST);
            let read = reads(model, *node).into_iter().map(|value| (value, readers.insert(value)));
            let made = model.outputs(*node).iter().flatten().map(|value| (*value, true));
            for (value, is_first) in read.chain(made) {
                let Some(elem) = narrow(value).filter(|_| !is_cast || !is_first) else { continue };
                let name = resolved.name_of(value);
                return Err(Refusal::from(format!(
                    "'{name}' has type {elem}, in which gradients are not computed: only a cast may \
                     make and read it"
                )));
            }
        }
        Ok(())
    }

    /// Whether this pass made the `Gradient` node, in a subgraph.
    pub(super) fn is_inner(&self) -> bool {
        self.ys.iter().any(|target| target.seed.is_some())
    }

    /// Removes copied nodes from a subgraph that its gradients do not need.
    pub(super) fn forget_dead(&self, resolved: &mut Resolved) {
        let graph = resolved.model().node(self.gradient).graph;
        let needed = needed_nodes(resolved.model(), graph);
        let kept: HashSet<NodeId> = needed.iter().copied().collect();
        for node in resolved.order_of(graph).to_vec() {
            if !kept.contains(&node) {
                resolved.model_mut().detach_node(node);
            }
        }
        resolved.set_order(graph, needed);
        resolved.forget_graphs();
    }

    /// Whether the region has `Gradient` nodes, which must be replaced before this one.
    pub(super) fn has_gradients(&self, resolved: &Resolved) -> bool {
        let model = resolved.model();
        let is_gradient = |node: &NodeId| resolved.is(*node, &GRADIENT);
        let is_inside = |graph: GraphId| {
            let graphs = tree(model, graph);
            graphs.iter().any(|graph| model.graph(*graph).nodes.iter().any(is_gradient))
        };
        let mut nodes = self.nodes.iter();
        nodes.any(|node| is_gradient(node) || inner_graphs(model, *node).any(is_inside))
    }

    /// Returns the nodes with active outputs whose operators have no gradient rule, also in
    /// subgraphs.
    pub(super) fn without_rule(&self, resolved: &Resolved) -> HashSet<NodeId> {
        let mut found = HashSet::new();
        without_rule(resolved, &self.nodes, &self.active, &mut found);
        found
    }

    /// Recomputes the `ys` if the gradient is computed at other values than the named ones, and
    /// replaces the inputs of the `Gradient` node by the recomputed values. Returns whether it did.
    pub(super) fn copies(&self, resolved: &mut Resolved) -> bool {
        let pairs = self.named.iter().zip(&self.given);
        let others: HashMap<ValueId, ValueId> = pairs
            .filter_map(|(named, given)| Some((*named, (*given)?)))
            .filter(|(named, given)| named != given)
            .collect();
        if others.is_empty() {
            return false;
        }
        let ys: Vec<ValueId> = self.ys.iter().map(|target| target.y).collect();
        let mut build = resolved.build(self.gradient);
        let (copies, ys) = build.copy_before(&self.nodes, &others, &ys);
        let model: &mut Model = build.model_mut();
        let named = self.given.iter().zip(&self.named).map(|(given, named)| given.or(Some(*named)));
        let inputs = self.given.iter().copied().chain(named).chain(ys.into_iter().map(Some));
        model.set_inputs(self.gradient, &inputs.collect::<Vec<_>>());
        resolved.take_callees(&copies);
        resolved.place_made();
        true
    }
}
