//! Position in a text that is being read.

use sardonyx_proto::shown;

use crate::error::{ErrorKind, Fault, Position};

/// Text and the offset of the next byte.
pub(crate) struct Cursor<'t> {
    pub(crate) text: &'t [u8],
    pub(crate) pos: usize,
}

impl<'t> Cursor<'t> {
    pub(crate) fn new(text: &'t [u8]) -> Self {
        // Some editors begin a file with a byte order mark, which has no meaning.
        let pos = if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        Cursor { text, pos }
    }

    #[inline]
    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.get(self.pos).copied()
    }

    /// Moves past `byte` if it is the next one.
    #[inline]
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        // Not shorter, with `usize::from(found)`: see `Cursor::eat` of the notation.
        if self.peek() != Some(byte) {
            return false;
        }
        self.pos += 1;
        true
    }

    /// Moves past `byte`, which `expected` describes, or fails if it is not the next one.
    pub(crate) fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), Fault> {
        if self.take(byte) { Ok(()) } else { Err(self.unexpected(expected)) }
    }

    /// Moves past all bytes that `belongs` accepts, and returns them.
    #[inline]
    pub(crate) fn take_while(&mut self, belongs: impl Fn(u8) -> bool) -> &'t [u8] {
        let rest = self.rest();
        let len = rest.iter().position(|byte| !belongs(*byte));
        let (taken, _) = rest.split_at(len.unwrap_or(rest.len()));
        self.pos += taken.len();
        taken
    }

    pub(crate) fn rest(&self) -> &'t [u8] {
        self.text.get(self.pos..).unwrap_or_default()
    }

    /// Makes the error that another token was expected here.
    pub(crate) fn unexpected(&self, expected: &'static str) -> Fault {
        let rest = self.rest();
        let found = match rest {
            [] => "the end of the text".to_owned(),
            [b'\n' | b'\r', ..] => "the end of the line".to_owned(),
            // One punctuation character, or a run of other ones.
            [first, ..] if first.is_ascii_punctuation() && !b"-+._\"'".contains(first) => {
                format!("`{}`", char::from(*first))
            }
            _ => {
                let ends = |byte: &u8| byte.is_ascii_whitespace() || b",;:{}[]<>#".contains(byte);
                let len = rest.iter().skip(1).position(ends);
                format!("`{}`", shown(&rest[..len.map_or(rest.len(), |len| len + 1)]))
            }
        };
        self.fault(ErrorKind::Unexpected { expected, found })
    }

    pub(crate) fn fault(&self, kind: ErrorKind) -> Fault {
        fault_at(kind, self.pos)
    }
}

pub(crate) fn fault_at(kind: ErrorKind, pos: usize) -> Fault {
    Fault { kind, offset: pos as u64 }
}

/// Returns the line and the column of a byte.
pub(crate) fn position(text: &[u8], offset: u64) -> Position {
    let before = &text[..text.len().min(offset as usize)];
    let line_start = before.iter().rposition(|byte| *byte == b'\n');
    let line_start = line_start.map_or(0, |newline| newline + 1);
    let lines = before[..line_start].iter().filter(|byte| **byte == b'\n');
    // Counts all bytes but the continuation bytes of a character.
    let columns = before[line_start..].iter().filter(|byte| **byte & 0xc0 != 0x80);
    Position::Text { line: 1 + lines.count() as u64, column: 1 + columns.count() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_characters() {
        let text = "a\n\u{e9}\u{4e16}b".as_bytes();
        let rows = [(0, 1, 1), (1, 1, 2), (2, 2, 1), (4, 2, 2), (7, 2, 3), (8, 2, 4), (99, 2, 4)];
        for (offset, line, column) in rows {
            assert_eq!(position(text, offset), Position::Text { line, column }, "{offset}");
        }
    }

    #[test]
    fn messages_quote_the_unexpected_token() {
        let rows = [
            ("", "the end of the text"),
            ("}x", "`}`"),
            ("true, 1", "`true`"),
            ("\"a\": 1", "`\"a\"`"),
            ("-5}", "`-5`"),
            ("\nx", "the end of the line"),
        ];
        for (text, expected) in rows {
            let fault = Cursor::new(text.as_bytes()).unexpected("something");
            let ErrorKind::Unexpected { found, .. } = fault.kind else { panic!() };
            assert_eq!(found, expected, "{text}");
        }
    }
}
