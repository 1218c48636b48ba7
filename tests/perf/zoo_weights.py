"""Give weights to models that travel without them: the same weights on every machine.

    python zoo_weights.py SKELETON.onnx OUT.onnx

A skeleton is a valid model whose large tensors have a type and a shape but no data. Beside it lies
SKELETON.weights.json: for each such tensor, keyed by its position in the model, the mean, standard
deviation, smallest and largest value of the original, so that activations stay in a sane range.
Values come from a generator seeded by the position. They are good for timing a runtime and for
comparing two of them; they mean nothing. A matrix of nothing but zeros, as a last layer is before it was ever trained, gets
small values: after it, all runtimes would agree whatever they computed before.
"""

import json
import pathlib
import sys

import numpy as np
import onnx


def main(skeleton, out):
    statistics = json.loads(skeleton.with_suffix(".weights.json").read_text())
    model = onnx.load(skeleton)
    for position, tensor in enumerate(tensors_of(model.graph)):
        if str(position) in statistics:
            fill(tensor, position, *statistics[str(position)])
    # Under another name first, so that a stopped run leaves no half model after.
    partial = out.with_suffix(".partial")
    partial.write_bytes(model.SerializeToString())
    partial.rename(out)


def tensors_of(graph):
    """Initializers, then tensors in attributes, node by node: the order that defines a position."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            if attribute.HasField("g"):
                yield from tensors_of(attribute.g)
            for subgraph in attribute.graphs:
                yield from tensors_of(subgraph)


UNTRAINED = (0.0, 0.02, -0.1, 0.1)


def fill(tensor, position, mean, std, low, high):
    floats = tensor.data_type == onnx.TensorProto.FLOAT
    if floats and len(tensor.dims) > 1 and low == high == 0:
        mean, std, low, high = UNTRAINED
    random = np.random.Generator(np.random.PCG64(position))
    values = random.standard_normal(tuple(tensor.dims), dtype=np.float32)
    values = np.clip(values * np.float32(std) + np.float32(mean), low, high)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    if dtype.kind in "iu":
        values = np.rint(values)
    tensor.raw_data = values.astype(dtype).tobytes()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
