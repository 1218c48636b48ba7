//! Trained models in one node: linear models, support vector machines and ensembles of trees.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType;
use sardonyx_tensor::DataType::{Double, Float, Int32, Int64, String};

use crate::attributes::AttrValue;
use crate::cost::Counted;
use crate::def::OpDef;
use crate::facts::{
    FLOATS, deprecated, floats, input, int, ints, output, string, strings, tensor, types,
};
use crate::infer::{Infer, InferError};
use crate::ml::trees;
use crate::ml::{classes, count_attribute, examples, list_attribute, list_len};
use crate::typeset::TypeSet;

pub(crate) static LINEAR_CLASSIFIER: OpDef = OpDef::new("LinearClassifier")
    .about(
        "Linear classifier: scores each class by a weighted sum of the features plus an intercept. \
         Returns the label with the highest score and the scores after `post_transform`.",
    )
    .domain("ai.onnx.ml")
    .since(
        1,
        &[
            input("X", "T1"),
            output("Y", "T2"),
            output("Z", "tensor(float)"),
            ints("classlabels_ints"),
            strings("classlabels_strings"),
            floats("coefficients").required(),
            floats("intercepts"),
            int("multi_class").or(0),
            string("post_transform").or_word("NONE"),
            types("T1", TypeSet::tensors(&[Float, Double, Int32, Int64])),
            types("T2", TypeSet::tensors(&[Int64, String])),
        ],
    )
    .infer(linear_classifier)
    .cost(count_linear);

pub(crate) static LINEAR_REGRESSOR: OpDef = OpDef::new("LinearRegressor")
    .about("Linear regression: weighted sums of the features plus intercepts.")
    .domain("ai.onnx.ml")
    .since(
        1,
        &[
            input("X", "T"),
            output("Y", "tensor(float)"),
            floats("coefficients"),
            floats("intercepts"),
            string("post_transform").or_word("NONE"),
            int("targets").or(1),
            types("T", TypeSet::tensors(&[Float, Double, Int32, Int64])),
        ],
    )
    .infer(linear_regressor)
    .cost(count_linear)
    .without_reference_rule(&[1]);

pub(crate) static SVM_CLASSIFIER: OpDef = OpDef::new("SVMClassifier")
    .about(
        "Support vector machine (SVM) classifier. Returns the label of each sample and the scores, \
         or probabilities if `prob_a` and `prob_b` are given. Without support vectors it is a \
         linear classifier.",
    )
    .domain("ai.onnx.ml")
    .since(
        1,
        &[
            input("X", "T1"),
            output("Y", "T2"),
            output("Z", "tensor(float)"),
            ints("classlabels_ints"),
            strings("classlabels_strings"),
            floats("coefficients"),
            floats("kernel_params"),
            string("kernel_type").or_word("LINEAR"),
            string("post_transform").or_word("NONE"),
            floats("prob_a"),
            floats("prob_b"),
            floats("rho"),
            floats("support_vectors"),
            ints("vectors_per_class"),
            types("T1", TypeSet::tensors(&[Float, Double, Int32, Int64])),
            types("T2", TypeSet::tensors(&[Int64, String])),
        ],
    )
    .infer(svm_classifier)
    .unknown_cost();

pub(crate) static SVM_REGRESSOR: OpDef = OpDef::new("SVMRegressor")
    .about("Support vector machine (SVM) regression, or one-class detection of outliers.")
    .domain("ai.onnx.ml")
    .since(
        1,
        &[
            input("X", "T"),
            output("Y", "tensor(float)"),
            floats("coefficients"),
            floats("kernel_params"),
            string("kernel_type").or_word("LINEAR"),
            int("n_supports").or(0),
            int("one_class").or(0),
            string("post_transform").or_word("NONE"),
            floats("rho"),
            floats("support_vectors"),
            types("T", TypeSet::tensors(&[Float, Double, Int32, Int64])),
        ],
    )
    .infer(svm_regressor)
    .unknown_cost()
    .without_reference_rule(&[1]);

