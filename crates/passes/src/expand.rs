//! Expansion: replaces calls of functions by copies of the functions' bodies.
//!
//! Covers functions of the model, and operators that the standard defines by functions. The body of
//! such an operator is ONNX text, which is read into the model as one of its functions, so that
//! both are copied by the same code. Each copied node keeps the version of its operator that the
//! function imports, so that nothing must be converted first.

mod call;
mod sizes;

pub(crate) use call::{
    BodyKey, CallFunction, Scratch, function_for, function_to_differentiate, function_to_split,
};
pub use call::{function_of_call, why_no_function};
pub(crate) use sizes::{FunctionOf, callees, nodes_of};

use std::collections::BTreeMap;

use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};

use sardonyx_model::{InlineError, MadeNodes, Model, NodeId, Type, ValueId};
use sardonyx_ops::OpRef;
use sardonyx_tensor::Buffer;
use sardonyx_text::{ParseOptions, parse_function};

use crate::codes;
use crate::finding::{Finding, Spot};
use crate::infer::Inference;
use crate::resolve::{OpId, Resolved};

use sizes::Sizes;

/// Maximum number of nodes that all expansions of a model may make. A few functions that call each
/// other twice can expand to more nodes than fit in memory.
const MOST_NODES: u64 = 1 << 22;

/// Number of calls or nodes that were replaced by a function body, by domain (empty for `ai.onnx`)
/// and name.
pub type Expansions = BTreeMap<(String, String), usize>;

/// Replaces all calls of functions of the model by bodies, in all graphs and in these bodies.
/// `expansions` gets the number of calls of each function.
///
/// # Errors
///
/// Calls that do not match their functions, and more nodes than a session can have.
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

/// Replaces nodes of `wanted` operators, and the nodes `also`, by the bodies of their functions, in
/// all graphs, if the standard has a function for the operator and the call. `inference` has the
/// types of the current model, and `expansions` gets the number of nodes of each operator.
///
/// Returns whether there were any. Then the bodies may have more such nodes, whose types must be
/// inferred first.
///
/// # Errors
///
/// Errors of [`expand_calls`].
pub fn expand_operators(
    resolved: &mut Resolved,
    inference: &Inference,
    wanted: &dyn Fn(OpRef) -> bool,
    also: &HashSet<NodeId>,
    expansions: &mut Expansions,
) -> Result<bool, Vec<Finding>> {
    let is_wanted = resolved.of_operators(wanted);
    let is_meant = |node: NodeId, op: OpId| is_wanted[op.index()] || also.contains(&node);
    let mut scratch = Scratch::default();
    let mut body = |resolved: &Resolved, node: NodeId, types: &[Option<Type>], op: OpRef| {
        let (model, registry) = (resolved.model(), resolved.registry());
        let op_of = |node| resolved.op(node);
        let found = function_for(model, registry, &mut scratch, node, types, op, &op_of);
        // An operator with a kernel may have a body that only gradients and old forms need.
        let found = found.or_else(|why| {
            if !also.contains(&node) {
                return Err(why);
            }
            function_to_differentiate(model, registry, node, types, op)
        });
        found.ok()
    };
    expand_to(resolved, inference, &is_meant, &mut body, expansions)
}

/// Replaces `nodes` by nodes that can be computed in parts, if their operators have such an
/// expansion. Returns whether there were any.
///
/// # Errors
///
/// Errors of [`expand_calls`].
pub fn expand_to_split(
    resolved: &mut Resolved,
    inference: &Inference,
    nodes: &HashSet<NodeId>,
) -> Result<bool, Vec<Finding>> {
    let is_meant = |node: NodeId, _| nodes.contains(&node);
    let mut body = |resolved: &Resolved, node: NodeId, types: &[Option<Type>], op: OpRef| {
        function_to_split(resolved.model(), resolved.registry(), node, types, op)
    };
    expand_to(resolved, inference, &is_meant, &mut body, &mut Expansions::default())
}

/// Function that returns the body for a node from the types of its inputs.
type BodyOf<'b> = dyn FnMut(&Resolved, NodeId, &[Option<Type>], OpRef) -> Option<CallFunction> + 'b;

