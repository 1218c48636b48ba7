"""Random calls of the operators that are functions of others, for `body_cases.py`.

A draw is given random numbers and an opset version, and gives a `Drawn`. Ranks, sizes, attributes, broadcasting, scalars
against vectors of one element, and inputs that are left out are drawn; values are such that results are well apart from
where an operator jumps.
"""

import collections

import numpy as np

# Inputs in order, `None` for one that is left out; attributes as `onnx.helper` takes them; and for each output whether
# the node has it.
Drawn = collections.namedtuple("Drawn", "inputs attributes outputs", defaults=[(), {}, (True,)])

FLOATS = (np.float32, np.float32, np.float32, np.float64, np.float16)


class Draws:
    """Random numbers, and what is made of them."""

    def __init__(self, rng):
        self.rng = rng

    def chance(self, share=0.5):
        return self.rng.random() < share

    def pick(self, values):
        return values[int(self.rng.integers(len(values)))]

    def below(self, low, high):
        """An integer from `low` to `high`."""
        return int(self.rng.integers(low, high + 1))

    def shape(self, least=0, most=4, largest=4):
        return tuple(self.below(1, largest) for _ in range(self.below(least, most)))

    def array(self, shape, kind=np.float32, low=-2.0, high=2.0):
        if np.dtype(kind).kind in "iu":
            return self.rng.integers(int(low), int(high) + 1, shape).astype(kind)
        return np.asarray(self.rng.uniform(low, high, shape)).astype(kind)

    def kind(self, kinds=FLOATS):
        return self.pick(kinds)

    def axis(self, rank):
        return self.below(-rank, rank - 1)

    def some(self, **attributes):
        """Each attribute or its default."""
        return {name: value for name, value in attributes.items() if self.chance()}

    def broadcast(self, shape):
        """A shape that broadcasts to another one without changing it."""
        kept = shape[self.below(0, len(shape)) :]
        return tuple(1 if self.chance(0.3) else size for size in kept)

    def maybe(self, make):
        return make() if self.chance() else None

    def number(self, value, kind):
        """A scalar, or now and then a vector of one element."""
        return np.array([value] if self.chance(0.3) else value, kind)


def elementwise(kinds=FLOATS, **attributes):
    def draw(d, opset):
        given = d.some(**{name: round(float(d.rng.uniform(*between)), 2) for name, between in attributes.items()})
        return Drawn([d.array(d.shape(), d.kind(kinds))], given)

    return draw


def gelu(d, opset):
    return Drawn([d.array(d.shape(), d.kind())], d.some(approximate=d.pick(["none", "tanh"])))


def comparison(d, opset):
    kind = d.pick((np.float32, np.float64, np.int32, np.int64))
    whole = d.shape()
    one, other = whole, d.broadcast(whole)
    if d.chance():
        one, other = other, one
    return Drawn([d.array(one, kind), d.array(other, kind)])


def slope(d, opset):
    shape, kind = d.shape(), d.kind((np.float32, np.float64))
    return Drawn([d.array(shape, kind), d.array(d.broadcast(shape), kind)])


def swiglu(d, opset):
    shape, kind = d.shape(), d.kind()
    return Drawn([d.array(shape, kind), d.array(shape, kind)], d.some(alpha=1.5))


def clip(d, opset):
    kind = d.pick((np.float32, np.float32, np.float64, np.int32, np.int64))
    limits = [d.maybe(lambda value=value: np.array(value, kind)) for value in (-1, 1)]
    return Drawn([d.array(d.shape(), kind, -3, 3), *limits])


def cast_like(d, opset):
    kinds = (np.float32, np.float64, np.float16, np.int32, np.int64, np.uint8, np.bool_)
    return Drawn([d.array(d.shape(), d.pick(kinds[:5]), 0, 5), d.array(d.shape(), np.float32, 0, 1).astype(d.pick(kinds))])


def softmax(d, opset):
    shape = d.shape(least=1)
    return Drawn([d.array(shape, d.kind())], d.some(axis=d.axis(len(shape))))


