//! Line breaking, for printed and for formatted texts.
//!
//! The layout works on tokens and brackets; the neighbours of a bracket decide in the few cases
//! where its role matters. A statement that fits is one line. Otherwise its brackets are opened
//! from the left until the rest fits: their content on a line of its own, or if that is too long,
//! one item per line, and as many numbers per line as fit. Some brackets are always open: those of
//! nodes, of headers, and of types and constants of a graph.

use crate::cursor::{Cursor, continues_word, starts_word};
use crate::words::{element_type, is_float_word};

/// Maximum length of a line, in bytes.
pub(crate) const WIDTH: usize = 100;

/// Length of empty brackets, in bytes. These are never opened.
const EMPTY: usize = 2;

/// Number of blanks per level.
pub(crate) const INDENT: usize = 2;

/// Lays out a statement that is one long line, indented by `indent` blanks and followed by `tail`
/// bytes.
pub(crate) fn lay_out_statement(flat: &[u8], indent: usize, tail: usize, out: &mut Vec<u8>) {
    lay_out(Reader::new(flat), indent, indent, tail, out);
}

/// Lays out a text that continues a line at `column`.
pub(crate) fn lay_out_continuation(
    flat: &[u8],
    indent: usize,
    column: usize,
    tail: usize,
    out: &mut Vec<u8>,
) {
    let mut reader = Reader::new(flat);
    reader.behind_something = true;
    lay_out(reader, indent, column, tail, out);
}

fn lay_out(mut reader: Reader<'_>, indent: usize, column: usize, tail: usize, out: &mut Vec<u8>) {
    let flat = reader.cursor.text;
    let items = reader.read_items(Ends::Statement);
    let mut writer = Writer { text: flat, line_start: out.len() - column.min(out.len()), out };
    // A continuation is separated from the text before it by a blank.
    if flat.first() == Some(&b' ') {
        writer.out.push(b' ');
    }
    for item in &items {
        writer.write_item(item, indent, tail);
    }
}

/// Lays out a whole text, which must be valid.
pub(crate) fn lay_out_text(text: &[u8]) -> Vec<u8> {
    let mut reader = Reader::new(text);
    let items = reader.read_items(Ends::Text);
    let mut out = Vec::with_capacity(text.len() + text.len() / 8);
    let mut writer = Writer { text, line_start: 0, out: &mut out };
    let mut before: Option<&Item> = None;
    for item in &items {
        if before.is_some_and(|before| !before.is_header()) {
            writer.new_line(0);
        }
        writer.write_lead(item, 0);
        writer.write_item(item, 0, 0);
        writer.write_trail(item);
        writer.new_line(0);
        before = Some(item);
    }
    for comment in &reader.left_comments {
        writer.write_comment(comment);
        writer.new_line(0);
    }
    out
}

/// Word, number, quoted text or sign.
#[derive(Clone, Copy)]
struct Token {
    kind: TokenKind,
    start: usize,
    end: usize,
}

impl Token {
    fn text<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        match self.kind {
            TokenKind::Gap => b"\"\"",
            _ => &text[self.start..self.end],
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TokenKind {
    Word,
    /// Number or quoted text.
    Literal,
    Comma,
    Colon,
    Equals,
    Arrow,
    Dot,
    At,
    /// `?`, alone or with the number of an element type.
    Absent,
    /// Empty token of an omitted name, printed as an empty quote for clarity.
    Gap,
    Open(u8),
    Close(u8),
    /// Character that no valid text has.
    Other,
}

struct Comment {
    start: usize,
    end: usize,
    /// Whether the comment is the first token of its line.
    own_line: bool,
    /// Whether the preceding line is empty.
    blank_before: bool,
}

/// Token, or brackets with their content.
enum Piece {
    Token(Token),
    Group(Group),
}

struct Group {
    open: u8,
    content: Content,
    /// Comments before the closing bracket.
    last_comments: Vec<Comment>,
    /// Length in bytes on one line; `None` if the group needs several lines.
    flat: Option<usize>,
}

enum Content {
    /// Items separated by commas.
    List(Vec<Item>),
    /// Statements.
    Block(Vec<Item>),
    /// Numbers only, in this range of the text.
    Numbers { start: usize, end: usize },
}

/// Statement, or list item.
struct Item {
    pieces: Vec<Piece>,
    /// Comments before the item.
    lead: Vec<Comment>,
    /// Comment after the item, in its line.
    trail: Option<Comment>,
    /// Whether an empty line precedes the item.
    blank_before: bool,
    /// Length in bytes on one line; `None` if the item needs several lines.
    flat: Option<usize>,
}

impl Item {
    /// Whether the item is a header, which belongs to the following item.
    fn is_header(&self) -> bool {
        matches!(&self.pieces[..], [Piece::Group(Group { open: b'<', .. })])
    }
}

/// End of a list of items.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// The end of the text, which is a model.
    Text,
    /// The end of the text, which is one statement.
    Statement,
    /// A closing bracket; items are separated by commas.
    List,
    /// A closing brace; items are nodes.
    Block,
}

// Reading: from text to pieces.

struct Reader<'a> {
    cursor: Cursor<'a>,
    /// Comments that were skipped on the way to the next token.
    comments: Vec<Comment>,
    /// Whether an empty line was skipped on the way to the next token.
    blank_line: bool,
    left_comments: Vec<Comment>,
    /// Whether the text continues a line.
    behind_something: bool,
    /// Whether an operator is next, whose name may look like a number.
    callee_is_next: bool,
}