fn expand_to(
    resolved: &mut Resolved,
    inference: &Inference,
    is_meant: &dyn Fn(NodeId, OpId) -> bool,
    body: &mut BodyOf<'_>,
    expansions: &mut Expansions,
) -> Result<bool, Vec<Finding>> {
    let graphs = resolved.graphs().iter();
    let nodes = graphs.flat_map(|graph| resolved.order_of(*graph));
    let nodes = nodes.filter_map(|node| Some((*node, resolved.op_id(*node)?)));
    let nodes = nodes.filter(|(node, op)| is_meant(*node, *op));
    let nodes: Vec<_> = nodes.map(|(node, op)| (node, resolved.op_of_id(op))).collect();
    // Many nodes share few bodies.
    let mut functions: HashMap<BodyKey, usize> = HashMap::new();
    let before = resolved.model().functions.len();
    let mut calls = Vec::new();
    for (node, op) in nodes {
        let ty = |value: Option<ValueId>| inference.ty(value?).cloned();
        let types: Vec<Option<Type>> = resolved.model().inputs(node).map(ty).collect();
        let Some(found) = body(resolved, node, &types, op) else { continue };
        let function = match functions.entry(found.key()) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(vacant) => *vacant.insert(read_function(resolved, node, &found)?),
        };
        give_defaults(resolved.model_mut(), node, op);
        calls.push((node, function));
    }
    let findings = resolved.resolve_functions(before..resolved.model().functions.len());
    if let (Some(first), Some((node, _))) = (findings.first(), calls.first()) {
        return Err(vec![misfit(resolved, *node, format!("its function: {first}"))]);
    }
    let are_some = !calls.is_empty();
    expand(resolved, calls, expansions)?;
    forget_bodies(resolved.model_mut(), before);
    Ok(are_some)
}

/// Reads the body of an operator into a model, as its last function. Nodes of the body do not read
/// inputs that the call omits, so that later changes of the body fit this call.
pub(crate) fn read_body(model: &mut Model, function: &CallFunction) -> Result<(), String> {
    let buffer = Buffer::from_vec(function.text.as_bytes().to_vec());
    let parsed = parse_function(model, buffer, ParseOptions::default());
    parsed.map_err(|error| format!("its function cannot be read: {error}"))?;
    if let Some(body) = model.functions.last().map(|function| function.body) {
        let formals = model.graph(body).inputs.iter().enumerate();
        let absent = formals.filter(|(index, _)| !function.has_input(*index));
        let absent: Vec<ValueId> = absent.filter_map(|(_, formal)| formal.value).collect();
        absent.into_iter().for_each(|value| model.leave_out(value));
    }
    if function.outer.is_empty() {
        return Ok(());
    }
    let nodes: Vec<NodeId> = nodes_of(model, model.functions.len() - 1).collect();
    for (name, outer) in &function.outer {
        for node in &nodes {
            for index in 0..model.inputs(*node).count() {
                let read = model.inputs(*node).nth(index).flatten();
                let is_outer =
                    |value: &ValueId| model.text(model.value(*value).name) == name.as_bytes();
                if read.as_ref().is_some_and(is_outer) {
                    model.set_input(*node, index, Some(*outer));
                }
            }
        }
    }
    Ok(())
}

/// Removes the inputs of all nodes in the bodies of operators, which are the functions from index
/// `first`: they may be values of the graphs in which the bodies were copied.
pub(crate) fn forget_bodies(model: &mut Model, first: usize) {
    for function in first..model.functions.len() {
        let nodes: Vec<NodeId> = nodes_of(model, function).collect();
        nodes.into_iter().for_each(|node| model.set_inputs(node, &[]));
    }
}

/// Reads the body of an operator into the model, and returns its index among the functions.
fn read_function(
    resolved: &mut Resolved,
    node: NodeId,
    body: &CallFunction,
) -> Result<usize, Vec<Finding>> {
    if let Err(fact) = read_body(resolved.model_mut(), body) {
        return Err(vec![misfit(resolved, node, fact)]);
    }
    Ok(resolved.model().functions.len() - 1)
}

/// Adds absent attributes that have defaults to a node, as the function of an operator has no
/// defaults.
pub(crate) fn give_defaults(model: &mut Model, node: NodeId, op: OpRef) {
    for attribute in &op.schema.attributes {
        if model.attribute_of(node, attribute.name).is_some() {
            continue;
        }
        if let Some(default) = attribute.default {
            model.set_attribute(node, attribute.name, default.value());
        }
    }
}

