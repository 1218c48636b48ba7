//! Which features of the library the operators of a model need.

use std::collections::{BTreeMap, BTreeSet};

use sardonyx_model::{Model, NodeId};
use sardonyx_ops::{OpDef, Registry};
use sardonyx_passes::InferOptions;

use crate::custom::CustomOperators;
use crate::expanded::expand;
use crate::ops::feature_of;

/// Feature of the library that sessions of a model need.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequiredFeature {
    /// Name of the feature, such as `recurrent`.
    pub feature: &'static str,
    /// Operators of the model that need the feature, sorted: names, with the domain before a dot
    /// unless it is that of the standard. A function is named by its call.
    pub operators: Vec<String>,
}

/// Operators by the feature that they need.
type ByFeature = BTreeMap<&'static str, BTreeSet<String>>;

/// Lists the features that the operators of a model need, sorted. Functions are looked into, unless
/// the model is not valid; operators that are not known need none.
pub fn find_features(model: &Model) -> Vec<RequiredFeature> {
    let mut found = ByFeature::new();
    match expand(model, None, InferOptions::default(), &CustomOperators::default(), &[]) {
        Ok(expanded) => {
            let resolved = &expanded.resolved;
            let graphs = resolved.graphs().iter();
            for node in graphs.flat_map(|graph| resolved.order_of(*graph)) {
                let operator = resolved.op(*node).map(|op| op.def);
                add(&mut found, operator, resolved.model(), resolved.origin(*node));
            }
        }
        Err(_) => {
            let registry = Registry::with_microsoft();
            for (_, graph) in model.graphs() {
                for node in &graph.nodes {
                    let name = model.display(model.node(*node).op_type);
                    let operator = registry.operator(&model.domain_of(*node), &name);
                    add(&mut found, operator, model, *node);
                }
            }
        }
    }
    let found = found.into_iter();
    found
        .map(|(feature, operators)| {
            let operators = operators.into_iter().collect();
            RequiredFeature { feature, operators }
        })
        .collect()
}

/// Adds the features of an operator, with the name of the node that stands for it in the file.
fn add(found: &mut ByFeature, operator: Option<&OpDef>, model: &Model, node: NodeId) {
    let Some(operator) = operator else { return };
    // Its decoders are the library's, not the engine's.
    let is_decoder = (operator.domain, operator.name) == ("", "ImageDecoder");
    let decoders = is_decoder.then_some("images");
    for feature in feature_of(operator).into_iter().chain(decoders) {
        let (domain, name) = (model.domain_of(node), model.display(model.node(node).op_type));
        let dot = if domain.is_empty() { "" } else { "." };
        found.entry(feature).or_default().insert(format!("{domain}{dot}{name}"));
    }
}
