"""Attributes, operands and types that neither a backend case nor another table shows: rows for `version_cases.py`."""

import ml_dtypes
import numpy as np
from onnx import helper, numpy_helper

from version_cases_ml import LEAVES_OF_TARGETS, POINTS, TESTS, TREES, X, ml, weights
from version_cases_rows import brain, floats, integers, lp_norm, narrow, positive, row, strings, vector, windows

BYTE, SIGNED = np.uint8, np.int8


def tiny(value, kind=np.float32):
    return np.array(value, kind)


def bytes_of(*shape, seed=0):
    return integers(*shape, high=200, seed=seed).astype(BYTE)


POOLS = [
    row(
        "AveragePool",
        (1,),
        'y = AveragePool <kernel_shape = [2], auto_pad = "SAME_UPPER"> (x)',
        {"x": floats(1, 2, 4)},
        lambda x: np.concatenate([(x[..., :-1] + x[..., 1:]) / 2, x[..., -1:]], -1),
        "same-upper",
    ),
    row(
        "LpPool",
        (1,),
        'y = LpPool <kernel_shape = [2], auto_pad = "SAME_UPPER"> (x)',
        {"x": floats(1, 2, 4)},
        lambda x: np.sqrt(x * x + np.pad(x[..., 1:], ((0, 0), (0, 0), (0, 1))) ** 2),
        "same-upper",
    ),
    row(
        "LpPool",
        (18, 22),
        "y = LpPool <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1> (x)",
        {"x": floats(1, 1, 4, 5)},
        lambda x: lp_norm(windows(np.pad(x, ((0, 0), (0, 0), (0, 0), (0, 1))), (2, 2), (2, 2)), 2, (-2, -1)),
        "ceil",
    ),
    row(
        "MaxUnpool",
        (9, 11, 22),
        "y = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2], pads = [0, 0, 0, 1]> (x, i)",
        {"x": floats(1, 1, 2, 2), "i": np.array([[[[0, 2], [4, 8]]]])},
        lambda x, i: np.array(
            [[[[x[0, 0, 0, 0], 0, x[0, 0, 0, 1]], [0, x[0, 0, 1, 0], 0], [0, 0, x[0, 0, 1, 1]], [0, 0, 0]]]], np.float32
        ),
        "pads",
    ),
    row(
        "ConvInteger",
        (10,),
        "y = ConvInteger <kernel_shape = [2, 2], group = 2, strides = [2, 1], dilations = [1, 2]> (x, w, xz)",
        {"x": bytes_of(1, 2, 4, 5), "w": bytes_of(2, 1, 2, 2), "xz": tiny(3, BYTE)},
        None,
        "groups",
    ),
    row(
        "ConvInteger",
        (10,),
        'y = ConvInteger <auto_pad = "SAME_LOWER"> (x, w)',
        {"x": bytes_of(1, 1, 3, 4), "w": bytes_of(1, 1, 2, 2)},
        None,
        "same-lower",
    ),
    row(
        "QLinearConv",
        (10,),
        "y = QLinearConv <kernel_shape = [2, 2], group = 2, strides = [2, 1], dilations = [1, 2], pads = [1, 0, 0, 1]> "
        "(x, xs, xz, w, ws, wz, ys, yz, b)",
        {
            "x": bytes_of(1, 2, 4, 5),
            "xs": tiny(0.02),
            "xz": tiny(100, BYTE),
            "w": bytes_of(2, 1, 2, 2),
            "ws": tiny(0.01),
            "wz": tiny(90, BYTE),
            "ys": tiny(0.05),
            "yz": tiny(128, BYTE),
            "b": integers(2, low=-500, high=500).astype(np.int32),
        },
        None,
        "groups-bias",
    ),
    row(
        "QLinearConv",
        (10,),
        'y = QLinearConv <auto_pad = "SAME_UPPER"> (x, xs, xz, w, ws, wz, ys, yz)',
        {
            "x": bytes_of(1, 1, 3, 4),
            "xs": tiny(0.02),
            "xz": tiny(100, BYTE),
            "w": bytes_of(1, 1, 2, 2),
            "ws": tiny(0.01),
            "wz": tiny(90, BYTE),
            "ys": tiny(0.05),
            "yz": tiny(128, BYTE),
        },
        None,
        "same-upper",
    ),
    row(
        "DeformConv",
        (19, 22),
        "y = DeformConv <group = 2, strides = [1, 2], dilations = [2, 1]> (x, w, o)",
        {"x": floats(1, 2, 4, 5), "w": floats(2, 1, 2, 2), "o": floats(1, 8, 2, 2) / 2},
        None,
        "groups",
    ),
]


