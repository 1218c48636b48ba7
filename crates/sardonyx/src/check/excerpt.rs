//! Excerpts of a model for findings.

use std::ops::Range;

use sardonyx_passes::{Finding, SpotPart};
use sardonyx_text::{Excerpt, NodeMark, node_excerpt, tensor_excerpt, value_excerpt};

use crate::model::Model;

/// Prints the node, value or tensor that a finding is about as one line of ONNX text, with the
/// range of bytes to underline. `None` for findings about a function or the model as a whole.
pub(crate) fn extract_excerpt(model: &Model, finding: &Finding) -> Option<(String, Range<usize>)> {
    let graph = &model.graph;
    let spot = finding.place.spot;
    let index = spot.index.map(|index| index as usize);
    let Excerpt { line, mark } = match spot.part {
        SpotPart::Node(node) => {
            let mark = match (spot.field, index) {
                ("input", Some(index)) if index < graph.inputs(node).len() => {
                    NodeMark::Input(index)
                }
                ("output", Some(index)) if index < graph.outputs(node).len() => {
                    NodeMark::Output(index)
                }
                ("attribute", Some(index)) => NodeMark::Attribute(index),
                ("name", _) => NodeMark::Name,
                ("op_type" | "domain" | "overload", _) => NodeMark::Callee,
                _ => NodeMark::Whole,
            };
            node_excerpt(graph, node, mark)
        }
        SpotPart::Graph(id) => {
            let found = graph.graph(id);
            let index = index?;
            match spot.field {
                "input" => value_excerpt(graph, found.inputs.get(index)?),
                "output" => value_excerpt(graph, found.outputs.get(index)?),
                "value_info" => value_excerpt(graph, found.value_info.get(index)?),
                "initializer" => tensor_excerpt(graph, &found.initializers.get(index)?.tensor),
                _ => return None,
            }
        }
        SpotPart::Function(_) | SpotPart::Model | SpotPart::Document | SpotPart::Training(_) => {
            return None;
        }
    };
    Some((line, mark))
}
