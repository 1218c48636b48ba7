//! Inference of graphs in nodes, and of bodies of functions.

use std::cell::RefCell;

use hashbrown::HashMap;
use sardonyx_model::{GraphId, Id};
use sardonyx_ops::{InferError, Inferred, Subgraphs};

use super::engine::{Engine, element};
use super::unknown::Missing;

/// Maximum depth of nested graphs and calls, which bounds the use of the stack.
const DEEPEST: usize = 100;

impl Engine<'_> {
    /// Infers a graph in a node, given the facts about its inputs. Forgets earlier results for it.
    pub(super) fn graph(
        &mut self,
        id: GraphId,
        inputs: &[Inferred],
    ) -> Result<Vec<Inferred>, InferError> {
        let model = self.model;
        let graph = model.graph(id);
        self.enter()?;
        self.begin(id);
        let is_unsupported = std::mem::take(&mut self.complaints.is_unsupported);
        let is_muted = self.complaints.is_muted;
        self.complaints.is_muted |= is_unsupported;
        let result = self.bind_inputs(id, inputs);
        if result.is_ok() {
            self.walk(id);
        }
        self.depth -= 1;
        self.complaints.is_unsupported = is_unsupported;
        self.complaints.is_muted = is_muted;
        result?;
        let outputs = graph.outputs.iter().map(|info| match info.value {
            Some(value) => Inferred {
                ty: self.found.ty(value).cloned(),
                known: self.found.known(value).cloned(),
            },
            None => Inferred { ty: info.ty.as_ref().and_then(|ty| model.type_of(ty)), known: None },
        });
        Ok(outputs.collect())
    }

    pub(super) fn enter(&mut self) -> Result<(), InferError> {
        if self.depth >= DEEPEST {
            return Err(InferError(format!(
                "graphs and calls are nested more than {DEEPEST} deep"
            )));
        }
        self.depth += 1;
        Ok(())
    }

    /// Binds the inputs of a graph in a node, together with their declared types.
    fn bind_inputs(&mut self, id: GraphId, inputs: &[Inferred]) -> Result<(), InferError> {
        let formal = &self.model.graph(id).inputs;
        let before_4 = self.model.header.ir_version.unwrap_or(0) < 4;
        // Before IR version 4 each constant is also an input, after those that are passed.
        let rest_are_constants = || {
            let rest = formal.iter().skip(inputs.len()).filter_map(|info| info.value);
            let constants = &self.model.graph(id).initializers;
            let mut rest = rest.map(|value| constants.iter().any(|c| c.value == Some(value)));
            rest.all(|is_constant| is_constant)
        };
        let fits = formal.len() == inputs.len()
            || before_4 && formal.len() > inputs.len() && rest_are_constants();
        if !fits {
            return Err(InferError(format!(
                "the graph has {} inputs, but the node passes {}",
                formal.len(),
                inputs.len()
            )));
        }
        for (index, (info, given)) in formal.iter().zip(inputs).enumerate() {
            let Some(value) = info.value else { continue };
            let declared = self.found.types.take(value);
            if let Some(given) = given.ty.as_ref().filter(|ty| element(ty) != Some(None))
                && self.declarations.undefined_elements.contains(&value)
            {
                return Err(InferError(format!(
                    "input {index} of the graph is declared with an undefined element type, but the node passes {given}"
                )));
            }
            let merged = match (&given.ty, declared) {
                (Some(given), Some(declared)) => {
                    Some(self.style().join(given, &declared).ok_or_else(|| {
                        InferError(format!(
                            "input {index} of the graph is declared as {declared}, but the node passes {given}"
                        ))
                    })?)
                }
                (given, declared) => given.clone().or(declared),
            };
            let mut merged = merged;
            if let Some(ty) = &mut merged {
                for (axis, name) in self.name_open(ty) {
                    let reason = "it may differ between runs of the graph".to_string();
                    let owner = self.model.graph(id).owner;
                    self.note(value, Missing::Dim(axis), owner, reason, Some(name));
                }
            }
            self.found.types.set(value, merged);
            self.found.known[value.index()] = given.known.clone().map(Box::new);
        }
        Ok(())
    }
}

/// Inference of the graphs in a node, for its rule.
pub(super) struct Inside<'e, 'a> {
    engine: RefCell<&'e mut Engine<'a>>,
    /// Numbers of problems and of unknown sizes that were listed before the first walk through each
    /// graph.
    marks: RefCell<HashMap<GraphId, (usize, usize)>>,
}

impl<'e, 'a> Inside<'e, 'a> {
    pub(super) fn new(engine: &'e mut Engine<'a>) -> Self {
        Inside { engine: RefCell::new(engine), marks: RefCell::default() }
    }
}

impl Subgraphs for Inside<'_, '_> {
    fn infer(&self, graph: GraphId, inputs: &[Inferred]) -> Result<Vec<Inferred>, InferError> {
        let mut engine = self.engine.borrow_mut();
        let listed = (engine.found.problems.len(), engine.found.unknown.len());
        let mut marks = self.marks.borrow_mut();
        let (problems, unknown) = *marks.entry(graph).or_insert(listed);
        // Only the last walk counts: earlier ones knew too little, or too much.
        engine.found.problems.truncate(problems);
        engine.found.unknown.truncate(unknown);
        engine.graph(graph, inputs)
    }

    fn forgive(&self, graph: GraphId) {
        // Graphs are inferred one after the other, so the entries of this one are between its mark
        // and the next.
        let marks = self.marks.borrow();
        if let Some((first, _)) = marks.get(&graph).copied() {
            let next = marks.values().map(|(mark, _)| *mark).filter(|mark| *mark > first);
            let mut engine = self.engine.borrow_mut();
            let problems = &mut engine.found.problems;
            let last = next.min().unwrap_or(problems.len()).min(problems.len());
            problems.drain(first..last);
        }
    }
}