def transformed(values, count):
    result = np.fft.fft(values[..., 0] + 1j * (values[..., 1] if values.shape[-1] > 1 else 0), count, 1)
    return np.stack([result.real, result.imag], -1).astype(np.float32)


SIGNALS = [
    row(
        "DFT",
        (17,),
        "y = DFT <axis = 1> (x, n)",
        {"x": floats(2, 5, 1), "n": tiny(7, np.int64)},
        lambda x, n: transformed(x, 7),
        "longer",
        atol=1e-5,
    ),
    row(
        "DFT",
        (17,),
        "y = DFT <axis = 1, onesided = 1> (x, n)",
        {"x": floats(2, 5, 1), "n": tiny(4, np.int64)},
        lambda x, n: transformed(x, 4)[:, :3],
        "shorter-onesided",
    ),
    row(
        "DFT",
        (20,),
        "y = DFT (x, n, axis)",
        {"x": floats(2, 5, 2), "n": tiny(7, np.int64), "axis": tiny(1, np.int64)},
        lambda x, *_: transformed(x, 7),
        "longer",
        atol=1e-5,
    ),
    row(
        "STFT",
        (17,),
        "y = STFT <onesided = 0> (x, step, window)",
        {"x": floats(1, 12, 1), "step": tiny(2, np.int64), "window": positive(4)},
        None,
        "both-sides",
        atol=1e-5,
    ),
    row(
        "STFT",
        (17,),
        'y = STFT <onesided = 1> (x, step, "", n)',
        {"x": floats(1, 12, 1), "step": tiny(4, np.int64), "n": tiny(4, np.int64)},
        lambda x, *_: np.stack([transformed(x[:, at : at + 4], 4)[:, :3] for at in (0, 4, 8)], 1),
        "one-side",
    ),
    *(
        row(
            f"{name}Window",
            (17,),
            f"y = {name}Window <output_datatype = 11, periodic = {periodic}> (n)",
            {"n": tiny(6, np.int64)},
            lambda n, terms=terms, periodic=periodic: cosines(terms, 6, 6 if periodic else 5),
            f"double-{'periodic' if periodic else 'symmetric'}",
        )
        for name, terms in (("Hann", (0.5, 0.5)), ("Hamming", (25 / 46, 21 / 46)), ("Blackman", (0.42, 0.5, 0.08)))
        for periodic in (0, 1)
    ),
    row(
        "MelWeightMatrix",
        (17,),
        "y = MelWeightMatrix <output_datatype = 11> (bins, length, rate, low, high)",
        {
            "bins": tiny(4, np.int64),
            "length": tiny(16, np.int64),
            "rate": tiny(8192, np.int64),
            "low": tiny(0),
            "high": tiny(4096),
        },
        None,
        "double",
    ),
]


def cosines(terms, size, period):
    angles = 2 * np.pi * np.arange(size) / period
    return sum((-1) ** m * term * np.cos(m * angles) for m, term in enumerate(terms))


# An empty list of axes reduces nothing; the other steps of a reduction remain.
UNREDUCED = {
    "ReduceL1": np.abs,
    "ReduceL2": np.abs,
    "ReduceLogSum": np.log,
    "ReduceLogSumExp": lambda x: x,
    "ReduceMax": lambda x: x,
    "ReduceMean": lambda x: x,
    "ReduceMin": lambda x: x,
    "ReduceProd": lambda x: x,
    "ReduceSum": lambda x: x,
    "ReduceSumSquare": np.square,
}
LATEST = {
    "ReduceSum": (13,),
    "ReduceMax": (18, 20),
    "ReduceMin": (18, 20),
    "ReduceLogSum": (18, 28),
    "ReduceLogSumExp": (18, 28),
}
REDUCTIONS = [
    *(
        row(
            name,
            LATEST.get(name, (18,)),
            f"y = {name} <noop_with_empty_axes = 1> (x, axes)",
            {"x": positive(2, 3), "axes": np.zeros(0, np.int64)},
            lambda x, axes, compute=compute: compute(x),
            "nothing-reduced",
        )
        for name, compute in UNREDUCED.items()
    ),
    *(
        row(
            name,
            LATEST.get(name, (18,)),
            f"y = {name} <noop_with_empty_axes = 0> (x, axes)",
            {"x": positive(2, 3), "axes": np.zeros(0, np.int64)},
            None,
            "empty-axes",
        )
        for name in UNREDUCED
    ),
]

