//! Converts byte offsets to field paths for error messages.
//!
//! Readers carry no path, because errors are rare and files are large. After an error at a byte,
//! [`find_place`] walks the file once more along the table and names the enclosing fields.

use std::borrow::Cow;

use crate::kinds::{FieldKind, Label};
use crate::read::{Limits, RawField, Reader};
use crate::table::{FieldDef, MessageDef, MessageType};
use crate::wire::WireType;

/// Number of characters of a text that are displayed.
const SHOWN_CHARS: usize = 60;

/// Number of steps that are displayed at either end of a path.
const SHOWN_STEPS: usize = 4;

/// Joins the steps of a path such as `graph`, `node[3]`. The middle of a long path is elided, as
/// files may nest to any depth.
pub fn join_path(steps: &[String]) -> String {
    if steps.len() <= 2 * SHOWN_STEPS + 1 {
        return steps.join(".");
    }
    let (first, last) = (&steps[..SHOWN_STEPS], &steps[steps.len() - SHOWN_STEPS..]);
    format!("{}.….{}", first.join("."), last.join("."))
}

/// Elides the middle of a text that is longer than `beginning` and `end` together, in bytes.
pub fn elide_middle(text: &str, beginning: usize, end: usize) -> Cow<'_, str> {
    if text.len() <= beginning + end {
        return text.into();
    }
    let beginning = &text[..text.floor_char_boundary(beginning)];
    let end = &text[text.ceil_char_boundary(text.len() - end)..];
    format!("{beginning} … {end}").into()
}

/// Escapes text from a file for a message, and elides its middle if it is long: names in one model
/// usually differ at their ends.
pub fn shown(text: &[u8]) -> String {
    let mut shown = String::new();
    push_shown(&mut shown, text);
    shown
}

/// Appends text from a file to a message, escaped and elided like [`shown`].
pub fn push_shown(shown: &mut String, text: &[u8]) {
    // Fast path: nearly all texts are short and need no escape.
    if text.len() <= SHOWN_CHARS && text.iter().all(|byte| matches!(byte, b' '..=b'~')) {
        *shown += &String::from_utf8_lossy(text);
        return;
    }
    // A character has at most four bytes. A character that the slice cuts lies beyond the displayed
    // ones.
    let most = 4 * (SHOWN_CHARS + 1);
    if text.len() <= most {
        let text = String::from_utf8_lossy(text);
        if text.chars().count() <= SHOWN_CHARS {
            escape(shown, text.chars());
            return;
        }
    }
    let (beginning, end) = (SHOWN_CHARS.div_ceil(2), SHOWN_CHARS / 2);
    let first = String::from_utf8_lossy(&text[..text.len().min(most)]);
    let last = String::from_utf8_lossy(&text[text.len().saturating_sub(most)..]);
    escape(shown, first.chars().take(beginning));
    shown.push('…');
    let skipped = last.chars().count().saturating_sub(end);
    escape(shown, last.chars().skip(skipped));
}

fn escape(shown: &mut String, text: impl Iterator<Item = char>) {
    for character in text {
        match character {
            // A backslash or quote in the text is displayed without a further escape.
            '\\' | '\'' | '"' => shown.push(character),
            _ => shown.extend(character.escape_debug()),
        }
    }
}

impl FieldDef {
    /// Formats the field as a step of a path; `index` counts in a list.
    pub fn step(&self, index: Option<u64>) -> String {
        match index {
            Some(index) => format!("{}[{index}]", self.name),
            None => self.name.to_string(),
        }
    }
}

/// Names the field that contains the byte at `offset` of a message, such as
/// `graph.node[3].attribute[0].t.dims`. Returns an empty text if the byte lies in no field.
pub fn find_place<M: MessageType>(bytes: &[u8], offset: u64, limits: Limits) -> String {
    let mut steps = Vec::new();
    let mut def: &'static MessageDef = M::DEF;
    let mut content = bytes;
    let mut base = 0;
    for _ in 0..limits.depth {
        let Some((field, before, raw)) = find_enclosing(def, content, base, offset) else {
            break;
        };
        let index = matches!(field.label, Label::Repeated).then_some(before);
        steps.push(field.step(index));
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
    join_path(&steps)
}

/// Exclusive upper bound of the field numbers in the table.
const NUMBERS: usize = 64;

/// Finds the field of a message at `base` that contains the byte at `offset`, and counts the fields
/// with its number that precede it.
fn find_enclosing<'a>(
    def: &'static MessageDef,
    bytes: &'a [u8],
    base: u64,
    offset: u64,
) -> Option<(&'static FieldDef, u64, RawField<'a>)> {
    // The reader's message type does not matter: only raw fields are read.
    let mut reader = Reader::<crate::messages::ModelProto>::new(bytes);
    let mut before = [0; NUMBERS];
    while let Ok(Some(mut raw)) = reader.next_raw() {
        raw.record.offset += base;
        raw.content.offset += base;
        let count = before.get_mut(raw.number as usize);
        if offset < raw.record.offset + raw.record.bytes.len() as u64 {
            let field = def.field(raw.number)?;
            return Some((field, count.map_or(0, |count| *count), raw));
        }
        if let Some(count) = count {
            *count += 1;
        }
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
                find_place::<ModelProto>(bytes, offset, Limits::default()),
                expected,
                "byte {offset}"
            );
        }
    }

    #[test]
    fn every_field_can_be_counted() {
        let fields = crate::MESSAGES.iter().flat_map(|def| def.fields);
        assert!(fields.map(|field| field.number).max() < Some(NUMBERS as u32));
    }

    #[test]
    fn words_are_bounded() {
        assert_eq!(elide_middle("ééééé", 6, 4), "ééééé");
        assert_eq!(elide_middle("éééééé", 5, 5), "éé … éé");
        assert_eq!(shown(b"a\x1b\xff\n"), "a\\u{1b}\u{fffd}\\n");
        assert_eq!(shown("é".repeat(60).as_bytes()), "é".repeat(60));
        assert_eq!(shown("é".repeat(9999).as_bytes()).chars().count(), 61);
        // A slice of the end of a text may begin inside a character.
        let name = |end: &str| shown(format!("/model/{}{end}", "漢".repeat(200)).as_bytes());
        let (weight, bias) = (name("/weight"), name("/bias"));
        assert!(weight.starts_with("/model/漢") && weight.ends_with("漢/weight"));
        assert!(bias.ends_with("漢/bias") && !bias.contains('\u{fffd}'));
        assert_eq!(shown("𝄞".repeat(61).as_bytes()), format!("{0}…{0}", "𝄞".repeat(30)));
        let steps: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        assert_eq!(join_path(&steps), "0.1.2.3.….96.97.98.99");
        assert_eq!(join_path(&steps[..3]), "0.1.2");
    }
}
