//! Where lines are broken: one layout for what is printed and for what people write.
//!
//! It works on tokens and brackets and does not need to know what they mean, as there are few
//! places where a bracket is told from another one, and what stands beside it does that. A
//! statement is one line if it fits. If not, its brackets are opened from the left until the rest
//! fits: all that is in them on a line of its own, or if that is too long, one item per line, and
//! numbers as many as there is room for. Some brackets are always open: nodes, headers, and types
//! and constants of a graph.

use crate::cursor::{Cursor, continues_word, starts_word};
use crate::words::{element_type, is_float_word};

/// Bytes of a line.
pub(crate) const WIDTH: usize = 100;

/// Bytes of brackets with nothing in them. These are never opened.
const EMPTY: usize = 2;

/// Blanks per level.
pub(crate) const INDENT: usize = 2;

/// Lays out a statement that is one long line, with that many blanks before it already, and that
/// many bytes to come after it.
pub(crate) fn statement(flat: &[u8], indent: usize, tail: usize, out: &mut Vec<u8>) {
    lay_out(Reader::new(flat), indent, indent, tail, out);
}

/// Lays out what continues a line at a column.
pub(crate) fn continued(flat: &[u8], indent: usize, column: usize, tail: usize, out: &mut Vec<u8>) {
    let mut reader = Reader::new(flat);
    reader.behind_something = true;
    lay_out(reader, indent, column, tail, out);
}

fn lay_out(mut reader: Reader<'_>, indent: usize, column: usize, tail: usize, out: &mut Vec<u8>) {
    let flat = reader.cursor.text;
    let items = reader.items(Ends::Statement);
    let mut writer = Writer { text: flat, line_start: out.len() - column.min(out.len()), out };
    // What goes on after something else has a blank before it.
    if flat.first() == Some(&b' ') {
        writer.out.push(b' ');
    }
    for item in &items {
        writer.item(item, indent, tail);
    }
}

/// Lays out a whole text, which has to be one that can be read.
pub(crate) fn text(text: &[u8]) -> Vec<u8> {
    let mut reader = Reader::new(text);
    let items = reader.items(Ends::Text);
    let mut out = Vec::with_capacity(text.len() + text.len() / 8);
    let mut writer = Writer { text, line_start: 0, out: &mut out };
    let mut before: Option<&Item> = None;
    for item in &items {
        if before.is_some_and(|before| !before.is_header()) {
            writer.new_line(0);
        }
        writer.lead(item, 0);
        writer.item(item, 0, 0);
        writer.trail(item);
        writer.new_line(0);
        before = Some(item);
    }
    for comment in &reader.left_comments {
        writer.comment(comment);
        writer.new_line(0);
    }
    out
}

/// A word, number, text or sign.
#[derive(Clone, Copy)]
struct Token {
    kind: Kind,
    start: usize,
    end: usize,
}

impl Token {
    fn text<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        match self.kind {
            Kind::Gap => b"\"\"",
            _ => &text[self.start..self.end],
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Word,
    /// A number, or a text in quotes.
    Literal,
    Comma,
    Colon,
    Equals,
    Arrow,
    Dot,
    At,
    /// `?`, alone or with the number of an element type.
    Absent,
    /// Nothing, where something is left out: an empty quote says so more clearly.
    Gap,
    Open(u8),
    Close(u8),
    /// Nothing that a text has that can be read.
    Other,
}

struct Comment {
    start: usize,
    end: usize,
    /// Whether nothing stands before it in its line.
    own_line: bool,
    /// Whether the line before it is empty.
    blank_before: bool,
}

/// A token, or brackets with what is in them.
enum Piece {
    Token(Token),
    Group(Group),
}

struct Group {
    open: u8,
    content: Content,
    /// Comments before the closing bracket.
    last_comments: Vec<Comment>,
    /// Bytes of it on one line; `None` if it has lines of its own.
    flat: Option<usize>,
}

enum Content {
    /// Items with commas between them.
    List(Vec<Item>),
    /// Statements.
    Block(Vec<Item>),
    /// Numbers only, which stand here.
    Numbers { start: usize, end: usize },
}

/// A statement, or what stands between two commas.
struct Item {
    pieces: Vec<Piece>,
    /// Comments before it.
    lead: Vec<Comment>,
    /// The comment after it.
    trail: Option<Comment>,
    /// Whether an empty line stands before it.
    blank_before: bool,
    /// Bytes of it on one line, as for a group.
    flat: Option<usize>,
}

impl Item {
    /// Whether it is a header, which belongs to what follows.
    fn is_header(&self) -> bool {
        matches!(&self.pieces[..], [Piece::Group(Group { open: b'<', .. })])
    }
}

/// What ends a list of items.
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

// From text to pieces.

struct Reader<'a> {
    cursor: Cursor<'a>,
    /// Comments that were passed on the way to the next token.
    comments: Vec<Comment>,
    /// Whether an empty line was passed on the way.
    blank_line: bool,
    left_comments: Vec<Comment>,
    /// Whether the text goes on after something else.
    behind_something: bool,
    /// Whether an operator stands next, which may be called like a number.
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

