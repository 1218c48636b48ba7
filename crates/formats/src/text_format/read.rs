//! From text format to a message.

use sardonyx_proto::{FieldDef, FieldKind, Limits, MessageType, shown};

use crate::assembly::{Assembly, Claim};
use crate::cursor::{Cursor, fault_at, position};
use crate::error::{Error, ErrorKind, Fault};
use crate::names::{Spelling, find};
use crate::numerals::{parse, parse_integer, parse_radix};

/// Reads a message of type `M` from text format. The bytes are canonical: fields ascend, lists are
/// packed where the table says so, and what the text states is there even if it is zero or empty.
///
/// # Errors
///
/// A text that is not text format, names that the message does not have, values that do not fit
/// their field, a field that occurs twice although it may occur once, and nesting beyond the limit.
pub fn read<M: MessageType>(text: &[u8], limits: Limits) -> Result<Vec<u8>, Error> {
    let mut reader = TextReader {
        cursor: Cursor::new(text),
        assembly: Assembly::new::<M>(limits),
        frames: vec![Frame::new(None)],
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

struct TextReader<'t> {
    cursor: Cursor<'t>,
    assembly: Assembly,
    /// One per message that has not ended.
    frames: Vec<Frame>,
    /// The field whose value is being read, for error messages.
    field: Option<&'static FieldDef>,
    element: Option<u64>,
    scratch: Vec<u8>,
}

/// How far a message has been read.
struct Frame {
    /// What ends it; the outermost one ends with the text.
    closing: Option<u8>,
    /// The list of messages that is being read, and whether it has had an element.
    list: Option<(&'static FieldDef, bool)>,
}

impl Frame {
    fn new(closing: Option<u8>) -> Self {
        let list = None;
        Frame { closing, list }
    }
}

impl TextReader<'_> {
    fn run(&mut self) -> Result<(), Fault> {
        while let Some(frame) = self.frames.last() {
            let (closing, list) = (frame.closing, frame.list);
            self.skip_space();
            match list {
                Some((field, has_element)) => self.element(field, has_element)?,
                None => self.member(closing)?,
            }
        }
        Ok(())
    }

    /// A field with its value, or the end of the message.
    fn member(&mut self, closing: Option<u8>) -> Result<(), Fault> {
        self.field = None;
        let ends = match closing {
            Some(closing) => self.cursor.take(closing),
            None => self.cursor.rest().is_empty(),
        };
        if ends {
            self.end_message();
            return Ok(());
        }
        let start = self.cursor.pos;
        let field = self.name(closing)?;
        self.field = Some(field);
        self.element = None;
        self.skip_space();
        let is_message = matches!(field.kind, FieldKind::Message(_));
        if !self.cursor.take(b':') && !is_message {
            return Err(self.cursor.expected("`:`"));
        }
        self.skip_space();
        if field.is_list() && self.cursor.take(b'[') {
            return if is_message {
                self.set_list(Some((field, false)));
                Ok(())
            } else {
                self.leaves(field)
            };
        }
        self.value(field, start)?;
        if !is_message {
            self.skip_separator();
        }
        Ok(())
    }

    fn name(&mut self, closing: Option<u8>) -> Result<&'static FieldDef, Fault> {
        let start = self.cursor.pos;
        let name = self.cursor.take_while(is_name);
        if name.is_empty() {
            return Err(self.cursor.expected(match closing {
                None => "a field name",
                Some(b'>') => "a field name or `>`",
                Some(_) => "a field name or `}`",
            }));
        }
        let Some(def) = self.assembly.def() else {
            return Err(self.cursor.expected("the end of the text"));
        };
        let (index, field) =
            find(def, name, Spelling::Table).map_err(|kind| fault_at(kind, start))?;
        self.assembly.claim(index, Claim::Value).map_err(|kind| fault_at(kind, start))?;
        Ok(field)
    }

    fn set_list(&mut self, list: Option<(&'static FieldDef, bool)>) {
        if let Some(frame) = self.frames.last_mut() {
            frame.list = list;
        }
    }

    fn end_message(&mut self) {
        self.frames.pop();
        self.assembly.end();
        if self.frames.last().is_some_and(|frame| frame.list.is_none()) {
            self.skip_separator();
        }
    }

    /// An element of a list of messages, or the end of the list.
    fn element(&mut self, field: &'static FieldDef, has_element: bool) -> Result<(), Fault> {
        if self.cursor.take(b']') {
            self.set_list(None);
            self.skip_separator();
            return Ok(());
        }
        if has_element {
            if !self.cursor.take(b',') {
                return Err(self.cursor.expected("`,` or `]`"));
            }
            self.skip_space();
        }
        self.set_list(Some((field, true)));
        self.value(field, self.cursor.pos)
    }

    /// The elements of a list in brackets whose elements are no messages, to its end.
    fn leaves(&mut self, field: &'static FieldDef) -> Result<(), Fault> {
        self.skip_space();
        if self.cursor.take(b']') {
            self.skip_separator();
            return Ok(());
        }
        let mut index = 0;
        loop {
            self.element = Some(index);
            self.skip_space();
            self.value(field, self.cursor.pos)?;
            self.skip_space();
            if self.cursor.take(b']') {
                self.skip_separator();
                return Ok(());
            }
            if !self.cursor.take(b',') {
                return Err(self.cursor.expected("`,` or `]`"));
            }
            index += 1;
        }
    }

    /// One value. A message is only begun; that it nests too deeply is found at `start`.
    fn value(&mut self, field: &'static FieldDef, start: usize) -> Result<(), Fault> {
        match field.kind {
            FieldKind::Message(def) => {
                let closing = match self.cursor.peek() {
                    Some(b'{') => b'}',
                    Some(b'<') => b'>',
                    _ => return Err(self.cursor.expected("`{`")),
                };
                self.cursor.pos += 1;
                self.assembly.begin(def(), field).map_err(|kind| fault_at(kind, start))?;
                self.field = None;
                self.frames.push(Frame::new(Some(closing)));
            }
            FieldKind::Text => {
                let start = self.cursor.pos;
                self.strings("a string")?;
                if std::str::from_utf8(&self.scratch).is_err() {
                    return Err(fault_at(ErrorKind::NotUtf8, start));
                }
                self.assembly.bytes(field, &mut self.scratch);
            }
            FieldKind::Blob => {
                self.strings("bytes in quotes")?;
                self.assembly.bytes(field, &mut self.scratch);
            }
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
                // By way of a double, as protobuf does it: what it rounds twice, we do. Too large
                // becomes infinite.
                let (value, negative) = self.double("float")?;
                let bits = if value.is_nan() { 0x7fc0_0000 } else { (value as f32).to_bits() };
                let sign = u32::from(negative) << 31;
                self.assembly.word(field, (bits | sign).into());
            }
            FieldKind::Double => {
                let (value, negative) = self.double("double")?;
                let bits = if value.is_nan() { 0x7ff8_0000_0000_0000 } else { value.to_bits() };
                self.assembly.word(field, bits | u64::from(negative) << 63);
            }
        }
        Ok(())
    }

    /// A number or name, and where it begins.
    fn literal(&mut self, expected: &'static str) -> Result<(&[u8], usize), Fault> {
        let start = self.cursor.pos;
        let text = self.cursor.take_while(|byte| is_name(byte) || b".+-".contains(&byte));
        match text {
            [] => Err(self.cursor.expected(expected)),
            _ => Ok((text, start)),
        }
    }

    fn integer<T: TryFrom<i128>>(&mut self, kind: &'static str) -> Result<T, Fault> {
        let (text, start) = self.literal("a number")?;
        integer_of(text)
            .and_then(|value| T::try_from(value).ok())
            .ok_or_else(|| fault_at(not_a(kind, text), start))
    }

    /// A number without its sign, and whether it is negative.
    fn double(&mut self, kind: &'static str) -> Result<(f64, bool), Fault> {
        let (text, start) = self.literal("a number")?;
        let (digits, negative) = split_sign(text);
        match double_of(digits) {
            Some(value) => Ok((value, negative)),
            None => Err(fault_at(not_a(kind, text), start)),
        }
    }

    fn enum_number(&mut self, field: &FieldDef) -> Result<i32, Fault> {
        let (text, start) = self.literal("a name or a number")?;
        if text[0].is_ascii_alphabetic() || text[0] == b'_' {
            let number = std::str::from_utf8(text).ok();
            let number = number.and_then(|name| field.kind.enum_number(name));
            let name = || shown(text);
            return number.ok_or_else(|| fault_at(ErrorKind::EnumName { name: name() }, start));
        }
        integer_of(text)
            .and_then(|value| i32::try_from(value).ok())
            .ok_or_else(|| fault_at(not_a("enum", text), start))
    }

    /// One or more strings next to each other, as one, in `scratch`.
    fn strings(&mut self, expected: &'static str) -> Result<(), Fault> {
        self.scratch.clear();
        if !matches!(self.cursor.peek(), Some(b'"' | b'\'')) {
            return Err(self.cursor.expected(expected));
        }
        while let Some(quote @ (b'"' | b'\'')) = self.cursor.peek() {
            self.cursor.pos += 1;
            self.string(quote)?;
            self.skip_space();
        }
        Ok(())
    }

    /// A string from after its opening quote to after its closing one.
    fn string(&mut self, quote: u8) -> Result<(), Fault> {
        loop {
            let mut rest = self.cursor.rest();
            let before = rest.len();
            // Payloads consist of little else than three digits and plain characters.
            while let [first, after @ ..] = rest {
                if *first != quote && *first != b'\\' && *first != b'\n' {
                    self.scratch.push(*first);
                    rest = after;
                } else if let [
                    b'\\',
                    a @ b'0'..=b'3',
                    b @ b'0'..=b'7',
                    c @ b'0'..=b'7',
                    after @ ..,
                ] = rest
                {
                    self.scratch.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                    rest = after;
                } else {
                    break;
                }
            }
            self.cursor.pos += before - rest.len();
            match self.cursor.peek() {
                Some(b'\\') => {
                    let rest = self.cursor.rest();
                    let Some(taken) = push_unescaped(rest, &mut self.scratch) else {
                        let sequence = shown(&rest[..rest.len().min(4)]);
                        return Err(self.cursor.fault(ErrorKind::Escape(sequence)));
                    };
                    self.cursor.pos += taken;
                }
                Some(byte) if byte == quote => {
                    self.cursor.pos += 1;
                    return Ok(());
                }
                _ => return Err(self.cursor.expected("a closing quote")),
            }
        }
    }

    fn skip_separator(&mut self) {
        self.skip_space();
        if !self.cursor.take(b',') {
            self.cursor.take(b';');
        }
    }

    /// Spaces and comments.
    fn skip_space(&mut self) {
        self.cursor.take_while(is_space);
        while self.cursor.peek() == Some(b'#') {
            self.cursor.take_while(|byte| byte != b'\n');
            self.cursor.take_while(is_space);
        }
    }
}

