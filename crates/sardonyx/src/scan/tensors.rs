//! Stored tensors: what they claim against what is there. Values are not looked at.

use sardonyx_model::Model;
use sardonyx_passes::payload::{
    element_count, entries, entries_needed, field_name, lists, storage_bytes,
};
use sardonyx_proto::{self as proto, TypedField};

use super::ScanOptions;
use super::codes;
use super::places::{Stored, StoredSparse};
use super::report::Findings;

/// Dimensions that readers with a fixed number of them have room for.
const RANK: usize = 64;

/// What type and shape of a tensor ask for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Claim {
    /// Elements; `None` if the dimensions make no sense.
    pub(super) elements: Option<u64>,
    /// Bytes in the layout of `raw_data`; `None` for strings and where elements or type are
    /// unknown.
    pub(super) bytes: Option<u64>,
}

/// Checks a tensor as far as the model file goes; what it claims.
pub(super) fn check(model: &Model, stored: &Stored<'_>, found: &mut Findings) -> Claim {
    let tensor = stored.tensor;
    let place = || stored.place(model);
    let elements = check_dims(&tensor.dims, &place, found);
    let number = tensor.data_type.unwrap_or(0);
    let data_type = proto::DataType(number);
    if number == 0 || data_type.name().is_none() {
        found.add(&codes::UNKNOWN_TYPE, || {
            let message = match number {
                0 => "it has no element type".to_string(),
                _ => format!("element type {number} is not one of the standard's"),
            };
            (place(), message)
        });
    }
    if tensor.segment.is_some() {
        let message = || "it is one segment of a larger tensor".to_string();
        found.add(&codes::SEGMENT, || (place(), message()));
    }
    let claim =
        Claim { elements, bytes: elements.and_then(|elements| storage_bytes(data_type, elements)) };
    if !tensor.is_external() {
        check_inline(model, stored, data_type, claim, found);
    }
    claim
}

/// Number of elements, if the dimensions make sense.
fn check_dims(dims: &[i64], place: &impl Fn() -> String, found: &mut Findings) -> Option<u64> {
    if dims.len() > RANK {
        let message = || format!("it has {} dimensions", dims.len());
        found.add(&codes::HIGH_RANK, || (place(), message()));
    }
    if let Some(dim) = dims.iter().find(|dim| **dim < 0) {
        let message = || format!("dimension {dim} is negative");
        found.add(&codes::NEGATIVE_DIM, || (place(), message()));
        return None;
    }
    let elements = element_count(dims);
    if elements.is_none() {
        found.add(&codes::SIZE_OVERFLOW, || {
            let message = format!("{} ask for more elements than can be counted", shape(dims));
            (place(), message)
        });
    }
    elements
}

/// Dimensions for people, at most a few.
fn shape(dims: &[i64]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<String> = dims.iter().take(SHOWN).map(i64::to_string).collect();
    let more = if dims.len() > SHOWN { ", …" } else { "" };
    format!("dimensions [{}{more}]", shown.join(", "))
}

fn check_inline(
    model: &Model,
    stored: &Stored<'_>,
    data_type: proto::DataType,
    claim: Claim,
    found: &mut Findings,
) {
    let tensor = stored.tensor;
    let place = || stored.place(model);
    if !tensor.external_data.is_empty() {
        let message = || "it names a data file, but its values are not outside".to_string();
        found.add(&codes::EXTERNAL_IGNORED, || (place(), message()));
    }
    let lists = lists(model, tensor);
    if lists.len() + usize::from(tensor.raw_data.is_some()) > 1 {
        found.add(&codes::TWO_PAYLOADS, || {
            let raw = tensor.raw_data.map(|_| "raw_data");
            let names: Vec<&str> =
                raw.into_iter().chain(lists.iter().map(|n| field_name(*n))).collect();
            (place(), format!("it has both {}", names.join(" and ")))
        });
        return;
    }
    if let Some(raw) = tensor.raw_data {
        if data_type == proto::DataType::STRING {
            let message = || "it has strings in raw_data".to_string();
            found.add(&codes::STRINGS_IN_RAW, || (place(), message()));
        } else if let Some(needed) = claim.bytes {
            compare(raw.len..=raw.len, needed, "bytes", claim, &place, found);
        }
        return;
    }
    let Some(elements) = claim.elements else {
        return;
    };
    let Some(list) = lists.first() else {
        if elements > 0 {
            compare(0..=0, elements, "elements", claim, &place, found);
        }
        return;
    };
    let expected = data_type.typed_field();
    if expected.is_some_and(|expected| expected.name() != field_name(*list)) {
        found.add(&codes::WRONG_LIST, || {
            let expected = expected.map_or("", TypedField::name);
            let message = format!("its values lie in {}, not in {expected}", field_name(*list));
            (place(), message)
        });
    } else if let Some(needed) = entries_needed(data_type, elements) {
        let entries = entries(model, &tensor.typed);
        compare(entries, needed, "entries", claim, &place, found);
    }
}

/// Compares what is there, within bounds, with what is needed.
fn compare(
    present: std::ops::RangeInclusive<u64>,
    needed: u64,
    unit: &str,
    claim: Claim,
    place: &impl Fn() -> String,
    found: &mut Findings,
) {
    let (least, most) = (*present.start(), *present.end());
    let about = if least == most { "" } else { "at most " };
    if most == 0 && needed > 0 {
        found.add(&codes::NO_DATA, || {
            let elements = claim.elements.unwrap_or(0);
            (place(), format!("it claims {elements} elements and has no values"))
        });
    } else if most < needed {
        found.add(&codes::TOO_SHORT, || {
            (place(), format!("it needs {needed} {unit} and has {about}{most}"))
        });
    } else if least > needed {
        found.add(&codes::SURPLUS, || {
            (place(), format!("it needs {needed} {unit} and has {least}"))
        });
    }
}

/// Checks what a sparse tensor becomes when somebody fills it in.
pub(super) fn check_sparse(
    model: &Model,
    stored: &StoredSparse<'_>,
    options: &ScanOptions,
    found: &mut Findings,
) {
    let place = || stored.place(model);
    let Some(dense) = check_dims(&stored.tensor.dims, &place, found) else {
        return;
    };
    let values = stored.tensor.values.as_ref();
    let count = values.and_then(|values| values.dims.first().copied()).unwrap_or(0);
    let count = u64::try_from(count).unwrap_or(0).max(1);
    if dense > options.sparse_elements && dense / count > options.sparse_ratio {
        found.add(&codes::SPARSE_EXPANSION, || {
            let message = format!("{count} stored values stand for {dense} elements");
            (place(), message)
        });
    }
}
