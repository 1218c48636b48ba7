//! Backward pass through iterations: `Scan` and `Loop`.
//!
//! The node gets additional outputs: the carried values at the start of each iteration, stacked or
//! in a [sequence](kept). In the backward pass the iterations run from the last to the first. Each
//! recomputes its values from the carried ones, so that no other value of an iteration is stored.
//! The backward pass carries the gradients of the carried values, and for each captured value the
//! sum of its gradients so far.

use hashbrown::HashSet;
use sardonyx_model::{Attributes, Dim, GraphId, NodeAttributes, NodeId, Producer, Type, ValueId};
use sardonyx_ops::operators::IDENTITY;
use sardonyx_ops::{PerItem, Refusal};
use sardonyx_tensor::DataType;

mod kept;

use super::FlowBack;
use crate::differentiate::activity::{Flow, Kind, inputs_of, outputs_of};
use crate::infer::declaration;
use crate::order::reads;
use kept::{Form, List};

/// Node of the backward pass and its subgraph, while it is built.
struct Iteration {
    back: NodeId,
    graph: GraphId,
    /// Inputs of the copied subgraph before the carried values.
    before: Vec<Option<ValueId>>,
    /// Inputs of the copied subgraph: carried values, then scanned ones.
    taken: Vec<Option<ValueId>>,
    /// Values of the copied subgraph that are outputs of the original node.
    given: Vec<Option<ValueId>>,
    /// Values that nodes of the copied subgraph read, and its former outputs.
    read: HashSet<ValueId>,
    parts: Parts,
    /// Inputs of the copied subgraph with the gradients of active carried values.
    gradients: Vec<ValueId>,
    /// Inputs of the copied subgraph with the sums of the gradients of captured values.
    sums: Vec<ValueId>,
    /// Former outputs of the copied subgraph, with the gradients that arrive for them.
    ends: Vec<(ValueId, ValueId)>,
}

/// Active values of the node.
struct Parts {
    /// Indices of active carried values.
    active: Vec<usize>,
    /// Active captured values.
    captured: Vec<ValueId>,
}

/// Axes along which values are scanned, and directions of the scans.
#[derive(Default)]
struct Ways {
    axes: Vec<i64>,
    directions: Vec<i64>,
}

impl Ways {
    /// Reads the axes and directions of the `Scan` node, `count` of each.
    fn of(back: &FlowBack<'_, '_>, name: &str, count: usize) -> Ways {
        let attributes = NodeAttributes::new(back.model(), back.flow.node);
        let list = |what: &str| {
            let mut list = attributes.ints(&format!("{name}_{what}")).unwrap_or_default();
            list.resize(count, 0);
            list
        };
        Ways { axes: list("axes"), directions: list("directions") }
    }

    fn push(&mut self, axis: i64, direction: i64) {
        self.axes.push(axis);
        self.directions.push(direction);
    }

    /// Appends the axis and the opposite direction of an item of another list.
    fn push_back(&mut self, of: &Ways, index: usize) {
        self.push(of.axes[index], 1 - of.directions[index]);
    }

    fn set(self, back: &mut FlowBack<'_, '_>, node: NodeId, name: &str) {
        let model = back.way.resolved.model_mut();
        model.set_attribute(node, &format!("{name}_axes"), self.axes);
        model.set_attribute(node, &format!("{name}_directions"), self.directions);
    }
}

