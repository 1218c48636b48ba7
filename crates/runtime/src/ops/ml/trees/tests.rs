use std::borrow::Cow;

use sardonyx_ops::AttrValue::{self, Int};
use sardonyx_tensor::{StringArray, Tensor};

use crate::ops::testing::{run_of, tensor};

type Attributes = Vec<(&'static str, AttrValue<'static>)>;

fn ints(values: &[i64]) -> AttrValue<'static> {
    AttrValue::from(values.to_vec())
}

fn words(words: &[&'static str]) -> AttrValue<'static> {
    AttrValue::Strings(words.iter().map(|word| Cow::Borrowed(word.as_bytes())).collect())
}

fn floats(values: &[f32]) -> AttrValue<'static> {
    AttrValue::Floats(values.to_vec().into())
}

/// Replaces attributes, or adds them.
fn replace(mut all: Attributes, changes: Attributes) -> Attributes {
    for (name, value) in changes {
        all.retain(|(other, _)| *other != name);
        all.push((name, value));
    }
    all
}

/// Makes two trees in the lists of the older forms: `x0 <= 0.5 ? 1 : x1 > 2 ? 2 : 3`, and a leaf.
fn older_trees() -> Attributes {
    vec![
        ("nodes_treeids", ints(&[0, 0, 0, 0, 0, 7])),
        ("nodes_nodeids", ints(&[0, 1, 2, 3, 4, 0])),
        ("nodes_modes", words(&["BRANCH_LEQ", "LEAF", "BRANCH_GT", "LEAF", "LEAF", "LEAF"])),
        ("nodes_values", floats(&[0.5, 0.0, 2.0, 0.0, 0.0, 0.0])),
        ("nodes_featureids", ints(&[0, 0, 1, 0, 0, 0])),
        ("nodes_truenodeids", ints(&[1, 0, 3, 0, 0, 0])),
        ("nodes_falsenodeids", ints(&[2, 0, 4, 0, 0, 0])),
        ("nodes_missing_value_tracks_true", ints(&[0, 0, 1, 0, 0, 0])),
    ]
}

fn regressor() -> Attributes {
    let weights = vec![
        ("n_targets", Int(2)),
        ("target_treeids", ints(&[0, 0, 0, 0, 7])),
        ("target_nodeids", ints(&[1, 3, 4, 4, 0])),
        ("target_ids", ints(&[0, 0, 1, 0, 1])),
        ("target_weights", floats(&[1.0, 2.0, 3.0, -3.0, 10.0])),
    ];
    replace(older_trees(), weights)
}

/// Makes a classifier with the weights 0.25, 0.75, -0.5 and 0.125, whose classes are `ids`.
fn classifier(ids: &[i64], labels: (&'static str, AttrValue<'static>)) -> Attributes {
    let weights = vec![
        ("class_treeids", ints(&[0, 0, 0, 7])),
        ("class_nodeids", ints(&[1, 3, 4, 0])),
        ("class_ids", ints(ids)),
        ("class_weights", floats(&[0.25, 0.75, -0.5, 0.125])),
        labels,
    ];
    replace(older_trees(), weights)
}

/// Makes rows that lead to the first, second and third leaf, and two with NaN.
fn rows() -> Tensor {
    let nan = f32::NAN;
    tensor(&[5, 2], &[0.5f32, 0.0, 0.75, 2.5, 1.0, 2.0, nan, 0.0, nan, nan])
}

#[test]
fn regressors() {
    let max = f32::MAX;
    // Columns: (changes, results).
    let table: [(Attributes, [f32; 10]); 6] = [
        (vec![], [1., 10., 2., 10., -3., 13., -3., 13., 2., 10.]),
        (
            vec![("base_values", floats(&[0.5, -1.0]))],
            [1.5, 9., 2.5, 9., -2.5, 12., -2.5, 12., 2.5, 9.],
        ),
        (
            vec![
                ("aggregate_function", AttrValue::from("AVERAGE")),
                ("base_values", floats(&[1.0; 2])),
            ],
            [1.5, 6., 2., 6., -0.5, 7.5, -0.5, 7.5, 2., 6.],
        ),
        (
            vec![("aggregate_function", AttrValue::from("MIN"))],
            [1., 10., 2., 10., -3., 3., -3., 3., 2., 10.],
        ),
        (
            vec![
                ("aggregate_function", AttrValue::from("MAX")),
                ("target_ids", ints(&[0, 0, 1, 0, 0])),
            ],
            [10., -max, 10., -max, 10., 3., 10., 3., 10., -max],
        ),
        (
            vec![
                ("post_transform", AttrValue::from("SOFTMAX")),
                ("target_weights", floats(&[0.0, 0.0, 0.0, 0.0, 0.0])),
            ],
            [0.5; 10],
        ),
    ];
    for (changes, expected) in table {
        for version in [1, 3] {
            let attributes = replace(regressor(), changes.clone());
            let form = ("ai.onnx.ml", "TreeEnsembleRegressor", version);
            let found = run_of(form, &attributes, &[Some(&rows())], &[], 1).unwrap();
            assert_eq!(found[0], tensor(&[5, 2], &expected), "{changes:?}");
        }
    }
    // 64-bit thresholds, and integers without rounding.
    let between = f64::from(0.1f32) - 1e-12;
    let wide = tensor(&[6], &[between, 0.0, 16_777_217.0, 0.0, 0.0, 0.0]);
    let mut attributes =
        replace(regressor(), vec![("nodes_values_as_tensor", AttrValue::Tensor(wide))]);
    attributes.retain(|(name, _)| *name != "nodes_values");
    for (x, expected) in [
        (tensor(&[1, 2], &[0.1f32, 0.0]), [-3.0f32, 13.0]),
        (tensor(&[1, 2], &[between, 0.0]), [1.0, 10.0]),
        (tensor(&[1, 2], &[1i32, 16_777_217]), [-3.0, 13.0]),
        (tensor(&[1, 2], &[1i64, 16_777_218]), [2.0, 10.0]),
    ] {
        let form = ("ai.onnx.ml", "TreeEnsembleRegressor", 3);
        let found = run_of(form, &attributes, &[Some(&x)], &[], 1).unwrap();
        assert_eq!(found[0], tensor(&[1, 2], &expected), "{x:?}");
    }
}

#[test]
fn classifiers() {
    let numbers = || ("classlabels_int64s", ints(&[5, -6]));
    let (three, one) =
        (("classlabels_int64s", ints(&[1, 2, 3])), ("classlabels_int64s", ints(&[1])));
    // Columns: (ids, labels, best classes, columns, scores of the first three rows).
    type TreeRow<'a> = (&'a [i64], (&'static str, AttrValue<'static>), [i64; 5], usize, &'a [f32]);
    let table: [TreeRow<'_>; 5] = [
        (&[0, 1, 1, 0], numbers(), [5, -6, 5, 5, -6], 2, &[0.375, 0., 0.125, 0.75, 0.125, -0.5]),
        (&[0; 4], numbers(), [-6, -6, 5, 5, -6], 2, &[-0.375, 0.375, -0.875, 0.875, 0.375, -0.375]),
        (&[1; 4], numbers(), [-6, -6, 5, 5, -6], 2, &[-0.375, 0.375, -0.875, 0.875, 0.375, -0.375]),
        (&[0; 4], one, [1, 1, 0, 0, 1], 1, &[0.375, 0.875, -0.375]),
        (
            &[2, 2, 0, 1],
            three,
            [3, 3, 2, 2, 3],
            3,
            &[0., 0.125, 0.25, 0., 0.125, 0.75, -0.5, 0.125, 0.],
        ),
    ];
    for (ids, labels, best, columns, scores) in table {
        let attributes = classifier(ids, labels);
        for version in [1, 3] {
            let form = ("ai.onnx.ml", "TreeEnsembleClassifier", version);
            let found = run_of(form, &attributes, &[Some(&rows())], &[], 2).unwrap();
            assert_eq!(found[0], tensor(&[5], &best), "{attributes:?}");
            assert_eq!(found[1].dims(), [5, columns], "{attributes:?}");
            assert_eq!(found[1].as_slice::<f32>().unwrap()[..scores.len()], *scores);
        }
    }
    let names = ("classlabels_strings", words(&["no", "yes"]));
    let form = ("ai.onnx.ml", "TreeEnsembleClassifier", 3);
    let x = [Some(&rows())];
    let found = run_of(form, &classifier(&[0; 4], names), &x.map(|x| x), &[], 2).unwrap();
    let expected: StringArray = ["yes", "yes", "no", "no", "yes"].iter().collect();
    assert_eq!(found[0], Tensor::from_strings([5], expected).unwrap());
}

#[test]
fn one_column_of_weights_for_two_classes() {
    let mixed = || ("class_weights", floats(&[0.25, 0.75, -0.5, 0.125]));
    let positive = || ("class_weights", floats(&[0.25, 0.75, 0.5, 0.125]));
    let base = |value| ("base_values", floats(&[value]));
    // Columns: (changes, best classes, scores of the first two rows).
    let table: [(Attributes, [i64; 5], [f32; 4]); 4] = [
        // Scores that cannot be negative are probabilities: the boundary is 1/2.
        (vec![positive()], [5, -6, -6, -6, -6], [0.625, 0.375, 0.125, 0.875]),
        (vec![positive(), base(0.25)], [-6; 5], [0.375, 0.625, -0.125, 1.125]),
        // Scores that can be negative are margins: the boundary is 0.
        (vec![mixed()], [-6, -6, 5, 5, -6], [-0.375, 0.375, -0.875, 0.875]),
        (vec![mixed(), base(-0.5)], [5, -6, 5, 5, -6], [0.125, -0.125, -0.375, 0.375]),
    ];
    for (changes, best, scores) in table {
        let labels = ("classlabels_int64s", ints(&[5, -6]));
        let attributes = replace(classifier(&[0; 4], labels), changes);
        let form = ("ai.onnx.ml", "TreeEnsembleClassifier", 3);
        let found = run_of(form, &attributes, &[Some(&rows())], &[], 2).unwrap();
        assert_eq!(found[0], tensor(&[5], &best), "{attributes:?}");
        assert_eq!(found[1].as_slice::<f32>().unwrap()[..4], scores, "{attributes:?}");
    }
}

/// Makes the trees of [`older_trees`] in the lists of version 5, but the second is `x1 in {2, -0.0}
/// ? 10 : 20`.
fn newest() -> Attributes {
    let members = tensor(&[3], &[2.0f32, -0.0, f32::NAN]);
    vec![
        ("n_targets", Int(2)),
        ("nodes_modes", AttrValue::Tensor(tensor(&[3], &[0u8, 3, 6]))),
        ("nodes_splits", AttrValue::Tensor(tensor(&[3], &[0.5f32, 2.0, 0.0]))),
        ("nodes_featureids", ints(&[0, 1, 1])),
        ("nodes_truenodeids", ints(&[0, 1, 3])),
        ("nodes_trueleafs", ints(&[1, 1, 1])),
        ("nodes_falsenodeids", ints(&[1, 2, 4])),
        ("nodes_falseleafs", ints(&[0, 1, 1])),
        ("nodes_missing_value_tracks_true", ints(&[0, 1, 0])),
        ("leaf_targetids", ints(&[0, 0, 1, 1, 1])),
        ("leaf_weights", AttrValue::Tensor(tensor(&[5], &[1.0f32, 2.0, 3.0, 10.0, 20.0]))),
        ("membership_values", AttrValue::Tensor(members)),
        ("tree_roots", ints(&[0, 2])),
    ]
}

#[test]
fn version_5() {
    let form = ("ai.onnx.ml", "TreeEnsemble", 5);
    let found = run_of(form, &newest(), &[Some(&rows())], &[], 1).unwrap();
    assert_eq!(found[0], tensor(&[5, 2], &[1f32, 10., 2., 20., 0., 13., 0., 13., 2., 20.]));
    // NaN is not equal to 2.
    let modes = AttrValue::Tensor(tensor(&[3], &[0u8, 5, 6]));
    let attributes = replace(
        newest(),
        vec![("nodes_modes", modes), ("nodes_missing_value_tracks_true", ints(&[0, 0, 1]))],
    );
    let found = run_of(form, &attributes, &[Some(&rows())], &[], 1).unwrap();
    assert_eq!(found[0], tensor(&[5, 2], &[1f32, 10., 2., 20., 0., 13., 2., 10., 2., 10.]));
    let none = tensor::<f32>(&[0, 2], &[]);
    let found = run_of(form, &newest(), &[Some(&none)], &[], 1).unwrap();
    assert_eq!(found[0].dims(), [0, 2]);
}

/// Operator, a change of its attributes, and the expected error.
type Refusal = (&'static str, (&'static str, AttrValue<'static>), &'static str);

#[track_caller]
fn check_refusals(table: Vec<Refusal>) {
    for (op, change, refusal) in table {
        let (attributes, version, outputs) = match op {
            "TreeEnsembleRegressor" => (regressor(), 3, 1),
            "TreeEnsembleClassifier" => {
                let labels = ("classlabels_int64s", ints(&[5, -6]));
                (classifier(&[0, 1, 0, 1], labels), 3, 2)
            }
            _ => (newest(), 5, 1),
        };
        let attributes = replace(attributes, vec![change]);
        let form = ("ai.onnx.ml", op, version);
        let found = run_of(form, &attributes, &[Some(&rows())], &[], outputs);
        assert_eq!(found.unwrap_err(), refusal, "{op}");
    }
}

#[test]
fn refused_lists() {
    let old = "TreeEnsembleRegressor";
    check_refusals(vec![
        (
            old,
            ("nodes_treeids", ints(&[0])),
            "attribute 'nodes_treeids' has 1 elements, but attribute 'nodes_modes' has 6",
        ),
        (
            old,
            ("nodes_values", floats(&[])),
            "attribute 'nodes_values' has 0 elements, but attribute 'nodes_modes' has 6",
        ),
        (old, ("nodes_modes", words(&[])), "attribute 'nodes_modes' is empty: there are no trees"),
        (
            old,
            ("nodes_modes", words(&["LEAF", "BRANCH"])),
            "attribute 'nodes_modes': element 1 is 'BRANCH', which is not a node mode",
        ),
        (
            old,
            ("nodes_nodeids", ints(&[0, 1, 2, 3, 3, 0])),
            "attribute 'nodes_nodeids': elements 3 and 4 are both node 3 of tree 0",
        ),
        (
            old,
            ("nodes_truenodeids", ints(&[9, 0, 3, 0, 0, 0])),
            "attribute 'nodes_truenodeids': element 0 is 9, but tree 0 has no such node",
        ),
        (
            old,
            ("nodes_falsenodeids", ints(&[2, 0, 3, 0, 0, 0])),
            "tree 0 has two roots: node 0 and node 4",
        ),
        (
            old,
            ("nodes_falsenodeids", ints(&[2, 0, 0, 0, 0, 0])),
            "node 0 of tree 0 cannot be reached from its root",
        ),
        (
            old,
            ("nodes_featureids", ints(&[-1, 0, 1, 0, 0, 0])),
            "attribute 'nodes_featureids': element 0 is -1, but there are 2147483647 columns at most",
        ),
        (
            old,
            ("nodes_featureids", ints(&[0, 0, 2, 0, 0, 0])),
            "attribute 'nodes_featureids' has column 2, but input 0 has 2 columns",
        ),
        (
            old,
            ("target_nodeids", ints(&[0, 3, 4, 4, 0])),
            "attribute 'target_nodeids': element 0 is node 0 of tree 0, which is not a leaf",
        ),
        (
            old,
            ("target_ids", ints(&[0, 0, 2, 0, 1])),
            "attribute 'target_ids': element 2 is 2, but there are 2 targets",
        ),
        (
            old,
            ("aggregate_function", AttrValue::from("MEAN")),
            "attribute 'aggregate_function' is 'MEAN', which is not one of AVERAGE, SUM, MIN, MAX",
        ),
    ]);
}

#[test]
fn refused_classes_and_version_5() {
    let (class, new) = ("TreeEnsembleClassifier", "TreeEnsemble");
    let splits = |values: &[f32]| AttrValue::Tensor(tensor(&[values.len()], values));
    check_refusals(vec![
        (
            class,
            ("classlabels_int64s", ints(&[])),
            "attributes 'classlabels_int64s' and 'classlabels_strings' are both empty",
        ),
        (
            class,
            ("classlabels_int64s", ints(&[3])),
            "the node has one class label; the label of the other class is defined only for the integer 1",
        ),
        (
            class,
            ("base_values", floats(&[1.0; 3])),
            "attribute 'base_values' has length 3, but there are 2 classes; give each a value",
        ),
        // ONNX Runtime refuses these as well.
        (
            class,
            ("base_values", floats(&[1.0])),
            "attribute 'base_values' has length 1, but there are 2 classes; give each a value",
        ),
        (
            "TreeEnsembleRegressor",
            ("base_values", floats(&[1.0])),
            "attribute 'base_values' has length 1, but there are 2 targets; give each a value",
        ),
        (
            new,
            ("nodes_splits", splits(&[1.0])),
            "attribute 'nodes_modes' has 3 elements, but attribute 'nodes_splits' has 1",
        ),
        (new, ("nodes_falseleafs", ints(&[0, 0, 1])), "node 2 has two parents"),
        (
            new,
            ("membership_values", splits(&[1.0])),
            "attribute 'membership_values' has 0 sets, but 1 nodes have mode 6",
        ),
        (
            new,
            ("tree_roots", ints(&[0, 3])),
            "attribute 'tree_roots': element 1 is 3, but there are 3 nodes",
        ),
    ]);
}
