"""Single nodes of the operators that ONNX Runtime adds to the standard, in the forms that exported
models have and its CPU runs: the table of tests/agree/microsoft.py.

A case is a name, an operator, inputs by name (None where one is left out; a tensor of 4-bit elements
is a pair of its type and its integers), names of outputs, attributes, and which inputs are constants
of the model.
"""

import dataclasses

import numpy as np
import onnx

import microsoft_diffusion
import microsoft_sequences

F64, F32, F16 = np.float64, np.float32, np.float16


@dataclasses.dataclass
class Case:
    name: str
    op: str
    inputs: dict
    outputs: list
    attributes: dict
    weights: tuple = ()
    domain: str = "com.microsoft"
    # Along the second last axis, how many rows of each element of the batch say something.
    valid: tuple = None
    # The inputs of a node that means the same, where ONNX Runtime's CPU does not run this one.
    same_as: dict = None
    # The outputs, where it runs none that means the same.
    expected: dict = None
    # The element types of outputs that are not those of the floats that go in.
    kinds: dict = dataclasses.field(default_factory=dict)
    # How far codes may lie apart, where ONNX Runtime rounds otherwise.
    units: int = 0
    # How far floats may lie apart, as a part of the largest magnitude, if that is more than usual.
    within: float = None
    # A program that computes the outputs of the inputs, where ONNX Runtime's CPU does not run it.
    oracle: object = None
    # Outputs that ONNX Runtime wants in the memory of inputs, by the names of these.
    shared: dict = None
    # The version of the default domain.
    version: int = 21
    # The type of outputs that are of no fixed type, where it is not that of the first floats.
    output_type: object = None


# Fields of a case that are no attributes of the node.
OTHER_FIELDS = (
    *("domain", "valid", "same_as", "expected", "kinds", "units", "within"),
    *("oracle", "shared", "version", "output_type"),
)


def table():
    """All cases."""
    rng = np.random.default_rng(7)
    cases = []
    for elem in (F32, F16):
        make = Maker(rng, elem)
        for family in (normalizations, activations, products, rotary, multi_head, attention):
            cases += family(make)
        cases += group_query(make) + n_bits(make) + block_quantized(make)
        cases += microsoft_diffusion.cases(make) + microsoft_sequences.cases(make)
    # These have no form for 16-bit floats.
    make = Maker(rng, F32)
    cases += distances(make) + hashes(make)
    # Of these only the convolution has a form for 64-bit floats.
    return cases + microsoft_diffusion.convolutions(Maker(rng, F64))


class Maker:
    """Random arrays of one element type."""

    def __init__(self, rng, elem):
        self.rng, self.elem = rng, elem
        self.kind = {F64: "f64", F32: "f32", F16: "f16"}[elem]

    def floats(self, *dims, scale=1.0):
        return (self.rng.standard_normal(dims) * scale).astype(self.elem)

    def positive(self, *dims):
        return (self.rng.random(dims) + 0.5).astype(self.elem)

    def ints(self, low, high, dims, elem=np.int32):
        return self.rng.integers(low, high, dims).astype(elem)

    def case(self, name, op, inputs, outputs, weights=(), **more):
        fields = {key: more.pop(key) for key in OTHER_FIELDS if key in more}
        name = f"{op} {name} {self.kind}"
        return Case(name, op, inputs, outputs, more, tuple(weights), **fields)


def distances(make):
    given = {"A": make.floats(5, 3), "B": make.floats(4, 3)}
    forms = ("squared", {}), ("euclidean", {"metric": "euclidean"})
    return [make.case(name, "CDist", given, ["C"], **form) for name, form in forms]


def hashes(make):
    given = {
        "int32": make.ints(-9, 9, (4,)),
        "int64": make.ints(-9, 9, (4,), np.int64),
        "float": make.floats(4),
        "double": make.floats(4).astype(np.float64),
    }
    cases = []
    for name, x in given.items():
        cases.append(make.case(name, "MurmurHash3", {"X": x}, ["hash"]))
        cases.append(make.case(f"{name}, signed", "MurmurHash3", {"X": x}, ["signed_hash"], positive=0, seed=7))
    return cases