/// Adds the backward pass through a `Scan`. Returns the values that it reads, with their gradients.
pub(super) fn reverse_scan(
    back: &mut FlowBack<'_, '_>,
) -> Result<Vec<(ValueId, ValueId)>, Refusal> {
    let states = back.flow.states;
    let inputs: Vec<Option<ValueId>> = back.model().inputs(back.flow.node).collect();
    let of_inputs = Ways::of(back, "scan_input", inputs.len() - states);
    let of_outputs = Ways::of(back, "scan_output", back.arriving.len().saturating_sub(states));
    let parts = Parts::new(back);
    if let Some(sequence) = parts.captured.iter().find(|value| back.way.is_sequence(**value)) {
        let name = back.way.resolved.name_of(*sequence);
        let why = "whose gradient a Scan cannot carry; a Loop can";
        return Err(Refusal::from(format!("Scan reads the sequence '{name}', {why}")));
    }
    let mut given = parts.first(back)?;
    let mut iteration = Iteration::new(back, "Scan", parts);
    let mut order: Vec<ValueId> =
        iteration.gradients.iter().chain(&iteration.sums).copied().collect();
    let mut read = Ways::default();
    let copied = back.model().graph(iteration.graph).nodes.len();
    for state in 0..states {
        let Some(inner) = iteration.needs(state) else { continue };
        if stays(back, state) {
            let initial = initial(back, state)?;
            define(back, iteration.graph, inner, "Identity", &[initial]);
        } else {
            given.push(Some(stack(back, state)?));
            order.push(inner);
            read.push(0, 1);
        }
    }
    back.way.resolved.model_mut().graph_mut(iteration.graph).nodes.rotate_left(copied);
    given.extend_from_slice(&inputs[states..]);
    order.extend(iteration.taken[states..].iter().flatten());
    (0..inputs.len() - states).for_each(|index| read.push_back(&of_inputs, index));
    for (index, arriving) in back.arriving.iter().enumerate().skip(states) {
        let (Some(arriving), Some(y)) = (*arriving, iteration.given[index]) else { continue };
        let slice = back.way.resolved.model_mut().add_graph_input(iteration.graph, "gradient");
        given.push(Some(arriving));
        order.push(slice);
        iteration.ends.push((y, slice));
        read.push_back(&of_outputs, index - states);
    }
    let body = inputs_of(back.model(), back.flow.bodies[0]);
    let is_active = |index: &usize| body[*index].is_some_and(|value| back.active.contains(&value));
    let active: Vec<usize> = (states..inputs.len()).filter(is_active).collect();
    let slices: Vec<ValueId> = active.iter().filter_map(|index| iteration.taken[*index]).collect();
    iteration.end(back, &slices);
    let mut written = Ways::default();
    active.iter().for_each(|index| written.push_back(&of_inputs, index - states));
    let model = back.way.resolved.model_mut();
    model.order_inputs(iteration.graph, &order);
    model.set_inputs(iteration.back, &given);
    model.set_attribute(iteration.back, "num_scan_inputs", read.axes.len() as i64);
    read.set(back, iteration.back, "scan_input");
    written.set(back, iteration.back, "scan_output");
    Ok(iteration.gradients_of(back, active.into_iter().map(|index| inputs[index])))
}

/// Adds the backward pass through a `Loop`. Returns the values that it reads, with their gradients.
pub(super) fn reverse_loop(
    back: &mut FlowBack<'_, '_>,
) -> Result<Vec<(ValueId, ValueId)>, Refusal> {
    let states = back.flow.states;
    let parts = Parts::new(back);
    // The number of iterations is the length of the stacked iteration numbers.
    let numbers = stack_value(back, 0).ok_or_else(|| refusal("the body has no iteration input"))?;
    let (_, count) = back.way.add_before("Size", &[Some(numbers)], &[]);
    let one = back.way.number("one", DataType::Int64, 1.0);
    let (_, last) = back.way.add_before("Sub", &[Some(count), Some(one)], &[]);
    let yes = back.way.number("true", DataType::Bool, 1.0);
    let mut given = vec![Some(count), None];
    given.extend(parts.first(back)?);
    let mut iteration = Iteration::new(back, "Loop", parts);
    let [Some(number), Some(condition)] = iteration.before[..] else {
        return Err(refusal("the body has no iteration or no condition input"));
    };
    let model = back.way.resolved.model_mut();
    // Runtimes infer the types of other inputs from those of the node, which has no condition.
    let mut input = |name, elem| {
        let value = model.add_graph_input(iteration.graph, name);
        let ty = declaration(model, &Type::tensor(elem, std::iter::empty::<Dim>()));
        if let Some(info) = model.graph_mut(iteration.graph).inputs.last_mut() {
            info.ty = Some(ty);
        }
        value
    };
    let of_back = input("number", DataType::Int64);
    let goes_on = input("condition", DataType::Bool);
    let copied = model.graph(iteration.graph).nodes.len();
    // Iterations are numbered from the last to the first. Each one ran, so that its condition was
    // true.
    define(back, iteration.graph, number, "Sub", &[last, of_back]);
    define(back, iteration.graph, condition, "Identity", &[yes]);
    let mut lists = Vec::new();
    for state in 0..states {
        let Some(inner) = iteration.needs(state) else { continue };
        match Form::of(back, state)? {
            Form::Initial | Form::Growing => {
                let initial = initial(back, state)?;
                define(back, iteration.graph, inner, "Identity", &[initial]);
            }
            Form::Stacked => {
                let stacked = stack(back, state)?;
                define(back, iteration.graph, inner, "Gather", &[stacked, number]);
            }
            Form::Listed => {
                let list = List::new(back, state, iteration.back)?;
                list.read(back, iteration.graph, inner, number);
                lists.push(list);
            }
        }
    }
    for (index, arriving) in back.arriving.iter().enumerate().skip(states) {
        let (Some(arriving), Some(y)) = (*arriving, iteration.given[index]) else { continue };
        let (_, slice) = back.way.add_inside(iteration.graph, "Gather", &[arriving, number]);
        iteration.ends.push((y, slice));
    }
    back.way.resolved.model_mut().graph_mut(iteration.graph).nodes.rotate_left(copied);
    let (_, again) = back.way.add_inside(iteration.graph, "Identity", &[goes_on]);
    back.way.resolved.model_mut().add_graph_output(iteration.graph, again);
    iteration.end(back, &[]);
    let order = [of_back, goes_on].into_iter().chain(iteration.gradients.iter().copied());
    let order: Vec<ValueId> = order.chain(iteration.sums.iter().copied()).collect();
    let model = back.way.resolved.model_mut();
    model.order_inputs(iteration.graph, &order);
    model.set_inputs(iteration.back, &given);
    let gradients = iteration.gradients_of(back, std::iter::empty());
    // This moves outputs of the node, so that it comes last.
    lists.into_iter().for_each(|list| list.carry(back));
    Ok(gradients)
}

