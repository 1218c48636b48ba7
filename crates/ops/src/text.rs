//! Operators on strings: `RegexFullMatch`, `StringConcat`, `StringNormalizer`, `StringSplit`,
//! `TfIdfVectorizer`.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType::{Bool, Float, Int32, Int64, String};

use crate::attributes::AttrValue;
use crate::def::OpDef;
use crate::facts::{floats, input, int, ints, output, string, strings, types};
use crate::infer::Rule;
use crate::infer::{Infer, InferError};
use crate::rules::{self, broadcast_inputs};
use crate::typeset::TypeSet;

pub(crate) static REGEX_FULL_MATCH: OpDef = OpDef::new("RegexFullMatch")
    .about("Tests whether a regular expression (RE2 syntax) matches each string completely.")
    .since(
        20,
        &[
            input("X", "T1").non_differentiable(),
            output("Y", "T2").non_differentiable(),
            string("pattern"),
            types("T1", TypeSet::tensors(&[String])),
            types("T2", TypeSet::tensors(&[Bool])),
        ],
    )
    .infer(matches);

pub(crate) static STRING_CONCAT: OpDef = OpDef::new("StringConcat")
    .about("Concatenates two string tensors element-wise.")
    .since(
        20,
        &[
            input("X", "T").non_differentiable(),
            input("Y", "T").non_differentiable(),
            output("Z", "T").non_differentiable(),
            types("T", TypeSet::tensors(&[String])),
        ],
    )
    .infer(broadcast)
    // The reference implementation passes on the element type of the first input, whatever it is.
    .infer_as_reference(rules::broadcast);

pub(crate) static STRING_NORMALIZER: OpDef = OpDef::new("StringNormalizer")
    .about(
        "Removes stop words from a list of strings and converts the case of the others. If no \
         string is left, the output is one empty string.",
    )
    .since(
        10,
        &[
            input("X", "tensor(string)"),
            output("Y", "tensor(string)"),
            string("case_change_action").or_word("NONE"),
            int("is_case_sensitive").or(0),
            string("locale"),
            strings("stopwords"),
        ],
    )
    .infer(infer_normalized)
    .infer_as_reference(infer_normalized_as_reference);

pub(crate) static STRING_SPLIT: OpDef = OpDef::new("StringSplit")
    .about("Splits each string at a delimiter, or at whitespace. Rows with fewer parts are padded with \
         empty strings.")
    .since(
        20,
        &[
            input("X", "T1").non_differentiable(),
            output("Y", "T2").non_differentiable(),
            output("Z", "T3").non_differentiable(),
            string("delimiter"),
            int("maxsplit"),
            types("T1", TypeSet::tensors(&[String])),
            types("T2", TypeSet::tensors(&[String])),
            types("T3", TypeSet::tensors(&[Int64])),
        ],
    )
    .infer(split)
    .differs(|cx| {
        cx.string("delimiter").filter(|delimiter| !delimiter.is_empty())?;
        Some("an empty text has one part, which is empty; it has none on ONNX Runtime".to_string())
    });

pub(crate) static TF_IDF_VECTORIZER: OpDef = OpDef::new("TfIdfVectorizer")
    .about(
        "Counts the n-grams of a vocabulary in each row: term frequency (TF), inverse document \
         frequency (IDF) or their product (TF-IDF). Skip-grams are counted if `max_skip_count` is \
         greater than 0.",
    )
    .since(
        9,
        &[
            input("X", "T").non_differentiable(),
            output("Y", "T1").non_differentiable(),
            int("max_gram_length").required(),
            int("max_skip_count").required(),
            int("min_gram_length").required(),
            string("mode").required(),
            ints("ngram_counts").required(),
            ints("ngram_indexes").required(),
            ints("pool_int64s"),
            strings("pool_strings"),
            floats("weights"),
            types("T", TypeSet::tensors(&[Int32, Int64, String])),
            types("T1", TypeSet::tensors(&[Float])),
        ],
    )
    .infer(infer_vectorized);

fn matches(cx: &mut Infer<'_>) -> Result<(), InferError> {
    cx.set_tensor(0, Some(Bool), cx.shape(0).cloned());
    Ok(())
}

fn broadcast(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = broadcast_inputs(cx)?;
    cx.set_tensor(0, Some(String), shape);
    Ok(())
}

fn infer_normalized(cx: &mut Infer<'_>) -> Result<(), InferError> {
    infer_normalized_by(cx, Rule::Operator)
}

/// Infers like the reference implementation, which refuses a matrix with an unknown number of rows.
fn infer_normalized_as_reference(cx: &mut Infer<'_>) -> Result<(), InferError> {
    infer_normalized_by(cx, Rule::Reference)
}

