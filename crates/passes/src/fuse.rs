//! Fusing: what exporters spell out in small operators becomes the one operator that it means.
//!
//! A table of patterns ([`PATTERNS`]), each anchored at the last node of what it recognises. The
//! anchor becomes the fused operator, in its newest form, under its own name and with its own
//! outputs; what only fed it goes away. All fused forms are operators of the standard, so inference
//! and kernels know them already, and a model that uses them itself runs the same code.
//!
//! A pattern must hold for every input of the model: constants are compared with the numbers that
//! the function is made of, sizes must be equal by inference, and a value that somebody else reads
//! as well stays computed. What nearly matched is reported with the reason, because that is the
//! first question of whoever exported the model.

mod activation;
mod attention;
mod normalization;
mod rotary;

pub use attention::BLIND_IS_NAN;

use hashbrown::HashMap;

use sardonyx_model::{
    AttrValue, Attributes, Dim, GraphId, Model, NodeAttributes, NodeId, Producer, Shape, ValueId,
};
use sardonyx_ops::OpDef;
use sardonyx_ops::operators::{ADD, MATMUL, MUL};
use sardonyx_tensor::{DataType, Tensor};

use crate::dead::remove_dead;
use crate::finding::place_of_node;
use crate::infer::Inference;
use crate::resolve::Resolved;

/// What became of a node that a pattern is anchored at.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fusion {
    /// The node of the file, for people.
    pub place: String,
    /// The pattern: `Gelu`, `Attention`, …
    pub pattern: &'static str,
    /// How many nodes became one; 0 if it did not happen.
    pub nodes: usize,
    /// Why it did not happen although it nearly did.
    pub why_not: Option<String>,
}

/// A pattern and the operator at which it is looked for.
type Pattern = (&'static OpDef, &'static str, for<'a, 'b> fn(&'a Matcher<'b>, NodeId) -> Match);

/// The patterns, tried in this order at each node. An earlier pattern may make the anchor of a
/// later one.
const PATTERNS: &[Pattern] = &[
    (&MUL, "Gelu", activation::gelu),
    (&MUL, "Swish", activation::swish),
    (&MUL, "HardSwish", activation::hard_swish),
    (&MUL, "LayerNormalization", normalization::layer_without_bias),
    (&MUL, "RMSNormalization", normalization::rms),
    (&ADD, "LayerNormalization", normalization::layer),
    (&ADD, "RotaryEmbedding", rotary::rotary),
    (&MATMUL, "Attention", attention::attention),
];

/// What a pattern says of a node.
pub(crate) enum Match {
    /// Nothing: the node is something else.
    No,
    /// It would be this, but for the reason given.
    Nearly(String),
    /// It is this.
    Yes(Rewrite),
}

/// Gives up a match without or with a reason.
macro_rules! give_up {
    () => {
        return $crate::fuse::Match::No
    };
    ($($why:tt)+) => {
        return $crate::fuse::Match::Nearly(format!($($why)+))
    };
}
use give_up;

/// What an anchor becomes.
#[derive(Default)]
pub(crate) struct Rewrite {
    /// Nodes to be made, in order; the last one takes the place of the anchor.
    steps: Vec<Step>,
    /// The nodes that the anchor stands for, itself excluded.
    fused: Vec<NodeId>,
}

/// One new node.
pub(crate) struct Step {
    op: &'static OpDef,
    inputs: Vec<Source>,
    attributes: Vec<(&'static str, AttrValue<'static>)>,
}

/// What a new node reads.
#[derive(Clone)]
pub(crate) enum Source {
    Value(ValueId),
    /// The output of the step of that number.
    Step(usize),
    /// A constant.
    Constant(Tensor),
    Absent,
}

impl Rewrite {
    pub(crate) fn fusing(fused: Vec<NodeId>) -> Rewrite {
        Rewrite { fused, ..Rewrite::default() }
    }

