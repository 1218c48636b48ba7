//! Upgrading: every node of all graphs in the newest form of its operator, so that kernels know one
//! form.
//!
//! Node by node and boundary by boundary, with the adapters that stand beside the operators. A
//! boundary without adapter changes nothing for a model that was valid before; a node for which the
//! schemas alone show otherwise is refused.

use sardonyx_model::{Model, NodeId};
use sardonyx_ops::{Adapt, AdapterFn, Boundary, OpRef, Refusal};

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
    let mut ways: Vec<Option<Way>> = Vec::new();
    let all = resolved.graphs().iter().flat_map(|graph| resolved.order_of(*graph));
    let mut waiting: Vec<NodeId> = all.copied().collect();
    while let Some(node) = waiting.pop() {
        let Some(id) = resolved.op_id(node) else {
            continue;
        };
        if ways.len() <= id.index() {
            ways.resize_with(id.index() + 1, || None);
        }
        let way = ways[id.index()].get_or_insert_with(|| Way::of(resolved.op_of_id(id)));
        let from = way.op.opset;
        let mut changed = false;
        for (version, crossing) in &way.crossings {
            let result = match crossing {
                Crossing::Adapter(adapt) => {
                    changed = true;
                    let mut cx = Adapt::new(resolved.build(node), inference);
                    let result = adapt(&mut cx);
                    for made in cx.into_made() {
                        resolved.set_opset(made, *version);
                        waiting.push(made);
                    }
                    result
                }
                Crossing::Boundary(boundary) => crosses(resolved.model(), node, boundary)
                    .map_err(|why| Refusal(format!("{}: {why}", way.op.def.full_name()))),
            };
            if let Err(refusal) = result {
                let fact = format!(
                    "it cannot be brought from opset version {from} to {version}: {refusal}"
                );
                let spot = Spot::node(node);
                findings.push(Finding::new(resolved.model(), &codes::NO_EXACT_UPGRADE, spot, fact));
                break;
            }
        }
        way.changed += usize::from(changed);
        if way.op.def.newest() > from {
            resolved.set_opset(node, way.op.def.newest());
        }
    }
    resolved.place_made();
    if !findings.is_empty() {
        return Err(findings);
    }
    let changed = ways.iter().flatten().filter(|way| way.changed > 0);
    let mut upgraded: Vec<Upgrade> = changed.map(Way::upgrade).collect();
    upgraded.sort_by_key(|group| (group.domain, group.op, group.from));
    Ok(upgraded)
}

/// The way from a form of an operator to its newest one.
struct Way {
    op: OpRef,
    /// The boundaries that are to be looked at, each with the version after it.
    crossings: Vec<(u32, Crossing)>,
    /// How many nodes an adapter changed.
    changed: usize,
}

/// What happens to nodes between two versions.
enum Crossing {
    Adapter(AdapterFn),
    Boundary(Boundary),
}

impl Way {
    fn of(op: OpRef) -> Way {
        let newer = op.def.versions().map(|version| version.since);
        let crossing = |version: u32| {
            let crossing = match op.def.adapter_at(version - 1, version) {
                Some(adapter) => Crossing::Adapter(adapter),
                None => Crossing::Boundary(op.def.unadapted_boundary(version)?),
            };
            Some((version, crossing))
        };
        let crossings = newer.filter(|since| *since > op.opset).filter_map(crossing).collect();
        Way { op, crossings, changed: 0 }
    }

    fn upgrade(&self) -> Upgrade {
        let OpRef { def, opset, .. } = self.op;
        let (domain, op, to) = (def.domain, def.name, def.newest());
        Upgrade { domain, op, from: opset, to, nodes: self.changed }
    }
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
