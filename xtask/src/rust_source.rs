//! Just enough knowledge of Rust's surface to search code without being fooled by comments and
//! strings.

use std::ops::Range;

/// A source file and its code alone.
pub(crate) struct Source<'a> {
    text: &'a str,
    /// The text without comments and literals; see [`code_only`].
    pub(crate) code: String,
}

/// A comment, or consecutive lines of one.
pub(crate) struct Comment {
    /// Line of its beginning, counted from 1.
    pub(crate) line: usize,
    /// Text without its slashes. Examples in documentation are left out.
    pub(crate) text: String,
}

/// Documentation of one item, field, variant or module.
pub(crate) struct Doc {
    /// Line of its beginning, counted from 1.
    pub(crate) line: usize,
    pub(crate) text: String,
    pub(crate) is_function: bool,
}

/// A function that has a name.
pub(crate) struct Function<'a> {
    pub(crate) line: usize,
    pub(crate) name: &'a str,
    /// Code between the parentheses after the name.
    pub(crate) parameters: &'a str,
}

/// A closure that is bound to a name within a function.
pub(crate) struct Closure<'a> {
    pub(crate) line: usize,
    pub(crate) name: &'a str,
    /// Whether a single call is the only use of the name.
    pub(crate) is_called_once: bool,
}

impl<'a> Source<'a> {
    pub(crate) fn new(text: &'a str) -> Source<'a> {
        Source { text, code: code_only(text) }
    }

    /// Collects comments by line, one for each line that has one.
    pub(crate) fn comments(&self) -> Vec<Comment> {
        let bytes = self.text.as_bytes();
        let (mut comments, mut at, mut line) = (Vec::new(), 0, 1);
        let mut is_example = false;
        while at < bytes.len() {
            let end = end_of_skipped(bytes, at).unwrap_or(at + 1);
            if bytes[at] == b'/' && end > at + 1 {
                let lines = self.text[at..end].lines().enumerate();
                for (index, text) in lines {
                    let text = text.trim_start().trim_start_matches(['/', '!', '*']);
                    let is_fence = text.trim_start().starts_with("```");
                    is_example ^= is_fence;
                    if !is_example && !is_fence {
                        comments.push(Comment { line: line + index, text: text.to_string() });
                    }
                }
            }
            line += bytes[at..end].iter().filter(|&&byte| byte == b'\n').count();
            at = end;
        }
        comments
    }

    /// Collects documentation, also within macros.
    pub(crate) fn docs(&self) -> Vec<Doc> {
        let lines: Vec<&str> = self.text.lines().collect();
        let code: Vec<&str> = self.code.lines().collect();
        // A string can have a line that looks like documentation.
        let comments = self.comments();
        let is_comment = |index: usize| {
            comments.binary_search_by_key(&(index + 1), |comment| comment.line).is_ok()
        };
        let (mut docs, mut index) = (Vec::new(), 0);
        while index < lines.len() {
            let Some(mark) = doc_mark(lines[index]).filter(|_| is_comment(index)) else {
                index += 1;
                continue;
            };
            let (line, mut text) = (index + 1, String::new());
            while let Some(rest) =
                lines.get(index).and_then(|line| line.trim_start().strip_prefix(mark))
            {
                text += rest.trim();
                text.push('\n');
                index += 1;
            }
            let is_function = mark == "///" && opens_function(&code, index);
            docs.push(Doc { line, text, is_function });
        }
        docs
    }

    /// Collects functions with a name, those of traits and tests included.
    pub(crate) fn functions(&self) -> Vec<Function<'_>> {
        let code = self.code.as_str();
        let mut functions = Vec::new();
        for (at, _) in code.match_indices("fn ") {
            if code[..at].bytes().next_back().is_some_and(is_word) {
                continue;
            }
            let name = leading_word(&code[at + 3..]);
            let after = at + 3 + name.len();
            let open = match code.as_bytes().get(after) {
                Some(b'(') if !name.is_empty() => Some(after),
                Some(b'<') => {
                    matching_angle(code, after).filter(|&end| code[end..].starts_with('('))
                }
                _ => None,
            };
            let Some(open) = open else { continue };
            let close = matching_bracket(code.as_bytes(), open);
            let parameters = &code[open + 1..(close - 1).max(open + 1)];
            functions.push(Function { line: line_of(code, at), name, parameters });
        }
        functions
    }

