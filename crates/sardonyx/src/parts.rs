//! Models whose main graph has some nodes of another model, with inputs for the values that they
//! read from outside. Nodes may come from inner graphs.

use std::collections::{HashMap, HashSet};

use sardonyx_model::{self as graph, GraphId, NodeId, Producer, Type, ValueId};
use sardonyx_passes::declaration;
use sardonyx_passes::order::{inner_graphs, tree};

/// Nodes of a model that are to be run by themselves.
#[derive(Debug, Clone, Default)]
pub(crate) struct Part {
    /// Nodes, each after the nodes whose outputs it reads.
    pub(crate) nodes: Vec<NodeId>,
    /// Values that the nodes read from outside. Constants belong to the part unless they are here.
    pub(crate) inputs: Vec<ValueId>,
    /// Values that the part computes. A value may also be an input or a constant.
    pub(crate) outputs: Vec<ValueId>,
}

/// Model of the nodes of some parts.
pub(crate) struct Parts {
    pub(crate) graph: graph::Model,
    /// Names of the inputs, each with the value that it stands for.
    pub(crate) inputs: Vec<(String, ValueId)>,
    /// Places of the outputs of each part.
    pub(crate) outputs: Vec<Vec<Slot>>,
}

/// Place of the value of an output of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    /// Output of the model at this index.
    Output(usize),
    /// Value that is given: the output is an input of the part.
    Given(ValueId),
}

/// Makes the model of the nodes of some parts. It shares the constants of `model`. `types` are the
/// types of the inputs.
pub(crate) fn make_parts(
    model: &graph::Model,
    specs: &[Part],
    types: &HashMap<ValueId, Type>,
) -> Parts {
    let mut graph = model.clone_to_run();
    let mut parts =
        Parts { graph: graph::Model::default(), inputs: Vec::new(), outputs: Vec::new() };
    let Some(main) = graph.main else { return parts };
    if graph.header.ir_version.is_some_and(|version| version < 4) {
        graph.fix_default_inputs(main);
    }
    let all = tree(&graph, main);
    let to = graph.add_graph("parts");
    let mut nodes: Vec<NodeId> = Vec::new();
    let mut seen: HashSet<NodeId> = HashSet::new();
    let mut stand_ins: HashMap<ValueId, ValueId> = HashMap::new();
    let mut constants: Vec<ValueId> = Vec::new();
    let mut within: HashSet<GraphId> = HashSet::new();
    for spec in specs {
        let inputs: HashSet<ValueId> = spec.inputs.iter().copied().collect();
        for value in &spec.inputs {
            stand_in(&mut graph, to, *value, types, &mut stand_ins);
        }
        for node in &spec.nodes {
            let bodies: Vec<GraphId> =
                inner_graphs(&graph, *node).flat_map(|body| tree(&graph, body)).collect();
            let inner = bodies.iter().flat_map(|body| graph.graph(*body).nodes.clone());
            for node in std::iter::once(*node).chain(inner.collect::<Vec<_>>()) {
                let read: Vec<Option<ValueId>> = graph.inputs(node).collect();
                for (index, value) in read.into_iter().enumerate() {
                    let Some(value) = value else { continue };
                    if inputs.contains(&value) {
                        let input = stand_in(&mut graph, to, value, types, &mut stand_ins);
                        graph.set_input(node, index, Some(input));
                    } else {
                        constants.push(value);
                    }
                }
            }
            for body in &bodies {
                for index in 0..graph.graph(*body).outputs.len() {
                    let Some(value) = graph.graph(*body).outputs[index].value else { continue };
                    if inputs.contains(&value) {
                        let input = stand_in(&mut graph, to, value, types, &mut stand_ins);
                        let name = Some(graph.value(input).name);
                        let info = &mut graph.graph_mut(*body).outputs[index];
                        (info.value, info.name) = (Some(input), name);
                    } else {
                        constants.push(value);
                    }
                }
            }
            within.extend(bodies);
            if seen.insert(*node) {
                nodes.push(*node);
            }
        }
        constants.extend(&spec.outputs);
    }
    let from: Vec<GraphId> = all.into_iter().filter(|graph| !within.contains(graph)).collect();
    let from_graphs: HashSet<GraphId> = from.iter().copied().collect();
    let mut known: HashSet<ValueId> = HashSet::new();
    constants.retain(|value| {
        let found = graph.value(*value);
        matches!(found.producer, Producer::Initializer(_) | Producer::SparseInitializer(_))
            && from_graphs.contains(&found.graph)
            && known.insert(*value)
    });
    for left in &from {
        graph.retain_outputs(*left, |_, _| false);
    }
    graph.gather_nodes(to, &nodes, &from);
    for constant in constants {
        graph.adopt_initializer(constant, to);
    }
    let mut places: HashMap<ValueId, usize> = HashMap::new();
    for spec in specs {
        let slots = spec.outputs.iter().map(|value| {
            if spec.inputs.contains(value) {
                return Slot::Given(*value);
            }
            let count = places.len();
            Slot::Output(*places.entry(*value).or_insert_with(|| {
                graph.add_graph_output(to, *value);
                count
            }))
        });
        parts.outputs.push(slots.collect());
    }
    graph.main = Some(to);
    let named = stand_ins
        .into_iter()
        .map(|(value, input)| (graph.display(Some(graph.value(input).name)).into_owned(), value));
    parts.inputs = named.collect();
    parts.graph = graph;
    parts
}

/// Returns the input of the graph `to` that stands for `value`.
fn stand_in(
    graph: &mut graph::Model,
    to: GraphId,
    value: ValueId,
    types: &HashMap<ValueId, Type>,
    stand_ins: &mut HashMap<ValueId, ValueId>,
) -> ValueId {
    if let Some(input) = stand_ins.get(&value) {
        return *input;
    }
    let input = graph.add_graph_input(to, "input");
    let ty = types.get(&value).map(|ty| declaration(graph, ty));
    if let Some(info) = graph.graph_mut(to).inputs.last_mut() {
        info.ty = ty;
    }
    stand_ins.insert(value, input);
    input
}