    /// Adds a step and says how others refer to it.
    pub(crate) fn step(
        &mut self,
        op: &'static OpDef,
        inputs: Vec<Source>,
        attributes: Vec<(&'static str, AttrValue<'static>)>,
    ) -> Source {
        self.steps.push(Step { op, inputs, attributes });
        Source::Step(self.steps.len() - 1)
    }
}

/// Fuses what the table knows, in every graph by itself. `is_constant` says which values are known
/// before anything runs, and `constant` gives those of them that patterns may look at; nodes whose
/// outputs are constants are left alone, and so are strings and integers.
pub fn fuse(
    resolved: &mut Resolved,
    inference: &Inference,
    is_constant: &dyn Fn(ValueId) -> bool,
    constant: &dyn Fn(ValueId) -> Option<Tensor>,
) -> Vec<Fusion> {
    let mut report = Vec::new();
    for graph in resolved.graphs().to_vec() {
        fuse_graph(resolved, graph, inference, is_constant, constant, &mut report);
    }
    if report.iter().any(|fusion| fusion.nodes > 0) {
        resolved.place_made();
        remove_dead(resolved);
    }
    report
}

fn fuse_graph(
    resolved: &mut Resolved,
    graph: GraphId,
    inference: &Inference,
    is_constant: &dyn Fn(ValueId) -> bool,
    constant: &dyn Fn(ValueId) -> Option<Tensor>,
    report: &mut Vec<Fusion>,
) {
    let mut made = Made::default();
    for node in resolved.order_of(graph).to_vec() {
        for (anchor, name, pattern) in PATTERNS {
            let model = resolved.model();
            let matcher = Matcher { resolved, model, graph, inference, is_constant, constant };
            let folded = matcher.output(node).is_none_or(is_constant);
            if folded || !matcher.is(node, anchor) {
                continue;
            }
            let fusion = |nodes, why_not| Fusion {
                place: place_of_node(resolved.model(), node),
                pattern: name,
                nodes,
                why_not,
            };
            match pattern(&matcher, node) {
                Match::No => {}
                Match::Nearly(why) => report.push(fusion(0, Some(why))),
                Match::Yes(rewrite) => {
                    report.push(fusion(rewrite.fused.len() + 1, None));
                    apply(resolved, node, rewrite, &mut made);
                    break;
                }
            }
        }
    }
}

/// What fusing has made so far in a graph.
#[derive(Default)]
pub(crate) struct Made {
    /// By name and input: results of steps that several anchors share.
    shared: HashMap<(&'static str, ValueId), ValueId>,
}

/// Makes the nodes of a rewrite.
fn apply(resolved: &mut Resolved, anchor: NodeId, rewrite: Rewrite, made: &mut Made) {
    let mut outputs: Vec<ValueId> = Vec::new();
    let last = rewrite.steps.len().saturating_sub(1);
    for (index, step) in rewrite.steps.into_iter().enumerate() {
        let mut build = resolved.build(anchor);
        let inputs: Vec<Option<ValueId>> = step
            .inputs
            .into_iter()
            .map(|source| match source {
                Source::Value(value) => Some(value),
                Source::Step(index) => Some(outputs[index]),
                Source::Constant(tensor) => Some(build.constant(step.op.name, &tensor)),
                Source::Absent => None,
            })
            .collect();
        // Views of the same value are made once.
        let key = match &inputs[..] {
            [Some(input)] if index != last && step.attributes.is_empty() => {
                Some((step.op.name, *input))
            }
            _ => None,
        };
        if let Some(value) = key.and_then(|key| made.shared.get(&key)) {
            outputs.push(*value);
            continue;
        }
        let node = if index == last {
            let model = build.model_mut();
            let op = model.intern(step.op.name);
            let node = model.node_mut(anchor);
            node.op_type = Some(op);
            node.domain = None;
            model.clear_attributes(anchor);
            model.set_inputs(anchor, &inputs);
            for (name, value) in step.attributes {
                model.set_attribute(anchor, name, value);
            }
            anchor
        } else {
            build.before(step.op.name, "", &inputs, &step.attributes).0
        };
        let model = resolved.model();
        let output = model.outputs(node).first().copied().flatten();
        if let Some(output) = output {
            if let Some(key) = key {
                made.shared.insert(key, output);
            }
            outputs.push(output);
        }
        resolved.set_opset(node, step.op.newest());
    }
}

/// What patterns look at.
pub(crate) struct Matcher<'a> {
    resolved: &'a Resolved,
    model: &'a Model,
    /// The graph of the anchor, in which all nodes of a pattern stand: others run less often.
    graph: GraphId,
    inference: &'a Inference,
    is_constant: &'a dyn Fn(ValueId) -> bool,
    constant: &'a dyn Fn(ValueId) -> Option<Tensor>,
}

