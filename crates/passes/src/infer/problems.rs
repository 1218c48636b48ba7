//! Contradictions, written down with the place and advice.

use sardonyx_model::{GraphId, Model, NodeId, Type, ValueId, shown_domain};
use sardonyx_proto::shown;
use sardonyx_tensor::shape::RANK_LIMIT;

use super::callees::Callee;
use super::engine::Engine;
use super::unknown::Missing;
use super::{Inference, Problem, ProblemKind};
use crate::codes;
use crate::finding::Spot;

/// Entries listed of each kind; longer lists are not read.
pub(super) const MOST_LISTED: usize = 100_000;

/// State that decides whether a contradiction is worth a line.
#[derive(Default)]
pub(super) struct Complaints {
    /// Problems and gaps so far, listed or not.
    pub(super) count: usize,
    /// Whether the graph has a node of which nothing is known: types may then be missing further
    /// down.
    pub(super) is_unsupported: bool,
    /// Whether that is so of a graph around this one.
    pub(super) is_muted: bool,
}

/// A constant in a list of its graph.
#[derive(Clone, Copy)]
pub(super) struct Constant {
    /// The field of the graph.
    pub(super) list: &'static str,
    pub(super) index: usize,
}

impl Engine<'_> {
    /// Writes down that something about a node does not fit.
    #[cfg_attr(debug_assertions, track_caller)]
    pub(super) fn problem(&mut self, node: NodeId, mut kind: ProblemKind, mut fact: String) {
        self.complaints.count += 1;
        if self.style().is_reference() {
            // Inside of a node it is a reason why that has no types.
            if self.depth > usize::from(self.alone)
                && !matches!(kind, ProblemKind::Limit | ProblemKind::Rank)
            {
                kind = ProblemKind::Node;
            }
            let is_expected = self.complaints.is_unsupported || self.complaints.is_muted;
            if is_expected && matches!(kind, ProblemKind::Node | ProblemKind::Declared) {
                return;
            }
        }
        if self.found.problems.len() >= MOST_LISTED {
            return;
        }
        if let Some(call) = self.calls.first() {
            let place = crate::finding::place_of_node(self.model, call.node);
            fact = format!("{fact}, when called by {place}");
        }
        let advice = describe_inputs(self.model, node, &self.found);
        self.found.add_problem(Problem { spot: Spot::node(node), kind, fact, advice });
    }

    /// Writes down that the operator of a node has no rule, and with it why the types of its
    /// outputs stay open.
    pub(super) fn report_no_rule(&mut self, node: NodeId, callee: &Callee<'_>) {
        let model = self.model;
        let op = model.display(model.node(node).op_type);
        let domain = model.domain_of(node);
        let reason = if callee.is_imported {
            let near = self.callees.registry.similar(&domain, &op);
            let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            format!("operator {op} of domain '{}' is unknown{near}", shown_domain(&domain))
        } else {
            let domain = shown_domain(&domain);
            format!("operator set '{domain}' is not imported, so {op} is not defined")
        };
        if !callee.is_imported {
            self.problem(node, ProblemKind::NotImported, reason.clone());
        }
        self.complaints.is_unsupported = true;
        for value in model.outputs(node).iter().flatten() {
            if self.found.ty(*value).is_none() {
                self.note(*value, Missing::Type, Some(node), reason.clone(), None);
            }
        }
    }

    /// Writes down a value to which the file gives too many dimensions, or keeps that for the nodes
    /// that need it.
    pub(super) fn report_too_deep(&mut self, id: GraphId, value: ValueId, rank: usize) {
        if self.style().is_reference() {
            self.declarations.too_deep.insert(value, rank);
            return;
        }
        let name = shown(self.model.text(self.model.value(value).name));
        self.add_problem(Problem {
            spot: Spot::graph(id),
            kind: ProblemKind::Rank,
            fact: format!("'{name}' has {rank} dimensions; at most {RANK_LIMIT} are supported"),
            advice: codes::RANK_ABOVE_LIMIT.help.into(),
        });
    }

    /// Writes down a value that the lists of its graph declare with types that contradict each
    /// other.
    pub(super) fn report_declared_twice(
        &mut self,
        id: GraphId,
        value: ValueId,
        before: &Type,
        declared: &Type,
    ) {
        let graph = self.model.graph(id);
        let name = shown(self.model.text(self.model.value(value).name));
        let lists = [
            ("value_info", &graph.value_info),
            ("output", &graph.outputs),
            ("input", &graph.inputs),
        ];
        let mut spots = lists.into_iter().filter_map(|(field, infos)| {
            let index = infos.iter().position(|info| info.value == Some(value))?;
            Some(Spot::graph(id).item(field, index))
        });
        let Some(spot) = spots.next() else { return };
        self.add_problem(Problem {
            spot,
            kind: ProblemKind::Declared,
            fact: format!("'{name}' is declared as {before}, and as {declared}"),
            advice: "declare one type, or remove one of the declarations".into(),
        });
    }

    /// Writes down a constant that does not fit the declaration of the value.
    pub(super) fn report_default(
        &mut self,
        id: GraphId,
        place: Constant,
        constant: &Type,
        declared: &str,
    ) {
        self.add_problem(Problem {
            spot: Spot::graph(id).item(place.list, place.index),
            kind: ProblemKind::Declared,
            fact: format!("the initializer is {constant}, but declared as {declared}"),
            advice: "change the type of the initializer, or the declaration".into(),
        });
    }

    #[cfg_attr(debug_assertions, track_caller)]
    fn add_problem(&mut self, problem: Problem) {
        if self.found.problems.len() < MOST_LISTED {
            self.found.add_problem(problem);
        }
    }
}

fn describe_inputs(model: &Model, node: NodeId, found: &Inference) -> String {
    let inputs: Vec<String> = model
        .inputs(node)
        .flatten()
        .take(8)
        .map(|value| {
            let name = shown(model.text(model.value(value).name));
            match found.ty(value) {
                Some(ty) => format!("{name}: {ty}"),
                None => format!("{name}: ?"),
            }
        })
        .collect();
    if inputs.is_empty() { String::new() } else { format!("inputs: {}", inputs.join(", ")) }
}
