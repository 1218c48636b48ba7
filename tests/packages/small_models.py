"""Models with random weights, with the inputs and outputs that packages of PyPI expect of the models that they download."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


class Network:
    """A graph in the making. Methods add nodes and return the name of what they compute."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.weights = [], []

    def node(self, op, *inputs, **attributes):
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def weight(self, *dims, scale=None):
        """Random floats, scaled so that sums over all but the first axis stay near 1."""
        scale = scale or 1 / np.sqrt(max(1, np.prod(dims[1:])))
        return self.constant((self.rng.standard_normal(dims) * scale).astype(np.float32))

    def constant(self, value):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def floats(self, *values):
        return self.constant(np.float32(values))

    def ints(self, *values):
        return self.constant(np.int64(values))

    def conv(self, x, channels, to, kernel=3, stride=1, axes=2):
        pads = [kernel // 2] * (2 * axes)
        sizes = dict(kernel_shape=[kernel] * axes, strides=[stride] * axes, pads=pads)
        return self.node("Conv", x, self.weight(to, channels, *[kernel] * axes), self.weight(to, scale=0.1), **sizes)

    def dense(self, x, columns, to):
        return self.node("Add", self.node("MatMul", x, self.weight(columns, to, scale=columns**-0.5)), self.weight(to, scale=0.1))

    def normal(self, x, columns):
        return self.node("LayerNormalization", x, self.weight(columns), self.weight(columns, scale=0.1))

    def save(self, path, inputs, outputs):
        """Writes the model. `inputs` and `outputs` are rows of a name, an element type and sizes."""
        ports = [[helper.make_tensor_value_info(*port) for port in side] for side in (inputs, outputs)]
        for port, computed in zip(outputs, self.results):
            self.nodes.append(helper.make_node("Identity", [computed], [port[0]]))
        graph = helper.make_graph(self.nodes, "small", *ports, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, path)


def encoder(path, words, columns):
    """Embeddings of tokens: a layer of a transformer."""
    net = Network(1)
    table = net.node("Gather", net.weight(words, columns, scale=1), "input_ids")
    kinds = net.node("Gather", net.weight(2, columns, scale=1), "token_type_ids")
    x = net.normal(net.node("Add", table, kinds), columns)
    q, k, v = (net.dense(x, columns, columns) for _ in range(3))
    scores = net.node("MatMul", q, net.node("Transpose", k, perm=[0, 2, 1]))
    scores = net.node("Mul", scores, net.floats(columns**-0.5))
    mask = net.node("Unsqueeze", net.node("Cast", "attention_mask", to=FLOAT), net.ints(1))
    mask = net.node("Mul", net.node("Sub", net.floats(1), mask), net.floats(-1e9))
    attention = net.node("Softmax", net.node("Add", scores, mask), axis=-1)
    x = net.normal(net.node("Add", x, net.dense(net.node("MatMul", attention, v), columns, columns)), columns)
    hidden = net.dense(x, columns, 4 * columns)
    inner = net.node("Add", net.node("Erf", net.node("Mul", hidden, net.floats(0.5**0.5))), net.floats(1))
    hidden = net.node("Mul", net.node("Mul", hidden, inner), net.floats(0.5))
    net.results = [net.normal(net.node("Add", x, net.dense(hidden, 4 * columns, columns)), columns)]
    sizes = ["batch_size", "sequence_length"]
    inputs = [(name, INT64, sizes) for name in ("input_ids", "attention_mask", "token_type_ids")]
    net.save(path, inputs, [("last_hidden_state", FLOAT, [*sizes, columns])])


def frames(net, x, columns, speed):
    """Rows of `x` [T, columns], each repeated for as many frames as the network finds, and these numbers."""
    found = net.node("Abs", net.node("MatMul", x, net.weight(columns, 1, scale=1)))
    found = net.node("Add", net.node("Ceil", net.node("Mul", net.node("Squeeze", found, net.ints(1)), speed)), net.floats(1))
    ends = net.node("CumSum", found, net.constant(np.int64(0)))
    last = net.node("Cast", net.node("ReduceMax", ends, keepdims=0), to=INT64)
    count = net.node("Range", net.constant(np.int64(0)), last, net.constant(np.int64(1)))
    count = net.node("Unsqueeze", net.node("Cast", count, to=FLOAT), net.ints(1))
    passed = net.node("LessOrEqual", net.node("Unsqueeze", ends, net.ints(0)), count)
    row = net.node("ReduceSum", net.node("Cast", passed, to=INT64), net.ints(1), keepdims=0)
    return net.node("Gather", x, row), net.node("Cast", found, to=INT64)


def waves(net, x, columns):
    """Samples for frames [L, columns]: [1, 1, 16 L]."""
    x = net.node("Unsqueeze", net.node("Transpose", x, perm=[1, 0]), net.ints(0))
    for _ in range(2):
        x = net.node("LeakyRelu", net.conv(x, columns, columns, 3, axes=1), alpha=0.1)
        weight = net.weight(columns, columns, 8, scale=columns**-0.5)
        x = net.node("ConvTranspose", x, weight, kernel_shape=[8], strides=[4], pads=[2, 2])
    return net.node("Tanh", net.conv(x, columns, 1, 7, axes=1))


def piper_voice(path, symbols, columns=24):
    """A voice of piper: phonemes to samples, with noise and lengths by `scales`."""
    net = Network(2)
    noise, length, _ = (net.node("Gather", "scales", net.ints(index)) for index in range(3))
    x = net.node("Squeeze", net.node("Gather", net.weight(symbols, columns, scale=1), "input"), net.ints(0))
    x, _ = frames(net, x, columns, length)
    x = net.node("Add", x, net.node("Mul", net.node("RandomNormalLike", x), noise))
    net.results = [net.node("Unsqueeze", waves(net, x, columns), net.ints(1))]
    inputs = [("input", INT64, ["batch_size", "phonemes"]), ("input_lengths", INT64, ["batch_size"]), ("scales", FLOAT, [3])]
    net.save(path, inputs, [("output", FLOAT, ["batch_size", 1, 1, "time"])])


def kokoro(path, symbols, columns=24):
    """The model of kokoro: tokens, a style and a speed to samples and durations."""
    net = Network(3)
    x = net.node("Gather", net.weight(symbols, columns, scale=1), "tokens")
    x = net.node("Add", x, net.node("Unsqueeze", net.dense("style", 256, columns), net.ints(1)))
    half = columns // 2
    weights = [net.weight(2, 4 * half, columns, scale=0.3), net.weight(2, 4 * half, half, scale=0.3), net.weight(2, 8 * half, scale=0.1)]
    x = net.node("LSTM", net.node("Transpose", x, perm=[1, 0, 2]), *weights, hidden_size=half, direction="bidirectional")
    x = net.node("Reshape", net.node("Transpose", x, perm=[0, 2, 1, 3]), net.ints(-1, columns))
    x, found = frames(net, x, columns, net.node("Div", net.floats(4), "speed"))
    net.results = [net.node("Reshape", waves(net, x, columns), net.ints(-1)), found]
    inputs = [("tokens", INT64, [1, "tokens"]), ("style", FLOAT, [1, 256]), ("speed", FLOAT, [1])]
    net.save(path, inputs, [("audio", FLOAT, ["samples"]), ("duration", INT64, ["tokens"])])


def background(path):
    """A mask of an image, seven times, as u2netp has it."""
    net = Network(4)
    first = net.node("Relu", net.conv("input.1", 3, 8, stride=2))
    second = net.node("Relu", net.conv(first, 8, 16, stride=2))
    deep = net.node("Relu", net.conv(second, 16, 16, stride=2))
    sizes = dict(mode="linear", coordinate_transformation_mode="half_pixel")
    back = net.node("Resize", deep, "", net.floats(1, 1, 2, 2), **sizes)
    x = net.conv(net.node("Concat", second, back, axis=1), 32, 7)
    x = net.node("Sigmoid", net.node("Resize", x, "", net.floats(1, 1, 4, 4), **sizes))
    net.results = [net.node("Slice", x, net.ints(index), net.ints(index + 1), net.ints(1)) for index in range(7)]
    sizes = [1, 1, 320, 320]
    net.save(path, [("input.1", FLOAT, [1, 3, 320, 320])], [(f"out{index}", FLOAT, sizes) for index in range(7)])


def faces(directory):
    """Models of a pack of insightface: a detector with open sizes, features, points, gender and age."""
    net = Network(5)
    x = net.node("Relu", net.conv("input.1", 3, 16, stride=4, kernel=5))
    rows = {"score": [], "box": [], "points": []}
    for _stride in (8, 16, 32):
        x = net.node("Relu", net.conv(x, 16, 16, stride=2))
        for name, columns, last in (("score", 1, "Sigmoid"), ("box", 4, "Softplus"), ("points", 10, "Identity")):
            y = net.node("Transpose", net.conv(x, 16, 2 * columns), perm=[0, 2, 3, 1])
            rows[name].append(net.node(last, net.node("Reshape", y, net.ints(-1, columns))))
    net.results = [name for names in rows.values() for name in names]
    outputs = [(f"out{index}", FLOAT, ["?", columns]) for index, columns in enumerate([1] * 3 + [4] * 3 + [10] * 3)]
    net.save(directory / "det_small.onnx", [("input.1", FLOAT, [1, 3, "?", "?"])], outputs)
    for seed, (name, pixels, outputs) in enumerate([("1k3d", 192, 212), ("genderage", 96, 3), ("w600k", 112, 512)]):
        net = Network(6 + seed)
        x = net.node("PRelu", net.conv("input.1", 3, 16, stride=4, kernel=5), net.weight(16, 1, 1, scale=0.2))
        x = net.node("Relu", net.conv(x, 16, 32, stride=2))
        x = net.node("Flatten", net.node("GlobalAveragePool", x))
        net.results = [net.dense(x, 32, outputs)]
        net.save(directory / f"{name}.onnx", [("input.1", FLOAT, ["None", 3, pixels, pixels])], [("out", FLOAT, [1, outputs])])
