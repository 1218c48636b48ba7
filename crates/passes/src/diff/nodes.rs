//! Differences between matched nodes, and nodes without a partner.

use sardonyx_model::{Attribute, AttributeValue, Id, Model, ModelPart, NodeId, ValueId};
use sardonyx_text::{NodeMark, attribute_excerpt, node_excerpt};

use super::constants::{TensorChange, Tensors};
use super::matching::Matching;
use super::side::Side;
use super::{DiffOptions, FieldChange, Fields, GraphPair};
use crate::finding::place_of_node;

/// A node that only one of the graphs has, or that differs.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct NodeChange {
    /// Kind of the change.
    pub kind: NodeChangeKind,
    /// The node of the second graph in words, or of the first if only that has it.
    pub place: String,
    /// The node of the first graph in the textual notation, on one short line.
    pub before: Option<String>,
    /// The node of the second graph in the textual notation, on one short line.
    pub after: Option<String>,
    /// The differences, if both graphs have it.
    pub details: Vec<NodeDetail>,
}

/// Kind of a change of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum NodeChangeKind {
    /// Only the second graph has it.
    Added,
    /// Only the first graph has it.
    Removed,
    /// It computes something else, or from other values.
    Changed,
    /// It or its outputs have other names.
    Renamed,
    /// Documentation, metadata or device annotations differ.
    Annotated,
}

impl NodeChangeKind {
    /// All kinds, in the order in which they are listed.
    pub const ALL: [NodeChangeKind; 5] = [
        NodeChangeKind::Added,
        NodeChangeKind::Removed,
        NodeChangeKind::Changed,
        NodeChangeKind::Renamed,
        NodeChangeKind::Annotated,
    ];

    /// Returns its name, such as `added`.
    pub fn name(self) -> &'static str {
        match self {
            NodeChangeKind::Added => "added",
            NodeChangeKind::Removed => "removed",
            NodeChangeKind::Changed => "changed",
            NodeChangeKind::Renamed => "renamed",
            NodeChangeKind::Annotated => "annotated",
        }
    }
}

/// A difference between two nodes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum NodeDetail {
    /// They call other operators or functions, with the domain unless that is `ai.onnx`.
    Callee {
        /// Callee of the first node.
        before: String,
        /// Callee of the second node.
        after: String,
    },
    /// An attribute differs.
    Attribute {
        /// Its name.
        name: String,
        /// The attribute of the first node in the textual notation, if it has one.
        before: Option<String>,
        /// The attribute of the second node in the textual notation, if it has one.
        after: Option<String>,
        /// Difference between the values, if it is a tensor.
        content: TensorChange,
    },
    /// An input is another value, or only one of the nodes has it.
    Input {
        /// Position.
        index: usize,
        /// Name of the value that the first node reads.
        before: Option<String>,
        /// Name of the value that the second node reads.
        after: Option<String>,
    },
    /// An output has another name, or only one of the nodes has it.
    Output {
        /// Position.
        index: usize,
        /// Name of the first node's value.
        before: Option<String>,
        /// Name of the second node's value.
        after: Option<String>,
    },
    /// Name, documentation, metadata, device annotations or unknown fields differ.
    Field(FieldChange),
}

impl NodeDetail {
    /// Returns the kind of a change with this difference alone.
    fn kind(&self) -> NodeChangeKind {
        match self {
            NodeDetail::Callee { .. } | NodeDetail::Attribute { .. } | NodeDetail::Input { .. } => {
                NodeChangeKind::Changed
            }
            NodeDetail::Output { before: Some(_), after: Some(_), .. } => NodeChangeKind::Renamed,
            NodeDetail::Output { .. } => NodeChangeKind::Changed,
            NodeDetail::Field(change) if change.field == NAME => NodeChangeKind::Renamed,
            NodeDetail::Field(_) => NodeChangeKind::Annotated,
        }
    }
}

/// The field that holds the name of a node.
const NAME: &str = "name";

impl Matching<'_, '_> {
    /// Compares the nodes of two graphs. Returns the pairs of graphs in attributes as well.
    pub(super) fn compare_nodes(
        &self,
        graphs: GraphPair,
        options: DiffOptions,
    ) -> (Vec<NodeChange>, Vec<GraphPair>) {
        let (mut changes, mut inner) = (Vec::new(), Vec::new());
        for node in &self.after.model.graph(graphs.after).nodes {
            match self.node_before(*node) {
                Some(partner) => {
                    changes.extend(self.compare_node(partner, *node, options, &mut inner));
                }
                None => changes.push(describe_node(self.after.model, *node, NodeChangeKind::Added)),
            }
        }
        let old = self.before.model.graph(graphs.before).nodes.iter();
        let gone = old.filter(|node| self.node_after(**node).is_none());
        changes.extend(
            gone.map(|node| describe_node(self.before.model, *node, NodeChangeKind::Removed)),
        );
        (changes, inner)
    }

