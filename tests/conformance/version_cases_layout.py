"""Shapes, moved and chosen values, types and constants: rows for `version_cases.py`."""

import ml_dtypes
import numpy as np
from onnx import helper, numpy_helper

from version_cases_rows import NEW_TYPES, booleans, floats, integers, narrow, positive, row, strings, vector

X = floats(2, 3, 4)
GRID = np.arange(24, dtype=np.float32).reshape(1, 4, 3, 2)

RESHAPE = [
    row(
        "Reshape", (1,), "y = Reshape <shape = [0, -1]> (x)", {"x": X}, lambda x: x.reshape(2, 12), "zero-and-minus-one"
    ),
    row(
        "Reshape",
        (1,),
        "y = Reshape <shape = [4, 3, 2], consumed_inputs = [0]> (x)",
        {"x": X},
        lambda x: x.reshape(4, 3, 2),
        "consumed-inputs",
    ),
    row(
        "Reshape",
        (5, 13, 14),
        "y = Reshape (x, shape)",
        {"x": X, "shape": vector(0, -1)},
        lambda x, shape: x.reshape(2, 12),
        "zero-and-minus-one",
    ),
    row("Reshape", (5, 13, 14), "y = Reshape (x, shape)", {"x": integers(2, 6), "shape": vector(3, 4)}, None, "int64"),
    row(
        "Reshape",
        (14, 19, 21, 23, 24, 25),
        "y = Reshape <allowzero = 1> (x, shape)",
        {"x": floats(0, 3), "shape": vector(3, 0)},
        lambda x, shape: x.reshape(3, 0),
        "allowzero",
    ),
    row("Flatten", (1, 9, 11, 13), "y = Flatten <axis = 2> (x)", {"x": X}, lambda x: x.reshape(6, 4), "axis-2"),
    row("Flatten", (1, 9, 11, 13), "y = Flatten <axis = 0> (x)", {"x": X}, lambda x: x.reshape(1, 24), "axis-0"),
    row("Flatten", (9, 11, 13), "y = Flatten (x)", {"x": integers(2, 3, 4)}, lambda x: x.reshape(2, 12), "int64"),
    row("Flatten", (11, 13), "y = Flatten <axis = -1> (x)", {"x": X}, lambda x: x.reshape(6, 4), "negative-axis"),
    row("Squeeze", (1, 11), "y = Squeeze <axes = [0, 2]> (x)", {"x": floats(1, 3, 1, 4)}, lambda x: x[0, :, 0], "axes"),
    row("Squeeze", (1, 11), "y = Squeeze (x)", {"x": floats(1, 3, 1, 4)}, lambda x: x[0, :, 0], "all"),
    row(
        "Squeeze",
        (11,),
        "y = Squeeze <axes = [-2]> (x)",
        {"x": floats(1, 3, 1, 4)},
        lambda x: x[:, :, 0],
        "negative-axis",
    ),
    row("Squeeze", (13, 21, 23, 24, 25), "y = Squeeze (x)", {"x": floats(1, 3, 1, 4)}, lambda x: x[0, :, 0], "all"),
    row(
        "Unsqueeze",
        (1, 11),
        "y = Unsqueeze <axes = [0, 3]> (x)",
        {"x": floats(2, 3)},
        lambda x: x[None, :, :, None],
        "axes",
    ),
    row(
        "Unsqueeze",
        (1, 11),
        "y = Unsqueeze <axes = [2, 0]> (x)",
        {"x": floats(2, 3)},
        lambda x: x[None, :, None, :],
        "unsorted-axes",
    ),
    row(
        "Unsqueeze",
        (11,),
        "y = Unsqueeze <axes = [-1, 1]> (x)",
        {"x": floats(2, 3)},
        lambda x: x[:, None, :, None],
        "negative-axis",
    ),
    row("Transpose", (1, 13), "y = Transpose <perm = [2, 0, 1]> (x)", {"x": X}, lambda x: x.transpose(2, 0, 1), "perm"),
    row("Transpose", (1, 13), "y = Transpose (x)", {"x": integers(2, 3)}, lambda x: x.T, "reversed-int64"),
    row(
        "Shape",
        (15, 19, 21, 23, 24, 25),
        "y = Shape <start = 1, end = -1> (x)",
        {"x": floats(2, 3, 4, 5)},
        lambda x: vector(3, 4),
        "part",
    ),
    row("Expand", (8, 13), "y = Expand (x, shape)", {"x": floats(3, 1), "shape": vector(2, 1, 4)}, None, "both-ways"),
]

