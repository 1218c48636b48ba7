//! From text to the graph.
//!
//! A hand-written descent that builds the model as it reads: names stay where they stand in the
//! text, numbers go straight into their payloads. An error is written down where it is found; then
//! the parser goes on at the next node, entry or function, so that one pass finds everything that
//! is wrong.

mod attribute;
mod graph;
mod message;
mod model;
mod recover;
mod tensor;
mod types;

use std::ops::Range;

use memchr::memchr_iter;
use sardonyx_model::{
    Attribute, Builder, Built, ErrorKind, ExternalData, Failure, GraphId, Model, ModelPart,
    NoExternalData, NodeId, ReadLimits, Span, Symbol, TensorProto, Text, TypeProto,
};
use sardonyx_proto::{MessageDef, Slice};
use sardonyx_tensor::Buffer;

use crate::cursor::{Cursor, Quoted, continues_word, starts_word};
use crate::diagnostic::{Diagnostic, DiagnosticSeverity, ParseError};
use crate::tree::{SyntaxKind, SyntaxTree};

use recover::Next;
pub(crate) use tensor::{entry_range, narrow};

/// How a text is read.
#[derive(Clone, Copy)]
pub struct ParseOptions<'o> {
    /// What the model may cost. Graphs in graphs count three levels each, as in a file.
    pub limits: ReadLimits,
    /// Finds the values of tensors that are loaded from files (`raw [...]`). The default finds
    /// none.
    pub external: &'o dyn ExternalData,
    /// Whether a tensor may have another number of values than its shape asks for, which is only a
    /// warning then. The parser of the `onnx` package does not count them.
    pub any_count: bool,
}

impl Default for ParseOptions<'_> {
    fn default() -> Self {
        ParseOptions { limits: ReadLimits::default(), external: &NoExternalData, any_count: false }
    }
}

impl std::fmt::Debug for ParseOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParseOptions").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// What a text says.
#[derive(Debug)]
pub struct Parsed {
    /// The model. It keeps the text, in which its names lie.
    pub model: Model,
    /// What is probably not what was meant.
    pub warnings: Vec<Diagnostic>,
}

/// A part of a model that can be read alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextPart {
    /// A whole model.
    Model,
    /// A graph, which becomes a `GraphProto`.
    Graph,
    /// A function, which becomes a `FunctionProto`.
    Function,
    /// A node, which becomes a `NodeProto`.
    Node,
    /// An attribute with its name, which becomes an `AttributeProto`.
    Attribute,
    /// A tensor with its values, which becomes a `TensorProto`.
    Tensor,
    /// A type, which becomes a `TypeProto`.
    Type,
}

/// Reads a model.
///
/// # Errors
///
/// Everything that is wrong with the text.
pub fn parse_model(text: Buffer, options: ParseOptions<'_>) -> Result<Parsed, ParseError> {
    let mut model = Model::default();
    let warnings = parse_with(&mut model, text, options, |parser| parser.model())?.1;
    Ok(Parsed { model, warnings })
}

/// Reads a function into a model that is complete, which gets it as its last one.
///
/// # Errors
///
/// Everything that is wrong with the text. The model may have parts of the function then, which
/// nothing refers to.
pub fn parse_function(
    model: &mut Model,
    text: Buffer,
    options: ParseOptions<'_>,
) -> Result<(), ParseError> {
    parse_with(model, text, options, |parser| parser.function())?;
    Ok(())
}

/// Whether bytes begin as a model does in the notation: with a header, or with the name of a graph
/// and its inputs.
pub fn looks_like_text(bytes: &[u8]) -> bool {
    let mut cursor = Cursor::new(bytes);
    cursor.skip_byte_order_mark();
    let header = cursor.eat(b'<');
    let named = match cursor.next() {
        b'"' => cursor.quoted().is_some(),
        _ => cursor.word().is_some(),
    };
    let sign = if header { b':' } else { b'(' };
    named && cursor.eat(sign)
}

