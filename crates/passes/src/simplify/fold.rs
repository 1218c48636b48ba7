//! Folding: nodes that depend on constants alone become constants, as far as the model does not
//! grow by more than it may.

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{AttrValue, Model, NodeId, Producer, Type, ValueId};
use sardonyx_ops::operators::{
    ABS, ADD, CAST, CAST_LIKE, CEIL, CLIP, CONCAT, CONSTANT, CONSTANT_OF_SHAPE, DEPTH_TO_SPACE,
    DEQUANTIZE_LINEAR, DIV, EQUAL, EXPAND, FLATTEN, FLOOR, GATHER, GATHER_ELEMENTS, GATHER_ND,
    GREATER, GREATER_OR_EQUAL, IDENTITY, LESS, LESS_OR_EQUAL, MAX, MIN, MUL, NEG, PAD, RANGE,
    RECIPROCAL, RELU, RESHAPE, ROUND, SCATTER_ELEMENTS, SCATTER_ND, SHAPE, SIGN, SLICE,
    SPACE_TO_DEPTH, SPLIT, SQRT, SQUEEZE, SUB, TILE, TRANSPOSE, UNSQUEEZE, WHERE,
};
use sardonyx_ops::{Determinism, OpDef};
use sardonyx_tensor::{DataType, Tensor};

use super::constants::become_constant;
use super::region::Mini;
use super::rule::{FOLD, SimplifyLevel};
use super::{Job, Scope, is_plain};
use crate::infer::Inference;
use crate::order::inner_graphs;

/// Operators of floating-point numbers whose results are defined to the bit, as they move numbers
/// or round once as IEEE 754 demands.
const DEFINED: [&OpDef; 46] = [
    &ABS,
    &ADD,
    &CAST,
    &CAST_LIKE,
    &CEIL,
    &CLIP,
    &CONCAT,
    &CONSTANT_OF_SHAPE,
    &DEPTH_TO_SPACE,
    &DIV,
    &EQUAL,
    &EXPAND,
    &FLATTEN,
    &FLOOR,
    &GATHER,
    &GATHER_ELEMENTS,
    &GATHER_ND,
    &GREATER,
    &GREATER_OR_EQUAL,
    &IDENTITY,
    &LESS,
    &LESS_OR_EQUAL,
    &MAX,
    &MIN,
    &MUL,
    &NEG,
    &PAD,
    &RANGE,
    &RECIPROCAL,
    &RELU,
    &RESHAPE,
    &ROUND,
    &SCATTER_ELEMENTS,
    &SCATTER_ND,
    &SHAPE,
    &SIGN,
    &SLICE,
    &SPACE_TO_DEPTH,
    &SPLIT,
    &SQRT,
    &SQUEEZE,
    &SUB,
    &TILE,
    &TRANSPOSE,
    &UNSQUEEZE,
    &WHERE,
];

/// Operators that repeat few numbers: their results stay computed unless they are small.
const REPEATING: [&OpDef; 4] = [&CONSTANT_OF_SHAPE, &EXPAND, &RANGE, &TILE];
/// Operators whose results repeat numbers if their first inputs do.
const PASSING: [&OpDef; 7] =
    [&CAST, &FLATTEN, &IDENTITY, &RESHAPE, &SQUEEZE, &TRANSPOSE, &UNSQUEEZE];
/// Bytes of the allowance that constants of repeated numbers leave to others: without it, a small
/// model would take them instead of the few bytes that compute them.
const LEFT_BY_REPEATED: u64 = 15 << 10;
/// Bytes for which a result of an unknown size counts.
const UNKNOWN_BYTES: u64 = 1 << 10;
/// Bytes of a result that is computed at all, unless what it makes unnecessary is as large.
const MOST_BYTES: u64 = 1 << 28;

/// Nodes of a scope that depend on constants alone.
#[derive(Default)]
struct Foldable {
    /// Nodes in topological order.
    nodes: Vec<NodeId>,
    /// Bytes that are not needed any more once a value is stored: those of constants that only its
    /// computation reads.
    freed: HashMap<ValueId, u64>,
    /// Nodes whose results repeat few numbers.
    repeating: HashSet<NodeId>,
}

