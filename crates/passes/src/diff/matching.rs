//! Pairs of nodes and values that stand for each other in two models.
//!
//! Nodes are matched in this order, each stage among the nodes that are left:
//!
//! 1. equal lines: callee, attributes, and the names of all inputs and outputs;
//! 2. by a value that both make, if they call the same operator;
//! 3. by their computation: the same callee and attributes, and inputs that are matched. Then by
//!    their readers, and by the values that they read, if they call the same operator;
//! 4. by a value that both make, whatever they call;
//! 5. by order, between neighbours that are matched.
//!
//! Exporters that number values shift all names behind an inserted node. Where most names that both
//! graphs have belong to nodes that are not equal lines, stage 3 therefore comes before stage 2.
//!
//! Each stage looks a node up in a table and looks at a bounded number of readers, so time is
//! linear in the size of the models.

use std::hash::{DefaultHasher, Hash, Hasher};

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{GraphId, Id, Model, NodeId, Producer, ValueId};

use super::GraphPair;
use super::queues::Queues;
use super::side::{Callee, Side};

/// The most readers of a value that a search for a node looks at.
const READERS: usize = 16;

/// Repetitions of the stage that follows values through a graph.
const ROUNDS: usize = 4;

/// Nodes and values of two models that stand for each other.
pub(super) struct Matching<'s, 'm> {
    pub(super) before: &'s Side<'m>,
    pub(super) after: &'s Side<'m>,
    /// The partner of each node of the first model.
    node_after: Vec<Option<NodeId>>,
    /// The partner of each node of the second model.
    node_before: Vec<Option<NodeId>>,
    /// The partner of each value of the first model.
    value_after: Vec<Option<ValueId>>,
    /// The partner of each value of the second model.
    value_before: Vec<Option<ValueId>>,
    signatures: [Vec<u64>; 2],
    /// Constants of the second model that are paired by type and shape alone.
    loose: HashSet<ValueId>,
}

impl<'s, 'm> Matching<'s, 'm> {
    pub(super) fn new(before: &'s Side<'m>, after: &'s Side<'m>) -> Self {
        let signatures = [before, after].map(|side| {
            let nodes = (0..side.model.node_count()).map(NodeId::new);
            nodes.map(|node| side.hash_node(node)).collect()
        });
        let mut matching = Matching {
            before,
            after,
            node_after: vec![None; before.model.node_count()],
            node_before: vec![None; after.model.node_count()],
            value_after: vec![None; before.model.value_count()],
            value_before: vec![None; after.model.value_count()],
            signatures,
            loose: HashSet::new(),
        };
        matching.pair_undefined();
        matching
    }

