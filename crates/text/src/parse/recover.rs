//! Going on after an error: where the next node, entry or item probably begins.
//!
//! Nobody knows what a broken text means. What people break is known, though: they forget brackets
//! and commas, and they write one thing a line.

use smallvec::SmallVec;

use super::Parser;
use crate::cursor::starts_word;

/// Where a list can go on after an error.
pub(super) enum Next {
    /// At a comma, or at the sign that closes the list.
    Sign,
    /// At an item.
    Item,
    /// Nowhere.
    Lost,
}

impl Parser<'_, '_> {
    /// Goes from a broken item, which begins at `begin`, to the comma or closing sign of the list
    /// around, over whatever is nested; or to where the next item begins, if a bracket of the
    /// broken one was forgotten. Stops where something begins that is after the list.
    pub(super) fn skip_to_next_item(
        &mut self,
        begin: usize,
        close: u8,
        begins: fn(&Self) -> bool,
    ) -> Next {
        // Who has given up stands at the end.
        if self.cursor.at_end() {
            return Next::Lost;
        }
        let broken_at = self.cursor.pos.max(begin);
        self.cursor.pos = begin;
        // The signs that close what is open; and how many of these were open before the error.
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
                // In a list of values, a value that begins a line is none of something nested.
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
                    // What was opened within is closed along.
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

    /// Whether `=>` stands here.
    pub(super) fn at_arrow(&self) -> bool {
        self.cursor.byte() == b'=' && self.cursor.byte_at(1) == b'>'
    }

    /// Whether a brace stands here that opens nodes, not values: the last thing in its line.
    pub(super) fn at_block(&self) -> bool {
        let mut probe = self.cursor.clone();
        if !probe.eat(b'{') {
            return false;
        }
        let opened = probe.pos;
        probe.next();
        probe.at_end() || probe.text[opened..probe.pos].contains(&b'\n')
    }

    /// Whether what stands here, at the beginning of a line, looks like a graph or function: a name
    /// and a parenthesis.
    pub(super) fn at_graph_start(&self) -> bool {
        let mut probe = self.cursor.clone();
        let at_line_start = probe.pos == 0 || probe.text.get(probe.pos - 1) == Some(&b'\n');
        at_line_start && probe.word().is_some() && probe.next() == b'('
    }

    /// Whether what stands here looks like a value with its type: `float[N] x`.
    pub(super) fn at_value_start(&self) -> bool {
        let mut probe = self.cursor.clone();
        let Some(word) = probe.word() else {
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
        // Up to the last closing sign before the next name, in the same line.
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

    /// Whether what stands here looks like a key with its value.
    pub(super) fn at_key(&self) -> bool {
        let mut probe = self.cursor.clone();
        probe.word().is_some() && probe.next() == b':'
    }

    /// Whether what stands here looks like an attribute with its value.
    pub(super) fn at_attribute_start(&self) -> bool {
        let mut probe = self.cursor.clone();
        let named = match probe.byte() {
            b'"' => probe.quoted().is_some(),
            _ => probe.word().is_some(),
        };
        if named && probe.eat(b':') {
            probe.next();
            probe.word();
        }
        named && probe.eat(b'=') && !matches!(probe.byte(), b'>' | b'=')
    }

    /// Goes to where the next node of a block seems to begin, or to the end of the block. The
    /// broken one begins at `start`.
    ///
    /// A line begins a node if all brackets of the one before are closed, or if it looks so much
    /// like a node that one of them was forgotten.
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
                // What nobody opened closes nothing.
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

    /// Whether the brace that stands here closes nodes: nothing follows in its line but what may
    /// follow a graph. Any other one is a wrong sign in something broken.
    fn ends_block(&self) -> bool {
        let mut probe = self.cursor.clone();
        probe.pos += 1;
        let start = probe.pos;
        let byte = probe.next();
        let new_line = probe.text[start..probe.pos].contains(&b'\n');
        new_line || probe.at_end() || matches!(byte, b'}' | b'>' | b',' | b')' | b']' | b'@')
    }

    /// Whether what stands here looks like a node: a label, or names, then `=` and what could be an
    /// operator; or like the header of a function.
    pub(super) fn at_node_start(&self) -> bool {
        let mut probe = self.cursor.clone();
        if probe.next() == b'[' {
            probe.pos += 1;
            probe.next();
            if probe.byte() == b'"' {
                if probe.quoted().is_none() {
                    return false;
                }
            } else {
                probe.word();
            }
            if !probe.eat(b']') {
                return false;
            }
        }
        loop {
            match probe.next() {
                b'"' if probe.quoted().is_some() => {}
                byte if starts_word(byte) => {
                    probe.word();
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
            return probe.quoted().is_some() && matches!(probe.next(), b'.' | b'(' | b'<' | b':');
        }
        // An operator is a word with a list after it; as the value of an attribute that would be a
        // graph or a tensor.
        while starts_word(probe.next()) {
            probe.word();
            if !probe.eat(b'.') {
                break;
            }
        }
        if !starts_word(byte) || !matches!(probe.next(), b'(' | b'<' | b':') {
            return false;
        }
        // After the inputs of a graph, which is the value of an attribute, an arrow follows.
        if probe.byte() == b'(' {
            let inside = |byte: &u8| !matches!(byte, b')' | b'{' | b'}');
            let rest = &probe.text[probe.pos..];
            probe.pos += rest.iter().take_while(|byte| inside(byte)).count();
            return !(probe.eat(b')') && probe.next() == b'=' && probe.byte_at(1) == b'>');
        }
        true
    }

    /// Goes over the token that begins with `byte`.
    pub(super) fn skip_token(&mut self, byte: u8) {
        if starts_word(byte) {
            self.cursor.word();
        } else if byte != b'"' || self.cursor.quoted().is_none() {
            self.cursor.pos = (self.cursor.pos + 1).min(self.cursor.text.len());
        }
    }
}
