//! Statements that are too long for a line, and are wrapped without being read again.
//!
//! What [`layout`] does with any text takes several times as long as writing it. Most long
//! statements are nodes and values with notes, though, and while they are written it is known where
//! their brackets are. What these places do not say is left to `layout`; both give the same lines.

use std::ops::Range;

use sardonyx_model::Entry;

use super::Printer;
use crate::layout::{INDENT, WIDTH};

/// Where the items of brackets begin in the statement that is being written.
#[derive(Default)]
pub(super) struct Marks {
    pub(super) attributes: Vec<usize>,
    pub(super) inputs: Vec<usize>,
    /// After the inputs.
    pub(super) inputs_end: usize,
    notes: Vec<usize>,
    /// After the notes.
    notes_end: usize,
    /// The one of the notes that is a list of texts, and where these begin.
    metadata: Option<usize>,
    entries: Vec<usize>,
    /// Whether there are other brackets in the notes.
    others: bool,
}

impl Marks {
    pub(super) fn clear(&mut self) {
        self.attributes.clear();
        self.inputs.clear();
        self.clear_notes();
    }

    fn clear_notes(&mut self) {
        self.notes.clear();
        self.entries.clear();
        (self.notes_end, self.metadata, self.others) = (0, None, false);
    }

    /// A note begins, the first one or one more.
    pub(super) fn note(&mut self, at: usize, key: &str, first: bool) {
        if first {
            self.clear_notes();
        }
        self.notes.push(at);
        match key {
            "doc_string" => {}
            "metadata_props" => {
                self.metadata = Some(at);
                self.entries.clear();
            }
            _ => self.others = true,
        }
    }

    /// A pair of texts begins, in notes or anywhere else.
    pub(super) fn entry(&mut self, at: usize, entry: &Entry) {
        self.entries.push(at);
        self.others |= !entry.unknown.is_empty();
    }

    /// The notes that began last end.
    pub(super) fn end_notes(&mut self, at: usize) {
        self.notes_end = at;
    }

    /// The notes, if they are the last thing in a statement that ends here, and all their brackets
    /// are known.
    fn last_notes(&self, end: usize) -> Option<Items<'_>> {
        if self.notes.is_empty() || self.notes_end != end || self.others {
            return None;
        }
        Some(Items::Notes { metadata: self.metadata, entries: &self.entries })
    }
}

/// What stands in brackets that are opened.
#[derive(Clone, Copy)]
enum Items<'m> {
    /// Names or texts, which stay as long as they are.
    ArePlain,
    /// Attributes, which have brackets of their own.
    MayBeOpened,
    /// Texts, and the one that is a list of texts.
    Notes { metadata: Option<usize>, entries: &'m [usize] },
}

