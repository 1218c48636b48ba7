use sardonyx_ops::AttrValue;
use sardonyx_tensor::Tensor;

use super::super::tests::each_type;
use crate::ops::testing::{floats, ints, run, strings, tensor, text, texts};

type Attributes = Vec<(&'static str, AttrValue<'static>)>;

/// Operator, attributes, and the expected labels and scores of two rows: 1, 2 and -3, 0.
type ModelRow = (&'static str, Attributes, Option<Tensor>, Vec<f32>);

fn check(rows: Vec<ModelRow>) {
    for (op, attributes, labels, scores) in rows {
        for x in each_type(&[2, 2], &[1, 2, -3, 0]) {
            let outputs = if labels.is_some() { 2 } else { 1 };
            let op = format!("ai.onnx.ml.{op}");
            let found = run(&op, &attributes, &[Some(&x)], outputs).unwrap();
            if let Some(labels) = &labels {
                assert_eq!(found[0], *labels, "{op} {attributes:?}");
            }
            let dims = [2, scores.len() / 2];
            let last = &found[outputs - 1];
            assert_eq!(last.dims(), dims, "{op} {attributes:?}");
            // Class probabilities are iterated until they converge.
            for (found, expected) in last.to_vec::<f32>().unwrap().iter().zip(&scores) {
                assert!((found - expected).abs() < 2e-4, "{op} {attributes:?}: {last:?}");
            }
        }
    }
}

#[test]
fn linear_models() {
    let coefficients = || floats("coefficients", &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    let intercepts = || floats("intercepts", &[0.5, 0.0, -1.0]);
    let one = || floats("coefficients", &[1.0, 1.0]);
    let logistic = |x: f32| 1.0 / (1.0 + (-x).exp());
    let numbers = |list: &[i64]| Some(tensor(&[2], list));
    check(vec![
        (
            "LinearClassifier",
            vec![coefficients(), intercepts()],
            numbers(&[1, 1]),
            vec![1.5, 2.0, 2.0, -2.5, 0.0, -4.0],
        ),
        (
            "LinearClassifier",
            vec![coefficients(), ints("classlabels_ints", &[7, 8, 9])],
            numbers(&[9, 8]),
            vec![1.0, 2.0, 3.0, -3.0, 0.0, -3.0],
        ),
        (
            "LinearClassifier",
            vec![coefficients(), text("post_transform", "LOGISTIC")],
            numbers(&[2, 1]),
            [1.0, 2.0, 3.0, -3.0, 0.0, -3.0].map(logistic).to_vec(),
        ),
        (
            "LinearClassifier",
            vec![one(), texts("classlabels_strings", &["no", "yes"])],
            Some(strings(&[2], &["yes", "no"])),
            vec![-3.0, 3.0, 3.0, -3.0],
        ),
        (
            "LinearClassifier",
            vec![one(), ints("classlabels_ints", &[5]), text("post_transform", "LOGISTIC")],
            numbers(&[5, 0]),
            vec![logistic(3.0), logistic(-3.0)],
        ),
        (
            "LinearClassifier",
            vec![one(), texts("classlabels_strings", &["yes"])],
            Some(strings(&[2], &["yes", ""])),
            vec![3.0, -3.0],
        ),
        ("LinearClassifier", vec![one()], numbers(&[1, 0]), vec![3.0, -3.0]),
        (
            "LinearRegressor",
            vec![coefficients(), intercepts(), ("targets", 3i64.into())],
            None,
            vec![1.5, 2.0, 2.0, -2.5, 0.0, -4.0],
        ),
        (
            "LinearRegressor",
            vec![one(), text("post_transform", "LOGISTIC")],
            None,
            vec![logistic(3.0), logistic(-3.0)],
        ),
    ]);
}

#[test]
fn support_vectors() {
    let rbf = |distance: f32| (-0.5 * distance).exp();
    let one_vector = |kernel: &str, degree: f32| {
        vec![
            floats("coefficients", &[2.0]),
            floats("support_vectors", &[1.0, 1.0]),
            floats("kernel_params", &[0.5, 1.0, degree]),
            floats("rho", &[0.25]),
            ("n_supports", 1i64.into()),
            text("kernel_type", kernel),
        ]
    };
    let mut one_class = one_vector("LINEAR", 0.0);
    one_class.push(("one_class", 1i64.into()));
    let pair = || {
        vec![
            floats("coefficients", &[1.0, -1.0]),
            floats("support_vectors", &[1.0, 1.0, -1.0, 0.0]),
            floats("rho", &[0.5]),
            ints("vectors_per_class", &[1, 1]),
            ints("classlabels_ints", &[4, 6]),
        ]
    };
    let mut probable = pair();
    probable.extend([floats("prob_a", &[-1.0]), floats("prob_b", &[0.0])]);
    let logistic = |x: f32| 1.0 / (1.0 + (-x).exp());
    check(vec![
        ("SVMRegressor", one_vector("LINEAR", 0.0), None, vec![6.25, -5.75]),
        ("SVMRegressor", one_vector("POLY", 2.0), None, vec![12.75, 0.75]),
        (
            "SVMRegressor",
            one_vector("RBF", 0.0),
            None,
            vec![2.0 * rbf(1.0) + 0.25, 2.0 * rbf(17.0) + 0.25],
        ),
        (
            "SVMRegressor",
            one_vector("SIGMOID", 0.0),
            None,
            vec![2.0 * 2.5f32.tanh() + 0.25, -2.0 * 0.5f32.tanh() + 0.25],
        ),
        ("SVMRegressor", one_class, None, vec![1.0, -1.0]),
        (
            "SVMRegressor",
            vec![floats("coefficients", &[1.0, 3.0]), floats("rho", &[-1.0])],
            None,
            vec![6.0, -4.0],
        ),
        // Decisions: 3 + 1 + 0.5 and -3 - 3 + 0.5.
        ("SVMClassifier", pair(), Some(tensor(&[2], &[4i64, 6])), vec![-4.5, 4.5, 5.5, -5.5]),
        (
            "SVMClassifier",
            probable,
            Some(tensor(&[2], &[4i64, 6])),
            vec![logistic(4.5), logistic(-4.5), logistic(-5.5), logistic(5.5)],
        ),
        (
            "SVMClassifier",
            vec![
                floats("coefficients", &[1.0, 0.0, 0.0, -1.0, -1.0, 1.0]),
                floats("rho", &[0.0, 0.0, 0.0]),
                texts("classlabels_strings", &["a", "b", "c"]),
            ],
            Some(strings(&[2], &["a", "c"])),
            vec![1.0, -2.0, 1.0, -3.0, 0.0, 3.0],
        ),
        (
            "SVMClassifier",
            vec![floats("coefficients", &[1.0, 1.0]), floats("rho", &[0.5])],
            Some(tensor(&[2], &[1i64, 0])),
            vec![3.5, -2.5],
        ),
    ]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let x = tensor(&[1, 2], &[1f32, 2.0]);
    let two = || floats("coefficients", &[1.0, 1.0]);
    let rows: Vec<(&str, Attributes, &str)> = vec![
        ("LinearClassifier", vec![], "attribute 'coefficients' has no elements"),
        (
            "LinearClassifier",
            vec![two(), floats("intercepts", &[1.0, 2.0])],
            "attribute 'coefficients' has 2 elements, not 2 for each of 2 features",
        ),
        (
            "LinearClassifier",
            vec![two(), ints("classlabels_ints", &[1, 2, 3])],
            "the node has 3 class labels for 1 sums",
        ),
        (
            "LinearClassifier",
            vec![
                two(),
                ints("classlabels_ints", &[1, 2]),
                texts("classlabels_strings", &["a", "b"]),
            ],
            "the node has both 'classlabels_ints' and 'classlabels_strings'",
        ),
        (
            "LinearClassifier",
            vec![two(), text("post_transform", "TANH")],
            "attribute 'post_transform' is 'TANH', which is not one of NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO, PROBIT",
        ),
        (
            "LinearRegressor",
            vec![two(), ("targets", 0i64.into())],
            "attribute 'targets' is 0, but must be greater than 0",
        ),
        (
            "LinearRegressor",
            vec![two(), floats("intercepts", &[1.0, 2.0])],
            "attribute 'intercepts' has 2 elements for 1 targets",
        ),
        (
            "SVMRegressor",
            vec![two(), floats("rho", &[1.0]), ("n_supports", 3i64.into())],
            "attribute 'coefficients' has 2 elements, not 3",
        ),
        (
            "SVMRegressor",
            vec![
                floats("coefficients", &[1.0]),
                floats("rho", &[1.0]),
                ("n_supports", 1i64.into()),
                floats("support_vectors", &[1.0, 2.0, 3.0]),
            ],
            "attribute 'support_vectors' is for 3 features, but the input has 2",
        ),
        ("SVMRegressor", vec![two()], "attribute 'rho' has 0 elements, not 1"),
        (
            "SVMClassifier",
            vec![two(), ints("vectors_per_class", &[2])],
            "attribute 'vectors_per_class' has 1 element, but classes are compared in pairs",
        ),
        (
            "SVMClassifier",
            vec![two(), ints("vectors_per_class", &[1, 1])],
            "the node has 0 class labels, but attribute 'vectors_per_class' has 2 elements",
        ),
        (
            "SVMClassifier",
            vec![two(), ints("vectors_per_class", &[i64::MAX, i64::MAX, 2, 2])],
            "attribute 'vectors_per_class' has too many vectors",
        ),
        (
            "SVMClassifier",
            vec![two(), ints("vectors_per_class", &[-1])],
            "attribute 'vectors_per_class' has the invalid element -1",
        ),
        (
            "SVMClassifier",
            vec![
                two(),
                ints("vectors_per_class", &[1, 1]),
                ints("classlabels_ints", &[0, 1]),
                floats("rho", &[0.0]),
                floats("prob_a", &[0.0]),
            ],
            "attribute 'prob_b' has 0 elements, not 1",
        ),
    ];
    for (op, attributes, refusal) in rows {
        let found = run(&format!("ai.onnx.ml.{op}"), &attributes, &[Some(&x)], 1);
        assert_eq!(found.unwrap_err(), refusal, "{op} {attributes:?}");
    }
}
