//! Preprocessing of features: `ArrayFeatureExtractor`, `Binarizer`, `FeatureVectorizer`, `Imputer`,
//! `Normalizer`, `OneHotEncoder`, `Scaler`.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType::{Double, Float, Int32, Int64, String};

use crate::def::OpDef;
use crate::facts::{float, floats, input, inputs, int, ints, output, string, strings, types};
use crate::infer::{Infer, InferError};
use crate::ml::list_len;
use crate::rules::{demand_rank_from, same_as_first};
use crate::tensor::product;
use crate::typeset::TypeSet;

pub(crate) static ARRAY_FEATURE_EXTRACTOR: OpDef = OpDef::new("ArrayFeatureExtractor")
    .about("Selects elements of the last axis by index.")
    .domain("ai.onnx.ml")
    .since(
        1,
        &[
            input("X", "T"),
            input("Y", "tensor(int64)"),
            output("Z", "T"),
            types("T", TypeSet::tensors(&[Float, Double, Int32, Int64, String])),
        ],
    )
    .infer(infer_extracted);

pub(crate) static BINARIZER: OpDef = OpDef::new("Binarizer")
    .about("Maps each element to 1 if it is greater than `threshold`, else to 0.")
    .domain("ai.onnx.ml")
    .since(
        1,
        &[
            input("X", "T"),
            output("Y", "T"),
            float("threshold").or_float(0.0),
            types("T", TypeSet::tensors(&[Float, Double, Int32, Int64])),
        ],
    )
    .infer(same_as_first);

pub(crate) static FEATURE_VECTORIZER: OpDef = OpDef::new("FeatureVectorizer")
    .about(
        "Concatenates feature tensors along the second axis, as floats. A 1-D input is treated as \
         one row.",
    )
    .domain("ai.onnx.ml")
    .since(
        1,
        &[
            inputs("X", "T1"),
            output("Y", "tensor(float)"),
            ints("inputdimensions"),
            types("T1", TypeSet::tensors(&[Float, Double, Int32, Int64])),
        ],
    )
    .infer(infer_joined)
    .without_reference_rule(&[1]);

pub(crate) static IMPUTER: OpDef = OpDef::new("Imputer")
    .about(
        "Replaces missing values. Elements equal to the value that marks a missing one are \
         replaced, by one value or by one for each feature. The mark may be NaN.",
    )
    .domain("ai.onnx.ml")
    .since(
        1,
        &[
            input("X", "T"),
            output("Y", "T"),
            floats("imputed_value_floats"),
            ints("imputed_value_int64s"),
            float("replaced_value_float").or_float(0.0),
            int("replaced_value_int64").or(0),
            types("T", TypeSet::tensors(&[Float, Double, Int32, Int64])),
        ],
    )
    .infer(same_as_first)
    .without_reference_rule(&[1]);

pub(crate) static NORMALIZER: OpDef = OpDef::new("Normalizer")
    .about("Normalizes each row by its maximum, L1 norm or L2 norm.")
    .domain("ai.onnx.ml")
    .since(
        1,
        &[
            input("X", "T"),
            output("Y", "tensor(float)"),
            string("norm").or_word("MAX"),
            types("T", TypeSet::tensors(&[Float, Double, Int32, Int64])),
        ],
    )
    .infer(infer_floats)
    .differs(|cx| {
        cx.string("norm").filter(|norm| norm == "MAX")?;
        Some(
            "a row with negative values is divided by its largest magnitude; ONNX Runtime divides \
             it by its largest value"
                .to_string(),
        )
    })
    .without_reference_rule(&[1]);

pub(crate) static ONE_HOT_ENCODER: OpDef = OpDef::new("OneHotEncoder")
    .about(
        "One-hot encoding of categories: appends an axis with 1 at the index of the category and 0 \
         elsewhere.",
    )
    .domain("ai.onnx.ml")
    .since(
        1,
        &[
            input("X", "T"),
            output("Y", "tensor(float)"),
            ints("cats_int64s"),
            strings("cats_strings"),
            int("zeros").or(1),
            types("T", TypeSet::tensors(&[Float, Double, Int32, Int64, String])),
        ],
    )
    .infer(infer_encoded);

pub(crate) static SCALER: OpDef = OpDef::new("Scaler")
    .about("Standardizes features: `Y = (X - offset) * scale`.")
    .domain("ai.onnx.ml")
    .since(
        1,
        &[
            input("X", "T"),
            output("Y", "tensor(float)"),
            floats("offset"),
            floats("scale"),
            types("T", TypeSet::tensors(&[Float, Double, Int32, Int64])),
        ],
    )
    .infer(infer_floats)
    .without_reference_rule(&[1]);

fn infer_floats(cx: &mut Infer<'_>) -> Result<(), InferError> {
    cx.set_tensor(0, Some(Float), cx.shape(0).cloned());
    Ok(())
}