impl<'a> Matcher<'a> {
    /// Whether a node calls that operator.
    pub(crate) fn is(&self, node: NodeId, op: &OpDef) -> bool {
        self.resolved.is(node, op)
    }

    /// The node that computes a value, unless it is known.
    pub(crate) fn producer(&self, value: ValueId) -> Option<NodeId> {
        match self.model.value(value).producer {
            Producer::Node(node, 0)
                if self.model.node(node).graph == self.graph && !(self.is_constant)(value) =>
            {
                Some(node)
            }
            _ => None,
        }
    }

    /// The node of that operator that computes a value.
    pub(crate) fn made_by(&self, value: ValueId, op: &OpDef) -> Option<NodeId> {
        self.producer(value).filter(|node| self.is(*node, op))
    }

    pub(crate) fn input(&self, node: NodeId, index: usize) -> Option<ValueId> {
        self.model.inputs(node).nth(index).flatten()
    }

    /// The two inputs of a node of two.
    pub(crate) fn pair(&self, node: NodeId) -> Option<(ValueId, ValueId)> {
        let mut inputs = self.model.inputs(node);
        match (inputs.next(), inputs.next(), inputs.next()) {
            (Some(Some(a)), Some(Some(b)), None) => Some((a, b)),
            _ => None,
        }
    }

    /// Both ways to call the inputs of a node of two.
    pub(crate) fn either_way(&self, node: NodeId) -> impl Iterator<Item = (ValueId, ValueId)> {
        self.pair(node).into_iter().flat_map(|(a, b)| [(a, b), (b, a)])
    }

    pub(crate) fn output(&self, node: NodeId) -> Option<ValueId> {
        self.model.outputs(node).first().copied().flatten()
    }

    pub(crate) fn constant(&self, value: ValueId) -> Option<Tensor> {
        (self.constant)(value)
    }

    /// A constant of one element.
    pub(crate) fn scalar(&self, value: ValueId) -> Option<f64> {
        let tensor = self.constant(value).filter(|tensor| tensor.len() == 1)?;
        match tensor.data_type() {
            DataType::Float => tensor.to_vec::<f32>().ok()?.first().map(|x| f64::from(*x)),
            DataType::Double => tensor.to_vec::<f64>().ok()?.first().copied(),
            _ => None,
        }
    }

    /// Whether a value is a constant that stands for a number: exactly, or rounded to a few digits
    /// as exporters do.
    pub(crate) fn is_number(&self, value: ValueId, number: f64) -> bool {
        self.scalar(value).is_some_and(|found| (found - number).abs() <= 2e-6 * number.abs())
    }

    /// Whether a value is a constant that stands for a whole exponent, which may be of another type
    /// than what it is the exponent of.
    pub(crate) fn is_power(&self, value: ValueId, exponent: i64) -> bool {
        let tensor = || self.constant(value).filter(|tensor| tensor.len() == 1);
        self.is_number(value, exponent as f64)
            || tensor().is_some_and(|tensor| match tensor.data_type() {
                DataType::Int64 => tensor.item::<i64>() == Ok(exponent),
                DataType::Int32 => tensor.item::<i32>().map(i64::from) == Ok(exponent),
                _ => false,
            })
    }

    /// The elements of a constant list of integers.
    pub(crate) fn ints(&self, value: ValueId) -> Option<Vec<i64>> {
        self.constant(value)?.to_vec::<i64>().ok()
    }