    /// Collects closures that `let` binds to a name.
    pub(crate) fn closures(&self) -> Vec<Closure<'_>> {
        let code = self.code.as_str();
        let mut closures = Vec::new();
        for (at, _) in code.match_indices("let ") {
            if code[..at].bytes().next_back().is_some_and(is_word) {
                continue;
            }
            let rest = code[at + 4..].trim_start();
            let rest = rest.strip_prefix("mut ").unwrap_or(rest);
            let name = leading_word(rest);
            let Some(value) = rest[name.len()..].trim_start().strip_prefix("= ") else { continue };
            let value = value.trim_start();
            let value = value.strip_prefix("move ").unwrap_or(value);
            if name.is_empty() || !value.starts_with('|') {
                continue;
            }
            let from = code.len() - value.len();
            let scope = &code[from..end_of_block(code.as_bytes(), from)];
            let uses: Vec<usize> = word_places(scope, name).collect();
            let is_called = |place: &usize| scope[place + name.len()..].starts_with('(');
            let is_called_once = uses.len() == 1 && uses.iter().all(is_called);
            closures.push(Closure { line: line_of(code, at), name, is_called_once });
        }
        closures
    }
}

/// Returns the mark of the documentation comment in a line.
fn doc_mark(line: &str) -> Option<&'static str> {
    let line = line.trim_start();
    let is_doc = line.starts_with("///") && !line.starts_with("////");
    if is_doc { Some("///") } else { line.starts_with("//!").then_some("//!") }
}

/// Whether the item that begins at a line, after its attributes, is a function.
fn opens_function(code: &[&str], from: usize) -> bool {
    let mut depth = 0i32;
    for line in code.iter().skip(from).map(|line| line.trim()) {
        let is_attribute = depth > 0 || line.starts_with("#[");
        if line.is_empty() || is_attribute {
            let brackets =
                line.bytes().map(|byte| i32::from(byte == b'[') - i32::from(byte == b']'));
            depth += brackets.sum::<i32>();
            continue;
        }
        let before = line.split("fn ").next().filter(|before| before.len() < line.len());
        return before.is_some_and(|before| {
            let mut words = before.split_whitespace();
            words.all(|word| {
                matches!(word, "pub" | "const" | "unsafe" | "async" | "extern" | "default")
                    || word.starts_with("pub(")
                    || word.ends_with(')')
            })
        });
    }
    false
}

/// Returns the identifier that a text begins with, perhaps empty.
fn leading_word(text: &str) -> &str {
    &text[..text.bytes().position(|byte| !is_word(byte)).unwrap_or(text.len())]
}

fn line_of(code: &str, at: usize) -> usize {
    code[..at].bytes().filter(|&byte| byte == b'\n').count() + 1
}

/// Finds the end of generics that open at `open`.
fn matching_angle(code: &str, open: usize) -> Option<usize> {
    let bytes = code.as_bytes();
    let mut depth = 0;
    for (at, byte) in bytes.iter().enumerate().skip(open) {
        match byte {
            b'<' => depth += 1,
            b'>' if bytes[at - 1] != b'-' => depth -= 1,
            b'{' | b';' if depth == 1 => return None,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

/// Finds the end of the block around the place `from`.
fn end_of_block(code: &[u8], from: usize) -> usize {
    let mut depth = 0i32;
    for (at, byte) in code.iter().enumerate().skip(from) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth < 0 {
            return at;
        }
    }
    code.len()
}

/// Replaces comments, strings and character literals by spaces. Byte positions and
/// lines stay.
pub(crate) fn code_only(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match end_of_skipped(bytes, at) {
            Some(end) => end,
            None => {
                at += 1;
                continue;
            }
        };
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    String::from_utf8(code).expect("only whole literals and comments were replaced")
}

/// Returns the end of the comment or literal that starts at `at`.
fn end_of_skipped(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    let inside_word = at > 0 && is_word(bytes[at - 1]);
    match rest {
        [b'/', b'/', ..] => Some(at + rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len())),
        [b'/', b'*', ..] => Some(block_comment_end(bytes, at)),
        [b'"', ..] => Some(string_end(bytes, at + 1)),
        [b'r', b'"' | b'#', ..] if !inside_word => raw_string_end(bytes, at + 1),
        [b'b' | b'c', b'r', b'"' | b'#', ..] if !inside_word => raw_string_end(bytes, at + 2),
        [b'\'', ..] => char_end(bytes, at),
        _ => None,
    }
}

fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0);
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => (at, depth) = (at + 2, depth + 1),
            [b'*', b'/', ..] => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Finds the end of a raw string; `at` is after the `r`. A raw identifier such as `r#type` is not