impl Parts {
    fn new(back: &FlowBack<'_, '_>) -> Parts {
        let taken = inputs_of(back.model(), back.flow.bodies[0]).into_iter();
        let states = taken.skip(back.flow.first_input()).take(back.flow.states).enumerate();
        let active =
            states.filter(|(_, value)| value.is_some_and(|value| back.active.contains(&value)));
        Parts { active: active.map(|(state, _)| state).collect(), captured: back.find_captured() }
    }

    /// Returns the initial values of the backward pass: the gradients of the carried values after
    /// the last iteration of the node, and zeros for the sums.
    fn first(&self, back: &mut FlowBack<'_, '_>) -> Result<Vec<Option<ValueId>>, Refusal> {
        let mut given = Vec::new();
        for state in &self.active {
            let gradient = match back.arriving.get(*state).copied().flatten() {
                Some(gradient) => gradient,
                None => {
                    let initial = initial(back, *state)?;
                    // A `Scan` does not change the shapes of carried values.
                    let form = match back.flow.kind {
                        Kind::Loop => Form::of(back, *state)?,
                        Kind::Scan | Kind::If => Form::Stacked,
                    };
                    let like = match form {
                        Form::Initial | Form::Stacked => initial,
                        Form::Growing | Form::Listed => demand_output(back, *state),
                    };
                    zeros(back, initial, like)?
                }
            };
            given.push(Some(gradient));
        }
        for captured in &self.captured {
            given.push(Some(zeros(back, *captured, *captured)?));
        }
        Ok(given)
    }
}

impl Iteration {
    /// Adds the node `op` of the backward pass, whose subgraph is a copy of that of the original
    /// node with additional inputs for gradients and sums of gradients. The node gets its inputs
    /// later.
    fn new(back: &mut FlowBack<'_, '_>, op: &str, parts: Parts) -> Iteration {
        let body = back.flow.bodies[0];
        let (node, _) = back.way.add_before(op, &[], &[]);
        let graph = back.copy(body, node, "body");
        let mut before = inputs_of(back.model(), graph);
        let taken = before.split_off(before.len().min(back.flow.first_input()));
        let given = back.take_outputs(graph).split_off(back.flow.first_output());
        let model = back.model();
        let nodes = model.graph(graph).nodes.iter();
        let mut read: HashSet<ValueId> = nodes.flat_map(|node| reads(model, *node)).collect();
        read.extend(given.iter().flatten());
        let model = back.way.resolved.model_mut();
        let gradients: Vec<ValueId> =
            parts.active.iter().map(|_| model.add_graph_input(graph, "gradient")).collect();
        let sums = parts.captured.iter().map(|_| model.add_graph_input(graph, "sum")).collect();
        let ends = parts.active.iter().zip(&gradients);
        let ends = ends.filter_map(|(state, gradient)| Some((given[*state]?, *gradient))).collect();
        Iteration { back: node, graph, before, taken, given, read, parts, gradients, sums, ends }
    }

