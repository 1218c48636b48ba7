//! Parses text into the graph.
//!
//! A hand-written recursive descent parser that builds the model as it reads: names stay spans of
//! the text, numbers are written to their payloads directly. An error is recorded where it is
//! found; then the parser continues at the next node, entry or function, so that one pass finds all
//! errors.

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

/// Options of parsing.
#[derive(Clone, Copy)]
pub struct ParseOptions<'o> {
    /// Limits of the model. A nested graph counts as three levels, like in a file.
    pub limits: ReadLimits,
    /// Source of the values of tensors that are loaded from files (`raw [...]`). The default has no
    /// files.
    pub external: &'o dyn ExternalData,
    /// Whether a tensor may have another number of values than its shape requires; then this is
    /// only a warning. The parser of the `onnx` package does not count values.
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

/// Result of parsing a text.
#[derive(Debug)]
pub struct Parsed {
    /// Model. It keeps the text, which holds its names.
    pub model: Model,
    /// Probable mistakes in the text.
    pub warnings: Vec<Diagnostic>,
}

/// Part of a model that can be parsed alone.
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

/// Parses a model.
///
/// # Errors
///
/// All errors in the text.
pub fn parse_model(text: Buffer, options: ParseOptions<'_>) -> Result<Parsed, ParseError> {
    let mut model = Model::default();
    let warnings = parse_with(&mut model, text, options, |parser| parser.parse_model())?.1;
    Ok(Parsed { model, warnings })
}

/// Parses a function and appends it to a complete model.
///
/// # Errors
///
/// All errors in the text. The model may then have unreachable parts of the function.
pub fn parse_function(
    model: &mut Model,
    text: Buffer,
    options: ParseOptions<'_>,
) -> Result<(), ParseError> {
    parse_with(model, text, options, |parser| parser.parse_function())?;
    Ok(())
}

/// Whether the bytes begin like a model in ONNX text: with a header, or with the name of a graph
/// and its inputs.
pub fn looks_like_text(bytes: &[u8]) -> bool {
    let mut cursor = Cursor::new(bytes);
    cursor.skip_byte_order_mark();
    let header = cursor.eat(b'<');
    let named = match cursor.next() {
        b'"' => cursor.eat_quoted().is_some(),
        _ => cursor.eat_word().is_some(),
    };
    let sign = if header { b':' } else { b'(' };
    named && cursor.eat(sign)
}

