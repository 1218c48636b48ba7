//! Tests of maps as inputs and outputs.

use sardonyx_model::NoExternalData;
use sardonyx_runtime::{Options, Session};
use sardonyx_tensor::{
    Buffer, DataType, Map, MapKey, Sequence, StringArray, Tensor, Value, ValueType,
};
use sardonyx_text::{ParseOptions, parse_model};

/// Runs a graph on an input `x`, and returns the only output or the error.
fn run(graph: &str, x: Value) -> Result<Value, String> {
    let text = format!("<ir_version: 10, opset_import: [\"\": 21, \"ai.onnx.ml\": 4]>\n{graph}");
    let buffer = Buffer::from_vec(text.into_bytes());
    let model = parse_model(buffer, ParseOptions::default()).unwrap().model;
    let session = Session::compile(&model, &NoExternalData, &Options::with_threads(1));
    let session = session.map_err(|error| error.to_string())?;
    let outputs = session.run(vec![("x".to_string(), x)]).map_err(|error| error.to_string())?;
    Ok(outputs.into_iter().next().unwrap().1)
}

fn strings(dims: &[usize], texts: &[&str]) -> Tensor {
    Tensor::from_strings(dims, texts.iter().collect::<StringArray>()).unwrap()
}

fn one_string(text: &str) -> Tensor {
    strings(&[], &[text])
}

fn map<const N: usize>(key: DataType, entries: [(MapKey, Tensor); N]) -> Value {
    let mut map = Map::new(key, ValueType::Tensor(entries[0].1.data_type())).unwrap();
    for (key, value) in entries {
        map.push(key, Value::Tensor(value)).unwrap();
    }
    Value::Map(map)
}

fn make_int_map<const N: usize>(entries: [(i64, Tensor); N]) -> Value {
    map(DataType::Int64, entries.map(|(key, value)| (MapKey::Signed(key), value)))
}

fn make_text_map<const N: usize>(entries: [(&str, Tensor); N]) -> Value {
    let entries = entries.map(|(text, value)| (MapKey::String(text.as_bytes().into()), value));
    map(DataType::String, entries)
}

#[test]
fn values_in_the_order_of_their_keys() {
    let floats = || make_int_map([(3, Tensor::scalar(2.5f32)), (0, Tensor::scalar(-1.0f32))]);
    let texts = || make_int_map([(3, one_string("7")), (0, one_string("-2"))]);
    let tensor = |dims: &[usize], list: &[f32]| Tensor::from_slice(dims, list).unwrap();
    let ints = |dims: &[usize], list: &[i64]| Tensor::from_slice(dims, list).unwrap();
    let sparse = "map_form = \"SPARSE\", max_map = 5";
    let rows = [
        ("float", String::new(), floats(), tensor(&[1, 2], &[-1.0, 2.5])),
        ("float", sparse.to_string(), floats(), tensor(&[1, 5], &[-1.0, 0.0, 0.0, 2.5, 0.0])),
        ("float", "cast_to = \"TO_INT64\"".to_string(), floats(), ints(&[1, 2], &[-1, 2])),
        ("string", String::new(), texts(), tensor(&[1, 2], &[-2.0, 7.0])),
        (
            "string",
            format!("cast_to = \"TO_INT64\", {sparse}"),
            texts(),
            ints(&[1, 5], &[-2, 0, 0, 7, 0]),
        ),
        (
            "string",
            format!("cast_to = \"TO_STRING\", {sparse}"),
            texts(),
            strings(&[1, 5], &["-2", "", "", "7", ""]),
        ),
    ];
    for (elem, attributes, x, expected) in rows {
        let attributes = if attributes.is_empty() { attributes } else { format!("<{attributes}>") };
        let graph = format!(
            "g (map(int64, {elem}) x) => (y) {{ y = ai.onnx.ml.CastMap {attributes} (x) }}"
        );
        assert_eq!(run(&graph, x).unwrap(), Value::Tensor(expected), "{graph}");
    }
    let refusals = [
        (
            "map_form = \"SPARSE\", max_map = 3",
            "the map has the key 3, but attribute 'max_map' allows 0 to 2",
        ),
        (
            "map_form = \"SPARSE\", max_map = 0",
            "attribute 'max_map' is 0, but must be greater than 0",
        ),
        (
            "map_form = \"FULL\"",
            "attribute 'map_form' is 'FULL', which is not one of DENSE, SPARSE",
        ),
        (
            "cast_to = \"TO_INT8\"",
            "attribute 'cast_to' is 'TO_INT8', which is not one of TO_FLOAT, TO_INT64, TO_STRING",
        ),
        ("map_form = \"SPARSE\", max_map = 9223372036854775807", ""),
        ("map_form = \"SPARSE\", max_map = 9223372036854775807, cast_to = \"TO_STRING\"", ""),
    ];
    for (attributes, refusal) in refusals {
        let graph = format!(
            "g (map(int64, float) x) => (y) {{ y = ai.onnx.ml.CastMap <{attributes}> (x) }}"
        );
        let found = run(&graph, floats()).unwrap_err();
        assert!(found.contains(refusal), "{attributes}: {found}");
    }
}