    /// Returns a carried value in the copied subgraph, if it is needed there.
    fn needs(&self, state: usize) -> Option<ValueId> {
        let value = self.taken[state]?;
        (self.parts.active.contains(&state) || self.read.contains(&value)).then_some(value)
    }

    /// Adds the outputs of the copied subgraph: the gradients of carried values, the sums after
    /// this iteration, and the gradients of `slices`.
    fn end(&self, back: &mut FlowBack<'_, '_>, slices: &[ValueId]) {
        let states = self.parts.active.iter().filter_map(|state| self.taken[*state]);
        let xs = states.chain(self.parts.captured.iter().copied()).chain(slices.iter().copied());
        // The sum of a sequence is the gradient that arrives for it, so that only the items that
        // are read change.
        let sums = self.parts.captured.iter().copied().zip(self.sums.iter().copied());
        let (sequences, tensors): (Vec<_>, Vec<_>) =
            sums.enumerate().partition(|(_, (captured, _))| back.way.is_sequence(*captured));
        let sequences = sequences.into_iter().map(|(_, sum)| sum);
        let ends: Vec<(ValueId, ValueId)> = self.ends.iter().copied().chain(sequences).collect();
        let mut gradients = back.gradients(self.graph, &xs.collect::<Vec<_>>(), &ends);
        for (index, (_, sum)) in tensors {
            let gradient = &mut gradients[self.parts.active.len() + index];
            *gradient = back.way.add_inside(self.graph, "Add", &[sum, *gradient]).1;
        }
        for gradient in gradients {
            back.way.resolved.model_mut().add_graph_output(self.graph, gradient);
        }
    }

    /// Returns the values of which the node of the backward pass computes gradients, with these.
    fn gradients_of(
        &self,
        back: &mut FlowBack<'_, '_>,
        scanned: impl Iterator<Item = Option<ValueId>>,
    ) -> Vec<(ValueId, ValueId)> {
        let first = back.flow.first_input();
        let inputs: Vec<Option<ValueId>> = back.model().inputs(back.flow.node).collect();
        let states = self.parts.active.iter().map(|state| inputs[first + state]);
        let captured = self.parts.captured.iter().copied().map(Some);
        let sources: Vec<Option<ValueId>> = states.chain(captured).chain(scanned).collect();
        let model = back.way.resolved.model_mut();
        model.fill_outputs(self.back, sources.len());
        let gradients = sources.into_iter().zip(model.outputs(self.back));
        gradients.filter_map(|(source, gradient)| source.zip(*gradient)).collect()
    }
}

/// Replaces an input of a copied subgraph by the output of a new node.
fn define(
    back: &mut FlowBack<'_, '_>,
    graph: GraphId,
    value: ValueId,
    op: &str,
    inputs: &[ValueId],
) {
    let (node, _) = back.way.add_inside(graph, op, inputs);
    back.way.resolved.model_mut().redefine_output(node, 0, value);
}

/// Whether a carried value is equal in all iterations.
fn stays(back: &FlowBack<'_, '_>, state: usize) -> bool {
    let (model, body) = (back.model(), back.flow.bodies[0]);
    let before = inputs_of(model, body).get(back.flow.first_input() + state).copied().flatten();
    let after = outputs_of(model, body).get(back.flow.first_output() + state).copied().flatten();
    let mut from = after;
    while let Some(Producer::Node(node, _)) = from.map(|value| model.value(value).producer)
        && back.way.resolved.is(node, &IDENTITY)
    {
        from = model.inputs(node).next().flatten();
    }
    before.is_some() && from == before
}

/// Adds an output to the node with a carried value at the start of each iteration, stacked.
fn stack(back: &mut FlowBack<'_, '_>, state: usize) -> Result<ValueId, Refusal> {
    let (first, body) = (back.flow.first_input(), back.flow.bodies[0]);
    let initial = initial(back, state)?;
    let model = back.model();
    let before = inputs_of(model, body).get(first + state).copied().flatten();
    let after = outputs_of(model, body).get(back.flow.first_output() + state).copied().flatten();
    let inference = back.way.inference;
    let shape = |value: Option<ValueId>| inference.ty(value?).and_then(Type::shape);
    let shapes = [Some(initial), before].map(|before| shape(before).zip(shape(after)));
    let differ = shapes.into_iter().flatten().any(|(before, after)| {
        let mut sizes = before.iter().zip(after);
        before.len() != after.len() || sizes.any(|(before, after)| before.surely_differs(after))
    });
    if differ {
        let name = back.way.resolved.name_of(initial);
        let kind = back.flow.kind;
        let why = "whose shape changes between iterations";
        return Err(Refusal::from(format!("{kind:?} carries '{name}', {why}")));
    }
    stack_value(back, first + state).ok_or_else(|| refusal("the body has too few inputs"))
}