def reduce(low=-2.0, kinds=(np.float32, np.float32, np.float64, np.int32, np.int64)):
    def draw(d, opset):
        shape = d.shape()
        kind = d.pick(kinds)
        axes = sorted(d.rng.permutation(len(shape))[: d.below(0, len(shape))].tolist())
        axes = [axis - len(shape) if d.chance(0.3) else axis for axis in axes]
        attributes = d.some(keepdims=d.below(0, 1), noop_with_empty_axes=d.below(0, 1))
        return Drawn([d.array(shape, kind, low, 2.0), d.maybe(lambda: np.array(axes, np.int64))], attributes)

    return draw


def mean_variance(d, opset):
    # Neighbours of two signs: a small variance is the difference of large numbers.
    shape = tuple(size + 1 for size in (d.shape(least=4) if d.chance(0.3) else d.shape(least=1)))
    attributes = {} if len(shape) == 4 and d.chance() else {"axes": [d.axis(len(shape))]}
    signs = np.where(np.indices(shape).sum(0) % 2, -1, 1)
    return Drawn([(signs * d.array(shape, np.float64, 0.5, 2)).astype(d.kind())], attributes)


def layer_normalization(d, opset):
    shape = d.shape(least=1)
    axis = d.axis(len(shape))
    inner = shape[axis:]
    factors = [inner if d.chance(0.3) else d.broadcast(inner) for _ in range(2)]
    kind = d.kind()
    bias = d.maybe(lambda: d.array(factors[1], kind))
    outputs = d.pick([(True,), (True,), (True, True), (True, False, True), (True, True, True)])
    attributes = d.some(epsilon=0.01) | ({} if axis == -1 and d.chance() else {"axis": axis})
    return Drawn([d.array(shape, kind), d.array(factors[0], kind), bias], attributes, outputs)


def rms_normalization(d, opset):
    shape = d.shape(least=1)
    axis = d.axis(len(shape))
    kind = d.kind()
    factor = d.kind() if d.chance(0.2) else kind
    attributes = d.some(epsilon=0.01) | ({} if axis == -1 and d.chance() else {"axis": axis})
    return Drawn([d.array(shape, kind), d.array(d.broadcast(shape[axis:]), factor)], attributes)


def group_normalization(d, opset):
    groups, size = d.below(1, 3), d.below(1, 3)
    channels = groups * size
    shape = (d.below(1, 3), channels, *d.shape(least=1, most=2))
    factors = groups if opset < 21 else channels
    kind = d.kind()
    attributes = {"num_groups": groups} | d.some(epsilon=0.01)
    return Drawn([d.array(shape, kind), *(d.array((factors,), kind) for _ in range(2))], attributes)


def loss(outputs):
    def draw(d, opset):
        classes = d.below(2, 4)
        shape = (d.below(1, 3), classes, *d.shape(most=2))
        target = d.rng.integers(0, classes, (shape[0], *shape[2:])).astype(d.pick((np.int32, np.int64)))
        attributes = d.some(reduction=d.pick(["none", "sum", "mean"]))
        if d.chance(0.4):
            attributes["ignore_index"] = d.below(0, classes - 1)
            # A mean over nothing is no number.
            target.flat[0] = (attributes["ignore_index"] + 1) % classes
        kind = d.pick((np.float32, np.float32, np.float64))
        weight = d.maybe(lambda: d.array((classes,), kind, 0.5, 2.0))
        return Drawn([d.array(shape, kind), target, weight], attributes, d.pick(outputs))

    return draw


def range_(d, opset):
    kind = d.pick((np.float32, np.float64, np.int16, np.int32, np.int64))
    start, step = d.below(-3, 3), d.pick([-2, -1, 1, 2, 3])
    limit = start + step * d.below(0, 4)
    return Drawn([d.number(value, kind) for value in (start, limit, step)])


def window(d, opset):
    kind = d.pick((np.int32, np.int64))
    return Drawn([np.array(d.below(2, 6), kind)], d.some(periodic=d.below(0, 1), output_datatype=d.pick([1, 11])))


def affine_grid(d, opset):
    axes = d.pick([2, 3])
    batch, kind = d.below(1, 2), d.pick((np.float32, np.float32, np.float64))
    # A row of one element has no step between corners.
    sizes = np.array([batch, d.below(1, 3), *(d.below(2, 4) for _ in range(axes))], np.int64)
    return Drawn([d.array((batch, axes, axes + 1), kind), sizes], d.some(align_corners=d.below(0, 1)))