#[inline]
fn is_space(byte: u8) -> bool {
    byte == b' ' || (b'\t'..=b'\r').contains(&byte)
}

#[inline]
fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn split_sign(text: &[u8]) -> (&[u8], bool) {
    match text {
        [b'-', digits @ ..] => (digits, true),
        [b'+', digits @ ..] => (digits, false),
        digits => (digits, false),
    }
}

/// A whole number: decimal, hexadecimal (`0x`), octal (`0` or `0o`) or binary (`0b`).
fn integer_of(text: &[u8]) -> Option<i128> {
    let (digits, negative) = split_sign(text);
    let value = match digits {
        [b'0', b'x' | b'X', digits @ ..] => parse_radix(digits, 16),
        [b'0', b'o' | b'O', digits @ ..] => parse_radix(digits, 8),
        [b'0', b'b' | b'B', digits @ ..] => parse_radix(digits, 2),
        [b'0', digits @ ..] if !digits.is_empty() => parse_radix(digits, 8),
        [b'0'..=b'9', ..] => parse_integer(digits),
        _ => None,
    }?;
    Some(if negative { -value } else { value })
}

/// A number without a sign. Octal and hexadecimal numbers are whole, so they do not count here.
fn double_of(digits: &[u8]) -> Option<f64> {
    let word = |names: [&str; 2]| {
        let is = |name: &str| digits.eq_ignore_ascii_case(name.as_bytes());
        names.iter().any(|name| is(name) || is(&format!("{name}f")))
    };
    match digits {
        [b'0', b'0'..=b'9', ..] => None,
        [b'0'..=b'9' | b'.', front @ .., b'f' | b'F'] if !front.contains(&b'x') => {
            parse(&digits[..digits.len() - 1])
        }
        [b'0'..=b'9' | b'.', ..] => parse(digits),
        _ if word(["inf", "infinity"]) => Some(f64::INFINITY),
        _ if word(["nan", "nan"]) => Some(f64::NAN),
        _ => None,
    }
}