    fn compare_node(
        &self,
        before: NodeId,
        after: NodeId,
        options: DiffOptions,
        graphs: &mut Vec<GraphPair>,
    ) -> Option<NodeChange> {
        let (old, new) = (self.before, self.after);
        let mut details = Vec::new();
        if old.callee(before) != new.callee(after) {
            details.push(NodeDetail::Callee {
                before: format_callee(old.model, before),
                after: format_callee(new.model, after),
            });
        }
        self.compare_attributes(before, after, options, &mut details, graphs);
        self.compare_operands(before, after, &mut details);
        details.extend(self.compare_node_fields(before, after));
        details.shrink_to_fit();
        let kind = details.iter().map(NodeDetail::kind).min()?;
        Some(NodeChange {
            kind,
            place: place_of_node(new.model, after),
            before: Some(node_excerpt(old.model, before, NodeMark::Whole).line),
            after: Some(node_excerpt(new.model, after, NodeMark::Whole).line),
            details,
        })
    }

    /// Compares names, documentation, metadata, device annotations and unknown fields of two nodes.
    fn compare_node_fields(
        &self,
        before: NodeId,
        after: NodeId,
    ) -> impl Iterator<Item = NodeDetail> {
        let fields = |side: &Side<'_>, node: NodeId| {
            let text = |symbol| side.model.maybe_text(symbol).filter(|text| !text.is_empty());
            let text = |symbol| text(symbol).map(sardonyx_proto::shown);
            let mut fields = Fields::default();
            fields.add(NAME, text(side.model.node(node).name));
            if let Some(extras) = side.model.extras(node) {
                fields.add("doc_string", text(extras.doc_string));
                fields.add_entries(side, &extras.metadata_props);
                let devices = extras.device_configurations.iter().copied();
                fields.add_records(side, "device_configurations", devices);
                fields.add_records(side, "unknown fields", extras.unknown.records());
            }
            fields
        };
        let (old, new) = (self.before, self.after);
        let names = (old.model.node(before).name, new.model.node(after).name);
        let has_extras = old.model.extras(before).is_some() || new.model.extras(after).is_some();
        let is_same = !has_extras && old.number(names.0) == new.number(names.1);
        let changes =
            (!is_same).then(|| fields(old, before).compare(fields(new, after))).into_iter();
        changes.flatten().map(NodeDetail::Field)
    }

    fn compare_operands(&self, before: NodeId, after: NodeId, details: &mut Vec<NodeDetail>) {
        let (old, new) = (self.before, self.after);
        let name = |side: &Side<'_>, value: Option<ValueId>| value.map(|value| side.show(value));
        let mut inputs = (old.model.inputs(before), new.model.inputs(after));
        for index in 0..inputs.0.len().max(inputs.1.len()) {
            let (before, after) = (inputs.0.next().flatten(), inputs.1.next().flatten());
            if !self.are_same(before, after) {
                let (before, after) = (name(old, before), name(new, after));
                details.push(NodeDetail::Input { index, before, after });
            }
        }
        let outputs = (old.model.outputs(before), new.model.outputs(after));
        for index in 0..outputs.0.len().max(outputs.1.len()) {
            let of = |outputs: &[Option<ValueId>]| outputs.get(index).copied().flatten();
            let (before, after) = (of(outputs.0), of(outputs.1));
            let names =
                (before.and_then(|value| old.name(value)), after.and_then(|value| new.name(value)));
            if names.0 != names.1 {
                let (before, after) = (name(old, before), name(new, after));
                details.push(NodeDetail::Output { index, before, after });
            }
        }
    }

    fn compare_attributes(
        &self,
        before: NodeId,
        after: NodeId,
        options: DiffOptions,
        details: &mut Vec<NodeDetail>,
        graphs: &mut Vec<GraphPair>,
    ) {
        let (old, new) = (self.before, self.after);
        let attributes = |side: &Side<'_>, node: NodeId| -> Vec<(Option<usize>, usize)> {
            let ids = side.model.attributes(node).iter();
            let mut attributes: Vec<_> =
                ids.map(|id| (side.number(side.model.attribute(*id).name), id.index())).collect();
            attributes.sort_unstable();
            attributes
        };
        let (mut left, right) = (attributes(old, before), attributes(new, after));
        let line = |side: &Side<'_>, attribute: &Attribute| {
            Some(attribute_excerpt(side.model, attribute).line)
        };
        let name = |side: &Side<'_>, attribute: &Attribute| {
            sardonyx_proto::shown(side.model.maybe_text(attribute.name).unwrap_or_default())
        };
        for (number, id) in right {
            let attribute = new.model.attribute(Id::new(id));
            let partner = left.iter().position(|(other, _)| *other == number);
            let Some(partner) = partner.map(|index| left.remove(index)) else {
                details.push(NodeDetail::Attribute {
                    name: name(new, attribute),
                    before: None,
                    after: line(new, attribute),
                    content: TensorChange::None,
                });
                continue;
            };
            let partner = old.model.attribute(Id::new(partner.1));
            let (is_same, content) = self.compare_attribute(partner, attribute, options, graphs);
            if !is_same {
                details.push(NodeDetail::Attribute {
                    name: name(new, attribute),
                    before: line(old, partner),
                    after: line(new, attribute),
                    content,
                });
            }
        }
        for (_, id) in left {
            let attribute = old.model.attribute(Id::new(id));
            details.push(NodeDetail::Attribute {
                name: name(old, attribute),
                before: line(old, attribute),
                after: None,
                content: TensorChange::None,
            });
        }
    }

    /// Compares two attributes of one name: whether they are the same, and how tensors differ.
    fn compare_attribute(
        &self,
        before: &Attribute,
        after: &Attribute,
        options: DiffOptions,
        graphs: &mut Vec<GraphPair>,
    ) -> (bool, TensorChange) {
        let (old, new) = (self.before, self.after);
        let is_alike = old.number(before.ref_attr_name()) == new.number(after.ref_attr_name())
            && before.values.len() == after.values.len();
        if !is_alike {
            return (false, TensorChange::None);
        }
        let mut content = TensorChange::None;
        let mut tensors = |before: Tensors<'_>, after: Tensors<'_>| {
            let change = self.compare_tensors(before, after, options);
            if content.is_none() {
                content = change;
            }
        };
        for (before, after) in before.values.iter().zip(&after.values) {
            match (before, after) {
                (AttributeValue::Graph(before), AttributeValue::Graph(after)) => {
                    graphs.push(GraphPair { before: *before, after: *after });
                }
                (AttributeValue::Graphs(before), AttributeValue::Graphs(after))
                    if before.len() == after.len() =>
                {
                    let pairs = before.iter().zip(after);
                    graphs.extend(
                        pairs.map(|(before, after)| GraphPair { before: *before, after: *after }),
                    );
                }
                (AttributeValue::Tensor(before), AttributeValue::Tensor(after)) => {
                    tensors(Tensors::Dense(before), Tensors::Dense(after));
                }
                (AttributeValue::Tensors(before), AttributeValue::Tensors(after))
                    if before.len() == after.len() =>
                {
                    for (before, after) in before.iter().zip(after) {
                        tensors(Tensors::Dense(before), Tensors::Dense(after));
                    }
                }
                (AttributeValue::SparseTensor(before), AttributeValue::SparseTensor(after)) => {
                    tensors(Tensors::Sparse(before), Tensors::Sparse(after));
                }
                (AttributeValue::SparseTensors(before), AttributeValue::SparseTensors(after))
                    if before.len() == after.len() =>
                {
                    for (before, after) in before.iter().zip(after) {
                        tensors(Tensors::Sparse(before), Tensors::Sparse(after));
                    }
                }
                _ if value_bytes(old.model, before) != value_bytes(new.model, after) => {
                    return (false, TensorChange::None);
                }
                _ => {}
            }
        }
        (content.is_none(), content)
    }
}

