//! Undefined names.

use sardonyx_model::{GraphId, Producer};

use super::engine::Engine;
use super::problems::MOST_LISTED;
use super::unknown::Missing;
use super::{Problem, ProblemKind};
use crate::check::{describe_undefined, describe_undefined_output};
use crate::codes;
use crate::finding::Spot;
use crate::order::tree;

/// Maximum number of problems of this kind whose advice looks for similar names, which takes a walk
/// through the model.
const MOST_ADVISED: usize = 20;

impl Engine<'_> {
    /// Reports undefined names that nodes read or graphs return: in the main graph, in the graphs
    /// of its nodes, and in functions.
    pub(super) fn report_undefined(&mut self, main: GraphId) {
        let bodies: Vec<GraphId> =
            self.model.functions.iter().map(|function| function.body).collect();
        for graph in tree(self.model, main) {
            self.nameless_values(graph);
            self.undefined_inputs(graph);
            self.undefined_outputs(graph);
        }
        for body in bodies {
            for graph in tree(self.model, body) {
                self.undefined_inputs(graph);
                // Each call of a body selects the outputs that it reads.
                if graph != body {
                    self.undefined_outputs(graph);
                }
            }
        }
    }

    /// Reports inputs of a graph without a name, which callers cannot pass, and sparse initializers
    /// without a name, which nodes cannot read.
    fn nameless_values(&mut self, graph: GraphId) {
        let model = self.model;
        for (index, info) in model.graph(graph).inputs.iter().enumerate() {
            if model.is_blank(info.name) {
                self.report_nameless(
                    Spot::graph(graph).item("input", index),
                    codes::NAMELESS_VALUE.help,
                );
            }
        }
        for (index, initializer) in model.graph(graph).sparse_initializers.iter().enumerate() {
            if model.is_blank(initializer.tensor.values.as_ref().and_then(|values| values.name)) {
                let spot = Spot::graph(graph).item("sparse_initializer", index);
                self.report_nameless(spot, codes::NAMELESS_INITIALIZER.help);
            }
        }
    }

    #[cfg_attr(debug_assertions, track_caller)]
    fn report_nameless(&mut self, spot: Spot, advice: &str) {
        if self.found.problems.len() < MOST_LISTED {
            let (kind, fact) = (ProblemKind::Nameless, "the name is missing".into());
            self.found.add_problem(Problem { spot, kind, fact, advice: advice.into() });
        }
    }

    fn undefined_inputs(&mut self, graph: GraphId) {
        let model = self.model;
        for node in &model.graph(graph).nodes {
            for (index, value) in model.inputs(*node).enumerate() {
                let Some(value) = value else { continue };
                let found = model.value(value);
                if found.producer != Producer::Nothing {
                    continue;
                }
                let advised = self.found.problems.len() < MOST_ADVISED;
                let (fact, advice) = describe_undefined(model, graph, found.name, index, advised);
                let reason = format!("nothing defines it, and the node reads it as input {index}");
                if self.found.ty(value).is_none() {
                    self.note(value, Missing::Type, Some(*node), reason, None);
                }
                let advice = match &*advice {
                    "" => codes::UNDEFINED_VALUE.help.to_string(),
                    advice => advice.to_string(),
                };
                self.name_undefined(Spot::node(*node).item("input", index), fact, advice);
            }
        }
    }

    fn undefined_outputs(&mut self, graph: GraphId) {
        let model = self.model;
        for (index, info) in model.graph(graph).outputs.iter().enumerate() {
            let is_made = |value| model.value(value).producer != Producer::Nothing;
            let Some(name) = info.name.filter(|_| !info.value.is_some_and(is_made)) else {
                continue;
            };
            let (fact, advice) = describe_undefined_output(model, graph, name);
            let advice = match &*advice {
                "" => codes::UNDEFINED_OUTPUT.help.to_string(),
                advice => advice.to_string(),
            };
            self.name_undefined(Spot::graph(graph).item("output", index), fact, advice);
        }
    }

    fn name_undefined(&mut self, spot: Spot, fact: String, advice: String) {
        if self.found.problems.len() < MOST_LISTED {
            let kind = ProblemKind::Undefined;
            self.found.add_problem(Problem { spot, kind, fact, advice });
        }
    }
}
