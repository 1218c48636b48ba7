//! Lists among attributes, and checks of their lengths against the input.

use sardonyx_kernels::ml::PostTransform;
use sardonyx_kernels::number::Number;
use sardonyx_model::Dim;
use sardonyx_ops::AttrValue;

use crate::error::{BindError, KernelError, fail};
use crate::kernel::Site;

/// Returns the floats of an attribute; none if it is missing.
pub(super) fn floats(site: &Site<'_>, name: &str) -> Result<Vec<f32>, BindError> {
    match site.attributes.get(name) {
        Some(AttrValue::Floats(list)) => Ok(list.into_owned()),
        Some(_) => fail!("attribute '{name}' is not a list of floats"),
        None => Ok(Vec::new()),
    }
}

/// Converts floats to a type.
pub(super) fn reals<R: Number>(list: &[f32]) -> Vec<R> {
    list.iter().map(|number| R::from_f64(f64::from(*number))).collect()
}

/// Returns the integers of an attribute; none if it is missing.
pub(super) fn ints(site: &Site<'_>, name: &str) -> Result<Vec<i64>, BindError> {
    match site.attributes.get(name) {
        Some(AttrValue::Ints(list)) => Ok(list.into_owned()),
        Some(_) => fail!("attribute '{name}' is not a list of integers"),
        None => Ok(Vec::new()),
    }
}

/// Returns the strings of an attribute; none if it is missing.
pub(super) fn strings(site: &Site<'_>, name: &str) -> Result<Vec<Box<[u8]>>, BindError> {
    match site.attributes.get(name) {
        Some(AttrValue::Strings(list)) => {
            Ok(list.into_iter().map(|text| text.into_owned().into_boxed_slice()).collect())
        }
        Some(_) => fail!("attribute '{name}' is not a list of strings"),
        None => Ok(Vec::new()),
    }
}

/// Values of `post_transform`, in the order by which `TreeEnsemble` numbers them.
pub(super) const TRANSFORMS: [(&str, PostTransform); 5] = [
    ("NONE", PostTransform::None),
    ("SOFTMAX", PostTransform::Softmax),
    ("LOGISTIC", PostTransform::Logistic),
    ("SOFTMAX_ZERO", PostTransform::SoftmaxZero),
    ("PROBIT", PostTransform::Probit),
];

/// Returns the attribute `post_transform`, which is a string in all operators except
/// `TreeEnsemble`.
pub(super) fn post_transform(site: &Site<'_>) -> Result<PostTransform, BindError> {
    site.find_named("post_transform", &TRANSFORMS)
}

/// Returns the number of features of a row, which is the size of the last axis, if known.
pub(super) fn known_features(site: &Site<'_>) -> Option<usize> {
    match site.shape(0)?.last() {
        Some(Dim::Known(count)) => usize::try_from(*count).ok(),
        _ => None,
    }
}

/// Returns the number of features of a row; 1 for a scalar.
pub(super) fn features(dims: &[usize]) -> usize {
    dims.last().copied().unwrap_or(1)
}

/// Refuses an attribute that has neither one number nor one for each feature.
pub(super) fn demand_per_feature(
    name: &str,
    len: usize,
    features: usize,
) -> Result<(), KernelError> {
    if len != 1 && len != features {
        fail!(
            "attribute '{name}' has {len} elements for {features} features: 1 or as many are allowed"
        );
    }
    Ok(())
}

/// Returns the rows and columns of a matrix. A vector is one row.
pub(super) fn rows_and_columns(dims: &[usize]) -> Result<[usize; 2], KernelError> {
    match dims {
        [columns] => Ok([1, *columns]),
        [rows, columns] => Ok([*rows, *columns]),
        _ => fail!("the input must have rank 1 or 2, not {}", dims.len()),
    }
}
