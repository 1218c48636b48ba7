//! Prints the graph as text.
//!
//! A statement (a node, a constant, the head of a graph) is written as one line. If it is too long
//! or contains lines of its own, [`layout`](crate::layout) breaks it, like in the formatter, so
//! that printed and formatted texts look the same.

mod excerpt;
mod message;
mod model;
mod node;
mod tensor;
mod types;
mod wrap;

use std::io;

use sardonyx_model::{Entry, Id, Model, NodeId, Span, Symbol, Texts, Unknowns};

use crate::cursor::is_word;
use crate::diagnostic::is_bidi_control;
use crate::layout;
use crate::left_out::LeftOut;
use crate::words::{is_float_word, is_type_word};

pub use excerpt::{
    Excerpt, NodeMark, attribute_excerpt, node_excerpt, tensor_excerpt, value_excerpt,
};

/// Form of the notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TextForm {
    /// Everything: parsing the text gives the same bytes.
    #[default]
    Full,
    /// The subset that the parser of the `onnx` package accepts.
    Portable,
}

/// Options of printing.
#[derive(Debug, Default)]
pub struct PrintOptions<'o> {
    /// Form of the notation.
    pub form: TextForm,
    /// Treatment of values that take more than [`inline_bytes`](Self::inline_bytes).
    pub weights: Weights<'o>,
    /// Size in bytes up to which values are written into the text.
    pub inline_bytes: u64,
    /// Whether tensors are printed like by the `onnx` package: numbers on one line without blanks,
    /// and for values of 2 and 4 bits `...`, which cannot be parsed.
    pub like_onnx: bool,
}

/// Treatment of the values of large tensors.
#[derive(Default)]
pub enum Weights<'o> {
    /// Values are written into the text.
    #[default]
    Inline,
    /// Values are omitted and replaced by a text, such as a digest. The result cannot be parsed.
    Elided(&'o dyn Fn(&[u8]) -> String),
    /// Values are in a file, whose location the callback returns.
    Placed(&'o mut dyn Payloads),
}

/// Storage of values outside the text.
pub trait Payloads {
    /// Returns the files, relative to the text, that hold values of more than `inline_bytes` bytes,
    /// each with its digest. Called once, before the first call of `place`. May write the values to
    /// a file.
    ///
    /// # Errors
    ///
    /// An error of writing a file.
    fn files(&mut self, model: &Model, inline_bytes: u64) -> io::Result<Vec<(String, String)>>;

    /// Returns the location of these bytes of the model; `None` to write them into the text.
    fn place(&mut self, model: &Model, span: Span) -> Option<Placed>;
}

/// Location of values outside the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Path of the file, relative to the text.
    pub location: String,
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// Path of the tensor in that file; see [`Model::tensor_paths`].
    pub tensor: Option<Vec<u8>>,
    /// SHA-256 of the values, hexadecimal, if it is to be printed.
    pub sha256: Option<String>,
}

impl std::fmt::Debug for Weights<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Weights::Inline => "Inline",
            Weights::Elided(_) => "Elided",
            Weights::Placed(_) => "Placed",
        })
    }
}

/// Prints a model. Returns the content that the text leaves out; none in the full form, unless
/// values were elided.
///
/// # Errors
///
/// An error of `sink`, or of storing values.
pub fn print_model(
    model: &Model,
    options: PrintOptions<'_>,
    sink: &mut dyn io::Write,
) -> io::Result<LeftOut> {
    let mut printer = Printer::new(model, options, Some(sink));
    printer.write_model();
    printer.finish().map(|(_, left_out)| left_out)
}

/// Prints a model into memory. See [`print_model`].
///
/// # Errors
///
/// An error of storing values.
pub fn model_to_text(model: &Model, options: PrintOptions<'_>) -> io::Result<(Vec<u8>, LeftOut)> {
    let mut printer = Printer::new(model, options, None);
    // Growing would copy the text several times, while untouched memory is not committed.
    printer.out.reserve(BYTES_PER_PART * model.part_count());
    printer.write_model();
    printer.finish()
}

