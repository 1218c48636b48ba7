"""What a model gives when every float32 in it is a float64: the judge of two runtimes that differ.

    python float64_outputs.py MODEL.onnx CASE OUT.npz

Weights, inputs, constants, casts and types that attributes name are widened, and the onnx package's reference evaluator runs
the result with numpy. Operators that it computes element by element in Python, or in less than double precision, are replaced
by those below. Prints one line of JSON: `{"skipped": null}`, or why such a run says nothing about the model: one that
quantises rounds to other integers in other arithmetic, and a model of trees is one of comparisons.
"""

import itertools
import json
import math
import pathlib
import sys

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_resize import Resize as ReferenceResize

from arrays import write_npz
from case_inputs import read_case

NARROW, WIDE = TensorProto.FLOAT, TensorProto.DOUBLE


def main(path, case, out):
    model = onnx.load(path)
    reason = not_of_floats(model.graph)
    if reason is None:
        skeleton, values = widened(model)
        del model
        values |= {name: widen(array) for name, array in read_case(case).items()}
        outputs = run(skeleton, values)
        out.parent.mkdir(parents=True, exist_ok=True)
        # Under another name first, so that a stopped run leaves no half file after.
        partial = out.with_suffix(".partial")
        write_npz(partial, outputs)
        partial.rename(out)
    print(json.dumps({"skipped": reason}))


def not_of_floats(graph):
    for node in nodes_of(graph):
        if "Quantize" in node.op_type or node.op_type.endswith("Integer"):
            return f"it quantises ({node.op_type})"
        if node.domain == "ai.onnx.ml":
            return f"it has operators of {node.domain}"
    return None


def nodes_of(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs]:
                yield from nodes_of(inner)


def widened(model):
    """The model without its initializers, and these as arrays.

    Apart, because a message of more than 2 GB cannot be handled, and so that the narrow weights can be forgotten."""
    values = {tensor.name: widen(numpy_helper.to_array(tensor)) for tensor in model.graph.initializer}
    del model.graph.initializer[:]
    skeleton = onnx.ModelProto.FromString(model.SerializeToString())
    widen_graph(skeleton.graph)
    for function in skeleton.functions:
        widen_nodes(function.node)
        del function.value_info[:]
    return skeleton, values


def widen(array):
    return array.astype(np.float64) if array.dtype == np.float32 else array


def widen_graph(graph):
    for tensor in graph.initializer:
        widen_tensor(tensor)
    for value in [*graph.input, *graph.output]:
        widen_type(value.type)
    del graph.value_info[:]
    widen_nodes(graph.node)


def widen_nodes(nodes):
    for node in nodes:
        for attribute in node.attribute:
            widen_attribute(node, attribute)
        if node.op_type == "ConstantOfShape" and not node.attribute:
            zero = np.zeros(1, np.float64)
            node.attribute.append(onnx.helper.make_attribute("value", numpy_helper.from_array(zero)))


def widen_attribute(node, attribute):
    if attribute.name in ("to", "dtype", "output_dtype") and attribute.i == NARROW:
        attribute.i = WIDE
    elif attribute.type in (AttributeProto.TENSOR, AttributeProto.TENSORS):
        for tensor in [attribute.t, *attribute.tensors] if attribute.HasField("t") else attribute.tensors:
            widen_tensor(tensor)
    elif attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
        for graph in [attribute.g, *attribute.graphs] if attribute.HasField("g") else attribute.graphs:
            widen_graph(graph)
    elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
        numbers = attribute.f if attribute.name == "value_float" else list(attribute.floats)
        tensor = numpy_helper.from_array(np.array(numbers, np.float64))
        attribute.CopyFrom(onnx.helper.make_attribute("value", tensor))


def widen_tensor(tensor):
    if tensor.data_type == NARROW:
        tensor.CopyFrom(numpy_helper.from_array(widen(numpy_helper.to_array(tensor)), tensor.name))


def widen_type(kind):
    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(kind, which)
        if tensor.elem_type == NARROW:
            tensor.elem_type = WIDE
    elif which in ("sequence_type", "optional_type"):
        widen_type(getattr(kind, which).elem_type)


