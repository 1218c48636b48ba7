//! Translation of RE2 patterns to the syntax of the crate `regex`.
//!
//! The crate descends from RE2, but some patterns differ: in RE2, `\d`, `\s`, `\w` and `\b` are
//! ASCII only, and within a class, brackets and `&&` are characters. Patterns that both refuse are
//! passed on, for the crate to refuse.

use regex::escape;

/// Maximum count of a repetition in RE2.
const MOST_REPETITIONS: u32 = 1000;

const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

/// Pattern for the crate `regex`.
#[derive(Debug)]
pub(super) struct Translation {
    pub(super) pattern: String,
    /// Starts of parts in this pattern and in the one for RE2, sorted.
    places: Vec<(usize, usize)>,
}

impl Translation {
    /// Converts an offset in this pattern to one in the pattern for RE2.
    pub(super) fn place(&self, at: usize) -> usize {
        let after = self.places.partition_point(|(here, _)| *here <= at);
        self.places[..after].last().map_or(0, |(_, there)| *there)
    }
}

/// Fault of a pattern.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// Offset in the pattern, in bytes.
    pub(super) at: usize,
    pub(super) why: String,
}

/// Translates a pattern.
pub(super) fn translate(pattern: &str) -> Result<Translation, Refusal> {
    let mut reader = Reader { pattern, at: 0, out: String::new() };
    let mut places = Vec::new();
    while let Some(char) = reader.peek() {
        places.push((reader.out.len(), reader.at));
        reader.part(char)?;
    }
    places.push((reader.out.len(), reader.at));
    Ok(Translation { pattern: reader.out, places })
}

struct Reader<'p> {
    pattern: &'p str,
    at: usize,
    out: String,
}

fn refuse<T>(at: usize, why: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { at, why: why.into() })
}

impl<'p> Reader<'p> {
    fn rest(&self) -> &'p str {
        &self.pattern[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let char = self.peek()?;
        self.at += char.len_utf8();
        Some(char)
    }

    /// Skips a text if it comes next, and returns whether it does.
    fn eat(&mut self, text: &str) -> bool {
        let comes = self.rest().starts_with(text);
        self.at += if comes { text.len() } else { 0 };
        comes
    }

    /// Copies `len` bytes to the output.
    fn copy(&mut self, len: usize) {
        self.out.push_str(&self.rest()[..len]);
        self.at += len;
    }

    fn push_literal(&mut self, text: &str) {
        self.out.push_str(&escape(text));
    }

    fn push_char(&mut self, char: char) {
        self.push_literal(char.encode_utf8(&mut [0; 4]));
    }

    fn part(&mut self, char: char) -> Result<(), Refusal> {
        match char {
            '\\' => return self.escape(),
            '[' => return self.class(),
            '{' => return self.repetition(),
            '(' => self.flags()?,
            ']' | '}' => {
                self.at += 1;
                self.push_char(char);
                return Ok(());
            }
            _ => {}
        }
        self.copy(char.len_utf8());
        Ok(())
    }

    /// Refuses flags of a group that RE2 does not have.
    fn flags(&self) -> Result<(), Refusal> {
        let Some(flags) = self.rest().strip_prefix("(?") else {
            return Ok(());
        };
        let end = flags.find(|char: char| !char.is_ascii_alphabetic() && char != '-');
        let end = end.unwrap_or(flags.len());
        if !flags[end..].starts_with([':', ')']) {
            return Ok(());
        }
        match flags[..end].find(|char| !"imsU-".contains(char)) {
            Some(at) => refuse(self.at + 2 + at, format!("RE2 has no flag '{}'", &flags[at..=at])),
            None => Ok(()),
        }
    }

    /// Translates a repetition with counts; any other brace is a character.
    fn repetition(&mut self) -> Result<(), Refusal> {
        let inner = self.rest()[1..].split_once('}').map(|(inner, _)| inner);
        let is_count =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let (least, most) = match inner.map(|inner| (inner, inner.split_once(','))) {
            Some((_, Some((least, most)))) => (least, most),
            Some((inner, None)) => (inner, ""),
            None => ("", ""),
        };
        if !is_count(least) || !(most.is_empty() || is_count(most)) {
            self.at += 1;
            self.out.push_str("\\{");
            return Ok(());
        }
        for count in [least, most].into_iter().filter(|count| !count.is_empty()) {
            if count.parse().map_or(true, |count: u32| count > MOST_REPETITIONS) {
                return refuse(
                    self.at,
                    format!("{count} repetitions, but RE2 supports at most {MOST_REPETITIONS}"),
                );
            }
        }
        self.copy(inner.map_or(0, str::len) + 2);
        Ok(())
    }

    /// Translates an escape sequence outside of classes.
    fn escape(&mut self) -> Result<(), Refusal> {
        if self.eat("\\Q") {
            let text = self.rest();
            let literal = text.split_once("\\E").map_or(text, |(literal, _)| literal);
            self.at += literal.len();
            self.eat("\\E");
            self.push_literal(literal);
            return Ok(());
        }
        if self.set()? {
            return Ok(());
        }
        let written = match self.rest().as_bytes().get(1) {
            Some(b'b') => "(?-u:\\b)",
            Some(b'B') => "(?-u:\\B)",
            Some(b'C') => "(?s-u:.)",
            Some(b'A') => "\\A",
            Some(b'z') => "\\z",
            _ => {
                let char = self.char()?;
                self.push_char(char);
                return Ok(());
            }
        };
        self.at += 2;
        self.out.push_str(written);
        Ok(())
    }

