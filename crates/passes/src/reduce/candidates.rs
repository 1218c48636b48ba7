//! Candidates of a reduction: parts of a model, and models with zeros in the place of constants.

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{GraphId, Model, ModelPart, NodeId, Producer, ValueId};
use sardonyx_ops::Registry;
use sardonyx_tensor::{DataType, Tensor};

use crate::extract::Cut;
use crate::infer::{InferOptions, infer_model};
use crate::order::reads;
use crate::payload;

/// Number of elements above which a constant is replaced by a node that generates zeros.
const FEW_ELEMENTS: u64 = 16;

/// First version of `ai.onnx` with `ConstantOfShape`.
const GENERATING: i64 = 9;

/// Counts the elements of all constants.
pub(super) fn count_elements(model: &Model) -> u64 {
    let tensors = model.graphs().flat_map(|(_, graph)| {
        let dense = graph.initializers.iter().map(|found| &found.tensor.dims);
        let sparse = graph
            .sparse_initializers
            .iter()
            .filter_map(|found| found.tensor.values.as_ref().map(|values| &values.dims));
        dense.chain(sparse)
    });
    let counts = tensors.map(|dims| payload::element_count(dims).unwrap_or(u64::MAX));
    counts.fold(0, u64::saturating_add)
}

/// Selects the first `count` nodes of a graph. Values that the others read become outputs.
pub(super) fn keep_first(model: &Model, id: GraphId, count: usize) -> Option<Cut> {
    let (kept, dropped) = model.graph(id).nodes.split_at_checked(count)?;
    let read: HashSet<ValueId> = dropped.iter().flat_map(|node| reads(model, *node)).collect();
    let made = kept.iter().flat_map(|node| model.outputs(*node).iter().flatten().copied());
    let ends = made.filter(|value| read.contains(value) || model.value(*value).is_output);
    let outputs: Vec<ValueId> = ends.collect();
    let cut =
        Cut { graph: id, inputs: Vec::new(), stops: Vec::new(), outputs, keeps_inputs: false };
    Some(cut).filter(|cut| !cut.outputs.is_empty())
}

/// Selects the last `count` nodes of a graph. Values that they read from the others become inputs.
pub(super) fn keep_last(model: &Model, id: GraphId, count: usize) -> Option<Cut> {
    let nodes = &model.graph(id).nodes;
    without_nodes(model, id, &nodes[..nodes.len().checked_sub(count)?])
}

/// Selects the nodes of a graph without `dropped`. Values that they read from these become inputs.
pub(super) fn without_nodes(model: &Model, id: GraphId, dropped: &[NodeId]) -> Option<Cut> {
    let made = dropped.iter().flat_map(|node| model.outputs(*node).iter().flatten().copied());
    let stops: Vec<ValueId> = made.collect();
    if stops.is_empty() {
        return None;
    }
    let gone: HashSet<ValueId> = stops.iter().copied().collect();
    let outputs = model.graph(id).outputs.iter().filter_map(|info| info.value);
    let outputs: Vec<ValueId> = outputs.filter(|value| !gone.contains(value)).collect();
    let cut = Cut { graph: id, inputs: Vec::new(), stops, outputs, keeps_inputs: false };
    Some(cut).filter(|cut| !cut.outputs.is_empty())
}

/// Replaces the only read output of each of `nodes` by an input of the same type. `None` if none
/// has such an input.
pub(super) fn bypass(model: &Model, registry: &Registry, nodes: &[NodeId]) -> Option<Model> {
    let found = infer_model(model, registry, InferOptions::default());
    let given_back = model.graphs().flat_map(|(_, graph)| &graph.outputs);
    let given_back: HashSet<ValueId> = given_back.filter_map(|info| info.value).collect();
    let mut candidate = model.clone();
    let mut gone: HashMap<GraphId, HashSet<NodeId>> = HashMap::new();
    for node in nodes {
        let mut outputs = model.outputs(*node).iter().flatten().copied();
        let read = outputs.find(|value| candidate.is_read(*value));
        let Some(value) = read.filter(|value| !given_back.contains(value)) else { continue };
        if outputs.any(|value| candidate.is_read(value)) {
            continue;
        }
        let Some(ty) = found.ty(value) else { continue };
        let input = candidate.inputs(*node).flatten().find(|input| found.ty(*input) == Some(ty));
        let Some(input) = input else { continue };
        candidate.replace_uses(value, input, Some(*node));
        gone.entry(model.node(*node).graph).or_default().insert(*node);
    }
    if gone.is_empty() {
        return None;
    }
    for (graph, nodes) in gone {
        nodes.iter().for_each(|node| candidate.detach_node(*node));
        candidate.graph_mut(graph).nodes.retain(|node| !nodes.contains(node));
        // Declared types of values without a definition.
        let mut infos = std::mem::take(&mut candidate.graph_mut(graph).value_info);
        infos.retain(|info| {
            info.value.is_some_and(|value| candidate.value(value).producer != Producer::Nothing)
        });
        candidate.graph_mut(graph).value_info = infos;
    }
    Some(candidate)
}