NUMBERS = [
    row(
        "Selu",
        (6,),
        "y = Selu <alpha = 2.0, gamma = 3.0> (x)",
        {"x": floats(2, 3)},
        lambda x: 3 * np.where(x <= 0, 2 * (np.exp(x) - 1), x),
        "alpha-gamma",
    ),
    row(
        "Range",
        (27,),
        "y = Range <stash_type = 1> (a, b, c)",
        {"a": tiny(1, np.float16), "b": tiny(2, np.float16), "c": tiny(0.25, np.float16)},
        lambda a, b, c: np.array([1, 1.25, 1.5, 1.75], np.float16),
        "stash-type",
    ),
    row(
        "LayerNormalization",
        (17,),
        "y = LayerNormalization <stash_type = 1, axis = 1, epsilon = 0.01> (x, s, b)",
        {"x": floats(2, 3, 4), "s": floats(3, 4), "b": floats(3, 4)},
        lambda x, s, b: (x - x.mean((1, 2), keepdims=True))
        / np.sqrt(x.var((1, 2), keepdims=True) + np.float32(0.01))
        * s
        + b,
        "stash-type",
    ),
    row(
        "RMSNormalization",
        (23,),
        "y = RMSNormalization <stash_type = 1, axis = 1, epsilon = 0.01> (x, s)",
        {"x": floats(2, 3, 4), "s": floats(3, 4)},
        lambda x, s: x / np.sqrt((x * x).mean((1, 2), keepdims=True) + np.float32(0.01)) * s,
        "stash-type",
    ),
    row(
        "GroupNormalization",
        (21,),
        "y = GroupNormalization <num_groups = 2, stash_type = 1> (x, scale, bias)",
        {"x": floats(2, 4, 3), "scale": floats(4), "bias": floats(4, seed=1)},
        None,
        "stash-type",
    ),
    row(
        "Equal", (19,), "y = Equal (a, b)", {"a": strings("a", "b"), "b": strings("b")}, lambda a, b: a == b, "strings"
    ),
    row(
        "NonZero",
        (13,),
        "y = NonZero (x)",
        {"x": narrow("bfloat16", 2, 3)},
        lambda x: np.array(np.nonzero(x.astype(np.float32))),
        "bfloat16",
    ),
    *(
        row(
            "Resize",
            (18, 19),
            f'y = Resize <nearest_mode = "{mode}"> (x, "", scales)',
            {"x": floats(1, 1, 4, 4), "scales": np.array([1, 1, 0.75, 1.5], np.float32)},
            None,
            mode.replace("_", "-"),
        )
        for mode in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    ),
    row(
        "TensorScatter",
        (24,),
        "y = TensorScatter <axis = 1> (c, u, i)",
        {"c": floats(2, 4, 3), "u": floats(2, 2, 3, seed=1), "i": vector(1, 2)},
        lambda c, u, i: np.stack([np.concatenate([c[0, :1], u[0], c[0, 3:]]), np.concatenate([c[1, :2], u[1]])]),
        "axis-1",
    ),
    row(
        "LinearAttention",
        (27,),
        'y, s = LinearAttention <q_num_heads = 2, kv_num_heads = 2, update_rule = "linear", chunk_size = 2> (q, k, v)',
        {"q": floats(1, 4, 6), "k": floats(1, 4, 6, seed=1), "v": floats(1, 4, 6, seed=2)},
        None,
        "chunks",
    ),
]

ATTENTION = {"q": floats(1, 2, 3, 4), "k": floats(1, 2, 5, 4, seed=1), "v": floats(1, 2, 5, 4, seed=2)}
PAST = {"pk": floats(1, 2, 2, 4, seed=3), "pv": floats(1, 2, 2, 4, seed=4)}


def attended(q, k, v, scale, cap=np.inf):
    scores = q @ k.swapaxes(-1, -2) * np.float32(scale)
    scores = cap * np.tanh(scores / cap) if np.isfinite(cap) else scores
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return (powers / powers.sum(-1, keepdims=True) @ v).astype(np.float32)


def after_past(q, k, v, pk, pv):
    keys, values = np.concatenate([pk, k], 2), np.concatenate([pv, v], 2)
    return attended(q, keys, values, 0.5), keys, values


