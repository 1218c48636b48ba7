//! Maps and vocabularies.

use sardonyx_tensor::DataType::{Double, Float, Int16, Int32, Int64, String};

use crate::def::OpDef;
use crate::facts::{
    float, floats, input, int, ints, output, string, strings, tensor, types, without_attribute,
};
use crate::typeset::TypeSet;

pub(crate) static CAST_MAP: OpDef = OpDef::new("CastMap")
    .about("The values of a map in the order of its keys, as a tensor; if the keys are positions, with zeros between \
         them.").domain("ai.onnx.ml").since(
    1,
    &[
        input("X", "T1"),
        output("Y", "T2"),
        string("cast_to").or_string("TO_FLOAT"),
        string("map_form").or_string("DENSE"),
        int("max_map").or(1),
        types(
            "T1",
            TypeSet::spelled(&["map(int64, float)", "map(int64, string)"]),
        ),
        types("T2", TypeSet::tensors(&[Float, Int64, String])),
    ],
);

pub(crate) static CATEGORY_MAPPER: OpDef = OpDef::new("CategoryMapper")
    .about("From texts to integers and back, by two lists of the same length.")
    .domain("ai.onnx.ml")
    .since(
        1,
        &[
            input("X", "T1"),
            output("Y", "T2"),
            ints("cats_int64s"),
            strings("cats_strings"),
            int("default_int64").or(-1),
            string("default_string").or_string("_Unused"),
            types("T1", TypeSet::tensors(&[Int64, String])),
            types("T2", TypeSet::tensors(&[Int64, String])),
        ],
    );

pub(crate) static DICT_VECTORIZER: OpDef = OpDef::new("DictVectorizer")
    .about("The values of a map at the places that a vocabulary gives its keys.")
    .domain("ai.onnx.ml")
    .since(
        1,
        &[
            input("X", "T1"),
            output("Y", "T2"),
            ints("int64_vocabulary"),
            strings("string_vocabulary"),
            types(
                "T1",
                TypeSet::spelled(&[
                    "map(int64, double)",
                    "map(int64, float)",
                    "map(int64, string)",
                    "map(string, double)",
                    "map(string, float)",
                    "map(string, int64)",
                ]),
            ),
            types("T2", TypeSet::tensors(&[Float, Double, Int64, String])),
        ],
    );

pub(crate) static LABEL_ENCODER: OpDef = OpDef::new("LabelEncoder")
    .about("Replaces each element by the value that belongs to it as a key, or by a default.")
    .domain("ai.onnx.ml")
    .since(
        1,
        &[
            input("X", "T1"),
            output("Y", "T2"),
            strings("classes_strings"),
            int("default_int64").or(-1),
            string("default_string").or_string("_Unused"),
            types("T1", TypeSet::tensors(&[Int64, String])),
            types("T2", TypeSet::tensors(&[Int64, String])),
        ],
    )
    .since(
        2,
        &[
            without_attribute("classes_strings"),
            float("default_float").or_float(-0.0),
            floats("keys_floats"),
            ints("keys_int64s"),
            strings("keys_strings"),
            floats("values_floats"),
            ints("values_int64s"),
            strings("values_strings"),
            types("T1", TypeSet::tensors(&[Float, Int64, String])),
            types("T2", TypeSet::tensors(&[Float, Int64, String])),
        ],
    )
    .since(
        4,
        &[
            tensor("default_tensor"),
            tensor("keys_tensor"),
            tensor("values_tensor"),
            types(
                "T1",
                TypeSet::tensors(&[Float, Double, Int16, Int32, Int64, String]),
            ),
            types(
                "T2",
                TypeSet::tensors(&[Float, Double, Int16, Int32, Int64, String]),
            ),
        ],
    );

pub(crate) static ZIP_MAP: OpDef = OpDef::new("ZipMap")
    .about("A map from class to score for each row.")
    .domain("ai.onnx.ml")
    .since(
        1,
        &[
            input("X", "tensor(float)"),
            output("Z", "T"),
            ints("classlabels_int64s"),
            strings("classlabels_strings"),
            types(
                "T",
                TypeSet::spelled(&["seq(map(int64, float))", "seq(map(string, float))"]),
            ),
        ],
    );
