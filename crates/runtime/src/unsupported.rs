//! Operators of a model that cannot run, with reasons.

use std::borrow::Cow;

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{AttributeValue, Model, NodeId, Symbol, Type, ValueId};
use sardonyx_ops::operators::GRADIENT;
use sardonyx_ops::{OpDef, OpRef, Registry};
use sardonyx_passes::{InferOptions, place_of_node, why_no_function};

use crate::custom::CustomOperators;
use crate::error::UnsupportedOperator;
use crate::expanded::{Expanded, expand};
use crate::ops::{binding_of, feature_of};

/// Domains of operators whose operands have a memory layout that ONNX Runtime chose for one
/// machine.
const LAYOUT_DOMAINS: [&str; 2] = ["com.microsoft.nchwc", "com.ms.internal.nhwc"];

/// Reason for operators of `LAYOUT_DOMAINS`.
const OF_ONE_LAYOUT: &str = "operator not implemented: ONNX Runtime created it for the memory layout of one machine; \
                             use the original model, or save it with ONNX Runtime at the level ORT_ENABLE_EXTENDED";

/// Reason for collectives in a session of their own.
const OF_SEVERAL_RANKS: &str = "a collective runs only together with the other ranks: `sardonyx run MODEL --processes \
                                N` starts them, `--mpi` finds them; in a program a transport connects the sessions \
                                (Python: sardonyx.distributed.Rank; Rust: SessionBuilder::transport)";

/// Lists the operators of a model that cannot run, sorted by name. Reads no weights and needs no
/// external data; types may turn out to be unsupported later, when kernels are selected.
///
/// An operator without a kernel runs if the standard has a function for it whose operators run.
pub fn unsupported(model: &Model) -> Vec<UnsupportedOperator> {
    let by_kind = by_kind(model);
    if by_kind.is_empty() {
        return by_kind.into_sorted();
    }
    let none = CustomOperators::default();
    match expand(model, None, InferOptions::default(), &none, &[]) {
        Ok(expanded) => expanded.list_unsupported(&none),
        // A contradictory model has no types, on which functions of operators depend.
        Err(_) => by_kind.into_sorted(),
    }
}

/// Lists the operators without a kernel, by the names of nodes alone.
fn by_kind(model: &Model) -> Unsupported<'_> {
    // A model has many nodes of few kinds.
    let mut kinds: HashMap<(Option<Symbol>, Option<Symbol>), (NodeId, usize)> = HashMap::new();
    for (_, graph) in model.graphs() {
        for id in &graph.nodes {
            let node = model.node(*id);
            let (_, count) = kinds.entry((node.domain, node.op_type)).or_insert((*id, 0));
            *count += 1;
        }
    }
    let mut list = Unsupported::new(model);
    // Calls of functions run if the nodes of their bodies do, which are among all graphs.
    let functions: HashSet<(String, String)> = model
        .functions
        .iter()
        .map(|function| (model.display(function.domain), model.display(function.name)))
        .map(|(domain, name)| (domain.into_owned(), name.into_owned()))
        .collect();
    for (node, count) in kinds.into_values() {
        let (domain, name) = (model.domain_of(node), model.display(model.node(node).op_type));
        if functions.contains(&(domain.to_string(), name.to_string())) {
            continue;
        }
        let why = why_unsupported(&domain, &name, list.opsets.get(&domain).copied());
        if let Some(why) = why {
            list.add(node, count, why);
        }
    }
    list
}

