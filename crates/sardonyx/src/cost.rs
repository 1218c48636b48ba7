//! What a model costs: parameters, multiply-adds, bytes of activations, and their peak. Nothing
//! runs for it.
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

/// What a model costs.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Cost {
    /// The nodes of the main graph in their order, each followed by those of the graphs inside of
    /// it. What happens in a function of the model is part of the nodes that call it.
    pub nodes: Vec<NodeCost>,
    /// All runs of all nodes; each initializer once.
    pub total: Work,
    /// The most bytes that activations take at a time: each lives from the node that makes it to
    /// the last that reads it, graph inputs from the beginning, graph outputs to the end. Constants
    /// and weights do not count. A formula is that of the node at which it is largest when every
    /// symbol is [`ASSUMED_SIZE`].
    pub peak: Sum,
    /// The node that runs then, in words.
    pub peak_at: Option<String>,
    /// Bodies of loops of which it is unknown how often they run; they count once.
    pub bodies_counted_once: usize,
}

/// What a node costs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NodeCost {
    /// The graph, as a way through the messages of the file such as `graph` or
    /// `graph.node[3] 'then_branch'`.
    pub graph: String,
    /// Its name, or that of its first output if it has none.
    pub name: String,
    /// Domain of its operator; empty for `ai.onnx`.
    pub domain: String,
    /// Its operator, or the function that it calls.
    pub operator: String,
    /// How often it runs: 1, except in graphs inside of nodes. Of the branches of an `If` the
    /// smaller one never runs.
    pub runs: Dim,
    /// What it costs to run it once.
    pub work: Work,
}

impl Model {
    /// What the model costs, for sizes that are set or as formulas in the symbols of the file.
    /// Weights are not read.
    pub(crate) fn cost(&self, options: &InferOptions) -> Cost {
        let model = &self.graph;
        let found = passes::cost(model, &options.registry, options.settings());
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
    /// The same summed up by operator, in the order in which operators come first: how many nodes,
    /// and all of their runs. An initializer counts for each node that reads it.
    pub fn by_operator(&self) -> Vec<(String, usize, Work)> {
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
        let sum = |group: Vec<&NodeCost>| {
            let runs = group.iter().map(|node| (&node.work, &node.runs));
            (group[0].full_operator().into_owned(), group.len(), Work::sum(runs))
        };
        groups.into_iter().map(sum).collect()
    }
}

impl NodeCost {
    /// The operator, with its domain unless that is `ai.onnx`.
    pub fn full_operator(&self) -> Cow<'_, str> {
        match self.domain.as_str() {
            "" => self.operator.as_str().into(),
            domain => format!("{domain}.{}", self.operator).into(),
        }
    }
}
