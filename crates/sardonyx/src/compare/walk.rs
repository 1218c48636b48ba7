//! Runs of a model in segments, so that only live values and the constants of one segment are in
//! memory.

use std::collections::{HashMap, HashSet};

use sardonyx_model::{self as graph, Id, NodeId, Producer, Type, ValueId};
use sardonyx_ops::Registry;
use sardonyx_passes::order::{reads_outside, sort_nodes};
use sardonyx_passes::{self as passes, Inference};
use sardonyx_runtime::RunOptions;
use sardonyx_tensor::{DataType, Value};

use super::CompareOptions;
use crate::error::{Error, ErrorKind};
use crate::model::Model;
use crate::parts::{Part, Slot, make_parts};

/// Assumed size of a value whose type is not known, in bytes.
const UNKNOWN_BYTES: usize = 1 << 20;

/// Maximum number of segments. Bounds the time that many small sessions take.
const MAX_SEGMENTS: usize = 512;

/// Run of the main graph of a model that gives chosen values as they are computed.
pub(super) struct Walk<'a> {
    model: &'a Model,
    options: &'a CompareOptions<'a>,
    segments: Vec<Part>,
    /// Number of the next segment.
    next: usize,
    /// Values that later segments read.
    live: HashMap<ValueId, Value>,
    /// Last segment that reads a value.
    last_read: HashMap<ValueId, usize>,
    /// Types of values that are not tensors.
    types: Inference,
}

impl<'a> Walk<'a> {
    /// Plans a run that computes the values `wanted`. `inputs` are the values of all graph inputs
    /// of a model that [`fix_inputs`] made.
    pub(super) fn new(
        model: &'a Model,
        inputs: &[(String, Value)],
        wanted: &HashSet<ValueId>,
        options: &'a CompareOptions<'a>,
    ) -> Result<Walk<'a>, Error> {
        let graph = &model.graph;
        let main = graph
            .main_graph()
            .ok_or_else(|| Error::new(ErrorKind::Invalid, "the model has no graph"))?;
        let given: HashMap<&str, &Value> =
            inputs.iter().map(|(name, value)| (name.as_str(), value)).collect();
        let mut live = HashMap::new();
        for info in &main.inputs {
            let value = given.get(&*graph.display(info.name)).copied();
            live.extend(info.value.zip(value.cloned()));
        }
        let types = infer_with_inputs(model, inputs);
        let order = sort_nodes(graph, &main.nodes).map_err(|(node, _)| {
            let place = passes::place_of_node(graph, node);
            Error::new(ErrorKind::Invalid, "the graph has a cycle").with_place(place)
        })?;
        let order = order.unwrap_or_else(|| main.nodes.clone());
        let order = keep_needed(graph, &order, wanted);
        let budget = options.segment_bytes;
        let segments = cut_segments(graph, &types, &order, budget);
        let mut last_read = HashMap::new();
        for (index, nodes) in segments.iter().enumerate() {
            for value in nodes.iter().flat_map(|node| reads_outside(graph, *node)) {
                last_read.insert(value, index);
            }
        }
        let segments = segments.into_iter().enumerate();
        let segments = segments
            .map(|(index, nodes)| make_segment(graph, index, nodes, wanted, &last_read))
            .collect();
        live.retain(|value, _| last_read.contains_key(value));
        Ok(Walk { segments, next: 0, live, last_read, types, options, model })
    }

    /// Whether all segments have run.
    pub(super) fn is_done(&self) -> bool {
        self.next == self.segments.len()
    }

    /// Runs the next segment. Returns the values that it computes, with those that only later
    /// segments need.
    pub(super) fn advance(&mut self) -> Result<Vec<(ValueId, Value)>, Error> {
        let Some(part) = self.segments.get(self.next) else { return Ok(Vec::new()) };
        let mut types = HashMap::new();
        for value in &part.inputs {
            let ty = self.live.get(value).and_then(to_type);
            let ty = ty.or_else(|| self.types.ty(*value).cloned());
            types.extend(ty.map(|ty| (*value, ty)));
        }
        let mut parts = make_parts(&self.model.graph, std::slice::from_ref(part), &types);
        let part_model = self.model.with_graph(std::mem::take(&mut parts.graph));
        let session = self.options.build_session(&part_model)?;
        let inputs = parts
            .inputs
            .iter()
            .filter_map(|(name, value)| Some((name.as_str(), self.live.get(value)?.clone())));
        let outputs = session.run(inputs, &RunOptions::new().seed(0))?;
        drop(session);
        give_back_constants(&part_model);
        let outputs: Vec<Value> = outputs.into_values().collect();
        let slots = parts.outputs.into_iter().flatten();
        let values = part.outputs.iter().zip(slots).filter_map(|(value, slot)| {
            let found = match slot {
                Slot::Output(index) => outputs.get(index),
                Slot::Given(given) => self.live.get(&given),
            };
            Some((*value, found?.clone()))
        });
        let values: Vec<(ValueId, Value)> = values.collect();
        let index = self.next;
        self.next += 1;
        let (live, last_read) = (&mut self.live, &self.last_read);
        for (value, found) in &values {
            if last_read.get(value).is_some_and(|last| *last > index) {
                live.insert(*value, found.clone());
            }
        }
        live.retain(|value, _| last_read.get(value).is_some_and(|last| *last > index));
        Ok(values)
    }
}

