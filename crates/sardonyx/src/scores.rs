//! What the numbers of an output are, by the operator that makes them.

use sardonyx_model::{NodeId, Producer, ValueId};

use crate::model::Model;

/// An operator that makes scores of classes comparable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScoreOperator {
    /// Numbers between 0 and 1 that add up to 1 along an axis.
    Softmax,
    /// The logarithms of such numbers.
    LogSoftmax,
    /// Numbers between 0 and 1 that have nothing to do with each other.
    Sigmoid,
}

/// Operators that give their first input back in another form.
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

/// Nodes that are followed: more than any model has at its end, and a bound for graphs with cycles.
const MOST_NODES: usize = 64;

impl Model {
    /// The operator that an output of the main graph ends in, if that is one of scores. Nodes that
    /// only change the form of their input are passed over. Says nothing about the axis: whether
    /// numbers add up to 1 along another one, only they tell.
    pub(crate) fn score_operator(&self, output: &str) -> Option<ScoreOperator> {
        let main = self.graph.main_graph()?;
        let named = |info: &&sardonyx_model::ValueInfo| self.graph.display(info.name) == output;
        let mut value: ValueId = main.outputs.iter().find(named)?.value?;
        for _ in 0..MOST_NODES {
            let Producer::Node(node, 0) = self.graph.value(value).producer else {
                return None;
            };
            let name = self.standard_operator(node)?;
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

    /// The name of the standard's operator that a node calls.
    pub(crate) fn standard_operator(&self, node: NodeId) -> Option<String> {
        let graph = &self.graph;
        let node = graph.node(node);
        let name = graph.display(node.op_type);
        let is_standard = |domain: &str| matches!(domain, "" | "ai.onnx");
        // A function of the model takes the place of an operator of the same name.
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
            assert_eq!(model.score_operator("y"), expected, "{nodes}");
        }
    }
}
