//! Errors and warnings of a text, each with line, column, the source line and advice.

use std::fmt;
use std::ops::Range;

use sardonyx_tensor::Buffer;

/// Severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiagnosticSeverity {
    /// The text cannot be parsed.
    Error,
    /// The text can be parsed, but probably contains a mistake.
    Warning,
}

/// Error or warning about a part of an ONNX text.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// Severity of the diagnostic.
    #[doc(hidden)]
    pub severity: DiagnosticSeverity,
    /// Place in the text: a range of byte offsets.
    pub span: Range<usize>,
    /// Message of one line.
    pub message: String,
    /// Advice on how to correct the text; `None` if there is none.
    pub help: Option<String>,
}

/// Errors and warnings of an ONNX text that cannot be parsed. Displays all of them, each with its
/// source line.
#[derive(Debug, Clone)]
pub struct ParseError(Box<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    text: Buffer,
    name: String,
    diagnostics: Vec<Diagnostic>,
}

impl ParseError {
    pub(crate) fn new(text: Buffer, diagnostics: Vec<Diagnostic>) -> Self {
        ParseError(Box::new(Inner { text, name: String::new(), diagnostics }))
    }

    /// Sets the name of the file that `Display` prints before line and column.
    #[must_use]
    pub fn in_file(mut self, name: impl Into<String>) -> Self {
        self.0.name = name.into();
        self
    }

    /// Returns the errors and warnings in the order of the text. At least one of them is an error.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.0.diagnostics
    }

    /// Returns the diagnostics with their positions, in the order of the text. Counts the lines of
    /// the text once.
    #[cfg(feature = "serde")]
    pub(crate) fn locate_all(&self) -> impl Iterator<Item = (&Diagnostic, Position)> {
        let mut lines = Lines::default();
        let text = self.0.text.as_slice();
        let diagnostics = self.0.diagnostics.iter();
        diagnostics.map(move |found| (found, lines.position(text, found.span.start)))
    }

    /// Returns the line and column at which a diagnostic starts, both from 1. Takes time linear in
    /// the length of the text.
    pub fn position(&self, diagnostic: &Diagnostic) -> Position {
        Position::of(self.0.text.as_slice(), diagnostic.span.start)
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&render(self.0.text.as_slice(), &self.0.name, &self.0.diagnostics))
    }
}

impl std::error::Error for ParseError {}

/// Line and column in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Line, starting with 1.
    pub line: usize,
    /// Column, starting with 1, in characters.
    pub column: usize,
}

impl Position {
    /// Returns the position of the byte at `offset`.
    pub fn of(text: &[u8], offset: usize) -> Position {
        Lines::default().position(text, offset)
    }
}

/// Counter of lines that continues from its last position for a later offset.
#[derive(Debug, Default)]
struct Lines {
    /// Offset up to which newlines have been counted.
    counted: usize,
    newlines: usize,
    /// Start of the line that contains `counted`.
    start: usize,
}

impl Lines {
    fn position(&mut self, text: &[u8], offset: usize) -> Position {
        let offset = offset.min(text.len());
        if offset < self.counted {
            *self = Lines::default();
        }
        for (index, byte) in text[self.counted..offset].iter().enumerate() {
            if *byte == b'\n' {
                self.newlines += 1;
                self.start = self.counted + index + 1;
            }
        }
        self.counted = offset;
        Position { line: self.newlines + 1, column: characters(&text[self.start..offset]) + 1 }
    }
}

fn characters(text: &[u8]) -> usize {
    // UTF-8 continuation bytes do not count.
    text.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}

/// Maximum number of characters of a source line that are displayed.
const SHOWN: usize = 100;

/// Renders diagnostics for display: message, position, source line with a mark, advice.
pub fn render(text: &[u8], name: &str, diagnostics: &[Diagnostic]) -> String {
    let mut lines = Lines::default();
    let mut out = String::new();
    for (index, diagnostic) in diagnostics.iter().enumerate() {
        if index > 0 {
            out.push_str("\n\n");
        }
        render_one(text, name, diagnostic, &mut lines, &mut out);
    }
    out
}