/// Returns the model with only given values as inputs: other inputs with an initializer become
/// constants, and a given input loses its initializer.
pub(super) fn fix_inputs(model: &Model, inputs: &[(String, Value)]) -> Model {
    let mut graph = model.graph.clone_to_run();
    if let Some(main) = graph.main {
        let given: HashSet<&str> = inputs.iter().map(|(name, _)| name.as_str()).collect();
        graph.retain_initializers(main, |graph, found| {
            !given.contains(&*graph.display(found.tensor.name))
        });
        graph.retain_sparse_initializers(main, |graph, found| {
            let name = found.tensor.values.as_ref().and_then(|values| values.name);
            !given.contains(&*graph.display(name))
        });
        graph.fix_default_inputs(main);
    }
    model.with_graph(graph)
}

/// Infers the types of all values for given inputs.
pub(super) fn infer_with_inputs(model: &Model, inputs: &[(String, Value)]) -> Inference {
    let graph = &model.graph;
    let main = graph.main_graph().map_or(&[][..], |main| &main.inputs);
    let types = main.iter().map(|info| {
        let name = graph.display(info.name);
        to_type(&inputs.iter().find(|(given, _)| *given == name)?.1)
    });
    let types: Vec<Option<Type>> = types.collect();
    let options = passes::InferOptions { inputs: &types, ..Default::default() };
    passes::infer_model(graph, &Registry::with_microsoft(), options)
}

/// Keeps the nodes of an order from which `wanted` values are computed.
fn keep_needed(graph: &graph::Model, order: &[NodeId], wanted: &HashSet<ValueId>) -> Vec<NodeId> {
    let mut needed = vec![false; graph.node_count()];
    let mut left: Vec<ValueId> = wanted.iter().copied().collect();
    while let Some(value) = left.pop() {
        if let Producer::Node(node, _) = graph.value(value).producer
            && !std::mem::replace(&mut needed[node.index()], true)
        {
            left.extend(reads_outside(graph, node));
        }
    }
    order.iter().copied().filter(|node| needed[node.index()]).collect()
}

/// Cuts an order of nodes into segments whose outputs and constants take about `budget` bytes.
fn cut_segments(
    graph: &graph::Model,
    types: &Inference,
    order: &[NodeId],
    budget: usize,
) -> Vec<Vec<NodeId>> {
    let fewest = order.len().div_ceil(MAX_SEGMENTS);
    let mut seen: HashSet<ValueId> = HashSet::new();
    let (mut segments, mut segment, mut bytes) = (Vec::new(), Vec::new(), 0usize);
    for node in order {
        let made = graph.outputs(*node).iter().flatten();
        let made = made.map(|value| types.ty(*value).and_then(bytes_of_type));
        let made: usize = made.map(|bytes| bytes.unwrap_or(UNKNOWN_BYTES)).sum();
        let constants = reads_outside(graph, *node).into_iter().filter(|value| seen.insert(*value));
        let read = constants.filter_map(|value| {
            let tensor = &graph.initializer(value)?.tensor;
            let elem = DataType::from_number(tensor.data_type?)?;
            bytes_of_type(&Type::tensor(elem, tensor.dims.iter().copied()))
        });
        let own = made.saturating_add(read.sum());
        if bytes.saturating_add(own) > budget && segment.len() >= fewest {
            segments.push(std::mem::take(&mut segment));
            bytes = 0;
        }
        segment.push(*node);
        bytes = bytes.saturating_add(own);
    }
    if !segment.is_empty() {
        segments.push(segment);
    }
    segments
}

/// Makes the part with the nodes of a segment.
fn make_segment(
    graph: &graph::Model,
    index: usize,
    nodes: Vec<NodeId>,
    wanted: &HashSet<ValueId>,
    last_read: &HashMap<ValueId, usize>,
) -> Part {
    let within: HashSet<NodeId> = nodes.iter().copied().collect();
    let mut part = Part::default();
    let mut seen = HashSet::new();
    for node in &nodes {
        for value in reads_outside(graph, *node) {
            let is_outside = match graph.value(value).producer {
                Producer::Node(maker, _) => !within.contains(&maker),
                Producer::Input(_) => true,
                _ => false,
            };
            if is_outside && seen.insert(value) {
                part.inputs.push(value);
            }
        }
        let outputs = graph.outputs(*node).iter().flatten().copied();
        part.outputs.extend(outputs.filter(|value| {
            wanted.contains(value) || last_read.get(value).is_some_and(|last| *last > index)
        }));
    }
    part.nodes = nodes;
    part
}

/// Returns the size of a tensor in bytes; `None` if it is not known.
fn bytes_of_type(ty: &Type) -> Option<usize> {
    let dims = ty.shape()?.iter().map(sardonyx_model::Dim::size);
    let count = dims.collect::<Option<Vec<usize>>>()?.into_iter();
    let count = count.fold(1usize, usize::saturating_mul);
    ty.elem()?.storage_bytes(count)
}

/// Returns the type of a tensor with its sizes; `None` for other values.
pub(super) fn to_type(value: &Value) -> Option<Type> {
    let tensor = value.as_tensor()?;
    Some(Type::tensor(tensor.data_type(), tensor.dims().iter().copied()))
}

/// Gives the pages of mapped constants back, so that a model larger than memory can run.
fn give_back_constants(model: &Model) {
    let Some(main) = model.graph.main_graph() else { return };
    for span in main.initializers.iter().filter_map(|found| found.tensor.raw_data) {
        model.graph.buffer(span).give_back_pages();
    }
}
