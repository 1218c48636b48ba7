//! Report of a simplification: rewrites and near misses.

use std::collections::BTreeMap;

use sardonyx_model::Model;

use super::rule::SimplifyLevel;

/// Places of each rule that are listed.
const MOST_PLACES: usize = 8;
/// Near misses that are listed.
const MOST_NEAR: usize = 64;

/// Size of a model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of nodes, in all graphs and functions.
    pub nodes: usize,
    /// Number of nodes of each operator or function, by name, with the domain unless that is
    /// `ai.onnx`.
    pub operators: BTreeMap<String, usize>,
    /// Number of initializers.
    pub initializers: usize,
    /// Bytes of the values of initializers, in the file and outside of it, and of `Constant` nodes.
    pub constant_bytes: u64,
}

impl Tally {
    /// Counts the parts of a model that belong to its graphs.
    pub(super) fn from_model(model: &Model) -> Tally {
        let mut tally = Tally::default();
        let roots = model.main.into_iter().chain(model.functions.iter().map(|found| found.body));
        for graph in roots.flat_map(|root| crate::order::tree(model, root)) {
            let graph = model.graph(graph);
            tally.initializers += graph.initializers.len() + graph.sparse_initializers.len();
            for initializer in &graph.initializers {
                tally.constant_bytes += model.implied_bytes(&initializer.tensor).unwrap_or(0);
            }
            for node in &graph.nodes {
                let name = model.display(model.node(*node).op_type);
                let name = match &*model.domain_of(*node) {
                    "" => name.into_owned(),
                    domain => format!("{domain}.{name}"),
                };
                *tally.operators.entry(name).or_default() += 1;
                tally.nodes += 1;
                let attributes = model.attributes(*node).iter().map(|id| model.attribute(*id));
                let tensors = attributes.filter_map(|attribute| match attribute.value() {
                    Some(sardonyx_model::AttributeValue::Tensor(tensor)) => Some(tensor),
                    _ => None,
                });
                tally.constant_bytes +=
                    tensors.filter_map(|tensor| model.implied_bytes(tensor)).sum::<u64>();
            }
        }
        tally
    }
}

/// Rewrites by one rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleUse {
    /// Number of rewrites.
    pub count: usize,
    /// Nodes that went at once; other rules leave nodes that nothing needs to the rule `dead`.
    pub nodes: usize,
    /// The first places: nodes, in the wording of messages.
    pub places: Vec<String>,
}

/// A rule that nearly applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NearMiss {
    /// Name of the rule.
    pub rule: &'static str,
    /// The node, in the wording of messages.
    pub place: String,
    /// Reason why the rule did not apply.
    pub why: String,
}

/// A rewrite that was left out because it gave other results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedRewrite {
    /// Name of the rule.
    pub rule: &'static str,
    /// The node, in the wording of messages.
    pub place: String,
    /// The difference.
    pub why: String,
}

/// Rewrites of a simplification, and near misses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimplifyReport {
    /// Level of the rewrites.
    pub level: SimplifyLevel,
    /// Size of the model before.
    pub before: Tally,
    /// Size of the model after.
    pub after: Tally,
    /// Rewrites by the name of their rule.
    pub rules: BTreeMap<&'static str, RuleUse>,
    /// Number of initializers that were removed because nothing reads them.
    pub initializers_removed: usize,
    /// Number of functions that were removed because nothing calls them.
    pub functions_removed: usize,
    /// Rules that nearly applied, up to a number.
    pub near: Vec<NearMiss>,
    /// Number of near misses that are not listed.
    pub more_near: usize,
    /// Number of rewrites that were run on drawn inputs, and gave the same results.
    pub verified: usize,
    /// Number of rewrites that could not be run on drawn inputs.
    pub unverified: usize,
    /// Rewrites that were left out because they gave other results.
    pub rejected: Vec<RejectedRewrite>,
    /// Number of rounds over the model.
    pub rounds: usize,
}

impl SimplifyReport {
    /// Whether the model is the same as before.
    pub fn is_unchanged(&self) -> bool {
        self.rules.is_empty() && self.initializers_removed == 0 && self.functions_removed == 0
    }

    pub(super) fn note(&mut self, rule: &'static str, count: usize, nodes: usize) {
        if count > 0 {
            let found = self.rules.entry(rule).or_default();
            found.count += count;
            found.nodes += nodes;
        }
    }

    pub(super) fn note_place(&mut self, rule: &'static str, place: String) {
        let found = self.rules.entry(rule).or_default();
        if found.places.len() < MOST_PLACES {
            found.places.push(place);
        }
    }

    /// Removes a near miss of a rule that applied in a later round.
    pub(super) fn remove_near(&mut self, rule: &str, place: &str) {
        self.near.retain(|near| near.rule != rule || near.place != place);
    }

    pub(super) fn note_near(&mut self, rule: &'static str, place: String, why: String) {
        if self.near.len() < MOST_NEAR {
            self.near.push(NearMiss { rule, place, why });
        } else {
            self.more_near += 1;
        }
    }
}
