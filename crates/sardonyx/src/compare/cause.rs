//! Smallest parts of two models that compute a differing value from values that agree.

use std::collections::{HashMap, HashSet};

use sardonyx_model::{self as graph, NodeId, Producer, Type, ValueId};
use sardonyx_passes::order::reads_outside;
use sardonyx_passes::{MatchedValue, declaration, place_of_node};
use sardonyx_runtime::{Port, RunOptions};
use sardonyx_tensor::Value;

use super::measure::measure;
use super::walk::{Walk, infer_with_inputs, to_type};
use super::{Comparer, Comparing, Reference, name_of, to_float_type};
use crate::error::{Error, ErrorKind};
use crate::model::Model;
use crate::parts::{Part, make_parts};

/// Smallest parts of two models that compute a differing value from values that agree, with the
/// inputs at which they differ.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DivergingPart {
    /// Nodes of the first model in the part.
    pub nodes: Vec<String>,
    /// Nodes of the second model in the part; empty for stored values.
    pub other_nodes: Vec<String>,
    /// Difference of the results if both parts run on the values of the first model; `None` if they
    /// agree then, so that differences of earlier values have added up, and for stored values.
    pub difference: Option<String>,
    /// Part of the first model.
    pub model: Model,
    /// Part of the second model, with the input names of the first; `None` for stored values.
    pub other: Option<Model>,
    /// Inputs of the first model's part, by name.
    pub inputs: Vec<(String, Value)>,
    /// Inputs of the second model's part, in the types that it takes.
    pub other_inputs: Vec<(String, Value)>,
    /// Result of the first model's part.
    pub output: (String, Value),
}

/// Finds the parts that compute the pair at `first`, and runs them.
pub(super) fn find_part(
    run: &Comparing<'_>,
    comparer: &Comparer<'_>,
    first: usize,
) -> Result<DivergingPart, Error> {
    let pair = comparer.pairs[first];
    let own = &run.model.graph;
    let agreed = (0..comparer.pairs.len()).filter(|index| comparer.agrees(*index));
    let agreed: Vec<MatchedValue> = agreed.map(|index| comparer.pairs[index]).collect();
    let mut starts: HashMap<ValueId, ValueId> =
        agreed.iter().map(|pair| (pair.before, pair.before)).collect();
    let main = own.main_graph().map_or(&[][..], |main| &main.inputs);
    starts.extend(main.iter().filter_map(|info| info.value).map(|value| (value, value)));
    let (nodes, mut values) = cut_back(own, pair.before, &starts);
    let mut other_part = None;
    if let Some(other) = &run.other {
        let mut starts: HashMap<ValueId, ValueId> =
            agreed.iter().map(|pair| (pair.after, pair.before)).collect();
        starts.extend(match_graph_inputs(run, other));
        let (nodes, more) = cut_back(&other.graph, pair.after, &starts);
        values.extend(more.into_iter().filter(|value| !values.contains(value)).collect::<Vec<_>>());
        let partners: HashMap<ValueId, ValueId> =
            starts.into_iter().map(|(other, own)| (own, other)).collect();
        other_part = Some((nodes, partners));
    }
    let found = collect_values(run, &values)?;
    let inputs = values.iter().map(|value| {
        let name = name_of(own, *value);
        match found.get(value) {
            Some(found) => Ok((name, found.clone())),
            None => {
                let message = format!("the value '{name}' was not computed");
                Err(Error::new(ErrorKind::Output, message))
            }
        }
    });
    let inputs = inputs.collect::<Result<Vec<(String, Value)>, Error>>()?;
    let places = list_places(own, &nodes);
    let part = Part { nodes, inputs: values.clone(), outputs: vec![pair.before] };
    let (model, output) = run_part(run, &run.model, &part, &inputs)?;
    let mut diverging = DivergingPart {
        nodes: places,
        other_nodes: Vec::new(),
        difference: None,
        model,
        other: None,
        other_inputs: Vec::new(),
        inputs,
        output: (name_of(own, pair.before), output),
    };
    if let (Some(other), Some((nodes, partners))) = (&run.other, other_part) {
        diverging.other_nodes = list_places(&other.graph, &nodes);
        let types = infer_with_inputs(other, &run.others);
        let mut inputs = Vec::new();
        let mut other_inputs = Vec::new();
        for (value, (name, found)) in values.iter().zip(&diverging.inputs) {
            // A value that only the first part reads has no place in the second one.
            let Some(partner) = partners.get(value) else { continue };
            let wanted = types.ty(*partner).and_then(Type::elem);
            inputs.push(*partner);
            other_inputs.push((name.clone(), to_float_type(found, wanted)?));
        }
        let part = Part { nodes, inputs, outputs: vec![pair.after] };
        let (model, result) = run_part(run, other, &part, &other_inputs)?;
        let (found, wanted) = match run.reference {
            Reference::First => (&result, &diverging.output.1),
            Reference::Second => (&diverging.output.1, &result),
        };
        diverging.difference = match measure(found, wanted, run.options.limits) {
            Ok(measured) => measured.describe(),
            Err(mismatch) => Some(mismatch),
        };
        (diverging.other, diverging.other_inputs) = (Some(model), other_inputs);
    }
    Ok(diverging)
}

