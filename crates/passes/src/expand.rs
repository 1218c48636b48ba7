//! Expansion: a call of a function becomes a copy of the function's body.
//!
//! Functions of the model, and operators that the standard defines by other operators. The body of
//! such an operator is ONNX text, which is read into the model as one of its functions, so that
//! both are copied by the same code. Each copy of a node keeps the version of its operator that the
//! function imports; nothing has to be converted first.

mod call;

pub use call::function_of_call;

use std::collections::BTreeMap;

use hashbrown::HashMap;

use sardonyx_model::{NodeId, Type, ValueId};
use sardonyx_ops::OpRef;
use sardonyx_tensor::Buffer;
use sardonyx_text::{ParseOptions, parse_function};

use crate::check::codes;
use crate::finding::{Finding, Spot};
use crate::infer::Inference;
use crate::order::tree;
use crate::resolve::Resolved;

/// Nodes that all expansions of a model may make. A few functions that call each other twice can
/// stand for more nodes than any memory holds.
const MOST_NODES: usize = 1 << 22;

/// What became of calls, by domain (empty for `ai.onnx`) and name of the function: how many were
/// replaced by its body, those in graphs of the file and those in bodies.
pub type Expansions = BTreeMap<(String, String), usize>;

/// Puts bodies into the place of all calls of functions of the model, in all graphs, also of calls
/// in these bodies, and counts them.
///
/// # Errors
///
/// Calls that do not fit their functions, and more nodes than a session can have.
pub fn expand_calls(
    resolved: &mut Resolved,
    expansions: &mut Expansions,
) -> Result<(), Vec<Finding>> {
    let graphs = resolved.graphs().iter();
    let nodes = graphs.flat_map(|graph| resolved.order_of(*graph));
    let calls = nodes.filter_map(|node| Some((*node, resolved.function_of(*node)?)));
    let calls: Vec<(NodeId, usize)> = calls.collect();
    expand(resolved, calls, expansions)
}

/// Puts bodies into the place of all nodes of `wanted` operators, in all graphs, where the standard
/// has a function for the operator and the call, and counts them. `inference` belongs to the model
/// as it is. Whether there were any: bodies may have more such nodes then, for which inference has
/// to say the types first.
///
/// # Errors
///
/// As [`expand_calls`].
pub fn expand_operators(
    resolved: &mut Resolved,
    inference: &Inference,
    wanted: &dyn Fn(OpRef) -> bool,
    expansions: &mut Expansions,
) -> Result<bool, Vec<Finding>> {
    let graphs = resolved.graphs().iter();
    let nodes = graphs.flat_map(|graph| resolved.order_of(*graph));
    let is_wanted = resolved.of_operators(wanted);
    let nodes = nodes.filter_map(|node| Some((*node, resolved.op_id(*node)?)));
    let nodes = nodes.filter(|(_, op)| is_wanted[op.index()]);
    let nodes: Vec<_> = nodes.map(|(node, op)| (node, resolved.op_of_id(op))).collect();
    // Many nodes have few bodies.
    let mut functions: HashMap<String, usize> = HashMap::new();
    let mut calls = Vec::new();
    for (node, op) in nodes {
        let ty = |value: Option<ValueId>| inference.ty(value?).cloned();
        let types: Vec<Option<Type>> = resolved.model().inputs(node).map(ty).collect();
        let (model, registry) = (resolved.model(), resolved.registry());
        let Some(text) = call::expansion(model, registry, node, &types, op) else {
            continue;
        };
        let function = match functions.get(&text) {
            Some(function) => *function,
            None => {
                let function = read_function(resolved, node, &text)?;
                functions.insert(text, function);
                function
            }
        };
        give_defaults(resolved, node, op);
        calls.push((node, function));
    }
    let are_some = !calls.is_empty();
    expand(resolved, calls, expansions)?;
    Ok(are_some)
}

