//! Wraps statements that are too long for a line, without parsing them again.
//!
//! [`layout`](crate::layout) handles any text, but takes several times as long as writing it. Most
//! long statements are nodes, and values with annotations, whose bracket positions are known while
//! they are written. Other statements are left to `layout`; both produce the same lines.

use std::ops::Range;

use sardonyx_model::Entry;

use super::Printer;
use crate::layout::{INDENT, WIDTH};

/// Positions of the items of brackets in the current statement.
#[derive(Default)]
pub(super) struct Marks {
    pub(super) attributes: Vec<usize>,
    pub(super) inputs: Vec<usize>,
    /// Position after the inputs.
    pub(super) inputs_end: usize,
    notes: Vec<usize>,
    /// Position after the annotations.
    notes_end: usize,
    /// Position of the annotation that is a list of texts; `entries` has the positions of these
    /// texts.
    metadata: Option<usize>,
    entries: Vec<usize>,
    /// Whether the annotations contain other brackets.
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

    /// Records the start of an annotation; `first` begins a new list of annotations.
    pub(super) fn begin_note(&mut self, at: usize, key: &str, first: bool) {
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

    /// Records the start of a pair of texts, in annotations or elsewhere.
    pub(super) fn begin_entry(&mut self, at: usize, entry: &Entry) {
        self.entries.push(at);
        self.others |= !entry.unknown.is_empty();
    }

    /// Records the end of the last annotations.
    pub(super) fn end_notes(&mut self, at: usize) {
        self.notes_end = at;
    }

    /// Returns the annotations, if they are the end of a statement that ends here and all their
    /// brackets are known.
    fn last_notes(&self, end: usize) -> Option<Items<'_>> {
        if self.notes.is_empty() || self.notes_end != end || self.others {
            return None;
        }
        Some(Items::Notes { metadata: self.metadata, entries: &self.entries })
    }
}

/// Positions in the text of the items in brackets, and the end of the closing bracket.
#[derive(Clone, Copy)]
struct Brackets<'m> {
    starts: &'m [usize],
    end: usize,
}

/// Items in brackets that are opened.
#[derive(Clone, Copy)]
enum Items<'m> {
    /// Names or texts, which are never broken.
    ArePlain,
    /// Attributes, which may have brackets of their own.
    MayBeOpened,
    /// Annotations, and the entries of the one that is a list of texts.
    Notes { metadata: Option<usize>, entries: &'m [usize] },
}

impl Printer<'_, '_, '_> {
    /// Lays out a node that was just written on one line and is too long: opens the brackets of its
    /// attributes, inputs and annotations where they do not fit. Returns whether this sufficed.
    pub(super) fn wrap_node(&mut self, line: usize) -> bool {
        let end = self.out.len();
        let marks = std::mem::take(&mut self.marks);
        let notes = marks.last_notes(end);
        let done = (notes.is_some() || marks.inputs_end == end)
            && self.wrap(line, |writer| {
                // The name of a node and its outputs have no brackets that can be opened.
                let close = marks.inputs_end;
                let open = marks.inputs.first().map_or(close - 1, |first| *first) - 1;
                match marks.attributes.first() {
                    Some(first) => {
                        writer.copy(line..first - 1);
                        // The bracket of the inputs follows; empty ones cannot be opened.
                        let rest = if marks.inputs.is_empty() { 2 } else { 1 };
                        let brackets = Brackets { starts: &marks.attributes, end: open };
                        if !writer.write_group(brackets, rest, writer.indent, Items::MayBeOpened) {
                            return false;
                        }
                    }
                    None => writer.copy(line..open),
                }
                let rest = if notes.is_some() { " @<".len() } else { 0 };
                if marks.inputs.is_empty() {
                    writer.copy(open..close);
                } else {
                    let brackets = Brackets { starts: &marks.inputs, end: close };
                    writer.write_group(brackets, rest, writer.indent, Items::ArePlain);
                }
                if let Some(notes) = notes {
                    writer.copy(close..marks.notes[0] - 1);
                    let brackets = Brackets { starts: &marks.notes, end };
                    writer.write_group(brackets, 0, writer.indent, notes);
                }
                true
            });
        self.marks = marks;
        done
    }

    /// Opens the annotations of a statement that was just written on one line and is too long
    /// together with the `tail` bytes after it. Returns whether this sufficed.
    pub(super) fn wrap_notes(&mut self, line: usize, tail: usize) -> bool {
        let end = self.out.len();
        let marks = std::mem::take(&mut self.marks);
        let notes = marks.last_notes(end);
        let done = notes.is_some_and(|notes| {
            let first = marks.notes[0];
            // Otherwise brackets before the annotations must be opened first.
            first - line <= WIDTH
                && self.wrap(line, |writer| {
                    writer.copy(line..first - 1);
                    let brackets = Brackets { starts: &marks.notes, end };
                    writer.write_group(brackets, tail, writer.indent, notes)
                })
        });
        self.marks = marks;
        done
    }

    /// Rewrites the last line by `write`, if it succeeds.
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

/// Writer that copies a line and opens its brackets.
struct Wrapper<'f, 'w> {
    /// The line, which begins at `base` of the text.
    flat: &'f [u8],
    base: usize,
    /// Number of blanks before the statement.
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

    /// Writes brackets, opened if they do not fit. `rest` bytes follow that must stay in the line
    /// of the closing bracket. Returns whether no item is too long for a line.
    fn write_group(
        &mut self,
        brackets: Brackets<'_>,
        rest: usize,
        indent: usize,
        items: Items<'_>,
    ) -> bool {
        let Brackets { starts, end } = brackets;
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
                // A comma and a blank separate items.
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
                        let brackets = Brackets { starts: entries, end };
                        self.write_group(brackets, comma, inner, Items::ArePlain);
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