/// Replaces calls by bodies, and calls of functions of the model in these bodies.
fn expand(
    resolved: &mut Resolved,
    calls: Vec<(NodeId, usize)>,
    expansions: &mut Expansions,
) -> Result<(), Vec<Finding>> {
    let expected = count_expected(resolved.model(), &|node| resolved.function_of(node), &calls);
    if let Err(call) = expected.check_limit(MOST_NODES) {
        let fact = format!("function bodies have more than {MOST_NODES} nodes");
        return Err(vec![misfit(resolved, call, fact)]);
    }
    let mut count = |resolved: &Resolved, call: NodeId| {
        let model = resolved.model();
        let domain = model.domain_of(call).into_owned();
        let name = model.display(model.node(call).op_type).into_owned();
        *expansions.entry((domain, name)).or_default() += 1;
    };
    let misfits = replace(resolved, calls, &mut count);
    let misfits = misfits.into_iter();
    let findings = misfits.map(|(call, error)| misfit(resolved, call, error.to_string()));
    let findings: Vec<Finding> = findings.collect();
    resolved.place_made();
    if findings.is_empty() { Ok(()) } else { Err(findings) }
}

/// Numbers of nodes that calls expand to.
pub(crate) struct Expected {
    /// Number of nodes for all calls.
    pub(crate) nodes: u64,
    /// Each call with the number of nodes for it and all calls before it.
    up_to: Vec<(NodeId, u64)>,
}

impl Expected {
    /// Checks that the number does not exceed a limit. The error is the first call that exceeds it.
    fn check_limit(&self, most: u64) -> Result<(), NodeId> {
        let first = self.up_to.iter().find(|(_, nodes)| *nodes > most);
        first.map_or(Ok(()), |(call, _)| Err(*call))
    }
}

/// Counts the nodes that calls expand to, without expanding them. A call in a graph that another
/// call passes as an attribute counts as part of that call.
pub(crate) fn count_expected(
    model: &Model,
    function_of: FunctionOf<'_>,
    calls: &[(NodeId, usize)],
) -> Expected {
    let mut sizes = Sizes::default();
    let mut nodes = 0u64;
    let all: HashSet<NodeId> = calls.iter().map(|(call, _)| *call).collect();
    let is_handed_over = |call: NodeId| {
        let owner = |node: NodeId| model.graph(model.node(node).graph).owner;
        std::iter::successors(owner(call), |node| owner(*node)).any(|node| all.contains(&node))
    };
    let calls = calls.iter().filter(|(call, _)| !is_handed_over(*call));
    let up_to = calls.map(|(call, function)| {
        nodes = nodes.saturating_add(sizes.of_call(model, function_of, *call, *function));
        (*call, nodes)
    });
    let up_to = up_to.collect();
    Expected { nodes, up_to }
}

/// Model in which calls are replaced by bodies.
pub(crate) trait Host {
    /// Returns the model.
    fn model(&self) -> &Model;
    /// Returns the nodes that were made.
    fn made(&self) -> &MadeNodes;
    /// Returns the index of the function whose body replaces a node.
    fn function_of(&self, node: NodeId) -> Option<usize>;
    /// Replaces a node by the body of a function. Returns the new nodes, also in subgraphs.
    fn inline(&mut self, call: NodeId, function: usize) -> Result<Vec<NodeId>, InlineError>;
}

impl Host for Resolved {
    fn model(&self) -> &Model {
        self.model()
    }

    fn made(&self) -> &MadeNodes {
        self.made()
    }

    fn function_of(&self, node: NodeId) -> Option<usize> {
        self.function_of(node)
    }

    fn inline(&mut self, call: NodeId, function: usize) -> Result<Vec<NodeId>, InlineError> {
        self.inline_call(call, function)
    }
}

/// Replaces calls by bodies, and calls in these bodies, and passes each one to `replaced`. In
/// `calls`, calls in subgraphs must follow calls in the graphs around them. Returns the calls that
/// stay, as they do not match their functions.
pub(crate) fn replace<H: Host>(
    host: &mut H,
    calls: Vec<(NodeId, usize)>,
    replaced: &mut dyn FnMut(&H, NodeId),
) -> Vec<(NodeId, InlineError)> {
    let mut misfits = Vec::new();
    let mut open = calls;
    open.reverse();
    while let Some((call, function)) = open.pop() {
        // A call in a graph that another call passes was copied with that graph.
        if host.made().is_gone(host.model(), call) {
            continue;
        }
        match host.inline(call, function) {
            Ok(copies) => {
                replaced(host, call);
                let calls = copies.into_iter().rev();
                open.extend(calls.filter_map(|copy| Some((copy, host.function_of(copy)?))));
            }
            Err(error) => misfits.push((call, error)),
        }
    }
    misfits
}

fn misfit(resolved: &Resolved, node: NodeId, fact: String) -> Finding {
    Finding::new(resolved.model(), &codes::MALFORMED_NODE, Spot::node(node), fact)
}
