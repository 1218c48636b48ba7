//! StringSplit: splits texts at delimiters.

use memchr::memmem::Finder;
use sardonyx_tensor::Dims;

use super::{set_strings, texts};
use crate::error::{BindError, KernelError};
use crate::kernel::{Call, Kernel, Site};

/// Binds `StringSplit`.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let delimiter = site.bytes("delimiter").filter(|delimiter| !delimiter.is_empty());
    let delimiter = match delimiter {
        Some(delimiter) => Delimiter::Text(Box::new(Finder::new(&delimiter).into_owned())),
        None => Delimiter::Blanks,
    };
    // A negative number means no limit in the reference implementation.
    let splits = site.int("maxsplit").and_then(|splits| usize::try_from(splits).ok());
    Ok(Box::new(StringSplit { delimiter, splits: splits.unwrap_or(usize::MAX) }))
}

enum Delimiter {
    /// Runs of blanks; those at both ends are removed.
    Blanks,
    Text(Box<Finder<'static>>),
}

struct StringSplit {
    delimiter: Delimiter,
    /// Maximum number of splits of a text.
    splits: usize,
}

impl Kernel for StringSplit {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let view = call.tensor(0)?.clone();
        let texts = texts(&view)?;
        let mut dims = Dims::from(view.dims());
        let mut counts = call.scratch::<i64>(texts.len())?;
        let (mut most, mut bytes) = (0, 0);
        for (text, count) in texts.clone().zip(counts.iter_mut()) {
            let mut parts = 0;
            self.visit_parts(text?, |part| {
                parts += 1;
                bytes += part.len();
            });
            *count = parts as i64;
            most = most.max(parts);
        }
        if call.has_output(1) {
            call.output_slice::<i64>(1, &dims)?.copy_from_slice(&counts);
        }
        if !call.has_output(0) {
            return Ok(());
        }
        dims.push(most);
        set_strings(call, 0, &dims, bytes, |strings| {
            for (text, count) in texts.zip(counts.iter()) {
                self.visit_parts(text?, |part| strings.push(part));
                (*count as usize..most).for_each(|_| strings.push(b""));
            }
            Ok(())
        })
    }

    fn describe(&self) -> String {
        match self.delimiter {
            Delimiter::Blanks => "split at whitespace".to_string(),
            Delimiter::Text(_) => "split at a delimiter".to_string(),
        }
    }
}

impl StringSplit {
    /// Calls `with` for each part of a text, from left to right.
    fn visit_parts<'t>(&self, text: &'t [u8], mut with: impl FnMut(&'t [u8])) {
        let mut left = self.splits;
        match &self.delimiter {
            Delimiter::Blanks => {
                let mut rest = &text[run(text, true)..];
                while !rest.is_empty() {
                    // The rest after the last split keeps its trailing blanks.
                    let end = if left == 0 { rest.len() } else { run(rest, false) };
                    let (part, after) = rest.split_at(end);
                    with(part);
                    rest = &after[run(after, true)..];
                    left = left.saturating_sub(1);
                }
            }
            Delimiter::Text(finder) => {
                let mut rest = text;
                while left > 0
                    && let Some(at) = finder.find(rest)
                {
                    with(&rest[..at]);
                    rest = &rest[at + finder.needle().len()..];
                    left -= 1;
                }
                with(rest);
            }
        }
    }
}

/// Returns the length of the leading run of blanks, or of other characters, in bytes.
fn run(text: &[u8], of_blanks: bool) -> usize {
    let mut at = 0;
    while at < text.len() {
        let (len, blank) = char_at(text, at);
        if blank != of_blanks {
            break;
        }
        at += len;
    }
    at
}

/// Returns the length of the character at an offset, and whether it is a blank. Bytes that are not
/// UTF-8 are not blanks.
pub(super) fn char_at(text: &[u8], at: usize) -> (usize, bool) {
    if text[at].is_ascii() {
        return (1, is_blank(text[at].into()));
    }
    let next = text[at..text.len().min(at + 4)].utf8_chunks().next();
    match next.and_then(|chunk| chunk.valid().chars().next()) {
        Some(char) => (char.len_utf8(), is_blank(char)),
        None => (1, false),
    }
}