impl Expanded {
    /// Lists the operators of the model that cannot run. Those within a function are reported at
    /// the node of the file that calls it.
    pub(crate) fn list_unsupported(&self, operators: &CustomOperators) -> Vec<UnsupportedOperator> {
        let resolved = &self.resolved;
        let model = resolved.model();
        let runs =
            resolved.of_operators(|op| runs(op) || operators.has(op.def.domain, op.def.name));
        let nodes = resolved.graphs().iter().flat_map(|graph| resolved.order_of(*graph)).copied();
        let nodes: Vec<NodeId> = nodes.collect();
        let runs = |node: &NodeId| resolved.op_id(*node).is_some_and(|op| runs[op.index()]);
        let missing: Vec<NodeId> = nodes.iter().filter(|node| !runs(node)).copied().collect();
        if missing.is_empty() {
            return Vec::new();
        }
        // Outputs of an unknown operator have no type, and functions depend on types: a node that
        // only lacks its function for that reason is a consequence.
        let has_functions = |node: &NodeId| {
            resolved.op(*node).is_some_and(|op| !op.def.functions_of(op.schema.since).is_empty())
        };
        let sources = missing.iter().filter(|node| !has_functions(node)).copied();
        let reached = find_dependents(model, sources.collect(), &nodes);
        let is_led = |node: &NodeId| {
            let mut values = model.inputs(*node).flatten();
            has_functions(node)
                && values.any(|it| reached.contains(&it) && !is_typed(self.inference.ty(it)))
        };
        let own = missing.iter().filter(|node| !is_led(node)).copied();
        let list = self.reasons(own);
        // Nodes that are consequences have others before them.
        let list = if list.is_empty() { self.reasons(missing.into_iter()) } else { list };
        list.into_sorted()
    }

    /// Lists the operators of some nodes with the reasons why they cannot run.
    fn reasons(&self, nodes: impl Iterator<Item = NodeId>) -> Unsupported<'_> {
        let resolved = &self.resolved;
        let model = resolved.model();
        let mut list = Unsupported::new(model);
        for node in nodes {
            let (domain, name) = (model.domain_of(node), model.display(model.node(node).op_type));
            let opset = resolved.op(node).map(|op| i64::from(op.opset));
            let opset = opset.or_else(|| list.opsets.get(&domain).copied());
            let why = why_unsupported(&domain, &name, opset)
                .map(|why| why_no_function(resolved, &self.inference, node).unwrap_or(why));
            let origin = resolved.origin(node);
            match why {
                Some(why) if origin == node => list.add(node, 1, why),
                Some(why) => {
                    let dot = if domain.is_empty() { "" } else { "." };
                    let why = format!("its function uses {domain}{dot}{name}: {why}");
                    list.add(origin, 1, why);
                }
                None => {}
            }
        }
        list
    }
}

/// Returns the values that depend on outputs of `sources`.
fn find_dependents(model: &Model, sources: Vec<NodeId>, nodes: &[NodeId]) -> HashSet<ValueId> {
    let outputs = |node: NodeId| model.outputs(node).iter().flatten().copied();
    let mut reached: HashSet<ValueId> = sources.iter().flat_map(|node| outputs(*node)).collect();
    // Repeats only if a graph of a node is visited before the values that it reads.
    loop {
        let before = reached.len();
        for node in nodes {
            let attributes = model.attributes(*node).iter();
            let graphs = attributes.filter_map(|id| match model.attribute(*id).value() {
                Some(AttributeValue::Graph(graph)) => Some(model.graph(*graph)),
                _ => None,
            });
            let graphs: Vec<_> = graphs.collect();
            let reads = model.inputs(*node).flatten().any(|value| reached.contains(&value));
            if reads {
                let inputs = graphs.iter().flat_map(|graph| &graph.inputs);
                reached.extend(inputs.filter_map(|info| info.value));
            }
            let mut results = graphs.iter().flat_map(|graph| &graph.outputs);
            if reads || results.any(|info| info.value.is_some_and(|it| reached.contains(&it))) {
                reached.extend(outputs(*node));
            }
        }
        if reached.len() == before {
            return reached;
        }
    }
}

/// Whether element type and rank are known, for a type that has them.
fn is_typed(ty: Option<&Type>) -> bool {
    match ty {
        Some(Type::Tensor(tensor)) => tensor.elem.is_some() && tensor.shape.is_some(),
        Some(_) => true,
        None => false,
    }
}