def run(model, values):
    """The outputs by name. Other than the evaluator's own loop, this one lets go of values after their last use."""
    evaluator = ReferenceEvaluator(model, new_ops=OPERATORS)
    outputs = [output.name for output in model.graph.output]
    last_use = {}
    for position, node in enumerate(model.graph.node):
        for name in names_used(node):
            last_use[name] = position
    values[""] = None
    for position, (node, step) in enumerate(zip(model.graph.node, evaluator.rt_nodes_)):
        inputs = [values[name] for name in node.input]
        context = {"context": values} if step.need_context() else {}
        for name, value in zip(node.output, step.run(*inputs, **context)):
            if getattr(value, "dtype", None) == np.float32:
                raise SystemExit(f"{node.op_type} gave float32 for '{name}'")
            values[name] = value
        del inputs
        for name in names_used(node):
            if name and last_use[name] == position and name not in outputs:
                del values[name]
    return {name: values[name] for name in outputs}


def names_used(node):
    """By it and, from outside, by its inner graphs."""
    names = set(node.input)
    for attribute in node.attribute:
        for graph in [attribute.g, *attribute.graphs]:
            inside = {value.name for value in [*graph.input, *graph.initializer]}
            inside.update(name for inner in graph.node for name in inner.output)
            used = {name for inner in graph.node for name in names_used(inner)}
            used.update(output.name for output in graph.output)
            names |= used - inside
    return names


class Erf(OpRun):
    op_domain = ""

    def _run(self, x):
        return (np.fromiter(map(math.erf, x.ravel().tolist()), np.float64, x.size).reshape(x.shape),)


class Sigmoid(OpRun):
    op_domain = ""

    def _run(self, x):
        small = np.exp(-np.abs(x))
        return (np.where(x >= 0, 1.0, small) / (1.0 + small),)


class GatherElements(OpRun):
    """The package's own goes wrong where the axis is longer than 64."""

    op_domain = ""

    def _run(self, data, indices, axis=None):
        axis %= data.ndim
        places = [slice(0, count) for count in indices.shape]
        places[axis] = slice(None)
        size = data.shape[axis]
        return (np.take_along_axis(data[tuple(places)], indices % size, axis),)


class HardSwish(OpRun):
    op_domain = ""

    def _run(self, x):
        return (x * np.clip(x / 6.0 + 0.5, 0.0, 1.0),)


class LayerNormalization(OpRun):
    op_domain = ""

    def _run(self, x, scale, bias=None, axis=None, epsilon=None, stash_type=None):
        axes = tuple(range(axis % x.ndim, x.ndim))
        mean = x.mean(axis=axes, keepdims=True)
        centred = x - mean
        inverse = 1.0 / np.sqrt((centred * centred).mean(axis=axes, keepdims=True) + epsilon)
        y = centred * inverse * scale
        return (y if bias is None else y + bias, mean, inverse)


class MatMul(OpRun):
    """Views whose rows and columns both have gaps would be multiplied without the library for products."""

    op_domain = ""

    def _run(self, a, b):
        dense = [x if x.itemsize in x.strides[-2:] else np.ascontiguousarray(x) for x in (a, b)]
        return (np.matmul(*dense),)


class Window:
    """Where the taps of a kernel fall on an input with spatial axes after the first two."""

    def __init__(self, x, kernel, auto_pad, dilations, pads, strides, ceil_mode=0):
        rank = len(kernel)
        self.kernel = kernel
        self.dilations = dilations or [1] * rank
        self.strides = strides or [1] * rank
        pads = list(pads or [0] * (2 * rank))
        if auto_pad not in ("NOTSET", "VALID", "", None) or ceil_mode:
            raise SystemExit(f"auto_pad {auto_pad}, ceil_mode {ceil_mode}: not written yet")
        self.pads = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:])]
        self.out = [
            (size + sum(pad) - dilation * (taps - 1) - 1) // stride + 1
            for size, pad, taps, dilation, stride in zip(
                x.shape[2:], self.pads[2:], kernel, self.dilations, self.strides
            )
        ]

    def taps(self, x, fill):
        """Each tap's index, and what it meets at every place."""
        padded = np.pad(x, self.pads, constant_values=fill)
        for tap in itertools.product(*map(range, self.kernel)):
            starts = [at * dilation for at, dilation in zip(tap, self.dilations)]
            places = [
                slice(start, start + (count - 1) * stride + 1, stride)
                for start, count, stride in zip(starts, self.out, self.strides)
            ]
            yield tap, padded[(slice(None), slice(None), *places)]