JOINED = [
    row(
        "Concat",
        (1,),
        "y = Concat (a, b)",
        {"a": floats(2, 2), "b": floats(2, 3)},
        lambda a, b: np.concatenate([a, b], 1),
        "default-axis",
    ),
    row(
        "Concat",
        (1, 4),
        "y = Concat <axis = 2> (a, b, a)",
        {"a": floats(2, 1, 2), "b": floats(2, 1, 3)},
        lambda a, b: np.concatenate([a, b, a], 2),
        "axis-2",
    ),
    row(
        "Concat",
        (11, 13),
        "y = Concat <axis = -1> (a, b)",
        {"a": strings("a", "b"), "b": strings("c")},
        None,
        "strings",
    ),
    row(
        "Tile",
        (1,),
        "y = Tile (x, tiles, axis)",
        {"x": X, "tiles": np.float32(3).reshape(1), "axis": np.float32(1).reshape(1)},
        lambda x, *_: np.tile(x, (1, 3, 1)),
        "axis-1",
    ),
    row(
        "Tile",
        (6, 13),
        "y = Tile (x, repeats)",
        {"x": floats(2, 3), "repeats": vector(2, 3)},
        lambda x, _: np.tile(x, (2, 3)),
        "both-axes",
    ),
    row(
        "Pad",
        (1,),
        "y = Pad <paddings = [0, 1, 2, 0], value = 1.5> (x)",
        {"x": floats(2, 3)},
        lambda x: np.pad(x, ((0, 2), (1, 0)), constant_values=1.5),
        "constant",
    ),
    row(
        "Pad",
        (1,),
        'y = Pad <paddings = [1, 1, 0, 2], mode = "reflect"> (x)',
        {"x": floats(2, 3)},
        lambda x: np.pad(x, ((1, 0), (1, 2)), "reflect"),
        "reflect",
    ),
    row(
        "Pad",
        (1,),
        'y = Pad <paddings = [1, 1, 0, 2], mode = "edge"> (x)',
        {"x": floats(2, 3)},
        lambda x: np.pad(x, ((1, 0), (1, 2)), "edge"),
        "edge",
    ),
    row(
        "Pad",
        (2,),
        "y = Pad <pads = [0, 1, 2, 0], value = 1.5> (x)",
        {"x": floats(2, 3)},
        lambda x: np.pad(x, ((0, 2), (1, 0)), constant_values=1.5),
        "constant",
    ),
    row(
        "Pad",
        (2,),
        'y = Pad <pads = [1, 1, 0, 2], mode = "reflect"> (x)',
        {"x": floats(2, 3)},
        lambda x: np.pad(x, ((1, 0), (1, 2)), "reflect"),
        "reflect",
    ),
    row(
        "Pad",
        (2,),
        'y = Pad <pads = [0, -1, 2, -1], mode = "constant"> (x)',
        {"x": floats(2, 4)},
        lambda x: np.pad(x[:, 1:-1], ((0, 2), (0, 0))),
        "negative",
    ),
    row(
        "Pad",
        (11, 13, 18),
        "y = Pad (x, pads)",
        {"x": floats(2, 3), "pads": vector(1, -1, 0, 2)},
        lambda x, _: np.pad(x[:, 1:], ((1, 0), (0, 2))),
        "without-value",
    ),
    row(
        "Pad",
        (13, 18),
        "y = Pad (x, pads, value)",
        {"x": booleans(2, 3), "pads": vector(0, 1, 1, 0), "value": np.array(True)},
        lambda x, *_: np.pad(x, ((0, 1), (1, 0)), constant_values=True),
        "bool",
    ),
    row(
        "Pad",
        (18, 19, 21, 23, 24, 25),
        'y = Pad (x, pads, "", axes)',
        {"x": X, "pads": vector(1, 2), "axes": vector(-1)},
        lambda x, *_: np.pad(x, ((0, 0), (0, 0), (1, 2))),
        "axes",
    ),
    # The default value is 0, which this type does not have. Cast makes the smallest number of 0 if nothing else is asked
    # for; the evaluator pads with NaN.
    row(
        "Pad",
        (24, 25),
        "y = Pad (x, pads, value)",
        {
            "x": np.array([1, 4], ml_dtypes.float8_e8m0fnu),
            "pads": vector(1, 0),
            "value": np.array(0.5, ml_dtypes.float8_e8m0fnu),
        },
        lambda *_: np.array([0.5, 1, 4], ml_dtypes.float8_e8m0fnu),
        "float8e8m0",
    ),
    row(
        "Pad",
        (19, 21, 23, 24, 25),
        'y = Pad <mode = "wrap"> (x, pads)',
        {"x": floats(2, 3), "pads": vector(0, 1, 0, 2)},
        lambda x, _: np.pad(x, ((0, 0), (1, 2)), "wrap"),
        "wrap",
    ),
]