/// Adds an output to the node with an input of the subgraph in all iterations, stacked.
fn stack_value(back: &mut FlowBack<'_, '_>, input: usize) -> Option<ValueId> {
    let Flow { node, kind, states, .. } = *back.flow;
    let (body, first) = (back.flow.bodies[0], back.flow.first_output());
    let model = back.model();
    let value = inputs_of(model, body).get(input).copied().flatten()?;
    let given = outputs_of(model, body).split_off(first);
    let count = given.len();
    let mut ways = Ways::of(back, "scan_output", count.saturating_sub(states));
    // Another gradient may have added the output before.
    let is_stacked = |index: &usize| match given[*index].map(|value| model.value(value).producer) {
        Some(Producer::Node(of, _)) => {
            let mut read = model.inputs(of);
            let is_whole = ways.axes[*index - states] == 0 && ways.directions[*index - states] == 0;
            is_whole && back.way.resolved.is(of, &IDENTITY) && read.next() == Some(Some(value))
        }
        _ => false,
    };
    let outputs = |index: usize| model.outputs(node).get(index).copied().flatten();
    let found = (states..count).filter(is_stacked).find_map(outputs);
    if found.is_some() {
        return found;
    }
    let (_, stacked) = back.way.add_inside(body, "Identity", &[value]);
    let output = add_stacked(back, stacked);
    if kind == Kind::Scan {
        ways.push(0, 0);
        ways.set(back, node, "scan_output");
    }
    Some(output)
}

/// Adds an output to the node with a value of the subgraph in all iterations, stacked.
fn add_stacked(back: &mut FlowBack<'_, '_>, value: ValueId) -> ValueId {
    let (body, first) = (back.flow.bodies[0], back.flow.first_output());
    let model = back.way.resolved.model_mut();
    let count = model.graph(body).outputs.len() - first;
    model.add_graph_output(body, value);
    demand_output(back, count)
}

/// Returns an output of the node, and adds it if it is absent.
fn demand_output(back: &mut FlowBack<'_, '_>, index: usize) -> ValueId {
    let node = back.flow.node;
    let model = back.way.resolved.model_mut();
    let outputs = model.outputs(node);
    let is_absent = |index: &usize| outputs.get(*index).copied().flatten().is_none();
    let absent: Vec<usize> = (0..index).filter(is_absent).collect();
    model.fill_outputs(node, index + 1);
    absent.into_iter().for_each(|index| model.drop_output(node, index));
    model.outputs(node)[index].expect("the output was just made")
}

/// Returns the initial value of a carried value.
fn initial(back: &FlowBack<'_, '_>, state: usize) -> Result<ValueId, Refusal> {
    let input = back.model().inputs(back.flow.node).nth(back.flow.first_input() + state);
    input.flatten().ok_or_else(|| refusal("a loop-carried value is missing"))
}

/// Adds zeros of the element type of `value`, in the shape of `like`.
fn zeros(back: &mut FlowBack<'_, '_>, value: ValueId, like: ValueId) -> Result<ValueId, Refusal> {
    let elem = elem_of(back, value)?;
    if back.way.is_sequence(value) {
        return Ok(back.way.per_item(&[like], PerItem::Zeros(elem)));
    }
    Ok(back.way.zeros(elem, like))
}

/// Returns the element type of a tensor, or of the items of a sequence.
fn elem_of(back: &FlowBack<'_, '_>, value: ValueId) -> Result<DataType, Refusal> {
    let elem = back.way.inference.ty(value).and_then(Type::elem_of_items);
    let name = back.way.resolved.name_of(value);
    elem.ok_or_else(|| Refusal::from(format!("the element type of '{name}' is unknown")))
}

fn refusal(why: &str) -> Refusal {
    Refusal::from(why.to_string())
}
