"""Arithmetic, comparisons and reductions: rows for `version_cases.py`."""

import numpy as np

from version_cases_rows import (
    booleans,
    brain,
    floats,
    hardmax,
    integers,
    positive,
    row,
    softmax,
    vector,
)

X = floats(2, 3, 4)

# Version 1 of these names the inputs whose memory may be overwritten, which changes no value.
UNARY = {
    "Abs": np.abs,
    "Ceil": np.ceil,
    "Exp": np.exp,
    "Floor": np.floor,
    "Log": np.log,
    "Neg": np.negative,
    "Reciprocal": np.reciprocal,
    "Relu": lambda x: np.maximum(x, 0),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Sqrt": np.sqrt,
    "Tanh": np.tanh,
    "LeakyRelu": lambda x: np.where(x < 0, np.float32(0.01) * x, x),
    "Elu": lambda x: np.where(x < 0, np.exp(x) - 1, x),
    "HardSigmoid": lambda x: np.clip(np.float32(0.2) * x + np.float32(0.5), 0, 1),
}
ROOTS = ("Log", "Sqrt", "Reciprocal")

CONSUMED = [
    row(
        name,
        (1,),
        f"y = {name} <consumed_inputs = [0]> (x)",
        {"x": positive(3, 4) if name in ROOTS else floats(3, 4)},
        compute,
        "consumed-inputs",
    )
    for name, compute in UNARY.items()
]
CONSUMED_BY_MANY = [
    row(
        name,
        (1,),
        f"y = {name} <consumed_inputs = [0, 0, 1]> (a, b, c)",
        {"a": floats(2, 3), "b": floats(2, 3, seed=1), "c": floats(2, 3, seed=2)},
        lambda a, b, c, compute=compute: compute([a, b, c], axis=0).astype(np.float32),
        "consumed-inputs",
    )
    for name, compute in {"Sum": np.sum, "Mean": np.mean, "Max": np.max, "Min": np.min}.items()
]

# Before version 7, the second operand is stretched only where an attribute says so, and not by the rule of numpy.
ARITHMETIC = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}
# Name of the variant, attributes, shape of the second operand, and the shape that numpy stretches alike.
STRETCHED = (
    ("broadcast-suffix", "broadcast = 1", (3, 4), (3, 4)),
    ("broadcast-middle", "broadcast = 1, axis = 1", (3,), (3, 1)),
    ("broadcast-prefix", "broadcast = 1, axis = 0", (2, 3), (2, 3, 1)),
    ("broadcast-scalar", "broadcast = 1", (), ()),
)


def stretched(operator, versions, compute, make):
    for variant, attributes, shape, like in STRETCHED:
        yield row(
            operator,
            versions,
            f"y = {operator} <{attributes}> (a, b)",
            {"a": make(2, 3, 4), "b": make(*shape, seed=1)},
            lambda a, b, like=like: compute(a, b.reshape(like)),
            variant,
        )
    yield row(
        operator,
        versions,
        f"y = {operator} (a, b)",
        {"a": make(2, 3, 4), "b": make(2, 3, 4, seed=1)},
        compute,
        "same-shape",
    )


def truths(*shape, seed=0):
    return integers(*shape, high=2, seed=seed)


BROADCAST = [
    *(each for name, compute in ARITHMETIC.items() for each in stretched(name, (1, 6), compute, positive)),
    *stretched("Pow", (1,), np.power, positive),
    *stretched("Equal", (1,), np.equal, truths),
    *stretched("Greater", (1,), np.greater, floats),
    *stretched("Less", (1,), np.less, floats),
    *stretched("And", (1,), np.logical_and, booleans),
    *stretched("Or", (1,), np.logical_or, booleans),
    *stretched("Xor", (1,), np.logical_xor, booleans),
]
CONSUMED_BY_TWO = [
    row(
        name,
        (1,),
        f"y = {name} <broadcast = 1, axis = 1, consumed_inputs = [1, 0]> (a, b)",
        {"a": positive(2, 3, 4), "b": positive(3, seed=1)},
        lambda a, b, compute=compute: compute(a, b[:, None]),
        "consumed-inputs",
    )
    for name, compute in ARITHMETIC.items()
]
INTEGER_ARITHMETIC = [
    row(
        name,
        versions,
        f"y = {name} (a, b)",
        {"a": integers(2, 3, low=5, high=50).astype(kind), "b": integers(2, 3, low=1, high=5, seed=1).astype(kind)},
        compute,
        np.dtype(kind).name,
    )
    for name, compute in {**ARITHMETIC, "Div": np.floor_divide}.items()
    for versions, kind in (((6, 7, 13), np.int64), ((6, 7, 13), np.int32), ((14,), np.uint8), ((14,), np.int16))
]


