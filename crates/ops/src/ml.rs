//! Operators of `ai.onnx.ml`: preprocessing of features, and classical models such as trees, linear
//! models and support vector machines.

pub(crate) mod features;
pub(crate) mod maps;
pub(crate) mod models;
mod trees;

use sardonyx_model::Dim;
use sardonyx_tensor::DataType;

use crate::attributes::AttrValue;
use crate::infer::{Infer, InferError};

/// Returns element type and length of an attribute that is a list, if the node has it. A tensor
/// counts as a list if it is a vector.
fn list_attribute(cx: &Infer<'_>, name: &str) -> Result<Option<(DataType, usize)>, InferError> {
    Ok(match cx.attribute(name) {
        Some(AttrValue::Floats(list)) => Some((DataType::Float, list.len())),
        Some(AttrValue::Ints(list)) => Some((DataType::Int64, list.len())),
        Some(AttrValue::Strings(list)) => Some((DataType::String, list.len())),
        Some(AttrValue::Tensor(tensor)) => match tensor.dims() {
            [len] => Some((tensor.data_type(), *len)),
            dims => {
                return cx.fail(format_args!("{name} must have rank 1, not {}", dims.len()));
            }
        },
        _ => None,
    })
}

/// Returns the length of an attribute that is a list; 0 if the node does not have it.
fn list_len(cx: &Infer<'_>, name: &str) -> usize {
    match cx.attribute(name) {
        Some(AttrValue::Floats(list)) => list.len(),
        Some(AttrValue::Ints(list)) => list.len(),
        Some(AttrValue::Strings(list)) => list.len(),
        _ => 0,
    }
}

/// Returns the number of examples: the rows of a matrix, or 1 for a vector.
fn examples(cx: &Infer<'_>) -> Result<Dim, InferError> {
    match cx.shape(0).map(|shape| &shape[..]) {
        None => Ok(Dim::Unknown),
        Some([_]) => Ok(Dim::Known(1)),
        Some([rows, _]) => Ok(rows.clone()),
        Some(shape) => {
            cx.fail(format_args!("the input must have rank 1 or 2, not {}", shape.len()))
        }
    }
}

/// Returns the number of outputs that an attribute holds.
fn count_attribute(cx: &Infer<'_>, name: &str) -> Result<Dim, InferError> {
    match cx.int(name) {
        Some(count) if count < 0 => cx.fail(format_args!("{name} is {count}")),
        count => Ok(count.map_or(Dim::Unknown, Dim::Known)),
    }
}

/// Returns the element type of classes, which are strings if they have names, and their number.
fn classes(cx: &Infer<'_>, numbers: &str) -> (DataType, usize) {
    match list_len(cx, "classlabels_strings") {
        0 => (DataType::Int64, list_len(cx, numbers)),
        count => (DataType::String, count),
    }
}