    pub(crate) fn int(&self, node: NodeId, name: &str) -> Option<i64> {
        NodeAttributes::new(self.model, node).int(name)
    }

    pub(crate) fn float(&self, node: NodeId, name: &str) -> Option<f32> {
        NodeAttributes::new(self.model, node).float(name)
    }

    pub(crate) fn int_list(&self, node: NodeId, name: &str) -> Option<Vec<i64>> {
        NodeAttributes::new(self.model, node).ints(name)
    }

    pub(crate) fn shape(&self, value: ValueId) -> Option<&'a Shape> {
        self.inference.ty(value)?.shape()
    }

    pub(crate) fn rank(&self, value: ValueId) -> Option<usize> {
        Some(self.shape(value)?.len())
    }

    /// Whether the result of a node has as many axes as `x`: constants of one element may have
    /// more.
    pub(crate) fn keeps_rank(&self, node: NodeId, x: ValueId) -> bool {
        let found = self.output(node).and_then(|value| self.rank(value));
        found.is_some() && found == self.rank(x)
    }

    /// The only node that reads the result of a node, if nothing else does.
    pub(crate) fn only_reader(&self, node: NodeId) -> Option<NodeId> {
        let value = self.output(node)?;
        let mut uses = self.model.uses(value).map(|(reader, _)| reader);
        let reader = uses.next()?;
        let alone = uses.next().is_none() && !self.model.value(value).is_output;
        alone.then_some(reader)
    }

    /// Whether two values surely have the same shape.
    pub(crate) fn same_shape(&self, a: ValueId, b: ValueId) -> bool {
        let (Some(a), Some(b)) = (self.shape(a), self.shape(b)) else {
            return false;
        };
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.surely_equals(b))
    }

    /// Size number `axis` from the end.
    pub(crate) fn size_from_end(&self, value: ValueId, axis: usize) -> Option<&'a Dim> {
        let shape = self.shape(value)?;
        shape.get(shape.len().checked_sub(axis)?)
    }

    pub(crate) fn elem(&self, value: ValueId) -> Option<DataType> {
        self.inference.ty(value)?.elem()
    }

    /// Whether an axis, possibly counted from the end, is the last one of a value.
    pub(crate) fn is_last_axis(&self, axis: i64, value: ValueId) -> bool {
        axis == -1 || self.rank(value).is_some_and(|rank| axis + 1 == rank as i64)
    }

    /// Whether nobody but `anchor` and the nodes themselves needs what the nodes compute: else they
    /// would be computed in addition to what is fused.
    pub(crate) fn are_inner(&self, nodes: &[NodeId], anchor: NodeId) -> bool {
        nodes.iter().all(|node| {
            self.model.outputs(*node).iter().flatten().all(|value| {
                !self.model.value(*value).is_output
                    && self
                        .model
                        .uses(*value)
                        .all(|(reader, _)| reader == anchor || nodes.contains(&reader))
            })
        })
    }

    /// The factors of a product of several, with the inner products that only `anchor` needs
    /// opened: `(a * b) * c` in any order. Gives the factors and the nodes opened.
    pub(crate) fn factors(&self, anchor: NodeId) -> Option<(Vec<ValueId>, Vec<NodeId>)> {
        let (a, b) = self.pair(anchor)?;
        let (mut open, mut factors, mut nodes) = (vec![b, a], Vec::new(), Vec::new());
        while let Some(value) = open.pop() {
            let inner = self.made_by(value, &MUL).filter(|_| nodes.len() < MOST_FACTORS);
            let alone = |node: &NodeId| {
                !self.model.value(value).is_output
                    && self.model.uses(value).all(|(reader, _)| {
                        reader == anchor || nodes.contains(&reader) || reader == *node
                    })
            };
            match inner.filter(alone).and_then(|node| Some((node, self.pair(node)?))) {
                Some((node, (a, b))) => {
                    nodes.push(node);
                    open.extend([b, a]);
                }
                None => factors.push(value),
            }
        }
        Some((factors, nodes))
    }
}

/// Products opened for one anchor.
const MOST_FACTORS: usize = 4;