impl Printer<'_, '_, '_> {
    /// Lays out the node that was just written on one line, which is too long: the brackets of its
    /// attributes, of its inputs and of its notes are opened where they do not fit. Whether that
    /// was enough.
    pub(super) fn wrap_node(&mut self, line: usize) -> bool {
        let end = self.out.len();
        let marks = std::mem::take(&mut self.marks);
        let notes = marks.last_notes(end);
        let done = (notes.is_some() || marks.inputs_end == end)
            && self.wrap(line, |writer| {
                // The name of a node and its outputs have no brackets that are opened.
                let close = marks.inputs_end;
                let open = marks.inputs.first().map_or(close - 1, |first| *first) - 1;
                match marks.attributes.first() {
                    Some(first) => {
                        writer.copy(line..first - 1);
                        // After them stands the bracket of the inputs; empty ones cannot be
                        // opened.
                        let rest = if marks.inputs.is_empty() { 2 } else { 1 };
                        let brackets = (&marks.attributes[..], open);
                        if !writer.group(brackets, rest, writer.indent, Items::MayBeOpened) {
                            return false;
                        }
                    }
                    None => writer.copy(line..open),
                }
                let rest = if notes.is_some() { " @<".len() } else { 0 };
                if marks.inputs.is_empty() {
                    writer.copy(open..close);
                } else {
                    writer.group((&marks.inputs, close), rest, writer.indent, Items::ArePlain);
                }
                if let Some(notes) = notes {
                    writer.copy(close..marks.notes[0] - 1);
                    writer.group((&marks.notes, end), 0, writer.indent, notes);
                }
                true
            });
        self.marks = marks;
        done
    }

    /// Lays out the statement that was just written on one line, which is too long with what comes
    /// after it: its notes are opened. Whether that was enough.
    pub(super) fn wrap_notes(&mut self, line: usize, tail: usize) -> bool {
        let end = self.out.len();
        let marks = std::mem::take(&mut self.marks);
        let notes = marks.last_notes(end);
        let done = notes.is_some_and(|notes| {
            let first = marks.notes[0];
            // Otherwise brackets before them are opened first.
            first - line <= WIDTH
                && self.wrap(line, |writer| {
                    writer.copy(line..first - 1);
                    writer.group((&marks.notes, end), tail, writer.indent, notes)
                })
        });
        self.marks = marks;
        done
    }

    /// Writes the last line once more, if `write` can do it.
    fn wrap(&mut self, line: usize, write: impl FnOnce(&mut Wrapper<'_, '_>) -> bool) -> bool {
        let mut wrapped = std::mem::take(&mut self.wrapped);
        wrapped.clear();
        let done = write(&mut Wrapper {
            flat: &self.out[line..],
            base: line,
            indent: self.indent,
            out: &mut wrapped,
            line_start: 0,
        });
        if done {
            self.out.truncate(line);
            self.out.extend_from_slice(&wrapped);
        }
        self.wrapped = wrapped;
        done
    }
}

/// Copies a line with its brackets opened.
struct Wrapper<'f, 'w> {
    /// The line, which begins at `base` of the text.
    flat: &'f [u8],
    base: usize,
    /// Blanks before the statement.
    indent: usize,
    out: &'w mut Vec<u8>,
    line_start: usize,
}

impl Wrapper<'_, '_> {
    fn copy(&mut self, range: Range<usize>) {
        self.out.extend_from_slice(&self.flat[range.start - self.base..range.end - self.base]);
    }

    fn new_line(&mut self, indent: usize) {
        self.out.push(b'\n');
        self.line_start = self.out.len();
        self.out.resize(self.line_start + indent, b' ');
    }

    /// Brackets around items that begin at some places; the closing one is the last byte before the
    /// end. That many bytes follow that must stay in its line. Whether no item is too long for a
    /// line.
    fn group(
        &mut self,
        (starts, end): (&[usize], usize),
        rest: usize,
        indent: usize,
        items: Items<'_>,
    ) -> bool {
        let (Some(first), close) = (starts.first().copied(), end - 1) else {
            return true;
        };
        let column = self.out.len() - self.line_start;
        if column + (end - first + 1) + rest <= WIDTH {
            self.copy(first - 1..end);
            return true;
        }
        let inner = indent + INDENT;
        self.copy(first - 1..first);
        if inner + (close - first) <= WIDTH {
            self.new_line(inner);
            self.copy(first..close);
        } else {
            for (index, start) in starts.iter().enumerate() {
                // Between items stand a comma and a blank.
                let (end, comma) = match starts.get(index + 1) {
                    Some(next) => (next - 2, 1),
                    None => (close, 0),
                };
                self.new_line(inner);
                match items {
                    Items::MayBeOpened if inner + (end - start) + comma > WIDTH => return false,
                    Items::Notes { metadata: Some(at), entries: entries @ [open, ..] }
                        if at == *start =>
                    {
                        self.copy(*start..open - 1);
                        self.group((entries, end), comma, inner, Items::ArePlain);
                        self.copy(end..end + comma);
                    }
                    _ => self.copy(*start..end + comma),
                }
            }
        }
        self.new_line(indent);
        self.copy(close..end);
        true
    }
}
