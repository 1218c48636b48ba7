//! RegexFullMatch: tests whether a regular expression matches a whole text.

use regex::bytes::{Regex, RegexBuilder};
use regex_syntax::ParserBuilder;
use sardonyx_tensor::{DataType, Dims};

use super::re2::{self, Refusal};
use super::texts;
use crate::error::{BindError, KernelError};
use crate::kernel::{Call, Kernel, Site};

/// Limit: bytes of a compiled pattern. The default of RE2 is half of that; character classes are
/// larger here.
pub(super) const MOST_BYTES: usize = 16 << 20;
/// Limit: depth of nested groups.
pub(super) const MOST_NESTED: u32 = 250;

/// Binds `RegexFullMatch`.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let Some(pattern) = site.bytes("pattern") else {
        return Err(BindError::Invalid("attribute 'pattern' is missing".to_string()));
    };
    // Anchors the pattern at both ends of a text.
    Ok(Box::new(FullMatch(regex_of("pattern", pattern, "\\A(?:", ")\\z")?)))
}

/// Compiles an attribute, a pattern of RE2, between two parts of a pattern.
pub(super) fn regex_of(
    name: &str,
    pattern: Vec<u8>,
    before: &str,
    after: &str,
) -> Result<Regex, BindError> {
    let pattern = String::from_utf8(pattern).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        BindError::Invalid(format!("attribute '{name}' is not UTF-8 from byte {at} on"))
    })?;
    compile(&pattern, before, after).map_err(|Refusal { at, why }| {
        BindError::Invalid(format!("attribute '{name}' is '{pattern}': at byte {at}, {why}"))
    })
}

fn compile(pattern: &str, before: &str, after: &str) -> Result<Regex, Refusal> {
    let translation = re2::translate(pattern)?;
    let mut parser = ParserBuilder::new().utf8(false).nest_limit(MOST_NESTED).build();
    // Parses the pattern without anchors first, so that it cannot close their group.
    parser.parse(&translation.pattern).map_err(|error| {
        let (why, span) = match &error {
            regex_syntax::Error::Parse(error) => (error.kind().to_string(), error.span()),
            regex_syntax::Error::Translate(error) => (error.kind().to_string(), error.span()),
            _ => return Refusal { at: 0, why: error.to_string() },
        };
        Refusal { at: translation.place(span.start.offset), why }
    })?;
    RegexBuilder::new(&format!("{before}{}{after}", translation.pattern))
        .nest_limit(MOST_NESTED + 2)
        .size_limit(MOST_BYTES)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(most) => {
                let why = format!("the compiled expression takes more than {most} bytes");
                Refusal { at: 0, why }
            }
            other => Refusal { at: 0, why: other.to_string() },
        })
}

struct FullMatch(Regex);