def normalizations(make):
    f, b, s, h = make.floats, 2, 3, 16
    x, skip = f(b, s, h), f(b, s, h)
    gamma, beta, bias = make.positive(h), f(h), f(h)
    cases = []
    for domain in ("",):
        given = {"X": x, "scale": gamma}
        op = "SimplifiedLayerNormalization"
        cases.append(make.case("plain", op, given, ["Y"], ["scale"], domain=domain, axis=-1))
        if make.elem == F32:
            outputs = ["Y", "inv_std_var"]
            cases.append(
                make.case("statistic", op, given, outputs, ["scale"], domain=domain, epsilon=1e-3)
            )
    forms = {
        "plain": dict(input=x, skip=skip, gamma=gamma),
        "beta": dict(input=x, skip=skip, gamma=gamma, beta=beta),
        "bias": dict(input=x, skip=skip, gamma=gamma, beta=beta, bias=bias),
        "bias without beta": dict(input=x, skip=skip, gamma=gamma, beta=None, bias=bias),
        "one skip": dict(input=x, skip=skip[:1], gamma=gamma, beta=beta),
        "flat skip": dict(input=x, skip=skip[0], gamma=gamma, beta=beta),
    }
    constants = ["gamma", "beta", "bias"]
    for name, given in forms.items():
        for outputs in (["output"], ["output", None, None, "input_skip_bias_sum"]):
            what = f"{name}{', sum' if len(outputs) > 1 else ''}"
            op = "SkipLayerNormalization"
            cases.append(make.case(what, op, given, outputs, constants, epsilon=1e-5))
    for name in ("plain", "bias without beta", "one skip"):
        given = {key: array for key, array in forms[name].items() if key != "beta"}
        for outputs in (["output"], ["output", None, None, "input_skip_bias_sum"]):
            what = f"{name.split(' without')[0]}{', sum' if len(outputs) > 1 else ''}"
            op = "SkipSimplifiedLayerNormalization"
            cases.append(make.case(what, op, given, outputs, constants, epsilon=1e-5))
    return cases + before_17(make, x, gamma, beta) + embeddings(make, b, s, h, gamma, beta)


def before_17(make, x, gamma, beta):
    """LayerNormalization at versions of the standard that do not have it."""
    cases, op, constants = [], "LayerNormalization", ["Scale", "B"]
    other = F32 if make.elem == F16 else F16
    for opset in (11, 14, 16):
        at = dict(domain="", version=opset)
        given = dict(X=x, Scale=gamma, B=beta)
        cases.append(make.case(f"version {opset}", op, given, ["Y"], constants, **at))
        outputs = ["Y", "Mean", "InvStdDev"]
        cases.append(make.case(f"statistics, version {opset}", op, given, outputs, constants, epsilon=1e-3, **at))
        given = dict(X=x, Scale=gamma)
        cases.append(make.case(f"without bias, version {opset}", op, given, ["Y"], constants, axis=2, **at))
        given = dict(X=x, Scale=make.positive(*x.shape[1:]), B=make.floats(*x.shape[1:]))
        one_statistic = ["Y", None, "InvStdDev"]
        cases.append(make.case(f"two axes, version {opset}", op, given, one_statistic, constants, axis=1, **at))
        given = dict(X=x, Scale=gamma.astype(other), B=beta.astype(other))
        name = f"other scale, version {opset}"
        cases.append(make.case(name, op, given, outputs, constants, output_type=other, **at))
    given = dict(X=x, scale=gamma.astype(other))
    op = "SimplifiedLayerNormalization"
    cases.append(make.case("other scale", op, given, ["Y"], ["scale"], domain="", output_type=other))
    x = make.floats(3, 4)
    for opset in (7, 9):
        given = dict(X=x)
        cases.append(make.case(f"version {opset}", "ThresholdedRelu", given, ["Y"], domain="", version=opset, alpha=0.4))
    return cases


