//! Checks of stored tensors: ranks, sizes and the memory that readers need. Values are not read.

use sardonyx_model::Model;
use sardonyx_passes::payload::{element_count, storage_bytes};
use sardonyx_proto as proto;

use super::ScanOptions;
use super::codes;
use super::places::{Stored, StoredSparse};
use super::report::Findings;

/// Maximum tensor rank that readers with fixed arrays of dimensions support.
const RANK: usize = 64;

/// Size of the data that the element type and the dimensions of a tensor require.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Claim {
    /// Number of bytes in the layout of `raw_data`; `None` for strings, and if the number of
    /// elements or the element type is not known.
    pub(super) bytes: Option<u64>,
}

/// Checks a dense tensor for security problems, and returns the size of the data that it requires.
/// The model checker compares the stored data with this size.
pub(super) fn check(model: &Model, stored: &Stored<'_>, found: &mut Findings) -> Claim {
    let tensor = stored.tensor;
    check_rank(&tensor.dims, found, || stored.describe_place(model));
    if !tensor.is_external() && !tensor.external_data.is_empty() {
        found.add(&codes::EXTERNAL_IGNORED, || {
            let message = "the tensor names a data file, but its values are not external";
            (stored.describe_place(model), message.to_string())
        });
    }
    let elements = count_elements(&tensor.dims);
    let data_type = proto::DataType(tensor.data_type.unwrap_or(0));
    Claim { bytes: elements.and_then(|elements| storage_bytes(data_type, elements)) }
}

/// Reports a tensor with more than [`RANK`] dimensions.
fn check_rank(dims: &[i64], found: &mut Findings, place: impl FnOnce() -> String) {
    if dims.len() > RANK {
        found.add(&codes::HIGH_RANK, || {
            (place(), format!("the tensor has {} dimensions, more than {RANK}", dims.len()))
        });
    }
}

/// Returns the number of elements of a tensor; `None` if a dimension is negative or the product
/// overflows.
fn count_elements(dims: &[i64]) -> Option<u64> {
    if dims.iter().any(|dim| *dim < 0) { None } else { element_count(dims) }
}

/// Reports a sparse tensor that represents many more elements than it stores, or has too many
/// dimensions.
pub(super) fn check_sparse(
    model: &Model,
    stored: &StoredSparse<'_>,
    options: &ScanOptions,
    found: &mut Findings,
) {
    check_rank(&stored.tensor.dims, found, || stored.describe_place(model));
    let Some(dense) = count_elements(&stored.tensor.dims) else {
        return;
    };
    let values = stored.tensor.values.as_ref();
    let count = values.and_then(|values| values.dims.first().copied()).unwrap_or(0);
    let count = u64::try_from(count).unwrap_or(0).max(1);
    if dense > options.sparse_elements && dense / count > options.sparse_ratio {
        found.add(&codes::SPARSE_EXPANSION, || {
            let message =
                format!("the sparse tensor represents {dense} elements by {count} stored values");
            (stored.describe_place(model), message)
        });
    }
}
