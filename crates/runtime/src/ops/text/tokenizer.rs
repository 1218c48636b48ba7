//! Tokenizer: the tokens of texts, by separators or by an expression for tokens.

use regex::bytes::Regex;
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};
use sardonyx_ops::AttrValue;
use sardonyx_tensor::Dims;

use super::full_match::regex_of;
use super::split::char_at;
use super::{re2, set_strings, texts};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};

/// What stands around the tokens of a text, if they are marked.
const MARKS: [&[u8]; 2] = [b"\x02", b"\x03"];

/// `Tokenizer`
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let Some(pad) = site.bytes("pad_value") else { fail!("attribute 'pad_value' is missing") };
    let least = site.need_int("mincharnum")?;
    let Some(least) = usize::try_from(least).ok().filter(|least| *least > 0) else {
        fail!("attribute 'mincharnum' is {least}, but must be at least 1");
    };
    let separators = match site.attributes.get("separators") {
        Some(AttrValue::Strings(separators)) => separators,
        _ => Vec::new(),
    };
    let expression = site.bytes("tokenexp").filter(|expression| !expression.is_empty());
    let cut = match (&separators[..], expression) {
        ([], None) => fail!("the node has neither 'separators' nor 'tokenexp'"),
        ([], Some(expression)) if expression == b"." => Cut::Characters,
        ([], Some(expression)) => Cut::Tokens(longest("tokenexp", expression)?),
        ([separator], _) if separator.is_empty() => Cut::Characters,
        (separators, _) => {
            let all = separators.iter().map(|one| separator(one.to_vec()));
            Cut::Separators(all.collect::<Result<_, _>>()?)
        }
    };
    if matches!(cut, Cut::Characters) && least > 1 {
        fail!("attribute 'mincharnum' is {least}, but each character is a token");
    }
    let is_marked = site.need_int("mark")? != 0;
    Ok(Box::new(Tokenizer { cut, least, is_marked, pad }))
}

fn separator(pattern: Vec<u8>) -> Result<Regex, BindError> {
    let regex = longest("separators", pattern)?;
    if regex.is_match(b"") {
        return Err(BindError::Unsupported(
            "a separator that matches the empty string".to_string(),
        ));
    }
    Ok(regex)
}

/// A pattern that matches as much as it can. Of several ways to match from a place on, the crate
/// takes the first one, so a pattern in which it may not be the longest is refused.
fn longest(name: &str, pattern: Vec<u8>) -> Result<Regex, BindError> {
    let text = String::from_utf8_lossy(&pattern).into_owned();
    let regex = regex_of(name, pattern, ["(?:", ")"])?;
    let parsed = re2::translate(&text).ok().and_then(|translation| {
        ParserBuilder::new().utf8(false).build().parse(&translation.pattern).ok()
    });
    if parsed.is_none_or(|pattern| !first_is_longest(&pattern)) {
        let what = format!("the pattern '{text}', in which one alternative is a prefix of another");
        return Err(BindError::Unsupported(what));
    }
    Ok(regex)
}

/// Whether there is no choice: nothing takes as little as it can, and alternatives begin with
/// different bytes.
fn first_is_longest(pattern: &Hir) -> bool {
    match pattern.kind() {
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) | HirKind::Look(_) => true,
        HirKind::Repetition(repetition) => repetition.greedy && first_is_longest(&repetition.sub),
        HirKind::Capture(capture) => first_is_longest(&capture.sub),
        HirKind::Concat(parts) => parts.iter().all(first_is_longest),
        HirKind::Alternation(parts) => {
            parts.iter().all(first_is_longest) && union(parts, true).is_some()
        }
    }
}

/// The bytes that matches begin with.
type Bytes = [bool; 256];

/// The bytes that matches of any of some patterns begin with; `None` where there may be others, or
/// if two begin with the same and they `differ`.
fn union(patterns: &[Hir], differ: bool) -> Option<Bytes> {
    let mut all = [false; 256];
    for pattern in patterns {
        for (all, one) in all.iter_mut().zip(first_bytes(pattern)?) {
            if differ && *all && one {
                return None;
            }
            *all |= one;
        }
    }
    Some(all)
}

