//! Conversion of text format to a message.

use sardonyx_proto::{FieldDef, FieldKind, Limits, MessageType, shown};

use crate::assembly::{Assembly, Claim};
use crate::cursor::{Cursor, fault_at};
use crate::error::{Error, ErrorKind, Fault};
use crate::names::Spelling;
use crate::numerals::{parse, parse_integer, parse_radix};
use crate::parser::{Frame, Parser, Syntax, Token, parse_message, unicode_escape};

/// Reads a message of type `M` from text format. The bytes are canonical: fields ascend, lists are
/// packed where the table requires it, and what the text states is there even if it is zero or
/// empty.
///
/// # Errors
///
/// A text that is not text format, names that the message does not have, values that do not fit
/// their field, a field that occurs twice although it may occur once, and nesting beyond the limit.
pub fn read<M: MessageType>(text: &[u8], limits: Limits) -> Result<Vec<u8>, Error> {
    fill(text, Assembly::new::<M>(limits))
}

/// Reads the message of `assembly`. Not generic, so that the parser is compiled once, in this
/// crate.
fn fill(text: &[u8], assembly: Assembly) -> Result<Vec<u8>, Error> {
    parse_message::<TextFormat>(text, assembly)
}

/// Grammar of protobuf text format.
struct TextFormat;

impl Syntax for TextFormat {
    const FLOAT_OVERFLOWS: bool = true;

    #[inline]
    fn skip_space(cursor: &mut Cursor<'_>) {
        cursor.take_while(is_space);
        while cursor.peek() == Some(b'#') {
            cursor.take_while(|byte| byte != b'\n');
            cursor.take_while(is_space);
        }
    }

    #[inline]
    fn skip_separator(cursor: &mut Cursor<'_>) {
        TextFormat::skip_space(cursor);
        if !cursor.take(b',') {
            cursor.take(b';');
        }
    }

    fn begin_text(_: &mut Cursor<'_>) -> Result<Option<u8>, Fault> {
        Ok(None)
    }

    fn begin_message(cursor: &mut Cursor<'_>) -> Result<u8, Fault> {
        if cursor.take(b'<') {
            return Ok(b'>');
        }
        cursor.expect(b'{', "`{`")?;
        Ok(b'}')
    }

    #[inline]
    fn parse_field(parser: &mut Parser<'_, TextFormat>, frame: Frame) -> Result<(), Fault> {
        let start = parser.cursor.pos;
        let text = parser.cursor.take_while(is_name);
        if text.is_empty() {
            return Err(parser.cursor.unexpected(match frame.closing {
                None => "a field name",
                Some(b'>') => "a field name or `>`",
                Some(_) => "a field name or `}`",
            }));
        }
        let (index, field) = parser.find(Token { text, start }, Spelling::Table)?;
        parser.claim(index, Claim::Value, start)?;
        parser.field = Some(field);
        TextFormat::skip_space(&mut parser.cursor);
        let is_message = matches!(field.kind, FieldKind::Message(_));
        if !parser.cursor.take(b':') && !is_message {
            return Err(parser.cursor.unexpected("`:`"));
        }
        TextFormat::skip_space(&mut parser.cursor);
        if field.is_list() && parser.cursor.take(b'[') {
            parser.begin_list(field);
            return Ok(());
        }
        parser.parse_value(field, start)?;
        if !is_message {
            TextFormat::skip_separator(&mut parser.cursor);
        }
        Ok(())
    }

    #[inline]
    fn take_number<'t>(cursor: &mut Cursor<'t>) -> Result<Token<'t>, Fault> {
        take_literal(cursor, "a number")
    }

    /// Returns a whole number: decimal, hexadecimal (`0x`), octal (`0` or `0o`) or binary (`0b`).
    #[inline]
    fn parse_integer(text: &[u8]) -> Option<i128> {
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

    #[inline]
    fn parse_double(text: &[u8]) -> Option<f64> {
        let (digits, negative) = split_sign(text);
        let value = parse_unsigned(digits)?;
        Some(if negative { -value } else { value })
    }

    fn take_enum_number(cursor: &mut Cursor<'_>, field: &FieldDef) -> Result<i32, Fault> {
        let token = take_literal(cursor, "a name or a number")?;
        if token.text[0].is_ascii_alphabetic() || token.text[0] == b'_' {
            return token.find_enum_number(field);
        }
        token.narrow(TextFormat::parse_integer(token.text), "enum")
    }

    #[inline]
    fn take_string<'t>(
        cursor: &mut Cursor<'t>,
        scratch: &mut Vec<u8>,
    ) -> Result<Option<&'t [u8]>, Fault> {
        let start = cursor.pos;
        take_strings(cursor, scratch, "a string")?;
        match std::str::from_utf8(scratch) {
            Ok(_) => Ok(None),
            Err(_) => Err(fault_at(ErrorKind::NotUtf8, start)),
        }
    }

    fn take_bytes(cursor: &mut Cursor<'_>, scratch: &mut Vec<u8>) -> Result<(), Fault> {
        take_strings(cursor, scratch, "bytes in quotes")
    }
}