def one_by_one(compute):
    """Slopes along the second axis."""
    return lambda x, slope: compute(x, slope.reshape(-1, 1, 1))


def prelu(x, slope):
    return np.where(x < 0, slope * x, x)


def gemm(a, b, c):
    return np.float32(0.5) * (a.T @ b.T) + 2 * c


def top(x, count, axis):
    order = np.take(np.argsort(-x, axis, kind="stable"), range(count), axis)
    return np.take_along_axis(x, order, axis), order


GEMM = {"a": floats(3, 2), "b": floats(4, 3)}
# Version 13 brought bfloat16 to these. It has 8 binary digits.
ROUNDED = [
    *(
        row(name, (13,), f"y = {name} (x)", {"x": brain(2, 3)}, variant="bfloat16", rtol=1e-2)
        for name in ("Abs", "Ceil", "Exp", "Floor", "Neg", "Relu", "Tanh", "Sigmoid", "Erf", "Sign")
    ),
    *(
        row(name, (13,), f"y = {name} (a, b)", {"a": brain(2, 3), "b": brain(3)}, variant="bfloat16", rtol=1e-2)
        for name in ("Add", "Sub", "Mul", "Max", "Min", "Equal", "Less", "Greater")
    ),
]

# Reductions whose axes are an attribute.
REDUCTIONS = {
    "ReduceL1": lambda x, **how: np.sum(np.abs(x), **how),
    "ReduceL2": lambda x, **how: np.sqrt(np.sum(x * x, **how)),
    "ReduceLogSum": lambda x, **how: np.log(np.sum(x, **how)),
    "ReduceLogSumExp": lambda x, **how: np.log(np.sum(np.exp(x), **how)),
    "ReduceMax": np.max,
    "ReduceMean": np.mean,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceSum": np.sum,
    "ReduceSumSquare": lambda x, **how: np.sum(x * x, **how),
}
# Variant, attributes, the same for numpy, and whether version 1 has it.
AXES = (
    ("all-axes", "", {"keepdims": True}, True),
    ("one-axis", "<axes = [1], keepdims = 0>", {"axis": 1}, True),
    ("two-axes", "<axes = [0, 2]>", {"axis": (0, 2), "keepdims": True}, True),
    ("negative-axis", "<axes = [-2], keepdims = 1>", {"axis": -2, "keepdims": True}, False),
)


def attribute_versions(name, first):
    if name == "ReduceSum":
        known = (1, 11)
    elif name in ("ReduceMax", "ReduceMin"):
        known = (1, 11, 12, 13)
    else:
        known = (1, 11, 13)
    return known if first else known[1:]


REDUCE = [
    row(
        name,
        attribute_versions(name, first),
        f"y = {name} {attributes} (x)",
        {"x": positive(2, 3, 4)},
        lambda x, compute=compute, how=how: np.asarray(compute(x, **how), np.float32),
        variant,
    )
    for name, compute in REDUCTIONS.items()
    for variant, attributes, how, first in AXES
]
ARG = [
    row(
        name,
        (1, 11, 12, 13) if first else (11, 12, 13),
        f"y = {name} <{attributes}> (x)",
        {"x": X},
        lambda x, compute=compute, axis=axis, keep=keep: compute(x, axis=axis, keepdims=keep).astype(np.int64),
        variant,
    )
    for name, compute in {"ArgMax": np.argmax, "ArgMin": np.argmin}.items()
    for variant, attributes, axis, keep, first in (
        ("default-axis", "keepdims = 1", 0, True, True),
        ("axis-1", "axis = 1, keepdims = 0", 1, False, True),
        ("negative-axis", "axis = -1", -1, True, False),
    )
]
ARG_LAST = [
    row(
        name,
        (12, 13),
        f"y = {name} <axis = 1, select_last_index = {last}> (x)",
        {"x": np.array([[1, 3, 3, 1], [0, 0, 0, 0]], np.float32)},
        lambda x, indices=indices: np.array(indices, np.int64),
        f"select-last-{last}",
    )
    for name, last, indices in (
        ("ArgMax", 0, [[1], [0]]),
        ("ArgMax", 1, [[2], [3]]),
        ("ArgMin", 0, [[0], [0]]),
        ("ArgMin", 1, [[3], [3]]),
    )
]

