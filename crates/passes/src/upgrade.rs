//! Upgrading: every node of the main graph in the newest form of its operator, so that kernels know one form.
//!
//! Node by node and boundary by boundary, with the adapters that stand beside the operators. A boundary without adapter
//! is one that the schemas say changes nothing for a model that was valid before.

use sardonyx_model::{NodeId, Type, ValueId};
use sardonyx_ops::Adapt;

use crate::check::codes;
use crate::finding::{Finding, Spot};
use crate::infer::Inference;
use crate::resolve::Resolved;

/// Brings every node to the newest form. `inference` is what was found at the file's own versions.
///
/// # Errors
///
/// Every node for which no exact newer form exists.
pub fn upgrade(resolved: &mut Resolved, inference: &Inference) -> Result<(), Vec<Finding>> {
    let mut findings = Vec::new();
    let mut waiting: Vec<NodeId> = resolved.order().to_vec();
    let types = |value: ValueId| -> Option<Type> { inference.ty(value).cloned() };
    let mut grew = false;
    while let Some(node) = waiting.pop() {
        let Some(operator) = resolved.operator(node) else {
            continue;
        };
        let from = resolved.opset(node);
        for version in operator
            .versions()
            .map(|version| version.since)
            .filter(|since| *since > from)
        {
            let Some(adapt) = operator.adapter_at(version - 1, version) else {
                continue;
            };
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
        resolved.set_opset(node, operator.newest().max(from));
    }
    if grew && let Err(finding) = resolved.sort_again() {
        findings.push(*finding);
    }
    if findings.is_empty() {
        Ok(())
    } else {
        Err(findings)
    }
}
