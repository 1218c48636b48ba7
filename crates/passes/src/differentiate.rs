//! Differentiation: `Gradient` nodes become the nodes that compute what they mean.
//!
//! Reverse mode, node by node: from `y` back to the `xs`, each node's rule makes nodes that compute
//! the gradients of its inputs from those of its outputs. Where several nodes read a value, its
//! gradient is the sum over them, in the order of the graph from its end. Operators without a rule
//! become their functions first.
//!
//! A `Gradient` node names the values around it. [`bind_gradients`] turns the names into inputs
//! before anything is renamed, so that the node reads `y` and every later pass keeps it up to date.

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{
    AttrValue, Attributes, GraphId, Model, NodeAttributes, NodeId, Producer, ValueId,
};
use sardonyx_ops::operators::GRADIENT;
use sardonyx_ops::{Backward, OpRef, Refusal};
use sardonyx_tensor::{DataType, Tensor};

use crate::check::codes;
use crate::cross::Types;
use crate::expand::{Expansions, expand_operators};
use crate::finding::{Finding, Spot};
use crate::infer::{InferOptions, Inference, infer};
use crate::order::{reads, tree};
use crate::resolve::Resolved;
use crate::upgrade::upgrade;

/// The domain and name of the operator.
const DOMAIN: &str = "ai.onnx.preview.training";

/// Times that operators become functions for one `Gradient` node: functions are few levels deep.
const MOST_EXPANSIONS: usize = 64;

/// Lets every `Gradient` node read the values that its attributes name, after its own inputs: the
/// `xs`, the `zs` and `y`.
///
/// # Errors
///
/// A name that no value has where the node stands, and numbers of names and inputs that differ.
pub fn bind_gradients(model: &mut Model) -> Result<(), Vec<Finding>> {
    // Most models name no such operator.
    if model.symbol(GRADIENT.name.as_bytes()).is_none() {
        return Ok(());
    }
    let mut roots: Vec<GraphId> = model.main.into_iter().collect();
    roots.extend(model.functions.iter().map(|function| function.body));
    let mut findings = Vec::new();
    for root in roots {
        for graph in tree(model, root) {
            for node in model.graph(graph).nodes.clone() {
                if is_gradient(model, node)
                    && let Err(fact) = bind(model, node)
                {
                    findings.push(finding(model, node, fact));
                }
            }
        }
    }
    if findings.is_empty() { Ok(()) } else { Err(findings) }
}

fn is_gradient(model: &Model, node: NodeId) -> bool {
    model.display(model.node(node).op_type) == GRADIENT.name && model.domain_of(node) == DOMAIN
}

/// How many values a node differentiates by, and how many it names altogether, without `y`.
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

fn bind(model: &mut Model, node: NodeId) -> Result<(), String> {
    let (counts, names) = names(model, node);
    let mut inputs: Vec<Option<ValueId>> = model.inputs(node).collect();
    if names.len() != counts.all + 1 {
        return Err("it has no attribute y".to_string());
    }
    let (given, named) = (inputs.len(), counts.all);
    if given != named {
        return Err(format!("it has {given} inputs, but xs and zs name {named} values"));
    }
    for name in names {
        let Some(value) = visible(model, model.node(node).graph, &name) else {
            let name = sardonyx_proto::shown(&name);
            return Err(format!("it names '{name}', which nothing defines"));
        };
        inputs.push(Some(value));
    }
    model.set_inputs(node, &inputs);
    Ok(())
}

/// The value of that name in a graph, or in the nearest one around it that has one.
fn visible(model: &Model, graph: GraphId, name: &[u8]) -> Option<ValueId> {
    let name = model.symbol(name)?;
    let around = std::iter::successors(Some(graph), |graph| model.graph(*graph).parent);
    let graphs: Vec<GraphId> = around.collect();
    let named = model.values().filter(|(_, value)| {
        value.name == name && value.producer != Producer::Nothing && graphs.contains(&value.graph)
    });
    let nearest = named.min_by_key(|(_, value)| graphs.iter().position(|of| *of == value.graph));
    nearest.map(|(value, _)| value)
}

fn finding(model: &Model, node: NodeId, fact: impl Into<String>) -> Finding {
    Finding::new(model, &codes::NO_GRADIENT, Spot::node(node), fact.into())
}