/// Whether a character is a blank in the reference implementation: blanks of Unicode, and four
/// ASCII separators.
fn is_blank(char: char) -> bool {
    char.is_whitespace() || ('\x1c'..='\x1f').contains(&char)
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue;
    use sardonyx_tensor::Tensor;

    use crate::ops::testing::{run, strings, tensor};

    fn split(
        x: &Tensor,
        delimiter: Option<&'static [u8]>,
        splits: Option<i64>,
    ) -> Result<Vec<Tensor>, String> {
        let delimiter = delimiter.map(|delimiter| AttrValue::String(delimiter.into()));
        let mut given = Vec::from_iter(delimiter.map(|delimiter| ("delimiter", delimiter)));
        given.extend(splits.map(|splits| ("maxsplit", AttrValue::Int(splits))));
        run("StringSplit", &given, &[Some(x)], 2)
    }

    /// (texts, delimiter, maxsplit, parts, number of parts)
    type SplitRow = (
        &'static [&'static str],
        Option<&'static str>,
        Option<i64>,
        &'static [&'static str],
        &'static [i64],
    );

    #[test]
    fn texts_are_split() {
        let rows: [SplitRow; 17] = [
            (
                &["a.com", "b.c.d", ""],
                Some("."),
                None,
                &["a", "com", "", "b", "c", "d", "", "", ""],
                &[2, 3, 1],
            ),
            (&["-a--b-"], Some("-"), None, &["", "a", "", "b", ""], &[5]),
            (&["aaaa", "aaa"], Some("aa"), None, &["", "", "", "", "a", ""], &[3, 2]),
            (&["a,b", ",,"], Some(",,"), None, &["a,b", "", "", ""], &[1, 2]),
            (&["a,b,c", "d"], Some(","), Some(1), &["a", "b,c", "d", ""], &[2, 1]),
            (&["a,b,c"], Some(","), Some(0), &["a,b,c"], &[1]),
            (&["a,b,c", "d"], Some(","), Some(-5), &["a", "b", "c", "d", "", ""], &[3, 1]),
            (&["a,b"], Some(","), Some(i64::MAX), &["a", "b"], &[2]),
            (&["日本,語"], Some("本"), None, &["日", ",語"], &[2]),
            (&["", ""], Some(","), None, &["", ""], &[1, 1]),
            (&["", " \t"], None, None, &[], &[0, 0]),
            (&["  a b  c  ", ""], Some(""), None, &["a", "b", "c", "", "", ""], &[3, 0]),
            (&["  a b  c  ", ""], None, Some(1), &["a", "b  c  ", "", ""], &[2, 0]),
            (&["  a b  ", " "], None, Some(0), &["a b  ", ""], &[1, 0]),
            (&["a  "], None, Some(1), &["a"], &[1]),
            (&["a b "], None, Some(1), &["a", "b "], &[2]),
            (
                &["a\u{a0}b\u{2003}c\u{200b}d\x1ce\u{85}f"],
                None,
                None,
                &["a", "b", "c\u{200b}d", "e", "f"],
                &[5],
            ),
        ];
        for (texts, delimiter, splits, parts, counts) in rows {
            let x = strings(&[texts.len()], texts);
            let found = split(&x, delimiter.map(str::as_bytes), splits).unwrap();
            assert_eq!(found[0], strings(&[texts.len(), parts.len() / texts.len()], parts));
            assert_eq!(found[1], tensor(&[texts.len()], counts), "{texts:?}");
        }
    }

    #[test]
    fn shapes_and_bytes_of_any_kind() {
        let found = split(&strings(&[], &["a b"]), None, None).unwrap();
        assert_eq!(found, [strings(&[2], &["a", "b"]), tensor(&[], &[2i64])]);
        for dims in [&[0usize][..], &[2, 0]] {
            let found = split(&strings::<&str>(dims, &[]), Some(b","), None).unwrap();
            let parts: Vec<usize> = dims.iter().copied().chain([0]).collect();
            assert_eq!(found, [strings::<&str>(&parts, &[]), tensor::<i64>(dims, &[])]);
        }
        // A lone part of a blank is none.
        let odd = strings(&[1], &[b"\xff \xe2\x80 b\xe2"]);
        let found = split(&odd, None, None).unwrap();
        assert_eq!(found[0], strings(&[1, 3], &[&b"\xff"[..], b"\xe2\x80", b"b\xe2"]));
        let found = split(&odd, Some(b"\x80 "), None).unwrap();
        assert_eq!(found[0], strings(&[1, 2], &[&b"\xff \xe2"[..], b"b\xe2"]));
        let found = split(&Tensor::scalar(1i64), None, None);
        assert_eq!(found.unwrap_err(), "the input is int64, not strings");
    }
}