ATTENTIONS = [
    row(
        "Attention",
        (23, 24, 25),
        "y = Attention <scale = 0.3, softcap = 2.0> (q, k, v)",
        ATTENTION,
        lambda q, k, v: attended(q, k, v, 0.3, 2),
        "scale-softcap",
    ),
    row(
        "Attention",
        (23, 24, 25),
        "y = Attention <softmax_precision = 1> (q, k, v)",
        ATTENTION,
        lambda q, k, v: attended(q, k, v, 0.5),
        "precision",
    ),
    row("Attention", (23, 24, 25), 'y, nk, nv = Attention (q, k, v, "", pk, pv)', ATTENTION | PAST, after_past, "past"),
    row(
        "Attention",
        (24, 25),
        "y = Attention <q_num_heads = 2, kv_num_heads = 2, scale = 0.5> (q, k, v)",
        {"q": floats(1, 3, 8), "k": floats(1, 5, 8, seed=1), "v": floats(1, 5, 8, seed=2)},
        lambda *values: attended(*(each.reshape(1, -1, 2, 4).swapaxes(1, 2) for each in values), 0.5)
        .swapaxes(1, 2)
        .reshape(1, 3, 8),
        "rank-3",
    ),
]

QUANTIZED = [
    row(
        "DequantizeLinear",
        (23, 24, 25, 28),
        "y = DequantizeLinear <output_dtype = 10> (x, s)",
        {"x": integers(2, 3).astype(SIGNED), "s": tiny(0.5)},
        lambda x, s: (x / 2).astype(np.float16),
        "output-type",
    ),
    row(
        "DequantizeLinear",
        (23, 24, 25, 28),
        "y = DequantizeLinear (x, s)",
        {"x": narrow("float4_e2m1fn", 2, 3), "s": tiny(0.5)},
        lambda x, s: x.astype(np.float32) / 2,
        "float4",
    ),
    row(
        "DequantizeLinear",
        (25, 28),
        "y = DequantizeLinear (x, s, z)",
        {"x": narrow("int2", 2, 3), "s": tiny(0.5), "z": tiny(-1, ml_dtypes.int2)},
        lambda x, s, z: (x.astype(np.float32) + 1) / 2,
        "int2",
    ),
    row(
        "DequantizeLinear",
        (28,),
        "y = DequantizeLinear (x, s)",
        {"x": narrow("float6_e2m3fn", 2, 3), "s": tiny(0.5)},
        lambda x, s: x.astype(np.float32) / 2,
        "float6",
    ),
    row(
        "QuantizeLinear",
        (19, 21, 23, 24, 25, 28),
        "y = QuantizeLinear <saturate = 0> (x, s, z)",
        {"x": np.array([1, -3, 1e5], np.float32), "s": tiny(2), "z": tiny(0, ml_dtypes.float8_e4m3fn)},
        lambda x, s, z: np.array([0.5, -1.5, np.nan], ml_dtypes.float8_e4m3fn),
        "saturate-0",
    ),
    row(
        "QuantizeLinear",
        (19, 21, 23, 24, 25, 28),
        "y = QuantizeLinear (x, s, z)",
        {"x": np.array([1, -3, 1e5], np.float32), "s": tiny(2), "z": tiny(0, ml_dtypes.float8_e4m3fn)},
        lambda x, s, z: np.array([0.5, -1.5, 448], ml_dtypes.float8_e4m3fn),
        "saturate-1",
    ),
    row(
        "QuantizeLinear",
        (23, 24, 25, 28),
        "y = QuantizeLinear <precision = 1> (x, s, z)",
        {"x": 3 * floats(2, 3), "s": tiny(0.1), "z": tiny(5, SIGNED)},
        lambda x, s, z: (np.rint(x / s) + 5).astype(SIGNED),
        "precision",
    ),
    *(
        row(
            "CastLike",
            (24, 25),
            f'y = CastLike <round_mode = "{mode}"> (x, like)',
            {"x": np.array([1.25, 3, 2.5, 6], np.float32), "like": narrow("float8_e8m0fnu", 1)},
            lambda *_, values=values: np.array(values, np.float32).astype(ml_dtypes.float8_e8m0fnu),
            f"round-{mode}",
        )
        for mode, values in (("up", (2, 4, 4, 8)), ("down", (1, 2, 2, 4)), ("nearest", (1, 4, 2, 8)))
    ),
    *(
        row(
            "CastLike",
            (since,),
            "y = CastLike (x, like)",
            {"x": narrow(kind, 2, 3), "like": floats(1)},
            lambda x, like: x.astype(np.float32),
            f"from-{kind}",
        )
        for since, kind in (
            (19, "float8_e4m3fn"),
            (21, "int4"),
            (23, "float4_e2m1fn"),
            (24, "float8_e8m0fnu"),
            (25, "int2"),
        )
    ),
    row(
        "Cast",
        (28,),
        "y = Cast <to = 1> (x)",
        {"x": narrow("float6_e2m3fn", 2, 3)},
        lambda x: x.astype(np.float32),
        "from-float6",
    ),
    row(
        "Cast",
        (28,),
        f"y = Cast <to = {helper.np_dtype_to_tensor_dtype(np.dtype(ml_dtypes.float6_e3m2fn))}> (x)",
        {"x": np.array([1, -0.5, 28], np.float32)},
        lambda x: x.astype(ml_dtypes.float6_e3m2fn),
        "to-float6",
    ),
]