impl<'a> Reader<'a> {
    fn new(text: &'a [u8]) -> Self {
        let mut cursor = Cursor::new(text);
        cursor.skip_byte_order_mark();
        Reader {
            cursor,
            comments: Vec::new(),
            blank_line: false,
            left_comments: Vec::new(),
            behind_something: false,
            callee_is_next: false,
        }
    }

    /// Moves to the next token and collects comments.
    fn skip(&mut self) {
        let mut newlines = usize::from(self.cursor.pos == 0);
        loop {
            let byte = self.cursor.byte();
            if self.cursor.at_end() {
                return;
            }
            if byte == b'#' {
                let start = self.cursor.pos;
                self.cursor.skip_comment();
                let text = self.cursor.text[start..self.cursor.pos].trim_ascii_end();
                self.comments.push(Comment {
                    start,
                    end: start + text.len(),
                    own_line: newlines > 0,
                    blank_before: newlines > 1,
                });
                newlines = 0;
                self.blank_line = false;
            } else if crate::cursor::is_blank(byte) {
                newlines += usize::from(byte == b'\n');
                self.blank_line |= newlines > 1;
                self.cursor.pos += 1;
            } else {
                return;
            }
        }
    }

    fn read_token(&mut self) -> Option<Token> {
        self.skip();
        if self.cursor.at_end() {
            return None;
        }
        let start = self.cursor.pos;
        let byte = self.cursor.byte();
        let next = self.cursor.byte_at(1);
        let kind = match byte {
            b'x' if next == b'"' => {
                self.cursor.pos += 1;
                self.skip_quoted()
            }
            b'"' => self.skip_quoted(),
            _ if starts_word(byte) => {
                let word = self.cursor.eat_word().unwrap_or_default();
                let bits = word.eq_ignore_ascii_case(b"nan") && self.cursor.byte() == b'(';
                if bits && !self.callee_is_next {
                    self.skip_number_rest();
                    TokenKind::Literal
                } else {
                    TokenKind::Word
                }
            }
            b'0'..=b'9' | b'-' => {
                self.cursor.pos += 1;
                self.skip_number_rest();
                TokenKind::Literal
            }
            b'?' => {
                self.cursor.pos += 1;
                if matches!(next, b'0'..=b'9' | b'-' | b'_') {
                    self.cursor.pos += 1;
                    while continues_word(self.cursor.byte()) {
                        self.cursor.pos += 1;
                    }
                }
                TokenKind::Absent
            }
            b'=' if next == b'>' => {
                self.cursor.pos += 2;
                TokenKind::Arrow
            }
            _ => {
                self.cursor.pos += 1;
                match byte {
                    b',' => TokenKind::Comma,
                    b':' => TokenKind::Colon,
                    b'=' => TokenKind::Equals,
                    b'.' => TokenKind::Dot,
                    b'@' => TokenKind::At,
                    b'(' | b'[' | b'{' | b'<' => TokenKind::Open(byte),
                    b')' | b']' | b'}' | b'>' => TokenKind::Close(byte),
                    _ => TokenKind::Other,
                }
            }
        };
        Some(Token { kind, start, end: self.cursor.pos })
    }

    fn skip_quoted(&mut self) -> TokenKind {
        if self.cursor.eat_quoted().is_none() {
            self.cursor.pos = self.cursor.text.len();
        }
        TokenKind::Literal
    }