fn first_bytes(pattern: &Hir) -> Option<Bytes> {
    let mut found = [false; 256];
    let mut add = |first: u8, last: u8| found[usize::from(first)..=usize::from(last)].fill(true);
    match pattern.kind() {
        HirKind::Empty | HirKind::Look(_) => return None,
        HirKind::Literal(literal) => add(*literal.0.first()?, *literal.0.first()?),
        HirKind::Class(Class::Bytes(class)) => {
            class.ranges().iter().for_each(|range| add(range.start(), range.end()));
        }
        HirKind::Class(Class::Unicode(class)) => {
            let lead = |char: char| char.encode_utf8(&mut [0; 4]).as_bytes()[0];
            class.ranges().iter().for_each(|range| add(lead(range.start()), lead(range.end())));
        }
        HirKind::Repetition(repetition) if repetition.min == 0 => return None,
        HirKind::Repetition(repetition) => return first_bytes(&repetition.sub),
        HirKind::Capture(capture) => return first_bytes(&capture.sub),
        HirKind::Concat(parts) => {
            return first_bytes(
                parts.iter().find(|part| !matches!(part.kind(), HirKind::Look(_)))?,
            );
        }
        HirKind::Alternation(parts) => return union(parts, false),
    }
    Some(found)
}

enum Cut {
    Characters,
    /// One after the other.
    Separators(Vec<Regex>),
    Tokens(Regex),
}

struct Tokenizer {
    cut: Cut,
    /// Characters of a token at least.
    least: usize,
    is_marked: bool,
    pad: Vec<u8>,
}

impl Kernel for Tokenizer {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let view = call.tensor(0)?.clone();
        let texts = texts(&view)?;
        let mut dims = Dims::from(view.dims());
        let mut counts = call.scratch::<usize>(texts.len())?;
        let (mut most, mut bytes) = (0, 0_usize);
        for (text, count) in texts.clone().zip(counts.iter_mut()) {
            self.each_token(text, &mut |token| {
                *count += 1;
                bytes += token.len();
            });
            most = most.max(*count);
        }
        let marks: &[&[u8]] = if self.is_marked && most > 0 { &MARKS } else { &[] };
        let width = most + marks.len();
        dims.push(width);
        let padded = texts.len().saturating_mul(width).saturating_mul(self.pad.len().max(1));
        set_strings(call, 0, &dims, bytes.saturating_add(padded), |strings| {
            for (text, count) in texts.zip(counts.iter()) {
                marks.first().into_iter().for_each(|mark| strings.push(mark));
                self.each_token(text, &mut |token| strings.push(token));
                marks.last().into_iter().for_each(|mark| strings.push(mark));
                (*count..most).for_each(|_| strings.push(&self.pad));
            }
        })
    }

    fn describe(&self) -> String {
        match &self.cut {
            Cut::Characters => "characters".to_string(),
            Cut::Separators(all) => format!("between {} separators", all.len()),
            Cut::Tokens(_) => "by an expression".to_string(),
        }
    }
}

impl Tokenizer {
    /// Calls a function with the tokens of a text, from left to right.
    fn each_token<'t>(&self, text: &'t [u8], with: &mut dyn FnMut(&'t [u8])) {
        match &self.cut {
            Cut::Characters => {
                let mut rest = text;
                while !rest.is_empty() {
                    let (token, after) = rest.split_at(char_at(rest, 0).0);
                    with(token);
                    rest = after;
                }
            }
            Cut::Separators(separators) => self.between(separators, text, with),
            Cut::Tokens(expression) => {
                let found = expression.find_iter(text).map(|found| found.as_bytes());
                found.filter(|token| self.is_long(token)).for_each(with);
            }
        }
    }

    /// The tokens between separators, of which the first one cuts first.
    fn between<'t>(&self, separators: &[Regex], text: &'t [u8], with: &mut dyn FnMut(&'t [u8])) {
        let Some((first, others)) = separators.split_first() else {
            if self.is_long(text) {
                with(text);
            }
            return;
        };
        let mut start = 0;
        for found in first.find_iter(text) {
            self.between(others, &text[start..found.start()], with);
            start = found.end();
        }
        self.between(others, &text[start..], with);
    }