SEQUENCES = [
    row(
        "Identity",
        (14, 16, 19, 21, 23, 24, 25),
        "s = SequenceConstruct (a, b) y = Identity (s)",
        {"a": floats(2), "b": floats(3)},
        lambda a, b: [a, b],
        "sequence",
        types={"y": "seq(float[n])"},
    ),
    row(
        "Identity",
        (16, 19, 21, 23, 24, 25),
        "o = Optional (a) p = Identity (o) y = OptionalGetElement (p)",
        {"a": floats(2)},
        lambda a: a,
        "optional",
    ),
    row(
        "OptionalHasElement",
        (18, 28),
        "s = SequenceConstruct (a, a) y = OptionalHasElement (s)",
        {"a": floats(2)},
        lambda a: np.array(True),
        "plain-sequence",
    ),
    row("OptionalHasElement", (18, 28), "y = OptionalHasElement ()", {}, lambda: np.array(False), "nothing"),
    row("Optional", (28,), "o = Optional (x) y = OptionalGetElement (o)", {"x": brain(3)}, lambda x: x, "bfloat16"),
    row("SplitToSequence", (24,), "s = SplitToSequence (x)", {"x": brain(2, 3)}, lambda x: [x[:1], x[1:]], "bfloat16"),
]

TEXTS = [
    row(
        "StringNormalizer",
        (10,),
        'y = StringNormalizer <case_change_action = "UPPER", is_case_sensitive = 0, locale = "en_US", '
        'stopwords = ["The"]> (x)',
        {"x": strings("the", "cat", "Sat")},
        lambda x: strings("CAT", "SAT"),
        "locale",
    ),
    row(
        "TfIdfVectorizer",
        (9,),
        'y = TfIdfVectorizer <mode = "TFIDF", min_gram_length = 1, max_gram_length = 2, max_skip_count = 0, '
        'ngram_counts = [0, 2], ngram_indexes = [0, 1, 2], pool_strings = ["a", "b", "a", "b"], weights = [2.0, 3.0, '
        "0.5]> (x)",
        {"x": strings("a", "b", "a", "c", "b")},
        lambda x: np.array([4, 6, 0.5], np.float32),
        "strings-weights",
    ),
    row(
        "TfIdfVectorizer",
        (9,),
        'y = TfIdfVectorizer <mode = "IDF", min_gram_length = 1, max_gram_length = 1, max_skip_count = 0, '
        "ngram_counts = [0], ngram_indexes = [1, 0], pool_int64s = [7, 8], weights = [2.0, 3.0]> (x)",
        {"x": vector(7, 7, 9)},
        None,
        "idf",
    ),
]