/// Parses a part of a model and returns it as an encoded message.
///
/// # Errors
///
/// All errors in the text, and any text after the part.
pub fn parse_part(
    part: TextPart,
    text: Buffer,
    options: ParseOptions<'_>,
) -> Result<Vec<u8>, ParseError> {
    /// Part that the model has no place for.
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
        let at = parser.next_offset();
        Ok(match part {
            TextPart::Model => {
                parser.parse_model()?;
                Found::Model
            }
            TextPart::Graph => Found::Graph(parser.parse_graph(None, None)?),
            TextPart::Function => {
                parser.parse_function()?;
                Found::Function
            }
            TextPart::Node => {
                let built = parser.build.add_graph(None, None, at);
                let graph = parser.check_built(built)?;
                Found::Node(parser.parse_node(graph)?)
            }
            TextPart::Attribute => {
                let mut attribute = Box::<Attribute>::default();
                parser.parse_attribute(&mut attribute, None)?;
                Found::Attribute(attribute)
            }
            TextPart::Tensor => Found::Tensor(Box::new(parser.parse_tensor()?)),
            TextPart::Type => Found::Type(Box::new(parser.parse_type_proto()?)),
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

/// Parses a message without a syntax of its own and returns its encoding.
pub(crate) fn encode_message(def: &'static MessageDef, text: &[u8]) -> Option<Vec<u8>> {
    let text = Buffer::from_vec(text.to_vec());
    let options = ParseOptions::default();
    let read = |parser: &mut Parser<'_, '_>| parser.parse_message(def, message::MESSAGE_LEVELS);
    let read = parse_with(&mut Model::default(), text, options, read);
    read.ok().map(|(bytes, _)| bytes)
}

/// Returns the syntax tree of a text, as far as it can be parsed, and its diagnostics. For editors.
pub fn syntax_tree(text: &Buffer) -> (SyntaxTree, Vec<Diagnostic>) {
    let (tree, diagnostics) = inspect_text(text, true);
    (tree.unwrap_or_default().tree, diagnostics)
}

/// Returns the diagnostics of a text.
pub(crate) fn diagnose(text: &Buffer) -> Vec<Diagnostic> {
    inspect_text(text, false).1
}

fn inspect_text(text: &Buffer, with_tree: bool) -> (Option<Recorder>, Vec<Diagnostic>) {
    let mut model = Model::default();
    let options = ParseOptions { external: &Nothing, ..ParseOptions::default() };
    let (parser, _) = run(&mut model, text, options, with_tree, Parser::parse_model);
    (parser.tree, sort_by_start(parser.diagnostics))
}

/// Data files whose content does not matter.
struct Nothing;

impl ExternalData for Nothing {
    fn load(&self, _: &str, _: u64, _: Option<u64>) -> Result<Buffer, String> {
        Ok(Buffer::empty())
    }
}

/// Parses a text with one production of the parser; returns its result and the warnings.
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
            Ok((result, sort_by_start(diagnostics)))
        }
        _ => Err(ParseError::new(text, sort_by_start(diagnostics))),
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
    /// Size in bytes below which growing step by step costs less than counting.
    const SMALL: usize = 4 << 10;
    if bytes.len() > SMALL {
        // A node usually has a line of its own, of at least 32 bytes.
        let lines = memchr_iter(b'\n', bytes).count();
        parser.build.reserve(lines.min(bytes.len() / 32));
    }
    parser.cursor.skip_byte_order_mark();
    let mut result = production(&mut parser);
    if result.is_ok() {
        result = parser.expect_end().and(result);
    }
    if parser.is_hopeless() {
        parser.report_stop();
    }
    (parser, result)
}

fn sort_by_start(mut diagnostics: Vec<Diagnostic>) -> Vec<Diagnostic> {
    diagnostics.sort_by_key(|found| found.span.start);
    diagnostics
}

/// Message levels of a nested graph: node, attribute, graph.
const MESSAGES_PER_GRAPH: u32 = 3;

/// Number of errors at which the parser gives up, as the text is probably something else.
const MOST_ERRORS: usize = 100;

/// Marker of an error that has been recorded.
pub(crate) struct Failed;

/// Advice about lists.
const NO_LAST_COMMA: &str = "remove the comma after the last item";

pub(crate) type Parse<T = ()> = Result<T, Failed>;

pub(crate) struct Parser<'m, 'a> {
    cursor: Cursor<'a>,
    build: Builder<'m, 'a>,
    external: &'m dyn ExternalData,
    /// Files that the header lists, each with its digest.
    files: Vec<(String, String)>,
    /// Files with an error that all references to them share; it is reported once.
    faulty_files: Vec<String>,
    /// Whether a constant of the main graph is being read, rather than one of a nested graph.
    in_main_graph: bool,
    /// Whether the tensor that is being read is a constant of a graph, rather than part of a node
    /// or of a sparse tensor.
    in_initializer: bool,
    /// Whether the missing digest of a file was reported.
    warned_of_files: bool,
    /// Whether tensors may have too few or too many values.
    any_count: bool,
    /// Whether the header declares the full form.
    full: bool,
    /// Number of graph levels that may still be opened.
    graph_levels: u32,
    /// Number of type levels that may still be opened.
    type_levels: u32,
    diagnostics: Vec<Diagnostic>,
    tree: Option<Recorder>,
    /// The symbol of the empty name.
    empty: Option<Symbol>,
    /// Payload of the tensor that is being read.
    numbers: Vec<u8>,
}

/// Syntax tree under construction.
#[derive(Default)]
struct Recorder {
    tree: SyntaxTree,
    current: Option<usize>,
}

/// Name or text.
pub(crate) enum Name<'a> {
    /// Bytes of the text, without escapes.
    Here(Slice<'a>),
    /// Decoded escapes or hexadecimal digits.
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

// Errors and positions.
impl<'a> Parser<'_, 'a> {
    /// Returns the start of the next token.
    fn next_offset(&mut self) -> u64 {
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

    /// Reports an error about a range of the text.
    #[cold]
    fn fail<T>(&mut self, span: Range<usize>, message: impl Into<String>) -> Parse<T> {
        self.report(span, message, None);
        Err(Failed)
    }

    /// Reports an error about a range of the text, with advice.
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

    /// Reports an error about the next token: `what` was expected.
    #[cold]
    fn fail_expected<T>(&mut self, what: &str) -> Parse<T> {
        let (span, found) = self.describe_token();
        let help = self.advice_on_character().map(String::from);
        self.report(span, format!("expected {what}, found {found}"), help);
        Err(Failed)
    }

    /// Reports an error about the next token, with advice.
    #[cold]
    fn fail_expected_with<T>(&mut self, what: &str, help: impl Into<String>) -> Parse<T> {
        let (span, found) = self.describe_token();
        let help = match self.advice_on_character() {
            Some(advice) => advice.to_string(),
            None => help.into(),
        };
        self.fail_with(span, format!("expected {what}, found {found}"), help)
    }

    /// Returns advice for the next character, if it only looks like another one.
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

    /// Returns the unquoted name around the position after a word, including characters that are
    /// only allowed in quotes.
    #[cold]
    fn find_odd_name(&self) -> Option<String> {
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

    /// Returns advice about a name that must be quoted, if there is one at this position.
    #[cold]
    fn advice_on_name(&mut self) -> Option<String> {
        if self.cursor.next().is_ascii_digit() {
            let (span, found) = self.describe_token();
            let number = crate::numbers::scan(&self.cursor.text[span]).is_ok();
            let bare = found.trim_matches('`');
            return (!number)
                .then(|| format!("a name that begins with a digit stands in quotes: \"{bare}\""));
        }
        // Signs of the notation are not part of a name.
        if b"()<>[]{},=\"".contains(&self.cursor.byte()) {
            return None;
        }
        let name = self.find_odd_name()?;
        Some(format!(
            "a name with other characters than letters, digits and `_` stands in quotes: \"{name}\""
        ))
    }

    /// Returns advice about a bracket that was opened at `opened`.
    #[cold]
    fn advice_on_opened(&self, opened: usize, close: u8) -> String {
        let line = crate::diagnostic::Position::of(self.cursor.text, opened).line;
        let open = self.cursor.text.get(opened).copied().unwrap_or(b'(') as char;
        format!("the `{open}` of line {line} has no `{}`", close as char)
    }

    /// Returns the range of the next token, and its description for messages.
    #[cold]
    fn describe_token(&mut self) -> (Range<usize>, String) {
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
        if let Some(word) = probe.eat_word() {
            let shown = sardonyx_proto::shown(word);
            return (start..probe.pos, format!("`{shown}`"));
        }
        if probe.byte() == b'"' {
            return match probe.eat_quoted() {
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
                // The sign of an exponent is part of it.
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
            // Characters that look like blanks or are invisible.
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

    /// Whether there are so many errors that more would not help the user.
    fn is_hopeless(&self) -> bool {
        self.diagnostics.len() >= MOST_ERRORS
    }

    #[cold]
    fn report_stop(&mut self) {
        let last = self.diagnostics.iter().map(|found| found.span.end).max();
        let last = last.unwrap_or_default().min(self.cursor.text.len());
        let rest = !self.cursor.text[last..].trim_ascii().is_empty();
        if rest {
            let message = "too many errors; the rest was not read";
            self.report(last..last, message, None);
        }
    }

    /// Converts a failure of the builder to an error.
    fn check_built<T>(&mut self, result: Built<T>) -> Parse<T> {
        result.map_err(|failure| self.report_build_failure(&failure))
    }

    #[cold]
    fn report_build_failure(&mut self, failure: &Failure) -> Failed {
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
        // The builder rejects everything that follows, too.
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
        self.fail_expected("the end of the text")
    }

    /// Skips a sign that must come next.
    #[inline]
    fn expect(&mut self, byte: u8, what: &str) -> Parse {
        if self.cursor.eat(byte) {
            return Ok(());
        }
        self.fail_expected(what)
    }

    /// Skips a `?`, which stands for an absent field. A type may begin with `?` as well; see
    /// `types`.
    fn eat_absent(&mut self) -> bool {
        let found = self.cursor.next() == b'?' && !self.at_type_sign();
        if found {
            self.cursor.pos += 1;
        }
        found
    }

    /// Whether a quoted text comes next, plain or hexadecimal.
    #[inline]
    fn at_quoted(&mut self) -> bool {
        match self.cursor.next() {
            b'"' => true,
            b'x' => self.cursor.byte_at(1) == b'"',
            _ => false,
        }
    }

    /// Parses the quoted text at this position.
    fn parse_quoted(&mut self) -> Parse<Name<'a>> {
        let start = self.cursor.pos;
        let hexadecimal = self.cursor.byte() == b'x';
        if !hexadecimal && let Some(range) = self.cursor.eat_plain_quoted() {
            return Ok(Name::Here(self.slice(range)));
        }
        if hexadecimal {
            self.cursor.pos += 1;
        }
        let Some(quoted) = self.cursor.eat_quoted() else {
            self.cursor.pos = start;
            // The rest of the text may or may not belong to the quote, so parsing stops.
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
            return self.parse_hexadecimal(quoted);
        }
        Ok(if quoted.escapes {
            Name::Own(quoted.unescape())
        } else {
            Name::Here(Slice { bytes: quoted.content, offset: quoted.start as u64 })
        })
    }

    fn parse_hexadecimal(&mut self, quoted: Quoted<'a>) -> Parse<Name<'a>> {
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

    /// Parses a quoted text.
    fn parse_string(&mut self, what: &str) -> Parse<Name<'a>> {
        if self.at_quoted() {
            return self.parse_quoted();
        }
        let byte = self.cursor.next();
        if !continues_word(byte) && byte != b'-' {
            return self.fail_expected(what);
        }
        let shown = match self.find_odd_name() {
            Some(name) => name,
            None => self.describe_token().1.trim_matches('`').to_string(),
        };
        self.fail_expected_with(what, format!("write strings in quotes: \"{shown}\""))
    }

    /// Parses a quoted text, or `?` for none.
    fn parse_maybe_string(&mut self, what: &str) -> Parse<Option<Name<'a>>> {
        if self.eat_absent() {
            return Ok(None);
        }
        self.parse_string(what).map(Some)
    }

    /// Parses an identifier, if one comes next.
    #[inline]
    fn parse_maybe_word(&mut self) -> Option<Slice<'a>> {
        if self.cursor.next() == b'x' && self.cursor.byte_at(1) == b'"' {
            return None;
        }
        let start = self.cursor.pos;
        self.cursor.eat_word()?;
        Some(self.slice(start..self.cursor.pos))
    }

    /// Parses a name: an identifier or a quoted text.
    #[inline]
    fn parse_name(&mut self, what: &str) -> Parse<Name<'a>> {
        if self.at_quoted() {
            return self.parse_quoted();
        }
        let start = self.cursor.pos;
        match self.cursor.eat_word() {
            Some(_) => Ok(Name::Here(self.slice(start..self.cursor.pos))),
            None => self.fail_expected_name(what),
        }
    }

    #[cold]
    fn fail_expected_name<T>(&mut self, what: &str) -> Parse<T> {
        match self.advice_on_name() {
            Some(help) => self.fail_expected_with(what, help),
            None => self.fail_expected(what),
        }
    }

    /// Parses a name, or `?` for none.
    fn parse_maybe_name(&mut self, what: &str) -> Parse<Option<Name<'a>>> {
        if self.eat_absent() {
            return Ok(None);
        }
        self.parse_name(what).map(Some)
    }

    /// Parses an identifier.
    fn parse_word(&mut self, what: &str) -> Parse<Slice<'a>> {
        self.cursor.next();
        let start = self.cursor.pos;
        match self.cursor.eat_word() {
            Some(_) => Ok(self.slice(start..self.cursor.pos)),
            None => self.fail_expected(what),
        }
    }

    fn intern_name(&mut self, name: &Name<'a>) -> Parse<Symbol> {
        match name {
            Name::Here(slice) => {
                let built = self.build.name(*slice);
                self.check_built(built)
            }
            Name::Own(bytes) => Ok(self.build.own_name(bytes)),
        }
    }

    /// Interns a name of which there are few different ones, each used many times.
    fn intern_frequent(&mut self, name: &Name<'a>) -> Parse<Symbol> {
        match name {
            Name::Here(slice) => {
                let built = self.build.frequent_name(*slice);
                self.check_built(built)
            }
            Name::Own(bytes) => Ok(self.build.own_name(bytes)),
        }
    }

    fn intern_maybe(&mut self, name: Option<Name<'a>>) -> Parse<Option<Symbol>> {
        name.map(|name| self.intern_name(&name)).transpose()
    }

    /// Interns the empty text.
    fn intern_empty(&mut self) -> Symbol {
        let build = &mut self.build;
        *self.empty.get_or_insert_with(|| build.own_name(b""))
    }

    /// Converts a name for the builder.
    #[inline]
    fn convert_name(&mut self, name: Name<'a>) -> Text<'a> {
        match name {
            Name::Here(slice) => Text::Here(slice),
            Name::Own(bytes) if bytes.is_empty() => Text::Here(self.slice(0..0)),
            Name::Own(bytes) => Text::Interned(self.build.own_name(&bytes)),
        }
    }

    /// Adds the bytes of a text to the model.
    fn keep_name(&mut self, name: Name<'a>) -> Span {
        match name {
            Name::Here(slice) => self.build.span(slice),
            Name::Own(bytes) => self.build.keep(&bytes),
        }
    }

    /// Parses a list between two signs, with commas between its items: calls `item` for each. After
    /// an item that fails, the list continues after the next comma.
    fn parse_list(
        &mut self,
        open: u8,
        close: u8,
        what: &str,
        item: impl FnMut(&mut Self) -> Parse,
    ) -> Parse {
        self.parse_list_of(open, close, what, |_| false, item)
    }

    /// Parses a list like [`parse_list`](Self::parse_list), but `begins` recognizes the start of an
    /// item: there the list continues even if a comma or bracket is missing.
    fn parse_list_of(
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
            let begin = self.next_offset() as usize;
            if item(self).is_err() {
                failed = true;
                // After a comma an item must follow, so the comma is the error.
                if self.cursor.text.get(begin) == Some(&close) && self.cursor.pos == begin {
                    self.advise(NO_LAST_COMMA);
                }
                if self.is_hopeless() {
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
                    // The failed item may have consumed the closing sign.
                    if self.cursor.at_end() && self.diagnostics.len() > reported {
                        return Err(Failed);
                    }
                    self.report_missing_separator(start, close, begins);
                    failed = true;
                    // Text that cannot be in the list follows it.
                    let after = self.at_block() || (close == b')' && self.at_arrow());
                    if self.is_hopeless() || after || self.at_graph_start() {
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
    fn report_missing_separator(&mut self, start: usize, close: u8, begins: fn(&Self) -> bool) {
        let byte = self.cursor.next();
        let (span, found) = self.describe_token();
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

// The syntax tree.
impl Parser<'_, '_> {
    /// Opens a part of the tree.
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

    /// Closes a part of the tree.
    #[inline]
    fn close(&mut self, part: Option<usize>) {
        if let (Some(recorder), Some(part)) = (&mut self.tree, part) {
            recorder.current = recorder.tree.close(part, self.cursor.token_end());
        }
    }

    /// Parses a part of the tree with `production`.
    #[inline]
    fn parse_part<T>(
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
