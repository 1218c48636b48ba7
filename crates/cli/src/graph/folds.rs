//! Finds consecutive parts of a model that repeat, and groups nodes into boxes.

use std::collections::HashMap;
use std::ops::Range;

use sardonyx::inspect::{NodeInfo, NodeValue, ValueSource};

/// Maximum number of nodes in a repeated part of a graph.
const LONGEST: usize = 500;
/// Minimum number of nodes in a repeated part of a graph.
const SHORTEST: usize = 3;

/// Assignment of nodes to the boxes of a picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Folds {
    /// Node that represents each node in the picture: the node itself, or its counterpart in the
    /// first repetition.
    pub(crate) shown_as: Vec<usize>,
    /// Number of nodes that each node represents in the picture.
    pub(crate) repeats: Vec<usize>,
    /// Nodes that share a box, by the first of these nodes. Boxes with a single node are omitted.
    pub(crate) boxes: HashMap<usize, Vec<usize>>,
    /// First node in the box of each node that is shown.
    first_of_box: Vec<usize>,
    /// Whether all model inputs of a box share one vertex, and all model outputs another.
    pub(crate) joins_ends: bool,
}

impl Folds {
    /// Creates an assignment that gives each of `count` nodes a box of its own.
    pub(crate) fn new(count: usize) -> Folds {
        Folds {
            shown_as: (0..count).collect(),
            repeats: vec![1; count],
            boxes: HashMap::new(),
            first_of_box: (0..count).collect(),
            joins_ends: false,
        }
    }

    /// Returns a copy that joins the model inputs of each box into one vertex, and the model
    /// outputs into another.
    pub(crate) fn join_ends(&self) -> Folds {
        Folds { joins_ends: true, ..self.clone() }
    }

    /// Returns the first node in the box that shows `node`.
    pub(crate) fn find_box(&self, node: usize) -> usize {
        self.first_of_box[self.shown_as[node]]
    }

    /// Returns the nodes of `listed` that represent themselves, which no other repetition hides.
    fn filter_shown_nodes<'f>(&'f self, listed: &'f [usize]) -> impl Iterator<Item = usize> + 'f {
        listed.iter().copied().filter(|node| self.shown_as[*node] == *node)
    }

    /// Groups consecutive nodes of `listed` with equal keys into boxes. A node without a key goes
    /// into the box of the node before it.
    fn group_by_key<K: PartialEq>(
        &self,
        listed: &[usize],
        mut key: impl FnMut(usize) -> Option<K>,
    ) -> Folds {
        let mut folds = Folds { boxes: HashMap::new(), ..self.clone() };
        let mut last: Option<(usize, Option<K>)> = None;
        for node in self.filter_shown_nodes(listed) {
            let own = key(node);
            let first = match last.take() {
                Some((first, of)) if own.is_none() || of.is_none() || of == own => {
                    last = Some((first, of.or(own)));
                    first
                }
                _ => {
                    last = Some((node, own));
                    node
                }
            };
            folds.first_of_box[node] = first;
            folds.boxes.entry(first).or_default().push(node);
        }
        folds.boxes.retain(|_, nodes| nodes.len() > 1);
        folds
    }

    /// Groups consecutive nodes by the first `level` scopes of their names: the scopes of
    /// `/encoder/layer.0/Add` are `encoder` and `layer.0`. Returns `None` if no name has a scope.
    pub(crate) fn group_by_scopes(
        &self,
        nodes: &[NodeInfo],
        listed: &[usize],
        level: usize,
    ) -> Option<Folds> {
        let scopes = |node: usize| -> Option<Vec<&str>> {
            let parts = nodes[node].name.split('/').filter(|part| !part.is_empty());
            let mut parts: Vec<&str> = parts.collect();
            parts.pop()?;
            parts.truncate(level);
            (!parts.is_empty()).then_some(parts)
        };
        let has_scopes = self.filter_shown_nodes(listed).any(|node| scopes(node).is_some());
        has_scopes.then(|| self.group_by_key(listed, scopes))
    }

    /// Groups consecutive nodes into at most `most` boxes of equal size.
    pub(crate) fn group_by_count(&self, listed: &[usize], most: usize) -> Folds {
        let size = self.filter_shown_nodes(listed).count().div_ceil(most.max(1)).max(1);
        let mut seen = 0;
        self.group_by_key(listed, |_| {
            seen += 1;
            Some((seen - 1) / size)
        })
    }

