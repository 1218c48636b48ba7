//! Recognises outputs that hold scores of classes, by the operator that computes them.

use sardonyx_model::{NodeId, Producer, ValueId, normalize_domain};

use crate::model::Model;

/// Operator that computes the scores of classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScoreOperator {
    /// Probabilities that sum to 1 along an axis.
    Softmax,
    /// Logarithms of probabilities that sum to 1 along an axis.
    LogSoftmax,
    /// Independent probabilities.
    Sigmoid,
}

/// Operators that only change shape or element type of their first input.
const FORMS: &[&str] = &[
    "Identity",
    "Cast",
    "CastLike",
    "Reshape",
    "Flatten",
    "Squeeze",
    "Unsqueeze",
    "Transpose",
    "Dropout",
];

/// Maximum number of nodes between a graph output and the operator that computes scores: a bound
/// for graphs with cycles, and more than any model has at its end.
const MOST_NODES: usize = 64;

impl Model {
    /// Finds the operator that computes the scores in an output of the main graph; `None` if that
    /// operator computes no scores. Nodes that only change shape or type are skipped. The axis
    /// along which probabilities sum to 1 is not determined.
    pub(crate) fn find_score_operator(&self, output: &str) -> Option<ScoreOperator> {
        let main = self.graph.main_graph()?;
        let mut outputs = main.outputs.iter();
        let output = outputs.find(|info| self.graph.display(info.name) == output)?;
        let mut value: ValueId = output.value?;
        for _ in 0..MOST_NODES {
            let Producer::Node(node, 0) = self.graph.value(value).producer else {
                return None;
            };
            let name = self.find_standard_operator(node)?;
            match name.as_str() {
                "Softmax" => return Some(ScoreOperator::Softmax),
                "LogSoftmax" => return Some(ScoreOperator::LogSoftmax),
                "Sigmoid" | "HardSigmoid" => return Some(ScoreOperator::Sigmoid),
                name if FORMS.contains(&name) => value = self.graph.inputs(node).next()??,
                _ => return None,
            }
        }
        None
    }

    /// Returns the name of the standard operator that a node calls; `None` if the node calls an
    /// operator of another domain or a function.
    pub(crate) fn find_standard_operator(&self, node: NodeId) -> Option<String> {
        let graph = &self.graph;
        let node = graph.node(node);
        let name = graph.display(node.op_type);
        let is_standard = |domain: &str| normalize_domain(domain).is_empty();
        // A function of the model shadows an operator with its name.
        let is_function = graph.functions.iter().any(|function| {
            graph.display(function.name) == name && is_standard(&graph.display(function.domain))
        });
        (is_standard(&graph.display(node.domain)) && !is_function).then(|| name.into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operator_at_the_end_is_found_through_changes_of_form() {
        let rows = [
            ("y = Softmax(x)", Some(ScoreOperator::Softmax)),
            (
                "a = LogSoftmax(x) b = Identity(a) y = Cast<to = 10>(b)",
                Some(ScoreOperator::LogSoftmax),
            ),
            ("a = Sigmoid(x) y = Flatten(a)", Some(ScoreOperator::Sigmoid)),
            ("a = Softmax(x) y = Add(a, a)", None),
            ("y = com.example.Softmax(x)", None),
            ("y = Identity(x)", None),
            ("a = Identity(y) y = Identity(a)", None),
        ];
        for (nodes, expected) in rows {
            let text = format!(
                "<ir_version: 10, opset_import: [\"\": 21]> g (float[2, 3] x) => (y) {{ {nodes} }}"
            );
            let model = Model::from_text(&text).unwrap();
            assert_eq!(model.find_score_operator("y"), expected, "{nodes}");
        }
    }
}
