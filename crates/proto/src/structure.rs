//! Separates the tensor values of a model file from its structure.

use std::ops::Range;

use crate::error::{Error, ErrorKind};
use crate::kinds::FieldKind;
use crate::messages::ModelProto;
use crate::skim::is_payload;
use crate::table::{MessageDef, MessageType};
use crate::wire::{WireType, read_varint};

/// Largest size in bytes at which `raw_data` and packed lists count as structure; longer ones are
/// values.
pub const VALUE_BYTES: usize = 128;

/// Message types that can contain tensors, directly or nested.
const LEADING_TO_TENSORS: [&str; 7] = [
    "GraphProto",
    "NodeProto",
    "AttributeProto",
    "TensorProto",
    "SparseTensorProto",
    "FunctionProto",
    "TrainingInfoProto",
];

/// Finds the byte ranges of a model's tensor values, in ascending order. All other bytes are its
/// structure. Skips the values without reading them.
///
/// # Errors
///
/// The bytes are not a message.
pub fn find_value_ranges(bytes: &[u8]) -> Result<Vec<Range<usize>>, Error> {
    let mut found = Vec::new();
    let mut open: Vec<(&'static MessageDef, usize)> = vec![(ModelProto::DEF, bytes.len())];
    // Fields within a group are ignored: only unknown fields can be groups.
    let mut groups = 0u32;
    let mut pos = 0;
    while let Some((def, end)) = open.last().copied() {
        if pos >= end {
            open.pop();
            groups = 0;
            continue;
        }
        let start = pos;
        let wrong = |kind| Error::new(kind, start as u64);
        let message = &bytes[..end];
        let tag = read_varint(message, &mut pos).map_err(wrong)?;
        let length = match WireType::from_low_bits(tag).map_err(wrong)? {
            WireType::Varint => {
                read_varint(message, &mut pos).map_err(wrong)?;
                0
            }
            WireType::Fixed32 => 4,
            WireType::Fixed64 => 8,
            WireType::StartGroup => {
                groups += 1;
                0
            }
            WireType::EndGroup => {
                groups = groups.saturating_sub(1);
                0
            }
            WireType::Len => {
                let length = read_varint(message, &mut pos).map_err(wrong)?;
                let number = u32::try_from(tag >> 3).unwrap_or(0);
                let known = def.field(number).filter(|_| groups == 0);
                let available = (end - pos) as u64;
                if length > available {
                    return Err(wrong(ErrorKind::LengthBeyondEnd { length, available }));
                }
                // The cast is exact, as `length` is at most the number of remaining bytes.
                let length = length as usize;
                if let Some(FieldKind::Message(inner)) = known.map(|known| known.kind)
                    && LEADING_TO_TENSORS.contains(&inner().name)
                {
                    open.push((inner(), pos + length));
                    continue;
                }
                if length > VALUE_BYTES && known.is_some() && is_payload(def, number) {
                    found.push(pos..pos + length);
                }
                length
            }
        };
        if length > end - pos {
            return Err(wrong(ErrorKind::Truncated));
        }
        pos += length;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(out: &mut Vec<u8>, tag: u8, content: &[u8]) {
        out.push(tag);
        crate::push_varint(out, content.len() as u64);
        out.extend(content);
    }

    /// Builds a model with two tensors of `len` bytes, one of them in an attribute, and a
    /// documentation string of `len` bytes.
    fn model(len: usize) -> Vec<u8> {
        let mut tensor = b"\x42\x01w".to_vec();
        field(&mut tensor, 0x4a, &vec![7; len]);
        let mut attribute = Vec::new();
        field(&mut attribute, 0x2a, &tensor);
        let mut node = Vec::new();
        field(&mut node, 0x2a, &attribute);
        let mut graph = Vec::new();
        field(&mut graph, 0x0a, &node);
        field(&mut graph, 0x2a, &tensor);
        let mut bytes = b"\x08\x0a".to_vec();
        field(&mut bytes, 0x32, &vec![7; len]);
        field(&mut bytes, 0x3a, &graph);
        // An unknown group.
        bytes.extend(b"\xbb\x3e\x0a\x01\x07\xbc\x3e");
        bytes
    }

    #[test]
    fn values_are_found_wherever_tensors_stand() {
        let bytes = model(200);
        let found = find_value_ranges(&bytes).expect("well-formed");
        let lengths: Vec<usize> = found.iter().map(Range::len).collect();
        assert_eq!(lengths, [200, 200]);
        for range in found {
            assert!(bytes[range.clone()].iter().all(|byte| *byte == 7));
            assert_eq!(bytes[range.start - 3..range.start], [0x4a, 0xc8, 0x01]);
        }
        assert_eq!(find_value_ranges(&model(VALUE_BYTES)).expect("well-formed"), []);
    }

    #[test]
    fn damaged_bytes_give_an_error_or_ranges_inside() {
        let bytes = model(200);
        for cut in 0..bytes.len() {
            if let Ok(found) = find_value_ranges(&bytes[..cut]) {
                assert!(found.iter().all(|range| range.end <= cut));
            }
            let mut odd = bytes.clone();
            odd[cut] ^= 0xff;
            let _ = find_value_ranges(&odd);
        }
    }
}
