//! From JSON to a message.
//!
//! Nesting lies in the assembly and in a list of our own, never on the thread's stack.

use base64::alphabet;
use base64::engine::{DecodePaddingMode, Engine, GeneralPurpose, GeneralPurposeConfig};
use sardonyx_proto::{FieldDef, FieldKind, Limits, MessageType, shown};

use crate::assembly::{Assembly, Claim};
use crate::cursor::{Cursor, fault_at, position};
use crate::error::{Error, ErrorKind, Fault};
use crate::names::{Spelling, find};
use crate::numerals::{parse, parse_integer};

/// Standard base64 with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Reads a message of type `M` from JSON. The bytes are canonical: fields ascend, lists are packed
/// where the table says so, and what the text states is there even if it is zero or empty.
///
/// # Errors
///
/// A text that is not JSON, names that the message does not have, values that do not fit their
/// field, a key that occurs twice, and nesting beyond the limit.
pub fn read<M: MessageType>(text: &[u8], limits: Limits) -> Result<Vec<u8>, Error> {
    let mut reader = JsonReader {
        cursor: Cursor::new(text),
        assembly: Assembly::new::<M>(limits),
        frames: vec![Frame::default()],
        field: None,
        element: None,
        scratch: Vec::new(),
    };
    match reader.run() {
        Ok(()) => Ok(reader.assembly.finish()),
        Err(fault) => {
            let list = reader.frames.last().and_then(|frame| frame.list);
            let place = match list {
                Some((field, _)) => reader.assembly.place_in_list(field),
                None => reader.assembly.place(reader.field, reader.element),
            };
            let position = position(text, fault.offset);
            Err(Error::new(fault.kind, position, place))
        }
    }
}

struct JsonReader<'t> {
    cursor: Cursor<'t>,
    assembly: Assembly,
    /// One per message that has not ended.
    frames: Vec<Frame>,
    /// The field whose value is being read, for error messages.
    field: Option<&'static FieldDef>,
    element: Option<u64>,
    scratch: Vec<u8>,
}

/// How far an object has been read.
#[derive(Default)]
struct Frame {
    /// Whether it has had a member, so that a comma must follow.
    has_member: bool,
    /// The list of messages that is being read, and whether it has had an element.
    list: Option<(&'static FieldDef, bool)>,
}

/// A string between its quotes.
struct Quoted<'t> {
    bytes: &'t [u8],
    /// Where it begins, after the quote.
    start: usize,
    has_escapes: bool,
}

impl<'t> JsonReader<'t> {
    fn run(&mut self) -> Result<(), Fault> {
        self.skip_space();
        self.expect(b'{', "an object")?;
        while let Some(frame) = self.frames.last_mut() {
            self.cursor.take_while(is_space);
            match frame.list {
                Some((field, has_element)) => self.element(field, has_element)?,
                None => {
                    let has_member = frame.has_member;
                    frame.has_member = true;
                    self.member(has_member)?;
                }
            }
        }
        self.skip_space();
        match self.cursor.rest() {
            [] => Ok(()),
            _ => Err(self.cursor.expected("the end of the text")),
        }
    }

    /// A key with its value, or the end of the object.
    fn member(&mut self, has_member: bool) -> Result<(), Fault> {
        self.field = None;
        if self.cursor.take(b'}') {
            self.frames.pop();
            self.assembly.end();
            return Ok(());
        }
        if has_member {
            self.expect(b',', "`,` or `}`")?;
            self.skip_space();
        }
        let (index, field) = self.key(has_member)?;
        self.skip_space();
        self.expect(b':', "`:`")?;
        self.skip_space();
        self.field = Some(field);
        self.element = None;
        let claim = if self.cursor.rest().starts_with(b"null") { Claim::Null } else { Claim::Key };
        self.assembly.claim(index, claim).map_err(|kind| self.cursor.fault(kind))?;
        if claim == Claim::Null {
            self.cursor.pos += b"null".len();
            return Ok(());
        }
        if !field.is_list() {
            return self.value(field);
        }
        self.expect(b'[', "a list")?;
        match field.kind {
            FieldKind::Message(_) => {
                self.field = None;
                if let Some(frame) = self.frames.last_mut() {
                    frame.list = Some((field, false));
                }
                Ok(())
            }
            _ => self.leaves(field),
        }
    }