/// Collects the nodes that compute `value`, each after the nodes whose outputs it reads, back to
/// the values of `starts`. Returns the values with which the nodes begin, as `starts` maps them.
fn cut_back(
    graph: &graph::Model,
    value: ValueId,
    starts: &HashMap<ValueId, ValueId>,
) -> (Vec<NodeId>, Vec<ValueId>) {
    /// Value that is still to be visited, or node whose inputs have been visited.
    enum Step {
        Visit(ValueId),
        Finish(NodeId),
    }
    let (mut nodes, mut begins) = (Vec::new(), Vec::new());
    let mut seen: HashSet<ValueId> = HashSet::new();
    let mut entered: HashSet<NodeId> = HashSet::new();
    let mut left = vec![Step::Visit(value)];
    while let Some(step) = left.pop() {
        let read = match step {
            Step::Visit(value) => value,
            Step::Finish(node) => {
                nodes.push(node);
                continue;
            }
        };
        if !seen.insert(read) {
            continue;
        }
        if let Some(start) = starts.get(&read).filter(|_| read != value) {
            begins.push(*start);
        } else if let Producer::Node(node, _) = graph.value(read).producer
            && entered.insert(node)
        {
            left.push(Step::Finish(node));
            left.extend(reads_outside(graph, node).into_iter().map(Step::Visit));
        }
    }
    (nodes, begins)
}

/// Describes nodes by their places.
fn list_places(graph: &graph::Model, nodes: &[NodeId]) -> Vec<String> {
    nodes.iter().map(|node| place_of_node(graph, *node)).collect()
}

/// Finds a graph input by its name.
fn find_input(model: &Model, name: &str) -> Option<ValueId> {
    let inputs = &model.graph.main_graph()?.inputs;
    inputs.iter().find(|info| model.graph.display(info.name) == name)?.value
}

/// Maps the inputs of the second model to those of the first that give their values.
fn match_graph_inputs(run: &Comparing<'_>, other: &Model) -> HashMap<ValueId, ValueId> {
    let ports = run.setup.ports.iter().map(Port::name).collect::<Vec<_>>();
    let others = other.inputs();
    let matched = others.iter().enumerate().filter_map(|(index, port)| {
        let own = find_input(&run.model, port.name());
        let own = own.or_else(|| find_input(&run.model, ports.get(index)?));
        Some((find_input(other, port.name())?, own?))
    });
    matched.collect()
}

/// Computes values of the first model.
fn collect_values(
    run: &Comparing<'_>,
    values: &[ValueId],
) -> Result<HashMap<ValueId, Value>, Error> {
    let graph = &run.model.graph;
    let mut found = HashMap::new();
    let mut wanted = HashSet::new();
    for value in values {
        let name = graph.display(Some(graph.value(*value).name));
        match graph.value(*value).producer {
            Producer::Input(_) => {
                let given = run.setup.inputs.iter().find(|(given, _)| *given == name);
                found.extend(given.map(|(_, given)| (*value, given.clone())));
            }
            _ => {
                wanted.insert(*value);
            }
        }
    }
    let mut walk = Walk::new(&run.model, &run.setup.inputs, &wanted, run.options)?;
    while !walk.is_done() {
        let computed = walk.advance()?;
        found.extend(computed.into_iter().filter(|(value, _)| wanted.contains(value)));
    }
    Ok(found)
}

/// Makes the model of a part, whose inputs get the names of `inputs`, and runs it. Returns the
/// model and its output.
fn run_part(
    run: &Comparing<'_>,
    model: &Model,
    part: &Part,
    inputs: &[(String, Value)],
) -> Result<(Model, Value), Error> {
    let types = part.inputs.iter().zip(inputs);
    let types: HashMap<ValueId, Type> =
        types.filter_map(|(value, (_, given))| Some((*value, to_type(given)?))).collect();
    let mut graph = make_parts(&model.graph, std::slice::from_ref(part), &types).graph;
    let main = graph.main.ok_or_else(|| Error::new(ErrorKind::Invalid, "the part has no graph"))?;
    let ports: Vec<ValueId> =
        graph.graph(main).inputs.iter().filter_map(|info| info.value).collect();
    for (port, (name, _)) in ports.iter().zip(inputs) {
        let is_taken = graph.values().any(|(value, found)| {
            found.graph == main && value != *port && graph.text(found.name) == name.as_bytes()
        });
        // Another value of the second model may have the name that the input has in the first.
        let name = if is_taken { graph.free_name(name) } else { graph.intern(name) };
        graph.rename_value(*port, name);
    }
    let session = run.options.build_session(&model.with_graph(graph.clone()))?;
    let names: Vec<String> = session.inputs().iter().map(|port| port.name().to_string()).collect();
    let given = names.into_iter().zip(inputs.iter().map(|(_, value)| value.clone()));
    let output = session.run(given, &RunOptions::new().seed(0))?.into_values().next();
    let output =
        output.ok_or_else(|| Error::new(ErrorKind::Output, "the part computes no value"))?;
    if let Some(ty) = to_type(&output) {
        let ty = declaration(&mut graph, &ty);
        if let Some(info) = graph.graph_mut(main).outputs.first_mut() {
            info.ty = Some(ty);
        }
    }
    Ok((model.with_graph(graph), output))
}
