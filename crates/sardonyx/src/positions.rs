//! Positions of findings in the text from which a model was parsed.

use sardonyx_model::{GraphId, Id, NodeId};
use sardonyx_passes::{Finding, Spot, SpotPart};
use sardonyx_tensor::Buffer;
use sardonyx_text::{DiagnosticSeverity, Position, SyntaxKind, SyntaxTree, syntax_tree};

use crate::model::Model;

/// Returns the line and column of each finding about a model that was parsed from `text` and not
/// changed since. `None` for findings about the model as a whole, and for all findings if the model
/// was parsed from another text.
pub(crate) fn find_positions(
    model: &Model,
    text: &Buffer,
    findings: &[Finding],
) -> Vec<Option<Position>> {
    if findings.is_empty() {
        return Vec::new();
    }
    let (tree, diagnostics) = syntax_tree(text);
    let places = Places::new(&model.graph, &tree);
    let is_other = places.nodes.len() != model.graph.node_count();
    let mut severities = diagnostics.iter().map(|found| found.severity);
    if is_other || severities.any(|severity| severity == DiagnosticSeverity::Error) {
        return findings.iter().map(|_| None).collect();
    }
    let starts = findings.iter().map(|found| places.find_start(found.place.spot));
    starts.map(|start| Some(Position::of(text.as_slice(), start?))).collect()
}

/// Syntax nodes of an ONNX text by the ids of the nodes, graphs and functions of the model. The
/// parser assigns ids in the order in which nodes, graphs and functions begin in the text.
struct Places<'t> {
    model: &'t sardonyx_model::Model,
    tree: &'t SyntaxTree,
    /// Syntax nodes of the model's nodes.
    nodes: Vec<usize>,
    /// Syntax nodes of graphs and functions, as both have a `GraphId`.
    graphs: Vec<usize>,
    /// Syntax nodes of functions.
    functions: Vec<usize>,
}

impl Places<'_> {
    /// Indexes the syntax nodes of a text.
    fn new<'t>(model: &'t sardonyx_model::Model, tree: &'t SyntaxTree) -> Places<'t> {
        let functions = find_parts_of_kinds(tree, &[SyntaxKind::Function]);
        Places {
            model,
            tree,
            nodes: find_parts_of_kinds(tree, &[SyntaxKind::Node]),
            graphs: find_parts_of_kinds(tree, &[SyntaxKind::Graph, SyntaxKind::Function]),
            functions,
        }
    }

    /// Returns the offset in bytes at which the syntax node of a finding's spot begins; `None` for
    /// the model as a whole.
    fn find_start(&self, spot: Spot) -> Option<usize> {
        let index = spot.index.map_or(0, |index| index as usize);
        let part = match spot.part {
            SpotPart::Node(id) => {
                let node = *self.nodes.get(id.index())?;
                self.find_in_node(id, node, spot.field, index).unwrap_or(node)
            }
            SpotPart::Graph(id) => {
                let graph = *self.graphs.get(id.index())?;
                self.find_in_graph(id, graph, spot.field, index).unwrap_or(graph)
            }
            SpotPart::Function(position) => {
                let id = self.model.functions.get(position)?.body;
                let function = *self.functions.get(position)?;
                self.find_in_graph(id, function, spot.field, index).unwrap_or(function)
            }
            SpotPart::Model => self.find_in_model(spot.field, index)?,
            SpotPart::Document | SpotPart::Training(_) => return None,
        };
        Some(self.tree.parts()[part].span.start)
    }

    /// Returns the direct children of a syntax node that have a kind.
    fn list_children(&self, part: usize, kind: SyntaxKind) -> impl Iterator<Item = usize> {
        let children = self.tree.children(part);
        children.filter(move |child| self.tree.parts()[*child].kind == kind)
    }

    /// Returns the syntax node of a field of a model node; `None` if it cannot be determined.
    fn find_in_node(&self, id: NodeId, node: usize, field: &str, index: usize) -> Option<usize> {
        let count = |kind| self.list_children(node, kind).count();
        match field {
            "attribute" => self.list_children(node, SyntaxKind::Attribute).nth(index),
            // An omitted input between two commas has no syntax node, which would shift the
            // indices.
            "input" if count(SyntaxKind::Reference) == self.model.inputs(id).len() => {
                self.list_children(node, SyntaxKind::Reference).nth(index)
            }
            // The label before the outputs is a definition too.
            "name" => self.list_children(node, SyntaxKind::Definition).next(),
            "output" => {
                let name = self.model.display(self.model.node(id).name);
                let labels = usize::from(!name.is_empty());
                let outputs = self.model.outputs(id).len();
                let is_whole = count(SyntaxKind::Definition) == labels + outputs;
                let mut definitions = self.list_children(node, SyntaxKind::Definition);
                is_whole.then(|| definitions.nth(labels + index)).flatten()
            }
            "op_type" | "domain" | "overload" => {
                self.list_children(node, SyntaxKind::Callee).next()
            }
            _ => None,
        }
    }

    /// Returns the syntax node of a field of a graph or function; `None` if it cannot be
    /// determined.
    fn find_in_graph(&self, id: GraphId, graph: usize, field: &str, index: usize) -> Option<usize> {
        let has_values =
            |part: &usize| self.list_children(*part, SyntaxKind::Values).next().is_some();
        let found = self.model.graph(id);
        let (inputs, outputs) = (found.inputs.len(), found.outputs.len());
        // One list holds the inputs, then the outputs, then types and constants.
        let mut values = self.list_children(graph, SyntaxKind::ValueInfo);
        match field {
            "name" => self.list_children(graph, SyntaxKind::Definition).next(),
            "input" => values.nth(index),
            "output" => values.nth(inputs + index),
            "value_info" if self.tree.parts()[graph].kind == SyntaxKind::Graph => {
                let after = values.skip(inputs + outputs);
                after.filter(|part| !has_values(part)).nth(index)
            }
            "initializer" => values.filter(has_values).nth(index),
            "sparse_initializer" => self.list_children(graph, SyntaxKind::SparseTensor).nth(index),
            "opset_import" => {
                let header = self.list_children(graph, SyntaxKind::Header).next()?;
                self.list_children(header, SyntaxKind::OperatorSet).nth(index)
            }
            _ => None,
        }
    }

    /// Returns the syntax node of a field of the model; `None` if it cannot be determined.
    fn find_in_model(&self, field: &str, index: usize) -> Option<usize> {
        let header = self.list_children(0, SyntaxKind::Header).next()?;
        match field {
            "" => None,
            "opset_import" => {
                self.list_children(header, SyntaxKind::OperatorSet).nth(index).or(Some(header))
            }
            "functions" => self.functions.get(index).copied(),
            _ => Some(header),
        }
    }
}