impl Job<'_> {
    /// Computes nodes of constants. How many.
    pub(super) fn fold(&mut self, scope: Scope, inference: &Inference) -> usize {
        let Some(evaluate) = self.options.evaluate else { return 0 };
        let found = self.find_foldable(inference);
        if found.nodes.is_empty() {
            return 0;
        }
        let (kept, stored) = self.choose(found, inference);
        if stored.is_empty() {
            return 0;
        }
        let results = self.compute(scope, inference, evaluate, &kept, &stored);
        let mut count = 0;
        for value in stored {
            let Some(tensor) = results.get(&value) else { continue };
            count += usize::from(self.store(scope, value, tensor.clone()));
        }
        self.resolved.place_made();
        self.note(FOLD.name, count, 0);
        count
    }

    /// Finds nodes that depend on constants alone.
    fn find_foldable(&self, inference: &Inference) -> Foldable {
        let model = self.resolved.model();
        let mut found = Foldable::default();
        let mut computed: HashSet<ValueId> = HashSet::new();
        for graph in self.resolved.graphs() {
            for node in self.resolved.order_of(*graph) {
                if !self.may_fold(*node, inference) {
                    continue;
                }
                let inputs: Vec<ValueId> = model.inputs(*node).flatten().collect();
                if inputs.is_empty()
                    || !inputs.iter().all(|value| {
                        computed.contains(value)
                            || self.constants.is_constant(&self.resolved, inference, *value)
                    })
                {
                    continue;
                }
                let freed =
                    inputs.iter().filter(|value| has_one_reader(model, **value)).map(|value| {
                        found.freed.get(value).copied().unwrap_or_else(|| self.stored_bytes(*value))
                    });
                let freed: u64 = freed.sum();
                let bytes = model.outputs(*node).iter().flatten();
                let bytes = bytes.map(|value| bytes_of(inference, *value)).sum::<Option<u64>>();
                if bytes.is_some_and(|bytes| bytes > freed.max(MOST_BYTES)) {
                    continue;
                }
                let mut outputs = model.outputs(*node).iter().flatten();
                if let Some(first) = outputs.next() {
                    found.freed.insert(*first, freed);
                }
                if self.repeats(&found.repeating, *node) {
                    found.repeating.insert(*node);
                }
                computed.extend(model.outputs(*node).iter().flatten());
                found.nodes.push(*node);
            }
        }
        found
    }

    /// Whether a node repeats few numbers, given the nodes before it that do.
    fn repeats(&self, repeating: &HashSet<NodeId>, node: NodeId) -> bool {
        let is_one_of = |ops: &[&OpDef]| ops.iter().any(|op| self.resolved.is(node, op));
        let model = self.resolved.model();
        let first = model.inputs(node).next().flatten().map(|value| model.value(value).producer);
        is_one_of(&REPEATING)
            || is_one_of(&PASSING)
                && matches!(first, Some(Producer::Node(before, _)) if repeating.contains(&before))
    }

    /// Counts the bytes of the values of an initializer, or of a `Constant` node.
    fn stored_bytes(&self, value: ValueId) -> u64 {
        let model = self.resolved.model();
        match model.value(value).producer {
            Producer::Initializer(_) => model
                .initializer(value)
                .and_then(|found| model.implied_bytes(&found.tensor))
                .unwrap_or(0),
            Producer::Node(node, _) if self.resolved.is(node, &CONSTANT) => self
                .constants
                .read_stored(model, value)
                .map_or(0, |tensor| tensor.held_bytes() as u64),
            _ => 0,
        }
    }

    /// Whether a node can be computed ahead of time, once its inputs are known.
    fn may_fold(&self, node: NodeId, inference: &Inference) -> bool {
        let model = self.resolved.model();
        let Some(op) = self.resolved.op(node) else { return false };
        let outputs: Vec<ValueId> = model.outputs(node).iter().flatten().copied().collect();
        // Engines recognize quantized operators by the `DequantizeLinear` of weights and biases.
        if op.def.is(&CONSTANT)
            || op.def.is(&DEQUANTIZE_LINEAR)
            || op.schema.determinism != Determinism::Deterministic
            || inner_graphs(model, node).next().is_some()
            || !is_plain(model, node)
            || outputs.is_empty()
        {
            return false;
        }
        let types = outputs.iter().map(|value| inference.ty(*value));
        let are_tensors = types.clone().all(|ty| ty.is_some_and(|ty| ty.elem().is_some()));
        let attributes = model.attributes(node).iter().map(|id| model.attribute(*id));
        let has_reference = attributes.clone().any(|found| found.ref_attr_name().is_some());
        if !are_tensors || has_reference {
            return false;
        }
        if !op.def.domain.is_empty() || self.options.level >= SimplifyLevel::Close {
            return op.def.domain.is_empty();
        }
        let inputs = model.inputs(node).flatten().map(|value| inference.ty(value));
        let has_floats =
            types.chain(inputs).any(|ty| ty.and_then(Type::elem).is_some_and(DataType::is_float));
        !has_floats || DEFINED.iter().any(|found| op.def.is(found))
    }

    /// Chooses which values are stored: what other nodes read, unless it is too large. Then the
    /// values from which it is computed are stored, if these are not too large.
    fn choose(&mut self, found: Foldable, inference: &Inference) -> (Vec<NodeId>, Vec<ValueId>) {
        let model = self.resolved.model();
        let mut folded: HashSet<NodeId> = found.nodes.iter().copied().collect();
        let mut stored = Vec::new();
        for node in found.nodes.iter().rev() {
            let outputs: Vec<ValueId> = model.outputs(*node).iter().flatten().copied().collect();
            let wanted = outputs.iter().copied().filter(|value| {
                model.value(*value).is_output
                    || model.uses(*value).any(|(reader, _)| !folded.contains(&reader))
            });
            let wanted: Vec<ValueId> = wanted.collect();
            let freed = outputs.first().and_then(|value| found.freed.get(value)).copied();
            let freed = freed.unwrap_or(0);
            let bytes = wanted.iter().map(|value| bytes_of(inference, *value));
            let bytes = bytes.sum::<Option<u64>>().unwrap_or(UNKNOWN_BYTES);
            let repeats = found.repeating.contains(node);
            let is_summed = wanted.iter().any(|value| self.must_stay_computed(inference, *value));
            let growth = bytes.saturating_sub(freed);
            let left = if repeats { LEFT_BY_REPEATED } else { 0 };
            if !is_summed && (growth == 0 || growth + left <= self.grow) {
                self.grow -= growth;
                stored.extend(wanted);
            } else {
                folded.remove(node);
            }
        }
        stored.reverse();
        let kept = found.nodes.into_iter().filter(|node| folded.contains(node)).collect();
        (kept, stored)
    }

    /// Computes values, all at once, or else one by one, as some may fail: a run might never come
    /// to their nodes.
    fn compute(
        &self,
        scope: Scope,
        inference: &Inference,
        evaluate: &dyn super::Evaluate,
        nodes: &[NodeId],
        wanted: &[ValueId],
    ) -> HashMap<ValueId, Tensor> {
        let mut results = HashMap::new();
        let part = Part { job: self, inference, opset: scope.opset };
        if let Some(found) = part.run(evaluate, nodes, &results, wanted) {
            results.extend(wanted.iter().copied().zip(found));
            return results;
        }
        let model = self.resolved.model();
        for node in nodes {
            let outputs: Vec<ValueId> = model.outputs(*node).iter().flatten().copied().collect();
            if let Some(found) = part.run(evaluate, &[*node], &results, &outputs) {
                results.extend(outputs.into_iter().zip(found));
            }
        }
        results
    }

    /// Stores the value of a node. Whether that could be done.
    fn store(&mut self, scope: Scope, value: ValueId, tensor: Tensor) -> bool {
        let model = self.resolved.model();
        let Producer::Node(node, index) = model.value(value).producer else { return false };
        if model.outputs(node).len() == 1 {
            become_constant(&mut self.resolved, node, tensor, scope.opset);
            return true;
        }
        let made = {
            let mut build = self.resolved.build(node);
            let attributes = [("value", AttrValue::Tensor(tensor))];
            let (made, _) = build.before("Constant", "", &[], &attributes);
            build.model_mut().drop_output(node, index as usize);
            build.model_mut().redefine_output(made, 0, value);
            made
        };
        self.resolved.set_opset(made, scope.opset);
        true
    }
}

