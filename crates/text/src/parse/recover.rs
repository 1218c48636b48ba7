//! Recovers from errors: finds the probable start of the next node, entry or item.
//!
//! The meaning of broken text is unknown, so this relies on common mistakes: forgotten brackets and
//! commas in texts with one item per line.

use smallvec::SmallVec;

use super::Parser;
use crate::cursor::starts_word;

/// Position at which a list can continue after an error.
pub(super) enum Next {
    /// A comma, or the sign that closes the list.
    Sign,
    /// The start of an item.
    Item,
    /// None.
    Lost,
}

impl Parser<'_, '_> {
    /// Moves from a broken item, which begins at `begin`, over nested brackets to the comma or
    /// closing sign of the enclosing list, or to the start of the next item if a bracket of the
    /// broken one was forgotten. Stops where a part begins that cannot be in the list.
    pub(super) fn skip_to_next_item(
        &mut self,
        begin: usize,
        close: u8,
        begins: fn(&Self) -> bool,
    ) -> Next {
        // A parser that has given up is at the end of the text.
        if self.cursor.at_end() {
            return Next::Lost;
        }
        let broken_at = self.cursor.pos.max(begin);
        self.cursor.pos = begin;
        // Closing signs of the open brackets, and the smallest number of them since the error.
        let mut open: SmallVec<[u8; 16]> = SmallVec::new();
        let mut before_error = usize::MAX;
        let mut behind_comma = false;
        loop {
            let before = self.cursor.pos;
            let byte = self.cursor.next();
            if self.cursor.at_end() {
                return Next::Lost;
            }
            let arrow = self.at_arrow();
            let broken = self.cursor.pos >= broken_at;
            if broken {
                before_error = before_error.min(open.len());
                // In a list of values, a value at the start of a line is not part of a nested list.
                let new_line = self.cursor.text[before..self.cursor.pos].contains(&b'\n');
                if new_line && close == b')' && !open.is_empty() && begins(self) {
                    return Next::Item;
                }
                if open.len() == before_error {
                    if (behind_comma || new_line) && !open.is_empty() && begins(self) {
                        return Next::Item;
                    }
                    if new_line && (self.at_node_start() || self.at_graph_start()) {
                        return Next::Lost;
                    }
                }
                let after = arrow && close == b')';
                if after {
                    return Next::Lost;
                }
                if byte == b',' && open.is_empty() {
                    return Next::Sign;
                }
            }
            behind_comma = byte == b',';
            if arrow {
                self.cursor.pos += 2;
                continue;
            }
            match byte {
                b'(' => open.push(b')'),
                b'[' => open.push(b']'),
                b'{' => open.push(b'}'),
                b'<' => open.push(b'>'),
                b')' | b']' | b'}' | b'>' => {
                    // Closing a bracket also closes the ones opened inside it.
                    match open.iter().rposition(|sign| *sign == byte) {
                        Some(index) => open.truncate(index),
                        None if !broken => {}
                        None if byte == close => return Next::Sign,
                        None => return Next::Lost,
                    }
                }
                _ => {}
            }
            self.skip_token(byte);
        }
    }

    /// Whether `=>` is next.
    pub(super) fn at_arrow(&self) -> bool {
        self.cursor.byte() == b'=' && self.cursor.byte_at(1) == b'>'
    }

    /// Whether the brace at this position opens nodes rather than values: it is the last token of
    /// its line.
    pub(super) fn at_block(&self) -> bool {
        let mut probe = self.cursor.clone();
        if !probe.eat(b'{') {
            return false;
        }
        let opened = probe.pos;
        probe.next();
        probe.at_end() || probe.text[opened..probe.pos].contains(&b'\n')
    }

    /// Whether a line starts here that looks like a graph or function: a name and a parenthesis.
    pub(super) fn at_graph_start(&self) -> bool {
        let mut probe = self.cursor.clone();
        let at_line_start = probe.pos == 0 || probe.text.get(probe.pos - 1) == Some(&b'\n');
        at_line_start && probe.eat_word().is_some() && probe.next() == b'('
    }

    /// Whether the text at this position looks like a value with its type: `float[N] x`.
    pub(super) fn at_value_start(&self) -> bool {
        let mut probe = self.cursor.clone();
        let Some(word) = probe.eat_word() else {
            return false;
        };
        let constructor = crate::words::TYPE_CONSTRUCTORS
            .iter()
            .any(|constructor| constructor.as_bytes() == word);
        let close = match probe.next() {
            b'(' if constructor => b')',
            // The word may be a misspelt type.
            b'[' if !constructor => b']',
            _ if crate::words::element_type(word).is_some() => 0,
            _ => return false,
        };
        // Moves to the last closing sign before the next name in this line.
        if close != 0 {
            let mut depth = 0u32;
            loop {
                match probe.byte() {
                    b'(' | b'[' => depth += 1,
                    b')' | b']' => depth = depth.saturating_sub(1),
                    b'\n' | 0 => return false,
                    _ => {}
                }
                probe.pos += 1;
                if depth == 0 {
                    break;
                }
            }
        }
        starts_word(probe.next()) || probe.byte() == b'"'
    }