    fn key(&mut self, has_member: bool) -> Result<(usize, &'static FieldDef), Fault> {
        let start = self.cursor.pos;
        let key = self.string(if has_member {
            "a field name in quotes"
        } else {
            "a field name in quotes or `}`"
        })?;
        let def = self.assembly.def();
        let name = if key.has_escapes { self.unescaped(&key)? } else { key.bytes };
        let found = def.map(|def| find(def, name, Spelling::TableOrCamel));
        match found {
            Some(Ok(found)) => Ok(found),
            Some(Err(kind)) => Err(fault_at(kind, start)),
            None => Err(self.cursor.expected("the end of the text")),
        }
    }

    /// An element of a list of messages, or the end of the list.
    fn element(&mut self, field: &'static FieldDef, has_element: bool) -> Result<(), Fault> {
        let more = !self.cursor.take(b']');
        if let Some(frame) = self.frames.last_mut() {
            frame.list = more.then_some((field, true));
        }
        if !more {
            return Ok(());
        }
        if has_element {
            self.expect(b',', "`,` or `]`")?;
            self.skip_space();
        }
        self.value(field)
    }

    /// The elements of a list whose elements are no messages, to its end.
    fn leaves(&mut self, field: &'static FieldDef) -> Result<(), Fault> {
        self.skip_space();
        if self.cursor.take(b']') {
            return Ok(());
        }
        let mut index = 0;
        loop {
            self.element = Some(index);
            self.skip_space();
            self.value(field)?;
            self.skip_space();
            if !self.cursor.take(b',') {
                return self.expect(b']', "`,` or `]`");
            }
            index += 1;
        }
    }

    /// One value. A message is only begun.
    fn value(&mut self, field: &'static FieldDef) -> Result<(), Fault> {
        let start = self.cursor.pos;
        match field.kind {
            FieldKind::Message(def) => {
                self.expect(b'{', "an object")?;
                self.assembly.begin(def(), field).map_err(|kind| fault_at(kind, start))?;
                self.field = None;
                self.frames.push(Frame::default());
            }
            FieldKind::Text => self.text(field)?,
            FieldKind::Blob => self.blob(field)?,
            FieldKind::Enum(_) => {
                let number = self.enum_number(field)?;
                self.assembly.word(field, i64::from(number) as u64);
            }
            FieldKind::Int64 => {
                let value: i64 = self.integer("int64")?;
                self.assembly.word(field, value as u64);
            }
            FieldKind::Int32 => {
                let value: i32 = self.integer("int32")?;
                self.assembly.word(field, i64::from(value) as u64);
            }
            FieldKind::Uint64 => {
                let value: u64 = self.integer("uint64")?;
                self.assembly.word(field, value);
            }
            FieldKind::Float => {
                // By way of a double, as protobuf does it: what it rounds twice, we do.
                let (text, value) = self.double("float")?;
                let narrow = value as f32;
                if narrow.is_infinite() && value.is_finite() {
                    return Err(fault_at(not_a("float", text), start));
                }
                self.assembly.word(field, narrow.to_bits().into());
            }
            FieldKind::Double => {
                let (_, value) = self.double("double")?;
                self.assembly.word(field, value.to_bits());
            }
        }
        Ok(())
    }