    /// Skips the rest of a number.
    fn skip_number_rest(&mut self) {
        loop {
            let byte = self.cursor.byte();
            let sign = matches!(byte, b'+' | b'-')
                && matches!(self.cursor.text[self.cursor.pos - 1], b'e' | b'E');
            if continues_word(byte) || byte == b'.' || sign {
                self.cursor.pos += 1;
            } else {
                break;
            }
        }
        // Payload of a NaN.
        if self.cursor.byte() == b'(' && self.cursor.text[self.cursor.pos - 1].is_ascii_alphabetic()
        {
            while !self.cursor.at_end() && self.cursor.byte() != b')' {
                self.cursor.pos += 1;
            }
            if !self.cursor.at_end() {
                self.cursor.pos += 1;
            }
        }
    }

    /// Reads items up to their end, which is skipped.
    fn read_items(&mut self, ends: Ends) -> Vec<Item> {
        let mut items: Vec<Item> = Vec::new();
        let mut item = Item::empty();
        loop {
            self.callee_is_next = ends != Ends::List
                && item.pieces.last().is_some_and(|last| {
                    let before = [TokenKind::Equals, TokenKind::Dot, TokenKind::Colon];
                    before.iter().any(|kind| is(last, *kind))
                });
            let token = self.read_token();
            let mut comments = std::mem::take(&mut self.comments);
            let blank_line = std::mem::take(&mut self.blank_line);
            // A comment in the line of a complete item belongs to the item.
            if item.pieces.is_empty()
                && let Some(last) = items.last_mut()
                && last.trail.is_none()
                && comments.first().is_some_and(|comment| !comment.own_line)
            {
                last.trail = Some(comments.remove(0));
            }
            let Some(token) = token else {
                self.left_comments.extend(comments);
                break;
            };
            match token.kind {
                TokenKind::Close(_) => {
                    self.comments = comments;
                    if let Some(comment) = self.take_trailing_comment(&mut item) {
                        item.trail = Some(comment);
                    }
                    break;
                }
                TokenKind::Comma if ends == Ends::List => {
                    item.lead.extend(comments);
                    if item.pieces.is_empty() {
                        item.pieces.push(make_gap(token));
                    }
                    self.end_item(&mut items, &mut item);
                    continue;
                }
                // Omitted output of a node.
                TokenKind::Comma
                    if item.pieces.last().is_none_or(|last| is(last, TokenKind::Comma)) =>
                {
                    item.pieces.push(make_gap(token));
                }
                TokenKind::Equals
                    if item.pieces.last().is_some_and(|last| is(last, TokenKind::Comma)) =>
                {
                    item.pieces.pop();
                }
                _ => {}
            }
            if item.pieces.is_empty() {
                item.blank_before = blank_line;
            }
            item.lead.extend(comments);
            if let TokenKind::Open(open) = token.kind {
                let group = self.read_group(open, token, &item);
                item.pieces.push(Piece::Group(group));
            } else {
                item.pieces.push(Piece::Token(token));
            }
            if self.is_complete(&item, &items, ends) {
                self.end_item(&mut items, &mut item);
            }
        }
        if !item.pieces.is_empty() {
            self.end_item(&mut items, &mut item);
        }
        items
    }

    /// Takes the comment in the line of an item, before the bracket that closes its list.
    fn take_trailing_comment(&mut self, item: &mut Item) -> Option<Comment> {
        let first = self.comments.first()?;
        (!first.own_line && !item.pieces.is_empty()).then(|| self.comments.remove(0))
    }

    fn end_item(&mut self, items: &mut Vec<Item>, item: &mut Item) {
        let mut done = std::mem::replace(item, Item::empty());
        done.measure(self.cursor.text);
        items.push(done);
    }

    /// Whether a statement ends here. Separators of list items are handled before.
    fn is_complete(&mut self, item: &Item, before: &[Item], ends: Ends) -> bool {
        let last_is = |bracket: u8| matches!(item.pieces.last(), Some(Piece::Group(group)) if group.open == bracket);
        match ends {
            Ends::List | Ends::Statement => false,
            Ends::Text => {
                let block = matches!(
                    item.pieces.last(),
                    Some(Piece::Group(Group { content: Content::Block(_), .. }))
                );
                let absent = matches!(&item.pieces[..], [Piece::Token(token)] if token.kind == TokenKind::Absent)
                    && before.iter().all(Item::is_header)
                    && !matches!(self.peek(), b'(' | b'=');
                block || item.is_header() || absent
            }
            Ends::Block => {
                // A node ends after its inputs, unless attributes or annotations follow.
                let has_inputs = item
                    .pieces
                    .iter()
                    .any(|piece| matches!(piece, Piece::Group(group) if group.open == b'('));
                has_inputs
                    && (last_is(b'(') || last_is(b'<'))
                    && !matches!(self.peek(), b'<' | b'@')
            }
        }
    }