/// Reads a part of a model, and gives the message that it is in a file.
///
/// # Errors
///
/// Everything that is wrong with the text; also what is left over after the part.
pub fn parse_part(
    part: TextPart,
    text: Buffer,
    options: ParseOptions<'_>,
) -> Result<Vec<u8>, ParseError> {
    /// What has to be kept beside the model, as the model has no place for it.
    enum Found {
        Model,
        Graph(GraphId),
        Function,
        Node(NodeId),
        Attribute(Box<Attribute>),
        Tensor(Box<TensorProto>),
        Type(Box<TypeProto>),
    }
    let mut model = Model::default();
    let found = parse_with(&mut model, text, options, |parser| {
        let at = parser.offset();
        Ok(match part {
            TextPart::Model => {
                parser.model()?;
                Found::Model
            }
            TextPart::Graph => Found::Graph(parser.graph(None, None)?),
            TextPart::Function => {
                parser.function()?;
                Found::Function
            }
            TextPart::Node => {
                let built = parser.build.add_graph(None, None, at);
                let graph = parser.built(built)?;
                Found::Node(parser.node(graph)?)
            }
            TextPart::Attribute => {
                let mut attribute = Box::<Attribute>::default();
                parser.attribute(&mut attribute, None)?;
                Found::Attribute(attribute)
            }
            TextPart::Tensor => Found::Tensor(Box::new(parser.tensor()?)),
            TextPart::Type => Found::Type(Box::new(parser.type_proto()?)),
        })
    })?
    .0;
    Ok(match &found {
        Found::Model => model.to_bytes(),
        Found::Function => match model.functions.first() {
            Some(function) => model.part_to_bytes(ModelPart::Function(function)),
            None => Vec::new(),
        },
        Found::Graph(graph) => model.part_to_bytes(ModelPart::Graph(*graph)),
        Found::Node(node) => model.part_to_bytes(ModelPart::Node(*node)),
        Found::Attribute(attribute) => model.part_to_bytes(ModelPart::Attribute(attribute)),
        Found::Tensor(tensor) => model.part_to_bytes(ModelPart::Tensor(tensor)),
        Found::Type(ty) => model.part_to_bytes(ModelPart::Type(ty)),
    })
}

/// The bytes of a message without a syntax of its own.
pub(crate) fn message_bytes(def: &'static MessageDef, text: &[u8]) -> Option<Vec<u8>> {
    let text = Buffer::from_vec(text.to_vec());
    let options = ParseOptions::default();
    let read = |parser: &mut Parser<'_, '_>| parser.message(def, message::MESSAGE_LEVELS);
    let read = parse_with(&mut Model::default(), text, options, read);
    read.ok().map(|(bytes, _)| bytes)
}

/// The parts of a text, as far as it can be read, and what is wrong with it. For editors.
pub fn syntax_tree(text: &Buffer) -> (SyntaxTree, Vec<Diagnostic>) {
    let (tree, diagnostics) = look_at(text, true);
    (tree.unwrap_or_default().tree, diagnostics)
}

/// What is wrong with a text.
pub(crate) fn diagnose(text: &Buffer) -> Vec<Diagnostic> {
    look_at(text, false).1
}

fn look_at(text: &Buffer, with_tree: bool) -> (Option<Recorder>, Vec<Diagnostic>) {
    let mut model = Model::default();
    let options = ParseOptions { external: &Nothing, ..ParseOptions::default() };
    let (parser, _) = run(&mut model, text, options, with_tree, Parser::model);
    (parser.tree, sorted(parser.diagnostics))
}

/// Stands in for files whose content does not matter.
struct Nothing;

impl ExternalData for Nothing {
    fn load(&self, _: &str, _: u64, _: Option<u64>) -> Result<Buffer, String> {
        Ok(Buffer::empty())
    }
}

/// Reads a text with one of the parser's productions; gives its result and the warnings.
fn parse_with<T>(
    model: &mut Model,
    text: Buffer,
    options: ParseOptions<'_>,
    production: impl FnOnce(&mut Parser<'_, '_>) -> Parse<T>,
) -> Result<(T, Vec<Diagnostic>), ParseError> {
    let (parser, result) = run(model, &text, options, false, production);
    let diagnostics = parser.diagnostics;
    let failed = diagnostics.iter().any(|found| found.severity == DiagnosticSeverity::Error);
    match result {
        Ok(result) if !failed => {
            parser.build.finish();
            Ok((result, sorted(diagnostics)))
        }
        _ => Err(ParseError::new(text, sorted(diagnostics))),
    }
}