    /// Finds repeated parts of the graph among the nodes at the indices `listed`, and shows only
    /// the first repetition of each part. Parts whose repetitions hide most nodes are folded first.
    pub(crate) fn from_nodes(nodes: &[NodeInfo], listed: &[usize]) -> Folds {
        let mut folds = Folds::new(nodes.len());
        let sequence = Sequence::new(nodes, listed);
        let mut left: Vec<Range<usize>> = std::iter::once(0..listed.len()).collect();
        while let Some(range) = left.pop() {
            let Some(found) = sequence.find_best_repetition(range.clone()) else { continue };
            for block in 1..found.times {
                for at in found.start..found.start + found.length {
                    let shown = listed[at];
                    folds.shown_as[listed[at + block * found.length]] = shown;
                    folds.repeats[shown] = found.times;
                }
            }
            left.push(range.start..found.start);
            left.push(found.start + found.times * found.length..range.end);
        }
        folds
    }
}

/// Part of a [`Sequence`] that repeats several times without a gap.
struct Repetition {
    /// Position of the first repetition in the sequence.
    start: usize,
    /// Number of nodes in one repetition.
    length: usize,
    /// Number of repetitions.
    times: usize,
}

impl Repetition {
    /// Returns the number of nodes that are hidden if only the first repetition is shown.
    fn count_hidden_nodes(&self) -> usize {
        (self.times - 1) * self.length
    }
}

/// Nodes to search for repetitions, in the order of the graph.
struct Sequence<'n> {
    nodes: Vec<&'n NodeInfo>,
    /// Position in `nodes` of each node of the graph.
    position: Vec<Option<usize>>,
}

impl<'n> Sequence<'n> {
    /// Creates the sequence of the nodes of the graph at the indices `listed`.
    fn new(all: &'n [NodeInfo], listed: &[usize]) -> Sequence<'n> {
        let mut position = vec![None; all.len()];
        listed.iter().enumerate().for_each(|(at, node)| position[*node] = Some(at));
        Sequence { nodes: listed.iter().map(|node| &all[*node]).collect(), position }
    }

    /// Finds the repeated part in a range of the sequence whose repetitions hide most nodes; `None`
    /// if no part repeats.
    fn find_best_repetition(&self, range: Range<usize>) -> Option<Repetition> {
        let mut best: Option<Repetition> = None;
        for length in SHORTEST..=LONGEST.min(range.len() / 2) {
            // Number of consecutive nodes that equal those `length` positions later.
            let mut run = 0;
            for at in (range.start..range.end - length).rev() {
                run = if self.is_same(at, at + length) { run + 1 } else { 0 };
                let found = Repetition { start: at, length, times: run / length + 1 };
                let hidden = found.count_hidden_nodes();
                if hidden > best.as_ref().map_or(0, Repetition::count_hidden_nodes)
                    || hidden > 0
                        && best.as_ref().is_some_and(|best| {
                            best.count_hidden_nodes() == hidden && best.length == length
                        })
                {
                    best = Some(found);
                }
            }
        }
        best
    }

    /// Whether two nodes have equal operators, output types and inputs, as [`Self::is_same_input`]
    /// compares inputs.
    fn is_same(&self, one: usize, other: usize) -> bool {
        let (a, b) = (self.nodes[one], self.nodes[other]);
        let mut inputs = a.inputs.iter().zip(&b.inputs);
        a.operator == b.operator
            && a.domain == b.domain
            && a.inputs.len() == b.inputs.len()
            && a.outputs.len() == b.outputs.len()
            && inputs.all(|(a, b)| match (a, b) {
                (None, None) => true,
                (Some(a), Some(b)) => self.is_same_input(
                    NodeInput { reader: one, value: a },
                    NodeInput { reader: other, value: b },
                ),
                _ => false,
            })
            && a.outputs
                .iter()
                .zip(&b.outputs)
                .all(|(a, b)| a.as_ref().map(|a| &a.ty) == b.as_ref().map(|b| &b.ty))
    }

    /// Whether two nodes read one value, constants or model inputs of equal type, or results of
    /// nodes at the same distance before the reader.
    fn is_same_input(&self, one: NodeInput<'_>, other: NodeInput<'_>) -> bool {
        let (a, b) = (one.value, other.value);
        match (self.find_maker(a), self.find_maker(b)) {
            (Some(p), Some(q)) => {
                p == q && a.name == b.name || one.reader.abs_diff(p) == other.reader.abs_diff(q)
            }
            (None, None) => {
                let kind = |value: &NodeValue| match value.source {
                    ValueSource::Initializer | ValueSource::Node(_) => 1,
                    ValueSource::Input => 2,
                    _ => 3,
                };
                a.name == b.name || kind(a) < 3 && kind(a) == kind(b) && a.ty == b.ty
            }
            _ => false,
        }
    }

    /// Returns the position in the sequence of the node that computes a value; `None` if the
    /// sequence has no such node.
    fn find_maker(&self, value: &NodeValue) -> Option<usize> {
        match value.source {
            ValueSource::Node(node) => self.position.get(node).copied().flatten(),
            _ => None,
        }
    }
}

/// Value that a node of a [`Sequence`] reads.
#[derive(Clone, Copy)]
struct NodeInput<'n> {
    /// Position of the node in the sequence.
    reader: usize,
    value: &'n NodeValue,
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx::Model;