RANDOM = [
    row(
        "RandomNormal",
        (1, 22),
        "y = RandomNormal <shape = [2], mean = 1.5, scale = 1e-30, seed = 3.0, dtype = 10> ()",
        {},
        lambda: np.full(2, 1.5, np.float16),
        "seed-float16",
    ),
    row(
        "RandomNormalLike",
        (1, 22),
        "y = RandomNormalLike <mean = 1.5, scale = 1e-30, seed = 3.0> (x)",
        {"x": floats(2)},
        lambda x: np.full(2, 1.5, np.float32),
        "seed",
    ),
    row(
        "RandomUniform",
        (1, 22),
        "y = RandomUniform <shape = [2], low = 1.5, high = 1.5, seed = 3.0> ()",
        {},
        lambda: np.full(2, 1.5, np.float32),
        "seed",
    ),
    row(
        "RandomUniformLike",
        (1, 22),
        "y = RandomUniformLike <low = 1.5, high = 1.5, seed = 3.0, dtype = 11> (x)",
        {"x": floats(2)},
        lambda x: np.full(2, 1.5),
        "seed-double",
    ),
    row(
        "Multinomial",
        (7, 22),
        "y = Multinomial <seed = 3.0> (x)",
        {"x": np.array([[-1e4, 0]], np.float32)},
        lambda x: np.array([[1]], np.int32),
        "seed",
    ),
    row(
        "Bernoulli",
        (22,),
        "y = Bernoulli <seed = 3.0> (x)",
        {"x": np.array([0, 1, 1], np.float32)},
        lambda x: x,
        "seed",
    ),
]

CLASSICAL = [
    ml(
        "CategoryMapper",
        1,
        'cats_int64s = [3, 5], cats_strings = ["a", "b"], default_int64 = 9',
        {"x": strings("b", "z")},
        lambda x: vector(5, 9),
        "default-int64",
    ),
    ml(
        "LabelEncoder",
        1,
        'classes_strings = ["a", "b"], default_string = "none"',
        {"x": vector(1, 5)},
        lambda x: strings("b", "none"),
        "default-string",
    ),
    ml(
        "LabelEncoder",
        4,
        "",
        {"x": np.array([0.5, 2])},
        lambda x: np.array([7.5, -1]),
        "doubles",
        attributes={
            "keys_tensor": numpy_helper.from_array(np.array([0.5, 1.5])),
            "values_tensor": numpy_helper.from_array(np.array([7.5, 8.5])),
            "default_tensor": numpy_helper.from_array(np.array([-1.0])),
        },
    ),
    ml(
        "OneHotEncoder",
        1,
        "cats_int64s = [4, 5], zeros = 0",
        {"x": np.array([5, 4], np.float32)},
        lambda x: np.array([[0, 1], [1, 0]], np.float32),
        "float-must-be-known",
    ),
    ml(
        "SVMRegressor",
        1,
        "support_vectors = [0.5, -1.0, 1.0, 0.25], coefficients = [1.0, -0.5], rho = [-0.5], n_supports = 2, "
        "one_class = 1, kernel_params = [0.0, 0.0, 0.0]",
        {"x": X},
        lambda x: np.where(x @ np.array([[0.5 - 0.5], [-1 - 0.125]], np.float32) - 0.5 > 0, 1, -1).astype(np.float32),
        "one-class",
    ),
    ml(
        "SVMClassifier",
        1,
        "support_vectors = [0.5, -1.0, 1.0, 0.25], coefficients = [1.0, -0.5], rho = [0.25], vectors_per_class = [1, "
        '1], classlabels_strings = ["a", "b"], post_transform = "LOGISTIC", kernel_params = [0.0, 0.0, 0.0]',
        {"x": X},
        None,
        "strings-logistic",
        "label, scores",
    ),
    ml(
        "TreeEnsembleRegressor",
        (1, 3),
        f"{TREES.format(mode='BRANCH_LEQ')}, nodes_values = [{TESTS}], {LEAVES_OF_TARGETS}, "
        f"target_weights = {weights(2)}, n_targets = 2, nodes_missing_value_tracks_true = [1, 0, 0, 0, 0, 1, 0, 0], "
        f"nodes_hitrates = {[1.0] * 8}",
        {"x": np.array([[np.nan, np.nan], [1, np.nan], [np.nan, -1]], np.float32)},
        None,
        "missing-values",
    ),
    ml(
        "TreeEnsembleRegressor",
        3,
        f"{TREES.format(mode='BRANCH_LT')}, {LEAVES_OF_TARGETS}, n_targets = 2",
        {"x": POINTS["x"].astype(np.float64)},
        None,
        "double-base",
        attributes={
            "nodes_values_as_tensor": numpy_helper.from_array(np.array(TESTS.split(", "), float)),
            "target_weights_as_tensor": numpy_helper.from_array(np.array(weights(2))),
            "base_values_as_tensor": numpy_helper.from_array(np.array([0.5, -0.25])),
        },
    ),
]

ROWS = [*POOLS, *SIGNALS, *REDUCTIONS, *NUMBERS, *ATTENTIONS, *QUANTIZED, *SEQUENCES, *TEXTS, *RANDOM, *CLASSICAL]