SPLIT = [
    row(
        "Split",
        (1, 2, 11),
        "a, b = Split <axis = 1, split = [1, 3]> (x)",
        {"x": floats(2, 4)},
        lambda x: (x[:, :1], x[:, 1:]),
        "sizes",
    ),
    row(
        "Split",
        (1,),
        "a, b = Split <axis = 1> (x, split)",
        {"x": floats(2, 4), "split": np.array([3, 1], np.float32)},
        lambda x, _: (x[:, :3], x[:, 3:]),
        "sizes-as-input",
    ),
    row("Split", (1, 2, 11), "a, b = Split <axis = 0> (x)", {"x": floats(4, 3)}, lambda x: (x[:2], x[2:]), "equal"),
    row("Split", (2,), "a, b = Split (x)", {"x": integers(4, 3)}, lambda x: (x[:2], x[2:]), "default-axis"),
    row(
        "Split",
        (11,),
        "a, b = Split <axis = -1, split = [1, 2]> (x)",
        {"x": floats(2, 3)},
        lambda x: (x[:, :1], x[:, 1:]),
        "negative-axis",
    ),
    row(
        "Split",
        (13, 18),
        "a, b = Split <axis = -1> (x, split)",
        {"x": floats(2, 3), "split": vector(1, 2)},
        lambda x, _: (x[:, :1], x[:, 1:]),
        "negative-axis",
    ),
    row("Split", (13,), "a, b = Split (x)", {"x": floats(4, 3)}, lambda x: (x[:2], x[2:]), "equal"),
    row(
        "Split",
        (18,),
        "a, b, c = Split <num_outputs = 3> (x)",
        {"x": floats(7)},
        lambda x: (x[:3], x[3:6], x[6:]),
        "uneven",
    ),
    row(
        "Slice",
        (1,),
        "y = Slice <axes = [0, 2], starts = [0, 1], ends = [1, 100]> (x)",
        {"x": X},
        lambda x: x[:1, :, 1:],
        "axes",
    ),
    row(
        "Slice",
        (1,),
        "y = Slice <starts = [0, -2], ends = [2, -1]> (x)",
        {"x": X},
        lambda x: x[:, -2:-1],
        "default-axes",
    ),
    row(
        "Slice",
        (1,),
        "y = Slice <axes = [1], starts = [1], ends = [3]> (x)",
        {"x": integers(2, 3)},
        lambda x: x[:, 1:3],
        "int64",
    ),
    row(
        "Slice",
        (10, 11, 13),
        "y = Slice (x, starts, ends, axes, steps)",
        {"x": X, "starts": vector(-1, 0), "ends": vector(-100, 4), "axes": vector(1, 2), "steps": vector(-1, 2)},
        lambda x, *_: x[:, ::-1, ::2],
        "negative-step",
    ),
    row(
        "Slice",
        (10, 11, 13),
        "y = Slice (x, starts, ends)",
        {"x": X, "starts": vector(1, 1), "ends": vector(2, 3)},
        lambda x, *_: x[1:2, 1:3],
        "default-axes",
    ),
    row(
        "Slice",
        (11, 13),
        "y = Slice (x, starts, ends, axes)",
        {
            "x": X,
            "starts": vector(1).astype(np.int32),
            "ends": vector(3).astype(np.int32),
            "axes": vector(-1).astype(np.int32),
        },
        lambda x, *_: x[:, :, 1:3],
        "negative-axis-int32",
    ),
    row(
        "SplitToSequence",
        (11, 24),
        "s = SplitToSequence <axis = 1> (x, sizes)  y = SequenceAt (s, i)",
        {"x": floats(2, 5), "sizes": np.array(2, np.int64), "i": np.array(-1, np.int64)},
        lambda x, *_: x[:, 4:],
        "last-part",
    ),
    row(
        "SplitToSequence",
        (11, 24),
        "s = SplitToSequence <axis = 0, keepdims = 0> (x)  y = SequenceAt (s, i)",
        {"x": floats(2, 3), "i": np.array(1, np.int64)},
        lambda x, _: x[1],
        "without-keepdims",
    ),
    row(
        "SplitToSequence",
        (11, 24),
        "s = SplitToSequence <axis = -1> (x, sizes)",
        {"x": floats(2, 5), "sizes": vector(2, 3)},
        lambda x, _: [x[:, :2], x[:, 2:]],
        "sizes",
    ),
]