    /// Whether a token has enough characters: bytes that continue none.
    fn is_long(&self, token: &[u8]) -> bool {
        let characters = token.iter().filter(|byte| **byte & 0xc0 != 0x80);
        characters.take(self.least).count() == self.least
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::{self, Int};
    use sardonyx_tensor::Tensor;

    use crate::ops::testing::{run_of, strings, text, texts};

    type Attribute = (&'static str, AttrValue<'static>);

    fn tokens(x: &Tensor, changes: &[Attribute]) -> Result<Tensor, String> {
        let mut all = vec![text("pad_value", "#"), ("mincharnum", Int(1)), ("mark", Int(0))];
        for (name, value) in changes {
            all.retain(|(other, _)| other != name);
            all.push((*name, value.clone()));
        }
        let form = ("com.microsoft", "Tokenizer", 1);
        run_of(form, &all, &[Some(x)], &[], 1).map(|mut found| found.remove(0))
    }

    #[test]
    fn texts_become_tokens() {
        let separators = |list: &[&str]| texts("separators", list);
        let expression = |pattern: &'static str| text("tokenexp", pattern);
        let (two, marked) = (("mincharnum", Int(2)), ("mark", Int(1)));
        let x = ["ab,cd9é", "x"];
        // As ONNX Runtime 1.31 does.
        let rows: [(&[&str], &[Attribute], &[usize], &[&str]); 11] = [
            (
                &["ab cd", "x", ""],
                &[separators(&[" "])],
                &[3, 2],
                &["ab", "cd", "x", "#", "#", "#"],
            ),
            (
                &["ab", ""],
                &[separators(&[" "]), marked.clone()],
                &[2, 3],
                &["\x02", "ab", "\x03", "\x02", "\x03", "#"],
            ),
            (&["", ""], &[separators(&[" "]), marked], &[2, 0], &[]),
            (&["ab,cd e"], &[separators(&[",", " "])], &[1, 3], &["ab", "cd", "e"]),
            (&["ab abc"], &[separators(&["a", "b"])], &[1, 2], &[" ", "c"]),
            (&["a  b "], &[separators(&[" "])], &[1, 2], &["a", "b"]),
            (&["bé", "x"], &[separators(&[""])], &[2, 2], &["b", "é", "x", "#"]),
            (&["a\nb"], &[expression(".")], &[1, 3], &["a", "\n", "b"]),
            (&["ab abc"], &[expression("a*")], &[1, 2], &["a", "a"]),
            (&x, &[expression("[a-z]+")], &[2, 2], &["ab", "cd", "x", "#"]),
            (&x, &[expression("\\w+|[^\\w\\s]+"), two], &[2, 2], &["ab", "cd9", "#", "#"]),
        ];
        for (x, attributes, dims, expected) in rows {
            let found = tokens(&strings(&[x.len()], x), attributes).unwrap();
            assert_eq!(found, strings(dims, expected), "{attributes:?}");
        }
        let two = strings(&[1, 2], &["a b", "c"]);
        let found = tokens(&two, &[texts("separators", &[" "])]).unwrap();
        assert_eq!(found, strings(&[1, 2, 2], &["a", "b", "c", "#"]));
    }

    #[test]
    fn refused() {
        let rows: [(&[Attribute], &str); 6] = [
            (&[], "the node has neither 'separators' nor 'tokenexp'"),
            (
                &[text("tokenexp", "."), ("mincharnum", Int(2))],
                "attribute 'mincharnum' is 2, but each character is a token",
            ),
            (
                &[text("tokenexp", "a"), ("mincharnum", Int(0))],
                "attribute 'mincharnum' is 0, but must be at least 1",
            ),
            (&[texts("separators", &["x*"])], "a separator that matches the empty string"),
            (
                &[text("tokenexp", "a|ab")],
                "the pattern 'a|ab', in which one alternative is a prefix of another",
            ),
            (
                &[text("tokenexp", "a+?")],
                "the pattern 'a+?', in which one alternative is a prefix of another",
            ),
        ];
        for (attributes, refusal) in rows {
            let error = tokens(&strings(&[1], &["a"]), attributes).unwrap_err();
            assert!(error.contains(refusal), "{error}");
        }
    }
}
