"""Do models run that ONNX Runtime's quantizer makes and ONNX Runtime then optimizes?

    python quantized.py SARDONYX WORK [--only TEXT] [--count]

Quantizes small models, dynamically and statically, saves each as ONNX Runtime runs it at the level
ORT_ENABLE_EXTENDED, and runs what was saved on both sides. Prints a line for each model that does
not agree; or with --count a line of JSON, as microsoft.py does. Outputs of static models are codes
times a scale: one code may lie between both sides, as ONNX Runtime fuses the product and the sum
within QLinearAdd.
"""

import argparse
import dataclasses
import json
import logging
import pathlib
import subprocess
import sys

import ml_dtypes  # noqa: F401, so that arrays of few bits can be made
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization as q

F32 = np.float32
# What both sides may differ by in floats that were never codes, as a part of the largest magnitude.
WITHIN = 1e-4


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sardonyx")
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--count", action="store_true")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    ort.set_default_logger_severity(4)
    logging.disable(logging.WARNING)
    agreeing, problems, worst, seen = 0, [], 0.0, set()
    for case in table():
        if args.only not in case.name:
            continue
        try:
            operators = prepare(case, args.work)
            difference = judge(case, args.sardonyx, args.work)
        except Problem as problem:
            problems.append(f"{case.name}: {problem}")
            if not args.count:
                print(problems[-1], flush=True)
            continue
        agreeing, worst = agreeing + 1, max(worst, difference)
        seen |= operators
        if not args.count:
            print(f"{case.name}: {', '.join(sorted(operators))}; {difference:.1e}", flush=True)
    missing = [] if args.only else sorted(EXPECTED - seen)
    problems += [f"no model has {operator}" for operator in missing]
    if args.count:
        print(json.dumps({"agreeing": agreeing, "worst": float(worst), "problems": problems}))
        return
    print(f"{agreeing} models agree, the worst by {worst:.1e}; {len(problems)} problems {missing}")
    sys.exit(1 if problems or not agreeing else 0)


# Operators that the saved models must have between them.
EXPECTED = {
    "DynamicQuantizeLSTM",
    "DynamicQuantizeMatMul",
    "MatMulIntegerToFloat",
    "QAttention",
    "QEmbedLayerNormalization",
    "QGemm",
    "QLinearAdd",
    "QLinearAveragePool",
    "QLinearConcat",
    "QLinearGlobalAveragePool",
    "QLinearLeakyRelu",
    "QLinearMul",
    "QLinearSigmoid",
    "QLinearSoftmax",
    "QLinearWhere",
}


class Problem(Exception):
    pass


@dataclasses.dataclass
class Model:
    """A model of floats, how it is quantized, and inputs of runs."""

    name: str
    nodes: list
    weights: dict
    inputs: dict
    outputs: list
    quantize: dict
    is_static: bool = False


def prepare(case, work):
    """Writes the quantized model as ONNX Runtime saves it: its operators of com.microsoft."""
    given, made, saved = (work / name for name in ("float.onnx", "quantized.onnx", "model.onnx"))
    value = lambda name, array: helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(array.dtype), [f"{name}_0", *array.shape[1:]]
    )
    graph = helper.make_graph(
        case.nodes,
        "quantized",
        [value(name, array) for name, array in case.inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in case.outputs],
        [numpy_helper.from_array(array, name) for name, array in case.weights.items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), given)
    if case.is_static:
        q.quantize_static(given, made, Samples(case.inputs), **case.quantize)
    else:
        q.quantize_dynamic(given, made, **case.quantize)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(saved)
    ort.InferenceSession(made, options, providers=["CPUExecutionProvider"])
    nodes = onnx.load(saved).graph.node
    return {node.op_type for node in nodes if node.domain == "com.microsoft"}


class Samples(q.CalibrationDataReader):
    """Inputs by which the ranges of values are found."""

    def __init__(self, inputs):
        rng = np.random.default_rng(3)
        varied = lambda array: array if array.dtype == bool else (array * rng.uniform(0.5, 1.0)).astype(array.dtype)
        self.left = [{name: varied(array) for name, array in inputs.items()} for _ in range(4)]

    def get_next(self):
        return self.left.pop() if self.left else None


