//! Conversion of a message to JSON.

use std::io;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sardonyx_proto::{FieldDef, Limits, MessageType, RawField};

use crate::error::Error;
use crate::left_out::LeftOut;
use crate::numerals::{push_double, push_float, push_integer};
use crate::sink::Sink;
use crate::walk::{Leaf, Printer, print};

/// Number of bytes that are encoded at once: a multiple of three, so that padding comes only at the
/// end.
const BASE64_STEP: usize = 12 << 10;

/// Options for writing a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteOptions {
    /// Bounds for the message that is read.
    pub limits: Limits,
    /// Whether every character outside ASCII becomes an escape sequence, the default of protobuf's
    /// own tools.
    pub ascii: bool,
}

impl Default for WriteOptions {
    fn default() -> Self {
        WriteOptions { limits: Limits::default(), ascii: true }
    }
}

/// Writes a message of type `M` as JSON, without a newline at the end. Returns the parts that JSON
/// cannot express.
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
    let printer = JsonPrinter { indent: 0, ascii: options.ascii };
    print::<M>(bytes, options.limits, sink, printer)
}

struct JsonPrinter {
    indent: usize,
    ascii: bool,
}

impl JsonPrinter {
    fn new_line(&self, out: &mut Sink<'_>) {
        out.put(b"\n");
        out.indent(self.indent);
    }
}

impl Printer for JsonPrinter {
    fn begin_message(&mut self, out: &mut Sink<'_>) {
        out.put(b"{");
        self.indent += 1;
    }

    fn end_message(&mut self, out: &mut Sink<'_>, empty: bool) {
        self.indent -= 1;
        if !empty {
            self.new_line(out);
        }
        out.put(b"}");
    }

    fn begin_field(&mut self, out: &mut Sink<'_>, field: &FieldDef, first: bool) {
        if !first {
            out.put(b",");
        }
        self.new_line(out);
        out.put(b"\"");
        out.put(field.name.as_bytes());
        out.put(b"\": ");
        if field.is_list() {
            out.put(b"[");
            self.indent += 1;
        }
    }

    fn end_field(&mut self, out: &mut Sink<'_>, field: &FieldDef) {
        if field.is_list() {
            self.indent -= 1;
            self.new_line(out);
            out.put(b"]");
        }
    }

    fn begin_value(&mut self, out: &mut Sink<'_>, field: &FieldDef, first: bool) {
        if field.is_list() {
            if !first {
                out.put(b",");
            }
            self.new_line(out);
        }
    }

    fn leaf(&mut self, out: &mut Sink<'_>, leaf: Leaf<'_>) {
        let buffer = out.buffer();
        match leaf {
            Leaf::Int32(value) => push_integer(buffer, value),
            Leaf::Int64(value) => push_quoted(buffer, |buffer| push_integer(buffer, value)),
            Leaf::Uint64(value) => push_quoted(buffer, |buffer| push_integer(buffer, value)),
            Leaf::Float(value) if value.is_finite() => push_float(buffer, value),
            Leaf::Float(value) => push_not_finite(buffer, value.into()),
            Leaf::Double(value) if value.is_finite() => push_double(buffer, value),
            Leaf::Double(value) => push_not_finite(buffer, value),
            Leaf::Enum(_, Some(name)) => {
                push_quoted(buffer, |buffer| buffer.extend_from_slice(name.as_bytes()));
            }
            Leaf::Enum(number, None) => push_integer(buffer, number),
            Leaf::Text(text) => {
                buffer.push(b'"');
                put_text(out, text, self.ascii);
                out.put(b"\"");
            }
            Leaf::Blob(bytes) => {
                buffer.push(b'"');
                put_base64(out, bytes);
                out.put(b"\"");
            }
        }
    }