# Before version 13, these see a matrix that is split at the axis.
FLATTENING = [
    row(
        name,
        (1, 11) if axis != -1 else (11,),
        f"y = {name} {f'<axis = {axis}>' if axis is not None else ''} (x)",
        {"x": X},
        lambda x, compute=compute, axis=axis: compute(x, 1 if axis is None else axis % 3),
        variant,
    )
    for name, compute in {
        "Softmax": softmax,
        "LogSoftmax": lambda x, axis: np.log(softmax(x, axis)),
        "Hardmax": hardmax,
    }.items()
    for variant, axis in (("default-axis", None), ("axis-0", 0), ("axis-2", 2), ("negative-axis", -1))
]

CLIP = [
    row("Clip", (1, 6), "y = Clip <min = -0.5, max = 0.75> (x)", {"x": X}, lambda x: x.clip(-0.5, 0.75), "limits"),
    row("Clip", (1, 6), "y = Clip <min = 0.25> (x)", {"x": X}, lambda x: np.maximum(x, np.float32(0.25)), "min"),
    row("Clip", (1, 6), "y = Clip <max = 0.25> (x)", {"x": X}, lambda x: np.minimum(x, np.float32(0.25)), "max"),
    row("Clip", (1, 6), "y = Clip (x)", {"x": X}, lambda x: x, "no-limits"),
    row(
        "Clip",
        (1,),
        "y = Clip <min = -0.5, max = 0.75, consumed_inputs = [1]> (x)",
        {"x": X},
        lambda x: x.clip(-0.5, 0.75),
        "consumed-inputs",
    ),
    row("Clip", (11, 12, 13), 'y = Clip (x, "", max)', {"x": X, "max": np.float32(0.5).reshape(())}, None, "max"),
    row(
        "Clip",
        (12, 13),
        "y = Clip (x, min, max)",
        {"x": integers(2, 3, low=-9), "min": np.array(-2, np.int64), "max": np.array(5, np.int64)},
        None,
        "int64",
    ),
]