class Conv(OpRun):
    op_domain = ""

    def _run(
        self,
        x,
        w,
        b=None,
        auto_pad=None,
        dilations=None,
        group=None,
        kernel_shape=None,
        pads=None,
        strides=None,
    ):
        window = Window(x, w.shape[2:], auto_pad, dilations, pads, strides)
        batch, group = x.shape[0], group or 1
        places, taps = math.prod(window.out), math.prod(w.shape[2:])
        y = np.zeros((batch, group, w.shape[0] // group, places))
        if w.shape[1] == 1 and w.shape[0] == group:
            # Nothing to multiply matrices for.
            for tap, part in window.taps(x, 0.0):
                y += w[(slice(None), slice(None), *tap)].reshape(group, 1, 1) * part.reshape(batch, group, 1, places)
        else:
            weights = w.reshape(group, w.shape[0] // group, w.shape[1] * taps)
            for image, result in zip(x, y):
                columns = np.empty((group, w.shape[1], taps, places))
                for number, (_, part) in enumerate(window.taps(image[None], 0.0)):
                    columns[:, :, number] = part.reshape(group, w.shape[1], places)
                np.matmul(weights, columns.reshape(group, -1, places), out=result)
        y = y.reshape(batch, w.shape[0], *window.out)
        return (y if b is None else y + b.reshape(-1, *[1] * len(window.out)),)


class MaxPool(OpRun):
    op_domain = ""

    def _run(
        self,
        x,
        auto_pad=None,
        ceil_mode=None,
        dilations=None,
        kernel_shape=None,
        pads=None,
        storage_order=None,
        strides=None,
    ):
        if len(self.output) > 1:
            raise SystemExit("MaxPool with indices: not written yet")
        window = Window(x, kernel_shape, auto_pad, dilations, pads, strides, ceil_mode)
        y = np.full((*x.shape[:2], *window.out), -np.inf)
        for _, part in window.taps(x, -np.inf):
            np.maximum(y, part, out=y)
        return (y,)


class AveragePool(OpRun):
    op_domain = ""

    def _run(
        self,
        x,
        auto_pad=None,
        ceil_mode=None,
        count_include_pad=None,
        dilations=None,
        kernel_shape=None,
        pads=None,
        strides=None,
    ):
        window = Window(x, kernel_shape, auto_pad, dilations, pads, strides, ceil_mode)
        total = sum(part for _, part in window.taps(x, 0.0))
        inside = np.ones((1, 1, *x.shape[2:]))
        return (total / sum(part for _, part in window.taps(inside, float(count_include_pad or 0))),)


class BatchNormalization(OpRun):
    """The package takes old versions for training."""

    op_domain = ""

    def _run(self, x, scale, bias, mean, variance, epsilon=None, momentum=None, training_mode=None):
        if training_mode:
            raise SystemExit("BatchNormalization in training: not written yet")
        factor = scale / np.sqrt(variance + epsilon)
        shift = bias - mean * factor
        channels = (-1, *[1] * (x.ndim - 2))
        return (x * factor.reshape(channels) + shift.reshape(channels),)


class LRN(OpRun):
    """The package leaves out the last channel of a window."""

    op_domain = ""

    def _run(self, x, alpha=None, beta=None, bias=None, size=None):
        channels, before = x.shape[1], (size - 1) // 2
        squares = np.pad(x * x, [(0, 0), (before, size - 1 - before)] + [(0, 0)] * (x.ndim - 2))
        total = sum(squares[:, shift : shift + channels] for shift in range(size))
        return (x / (bias + alpha / size * total) ** beta,)


class Resize(ReferenceResize):
    """Whole factors that repeat elements are done at once; the rest is left to the package, which is slow."""

    op_domain = ""

    def _run(self, x, roi=None, scales=None, sizes=None, **attributes):
        factors = None
        if scales is not None and len(scales) == x.ndim:
            factors = np.asarray(scales)
        elif sizes is not None and len(sizes) == x.ndim:
            factors = np.asarray(sizes) / x.shape
        repeats = (
            factors is not None
            and (factors == np.rint(factors)).all()
            and attributes.get("mode") == "nearest"
            and attributes.get("nearest_mode") == "floor"
            and attributes.get("coordinate_transformation_mode") == "asymmetric"
        )
        if not repeats:
            return super()._run(x, roi, scales, sizes, **attributes)
        for axis, factor in enumerate(factors.astype(int)):
            if factor > 1:
                x = x.repeat(factor, axis=axis)
        return (x,)


OPERATORS = [
    *[Erf, Sigmoid, GatherElements, HardSwish, LayerNormalization, MatMul],
    *[Conv, MaxPool, AveragePool, BatchNormalization, LRN, Resize],
]

if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*map(pathlib.Path, sys.argv[1:]))
