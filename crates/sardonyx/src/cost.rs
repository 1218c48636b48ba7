//! Counts parameters, multiply-adds and bytes of activations of a model, and their peak, without
//! running it.
//!
//! ```
//! use sardonyx::{Model, infer, tool::ModelExt};
//!
//! let model = Model::from_text(
//!     "<ir_version: 10, opset_import: [\"\": 21]>
//!      g (float[N, 4] x) => (float[N, 2] z) <float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}> {
//!          y = MatMul (x, w)
//!          z = Relu (y)
//!      }",
//! )?;
//! let cost = model.cost(&infer::InferOptions::new());
//! assert_eq!(cost.total.parameters.known.to_string(), "8");
//! assert_eq!(cost.total.multiply_adds.known.to_string(), "8*N");
//! assert_eq!(cost.peak.known.to_string(), "24*N");
//! assert_eq!(cost.peak_at.as_deref(), Some("MatMul node that makes 'y'"));
//!
//! let cost = model.cost(&infer::InferOptions::new().set("N", 2));
//! assert_eq!(cost.nodes[0].work.multiply_adds.known.known(), Some(16));
//! # Ok::<(), sardonyx::Error>(())
//! ```

use std::borrow::Cow;
use std::collections::HashMap;

use sardonyx_model::Dim;
use sardonyx_passes as passes;
use sardonyx_proto::shown;

use sardonyx_passes::{Sum, Work};

use crate::inference::InferOptions;
use crate::model::Model;

/// Cost of running a model: parameters, multiply-adds and memory, by node and in total.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Cost {
    /// Costs of the main graph's nodes in their order, each followed by the nodes of its subgraphs.
    /// The body of a model function counts as part of the nodes that call it.
    pub nodes: Vec<NodeCost>,
    /// Cost of all runs of all nodes together; each initializer counts once.
    pub total: Work,
    /// Peak memory of activations (intermediate values, graph inputs and outputs), in bytes. An
    /// activation is live from the node that computes it to its last reader, a graph input from the
    /// beginning, a graph output to the end. Weights and other constants do not count. If sizes are
    /// symbolic, this is the formula of the node at which memory is largest when every symbol is
    /// [`ASSUMED_SIZE`].
    pub peak: Sum,
    /// Description of the node during which the memory of activations has its peak, such as `node
    /// 'conv1' (Conv)`; `None` if no node does.
    pub peak_at: Option<String>,
    /// Number of loop bodies whose number of iterations is unknown; the cost of each counts once.
    pub bodies_counted_once: usize,
}

/// Cost of one node of a model: parameters, multiply-adds and memory.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NodeCost {
    /// Graph that has the node, as a path through the protobuf messages of the model, such as
    /// `graph` or `graph.node[3] 'then_branch'`.
    pub graph: String,
    /// Name of the node, or of its first output if the node has no name.
    pub name: String,
    /// Domain of the node's operator; empty for `ai.onnx`.
    pub domain: String,
    /// Name of the node's operator, or of the function that the node calls.
    pub operator: String,
    /// Number of times that the node runs: 1, except in subgraphs. In the cheaper branch of an
    /// `If` it is 0.
    pub runs: Dim,
    /// Cost of running the node once.
    pub work: Work,
}

impl Model {
    /// Computes the cost of running the model. Symbolic dimensions that `options` does not set stay
    /// symbols, and costs are formulas in these symbols. Weights are not read.
    pub(crate) fn cost(&self, options: &InferOptions) -> Cost {
        let model = &self.graph;
        let found = passes::cost(model, &options.registry, options.to_pass_options());
        let places = model.graph_places();
        let nodes = found.nodes.into_iter().map(|cost| {
            let place = places.get(&cost.graph).cloned();
            let node = model.node(cost.node);
            NodeCost {
                graph: place.unwrap_or_default(),
                name: passes::name_of_node(model, cost.node),
                domain: model.domain_of(cost.node).into_owned(),
                operator: shown(model.maybe_text(node.op_type).unwrap_or_default()),
                runs: cost.runs,
                work: cost.work,
            }
        });
        Cost {
            nodes: nodes.collect(),
            total: found.total,
            peak: found.peak.bytes,
            peak_at: found.peak.node.map(|node| passes::place_of_node(model, node)),
            bodies_counted_once: found.bodies_counted_once,
        }
    }
}

impl Cost {
    /// Sums the cost of nodes by operator, in the order of first occurrence. Returns each
    /// operator's name, its number of nodes and the cost of all their runs. An initializer counts
    /// for each node that reads it.
    pub fn sum_by_operator(&self) -> Vec<(String, usize, Work)> {
        let mut places: HashMap<(&str, &str), usize> = HashMap::new();
        let mut groups: Vec<Vec<&NodeCost>> = Vec::new();
        for node in &self.nodes {
            let key = (node.domain.as_str(), node.operator.as_str());
            let index = *places.entry(key).or_insert(groups.len());
            match groups.get_mut(index) {
                Some(group) => group.push(node),
                None => groups.push(vec![node]),
            }
        }
        let mut sums = Vec::with_capacity(groups.len());
        for group in groups {
            let runs = group.iter().map(|node| (&node.work, &node.runs));
            sums.push((group[0].full_operator().into_owned(), group.len(), Work::sum(runs)));
        }
        sums
    }
}

impl NodeCost {
    /// Returns the name of the node's operator, after its domain and a dot unless the domain is
    /// `ai.onnx`.
    pub fn full_operator(&self) -> Cow<'_, str> {
        match self.domain.as_str() {
            "" => self.operator.as_str().into(),
            domain => format!("{domain}.{}", self.operator).into(),
        }
    }
}
