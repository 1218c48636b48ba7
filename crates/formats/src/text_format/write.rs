//! Conversion of a message to text format.

use std::io;

use sardonyx_proto::{FieldDef, Limits, MessageType, RawField, Records, Slice, WireType};

use crate::error::Error;
use crate::left_out::LeftOut;
use crate::numerals::{push_double, push_float, push_integer};
use crate::sink::Sink;
use crate::walk::{Leaf, Printer, print};

/// Number of bytes that are escaped at once, into up to four times as many.
const ESCAPE_STEP: usize = 4 << 10;

/// Options for writing a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteOptions {
    /// Bounds for the message that is read.
    pub limits: Limits,
    /// Whether fields outside the table are written, by number. Readers refuse such a text, since
    /// it lacks the types of the fields: it is for people. Otherwise they are left out and
    /// reported.
    pub unknown_fields: bool,
}

/// Writes a message of type `M` as text format. Returns the parts that the text does not express.
///
/// # Errors
///
/// Bytes that are not a message, strings in it that are not UTF-8, and errors of `sink`. In these
/// cases `sink` may already have received a part.
pub fn write<M: MessageType>(
    bytes: &[u8],
    options: WriteOptions,
    sink: &mut dyn io::Write,
) -> Result<LeftOut, Error> {
    let printer = TextPrinter { depth: 0, options };
    print::<M>(bytes, options.limits, sink, printer)
}

struct TextPrinter {
    /// Number of messages that have begun and not ended, including the outermost.
    depth: usize,
    options: WriteOptions,
}

impl Printer for TextPrinter {
    fn begin_message(&mut self, out: &mut Sink<'_>) {
        if self.depth > 0 {
            out.put(b"{\n");
        }
        self.depth += 1;
    }

    fn end_message(&mut self, out: &mut Sink<'_>, _: bool) {
        self.depth -= 1;
        if self.depth > 0 {
            out.indent(self.depth - 1);
            out.put(b"}");
        }
    }

