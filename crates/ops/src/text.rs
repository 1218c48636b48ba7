//! Texts.

use sardonyx_tensor::DataType::{Bool, Float, Int32, Int64, String};

use crate::def::OpDef;
use crate::facts::{floats, input, int, ints, output, string, strings, types};
use crate::typeset::TypeSet;

pub(crate) static REGEX_FULL_MATCH: OpDef = OpDef::new("RegexFullMatch")
    .about("Whether a regular expression matches the whole of each text.")
    .since(
        20,
        &[
            input("X", "T1").non_differentiable(),
            output("Y", "T2").non_differentiable(),
            string("pattern"),
            types("T1", TypeSet::tensors(&[String])),
            types("T2", TypeSet::tensors(&[Bool])),
        ],
    );

pub(crate) static STRING_CONCAT: OpDef = OpDef::new("StringConcat")
    .about("Puts texts together, element by element, with broadcasting.")
    .since(
        20,
        &[
            input("X", "T").non_differentiable(),
            input("Y", "T").non_differentiable(),
            output("Z", "T").non_differentiable(),
            types("T", TypeSet::tensors(&[String])),
        ],
    );

pub(crate) static STRING_NORMALIZER: OpDef = OpDef::new("StringNormalizer")
    .about("Takes words out of a list of texts and brings letters to one case.")
    .since(
        10,
        &[
            input("X", "tensor(string)"),
            output("Y", "tensor(string)"),
            string("case_change_action").or_string("NONE"),
            int("is_case_sensitive").or(0),
            string("locale"),
            strings("stopwords"),
        ],
    );

pub(crate) static STRING_SPLIT: OpDef = OpDef::new("StringSplit")
    .about(
        "Splits each text at a delimiter, or at blanks; short rows are filled up with empty texts.",
    )
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
    );

pub(crate) static TF_IDF_VECTORIZER: OpDef = OpDef::new("TfIdfVectorizer")
    .about("Counts n-grams of a vocabulary, with gaps if wanted, and weights them.")
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
    );