    /// Folds the model that a text of nodes describes. Returns the operators of the shown nodes,
    /// each with its number of repetitions.
    fn fold_text(nodes: &str) -> Vec<(String, usize)> {
        let text = format!(
            "<ir_version: 10, opset_import: [\"\": 21]>
             g (float[2] x) => (float[2] y) <float[2] w = {{1, 2}}, float[2] v = {{1, 2}}> {{ {nodes} }}"
        );
        let nodes = Model::from_text(&text).unwrap().nodes(None);
        let listed: Vec<usize> = (0..nodes.len()).collect();
        let folds = Folds::from_nodes(&nodes, &listed);
        let shown = listed.iter().filter(|node| folds.shown_as[**node] == **node);
        shown.map(|node| (nodes[*node].operator.clone(), folds.repeats[*node])).collect()
    }

    fn layer(from: &str, to: &str) -> String {
        format!(
            "a{to} = Mul ({from}, w) b{to} = Relu (a{to}) c{to} = Abs (b{to}) {to} = Add (c{to}, {from})"
        )
    }

    #[test]
    fn layers_are_folded_wherever_they_begin() {
        let layers = [layer("h", "p"), layer("p", "q"), layer("q", "r"), layer("r", "s")].join(" ");
        let found = fold_text(&format!("h = Exp (x) {layers} y = Neg (s)"));
        let shown: Vec<(&str, usize)> =
            found.iter().map(|(name, repeats)| (name.as_str(), *repeats)).collect();
        let expected = [("Exp", 1), ("Mul", 4), ("Relu", 4), ("Abs", 4), ("Add", 4), ("Neg", 1)];
        assert_eq!(shown, expected);
    }

    #[test]
    fn nodes_that_follow_each_other_share_boxes() {
        let text = "<ir_version: 10, opset_import: [\"\": 21]>
             g (float[2] x) => (float[2] y) {
                [\"/e/l.0/Neg\"] a = Neg (x) b = Exp (a) [\"/e/l.1/Abs\"] c = Abs (b)
                [\"/e/l.1/Neg\"] d = Neg (c) [\"/d/Exp\"] e = Exp (d) [\"top\"] y = Abs (e) }";
        let nodes = Model::from_text(text).unwrap().nodes(None);
        let listed: Vec<usize> = (0..nodes.len()).collect();
        let none = Folds::new(nodes.len());
        let boxes = |folds: &Folds| listed.iter().map(|node| folds.find_box(*node)).collect();
        let found: Vec<usize> = boxes(&none.group_by_scopes(&nodes, &listed, 2).unwrap());
        assert_eq!(found, [0, 0, 2, 2, 4, 4]);
        let found: Vec<usize> = boxes(&none.group_by_scopes(&nodes, &listed, 1).unwrap());
        assert_eq!(found, [0, 0, 0, 0, 4, 4]);
        let found: Vec<usize> = boxes(&none.group_by_count(&listed, 4));
        assert_eq!(found, [0, 0, 2, 2, 4, 4]);
        assert!(none.group_by_scopes(&nodes[5..], &[0], 3).is_none());
    }

    #[test]
    fn nodes_that_read_other_values_are_not_folded() {
        let found = fold_text(&format!(
            "h = Exp (x) {} aq = Mul (h, w) bq = Relu (aq) cq = Abs (aq) y = Add (cq, h)",
            layer("h", "p")
        ));
        assert!(found.iter().all(|(_, repeats)| *repeats == 1), "{found:?}");
        assert_eq!(found.len(), 9);
    }
}
