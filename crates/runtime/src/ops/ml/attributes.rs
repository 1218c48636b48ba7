//! Attributes that are lists, and what they say together with the input.

use sardonyx_kernels::ml::PostTransform;
use sardonyx_kernels::number::Number;
use sardonyx_model::Dim;
use sardonyx_ops::AttrValue;
use sardonyx_tensor::{Dims, StringArray, Tensor, Value};

use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Site};

/// The floats of an attribute; none if the node does not have it.
pub(super) fn floats(site: &Site<'_>, name: &str) -> Result<Vec<f32>, BindError> {
    match site.attributes.get(name) {
        Some(AttrValue::Floats(list)) => Ok(list.into_owned()),
        Some(_) => fail!("attribute '{name}' is not a list of floats"),
        None => Ok(Vec::new()),
    }
}

/// The same as reals of a type.
pub(super) fn reals<R: Number>(list: &[f32]) -> Vec<R> {
    list.iter().map(|number| R::from_f64(f64::from(*number))).collect()
}

/// The integers of an attribute; none if the node does not have it.
pub(super) fn ints(site: &Site<'_>, name: &str) -> Result<Vec<i64>, BindError> {
    match site.attributes.get(name) {
        Some(AttrValue::Ints(list)) => Ok(list.into_owned()),
        Some(_) => fail!("attribute '{name}' is not a list of integers"),
        None => Ok(Vec::new()),
    }
}

/// The strings of an attribute; none if the node does not have it.
pub(super) fn strings(site: &Site<'_>, name: &str) -> Result<Vec<Box<[u8]>>, BindError> {
    match site.attributes.get(name) {
        Some(AttrValue::Strings(list)) => {
            Ok(list.into_iter().map(|text| text.into_owned().into_boxed_slice()).collect())
        }
        Some(_) => fail!("attribute '{name}' is not a list of strings"),
        None => Ok(Vec::new()),
    }
}

/// A string of any bytes, or its default.
pub(super) fn text(site: &Site<'_>, name: &str) -> Box<[u8]> {
    match site.attributes.get(name) {
        Some(AttrValue::String(text)) => text.into_owned().into_boxed_slice(),
        _ => site.string(name).unwrap_or_default().into_bytes().into_boxed_slice(),
    }
}

/// The attribute `post_transform`.
pub(super) fn post_transform(site: &Site<'_>) -> Result<PostTransform, BindError> {
    let name = text(site, "post_transform");
    Ok(match &name[..] {
        b"NONE" => PostTransform::None,
        b"SOFTMAX" => PostTransform::Softmax,
        b"LOGISTIC" => PostTransform::Logistic,
        b"SOFTMAX_ZERO" => PostTransform::SoftmaxZero,
        b"PROBIT" => PostTransform::Probit,
        _ => return Err(unknown("post_transform", &name)),
    })
}

/// What is said of a word that an attribute does not know.
pub(super) fn unknown(attribute: &str, word: &[u8]) -> BindError {
    let word = String::from_utf8_lossy(word);
    BindError::Invalid(format!("attribute '{attribute}' is '{word}', which has no meaning"))
}

/// How many features a row of the input has, if that is known: the size of its last axis.
pub(super) fn known_features(site: &Site<'_>) -> Option<usize> {
    match site.shape(0)?.last() {
        Some(Dim::Known(count)) => usize::try_from(*count).ok(),
        _ => None,
    }
}

/// How many features a row has. A scalar is one.
pub(super) fn features(dims: &[usize]) -> usize {
    dims.last().copied().unwrap_or(1)
}

/// Demands of an attribute that it has one number, or one for each feature.
pub(super) fn demand_per_feature(
    name: &str,
    len: usize,
    features: usize,
) -> Result<(), KernelError> {
    if len != 1 && len != features {
        fail!(
            "attribute '{name}' has {len} elements for {features} features: it needs 1 or as many"
        );
    }
    Ok(())
}

/// Rows and columns of a matrix. A vector is one row.
pub(super) fn rows_and_columns(dims: &[usize]) -> Result<[usize; 2], KernelError> {
    match dims {
        [columns] => Ok([1, *columns]),
        [rows, columns] => Ok([*rows, *columns]),
        _ => fail!("the input must have rank 1 or 2, not {}", dims.len()),
    }
}

/// Gives an output of strings, whose memory is counted before it is taken.
pub(super) fn set_strings<'t>(
    call: &mut Call<'_>,
    index: usize,
    dims: &Dims,
    texts: impl ExactSizeIterator<Item = &'t [u8]> + Clone,
) -> Result<(), KernelError> {
    let all = texts.clone().map(<[u8]>::len).fold(0, usize::saturating_add);
    let counted = all.saturating_add(texts.len().saturating_mul(size_of::<usize>()));
    call.reserve(counted)?;
    let mut made = StringArray::with_capacity(texts.len(), all);
    texts.for_each(|text| made.push(text));
    call.uncount(counted);
    call.set_output(index, Value::Tensor(Tensor::from_strings(&dims[..], made)?))
}