/// Infers a selection along the last axis.
fn infer_extracted(cx: &mut Infer<'_>) -> Result<(), InferError> {
    demand_rank_from(cx, 0, 1)?;
    let count = match cx.shape(1).map(|shape| &shape[..]) {
        // The standard leaves open whether a single index keeps the axis.
        None | Some([]) => Dim::Unknown,
        Some(sizes) => product(sizes),
    };
    // It also leaves the result for a vector open.
    let shape = cx.shape(0).filter(|shape| shape.len() > 1).map(|shape| {
        let kept = shape[..shape.len() - 1].iter().cloned();
        kept.chain([count]).collect()
    });
    cx.set_tensor(0, cx.elem(0), shape);
    Ok(())
}

fn infer_joined(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let (mut rows, mut columns) = (Dim::Unknown, Dim::Known(0));
    for index in 0..cx.input_count() {
        match cx.shape(index).map(|shape| &shape[..]) {
            Some([count]) => columns = columns.add(count),
            Some([row, count]) => {
                let what = format_args!("the rows of input {index} and of others");
                rows = cx.same_dim(&rows, row, what)?;
                columns = columns.add(count);
            }
            None => columns = Dim::Unknown,
            Some(shape) => {
                return cx.fail(format_args!(
                    "input {index} must have rank 1 or 2, not {}",
                    shape.len()
                ));
            }
        }
    }
    if let Some(lengths) = cx.ints("inputdimensions").filter(|lengths| !lengths.is_empty()) {
        let lengths = lengths.into_iter().map(Dim::Known);
        columns = lengths.fold(Dim::Known(0), |sum, length| sum.add(&length));
    }
    cx.set_tensor(0, Some(Float), Some(Shape::from_iter([rows, columns])));
    Ok(())
}

fn infer_encoded(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let lists =
        ["cats_int64s", "cats_strings"].map(|name| cx.attribute(name).map(|_| list_len(cx, name)));
    let categories = match lists {
        [Some(count), None] | [None, Some(count)] => count,
        _ => return cx.fail("one of the attributes cats_int64s and cats_strings is required"),
    };
    let shape = cx.shape(0).map(|shape| {
        let mut shape = shape.clone();
        shape.push(categories.into());
        shape
    });
    cx.set_tensor(0, Some(Float), shape);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::AttrValue;
    use crate::tensor::testing::{check, ints};

    #[test]
    fn features_keep_their_places() {
        // SHAPE-16, SHAPE-22
        check(&BINARIZER, 1, &[(&[], "int64[2, N]", "int64[2, N]")]);
        check(&IMPUTER, 1, &[(&[], "float[2, N]", "float[2, N]")]);
        for def in [&NORMALIZER, &SCALER] {
            let rows = [(&[][..], "int64[2, N]", "float[2, N]"), (&[], "-", "float[...]")];
            check(def, 1, &rows);
        }
        let ints_given = || ("cats_int64s", ints(&[1, 2, 3]));
        let strings = || ("cats_strings", AttrValue::Strings(vec![b"a"[..].into()]));
        let refusal =
            "OneHotEncoder: one of the attributes cats_int64s and cats_strings is required";
        check(
            &ONE_HOT_ENCODER,
            1,
            &[
                (&[ints_given()], "int64[2, N]", "float[2, N, 3]"),
                (&[strings()], "string[N]", "float[N, 1]"),
                (&[ints_given()], "-", "float[...]"),
                (&[], "int64[2, N]", refusal),
                (&[ints_given(), strings()], "int64[2, N]", refusal),
            ],
        );
    }

    #[test]
    fn features_are_picked_and_joined() {
        check(
            &ARRAY_FEATURE_EXTRACTOR,
            1,
            &[
                (&[], "float[3, 4, 5]; int64[N]", "float[3, 4, N]"),
                (&[], "float[3, 5]; int64[1, 2]", "float[3, 2]"),
                (&[], "float[3, 5]; int64", "float[3, ?]"),
                (&[], "float[5]; int64[2]", "float[...]"),
                (
                    &[],
                    "float; int64[2]",
                    "ArrayFeatureExtractor: input 0 must have rank 1 or more, not 0",
                ),
            ],
        );
        check(
            &FEATURE_VECTORIZER,
            1,
            &[
                (&[], "float[N, 2]; int64[N, 3]", "float[N, 5]"),
                (&[("inputdimensions", ints(&[2, 3]))], "-; -", "float[?, 5]"),
                (&[], "float[N, 2]; -", "float[N, ?]"),
                (
                    &[],
                    "float[2, 2]; float[3, 2]",
                    "FeatureVectorizer: the rows of input 1 and of others differ (2 and 3)",
                ),
                (&[], "float[2, 2, 2]", "FeatureVectorizer: input 0 must have rank 1 or 2, not 3"),
            ],
        );
    }
}
