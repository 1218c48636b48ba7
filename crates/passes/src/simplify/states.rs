//! Initial states of recurrent layers.

use sardonyx_model::{AttrValue, Attributes, NodeAttributes, NodeId, Producer, ValueId};
use sardonyx_ops::OpDef;
use sardonyx_ops::operators::{
    CONSTANT_OF_SHAPE, EXPAND, GATHER, GRU, IDENTITY, LSTM, RESHAPE, RNN, SLICE, SPLIT, SQUEEZE,
    TILE, TRANSPOSE, UNSQUEEZE,
};
use sardonyx_tensor::Tensor;

use super::no_ops::fill_of;
use super::rule::ZERO_STATES;
use super::{Job, Scope, is_plain};
use crate::finding::place_of_node;
use crate::infer::Inference;
use crate::matcher::Matcher;

/// Nodes that are followed from a state to its zeros.
const MOST_FOLLOWED: usize = 8;

/// Operators whose results have elements of their first input alone.
const MOVING: [&OpDef; 10] = [
    &EXPAND, &GATHER, &IDENTITY, &RESHAPE, &SLICE, &SPLIT, &SQUEEZE, &TILE, &TRANSPOSE, &UNSQUEEZE,
];

impl Job<'_> {
    /// Omits initial states that are zero, as they are by default. Returns their number.
    /// Counterexample: -0.0.
    pub(super) fn omit_zero_states(&mut self, scope: Scope, inference: &Inference) -> usize {
        let mut count = 0;
        for graph in self.resolved.graphs().to_vec() {
            let found = self.with_matcher(scope, graph, inference, |cx| find_states(self, cx));
            for (node, index) in found {
                let place = place_of_node(self.resolved.model(), node);
                self.report.note_place(ZERO_STATES.name, place);
                self.resolved.model_mut().set_input(node, index, None);
                count += 1;
            }
        }
        self.note(ZERO_STATES.name, count, 0);
        count
    }
}

/// Finds the nodes of a graph with initial states that are zero, and the indices of these inputs.
fn find_states(job: &Job<'_>, cx: &Matcher<'_>) -> Vec<(NodeId, usize)> {
    let mut found = Vec::new();
    for node in job.resolved.order_of(cx.graph) {
        let states = if cx.is(*node, &LSTM) {
            5..7
        } else if cx.is(*node, &GRU) || cx.is(*node, &RNN) {
            5..6
        } else {
            continue;
        };
        let zeros = states.filter(|index| {
            let state = cx.input(*node, *index);
            state.is_some_and(|state| is_zero(cx, state)) && is_plain(cx.model, *node)
        });
        found.extend(zeros.map(|index| (*node, index)));
    }
    found
}

/// Whether all elements of a value are zero, with a positive sign.
fn is_zero(cx: &Matcher<'_>, mut value: ValueId) -> bool {
    for _ in 0..MOST_FOLLOWED {
        if let Some(tensor) = cx.constant(value) {
            return is_filled_with_zero(&tensor);
        }
        let Producer::Node(node, _) = cx.model.value(value).producer else { return false };
        if cx.is(node, &CONSTANT_OF_SHAPE) {
            return match NodeAttributes::new(cx.model, node).attribute("value") {
                None => true,
                Some(AttrValue::Tensor(tensor)) => is_filled_with_zero(&tensor),
                Some(_) => false,
            };
        }
        let before = cx.input(node, 0).filter(|_| MOVING.iter().any(|op| cx.is(node, op)));
        let Some(before) = before else { return false };
        value = before;
    }
    false
}

fn is_filled_with_zero(tensor: &Tensor) -> bool {
    fill_of(tensor).is_some_and(|number| number == 0.0 && number.is_sign_positive())
}