pub(crate) static TREE_ENSEMBLE: OpDef = OpDef::new("TreeEnsemble")
    .about(
        "Ensemble of decision trees, such as a random forest or gradient boosting. Each tree leads \
         a sample from its root to a leaf. The weights of the leaves are combined for each target \
         by `aggregate_function`. Replaces `TreeEnsembleClassifier` and `TreeEnsembleRegressor`.",
    )
    .domain("ai.onnx.ml")
    .since(
        5,
        &[
            input("X", "T"),
            output("Y", "T"),
            int("aggregate_function").or(1),
            ints("leaf_targetids").required(),
            tensor("leaf_weights").required(),
            tensor("membership_values"),
            int("n_targets"),
            ints("nodes_falseleafs").required(),
            ints("nodes_falsenodeids").required(),
            ints("nodes_featureids").required(),
            tensor("nodes_hitrates"),
            ints("nodes_missing_value_tracks_true"),
            tensor("nodes_modes").required(),
            tensor("nodes_splits").required(),
            ints("nodes_trueleafs").required(),
            ints("nodes_truenodeids").required(),
            int("post_transform").or(0),
            ints("tree_roots").required(),
            types("T", FLOATS),
        ],
    )
    .infer(tree_ensemble);

pub(crate) static TREE_ENSEMBLE_CLASSIFIER: OpDef = OpDef::new("TreeEnsembleClassifier")
    .about("Ensemble of decision trees for classification. Sums the class weights of the leaves that a \
         sample reaches. Returns the label with the highest score and the scores. Deprecated since \
         version 5: use `TreeEnsemble`.")
    .domain("ai.onnx.ml")
    .since(
        1,
        &[
            input("X", "T1"),
            output("Y", "T2"),
            output("Z", "tensor(float)"),
            floats("base_values"),
            ints("class_ids"),
            ints("class_nodeids"),
            ints("class_treeids"),
            floats("class_weights"),
            ints("classlabels_int64s"),
            strings("classlabels_strings"),
            ints("nodes_falsenodeids"),
            ints("nodes_featureids"),
            floats("nodes_hitrates"),
            ints("nodes_missing_value_tracks_true"),
            strings("nodes_modes"),
            ints("nodes_nodeids"),
            ints("nodes_treeids"),
            ints("nodes_truenodeids"),
            floats("nodes_values"),
            string("post_transform").or_word("NONE"),
            types("T1", TypeSet::tensors(&[Float, Double, Int32, Int64])),
            types("T2", TypeSet::tensors(&[Int64, String])),
        ],
    )
    .since(
        3,
        &[
            tensor("base_values_as_tensor"),
            tensor("class_weights_as_tensor"),
            tensor("nodes_hitrates_as_tensor"),
            tensor("nodes_values_as_tensor"),
        ],
    )
    .same_up()
    .since(5, &[deprecated()])
    .adapter(3, 2, |cx| trees::move_tensors_to_lists(cx, "class_weights"))
    .adapter(4, 5, trees::convert_classifier)
    .never_down("the operator is deprecated in version 5")
    .infer(tree_classifier)
    .infer_as_reference(tree_classifier_as_reference)
    .without_reference_rule(&[5]);

