//! Position in a text, and the lexical primitives of parser and formatter: blanks, comments, words.

use memchr::{memchr, memchr2};

/// Position of the parser or the formatter in a text.
#[derive(Debug, Clone)]
pub(crate) struct Cursor<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) pos: usize,
    /// Range of the blanks and comments that were skipped last.
    gap: (usize, usize),
}

/// Classes of bytes.
const BLANK: u8 = 1;
const START: u8 = 2;
const CONTINUE: u8 = 4;
const COMMENT: u8 = 8;

static CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r' => BLANK,
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => START | CONTINUE,
            b'0'..=b'9' => CONTINUE,
            b'#' => COMMENT,
            _ => 0,
        };
        byte += 1;
    }
    classes
};

pub(crate) fn is_blank(byte: u8) -> bool {
    CLASSES[byte as usize] & BLANK != 0
}

/// Whether a word may begin with `byte`.
pub(crate) fn starts_word(byte: u8) -> bool {
    CLASSES[byte as usize] & START != 0
}

/// Whether a word may continue with `byte`.
pub(crate) fn continues_word(byte: u8) -> bool {
    CLASSES[byte as usize] & CONTINUE != 0
}

/// Whether a text is an identifier.
pub(crate) fn is_word(text: &[u8]) -> bool {
    text.first().is_some_and(|first| starts_word(*first))
        && text.iter().all(|byte| continues_word(*byte))
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Cursor { text, pos: 0, gap: (0, 0) }
    }

    /// Returns the current byte, or 0 at the end. (A 0 in the text is rejected like any other byte
    /// that cannot begin a token.)
    #[inline]
    pub(crate) fn byte(&self) -> u8 {
        self.byte_at(0)
    }

    /// Returns the byte `ahead` bytes further on, or 0 after the end.
    #[inline]
    pub(crate) fn byte_at(&self, ahead: usize) -> u8 {
        self.text.get(self.pos + ahead).copied().unwrap_or(0)
    }

    #[inline]
    pub(crate) fn at_end(&self) -> bool {
        self.pos >= self.text.len()
    }

    /// Skips blanks and comments, and returns the byte after them, or 0 at the end.
    #[inline]
    pub(crate) fn next(&mut self) -> u8 {
        let byte = self.byte();
        if CLASSES[byte as usize] & (BLANK | COMMENT) == 0 {
            return byte;
        }
        let start = self.pos;
        // Fast path: the gap is usually a single blank.
        let after = self.byte_at(1);
        if byte == b' ' && CLASSES[after as usize] & (BLANK | COMMENT) == 0 {
            self.pos += 1;
            self.gap = (start, self.pos);
            return after;
        }
        self.skip_blanks()
    }

    fn skip_blanks(&mut self) -> u8 {
        let start = self.pos;
        loop {
            let byte = self.byte();
            if is_blank(byte) {
                self.pos += 1;
            } else if byte == b'#' {
                self.skip_comment();
            } else {
                self.gap = (start, self.pos);
                return byte;
            }
        }
    }

    /// Returns the end of the last token: the position before the blanks that were skipped since.
    pub(crate) fn token_end(&self) -> usize {
        if self.gap.1 == self.pos { self.gap.0 } else { self.pos }
    }

    /// Skips the byte order mark with which some editors begin a file.
    pub(crate) fn skip_byte_order_mark(&mut self) {
        if self.text.starts_with(b"\xef\xbb\xbf") {
            self.pos = 3;
        }
    }

    /// Moves to the end of the line.
    #[cold]
    pub(crate) fn skip_comment(&mut self) {
        let rest = &self.text[self.pos..];
        self.pos += memchr(b'\n', rest).unwrap_or(rest.len());
    }

    /// Skips `byte` if it is the next one after blanks. Returns whether it was.
    #[inline]
    pub(crate) fn eat(&mut self, byte: u8) -> bool {
        // At the end `next` returns 0, which no caller passes. The shorter `self.pos +=
        // usize::from(self.next() == byte)` is miscompiled by rustc 1.95 to 1.97: `pos` does not
        // change if this is inlined with a constant (pass SimplifyComparisonIntegral).
        if self.next() != byte {
            return false;
        }
        self.pos += 1;
        true
    }

    /// Skips the word at this position and returns it, if there is one.
    #[inline]
    pub(crate) fn eat_word(&mut self) -> Option<&'a [u8]> {
        if !starts_word(self.byte()) {
            return None;
        }
        let rest = &self.text[self.pos..];
        let length = rest.iter().position(|byte| !continues_word(*byte));
        let word = &rest[..length.unwrap_or(rest.len())];
        self.pos += word.len();
        Some(word)
    }

    /// Returns the word at this position without skipping it.
    pub(crate) fn peek_word(&self) -> Option<&'a [u8]> {
        self.clone().eat_word()
    }

    /// Skips the quoted text at this position and returns the range of its content, if it has no
    /// escapes. Otherwise does not move.
    #[inline]
    pub(crate) fn eat_plain_quoted(&mut self) -> Option<std::ops::Range<usize>> {
        let start = self.pos + 1;
        let end = start + memchr2(b'"', b'\\', self.text.get(start..)?)?;
        if self.text[end] != b'"' {
            return None;
        }
        self.pos = end + 1;
        Some(start..end)
    }

    /// Skips the quoted text at this position and returns it. Returns `None` and does not move if
    /// the quote is not closed.
    #[inline]
    pub(crate) fn eat_quoted(&mut self) -> Option<Quoted<'a>> {
        let start = self.pos + 1;
        let mut at = start;
        let mut escapes = false;
        loop {
            at += memchr2(b'"', b'\\', self.text.get(at..)?)?;
            if self.text[at] == b'"' {
                break;
            }
            escapes = true;
            at += 2;
        }
        self.pos = at + 1;
        Some(Quoted { content: &self.text[start..at], start, escapes })
    }
}

/// Text in quotes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quoted<'a> {
    /// Content with its escapes.
    pub(crate) content: &'a [u8],
    pub(crate) start: usize,
    /// Whether the content has backslashes.
    pub(crate) escapes: bool,
}

impl Quoted<'_> {
    /// Resolves the escapes: a backslash makes the following byte literal.
    pub(crate) fn unescape(&self) -> Vec<u8> {
        let mut meaning = Vec::with_capacity(self.content.len());
        let mut bytes = self.content.iter();
        while let Some(byte) = bytes.next() {
            let byte = if *byte == b'\\' { bytes.next() } else { Some(byte) };
            meaning.extend(byte);
        }
        meaning
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_and_comments_are_gone_over() {
        let mut cursor = Cursor::new(b" ab # c\n :1");
        assert_eq!(cursor.next(), b'a');
        assert_eq!(cursor.eat_word(), Some(&b"ab"[..]));
        assert!(!cursor.eat(b','));
        assert_eq!(cursor.token_end(), 3);
        assert!(cursor.eat(b':'));
        assert_eq!(cursor.byte(), b'1');
        assert_eq!(cursor.token_end(), 10);
    }
}
