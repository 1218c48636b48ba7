//! Repeated structures: parts of a model that are the same, one after the other.

use std::collections::HashMap;
use std::ops::Range;

use sardonyx::inspect::{NodeInfo, NodeValue, ValueSource};

/// Most nodes of a part that is repeated.
const LONGEST: usize = 500;
/// Fewest nodes of a part that is repeated.
const SHORTEST: usize = 3;

/// Which nodes stand for which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Folds {
    /// The node that stands for each node: itself if it is shown.
    pub(crate) shown_as: Vec<usize>,
    /// For how many nodes each stands.
    pub(crate) repeats: Vec<usize>,
    /// Nodes that are shown in one box, by the first of them. Other nodes have boxes of their own.
    pub(crate) boxes: HashMap<usize, Vec<usize>>,
    /// The first node of the box of each node that is shown.
    first_of_box: Vec<usize>,
    /// Whether the inputs of a box are one box, and its outputs.
    pub(crate) joins_ends: bool,
}

impl Folds {
    /// Nothing is folded.
    pub(crate) fn none(count: usize) -> Folds {
        Folds {
            shown_as: (0..count).collect(),
            repeats: vec![1; count],
            boxes: HashMap::new(),
            first_of_box: (0..count).collect(),
            joins_ends: false,
        }
    }

    /// Folds the inputs of a box into one, and its outputs into one.
    pub(crate) fn with_joined_ends(&self) -> Folds {
        Folds { joins_ends: true, ..self.clone() }
    }

    /// The first node of the box that shows a node.
    pub(crate) fn box_of(&self, node: usize) -> usize {
        self.first_of_box[self.shown_as[node]]
    }

    /// The nodes that are shown, in the order of the graph.
    fn shown<'f>(&'f self, listed: &'f [usize]) -> impl Iterator<Item = usize> + 'f {
        listed.iter().copied().filter(|node| self.shown_as[*node] == *node)
    }