pub(crate) static TREE_ENSEMBLE_REGRESSOR: OpDef = OpDef::new("TreeEnsembleRegressor")
    .about(
        "Ensemble of decision trees for regression. Combines the target weights of the leaves that \
         a sample reaches by `aggregate_function`. Deprecated since version 5: use `TreeEnsemble`.",
    )
    .domain("ai.onnx.ml")
    .since(
        1,
        &[
            input("X", "T"),
            output("Y", "tensor(float)"),
            string("aggregate_function").or_word("SUM"),
            floats("base_values"),
            int("n_targets"),
            ints("nodes_falsenodeids"),
            ints("nodes_featureids"),
            floats("nodes_hitrates"),
            ints("nodes_missing_value_tracks_true"),
            strings("nodes_modes"),
            ints("nodes_nodeids"),
            ints("nodes_treeids"),
            ints("nodes_truenodeids"),
            floats("nodes_values"),
            string("post_transform").or_word("NONE"),
            ints("target_ids"),
            ints("target_nodeids"),
            ints("target_treeids"),
            floats("target_weights"),
            types("T", TypeSet::tensors(&[Float, Double, Int32, Int64])),
        ],
    )
    .since(
        3,
        &[
            tensor("base_values_as_tensor"),
            tensor("nodes_hitrates_as_tensor"),
            tensor("nodes_values_as_tensor"),
            tensor("target_weights_as_tensor"),
        ],
    )
    .same_up()
    .since(5, &[deprecated()])
    .adapter(3, 2, |cx| trees::move_tensors_to_lists(cx, "target_weights"))
    .adapter(4, 5, trees::convert_regressor)
    .same_down()
    .infer(tree_regressor)
    .without_reference_rule(&[1, 5]);

/// Sets a class for each example, and a score for each example and class.
fn set_classes(cx: &mut Infer<'_>, elem: DataType, examples: Dim, count: Dim) {
    let shape = Shape::from_iter([examples.clone()]);
    cx.set_tensor(0, Some(elem), Some(shape));
    cx.set_tensor(1, Some(Float), Some(Shape::from_iter([examples, count])));
}

/// Counts all coefficients once for each row.
fn count_linear(node: &Counted<'_>) -> Option<Dim> {
    let rows = match &node.shape(0)?[..] {
        [rows, _] => rows.clone(),
        [_] => Dim::Known(1),
        _ => return None,
    };
    match node.cx.attribute("coefficients")? {
        AttrValue::Floats(coefficients) => {
            Some(rows.mul(&Dim::Known(i64::try_from(coefficients.len()).ok()?)))
        }
        _ => None,
    }
}

fn linear_classifier(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let (elem, labels) = classes(cx, "classlabels_ints");
    let count = match (list_len(cx, "intercepts"), labels) {
        // One sum distinguishes two classes.
        (1, 2) => Dim::Known(2),
        (0, 0) => Dim::Unknown,
        (0, labels) => labels.into(),
        (sums, _) => sums.into(),
    };
    let examples = examples(cx)?;
    set_classes(cx, elem, examples, count);
    Ok(())
}

fn svm_classifier(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let (elem, _) = classes(cx, "classlabels_ints");
    let examples = examples(cx)?;
    // Votes may be counted for pairs of classes too.
    set_classes(cx, elem, examples, Dim::Unknown);
    Ok(())
}

fn linear_regressor(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = Shape::from_iter([examples(cx)?, count_attribute(cx, "targets")?]);
    cx.set_tensor(0, Some(Float), Some(shape));
    Ok(())
}

fn svm_regressor(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = Shape::from_iter([examples(cx)?, Dim::Known(1)]);
    cx.set_tensor(0, Some(Float), Some(shape));
    Ok(())
}

/// Refuses a node that has a list both as an attribute and as a tensor.
fn demand_one_form(cx: &Infer<'_>, names: [&str; 4]) -> Result<(), InferError> {
    for name in names {
        let tensor = format!("{name}_as_tensor");
        if cx.attribute(name).is_some() && cx.attribute(&tensor).is_some() {
            return cx.fail(format_args!("the node has both {name} and {tensor}"));
        }
    }
    Ok(())
}

fn rows(cx: &Infer<'_>) -> Result<Dim, InferError> {
    cx.demand_rank(0, 2)?;
    examples(cx)
}

/// Lists of a `TreeEnsembleClassifier` that may be tensors.
const TREE_LISTS: [&str; 4] = ["nodes_values", "nodes_hitrates", "class_weights", "base_values"];