    /// The text of a number, with or without quotes, and where it begins.
    fn numeral(&mut self) -> Result<(&'t [u8], usize), Fault> {
        let start = self.cursor.pos;
        if self.cursor.peek() == Some(b'"') {
            let quoted = self.string("a number")?;
            return Ok((quoted.bytes, start));
        }
        let text = self.cursor.take_while(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
        match text {
            [] => Err(self.cursor.expected("a number")),
            _ => Ok((text, start)),
        }
    }

    fn integer<T: TryFrom<i128>>(&mut self, kind: &'static str) -> Result<T, Fault> {
        let (text, start) = self.numeral()?;
        let whole = match text {
            // JSON has no leading zeros.
            [b'0', _, ..] | [b'-', b'0', _, ..] => None,
            _ => parse_integer(text),
        };
        whole
            .or_else(|| whole_double(text))
            .and_then(|value| T::try_from(value).ok())
            .ok_or_else(|| fault_at(not_a(kind, text), start))
    }

    fn double(&mut self, kind: &'static str) -> Result<(&'t [u8], f64), Fault> {
        let quoted = self.cursor.peek() == Some(b'"');
        let (text, start) = self.numeral()?;
        let value = match text {
            b"NaN" if quoted => Some(f64::NAN),
            b"Infinity" if quoted => Some(f64::INFINITY),
            b"-Infinity" if quoted => Some(f64::NEG_INFINITY),
            _ if is_numeral(text) => parse(text).filter(|value: &f64| value.is_finite()),
            _ => None,
        };
        match value {
            Some(value) => Ok((text, value)),
            None => Err(fault_at(not_a(kind, text), start)),
        }
    }

    fn enum_number(&mut self, field: &FieldDef) -> Result<i32, Fault> {
        if self.cursor.peek() != Some(b'"') {
            return self.integer("enum");
        }
        let start = self.cursor.pos;
        let name = self.string("a name")?.bytes;
        if let Some(value) = parse_integer(name) {
            let number = i32::try_from(value).ok();
            return number.ok_or_else(|| fault_at(not_a("enum", name), start));
        }
        let number = std::str::from_utf8(name).ok();
        let number = number.and_then(|name| field.kind.enum_number(name));
        number.ok_or_else(|| {
            let name = shown(name);
            fault_at(ErrorKind::EnumName { name }, start)
        })
    }

    fn text(&mut self, field: &FieldDef) -> Result<(), Fault> {
        let quoted = self.string("a string")?;
        if let Err(error) = std::str::from_utf8(quoted.bytes) {
            let pos = quoted.start + error.valid_up_to();
            return Err(fault_at(ErrorKind::NotUtf8, pos));
        }
        if quoted.has_escapes {
            self.unescaped(&quoted)?;
            self.assembly.bytes(field, &mut self.scratch);
        } else {
            self.assembly.small_bytes(field, quoted.bytes)
        }
        Ok(())
    }

    fn blob(&mut self, field: &FieldDef) -> Result<(), Fault> {
        let quoted = self.string("a string in base64")?;
        // Nobody escapes the letters of base64 except, perhaps, the slash.
        let own;
        let encoded = if quoted.has_escapes {
            own = self.unescaped(&quoted)?.to_vec();
            &own
        } else {
            quoted.bytes
        };
        self.scratch.clear();
        let mut decoded = BASE64.decode_vec(encoded, &mut self.scratch);
        if decoded.is_err() && encoded.iter().any(|byte| b"-_".contains(byte)) {
            // The alphabet for addresses. It is rare, so it may cost a copy.
            let standard = |byte: &u8| match byte {
                b'-' => b'+',
                b'_' => b'/',
                other => *other,
            };
            let standard: Vec<u8> = encoded.iter().map(standard).collect();
            self.scratch.clear();
            decoded = BASE64.decode_vec(standard, &mut self.scratch);
        }
        decoded.map_err(|error| fault_at(ErrorKind::Base64(error), quoted.start))?;
        self.assembly.bytes(field, &mut self.scratch);
        Ok(())
    }

    /// A string, up to after its closing quote.
    fn string(&mut self, expected: &'static str) -> Result<Quoted<'t>, Fault> {
        if self.cursor.peek() != Some(b'"') {
            return Err(self.cursor.expected(expected));
        }
        self.cursor.pos += 1;
        let start = self.cursor.pos;
        let mut has_escapes = false;
        loop {
            self.cursor.take_while(|byte| byte >= b' ' && byte != b'"' && byte != b'\\');
            match self.cursor.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    has_escapes = true;
                    self.cursor.pos = self.cursor.text.len().min(self.cursor.pos + 2);
                }
                _ => return Err(self.cursor.expected("a closing quote")),
            }
        }
        let bytes = &self.cursor.text[start..self.cursor.pos];
        self.cursor.pos += 1;
        Ok(Quoted { bytes, start, has_escapes })
    }