/// Returns a value of an attribute as it is in a file. Floats are compared by their bits.
fn value_bytes(model: &Model, value: &AttributeValue) -> Vec<u8> {
    let attribute =
        Attribute { ty: Some(value.ty()), values: value.clone().into(), ..Attribute::default() };
    model.part_to_bytes(ModelPart::Attribute(&attribute))
}

/// Describes a node that only one of the graphs has.
fn describe_node(model: &Model, node: NodeId, kind: NodeChangeKind) -> NodeChange {
    let line = Some(node_excerpt(model, node, NodeMark::Whole).line);
    let is_added = kind == NodeChangeKind::Added;
    NodeChange {
        kind,
        place: place_of_node(model, node),
        before: line.clone().filter(|_| !is_added),
        after: line.filter(|_| is_added),
        details: Vec::new(),
    }
}

fn format_callee(model: &Model, node: NodeId) -> String {
    let text = |symbol| sardonyx_proto::shown(model.maybe_text(symbol).unwrap_or_default());
    let domain = model.domain_of(node);
    let found = model.node(node);
    let mut words = match &*domain {
        "" => text(found.op_type),
        domain => format!("{}.{}", sardonyx_proto::shown(domain.as_bytes()), text(found.op_type)),
    };
    if !model.is_blank(found.overload) {
        words += &format!(":{}", text(found.overload));
    }
    words
}