def quantize(d, opset):
    return Drawn([d.array(d.shape(least=1))], {}, (True, True, True))


def center_crop_pad(d, opset):
    shape = d.shape(least=1)
    count = d.below(1, len(shape))
    axes = sorted(d.rng.permutation(len(shape))[:count].tolist())
    given = count < len(shape) or d.chance()
    sizes = np.array([d.below(1, 5) for _ in (axes if given else shape)], np.int64)
    return Drawn([d.array(shape), sizes], {"axes": axes} if given else {})


def depth_to_space(d, opset):
    block = d.below(1, 3)
    shape = (d.below(1, 2), block * block * d.below(1, 2), d.below(1, 3), d.below(1, 3))
    return Drawn([d.array(shape)], {"blocksize": block} | d.some(mode=d.pick(["DCR", "CRD"])))


def space_to_depth(d, opset):
    block = d.below(1, 3)
    shape = (d.below(1, 2), d.below(1, 3), block * d.below(1, 3), block * d.below(1, 3))
    return Drawn([d.array(shape)], {"blocksize": block})


def attention(d, opset):
    batch, kv, queries, keys, size = (d.below(1, 2), d.below(1, 2), d.below(1, 4), d.below(1, 4), d.pick([2, 4]))
    heads = kv * d.below(1, 2)
    kind = d.pick((np.float32, np.float32, np.float16))
    attributes = d.some(is_causal=d.below(0, 1), softcap=2.0, scale=0.5)
    past = d.maybe(lambda: d.below(1, 3)) or 0
    if d.chance():
        shapes = [(batch, heads, queries, size), (batch, kv, keys, size), (batch, kv, keys, size)]
    else:
        shapes = [(batch, queries, heads * size), (batch, keys, kv * size), (batch, keys, kv * size)]
        attributes |= {"q_num_heads": heads, "kv_num_heads": kv}
    whole = (batch, heads, queries, keys + past)
    mask = None
    if d.chance():
        shape = tuple(1 if d.chance(0.3) else size for size in whole[:2]) + whole[2:]
        mask = d.array(shape[d.below(0, 2) :], kind)
        if d.chance():
            mask = mask > -1
            # A row that sees no key has no softmax.
            mask[..., 0] = True
    inputs = [*(d.array(shape, kind) for shape in shapes), mask]
    if past:
        inputs += [d.array((batch, kv, past, size), kind) for _ in range(2)]
    return Drawn(inputs, attributes, (True, True, True) if past else (True,))


def rotary_embedding(d, opset):
    batch, heads, length, half = d.below(1, 2), d.below(1, 3), d.below(1, 3), d.below(1, 3)
    size = 2 * half
    kind = d.pick((np.float32, np.float32, np.float16))
    attributes = d.some(interleaved=d.below(0, 1))
    if d.chance():
        shape = (batch, heads, length, size)
        attributes |= d.some(num_heads=heads)
    else:
        shape = (batch, length, heads * size)
        attributes["num_heads"] = heads
    positions = d.maybe(lambda: d.rng.integers(0, 5, (batch, length)).astype(np.int64))
    cache = (batch, length, half) if positions is None else (5, half)
    return Drawn([d.array(shape, kind), d.array(cache, kind), d.array(cache, kind), positions], attributes)


def causal_conv(d, opset):
    batch, channels, length, kernel = d.below(1, 2), d.below(1, 3), d.below(1, 4), d.below(2, 3)
    inputs = [d.array((batch, channels, length)), d.array((channels, 1, kernel))]
    inputs += [d.maybe(lambda: d.array((channels,))), d.maybe(lambda: d.array((batch, channels, kernel - 1)))]
    return Drawn(inputs, d.some(activation=d.pick(["none", "silu", "swish"])), (True, True))


