//! Values that a `Loop` carries, stored for the backward pass.
//!
//! A tensor of constant shape is stacked. A tensor whose shape may change, and a sequence, is
//! stored in an additional sequence, which the loop also carries: each iteration appends to it the
//! tensor, or all items of the sequence, whose number is stacked.

use hashbrown::HashSet;
use sardonyx_model::{
    AttrValue, Attributes, Dim, GraphId, NodeAttributes, NodeId, Shape, Type, ValueId, ValueInfo,
};
use sardonyx_ops::Refusal;
use sardonyx_ops::operators::{IDENTITY, LOOP, SEQUENCE_INSERT};
use sardonyx_tensor::{Bool8, DataType, Tensor};

use super::{FlowBack, add_stacked, elem_of, initial, refusal, stays};
use crate::differentiate::activity::{inputs_of, outputs_of};
use crate::infer::declaration;
use crate::order::tree;

/// Source of a carried value in the backward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// The initial value, which is equal in all iterations.
    Initial,
    /// Additional output with the values of all iterations, stacked.
    Stacked,
    /// Additional sequence with the values of all iterations.
    Listed,
    /// The initial value of a sequence that only grows: gradients do not depend on its items.
    Growing,
}

impl Form {
    /// Chooses the source of a carried value.
    ///
    /// # Errors
    ///
    /// The value is neither a tensor nor a sequence of tensors.
    pub(super) fn of(back: &FlowBack<'_, '_>, state: usize) -> Result<Form, Refusal> {
        if stays(back, state) {
            return Ok(Form::Initial);
        }
        let model = back.model();
        let body = back.flow.bodies[0];
        let before = inputs_of(model, body).get(back.flow.first_input() + state).copied();
        let after = outputs_of(model, body).get(back.flow.first_output() + state).copied();
        let (before, after) = (before.flatten(), after.flatten());
        let initial = initial(back, state)?;
        if before.is_some_and(|before| only_grows(back, before, initial)) {
            return Ok(Form::Growing);
        }
        match back.way.inference.ty(initial) {
            Some(Type::Sequence(item)) if item.as_tensor().is_some() => Ok(Form::Listed),
            Some(Type::Tensor(_)) | None => {
                let shape = |value: Option<ValueId>| back.way.inference.ty(value?)?.shape();
                let shapes = shape(before).zip(shape(after));
                let is_same = shapes.is_some_and(|(before, after)| keeps(before, after));
                Ok(if is_same { Form::Stacked } else { Form::Listed })
            }
            Some(other) => {
                let name = back.way.resolved.name_of(initial);
                let why = "which is neither a tensor nor a sequence of tensors";
                Err(Refusal::from(format!("Loop carries '{name}' of type {other}, {why}")))
            }
        }
    }
}

/// Whether an iteration changes no size.
fn keeps(before: &Shape, after: &Shape) -> bool {
    let mut sizes = before.iter().zip(after);
    before.len() == after.len() && sizes.all(|(before, after)| before.surely_equals(after))
}

/// Whether nodes of the body only insert into a sequence, which is an output of the body. A
/// gradient then arrives for it in each iteration, and gradient rules count positions in that
/// gradient.
fn only_grows(back: &FlowBack<'_, '_>, value: ValueId, initial: ValueId) -> bool {
    let (model, body) = (back.model(), back.flow.bodies[0]);
    let resolved = &back.way.resolved;
    let mut grows = back.way.is_sequence(initial);
    let mut is_given = false;
    let mut loops: Vec<(GraphId, NodeId)> = Vec::new();
    let (mut seen, mut open) = (HashSet::new(), vec![value]);
    while let Some(value) = open.pop() {
        if !seen.insert(value) {
            continue;
        }
        is_given |= outputs_of(model, body).contains(&Some(value));
        for (reader, index) in model.uses(value) {
            let outputs = model.outputs(reader);
            let inserts = resolved.is(reader, &SEQUENCE_INSERT) && index == 0;
            grows |= inserts;
            if inserts || resolved.is(reader, &IDENTITY) {
                open.extend(outputs.first().copied().flatten());
            } else if resolved.is(reader, &LOOP) && index >= 2 {
                let attributes = NodeAttributes::new(model, reader);
                let Some(AttrValue::Graph(inner)) = attributes.attribute("body") else {
                    return false;
                };
                loops.push((inner, reader));
                open.extend(inputs_of(model, inner).get(index).copied().flatten());
                open.extend(outputs.get(index - 2).copied().flatten());
            } else {
                return false;
            }
        }
    }
    // The outputs of a subgraph are read where the outputs of its node are read.
    let leaks = |graph: &GraphId| {
        let given = outputs_of(model, *graph).into_iter().enumerate();
        let mut given = given.filter(|(_, value)| value.is_some_and(|value| seen.contains(&value)));
        let node = loops.iter().find(|(body, _)| body == graph).map(|(_, node)| *node);
        given.any(|(index, _)| {
            let Some(node) = node else { return true };
            let output = model.outputs(node).get(index.wrapping_sub(1)).copied().flatten();
            output.is_some_and(|output| !seen.contains(&output))
        })
    };
    grows && is_given && !tree(model, body).iter().filter(|graph| **graph != body).any(leaks)
}