    /// Folds boxes of nodes that follow each other: all that have the same key, those
    /// without one with the nodes before them.
    fn boxed<K: PartialEq>(
        &self,
        listed: &[usize],
        mut key: impl FnMut(usize) -> Option<K>,
    ) -> Folds {
        let mut folds = Folds { boxes: HashMap::new(), ..self.clone() };
        let mut last: Option<(usize, Option<K>)> = None;
        for node in self.shown(listed) {
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

    /// Boxes for the parts that the names of nodes tell, down to a level: `/encoder/layer.0/Add`
    /// stands in `encoder`, and there in `layer.0`. `None` if no name tells one.
    pub(crate) fn by_scopes(
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
        let tells = self.shown(listed).any(|node| scopes(node).is_some());
        tells.then(|| self.boxed(listed, scopes))
    }

    /// At most that many boxes of nodes that follow each other.
    pub(crate) fn by_count(&self, listed: &[usize], most: usize) -> Folds {
        let size = self.shown(listed).count().div_ceil(most.max(1)).max(1);
        let mut seen = 0;
        self.boxed(listed, |_| {
            seen += 1;
            Some((seen - 1) / size)
        })
    }

    /// Folds the longest repetitions first. `listed` are the positions of the nodes that count.
    pub(crate) fn of(nodes: &[NodeInfo], listed: &[usize]) -> Folds {
        let mut folds = Folds::none(nodes.len());
        let sequence = Sequence::new(nodes, listed);
        let mut left: Vec<Range<usize>> = std::iter::once(0..listed.len()).collect();
        while let Some(range) = left.pop() {
            let Some(found) = sequence.best(range.clone()) else { continue };
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

/// The same nodes several times.
struct Repetition {
    start: usize,
    length: usize,
    times: usize,
}

impl Repetition {
    /// How many nodes need not be shown.
    fn saved(&self) -> usize {
        (self.times - 1) * self.length
    }
}

/// Nodes in the order of the graph.
struct Sequence<'n> {
    nodes: Vec<&'n NodeInfo>,
    /// The position of each node of the graph in it.
    position: Vec<Option<usize>>,
}

impl<'n> Sequence<'n> {
    fn new(all: &'n [NodeInfo], listed: &[usize]) -> Sequence<'n> {
        let mut position = vec![None; all.len()];
        listed.iter().enumerate().for_each(|(at, node)| position[*node] = Some(at));
        Sequence { nodes: listed.iter().map(|node| &all[*node]).collect(), position }
    }

    /// The repetition in a range that saves most.
    fn best(&self, range: Range<usize>) -> Option<Repetition> {
        let mut best: Option<Repetition> = None;
        for length in SHORTEST..=LONGEST.min(range.len() / 2) {
            // How many nodes in a row are the same as those that many places later.
            let mut run = 0;
            for at in (range.start..range.end - length).rev() {
                run = if self.is_same(at, at + length) { run + 1 } else { 0 };
                let found = Repetition { start: at, length, times: run / length + 1 };
                let saved = found.saved();
                if saved > best.as_ref().map_or(0, Repetition::saved)
                    || saved > 0
                        && best
                            .as_ref()
                            .is_some_and(|best| best.saved() == saved && best.length == length)
                {
                    best = Some(found);
                }
            }
        }
        best
    }

    /// Whether two nodes do the same to the same: constants or inputs of the graph of the same
    /// type, or what nodes as far before them make.
    fn is_same(&self, one: usize, other: usize) -> bool {
        let (a, b) = (self.nodes[one], self.nodes[other]);
        let same_input = |(a, b): (&Option<NodeValue>, &Option<NodeValue>)| match (a, b) {
            (None, None) => true,
            (Some(a), Some(b)) => self.is_same_input((one, a), (other, b)),
            _ => false,
        };
        a.operator == b.operator
            && a.domain == b.domain
            && a.inputs.len() == b.inputs.len()
            && a.outputs.len() == b.outputs.len()
            && a.inputs.iter().zip(&b.inputs).all(same_input)
            && a.outputs
                .iter()
                .zip(&b.outputs)
                .all(|(a, b)| a.as_ref().map(|a| &a.ty) == b.as_ref().map(|b| &b.ty))
    }

    fn is_same_input(
        &self,
        (one, a): (usize, &NodeValue),
        (other, b): (usize, &NodeValue),
    ) -> bool {
        match (self.maker(a), self.maker(b)) {
            (Some(p), Some(q)) => {
                p == q && a.name == b.name || one.abs_diff(p) == other.abs_diff(q)
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

    /// The position of the node that makes a value, if it counts.
    fn maker(&self, value: &NodeValue) -> Option<usize> {
        match value.source {
            ValueSource::Node(node) => self.position.get(node).copied().flatten(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx::Model;

    /// The shown nodes with how often they are repeated, of a model of text.
    fn folded(nodes: &str) -> Vec<(String, usize)> {
        let text = format!(
            "<ir_version: 10, opset_import: [\"\": 21]>
             g (float[2] x) => (float[2] y) <float[2] w = {{1, 2}}, float[2] v = {{1, 2}}> {{ {nodes} }}"
        );
        let nodes = Model::from_text(&text).unwrap().nodes(None);
        let listed: Vec<usize> = (0..nodes.len()).collect();
        let folds = Folds::of(&nodes, &listed);
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
        let found = folded(&format!("h = Exp (x) {layers} y = Neg (s)"));
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
        let none = Folds::none(nodes.len());
        let boxes = |folds: &Folds| listed.iter().map(|node| folds.box_of(*node)).collect();
        let found: Vec<usize> = boxes(&none.by_scopes(&nodes, &listed, 2).unwrap());
        assert_eq!(found, [0, 0, 2, 2, 4, 4]);
        let found: Vec<usize> = boxes(&none.by_scopes(&nodes, &listed, 1).unwrap());
        assert_eq!(found, [0, 0, 0, 0, 4, 4]);
        let found: Vec<usize> = boxes(&none.by_count(&listed, 4));
        assert_eq!(found, [0, 0, 2, 2, 4, 4]);
        assert!(none.by_scopes(&nodes[5..], &[0], 3).is_none());
    }

    #[test]
    fn what_reads_something_else_is_not_folded() {
        let found = folded(&format!(
            "h = Exp (x) {} aq = Mul (h, w) bq = Relu (aq) cq = Abs (aq) y = Add (cq, h)",
            layer("h", "p")
        ));
        assert!(found.iter().all(|(_, repeats)| *repeats == 1), "{found:?}");
        assert_eq!(found.len(), 9);
    }
}