/// Reads a number or name.
#[inline]
fn take_literal<'t>(cursor: &mut Cursor<'t>, expected: &'static str) -> Result<Token<'t>, Fault> {
    let start = cursor.pos;
    match cursor.take_while(|byte| is_name(byte) || b".+-".contains(&byte)) {
        [] => Err(cursor.unexpected(expected)),
        text => Ok(Token { text, start }),
    }
}

/// Reads one or more strings next to each other as one, into `scratch`.
fn take_strings(
    cursor: &mut Cursor<'_>,
    scratch: &mut Vec<u8>,
    expected: &'static str,
) -> Result<(), Fault> {
    scratch.clear();
    if !matches!(cursor.peek(), Some(b'"' | b'\'')) {
        return Err(cursor.unexpected(expected));
    }
    while let Some(quote @ (b'"' | b'\'')) = cursor.peek() {
        cursor.pos += 1;
        push_string(cursor, quote, scratch)?;
        TextFormat::skip_space(cursor);
    }
    Ok(())
}

/// Appends a string to `scratch`, from after its opening quote to after its closing one.
fn push_string(cursor: &mut Cursor<'_>, quote: u8, scratch: &mut Vec<u8>) -> Result<(), Fault> {
    loop {
        let mut rest = cursor.rest();
        let before = rest.len();
        // Payloads consist almost entirely of three-digit escapes and plain characters.
        while let [first, after @ ..] = rest {
            if *first != quote && *first != b'\\' && *first != b'\n' {
                scratch.push(*first);
                rest = after;
            } else if let [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] =
                rest
            {
                scratch.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            } else {
                break;
            }
        }
        cursor.pos += before - rest.len();
        match cursor.peek() {
            Some(b'\\') => {
                let rest = cursor.rest();
                let Some(taken) = push_unescaped(rest, scratch) else {
                    let sequence = shown(&rest[..rest.len().min(4)]);
                    return Err(cursor.fault(ErrorKind::Escape(sequence)));
                };
                cursor.pos += taken;
            }
            Some(byte) if byte == quote => {
                cursor.pos += 1;
                return Ok(());
            }
            _ => return Err(cursor.unexpected("a closing quote")),
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

/// Returns a number without a sign. Octal and hexadecimal numbers are refused: they are whole.
fn parse_unsigned(digits: &[u8]) -> Option<f64> {
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

/// Appends the byte or character of an escape sequence, and returns the length of the sequence in
/// bytes.
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
            let len = count_digits(&text[1..], 3, |byte| (b'0'..=b'7').contains(byte));
            let value = parse_radix(&text[1..=len], 8)?;
            out.push(u8::try_from(value).ok()?);
            return Some(1 + len);
        }
        b'x' | b'X' => {
            let len = count_digits(&text[2..], 2, u8::is_ascii_hexdigit);
            let value = parse_radix(&text[2..2 + len], 16)?;
            out.push(u8::try_from(value).ok()?);
            return Some(2 + len);
        }
        b'u' | b'U' => {
            let (character, len) = parse_character(text)?;
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            return Some(len);
        }
        _ => return None,
    };
    out.push(byte);
    Some(2)
}

fn count_digits(text: &[u8], most: usize, is_digit: impl Fn(&u8) -> bool) -> usize {
    let digits = text.iter().take(most).take_while(|byte| is_digit(byte));
    digits.count()
}

/// Reads `\U` with eight digits, or [`unicode_escape`].
fn parse_character(text: &[u8]) -> Option<(char, usize)> {
    let Some(rest) = text.strip_prefix(b"\\U") else {
        return unicode_escape(text);
    };
    let code = parse_radix(rest.get(..8)?, 16)?;
    Some((char::from_u32(u32::try_from(code).ok()?)?, 10))
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
            ("i: 1 i: 2", 1, 6, "", "duplicate field `i`"),
            ("t {} t {}", 1, 6, "", "duplicate field `t`"),
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
