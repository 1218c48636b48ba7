//! Escapes characters by which a text could control the terminal that shows it.

use std::borrow::Cow;

/// Escapes control characters and bidirectional overrides in a text that may come from a file, so
/// that a terminal interprets none of them as a command.
pub(crate) fn escape_controls(text: &str) -> Cow<'_, str> {
    escape_with(text, |out, c| out.extend(c.escape_default()))
}

/// Escapes control characters and bidirectional overrides in JSON. In valid JSON such characters
/// occur only in strings, where `\uXXXX` keeps the value of the string.
pub(crate) fn escape_controls_in_json(json: &str) -> Cow<'_, str> {
    // Code points of harmful characters have at most four digits.
    escape_with(json, |out, c| *out += &format!("\\u{:04x}", u32::from(c)))
}

/// Replaces each unprintable character by the text that `escape` appends for it.
fn escape_with(text: &str, escape: impl Fn(&mut String, char)) -> Cow<'_, str> {
    // Skips the scan of characters for nearly all texts.
    if !text.bytes().any(may_begin_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((at, c)) = rest.char_indices().find(|(_, c)| !is_printable(*c)) {
        out += &rest[..at];
        escape(&mut out, c);
        rest = &rest[at + c.len_utf8()..];
    }
    out += rest;
    Cow::Owned(out)
}

/// Whether `byte` may be the first byte of an unprintable character.
fn may_begin_unprintable(byte: u8) -> bool {
    match byte {
        b'\n' | b'\t' => false,
        // Control characters of one byte, and the first bytes of U+0080 to U+00BF and of U+2000 to
        // U+2FFF.
        0..0x20 | 0x7f | 0xc2 | 0xe2 => true,
        _ => false,
    }
}

/// Whether a terminal shows the character `c` without interpreting it as a command.
fn is_printable(c: char) -> bool {
    match c {
        '\n' | '\t' => true,
        // Marks that change the direction of the text around them.
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => false,
        c => !c.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::{escape_controls, escape_controls_in_json, is_printable, may_begin_unprintable};

    #[test]
    fn first_bytes_of_unprintable_characters_are_known() {
        let unprintable = (char::MIN..=char::MAX).filter(|c| !is_printable(*c));
        for c in unprintable {
            assert!(may_begin_unprintable(c.encode_utf8(&mut [0; 4]).as_bytes()[0]), "{c:?}");
        }
        let text = "plain\n\t→ größer\u{7}";
        assert_eq!(escape_controls(text), "plain\n\t→ größer\\u{7}");
    }

    #[test]
    fn escape_sequences_are_defused() {
        assert_eq!(escape_controls("a\u{1b}[31mb\nc\u{202e}"), "a\\u{1b}[31mb\nc\\u{202e}");
    }

    #[test]
    fn escapes_in_json_are_those_of_json() {
        let text = "a\u{7f}b\u{9b}c\u{202e}d\u{1b}\n";
        let json = serde_json::to_string_pretty(&[text]).expect("a text can be written");
        let escaped = escape_controls_in_json(&json);
        assert!(escaped.contains("a\\u007fb\\u009bc\\u202ed"), "{escaped}");
        let read: Vec<String> = serde_json::from_str(&escaped).expect("it is JSON");
        assert_eq!(read, [text]);
    }
}
