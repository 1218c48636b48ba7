//! Conversion of JSON to a message.

use base64::alphabet;
use base64::engine::{DecodePaddingMode, Engine, GeneralPurpose, GeneralPurposeConfig};
use sardonyx_proto::{FieldDef, Limits, MessageType, shown};

use crate::assembly::{Assembly, Claim};
use crate::cursor::{Cursor, fault_at};
use crate::error::{Error, ErrorKind, Fault};
use crate::names::Spelling;
use crate::numerals::{parse, parse_integer};
use crate::parser::{Frame, Parser, Syntax, Token, parse_message, unicode_escape};

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
    fill(text, Assembly::new::<M>(limits))
}

/// Reads the message of `assembly`. Not generic, so that the parser is compiled once, in this
/// crate.
fn fill(text: &[u8], assembly: Assembly) -> Result<Vec<u8>, Error> {
    parse_message::<Json>(text, assembly)
}

/// Grammar of protobuf JSON.
struct Json;

/// A string between its quotes.
struct Quoted<'t> {
    bytes: &'t [u8],
    /// Offset of its first byte, after the quote.
    start: usize,
    has_escapes: bool,
}

impl Syntax for Json {
    const FLOAT_OVERFLOWS: bool = false;

    #[inline]
    fn skip_space(cursor: &mut Cursor<'_>) {
        cursor.take_while(is_space);
    }

    /// Skips nothing: the comma between fields must not follow the last one.
    fn skip_separator(_: &mut Cursor<'_>) {}

    fn begin_text(cursor: &mut Cursor<'_>) -> Result<Option<u8>, Fault> {
        Json::skip_space(cursor);
        Json::begin_message(cursor).map(Some)
    }

    fn begin_message(cursor: &mut Cursor<'_>) -> Result<u8, Fault> {
        cursor.expect(b'{', "an object")?;
        Ok(b'}')
    }

    #[inline]
    fn parse_field(parser: &mut Parser<'_, Json>, frame: Frame) -> Result<(), Fault> {
        if frame.has_field {
            parser.cursor.expect(b',', "`,` or `}`")?;
            Json::skip_space(&mut parser.cursor);
        }
        let start = parser.cursor.pos;
        let expected = if frame.has_field {
            "a field name in quotes"
        } else {
            "a field name in quotes or `}`"
        };
        let key = take_quoted(&mut parser.cursor, expected)?;
        let text = if key.has_escapes {
            unescape(&key, &mut parser.scratch)?;
            &parser.scratch
        } else {
            key.bytes
        };
        let (index, field) = parser.find(Token { text, start }, Spelling::TableOrCamel)?;
        Json::skip_space(&mut parser.cursor);
        parser.cursor.expect(b':', "`:`")?;
        Json::skip_space(&mut parser.cursor);
        parser.field = Some(field);
        let start = parser.cursor.pos;
        if parser.cursor.rest().starts_with(b"null") {
            parser.claim(index, Claim::Null, start)?;
            parser.cursor.pos += b"null".len();
            return Ok(());
        }
        parser.claim(index, Claim::Key, start)?;
        if field.is_list() {
            parser.cursor.expect(b'[', "a list")?;
            parser.begin_list(field);
            return Ok(());
        }
        parser.parse_value(field, start)
    }

    /// Reads the text of a number, with or without quotes.
    #[inline]
    fn take_number<'t>(cursor: &mut Cursor<'t>) -> Result<Token<'t>, Fault> {
        let start = cursor.pos;
        if cursor.peek() == Some(b'"') {
            let text = take_quoted(cursor, "a number")?.bytes;
            return Ok(Token { text, start });
        }
        match cursor.take_while(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte)) {
            [] => Err(cursor.unexpected("a number")),
            text => Ok(Token { text, start }),
        }
    }

    #[inline]
    fn parse_integer(text: &[u8]) -> Option<i128> {
        let whole = match text {
            // JSON has no leading zeros.
            [b'0', _, ..] | [b'-', b'0', _, ..] => None,
            _ => parse_integer(text),
        };
        whole.or_else(|| parse_whole_double(text))
    }

    #[inline]
    fn parse_double(text: &[u8]) -> Option<f64> {
        match text {
            // Only in quotes: a number without them has no letter but `e`.
            b"NaN" => Some(f64::NAN),
            b"Infinity" => Some(f64::INFINITY),
            b"-Infinity" => Some(f64::NEG_INFINITY),
            _ if is_numeral(text) => parse(text).filter(|value: &f64| value.is_finite()),
            _ => None,
        }
    }

    fn take_enum_number(cursor: &mut Cursor<'_>, field: &FieldDef) -> Result<i32, Fault> {
        let is_quoted = cursor.peek() == Some(b'"');
        let token = Json::take_number(cursor)?;
        if !is_quoted {
            return token.narrow(Json::parse_integer(token.text), "enum");
        }
        match parse_integer(token.text) {
            None => token.find_enum_number(field),
            number => token.narrow(number, "enum"),
        }
    }

    #[inline]
    fn take_string<'t>(
        cursor: &mut Cursor<'t>,
        scratch: &mut Vec<u8>,
    ) -> Result<Option<&'t [u8]>, Fault> {
        let quoted = take_quoted(cursor, "a string")?;
        if let Err(error) = std::str::from_utf8(quoted.bytes) {
            let pos = quoted.start + error.valid_up_to();
            return Err(fault_at(ErrorKind::NotUtf8, pos));
        }
        if quoted.has_escapes {
            unescape(&quoted, scratch)?;
            return Ok(None);
        }
        Ok(Some(quoted.bytes))
    }

    fn take_bytes(cursor: &mut Cursor<'_>, scratch: &mut Vec<u8>) -> Result<(), Fault> {
        let quoted = take_quoted(cursor, "a string in base64")?;
        // In base64 only the slash may be escaped.
        let own;
        let encoded = if quoted.has_escapes {
            own = unescape(&quoted, scratch)?.to_vec();
            &own
        } else {
            quoted.bytes
        };
        scratch.clear();
        let mut decoded = BASE64.decode_vec(encoded, scratch);
        if decoded.is_err() && encoded.iter().any(|byte| b"-_".contains(byte)) {
            // Rare URL-safe alphabet, for which a copy is acceptable.
            let standard = |byte: &u8| match byte {
                b'-' => b'+',
                b'_' => b'/',
                other => *other,
            };
            let standard: Vec<u8> = encoded.iter().map(standard).collect();
            scratch.clear();
            decoded = BASE64.decode_vec(standard, scratch);
        }
        decoded.map_err(|error| fault_at(ErrorKind::Base64(error), quoted.start))
    }
}