    fn peek(&self) -> u8 {
        self.cursor.clone().next()
    }

    fn read_group(&mut self, open: u8, token: Token, item: &Item) -> Group {
        if let Some(end) = self.find_end_of_numbers(open) {
            let content = Content::Numbers { start: token.end, end };
            self.cursor.pos = end + 1;
            return Group { open, content, last_comments: Vec::new(), flat: None }
                .with_measure(self.cursor.text, false);
        }
        // The braces of a graph follow parentheses or brackets, those of a tensor a name or sign.
        let block = open == b'{'
            && matches!(item.pieces.last(), Some(Piece::Group(group)) if matches!(group.open, b'(' | b'<'));
        let items = self.read_items(if block { Ends::Block } else { Ends::List });
        let last_comments = std::mem::take(&mut self.comments);
        let begins = !self.behind_something;
        let always_open =
            !items.is_empty() && (block || (begins && is_always_open(open, &item.pieces)));
        let content = if block { Content::Block(items) } else { Content::List(items) };
        Group { open, content, last_comments, flat: None }
            .with_measure(self.cursor.text, always_open)
    }

    /// Returns the position of the bracket that closes a list of numbers only; `None` for other
    /// lists.
    fn find_end_of_numbers(&self, open: u8) -> Option<usize> {
        let close = match open {
            b'{' => b'}',
            b'[' => b']',
            _ => return None,
        };
        let mut probe = Reader {
            cursor: self.cursor.clone(),
            comments: Vec::new(),
            blank_line: false,
            left_comments: Vec::new(),
            behind_something: false,
            callee_is_next: false,
        };
        loop {
            let byte = probe.cursor.next();
            let word =
                starts_word(byte) && is_float_word(probe.cursor.peek_word().unwrap_or_default());
            if !(byte.is_ascii_digit() || byte == b'-' || word) {
                return None;
            }
            probe.read_token()?;
            match probe.cursor.next() {
                b',' => probe.cursor.pos += 1,
                byte if byte == close => break,
                _ => return None,
            }
        }
        let end = probe.cursor.pos;
        let text = &self.cursor.text[self.cursor.pos..end];
        (!text.contains(&b'#')).then_some(end)
    }
}

fn make_gap(token: Token) -> Piece {
    Piece::Token(Token { kind: TokenKind::Gap, ..token })
}

/// Whether a bracket after `before` always takes several lines: headers, annotations of a model,
/// types and constants of a graph or function.
fn is_always_open(open: u8, before: &[Piece]) -> bool {
    open == b'<'
        && match before {
            [] => true,
            [Piece::Token(token)] => token.kind == TokenKind::At,
            [.., arrow, Piece::Group(group)] => group.open == b'(' && is(arrow, TokenKind::Arrow),
            _ => false,
        }
}

fn is(piece: &Piece, kind: TokenKind) -> bool {
    matches!(piece, Piece::Token(token) if token.kind == kind)
}

fn is_group(piece: Option<&Piece>, bracket: u8) -> bool {
    matches!(piece, Some(Piece::Group(group)) if group.open == bracket)
}

impl Item {
    fn empty() -> Self {
        Item { pieces: Vec::new(), lead: Vec::new(), trail: None, blank_before: false, flat: None }
    }

    fn measure(&mut self, text: &[u8]) {
        self.flat = (self.lead.is_empty() && self.trail.is_none())
            .then(|| measure_pieces(&self.pieces, text, self.is_statement()))
            .flatten();
    }
}

/// Returns the length in bytes of pieces on one line; `None` if one of them needs several lines.
fn measure_pieces(pieces: &[Piece], text: &[u8], statement: bool) -> Option<usize> {
    let mut sum = 0;
    for (index, piece) in pieces.iter().enumerate() {
        sum += usize::from(has_blank_before(pieces, index, text, statement));
        sum += match piece {
            Piece::Token(token) => token.text(text).len(),
            Piece::Group(group) => group.flat?,
        };
    }
    Some(sum)
}

