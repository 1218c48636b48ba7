//! Loss functions that training minimizes.

use sardonyx_model::{
    AttrValue, Attributes, Dim, NodeAttributes, Producer, Shape, TensorType, Type, ValueId,
};
use sardonyx_tensor::DataType;

use crate::addition::Addition;
use crate::derivatives::DeriveError;

/// Loss function that training minimizes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// Mean cross entropy between an output with one score for each class, and the indices of the
    /// right classes, a new `int64` input `label`. If Softmax or LogSoftmax computes the output,
    /// its input is taken as the scores.
    CrossEntropy {
        /// Name of the output; by default the only one.
        output: Option<String>,
        /// Axis of the classes. By default the axis of the Softmax, or 1, as for
        /// SoftmaxCrossEntropyLoss.
        axis: Option<i64>,
        /// Class index whose examples are ignored.
        ignored: Option<i64>,
    },
    /// Mean squared difference between an output and a new input `target` of its type and shape.
    SquaredError {
        /// Name of the output; by default the only one.
        output: Option<String>,
    },
    /// Value of the main graph with this name; if it has several elements, their sum.
    Value(String),
}

/// Loss of the algorithm, and its new input for the wanted outputs.
pub(super) struct Added {
    pub(super) value: ValueId,
    pub(super) label: Option<ValueId>,
}

/// Adds nodes that compute the loss.
pub(super) fn add(add: &mut Addition, loss: &Loss) -> Result<Added, DeriveError> {
    let added = match loss {
        Loss::CrossEntropy { output, axis, ignored } => {
            let output = add.main_output(output.as_deref()).map_err(DeriveError::Option)?;
            cross_entropy(add, output, *axis, *ignored)?
        }
        Loss::SquaredError { output } => {
            let output = add.main_output(output.as_deref()).map_err(DeriveError::Option)?;
            squared_error(add, output)?
        }
        Loss::Value(name) => {
            let Some(value) = add.value(name) else {
                return Err(DeriveError::Option(add.no_value(name)));
            };
            let attributes = [("keepdims", AttrValue::Int(0))];
            let is_scalar = tensor(add, value)?.1.is_some_and(|shape| shape.is_empty());
            let value = if is_scalar {
                add.node("Identity", &[Some(value)], &[])
            } else {
                add.node("ReduceSum", &[Some(value)], &attributes)
            };
            Added { value, label: None }
        }
    };
    add.rename(added.value, "loss");
    Ok(added)
}

/// Returns the element type of a floating-point tensor, and its shape if it is known.
fn tensor(add: &Addition, value: ValueId) -> Result<(DataType, Option<Shape>), DeriveError> {
    let types = add.types()?;
    let ty = types.ty(value);
    match ty.and_then(Type::elem).filter(|elem| elem.is_float()) {
        Some(elem) => Ok((elem, ty.and_then(Type::shape).cloned())),
        None => {
            let name = add.name(value);
            let message = format!("'{name}' is not a floating-point tensor, so it has no gradient");
            Err(DeriveError::Option(message))
        }
    }
}

fn cross_entropy(
    add: &mut Addition,
    output: ValueId,
    axis: Option<i64>,
    ignored: Option<i64>,
) -> Result<Added, DeriveError> {
    let (mut scores, mut normalized) = (output, None);
    if let Producer::Node(node, _) = add.model().value(output).producer
        && let Some(op) = add.resolved().op(node)
        && op.def.domain.is_empty()
        && matches!(op.def.name, "Softmax" | "LogSoftmax")
        && let Some(read) = add.model().inputs(node).next().flatten()
    {
        // The node has the newest form, in which the default axis is the last one.
        normalized = Some(NodeAttributes::new(add.model(), node).int("axis").unwrap_or(-1));
        scores = read;
    }
    let (_, shape) = tensor(add, scores)?;
    let Some(shape) = shape.filter(|shape| shape.len() >= 2) else {
        let name = add.name(output);
        let message = format!(
            "cross-entropy requires '{name}' to have a known rank of at least 2: examples and classes"
        );
        return Err(DeriveError::Option(message));
    };
    let rank = shape.len() as i64;
    let asked = axis.or(normalized).unwrap_or(1);
    let axis = if asked < 0 { asked + rank } else { asked };
    if !(0..rank).contains(&axis) {
        let message = format!("class axis {asked} is out of range: the output has {rank} axes");
        return Err(DeriveError::Option(message));
    }
    if normalized.is_some_and(|normal| (normal + rank) % rank != axis) {
        let message =
            format!("the output is normalized along another axis than the class axis {asked}");
        return Err(DeriveError::Option(message));
    }
    let axis = axis as usize;
    let mut sizes: Vec<Dim> = shape.iter().cloned().collect();
    sizes.remove(axis);
    if axis != 1 {
        // The operator requires the classes on axis 1.
        let mut order: Vec<i64> = (0..rank).filter(|other| *other != axis as i64).collect();
        order.insert(1, axis as i64);
        let order = [("perm", AttrValue::from(&order[..]))];
        scores = add.node("Transpose", &[Some(scores)], &order);
    }
    let ty = Type::Tensor(TensorType {
        elem: Some(DataType::Int64),
        shape: Some(sizes.into_iter().collect()),
    });
    let label = add.input("label", &ty);
    let mut attributes = vec![("reduction", AttrValue::String(b"mean"[..].into()))];
    attributes.extend(ignored.map(|class| ("ignore_index", AttrValue::Int(class))));
    let value = add.node("SoftmaxCrossEntropyLoss", &[Some(scores), Some(label)], &attributes);
    Ok(Added { value, label: Some(label) })
}

fn squared_error(add: &mut Addition, output: ValueId) -> Result<Added, DeriveError> {
    let (elem, shape) = tensor(add, output)?;
    let ty = Type::Tensor(TensorType { elem: Some(elem), shape });
    let target = add.input("target", &ty);
    let difference = add.node("Sub", &[Some(output), Some(target)], &[]);
    let squares = add.node("Mul", &[Some(difference), Some(difference)], &[]);
    let attributes = [("keepdims", AttrValue::Int(0))];
    let value = add.node("ReduceMean", &[Some(squares)], &attributes);
    Ok(Added { value, label: Some(target) })
}
