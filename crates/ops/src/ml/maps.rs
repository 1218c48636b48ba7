//! Maps and categories: `CastMap`, `CategoryMapper`, `DictVectorizer`, `LabelEncoder`, `ZipMap`.

use std::borrow::Cow;

use sardonyx_model::{Dim, Type};
use sardonyx_tensor::DataType::{Double, Float, Int16, Int32, Int64, String};
use sardonyx_tensor::{DataType, Tensor};

use crate::adapt::{Adapt, Refusal};
use crate::attributes::{AttrValue, Attributes};
use crate::def::OpDef;
use crate::facts::{
    float, floats, input, int, ints, output, string, strings, tensor, types, without_attribute,
};
use crate::infer::{Infer, InferError};
use crate::ml::{list_attribute, list_len};
use crate::typeset::TypeSet;

pub(crate) static CAST_MAP: OpDef = OpDef::new("CastMap")
    .about(
        "Converts a map with integer keys to a tensor of its values. `DENSE` gives the values in \
         ascending order of their keys. `SPARSE` uses the keys as indices into an output of length \
         `max_map`, which is 0 elsewhere.",
    )
    .domain("ai.onnx.ml")
    .since(
        1,
        &[
            input("X", "T1"),
            output("Y", "T2"),
            string("cast_to").or_word("TO_FLOAT"),
            string("map_form").or_word("DENSE"),
            int("max_map").or(1),
            types("T1", TypeSet::spelled(&["map(int64, float)", "map(int64, string)"])),
            types("T2", TypeSet::tensors(&[Float, Int64, String])),
        ],
    )
    .infer(infer_from_map);

pub(crate) static CATEGORY_MAPPER: OpDef = OpDef::new("CategoryMapper")
    .about("Maps strings to integers, or integers to strings, by two lists of equal length.")
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
    )
    .infer(infer_categories);

pub(crate) static DICT_VECTORIZER: OpDef = OpDef::new("DictVectorizer")
    .about(
        "Converts a map to a tensor: each value is placed at the index of its key in the \
         vocabulary. Keys of the vocabulary that are not in the map give 0.",
    )
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
    )
    .infer(infer_vector);

pub(crate) static LABEL_ENCODER: OpDef = OpDef::new("LabelEncoder")
    .about(
        "Maps each element by a table of keys and values, with a default for elements that are not \
         a key. Version 1 maps between strings and integers by `classes_strings`. Version 4 adds \
         tables as tensors.",
    )
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
            types("T1", TypeSet::tensors(&[Float, Double, Int16, Int32, Int64, String])),
            types("T2", TypeSet::tensors(&[Float, Double, Int16, Int32, Int64, String])),
        ],
    )
    .same_up()
    .infer(infer_class_labels)
    .infer_since(2, infer_labels)
    .adapter(4, 3, move_tensors_to_lists)
    .adapter(2, 1, write_classes)
    .adapter(1, 2, write_keys_and_values);

pub(crate) static ZIP_MAP: OpDef = OpDef::new("ZipMap")
    .about("Converts each row of scores to a map from class label to score.")
    .domain("ai.onnx.ml")
    .since(
        1,
        &[
            input("X", "tensor(float)"),
            output("Z", "T"),
            ints("classlabels_int64s"),
            strings("classlabels_strings"),
            types("T", TypeSet::spelled(&["seq(map(int64, float))", "seq(map(string, float))"])),
        ],
    )
    .infer(infer_maps);

fn infer_from_map(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let elem = match cx.string("cast_to").as_deref() {
        None | Some("TO_FLOAT") => Some(Float),
        Some("TO_INT64") => Some(Int64),
        Some("TO_STRING") => Some(String),
        Some(_) => None,
    };
    cx.set_tensor(0, elem, None);
    Ok(())
}

/// Returns the type that categories map to: strings become integers, and integers strings.
fn map_type(elem: Option<DataType>) -> Option<DataType> {
    match elem? {
        String => Some(Int64),
        Int64 => Some(String),
        _ => None,
    }
}