fn tree_classifier(cx: &mut Infer<'_>) -> Result<(), InferError> {
    demand_one_form(cx, TREE_LISTS)?;
    let (elem, count) = classes(cx, "classlabels_int64s");
    if count == 0 && cx.since() >= 3 {
        return cx.fail(
            "one of these attributes is required: classlabels_int64s and classlabels_strings",
        );
    }
    // The standard has one score for one label; the reference implementation returns two.
    let count = if count <= 1 { Dim::Unknown } else { count.into() };
    let examples = rows(cx)?;
    set_classes(cx, elem, examples, count);
    Ok(())
}

/// Infers like the reference implementation, which only inferred the type of the labels before
/// version 3.
fn tree_classifier_as_reference(cx: &mut Infer<'_>) -> Result<(), InferError> {
    if cx.since() >= 3 {
        return tree_classifier(cx);
    }
    demand_one_form(cx, TREE_LISTS)?;
    let (elem, _) = classes(cx, "classlabels_int64s");
    cx.set_tensor(0, Some(elem), None);
    Ok(())
}

fn tree_regressor(cx: &mut Infer<'_>) -> Result<(), InferError> {
    demand_one_form(cx, ["nodes_values", "nodes_hitrates", "target_weights", "base_values"])?;
    let shape = Shape::from_iter([rows(cx)?, count_attribute(cx, "n_targets")?]);
    cx.set_tensor(0, Some(Float), Some(shape));
    Ok(())
}

fn tree_ensemble(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = Shape::from_iter([rows(cx)?, count_attribute(cx, "n_targets")?]);
    if cx.attribute("nodes_splits").is_none() {
        return cx.fail("attribute 'nodes_splits' is missing");
    }
    let splits = list_attribute(cx, "nodes_splits")?;
    let elem = demand_type(cx, "nodes_splits", splits, cx.elem(0))?;
    if let Some((_, nodes)) = splits {
        check_nodes(cx, nodes)?;
    }
    let leaves = [
        ("leaf_targetids", list_attribute(cx, "leaf_targetids")?),
        ("leaf_weights", list_attribute(cx, "leaf_weights")?),
    ];
    if let Some((missing, _)) = leaves.iter().find(|(name, _)| cx.attribute(name).is_none()) {
        return cx.fail(format_args!("attribute '{missing}' is missing"));
    }
    if let [(_, Some((_, targets))), (_, Some((_, weights)))] = leaves
        && targets != weights
    {
        return cx.fail(format_args!(
            "leaf_targetids has {targets} elements, but leaf_weights has {weights}"
        ));
    }
    demand_type(cx, "leaf_weights", leaves[1].1, elem)?;
    if let Some(AttrValue::Tensor(values)) = cx.attribute("membership_values") {
        demand_type(cx, "membership_values", Some((values.data_type(), 0)), elem)?;
    }
    cx.set_tensor(0, elem, Some(shape));
    Ok(())
}

/// Checks that values in the node have the type of the input.
fn demand_type(
    cx: &Infer<'_>,
    name: &str,
    list_attribute: Option<(DataType, usize)>,
    input: Option<DataType>,
) -> Result<Option<DataType>, InferError> {
    match (list_attribute, input) {
        (Some((elem, _)), Some(input)) if elem != input => cx.fail(format_args!(
            "{name} has type {}, but the input has type {}",
            elem.name(),
            input.name()
        )),
        (list_attribute, input) => Ok(input.or(list_attribute.map(|(elem, _)| elem))),
    }
}