    /// The string without escape sequences, in `scratch`.
    fn unescaped(&mut self, quoted: &Quoted<'_>) -> Result<&[u8], Fault> {
        self.scratch.clear();
        let mut rest = quoted.bytes;
        while let Some(len) = rest.iter().position(|byte| *byte == b'\\') {
            self.scratch.extend_from_slice(&rest[..len]);
            rest = &rest[len..];
            let Some((character, taken)) = escape(rest) else {
                let pos = quoted.start + (quoted.bytes.len() - rest.len());
                let sequence = shown(&rest[..rest.len().min(6)]);
                return Err(fault_at(ErrorKind::Escape(sequence), pos));
            };
            let mut utf8 = [0; 4];
            let utf8 = character.encode_utf8(&mut utf8);
            self.scratch.extend_from_slice(utf8.as_bytes());
            rest = &rest[taken..];
        }
        self.scratch.extend_from_slice(rest);
        Ok(&self.scratch)
    }

    fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), Fault> {
        if self.cursor.take(byte) { Ok(()) } else { Err(self.cursor.expected(expected)) }
    }

    #[inline]
    fn skip_space(&mut self) {
        self.cursor.take_while(is_space);
    }
}

#[inline]
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

/// The character of an escape sequence, and the length of the sequence.
fn escape(text: &[u8]) -> Option<(char, usize)> {
    let short = match text.get(1)? {
        b'"' => '"',
        b'\\' => '\\',
        b'/' => '/',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return long_escape(text),
        _ => return None,
    };
    Some((short, 2))
}

/// `\u` with four digits, or two of them that together are one character.
fn long_escape(text: &[u8]) -> Option<(char, usize)> {
    let unit = |from: usize| {
        let digits = text.get(from + 2..from + 6)?;
        let all = text[from..].starts_with(b"\\u") && digits.iter().all(u8::is_ascii_hexdigit);
        let digits = std::str::from_utf8(digits).ok().filter(|_| all)?;
        u16::from_str_radix(digits, 16).ok()
    };
    let first = unit(0)?;
    if let Some(character) = char::from_u32(first.into()) {
        return Some((character, 6));
    }
    let pair = [first, unit(6)?];
    let character = char::decode_utf16(pair).next()?.ok()?;
    Some((character, 12))
}

/// Whether this is a number as JSON writes it.
fn is_numeral(text: &[u8]) -> bool {
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let whole = digits(text);
    if whole == 0 || (whole > 1 && text[0] == b'0') {
        return false;
    }
    let mut rest = &text[whole..];
    if let [b'.', fraction @ ..] = rest {
        let len = digits(fraction);
        rest = &fraction[len..];
        if len == 0 {
            return false;
        }
    }
    match rest {
        [] => true,
        [b'e' | b'E', exponent @ ..] => {
            let exponent = match exponent {
                [b'+' | b'-', digits @ ..] => digits,
                digits => digits,
            };
            !exponent.is_empty() && digits(exponent) == exponent.len()
        }
        _ => false,
    }
}

/// A whole number that is written with a fraction or an exponent, such as `1.0` or `1e3`.
fn whole_double(text: &[u8]) -> Option<i128> {
    let value: f64 = is_numeral(text).then(|| parse(text))??;
    // Beyond that no type of the format has values; below it the conversion is exact.
    (value.fract() == 0.0 && value.abs() <= 1e20).then_some(value as i128)
}