fn run<'m, 'a, T>(
    model: &'m mut Model,
    text: &'a Buffer,
    options: ParseOptions<'m>,
    with_tree: bool,
    production: impl FnOnce(&mut Parser<'m, 'a>) -> Parse<T>,
) -> (Parser<'m, 'a>, Parse<T>) {
    let source = model.add_bytes(text.clone()).source;
    let bytes = text.as_slice();
    let mut parser = Parser {
        cursor: Cursor::new(bytes),
        build: Builder::new(model, source, bytes, options.limits),
        external: options.external,
        files: Vec::new(),
        faulty_files: Vec::new(),
        in_main_graph: false,
        in_initializer: false,
        warned_of_files: false,
        any_count: options.any_count,
        full: false,
        graph_levels: options.limits.depth / MESSAGES_PER_GRAPH,
        type_levels: sardonyx_model::TYPE_LEVELS,
        diagnostics: Vec::new(),
        tree: with_tree.then(Recorder::default),
        empty: None,
        numbers: Vec::new(),
    };
    /// Below this size, growing step by step costs less than counting.
    const SMALL: usize = 4 << 10;
    if bytes.len() > SMALL {
        // A node has a line, usually, and never fewer bytes than this if it does.
        let lines = memchr_iter(b'\n', bytes).count();
        parser.build.reserve(lines.min(bytes.len() / 32));
    }
    parser.cursor.skip_byte_order_mark();
    let mut result = production(&mut parser);
    if result.is_ok() {
        result = parser.expect_end().and(result);
    }
    if parser.hopeless() {
        parser.say_where_it_stopped();
    }
    (parser, result)
}

fn sorted(mut diagnostics: Vec<Diagnostic>) -> Vec<Diagnostic> {
    diagnostics.sort_by_key(|found| found.span.start);
    diagnostics
}

/// A graph in a graph is three messages deeper: node, attribute, graph.
const MESSAGES_PER_GRAPH: u32 = 3;

/// More errors than this, and the text is something else.
const MOST_ERRORS: usize = 100;

/// An error has been written down.
pub(crate) struct Failed;

/// Advice about lists.
const NO_LAST_COMMA: &str = "remove the comma after the last item";

pub(crate) type Parse<T = ()> = Result<T, Failed>;

pub(crate) struct Parser<'m, 'a> {
    cursor: Cursor<'a>,
    build: Builder<'m, 'a>,
    external: &'m dyn ExternalData,
    /// The files that the header lists, each with the digest that tells it from others.
    files: Vec<(String, String)>,
    /// Files about which an error was reported that all references to them have.
    faulty_files: Vec<String>,
    /// Whether the constants of the main graph are being read, not those of a graph in it.
    in_main_graph: bool,
    /// Whether the tensor that is being read is a constant of a graph, not part of a node or of a
    /// sparse tensor.
    in_initializer: bool,
    /// Whether it was said that a file cannot be told from others.
    warned_of_files: bool,
    /// Whether tensors may have too few values or too many.
    any_count: bool,
    /// Whether the header says that this is the full form.
    full: bool,
    /// Levels of graphs that may still be opened.
    graph_levels: u32,
    /// Levels of types that may still be opened.
    type_levels: u32,
    diagnostics: Vec<Diagnostic>,
    tree: Option<Recorder>,
    /// The symbol of the empty name.
    empty: Option<Symbol>,
    /// Payload of the tensor that is being read.
    numbers: Vec<u8>,
}

/// A tree that is growing.
#[derive(Default)]
struct Recorder {
    tree: SyntaxTree,
    current: Option<usize>,
}

/// A name or text as it stands.
pub(crate) enum Name<'a> {
    /// These bytes of the text.
    Here(Slice<'a>),
    /// What escapes or hexadecimal digits stand for.
    Own(Vec<u8>),
}

impl<'a> Name<'a> {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Name::Here(slice) => slice.bytes,
            Name::Own(bytes) => bytes,
        }
    }
}

