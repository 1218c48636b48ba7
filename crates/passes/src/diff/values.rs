//! Values of the main graphs of two models that should be equal when both run on the same inputs.
//!
//! Nodes that stand for each other in a diff may compute other values: where a normalization was
//! folded into a convolution, the convolutions stand for each other, but the second one computes
//! the result of the normalization. So names count first, unless most names have moved to other
//! nodes, and values that are paired by their positions alone are unsure.

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{Model, NodeId, Producer, ValueId};

use super::matching::Matching;
use super::side::Side;
use super::{GraphPair, ModelWithData, match_graphs};

/// Values of two models that stand for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatchedValue {
    /// Value of the first model.
    pub before: ValueId,
    /// Value of the second model.
    pub after: ValueId,
    /// Whether name or computation, and not only position, show that the values should be equal.
    pub is_sure: bool,
}

/// Matches the outputs of the nodes of two main graphs, in the order of the nodes of the first
/// model. Outputs of the graphs are matched by name, else by position.
pub fn match_values(before: ModelWithData<'_>, after: ModelWithData<'_>) -> Vec<MatchedValue> {
    let sides = Side::pair(before, after);
    let [old, new] = &sides;
    let Some(graphs) = GraphPair::new(old.model.main, new.model.main) else { return Vec::new() };
    let mut matching = Matching::new(old, new);
    match_graphs(&mut matching, graphs);
    let mut pairs = Pairs::default();
    let (old_nodes, new_nodes) =
        (&old.model.graph(graphs.before).nodes, &new.model.graph(graphs.after).nodes);
    for (before, after) in matching.pair_outputs(graphs) {
        if is_node_output(old.model, before) && is_node_output(new.model, after) {
            pairs.add(before, after, true);
        }
    }
    let names: [HashMap<usize, ValueId>; 2] =
        [(old, old_nodes), (new, new_nodes)].map(|(side, nodes)| {
            let outputs = nodes.iter().flat_map(|node| side.model.outputs(*node)).flatten();
            outputs.filter_map(|value| Some((side.name(*value)?, *value))).collect()
        });
    let names_hold = do_names_hold(&matching, old_nodes, new_nodes);
    if names_hold {
        for value in old_nodes.iter().flat_map(|node| old.model.outputs(*node)).flatten() {
            let partner = old.name(*value).and_then(|name| names[1].get(&name));
            if let Some(partner) = partner {
                pairs.add(*value, *partner, true);
            }
        }
    }
    for node in old_nodes {
        let Some(partner) = matching.node_after(*node) else { continue };
        let is_sure = matching.compute_equally(*node, partner)
            && old.model.inputs(*node).zip(new.model.inputs(partner)).all(
                |(before, after)| match (before, after) {
                    (Some(before), Some(after)) => {
                        matching.value_after(before) == Some(after)
                            && !matching.is_loose(after)
                            && !pairs.is_unsure(before)
                    }
                    (before, after) => before.is_none() && after.is_none(),
                },
            );
        let outputs = old.model.outputs(*node).iter().zip(new.model.outputs(partner));
        for (before, after) in outputs {
            let (Some(before), Some(after)) = (*before, *after) else { continue };
            // Where names hold, a name of both models stands for one value.
            if names_hold && (has_name(old, before, &names[1]) || has_name(new, after, &names[0])) {
                continue;
            }
            pairs.add(before, after, is_sure);
        }
    }
    let positions: HashMap<ValueId, usize> = old_nodes
        .iter()
        .flat_map(|node| old.model.outputs(*node))
        .flatten()
        .enumerate()
        .map(|(index, value)| (*value, index))
        .collect();
    pairs.list.sort_by_key(|pair| positions.get(&pair.before).copied());
    pairs.list
}

/// Whether a node computes a value.
fn is_node_output(model: &Model, value: ValueId) -> bool {
    matches!(model.value(value).producer, Producer::Node(..))
}

/// Whether a value has one of the names of another graph.
fn has_name(side: &Side<'_>, value: ValueId, others: &HashMap<usize, ValueId>) -> bool {
    side.name(value).is_some_and(|name| others.contains_key(&name))
}

/// Returns the names of the node outputs that a node reads.
fn name_inputs(side: &Side<'_>, node: NodeId) -> Vec<usize> {
    let inputs = side.model.inputs(node).flatten();
    let made = inputs.filter(|value| is_node_output(side.model, *value));
    made.filter_map(|value| side.name(value)).collect()
}

/// Returns the names of the constants that a node reads.
fn name_constants(side: &Side<'_>, node: NodeId) -> Vec<usize> {
    let inputs = side.model.inputs(node).flatten();
    let constants = inputs.filter(|value| side.model.initializer(*value).is_some());
    constants.filter_map(|value| side.name(value)).collect()
}

