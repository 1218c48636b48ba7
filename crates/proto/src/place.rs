//! From a byte offset to a place in the message, for error messages.
//!
//! Readers carry no path: errors are rare, files are large. When an error happened at a byte, [`place_of`] walks the
//! file once more along the table and names the fields that enclose it.

use std::fmt::Write;

use crate::kinds::{FieldKind, Label};
use crate::read::{Limits, RawField, Reader};
use crate::table::{FieldDef, MessageDef, MessageType};
use crate::wire::WireType;

/// Names the field that contains the byte at `offset` of a message, such as `graph.node[3].attribute[0].t.dims`.
/// Empty when the byte lies in no field.
pub fn place_of<M: MessageType>(bytes: &[u8], offset: u64, limits: Limits) -> String {
    let mut place = String::new();
    let mut def: &'static MessageDef = M::DEF;
    let mut content = bytes;
    let mut base = 0;
    for _ in 0..limits.depth {
        let Some((field, index, raw)) = enclosing(def, content, base, offset) else {
            break;
        };
        if !place.is_empty() {
            place.push('.');
        }
        place.push_str(field.name);
        if matches!(field.label, Label::Repeated) {
            let _ = write!(place, "[{index}]");
        }
        let FieldKind::Message(inner) = field.kind else {
            break;
        };
        if raw.wire_type != WireType::Len {
            break;
        }
        def = inner();
        content = raw.content.bytes;
        base = raw.content.offset;
    }
    place
}

/// The field of a message at `base` that contains the byte, how many of its kind precede it, and its bytes.
fn enclosing<'a>(
    def: &'static MessageDef,
    bytes: &'a [u8],
    base: u64,
    offset: u64,
) -> Option<(&'static FieldDef, usize, RawField<'a>)> {
    // Any message type will do: only raw fields are looked at.
    let mut reader = Reader::<crate::messages::ModelProto>::new(bytes);
    let mut seen: Vec<u32> = Vec::new();
    while let Ok(Some(mut raw)) = reader.next_raw() {
        raw.record.offset += base;
        raw.content.offset += base;
        if offset < raw.record.offset + raw.record.bytes.len() as u64 {
            let index = seen.iter().filter(|number| **number == raw.number).count();
            return def.field(raw.number).map(|field| (field, index, raw));
        }
        seen.push(raw.number);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelProto;

    #[test]
    fn a_byte_has_a_place() {
        let bytes = b"\x08\x0a\x3a\x0b\x0a\x00\x0a\x07\x0a\x01x\x2a\x02\x0a\x00";
        let rows = [
            (0, "ir_version"),
            (4, "graph.node[0]"),
            (9, "graph.node[1].input[0]"),
            (13, "graph.node[1].attribute[0].name"),
            (99, ""),
        ];
        for (offset, expected) in rows {
            assert_eq!(
                place_of::<ModelProto>(bytes, offset, Limits::default()),
                expected,
                "byte {offset}"
            );
        }
    }
}
