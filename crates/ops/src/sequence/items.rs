//! Loops that make a sequence item by item, as nodes of a graph.

use sardonyx_model::{
    AttrValue, GraphId, NodeBuilder, NodeId, ShapeProto, TypeKind, TypeProto, Unknowns, ValueId,
};
use sardonyx_tensor::{Bool8, DataType, Tensor};

use crate::gradient::scalar;

/// Tensor that is made for each item of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PerItem {
    /// Zeros of a type, in the shape of the item.
    Zeros(DataType),
    /// Sum of the items at one position of all sequences, of a type.
    Sum(DataType),
    /// Size of an axis, as a vector.
    Size {
        /// Axis, counted from the end if negative.
        axis: i64,
    },
}

/// Nodes that make a sequence.
#[derive(Debug)]
pub struct MadeSequence {
    /// All nodes, including those in inner graphs.
    pub nodes: Vec<NodeId>,
    /// Sequence that the nodes make.
    pub sequence: ValueId,
}

impl PerItem {
    /// Returns the element type of the tensors.
    pub(crate) fn elem(self) -> DataType {
        match self {
            PerItem::Zeros(elem) | PerItem::Sum(elem) => elem,
            PerItem::Size { .. } => DataType::Int64,
        }
    }
}

/// Makes nodes before the anchor of `build` that compute a sequence with a tensor for each item of
/// `sequences`, which have equal lengths.
pub fn make_per_item(
    build: &mut NodeBuilder<'_>,
    sequences: &[ValueId],
    what: PerItem,
) -> MadeSequence {
    let first = sequences.first().copied();
    let (length, count) = build.before("SequenceLength", "", &[first], &[]);
    let dtype = [("dtype", AttrValue::Int(what.elem().number().into()))];
    let (empty, none) = build.before("SequenceEmpty", "", &[], &dtype);
    let yes = build.constant("true", &Tensor::scalar(Bool8::from(true)));
    let zero = match what {
        PerItem::Zeros(elem) => Some(build.constant("zero", &scalar(elem, 0.0))),
        PerItem::Sum(_) | PerItem::Size { .. } => None,
    };
    let inputs = [Some(count), Some(yes), Some(none)];
    let (node, sequence) = build.before("Loop", "", &inputs, &[]);
    let mut nodes = vec![length, empty, node];
    nodes.extend(append_in_body(build, node, |build, body, number| {
        let mut make = |op: &str, inputs: &[ValueId], attributes: &[(&str, i64)]| {
            let inputs: Vec<Option<ValueId>> = inputs.iter().copied().map(Some).collect();
            let node = build.inside(body, op, "", &inputs, 1);
            for (name, value) in attributes {
                build.model_mut().set_attribute(node, name, *value);
            }
            output_of(build, node)
        };
        let items: Vec<ValueId> = sequences
            .iter()
            .map(|sequence| make("SequenceAt", &[*sequence, number], &[]))
            .collect();
        match what {
            PerItem::Zeros(_) => {
                let sizes = make("Shape", &items, &[]);
                let inputs: Vec<ValueId> = zero.into_iter().chain([sizes]).collect();
                make("Expand", &inputs, &[])
            }
            PerItem::Sum(_) => make("Sum", &items, &[]),
            PerItem::Size { axis } => {
                let end = (axis != -1).then_some(("end", axis + 1));
                let attributes: Vec<(&str, i64)> =
                    std::iter::once(("start", axis)).chain(end).collect();
                make("Shape", &items, &attributes)
            }
        }
    }));
    MadeSequence { nodes, sequence }
}

/// Gives a `Loop` that carries one sequence a body that appends a tensor, which `item` makes from
/// the number of the iteration. Returns the nodes of the body.
pub fn append_in_body(
    build: &mut NodeBuilder<'_>,
    node: NodeId,
    item: impl FnOnce(&mut NodeBuilder<'_>, GraphId, ValueId) -> ValueId,
) -> Vec<NodeId> {
    let model = build.model_mut();
    let body = model.add_inner_graph(node, "body");
    model.set_attribute(node, "body", AttrValue::Graph(body));
    let mut input = |name, elem: Option<DataType>| {
        let value = model.add_graph_input(body, name);
        // Some runtimes require shapes of these inputs.
        let ty = elem.map(scalar_type);
        if let Some(info) = model.graph_mut(body).inputs.last_mut() {
            info.ty = ty;
        }
        value
    };
    let number = input("number", Some(DataType::Int64));
    let goes_on = input("condition", Some(DataType::Bool));
    let so_far = input("items", None);
    let item = item(build, body, number);
    let again = build.inside(body, "Identity", "", &[Some(goes_on)], 1);
    let grown = build.inside(body, "SequenceInsert", "", &[Some(so_far), Some(item)], 1);
    for node in [again, grown] {
        let output = output_of(build, node);
        build.model_mut().add_graph_output(body, output);
    }
    build.model().graph(body).nodes.clone()
}

/// Declares a scalar.
fn scalar_type(elem: DataType) -> TypeProto {
    let (elem_type, shape) = (Some(elem.number()), Some(ShapeProto::default()));
    TypeProto {
        kind: Some(TypeKind::Tensor { elem_type, shape, unknown: Unknowns::default() }),
        ..TypeProto::default()
    }
}

/// Returns the output of a node with one output.
fn output_of(build: &NodeBuilder<'_>, node: NodeId) -> ValueId {
    let output = build.model().outputs(node).first().copied().flatten();
    output.expect("the node has one output")
}