/// Whether a name that both graphs have mostly stands for the same value. Exporters that number
/// values shift all names behind an inserted node; then operators, or the constants that they read,
/// differ.
fn do_names_hold(matching: &Matching<'_, '_>, old: &[NodeId], new: &[NodeId]) -> bool {
    let (before, after) = (matching.before, matching.after);
    let makers: HashMap<usize, NodeId> = old
        .iter()
        .flat_map(|node| {
            let outputs = before.model.outputs(*node).iter().flatten();
            outputs.filter_map(|value| Some((before.name(*value)?, *node)))
        })
        .collect();
    let (mut agree, mut differ) = (0usize, 0usize);
    for node in new {
        let Some(name) = after.model.outputs(*node).first().copied().flatten() else { continue };
        let Some(maker) = after.name(name).and_then(|name| makers.get(&name)) else { continue };
        if before.callee(*maker) != after.callee(*node) {
            // A node that was fused into its predecessor leaves its name to that node, which reads
            // values from further back. Where names have moved, inputs have the same names.
            let old = name_inputs(before, *maker);
            differ += usize::from(name_inputs(after, *node).iter().any(|name| old.contains(name)));
            continue;
        }
        let (old, new) = (name_constants(before, *maker), name_constants(after, *node));
        if new.iter().any(|name| old.contains(name)) {
            agree += 2;
        } else if !old.is_empty() && old.len() == new.len() {
            differ += 1;
        } else {
            agree += 1;
        }
    }
    agree > differ
}

/// Pairs of values in which each value occurs once.
#[derive(Default)]
struct Pairs {
    list: Vec<MatchedValue>,
    before: HashMap<ValueId, bool>,
    after: HashSet<ValueId>,
}

impl Pairs {
    /// Adds a pair unless one of the values has a partner.
    fn add(&mut self, before: ValueId, after: ValueId, is_sure: bool) {
        if !self.before.contains_key(&before) && self.after.insert(after) {
            self.before.insert(before, is_sure);
            self.list.push(MatchedValue { before, after, is_sure });
        }
    }

    /// Whether a value of the first model has a partner by position alone.
    fn is_unsure(&self, before: ValueId) -> bool {
        self.before.get(&before) == Some(&false)
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_model::NoExternalData;
    use sardonyx_tensor::Buffer;
    use sardonyx_text::{ParseOptions, parse_model};

    use super::*;

    fn parse(text: &str) -> Model {
        let text =
            format!("<ir_version: 10, opset_import: [\"\": 21]> g (float[2] x) => (y) {text}");
        let text = Buffer::from_vec(text.into_bytes());
        parse_model(text, ParseOptions::default()).expect("a model").model
    }

    /// Returns the name of a value.
    fn show(model: &Model, value: ValueId) -> String {
        model.display(Some(model.value(value).name)).into_owned()
    }

    /// Formats the pairs as names; an unsure pair ends with a question mark.
    fn pair(before: &str, after: &str) -> String {
        let models = [parse(before), parse(after)];
        let [old, new] = &models;
        let data = &NoExternalData;
        let pairs =
            match_values(ModelWithData { model: old, data }, ModelWithData { model: new, data });
        let shown = pairs.iter().map(|pair| {
            let mark = if pair.is_sure { "" } else { "?" };
            format!("{}={}{mark}", show(old, pair.before), show(new, pair.after))
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn values_are_matched_by_name_and_by_computation() {
        let chain = "{ a = Exp (x) b = Neg (a) c = Abs (b) y = Sqrt (c) }";
        let rows = [
            (chain, "a=a b=b c=c y=y"),
            // Other names.
            ("{ p = Exp (x) q = Neg (p) r = Abs (q) y = Sqrt (r) }", "a=p b=q c=r y=y"),
            // A node was fused into the next, which keeps the name of its result.
            ("{ b = Exp (x) c = Abs (b) y = Sqrt (c) }", "b=b c=c y=y"),
            // A node with another operator and other names around it.
            ("{ p = Exp (x) q = Ceil (p) r = Abs (q) y = Sqrt (r) }", "a=p c=r? y=y"),
            // A node is inserted, and an exporter has numbered the values again.
            (
                "{ a = Exp (x) b = Ceil (a) c = Neg (b) d = Abs (c) y = Sqrt (d) }",
                "a=a b=c? c=d? y=y",
            ),
        ];
        for (after, expected) in rows {
            assert_eq!(pair(chain, after), expected, "{after}");
        }
    }
}