/// Sequence of all values that a `Loop` carried.
pub(super) struct List {
    /// Carried value in the body.
    value: ValueId,
    /// Output of the loop with the sequence.
    all: ValueId,
    /// Empty sequence, which is the initial value.
    empty: ValueId,
    /// Condition that is true.
    yes: ValueId,
    /// Numbers of items, if the carried value is a sequence.
    items: Option<Items>,
}

/// Numbers of items of carried sequences, whose items are stored one sequence after another.
struct Items {
    /// Number of items, in the body.
    length: ValueId,
    /// Numbers of items in each iteration, stacked.
    lengths: ValueId,
    /// Numbers of items in all iterations before each one.
    starts: ValueId,
}

impl List {
    /// Adds the values that the list needs; [`carry`](Self::carry) adds it to the loop. `reader` is
    /// the loop of the backward pass.
    pub(super) fn new(
        back: &mut FlowBack<'_, '_>,
        state: usize,
        reader: NodeId,
    ) -> Result<List, Refusal> {
        let (node, body) = (back.flow.node, back.flow.bodies[0]);
        let value = inputs_of(back.model(), body).get(back.flow.first_input() + state).copied();
        let value = value.flatten().ok_or_else(|| refusal("the body has too few inputs"))?;
        let initial = initial(back, state)?;
        let elem = elem_of(back, initial)?;
        let dtype = [("dtype", AttrValue::Int(elem.number().into()))];
        let empty = back.way.add_beside(node, "SequenceEmpty", &[], &dtype);
        let mut build = back.way.resolved.build(node);
        let yes = build.constant("true", &Tensor::scalar(Bool8::from(true)));
        let graph = build.model().node(node).graph;
        let all = build.model_mut().add_value(graph, "kept");
        let items = back.way.is_sequence(initial).then(|| {
            let (_, length) = back.way.add_inside(body, "SequenceLength", &[value]);
            let lengths = add_stacked(back, length);
            let axis = back.way.number("axis", DataType::Int64, 0.0);
            let exclusive = [("exclusive", AttrValue::Int(1))];
            let starts = back.way.add_beside(reader, "CumSum", &[lengths, axis], &exclusive);
            Items { length, lengths, starts }
        });
        Ok(List { value, all, empty, yes, items })
    }

    /// Adds nodes to the subgraph of the backward pass that read the value at the start of an
    /// iteration, and makes it `inner`.
    pub(super) fn read(
        &self,
        back: &mut FlowBack<'_, '_>,
        graph: GraphId,
        inner: ValueId,
        number: ValueId,
    ) {
        let all = self.all;
        let node = match &self.items {
            None => back.way.add_inside(graph, "SequenceAt", &[all, number]).0,
            Some(items) => {
                let [count, start] = [items.lengths, items.starts]
                    .map(|of| back.way.add_inside(graph, "Gather", &[of, number]).1);
                let inputs = [count, self.yes, self.empty];
                let (node, _) = back.way.append(graph, inputs, |build, body, number| {
                    let inputs = [Some(start), Some(number)];
                    let place = build.inside(body, "Add", "", &inputs, 1);
                    let place = build.model().outputs(place)[0];
                    let item = build.inside(body, "SequenceAt", "", &[Some(all), place], 1);
                    build.model().outputs(item)[0].expect("the node has one output")
                });
                node
            }
        };
        back.way.resolved.model_mut().redefine_output(node, 0, inner);
        self.declare(back, graph, inner);
    }

    /// Declares the known sizes of a value, which the type of the sequence does not have.
    fn declare(&self, back: &mut FlowBack<'_, '_>, graph: GraphId, inner: ValueId) {
        let ty = back.way.inference.ty(self.value).cloned();
        let Some(mut ty) = ty else { return };
        ty.for_each_dim(&mut |size| {
            if size.known().is_none() {
                *size = Dim::Unknown;
            }
        });
        let model = back.way.resolved.model_mut();
        let ty = Some(declaration(model, &ty));
        let name = Some(model.value(inner).name);
        let info = ValueInfo { name, value: Some(inner), ty, ..ValueInfo::default() };
        model.graph_mut(graph).value_info.push(info);
    }

    /// Adds the sequence to the values that the loop carries.
    pub(super) fn carry(self, back: &mut FlowBack<'_, '_>) {
        let (node, body) = (back.flow.node, back.flow.bodies[0]);
        let model = back.way.resolved.model_mut();
        let so_far = model.add_graph_input(body, "kept");
        let value = self.value;
        let grown = match self.items {
            None => back.way.add_inside(body, "SequenceInsert", &[so_far, value]).1,
            Some(items) => {
                let inputs = [items.length, self.yes, so_far];
                let appended = back.way.append(body, inputs, |build, body, number| {
                    let inputs = [Some(value), Some(number)];
                    let item = build.inside(body, "SequenceAt", "", &inputs, 1);
                    build.model().outputs(item)[0].expect("the node has one output")
                });
                appended.1
            }
        };
        let model = back.way.resolved.model_mut();
        let mut inputs: Vec<Option<ValueId>> = model.inputs(node).collect();
        let states = inputs.len() - back.flow.first_input();
        inputs.push(Some(self.empty));
        model.set_inputs(node, &inputs);
        model.insert_output(node, states, self.all);
        model.add_graph_output(body, grown);
        // Carried values precede stacked ones.
        let outputs = &mut model.graph_mut(body).outputs;
        outputs[back.flow.first_output() + states..].rotate_right(1);
    }
}