fn not_a(kind: &'static str, text: &[u8]) -> ErrorKind {
    ErrorKind::Number { kind, text: format!("`{}`", shown(text)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Position;
    use sardonyx_proto::{AttributeProto, Dimension, ModelProto, SequenceProto, TensorProto};

    fn bytes<M: MessageType>(text: &str) -> Vec<u8> {
        read::<M>(text.as_bytes(), Limits::default())
            .unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    fn failure<M: MessageType>(text: &str) -> Error {
        read::<M>(text.as_bytes(), Limits::default()).expect_err(text)
    }

    #[test]
    fn values_in_every_spelling() {
        let rows: [(&str, &[u8]); 29] = [
            ("{}", b""),
            (" \r\n\t{ } \n", b""),
            ("\u{feff}{}", b""),
            (r#"{"f": 1.5}"#, b"\x15\x00\x00\xc0\x3f"),
            (r#"{"f": "1.5"}"#, b"\x15\x00\x00\xc0\x3f"),
            (r#"{"f": "NaN"}"#, b"\x15\x00\x00\xc0\x7f"),
            (r#"{"f": "-Infinity"}"#, b"\x15\x00\x00\x80\xff"),
            (r#"{"f": -0}"#, b"\x15\x00\x00\x00\x80"),
            (r#"{"i": 0}"#, b"\x18\x00"),
            (r#"{"i": "-1"}"#, b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
            (r#"{"i": 1.0}"#, b"\x18\x01"),
            (r#"{"i": 1e2}"#, b"\x18\x64"),
            (r#"{"i": "-9223372036854775808"}"#, b"\x18\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"),
            (r#"{"s": "///+AA=="}"#, b"\x22\x04\xff\xff\xfe\x00"),
            (r#"{"s": "___-AA"}"#, b"\x22\x04\xff\xff\xfe\x00"),
            (r#"{"s": "\/\/\/+AA="}"#, b"\x22\x04\xff\xff\xfe\x00"),
            (r#"{"s": ""}"#, b"\x22\x00"),
            (r#"{"t": {}}"#, b"\x2a\x00"),
            (r#"{"t": null, "i": 1}"#, b"\x18\x01"),
            (r#"{"ints": ["1", 2]}"#, b"\x40\x01\x40\x02"),
            (r#"{"ints": []}"#, b""),
            (r#"{"type": "INTS"}"#, b"\xa0\x01\x07"),
            (r#"{"type": 99}"#, b"\xa0\x01\x63"),
            (r#"{"type": "7"}"#, b"\xa0\x01\x07"),
            (r#"{"refAttrName": "a"}"#, b"\xaa\x01\x01a"),
            (r#"{"ref_attr_name": "a"}"#, b"\xaa\x01\x01a"),
            (r#"{"n\u0061me": "\u00e9\ud83d\ude00\n"}"#, "\x0a\x07\u{e9}\u{1f600}\n".as_bytes()),
            (r#"{"tensors": [{"dataType": 1}, {}]}"#, b"\x52\x02\x10\x01\x52\x00"),
            (r#"{"type": "FLOAT", "name": "x"}"#, b"\x0a\x01x\xa0\x01\x01"),
        ];
        for (text, expected) in rows {
            assert_eq!(bytes::<AttributeProto>(text), expected, "{text}");
        }
        // WIRE-16, WIRE-33
        let tensor = r#"{"int64Data": ["1", "-1"], "floatData": [1], "dims": [2], "dataLocation": "EXTERNAL"}"#;
        assert_eq!(
            bytes::<TensorProto>(tensor),
            b"\x08\x02\x22\x04\x00\x00\x80\x3f\x3a\x0b\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x70\x01"
        );
        let sharding = r#"{"dimParam": null, "dimValue": "3"}"#;
        assert_eq!(bytes::<Dimension>(sharding), b"\x08\x03");
    }

    #[test]
    fn errors_name_line_column_and_field() {
        let rows = [
            ("", 1, 1, "", "expected an object, found the end of the text"),
            ("[[[", 1, 1, "", "expected an object, found `[`"),
            ("{", 1, 2, "", "expected a field name in quotes or `}`, found the end of the text"),
            ("{}\n x", 2, 2, "", "expected the end of the text, found `x`"),
            ("{\"name\": \"a\",}", 1, 14, "", "expected a field name in quotes, found `}`"),
            ("{\"name\" \"a\"}", 1, 9, "", "expected `:`, found `\"a\"`"),
            ("{\"name\": 1}", 1, 10, "name", "expected a string, found `1`"),
            (
                "{\"name\": \"a\nb\"}",
                1,
                12,
                "name",
                "expected a closing quote, found the end of the line",
            ),
            (
                "{\"name\": \"a\\x\"}",
                1,
                12,
                "name",
                "the escape sequence `\\x` is not allowed here",
            ),
            (
                "{\"name\": \"\\ud83d\"}",
                1,
                11,
                "name",
                "the escape sequence `\\ud83d` is not allowed here",
            ),
            ("{\"naem\": 1}", 1, 2, "", "AttributeProto has no field `naem`; did you mean `name`?"),
            ("{\"weights\": 1}", 1, 2, "", "AttributeProto has no field `weights`"),
            ("{\"i\": 1, \"i\": 2}", 1, 15, "i", "`i` occurs for the second time"),
            (
                "{\"doc_string\": null, \"docString\": \"\"}",
                1,
                35,
                "doc_string",
                "`doc_string` occurs for the second time",
            ),
            ("{\"i\": 1.5}", 1, 7, "i", "`1.5` is not a value of type int64"),
            ("{\"i\": true}", 1, 7, "i", "expected a number, found `true`"),
            ("{\"i\": 01}", 1, 7, "i", "`01` is not a value of type int64"),
            (
                "{\"i\": 9223372036854775808}",
                1,
                7,
                "i",
                "`9223372036854775808` is not a value of type int64",
            ),
            ("{\"i\": [1]}", 1, 7, "i", "expected a number, found `[`"),
            ("{\"f\": NaN}", 1, 7, "f", "expected a number, found `NaN`"),
            ("{\"f\": \"inf\"}", 1, 7, "f", "`inf` is not a value of type float"),
            ("{\"f\": 1e39}", 1, 7, "f", "`1e39` is not a value of type float"),
            ("{\"ints\": 1}", 1, 10, "ints", "expected a list, found `1`"),
            ("{\"ints\": [1, null]}", 1, 14, "ints[1]", "expected a number, found `null`"),
            ("{\"ints\": [1,]}", 1, 13, "ints[1]", "expected a number, found `]`"),
            ("{\"s\": \"a\"}", 1, 8, "s", "this is not base64: Invalid input length: 1"),
            ("{\"s\": \"????\"}", 1, 8, "s", "this is not base64: Invalid symbol 63, offset 0."),
            ("{\"type\": \"int\"}", 1, 10, "type", "the enumeration has no value named `int`"),
            ("{\"tensors\": [{}, null]}", 1, 18, "tensors[1]", "expected an object, found `null`"),
            (
                "{\"tensors\": [{},\n{\"dims\":\n[\"x\"]}]}",
                3,
                2,
                "tensors[1].dims[0]",
                "`x` is not a value of type int64",
            ),
            (
                "{\"tp\": {\"tensorType\": {}, \"mapType\": {}}}",
                1,
                38,
                "tp.map_type",
                "`map_type` and `tensor_type` exclude each other",
            ),
        ];
        for (text, line, column, place, message) in rows {
            let error = failure::<AttributeProto>(text);
            assert_eq!(error.position(), Position::Text { line, column }, "{text}: {error}");
            assert_eq!(
                (error.kind().to_string().as_str(), error.place()),
                (message, place),
                "{text}"
            );
        }
        let error = read::<AttributeProto>(b"{\"name\": \"a\xff\"}", Limits::default());
        let error = error.expect_err("not UTF-8");
        assert!(matches!(error.kind(), ErrorKind::NotUtf8), "{error}");
        assert_eq!(error.position(), Position::Text { line: 1, column: 12 });
    }

    #[test]
    fn nesting_is_bounded_by_the_limit_only() {
        // WIRE-32: within two mebibytes of stack, which is what a test's thread has
        let nested = |levels: usize| {
            let mut text = "{\"sequenceValues\": [".repeat(levels);
            text.push_str("{}");
            text.push_str(&"]}".repeat(levels));
            text
        };
        assert!(read::<SequenceProto>(nested(999).as_bytes(), Limits::default()).is_ok());
        let error = failure::<SequenceProto>(&nested(100_000));
        assert!(matches!(error.kind(), ErrorKind::TooDeep { limit: 1_000 }), "{error}");
        let deep = Limits { depth: 200_000 };
        let bytes = read::<SequenceProto>(nested(100_000).as_bytes(), deep).unwrap();
        let mut text = Vec::new();
        let options = super::super::WriteOptions { limits: Limits { depth: 50 }, ascii: true };
        let error = super::super::write::<SequenceProto>(&bytes, options, &mut text);
        assert!(matches!(error.expect_err("too deep").kind(), ErrorKind::Wire(_)));
        for opening in ["[", "{", "{\"graph\":", "{\"graph\":["] {
            failure::<ModelProto>(&opening.repeat(100_000));
        }
    }
}
