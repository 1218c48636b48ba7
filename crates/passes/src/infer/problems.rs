//! Reports of contradictions, with place and advice.

use sardonyx_model::{GraphId, Model, NodeId, Type, ValueId, shown_domain};
use sardonyx_proto::shown;
use sardonyx_tensor::shape::RANK_LIMIT;

use super::callees::Callee;
use super::engine::Engine;
use super::unknown::Missing;
use super::{Inference, Problem, ProblemKind};
use crate::codes;
use crate::finding::Spot;

/// Maximum number of listed items of each kind.
pub(super) const MOST_LISTED: usize = 100_000;

/// Circumstances that decide whether a contradiction is reported.
#[derive(Default)]
pub(super) struct Complaints {
    /// Number of problems and unknown sizes so far, listed or not.
    pub(super) count: usize,
    /// Whether the graph has a node without a rule, which explains missing types after it.
    pub(super) is_unsupported: bool,
    /// Whether an outer graph has such a node.
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
    /// Reports a contradiction at a node.
    #[cfg_attr(debug_assertions, track_caller)]
    pub(super) fn problem(&mut self, node: NodeId, mut kind: ProblemKind, mut fact: String) {
        self.complaints.count += 1;
        if self.style().is_reference() {
            // Inside a node, it is a reason why that node has no types.
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

    /// Reports a node whose operator has no rule, and the unknown types of its outputs.
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

    /// Reports a value with too many declared dimensions, or records it for the nodes that read it.
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

    /// Reports a value that the lists of its graph declare with contradictory types.
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

    /// Reports a constant that is also an input and does not fit its declaration.
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