/// Appends what an escape sequence stands for, and gives its length.
fn push_unescaped(text: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let byte = match text.get(1)? {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'a' => 0x07,
        b'b' => 0x08,
        b'v' => 0x0b,
        b'f' => 0x0c,
        quoted @ (b'"' | b'\'' | b'\\' | b'?') => *quoted,
        b'0'..=b'7' => {
            let len = digits(&text[1..], 3, |byte| (b'0'..=b'7').contains(byte));
            let value = parse_radix(&text[1..=len], 8)?;
            out.push(u8::try_from(value).ok()?);
            return Some(1 + len);
        }
        b'x' | b'X' => {
            let len = digits(&text[2..], 2, u8::is_ascii_hexdigit);
            let value = parse_radix(&text[2..2 + len], 16)?;
            out.push(u8::try_from(value).ok()?);
            return Some(2 + len);
        }
        b'u' | b'U' => {
            let (character, len) = character(text)?;
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            return Some(len);
        }
        _ => return None,
    };
    out.push(byte);
    Some(2)
}

fn digits(text: &[u8], most: usize, is_digit: impl Fn(&u8) -> bool) -> usize {
    let digits = text.iter().take(most).take_while(|byte| is_digit(byte));
    digits.count()
}

/// `\u` with four digits, two of them that together are one character, or `\U` with eight.
fn character(text: &[u8]) -> Option<(char, usize)> {
    let unit = |from: usize, len: usize| {
        let digits = text.get(from + 2..from + 2 + len)?;
        let all = digits.iter().all(u8::is_ascii_hexdigit);
        u32::try_from(parse_radix(digits, 16).filter(|_| all)?).ok()
    };
    if text[1] == b'U' {
        return Some((char::from_u32(unit(0, 8)?)?, 10));
    }
    let first = unit(0, 4)?;
    if let Some(character) = char::from_u32(first) {
        return Some((character, 6));
    }
    let second = text.get(6..8).filter(|text| text == b"\\u");
    let pair = [first, second.and_then(|_| unit(6, 4))?].map(|unit| unit as u16);
    let character = char::decode_utf16(pair).next()?.ok()?;
    Some((character, 12))
}