    /// Pairs the names that nothing defines.
    fn pair_undefined(&mut self) {
        let undefined = |side: &Side<'_>| -> Vec<ValueId> {
            let values = side.model.values();
            let values = values.filter(|(_, value)| value.producer == Producer::Nothing);
            values.map(|(id, _)| id).collect()
        };
        let (before, after) = (undefined(self.before), undefined(self.after));
        self.pair_names(before.into_iter(), after.into_iter());
    }

    /// Returns the node of the second model that stands for a node of the first.
    pub(super) fn node_after(&self, node: NodeId) -> Option<NodeId> {
        self.node_after[node.index()]
    }

    /// Returns the node of the first model for which a node of the second stands.
    pub(super) fn node_before(&self, node: NodeId) -> Option<NodeId> {
        self.node_before[node.index()]
    }

    /// Whether two values stand for each other, or both are absent.
    pub(super) fn are_same(&self, before: Option<ValueId>, after: Option<ValueId>) -> bool {
        match (before, after) {
            (None, None) => true,
            (Some(before), Some(after)) => self.value_before(after) == Some(before),
            _ => false,
        }
    }

    /// Returns the value of the first model for which a value of the second stands.
    pub(super) fn value_before(&self, value: ValueId) -> Option<ValueId> {
        self.value_before[value.index()]
    }

    /// Returns the value of the second model that stands for a value of the first.
    pub(super) fn value_after(&self, value: ValueId) -> Option<ValueId> {
        self.value_after[value.index()]
    }

    /// Matches two constants that have only type and shape in common, unless one of them has a
    /// partner.
    pub(super) fn pair_loosely(&mut self, before: ValueId, after: ValueId) {
        if self.value_before(after).is_none() {
            self.pair_values(before, after);
            self.loose.insert(after);
        }
    }

    /// Whether a constant of the second model is paired by type and shape alone.
    pub(super) fn is_loose(&self, after: ValueId) -> bool {
        self.loose.contains(&after)
    }

    /// Whether two nodes have the same operator and attributes.
    pub(super) fn compute_equally(&self, before: NodeId, after: NodeId) -> bool {
        self.signatures[0][before.index()] == self.signatures[1][after.index()]
    }

    /// Makes two values partners unless one of them has a partner.
    pub(super) fn pair_values(&mut self, before: ValueId, after: ValueId) {
        let (there, here) =
            (&mut self.value_after[before.index()], &mut self.value_before[after.index()]);
        if there.is_none() && here.is_none() {
            (*there, *here) = (Some(after), Some(before));
        }
    }

    /// Pairs the values of the same name; where several have it, in their order.
    pub(super) fn pair_names(
        &mut self,
        before: impl Iterator<Item = ValueId>,
        after: impl Iterator<Item = ValueId>,
    ) {
        let mut names = Queues::with_capacity(before.size_hint().0);
        for value in before {
            if let Some(name) = self.before.name(value) {
                names.add(name, value);
            }
        }
        for value in after {
            if let Some(partner) = self.after.name(value).and_then(|name| names.take(&name)) {
                self.pair_values(partner, value);
            }
        }
    }

    /// Makes two nodes partners, and their outputs.
    fn pair(&mut self, before: NodeId, after: NodeId) {
        self.node_after[before.index()] = Some(after);
        self.node_before[after.index()] = Some(before);
        let (before_model, after_model) = (self.before.model, self.after.model);
        let outputs = before_model.outputs(before).iter().zip(after_model.outputs(after));
        for (before, after) in outputs {
            if let (Some(before), Some(after)) = (before, after) {
                self.pair_values(*before, *after);
            }
        }
    }

    /// Matches the nodes of two graphs whose inputs and constants are paired.
    pub(super) fn match_nodes(&mut self, graphs: GraphPair) {
        let mut nodes = Nodes {
            before: self.before.model.graph(graphs.before).nodes.clone(),
            after: self.after.model.graph(graphs.after).nodes.clone(),
        };
        self.match_lines(&mut nodes);
        let equal = self.after.model.graph(graphs.after).nodes.len() - nodes.after.len();
        let named = self.find_by_name(&nodes, true).len();
        if named <= equal {
            self.match_names(&mut nodes, true);
            self.follow_values(&mut nodes, graphs);
        } else {
            self.follow_values(&mut nodes, graphs);
            self.match_names(&mut nodes, true);
        }
        self.match_names(&mut nodes, false);
        self.match_order(&nodes, graphs);
    }

    fn match_lines(&mut self, nodes: &mut Nodes) {
        let mut lines = Queues::with_capacity(nodes.before.len());
        for node in &nodes.before {
            lines.add(self.hash_line(0, *node), *node);
        }
        for node in std::mem::take(&mut nodes.after) {
            match lines.take(&self.hash_line(1, node)) {
                Some(before) => self.pair(before, node),
                None => nodes.after.push(node),
            }
        }
        nodes.before.retain(|node| self.node_after(*node).is_none());
    }

    /// Hashes a node with the names of its inputs and outputs.
    fn hash_line(&self, side: usize, node: NodeId) -> u64 {
        let names = if side == 0 { self.before } else { self.after };
        let mut hasher = DefaultHasher::new();
        self.signatures[side][node.index()].hash(&mut hasher);
        for value in names.model.inputs(node) {
            value.and_then(|value| names.name(value)).hash(&mut hasher);
        }
        for value in names.model.outputs(node) {
            value.and_then(|value| names.name(value)).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Finds nodes that make a value of the same name, `with_callee` only those with the same
    /// callee.
    fn find_by_name(&self, nodes: &Nodes, with_callee: bool) -> Vec<(NodeId, NodeId)> {
        let model = self.before.model;
        let made = nodes.before.iter().flat_map(|node| {
            let outputs = model.outputs(*node).iter().flatten();
            outputs.filter_map(|value| Some((self.before.name(*value)?, *node)))
        });
        let made: HashMap<usize, NodeId> = made.collect();
        let mut pairs = Vec::new();
        for after in &nodes.after {
            let mut names = self
                .after
                .model
                .outputs(*after)
                .iter()
                .flatten()
                .filter_map(|v| self.after.name(*v));
            let Some(before) = names.find_map(|name| made.get(&name)) else { continue };
            if !with_callee || self.before.callee(*before) == self.after.callee(*after) {
                pairs.push((*before, *after));
            }
        }
        pairs
    }

    fn match_names(&mut self, nodes: &mut Nodes, with_callee: bool) {
        for (before, after) in self.find_by_name(nodes, with_callee) {
            if self.node_after(before).is_none() {
                self.pair(before, after);
            }
        }
        self.drop_matched(nodes);
    }

    fn drop_matched(&self, nodes: &mut Nodes) {
        nodes.before.retain(|node| self.node_after(*node).is_none());
        nodes.after.retain(|node| self.node_before(*node).is_none());
    }

    /// Follows values forwards and backwards until a round finds nothing.
    fn follow_values(&mut self, nodes: &mut Nodes, graphs: GraphPair) {
        for _ in 0..ROUNDS {
            let left = nodes.after.len();
            self.match_computed(nodes);
            self.match_makers(nodes, graphs);
            self.match_readers(nodes, graphs.before);
            if nodes.after.len() == left || nodes.before.is_empty() {
                break;
            }
        }
    }

    /// Matches nodes with the same signature and matched inputs, from the inputs on.
    fn match_computed(&mut self, nodes: &mut Nodes) {
        let mut computed = Queues::with_capacity(nodes.before.len());
        for node in &nodes.before {
            let inputs = self.before.model.inputs(*node);
            let key = self.hash_computation(self.signatures[0][node.index()], inputs);
            computed.add(key, *node);
        }
        for node in std::mem::take(&mut nodes.after) {
            let inputs: Option<Vec<Option<ValueId>>> = self
                .after
                .model
                .inputs(node)
                .map(|value| match value {
                    None => Some(None),
                    Some(value) => self.value_before(value).map(Some),
                })
                .collect();
            let key = inputs.map(|inputs| {
                self.hash_computation(self.signatures[1][node.index()], inputs.into_iter())
            });
            match key.and_then(|key| computed.take(&key)) {
                Some(before) => self.pair(before, node),
                None => nodes.after.push(node),
            }
        }
        self.drop_matched(nodes);
    }

    /// Hashes a signature with the values of the first model that a node reads.
    fn hash_computation(
        &self,
        signature: u64,
        inputs: impl Iterator<Item = Option<ValueId>>,
    ) -> u64 {
        let mut hasher = DefaultHasher::new();
        signature.hash(&mut hasher);
        inputs.for_each(|value| value.map(Id::index).hash(&mut hasher));
        hasher.finish()
    }

    /// Matches nodes with the same callee whose outputs have matched readers or are the same output
    /// of the graph, from the outputs on.
    fn match_makers(&mut self, nodes: &mut Nodes, graphs: GraphPair) {
        let mut outputs: HashMap<ValueId, ValueId> = HashMap::new();
        for (before, after) in self.pair_outputs(graphs) {
            outputs.entry(after).or_insert(before);
        }
        for node in nodes.after.iter().rev() {
            let Some(before) = self.find_maker_before(*node, &outputs) else { continue };
            let is_free = self.node_after(before).is_none();
            let is_here = self.before.model.node(before).graph == graphs.before;
            if is_free && is_here && self.before.callee(before) == self.after.callee(*node) {
                self.pair(before, *node);
            }
        }
        self.drop_matched(nodes);
    }

    /// Finds the node of the first model whose outputs the readers of a node's outputs read there.
    fn find_maker_before(
        &self,
        node: NodeId,
        outputs: &HashMap<ValueId, ValueId>,
    ) -> Option<NodeId> {
        let (before, after) = (self.before.model, self.after.model);
        after.outputs(node).iter().flatten().find_map(|value| {
            let read = after.uses(*value).take(READERS).find_map(|(reader, index)| {
                let reader = self.node_before(reader)?;
                before.input(reader, index).filter(|value| self.value_after(*value).is_none())
            });
            let value = read.or_else(|| outputs.get(value).copied())?;
            match before.value(value).producer {
                Producer::Node(node, _) => Some(node),
                _ => None,
            }
        })
    }

    /// Pairs the outputs of two graphs: by name, else by position.
    pub(super) fn pair_outputs(&self, graphs: GraphPair) -> Vec<(ValueId, ValueId)> {
        let outputs = |model: &Model, graph: GraphId| -> Vec<Option<ValueId>> {
            model.graph(graph).outputs.iter().map(|info| info.value).collect()
        };
        let (before, after) =
            (outputs(self.before.model, graphs.before), outputs(self.after.model, graphs.after));
        let named: HashMap<usize, ValueId> =
            before.iter().flatten().filter_map(|v| Some((self.before.name(*v)?, *v))).collect();
        let known: HashSet<usize> =
            after.iter().flatten().filter_map(|value| self.after.name(*value)).collect();
        let mut pairs = Vec::new();
        for (index, value) in after.iter().enumerate() {
            let Some(value) = *value else { continue };
            let named = self.after.name(value).and_then(|name| named.get(&name).copied());
            let at = before.get(index).copied().flatten();
            let at = at.filter(|v| self.before.name(*v).is_none_or(|name| !known.contains(&name)));
            pairs.extend(named.or(at).map(|before| (before, value)));
        }
        pairs
    }

    /// Matches nodes with the same callee that read matched values.
    fn match_readers(&mut self, nodes: &mut Nodes, graph: GraphId) {
        for node in &nodes.after {
            let callee = self.after.callee(*node);
            let inputs = self.after.model.inputs(*node).enumerate();
            let values =
                inputs.filter_map(|(index, value)| Some((index, self.value_before(value?)?)));
            let found = values.take(READERS).find_map(|(index, value)| {
                let mut readers = self.before.model.uses(value).take(READERS);
                readers.find(|(reader, at)| {
                    let is_here = self.before.model.node(*reader).graph == graph;
                    let is_free = is_here && self.node_after(*reader).is_none();
                    *at == index && is_free && self.before.callee(*reader) == callee
                })
            });
            if let Some((before, _)) = found {
                self.pair(before, *node);
            }
        }
        self.drop_matched(nodes);
    }

    /// Matches nodes with the same callee in the same order between matched neighbours.
    fn match_order(&mut self, nodes: &Nodes, graphs: GraphPair) {
        if nodes.before.is_empty() || nodes.after.is_empty() {
            return;
        }
        // A gap is named by the matched node of the first model in front of it.
        let mut gaps: Queues<(Option<NodeId>, Callee), NodeId> =
            Queues::with_capacity(nodes.before.len());
        let mut last = None;
        for node in &self.before.model.graph(graphs.before).nodes {
            match self.node_after(*node) {
                Some(_) => last = Some(*node),
                None => gaps.add((last, self.before.callee(*node)), *node),
            }
        }
        let mut last = None;
        for node in &self.after.model.graph(graphs.after).nodes {
            match self.node_before(*node) {
                Some(before) => last = Some(before),
                None => {
                    let gap = (last, self.after.callee(*node));
                    if let Some(before) = gaps.take(&gap) {
                        self.pair(before, *node);
                    }
                }
            }
        }
    }
}

/// Nodes of two graphs that have no partner yet, in the order of the files.
struct Nodes {
    before: Vec<NodeId>,
    after: Vec<NodeId>,
}