/// Upper estimate of the size in bytes of a typical part in a text.
const BYTES_PER_PART: usize = 64;

/// Part of a model that is printed alone. Such texts are parsed without a header, and so without
/// the defaults that the header of the full form changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrintPart {
    /// A graph.
    Graph(sardonyx_model::GraphId),
    /// The function at this position.
    Function(usize),
    /// A node.
    Node(NodeId),
}

/// Prints a part of a model into memory. See [`print_model`].
///
/// # Errors
///
/// An error of storing values.
pub fn part_to_text(
    model: &Model,
    part: PrintPart,
    options: PrintOptions<'_>,
) -> io::Result<(Vec<u8>, LeftOut)> {
    let mut printer = Printer::new(model, options, None);
    printer.collect_files();
    match part {
        PrintPart::Graph(graph) => printer.write_graph_statement(graph),
        PrintPart::Function(index) => match model.functions.get(index) {
            Some(function) => printer.write_function_statement(function),
            None => {
                return Err(io::Error::other(format!("the model has no function {index}")));
            }
        },
        PrintPart::Node(node) => printer.write_node_statement(node),
    }
    printer.finish()
}

/// Printer that appends all output to one buffer.
pub(crate) struct Printer<'m, 'o, 's> {
    model: &'m Model,
    texts: Texts<'m>,
    /// Properties of texts, by symbol.
    looks: Vec<Looks>,
    form: TextForm,
    weights: Weights<'o>,
    /// Files that hold values, each with its digest.
    files: Vec<(String, String)>,
    /// Whether the header lists the digests; otherwise each reference has its own.
    files_in_header: bool,
    inline_bytes: u64,
    like_onnx: bool,
    out: Vec<u8>,
    sink: Option<&'s mut dyn io::Write>,
    failure: Option<io::Error>,
    left_out: LeftOut,
    /// Number of blanks before a statement.
    indent: usize,
    /// Whether the statement is part of another one, whose lines are not laid out yet.
    nested: bool,
    /// Whether the current statement contains lines of its own.
    has_lines: bool,
    /// Whether the lines of the statement are laid out already.
    laid_out: bool,
    /// Positions of the brackets of the current statement.
    marks: wrap::Marks,
    /// Buffer for wrapping a statement.
    wrapped: Vec<u8>,
}

/// Number of bytes that are collected before they are written to the sink: more would not stay in
/// the cache.
const CHUNK: usize = 1 << 18;

impl<'m, 'o, 's> Printer<'m, 'o, 's> {
    fn new(
        model: &'m Model,
        options: PrintOptions<'o>,
        sink: Option<&'s mut dyn io::Write>,
    ) -> Self {
        Printer {
            model,
            texts: model.texts(),
            looks: Vec::new(),
            form: options.form,
            weights: options.weights,
            files: Vec::new(),
            files_in_header: false,
            inline_bytes: options.inline_bytes,
            like_onnx: options.like_onnx,
            out: Vec::new(),
            sink,
            failure: None,
            left_out: LeftOut::default(),
            indent: 0,
            nested: false,
            has_lines: false,
            laid_out: false,
            marks: wrap::Marks::default(),
            wrapped: Vec::new(),
        }
    }

    fn finish(mut self) -> io::Result<(Vec<u8>, LeftOut)> {
        self.flush();
        match self.failure {
            Some(failure) => Err(failure),
            None => Ok((self.out, self.left_out)),
        }
    }

    fn flush(&mut self) {
        if let Some(sink) = &mut self.sink
            && self.failure.is_none()
        {
            self.failure = sink.write_all(&self.out).err();
            self.out.clear();
        }
    }

    fn collect_files(&mut self) {
        if let Weights::Placed(payloads) = &mut self.weights {
            match payloads.files(self.model, self.inline_bytes) {
                Ok(files) => self.files = files,
                Err(error) => self.failure = Some(error),
            }
        }
    }

    fn is_full(&self) -> bool {
        self.form == TextForm::Full
    }

