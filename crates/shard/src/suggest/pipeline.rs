//! Annotations that divide nodes into pipeline stages.

use hashbrown::HashMap;
use sardonyx_model::{GraphId, Model, NodeId};
use sardonyx_ops::Registry;
use sardonyx_passes::{Sum, at_assumed_sizes, cost_of_inferred, node_multiply_adds};

use super::{Annotations, ShardReport};
use crate::prepare::Prepared;
use crate::typed::TypedModel;

/// Multiply-adds that take about as long as reading or writing one element: a core that computes 60
/// billion multiply-adds per second reads 15 GB per second from memory, at 4 bytes per element.
const ELEMENT_WORK: u64 = 16;

impl Annotations<'_> {
    /// Annotates nodes with stages of about equal work, one for each device, in their order.
    pub(super) fn divide_into_stages(
        &mut self,
        prepared: &Prepared,
        inner: &InnerWork,
    ) -> ShardReport {
        let typed = TypedModel::new(prepared);
        let resolved = &prepared.resolved;
        let order = resolved.order_of(resolved.main());
        let multiply_adds = |node: NodeId| {
            let own = node_multiply_adds(resolved, &prepared.types, node).unwrap_or(0);
            own.saturating_add(inner.of_node(node).0)
        };
        let work = |node: NodeId| {
            let model = resolved.model();
            let operands = model.inputs(node).chain(model.outputs(node).iter().copied());
            let elements = operands.flatten().map(|value| typed.elements(value));
            let elements = elements.fold(inner.of_node(node).1, u64::saturating_add);
            multiply_adds(node).saturating_add(elements.saturating_mul(ELEMENT_WORK))
        };
        let all: u64 = order.iter().map(|node| work(*node)).sum();
        let mut stages = vec![0; self.devices];
        let mut done = 0u64;
        for node in order.iter().copied() {
            let own = work(node);
            let middle = u128::from(done + own / 2);
            let stage = (middle * self.devices as u128 / u128::from(all.max(1))) as usize;
            let stage = stage.min(self.devices - 1);
            done += own;
            stages[stage] += multiply_adds(node);
            self.annotate(node, Vec::new(), i64::try_from(stage).ok());
        }
        ShardReport { stages, ..ShardReport::default() }
    }
}

/// Work in the graphs of nodes.
pub(super) struct InnerWork {
    /// Multiply-adds and elements of all graphs in a node of the main graph.
    by_node: HashMap<NodeId, (u64, u64)>,
    /// Number of nodes with multiply-adds in such graphs.
    pub(super) nodes: usize,
}

impl InnerWork {
    pub(super) fn new(prepared: &Prepared, registry: &Registry) -> InnerWork {
        let model = prepared.resolved.model();
        let mut inner = InnerWork { by_node: HashMap::new(), nodes: 0 };
        for cost in cost_of_inferred(model, registry, &prepared.types).nodes {
            let Some(owner) = main_node_around(model, cost.graph) else { continue };
            let size = |sum: &Sum| u64::try_from(at_assumed_sizes(&sum.known)).unwrap_or(0);
            inner.nodes += usize::from(size(&cost.work.multiply_adds) > 0);
            let sum = inner.by_node.entry(owner).or_default();
            sum.0 = sum.0.saturating_add(size(&cost.work.multiply_adds.times(&cost.runs)));
            sum.1 = sum.1.saturating_add(size(&cost.work.elements.times(&cost.runs)));
        }
        inner
    }

    /// Returns the multiply-adds and elements of the graphs in a node.
    fn of_node(&self, node: NodeId) -> (u64, u64) {
        self.by_node.get(&node).copied().unwrap_or_default()
    }
}

/// Returns the node of the main graph that contains a graph; `None` for the main graph.
fn main_node_around(model: &Model, graph: GraphId) -> Option<NodeId> {
    let mut owner = None;
    let mut graph = graph;
    while let Some(around) = model.graph(graph).owner {
        owner = Some(around);
        graph = model.node(around).graph;
    }
    owner
}