// Errors and places.
impl<'a> Parser<'_, 'a> {
    /// Where the next token begins.
    fn offset(&mut self) -> u64 {
        self.cursor.next();
        self.cursor.pos as u64
    }

    fn slice(&self, range: Range<usize>) -> Slice<'a> {
        Slice { offset: range.start as u64, bytes: &self.cursor.text[range] }
    }

    fn report(&mut self, span: Range<usize>, message: impl Into<String>, help: Option<String>) {
        self.diagnostics.push(Diagnostic {
            severity: DiagnosticSeverity::Error,
            span,
            message: message.into(),
            help,
        });
    }

    fn warn(&mut self, span: Range<usize>, message: impl Into<String>, help: Option<&str>) {
        self.diagnostics.push(Diagnostic {
            severity: DiagnosticSeverity::Warning,
            span,
            message: message.into(),
            help: help.map(String::from),
        });
    }

    /// An error about a part of the text.
    #[cold]
    fn fail<T>(&mut self, span: Range<usize>, message: impl Into<String>) -> Parse<T> {
        self.report(span, message, None);
        Err(Failed)
    }

    /// An error about a part of the text, with advice.
    #[cold]
    fn fail_with<T>(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Parse<T> {
        self.report(span, message, Some(help.into()));
        Err(Failed)
    }

    /// An error about the next token: what would have been right there.
    #[cold]
    fn expected<T>(&mut self, what: &str) -> Parse<T> {
        let (span, found) = self.token();
        let help = self.advice_on_character().map(String::from);
        self.report(span, format!("expected {what}, found {found}"), help);
        Err(Failed)
    }

    /// The same, with advice.
    #[cold]
    fn expected_with<T>(&mut self, what: &str, help: impl Into<String>) -> Parse<T> {
        let (span, found) = self.token();
        let help = match self.advice_on_character() {
            Some(advice) => advice.to_string(),
            None => help.into(),
        };
        self.fail_with(span, format!("expected {what}, found {found}"), help)
    }

    /// What to write for the next character, which only looks like another one.
    #[cold]
    fn advice_on_character(&self) -> Option<&'static str> {
        let at = self.cursor.pos.min(self.cursor.text.len());
        let rest = &self.cursor.text[at..(at + 4).min(self.cursor.text.len())];
        let character = String::from_utf8_lossy(rest).chars().next()?;
        match character {
            '\'' | '`' | '\u{2018}'..='\u{201f}' | '\u{ab}' | '\u{bb}' => {
                Some("names and texts stand in double quotes: \"x\"")
            }
            '\u{2010}'..='\u{2015}' | '\u{2212}' => Some("the sign of a number is `-`"),
            _ if crate::diagnostic::is_unseen(character) => Some("it is invisible; remove it"),
            _ => None,
        }
    }

    /// Adds advice to the error that was just reported, if it has none.
    #[cold]
    fn advise(&mut self, help: impl Into<String>) {
        if let Some(last) = self.diagnostics.last_mut() {
            last.help.get_or_insert_with(|| help.into());
        }
    }

    /// The name around a place after a word: other characters that somebody wrote into it without
    /// quotes.
    #[cold]
    fn odd_name(&self) -> Option<String> {
        let odd =
            |byte: u8| continues_word(byte) || byte >= 0x80 || b"./-:$~%&!|\\".contains(&byte);
        let text = self.cursor.text;
        let at = self.cursor.pos;
        let begin = at - text[..at].iter().rev().take_while(|byte| odd(**byte)).count();
        let end = at + text[at..].iter().take_while(|byte| odd(**byte)).count();
        let name = text[begin..end].strip_suffix(b":").unwrap_or(&text[begin..end]);
        let begins = name
            .first()
            .is_some_and(|first| starts_word(*first) || *first >= 0x80 || *first == b'/');
        let any = name.iter().any(|byte| continues_word(*byte));
        let plain = name.iter().all(|byte| continues_word(*byte));
        let name = std::str::from_utf8(name).ok()?;
        let unseen = name.chars().any(crate::diagnostic::is_unseen);
        (begins && any && !plain && !unseen)
            .then(|| sardonyx_proto::shown(name.as_bytes()).to_string())
    }

    /// Advice about a name that has to stand in quotes, if such a one is around here.
    #[cold]
    fn advice_on_name(&mut self) -> Option<String> {
        if self.cursor.next().is_ascii_digit() {
            let (span, found) = self.token();
            let number = crate::numbers::scan(&self.cursor.text[span]).is_ok();
            let bare = found.trim_matches('`');
            return (!number)
                .then(|| format!("a name that begins with a digit stands in quotes: \"{bare}\""));
        }
        // Signs of the notation are no part of a name.
        if b"()<>[]{},=\"".contains(&self.cursor.byte()) {
            return None;
        }
        let name = self.odd_name()?;
        Some(format!(
            "a name with other characters than letters, digits and `_` stands in quotes: \"{name}\""
        ))
    }

    /// Advice about a bracket that was opened at a place.
    #[cold]
    fn advice_on_opened(&self, opened: usize, close: u8) -> String {
        let line = crate::diagnostic::Position::of(self.cursor.text, opened).line;
        let open = self.cursor.text.get(opened).copied().unwrap_or(b'(') as char;
        format!("the `{open}` of line {line} has no `{}`", close as char)
    }

    /// The next token: where it is, and what, for people.
    #[cold]
    fn token(&mut self) -> (Range<usize>, String) {
        let byte = self.cursor.next();
        let start = self.cursor.pos;
        if self.cursor.at_end() {
            return (start..start, "the end of the text".into());
        }
        let mut probe = self.cursor.clone();
        let prefix = if byte == b'x' && probe.byte_at(1) == b'"' {
            probe.pos += 1;
            "x"
        } else {
            ""
        };
        if let Some(word) = probe.word() {
            let shown = sardonyx_proto::shown(word);
            return (start..probe.pos, format!("`{shown}`"));
        }
        if probe.byte() == b'"' {
            return match probe.quoted() {
                Some(quoted) => {
                    let shown = sardonyx_proto::shown(quoted.content);
                    (start..probe.pos, format!("`{prefix}\"{shown}\"`"))
                }
                None => (start..start + 1, "an unterminated quote".into()),
            };
        }
        if byte.is_ascii_digit() || (byte == b'-' && continues_word(probe.byte_at(1))) {
            probe.pos += 1;
            while continues_word(probe.byte()) || probe.byte() == b'.' {
                let exponent = byte.is_ascii_digit() && matches!(probe.byte(), b'e' | b'E');
                probe.pos += 1;
                // The sign of an exponent belongs to it.
                if exponent && matches!(probe.byte(), b'+' | b'-') {
                    probe.pos += 1;
                }
            }
            let shown = sardonyx_proto::shown(&probe.text[start..probe.pos]);
            return (start..probe.pos, format!("`{shown}`"));
        }
        // One character, which may have several bytes.
        let rest = &self.cursor.text[start..(start + 4).min(self.cursor.text.len())];
        let character = String::from_utf8_lossy(rest).chars().next();
        match character {
            // These look like blanks, or like nothing.
            Some(character) if crate::diagnostic::is_unseen(character) => (
                start..start + character.len_utf8(),
                format!("the character U+{:04X}", u32::from(character)),
            ),
            Some(character)
                if !character.is_control() && character != char::REPLACEMENT_CHARACTER =>
            {
                (start..start + character.len_utf8(), format!("`{character}`"))
            }
            _ => (start..start + 1, format!("a byte of value 0x{byte:02x}")),
        }
    }

    fn has_errors(&self) -> bool {
        let error = |found: &Diagnostic| found.severity == DiagnosticSeverity::Error;
        self.diagnostics.iter().any(error)
    }

    /// Whether so much is wrong that going on would help nobody.
    fn hopeless(&self) -> bool {
        self.diagnostics.len() >= MOST_ERRORS
    }

    #[cold]
    fn say_where_it_stopped(&mut self) {
        let last = self.diagnostics.iter().map(|found| found.span.end).max();
        let last = last.unwrap_or_default().min(self.cursor.text.len());
        let rest = !self.cursor.text[last..].trim_ascii().is_empty();
        if rest {
            let message = "too many errors; the rest was not read";
            self.report(last..last, message, None);
        }
    }

    /// Turns a failure of the builder into an error.
    fn built<T>(&mut self, result: Built<T>) -> Parse<T> {
        result.map_err(|failure| self.failed_to_build(&failure))
    }

    #[cold]
    fn failed_to_build(&mut self, failure: &Failure) -> Failed {
        let at = (failure.offset as usize).min(self.cursor.text.len());
        let message = match failure.kind {
            ErrorKind::TooMuchStructure { limit } => format!(
                "nodes, values and attributes up to here take more than {} MiB of memory, which is much for a text of this size",
                limit >> 20
            ),
            ErrorKind::TextTooLong { length } => {
                format!("a string has {length} bytes; at most 2^32 - 1 are allowed")
            }
            _ => "this cannot be stored in a model".to_string(),
        };
        // Nothing that follows can be built either.
        self.cursor.pos = self.cursor.text.len();
        self.report(at..at, message, None);
        Failed
    }
}

