//! StringNormalizer: removes words from a list of texts and converts letters to one case.
//!
//! Follows the document where the reference implementation differs: a stop word is a whole text,
//! accents stay, and so do texts that were empty.

use std::borrow::Cow;

use hashbrown::HashSet;
use sardonyx_ops::AttrValue;
use sardonyx_tensor::Dims;
use smallvec::smallvec;

use super::{set_strings, texts};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};

/// Binds `StringNormalizer`.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let changes =
        [("NONE", None), ("LOWER", Some(CaseChange::Lower)), ("UPPER", Some(CaseChange::Upper))];
    let change = site.find_named("case_change_action", &changes)?;
    let words = match site.attributes.get("stopwords") {
        Some(AttrValue::Strings(words)) => words,
        _ => Vec::new(),
    };
    // Equality of words depends on the case: 'ß' equals 'ss' only in capitals.
    let folds = site.int("is_case_sensitive").unwrap_or(0) == 0 && !words.is_empty();
    let compared = folds.then(|| change.unwrap_or(CaseChange::Lower));
    let mut stopwords = HashSet::with_capacity(words.len());
    for (index, word) in words.into_iter().enumerate() {
        let word = in_case(&word, compared).ok_or_else(|| {
            BindError::Invalid(format!(
                "element {index} of attribute 'stopwords' is not UTF-8, so its case cannot be ignored"
            ))
        })?;
        stopwords.insert(word.into_owned());
    }
    // Ignores the attribute 'locale': the default of the document and most others agree on the case
    // of letters, and the reference implementation knows no other.
    Ok(Box::new(Normalize { change, compared, stopwords }))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CaseChange {
    Lower,
    Upper,
}

/// Converts a text to a case, if one is given; `None` if it is not UTF-8.
fn in_case(text: &[u8], case: Option<CaseChange>) -> Option<Cow<'_, [u8]>> {
    let Some(case) = case else {
        return Some(Cow::Borrowed(text));
    };
    let text = std::str::from_utf8(text).ok()?;
    let changed = match case {
        CaseChange::Lower => text.to_lowercase(),
        CaseChange::Upper => text.to_uppercase(),
    };
    Some(Cow::Owned(changed.into_bytes()))
}

struct Normalize {
    change: Option<CaseChange>,
    /// Case in which texts and stop words are compared.
    compared: Option<CaseChange>,
    /// Stop words in the case `compared`.
    stopwords: HashSet<Vec<u8>>,
}

impl Normalize {
    /// Normalizes a text; `None` if it is a stop word.
    fn normalize<'t>(
        &self,
        text: &'t [u8],
        index: usize,
    ) -> Result<Option<Cow<'t, [u8]>>, KernelError> {
        let in_case = |case| match in_case(text, case) {
            Some(changed) => Ok(changed),
            None => {
                fail!("element {index} of the input is not UTF-8, so its case cannot be converted")
            }
        };
        let compared = in_case(self.compared)?;
        if self.stopwords.contains(&compared[..]) {
            return Ok(None);
        }
        if self.compared == self.change {
            Ok(Some(compared))
        } else {
            in_case(self.change).map(Some)
        }
    }
}

