//! Removal of sequences that are read at constant positions only: readers use the tensors that the
//! sequence consists of.
//!
//! Exporters write the split of a product into queries, keys and values as a sequence and its
//! elements. A sequence has no gradient and cannot move between devices; the parts of a `Split`
//! have and can. So a `SplitToSequence` whose parts have known sizes becomes a `Split`, and a
//! `SequenceAt` becomes the `Identity` of one of its outputs, or its `Squeeze` where the parts lose
//! the axis. A `SequenceAt` of a `SequenceConstruct` becomes the `Identity` of one of the inputs.
//! `SequenceLength` becomes the `Identity` of a constant. All values keep their names.
//!
//! A sequence stays if a node of another kind reads it, if a graph returns it, or if it is read at
//! an unknown or invalid position. Its errors are reported for the nodes of the file.

use sardonyx_model::{AttrValue, Attributes, Dim, NodeAttributes, NodeId, ValueId};
use sardonyx_ops::OpDef;
use sardonyx_ops::operators::{
    IDENTITY, SEQUENCE_AT, SEQUENCE_CONSTRUCT, SEQUENCE_LENGTH, SPLIT, SPLIT_TO_SEQUENCE, SQUEEZE,
};
use sardonyx_tensor::Tensor;

use crate::infer::Inference;
use crate::resolve::Resolved;

/// Most parts into which a tensor is split. Sequences of more parts are usually steps in time,
/// which loops read.
const MOST_PARTS: usize = 1024;

/// Removes sequences that are read at constant positions only, in all graphs. Returns their number.
/// Nodes that make or read them have the newest forms of their operators afterwards. `inference`
/// may lack values that were made since.
pub fn unpack_sequences(resolved: &mut Resolved, inference: &Inference) -> usize {
    let model = resolved.model();
    // Most models do not use these operators.
    let makers = [&SPLIT_TO_SEQUENCE, &SEQUENCE_CONSTRUCT];
    if makers.iter().all(|op| model.symbol(op.name.as_bytes()).is_none()) {
        return 0;
    }
    let graphs = resolved.graphs().iter();
    let nodes = graphs.flat_map(|graph| resolved.order_of(*graph)).copied();
    let makes = |node: &NodeId| makers.iter().any(|op| resolved.is(*node, op));
    let nodes: Vec<NodeId> = nodes.filter(makes).collect();
    let mut count = 0;
    for node in nodes {
        if let Some(found) = Unpacked::of(resolved, inference, node) {
            found.apply(resolved, node);
            count += 1;
        }
    }
    resolved.place_made();
    count
}

/// Elements of a sequence.
enum Elements {
    /// Tensors that a node reads.
    Tensors(Vec<ValueId>),
    /// Parts of a tensor.
    Parts {
        of: ValueId,
        sizes: Vec<i64>,
        axis: i64,
        /// Whether an element has the axis along which the tensor is split.
        keeps_axis: bool,
    },
}

impl Elements {
    fn len(&self) -> usize {
        match self {
            Elements::Tensors(tensors) => tensors.len(),
            Elements::Parts { sizes, .. } => sizes.len(),
        }
    }
}

/// Sequence that is to be removed, with its readers.
struct Unpacked {
    elements: Elements,
    /// Nodes that read an element, with its position from the front.
    elements_read: Vec<(NodeId, usize)>,
    /// Nodes that read the length.
    lengths_read: Vec<NodeId>,
}

impl Unpacked {
    fn of(resolved: &Resolved, inference: &Inference, node: NodeId) -> Option<Unpacked> {
        let model = resolved.model();
        let [Some(sequence)] = *model.outputs(node) else { return None };
        if model.value(sequence).is_output {
            return None;
        }
        let elements = if resolved.is(node, &SEQUENCE_CONSTRUCT) {
            let tensors: Vec<ValueId> = model.inputs(node).collect::<Option<_>>()?;
            // The node would refuse tensors of several types.
            let elem = |value: &ValueId| inference.ty(*value)?.elem();
            let first = elem(tensors.first()?)?;
            tensors.iter().all(|value| elem(value) == Some(first)).then_some(())?;
            Elements::Tensors(tensors)
        } else {
            find_parts(resolved, inference, node)?
        };
        let (mut elements_read, mut lengths_read) = (Vec::new(), Vec::new());
        let length = i64::try_from(elements.len()).ok()?;
        for (reader, _) in model.uses(sequence) {
            if resolved.is(reader, &SEQUENCE_LENGTH) {
                lengths_read.push(reader);
                continue;
            }
            let position = model.inputs(reader).nth(1).flatten();
            let position = position.filter(|_| resolved.is(reader, &SEQUENCE_AT))?;
            let [position] = ints(inference, position)?[..] else { return None };
            let index = if position < 0 { position.checked_add(length)? } else { position };
            let index = usize::try_from(index).ok().filter(|index| *index < elements.len())?;
            elements_read.push((reader, index));
        }
        let is_read = !(elements_read.is_empty() && lengths_read.is_empty());
        is_read.then_some(Unpacked { elements, elements_read, lengths_read })
    }