    #[inline]
    fn push(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    /// Writes a statement on a line of its own.
    #[inline]
    fn write_statement(&mut self, write: impl FnOnce(&mut Self)) {
        self.write_statement_before(0, write);
    }

    /// Writes a statement whose last line is followed by `tail` bytes.
    #[inline]
    fn write_statement_before(&mut self, tail: usize, write: impl FnOnce(&mut Self)) {
        if self.nested {
            return write(self);
        }
        let line = self.out.len();
        self.out.resize(line + self.indent, b' ');
        let start = self.out.len();
        (self.has_lines, self.laid_out) = (false, false);
        self.marks.clear();
        self.nested = true;
        write(self);
        self.nested = false;
        if self.laid_out {
            return;
        }
        let too_long = self.out.len() + tail - line > layout::WIDTH;
        if self.has_lines || (too_long && !self.wrap_notes(line, tail)) {
            self.lay_out(start, tail);
        }
    }

    /// Lays out the statement that was written on one line from `start` on.
    fn lay_out(&mut self, start: usize, tail: usize) {
        let mut flat = std::mem::take(&mut self.wrapped);
        flat.clear();
        flat.extend_from_slice(&self.out[start..]);
        self.out.truncate(start);
        layout::lay_out_statement(&flat, self.indent, tail, &mut self.out);
        self.wrapped = flat;
    }

    /// Ends the line of a statement.
    #[inline]
    fn end_line(&mut self) {
        if self.nested {
            self.out.push(b' ');
            return;
        }
        self.out.push(b'\n');
        if self.out.len() > CHUNK && self.sink.is_some() {
            self.flush();
        }
    }

    // Names and texts.

    /// Writes a name: unquoted if it is an identifier without another meaning, otherwise in quotes.
    #[inline]
    fn write_name(&mut self, symbol: Symbol) {
        let (text, looks) = self.look_up(symbol);
        if looks.has(Looks::FREE_WORD) {
            self.out.extend_from_slice(text);
        } else {
            self.write_quoted_as(text, looks);
        }
    }

    fn write_maybe_name(&mut self, symbol: Option<Symbol>) {
        match symbol {
            Some(symbol) => self.write_name(symbol),
            None => self.push("?"),
        }
    }

    /// Returns a text with its properties, which are cached: most texts are written several times.
    #[inline]
    fn look_up(&mut self, symbol: Symbol) -> (&'m [u8], Looks) {
        let text = self.texts.text(symbol);
        if let Some(looks) = self.looks.get(symbol.index())
            && *looks != Looks::UNKNOWN
        {
            return (text, *looks);
        }
        let looks = Looks::from_text(text);
        if self.looks.len() <= symbol.index() {
            self.looks.resize(symbol.index() + 1, Looks::UNKNOWN);
        }
        self.looks[symbol.index()] = looks;
        (text, looks)
    }

    /// Writes a text in quotes.
    fn write_quoted(&mut self, text: &[u8]) {
        self.write_quoted_as(text, Looks::from_text(text));
    }

    fn write_quoted_as(&mut self, text: &[u8], looks: Looks) {
        self.out.reserve(text.len() + 2);
        if looks.has(Looks::ODD) {
            self.write_odd_quoted(text);
        } else if looks.has(Looks::SPECIAL) {
            self.write_escaped(text);
        } else {
            self.out.push(b'"');
            self.out.extend_from_slice(text);
            self.out.push(b'"');
        }
    }

    /// Writes a text with other than printable ASCII characters in quotes.
    #[cold]
    fn write_odd_quoted(&mut self, text: &[u8]) {
        if self.is_full() && !is_plain(text) {
            return self.write_hexadecimal(text);
        }
        if self.is_full() {
            return self.write_escaped(text);
        }
        let without_zeros: Vec<u8> = text.iter().copied().filter(|byte| *byte != 0).collect();
        if without_zeros.len() < text.len() {
            self.left_out
                .add("zero bytes in texts, where the parser of the onnx package stops", || {
                    sardonyx_proto::shown(text)
                });
        }
        if std::str::from_utf8(&without_zeros).is_err() {
            self.left_out.add("texts that are not UTF-8, which Python cannot pass on", || {
                sardonyx_proto::shown(text)
            });
        }
        self.write_escaped(&without_zeros);
    }

    /// Writes a text in quotes, with a backslash before quotes and backslashes.
    fn write_escaped(&mut self, text: &[u8]) {
        let mut rest = text;
        self.out.push(b'"');
        while let Some(at) = memchr::memchr2(b'"', b'\\', rest) {
            self.out.extend_from_slice(&rest[..at]);
            self.out.extend_from_slice(&[b'\\', rest[at]]);
            rest = &rest[at + 1..];
        }
        self.out.extend_from_slice(rest);
        self.out.push(b'"');
    }

    /// Writes bytes as hexadecimal digits.
    fn write_hexadecimal(&mut self, bytes: &[u8]) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        self.push("x\"");
        for byte in bytes {
            self.out.push(DIGITS[usize::from(byte >> 4)]);
            self.out.push(DIGITS[usize::from(byte & 15)]);
        }
        self.out.push(b'"');
    }

