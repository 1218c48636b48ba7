//! Upgrading: every node of all graphs in the newest form of its operator, so that kernels know one
//! form.
//!
//! Node by node and boundary by boundary, with the adapters that stand beside the operators. A
//! boundary without adapter changes nothing for a model that was valid before; a node for which the
//! schemas alone show otherwise is refused.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use sardonyx_model::{Model, NodeId};
use sardonyx_ops::{Adapt, Boundary, Refusal};

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

/// Brings every node to the newest form, and lists those that an adapter changed, by operator.
/// `inference` is what was found at the file's own versions.
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
    let all = resolved.graphs().iter().flat_map(|graph| resolved.order_of(*graph));
    let mut waiting: Vec<NodeId> = all.copied().collect();
    // Many nodes cross few boundaries.
    let mut unadapted: HashMap<(&str, &str, u32), Option<Boundary>> = HashMap::new();
    while let Some(node) = waiting.pop() {
        let Some(op) = resolved.op(node) else {
            continue;
        };
        let (operator, from) = (op.def, op.opset);
        let mut changed = false;
        for version in
            operator.versions().map(|version| version.since).filter(|since| *since > from)
        {
            let result = match operator.adapter_at(version - 1, version) {
                Some(adapt) => {
                    changed = true;
                    let mut cx = Adapt::new(resolved.build(node), inference);
                    let result = adapt(&mut cx);
                    for made in cx.into_made() {
                        resolved.set_opset(made, version);
                        waiting.push(made);
                    }
                    result
                }
                None => {
                    let key = (operator.domain, operator.name, version);
                    let boundary = unadapted
                        .entry(key)
                        .or_insert_with(|| operator.unadapted_boundary(version));
                    let model = resolved.model();
                    boundary.as_ref().map_or(Ok(()), |boundary| {
                        crosses(model, node, boundary)
                            .map_err(|why| Refusal(format!("{}: {why}", operator.full_name())))
                    })
                }
            };
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
        if operator.newest() > from {
            resolved.set_opset(node, operator.newest());
        }
    }
    resolved.place_made();
    if findings.is_empty() { Ok(upgraded.into_values().collect()) } else { Err(findings) }
}

/// Whether a node can mean the same on both sides of a boundary as it stands, as far as the schemas
/// show.
fn crosses(model: &Model, node: NodeId, boundary: &Boundary) -> Result<(), String> {
    let has = |name: &&&str| model.attribute_of(node, name).is_some();
    if let Some(name) = boundary.gone.iter().find(has) {
        return Err(format!("the attribute {name} has no exact equivalent there"));
    }
    if let Some(name) = boundary.changed_defaults.iter().find(|name| !has(name)) {
        return Err(format!("an absent attribute {name} means something else there"));
    }
    let counts = [
        ("inputs", model.inputs(node).len(), boundary.inputs),
        ("outputs", model.outputs(node).len(), boundary.outputs),
    ];
    for (what, count, bounds) in counts {
        if let Some((least, most)) = bounds
            && (count < least || most.is_some_and(|most| count > most))
        {
            return Err(format!("it has {count} {what}, which is not possible there"));
        }
    }
    Ok(())
}