/// Surroundings of nodes that are computed.
struct Part<'a> {
    job: &'a Job<'a>,
    inference: &'a Inference,
    opset: u32,
}

impl Part<'_> {
    /// Computes values of nodes, given those that are known.
    fn run(
        &self,
        evaluate: &dyn super::Evaluate,
        nodes: &[NodeId],
        known: &HashMap<ValueId, Tensor>,
        wanted: &[ValueId],
    ) -> Option<Vec<Tensor>> {
        let Part { job, inference, opset } = *self;
        let mut mini = Mini::new(opset);
        for node in nodes {
            mini.add_node(job.resolved.model(), *node, &|value| {
                let found = known.get(&value).cloned();
                found.or_else(|| job.constants.get(&job.resolved, inference, value))
            })?;
        }
        evaluate.evaluate(mini.finish(wanted)?, Vec::new()).ok()
    }
}

/// Whether at most one node reads a value, and nothing else does.
fn has_one_reader(model: &Model, value: ValueId) -> bool {
    !model.value(value).is_output && model.uses(value).take(2).count() <= 1
}

/// Counts the bytes of a tensor of a known size.
fn bytes_of(inference: &Inference, value: ValueId) -> Option<u64> {
    let ty = inference.ty(value)?;
    let mut sizes = ty.shape()?.iter().map(|dim| u64::try_from(dim.known()?).ok());
    let count = sizes.try_fold(1u64, |product, size| product.checked_mul(size?))?;
    let bytes = ty.elem()?.storage_bytes(usize::try_from(count).ok()?)?;
    u64::try_from(bytes).ok()
}