CHOSEN = [
    row(
        "Gather",
        (1, 11, 13),
        "y = Gather <axis = 1> (x, i)",
        {"x": X, "i": integers(2, 2, high=3)},
        lambda x, i: np.take(x, i, 1),
        "axis-1",
    ),
    row(
        "Gather",
        (1, 11, 13),
        "y = Gather (x, i)",
        {"x": integers(4, 2), "i": vector(3, 0).astype(np.int32)},
        lambda x, i: x[i],
        "int32-indices",
    ),
    row(
        "Gather",
        (11, 13),
        "y = Gather <axis = -1> (x, i)",
        {"x": X, "i": vector(-1, 0)},
        lambda x, i: x[..., i],
        "negative",
    ),
    row(
        "GatherElements",
        (11, 13),
        "y = GatherElements <axis = -1> (x, i)",
        {"x": floats(2, 3), "i": np.array([[0, -1], [1, 1]])},
        lambda x, i: np.take_along_axis(x, i % 3, 1),
        "negative",
    ),
    row(
        "GatherND",
        (11, 12, 13),
        "y = GatherND (x, i)",
        {"x": X, "i": np.array([[0, -1], [1, 0]])},
        lambda x, i: x[i[:, 0], i[:, 1]],
        "slices",
    ),
    row(
        "GatherND",
        (12, 13),
        "y = GatherND <batch_dims = 1> (x, i)",
        {"x": X, "i": np.array([[2], [0]])},
        lambda x, i: x[[0, 1], i[:, 0]],
        "batch",
    ),
    row(
        "Scatter",
        (9,),
        "y = Scatter <axis = 1> (x, i, u)",
        {"x": floats(2, 4), "i": np.array([[3, 1], [0, 2]]), "u": floats(2, 2)},
        lambda x, i, u: scattered(x, i, u, 1),
        "axis-1",
    ),
    row(
        "Scatter",
        (9,),
        "y = Scatter (x, i, u)",
        {"x": integers(3, 2), "i": np.array([[2, 0]]), "u": integers(1, 2, seed=1)},
        lambda x, i, u: scattered(x, i, u, 0),
        "default-axis",
    ),
    row(
        "ScatterElements",
        (11, 13, 16, 18),
        "y = ScatterElements <axis = -1> (x, i, u)",
        {"x": floats(2, 4), "i": np.array([[3, 1], [0, 2]]), "u": floats(2, 2)},
        lambda x, i, u: scattered(x, i, u, 1),
        "negative-axis",
    ),
    row(
        "ScatterElements",
        (16, 18),
        'y = ScatterElements <reduction = "add"> (x, i, u)',
        {"x": floats(3, 2), "i": np.array([[2, 0], [2, 1]]), "u": floats(2, 2)},
        None,
        "add",
    ),
    row(
        "ScatterND",
        (11, 13, 16, 18),
        "y = ScatterND (x, i, u)",
        {"x": X, "i": np.array([[1, 2], [0, 0]]), "u": floats(2, 4)},
        None,
        "slices",
    ),
    row(
        "ScatterND",
        (16, 18),
        'y = ScatterND <reduction = "mul"> (x, i, u)',
        {"x": floats(4), "i": np.array([[1], [1]]), "u": floats(2)},
        None,
        "mul",
    ),
    row(
        "OneHot",
        (9, 11, 28),
        "y = OneHot <axis = 0> (i, depth, v)",
        {"i": vector(0, 2, 1), "depth": np.array(3, np.int64), "v": np.array([-1, 5], np.float32)},
        lambda *_: np.where(np.eye(3)[[0, 2, 1]].T, 5, -1).astype(np.float32),
        "axis-0",
    ),
    row(
        "OneHot",
        (9, 11, 28),
        "y = OneHot (i, depth, v)",
        {"i": vector(0, 3), "depth": np.array(3, np.int64), "v": vector(0, 1)},
        lambda *_: np.array([[1, 0, 0], [0, 0, 0]]),
        "too-large-index",
    ),
    row(
        "OneHot",
        (9,),
        "y = OneHot (i, depth, v)",
        {"i": vector(1, -1), "depth": np.array(3, np.int64), "v": vector(0, 1)},
        lambda *_: np.array([[0, 1, 0], [0, 0, 0]]),
        "negative-index",
    ),
    row(
        "OneHot",
        (11, 28),
        "y = OneHot (i, depth, v)",
        {"i": vector(0, -1), "depth": np.array(3, np.int64), "v": vector(0, 1)},
        lambda *_: np.array([[1, 0, 0], [0, 0, 1]]),
        "negative-index",
    ),
    row(
        "Compress",
        (9, 11, 28),
        "y = Compress (x, c)",
        {"x": floats(2, 3), "c": np.array([False, True, False, True])},
        lambda x, c: x.ravel()[[1, 3]],
        "flat",
    ),
    row(
        "Compress",
        (9, 11, 28),
        "y = Compress <axis = 1> (x, c)",
        {"x": floats(2, 3), "c": np.array([True, False, True])},
        lambda x, c: x[:, [0, 2]],
        "axis-1",
    ),
    row(
        "Compress",
        (11, 28),
        "y = Compress <axis = -1> (x, c)",
        {"x": X, "c": np.array([False, True])},
        lambda x, c: x[..., [1]],
        "negative-axis",
    ),
    row(
        "Where",
        (9, 16),
        "y = Where (c, a, b)",
        {"c": booleans(2, 1), "a": floats(3), "b": floats(2, 3)},
        np.where,
        "broadcast",
    ),
    row(
        "DepthToSpace",
        (1,),
        "y = DepthToSpace <blocksize = 2> (x)",
        {"x": GRID},
        lambda x: x.reshape(1, 2, 2, 1, 3, 2).transpose(0, 3, 4, 1, 5, 2).reshape(1, 1, 6, 4),
        "blocks",
    ),
    row(
        "DepthToSpace",
        (11, 13),
        'y = DepthToSpace <blocksize = 2, mode = "CRD"> (x)',
        {"x": GRID},
        lambda x: x.reshape(1, 1, 2, 2, 3, 2).transpose(0, 1, 4, 2, 5, 3).reshape(1, 1, 6, 4),
        "columns-first",
    ),
    row("NonZero", (9, 13), "y = NonZero (x)", {"x": booleans(3, 4)}, lambda x: np.array(np.nonzero(x)), "bool"),
    row(
        "Unique",
        (11, 28),
        "y, i, j, n = Unique <axis = -1> (x)",
        {"x": np.array([[2, 1, 2], [0, 3, 0]], np.float32)},
        None,
        "negative-axis",
    ),
    row("Unique", (11, 28), "y, i, j, n = Unique <sorted = 0> (x)", {"x": vector(4, 1, 4, 0)}, None, "unsorted"),
    row(
        "ReverseSequence",
        (10, 28),
        "y = ReverseSequence <batch_axis = 0, time_axis = 1> (x, n)",
        {"x": floats(2, 4), "n": vector(3, 2)},
        None,
        "batch-first",
    ),
]


