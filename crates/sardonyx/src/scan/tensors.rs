//! Stored tensors: what they claim. Values are not looked at.

use sardonyx_model::Model;
use sardonyx_passes::payload::{element_count, storage_bytes};
use sardonyx_proto as proto;

use super::ScanOptions;
use super::codes;
use super::places::{Stored, StoredSparse};
use super::report::Findings;

/// Dimensions that readers with a fixed number of them have room for.
const RANK: usize = 64;

/// What type and shape of a tensor ask for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Claim {
    /// Bytes in the layout of `raw_data`; `None` for strings and where elements or type are
    /// unknown.
    pub(super) bytes: Option<u64>,
}

/// What a tensor claims. Whether it keeps to that, the checker says; here is what matters only to
/// those who do not trust the file.
pub(super) fn check(model: &Model, stored: &Stored<'_>, found: &mut Findings) -> Claim {
    let tensor = stored.tensor;
    let place = || stored.place(model);
    check_rank(&tensor.dims, &place, found);
    if !tensor.is_external() && !tensor.external_data.is_empty() {
        let message = || "it names a data file, but its values are not external".to_string();
        found.add(&codes::EXTERNAL_IGNORED, || (place(), message()));
    }
    let elements = elements(&tensor.dims);
    let data_type = proto::DataType(tensor.data_type.unwrap_or(0));
    Claim { bytes: elements.and_then(|elements| storage_bytes(data_type, elements)) }
}

fn check_rank(dims: &[i64], place: &impl Fn() -> String, found: &mut Findings) {
    if dims.len() > RANK {
        let message = || format!("it has {} dimensions", dims.len());
        found.add(&codes::HIGH_RANK, || (place(), message()));
    }
}

/// Number of elements, if the dimensions make sense.
fn elements(dims: &[i64]) -> Option<u64> {
    if dims.iter().any(|dim| *dim < 0) { None } else { element_count(dims) }
}

/// Checks what a sparse tensor becomes when somebody fills it in.
pub(super) fn check_sparse(
    model: &Model,
    stored: &StoredSparse<'_>,
    options: &ScanOptions,
    found: &mut Findings,
) {
    let place = || stored.place(model);
    check_rank(&stored.tensor.dims, &place, found);
    let Some(dense) = elements(&stored.tensor.dims) else {
        return;
    };
    let values = stored.tensor.values.as_ref();
    let count = values.and_then(|values| values.dims.first().copied()).unwrap_or(0);
    let count = u64::try_from(count).unwrap_or(0).max(1);
    if dense > options.sparse_elements && dense / count > options.sparse_ratio {
        found.add(&codes::SPARSE_EXPANSION, || {
            let message = format!("{count} stored values represent {dense} elements");
            (place(), message)
        });
    }
}