/// Puts nodes into the place of all `Gradient` nodes that [`bind_gradients`] bound, in all graphs.
/// All nodes are in their newest form, but for those that `stays` names. Operators that are
/// `without_kernel` do not stay in functions that are needed. Whether there were any.
///
/// # Errors
///
/// What has no gradient: operators without a rule, integers, and `xs` and `zs` of which `y` does
/// not follow.
pub fn differentiate(
    resolved: &mut Resolved,
    declared: InferOptions<'_>,
    stays: &dyn Fn(&Resolved, NodeId) -> bool,
    without_kernel: &dyn Fn(OpRef) -> bool,
) -> Result<bool, Vec<Finding>> {
    let first = |resolved: &Resolved| {
        let graphs = resolved.graphs().iter();
        let mut nodes = graphs.flat_map(|graph| resolved.order_of(*graph));
        nodes.find(|node| resolved.is(**node, &GRADIENT)).copied()
    };
    let mut any = false;
    let mut expansions = 0;
    while let Some(node) = first(resolved) {
        any = true;
        let inference = infer(resolved, declared)?;
        let region = Region::of(resolved, &inference, node)?;
        let without_rule = region.without_rule(resolved);
        if !without_rule.is_empty() {
            expansions += 1;
            if expansions > MOST_EXPANSIONS {
                return Err(vec![no_rule(resolved, node, &without_rule)]);
            }
            expand_for(resolved, declared, (node, &without_rule), stays, without_kernel)?;
            continue;
        }
        if region.copies(resolved) {
            continue;
        }
        let derived = region.derive(resolved, &inference);
        derived.map_err(|refusal| vec![finding(resolved.model(), node, refusal.0)])?;
        resolved.place_made();
        expansions = 0;
    }
    Ok(any)
}

/// Lets nodes become the functions of their operators, and these the newest forms.
fn expand_for(
    resolved: &mut Resolved,
    declared: InferOptions<'_>,
    (node, without_rule): (NodeId, &HashSet<NodeId>),
    stays: &dyn Fn(&Resolved, NodeId) -> bool,
    without_kernel: &dyn Fn(OpRef) -> bool,
) -> Result<(), Vec<Finding>> {
    let mut counts = Expansions::default();
    let (mut also, none) = (without_rule, HashSet::new());
    loop {
        let inference = infer(resolved, declared)?;
        let before = resolved.model().node_count();
        let are_some = expand_operators(resolved, &inference, without_kernel, also, &mut counts)?;
        if std::ptr::eq(also, without_rule) && resolved.model().node_count() == before {
            return Err(vec![no_rule(resolved, node, without_rule)]);
        }
        also = &none;
        if !are_some {
            break;
        }
    }
    let inference = infer(resolved, declared)?;
    upgrade(resolved, &inference, stays).map_err(|refused| refused.findings)?;
    Ok(())
}

fn no_rule(resolved: &Resolved, node: NodeId, nodes: &HashSet<NodeId>) -> Finding {
    let model = resolved.model();
    let mut names: Vec<String> =
        nodes.iter().map(|node| model.display(model.node(*node).op_type).into_owned()).collect();
    names.sort();
    names.dedup();
    let fact = format!("operators on the way to y have no gradient: {}", names.join(", "));
    finding(model, node, fact)
}

/// The part of a model that leads from the `xs` of a `Gradient` node to its `y`.
struct Region {
    gradient: NodeId,
    /// The values at which the gradient is computed: the `xs` and then the `zs`.
    given: Vec<Option<ValueId>>,
    /// The values that are named, in the same order.
    named: Vec<ValueId>,
    xs: usize,
    y: ValueId,
    /// Nodes between what is named and `y`, each after those whose values it reads.
    nodes: Vec<NodeId>,
    /// Values that depend on one of the `xs`, through elements that have a derivative.
    active: HashSet<ValueId>,
}

