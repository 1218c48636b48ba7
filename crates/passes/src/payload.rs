//! Stored tensors as they are in the file: the size that type and shape require and the size that
//! is present. Values are not read.

use std::cmp::Ordering;
use std::ops::RangeInclusive;

use sardonyx_model::{Model, TensorProto, TypedRun};
use sardonyx_proto::{
    self as proto, DataType, Limits, MessageType, Reader, Records, Slice, TensorField, WireType,
};

/// Longest packed list in bytes whose entries are counted. Those of a longer one are estimated.
const COUNTED_BYTES: u64 = 1 << 20;

/// Returns the number of elements of a shape without negative dimensions, or `None` on overflow.
///
/// A dimension of 0 does not prevent an overflow: a reader that multiplies from the left overflows
/// before it.
pub fn element_count(dims: &[i64]) -> Option<u64> {
    let mut nonzero = dims.iter().filter(|dim| **dim != 0);
    let product = nonzero.try_fold(1i64, |product, dim| product.checked_mul(*dim))?;
    Some(if dims.contains(&0) { 0 } else { product as u64 })
}

/// Returns the bytes of elements in `raw_data`. Returns `None` for strings, unknown types, and on
/// overflow.
pub fn storage_bytes(data_type: DataType, elements: u64) -> Option<u64> {
    let bits = u64::from(data_type.bits()?);
    let whole = (elements / 8).checked_mul(bits)?;
    whole.checked_add((elements % 8 * bits).div_ceil(8))
}

/// Returns the number of entries that elements take in their typed list.
pub fn entries_needed(data_type: DataType, elements: u64) -> Option<u64> {
    match data_type {
        DataType::COMPLEX64 | DataType::COMPLEX128 => elements.checked_mul(2),
        // One packed byte per entry.
        _ => Some(match data_type.bits() {
            Some(4) => elements.div_ceil(2),
            Some(2) => elements.div_ceil(4),
            _ => elements,
        }),
    }
}

/// Compares the present number of entries, which may be known within bounds only, with the needed
/// one.
pub fn compare(present: &RangeInclusive<u64>, needed: u64) -> Ordering {
    match (*present.end() < needed, *present.start() > needed) {
        (true, _) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (false, false) => Ordering::Equal,
    }
}

/// Lists the typed lists of a tensor that have entries, by the numbers of their fields.
pub fn lists(model: &Model, tensor: &TensorProto) -> Vec<u32> {
    let mut lists: Vec<u32> = Vec::new();
    for run in &tensor.typed {
        // Runs can alternate any number of times, but there are few lists.
        if !lists.contains(&run.number) && *entries(model, std::slice::from_ref(run)).end() > 0 {
            lists.push(run.number);
        }
    }
    lists
}

/// Returns the name of a field of a stored tensor.
pub fn field_name(number: u32) -> &'static str {
    proto::TensorProto::DEF.field(number).map_or("", |field| field.name)
}

/// Counts the entries of typed lists. The count is exact unless a packed block is so long that
/// counting would read the weights.
pub fn entries(model: &Model, runs: &[TypedRun]) -> RangeInclusive<u64> {
    let (mut least, mut most) = (0u64, 0u64);
    for run in runs {
        let content = Slice { bytes: model.bytes(run.records), offset: run.records.offset };
        let fixed = match run.number {
            4 => Some(4),
            10 => Some(8),
            _ => None,
        };
        let mut records = Records::new(content, Limits::default());
        while let Ok(Some(raw)) = records.next_record() {
            let len = raw.content.bytes.len() as u64;
            let (low, high) = match fixed {
                // Strings, one tag each.
                _ if run.number == 6 || raw.wire_type != WireType::Len => (1, 1),
                Some(width) => (len / width, len / width),
                None if len <= COUNTED_BYTES => {
                    let ends = raw.content.bytes.iter().filter(|byte| **byte < 0x80);
                    let count = ends.count() as u64;
                    (count, count)
                }
                // A variable-length number has one to ten bytes.
                None => (len.div_ceil(10), len),
            };
            least += low;
            most += high;
        }
    }
    least..=most
}

/// Calls `take` with every record of typed lists, in the order of the file.
pub fn for_each_chunk<'m>(
    model: &'m Model,
    runs: &[TypedRun],
    mut take: impl FnMut(TensorField<'m>),
) {
    for run in runs {
        let records = Reader::<proto::TensorProto>::new(model.bytes(run.records));
        // Broken records were found when the model was read.
        records.map_while(Result::ok).for_each(&mut take);
    }
}

/// Returns the reason for which some system refuses a location, by its text alone. A location that
/// begins with `#` refers to memory of the program that wrote the model, and is left to that
/// program.
pub fn bad_location(location: &[u8]) -> Option<&'static str> {
    let Ok(text) = std::str::from_utf8(location) else {
        return Some("is not UTF-8");
    };
    let drive =
        location.first().is_some_and(u8::is_ascii_alphabetic) && location.get(1) == Some(&b':');
    if drive || matches!(location.first(), Some(b'/' | b'\\')) {
        return Some("is an absolute path; it must be relative to the model's directory");
    }
    if text.split(['/', '\\']).any(|part| part == "..") {
        return Some("has a '..' part; it must stay in the model's directory");
    }
    text.contains('\0').then_some("contains a NUL character")
}
