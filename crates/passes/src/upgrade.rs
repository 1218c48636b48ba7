//! Upgrading: every node of the main graph in the newest form of its operator, so that kernels know one form.
//!
//! Node by node and boundary by boundary, with the adapters that stand beside the operators. A boundary without adapter
//! is one that the schemas say changes nothing for a model that was valid before.

use std::collections::BTreeMap;

use sardonyx_model::{NodeId, Type, ValueId};
use sardonyx_ops::Adapt;

use crate::check::codes;
use crate::finding::{Finding, Spot};
use crate::infer::Inference;
use crate::resolve::Resolved;

/// Nodes of one operator that had to change on the way to its newest form.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Upgrade {
    /// Domain; empty for `ai.onnx`.
    pub domain: &'static str,
    /// The operator.
    pub op: &'static str,
    /// The opset version in whose form the nodes were.
    pub from: u32,
    /// The opset version of the newest form.
    pub to: u32,
    /// How many nodes.
    pub nodes: usize,
}

/// Brings every node to the newest form, and lists those that an adapter changed, by operator. `inference` is what was
/// found at the file's own versions.
///
/// # Errors
///
/// Every node for which no exact newer form exists.
pub fn upgrade(
    resolved: &mut Resolved,
    inference: &Inference,
) -> Result<Vec<Upgrade>, Vec<Finding>> {
    let mut findings = Vec::new();
    let mut upgraded: BTreeMap<(&str, &str, u32), Upgrade> = BTreeMap::new();
    let mut waiting: Vec<NodeId> = resolved.order().to_vec();
    let types = |value: ValueId| -> Option<Type> { inference.ty(value).cloned() };
    let mut grew = false;
    while let Some(node) = waiting.pop() {
        let Some(operator) = resolved.operator(node) else {
            continue;
        };
        let from = resolved.opset(node);
        let mut changed = false;
        for version in operator
            .versions()
            .map(|version| version.since)
            .filter(|since| *since > from)
        {
            let Some(adapt) = operator.adapter_at(version - 1, version) else {
                continue;
            };
            changed = true;
            let mut cx = Adapt::new(resolved.model_mut(), node, &types);
            let result = adapt(&mut cx);
            let made = cx.into_made();
            grew |= !made.is_empty();
            for made in made {
                resolved.set_opset(made, version);
                waiting.push(made);
            }
            if let Err(refusal) = result {
                let fact = format!(
                    "it cannot be brought from opset version {from} to {version}: {refusal}"
                );
                findings.push(Finding::new(
                    resolved.model(),
                    &codes::NO_EXACT_UPGRADE,
                    Spot::node(node),
                    fact,
                ));
                break;
            }
        }
        if changed {
            let (domain, op, to) = (operator.domain, operator.name, operator.newest());
            let nodes = upgraded.entry((domain, op, from)).or_insert(Upgrade {
                domain,
                op,
                from,
                to,
                nodes: 0,
            });
            nodes.nodes += 1;
        }
        resolved.set_opset(node, operator.newest().max(from));
    }
    if grew && let Err(finding) = resolved.sort_again() {
        findings.push(*finding);
    }
    if findings.is_empty() {
        Ok(upgraded.into_values().collect())
    } else {
        Err(findings)
    }
}
