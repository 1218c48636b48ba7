"""Classical machine learning: rows for `version_cases.py`."""

import numpy as np
from onnx import numpy_helper

from version_cases_rows import floats, integers, row, strings, vector

ML = "ai.onnx.ml."
X = floats(3, 2)


def ml(name, since, written, inputs, expected=None, variant="", outputs="y", operands="x", **others):
    attributes = f"<{written}>" if written else ""
    versions = since if isinstance(since, tuple) else (since,)
    text = f"{outputs} = {ML}{name} {attributes} ({operands})"
    return row(ML + name, versions, text, inputs, expected, variant, **others)


def same_norm(x, norm):
    sizes = {"MAX": x.max(1), "L1": np.abs(x).sum(1), "L2": np.sqrt((x * x).sum(1))}[norm]
    return x / sizes[:, None]


DATA = [
    ml("ArrayFeatureExtractor", 1, "", {"x": X, "i": vector(1)}, lambda x, i: x[:, 1:], "column", operands="x, i"),
    ml("Binarizer", 1, "threshold = 0.25", {"x": X}, lambda x: (x > 0.25).astype(np.float32), "threshold"),
    ml(
        "CategoryMapper",
        1,
        'cats_int64s = [3, 5], cats_strings = ["a", "b"]',
        {"x": strings("b", "z", "a")},
        lambda x: vector(5, -1, 3),
        "from-strings",
    ),
    ml(
        "CategoryMapper",
        1,
        'cats_int64s = [3, 5], cats_strings = ["a", "b"], default_string = "none"',
        {"x": vector(5, 4, 3)},
        lambda x: strings("b", "none", "a"),
        "from-int64",
    ),
    ml(
        "FeatureVectorizer",
        1,
        "inputdimensions = [2, 1]",
        {"x": X, "z": floats(3, 1)},
        lambda x, z: np.concatenate([x, z], 1),
        "two-inputs",
        operands="x, z",
    ),
    ml(
        "Imputer",
        1,
        "replaced_value_float = -1.0, imputed_value_floats = [7.0, 8.0]",
        {"x": np.array([[1, -1], [-1, 2]], np.float32)},
        lambda x: np.array([[1, 8], [7, 2]], np.float32),
        "by-feature",
    ),
    ml(
        "Imputer",
        1,
        "replaced_value_int64 = 3, imputed_value_int64s = [9]",
        {"x": np.array([[3, 1], [2, 3]])},
        lambda x: np.array([[9, 1], [2, 9]]),
        "int64",
    ),
    *(
        ml("Normalizer", 1, f'norm = "{norm}"', {"x": np.abs(X)}, lambda x, norm=norm: same_norm(x, norm), norm.lower())
        for norm in ("MAX", "L1", "L2")
    ),
    ml(
        "OneHotEncoder",
        1,
        "cats_int64s = [4, 5, 6]",
        {"x": vector(5, 9, 4)},
        lambda x: np.array([[0, 1, 0], [0, 0, 0], [1, 0, 0]], np.float32),
        "int64",
    ),
    ml(
        "OneHotEncoder",
        1,
        'cats_strings = ["a", "b"]',
        {"x": strings("b", "a")},
        lambda x: np.array([[0, 1], [1, 0]], np.float32),
        "strings",
    ),
    ml(
        "Scaler",
        1,
        "offset = [0.5, -1.0], scale = [2.0, 3.0]",
        {"x": X},
        lambda x: (x - np.array([0.5, -1], np.float32)) * np.array([2, 3], np.float32),
        "by-feature",
    ),
    ml(
        "Scaler",
        1,
        "offset = [0.5], scale = [2.0]",
        {"x": integers(3, 2)},
        lambda x: ((x - 0.5) * 2).astype(np.float32),
        "int64",
    ),
]

MAPS = [
    ml(
        "CastMap",
        1,
        'map_form = "DENSE", cast_to = "TO_FLOAT"',
        {"x": {0: 1.5, 2: -2.0}},
        None,
        "dense",
        types={"x": "map(int64, float)"},
    ),
    ml(
        "CastMap",
        1,
        'map_form = "SPARSE", cast_to = "TO_FLOAT", max_map = 4',
        {"x": {0: 1.5, 2: -2.0}},
        None,
        "sparse",
        types={"x": "map(int64, float)"},
    ),
    ml(
        "CastMap",
        1,
        'cast_to = "TO_INT64"',
        {"x": {0: "4", 1: "-7"}},
        lambda x: np.array([[4, -7]]),
        "strings",
        types={"x": "map(int64, string)"},
    ),
    ml(
        "DictVectorizer",
        1,
        'string_vocabulary = ["a", "b", "c"]',
        {"x": {"c": 2.5, "a": 1.0}},
        lambda _: np.array([1.0, 0.0, 2.5], np.float32),
        "strings",
        types={"x": "map(string, float)"},
    ),
    ml(
        "DictVectorizer",
        1,
        "int64_vocabulary = [7, 3]",
        {"x": {3: 2.5}},
        lambda _: np.array([0.0, 2.5], np.float32),
        "int64",
        types={"x": "map(int64, float)"},
    ),
    ml(
        "ZipMap",
        1,
        "classlabels_int64s = [4, 7]",
        {"x": X},
        lambda x: [dict(zip((4, 7), found)) for found in x],
        "int64",
    ),
    ml(
        "ZipMap",
        1,
        'classlabels_strings = ["a", "b"]',
        {"x": X},
        lambda x: [dict(zip("ab", found)) for found in x],
        "strings",
    ),
]

