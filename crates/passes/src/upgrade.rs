//! Upgrade of every node of all graphs to the newest form of its operator, so that kernels support
//! one form. It is a [conversion](mod@crate::convert) of each node as far as possible, for callers
//! that do not write the model: imports stay unchanged.

use std::collections::BTreeMap;

use hashbrown::HashSet;
use sardonyx_model::NodeId;

use crate::codes;
use crate::cross::{Crossings, Goal, Types};
use crate::finding::{Finding, Spot};
use crate::infer::Inference;
use crate::resolve::Resolved;

/// Nodes of one operator that changed on the way to its newest form.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Upgrade {
    /// Domain; empty for `ai.onnx`.
    pub domain: &'static str,
    /// Name of the operator.
    pub op: &'static str,
    /// Opset version of the former form.
    pub from: u32,
    /// Opset version of the newest form.
    pub to: u32,
    /// Number of nodes.
    pub nodes: usize,
}

/// Nodes without an exact newer form.
#[derive(Debug, Clone)]
pub struct NoUpgrade {
    /// Nodes.
    pub nodes: HashSet<NodeId>,
    /// Findings with the reasons.
    pub findings: Vec<Finding>,
}

/// Brings every node to the newest form. Lists those that changed, by operator. `inference` holds
/// the results at the versions of the file. Nodes for which `stays` returns true stay unchanged.
///
/// # Errors
///
/// Some nodes have no exact newer form; returns all of them.
pub fn upgrade(
    resolved: &mut Resolved,
    inference: &Inference,
    stays: &dyn Fn(&Resolved, NodeId) -> bool,
) -> Result<Vec<Upgrade>, NoUpgrade> {
    let mut refused = NoUpgrade { nodes: HashSet::new(), findings: Vec::new() };
    let mut changed: BTreeMap<(&'static str, &'static str, u32), Upgrade> = BTreeMap::new();
    let mut crossings = Crossings::new(Goal::Newest, Types::new(inference));
    let all = resolved.graphs().iter().flat_map(|graph| resolved.order_of(*graph));
    let nodes: Vec<NodeId> = all.copied().collect();
    for node in nodes {
        let Some(op) = resolved.op(node) else {
            continue;
        };
        if stays(resolved, node) {
            continue;
        }
        let (model, made, registry) = resolved.parts_mut();
        let crossed = crossings.cross(model, made, registry, node, op);
        for (node, opset) in crossed.forms {
            if resolved.op(node).is_none_or(|op| op.opset < opset) {
                resolved.set_opset(node, opset);
            }
        }
        let from = op.opset;
        if !crossed.stops.is_empty() {
            refused.nodes.insert(node);
        }
        for stop in crossed.stops {
            let (to, why) = (stop.to, stop.why);
            let made = if stop.op.def.is(op.def) {
                String::new()
            } else {
                format!("{}, which it requires: ", stop.op.def.full_name())
            };
            let fact =
                format!("it cannot be converted from opset version {from} to {to}: {made}{why}");
            let spot = Spot::node(resolved.origin(stop.node));
            refused.findings.push(Finding::new(
                resolved.model(),
                &codes::NO_EXACT_UPGRADE,
                spot,
                fact,
            ));
        }
        if crossed.is_rewritten {
            let (domain, name, to) = (op.def.domain, op.def.name, op.def.newest());
            let none = Upgrade { domain, op: name, from, to, nodes: 0 };
            changed.entry((domain, name, from)).or_insert(none).nodes += 1;
        }
    }
    resolved.place_made();
    if !changed.is_empty() {
        resolved.find_graphs();
    }
    if refused.nodes.is_empty() { Ok(changed.into_values().collect()) } else { Err(refused) }
}
