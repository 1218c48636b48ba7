use sardonyx_ops::AttrValue;

use super::super::tests::each_type;
use crate::ops::testing::{floats, ints, run, strings, tensor, text, texts};

type Attributes = Vec<(&'static str, AttrValue<'static>)>;

/// Operator, attributes, and the expected result for the rows 3, -4, 0 and 1, 2, 2.
type FeatureRow = (&'static str, Attributes, [f32; 6]);

#[test]
fn rows_of_features() {
    let rows: [FeatureRow; 6] = [
        (
            "Scaler",
            vec![floats("offset", &[1.0]), floats("scale", &[2.0, 0.5, 1.0])],
            [4.0, -2.5, -1.0, 0.0, 0.5, 1.0],
        ),
        ("Scaler", vec![floats("scale", &[2.0])], [6.0, -8.0, 0.0, 2.0, 4.0, 4.0]),
        ("Scaler", vec![floats("offset", &[1.0, 2.0, 3.0])], [2.0, -6.0, -3.0, 0.0, 0.0, -1.0]),
        ("Normalizer", vec![], [0.75, -1.0, 0.0, 0.5, 1.0, 1.0]),
        ("Normalizer", vec![text("norm", "L1")], [3.0 / 7.0, -4.0 / 7.0, 0.0, 0.2, 0.4, 0.4]),
        ("Normalizer", vec![text("norm", "L2")], [0.6, -0.8, 0.0, 1.0 / 3.0, 2.0 / 3.0, 2.0 / 3.0]),
    ];
    for (op, attributes, expected) in rows {
        for x in each_type(&[2, 3], &[3, -4, 0, 1, 2, 2]) {
            let op = format!("ai.onnx.ml.{op}");
            let found = run(&op, &attributes, &[Some(&x)], 1).unwrap();
            assert_eq!(found[0], tensor(&[2, 3], &expected), "{op} {attributes:?}");
            let row = x.view().slice(0, 0, 1, 1).unwrap().to_tensor().unwrap();
            let row = row.reshape([3]).unwrap();
            let found = run(&op, &attributes, &[Some(&row)], 1).unwrap();
            assert_eq!(found[0], tensor(&[3], &expected[..3]), "{op} of a vector");
        }
    }
}

#[test]
fn elements_above_a_threshold_and_missing_ones() {
    let x = || each_type(&[2, 2], &[0, 1, 2, 1]);
    let binarized = each_type(&[2, 2], &[0, 0, 1, 0]);
    let filled = each_type(&[2, 2], &[0, 7, 2, 7]);
    let by_feature = each_type(&[2, 2], &[0, 8, 2, 8]);
    for at in 0..4 {
        let x = &x()[at];
        let ones = |attributes: &[_]| {
            run("ai.onnx.ml.Imputer", attributes, &[Some(x)], 1).unwrap().remove(0)
        };
        let threshold = [("threshold", AttrValue::Float(1.5))];
        let found = run("ai.onnx.ml.Binarizer", &threshold, &[Some(x)], 1).unwrap();
        assert_eq!(found[0], binarized[at]);
        let found =
            ones(&[ints("imputed_value_int64s", &[7]), ("replaced_value_int64", 1i64.into())]);
        assert_eq!(found, filled[at]);
        let found = ones(&[
            floats("imputed_value_floats", &[7.0, 8.0]),
            ("replaced_value_float", AttrValue::Float(1.0)),
        ]);
        assert_eq!(found, by_feature[at]);
        let nothing = ("replaced_value_float", AttrValue::Float(f32::NAN));
        assert_eq!(ones(&[floats("imputed_value_floats", &[7.0]), nothing]), *x);
    }
    let x = tensor(&[3], &[f64::NAN, 1.0, 0.0]);
    let nan = ("replaced_value_float", AttrValue::Float(f32::NAN));
    let attributes = [floats("imputed_value_floats", &[5.0]), nan];
    let found = run("ai.onnx.ml.Imputer", &attributes, &[Some(&x)], 1).unwrap();
    assert_eq!(found[0], tensor(&[3], &[5.0f64, 1.0, 0.0]));
    let far = i64::MAX;
    let attributes = [ints("imputed_value_int64s", &[far]), ("replaced_value_int64", far.into())];
    let found = run("ai.onnx.ml.Imputer", &attributes, &[Some(&tensor(&[2], &[far - 1, far]))], 1);
    assert_eq!(found.unwrap()[0], tensor(&[2], &[far - 1, far]));
}

#[test]
fn categories_become_axes() {
    let expected = tensor(&[2, 2, 2], &[0.0f32, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0]);
    let numbers = ints("cats_int64s", &[4, -1]);
    for x in each_type(&[2, 2], &[-1, 0, 4, -1]) {
        let found = run("ai.onnx.ml.OneHotEncoder", std::slice::from_ref(&numbers), &[Some(&x)], 1);
        assert_eq!(found.unwrap()[0], expected);
    }
    let x = strings(&[2, 2], &["b", "", "a", "b"]);
    let names = texts("cats_strings", &["a", "b"]);
    let found = run("ai.onnx.ml.OneHotEncoder", &[names], &[Some(&x)], 1);
    assert_eq!(found.unwrap()[0], expected);
}

#[test]
fn columns_are_taken_and_joined() {
    let x = tensor(&[2, 3], &[1i64, 2, 3, 4, 5, 6]);
    let op = "ai.onnx.ml.ArrayFeatureExtractor";
    let rows: [(&[i64], &[usize], &[i64]); 3] = [
        (&[2, 0], &[2, 2], &[3, 1, 6, 4]),
        (&[-1, 1, 1], &[2, 3], &[3, 2, 2, 6, 5, 5]),
        (&[], &[2, 0], &[]),
    ];
    for (columns, dims, expected) in rows {
        let inputs = [Some(&x), Some(&tensor(&[columns.len()], columns))];
        assert_eq!(run(op, &[], &inputs, 1).unwrap()[0], tensor(dims, expected));
    }
    let vector = strings(&[3], &["a", "b", "c"]);
    let found = run(op, &[], &[Some(&vector), Some(&tensor(&[1, 2], &[2i64, 0]))], 1);
    assert_eq!(found.unwrap()[0], strings(&[1, 2], &["c", "a"]));

    let op = "ai.onnx.ml.FeatureVectorizer";
    let inputs = each_type(&[2, 2], &[1, 2, 3, 4]).into_iter().zip(each_type(&[2, 1], &[5, 6]));
    for (a, b) in inputs {
        let joined = run(op, &[], &[Some(&a), Some(&b)], 1).unwrap();
        assert_eq!(joined[0], tensor(&[2, 3], &[1.0f32, 2.0, 5.0, 3.0, 4.0, 6.0]));
        let cut = [ints("inputdimensions", &[1, 2])];
        let joined = run(op, &cut, &[Some(&a), Some(&b)], 1).unwrap();
        assert_eq!(joined[0], tensor(&[2, 3], &[1.0f32, 5.0, 0.0, 3.0, 6.0, 0.0]));
    }
    // A vector is one row.
    let [a, b] = [tensor(&[2], &[1.0f32, 2.0]), tensor(&[1, 1], &[3.0f32])];
    let found = run(op, &[], &[Some(&a), Some(&b)], 1).unwrap();
    assert_eq!(found[0], tensor(&[1, 3], &[1.0f32, 2.0, 3.0]));
}

#[test]
fn what_does_not_fit_is_refused() {
    let x = tensor(&[2, 3], &[1i32, 2, 3, 4, 5, 6]);
    let rows: [(&str, Attributes, &str); 15] = [
        (
            "Scaler",
            vec![floats("offset", &[1.0, 2.0])],
            "attribute 'offset' has 2 elements for 3 features: 1 or as many are allowed",
        ),
        (
            "Normalizer",
            vec![text("norm", "L3")],
            "attribute 'norm' is 'L3', which is not one of MAX, L1, L2",
        ),
        (
            "Imputer",
            vec![],
            "one of the attributes 'imputed_value_floats' and 'imputed_value_int64s' is required",
        ),
        (
            "Imputer",
            vec![floats("imputed_value_floats", &[1.0]), ints("imputed_value_int64s", &[1])],
            "the node has both 'imputed_value_floats' and 'imputed_value_int64s'",
        ),
        (
            "Imputer",
            vec![ints("imputed_value_int64s", &[1, 2])],
            "attribute 'imputed_value_int64s' has 2 elements for 3 features: 1 or as many are allowed",
        ),
        (
            "Imputer",
            vec![ints("imputed_value_int64s", &[1 << 40])],
            "attribute 'imputed_value_int64s' has an element out of range of int32",
        ),
        (
            "Imputer",
            vec![floats("imputed_value_floats", &[0.5])],
            "attribute 'imputed_value_floats' has an element out of range of int32",
        ),
        (
            "OneHotEncoder",
            vec![],
            "one of the attributes 'cats_int64s' and 'cats_strings' is required",
        ),
        (
            "OneHotEncoder",
            vec![ints("cats_int64s", &[1]), texts("cats_strings", &["a"])],
            "the node has both 'cats_int64s' and 'cats_strings'",
        ),
        (
            "OneHotEncoder",
            vec![texts("cats_strings", &["a"])],
            "attribute 'cats_strings' has no keys for elements of type int32",
        ),
        (
            "OneHotEncoder",
            vec![ints("cats_int64s", &[1, 2, 3, 5, 6]), ("zeros", 0i64.into())],
            "element 3, 4, is not a category, and attribute 'zeros' is 0",
        ),
        (
            "OneHotEncoder",
            vec![floats("cats_int64s", &[1.0])],
            "attribute 'cats_int64s' is not a list of integers",
        ),
        (
            "FeatureVectorizer",
            vec![ints("inputdimensions", &[1, 2])],
            "attribute 'inputdimensions' has 2 elements for 1 inputs",
        ),
        (
            "FeatureVectorizer",
            vec![ints("inputdimensions", &[-1])],
            "attribute 'inputdimensions' has the invalid element -1",
        ),
        (
            "Scaler",
            vec![floats("scale", &[0.0; 4])],
            "attribute 'scale' has 4 elements for 3 features: 1 or as many are allowed",
        ),
    ];
    for (op, attributes, refusal) in rows {
        let found = run(&format!("ai.onnx.ml.{op}"), &attributes, &[Some(&x)], 1);
        assert_eq!(found.unwrap_err(), refusal, "{op}");
    }
    let column = tensor(&[1], &[3i64]);
    let found = run("ai.onnx.ml.ArrayFeatureExtractor", &[], &[Some(&x), Some(&column)], 1);
    assert_eq!(found.unwrap_err(), "axis 1: index 3 is outside of a dimension of size 3");
    let other = tensor(&[1, 3], &[1i32, 2, 3]);
    let found = run("ai.onnx.ml.FeatureVectorizer", &[], &[Some(&x), Some(&other)], 1);
    assert_eq!(found.unwrap_err(), "input 1 has 1 rows, but input 0 has 2");
    let cube = tensor(&[1, 1, 1], &[1f32]);
    let found = run("ai.onnx.ml.Normalizer", &[], &[Some(&cube)], 1);
    assert_eq!(found.unwrap_err(), "the input must have rank 1 or 2, not 3");
}