fn infer_categories(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let lists = ["cats_int64s", "cats_strings"];
    if let Some(missing) = lists.iter().find(|name| cx.attribute(name).is_none()) {
        return cx.fail(format_args!("attribute '{missing}' is missing"));
    }
    let [numbers, texts] = lists.map(|name| list_len(cx, name));
    if numbers != texts {
        return cx.fail(format_args!(
            "cats_int64s has {numbers} elements, but cats_strings has {texts}"
        ));
    }
    infer_class_labels(cx)
}

/// Turns classes of the first version, which count from 0, into keys and values. The input type
/// determines the direction.
fn write_keys_and_values(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let classes: Vec<Cow<'static, [u8]>> = match cx.attribute("classes_strings") {
        Some(AttrValue::Strings(classes)) => {
            classes.into_iter().map(|class| Cow::Owned(class.into_owned())).collect()
        }
        _ => Vec::new(),
    };
    let numbers: Vec<i64> = (0i64..).take(classes.len()).collect();
    let (keys, values) = match cx.input_type(0).and_then(Type::elem) {
        Some(Int64) => ("keys_int64s", "values_strings"),
        Some(String) => {
            let mut sorted = classes.clone();
            sorted.sort_unstable();
            if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
                return Err(cx.refuse("a class occurs twice, so its index is ambiguous"));
            }
            ("keys_strings", "values_int64s")
        }
        Some(other) => return Err(cx.refuse(format_args!("version 1 does not support {other}"))),
        None => return Err(cx.refuse("the type of its input is unknown")),
    };
    cx.remove("classes_strings");
    for name in [keys, values] {
        if name.ends_with("int64s") {
            cx.set(name, numbers.clone());
        } else {
            cx.set(name, AttrValue::Strings(classes.clone()));
        }
    }
    Ok(())
}

/// Moves tensors to lists: versions before 4 have lists of three types, and a default for each
/// type.
fn move_tensors_to_lists(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    for (name, lists) in [
        ("keys_tensor", ["keys_floats", "keys_int64s", "keys_strings"]),
        ("values_tensor", ["values_floats", "values_int64s", "values_strings"]),
        ("default_tensor", ["default_float", "default_int64", "default_string"]),
    ] {
        if !cx.has(name) {
            continue;
        }
        let Some(AttrValue::Tensor(tensor)) = cx.attribute(name) else {
            return Err(cx.refuse(format_args!("{name} cannot be read")));
        };
        let is_default = name == "default_tensor";
        if tensor.rank() != 1 || is_default && tensor.len() != 1 {
            return Err(
                cx.refuse(format_args!("{name} must have one axis to be a list in that version"))
            );
        }
        let (list, value) = match to_list(&tensor) {
            Some((place, value)) => (lists[place], value),
            None => {
                return Err(cx.refuse(format_args!(
                    "{name} must have type float, int64 or string in that version, not {}",
                    tensor.data_type()
                )));
            }
        };
        if cx.has(list) {
            return Err(cx.refuse(format_args!("it has both {name} and {list}")));
        }
        cx.remove(name);
        cx.set(list, if is_default { to_scalar(value) } else { value });
    }
    Ok(())
}

/// Returns the elements of a tensor as a list, and the index of its type among the types of lists.
fn to_list(tensor: &Tensor) -> Option<(usize, AttrValue<'static>)> {
    match tensor.data_type() {
        Float => Some((0, AttrValue::Floats(tensor.to_vec::<f32>().ok()?.into()))),
        Int64 => Some((1, AttrValue::from(tensor.to_vec::<i64>().ok()?))),
        String => {
            let texts = tensor.strings()?.iter().map(|text| Cow::Owned(text.to_vec()));
            Some((2, AttrValue::Strings(texts.collect())))
        }
        _ => None,
    }
}