fn infer_normalized_by(cx: &mut Infer<'_>, rule: Rule) -> Result<(), InferError> {
    let stopwords = match cx.attribute("stopwords") {
        Some(AttrValue::Strings(words)) => !words.is_empty(),
        other => other.is_some(),
    };
    let may_be_one = |rows: &Dim| rows.known().is_none() && rule == Rule::Operator;
    // The result has at least one string.
    let left = |count: &Dim| match count.known() {
        None | Some(1..) if !stopwords => count.clone(),
        _ => Dim::Unknown,
    };
    let shape = match cx.shape(0).map(|shape| &shape[..]) {
        None => None,
        Some([count]) => Some(Shape::from_iter([left(count)])),
        Some([rows, count]) if rows.known() == Some(1) || may_be_one(rows) => {
            cx.equate(rows, &Dim::Known(1));
            Some(Shape::from_iter([Dim::Known(1), left(count)]))
        }
        Some(_) => return cx.fail("the input must be a list, or one row of a matrix"),
    };
    cx.set_tensor(0, Some(String), shape);
    if stopwords {
        cx.set_reason(0, "the number of texts that are left");
    }
    Ok(())
}

fn split(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let texts = cx.shape(0).cloned();
    let parts = texts.as_ref().map(|texts| {
        let mut parts = texts.clone();
        parts.push(Dim::Unknown);
        parts
    });
    cx.set_tensor(0, Some(String), parts);
    cx.set_reason(0, "the number of parts that a text has at most");
    cx.set_tensor(1, Some(Int64), texts);
    Ok(())
}

fn infer_vectorized(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let mut shape = cx.shape(0).cloned();
    if let Some(shape) = &mut shape {
        let indexes = cx.ints("ngram_indexes").unwrap_or_default();
        if let Some(index) = indexes.iter().find(|index| **index < 0) {
            return cx.fail(format_args!("ngram_indexes has the negative element {index}"));
        }
        let Some(last) = indexes.into_iter().max() else {
            return cx.fail("ngram_indexes has no elements");
        };
        let width = Dim::Known(last).add(&Dim::Known(1));
        match shape.len() {
            1 | 2 => *shape.last_mut().expect("it has an axis") = width,
            rank => return cx.fail(format_args!("the input must have rank 1 or 2, not {rank}")),
        }
    }
    cx.set_tensor(0, Some(Float), shape);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::testing::{check, ints, outputs};

    #[test]
    fn shapes_of_strings_are_kept() {
        // SHAPE-16, SHAPE-22
        let stopwords = || ("stopwords", AttrValue::Strings(vec![b"a"[..].into()]));
        check(
            &REGEX_FULL_MATCH,
            20,
            &[(&[], "string[2, N]", "bool[2, N]"), (&[], "-", "bool[...]")],
        );
        check(
            &STRING_CONCAT,
            20,
            &[
                (&[], "string[2, N]; string[2, 1]", "string[2, N]"),
                (&[], "-; string[2, 1]", "string[...]"),
                (
                    &[],
                    "string[2]; string[3]",
                    "StringConcat: sizes 2 and 3 of axis 0 do not broadcast",
                ),
            ],
        );
        check(
            &STRING_NORMALIZER,
            10,
            &[
                (&[], "string[N]", "string[N]"),
                (&[stopwords()], "string[N]", "string[?]"),
                (&[stopwords()], "string[?, 3]", "string[1, ?]"),
                (&[], "string[1, 3]", "string[1, 3]"),
                (&[], "-", "string[...]"),
                (
                    &[],
                    "string[2, 3]",
                    "StringNormalizer: the input must be a list, or one row of a matrix",
                ),
            ],
        );
        let rows = [
            ("string[2, N]", "string[2, N, ?]; int64[2, N]"),
            ("string", "string[?]; int64"),
            ("-", "string[...]; int64[...]"),
        ];
        for (input, expected) in rows {
            assert_eq!(outputs(&STRING_SPLIT, 20, &[], input, 2), expected);
        }
    }

    #[test]
    fn words_are_counted() {
        let indexes = |list| ("ngram_indexes", ints(list));
        check(
            &TF_IDF_VECTORIZER,
            9,
            &[
                (&[indexes(&[4, 1])], "int64[9]", "float[5]"),
                (&[indexes(&[0])], "string[N, 9]", "float[N, 1]"),
                (&[indexes(&[0])], "-", "float[...]"),
                (&[], "int64[9]", "TfIdfVectorizer: ngram_indexes has no elements"),
                (
                    &[indexes(&[0, -1])],
                    "int64[9]",
                    "TfIdfVectorizer: ngram_indexes has the negative element -1",
                ),
                (
                    &[indexes(&[0])],
                    "int64",
                    "TfIdfVectorizer: the input must have rank 1 or 2, not 0",
                ),
            ],
        );
    }
}
