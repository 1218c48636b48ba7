//! From the graph to text.
//!
//! A statement (a node, a constant, the head of a graph) is written as one line. If that is too
//! long, or has lines of its own in it, the line is laid out by [`layout`](crate::layout), which
//! also lays out what people write: what is printed and what is formatted look the same.

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

/// Which of the two forms of the notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TextForm {
    /// Everything: read back, the text gives the same bytes.
    #[default]
    Full,
    /// What the parser of the `onnx` package accepts.
    Portable,
}

/// How a model is printed.
#[derive(Debug, Default)]
pub struct PrintOptions<'o> {
    /// Which form.
    pub form: TextForm,
    /// What becomes of values that take more than [`inline_bytes`](Self::inline_bytes).
    pub weights: Weights<'o>,
    /// Values of this many bytes stand in the text.
    pub inline_bytes: u64,
    /// Whether tensors look as the `onnx` package prints them: numbers on one line without blanks,
    /// and `...`, which nothing reads back, for values of 2 and 4 bits.
    pub like_onnx: bool,
}

/// What becomes of the values of large tensors.
#[derive(Default)]
pub enum Weights<'o> {
    /// They stand in the text.
    #[default]
    Inline,
    /// They are left out; a text, such as a digest, stands for them. What is printed cannot be read
    /// back.
    Elided(&'o dyn Fn(&[u8]) -> String),
    /// They are in a file, which is asked where.
    Placed(&'o mut dyn Payloads),
}

/// A place for values outside of the text.
pub trait Payloads {
    /// The files, relative to the text, in which values of more than `inline_bytes` bytes are, each
    /// with the digest that tells it from others. Asked once, before anything is placed. Values may
    /// be put into a file for this.
    ///
    /// # Errors
    ///
    /// Those of writing a file.
    fn files(&mut self, model: &Model, inline_bytes: u64) -> io::Result<Vec<(String, String)>>;

    /// Where these bytes of the model lie; `None` if they are to stand in the text after all.
    fn place(&mut self, model: &Model, span: Span) -> Option<Placed>;
}

/// Where values lie outside of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// The file, relative to the text.
    pub location: String,
    /// First byte in it.
    pub offset: u64,
    /// Which tensor of that file it is; see [`Model::tensor_paths`].
    pub tensor: Option<Vec<u8>>,
    /// SHA-256 of the values, hexadecimal, if the text is to say it.
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

/// Prints a model. Gives what the text does not say; nothing of the full form, unless values were
/// elided.
///
/// # Errors
///
/// Those of `sink`, and of placing values.
pub fn print_model(
    model: &Model,
    options: PrintOptions<'_>,
    sink: &mut dyn io::Write,
) -> io::Result<LeftOut> {
    let mut printer = Printer::new(model, options, Some(sink));
    printer.model();
    printer.finish().map(|(_, left_out)| left_out)
}

/// Prints a model into memory. See [`print_model`].
///
/// # Errors
///
/// Those of placing values.
pub fn model_to_text(model: &Model, options: PrintOptions<'_>) -> io::Result<(Vec<u8>, LeftOut)> {
    let mut printer = Printer::new(model, options, None);
    // Growing would copy it several times; what is not needed is never touched.
    printer.out.reserve(BYTES_PER_PART * model.part_count());
    printer.model();
    printer.finish()
}

/// What a part of a model takes as text, or a little more.
const BYTES_PER_PART: usize = 64;

/// A part of a model to be printed alone. Like all such parts it is read without a header, and so
/// without the defaults that the header of the full form changes.
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
/// Those of placing values.
pub fn part_to_text(
    model: &Model,
    part: PrintPart,
    options: PrintOptions<'_>,
) -> io::Result<(Vec<u8>, LeftOut)> {
    let mut printer = Printer::new(model, options, None);
    printer.ask_for_files();
    match part {
        PrintPart::Graph(graph) => printer.graph_statement(graph),
        PrintPart::Function(index) => match model.functions.get(index) {
            Some(function) => printer.function_statement(function),
            None => {
                return Err(io::Error::other(format!("the model has no function {index}")));
            }
        },
        PrintPart::Node(node) => printer.node_statement(node),
    }
    printer.finish()
}

/// Names are looked up, numbers are turned into digits, and everything goes to the end of one
/// buffer.
pub(crate) struct Printer<'m, 'o, 's> {
    model: &'m Model,
    texts: Texts<'m>,
    /// By symbol, what is in its text.
    looks: Vec<Looks>,
    form: TextForm,
    weights: Weights<'o>,
    /// The files that hold values, each with its digest.
    files: Vec<(String, String)>,
    /// Whether the header says these digests; each reference does otherwise.
    files_in_header: bool,
    inline_bytes: u64,
    like_onnx: bool,
    out: Vec<u8>,
    sink: Option<&'s mut dyn io::Write>,
    failure: Option<io::Error>,
    left_out: LeftOut,
    /// Blanks before a statement.
    indent: usize,
    /// Whether a statement stands within another one, whose lines are not laid out yet.
    nested: bool,
    /// Whether the statement that is being written has lines of its own in it.
    has_lines: bool,
    /// Whether the lines of the statement are laid out already.
    laid_out: bool,
    /// Where the brackets of the statement are that is being written, and room to wrap it.
    marks: wrap::Marks,
    wrapped: Vec<u8>,
}

