//! Static cost of a model: parameters, multiply-adds, elements, bytes, and the peak of live
//! activations.
//!
//! Costs follow from inferred shapes: nothing runs, and weights are not read. They are numbers, or
//! formulas over the symbols of the file. A summand of unknown size is counted as missing, so that
//! the known part of a sum is a lower bound.

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

/// Work and data of a node, or of several nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Work {
    /// Number of elements of the initializers that are read.
    pub parameters: Sum,
    /// Number of bytes of these initializers.
    pub parameter_bytes: Sum,
    /// Number of multiply-adds, as counted by [`sardonyx_ops::cost`].
    pub multiply_adds: Sum,
    /// Number of elements of computed outputs.
    pub elements: Sum,
    /// Number of bytes of computed outputs.
    pub bytes: Sum,
}

impl Work {
    /// Adds up the work of nodes, multiplied by their numbers of runs. Parameters are not computed,
    /// so that they count once for each node.
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

/// Cost of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCost {
    /// Node.
    pub node: NodeId,
    /// Graph that contains the node.
    pub graph: GraphId,
    /// Number of runs: a known number of iterations in a body, and 0 in the smaller branch of an
    /// `If`.
    pub runs: Dim,
    /// Work of one run.
    pub work: Work,
}

/// Cost of a model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cost {
    /// Nodes of the main graph in their order, each followed by the nodes of its subgraphs. Bodies
    /// of functions are part of the nodes that call them.
    pub nodes: Vec<NodeCost>,
    /// Work of all runs of all nodes, in which each initializer counts once.
    pub total: Work,
    /// Maximum of the memory that activations take at a time.
    pub peak: Peak,
    /// Number of bodies with an unknown number of runs, which count as one run.
    pub bodies_counted_once: usize,
}

/// Computes the cost of a model. `options` may have types and values of its inputs.
pub fn cost(model: &Model, registry: &Registry, options: InferOptions<'_>) -> Cost {
    let calls = CallCosts::default();
    let options = InferOptions { calls: Some(&calls), ..options };
    let found = infer_model(model, registry, options);
    walk(model, registry, &found, &calls)
}

/// Computes the cost of a model without calls of functions, from inferred types.
pub fn cost_of_inferred(model: &Model, registry: &Registry, found: &Inference) -> Cost {
    walk(model, registry, found, &CallCosts::default())
}

fn walk(model: &Model, registry: &Registry, found: &Inference, calls: &CallCosts) -> Cost {
    match model.main {
        Some(main) => {
            let imports = &model.header.opset_import;
            Walk::new(model, registry, found, calls, imports).cost_of(main)
        }
        None => Cost::default(),
    }
}

/// Returns the number of multiply-adds of a node of a resolved model. `None` if sizes in `found`
/// are not known, or if the operator has no rule for counting.
pub fn node_multiply_adds(resolved: &Resolved, found: &Inference, node: NodeId) -> Option<u64> {
    let op = resolved.op(node)?;
    let count = multiply_adds_of(resolved.model(), found, node, (op.schema, Some(op.def)), None);
    u64::try_from(count.known()?).ok()
}