def embeddings(make, b, s, h, gamma, beta):
    words, places, kinds = make.floats(20, h), make.floats(10, h), make.floats(2, h)
    ids, segments = make.ints(0, 20, (b, s)), make.ints(0, 2, (b, s))
    mask = np.array([[1, 1, 0], [1, 1, 1]], np.int32)
    norm = dict(gamma=gamma, beta=beta)
    embedded = dict(word_embedding=words, position_embedding=places)
    with_segments = dict(input_ids=ids, segment_ids=segments, **embedded, segment_embedding=kinds)
    without = dict(input_ids=ids, segment_ids=None, **embedded, segment_embedding=None)
    positions = make.ints(0, 10, (b, s))
    forms = [
        ("plain", with_segments | norm, ["output", "mask_index"]),
        ("mask", with_segments | norm | dict(mask=mask), ["output", "mask_index"]),
        ("without segments", without | norm, ["output", "mask_index"]),
        (
            "positions, sum",
            with_segments | norm | dict(mask=mask, position_ids=positions),
            ["output", "mask_index", "embedding_sum"],
        ),
        (
            "one row of positions",
            with_segments | norm | dict(mask=None, position_ids=positions[:1]),
            ["output", "mask_index"],
        ),
    ]
    constants = [*embedded, "segment_embedding", *norm]
    op = "EmbedLayerNormalization"
    return [make.case(name, op, given, outputs, constants) for name, given, outputs in forms]


def activations(make):
    x, bias = make.floats(2, 5, 16, scale=2.0), make.floats(16)
    cases = [
        make.case("plain", "FastGelu", dict(X=x), ["Y"]),
        make.case("bias", "FastGelu", dict(X=x, bias=bias), ["Y"], ["bias"]),
        make.case("plain", "BiasGelu", dict(A=x, B=bias), ["C"], ["B"]),
        make.case("plain", "Gelu", dict(X=x), ["Y"]),
        make.case("plain", "QuickGelu", dict(X=x), ["Y"]),
        make.case("alpha", "QuickGelu", dict(X=x), ["Y"], alpha=0.7),
    ]
    return cases


def products(make):
    f = make.floats
    cases = []
    for a, b, flags in (
        ((3, 4), (4, 5), {}),
        ((4, 3), (5, 4), dict(transA=1, transB=1)),
        ((2, 3, 4), (2, 5, 4), dict(transB=1)),
        ((2, 4, 3), (4, 5), dict(transA=1)),
        ((2, 3, 7, 4), (2, 3, 5, 4), dict(transB=1, alpha=0.25)),
        ((3, 2, 6, 4), (2, 6, 4, 5), dict(transBatchA=1)),
        ((4, 2, 6, 3), (5, 2, 6, 4), dict(transBatchA=1, transA=1, transBatchB=1, transB=1)),
        ((4,), (2, 4, 5), dict(transA=1)),
        ((2, 3, 4), (4,), dict(transB=1)),
    ):
        words = ", ".join(f"{key} {value}" for key, value in flags.items())
        name = f"{list(a)} {list(b)} {words}"
        given = dict(A=f(*a), B=f(*b))
        flags = {"alpha": 0.5} | flags
        cases.append(make.case(name, "FusedMatMul", given, ["Y"], ["B"], **flags))
    a, b, c = f(3, 4), f(4, 5), f(5)
    for name, params in (
        ("Relu", {}),
        ("LeakyRelu", dict(activation_alpha=0.1)),
        ("Tanh", {}),
        ("Sigmoid", {}),
        ("HardSigmoid", dict(activation_alpha=0.3, activation_beta=0.4)),
        ("Elu", dict(activation_alpha=0.5)),
        ("Selu", dict(activation_alpha=1.5, activation_gamma=1.1)),
        ("Softplus", {}),
        ("Softsign", {}),
        ("ThresholdedRelu", dict(activation_alpha=0.2)),
    ):
        given = dict(A=a, B=b, C=c)
        cases.append(make.case(name, "FusedGemm", given, ["Y"], ["B", "C"], activation=name, **params))
    given = dict(A=a.T.copy(), B=b.T.copy())
    flags = dict(transA=1, transB=1, alpha=0.5)
    cases.append(make.case("without C", "FusedGemm", given, ["Y"], ["B"], activation="Relu", **flags))
    x, w, bias = f(1, 4, 6, 6), f(8, 4, 3, 3, scale=0.3), f(8)
    z = f(1, 8, 6, 6)
    for name, given, params in (
        ("Relu", dict(X=x, W=w, B=bias), dict(activation="Relu")),
        ("without bias", dict(X=x, W=w), dict(activation="Tanh")),
        ("Clip", dict(X=x, W=w, B=bias), dict(activation="Clip", activation_params=[-0.5, 1.5])),
        ("LeakyRelu", dict(X=x, W=w, B=bias), dict(activation="LeakyRelu", activation_params=[0.1])),
        (
            "HardSigmoid",
            dict(X=x, W=w, B=bias),
            dict(activation="HardSigmoid", activation_params=[0.3, 0.4]),
        ),
        ("sum", dict(X=x, W=w, B=bias, Z=z), {}),
        ("sum, Sigmoid", dict(X=x, W=w, B=None, Z=z), dict(activation="Sigmoid")),
        ("stride", dict(X=x, W=w, B=bias), dict(activation="Relu", strides=[2, 2])),
    ):
        pads = {"pads": [1, 1, 1, 1]}
        cases.append(make.case(name, "FusedConv", given, ["Y"], ["W", "B"], **params, **pads))
    return cases


