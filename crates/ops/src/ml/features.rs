//! From columns of data to features.

use sardonyx_tensor::DataType::{Double, Float, Int32, Int64, String};

use crate::def::OpDef;
use crate::facts::{float, floats, input, inputs, int, ints, output, string, strings, types};
use crate::typeset::TypeSet;

pub(crate) static ARRAY_FEATURE_EXTRACTOR: OpDef = OpDef::new("ArrayFeatureExtractor")
    .about("Takes some columns of the last axis.")
    .domain("ai.onnx.ml")
    .since(
        1,
        &[
            input("X", "T"),
            input("Y", "tensor(int64)"),
            output("Z", "T"),
            types(
                "T",
                TypeSet::tensors(&[Float, Double, Int32, Int64, String]),
            ),
        ],
    );

pub(crate) static BINARIZER: OpDef = OpDef::new("Binarizer")
    .about("1 above a threshold, 0 elsewhere.")
    .domain("ai.onnx.ml")
    .since(
        1,
        &[
            input("X", "T"),
            output("Y", "T"),
            float("threshold").or_float(0.0),
            types("T", TypeSet::tensors(&[Float, Double, Int32, Int64])),
        ],
    );

pub(crate) static FEATURE_VECTORIZER: OpDef = OpDef::new("FeatureVectorizer")
    .about("Joins features of given lengths into one row.")
    .domain("ai.onnx.ml")
    .since(
        1,
        &[
            inputs("X", "T1"),
            output("Y", "tensor(float)"),
            ints("inputdimensions"),
            types("T1", TypeSet::tensors(&[Float, Double, Int32, Int64])),
        ],
    );

pub(crate) static IMPUTER: OpDef = OpDef::new("Imputer")
    .about("Puts other values in the place of one that stands for a missing one.")
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
    );

pub(crate) static NORMALIZER: OpDef = OpDef::new("Normalizer")
    .about("Divides rows by their largest element, 1-norm or 2-norm.")
    .domain("ai.onnx.ml")
    .since(
        1,
        &[
            input("X", "T"),
            output("Y", "tensor(float)"),
            string("norm").or_string("MAX"),
            types("T", TypeSet::tensors(&[Float, Double, Int32, Int64])),
        ],
    );

pub(crate) static ONE_HOT_ENCODER: OpDef = OpDef::new("OneHotEncoder")
    .about("A new axis with 1 at the place of the category and 0 everywhere else.")
    .domain("ai.onnx.ml")
    .since(
        1,
        &[
            input("X", "T"),
            output("Y", "tensor(float)"),
            ints("cats_int64s"),
            strings("cats_strings"),
            int("zeros").or(1),
            types(
                "T",
                TypeSet::tensors(&[Float, Double, Int32, Int64, String]),
            ),
        ],
    );

pub(crate) static SCALER: OpDef = OpDef::new("Scaler")
    .about("Subtracts an offset and multiplies by a scale, feature by feature.")
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
    );
