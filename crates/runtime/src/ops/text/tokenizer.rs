//! Tokenizer: splits texts at separators, or finds tokens by a regular expression.

use sardonyx_ops::AttrValue;
use sardonyx_tensor::Dims;

use super::longest::Longest;
use super::split::char_at;
use super::{set_strings, texts};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};

/// Marks before and after the tokens of a text.
const MARKS: [&[u8]; 2] = [b"\x02", b"\x03"];

/// Binds `Tokenizer`.
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
        ([], Some(expression)) if expression == b"." => TokenRule::Characters,
        ([], Some(expression)) => TokenRule::Tokens(Longest::new("tokenexp", expression)?),
        ([separator], _) if separator.is_empty() => TokenRule::Characters,
        (separators, _) => {
            let all = separators.iter().map(|one| separator(one.to_vec()));
            TokenRule::Separators(all.collect::<Result<_, _>>()?)
        }
    };
    if matches!(cut, TokenRule::Characters) && least > 1 {
        fail!("attribute 'mincharnum' is {least}, but each character is a token");
    }
    let is_marked = site.need_int("mark")? != 0;
    Ok(Box::new(Tokenizer { cut, least, is_marked, pad }))
}

fn separator(pattern: Vec<u8>) -> Result<Longest, BindError> {
    let regex = Longest::new("separators", pattern)?;
    if regex.matches_nothing() {
        return Err(BindError::Unsupported(
            "a separator that matches the empty string".to_string(),
        ));
    }
    Ok(regex)
}

enum TokenRule {
    Characters,
    /// Applied one after the other.
    Separators(Vec<Longest>),
    Tokens(Longest),
}

struct Tokenizer {
    cut: TokenRule,
    /// Minimum number of characters of a token.
    least: usize,
    is_marked: bool,
    pad: Vec<u8>,
}

impl Kernel for Tokenizer {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let view = call.tensor(0)?.clone();
        let texts = texts(&view)?;
        let mut dims = Dims::from(view.dims());
        if texts.len() == 0 {
            // As in ONNX Runtime: without texts, the last axis counts tokens, and no axis is added.
            dims.pop();
            dims.push(0);
            return set_strings(call, 0, &dims, 0, |_| Ok(()));
        }
        let mut counts = call.scratch::<usize>(texts.len())?;
        let (mut most, mut bytes) = (0, 0_usize);
        for (text, count) in texts.clone().zip(counts.iter_mut()) {
            self.visit_tokens(text?, &mut |token| {
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
                self.visit_tokens(text?, &mut |token| strings.push(token));
                marks.last().into_iter().for_each(|mark| strings.push(mark));
                (*count..most).for_each(|_| strings.push(&self.pad));
            }
            Ok(())
        })
    }

    fn describe(&self) -> String {
        match &self.cut {
            TokenRule::Characters => "characters".to_string(),
            TokenRule::Separators(all) => format!("between {} separators", all.len()),
            TokenRule::Tokens(_) => "by an expression".to_string(),
        }
    }
}

impl Tokenizer {
    /// Calls `with` for each token of a text, from left to right.
    fn visit_tokens<'t>(&self, text: &'t [u8], with: &mut dyn FnMut(&'t [u8])) {
        match &self.cut {
            TokenRule::Characters => {
                let mut rest = text;
                while !rest.is_empty() {
                    let (token, after) = rest.split_at(char_at(rest, 0).0);
                    with(token);
                    rest = after;
                }
            }
            TokenRule::Separators(separators) => self.split_at(separators, text, with),
            TokenRule::Tokens(expression) => {
                let found = expression.find_iter(text).map(|found| &text[found]);
                found.filter(|token| self.is_long(token)).for_each(with);
            }
        }
    }

    /// Calls `with` for the tokens between separators; the first separator splits first.
    fn split_at<'t>(&self, separators: &[Longest], text: &'t [u8], with: &mut dyn FnMut(&'t [u8])) {
        let Some((first, others)) = separators.split_first() else {
            if self.is_long(text) {
                with(text);
            }
            return;
        };
        let mut start = 0;
        for found in first.find_iter(text) {
            self.split_at(others, &text[start..found.start], with);
            start = found.end;
        }
        self.split_at(others, &text[start..], with);
    }

    /// Whether a token has enough characters. Counts bytes that start one.
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
        let rows: [(&[&str], &[Attribute], &[usize], &[&str]); 17] = [
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
            // Of the alternatives the longest.
            (&["aab a1b2"], &[expression("a|ab")], &[1, 3], &["a", "ab", "a"]),
            (&["aaaaab"], &[expression("a+?b??")], &[1, 1], &["aaaaab"]),
            (&["aab1"], &[expression("[a-z]+|[a-z]+1")], &[1, 1], &["aab1"]),
            (&["xxb"], &[expression("x*|b")], &[1, 2], &["xx", "b"]),
            (&["xaaaay"], &[separators(&["aa|aaa"])], &[1, 2], &["x", "ay"]),
            (&["zaabbz"], &[separators(&["a|ab"])], &[1, 2], &["z", "bz"]),
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
    fn no_texts() {
        let none: [&str; 0] = [];
        let marked = [texts("separators", &[" "]), ("mark", Int(1))];
        // As ONNX Runtime 1.31 does.
        let rows: [[&[usize]; 2]; 4] =
            [[&[0], &[0]], [&[0, 3], &[0, 0]], [&[3, 0], &[3, 0]], [&[0, 0], &[0, 0]]];
        for [from, to] in rows {
            let found = tokens(&strings(from, &none), &marked).unwrap();
            assert_eq!(found, strings(to, &none), "{from:?}");
        }
    }

    #[test]
    fn attributes_that_do_not_fit_are_refused() {
        let rows: [(&[Attribute], &str); 4] = [
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
        ];
        for (attributes, refusal) in rows {
            let error = tokens(&strings(&[1], &["a"]), attributes).unwrap_err();
            assert!(error.contains(refusal), "{error}");
        }
    }
}