    /// Whether the text at this position looks like a key with its value.
    pub(super) fn at_key(&self) -> bool {
        let mut probe = self.cursor.clone();
        probe.eat_word().is_some() && probe.next() == b':'
    }

    /// Whether the text at this position looks like an attribute with its value.
    pub(super) fn at_attribute_start(&self) -> bool {
        let mut probe = self.cursor.clone();
        let named = match probe.byte() {
            b'"' => probe.eat_quoted().is_some(),
            _ => probe.eat_word().is_some(),
        };
        if named && probe.eat(b':') {
            probe.next();
            probe.eat_word();
        }
        named && probe.eat(b'=') && !matches!(probe.byte(), b'>' | b'=')
    }

    /// Moves to the probable start of the next node of a block, or to the end of the block. The
    /// broken node begins at `start`.
    ///
    /// A line begins a node if all brackets of the node before are closed, or if it looks so much
    /// like a node that a closing bracket was probably forgotten.
    pub(super) fn skip_to_next_node(&mut self, start: usize) {
        if self.cursor.at_end() {
            return;
        }
        let broken_at = self.cursor.pos.max(start + 1);
        self.cursor.pos = start;
        let (mut depth, mut braces) = (0i32, 0i32);
        let mut goes_on = false;
        loop {
            let before = self.cursor.pos;
            let byte = self.cursor.next();
            if self.cursor.at_end() {
                return;
            }
            let new_line = self.cursor.text[before..self.cursor.pos].contains(&b'\n');
            if self.cursor.pos >= broken_at {
                if new_line && ((depth == 0 && !goes_on) || self.at_node_start()) {
                    return;
                }
                if byte == b'}' && braces == 0 && self.ends_block() {
                    return;
                }
            }
            let arrow = byte == b'=' && self.cursor.byte_at(1) == b'>';
            match byte {
                b'(' | b'[' | b'<' => depth += 1,
                // An unmatched closing bracket is ignored.
                b')' | b']' | b'>' => depth = (depth - 1).max(0),
                b'{' => (depth, braces) = (depth + 1, braces + 1),
                b'}' if braces > 0 => (depth, braces) = ((depth - 1).max(0), braces - 1),
                _ => {}
            }
            goes_on = matches!(byte, b',' | b'=' | b':' | b'.' | b'@');
            if arrow {
                self.cursor.pos += 2;
            } else {
                self.skip_token(byte);
            }
        }
    }

    /// Whether the brace at this position closes nodes: the rest of the line can follow a graph.
    /// Any other brace is a misplaced sign.
    fn ends_block(&self) -> bool {
        let mut probe = self.cursor.clone();
        probe.pos += 1;
        let start = probe.pos;
        let byte = probe.next();
        let new_line = probe.text[start..probe.pos].contains(&b'\n');
        new_line || probe.at_end() || matches!(byte, b'}' | b'>' | b',' | b')' | b']' | b'@')
    }

    /// Whether the text at this position looks like a node (a label, or names, then `=` and a
    /// possible operator) or like the header of a function.
    pub(super) fn at_node_start(&self) -> bool {
        let mut probe = self.cursor.clone();
        if probe.next() == b'[' {
            probe.pos += 1;
            probe.next();
            if probe.byte() == b'"' {
                if probe.eat_quoted().is_none() {
                    return false;
                }
            } else {
                probe.eat_word();
            }
            if !probe.eat(b']') {
                return false;
            }
        }
        loop {
            match probe.next() {
                b'"' if probe.eat_quoted().is_some() => {}
                byte if starts_word(byte) => {
                    probe.eat_word();
                }
                _ => break,
            }
            if !probe.eat(b',') {
                break;
            }
        }
        if !probe.eat(b'=') || probe.byte() == b'>' {
            return false;
        }
        let byte = probe.next();
        if byte == b'"' {
            return probe.eat_quoted().is_some()
                && matches!(probe.next(), b'.' | b'(' | b'<' | b':');
        }
        // An operator is a word followed by a list. As the value of an attribute, the same text
        // would be a graph or a tensor.
        while starts_word(probe.next()) {
            probe.eat_word();
            if !probe.eat(b'.') {
                break;
            }
        }
        if !starts_word(byte) || !matches!(probe.next(), b'(' | b'<' | b':') {
            return false;
        }
        // An arrow after the parentheses means a graph, which is the value of an attribute.
        if probe.byte() == b'(' {
            let rest = probe.text[probe.pos..].iter();
            probe.pos += rest.take_while(|byte| !matches!(byte, b')' | b'{' | b'}')).count();
            return !(probe.eat(b')') && probe.next() == b'=' && probe.byte_at(1) == b'>');
        }
        true
    }

    /// Skips the token that begins with `byte`.
    pub(super) fn skip_token(&mut self, byte: u8) {
        if starts_word(byte) {
            self.cursor.eat_word();
        } else if byte != b'"' || self.cursor.eat_quoted().is_none() {
            self.cursor.pos = (self.cursor.pos + 1).min(self.cursor.text.len());
        }
    }
}