def linear_attention(d, opset):
    batch, length, kv, size, values = d.below(1, 2), d.below(1, 4), d.below(1, 2), d.below(1, 3), d.below(1, 3)
    heads = kv * d.below(1, 2)
    rule = d.pick(["linear", "gated", "delta", "gated_delta"])
    shapes = [(batch, length, heads * size), (batch, length, kv * size), (batch, length, kv * values)]
    inputs = [d.array(shape, np.float32, -1, 1) for shape in shapes]
    inputs.append(d.maybe(lambda: d.array((batch, kv, size, values))))
    inputs.append(d.array((batch, length, kv), np.float32, -1, 0) if "gated" in rule else None)
    inputs.append(d.array((batch, length, kv), np.float32, 0, 1) if "delta" in rule else None)
    attributes = {"q_num_heads": heads, "kv_num_heads": kv, "update_rule": rule} | d.some(scale=0.5)
    return Drawn(inputs, attributes, (True, True))


def flex_attention(d, opset):
    batch, kv, queries, keys, size = (d.below(1, 2), d.below(1, 2), d.below(1, 4), d.below(1, 4), d.pick([2, 4]))
    shapes = [(batch, kv * d.below(1, 2), queries, size), (batch, kv, keys, size), (batch, kv, keys, d.below(1, 4))]
    return Drawn([d.array(shape) for shape in shapes], d.some(scale=0.5))


# By operator, and in which domain if not in that of the standard.
DRAWS = {
    "AffineGrid": affine_grid,
    "Attention": attention,
    "BlackmanWindow": window,
    "CastLike": cast_like,
    "CausalConvWithState": causal_conv,
    "Celu": elementwise((np.float32,), alpha=(0.2, 2)),
    "CenterCropPad": center_crop_pad,
    "Clip": clip,
    "DepthToSpace": depth_to_space,
    "DynamicQuantizeLinear": quantize,
    "Elu": elementwise(alpha=(0.2, 2)),
    "Gelu": gelu,
    "GreaterOrEqual": comparison,
    "GroupNormalization": group_normalization,
    "HammingWindow": window,
    "HannWindow": window,
    "HardSigmoid": elementwise(alpha=(0.1, 0.4), beta=(0.2, 0.6)),
    "HardSwish": elementwise(),
    "LayerNormalization": layer_normalization,
    "LeakyRelu": elementwise(alpha=(0.01, 0.5)),
    "LessOrEqual": comparison,
    "LinearAttention": linear_attention,
    "LogSoftmax": softmax,
    "MeanVarianceNormalization": mean_variance,
    "Mish": elementwise(),
    "NegativeLogLikelihoodLoss": loss([(True,)]),
    "PRelu": slope,
    "Range": range_,
    "ReduceL1": reduce(),
    "ReduceL2": reduce(),
    "ReduceLogSum": reduce(0.5, (np.float32, np.float64)),
    "ReduceLogSumExp": reduce(-2.0, (np.float32, np.float64)),
    "ReduceSumSquare": reduce(),
    "Relu": elementwise(),
    "RMSNormalization": rms_normalization,
    "RotaryEmbedding": rotary_embedding,
    "Selu": elementwise(alpha=(1, 2), gamma=(0.5, 2)),
    "Shrink": elementwise(bias=(0, 0.5), lambd=(0.3, 0.8)),
    "Softmax": softmax,
    "SoftmaxCrossEntropyLoss": loss([(True,), (True, True)]),
    "Softplus": elementwise(),
    "Softsign": elementwise(),
    "SpaceToDepth": space_to_depth,
    "SwiGLU": swiglu,
    "Swish": elementwise(alpha=(0.5, 2)),
    "ThresholdedRelu": elementwise(alpha=(0.1, 1)),
    "ai.onnx.preview.FlexAttention": flex_attention,
}
# Functions of which no calls are drawn, and why.
LEFT_OUT = {
    "Bernoulli": "its outputs are random",
    "SequenceMap": "what it does is a graph; backend cases have some",
}


def mean_variance_of(attributes, x):
    wide = x.astype(np.float64)
    axes = tuple(attributes.get("axes", (0, 2, 3)))
    deviation = np.sqrt(wide.var(axes, keepdims=True))
    return [((wide - wide.mean(axes, keepdims=True)) / (deviation + 1e-9)).astype(x.dtype)]


# The input that has the type of the output, where inference takes another.
TYPED_BY = {"RMSNormalization": 1}
# What operators give, where an oracle lacks types.
FORMULAS = {"MeanVarianceNormalization": mean_variance_of}