    fn apply(self, resolved: &mut Resolved, node: NodeId) {
        let Unpacked { elements, elements_read, lengths_read } = self;
        let length = Tensor::scalar(elements.len() as i64);
        for reader in lengths_read {
            let length = resolved.build(reader).constant("length", &length);
            turn_into(resolved, reader, &IDENTITY, &[Some(length)]);
        }
        match elements {
            Elements::Tensors(tensors) => {
                for (reader, index) in elements_read {
                    turn_into(resolved, reader, &IDENTITY, &[Some(tensors[index])]);
                }
                let (model, made, _) = resolved.parts_mut();
                made.remove(model, node);
            }
            Elements::Parts { of, sizes, axis, keeps_axis } => {
                let count = sizes.len();
                let sizes = Tensor::from_vec([count], sizes).expect("a vector has its length");
                let sizes = resolved.build(node).constant("split", &sizes);
                let model = resolved.model_mut();
                model.drop_output(node, 0);
                turn_into(resolved, node, &SPLIT, &[Some(of), Some(sizes)]);
                let model = resolved.model_mut();
                model.set_attribute(node, "axis", AttrValue::Int(axis));
                model.fill_outputs(node, count);
                let parts = model.outputs(node).to_vec();
                for (reader, index) in elements_read {
                    if keeps_axis {
                        turn_into(resolved, reader, &IDENTITY, &[parts[index]]);
                        continue;
                    }
                    let axes = Tensor::from_vec([1], vec![axis]).expect("a vector of one element");
                    let axes = resolved.build(reader).constant("axes", &axes);
                    turn_into(resolved, reader, &SQUEEZE, &[parts[index], Some(axes)]);
                }
            }
        }
    }
}

/// Returns the parts that a `SplitToSequence` makes if their sizes are known and fit the known size
/// of the tensor.
fn find_parts(resolved: &Resolved, inference: &Inference, node: NodeId) -> Option<Elements> {
    let model = resolved.model();
    let attributes = NodeAttributes::new(model, node);
    let axis = attributes.int("axis").unwrap_or(0);
    let keeps_axis = attributes.int("keepdims") != Some(0);
    let mut inputs = model.inputs(node);
    let of = inputs.next().flatten()?;
    let split = inputs.next().flatten();
    let along = || {
        let shape = inference.ty(of)?.shape()?;
        let rank = i64::try_from(shape.len()).ok()?;
        let index = usize::try_from(if axis < 0 { axis + rank } else { axis }).ok()?;
        shape.get(index)?.known()
    };
    let equal = |size: i64| {
        let all = along().filter(|_| size > 0)?;
        let count = all.checked_add(size - 1)? / size;
        let count = usize::try_from(count).ok().filter(|count| *count <= MOST_PARTS)?;
        let mut sizes = vec![size; count];
        *sizes.last_mut()? = all - size * (i64::try_from(count).ok()? - 1);
        Some(sizes)
    };
    let (sizes, keeps_axis) = match split {
        None => (equal(1)?, keeps_axis),
        Some(split) => {
            let sizes = ints(inference, split)?;
            if inference.known(split)?.is_scalar() {
                (equal(sizes[0])?, true)
            } else {
                let all = sizes.iter().try_fold(0i64, |all, size| all.checked_add(*size))?;
                let fits = along().is_none_or(|along| along == all);
                let are_sizes = sizes.iter().all(|size| *size >= 0) && !sizes.is_empty();
                (fits && are_sizes && sizes.len() <= MOST_PARTS).then_some((sizes, true))?
            }
        }
    };
    Some(Elements::Parts { of, sizes, axis, keeps_axis })
}

/// Returns the elements of a scalar or vector of integers if all of them are known.
fn ints(inference: &Inference, value: ValueId) -> Option<Vec<i64>> {
    inference.known(value)?.ints()?.iter().map(Dim::known).collect()
}

/// Changes the operator of a node and removes its attributes.
fn turn_into(
    resolved: &mut Resolved,
    node: NodeId,
    op: &'static OpDef,
    inputs: &[Option<ValueId>],
) {
    let model = resolved.model_mut();
    let op_type = Some(model.intern(op.name));
    let changed = model.node_mut(node);
    (changed.op_type, changed.domain) = (op_type, None);
    model.clear_attributes(node);
    model.set_inputs(node, inputs);
    resolved.set_opset(node, op.newest());
}