/// Returns the only element of a list.
fn to_scalar(list: AttrValue<'static>) -> AttrValue<'static> {
    match list {
        AttrValue::Floats(values) => AttrValue::Float(values[0]),
        AttrValue::Ints(values) => AttrValue::Int(values[0]),
        AttrValue::Strings(mut values) => AttrValue::String(values.swap_remove(0)),
        other => other,
    }
}

/// Turns keys and values into classes: version 1 maps classes to their positions in a list, or
/// back.
fn write_classes(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let strings = |name: &str| match cx.attribute(name) {
        Some(AttrValue::Strings(all)) => {
            Some(all.into_iter().map(|text| Cow::Owned(text.into_owned())).collect::<Vec<_>>())
        }
        _ => None,
    };
    let (keys, values) = (strings("keys_strings"), strings("values_strings"));
    let positions = cx.ints("keys_int64s").or(cx.ints("values_int64s")).unwrap_or_default();
    let classes = match (keys, values) {
        (Some(classes), None) | (None, Some(classes)) => classes,
        _ => return Err(cx.refuse("version 1 maps strings to integers, or integers to strings")),
    };
    if positions.len() != classes.len() || !positions.iter().copied().eq(0..classes.len() as i64) {
        return Err(cx.refuse("version 1 maps classes to 0, 1, 2 and so on, in this order"));
    }
    for name in ["keys_strings", "values_strings", "keys_int64s", "values_int64s"] {
        cx.remove(name);
    }
    // The node has no map with floats that the default could belong to.
    cx.remove("default_float");
    let classes: Vec<Cow<'static, [u8]>> = classes;
    cx.set("classes_strings", AttrValue::Strings(classes));
    Ok(())
}

fn infer_class_labels(cx: &mut Infer<'_>) -> Result<(), InferError> {
    cx.set_tensor(0, map_type(cx.elem(0)), cx.shape(0).cloned());
    Ok(())
}

/// Infers a vector of the values of the map, whose shape the standard leaves open.
fn infer_vector(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let elem = match cx.input(0) {
        Some(Type::Map(_, value)) => value.elem(),
        _ => None,
    };
    cx.set_tensor(0, elem, None);
    Ok(())
}

fn infer_labels(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let keys = find_list(cx, ["keys_tensor", "keys_strings", "keys_int64s", "keys_floats"])?;
    if let (Some((key, _)), Some(elem)) = (keys, cx.elem(0))
        && key != elem
    {
        return cx.fail(format_args!(
            "the keys have type {}, but the input has type {}",
            key.name(),
            elem.name()
        ));
    }
    let values =
        find_list(cx, ["values_tensor", "values_strings", "values_int64s", "values_floats"])?;
    if let (Some((_, keys)), Some((_, values))) = (keys, values)
        && keys != values
    {
        return cx.fail(format_args!("there are {keys} keys, but {values} values"));
    }
    if let Some(AttrValue::Tensor(default)) = cx.attribute("default_tensor") {
        check_default(cx, &default, values.map(|(elem, _)| elem))?;
    }
    cx.set_tensor(0, values.map(|(elem, _)| elem), cx.shape(0).cloned());
    Ok(())
}

fn check_default(
    cx: &Infer<'_>,
    default: &Tensor,
    values: Option<DataType>,
) -> Result<(), InferError> {
    let elem = default.data_type();
    match (default.dims(), values) {
        ([1], Some(values)) if values != elem => cx.fail(format_args!(
            "the default has type {}, but the values have type {}",
            elem.name(),
            values.name()
        )),
        ([1], _) => Ok(()),
        (dims, _) => cx.fail(format_args!("default_tensor must have shape [1], not {dims:?}")),
    }
}

/// Returns the only list that the node has of the named ones; `None` if it cannot be read.
fn find_list(cx: &Infer<'_>, names: [&str; 4]) -> Result<Option<(DataType, usize)>, InferError> {
    let given: Vec<&str> = names.into_iter().filter(|name| cx.attribute(name).is_some()).collect();
    match given[..] {
        [name] => list_attribute(cx, name),
        [] => cx.fail(format_args!("one of these attributes is required: {}", names.join(", "))),
        [..] => cx.fail(format_args!("only one is allowed of {}", names.join(", "))),
    }
}

fn infer_maps(cx: &mut Infer<'_>) -> Result<(), InferError> {
    if let Some(rank) = cx.rank(0).filter(|rank| ![1, 2].contains(rank)) {
        return cx.fail(format_args!("the input must have rank 1 or 2, not {rank}"));
    }
    let is_given = |name: &str| list_len(cx, name) > 0;
    let key = match (is_given("classlabels_int64s"), is_given("classlabels_strings")) {
        (true, _) => Int64,
        (false, true) => String,
        (false, false) => return Ok(()),
    };
    let value = Type::tensor(Float, [] as [Dim; 0]);
    cx.set(0, Type::Sequence(Box::new(Type::Map(key, Box::new(value)))));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::testing::{check, ints, word};

    fn texts(name: &'static str, count: usize) -> (&'static str, AttrValue<'static>) {
        (name, AttrValue::Strings(vec![b"a"[..].into(); count]))
    }

    #[test]
    fn maps() {
        // SHAPE-16, SHAPE-22
        check(
            &CAST_MAP,
            1,
            &[
                (&[], "map(int64, float)", "float[...]"),
                (&[("cast_to", word("TO_INT64"))], "-", "int64[...]"),
                (&[("cast_to", word("TO_STRING"))], "-", "string[...]"),
            ],
        );
        check(
            &DICT_VECTORIZER,
            1,
            &[(&[], "map(int64, double)", "double[...]"), (&[], "-", "?[...]")],
        );
        check(
            &ZIP_MAP,
            1,
            &[
                (&[texts("classlabels_strings", 2)], "float[N, 2]", "seq(map(string, float))"),
                (&[("classlabels_int64s", ints(&[0, 1]))], "-", "seq(map(int64, float))"),
                (&[], "float[N, 2]", "-"),
                (&[], "float[N, 2, 1]", "ZipMap: the input must have rank 1 or 2, not 3"),
            ],
        );
    }

    #[test]
    fn categories_have_names() {
        let numbers = || ("cats_int64s", ints(&[1, 2]));
        let names = |count| texts("cats_strings", count);
        check(
            &CATEGORY_MAPPER,
            1,
            &[
                (&[numbers(), names(2)], "string[2, N]", "int64[2, N]"),
                (&[numbers(), names(2)], "int64[2, N]", "string[2, N]"),
                (&[numbers(), names(2)], "-", "?[...]"),
                (
                    &[numbers(), names(3)],
                    "-",
                    "CategoryMapper: cats_int64s has 2 elements, but cats_strings has 3",
                ),
                (&[numbers()], "-", "CategoryMapper: attribute 'cats_strings' is missing"),
            ],
        );
    }

    #[test]
    fn labels_are_replaced() {
        let tensor = |name, dims: &[usize]| {
            let values = vec![0i64; dims.iter().product()];
            let tensor = Tensor::from_vec(dims, values).expect("the sizes fit");
            (name, AttrValue::Tensor(tensor))
        };
        let keys = || texts("keys_strings", 2);
        let values = || ("values_int64s", ints(&[1, 2]));
        check(
            &LABEL_ENCODER,
            4,
            &[
                (&[keys(), values()], "string[2, N]", "int64[2, N]"),
                (&[keys(), tensor("values_tensor", &[2])], "-", "int64[...]"),
                (&[keys(), values(), tensor("default_tensor", &[1])], "string", "int64"),
                (
                    &[keys(), values(), tensor("default_tensor", &[1, 1])],
                    "string",
                    "LabelEncoder: default_tensor must have shape [1], not [1, 1]",
                ),
                (
                    &[keys(), texts("values_strings", 2), tensor("default_tensor", &[1])],
                    "string",
                    "LabelEncoder: the default has type int64, but the values have type string",
                ),
                (
                    &[keys(), values()],
                    "int64",
                    "LabelEncoder: the keys have type string, but the input has type int64",
                ),
                (
                    &[texts("keys_strings", 3), values()],
                    "-",
                    "LabelEncoder: there are 3 keys, but 2 values",
                ),
                (
                    &[keys()],
                    "-",
                    "LabelEncoder: one of these attributes is required: values_tensor, \
                     values_strings, values_int64s, values_floats",
                ),
                (
                    &[keys(), tensor("keys_tensor", &[2]), values()],
                    "-",
                    "LabelEncoder: only one is allowed of keys_tensor, keys_strings, keys_int64s, keys_floats",
                ),
                (
                    &[tensor("keys_tensor", &[2, 1]), values()],
                    "-",
                    "LabelEncoder: keys_tensor must have rank 1, not 2",
                ),
            ],
        );
        check(&LABEL_ENCODER, 1, &[(&[], "int64[2, N]", "string[2, N]")]);
    }

    #[test]
    fn tensors_become_lists() {
        use crate::math::testing::lower_version;
        fn tensor<T: sardonyx_tensor::Element>(
            name: &'static str,
            values: Vec<T>,
        ) -> (&'static str, AttrValue<'static>) {
            (name, AttrValue::Tensor(Tensor::from_vec([values.len()], values).expect("a vector")))
        }
        let rows = [
            (
                vec![
                    tensor("keys_tensor", vec![1i64, 2]),
                    tensor("values_tensor", vec![0.5f32, 2.0]),
                ],
                "y = LabelEncoder(a) keys_int64s=[1, 2] values_floats=[0.5, 2.0]",
            ),
            (vec![tensor("default_tensor", vec![-2i64])], "y = LabelEncoder(a) default_int64=-2"),
            (
                vec![tensor("values_tensor", vec![1i16])],
                "LabelEncoder: values_tensor must have type float, int64 or string in that version, not int16",
            ),
            (
                vec![tensor("default_tensor", vec![1i64]), ("default_int64", AttrValue::Int(3))],
                "LabelEncoder: it has both default_tensor and default_int64",
            ),
        ];
        for (attributes, expected) in rows {
            assert_eq!(lower_version(&LABEL_ENCODER, 4, &attributes, "-"), expected);
        }
        let texts: sardonyx_tensor::StringArray = ["b", "a"].iter().map(|x| x.as_bytes()).collect();
        let texts = AttrValue::Tensor(Tensor::from_strings([2], texts).expect("a vector"));
        assert_eq!(
            lower_version(&LABEL_ENCODER, 4, &[("keys_tensor", texts)], "-"),
            r#"y = LabelEncoder(a) keys_strings=["b", "a"]"#
        );
    }

    #[test]
    fn classes_become_keys_or_values() {
        use crate::math::testing::raise_version;
        let classes = |names: &[&'static str]| {
            let names = names.iter().map(|name| name.as_bytes().into());
            [("classes_strings", AttrValue::Strings(names.collect()))]
        };
        assert_eq!(
            raise_version(&LABEL_ENCODER, 1, &classes(&["a", "b"]), "int64[2]"),
            r#"y = LabelEncoder(a) keys_int64s=[0, 1] values_strings=["a", "b"]"#
        );
        assert_eq!(
            raise_version(&LABEL_ENCODER, 1, &classes(&["a", "b"]), "string[2]"),
            r#"y = LabelEncoder(a) keys_strings=["a", "b"] values_int64s=[0, 1]"#
        );
        assert_eq!(
            raise_version(&LABEL_ENCODER, 1, &classes(&["a", "a"]), "string[2]"),
            "LabelEncoder: a class occurs twice, so its index is ambiguous"
        );
        assert_eq!(
            raise_version(&LABEL_ENCODER, 1, &classes(&["a"]), "-"),
            "LabelEncoder: the type of its input is unknown"
        );
    }
}
