//! Inputs of functions that calls cannot omit, because a node of the body needs them.

use hashbrown::HashMap;
use sardonyx_model::{Id, Model, NodeId, ValueId};
use sardonyx_ops::{Arity, Schema};

use crate::order::nodes_of_tree;

/// Operator or function that a node in the body of a function calls.
pub(crate) enum Called<'s> {
    /// Operator.
    Operator(&'s Schema),
    /// A function of the model, by position.
    Function(usize),
    /// Unknown operator or function.
    Unknown,
}

/// Inputs of functions that no call can omit.
#[derive(Debug, Default)]
pub(crate) struct RequiredInputs {
    /// Positions of inputs by function, each with a node of the body that needs the input.
    by_function: Vec<HashMap<usize, NodeId>>,
}

/// Input of a function that a call omits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MissingInput {
    /// Position of the input.
    pub(crate) index: usize,
    /// Node of the function's body that needs the input.
    pub(crate) reader: NodeId,
}

/// Input of a function, by position of both.
type Formal = (usize, usize);

/// Use of an input of a function by a node of its body.
pub(crate) enum Reading {
    /// The node needs the input.
    Matters,
    /// The node passes it to a function of the model, by position.
    Passed(usize),
    /// The node does not need the input.
    Other,
}

/// Finds the inputs of the first `functions` functions of a model that a node of the body, or of a
/// function that the body calls, needs. Each is returned with the first such node in the file.
/// `reading` is called with a function, a node of its body, and a position among the node's inputs.
pub(crate) fn inputs_that_matter(
    model: &Model,
    functions: usize,
    mut reading: impl FnMut(usize, NodeId, usize) -> Reading,
) -> Vec<HashMap<usize, NodeId>> {
    let mut by_function = vec![HashMap::new(); functions];
    // Needed inputs whose callers have not been visited yet.
    let mut open: Vec<Formal> = Vec::new();
    // Inputs of other functions that are passed to an input of a function.
    let mut passed: HashMap<Formal, Vec<(Formal, NodeId)>> = HashMap::new();
    for index in 0..functions {
        let body = model.functions[index].body;
        let inputs = model.graph(body).inputs.iter().enumerate();
        let formals: HashMap<ValueId, usize> =
            inputs.filter_map(|(position, info)| Some((info.value?, position))).collect();
        if formals.is_empty() {
            continue;
        }
        for node in nodes_of_tree(model, body) {
            for (position, value) in model.inputs(node).enumerate() {
                let Some(formal) = value.and_then(|value| formals.get(&value)) else {
                    continue;
                };
                let formal = (index, *formal);
                match reading(index, node, position) {
                    Reading::Matters => record(&mut by_function, &mut open, formal, node),
                    Reading::Passed(callee) if callee < functions => {
                        passed.entry((callee, position)).or_default().push((formal, node));
                    }
                    Reading::Passed(_) | Reading::Other => {}
                }
            }
        }
    }
    while let Some(formal) = open.pop() {
        for (caller, node) in passed.remove(&formal).unwrap_or_default() {
            record(&mut by_function, &mut open, caller, node);
        }
    }
    by_function
}

impl RequiredInputs {
    /// Finds the required inputs in the bodies of the first `functions` functions of a model.
    /// `called` returns the callee of a node.
    pub(crate) fn new<'s>(
        model: &Model,
        functions: usize,
        mut called: impl FnMut(usize, NodeId) -> Called<'s>,
    ) -> RequiredInputs {
        let reading = |function, node, position| match called(function, node) {
            Called::Operator(schema) if is_required(schema, position) => Reading::Matters,
            Called::Function(callee) => Reading::Passed(callee),
            Called::Operator(_) | Called::Unknown => Reading::Other,
        };
        RequiredInputs { by_function: inputs_that_matter(model, functions, reading) }
    }

    /// Returns whether no call of a function can omit an input.
    pub(crate) fn has(&self, function: usize, index: usize) -> bool {
        self.by_function.get(function).is_some_and(|required| required.contains_key(&index))
    }

    /// Lists the required inputs that a call of a function omits, in order.
    pub(crate) fn missing(
        &self,
        model: &Model,
        call: NodeId,
        function: usize,
    ) -> Vec<MissingInput> {
        let Some(required) = self.by_function.get(function).filter(|found| !found.is_empty())
        else {
            return Vec::new();
        };
        let given: Vec<bool> = model.inputs(call).map(|value| value.is_some()).collect();
        let is_left_out = |index: &usize| !given.get(*index).copied().unwrap_or(false);
        let missing = required.iter().filter(|(index, _)| is_left_out(index));
        let mut missing: Vec<MissingInput> = missing
            .map(|(index, reader)| MissingInput { index: *index, reader: *reader })
            .collect();
        missing.sort_by_key(|missing| missing.index);
        missing
    }
}

/// Records that a node needs an input of a function.
fn record(
    by_function: &mut [HashMap<usize, NodeId>],
    open: &mut Vec<Formal>,
    (function, input): Formal,
    node: NodeId,
) {
    // The first node in the file is kept.
    let first = by_function[function].entry(input).or_insert_with(|| {
        open.push((function, input));
        node
    });
    if node.index() < first.index() {
        *first = node;
    }
}

/// Returns whether nodes of an operator cannot omit the input at a position.
fn is_required(schema: &Schema, position: usize) -> bool {
    let last = schema.inputs.len().saturating_sub(1);
    let Some(param) = schema.inputs.get(position.min(last)) else { return false };
    match param.arity {
        Arity::Single => position <= last,
        Arity::Optional => false,
        Arity::Variadic { min, .. } => position - last.min(position) < min as usize,
    }
}