/// Whether an operator has a kernel in the form of an opset version.
fn runs(op: OpRef) -> bool {
    may_run(op.def) && op.opset <= newest(op.def.domain)
}

/// Whether nodes of an operator run: it has a kernel, or the compiler replaces it.
fn may_run(operator: &OpDef) -> bool {
    binding_of(operator).is_some() || (cfg!(feature = "training") && operator.is(&GRADIENT))
}

/// Returns the newest version of an operator set.
fn newest(domain: &str) -> u32 {
    let versions = sardonyx_ops::DOMAIN_VERSIONS.iter();
    let mut versions = versions.filter(|(known, _)| *known == domain);
    versions.next().map_or(1, |(_, version)| *version)
}

/// Returns the newest version of an operator set, if a model imports a newer one and the operator
/// is known.
fn newest_if_exceeded(domain: &str, name: &str, opset: Option<i64>) -> Option<u32> {
    let newest = newest(domain);
    let exceeds = opset.is_some_and(|opset| opset > i64::from(newest));
    let is_known = exceeds && Registry::with_microsoft().operator(domain, name).is_some();
    is_known.then_some(newest)
}

fn why_unsupported(domain: &str, name: &str, opset: Option<i64>) -> Option<String> {
    if LAYOUT_DOMAINS.contains(&domain) {
        return Some(OF_ONE_LAYOUT.to_string());
    }
    let Some(operator) = Registry::with_microsoft().operator(domain, name) else {
        let near = Registry::with_microsoft().similar(domain, name);
        let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        return Some(format!("operator not implemented{near}"));
    };
    let opset = opset?;
    if let Some(newest) = newest_if_exceeded(domain, name, Some(opset)) {
        return Some(format!("the newest opset version known is {newest}"));
    }
    if u32::try_from(opset).ok().and_then(|opset| operator.version_at(opset)).is_none() {
        return Some(format!(
            "it was added in opset version {}",
            operator.versions().next().map_or(1, |v| v.since)
        ));
    }
    if may_run(operator) {
        return None;
    }
    if operator.is_collective() {
        return Some(OF_SEVERAL_RANKS.to_string());
    }
    Some(match feature_of(operator) {
        Some(feature) => format!(
            "this program was built without the feature `{feature}` of the crate sardonyx, which has the operator"
        ),
        None => "operator not implemented".to_string(),
    })
}

/// Collector of operators that cannot run, one entry for each reason.
pub(crate) struct Unsupported<'m> {
    model: &'m Model,
    opsets: std::collections::HashMap<Cow<'m, str>, i64>,
    /// Opset version, number of nodes and first node, by domain, name and reason.
    found: HashMap<(String, String, String), (Option<i64>, usize, NodeId)>,
}

impl<'m> Unsupported<'m> {
    pub(crate) fn new(model: &'m Model) -> Self {
        Unsupported { model, opsets: model.opsets(), found: HashMap::new() }
    }

    /// Adds nodes of the operator of `node`.
    pub(crate) fn add(&mut self, node: NodeId, nodes: usize, why: String) {
        let domain = self.model.domain_of(node).into_owned();
        let opset = self.opsets.get(&*domain).copied();
        let name = self.model.display(self.model.node(node).op_type);
        let entry = self.found.entry((domain, name.into_owned(), why));
        let (_, count, first) = entry.or_insert((opset, 0, node));
        *count += nodes;
        *first = node.min(*first);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(crate) fn into_sorted(self) -> Vec<UnsupportedOperator> {
        let model = self.model;
        let mut list: Vec<UnsupportedOperator> = self
            .found
            .into_iter()
            .map(|((domain, name, why), (opset, nodes, first))| UnsupportedOperator {
                newest_opset: newest_if_exceeded(&domain, &name, opset),
                domain,
                name,
                opset,
                nodes,
                why,
                place: place_of_node(model, first),
            })
            .collect();
        list.sort_by(|a, b| (&a.domain, &a.name, &a.why).cmp(&(&b.domain, &b.name, &b.why)));
        list
    }
}
