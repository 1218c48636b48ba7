//! Just enough knowledge of Rust's surface to search code without being fooled by comments and
//! strings.

use std::ops::Range;

/// The source with comments, strings and character literals replaced by spaces. Byte positions and
/// lines stay.
pub(crate) fn code_only(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match skipped(bytes, at) {
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

/// Where the comment or literal that starts at `at` ends; nothing if none starts there.
fn skipped(bytes: &[u8], at: usize) -> Option<usize> {
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

/// `at` is after the `r`; a raw identifier such as `r#type` is no string.
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

/// `'a'` and `'\n'` are characters, `'a` is a lifetime.
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

/// The byte ranges of `#[cfg(test)]` items that have a body, and the names of those that are a file
/// of their own (`#[cfg(test)] mod tests;`).
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
            let end = matching_brace(code.as_bytes(), stop);
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

fn matching_brace(code: &[u8], open: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in code.iter().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

/// Line numbers, counted from 1, where `word` stands on its own in the code.
pub(crate) fn lines_with_word<'a>(
    code: &'a str,
    word: &'a str,
) -> impl Iterator<Item = usize> + 'a {
    code.lines()
        .enumerate()
        .filter(move |(_, line)| has_word(line, word))
        .map(|(index, _)| index + 1)
}

fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].bytes().next_back();
        let after = line[at + word.len()..].bytes().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

fn is_word(byte: u8) -> bool {
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
        let source = "fn a() {}\n#[cfg(test)]\nmod tests { fn b() { let s = \"}\"; } }\nfn c() {}\n#[cfg(test)] mod more;";
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