impl Group {
    fn with_measure(mut self, text: &[u8], always_open: bool) -> Self {
        if always_open || !self.last_comments.is_empty() {
            return self;
        }
        self.flat = match &self.content {
            Content::Numbers { start, end } => {
                let mut sum = 2;
                for (index, number) in numbers_in(&text[*start..*end]).enumerate() {
                    sum += number.len() + if index > 0 { 2 } else { 0 };
                }
                Some(sum)
            }
            Content::Block(items) => items.is_empty().then_some(2),
            Content::List(items) => {
                let separators = 2 * items.len().saturating_sub(1);
                let widths: Option<usize> = items.iter().map(|item| item.flat).sum();
                widths.map(|sum| sum + separators + 2)
            }
        };
        self
    }

    fn closing_bracket(&self) -> u8 {
        match self.open {
            b'(' => b')',
            b'[' => b']',
            b'{' => b'}',
            _ => b'>',
        }
    }
}

fn numbers_in(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// Whether a blank precedes the piece at `index`.
fn has_blank_before(pieces: &[Piece], index: usize, text: &[u8], statement: bool) -> bool {
    let Some(before) = index.checked_sub(1).map(|before| &pieces[before]) else {
        return false;
    };
    let kind = |piece: &Piece| match piece {
        Piece::Token(token) => token.kind,
        Piece::Group(_) => TokenKind::Other,
    };
    match kind(before) {
        TokenKind::Dot | TokenKind::At => return false,
        // In a statement, the colon precedes an overload.
        TokenKind::Colon => return !statement,
        TokenKind::Equals | TokenKind::Arrow => return true,
        _ => {}
    }
    let group = match &pieces[index] {
        Piece::Token(token) => {
            return !matches!(token.kind, TokenKind::Colon | TokenKind::Dot | TokenKind::Comma);
        }
        Piece::Group(group) => group,
    };
    let is_head = |parenthesis: usize| {
        pieces.get(parenthesis + 1).is_some_and(|next| is(next, TokenKind::Arrow))
    };
    match group.open {
        b'(' => is_head(index),
        b'[' => match before {
            Piece::Token(token) => {
                let word = &text[token.start..token.end];
                let type_word = token.kind == TokenKind::Word && element_type(word).is_some();
                !(type_word || token.kind == TokenKind::Absent)
            }
            Piece::Group(_) => true,
        },
        b'<' => match before {
            // Parameters of a function, or attributes of a node.
            Piece::Token(_) => is_group(pieces.get(index + 1), b'(') && is_head(index + 1),
            Piece::Group(_) => is_always_open(b'<', &pieces[..index]),
        },
        _ => true,
    }
}

// Writing: from pieces to text.

struct Writer<'a, 'o> {
    text: &'a [u8],
    out: &'o mut Vec<u8>,
    line_start: usize,
}

impl Writer<'_, '_> {
    fn column(&self) -> usize {
        self.out.len() - self.line_start
    }

    fn new_line(&mut self, indent: usize) {
        self.out.push(b'\n');
        self.line_start = self.out.len();
        self.out.resize(self.line_start + indent, b' ');
    }

    fn write_comment(&mut self, comment: &Comment) {
        self.out.extend_from_slice(&self.text[comment.start..comment.end]);
    }

    /// Writes the comments before an item, each on a line of its own.
    fn write_lead(&mut self, item: &Item, indent: usize) {
        for (index, comment) in item.lead.iter().enumerate() {
            if index > 0 && comment.blank_before {
                self.write_blank_line(indent);
            }
            self.write_comment(comment);
            self.new_line(indent);
        }
    }

    /// Inserts an empty line before a line that has nothing but its indentation yet.
    fn write_blank_line(&mut self, indent: usize) {
        self.out.truncate(self.line_start);
        self.new_line(indent);
    }

    /// Writes the comment after an item.
    fn write_trail(&mut self, item: &Item) {
        if let Some(comment) = &item.trail {
            self.out.extend_from_slice(b"  ");
            self.write_comment(comment);
        }
    }

    /// Writes an item whose last line is followed by `tail` bytes.
    fn write_item(&mut self, item: &Item, indent: usize, tail: usize) {
        // Only in statements a colon has no blank after it; lists contain no statements.
        let statement = item.is_statement();
        for (index, piece) in item.pieces.iter().enumerate() {
            if has_blank_before(&item.pieces, index, self.text, statement) {
                self.out.push(b' ');
            }
            match piece {
                Piece::Token(token) => self.out.extend_from_slice(token.text(self.text)),
                Piece::Group(group) => {
                    let rest = self.measure_to_next_group(&item.pieces, index + 1, statement, tail);
                    let fits = |flat| self.column() + flat + rest <= WIDTH;
                    // A node's name stays on one line: breaking it would not make the rest fit
                    // better.
                    let label = index == 0 && group.open == b'[' && group.flat.is_some();
                    let empty = group.flat == Some(EMPTY);
                    if label || empty || group.flat.is_some_and(fits) {
                        self.write_flat_group(group);
                    } else {
                        self.write_open_group(group, indent);
                    }
                }
            }
        }
    }

    /// Returns the length in bytes of the text after a group that stays in its last line, however
    /// the next group is laid out.
    fn measure_to_next_group(
        &self,
        pieces: &[Piece],
        from: usize,
        statement: bool,
        tail: usize,
    ) -> usize {
        let mut sum = 0;
        for index in from..pieces.len() {
            sum += usize::from(has_blank_before(pieces, index, self.text, statement));
            match &pieces[index] {
                Piece::Token(token) => sum += token.text(self.text).len(),
                Piece::Group(group) => {
                    let empty = group.flat == Some(EMPTY);
                    return sum + if empty { EMPTY } else { 1 };
                }
            }
        }
        sum + tail
    }

    fn write_flat_group(&mut self, group: &Group) {
        self.out.push(group.open);
        match &group.content {
            Content::Numbers { start, end } => {
                for (index, number) in numbers_in(&self.text[*start..*end]).enumerate() {
                    if index > 0 {
                        self.out.extend_from_slice(b", ");
                    }
                    self.out.extend_from_slice(number);
                }
            }
            Content::List(items) | Content::Block(items) => self.write_flat_items(items),
        }
        self.out.push(group.closing_bracket());
    }

    fn write_flat_items(&mut self, items: &[Item]) {
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.out.extend_from_slice(b", ");
            }
            self.write_flat_item(item);
        }
    }

    fn write_flat_item(&mut self, item: &Item) {
        let statement = item.is_statement();
        for (index, piece) in item.pieces.iter().enumerate() {
            if has_blank_before(&item.pieces, index, self.text, statement) {
                self.out.push(b' ');
            }
            match piece {
                Piece::Token(token) => self.out.extend_from_slice(token.text(self.text)),
                Piece::Group(group) => self.write_flat_group(group),
            }
        }
    }

    fn write_open_group(&mut self, group: &Group, indent: usize) {
        let inner = indent + INDENT;
        self.out.push(group.open);
        match &group.content {
            Content::Numbers { start, end } => {
                self.new_line(inner);
                let mut first = true;
                for number in numbers_in(&self.text[*start..*end]) {
                    if !first {
                        self.out.push(b',');
                        // Includes the comma or bracket after the number.
                        if self.column() + 1 + number.len() + 1 > WIDTH {
                            self.new_line(inner);
                        } else {
                            self.out.push(b' ');
                        }
                    }
                    first = false;
                    self.out.extend_from_slice(number);
                }
            }
            // Content that fits into one line of its own is not split.
            Content::List(items) if group.flat.is_some_and(|flat| inner + flat - 2 <= WIDTH) => {
                self.new_line(inner);
                self.write_flat_items(items);
            }
            Content::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    let comma = usize::from(index + 1 < items.len());
                    self.new_line(inner);
                    self.write_lead(item, inner);
                    self.write_item(item, inner, comma);
                    self.out.extend_from_slice(&b","[..comma]);
                    self.write_trail(item);
                }
            }
            Content::Block(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.new_line(inner);
                    let blank =
                        item.lead.first().map_or(item.blank_before, |comment| comment.blank_before);
                    if index > 0 && blank {
                        self.write_blank_line(inner);
                    }
                    self.write_lead(item, inner);
                    self.write_item(item, inner, 0);
                    self.write_trail(item);
                }
            }
        }
        for comment in &group.last_comments {
            self.new_line(inner);
            self.write_comment(comment);
        }
        self.new_line(indent);
        self.out.push(group.closing_bracket());
    }
}

impl Item {
    /// Whether the item is a node, in which colons have no blanks: it has an `=` before the first
    /// colon.
    fn is_statement(&self) -> bool {
        let equals = self.pieces.iter().position(|piece| is(piece, TokenKind::Equals));
        let colon = self.pieces.iter().position(|piece| is(piece, TokenKind::Colon));
        match (equals, colon) {
            (Some(equals), Some(colon)) => equals < colon,
            _ => false,
        }
    }
}