fn not_a(kind: &'static str, text: &[u8]) -> ErrorKind {
    ErrorKind::Number { kind, text: format!("`{}`", shown(text)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Position;
    use sardonyx_proto::{AttributeProto, GraphProto, ModelProto, SequenceProto, TensorProto};

    fn failure<M: MessageType>(text: &str) -> Error {
        read::<M>(text.as_bytes(), Limits::default()).expect_err(text)
    }

    #[test]
    fn values_in_every_spelling() {
        let rows: [(&str, &[u8]); 54] = [
            ("", b""),
            ("# nothing\n \t# more", b""),
            ("f: 1.5", b"\x15\x00\x00\xc0\x3f"),
            ("f: 1.5f", b"\x15\x00\x00\xc0\x3f"),
            ("f: .5F", b"\x15\x00\x00\x00\x3f"),
            ("f: 1.", b"\x15\x00\x00\x80\x3f"),
            ("f: 1", b"\x15\x00\x00\x80\x3f"),
            ("f: +1e0", b"\x15\x00\x00\x80\x3f"),
            ("f: inf", b"\x15\x00\x00\x80\x7f"),
            ("f: -Infinityf", b"\x15\x00\x00\x80\xff"),
            ("f: nan", b"\x15\x00\x00\xc0\x7f"),
            ("f: -nan", b"\x15\x00\x00\xc0\xff"),
            ("f: NaNf", b"\x15\x00\x00\xc0\x7f"),
            ("f: -0", b"\x15\x00\x00\x00\x80"),
            ("f: 1e39", b"\x15\x00\x00\x80\x7f"),
            ("i:0", b"\x18\x00"),
            ("i: 0x1F", b"\x18\x1f"),
            ("i: 017", b"\x18\x0f"),
            ("i: 0o17", b"\x18\x0f"),
            ("i: 0b11", b"\x18\x03"),
            ("i: +5", b"\x18\x05"),
            ("i: -0x1", b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
            ("i: -9223372036854775808", b"\x18\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"),
            ("i: 1, type: INT; name: 'x'", b"\x0a\x01x\x18\x01\xa0\x01\x02"),
            ("type: 2", b"\xa0\x01\x02"),
            ("type: 0x63", b"\xa0\x01\x63"),
            (
                r#"s: "a" 'b' # comment
                "c""#,
                b"\x22\x03abc",
            ),
            (r#"s: 'say "it"'"#, b"\x22\x08say \"it\""),
            (r#"s: "\1\12\1234\0""#, b"\x22\x05\x01\x0aS4\x00"),
            (r#"s: "\377""#, b"\x22\x01\xff"),
            (r#"s: "\x1g\x123""#, b"\x22\x04\x01g\x123"),
            (r#"s: "\u00e9\U0001F600""#, b"\x22\x06\xc3\xa9\xf0\x9f\x98\x80"),
            (r#"s: "\ud83d\ude00""#, b"\x22\x04\xf0\x9f\x98\x80"),
            (r#"s: "\a\b\f\n\r\t\v\\\'\"\?""#, b"\x22\x0b\x07\x08\x0c\n\r\t\x0b\\'\"?"),
            ("s: \"\u{e9}\ttab\"", b"\x22\x06\xc3\xa9\ttab"),
            ("s: \"\"", b"\x22\x00"),
            ("t {}", b"\x2a\x00"),
            ("t: {}", b"\x2a\x00"),
            ("t <>", b"\x2a\x00"),
            ("t: < dims: 1 >,", b"\x2a\x02\x08\x01"),
            ("t { dims: 1; dims: 2, }", b"\x2a\x04\x08\x01\x08\x02"),
            ("ints: 1 ints: 2", b"\x40\x01\x40\x02"),
            ("ints: [1, 0x2]", b"\x40\x01\x40\x02"),
            ("ints: []", b""),
            ("ints: [1] i: 3 ints: 2", b"\x18\x03\x40\x01\x40\x02"),
            ("strings: ['a' 'b', 'c'];", b"\x4a\x02ab\x4a\x01c"),
            ("tensors [{dims: 1}, <>]", b"\x52\x02\x08\x01\x52\x00"),
            ("tensors: [ ]", b""),
            ("tensors {} tensors: [{}] tensors <>", b"\x52\x00\x52\x00\x52\x00"),
            ("floats: [1, -inf]", b"\x3d\x00\x00\x80\x3f\x3d\x00\x00\x80\xff"),
            ("name:'a'f:1", b"\x0a\x01a\x15\x00\x00\x80\x3f"),
            ("g{node{}}", b"\x32\x02\x0a\x00"),
            ("g\n#c\n{\n}\n,", b"\x32\x00"),
            ("type: TYPE_PROTOS", b"\xa0\x01\x0e"),
        ];
        for (text, expected) in rows {
            let bytes = read::<AttributeProto>(text.as_bytes(), Limits::default());
            let bytes = bytes.unwrap_or_else(|error| panic!("{error}: {text}"));
            assert_eq!(bytes, expected, "{text}");
        }
        // WIRE-16: a packed list in parts is one block
        let text = b"int64_data: 1 name: \"\" int64_data: [2, 3] dims: 3 int64_data: 4";
        assert_eq!(
            read::<TensorProto>(text, Limits::default()).unwrap(),
            b"\x08\x03\x3a\x04\x01\x02\x03\x04\x42\x00"
        );
    }

    #[test]
    fn errors_name_line_column_and_field() {
        let rows = [
            ("{", 1, 1, "", "expected a field name, found `{`"),
            ("t {", 1, 4, "t", "expected a field name or `}`, found the end of the text"),
            ("t {\n  dims: 1\n>", 3, 1, "t", "expected a field name or `}`, found `>`"),
            ("t < }", 1, 5, "t", "expected a field name or `>`, found `}`"),
            ("[foo.bar]: 1", 1, 1, "", "expected a field name, found `[`"),
            ("naem: ''", 1, 1, "", "AttributeProto has no field `naem`; did you mean `name`?"),
            ("999: 1", 1, 1, "", "AttributeProto has no field `999`"),
            (
                "refAttrName: 'a'",
                1,
                1,
                "",
                "AttributeProto has no field `refAttrName`; did you mean `ref_attr_name`?",
            ),
            ("name 'a'", 1, 6, "name", "expected `:`, found `'a'`"),
            ("name: a", 1, 7, "name", "expected a string, found `a`"),
            ("name: \"a\nb\"", 1, 9, "name", "expected a closing quote, found the end of the line"),
            ("name: \"\\377\"", 1, 7, "name", "a string is not UTF-8"),
            ("s: \"\\400\"", 1, 5, "s", "the escape sequence `\\400` is not allowed here"),
            ("s: \"\\q\"", 1, 5, "s", "the escape sequence `\\q\"` is not allowed here"),
            ("s: \"\\x\"", 1, 5, "s", "the escape sequence `\\x\"` is not allowed here"),
            ("s: \"\\ud83d\"", 1, 5, "s", "the escape sequence `\\ud8` is not allowed here"),
            ("i: 1.0", 1, 4, "i", "`1.0` is not a value of type int64"),
            ("i: 08", 1, 4, "i", "`08` is not a value of type int64"),
            ("i: - 5", 1, 4, "i", "`-` is not a value of type int64"),
            ("i: true", 1, 4, "i", "`true` is not a value of type int64"),
            (
                "i: 9223372036854775808",
                1,
                4,
                "i",
                "`9223372036854775808` is not a value of type int64",
            ),
            (
                "t {data_type: 2147483648}",
                1,
                15,
                "t.data_type",
                "`2147483648` is not a value of type int32",
            ),
            ("f: 0x1", 1, 4, "f", "`0x1` is not a value of type float"),
            ("f: 017", 1, 4, "f", "`017` is not a value of type float"),
            ("f: infinite", 1, 4, "f", "`infinite` is not a value of type float"),
            ("type: int", 1, 7, "type", "the enumeration has no value named `int`"),
            ("i: 1 i: 2", 1, 6, "", "`i` occurs for the second time"),
            ("t {} t {}", 1, 6, "", "`t` occurs for the second time"),
            (
                "tp { tensor_type {} map_type {} }",
                1,
                21,
                "tp",
                "`map_type` and `tensor_type` exclude each other",
            ),
            ("i: [1]", 1, 4, "i", "expected a number, found `[`"),
            ("ints: [1,]", 1, 10, "ints[1]", "expected a number, found `]`"),
            ("ints: [1 2]", 1, 10, "ints[0]", "expected `,` or `]`, found `2`"),
            ("tensors [{} {}]", 1, 13, "tensors[1]", "expected `,` or `]`, found `{`"),
            (
                "tensors {} tensors {\n  dims: x }",
                2,
                9,
                "tensors[1].dims",
                "`x` is not a value of type int64",
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
    }

    #[test]
    fn nesting_is_bounded_by_the_limit_only() {
        // WIRE-32: within two mebibytes of stack, which is what a test's thread has
        let nested =
            |levels: usize, open: &str, close: &str| open.repeat(levels) + &close.repeat(levels);
        let limits = Limits::default();
        let fits = nested(1_000, "sequence_values {", "}");
        assert!(read::<SequenceProto>(fits.as_bytes(), limits).is_ok());
        for (open, close) in [("sequence_values {", "}"), ("sequence_values: [<", ">]")] {
            let error = failure::<SequenceProto>(&nested(100_000, open, close));
            assert!(matches!(error.kind(), ErrorKind::TooDeep { limit: 1_000 }), "{error}");
        }
        for open in ["[", "{", "<", "graph {", "graph: <"] {
            failure::<ModelProto>(&open.repeat(100_000));
        }
    }

    #[test]
    fn order_does_not_matter() {
        // WIRE-16, WIRE-33
        let text = b"output {name: 'y'} name: 'g' node {op_type: 'A' input: 'x'} output {name: 'z'} node {}";
        let bytes = read::<GraphProto>(text, Limits::default()).unwrap();
        assert_eq!(
            bytes,
            b"\x0a\x06\x0a\x01x\x22\x01A\x0a\x00\x12\x01g\x62\x03\x0a\x01y\x62\x03\x0a\x01z"
        );
    }
}
