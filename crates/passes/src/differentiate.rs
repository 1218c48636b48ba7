//! Differentiation: replaces `Gradient` nodes by nodes that compute the gradients.
//!
//! Uses reverse mode, node by node: from `y` back to the `xs`, the gradient rule of each node makes
//! nodes that compute the gradients of its inputs from the gradients of its outputs. The gradient
//! of a value with several readers is the sum over them, in reverse order of the graph. Operators
//! without a rule are expanded to their functions first.
//!
//! A node with subgraphs gets a node of its operator in the backward pass. The subgraphs of that
//! node are copies, each with a `Gradient` node at its end, which is replaced in the next round:
//! then the values in the copies have types, and operators without a rule can be expanded there as
//! well.
//!
//! A `Gradient` node refers to values around it by name. [`bind_gradients`] turns the names into
//! inputs before any value is renamed, so that the node reads `y` and later passes keep it up to
//! date.

mod activity;
mod derive;
mod flow;
mod region;

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{
    AttrValue, Attributes, GraphId, Model, NodeAttributes, NodeId, Producer, Symbol, ValueId,
};
use sardonyx_ops::OpRef;
use sardonyx_ops::operators::GRADIENT;

use crate::codes;
use crate::expand::{Expansions, expand_operators};
use crate::finding::{Finding, Spot};
use crate::infer::{InferOptions, infer};
use crate::order::tree;
use crate::resolve::Resolved;
use crate::sequences::unpack_sequences;
use crate::upgrade::upgrade;
use region::Region;

/// Domain of `Gradient` and of the optimizers, and its version.
pub(crate) const TRAINING: (&str, u32) = ("ai.onnx.preview.training", 1);

/// Maximum number of rounds in which operators are expanded for one `Gradient` node: functions have
/// few levels.
const MOST_EXPANSIONS: usize = 64;

/// Appends the values that the attributes of each `Gradient` node name to its inputs: the `xs`, the
/// `zs` and `y`.
///
/// # Errors
///
/// A name that is not visible at the node, or different numbers of names and inputs.
pub fn bind_gradients(model: &mut Model) -> Result<(), Vec<Finding>> {
    // Most models have no such operator.
    if model.symbol(GRADIENT.name.as_bytes()).is_none() {
        return Ok(());
    }
    let mut roots: Vec<GraphId> = model.main.into_iter().collect();
    roots.extend(model.functions.iter().map(|function| function.body));
    let graphs: Vec<GraphId> = roots.into_iter().flat_map(|root| tree(model, root)).collect();
    let nodes = graphs.iter().flat_map(|graph| &model.graph(*graph).nodes).copied();
    let nodes: Vec<NodeId> = nodes.filter(|node| is_gradient(model, *node)).collect();
    let named = Named::new(model);
    let mut findings = Vec::new();
    for node in nodes {
        if let Err(fact) = bind(model, &named, node) {
            findings.push(finding(model, node, fact));
        }
    }
    if findings.is_empty() { Ok(()) } else { Err(findings) }
}

pub(crate) fn is_gradient(model: &Model, node: NodeId) -> bool {
    model.display(model.node(node).op_type) == GRADIENT.name && model.domain_of(node) == TRAINING.0
}

/// Numbers of values that a node names: `xs`, and `xs` and `zs` together.
#[derive(Debug, Clone, Copy)]
struct Counts {
    xs: usize,
    all: usize,
}

fn names(model: &Model, node: NodeId) -> (Counts, Vec<Vec<u8>>) {
    let attributes = NodeAttributes::new(model, node);
    let list = |name| match attributes.attribute(name) {
        Some(AttrValue::Strings(names)) => {
            names.iter().map(|name| name.to_vec()).collect::<Vec<_>>()
        }
        Some(AttrValue::String(name)) => vec![name.to_vec()],
        _ => Vec::new(),
    };
    let (mut names, zs, y) = (list("xs"), list("zs"), list("y"));
    let counts = Counts { xs: names.len(), all: names.len() + zs.len() };
    names.extend(zs);
    names.extend(y);
    (counts, names)
}

fn bind(model: &mut Model, values: &Named, node: NodeId) -> Result<(), String> {
    let (counts, names) = names(model, node);
    let mut inputs: Vec<Option<ValueId>> = model.inputs(node).collect();
    if names.len() != counts.all + 1 {
        return Err("the node has no attribute y".to_string());
    }
    let (given, named) = (inputs.len(), counts.all);
    if given != named {
        return Err(format!("the node has {given} inputs, but xs and zs name {named} values"));
    }
    for name in names {
        let Some(value) = values.visible(model, model.node(node).graph, &name) else {
            let name = sardonyx_proto::shown(&name);
            return Err(format!("it names '{name}', which is not defined"));
        };
        inputs.push(Some(value));
    }
    model.set_inputs(node, &inputs);
    Ok(())
}

/// Values of all graphs by their names.
struct Named(HashMap<(GraphId, Symbol), ValueId>);

impl Named {
    fn new(model: &Model) -> Named {
        let mut named = HashMap::new();
        for (id, value) in model.values().filter(|(_, value)| value.producer != Producer::Nothing) {
            named.entry((value.graph, value.name)).or_insert(id);
        }
        Named(named)
    }