/// Reads the body of an operator into the model.
fn read_function(resolved: &mut Resolved, node: NodeId, text: &str) -> Result<usize, Vec<Finding>> {
    let buffer = Buffer::from_vec(text.as_bytes().to_vec());
    let read = parse_function(resolved.model_mut(), buffer, ParseOptions::default());
    if let Err(error) = read {
        let fact = format!("its function cannot be read: {error}");
        return Err(vec![misfit(resolved, node, fact)]);
    }
    let function = resolved.model().functions.len() - 1;
    let mut findings = resolved.resolve_function(function).into_iter();
    match findings.next() {
        None => Ok(function),
        Some(first) => Err(vec![misfit(resolved, node, format!("its function: {first}"))]),
    }
}

/// Gives a node the attributes that it leaves out and that have a default: a function of an
/// operator has none of its own.
fn give_defaults(resolved: &mut Resolved, node: NodeId, op: OpRef) {
    for attribute in &op.schema.attributes {
        if resolved.model().attribute_of(node, attribute.name).is_some() {
            continue;
        }
        if let Some(default) = attribute.default {
            resolved.model_mut().set_attribute(node, attribute.name, default.value());
        }
    }
}

/// Replaces calls, and calls of functions of the model in what comes in their place.
fn expand(
    resolved: &mut Resolved,
    calls: Vec<(NodeId, usize)>,
    expansions: &mut Expansions,
) -> Result<(), Vec<Finding>> {
    let mut findings = Vec::new();
    let too_many = |resolved: &Resolved, call: NodeId| {
        misfit(resolved, call, format!("functions stand for more than {MOST_NODES} nodes"))
    };
    let mut sizes = Sizes::default();
    let mut expected = 0usize;
    for (call, function) in &calls {
        expected = expected.saturating_add(sizes.of(resolved, *function));
        if expected > MOST_NODES {
            return Err(vec![too_many(resolved, *call)]);
        }
    }
    // Graphs that calls hand over are copied wherever functions use them, which sizes leave out.
    let mut made = 0;
    let mut open = calls;
    while let Some((call, function)) = open.pop() {
        if made > MOST_NODES {
            findings.push(too_many(resolved, call));
            break;
        }
        match resolved.inline(call, function) {
            Ok(copies) => {
                made += copies.len();
                let model = resolved.model();
                let domain = model.domain_of(call).into_owned();
                let name = model.display(model.node(call).op_type).into_owned();
                *expansions.entry((domain, name)).or_default() += 1;
                let calls = copies.into_iter();
                open.extend(calls.filter_map(|copy| Some((copy, resolved.function_of(copy)?))));
            }
            Err(error) => findings.push(misfit(resolved, call, error.to_string())),
        }
    }
    resolved.place_made();
    if findings.is_empty() { Ok(()) } else { Err(findings) }
}

/// How many nodes bodies become, with those that they call.
#[derive(Default)]
struct Sizes(HashMap<usize, usize>);

impl Sizes {
    /// For one function. Not by recursion: calls may go deep.
    fn of(&mut self, resolved: &Resolved, function: usize) -> usize {
        let mut open = vec![function];
        while let Some(function) = open.last().copied() {
            if self.0.contains_key(&function) {
                open.pop();
                continue;
            }
            let graphs = tree(resolved.model(), resolved.model().functions[function].body);
            let nodes = graphs.iter().flat_map(|graph| resolved.order_of(*graph));
            let (mut size, before) = (0usize, open.len());
            for node in nodes {
                let called = resolved.function_of(*node);
                match called.map(|called| (called, self.0.get(&called))) {
                    None => size = size.saturating_add(1),
                    Some((_, Some(called))) => size = size.saturating_add(*called),
                    Some((called, None)) => open.push(called),
                }
            }
            if open.len() == before {
                self.0.insert(function, size);
                open.pop();
            }
        }
        self.0.get(&function).copied().unwrap_or(0)
    }
}

fn misfit(resolved: &Resolved, node: NodeId, fact: String) -> Finding {
    Finding::new(resolved.model(), &codes::MALFORMED_NODE, Spot::node(node), fact)
}
