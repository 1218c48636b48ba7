//! Inference of parts that a walk from the main graph does not reach: training steps, and bodies of
//! functions, for whose values it keeps the facts that hold in every call.

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{Id, Model, ValueId};
use sardonyx_ops::Inferred;

use super::Inference;
use super::calls::Call;
use super::engine::Engine;
use crate::order::tree;

/// Facts about the values of functions that hold in all calls visited so far.
#[derive(Debug, Default)]
pub(super) struct InAllCalls {
    values: HashMap<ValueId, Inferred>,
    functions: HashSet<usize>,
}

impl Engine<'_> {
    /// Infers everything: the results of [`run`](Self::run), those of training steps, and for
    /// bodies of functions the facts that hold in every call of the model. For a function without
    /// calls, these are the facts that hold in any call.
    pub(super) fn run_everywhere(mut self) -> Inference {
        let model = self.model;
        let facts_of_any_call = self.facts_of_any_call();
        self.in_all_calls = Some(InAllCalls::default());
        let steps = model.training_info.iter();
        let steps = steps.flat_map(|step| [step.initialization, step.algorithm]);
        for graph in std::iter::once(model.main).chain(steps).flatten() {
            self.begin(graph);
            self.walk(graph);
        }
        let InAllCalls { values: mut joined, functions } =
            self.in_all_calls.take().unwrap_or_default();
        // If not all calls were visited, facts of some calls may not hold in the others.
        if self.visits == 0 {
            joined.values_mut().for_each(|found| *found = Inferred::default());
        }
        for (value, found) in facts_of_any_call {
            let found = joined.remove(&value).unwrap_or(found);
            self.found.types.set(value, found.ty);
            self.found.known[value.index()] = found.known.map(Box::new);
        }
        self.found.called = functions;
        self.found
    }

    /// Returns the facts about the values of functions that hold for any inputs.
    fn facts_of_any_call(&mut self) -> Vec<(ValueId, Inferred)> {
        let model = self.model;
        let mut kept = Vec::new();
        for (function, callee) in model.functions.iter().enumerate() {
            let Some(node) = model.graph(callee.body).nodes.first() else {
                continue;
            };
            self.calls.push(Call::any(model, function, *node));
            self.begin(callee.body);
            self.walk(callee.body);
            self.calls.pop();
            self.complaints.is_unsupported = false;
            kept.extend(values_of(model, function).map(|value| (value, self.facts_about(value))));
        }
        kept
    }

    fn facts_about(&self, value: ValueId) -> Inferred {
        let ty = self.found.ty(value).cloned();
        Inferred { ty, known: self.found.known(value).cloned() }
    }

    /// Keeps the facts of a call about the values of its function that earlier calls share. Keeps
    /// none if the body could not be inferred.
    pub(super) fn join_call(&mut self, function: usize, is_inferred: bool) {
        let Some(mut joined) = self.in_all_calls.take() else { return };
        joined.functions.insert(function);
        for value in values_of(self.model, function) {
            let found = if is_inferred { self.facts_about(value) } else { Inferred::default() };
            joined
                .values
                .entry(value)
                .and_modify(|before| *before = before.join(&found))
                .or_insert(found);
        }
        self.in_all_calls = Some(joined);
    }
}

/// Returns the inputs of a function and of graphs in it, and the outputs of the nodes in them.
fn values_of(model: &Model, function: usize) -> impl Iterator<Item = ValueId> {
    let graphs = tree(model, model.functions[function].body).into_iter();
    graphs.flat_map(|graph| {
        let graph = model.graph(graph);
        let inputs = graph.inputs.iter().filter_map(|info| info.value);
        let made = graph.nodes.iter().flat_map(|node| model.outputs(*node));
        inputs.chain(made.flatten().copied())
    })
}