/// That much is gathered before it goes to the sink: more would not stay near the processor.
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

    fn ask_for_files(&mut self) {
        if let Weights::Placed(payloads) = &mut self.weights {
            match payloads.files(self.model, self.inline_bytes) {
                Ok(files) => self.files = files,
                Err(error) => self.failure = Some(error),
            }
        }
    }

    fn full(&self) -> bool {
        self.form == TextForm::Full
    }

    #[inline]
    fn push(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    /// A statement on a line of its own.
    #[inline]
    fn statement(&mut self, write: impl FnOnce(&mut Self)) {
        self.statement_before(0, write);
    }

    /// A statement with that many bytes after it on its last line.
    #[inline]
    fn statement_before(&mut self, tail: usize, write: impl FnOnce(&mut Self)) {
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
        layout::statement(&flat, self.indent, tail, &mut self.out);
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

    /// A name: as it is if it is an identifier that means nothing else, in quotes otherwise.
    #[inline]
    fn name(&mut self, symbol: Symbol) {
        let (text, looks) = self.look(symbol);
        if looks.has(Looks::FREE_WORD) {
            self.out.extend_from_slice(text);
        } else {
            self.quoted_as(text, looks);
        }
    }

    fn maybe_name(&mut self, symbol: Option<Symbol>) {
        match symbol {
            Some(symbol) => self.name(symbol),
            None => self.push("?"),
        }
    }

    /// A text, and what is in it: most texts are written several times, and looked at once.
    #[inline]
    fn look(&mut self, symbol: Symbol) -> (&'m [u8], Looks) {
        let text = self.texts.text(symbol);
        if let Some(looks) = self.looks.get(symbol.index())
            && *looks != Looks::UNKNOWN
        {
            return (text, *looks);
        }
        let looks = Looks::of(text);
        if self.looks.len() <= symbol.index() {
            self.looks.resize(symbol.index() + 1, Looks::UNKNOWN);
        }
        self.looks[symbol.index()] = looks;
        (text, looks)
    }

    /// A text in quotes.
    fn quoted(&mut self, text: &[u8]) {
        self.quoted_as(text, Looks::of(text));
    }

    fn quoted_as(&mut self, text: &[u8], looks: Looks) {
        self.out.reserve(text.len() + 2);
        if looks.has(Looks::ODD) {
            self.odd_quoted(text);
        } else if looks.has(Looks::SPECIAL) {
            self.escaped(text);
        } else {
            self.out.push(b'"');
            self.out.extend_from_slice(text);
            self.out.push(b'"');
        }
    }

    /// A text in quotes that has other characters than those of ASCII.
    #[cold]
    fn odd_quoted(&mut self, text: &[u8]) {
        if self.full() && !is_plain(text) {
            return self.hexadecimal(text);
        }
        if self.full() {
            return self.escaped(text);
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
        self.escaped(&without_zeros);
    }

    /// A text in quotes, with a backslash before quotes and backslashes.
    fn escaped(&mut self, text: &[u8]) {
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

    /// Bytes as hexadecimal digits.
    fn hexadecimal(&mut self, bytes: &[u8]) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        self.push("x\"");
        for byte in bytes {
            self.out.push(DIGITS[usize::from(byte >> 4)]);
            self.out.push(DIGITS[usize::from(byte & 15)]);
        }
        self.out.push(b'"');
    }

    fn quoted_symbol(&mut self, symbol: Symbol) {
        let (text, looks) = self.look(symbol);
        self.quoted_as(text, looks);
    }

    /// A text in quotes, or `?` for none.
    fn maybe_quoted(&mut self, symbol: Option<Symbol>, place: impl FnOnce() -> String) {
        match symbol {
            Some(symbol) => self.quoted_symbol(symbol),
            None if self.full() => self.push("?"),
            None => {
                self.left_out.add_harmless("absent texts, which become empty ones", place);
                self.push("\"\"");
            }
        }
    }

    fn integer(&mut self, value: i64) {
        crate::numbers::push_i64(&mut self.out, value);
    }

    // Lists.

    /// What separates an item from the one before it.
    fn separator(&mut self, first: &mut bool) {
        if !std::mem::take(first) {
            self.push(", ");
        }
    }

    /// `["key": "value", …]`
    fn pairs(&mut self, entries: &[Entry], place: &dyn Fn() -> String) {
        self.push("[");
        let mut first = true;
        for entry in entries {
            self.separator(&mut first);
            self.marks.entry(self.out.len(), entry);
            self.maybe_quoted(entry.key, place);
            self.push(": ");
            self.maybe_quoted(entry.value, place);
            self.unknown_notes(&entry.unknown, place);
        }
        self.push("]");
    }

    /// The notes of something that has nothing but unknown fields.
    fn unknown_notes(&mut self, unknown: &Unknowns, place: &dyn Fn() -> String) {
        let mut notes = Notes::default();
        self.unknown(&mut notes, "unknown", unknown, place);
        self.end_notes(notes);
    }

    // Notes.

    /// Begins an entry of notes, if this form has notes. Otherwise what it would say is left out.
    fn note(
        &mut self,
        notes: &mut Notes,
        key: &str,
        what: &'static str,
        place: &dyn Fn() -> String,
    ) -> bool {
        self.note_of_kind(notes, key, what, true, place)
    }

    /// The same for what does not change what the model means.
    fn harmless_note(
        &mut self,
        notes: &mut Notes,
        key: &str,
        what: &'static str,
        place: &dyn Fn() -> String,
    ) -> bool {
        self.note_of_kind(notes, key, what, false, place)
    }

    fn note_of_kind(
        &mut self,
        notes: &mut Notes,
        key: &str,
        what: &'static str,
        changes_meaning: bool,
        place: &dyn Fn() -> String,
    ) -> bool {
        if !self.full() {
            self.left_out.add_kind(what, changes_meaning, place);
            return false;
        }
        // Notes of what is inside would be taken for these.
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
            self.marks.note(self.out.len(), key, !notes.begun);
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

    fn doc_note(&mut self, notes: &mut Notes, doc: Option<Symbol>, place: &dyn Fn() -> String) {
        if let Some(doc) = doc
            && self.harmless_note(notes, "doc_string", "documentation", place)
        {
            self.quoted_symbol(doc);
        }
    }

    fn metadata_note(&mut self, notes: &mut Notes, entries: &[Entry], place: &dyn Fn() -> String) {
        if !entries.is_empty() && self.harmless_note(notes, "metadata_props", "metadata", place) {
            self.pairs(entries, place);
        }
    }

    fn unknown(
        &mut self,
        notes: &mut Notes,
        key: &str,
        unknown: &Unknowns,
        place: &dyn Fn() -> String,
    ) {
        if !unknown.is_empty() && self.note(notes, key, "unknown fields", place) {
            self.unknown_list(unknown);
        }
    }

    /// `[number: x"record", …]`
    fn unknown_list(&mut self, unknown: &Unknowns) {
        self.push("[");
        let mut first = true;
        for (after, record) in unknown.iter() {
            self.separator(&mut first);
            self.integer(after.into());
            self.push(": ");
            self.hexadecimal(self.model.bytes(record));
        }
        self.push("]");
    }
}

/// Notes that are being written.
#[derive(Default)]
pub(crate) struct Notes {
    begun: bool,
    /// Whether what stands before them could have notes, but has none.
    reach_out: bool,
    /// Whether they may be the last thing in a statement, so that their places are kept for
    /// wrapping it.
    marked: bool,
}

impl Notes {
    fn marked() -> Notes {
        Notes { marked: true, ..Notes::default() }
    }
}

/// Whether a text is an identifier that means nothing else.
#[inline]
pub(crate) fn is_free_word(text: &[u8]) -> bool {
    is_word(text) && !is_type_word(text) && !is_float_word(text)
}

/// What is in a text.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Looks(u8);

impl Looks {
    /// Nobody has looked.
    const UNKNOWN: Looks = Looks(0);
    const KNOWN: u8 = 1;
    /// An identifier that means nothing else.
    const FREE_WORD: u8 = 2;
    /// Other bytes than those of printable ASCII characters, line breaks and tabs.
    const ODD: u8 = 4;
    /// Quotes or backslashes.
    const SPECIAL: u8 = 8;

    fn of(text: &[u8]) -> Looks {
        if is_free_word(text) {
            return Looks(Self::KNOWN | Self::FREE_WORD);
        }
        // No way out before the end, and bytes for truth values: that many bytes are looked at at
        // once.
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

/// Whether a text can stand in quotes and looks like what it is: UTF-8 without control characters,
/// except line breaks and tabs, and without characters that change the direction of writing.
fn is_plain(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| {
        text.chars().all(|character| match character {
            '\n' | '\t' => true,
            _ => !character.is_control() && !is_bidi_control(character),
        })
    })
}