def angles(make, count, half):
    at = np.outer(np.arange(count), 1.0 / 10.0 ** (np.arange(half) / half))
    return np.cos(at).astype(make.elem), np.sin(at).astype(make.elem)


def rotary(make):
    b, s, n, h = 2, 3, 2, 8
    cos, sin = angles(make, 12, h // 2)
    half_cos, half_sin = angles(make, 12, h // 4)
    packed, apart = make.floats(b, s, n * h), make.floats(b, n, s, h)
    each = make.ints(0, 12, (b, s), np.int64)
    first = np.array([4], np.int64)
    caches = ["cos_cache", "sin_cache"]

    def case(name, x, positions, cos=cos, sin=sin, **flags):
        given = dict(input=x, position_ids=positions, cos_cache=cos, sin_cache=sin)
        return make.case(name, "RotaryEmbedding", given, ["output"], caches, **flags)

    part = dict(num_heads=n, rotary_embedding_dim=h // 2)
    return [
        case("packed", packed, each, num_heads=n),
        case("packed, first position", packed, first, num_heads=n),
        case("packed, interleaved", packed, each, num_heads=n, interleaved=1),
        case("packed, heads by caches", packed, each),
        case("apart", apart, each),
        case("apart, first position", apart, first, interleaved=1),
        case("part", packed, each, half_cos, half_sin, **part),
    ]


def multi_head(make):
    f, b, s, l, n, h, v = make.floats, 2, 3, 5, 2, 8, 4
    q, k, val = f(b, s, n * h), f(b, l, n * h), f(b, l, n * h)
    bias = f(3 * n * h)
    own_k, own_v = f(b, s, n * h), f(b, s, n * h)
    past = dict(past_key=f(b, n, l, h), past_value=f(b, n, l, h))
    base = dict(query=q, key=k, value=val)
    blank = dict(bias=None, key_padding_mask=None, attention_bias=None)
    ends = np.array([3, 5], np.int32)
    flat = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], np.int32)
    cube = make.ints(0, 2, (b, s, l))
    cube[:, :, 0] = 1
    scores = f(b, n, s, l)
    own = dict(query=q, key=own_k, value=own_v)
    everything = ["output", "present_key", "present_value"]
    keys, qkv = f(b, l, n, 2, h), f(b, s, n, 3, h)
    long = make.ints(0, 2, (b, l + s))
    long[:, 0] = 1

    def part(packed, index):
        return packed[:, :, :, index].reshape(*packed.shape[:2], n * h)

    def case(name, given, outputs=("output",), weights=("bias",), **flags):
        op = "MultiHeadAttention"
        return make.case(name, op, given, list(outputs), weights, num_heads=n, **flags)

    return [
        case("plain", base),
        case("scale", base, scale=0.3),
        case("bias", base | dict(bias=bias)),
        case("other size of values", dict(query=q, key=k, value=f(b, l, n * v))),
        case("other size, bias", dict(query=q, key=k, value=f(b, l, n * v), bias=f(2 * n * h + n * v))),
        case("ends", base | dict(bias=None, key_padding_mask=ends)),
        case("flat mask", base | dict(bias=bias, key_padding_mask=flat)),
        case("cube", base | dict(bias=None, key_padding_mask=cube)),
        case("mask value", base | dict(bias=None, key_padding_mask=flat), mask_filter_value=-2.0),
        case("scores", base | dict(bias=None, key_padding_mask=None, attention_bias=scores)),
        case("scores of all", base | dict(bias=None, key_padding_mask=None, attention_bias=scores[:1, :1])),
        case("mask and scores", base | dict(bias=bias, key_padding_mask=flat, attention_bias=scores)),
        case("causal", own, unidirectional=1),
        case("causal, mask", own | dict(bias=None, key_padding_mask=flat[:, :s]), unidirectional=1),
        case("past", own | blank | past, everything),
        case("past, causal", own | blank | past, everything, unidirectional=1),
        case(
            "past, mask",
            own | blank | past | dict(key_padding_mask=long),
            everything,
        ),
        case("past, scores", own | blank | past | dict(attention_bias=f(1, n, s, l + s)), everything),
        case("present", own | dict(bias=bias), everything),
        case("open keys", dict(query=q, key=f(b, n, l, h), value=f(b, n, l, h))),
        case("open keys, bias", dict(query=q, key=f(b, n, l, h), value=f(b, n, l, h), bias=bias)),
        case(
            "packed keys",
            dict(query=q, key=keys),
            same_as=dict(query=q, key=part(keys, 0), value=part(keys, 1)),
        ),
        case("packed", dict(query=qkv), same_as=dict(zip(base, (part(qkv, index) for index in range(3))))),
        case("products", base, ["output", None, None, "qk"]),
        case(
            "products, mask",
            base | dict(bias=None, key_padding_mask=flat, attention_bias=scores),
            ["output", None, None, "qk"],
        ),
    ]


def attention(make):
    f, b, s, p, n, h, features = make.floats, 2, 3, 4, 2, 8, 12
    x, w, bias = f(b, s, features), f(features, 3 * n * h, scale=0.3), f(3 * n * h)
    base = dict(input=x, weights=w, bias=bias)
    past = dict(mask_index=None, past=f(2, b, n, p, h))
    ends = np.array([2, 3], np.int32)
    flat = np.array([[1, 1, 0], [0, 1, 1]], np.int32)
    cube = make.ints(0, 2, (b, s, s)) | np.eye(s, dtype=np.int32)
    large = np.tril(np.ones((b, 1, 9, 9), np.int32))
    both = ["output", "present"]
    constants = ["weights", "bias"]

    def case(name, given, outputs=("output",), **flags):
        return make.case(name, "Attention", given, list(outputs), constants, num_heads=n, **flags)

    return [
        case("plain", base),
        case("without bias", dict(input=x, weights=w), same_as=base | dict(bias=np.zeros_like(bias))),
        case("scale", base, scale=0.2),
        case("ends", base | dict(mask_index=ends)),
        case("ends and starts", base | dict(mask_index=np.array([2, 3, 0, 1], np.int32))),
        case("flat mask", base | dict(mask_index=flat)),
        case("cube", base | dict(mask_index=cube)),
        case(
            "large mask",
            base | dict(mask_index=large),
            same_as=base | dict(mask_index=large[:, 0, :s, :s]),
        ),
        case(
            "large mask, past",
            base | past | dict(mask_index=large),
            both,
            same_as=base | past | dict(mask_index=large[:, 0, p : p + s, : p + s]),
        ),
        case("causal", base, unidirectional=1),
        case("causal, mask", base | dict(mask_index=flat), unidirectional=1),
        case("mask value", base | dict(mask_index=flat), mask_filter_value=-3.0),
        case("past", base | past, both),
        case("past, causal", base | past, both, unidirectional=1),
        case(
            "past, mask",
            base | past | dict(mask_index=np.array([[0, 1, 1, 1, 1, 1, 1], [1] * 7], np.int32)),
            both,
            unidirectional=1,
        ),
        case("present", base, both, unidirectional=1),
        case("scores", base | dict(mask_index=None, past=None, attention_bias=f(1, n, s, s))),
        case(
            "sizes",
            dict(input=x, weights=f(features, 2 * n * h + n * 4, scale=0.3), bias=f(2 * n * h + n * 4)),
            qkv_hidden_sizes=[n * h, n * h, n * 4],
        ),
    ]


def group_query(make):
    f, n, kv, h = make.floats, 4, 2, 32
    cos, sin = angles(make, 24, h // 2)
    part = angles(make, 24, h // 4)
    outputs = ["output", "present_key", "present_value"]
    cases = []

    def case(name, s, capacity, lengths, total, packed=False, valid=None, extra=None, **flags):
        given, b = {}, len(lengths)
        if packed:
            given |= dict(query=f(b, s, (n + 2 * kv) * h), key=None, value=None)
        else:
            given |= dict(query=f(b, s, n * h), key=f(b, s, kv * h), value=f(b, s, kv * h))
        past = None if capacity is None else f(b, kv, capacity, h)
        given |= dict(past_key=past, past_value=None if past is None else f(b, kv, capacity, h))
        given |= dict(
            seqlens_k=np.array(lengths, np.int32) - 1,
            total_sequence_length=np.array(total, np.int32),
        )
        given |= extra or {}
        valid = valid or tuple(lengths)
        cases.append(
            make.case(
                name,
                "GroupQueryAttention",
                given,
                outputs,
                ["cos_cache", "sin_cache", "head_sink"],
                valid=valid,
                num_heads=n,
                kv_num_heads=kv,
                **flags,
            )
        )

    caches = dict(cos_cache=cos, sin_cache=sin)
    case("first call", 5, 0, [5, 5], 5)
    case("first call without past", 5, None, [5, 5], 5)
    case("first call, lengths differ", 5, 0, [3, 5], 5)
    case("first call, buffer", 5, 9, [5, 5], 5)
    case("later call", 1, 6, [7, 7], 7)
    case("later call, lengths differ", 1, 6, [4, 7], 7)
    case("later call, buffer", 1, 9, [7, 5], 7)
    case("later call of several", 3, 6, [9], 9)
    case("later call of several, buffer", 3, 12, [9], 9)
    case("packed", 5, 0, [5, 5], 5, packed=True)
    case("packed, later", 1, 6, [7, 7], 7, packed=True)
    for name, flags in (("", {}), (", interleaved", dict(rotary_interleaved=1))):
        case(f"rotary{name}", 5, 0, [5, 5], 5, extra=caches, do_rotary=1, **flags)
        case(f"rotary, later{name}", 1, 6, [4, 7], 7, extra=caches, do_rotary=1, **flags)
    case("rotary, packed", 5, 0, [5, 5], 5, packed=True, extra=caches, do_rotary=1)
    case("rotary, several", 3, 12, [9], 9, packed=True, extra=caches, do_rotary=1)
    halves = dict(zip(("cos_cache", "sin_cache"), part))
    case("rotary of a part", 5, 0, [5, 5], 5, extra=halves, do_rotary=1)
    given = caches | dict(position_ids=np.array([[3], [5]], np.int64))
    case("rotary, positions", 1, 6, [7, 7], 7, extra=given, do_rotary=1)
    given = caches | dict(position_ids=np.array([[2, 4, 7]], np.int64))
    case("rotary, positions of several", 3, 6, [9], 9, extra=given, do_rotary=1)
    given = caches | dict(position_ids=np.array([[3, 4, 5], [2, 3, 4]], np.int64))
    case("rotary, first positions", 3, 0, [3, 3], 3, extra=given, do_rotary=1)
    case("scale", 5, 0, [5, 5], 5, scale=0.2)
    case("soft cap", 5, 0, [5, 5], 5, softcap=1.5)
    for window in (1, 3, 20):
        case(f"window {window}", 5, 0, [5, 5], 5, local_window_size=window)
        case(f"window {window}, later", 1, 9, [9, 7], 9, local_window_size=window)
    case("smooth", 5, 0, [5, 5], 5, smooth_softmax=1)
    case("smooth, later, window", 1, 9, [9, 7], 9, smooth_softmax=1, local_window_size=3)
    nothing = dict(cos_cache=None, sin_cache=None, position_ids=None)
    sinks = nothing | dict(attention_bias=None, head_sink=f(n))
    case("sinks", 5, 0, [5, 5], 5, extra=sinks)
    case("sinks, later, soft cap", 1, 9, [9, 7], 9, extra=sinks, softcap=2.0)
    scores = nothing | dict(attention_bias=f(2, 1, 5, 5))
    case("scores", 5, 0, [5, 5], 5, extra=scores)
    scores = nothing | dict(attention_bias=f(1, n, 1, 7))
    case("scores, buffer", 1, 12, [7, 6], 7, extra=scores)
    case("scores, smooth, buffer", 1, 12, [7, 6], 7, extra=scores, smooth_softmax=1)
    return cases


def n_bits(make):
    cases = []

    def case(name, bits, rows, depth, columns, block, zeros=None, bias=False, **flags):
        blocks = -(-depth // block)
        packed = make.ints(0, 256, (columns, blocks, block * bits // 8), np.uint8)
        given = dict(A=make.floats(*rows, depth), B=packed)
        given["scales"] = (make.positive(columns, blocks) / 2**bits).astype(make.elem)
        if zeros == "packed":
            given["zero_points"] = make.ints(0, 256, (columns, -(-blocks * bits // 8)), np.uint8)
        elif zeros == "floats":
            given["zero_points"] = make.ints(0, 2**bits, (columns, blocks), make.elem)
        if bias:
            given |= dict(zero_points=given.get("zero_points"), g_idx=None, bias=make.floats(columns))
        flags |= dict(bits=bits, K=depth, N=columns, block_size=block)
        constants = ["B", "scales", "zero_points", "bias"]
        cases.append(make.case(name, "MatMulNBits", given, ["Y"], constants, **flags))

    for bits in (4, 8):
        case(f"{bits} bits", bits, (2, 3), 64, 10, 32)
        case(f"{bits} bits, one row", bits, (1,), 128, 33, 16)
        case(f"{bits} bits, rest of a block", bits, (5,), 40, 12, 16)
        case(f"{bits} bits, zeros", bits, (2, 3), 96, 10, 32, "packed")
        case(f"{bits} bits, bias", bits, (2, 3), 64, 10, 32, "packed", bias=True)
    case("4 bits, zeros as floats", 4, (3,), 64, 10, 32, "floats")
    case("4 bits, many rows", 4, (70,), 256, 40, 64, "packed")
    return cases


def block_quantized(make):
    cases = []

    def case(name, data, scale_dims, indices, zeros=None, **flags):
        given = dict(data=data, indices=indices, scales=make.positive(*scale_dims))
        if zeros is not None:
            given["zero_points"] = zeros
        constants = ["data", "scales", "zero_points"]
        cases.append(make.case(name, "GatherBlockQuantized", given, ["output"], constants, **flags))

    ids = np.array([[0, 3, 5], [1, 1, -1]], np.int64)
    nibbles = make.ints(0, 16, (6, 40))
    signed = make.ints(-8, 8, (6, 40))
    case("uint4", (onnx.TensorProto.UINT4, nibbles), (6, 3), ids, block_size=16)
    case("int4", (onnx.TensorProto.INT4, signed), (6, 3), ids.astype(np.int32), block_size=16)
    zeros = (onnx.TensorProto.UINT4, make.ints(0, 16, (6, 3)))
    case("uint4, zeros", (onnx.TensorProto.UINT4, nibbles), (6, 3), ids, zeros, block_size=16)
    along = dict(gather_axis=1, quantize_axis=0, block_size=16)
    case("other axes", (onnx.TensorProto.UINT4, make.ints(0, 16, (20, 7))), (2, 7), ids, **along)
    packed = make.ints(0, 256, (6, 32), np.uint8)
    case("bytes of 4 bits", packed, (6, 4), ids, block_size=16, bits=4)
    zeros = make.ints(0, 256, (6, 2), np.uint8)
    case("bytes of 4 bits, zeros", packed, (6, 4), ids, zeros, block_size=16, bits=4)
    case("bytes", packed, (6, 2), ids, block_size=16, bits=8)
    zeros = make.ints(0, 256, (6, 2), np.uint8)
    case("bytes, zeros", packed, (6, 2), ids, zeros, block_size=16, bits=8)
    return cases