fn render_one(
    text: &[u8],
    name: &str,
    diagnostic: &Diagnostic,
    lines: &mut Lines,
    out: &mut String,
) {
    use fmt::Write;
    let position = lines.position(text, diagnostic.span.start);
    let severity = match diagnostic.severity {
        DiagnosticSeverity::Error => "error",
        DiagnosticSeverity::Warning => "warning",
    };
    let colon = if name.is_empty() { "line " } else { ":" };
    let number = position.line.to_string();
    let margin = number.len();
    let (excerpt, mark_at, mark_len) = excerpt(text, lines.start, &diagnostic.span);
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "{severity}: {}\n{:margin$}--> {name}{colon}{}{}{}\n{:margin$} |\n{number} | {excerpt}\n{:margin$} | {:mark_at$}{}",
        diagnostic.message,
        "",
        position.line,
        if name.is_empty() { ", column " } else { ":" },
        position.column,
        "",
        "",
        "",
        "^".repeat(mark_len),
    );
    if let Some(help) = &diagnostic.help {
        let _ = write!(out, "\n{:margin$} = help: {help}", "");
    }
}

/// Returns the source line, or its part around the position, with the start and the length of the
/// mark in it.
fn excerpt(text: &[u8], line_start: usize, span: &Range<usize>) -> (String, usize, usize) {
    let start = span.start.min(text.len());
    let line_end = text[start..]
        .iter()
        .take(4 * SHOWN)
        .position(|byte| *byte == b'\n')
        .map_or((start + 4 * SHOWN).min(text.len()), |length| start + length);
    let before =
        String::from_utf8_lossy(&text[line_start.max(start.saturating_sub(8 * SHOWN))..start]);
    let marked_end = span.end.clamp(start, line_end);
    let marked = String::from_utf8_lossy(&text[start..marked_end]);
    let after = String::from_utf8_lossy(&text[marked_end..line_end]);
    let before = visible(&before);
    let marked = visible(&marked);
    let after = visible(&after);
    // A long line is cut to the neighbourhood of the position.
    let skipped = before.len().saturating_sub(SHOWN * 2 / 3);
    let mut shown: Vec<char> = before[skipped..].to_vec();
    if skipped > 0 {
        shown.splice(0..3, "...".chars());
    }
    let mark_at = shown.len();
    shown.extend(&marked);
    shown.extend(&after);
    let cut = shown.len() > SHOWN;
    shown.truncate(SHOWN);
    let mark_len = marked.len().min(shown.len().saturating_sub(mark_at)).max(1);
    let mut shown: String = shown.into_iter().collect();
    shown.truncate(shown.trim_end().len());
    if cut {
        shown.push_str("...");
    }
    (shown, mark_at, mark_len)
}

/// Returns a line for a terminal, or its part around `mark`, with the start and the length of the
/// mark, in columns.
pub fn marked_line(line: &str, mark: Range<usize>) -> (String, usize, usize) {
    excerpt(line.as_bytes(), 0, &mark)
}

/// Converts characters to ones that a terminal displays in one column each: blanks for tabs, a
/// replacement for invisible ones.
fn visible(text: &str) -> Vec<char> {
    text.chars()
        .map(|character| match character {
            '\t' | '\r' => ' ',
            _ if character.is_control() || is_unseen(character) => '\u{fffd}',
            _ => character,
        })
        .collect()
}

/// Whether a character looks like a blank or is invisible.
pub(crate) fn is_unseen(character: char) -> bool {
    is_bidi_control(character)
        || matches!(
            character,
            '\u{a0}' | '\u{ad}' | '\u{2000}'..='\u{200f}' | '\u{2028}'..='\u{202f}' | '\u{205f}'..='\u{2064}' | '\u{3000}'
                | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        )
}

/// Whether a character changes the display order of others, which can disguise a text.
pub(crate) fn is_bidi_control(character: char) -> bool {
    matches!(character, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