/// Lists the constants of a graph with many elements, in the order of the file.
pub(super) fn list_large_constants(model: &Model, id: GraphId) -> Vec<ValueId> {
    let large = model.graph(id).initializers.iter().filter(|found| {
        let elements = payload::element_count(&found.tensor.dims).unwrap_or(0);
        let elem = found.tensor.data_type.and_then(DataType::from_number);
        elements > FEW_ELEMENTS && elem.is_some_and(can_generate)
    });
    let values = large.filter_map(|found| found.value);
    values
        .filter(|value| matches!(model.value(*value).producer, Producer::Initializer(_)))
        .collect()
}

/// Whether `ConstantOfShape` generates elements of a type in all its versions.
fn can_generate(elem: DataType) -> bool {
    elem.is_integer() && elem.bits().is_some_and(|bits| bits >= 8)
        || matches!(elem, DataType::Float | DataType::Double | DataType::Float16 | DataType::Bool)
}

/// Replaces constants of a graph by nodes that generate zeros. `None` if one of them is not an
/// initializer of a type that can be generated, or the operator set has no such node.
pub(super) fn with_zeros(model: &Model, id: GraphId, values: &[ValueId]) -> Option<Model> {
    if model.opset("").is_none_or(|version| version < GENERATING) {
        return None;
    }
    let mut constants = Vec::with_capacity(values.len());
    for value in values {
        let tensor = &model.initializer(*value)?.tensor;
        let elem = DataType::from_number(tensor.data_type?).filter(|elem| can_generate(*elem))?;
        constants.push((*value, elem, tensor.dims.to_vec()));
    }
    let mut candidate = model.clone();
    let gone: HashSet<Option<ValueId>> = values.iter().copied().map(Some).collect();
    candidate.retain_initializers(id, |_, found| !gone.contains(&found.value));
    let mut made = Vec::with_capacity(values.len());
    for (value, elem, dims) in constants {
        let shape = Tensor::from_vec([dims.len()], dims).ok()?;
        let zero = Tensor::zeros(elem, [1]).ok()?;
        let hint = candidate.display(Some(candidate.value(value).name)).into_owned();
        let shape = candidate.add_initializer(id, &format!("{hint}_shape"), &shape);
        let node = candidate.add_node(id, "ConstantOfShape", "", &[Some(shape)], 1);
        candidate.set_attribute(node, "value", zero);
        candidate.redefine_output(node, 0, value);
        made.push(node);
    }
    // Constants have to be made before they are read.
    let nodes = &mut candidate.graph_mut(id).nodes;
    nodes.truncate(nodes.len() - made.len());
    nodes.splice(0..0, made);
    Some(candidate)
}

/// Removes inputs of a graph: the first other input of the same declared type takes the place of
/// each. `None` if one of them has no such input, or is an output as well.
pub(super) fn without_inputs(model: &Model, id: GraphId, dropped: &[ValueId]) -> Option<Model> {
    let gone: HashSet<Option<ValueId>> = dropped.iter().copied().map(Some).collect();
    let inputs = &model.graph(id).inputs;
    let mut kept: HashMap<Vec<u8>, ValueId> = HashMap::new();
    for info in inputs.iter().filter(|info| !gone.contains(&info.value)) {
        if let (Some(ty), Some(value)) = (&info.ty, info.value) {
            kept.entry(model.part_to_bytes(ModelPart::Type(ty))).or_insert(value);
        }
    }
    let mut candidate = model.clone();
    for info in inputs.iter().filter(|info| gone.contains(&info.value)) {
        let value = info.value.filter(|value| !model.value(*value).is_output)?;
        let other = *kept.get(&model.part_to_bytes(ModelPart::Type(info.ty.as_ref()?)))?;
        candidate.replace_uses(value, other, None);
    }
    candidate.retain_inputs(id, |info| !gone.contains(&info.value));
    candidate.retain_initializers(id, |_, found| !gone.contains(&found.value));
    Some(candidate)
}