LABELS = [
    ml(
        "LabelEncoder",
        1,
        'classes_strings = ["a", "b", "c"], default_int64 = 9',
        {"x": strings("c", "z", "a")},
        lambda x: vector(2, 9, 0),
        "from-strings",
    ),
    ml(
        "LabelEncoder",
        1,
        'classes_strings = ["a", "b", "c"]',
        {"x": vector(1, 5)},
        lambda x: strings("b", "_Unused"),
        "from-int64",
    ),
    ml(
        "LabelEncoder",
        2,
        'keys_strings = ["a", "b"], values_int64s = [5, 6]',
        {"x": strings("b", "z")},
        lambda x: vector(6, -1),
        "strings-to-int64",
    ),
    ml(
        "LabelEncoder",
        (2, 4),
        "keys_int64s = [5, 6], values_floats = [0.5, 1.5], default_float = 9.0",
        {"x": vector(6, 1)},
        lambda x: np.array([1.5, 9], np.float32),
        "int64-to-floats",
    ),
    ml(
        "LabelEncoder",
        (2, 4),
        'keys_floats = [0.5, 1.5], values_strings = ["x", "y"], default_string = "none"',
        {"x": np.array([[1.5], [2]], np.float32)},
        lambda x: np.array([["y"], ["none"]], object),
        "floats-to-strings",
    ),
    ml(
        "LabelEncoder",
        4,
        "",
        {"x": vector(3, 1)},
        lambda x: np.array([2, -1], np.int16),
        "tensors",
        attributes={
            "keys_tensor": numpy_helper.from_array(vector(3, 4)),
            "values_tensor": numpy_helper.from_array(np.array([2, 5], np.int16)),
            "default_tensor": numpy_helper.from_array(np.array([-1], np.int16)),
        },
    ),
]

LINEAR = [
    ml(
        "LinearRegressor",
        1,
        "coefficients = [1.0, 2.0, -1.0, 0.5], intercepts = [0.5, -0.5], targets = 2",
        {"x": X},
        lambda x: x @ np.array([[1, -1], [2, 0.5]], np.float32) + np.array([0.5, -0.5], np.float32),
        "two-targets",
    ),
    ml(
        "LinearRegressor",
        1,
        "coefficients = [1.0, 2.0]",
        {"x": X},
        lambda x: x @ np.array([[1], [2]], np.float32),
        "one-target",
    ),
    *(
        ml(
            "LinearClassifier",
            1,
            f"coefficients = [1.0, 2.0, -1.0, 0.5, 0.25, -2.0], intercepts = [0.5, -0.5, 0.0], {labels}, "
            f'multi_class = 1, post_transform = "{post}"',
            {"x": X},
            None,
            post.lower().replace("_", "-"),
            "label, scores",
        )
        for post, labels in (
            ("NONE", "classlabels_ints = [3, 5, 9]"),
            ("SOFTMAX", 'classlabels_strings = ["a", "b", "c"]'),
            ("LOGISTIC", "classlabels_ints = [3, 5, 9]"),
            ("SOFTMAX_ZERO", "classlabels_ints = [3, 5, 9]"),
        )
    ),
    ml(
        "LinearClassifier",
        1,
        "coefficients = [-1.0, -2.0, 1.0, 2.0], intercepts = [-0.5, 0.5], classlabels_ints = [0, 1], "
        'post_transform = "LOGISTIC"',
        {"x": X},
        None,
        "two-classes",
        "label, scores",
    ),
]