    /// Goes to the next token; gathers comments.
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

    fn token(&mut self) -> Option<Token> {
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
                self.quoted()
            }
            b'"' => self.quoted(),
            _ if starts_word(byte) => {
                let word = self.cursor.word().unwrap_or_default();
                let bits = word.eq_ignore_ascii_case(b"nan") && self.cursor.byte() == b'(';
                if bits && !self.callee_is_next {
                    self.number_rest();
                    Kind::Literal
                } else {
                    Kind::Word
                }
            }
            b'0'..=b'9' | b'-' => {
                self.cursor.pos += 1;
                self.number_rest();
                Kind::Literal
            }
            b'?' => {
                self.cursor.pos += 1;
                if matches!(next, b'0'..=b'9' | b'-' | b'_') {
                    self.cursor.pos += 1;
                    while continues_word(self.cursor.byte()) {
                        self.cursor.pos += 1;
                    }
                }
                Kind::Absent
            }
            b'=' if next == b'>' => {
                self.cursor.pos += 2;
                Kind::Arrow
            }
            _ => {
                self.cursor.pos += 1;
                match byte {
                    b',' => Kind::Comma,
                    b':' => Kind::Colon,
                    b'=' => Kind::Equals,
                    b'.' => Kind::Dot,
                    b'@' => Kind::At,
                    b'(' | b'[' | b'{' | b'<' => Kind::Open(byte),
                    b')' | b']' | b'}' | b'>' => Kind::Close(byte),
                    _ => Kind::Other,
                }
            }
        };
        Some(Token { kind, start, end: self.cursor.pos })
    }

    fn quoted(&mut self) -> Kind {
        if self.cursor.quoted().is_none() {
            self.cursor.pos = self.cursor.text.len();
        }
        Kind::Literal
    }

    /// Goes over the rest of a number.
    fn number_rest(&mut self) {
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
        // The bits of a NaN.
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

    /// Items up to what ends them, which is gone over.
    fn items(&mut self, ends: Ends) -> Vec<Item> {
        let mut items: Vec<Item> = Vec::new();
        let mut item = Item::empty();
        loop {
            self.callee_is_next = ends != Ends::List
                && item.pieces.last().is_some_and(|last| {
                    let before = [Kind::Equals, Kind::Dot, Kind::Colon];
                    before.iter().any(|kind| is(last, *kind))
                });
            let token = self.token();
            let mut comments = std::mem::take(&mut self.comments);
            let blank_line = std::mem::take(&mut self.blank_line);
            // A comment in the line of an item that is complete belongs to it.
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
                Kind::Close(_) => {
                    self.comments = comments;
                    if let Some(comment) = self.trailing_comment(&mut item) {
                        item.trail = Some(comment);
                    }
                    break;
                }
                Kind::Comma if ends == Ends::List => {
                    item.lead.extend(comments);
                    if item.pieces.is_empty() {
                        item.pieces.push(gap(token));
                    }
                    self.end_item(&mut items, &mut item);
                    continue;
                }
                // Between the outputs of a node.
                Kind::Comma if item.pieces.last().is_none_or(|last| is(last, Kind::Comma)) => {
                    item.pieces.push(gap(token));
                }
                Kind::Equals if item.pieces.last().is_some_and(|last| is(last, Kind::Comma)) => {
                    item.pieces.pop();
                }
                _ => {}
            }
            if item.pieces.is_empty() {
                item.blank_before = blank_line;
            }
            item.lead.extend(comments);
            if let Kind::Open(open) = token.kind {
                let group = self.group(open, token, &item);
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

    /// The comment in the line of an item, before the bracket that closes its list.
    fn trailing_comment(&mut self, item: &mut Item) -> Option<Comment> {
        let first = self.comments.first()?;
        (!first.own_line && !item.pieces.is_empty()).then(|| self.comments.remove(0))
    }

    fn end_item(&mut self, items: &mut Vec<Item>, item: &mut Item) {
        let mut done = std::mem::replace(item, Item::empty());
        done.measure(self.cursor.text);
        items.push(done);
    }

    /// Whether a statement ends here. What separates list items is seen before.
    fn is_complete(&mut self, item: &Item, before: &[Item], ends: Ends) -> bool {
        let last_is = |bracket: u8| matches!(item.pieces.last(), Some(Piece::Group(group)) if group.open == bracket);
        match ends {
            Ends::List | Ends::Statement => false,
            Ends::Text => {
                let block = matches!(
                    item.pieces.last(),
                    Some(Piece::Group(Group { content: Content::Block(_), .. }))
                );
                let absent = matches!(&item.pieces[..], [Piece::Token(token)] if token.kind == Kind::Absent)
                    && before.iter().all(Item::is_header)
                    && !matches!(self.peek(), b'(' | b'=');
                block || item.is_header() || absent
            }
            Ends::Block => {
                // A node ends after its inputs, unless attributes or notes follow.
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

    fn group(&mut self, open: u8, token: Token, item: &Item) -> Group {
        if let Some(end) = self.numbers(open) {
            let content = Content::Numbers { start: token.end, end };
            self.cursor.pos = end + 1;
            return Group { open, content, last_comments: Vec::new(), flat: None }
                .measured(self.cursor.text, false);
        }
        // The braces of a graph stand after parentheses or brackets, those of a tensor after a
        // name or sign.
        let block = open == b'{'
            && matches!(item.pieces.last(), Some(Piece::Group(group)) if matches!(group.open, b'(' | b'<'));
        let items = self.items(if block { Ends::Block } else { Ends::List });
        let last_comments = std::mem::take(&mut self.comments);
        let begins = !self.behind_something;
        let always_open =
            !items.is_empty() && (block || (begins && is_always_open(open, &item.pieces)));
        let content = if block { Content::Block(items) } else { Content::List(items) };
        Group { open, content, last_comments, flat: None }.measured(self.cursor.text, always_open)
    }

    /// Where the bracket is that closes a list of nothing but numbers.
    fn numbers(&self, open: u8) -> Option<usize> {
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
            probe.token()?;
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

fn gap(token: Token) -> Piece {
    Piece::Token(Token { kind: Kind::Gap, ..token })
}

/// Whether a bracket after some pieces has lines of its own, however short: headers, notes of a
/// model, types and constants of a graph or function.
fn is_always_open(open: u8, before: &[Piece]) -> bool {
    open == b'<'
        && match before {
            [] => true,
            [Piece::Token(token)] => token.kind == Kind::At,
            [.., arrow, Piece::Group(group)] => group.open == b'(' && is(arrow, Kind::Arrow),
            _ => false,
        }
}

fn is(piece: &Piece, kind: Kind) -> bool {
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
            .then(|| width(&self.pieces, text, self.is_statement()))
            .flatten();
    }
}

/// Bytes of pieces on one line.
fn width(pieces: &[Piece], text: &[u8], statement: bool) -> Option<usize> {
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
    fn measured(mut self, text: &[u8], always_open: bool) -> Self {
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

    fn close(&self) -> u8 {
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

/// Whether a blank stands before a piece.
fn has_blank_before(pieces: &[Piece], index: usize, text: &[u8], statement: bool) -> bool {
    let Some(before) = index.checked_sub(1).map(|before| &pieces[before]) else {
        return false;
    };
    let kind = |piece: &Piece| match piece {
        Piece::Token(token) => token.kind,
        Piece::Group(_) => Kind::Other,
    };
    match kind(before) {
        Kind::Dot | Kind::At => return false,
        // Of a node it is the one before an overload.
        Kind::Colon => return !statement,
        Kind::Equals | Kind::Arrow => return true,
        _ => {}
    }
    let group = match &pieces[index] {
        Piece::Token(token) => {
            return !matches!(token.kind, Kind::Colon | Kind::Dot | Kind::Comma);
        }
        Piece::Group(group) => group,
    };
    let is_head =
        |parenthesis: usize| pieces.get(parenthesis + 1).is_some_and(|next| is(next, Kind::Arrow));
    match group.open {
        b'(' => is_head(index),
        b'[' => match before {
            Piece::Token(token) => {
                let word = &text[token.start..token.end];
                let type_word = token.kind == Kind::Word && element_type(word).is_some();
                !(type_word || token.kind == Kind::Absent)
            }
            Piece::Group(_) => true,
        },
        b'<' => match before {
            // The parameters of a function, or the attributes of a node.
            Piece::Token(_) => is_group(pieces.get(index + 1), b'(') && is_head(index + 1),
            Piece::Group(_) => is_always_open(b'<', &pieces[..index]),
        },
        _ => true,
    }
}

// From pieces to text.

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

    fn comment(&mut self, comment: &Comment) {
        self.out.extend_from_slice(&self.text[comment.start..comment.end]);
    }

    /// The comments before an item, each on a line of its own.
    fn lead(&mut self, item: &Item, indent: usize) {
        for (index, comment) in item.lead.iter().enumerate() {
            if index > 0 && comment.blank_before {
                self.blank_line(indent);
            }
            self.comment(comment);
            self.new_line(indent);
        }
    }

    /// Leaves a line empty, before a line that has nothing but its indentation yet.
    fn blank_line(&mut self, indent: usize) {
        self.out.truncate(self.line_start);
        self.new_line(indent);
    }

    /// The comment after an item.
    fn trail(&mut self, item: &Item) {
        if let Some(comment) = &item.trail {
            self.out.extend_from_slice(b"  ");
            self.comment(comment);
        }
    }

    /// An item with that many bytes to come after it in its last line.
    fn item(&mut self, item: &Item, indent: usize, tail: usize) {
        // Statements are those that have a colon without a blank; within lists there are none.
        let statement = item.is_statement();
        for (index, piece) in item.pieces.iter().enumerate() {
            if has_blank_before(&item.pieces, index, self.text, statement) {
                self.out.push(b' ');
            }
            match piece {
                Piece::Token(token) => self.out.extend_from_slice(token.text(self.text)),
                Piece::Group(group) => {
                    let rest = self.up_to_next_group(&item.pieces, index + 1, statement, tail);
                    let fits = |flat| self.column() + flat + rest <= WIDTH;
                    // To open the name of a node would help nobody.
                    let label = index == 0 && group.open == b'[' && group.flat.is_some();
                    let empty = group.flat == Some(EMPTY);
                    if label || empty || group.flat.is_some_and(fits) {
                        self.flat_group(group);
                    } else {
                        self.open_group(group, indent);
                    }
                }
            }
        }
    }

    /// Bytes after a group that stay in its last line whatever happens to the next one.
    fn up_to_next_group(
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

    fn flat_group(&mut self, group: &Group) {
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
            Content::List(items) | Content::Block(items) => self.flat_items(items),
        }
        self.out.push(group.close());
    }

    fn flat_items(&mut self, items: &[Item]) {
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.out.extend_from_slice(b", ");
            }
            self.flat_item(item);
        }
    }

    fn flat_item(&mut self, item: &Item) {
        let statement = item.is_statement();
        for (index, piece) in item.pieces.iter().enumerate() {
            if has_blank_before(&item.pieces, index, self.text, statement) {
                self.out.push(b' ');
            }
            match piece {
                Piece::Token(token) => self.out.extend_from_slice(token.text(self.text)),
                Piece::Group(group) => self.flat_group(group),
            }
        }
    }

    fn open_group(&mut self, group: &Group, indent: usize) {
        let inner = indent + INDENT;
        self.out.push(group.open);
        match &group.content {
            Content::Numbers { start, end } => {
                self.new_line(inner);
                let mut first = true;
                for number in numbers_in(&self.text[*start..*end]) {
                    if !first {
                        self.out.push(b',');
                        // With the comma or bracket after it.
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
            // What fits into one line of its own stays together.
            Content::List(items) if group.flat.is_some_and(|flat| inner + flat - 2 <= WIDTH) => {
                self.new_line(inner);
                self.flat_items(items);
            }
            Content::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    let comma = usize::from(index + 1 < items.len());
                    self.new_line(inner);
                    self.lead(item, inner);
                    self.item(item, inner, comma);
                    self.out.extend_from_slice(&b","[..comma]);
                    self.trail(item);
                }
            }
            Content::Block(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.new_line(inner);
                    let blank =
                        item.lead.first().map_or(item.blank_before, |comment| comment.blank_before);
                    if index > 0 && blank {
                        self.blank_line(inner);
                    }
                    self.lead(item, inner);
                    self.item(item, inner, 0);
                    self.trail(item);
                }
            }
        }
        for comment in &group.last_comments {
            self.new_line(inner);
            self.comment(comment);
        }
        self.new_line(indent);
        self.out.push(group.close());
    }
}

impl Item {
    /// Whether it is a node, which is where a colon stands without blanks: it has an `=` with no
    /// colon before it.
    fn is_statement(&self) -> bool {
        let equals = self.pieces.iter().position(|piece| is(piece, Kind::Equals));
        let colon = self.pieces.iter().position(|piece| is(piece, Kind::Colon));
        match (equals, colon) {
            (Some(equals), Some(colon)) => equals < colon,
            _ => false,
        }
    }
}