/// Checks that each list of properties of nodes has this many elements.
fn check_nodes(cx: &Infer<'_>, nodes: usize) -> Result<(), InferError> {
    let lists = [
        ("nodes_featureids", true),
        ("nodes_hitrates", false),
        ("nodes_modes", true),
        ("nodes_truenodeids", true),
        ("nodes_falsenodeids", true),
        ("nodes_trueleafs", true),
        ("nodes_falseleafs", true),
        ("nodes_missing_value_tracks_true", false),
    ];
    for (name, required) in lists {
        match list_attribute(cx, name)? {
            Some((_, len)) if len != nodes => {
                return cx
                    .fail(format_args!("{name} has {len} elements, but nodes_splits has {nodes}"));
            }
            None if required && cx.attribute(name).is_none() => {
                return cx.fail(format_args!("attribute '{name}' is missing"));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_tensor::Tensor;

    use crate::tensor::testing::{check, ints, outputs};

    type Attributes = Vec<(&'static str, AttrValue<'static>)>;

    fn texts(name: &'static str, count: usize) -> (&'static str, AttrValue<'static>) {
        (name, AttrValue::Strings(vec![b"a"[..].into(); count]))
    }

    fn floats(name: &'static str, count: usize) -> (&'static str, AttrValue<'static>) {
        (name, AttrValue::Floats(vec![0.0; count].into()))
    }

    #[test]
    fn classes_and_scores() {
        // SHAPE-16, SHAPE-22
        let names = || texts("classlabels_strings", 2);
        let numbers = || ("classlabels_int64s", ints(&[0, 1, 2]));
        let rows: [(_, u32, Attributes, &str, &str); 14] = [
            (
                &LINEAR_CLASSIFIER,
                1,
                vec![floats("intercepts", 3)],
                "float[N, 4]",
                "int64[N]; float[N, 3]",
            ),
            (
                &LINEAR_CLASSIFIER,
                1,
                vec![floats("intercepts", 1), names()],
                "float[4]",
                "string[1]; float[1, 2]",
            ),
            (&LINEAR_CLASSIFIER, 1, vec![names()], "-", "string[?]; float[?, 2]"),
            (&LINEAR_CLASSIFIER, 1, vec![], "-", "int64[?]; float[?, ?]"),
            (
                &LINEAR_CLASSIFIER,
                1,
                vec![],
                "float[1, 2, 3]",
                "LinearClassifier: the input must have rank 1 or 2, not 3",
            ),
            (&SVM_CLASSIFIER, 1, vec![names()], "float[N, 4]", "string[N]; float[N, ?]"),
            (&TREE_ENSEMBLE_CLASSIFIER, 1, vec![], "float[N, 4]", "int64[N]; float[N, ?]"),
            (&TREE_ENSEMBLE_CLASSIFIER, 3, vec![numbers()], "float[N, 4]", "int64[N]; float[N, 3]"),
            (&TREE_ENSEMBLE_CLASSIFIER, 5, vec![names()], "float[N, 4]", "string[N]; float[N, 2]"),
            (
                &TREE_ENSEMBLE_CLASSIFIER,
                3,
                vec![],
                "float[N, 4]",
                "TreeEnsembleClassifier: one of these attributes is required: classlabels_int64s \
                 and classlabels_strings",
            ),
            (
                &TREE_ENSEMBLE_CLASSIFIER,
                3,
                vec![numbers()],
                "float[4]",
                "TreeEnsembleClassifier: input 0 must have rank 2, not 1",
            ),
            (
                &TREE_ENSEMBLE_CLASSIFIER,
                3,
                vec![numbers(), floats("base_values", 1), floats("base_values_as_tensor", 1)],
                "-",
                "TreeEnsembleClassifier: the node has both base_values and base_values_as_tensor",
            ),
            (&SVM_REGRESSOR, 1, vec![], "float[N, 4]", "float[N, 1]; -"),
            (&LINEAR_REGRESSOR, 1, vec![], "float[4]", "float[1, 1]; -"),
        ];
        for (def, opset, attributes, input, expected) in rows {
            assert_eq!(outputs(def, opset, &attributes, input, 2), expected, "{}", def.name);
        }
        check(
            &TREE_ENSEMBLE_REGRESSOR,
            3,
            &[
                (&[("n_targets", AttrValue::Int(5))], "double[30, 3]", "float[30, 5]"),
                (&[], "-", "float[?, ?]"),
                (
                    &[("n_targets", AttrValue::Int(-5))],
                    "-",
                    "TreeEnsembleRegressor: n_targets is -5",
                ),
            ],
        );
    }

    #[test]
    fn tensors_of_trees_become_lists() {
        use crate::math::testing::lower_version;
        let tensor = |tensor: Tensor| [("nodes_values_as_tensor", AttrValue::Tensor(tensor))];
        let found =
            |given| lower_version(&TREE_ENSEMBLE_REGRESSOR, 3, &tensor(given), "float[N, 3]");
        assert_eq!(
            found(Tensor::from_vec([2], vec![0.5f32, 2.0]).expect("the sizes fit")),
            "y = TreeEnsembleRegressor(a) nodes_values=[0.5, 2.0]"
        );
        assert_eq!(
            found(Tensor::from_vec([1], vec![0.5f64]).expect("the sizes fit")),
            "TreeEnsembleRegressor: nodes_values_as_tensor must have type float in that version, not double"
        );
    }

    #[test]
    fn trees_fit_together() {
        fn tensor<T: sardonyx_tensor::Element + Default>(
            name: &'static str,
            dims: &[usize],
        ) -> (&'static str, AttrValue<'static>) {
            let values = vec![T::default(); dims.iter().product()];
            let tensor = Tensor::from_vec(dims, values).expect("the sizes fit");
            (name, AttrValue::Tensor(tensor))
        }
        let good = || {
            let mut attributes: Attributes = vec![
                ("n_targets", AttrValue::Int(5)),
                tensor::<f32>("nodes_splits", &[2]),
                tensor::<u8>("nodes_modes", &[2]),
                ("leaf_targetids", ints(&[0, 0, 0])),
                tensor::<f32>("leaf_weights", &[3]),
            ];
            let ids = [
                "nodes_featureids",
                "nodes_truenodeids",
                "nodes_falsenodeids",
                "nodes_trueleafs",
                "nodes_falseleafs",
            ];
            attributes.extend(ids.map(|name| (name, ints(&[0, 0]))));
            attributes
        };
        let with = |changed: (&'static str, AttrValue<'static>)| {
            let mut attributes = good();
            attributes.retain(|(name, _)| *name != changed.0);
            attributes.push(changed);
            attributes
        };
        let without = |name: &str| {
            let mut attributes = good();
            attributes.retain(|(given, _)| *given != name);
            attributes
        };
        let rows = [
            (good(), "float[N, 3]", "float[N, 5]"),
            (good(), "-", "float[?, 5]"),
            (good(), "float[N]", "input 0 must have rank 2, not 1"),
            (good(), "double[N, 3]", "nodes_splits has type float, but the input has type double"),
            (
                with(tensor::<f32>("nodes_splits", &[2, 1])),
                "-",
                "nodes_splits must have rank 1, not 2",
            ),
            (
                with(("nodes_trueleafs", ints(&[0]))),
                "-",
                "nodes_trueleafs has 1 elements, but nodes_splits has 2",
            ),
            (
                with(tensor::<f64>("leaf_weights", &[3])),
                "-",
                "leaf_weights has type double, but the input has type float",
            ),
            (
                with(tensor::<f32>("leaf_weights", &[4])),
                "-",
                "leaf_targetids has 3 elements, but leaf_weights has 4",
            ),
            (
                with(tensor::<f64>("membership_values", &[7])),
                "-",
                "membership_values has type double, but the input has type float",
            ),
            (without("nodes_splits"), "-", "attribute 'nodes_splits' is missing"),
            (without("nodes_modes"), "-", "attribute 'nodes_modes' is missing"),
            (without("leaf_weights"), "-", "attribute 'leaf_weights' is missing"),
        ];
        for (attributes, input, expected) in rows {
            let found = outputs(&TREE_ENSEMBLE, 5, &attributes, input, 1);
            assert_eq!(found.trim_start_matches("TreeEnsemble: "), expected);
        }
    }
}
