//! Types that only newer versions of an operator accept.

use sardonyx_model::shown_domain;
use sardonyx_model::{NodeId, Type};
use sardonyx_ops::{OpRef, Registry};
use smallvec::SmallVec;

use super::Inference;
use super::operands::Bound;
use crate::codes;
use crate::finding::{Finding, Spot};
use crate::resolve::Resolved;

/// Maximum number of listed findings.
const MOST_FINDINGS: usize = 1000;

/// Lists the nodes whose inputs have types that a newer version of their operator accepts, but not
/// the imported version.
pub fn newer_types(resolved: &Resolved, registry: &Registry, types: &Inference) -> Vec<Finding> {
    let nodes = resolved.graphs().iter().flat_map(|graph| resolved.order_of(*graph)).copied();
    let found = nodes.filter_map(|node| newer_type(resolved, registry, types, node));
    found.take(MOST_FINDINGS).collect()
}

fn newer_type(
    resolved: &Resolved,
    registry: &Registry,
    types: &Inference,
    node: NodeId,
) -> Option<Finding> {
    let op = resolved.op(node).filter(|op| op.schema.since < op.def.newest())?;
    let model = resolved.model();
    let inputs: SmallVec<[Option<&Type>; 6]> =
        model.inputs(node).map(|value| types.ty(value?)).collect();
    let wrong = Bound::of_inputs(op.schema, &inputs).1?;
    let newer = |since: u32| registry.op_ref(op.def.domain, op.def.name, since);
    let takes = |op: &OpRef| Bound::of_inputs(op.schema, &inputs).1.is_none();
    let since = op.def.versions().map(|version| version.since);
    let first = since.filter(|since| *since > op.schema.since).filter_map(newer).find(takes)?;
    let (domain, since) = (shown_domain(op.def.domain), first.schema.since);
    let fact = format!(
        "{wrong} in version {} of {domain}; version {since} is the first that takes it",
        op.opset
    );
    let set = match op.def.domain {
        "" => since.to_string(),
        domain => format!("{domain}={since}"),
    };
    let advice = format!(
        "import a newer version (sardonyx set --opset {set}), or convert the input with Cast"
    );
    Some(Finding::new(model, &codes::INPUT_TYPE, Spot::node(node), fact).with_advice(advice))
}