    fn write_quoted_symbol(&mut self, symbol: Symbol) {
        let (text, looks) = self.look_up(symbol);
        self.write_quoted_as(text, looks);
    }

    /// Writes a text in quotes, or `?` for none.
    fn write_maybe_quoted(&mut self, symbol: Option<Symbol>, place: impl FnOnce() -> String) {
        match symbol {
            Some(symbol) => self.write_quoted_symbol(symbol),
            None if self.is_full() => self.push("?"),
            None => {
                self.left_out.add_harmless("absent texts, which become empty ones", place);
                self.push("\"\"");
            }
        }
    }

    fn write_integer(&mut self, value: i64) {
        crate::numbers::push_i64(&mut self.out, value);
    }

    // Lists.

    /// Writes the separator before an item, unless it is the first one.
    fn write_separator(&mut self, first: &mut bool) {
        if !std::mem::take(first) {
            self.push(", ");
        }
    }

    /// Writes `["key": "value", …]`.
    fn write_pairs(&mut self, entries: &[Entry], place: &dyn Fn() -> String) {
        self.push("[");
        let mut first = true;
        for entry in entries {
            self.write_separator(&mut first);
            self.marks.begin_entry(self.out.len(), entry);
            self.write_maybe_quoted(entry.key, place);
            self.push(": ");
            self.write_maybe_quoted(entry.value, place);
            self.write_unknown_notes(&entry.unknown, place);
        }
        self.push("]");
    }

    /// Writes the annotations of a part that has only unknown fields.
    fn write_unknown_notes(&mut self, unknown: &Unknowns, place: &dyn Fn() -> String) {
        let mut notes = Notes::default();
        self.write_unknown(&mut notes, "unknown", unknown, place);
        self.end_notes(notes);
    }

    // Annotations.

    /// Begins an entry of annotations, if this form has them. Otherwise records that its content is
    /// left out.
    fn begin_note(
        &mut self,
        notes: &mut Notes,
        key: &str,
        what: &'static str,
        place: &dyn Fn() -> String,
    ) -> bool {
        self.begin_note_of_kind(notes, key, what, true, place)
    }

    /// Begins an entry of annotations, like [`begin_note`](Self::begin_note), that does not change
    /// the meaning of the model.
    fn begin_harmless_note(
        &mut self,
        notes: &mut Notes,
        key: &str,
        what: &'static str,
        place: &dyn Fn() -> String,
    ) -> bool {
        self.begin_note_of_kind(notes, key, what, false, place)
    }

    fn begin_note_of_kind(
        &mut self,
        notes: &mut Notes,
        key: &str,
        what: &'static str,
        changes_meaning: bool,
        place: &dyn Fn() -> String,
    ) -> bool {
        if !self.is_full() {
            self.left_out.add_kind(what, changes_meaning, place);
            return false;
        }
        // Without the empty list, these would be read as annotations of the inner part.
        if notes.reach_out && !notes.begun {
            self.push(" @<>");
        }
        let first_in_line = self.out.last().is_none_or(|byte| *byte == b'\n');
        self.push(match (notes.begun, first_in_line) {
            (true, _) => ", ",
            (false, true) => "@<",
            (false, false) => " @<",
        });
        if notes.marked {
            self.marks.begin_note(self.out.len(), key, !notes.begun);
        }
        notes.begun = true;
        self.push(key);
        self.push(": ");
        true
    }