impl Region {
    fn of(
        resolved: &Resolved,
        inference: &Inference,
        gradient: NodeId,
    ) -> Result<Region, Vec<Finding>> {
        let model = resolved.model();
        let (Counts { xs, all }, _) = names(model, gradient);
        let inputs: Vec<Option<ValueId>> = model.inputs(gradient).collect();
        let named: Option<Vec<ValueId>> = inputs[all..].iter().copied().collect();
        let fail = |fact: String| Err(vec![finding(model, gradient, fact)]);
        let Some((y, named)) = named.as_deref().and_then(|named| named.split_last()) else {
            return fail("a value that it names is left out".to_string());
        };
        let ends: HashSet<ValueId> = named.iter().copied().collect();
        let around = |graph: &GraphId| model.graph(*graph).parent;
        let around = std::iter::successors(Some(model.node(gradient).graph), around);
        let around: HashSet<GraphId> = around.collect();
        let mut needed = HashSet::new();
        let mut open = vec![*y];
        while let Some(value) = open.pop() {
            // What inner graphs make is the business of the node around them.
            if ends.contains(&value) || !around.contains(&model.value(value).graph) {
                continue;
            }
            match model.value(value).producer {
                Producer::Node(node, _) if needed.insert(node) => {
                    open.extend(reads(model, node));
                }
                Producer::Input(_) => {
                    return fail(format!(
                        "'{}' depends on the input '{}', which neither xs nor zs name",
                        resolved.name_of(*y),
                        resolved.name_of(value)
                    ));
                }
                _ => {}
            }
        }
        let graphs = resolved.graphs().iter();
        let order = graphs.flat_map(|graph| resolved.order_of(*graph)).copied();
        let mut depends: HashSet<ValueId> = HashSet::new();
        let mut active: HashSet<ValueId> = named[..xs].iter().copied().collect();
        let mut nodes = Vec::new();
        for node in order {
            let read = reads(model, node);
            let is_after = |value: &ValueId| ends.contains(value) || depends.contains(value);
            if read.iter().any(is_after) {
                let outputs = model.outputs(node).iter().flatten();
                if let Some(end) = outputs.clone().find(|value| ends.contains(*value)) {
                    return fail(format!(
                        "'{}' follows from other values that xs and zs name",
                        resolved.name_of(*end)
                    ));
                }
                depends.extend(outputs);
            }
            if !needed.contains(&node) {
                continue;
            }
            nodes.push(node);
            if read.iter().any(|value| active.contains(value)) {
                let outputs = model.outputs(node).iter().flatten().copied();
                active.extend(outputs.filter(|value| has_derivative(inference, *value)));
            }
        }
        let whole = named[..xs].iter().find(|x| !has_derivative(inference, **x));
        if let Some(x) = whole {
            let elem = inference.ty(*x).and_then(|ty| ty.elem());
            let of = elem.map_or("an unknown type".to_string(), |elem| elem.to_string());
            return fail(format!(
                "'{}' is of {of}: only floats have gradients",
                resolved.name_of(*x)
            ));
        }
        let given = inputs[..all].to_vec();
        Ok(Region { gradient, given, named: named.to_vec(), xs, y: *y, nodes, active })
    }

    /// Whether a node has an active input.
    fn is_active(&self, model: &Model, node: NodeId) -> bool {
        let outputs = model.outputs(node).iter().flatten();
        outputs.into_iter().any(|value| self.active.contains(value))
    }

    /// Active nodes whose operators have no rule.
    fn without_rule(&self, resolved: &Resolved) -> HashSet<NodeId> {
        let model = resolved.model();
        let has_rule =
            |node: NodeId| resolved.op(node).is_some_and(|op| op.def.gradient_rule().is_some());
        let active = self.nodes.iter().copied().filter(|node| self.is_active(model, *node));
        active.filter(|node| !has_rule(*node)).collect()
    }

    /// Where the gradient is computed at other values than those named: computes `y` once more
    /// from these, and lets the node name what was computed. Whether there were any.
    fn copies(&self, resolved: &mut Resolved) -> bool {
        let pairs = self.named.iter().zip(&self.given);
        let others: HashMap<ValueId, ValueId> = pairs
            .filter_map(|(named, given)| Some((*named, (*given)?)))
            .filter(|(named, given)| named != given)
            .collect();
        if others.is_empty() {
            return false;
        }
        let forms: Vec<Option<u32>> =
            self.nodes.iter().map(|node| resolved.op(*node).map(|op| op.opset)).collect();
        let mut build = resolved.build(self.gradient);
        let (copies, y) = build.copy_before(&self.nodes, &others, self.y);
        let model = build.model_mut();
        for (index, given) in self.given.iter().enumerate() {
            let named = given.unwrap_or(self.named[index]);
            model.set_input(self.gradient, self.given.len() + index, Some(named));
        }
        model.set_input(self.gradient, 2 * self.given.len(), Some(y));
        for (copy, form) in copies.into_iter().zip(forms) {
            if let Some(form) = form {
                resolved.set_opset(copy, form);
            }
        }
        resolved.place_made();
        true
    }

    /// Makes the nodes of the gradient, which takes the node's place.
    fn derive(&self, resolved: &mut Resolved, inference: &Inference) -> Result<(), Refusal> {
        let types = Types::new(inference);
        let newest = resolved.registry().versions("").map_or(1, |(_, newest)| newest);
        let mut arrived: HashMap<ValueId, Vec<ValueId>> = HashMap::new();
        let mut made: Vec<NodeId> = Vec::new();
        let seed = self.seed(resolved, inference, &mut made)?;
        arrived.insert(self.y, vec![seed]);
        for node in self.nodes.iter().rev().copied() {
            let model = resolved.model();
            let (Some(op), true) = (resolved.op(node), self.is_active(model, node)) else {
                continue;
            };
            let Some(rule) = op.def.gradient_rule() else { continue };
            let outputs = model.outputs(node).to_vec();
            let inputs: Vec<Option<ValueId>> = model.inputs(node).collect();
            let wanted: Vec<bool> = inputs
                .iter()
                .map(|value| value.is_some_and(|value| self.active.contains(&value)))
                .collect();
            let arriving: Vec<Option<ValueId>> = outputs
                .iter()
                .map(|value| self.total(resolved, &mut arrived, (*value)?, &mut made))
                .collect();
            if arriving.iter().all(Option::is_none) {
                continue;
            }
            let build = resolved.build(self.gradient);
            let cx = Backward::new(build, &types, (node, op.schema), &arriving, &wanted);
            rule(&cx)?;
            let derived = cx.finish();
            made.extend(derived.made);
            for ((value, gradient), wanted) in inputs.iter().zip(derived.gradients).zip(&wanted) {
                if let (Some(value), Some(gradient), true) = (value, gradient, wanted) {
                    arrived.entry(*value).or_default().push(gradient);
                }
            }
        }
        let totals: Vec<Option<ValueId>> = self.named[..self.xs]
            .iter()
            .map(|x| self.total(resolved, &mut arrived, *x, &mut made))
            .collect();
        self.hand_over(resolved, inference, &totals, &mut made);
        for node in made {
            resolved.set_opset(node, newest);
        }
        Ok(())
    }

