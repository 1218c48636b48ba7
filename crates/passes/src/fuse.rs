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

pub(crate) mod activation;
pub(crate) mod attention;
pub(crate) mod normalization;
pub(crate) mod rotary;

pub use attention::BLIND_IS_NAN;

use hashbrown::HashMap;

use sardonyx_model::{GraphId, NodeId, ValueId};
use sardonyx_ops::OpDef;
use sardonyx_ops::operators::{ADD, MATMUL, MUL};
use sardonyx_tensor::Tensor;

use crate::dead::remove_dead;
use crate::finding::place_of_node;
use crate::infer::Inference;
use crate::matcher::{Match, Matcher, Rewrite, Source};
use crate::resolve::Resolved;

/// Result of looking for a pattern at a node.
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
    (&MUL, "Gelu", activation::find_gelu),
    (&MUL, "Swish", activation::find_swish),
    (&MUL, "HardSwish", activation::find_hard_swish),
    (&MUL, "LayerNormalization", normalization::layer_without_bias),
    (&MUL, "RMSNormalization", normalization::rms),
    (&ADD, "LayerNormalization", normalization::layer),
    (&ADD, "RotaryEmbedding", rotary::rotary),
    (&MATMUL, "Attention", attention::attention),
];

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
            let matcher =
                Matcher { resolved, model, graph, inference, is_constant, constant, opset: None };
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
                    apply(resolved, node, rewrite, &mut made, None);
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
/// They have the forms of version `opset` of `ai.onnx`, or the newest ones.
pub(crate) fn apply(
    resolved: &mut Resolved,
    anchor: NodeId,
    rewrite: Rewrite,
    made: &mut Made,
    opset: Option<u32>,
) {
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
        resolved.set_opset(node, opset.unwrap_or_else(|| step.op.newest()));
    }
}