def scattered(x, indices, updates, axis):
    result = x.copy()
    np.put_along_axis(result, indices, updates, axis)
    return result


CASTS = (
    ("to-int32", "INT32", np.int32, 3 * X),
    ("to-bool", "BOOL", bool, np.array([0, 1.5, -2], np.float32)),
    ("to-double", "DOUBLE", np.float64, X),
    ("to-float16", "FLOAT16", np.float16, X),
    ("from-int64", "FLOAT", np.float32, integers(2, 3, low=-9)),
    ("from-bool", "INT64", np.int64, booleans(2, 3)),
)
CAST = [
    row(
        "Cast",
        (since,),
        (
            f'y = Cast <to = "{name}"> (x)'
            if since == 1
            else f"y = Cast <to = {helper.np_dtype_to_tensor_dtype(np.dtype(kind))}> (x)"
        ),
        {"x": x},
        lambda x, kind=kind: x.astype(kind),
        variant,
    )
    for since in (1, 6, 9, 13)
    for variant, name, kind, x in CASTS
]
CAST += [
    row(
        "Cast",
        (9, 13),
        "y = Cast <to = 8> (x)",
        {"x": integers(2, 3, low=-9)},
        lambda x: x.astype(str).astype(object),
        "to-string",
    ),
    row(
        "Cast",
        (9, 13),
        "y = Cast <to = 1> (x)",
        {"x": strings("1.5", "-2", "1e3")},
        lambda x: x.astype(np.float32),
        "from-string",
    ),
    *(
        row(
            "Cast",
            tuple(known for known in (13, 19, 21, 23, 24, 25) if known >= since),
            "y = Cast <to = 1> (x)",
            {"x": narrow(kind, 2, 3)},
            lambda x: x.astype(np.float32),
            f"from-{kind}",
        )
        for since, kind in NEW_TYPES.items()
    ),
    *(
        row(
            "Cast",
            tuple(known for known in (13, 19, 21, 23, 24, 25) if known >= since),
            f"y = Cast <to = {helper.np_dtype_to_tensor_dtype(np.dtype(getattr(ml_dtypes, kind)))}> (x)",
            {"x": np.array([0.5, 1, 2, 1], np.float32) if kind != "int2" else np.array([-2, 0, 1], np.float32)},
            lambda x, kind=kind: x.astype(getattr(ml_dtypes, kind)),
            f"to-{kind}",
        )
        for since, kind in NEW_TYPES.items()
        if kind != "int4"
    ),
]