/// one.
fn raw_string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at..].iter().take_while(|&&b| b == b'#').count();
    let open = at + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let close = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
    let body = &bytes[open + 1..];
    let length = body.windows(close.len()).position(|window| window == close);
    Some(length.map_or(bytes.len(), |length| open + 1 + length + close.len()))
}

/// Finds the end of a character such as `'a'` or `'\n'`; `'a` alone is a lifetime.
fn char_end(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at + 1) == Some(&b'\\') {
        let close = bytes.get(at + 3..)?.iter().position(|&b| b == b'\'')?;
        return Some(at + 3 + close + 1);
    }
    // One character of up to four bytes.
    (2..=5)
        .find(|&length| bytes.get(at + length) == Some(&b'\''))
        .filter(|&length| {
            std::str::from_utf8(&bytes[at + 1..at + length])
                .is_ok_and(|text| text.chars().count() == 1)
        })
        .map(|length| at + length + 1)
}

/// Finds the byte ranges of `#[cfg(test)]` items with a body, and the names of those that are a
/// file of their own (`#[cfg(test)] mod tests;`).
pub(crate) fn test_code(code: &str) -> (Vec<Range<usize>>, Vec<String>) {
    const MARK: &str = "#[cfg(test)]";
    let (mut bodies, mut files) = (Vec::new(), Vec::new());
    let mut from = 0;
    while let Some(found) = code[from..].find(MARK) {
        let start = from + found;
        let item = start + MARK.len();
        let Some(stop) = code[item..].find(['{', ';']).map(|stop| item + stop) else {
            break;
        };
        from = if code.as_bytes()[stop] == b'{' {
            let end = matching_bracket(code.as_bytes(), stop);
            bodies.push(start..end);
            end
        } else {
            let words: Vec<&str> = code[item..stop].split_whitespace().collect();
            if let [.., "mod", name] = words[..] {
                files.push(name.to_string());
            }
            stop
        };
    }
    (bodies, files)
}

/// Finds the bracket that closes the one at `open`, and returns the place after it.
fn matching_bracket(code: &[u8], open: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in code.iter().enumerate().skip(open) {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

/// Finds lines, counted from 1, where `word` stands on its own in the code.
pub(crate) fn lines_with_word<'a>(
    code: &'a str,
    word: &'a str,
) -> impl Iterator<Item = usize> + 'a {
    code.lines()
        .enumerate()
        .filter(move |(_, line)| has_word(line, word))
        .map(|(index, _)| index + 1)
}

/// Whether `word` occurs in `line` on its own.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    word_places(line, word).next().is_some()
}

/// Finds the places where `word` stands on its own.
fn word_places<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let places = text.match_indices(word).map(|(at, _)| at);
    places.filter(move |&at| {
        let before = text[..at].bytes().next_back();
        let after = text[at + word.len()..].bytes().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// Whether a byte can be part of an identifier.
pub(crate) fn is_word(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_become_spaces() {
        for (source, code) in [
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r#"f("unsafe \" {", 1)"#, r#"f(             , 1)"#),
            (r###"f(r#"a " b"#, 1)"###, "f(          , 1)"),
            (r###"f(br#"a"#)"###, "f(       )"),
            ("r#type + for_each", "r#type + for_each"),
            ("'{' '\\'' 'ä' fn f<'a>(x: &'a str)", "              fn f<'a>(x: &'a str)"),
        ] {
            let got = code_only(source);
            assert_eq!(got.trim_end(), code.trim_end(), "{source}");
            assert_eq!(got.len(), source.len());
        }
    }

    #[test]
    fn test_modules_are_found_whole() {
        let source = "fn a() {}\n#[cfg(test)]\nmod tests { fn b() { let s = \"}\"; } }\nfn c() \
             {}\n#[cfg(test)] mod more;";
        let (bodies, files) = test_code(&code_only(source));
        assert_eq!(bodies.len(), 1);
        assert!(source[bodies[0].clone()].ends_with("; } }"));
        assert_eq!(files, ["more"]);
    }

    #[test]
    fn words_stand_alone() {
        let found: Vec<_> =
            lines_with_word("unsafe_code\nunsafe {\nan unsafe\nnotunsafe", "unsafe").collect();
        assert_eq!(found, [2, 3]);
    }
}