// Tokens.
impl<'a> Parser<'_, 'a> {
    fn expect_end(&mut self) -> Parse {
        self.cursor.next();
        if self.cursor.at_end() {
            return Ok(());
        }
        self.expected("the end of the text")
    }

    /// Goes over a sign that must come next.
    #[inline]
    fn expect(&mut self, byte: u8, what: &str) -> Parse {
        if self.cursor.eat(byte) {
            return Ok(());
        }
        self.expected(what)
    }

    /// Goes over a `?`, which stands for what a file does not say. A type may begin with one as
    /// well; see `types`.
    fn absent(&mut self) -> bool {
        let found = self.cursor.next() == b'?' && !self.at_type_sign();
        if found {
            self.cursor.pos += 1;
        }
        found
    }

    /// Whether a name or text in quotes comes next, in either form.
    #[inline]
    fn at_quoted(&mut self) -> bool {
        match self.cursor.next() {
            b'"' => true,
            b'x' => self.cursor.byte_at(1) == b'"',
            _ => false,
        }
    }

    /// A text in quotes, which stands here.
    fn quoted(&mut self) -> Parse<Name<'a>> {
        let start = self.cursor.pos;
        let hexadecimal = self.cursor.byte() == b'x';
        if !hexadecimal && let Some(range) = self.cursor.plain_quoted() {
            return Ok(Name::Here(self.slice(range)));
        }
        if hexadecimal {
            self.cursor.pos += 1;
        }
        let Some(quoted) = self.cursor.quoted() else {
            self.cursor.pos = start;
            // Whatever follows is inside of it, or was meant to be; where it should end nobody
            // knows.
            let line = self.cursor.text[start..].iter().position(|byte| *byte == b'\n');
            let end = line.map_or(self.cursor.text.len(), |length| start + length);
            self.cursor.pos = self.cursor.text.len();
            return self.fail_with(
                start..end,
                "this quote is not closed",
                "inside of quotes, `\\\"` stands for a quote and `\\\\` for a backslash",
            );
        };
        if hexadecimal {
            return self.hexadecimal(quoted);
        }
        Ok(if quoted.escapes {
            Name::Own(quoted.unescaped())
        } else {
            Name::Here(Slice { bytes: quoted.content, offset: quoted.start as u64 })
        })
    }

    fn hexadecimal(&mut self, quoted: Quoted<'a>) -> Parse<Name<'a>> {
        let mut bytes = Vec::with_capacity(quoted.content.len() / 2);
        let mut high = None;
        for (index, byte) in quoted.content.iter().enumerate() {
            let Some(digit) = (*byte as char).to_digit(16) else {
                if crate::cursor::is_blank(*byte) {
                    continue;
                }
                let at = quoted.start + index;
                return self.fail_with(
                    at..at + 1,
                    "bytes are written with hexadecimal digits",
                    "two digits from 0 to f stand for one byte: x\"00ff\"",
                );
            };
            match high.take() {
                None => high = Some(digit),
                Some(high) => bytes.push((high << 4 | digit) as u8),
            }
        }
        if high.is_some() {
            let end = quoted.start + quoted.content.len();
            return self.fail(
                quoted.start..end,
                "a byte has two hexadecimal digits, the last one here has one",
            );
        }
        Ok(Name::Own(bytes))
    }

    /// A text in quotes.
    fn string(&mut self, what: &str) -> Parse<Name<'a>> {
        if self.at_quoted() {
            return self.quoted();
        }
        let byte = self.cursor.next();
        if !continues_word(byte) && byte != b'-' {
            return self.expected(what);
        }
        let shown = match self.odd_name() {
            Some(name) => name,
            None => self.token().1.trim_matches('`').to_string(),
        };
        self.expected_with(what, format!("write strings in quotes: \"{shown}\""))
    }

    /// A text in quotes, or `?` for none.
    fn maybe_string(&mut self, what: &str) -> Parse<Option<Name<'a>>> {
        if self.absent() {
            return Ok(None);
        }
        self.string(what).map(Some)
    }

    /// An identifier, if one comes next.
    #[inline]
    fn maybe_word(&mut self) -> Option<Slice<'a>> {
        if self.cursor.next() == b'x' && self.cursor.byte_at(1) == b'"' {
            return None;
        }
        let start = self.cursor.pos;
        self.cursor.word()?;
        Some(self.slice(start..self.cursor.pos))
    }

    /// A name: an identifier, or anything in quotes.
    #[inline]
    fn name(&mut self, what: &str) -> Parse<Name<'a>> {
        if self.at_quoted() {
            return self.quoted();
        }
        let start = self.cursor.pos;
        match self.cursor.word() {
            Some(_) => Ok(Name::Here(self.slice(start..self.cursor.pos))),
            None => self.expected_name(what),
        }
    }

    #[cold]
    fn expected_name<T>(&mut self, what: &str) -> Parse<T> {
        match self.advice_on_name() {
            Some(help) => self.expected_with(what, help),
            None => self.expected(what),
        }
    }

    /// A name, or `?` for none.
    fn maybe_name(&mut self, what: &str) -> Parse<Option<Name<'a>>> {
        if self.absent() {
            return Ok(None);
        }
        self.name(what).map(Some)
    }

    /// An identifier.
    fn word(&mut self, what: &str) -> Parse<Slice<'a>> {
        self.cursor.next();
        let start = self.cursor.pos;
        match self.cursor.word() {
            Some(_) => Ok(self.slice(start..self.cursor.pos)),
            None => self.expected(what),
        }
    }

    fn symbol(&mut self, name: &Name<'a>) -> Parse<Symbol> {
        match name {
            Name::Here(slice) => {
                let built = self.build.name(*slice);
                self.built(built)
            }
            Name::Own(bytes) => Ok(self.build.own_name(bytes)),
        }
    }

    /// The symbol of a name of which there are few, each many times.
    fn frequent_symbol(&mut self, name: &Name<'a>) -> Parse<Symbol> {
        match name {
            Name::Here(slice) => {
                let built = self.build.frequent_name(*slice);
                self.built(built)
            }
            Name::Own(bytes) => Ok(self.build.own_name(bytes)),
        }
    }

    fn maybe_symbol(&mut self, name: Option<Name<'a>>) -> Parse<Option<Symbol>> {
        name.map(|name| self.symbol(&name)).transpose()
    }

    /// The symbol of the empty text.
    fn empty_symbol(&mut self) -> Symbol {
        let build = &mut self.build;
        *self.empty.get_or_insert_with(|| build.own_name(b""))
    }

    /// A name for the builder.
    #[inline]
    fn text(&mut self, name: Name<'a>) -> Text<'a> {
        match name {
            Name::Here(slice) => Text::Here(slice),
            Name::Own(bytes) if bytes.is_empty() => Text::Here(self.slice(0..0)),
            Name::Own(bytes) => Text::Interned(self.build.own_name(&bytes)),
        }
    }

    /// The bytes of a text, kept by the model.
    fn kept(&mut self, name: Name<'a>) -> Span {
        match name {
            Name::Here(slice) => self.build.span(slice),
            Name::Own(bytes) => self.build.keep(&bytes),
        }
    }

    /// A list between two signs, its items separated by commas: calls `item` at each. An item that
    /// fails is left, and the list goes on after the next comma.
    fn list(
        &mut self,
        open: u8,
        close: u8,
        what: &str,
        item: impl FnMut(&mut Self) -> Parse,
    ) -> Parse {
        self.list_of(open, close, what, |_| false, item)
    }

    /// The same, where one can tell that an item begins: with such a one the list goes on even if a
    /// comma or a bracket is missing before it.
    fn list_of(
        &mut self,
        open: u8,
        close: u8,
        what: &str,
        begins: fn(&Self) -> bool,
        mut item: impl FnMut(&mut Self) -> Parse,
    ) -> Parse {
        self.cursor.next();
        let start = self.cursor.pos;
        self.expect(open, what)?;
        if self.cursor.eat(close) {
            return Ok(());
        }
        let mut failed = false;
        let reported = self.diagnostics.len();
        loop {
            let begin = self.offset() as usize;
            if item(self).is_err() {
                failed = true;
                // No item is at its beginning where one before it has a comma.
                if self.cursor.text.get(begin) == Some(&close) && self.cursor.pos == begin {
                    self.advise(NO_LAST_COMMA);
                }
                if self.hopeless() {
                    return Err(Failed);
                }
                match self.skip_to_next_item(begin, close, begins) {
                    Next::Sign => {}
                    Next::Item => continue,
                    Next::Lost => return Err(Failed),
                }
            }
            match self.cursor.next() {
                b',' => self.cursor.pos += 1,
                byte if byte == close => {
                    self.cursor.pos += 1;
                    return if failed { Err(Failed) } else { Ok(()) };
                }
                _ => {
                    // What went wrong in an item may have taken the closing sign along.
                    if self.cursor.at_end() && self.diagnostics.len() > reported {
                        return Err(Failed);
                    }
                    self.expected_separator(start, close, begins);
                    failed = true;
                    // What cannot be in the list is after it.
                    let after = self.at_block() || (close == b')' && self.at_arrow());
                    if self.hopeless() || after || self.at_graph_start() {
                        return Err(Failed);
                    }
                    if begins(self) {
                        continue;
                    }
                    let begin = self.cursor.pos;
                    match self.skip_to_next_item(begin, close, begins) {
                        Next::Sign | Next::Item if self.cursor.eat(b',') => {}
                        Next::Item => {}
                        Next::Sign => {
                            self.cursor.pos += 1;
                            return Err(Failed);
                        }
                        Next::Lost => return Err(Failed),
                    }
                }
            }
        }
    }

    #[cold]
    fn expected_separator(&mut self, start: usize, close: u8, begins: fn(&Self) -> bool) {
        let byte = self.cursor.next();
        let (span, found) = self.token();
        let message = format!("expected `,` or `{}`, found {found}", close as char);
        let end = self.cursor.token_end();
        let new_line = self.cursor.text[end..self.cursor.pos].contains(&b'\n');
        let foreign = match byte {
            b')' | b']' | b'}' | b'>' => true,
            b'{' => self.at_block(),
            b'=' => self.at_arrow(),
            b'(' => close == b'>',
            _ => self.cursor.at_end() || (new_line && !begins(self) && self.at_graph_start()),
        };
        let help = if foreign {
            Some(self.advice_on_opened(start, close))
        } else if end == self.cursor.pos {
            self.advice_on_name()
        } else {
            None
        };
        let help = match self.advice_on_character() {
            Some(advice) => Some(advice.to_string()),
            None => help,
        };
        self.report(span, message, help);
    }
}

// The tree.
impl Parser<'_, '_> {
    /// Begins a part of the text.
    #[inline]
    fn open(&mut self, kind: SyntaxKind) -> Option<usize> {
        self.tree.as_ref()?;
        self.cursor.next();
        let start = self.cursor.pos;
        self.open_at(kind, start)
    }

    fn open_at(&mut self, kind: SyntaxKind, start: usize) -> Option<usize> {
        let recorder = self.tree.as_mut()?;
        recorder.current = Some(recorder.tree.open(kind, start, recorder.current));
        recorder.current
    }

    /// Ends it.
    #[inline]
    fn close(&mut self, part: Option<usize>) {
        if let (Some(recorder), Some(part)) = (&mut self.tree, part) {
            recorder.current = recorder.tree.close(part, self.cursor.token_end());
        }
    }

    /// A part of the text that `production` reads.
    #[inline]
    fn part<T>(
        &mut self,
        kind: SyntaxKind,
        production: impl FnOnce(&mut Self) -> Parse<T>,
    ) -> Parse<T> {
        let part = self.open(kind);
        let result = production(self);
        self.close(part);
        result
    }
}