SPARSE = helper.make_sparse_tensor(
    numpy_helper.from_array(np.array([1.5, -2], np.float32), "values"),
    numpy_helper.from_array(vector(1, 5), "indices"),
    [2, 3],
)
CONSTANTS = [
    row(
        "Constant",
        (1, 9, 11, 12, 13, 19, 21, 23, 24, 25),
        "y = Constant ()",
        {},
        lambda: X,
        "value",
        attributes={"value": numpy_helper.from_array(X)},
    ),
    row(
        "Constant",
        (9, 11, 12, 13),
        "y = Constant ()",
        {},
        lambda: strings("a", "bc"),
        "strings",
        attributes={"value": numpy_helper.from_array(strings("a", "bc"))},
    ),
    row(
        "Constant",
        (11, 12, 13, 19, 21, 23, 24, 25),
        "y = Constant ()",
        {},
        lambda: np.array([[0, 1.5, 0], [0, 0, -2]], np.float32),
        "sparse",
        attributes={"sparse_value": SPARSE},
    ),
    *(
        row(
            "Constant",
            (12, 13, 19, 21, 23, 24, 25),
            f"y = Constant <{name} = {text}> ()",
            {},
            lambda value=value: value,
            name.replace("_", "-"),
        )
        for name, text, value in (
            ("value_float", "1.5", np.array(1.5, np.float32)),
            ("value_floats", "[1.5, -2.0]", np.array([1.5, -2], np.float32)),
            ("value_int", "7", np.array(7, np.int64)),
            ("value_ints", "[7, -8]", vector(7, -8)),
            ("value_string", '"a"', strings("a").reshape(())),
            ("value_strings", '["a", "bc"]', strings("a", "bc")),
        )
    ),
    row(
        "ConstantOfShape",
        (9, 20, 21, 23, 24, 25),
        "y = ConstantOfShape (s)",
        {"s": vector(2, 3)},
        lambda s: np.zeros((2, 3), np.float32),
        "default",
    ),
    row(
        "ConstantOfShape",
        (9, 20, 21, 23, 24, 25),
        "y = ConstantOfShape (s)",
        {"s": vector(2)},
        lambda s: np.array([7, 7]),
        "int64",
        attributes={"value": numpy_helper.from_array(vector(7))},
    ),
    row(
        "ConstantOfShape",
        (9, 20, 21, 23, 24, 25),
        "y = ConstantOfShape (s)",
        {"s": np.zeros(0, np.int64)},
        lambda s: np.array(0, np.float32),
        "scalar",
    ),
    row(
        "EyeLike",
        (9, 22),
        "y = EyeLike <dtype = 7, k = -1> (x)",
        {"x": floats(3, 4)},
        lambda x: np.eye(3, 4, -1, np.int64),
        "int64-below",
    ),
]