impl Kernel for Normalize {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let view = call.tensor(0)?.clone();
        let texts = texts(&view)?;
        let is_row = match view.dims() {
            [_] => false,
            [1, _] => true,
            other => fail!("the input has shape {other:?}, not [C] or [1, C]"),
        };
        // Computes sizes first, so that memory is charged before it is allocated. Converts each
        // text twice for that.
        let (mut count, mut bytes) = (0, 0usize);
        for (index, text) in texts.clone().enumerate() {
            if let Some(text) = self.normalize(text?, index)? {
                count += 1;
                bytes = bytes.saturating_add(text.len());
            }
        }
        let len = count.max(1);
        let dims: Dims = if is_row { smallvec![1, len] } else { smallvec![len] };
        set_strings(call, 0, &dims, bytes, |strings| {
            if count == 0 {
                strings.push(b"");
            }
            for (index, text) in texts.enumerate() {
                if let Some(text) = self.normalize(text?, index)? {
                    strings.push(text);
                }
            }
            Ok(())
        })
    }

    fn describe(&self) -> String {
        match self.change {
            None => "remove stop words".to_string(),
            Some(CaseChange::Lower) => "remove stop words, lower case".to_string(),
            Some(CaseChange::Upper) => "remove stop words, upper case".to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::{self, Int, String, Strings};
    use sardonyx_tensor::Tensor;

    use crate::ops::testing::{run, strings};

    fn normalize(
        x: &Tensor,
        case: &'static str,
        sensitive: bool,
        words: &[&'static [u8]],
    ) -> Result<Vec<Tensor>, std::string::String> {
        let words = words.iter().map(|word| (*word).into()).collect();
        let given: [(&str, AttrValue<'static>); 4] = [
            ("case_change_action", String(case.as_bytes().into())),
            ("is_case_sensitive", Int(i64::from(sensitive))),
            ("locale", String(b"xx_YY".into())),
            ("stopwords", Strings(words)),
        ];
        run("StringNormalizer", &given, &[Some(x)], 1)
    }

    /// Columns: (texts, case, whether stop words depend on case, stop words, remaining texts).
    type NormalizeRow = (
        &'static [&'static str],
        &'static str,
        bool,
        &'static [&'static str],
        &'static [&'static str],
    );

    #[test]
    fn lists_and_rows() {
        let rows: [NormalizeRow; 14] = [
            (&["Mo", "tu", "Mo"], "NONE", true, &[], &["Mo", "tu", "Mo"]),
            (&["Mo", "tu", "mo"], "LOWER", true, &["mo"], &["mo", "tu"]),
            (&["Mo", "tu", "mo"], "UPPER", true, &["Mo"], &["TU", "MO"]),
            (&["Mo", "tu", "mO"], "UPPER", false, &["mo"], &["TU"]),
            (&["Mo", "tu", "mO"], "NONE", false, &["MO"], &["tu"]),
            (&["mo", "mo"], "NONE", true, &["mo"], &[""]),
            (&[], "NONE", true, &[], &[""]),
            // A stop word is a whole text, and empty texts are texts.
            (&["mo tu", "", "tu"], "NONE", true, &["tu"], &["mo tu", ""]),
            (&["", "mo"], "NONE", true, &[""], &["mo"]),
            // Letters that become several, and the one that has two small forms.
            (
                &["ẞ", "İ", "ﬃ", "ΟΔΟΣ", "É"],
                "LOWER",
                true,
                &[],
                &["ß", "i\u{307}", "ﬃ", "οδος", "é"],
            ),
            (
                &["ß", "ẞ", "ﬃ", "ŉ", "ς", "ı"],
                "UPPER",
                true,
                &[],
                &["SS", "ẞ", "FFI", "ʼN", "Σ", "I"],
            ),
            (&["ẞ", "ss", "SS"], "LOWER", false, &["ß"], &["ss", "ss"]),
            (&["ẞ", "ss", "ﬃ"], "UPPER", false, &["ß"], &["ẞ", "FFI"]),
            (&["ẞ", "ss", "SS"], "NONE", false, &["ß"], &["ss", "SS"]),
        ];
        for (texts, case, sensitive, words, expected) in rows {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            let (len, left) = (texts.len(), expected.len());
            let found = normalize(&strings(&[len], texts), case, sensitive, &words).unwrap();
            assert_eq!(found[0], strings(&[left], expected), "{texts:?}");
            let found = normalize(&strings(&[1, len], texts), case, sensitive, &words).unwrap();
            assert_eq!(found[0], strings(&[1, left], expected), "{texts:?}");
        }
        let found = run("StringNormalizer", &[], &[Some(&strings(&[2], &["A", ""]))], 1);
        assert_eq!(found.unwrap()[0], strings(&[2], &["A", ""]));
    }

    #[test]
    fn what_is_no_text() {
        let x = strings(&[3], &[&b"a"[..], b"\xff", b"B"]);
        let left = strings(&[2], &[&b"a"[..], b"B"]);
        assert_eq!(normalize(&x, "NONE", false, &[]).unwrap()[0], x);
        assert_eq!(normalize(&x, "NONE", true, &[b"\xff"]).unwrap()[0], left);
        let no_case = "element 1 of the input is not UTF-8, so its case cannot be converted";
        let row = strings(&[2, 1], &["a", "b"]);
        for (found, refusal) in [
            (normalize(&x, "LOWER", true, &[]), no_case),
            (normalize(&x, "NONE", false, &[b"b"]), no_case),
            (
                normalize(&x, "UPPER", false, &[b"b", b"\xff"]),
                "element 1 of attribute 'stopwords' is not UTF-8, so its case cannot be ignored",
            ),
            (
                normalize(&x, "Lower", true, &[]),
                "attribute 'case_change_action' is 'Lower', which is not one of NONE, LOWER, UPPER",
            ),
            (normalize(&row, "NONE", true, &[]), "the input has shape [2, 1], not [C] or [1, C]"),
        ] {
            assert_eq!(found.unwrap_err(), refusal);
        }
        // A text that nothing else is taken from keeps its bytes where the case does not matter.
        let found = normalize(&x, "LOWER", true, &[b"\xff"]).unwrap();
        assert_eq!(found[0], strings(&[2], &["a", "b"]));
    }
}