    fn begin_field(&mut self, _: &mut Sink<'_>, _: &FieldDef, _: bool) {}

    fn end_field(&mut self, _: &mut Sink<'_>, _: &FieldDef) {}

    fn begin_value(&mut self, out: &mut Sink<'_>, field: &FieldDef, _: bool) {
        out.indent(self.depth - 1);
        out.put(field.name.as_bytes());
        out.put(match field.kind {
            sardonyx_proto::FieldKind::Message(_) => b" ",
            _ => b": ",
        });
    }

    fn leaf(&mut self, out: &mut Sink<'_>, leaf: Leaf<'_>) {
        let buffer = out.buffer();
        match leaf {
            Leaf::Int32(value) => push_integer(buffer, value),
            Leaf::Int64(value) => push_integer(buffer, value),
            Leaf::Uint64(value) => push_integer(buffer, value),
            Leaf::Float(value) if value.is_finite() => push_float(buffer, value),
            Leaf::Float(value) => push_not_finite(buffer, value.into()),
            Leaf::Double(value) if value.is_finite() => push_double(buffer, value),
            Leaf::Double(value) => push_not_finite(buffer, value),
            Leaf::Enum(_, Some(name)) => buffer.extend_from_slice(name.as_bytes()),
            Leaf::Enum(number, None) => push_integer(buffer, number),
            Leaf::Text(text) => put_quoted(out, text.as_bytes(), &TEXT_ESCAPES),
            Leaf::Blob(bytes) => put_quoted(out, bytes, &BLOB_ESCAPES),
        }
    }

    fn end_value(&mut self, out: &mut Sink<'_>) {
        out.put(b"\n");
    }

    fn unknown(&mut self, out: &mut Sink<'_>, raw: &RawField<'_>) -> bool {
        if self.options.unknown_fields {
            self.put_unknown(out, raw);
        }
        self.options.unknown_fields
    }
}

impl TextPrinter {
    /// Appends a field by number. Contents with a length may be a message, a string or bytes: any
    /// that can be read as a message are shown as one.
    fn put_unknown(&self, out: &mut Sink<'_>, raw: &RawField<'_>) {
        let mut open = Vec::new();
        self.begin_unknown(out, raw, &mut open);
        while let Some(records) = open.last_mut() {
            match records.next_record() {
                Ok(Some(raw)) => self.begin_unknown(out, &raw, &mut open),
                // The whole message was read without an error before, so only its end tag can stop
                // a group here.
                Ok(None) | Err(_) => {
                    open.pop();
                    out.indent(self.depth - 1 + open.len());
                    out.put(b"}\n");
                }
            }
        }
    }

    fn begin_unknown<'a>(
        &self,
        out: &mut Sink<'_>,
        raw: &RawField<'a>,
        open: &mut Vec<Records<'a>>,
    ) {
        out.indent(self.depth - 1 + open.len());
        push_integer(out.buffer(), raw.number);
        let inner = match raw.wire_type {
            WireType::StartGroup => Some(group_content(raw.record)),
            WireType::Len => Some(raw.content).filter(|content| self.is_message(*content)),
            _ => None,
        };
        match inner {
            Some(content) if open.len() < self.options.limits.depth as usize => {
                out.put(b" {\n");
                open.push(Records::new(content, self.options.limits));
            }
            _ if raw.wire_type == WireType::Len => {
                out.put(b": ");
                put_quoted(out, raw.content.bytes, &BLOB_ESCAPES);
                out.put(b"\n");
            }
            _ => {
                out.put(b": ");
                push_integer(out.buffer(), raw.word);
                out.put(b"\n");
            }
        }
    }

    fn is_message(&self, content: Slice<'_>) -> bool {
        let mut records = Records::new(content, self.options.limits);
        loop {
            match records.next_record() {
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }
}

/// Returns the content of a group after its opening tag, including its end tag.
fn group_content(record: Slice<'_>) -> Slice<'_> {
    let tag = record.bytes.iter().position(|byte| *byte < 0x80);
    let tag = tag.map_or(record.bytes.len(), |last| last + 1);
    Slice { bytes: &record.bytes[tag..], offset: record.offset + tag as u64 }
}

fn push_not_finite(buffer: &mut Vec<u8>, value: f64) {
    let name: &[u8] = match value {
        f64::INFINITY => b"inf",
        f64::NEG_INFINITY => b"-inf",
        _ => b"nan",
    };
    buffer.extend_from_slice(name);
}

/// Replacements of bytes: up to four characters each.
type Escapes = [([u8; 4], u8); 256];

static BLOB_ESCAPES: Escapes = escapes(0x7f);
/// Only ASCII characters of a text are escaped.
static TEXT_ESCAPES: Escapes = escapes(0xff);

/// Makes the table. Bytes above `plain_from` stay unchanged, but 127 is not printable.
const fn escapes(plain_from: usize) -> Escapes {
    let mut table = [([0; 4], 1); 256];
    let mut index = 0;
    while index < table.len() {
        let byte = index as u8;
        let octal = [b'\\', b'0' + (byte >> 6), b'0' + ((byte >> 3) & 7), b'0' + (byte & 7)];
        table[index] = match byte {
            b'\t' => ([b'\\', b't', 0, 0], 2),
            b'\n' => ([b'\\', b'n', 0, 0], 2),
            b'\r' => ([b'\\', b'r', 0, 0], 2),
            b'"' | b'\'' | b'\\' => ([b'\\', byte, 0, 0], 2),
            b' '..=b'~' => ([byte, 0, 0, 0], 1),
            0x80.. if plain_from == 0xff => ([byte, 0, 0, 0], 1),
            _ => (octal, 4),
        };
        index += 1;
    }
    table
}

fn put_quoted(out: &mut Sink<'_>, bytes: &[u8], escapes: &Escapes) {
    out.put(b"\"");
    for step in bytes.chunks(ESCAPE_STEP) {
        let buffer = out.buffer();
        let mut end = buffer.len();
        // Copies four characters for each byte and keeps as many as count, without branches.
        buffer.resize(end + step.len() * 4, 0);
        for byte in step {
            let (text, len) = &escapes[usize::from(*byte)];
            buffer[end..end + 4].copy_from_slice(text);
            end += usize::from(*len);
        }
        buffer.truncate(end);
    }
    out.put(b"\"");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Position;
    use sardonyx_proto::{
        AttributeProto, ModelProto, OperatorSetIdProto, SequenceProto, TensorProto,
    };

    fn text<M: MessageType>(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        write::<M>(bytes, WriteOptions::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_kind_of_value() {
        let rows: [(&[u8], &str); 12] = [
            (b"", ""),
            (b"\x15\xcd\xcc\xcc\x3d", "f: 0.1\n"),
            (b"\x15\x01\x00\xc0\xff", "f: nan\n"),
            (b"\x15\x00\x00\x80\xff", "f: -inf\n"),
            (b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "i: -1\n"),
            (b"\x22\x09\x00\xff\xc3\xa9\"'\\\n ", "s: \"\\000\\377\\303\\251\\\"\\'\\\\\\n \"\n"),
            (b"\x0a\x05\x7f\xc3\xa9\x01'", "name: \"\\177\u{e9}\\001\\'\"\n"),
            (b"\x2a\x02\x10\x07", "t {\n  data_type: 7\n}\n"),
            (b"\x2a\x00", "t {\n}\n"),
            (b"\x40\x01\x40\x02", "ints: 1\nints: 2\n"),
            (b"\xa0\x01\x0b", "type: SPARSE_TENSOR\n"),
            (b"\xa0\x01\x63", "type: 99\n"),
        ];
        for (bytes, expected) in rows {
            assert_eq!(text::<AttributeProto>(bytes), expected);
        }
        assert_eq!(
            text::<SequenceProto>(b"\x2a\x04\x2a\x02\x10\x01\x2a\x00"),
            "sequence_values {\n  sequence_values {\n    elem_type: 1\n  }\n}\nsequence_values {\n}\n"
        );
        assert_eq!(text::<TensorProto>(b"\x3a\x00\x08\x05"), "dims: 5\n");
    }

    #[test]
    fn unknown_fields_are_shown_or_reported() {
        // WIRE-20: each wire type, a message in a message, a group
        let bytes = b"\xb8\x3e\x05\xb9\x3e\x01\x02\x03\x04\x05\x06\x07\x08\xba\x3e\x02ab\
            \xbd\x3e\x01\x02\x03\x04\xbb\x3e\x08\x01\xbc\x3e\xba\x3e\x04\x0a\x02\x08\x01";
        let mut out = Vec::new();
        let options = WriteOptions { unknown_fields: true, ..WriteOptions::default() };
        assert!(write::<OperatorSetIdProto>(bytes, options, &mut out).unwrap().is_empty());
        let expected = "999: 5\n999: 578437695752307201\n999: \"ab\"\n999: 67305985\n\
             999 {\n  1: 1\n}\n999 {\n  1 {\n    1: 1\n  }\n}\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);

        let mut out = Vec::new();
        let left_out = write::<OperatorSetIdProto>(bytes, WriteOptions::default(), &mut out);
        assert_eq!(left_out.unwrap().unknown_fields, 6);
        assert!(out.is_empty());
    }

    #[test]
    fn errors_name_the_field() {
        // WIRE-35
        let error = write::<ModelProto>(
            b"\x3a\x09\x0a\x00\x0a\x05\x0a\x03ab\xff",
            WriteOptions::default(),
            &mut io::sink(),
        );
        let error = error.expect_err("not UTF-8");
        assert_eq!(error.place(), "graph.node[1].input[0]");
        assert_eq!(error.position(), Position::Byte(10));
    }
}