impl Kernel for FullMatch {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let view = call.tensor(0)?.clone();
        let texts = texts(&view)?;
        let mut out = call.output(0, DataType::Bool, &Dims::from(view.dims()))?;
        for (out, text) in out.bytes_mut().iter_mut().zip(texts) {
            *out = u8::from(self.0.is_match(text?));
        }
        Ok(())
    }

    fn describe(&self) -> String {
        "match a regular expression".to_string()
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue;
    use sardonyx_tensor::{Bool8, Tensor};

    use crate::ops::testing::{run, strings, tensor};

    fn matches(pattern: &'static str, x: &Tensor) -> Result<Vec<Tensor>, String> {
        let pattern = AttrValue::String(pattern.as_bytes().into());
        run("RegexFullMatch", &[("pattern", pattern)], &[Some(x)], 1)
    }

    #[test]
    fn whole_texts_match() {
        // (pattern, texts that match, texts that do not)
        let rows: [(&str, &[&str], &[&str]); 36] = [
            ("", &[""], &["a", "\n"]),
            ("a|ab", &["a", "ab"], &["abc", "b", "xab"]),
            ("^a$|b", &["a", "b"], &["ab", "a\n"]),
            ("a.c", &["abc", "aßc", "a語c"], &["a\nc", "abbc"]),
            ("(?s)a.c", &["a\nc"], &["ac"]),
            ("(?m)a$\\n^b", &["a\nb"], &["ab"]),
            ("(?i)straße|(?-i:K)", &["STRAßE", "straẞe", "K"], &["strasse", "k"]),
            ("a*?b+?(?U)c*", &["b", "aabbcc"], &["a"]),
            ("(?P<year>\\d{4})-(?<month>\\d\\d)", &["2026-11"], &["26-11", "٢٠٢٦-11"]),
            ("\\D\\S\\W", &["xx-", "٣é語"], &["1x-", "x -", "xxw"]),
            ("\\w+", &["a_Z9"], &["é", ""]),
            ("[^\\w]+[\\d\\-x]", &["é語-"], &["a-", "éa"]),
            ("\\s", &["\t", " ", "\x0c"], &["\x0b", "\u{a0}"]),
            ("\\ba\\b.*\\Bb", &["a ab"], &["a b"]),
            ("é\\bx", &["éx"], &["é x"]),
            ("\\pL\\p{Greek}\\P{Lu}\\p{^Lu}", &["éλaa", "xΛ1-"], &["éλAa", "1λaa"]),
            ("[\\p{Greek}\\PL]", &["λ", "1"], &["a"]),
            ("[[:alpha:]_][[:^digit:]]", &["a-", "_é"], &["é-", "a1"]),
            ("[]a]+[^]a]", &["]ab"], &["]a]"]),
            ("[[a]", &["[", "a"], &["b"]),
            ("[a&&b]", &["a", "&", "b"], &["c"]),
            ("[a~~b+--c]", &["a", "~", "b", "-", ",", "c"], &["."]),
            ("[\\w-.]+", &["a-.b"], &["a,b"]),
            ("[a-c-e]+", &["b-e"], &["d"]),
            ("[+--]+", &["+,-"], &["."]),
            ("[\\[-\\]]+", &["[\\]"], &["a"]),
            ("a{2}b{1,}c{0,2}", &["aab", "aabbcc"], &["ab", "aabccc"]),
            ("a{,2}{b", &["a{,2}{b"], &["aa{b"]),
            ("a]}", &["a]}"], &["a"]),
            ("\\Qa.b*\\E+|\\Q(", &["a.b*", "a.b**", "("], &["axb"]),
            ("\\x41\\x{1F600}\\07\\101\\12", &["A😀\x07A\n"], &[]),
            ("\\<\\>\\#\\ \\-\\_", &["<># -_"], &[]),
            ("\\Aa\\z", &["a"], &["a\n"]),
            ("\\C+", &["aé\n"], &[""]),
            ("a # b", &["a # b"], &["a"]),
            ("(a+)+b", &["aaab"], &["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac"]),
        ];
        for (pattern, yes, no) in rows {
            for (texts, expected) in [(yes, 1), (no, 0)] {
                let x = strings(&[1, texts.len()], texts);
                let found = matches(pattern, &x).unwrap();
                let expected = vec![Bool8(expected); texts.len()];
                assert_eq!(found[0], tensor(&[1, texts.len()], &expected), "{pattern} {texts:?}");
            }
        }
        // Characters do not match bytes that are not UTF-8.
        let odd = strings(&[3], &[&b"a\xff"[..], b"ab", b"\xc3"]);
        for (pattern, expected) in [("a.", [0, 1, 0]), ("a?\\C", [1, 1, 1]), ("[^b]*", [0, 0, 0])] {
            let found = matches(pattern, &odd).unwrap();
            assert_eq!(found[0], tensor(&[3], &expected.map(Bool8)), "{pattern}");
        }
        let found = matches("x", &strings(&[], &["x"])).unwrap();
        assert_eq!(found[0], Tensor::scalar(Bool8(1)));
        assert_eq!(matches("x", &strings::<&str>(&[0, 2], &[])).unwrap()[0].dims(), [0, 2]);
    }

    #[test]
    fn patterns_are_refused() {
        let rows = [
            ("a)(b", "at byte 1, unopened group"),
            ("\\d\\d(", "at byte 4, unclosed group"),
            (
                "\\d*(?=a)",
                "at byte 3, look-around, including look-ahead and look-behind, is not supported",
            ),
            ("a|*", "at byte 2, repetition operator missing expression"),
            ("(?x)a # b", "at byte 2, RE2 has no flag 'x'"),
            ("a(?i-u:b)", "at byte 5, RE2 has no flag 'u'"),
            ("\\w\\1", "at byte 2, RE2 does not support backreferences"),
            ("\\9", "at byte 0, RE2 does not support backreferences"),
            ("é\\y", "at byte 2, RE2 has no escape '\\y'"),
            ("\\é", "at byte 0, RE2 has no escape '\\é'"),
            ("a\\", "at byte 1, the pattern ends with a backslash"),
            ("[\\", "at byte 1, the pattern ends with a backslash"),
            ("a[b", "at byte 1, unterminated character class"),
            ("[]", "at byte 0, unterminated character class"),
            ("[a-", "at byte 0, unterminated character class"),
            ("[z-a]", "at byte 1, the end of a range is before its start"),
            ("[a-\\d]", "at byte 3, RE2 has no escape '\\d'"),
            ("[[:letters:]]", "at byte 1, unknown character class 'letters'"),
            ("\\p{Latin", "at byte 0, unterminated property name"),
            ("\\p{}", "at byte 0, unknown property ''"),
            ("x\\p{Klingon}", "at byte 1, Unicode property not found"),
            ("\\x{110000}", "at byte 0, invalid code point"),
            ("\\x4", "at byte 0, invalid code point"),
            ("\\xé", "at byte 0, invalid code point"),
            ("a{1001}", "at byte 1, 1001 repetitions, but RE2 supports at most 1000"),
            ("a{2,1}", "at byte 1, invalid repetition count range, the start must be <= the end"),
            (
                "(\\pL{1000}){1000}",
                "at byte 0, the compiled expression takes more than 16777216 bytes",
            ),
        ];
        for (pattern, refusal) in rows {
            let found = matches(pattern, &strings(&[1], &["a"])).unwrap_err();
            assert_eq!(found, format!("attribute 'pattern' is '{pattern}': {refusal}"));
        }
        let nested = "(".repeat(300) + &")".repeat(300);
        assert!(super::compile(&nested, "", "").unwrap_err().why.contains("250"));
        for (given, refusal) in [
            (vec![], "attribute 'pattern' is missing"),
            (
                vec![("pattern", AttrValue::String(b"a\xff"[..].into()))],
                "attribute 'pattern' is not UTF-8 from byte 1 on",
            ),
        ] {
            let found = run("RegexFullMatch", &given, &[Some(&strings(&[1], &["a"]))], 1);
            assert_eq!(found.unwrap_err(), refusal);
        }
        let found = matches("a", &Tensor::scalar(1f32));
        assert_eq!(found.unwrap_err(), "the input is float, not strings");
    }
}