    /// Translates a named set of characters; `false` if there is none.
    fn set(&mut self) -> Result<bool, Refusal> {
        let written = match self.rest().as_bytes() {
            [b'\\', b'd', ..] => "[0-9]",
            [b'\\', b'D', ..] => "[^0-9]",
            [b'\\', b's', ..] => "[\\t\\n\\f\\r ]",
            [b'\\', b'S', ..] => "[^\\t\\n\\f\\r ]",
            [b'\\', b'w', ..] => "[0-9A-Za-z_]",
            [b'\\', b'W', ..] => "[^0-9A-Za-z_]",
            [b'\\', b'p' | b'P', ..] => return self.property(),
            _ => return Ok(false),
        };
        self.at += 2;
        self.out.push_str(written);
        Ok(true)
    }

    /// Translates a Unicode property.
    fn property(&mut self) -> Result<bool, Refusal> {
        let start = self.at;
        let mut negated = self.rest().starts_with("\\P");
        self.at += 2;
        let name = if self.eat("{") {
            let Some((name, _)) = self.rest().split_once('}') else {
                return refuse(start, "unterminated property name");
            };
            self.at += name.len() + 1;
            name
        } else {
            let name = self.rest();
            let len = self.next().map_or(0, char::len_utf8);
            &name[..len]
        };
        let name = match name.strip_prefix('^') {
            Some(name) => {
                negated = !negated;
                name
            }
            None => name,
        };
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_') {
            return refuse(start, format!("unknown property '{name}'"));
        }
        self.out.push_str(if negated { "\\P{" } else { "\\p{" });
        self.out.push_str(name);
        self.out.push('}');
        Ok(true)
    }

    /// Reads one character, plain or escaped.
    fn char(&mut self) -> Result<char, Refusal> {
        let start = self.at;
        match self.next() {
            Some('\\') => {}
            Some(char) => return Ok(char),
            None => return refuse(start, "the pattern ends within a class"),
        }
        let Some(char) = self.next() else {
            return refuse(start, "the pattern ends with a backslash");
        };
        let found = match char {
            'a' => '\x07',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            'x' => return self.hexadecimal(start),
            '0'..='7' => {
                let digits = self.rest().bytes();
                let more = digits.take(2).take_while(|digit| matches!(digit, b'0'..=b'7')).count();
                if char != '0' && more == 0 {
                    return refuse(start, "RE2 does not support backreferences");
                }
                self.at += more;
                let number = u32::from_str_radix(&self.pattern[start + 1..self.at], 8);
                number.ok().and_then(char::from_u32).unwrap_or_default()
            }
            '8' | '9' => return refuse(start, "RE2 does not support backreferences"),
            other if other.is_ascii() && !other.is_ascii_alphanumeric() => other,
            other => return refuse(start, format!("RE2 has no escape '\\{other}'")),
        };
        Ok(found)
    }

    /// Reads a character by its hexadecimal number, after the `x`.
    fn hexadecimal(&mut self, start: usize) -> Result<char, Refusal> {
        let digits = if self.eat("{") {
            let digits = self.rest().split_once('}').map(|(digits, _)| digits);
            self.at += digits.map_or(0, |digits| digits.len() + 1);
            digits
        } else {
            let digits = self.rest().get(..2);
            self.at += digits.map_or(0, str::len);
            digits
        };
        let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let number = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        match number.and_then(char::from_u32) {
            Some(char) => Ok(char),
            None => refuse(start, "invalid code point"),
        }
    }

    /// Translates a class in brackets.
    fn class(&mut self) -> Result<(), Refusal> {
        let start = self.at;
        self.copy(1);
        if self.rest().starts_with('^') {
            self.copy(1);
        }
        let mut is_first = true;
        loop {
            let Some(char) = self.peek() else {
                return refuse(start, "unterminated character class");
            };
            if char == ']' && !is_first {
                self.copy(1);
                return Ok(());
            }
            is_first = false;
            if self.posix()? || self.set()? {
                continue;
            }
            let at = self.at;
            let first = self.char()?;
            self.push_char(first);
            if self.rest().len() > 1
                && self.rest().starts_with('-')
                && !self.rest().starts_with("-]")
            {
                self.copy(1);
                let last = self.char()?;
                if last < first {
                    return refuse(at, "the end of a range is before its start");
                }
                self.push_char(last);
            }
        }
    }

    /// Translates an ASCII class such as `[:alpha:]`; `false` if there is none.
    fn posix(&mut self) -> Result<bool, Refusal> {
        let inner = self.rest().strip_prefix("[:").and_then(|rest| rest.split_once(":]"));
        let Some((name, _)) = inner else {
            return Ok(false);
        };
        if !POSIX.contains(&name.strip_prefix('^').unwrap_or(name)) {
            return refuse(self.at, format!("unknown character class '{name}'"));
        }
        self.copy(name.len() + 4);
        Ok(true)
    }
}