#[test]
fn values_at_the_places_of_a_vocabulary() {
    let doubles = [("b", Tensor::scalar(2.0f64)), ("x", Tensor::scalar(9.0f64))];
    let found = run(
        "g (map(string, double) x) => (y) {
            y = ai.onnx.ml.DictVectorizer <string_vocabulary = [\"a\", \"b\", \"c\"]> (x)
        }",
        make_text_map(doubles),
    );
    let expected = Tensor::from_slice([3], &[0.0f64, 2.0, 0.0]).unwrap();
    assert_eq!(found.unwrap(), Value::Tensor(expected));
    let graph = "g (map(int64, string) x) => (y) {
        y = ai.onnx.ml.DictVectorizer <int64_vocabulary = [5, 4]> (x)
    }";
    let found = run(graph, make_int_map([(4, one_string("four"))]));
    assert_eq!(found.unwrap(), Value::Tensor(strings(&[2], &["", "four"])));
    let graph = graph.replace("int64_vocabulary = [5, 4]", "string_vocabulary = [\"a\"]");
    let found = run(&graph, make_int_map([(4, one_string("four"))])).unwrap_err();
    let refusal =
        "attribute 'string_vocabulary' has keys of type string, but the map has keys of type int64";
    assert!(found.contains(refusal), "{found}");
}

/// Checks the rank of the output: 1 in the standard, 2 in ONNX Runtime, so models made for it
/// declare a row.
#[test]
fn values_of_a_vocabulary_are_a_row_where_the_model_says_so() {
    let doubles = || make_text_map([("b", Tensor::scalar(2.0f64))]);
    let rows: [(&str, &[usize]); 5] = [
        ("double[2] y", &[2]),
        ("double[] y", &[2]),
        ("double[N] y", &[2]),
        ("double[1, 2] y", &[1, 2]),
        ("double[N, C] y", &[1, 2]),
    ];
    for (output, dims) in rows {
        for nodes in ["y = V (x)", "v = V (x) y = Identity (v)", "v = V (x) y = Neg (v)"] {
            let operator = "ai.onnx.ml.DictVectorizer <string_vocabulary = [\"a\", \"b\"]>";
            let nodes = nodes.replace('V', operator);
            let sign = if nodes.contains("Neg") { -1.0 } else { 1.0 };
            let inner = if nodes.contains("v =") {
                format!("<{}>", output.replace('y', "v"))
            } else {
                String::new()
            };
            let graph = format!("g (map(string, double) x) => ({output}) {inner} {{ {nodes} }}");
            let expected = Tensor::from_slice(dims, &[0.0f64 * sign, 2.0 * sign]).unwrap();
            assert_eq!(run(&graph, doubles()).unwrap(), Value::Tensor(expected), "{graph}");
        }
    }
}

#[test]
fn scores_by_class() {
    let x = Tensor::from_slice([2, 2], &[1.0f32, 2.0, 3.0, 4.0]).unwrap();
    let graph = |labels: &str, key: &str| {
        format!(
            "g (float[n, 2] x) => (seq(map({key}, float)) z) {{
                z = ai.onnx.ml.ZipMap <{labels}> (x)
            }}"
        )
    };
    let float = |number: f32| Tensor::scalar(number);
    let rows = [
        (
            graph("classlabels_int64s = [7, 8]", "int64"),
            [
                make_int_map([(7, float(1.0)), (8, float(2.0))]),
                make_int_map([(7, float(3.0)), (8, float(4.0))]),
            ],
        ),
        (
            graph("classlabels_strings = [\"a\", \"b\"]", "string"),
            [
                make_text_map([("a", float(1.0)), ("b", float(2.0))]),
                make_text_map([("a", float(3.0)), ("b", float(4.0))]),
            ],
        ),
    ];
    for (graph, maps) in rows {
        let mut expected = Sequence::new(maps[0].value_type());
        maps.into_iter().for_each(|map| expected.push(map).unwrap());
        let found = run(&graph, Value::Tensor(x.clone())).unwrap();
        assert_eq!(found, Value::Sequence(expected), "{graph}");
    }
    for (labels, refusal) in [
        (
            "classlabels_int64s = [7]",
            "attribute 'classlabels_int64s' has 1 elements, but a row has 2 scores",
        ),
        ("classlabels_int64s = [7, 7]", "attribute 'classlabels_int64s' has Signed(7) twice"),
    ] {
        let found = run(&graph(labels, "int64"), Value::Tensor(x.clone())).unwrap_err();
        assert!(found.contains(refusal), "{found}");
    }
}