    /// The gradient of the sum of the elements of `y` by `y`: ones.
    fn seed(
        &self,
        resolved: &mut Resolved,
        inference: &Inference,
        made: &mut Vec<NodeId>,
    ) -> Result<ValueId, Refusal> {
        let ty = inference.ty(self.y);
        let elem = ty.and_then(|ty| ty.elem()).filter(|elem| elem.is_float());
        let Some(elem) = elem else {
            let name = resolved.name_of(self.y);
            return Err(Refusal(format!("'{name}' is not of floats, so it has no gradient")));
        };
        let is_scalar = ty.and_then(|ty| ty.shape()).is_some_and(|shape| shape.is_empty());
        let one = number(elem, 1.0);
        let mut build = resolved.build(self.gradient);
        let one = build.constant("one", &one);
        if is_scalar {
            return Ok(one);
        }
        let (node, shape) = build.before("Shape", "", &[Some(self.y)], &[]);
        let (expand, seed) = build.before("Expand", "", &[Some(one), Some(shape)], &[]);
        made.extend([node, expand]);
        Ok(seed)
    }

    /// The sum of the gradients that arrived for a value.
    fn total(
        &self,
        resolved: &mut Resolved,
        arrived: &mut HashMap<ValueId, Vec<ValueId>>,
        value: ValueId,
        made: &mut Vec<NodeId>,
    ) -> Option<ValueId> {
        let parts = arrived.get(&value)?;
        let total = match parts[..] {
            [] => return None,
            [only] => return Some(only),
            _ => {
                let inputs: Vec<Option<ValueId>> = parts.iter().copied().map(Some).collect();
                let (node, total) = resolved.build(self.gradient).before("Sum", "", &inputs, &[]);
                made.push(node);
                total
            }
        };
        arrived.insert(value, vec![total]);
        Some(total)
    }

    /// Lets gradients be the outputs of the node, which goes.
    fn hand_over(
        &self,
        resolved: &mut Resolved,
        inference: &Inference,
        totals: &[Option<ValueId>],
        made: &mut Vec<NodeId>,
    ) {
        let outputs = resolved.model().outputs(self.gradient).to_vec();
        let mut build = resolved.build(self.gradient);
        for (index, output) in outputs.iter().enumerate() {
            let (Some(output), Some(x)) = (*output, self.named.get(index)) else { continue };
            let node = match totals.get(index).copied().flatten() {
                Some(total) => build.before("Identity", "", &[Some(total)], &[]).0,
                None => {
                    let elem = inference.ty(*x).and_then(|ty| ty.elem());
                    let zero = number(elem.unwrap_or(DataType::Float), 0.0);
                    let zero = build.constant("zero", &zero);
                    let (shape, sizes) = build.before("Shape", "", &[Some(*x)], &[]);
                    made.push(shape);
                    build.before("Expand", "", &[Some(zero), Some(sizes)], &[]).0
                }
            };
            made.push(node);
            let model = build.model_mut();
            model.drop_output(self.gradient, index);
            model.redefine_output(node, 0, output);
        }
        let (model, nodes, _) = resolved.parts_mut();
        nodes.remove(model, self.gradient);
    }
}

/// Whether the elements of a value are floats, or may be.
fn has_derivative(inference: &Inference, value: ValueId) -> bool {
    let elem = inference.ty(value).and_then(|ty| ty.elem());
    elem.is_none_or(DataType::is_float)
}

/// A scalar.
fn number(elem: DataType, value: f64) -> Tensor {
    let double = Tensor::from_slice([], &[value]).expect("a scalar has one element");
    let cast = sardonyx_tensor::cast(&double, elem, sardonyx_tensor::CastOptions::default());
    cast.unwrap_or(double)
}