    fn end_value(&mut self, _: &mut Sink<'_>) {}

    fn unknown(&mut self, _: &mut Sink<'_>, _: &RawField<'_>) -> bool {
        false
    }
}

fn push_quoted(buffer: &mut Vec<u8>, push: impl FnOnce(&mut Vec<u8>)) {
    buffer.push(b'"');
    push(buffer);
    buffer.push(b'"');
}

fn push_not_finite(buffer: &mut Vec<u8>, value: f64) {
    let name: &[u8] = match value {
        f64::INFINITY => b"\"Infinity\"",
        f64::NEG_INFINITY => b"\"-Infinity\"",
        _ => b"\"NaN\"",
    };
    buffer.extend_from_slice(name);
}

fn put_base64(out: &mut Sink<'_>, bytes: &[u8]) {
    for step in bytes.chunks(BASE64_STEP) {
        let buffer = out.buffer();
        let start = buffer.len();
        buffer.resize(start + step.len().div_ceil(3) * 4, 0);
        STANDARD
            .encode_slice(step, &mut buffer[start..])
            .expect("four characters for each three bytes were made room for");
    }
}

fn put_text(out: &mut Sink<'_>, text: &str, ascii: bool) {
    let mut rest = text;
    loop {
        let len = rest
            .bytes()
            .position(|byte| byte < b' ' || byte == b'"' || byte == b'\\' || ascii && byte > b'~');
        let (front, back) = rest.split_at(len.unwrap_or(rest.len()));
        out.put(front.as_bytes());
        let mut characters = back.chars();
        let Some(special) = characters.next() else {
            return;
        };
        push_escaped(out.buffer(), special);
        rest = characters.as_str();
    }
}

fn push_escaped(buffer: &mut Vec<u8>, special: char) {
    let short = match special {
        '"' => b'"',
        '\\' => b'\\',
        '\n' => b'n',
        '\r' => b'r',
        '\t' => b't',
        '\u{8}' => b'b',
        '\u{c}' => b'f',
        _ => {
            let mut units = [0; 2];
            for unit in special.encode_utf16(&mut units) {
                buffer.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
            }
            return;
        }
    };
    buffer.extend_from_slice(&[b'\\', short]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, Position, UnknownField};
    use sardonyx_proto::{AttributeProto, ModelProto, OperatorSetIdProto, TensorProto};

    fn json<M: MessageType>(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        write::<M>(bytes, WriteOptions::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_kind_of_value() {
        let attribute = |bytes: &[u8]| json::<AttributeProto>(bytes);
        let rows: [(&[u8], &str); 12] = [
            (b"", "{}"),
            (b"\x15\xcd\xcc\xcc\x3d", "{\n  \"f\": 0.1\n}"),
            (b"\x15\x00\x00\xc0\x7f", "{\n  \"f\": \"NaN\"\n}"),
            (b"\x15\x00\x00\x80\xff", "{\n  \"f\": \"-Infinity\"\n}"),
            (b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "{\n  \"i\": \"-1\"\n}"),
            (b"\x22\x04\xff\xff\xfe\x00", "{\n  \"s\": \"///+AA==\"\n}"),
            (b"\x22\x00", "{\n  \"s\": \"\"\n}"),
            (b"\x2a\x02\x10\x07", "{\n  \"t\": {\n    \"data_type\": 7\n  }\n}"),
            (b"\x2a\x00", "{\n  \"t\": {}\n}"),
            (b"\x40\x01\x40\x02", "{\n  \"ints\": [\n    \"1\",\n    \"2\"\n  ]\n}"),
            (b"\xa0\x01\x0b", "{\n  \"type\": \"SPARSE_TENSOR\"\n}"),
            (b"\xa0\x01\x63", "{\n  \"type\": 99\n}"),
        ];
        for (bytes, expected) in rows {
            assert_eq!(attribute(bytes), expected);
        }
    }

    #[test]
    fn empty_lists_do_not_appear() {
        // WIRE-37
        assert_eq!(json::<TensorProto>(b"\x0a\x00\x22\x00"), "{}");
    }

    #[test]
    fn texts_are_escaped() {
        let bytes = "\x0a\x14a\"\\/\n\r\t\u{8}\u{c}\u{1}\u{7f}\u{e9}\u{1f600}\u{2028}".as_bytes();
        let rows = [
            (true, r#""a\"\\/\n\r\t\b\f\u0001\u007f\u00e9\ud83d\ude00\u2028""#),
            (false, "\"a\\\"\\\\/\\n\\r\\t\\b\\f\\u0001\u{7f}\u{e9}\u{1f600}\u{2028}\""),
        ];
        for (ascii, expected) in rows {
            let mut out = Vec::new();
            let options = WriteOptions { ascii, ..WriteOptions::default() };
            write::<OperatorSetIdProto>(bytes, options, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert_eq!(text, format!("{{\n  \"domain\": {expected}\n}}"));
        }
    }

    #[test]
    fn long_payloads_have_no_padding_inside() {
        let payload: Vec<u8> = (0..100_000u32).map(|index| (index % 251) as u8).collect();
        let mut bytes = b"\x4a\xa0\x8d\x06".to_vec();
        bytes.extend(&payload);
        let expected = STANDARD.encode(&payload);
        assert!(json::<TensorProto>(&bytes) == format!("{{\n  \"raw_data\": \"{expected}\"\n}}"));
    }

    #[test]
    fn unknown_fields_and_nan_payloads_are_reported() {
        // WIRE-20: field 999 of the second node, and a NaN with a payload
        let bytes = b"\x3a\x07\x0a\x00\x0a\x03\xb8\x3e\x05";
        let mut out = Vec::new();
        let left_out = write::<ModelProto>(bytes, WriteOptions::default(), &mut out).unwrap();
        let unknown = UnknownField { place: "graph.node[1]".into(), number: 999, offset: 6 };
        assert_eq!((left_out.unknown_fields, left_out.first), (1, vec![unknown]));

        let bytes = b"\x25\x01\x00\xc0\x7f\x25\x00\x00\xc0\x7f";
        let left_out = write::<TensorProto>(bytes, WriteOptions::default(), &mut out).unwrap();
        assert_eq!(left_out.nan_payloads, 1);
    }

    #[test]
    fn errors_name_the_field() {
        // WIRE-35
        let rows: [(&[u8], &str, u64); 3] = [
            (b"\x3a\x09\x0a\x00\x0a\x05\x0a\x03ab\xff", "graph.node[1].input[0]", 10),
            (b"\x3a\x06\x0a\x00\x0a\x02\x0a\x05", "graph.node[1]", 6),
            (b"\x0a", "", 0),
        ];
        for (bytes, place, offset) in rows {
            let error = write::<ModelProto>(bytes, WriteOptions::default(), &mut io::sink());
            let error = error.expect_err("broken");
            assert_eq!((error.place(), error.position()), (place, Position::Byte(offset)));
        }
    }

    #[test]
    fn a_failing_sink_ends_the_walk() {
        struct Full;
        impl io::Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let error = write::<ModelProto>(b"\x08\x01", WriteOptions::default(), &mut Full);
        assert!(matches!(error.expect_err("full").kind(), ErrorKind::Sink(_)));
    }
}