# Operators that only move values took every new type in the version that brought it.
MOVES = {
    "Identity": "y = Identity (x)",
    "Reshape": "y = Reshape (x, shape)",
    "Flatten": "y = Flatten (x)",
    "Transpose": "y = Transpose (x)",
    "Squeeze": "y = Squeeze (x, axes)",
    "Unsqueeze": "y = Unsqueeze (x, axes)",
    "Shape": "y = Shape (x)",
    "Size": "y = Size (x)",
}
MOVED = {
    "Identity": lambda x: x,
    "Reshape": lambda x, shape: x.reshape(3, 2),
    "Flatten": lambda x: x,
    "Transpose": lambda x: x.T,
    "Squeeze": lambda x, axes: x[0],
    "Unsqueeze": lambda x, axes: x[None],
    "Shape": lambda x: vector(2, 3),
    "Size": lambda x: np.array(6),
}
# 19 did not come to these.
WITHOUT_19 = ("Flatten", "Transpose", "Squeeze", "Unsqueeze")
NEW = [
    row(
        name,
        (since,),
        text,
        {"x": narrow(kind, *((1, 2, 3) if name == "Squeeze" else (2, 3)))}
        | ({"shape": vector(3, 2)} if name == "Reshape" else {})
        | ({"axes": vector(0)} if "axes" in text else {}),
        MOVED[name],
        kind,
    )
    for name, text in MOVES.items()
    for since, kind in NEW_TYPES.items()
    if since != 19 or name not in WITHOUT_19
]

QUANTIZED = [
    row(
        "QuantizeLinear",
        (10,),
        "y = QuantizeLinear (x, s, z)",
        {"x": 3 * X, "s": np.array(0.1, np.float32), "z": np.array(128, np.uint8)},
        None,
        "uint8",
    ),
    row(
        "QuantizeLinear",
        (10,),
        "y = QuantizeLinear (x, s, z)",
        {"x": 3 * X, "s": np.array(0.1, np.float32), "z": np.array(-3, np.int8)},
        None,
        "int8",
    ),
    row(
        "QuantizeLinear",
        (10,),
        "y = QuantizeLinear (x, s)",
        {"x": np.array([-1, 0.5, 1.5, 300], np.float32), "s": np.array(1, np.float32)},
        lambda x, s: np.array([0, 0, 2, 255], np.uint8),
        "without-zero",
    ),
    row(
        "QuantizeLinear",
        (13, 19, 21, 23, 24, 25, 28),
        "y = QuantizeLinear <axis = -2> (x, s, z)",
        {"x": 3 * X, "s": positive(3), "z": integers(3).astype(np.int8)},
        None,
        "negative-axis",
    ),
    row(
        "QuantizeLinear",
        (21, 23, 24, 25, 28),
        "y = QuantizeLinear <axis = 1, block_size = 2, output_dtype = 3> (x, s)",
        {"x": floats(2, 4), "s": positive(2, 2)},
        None,
        "blocks",
    ),
    row(
        "DequantizeLinear",
        (10,),
        "y = DequantizeLinear (x, s, z)",
        {"x": integers(2, 3).astype(np.uint8), "s": np.array(0.5, np.float32), "z": np.array(3, np.uint8)},
        lambda x, s, z: (x.astype(np.float32) - 3) / 2,
        "uint8",
    ),
    row(
        "DequantizeLinear",
        (10,),
        "y = DequantizeLinear (x, s)",
        {"x": integers(2, 3, low=-9).astype(np.int32), "s": np.array(0.5, np.float32)},
        lambda x, s: x.astype(np.float32) / 2,
        "int32",
    ),
    row(
        "DequantizeLinear",
        (13, 19, 21, 23, 24, 25, 28),
        "y = DequantizeLinear <axis = -1> (x, s, z)",
        {"x": integers(2, 3).astype(np.int8), "s": positive(3), "z": integers(3, seed=1).astype(np.int8)},
        None,
        "negative-axis",
    ),
    row(
        "DequantizeLinear",
        (21, 23, 24, 25, 28),
        "y = DequantizeLinear <axis = 0, block_size = 2> (x, s)",
        {"x": narrow("int4", 4, 2), "s": positive(2, 2)},
        lambda x, s: x.astype(np.float32) * np.repeat(s, 2, 0),
        "blocks-int4",
    ),
]

ROWS = [*RESHAPE, *JOINED, *SPLIT, *CHOSEN, *CAST, *CONSTANTS, *NEW, *QUANTIZED]