/// Reads a string, up to after its closing quote.
#[inline]
fn take_quoted<'t>(cursor: &mut Cursor<'t>, expected: &'static str) -> Result<Quoted<'t>, Fault> {
    cursor.expect(b'"', expected)?;
    let start = cursor.pos;
    let mut has_escapes = false;
    loop {
        cursor.take_while(|byte| byte >= b' ' && byte != b'"' && byte != b'\\');
        match cursor.peek() {
            Some(b'"') => break,
            Some(b'\\') => {
                has_escapes = true;
                cursor.pos = cursor.text.len().min(cursor.pos + 2);
            }
            _ => return Err(cursor.unexpected("a closing quote")),
        }
    }
    let bytes = &cursor.text[start..cursor.pos];
    cursor.pos += 1;
    Ok(Quoted { bytes, start, has_escapes })
}

/// Puts a string without its escape sequences into `scratch`, and returns it.
fn unescape<'s>(quoted: &Quoted<'_>, scratch: &'s mut Vec<u8>) -> Result<&'s [u8], Fault> {
    scratch.clear();
    let mut rest = quoted.bytes;
    while let Some(len) = rest.iter().position(|byte| *byte == b'\\') {
        scratch.extend_from_slice(&rest[..len]);
        rest = &rest[len..];
        let Some((character, taken)) = parse_escape(rest) else {
            let pos = quoted.start + (quoted.bytes.len() - rest.len());
            let sequence = shown(&rest[..rest.len().min(6)]);
            return Err(fault_at(ErrorKind::Escape(sequence), pos));
        };
        scratch.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        rest = &rest[taken..];
    }
    scratch.extend_from_slice(rest);
    Ok(scratch)
}

#[inline]
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

/// Returns the character of an escape sequence, and the length of the sequence in bytes.
fn parse_escape(text: &[u8]) -> Option<(char, usize)> {
    let short = match text.get(1)? {
        b'"' => '"',
        b'\\' => '\\',
        b'/' => '/',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return unicode_escape(text),
        _ => return None,
    };
    Some((short, 2))
}

/// Whether `text` is a number of JSON.
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

/// Returns a whole number that is written with a fraction or an exponent, such as `1.0` or `1e3`.
fn parse_whole_double(text: &[u8]) -> Option<i128> {
    let value: f64 = is_numeral(text).then(|| parse(text))??;
    // No type of the format has values beyond this bound; below it the conversion is exact.
    (value.fract() == 0.0 && value.abs() <= 1e20).then_some(value as i128)
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
            ("{\"i\": 1, \"i\": 2}", 1, 15, "i", "duplicate field `i`"),
            (
                "{\"doc_string\": null, \"docString\": \"\"}",
                1,
                35,
                "doc_string",
                "duplicate field `doc_string`",
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