/// Returns the indices of the syntax nodes of some kinds, in the order of the text.
fn find_parts_of_kinds(tree: &SyntaxTree, kinds: &[SyntaxKind]) -> Vec<usize> {
    let parts = tree.parts().iter().enumerate();
    parts.filter(|(_, part)| kinds.contains(&part.kind)).map(|(index, _)| index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Model, check};

    #[test]
    fn findings_have_positions_in_the_text() {
        let text = "<ir_version: 10, opset_import: [\"\": 21]>\n\
            g (float[N] x) => (float[N] y, float[N] z)\n\
            <float[2] \"w\" = {1, 2}>\n\
            {\n\
            \x20 [first] a = Relu(missing)\n\
            \x20 b = If<then_branch = t () => (c) {\n\
            \x20   c = Relu<odd = 1>(a)\n\
            \x20 }>(x)\n\
            \x20 a, y = Splti(a, \"é\", b)\n\
            }\n";
        let model = Model::from_text(text).unwrap();
        let report = model.check(&check::CheckOptions::new());
        let text = Buffer::from_vec(text.into());
        let found = find_positions(&model, &text, &report.findings);
        let mut lines: Vec<(&str, Option<(usize, usize)>)> = report
            .findings
            .iter()
            .zip(&found)
            .map(|(finding, found)| {
                let place = found.map(|found| (found.line, found.column));
                (finding.code.name, place)
            })
            .collect();
        lines.sort_unstable();
        let expected = [
            ("undefined-value", Some((5, 20))),
            ("unknown-attribute", Some((7, 14))),
            ("unknown-operator", Some((9, 10))),
        ];
        for row in expected {
            assert!(lines.contains(&row), "{row:?} is not among {lines:?}");
        }
        let second = report
            .findings
            .iter()
            .zip(&found)
            .find(|(finding, _)| finding.place.path == "graph.node[2].input[1]");
        let second = second.and_then(|(_, found)| *found);
        assert_eq!(second.map(|found| (found.line, found.column)), Some((9, 19)));
        // A text of another model has no positions.
        let other = Buffer::from_vec(b"no model".to_vec());
        assert!(find_positions(&model, &other, &report.findings).iter().all(Option::is_none));
    }
}
