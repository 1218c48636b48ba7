//! Storage and sizes of the tensors that a model stores.

use sardonyx::Model;
use sardonyx::inspect::{StoredTensor, TensorStorage};

/// Whether the values of a tensor are in a data file.
pub(crate) fn is_external(tensor: &StoredTensor) -> bool {
    matches!(tensor.storage, TensorStorage::External { .. })
}

/// Counts the stored tensors that `fits` selects, and sums their sizes in bytes.
pub(crate) fn sum_tensors(model: &Model, fits: impl Fn(&StoredTensor) -> bool) -> (usize, u64) {
    let tensors = model.tensors();
    let chosen = tensors.iter().filter(|tensor| fits(tensor));
    chosen.fold((0, 0), |(number, sum), tensor| (number + 1, sum + tensor.bytes.unwrap_or(0)))
}