VECTORS = "support_vectors = [0.5, -1.0, 1.0, 0.25, -0.75, 0.5]"
KERNELS = (
    ("LINEAR", "0.0, 0.0, 0.0"),
    ("RBF", "0.5, 0.0, 0.0"),
    ("POLY", "0.5, 1.0, 2.0"),
    ("SIGMOID", "0.5, 0.25, 0.0"),
)
KERNEL = 'kernel_type = "{}", kernel_params = [{}]'
SVM = [
    *(
        ml(
            "SVMRegressor",
            1,
            f"{VECTORS}, coefficients = [1.0, -0.5, 0.75], rho = [0.25], n_supports = 3, {KERNEL.format(*kernel)}",
            {"x": X},
            None,
            kernel[0].lower(),
        )
        for kernel in KERNELS
    ),
    ml(
        "SVMRegressor",
        1,
        "coefficients = [1.0, -0.5], rho = [0.25], n_supports = 0",
        {"x": X},
        lambda x: x @ np.array([[1], [-0.5]], np.float32) + np.float32(0.25),
        "without-vectors",
    ),
    *(
        ml(
            "SVMClassifier",
            1,
            f"{VECTORS}, coefficients = [1.0, -0.5, -0.75], rho = [0.25], vectors_per_class = [1, 2], "
            f"classlabels_ints = [4, 7], {KERNEL.format(*kernel)}",
            {"x": X},
            None,
            kernel[0].lower(),
            "label, scores",
        )
        for kernel in KERNELS
    ),
    ml(
        "SVMClassifier",
        1,
        f"{VECTORS}, coefficients = [1.0, -0.5, 0.75, 0.5, -1.0, 0.25], rho = [0.25, -0.25, 0.5], "
        f"vectors_per_class = [1, 1, 1], classlabels_ints = [4, 7, 9], {KERNEL.format(*KERNELS[1])}",
        {"x": X},
        None,
        "three-classes",
        "label, scores",
    ),
    ml(
        "SVMClassifier",
        1,
        f"{VECTORS}, coefficients = [1.0, -0.5, -0.75], rho = [0.25], prob_a = [-1.5], prob_b = [0.25], "
        f"vectors_per_class = [1, 2], classlabels_ints = [4, 7], {KERNEL.format(*KERNELS[1])}",
        {"x": X},
        None,
        "probabilities",
        "label, scores",
    ),
]

# Two trees: one with a test and two leaves, one with two tests and three leaves.
TREES = (
    "nodes_treeids = [0, 0, 0, 1, 1, 1, 1, 1], nodes_nodeids = [0, 1, 2, 0, 1, 2, 3, 4], "
    "nodes_featureids = [0, 0, 0, 1, 0, 0, 0, 0], "
    'nodes_modes = ["{mode}", "LEAF", "LEAF", "{mode}", "LEAF", "{mode}", "LEAF", "LEAF"], '
    "nodes_truenodeids = [1, 0, 0, 1, 0, 3, 0, 0], nodes_falsenodeids = [2, 0, 0, 2, 0, 4, 0, 0]"
)
TESTS = "0.25, 0.0, 0.0, -0.5, 0.0, 0.75, 0.0, 0.0"
# Every leaf of (tree, node) says something about each target, or class.
PLACES = ((0, 1), (0, 2), (1, 1), (1, 3), (1, 4))


def leaves(what, count):
    trees, nodes = ([str(place[which]) for place in PLACES for _ in range(count)] for which in (0, 1))
    ids = [str(target) for _ in PLACES for target in range(count)]
    return (
        f"{what}_treeids = [{', '.join(trees)}], {what}_nodeids = [{', '.join(nodes)}], {what}_ids = [{', '.join(ids)}]"
    )


def weights(count):
    return [0.25 * (7 * m % 11 - 4) for m in range(len(PLACES) * count)]


LEAVES_OF_TARGETS = leaves("target", 2)
POINTS = {"x": np.array([[0.25, -0.5], [1, 1], [-1, -2], [0.5, 0.75], [2, 0]], np.float32)}
TREE = [
    *(
        ml(
            "TreeEnsembleRegressor",
            (1, 3),
            f"{TREES.format(mode=mode)}, nodes_values = [{TESTS}], {LEAVES_OF_TARGETS}, target_weights = {weights(2)}, "
            f"n_targets = 2, base_values = [0.5, -0.5]{others}",
            POINTS,
            None,
            variant,
        )
        for variant, mode, others in (
            ("sum", "BRANCH_LEQ", ""),
            ("less", "BRANCH_LT", ', aggregate_function = "SUM"'),
            ("greater", "BRANCH_GT", ', aggregate_function = "MIN"'),
            ("greater-or-equal", "BRANCH_GTE", ', aggregate_function = "MAX"'),
            ("average", "BRANCH_LEQ", ', aggregate_function = "AVERAGE"'),
            ("equal", "BRANCH_EQ", ""),
        )
    ),
    *(
        ml(
            "TreeEnsembleClassifier",
            (1, 3),
            f"{TREES.format(mode='BRANCH_LEQ')}, nodes_values = [{TESTS}], {leaves('class', 3)}, "
            f"class_weights = {weights(3)}, {others}",
            POINTS,
            None,
            variant,
            "label, scores",
        )
        for variant, others in (
            ("int64", "classlabels_int64s = [4, 7, 9], base_values = [0.5, -0.5, 0.25]"),
            ("strings-softmax", 'classlabels_strings = ["a", "b", "c"], post_transform = "SOFTMAX"'),
            ("logistic", 'classlabels_int64s = [4, 7, 9], post_transform = "LOGISTIC"'),
        )
    ),
    ml(
        "TreeEnsembleRegressor",
        3,
        f"{TREES.format(mode='BRANCH_LEQ')}, {LEAVES_OF_TARGETS}, n_targets = 2",
        {"x": POINTS["x"].astype(np.float64)},
        None,
        "double",
        attributes={
            "nodes_values_as_tensor": numpy_helper.from_array(np.array(TESTS.split(", "), float)),
            "target_weights_as_tensor": numpy_helper.from_array(np.array(weights(2))),
        },
    ),
]

ROWS = [*DATA, *MAPS, *LABELS, *LINEAR, *SVM, *TREE]
