use sardonyx_ops::AttrValue;
use sardonyx_tensor::Tensor;

use crate::ops::testing::{floats, ints, run, strings, tensor, texts};

type Attributes = Vec<(&'static str, AttrValue<'static>)>;

fn attribute(name: &'static str, tensor: Tensor) -> (&'static str, AttrValue<'static>) {
    (name, AttrValue::Tensor(tensor))
}

#[test]
fn labels_are_found() {
    const OP: &str = "ai.onnx.ml.LabelEncoder";
    let nan = f32::NAN;
    let rows: Vec<(Attributes, Tensor, Tensor)> = vec![
        (
            vec![texts("keys_strings", &["a", "b"]), ints("values_int64s", &[5, -6])],
            strings(&[2, 2], &["b", "c", "a", ""]),
            tensor(&[2, 2], &[-6i64, -1, 5, -1]),
        ),
        (
            vec![ints("keys_int64s", &[1, 2]), texts("values_strings", &["one", "two"])],
            tensor(&[3], &[2i64, 3, 1]),
            strings(&[3], &["two", "_Unused", "one"]),
        ),
        (
            vec![
                floats("keys_floats", &[nan, 0.0, 1.5]),
                floats("values_floats", &[1.0, 2.0, 3.0]),
                ("default_float", AttrValue::Float(9.0)),
            ],
            tensor(&[5], &[-nan, -0.0, 1.5, 1.25, f32::INFINITY]),
            tensor(&[5], &[1f32, 2.0, 3.0, 9.0, 9.0]),
        ),
        (
            vec![
                attribute("keys_tensor", tensor(&[2], &[f64::NAN, 0.1])),
                attribute("values_tensor", tensor(&[2], &[7i16, -8])),
                attribute("default_tensor", tensor(&[1], &[3i16])),
            ],
            tensor(&[3], &[0.1f64, 0.1f32.into(), f64::NAN]),
            tensor(&[3], &[-8i16, 3, 7]),
        ),
        (
            vec![
                attribute("keys_tensor", tensor(&[2], &[-3i16, 4])),
                attribute("values_tensor", tensor(&[2], &[0.5f64, 0.25])),
            ],
            tensor(&[0, 2], &[0i16; 0]),
            tensor(&[0, 2], &[0f64; 0]),
        ),
        (
            vec![
                attribute("keys_tensor", tensor(&[2], &[-3i32, 4])),
                attribute("values_tensor", tensor(&[2], &[5i32, 6])),
            ],
            tensor(&[], &[7i32]),
            tensor(&[], &[-1i32]),
        ),
        (
            vec![
                attribute("keys_tensor", strings(&[2], &["x", "y"])),
                attribute("values_tensor", strings(&[2], &["1", "2"])),
            ],
            strings(&[2], &["y", "z"]),
            strings(&[2], &["2", "_Unused"]),
        ),
    ];
    for (attributes, x, expected) in rows {
        let found = run(OP, &attributes, &[Some(&x)], 1).unwrap();
        assert!(found[0].bit_eq(&expected), "{attributes:?}: {:?}", found[0]);
    }
    let x = tensor(&[1], &[1i64]);
    let rows: [(Attributes, &str); 6] = [
        (
            vec![ints("values_int64s", &[1])],
            "the node has none of the attributes keys_tensor, keys_strings, keys_int64s, keys_floats",
        ),
        (
            vec![ints("keys_int64s", &[1]), floats("keys_floats", &[1.0])],
            "the node has both 'keys_int64s' and 'keys_floats'",
        ),
        (
            vec![ints("keys_int64s", &[1]), ints("values_int64s", &[1, 2])],
            "'keys_int64s' has 1 keys, but there are 2 values",
        ),
        (
            vec![floats("keys_floats", &[1.0]), ints("values_int64s", &[1])],
            "attribute 'keys_floats' has no keys for elements of type int64",
        ),
        (
            vec![
                ints("keys_int64s", &[1]),
                attribute("values_tensor", tensor(&[1], &[1i16])),
                attribute("default_tensor", tensor(&[1], &[1i32])),
            ],
            "attribute 'default_tensor' has 1 elements of type int32, but must have one of type int16",
        ),
        (
            vec![
                attribute("keys_tensor", tensor(&[1], &[1u8])),
                attribute("values_tensor", tensor(&[1], &[1i16])),
            ],
            "attribute 'keys_tensor' has type uint8, which is not supported for keys",
        ),
    ];
    for (attributes, refusal) in rows {
        let found = run(OP, &attributes, &[Some(&x)], 1);
        assert_eq!(found.unwrap_err(), refusal, "{attributes:?}");
    }
}

#[test]
fn categories_are_mapped_both_ways() {
    const OP: &str = "ai.onnx.ml.CategoryMapper";
    let lists = || vec![ints("cats_int64s", &[3, 1]), texts("cats_strings", &["c", "a"])];
    let (numbers, names) = (tensor(&[3], &[1i64, 2, 3]), strings(&[3], &["a", "b", "c"]));
    let found = run(OP, &lists(), &[Some(&names)], 1).unwrap();
    assert_eq!(found[0], tensor(&[3], &[1i64, -1, 3]));
    let found = run(OP, &lists(), &[Some(&numbers)], 1).unwrap();
    assert_eq!(found[0], strings(&[3], &["a", "_Unused", "c"]));
    let found = run(OP, &[ints("cats_int64s", &[3])], &[Some(&numbers)], 1);
    assert_eq!(
        found.unwrap_err(),
        "attribute 'cats_int64s' has 1 elements, but 'cats_strings' has 0"
    );
}