def judge(case, sardonyx, work):
    """The largest difference of both sides."""
    saved = work / "model.onnx"
    options = ort.SessionOptions()
    # Several threads quantize the states of a batch in parts.
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(saved, options, providers=["CPUExecutionProvider"])
    expected = dict(zip(case.outputs, session.run(case.outputs, case.inputs)))
    words = []
    for name, array in case.inputs.items():
        np.save(work / f"{name}.npy", array)
        words.append(f"{name}={work / name}.npy")
    outputs = work / "ours.npz"
    outputs.unlink(missing_ok=True)
    command = [sardonyx, "run", saved, *words, "--output", outputs, "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Problem("ours fails: " + " ".join((done.stderr or done.stdout).split())[:400])
    worst = 0.0
    with np.load(outputs) as ours:
        for name, wanted in expected.items():
            got = ours[name]
            if got.shape != wanted.shape or got.dtype != wanted.dtype:
                raise Problem(f"{name} is {got.dtype, got.shape}, not {wanted.dtype, wanted.shape}")
            apart = np.abs(got.astype(np.float64) - wanted.astype(np.float64))
            difference = apart.max(initial=0.0) / max(np.abs(wanted).max(initial=0.0), 1e-9)
            within = WITHIN
            if case.is_static:
                # The distance of neighboring codes.
                values = np.unique(wanted)
                if values.size < 2:
                    raise Problem(f"{name} has one value: the model shows nothing")
                within = 1.001 * np.diff(values).min() / np.abs(wanted).max()
            if not difference <= within:
                count = (apart > 0).sum()
                where = f"at {count} of {apart.size}"
                raise Problem(f"{name} differs by {difference:.1e} of its largest magnitude, {where}")
            worst = max(worst, difference)
    return worst


def table():
    """All models."""
    rng = np.random.default_rng(5)
    models = []
    for kind in (q.QuantType.QInt8, q.QuantType.QUInt8):
        for per_channel in (False, True):
            if per_channel and kind == q.QuantType.QUInt8:
                continue
            how = dict(weight_type=kind, per_channel=per_channel)
            words = f"{kind.name}{', channels' * per_channel}"
            models += dynamic_models(rng, words, how)
    for form in (q.QuantFormat.QOperator, q.QuantFormat.QDQ):
        for activation, weight in (
            (q.QuantType.QUInt8, q.QuantType.QUInt8),
            (q.QuantType.QUInt8, q.QuantType.QInt8),
            (q.QuantType.QInt8, q.QuantType.QInt8),
        ):
            for per_channel in (False, True):
                if per_channel and weight == q.QuantType.QUInt8:
                    continue
                how = dict(
                    quant_format=form,
                    activation_type=activation,
                    weight_type=weight,
                    per_channel=per_channel,
                    # Else the quantizer forgets inputs of Where.
                    extra_options=dict(ForceQuantizeNoInputCheck=True),
                )
                words = f"{form.name}, {activation.name}, {weight.name}{', channels' * per_channel}"
                models += static_models(rng, words, how)
    return models


def floats(rng, *dims, scale=1.0):
    return (rng.standard_normal(dims) * scale).astype(F32)


def dynamic_models(rng, words, how):
    f = lambda *dims, **more: floats(rng, *dims, **more)
    node, models = helper.make_node, []

    def add(name, nodes, weights, inputs, outputs):
        models.append(Model(f"dynamic {name}, {words}", nodes, weights, inputs, outputs, how))

    for direction, count in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
        h = 16
        weights = dict(W=f(count, 4 * h, 10, scale=0.3), R=f(count, 4 * h, h, scale=0.3), B=f(count, 8 * h, scale=0.3))
        outputs = ["Y", "Y_h", "Y_c"]
        layer = node("LSTM", ["X", "W", "R", "B"], outputs, "layer", hidden_size=h, direction=direction)
        add(f"LSTM {direction}", [layer], weights, dict(X=f(7, 2, 10)), outputs)
    h = 8
    weights = dict(W=f(1, 3 * h, 10, scale=0.3), R=f(1, 3 * h, h, scale=0.3), V=f(h, 12, scale=0.3))
    nodes = [node("GRU", ["X", "W", "R"], ["Y"], "layer", hidden_size=h), node("MatMul", ["Y", "V"], ["Z"], "product")]
    add("GRU and MatMul", nodes, weights, dict(X=f(7, 2, 10)), ["Z"])
    weights = dict(V=f(24, 40, scale=0.2), b=f(40), U=f(40, 12, scale=0.2))
    nodes = [
        node("MatMul", ["X", "V"], ["product"], "first"),
        node("Add", ["product", "b"], ["sum"]),
        node("Relu", ["sum"], ["hidden"]),
        node("MatMul", ["hidden", "U"], ["Y"], "second"),
    ]
    add("MatMul", nodes, weights, dict(X=f(2, 5, 24)), ["Y"])
    weights = dict(Q=f(24, 24, scale=0.2), K=f(24, 24, scale=0.2), b=f(24))
    nodes = [
        node("MatMul", ["X", "Q"], ["queries"], "q"),
        node("MatMul", ["X", "K"], ["keys"], "k"),
        node("Add", ["keys", "b"], ["moved"]),
        node("Mul", ["queries", "moved"], ["Y"]),
    ]
    add("two MatMul of one input", nodes, weights, dict(X=f(2, 5, 24)), ["Y"])
    weights = dict(V=f(40, 24, scale=0.2), b=f(40))
    nodes = [node("Gemm", ["X", "V", "b"], ["Y"], "gemm", transB=1)]
    add("Gemm", nodes, weights, dict(X=f(5, 24)), ["Y"])
    weights = dict(W=f(16, 48, scale=0.3), b=f(48))
    for name, flags in (("Attention", {}), ("causal Attention", dict(unidirectional=1))):
        mask = dict(M=np.array([[1, 1, 1, 0], [1, 1, 1, 1]], np.int32))
        layer = node("Attention", ["X", "W", "b", "M"], ["Y"], "layer", "", "com.microsoft", num_heads=4, **flags)
        add(name, [layer], weights, dict(X=f(2, 4, 16)) | mask, ["Y"])
    weights = dict(words=f(30, 16), places=f(9, 16), kinds=f(2, 16), gamma=f(16), beta=f(16))
    ids = dict(I=rng.integers(0, 30, (2, 4)).astype(np.int32), S=rng.integers(0, 2, (2, 4)).astype(np.int32))
    ids |= dict(M=np.array([[1, 1, 1, 0], [1, 1, 1, 1]], np.int32))
    inputs = ["I", "S", "words", "places", "kinds", "gamma", "beta", "M"]
    layer = node("EmbedLayerNormalization", inputs, ["Y", "index"], "layer", "", "com.microsoft", epsilon=1e-5)
    add("EmbedLayerNormalization", [layer], weights, ids, ["Y"])
    return models


def static_models(rng, words, how):
    f = lambda *dims, **more: floats(rng, *dims, **more)
    node, models = helper.make_node, []

    def add(name, nodes, weights, inputs):
        models.append(Model(f"static {name}, {words}", nodes, weights, inputs, ["Y"], how, True))

    image = dict(X=f(2, 3, 12, 10))
    conv = lambda x, w, y: node("Conv", [x, w, w + "b"], [y], y, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    filters = lambda name, m, c: {name: f(m, c, 3, 3, scale=0.3), name + "b": f(m, scale=0.2)}
    weights = filters("a", 8, 3) | filters("b", 8, 8) | filters("c", 4, 3)
    nodes = [
        conv("X", "a", "first"),
        node("Relu", ["first"], ["positive"], "relu"),
        conv("positive", "b", "second"),
        node("Add", ["second", "positive"], ["sum"], "add"),
        node("LeakyRelu", ["sum"], ["leaky"], "leaky", alpha=0.1),
        conv("X", "c", "third"),
        node("Sigmoid", ["third"], ["gate"], "gate"),
        node("Mul", ["third", "gate"], ["swish"], "mul"),
        node("Concat", ["leaky", "swish"], ["joined"], "concat", axis=1),
        node("MaxPool", ["joined"], ["largest"], "max", kernel_shape=[2, 2], strides=[2, 2]),
        node("AveragePool", ["largest"], ["mean"], "mean", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("GlobalAveragePool", ["mean"], ["pooled"], "pooled"),
        node("Flatten", ["pooled"], ["features"], "flatten"),
        node("Gemm", ["features", "V", "Vb"], ["scores"], "gemm", transB=1),
        node("Softmax", ["scores"], ["Y"], "softmax", axis=-1),
    ]
    add("network", nodes, weights | dict(V=f(10, 12), Vb=f(10)), image)
    nodes = [
        conv("X", "a", "first"),
        conv("X", "d", "second"),
        node("Add", ["first", "second"], ["sum"], "add"),
        node("AveragePool", ["sum"], ["Y"], "mean", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
    ]
    add("sum and pool", nodes, filters("a", 8, 3) | filters("d", 8, 3), image)
    nodes = [
        node("MatMul", ["X", "V"], ["product"], "product"),
        node("LeakyRelu", ["product"], ["leaky"], "leaky"),
        node("Where", ["C", "product", "leaky"], ["chosen"], "where"),
        node("MatMul", ["chosen", "U"], ["Y"], "last"),
    ]
    condition = dict(C=rng.random((3, 1, 20)) < 0.5)
    add("products", nodes, dict(V=f(16, 20), U=f(20, 8)), dict(X=f(3, 4, 16)) | condition)
    nodes = [node("Gemm", ["X", "V", "b"], ["scores"], "gemm"), node("Softmax", ["scores"], ["Y"], "softmax")]
    add("Gemm", nodes, dict(V=f(16, 9), b=f(9)), dict(X=f(5, 16)))
    return models


if __name__ == "__main__":
    main()