    /// Returns the value with a name in a graph, or in the nearest graph around it that has one.
    fn visible(&self, model: &Model, graph: GraphId, name: &[u8]) -> Option<ValueId> {
        let name = model.symbol(name)?;
        let mut around = std::iter::successors(Some(graph), |graph| model.graph(*graph).parent);
        around.find_map(|graph| self.0.get(&(graph, name)).copied())
    }
}

fn finding(model: &Model, node: NodeId, fact: impl Into<String>) -> Finding {
    Finding::new(model, &codes::NO_GRADIENT, Spot::node(node), fact.into())
}

/// Replaces all `Gradient` nodes that [`bind_gradients`] bound, in all graphs. Returns whether
/// there were any. All nodes must have their newest form, except nodes that `stays` selects.
/// Operators that are `without_kernel` are expanded in functions that are needed. `counts` gets the
/// number of expanded nodes of each operator.
///
/// # Errors
///
/// Values without a gradient: outputs of operators without a rule, integers, and `xs` and `zs` that
/// do not determine `y`.
pub fn differentiate(
    resolved: &mut Resolved,
    declared: InferOptions<'_>,
    stays: &dyn Fn(&Resolved, NodeId) -> bool,
    without_kernel: &dyn Fn(OpRef) -> bool,
    counts: &mut Expansions,
) -> Result<bool, Vec<Finding>> {
    let open = |resolved: &Resolved| {
        let graphs = resolved.graphs().iter();
        let nodes = graphs.flat_map(|graph| resolved.order_of(*graph)).copied();
        nodes.filter(|node| resolved.is(*node, &GRADIENT)).collect::<Vec<NodeId>>()
    };
    let mut any = false;
    let mut expansions = 0;
    loop {
        let open = open(resolved);
        let Some(first) = open.first().copied() else { return Ok(any) };
        any = true;
        // One inference suffices for all nodes that do not depend on the results of others.
        let inference = infer(resolved, declared)?;
        // Sequences have no gradients, but the tensors in them have.
        if unpack_sequences(resolved, &inference) > 0 {
            continue;
        }
        let regions = open.into_iter().map(|node| Region::of(resolved, &inference, node));
        let mut regions = regions.collect::<Result<Vec<Region>, _>>()?;
        regions.retain(|region| !region.has_gradients(resolved));
        if regions.is_empty() {
            return Err(vec![finding(
                resolved.model(),
                first,
                "the node depends on its own output",
            )]);
        }
        let without_rule = regions.iter().map(|region| {
            let nodes = region.without_rule(resolved);
            WithoutRule { gradient: region.gradient, nodes }
        });
        let mut without_rule: Vec<WithoutRule> = without_rule.collect();
        without_rule.retain(|without| !without.nodes.is_empty());
        if !without_rule.is_empty() {
            expansions += 1;
            if expansions > MOST_EXPANSIONS {
                return Err(no_rules(resolved, &without_rule));
            }
            expand_for(resolved, declared, &without_rule, without_kernel, stays, counts)?;
            continue;
        }
        let copied = regions.iter().filter(|region| region.copies(resolved)).count();
        if copied > 0 {
            continue;
        }
        for region in &regions {
            let derived = region.derive(resolved, &inference);
            derived
                .map_err(|refusal| vec![finding(resolved.model(), region.gradient, refusal.why)])?;
        }
        resolved.place_made();
        for region in regions.iter().filter(|region| region.is_inner()) {
            region.forget_dead(resolved);
        }
        expansions = 0;
    }
}

/// Nodes without a gradient rule that a gradient depends on.
struct WithoutRule {
    /// `Gradient` node that depends on them.
    gradient: NodeId,
    nodes: HashSet<NodeId>,
}

/// Expands nodes to the functions of their operators, and brings these to the newest forms.
fn expand_for(
    resolved: &mut Resolved,
    declared: InferOptions<'_>,
    without_rule: &[WithoutRule],
    without_kernel: &dyn Fn(OpRef) -> bool,
    stays: &dyn Fn(&Resolved, NodeId) -> bool,
    counts: &mut Expansions,
) -> Result<(), Vec<Finding>> {
    let all: HashSet<NodeId> =
        without_rule.iter().flat_map(|without| &without.nodes).copied().collect();
    let (mut also, mut is_first, none) = (&all, true, HashSet::new());
    loop {
        let inference = infer(resolved, declared)?;
        let before = resolved.model().node_count();
        let are_some = expand_operators(resolved, &inference, without_kernel, also, counts)?;
        if is_first && resolved.model().node_count() == before {
            return Err(no_rules(resolved, without_rule));
        }
        (also, is_first) = (&none, false);
        if !are_some {
            break;
        }
    }
    let inference = infer(resolved, declared)?;
    upgrade(resolved, &inference, stays).map_err(|refused| refused.findings)?;
    Ok(())
}

fn no_rules(resolved: &Resolved, without_rule: &[WithoutRule]) -> Vec<Finding> {
    let findings = without_rule.iter();
    findings.map(|without| no_rule(resolved, without.gradient, &without.nodes)).collect()
}

fn no_rule(resolved: &Resolved, node: NodeId, nodes: &HashSet<NodeId>) -> Finding {
    let model = resolved.model();
    let mut names: Vec<String> =
        nodes.iter().map(|node| model.display(model.node(*node).op_type).into_owned()).collect();
    names.sort();
    names.dedup();
    let fact = format!("operators between xs and y have no gradient: {}", names.join(", "));
    finding(model, node, fact)
}