OTHERS = [
    row(
        "PRelu",
        (1, 6),
        "y = PRelu (x, slope)",
        {"x": X, "slope": positive(3)},
        lambda x, s: prelu(x, s[:, None]),
        "channels",
    ),
    row("PRelu", (1, 6), "y = PRelu (x, slope)", {"x": X, "slope": positive(1)}, prelu, "one-slope"),
    row(
        "PRelu",
        (1,),
        "y = PRelu <consumed_inputs = [1, 0]> (x, slope)",
        {"x": floats(2, 3, 2, 2), "slope": positive(3)},
        one_by_one(prelu),
        "consumed-inputs",
    ),
    row(
        "Gemm",
        (1, 6),
        "y = Gemm <transA = 1, transB = 1, alpha = 0.5, beta = 2.0> (a, b, c)",
        GEMM | {"c": floats(2, 4)},
        gemm,
        "same-shape",
    ),
    row(
        "Gemm",
        (1, 6),
        "y = Gemm <broadcast = 1, transA = 1, transB = 1, alpha = 0.5, beta = 2.0> (a, b, c)",
        GEMM | {"c": floats(4)},
        gemm,
        "broadcast-row",
    ),
    row(
        "Gemm",
        (1, 6),
        "y = Gemm <broadcast = 1> (a, b, c)",
        {"a": floats(2, 3), "b": floats(3, 4), "c": floats(1)},
        lambda a, b, c: a @ b + c,
        "broadcast-one",
    ),
    row(
        "Gemm",
        (7, 9, 11, 13),
        "y = Gemm <transA = 1, transB = 1, alpha = 0.5, beta = 2.0> (a, b, c)",
        GEMM | {"c": floats(2, 1)},
        gemm,
        "column",
    ),
    row("Gemm", (11, 13), "y = Gemm (a, b)", {"a": floats(2, 3), "b": floats(3, 4)}, lambda a, b: a @ b, "without-c"),
    row(
        "Gemm",
        (9, 11, 13),
        "y = Gemm (a, b, c)",
        {"a": integers(2, 3), "b": integers(3, 4), "c": integers(4)},
        lambda a, b, c: a @ b + c,
        "int64",
    ),
    row(
        "Selu",
        (1,),
        "y = Selu (x)",
        {"x": X},
        lambda x: 1.0507 * np.where(x <= 0, 1.6732 * (np.exp(x) - 1), x).astype(np.float32),
        "defaults",
    ),
    row(
        "Selu",
        (1,),
        "y = Selu <alpha = 2.0, gamma = 3.0, consumed_inputs = [0]> (x)",
        {"x": X},
        lambda x: 3 * np.where(x <= 0, 2 * (np.exp(x) - 1), x),
        "consumed-inputs",
    ),
    row("Mod", (10, 13), "y = Mod <fmod = 1> (a, b)", {"a": floats(2, 3), "b": positive(3)}, np.fmod, "fmod"),
    row("Mod", (10, 13), "y = Mod (a, b)", {"a": integers(2, 3, low=-9), "b": vector(3, -4, 2)}, np.mod, "int64"),
    row("Pow", (7, 12, 13, 15), "y = Pow (a, b)", {"a": positive(2, 3), "b": floats(3)}, np.power, "broadcast"),
    row(
        "Pow",
        (12, 13, 15),
        "y = Pow (a, b)",
        {"a": positive(2, 3), "b": vector(1, 2, 3)},
        lambda a, b: np.power(a, b).astype(np.float32),
        "int64-exponent",
    ),
    row("MatMul", (9, 13), "y = MatMul (a, b)", {"a": integers(2, 3), "b": integers(3, 4)}, np.matmul, "int64"),
    row(
        "CumSum",
        (11, 14),
        "y = CumSum <exclusive = 1, reverse = 1> (x, axis)",
        {"x": X, "axis": np.array(-2, np.int64)},
        None,
        "exclusive-reverse",
    ),
    row("TopK", (1,), "v, i = TopK <k = 2, axis = 1> (x)", {"x": X}, lambda x: top(x, 2, 1), "axis-1"),
    row("TopK", (1,), "v, i = TopK <k = 3> (x)", {"x": X}, lambda x: top(x, 3, 2), "default-axis"),
    row(
        "TopK",
        (10, 11, 24),
        "v, i = TopK <axis = 1> (x, k)",
        {"x": X, "k": vector(2)},
        lambda x, k: top(x, 2, 1),
        "axis-1",
    ),
    row("TopK", (11, 24), "v, i = TopK <axis = -2, largest = 0> (x, k)", {"x": X, "k": vector(2)}, None, "smallest"),
    row("Bernoulli", (15, 22), "y = Bernoulli (x)", {"x": booleans(3, 4).astype(np.float32)}, lambda x: x, "certain"),
    row(
        "Bernoulli",
        (15, 22),
        "y = Bernoulli <dtype = 9> (x)",
        {"x": booleans(3, 4).astype(np.float32)},
        lambda x: x.astype(bool),
        "certain-bool",
    ),
]

ROWS = [
    *CONSUMED,
    *CONSUMED_BY_MANY,
    *CONSUMED_BY_TWO,
    *BROADCAST,
    *INTEGER_ARITHMETIC,
    *ROUNDED,
    *REDUCE,
    *ARG,
    *ARG_LAST,
    *FLATTENING,
    *CLIP,
    *OTHERS,
]