    fn end_notes(&mut self, notes: Notes) {
        if notes.begun {
            self.push(">");
        }
        if notes.marked {
            self.marks.end_notes(self.out.len());
        }
    }

    fn write_doc_note(
        &mut self,
        notes: &mut Notes,
        doc: Option<Symbol>,
        place: &dyn Fn() -> String,
    ) {
        if let Some(doc) = doc
            && self.begin_harmless_note(notes, "doc_string", "documentation", place)
        {
            self.write_quoted_symbol(doc);
        }
    }

    fn write_metadata_note(
        &mut self,
        notes: &mut Notes,
        entries: &[Entry],
        place: &dyn Fn() -> String,
    ) {
        if !entries.is_empty()
            && self.begin_harmless_note(notes, "metadata_props", "metadata", place)
        {
            self.write_pairs(entries, place);
        }
    }

    fn write_unknown(
        &mut self,
        notes: &mut Notes,
        key: &str,
        unknown: &Unknowns,
        place: &dyn Fn() -> String,
    ) {
        if !unknown.is_empty() && self.begin_note(notes, key, "unknown fields", place) {
            self.write_unknown_list(unknown);
        }
    }

    /// Writes `[number: x"record", …]`.
    fn write_unknown_list(&mut self, unknown: &Unknowns) {
        self.push("[");
        let mut first = true;
        for (after, record) in unknown.iter() {
            self.write_separator(&mut first);
            self.write_integer(after.into());
            self.push(": ");
            self.write_hexadecimal(self.model.bytes(record));
        }
        self.push("]");
    }
}

/// Annotations that are being written.
#[derive(Default)]
pub(crate) struct Notes {
    begun: bool,
    /// Whether the inner part before them could have annotations, but has none.
    reach_out: bool,
    /// Whether they may be the end of a statement, so that their positions are recorded for
    /// wrapping it.
    marked: bool,
}

impl Notes {
    fn with_marks() -> Notes {
        Notes { marked: true, ..Notes::default() }
    }
}

/// Whether a text is an identifier without another meaning.
#[inline]
pub(crate) fn is_free_word(text: &[u8]) -> bool {
    is_word(text) && !is_type_word(text) && !is_float_word(text)
}

/// Properties of a text.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Looks(u8);

impl Looks {
    /// Not determined yet.
    const UNKNOWN: Looks = Looks(0);
    const KNOWN: u8 = 1;
    /// An identifier without another meaning.
    const FREE_WORD: u8 = 2;
    /// Other bytes than printable ASCII characters, line breaks and tabs.
    const ODD: u8 = 4;
    /// Quotes or backslashes.
    const SPECIAL: u8 = 8;

    fn from_text(text: &[u8]) -> Looks {
        if is_free_word(text) {
            return Looks(Self::KNOWN | Self::FREE_WORD);
        }
        // No early exit, and bytes instead of booleans, so that the compiler vectorizes the loop.
        let (mut odd, mut special) = (0, 0);
        for byte in text {
            let printable = byte.wrapping_sub(b' ') <= b'~' - b' ';
            odd |= u8::from(!(printable | (*byte == b'\n') | (*byte == b'\t')));
            special |= u8::from((*byte == b'"') | (*byte == b'\\'));
        }
        Looks(Self::KNOWN | (odd * Self::ODD) | (special * Self::SPECIAL))
    }

    fn has(self, what: u8) -> bool {
        self.0 & what != 0
    }
}

/// Whether a text can be quoted without misleading the reader: UTF-8 without control characters,
/// except line breaks and tabs, and without characters that change the direction of writing.
fn is_plain(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| {
        text.chars().all(|character| match character {
            '\n' | '\t' => true,
            _ => !character.is_control() && !is_bidi_control(character),
        })
    })
}
