//! Trained models that are one node.

use sardonyx_tensor::DataType::{Double, Float, Int32, Int64, String};

use crate::def::OpDef;
use crate::facts::{
    FLOATS, deprecated, floats, input, int, ints, output, string, strings, tensor, types,
};
use crate::typeset::TypeSet;

pub(crate) static LINEAR_CLASSIFIER: OpDef = OpDef::new("LinearClassifier")
    .about("Scores of classes as weighted sums of features, and the class of the best one.")
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
            string("post_transform").or_string("NONE"),
            types("T1", TypeSet::tensors(&[Float, Double, Int32, Int64])),
            types("T2", TypeSet::tensors(&[Int64, String])),
        ],
    );

pub(crate) static LINEAR_REGRESSOR: OpDef = OpDef::new("LinearRegressor")
    .about("Weighted sums of features plus constants.")
    .domain("ai.onnx.ml")
    .since(
        1,
        &[
            input("X", "T"),
            output("Y", "tensor(float)"),
            floats("coefficients"),
            floats("intercepts"),
            string("post_transform").or_string("NONE"),
            int("targets").or(1),
            types("T", TypeSet::tensors(&[Float, Double, Int32, Int64])),
        ],
    );

pub(crate) static SVM_CLASSIFIER: OpDef = OpDef::new("SVMClassifier")
    .about("A support vector machine that tells classes apart, with votes or probabilities.")
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
            string("kernel_type").or_string("LINEAR"),
            string("post_transform").or_string("NONE"),
            floats("prob_a"),
            floats("prob_b"),
            floats("rho"),
            floats("support_vectors"),
            ints("vectors_per_class"),
            types("T1", TypeSet::tensors(&[Float, Double, Int32, Int64])),
            types("T2", TypeSet::tensors(&[Int64, String])),
        ],
    );

pub(crate) static SVM_REGRESSOR: OpDef = OpDef::new("SVMRegressor")
    .about("A support vector machine that computes a number, or whether something belongs to what it has seen.").domain("ai.onnx.ml").since(
    1,
    &[
        input("X", "T"),
        output("Y", "tensor(float)"),
        floats("coefficients"),
        floats("kernel_params"),
        string("kernel_type").or_string("LINEAR"),
        int("n_supports").or(0),
        int("one_class").or(0),
        string("post_transform").or_string("NONE"),
        floats("rho"),
        floats("support_vectors"),
        types("T", TypeSet::tensors(&[Float, Double, Int32, Int64])),
    ],
);

pub(crate) static TREE_ENSEMBLE: OpDef = OpDef::new("TreeEnsemble")
    .about("Sums, means or extremes of the leaves that trees of decisions lead to: one operator for what the two below \
         do.").domain("ai.onnx.ml").since(
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
);

pub(crate) static TREE_ENSEMBLE_CLASSIFIER: OpDef = OpDef::new("TreeEnsembleClassifier")
    .about("Scores of classes, summed over the leaves of trees of decisions, and the class of the best one.")
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
            string("post_transform").or_string("NONE"),
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
    .since(5, &[deprecated()]);

pub(crate) static TREE_ENSEMBLE_REGRESSOR: OpDef = OpDef::new("TreeEnsembleRegressor")
    .about("Numbers, summed or otherwise combined over the leaves of trees of decisions.")
    .domain("ai.onnx.ml")
    .since(
        1,
        &[
            input("X", "T"),
            output("Y", "tensor(float)"),
            string("aggregate_function").or_string("SUM"),
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
            string("post_transform").or_string("NONE"),
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
    .since(5, &[deprecated()]);
