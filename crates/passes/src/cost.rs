//! What a model costs, from inference alone: parameters, multiply-adds, elements, bytes, and the
//! peak of live activations.
//!
//! Sizes are numbers, or formulas in the symbols of the file. What has no size in advance is
//! counted as missing, so that a sum is then at least what is known of it. Nothing runs, and
//! weights are not read.

mod calls;
mod live;
mod sum;
mod walk;

use sardonyx_model::{Dim, GraphId, Model, NodeId};
use sardonyx_ops::Registry;

use crate::infer::{InferOptions, Inference, infer_model};
use crate::resolve::Resolved;
use sum::Adder;
use walk::{Walk, multiply_adds_of};

pub use calls::CallCosts;
pub use live::Peak;
pub use sum::{ASSUMED_SIZE, Sum, at_assumed_sizes};

/// Work and data of a node, or of many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Work {
    /// Elements of initializers that are read.
    pub parameters: Sum,
    /// Their bytes.
    pub parameter_bytes: Sum,
    /// Multiply-adds, as [`sardonyx_ops::cost`] counts them.
    pub multiply_adds: Sum,
    /// Elements that are made.
    pub elements: Sum,
    /// Bytes that are made.
    pub bytes: Sum,
}

impl Work {
    /// All of many nodes, each as often as it runs. Parameters are read, not made: they count once
    /// for each node.
    pub fn sum<'a>(nodes: impl Iterator<Item = (&'a Work, &'a Dim)>) -> Work {
        let [mut parameters, mut parameter_bytes] = <[Adder; 2]>::default();
        let [mut multiply_adds, mut elements, mut bytes] = <[Adder; 3]>::default();
        for (work, runs) in nodes {
            parameters.add(&work.parameters);
            parameter_bytes.add(&work.parameter_bytes);
            multiply_adds.add(&work.multiply_adds.times(runs));
            elements.add(&work.elements.times(runs));
            bytes.add(&work.bytes.times(runs));
        }
        Work {
            parameters: parameters.finish(),
            parameter_bytes: parameter_bytes.finish(),
            multiply_adds: multiply_adds.finish(),
            elements: elements.finish(),
            bytes: bytes.finish(),
        }
    }
}

/// What a node costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCost {
    /// The node.
    pub node: NodeId,
    /// The graph it stands in.
    pub graph: GraphId,
    /// How often it runs: more than once in a body whose number of runs is known, never in the
    /// smaller branch of an `If`.
    pub runs: Dim,
    /// What it costs to run it once.
    pub work: Work,
}

/// What a model costs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cost {
    /// The nodes of the main graph in their order, each followed by those of the graphs inside of
    /// it. Bodies of functions are part of the nodes that call them.
    pub nodes: Vec<NodeCost>,
    /// All runs of all nodes; each initializer once.
    pub total: Work,
    /// The most memory that activations take at a time.
    pub peak: Peak,
    /// Bodies of which it is unknown how often they run; they count once.
    pub bodies_counted_once: usize,
}

/// What a model costs, if this is known of its inputs.
pub fn cost(model: &Model, registry: &Registry, options: InferOptions<'_>) -> Cost {
    let calls = CallCosts::default();
    let options = InferOptions { calls: Some(&calls), ..options };
    let found = infer_model(model, registry, options);
    walked(model, registry, &found, &calls)
}

/// What a model costs without calls of functions, of whose values this is known.
pub fn cost_of_inferred(model: &Model, registry: &Registry, found: &Inference) -> Cost {
    walked(model, registry, found, &CallCosts::default())
}

fn walked(model: &Model, registry: &Registry, found: &Inference, calls: &CallCosts) -> Cost {
    match model.main {
        Some(main) => {
            let imports = &model.header.opset_import;
            Walk::new(model, registry, found, calls, imports).cost_of(main)
        }
        None => Cost::default(),
    }
}

/// The multiply-adds of one node of a resolved model, in the form that it has there. `None` if
/// `found` says too little of sizes, or nobody knows how to count the operator.
pub fn node_multiply_adds(resolved: &Resolved, found: &Inference, node: NodeId) -> Option<u64> {
    let op = resolved.op(node)?;
    let count = multiply_adds_of(resolved.model(), found, node, (op.schema, Some(op.def)), None);
    u64::try_from(count.known()?).ok()
}
