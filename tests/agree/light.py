"""Give one of the onnx wheel's light networks random weights, and store what ONNX Runtime makes of it.

    python light.py NAME OUT

NAME is that of the file without light_ and .onnx. In the wheel every weight is a ConstantOfShape node
with one value, and the outputs are nearly constant. Here each such node, and each small weight stored
as it is, becomes an initializer with seeded random values that keep activations in a sane range. All
else stays as it was: IR 3 and opset 9, so every initializer is also listed as a graph input. What goes
into the last Softmax becomes a second output, since probabilities hide much of what differs.

Writes OUT/model.onnx, OUT/0.npy and OUT/expected.npz, and prints the NAME=FILE word of the input.
"""

import copy
import math
import pathlib
import sys

import numpy as np
import onnx
import onnx.backend.test
from onnx import helper, numpy_helper

import reference

LIGHT = pathlib.Path(onnx.backend.test.__file__).parent / "data/light"
SEED = 20
# The standard deviation of what goes into the last Softmax: the top class stays far below certainty.
LOGITS_STD = 2.0


def main(name, out):
    out.mkdir(parents=True, exist_ok=True)
    fed, data, outputs = make(name, out / "model.onnx")
    reference.write_npz(out / "expected.npz", outputs)
    np.save(out / "0.npy", data)
    print(f"{fed}={out / '0.npy'}")


def make(name, path):
    """Writes the model; the name of its input, one value of that, and what comes of it."""
    model = onnx.load(LIGHT / f"light_{name}.onnx")
    graph, random = model.graph, np.random.default_rng(SEED)
    weights = draw(graph, random)
    replace_weights(graph, weights)
    fed = input_without_value(graph)
    shape = [dim.dim_value for dim in fed.type.tensor_type.shape.dim]
    data = random.standard_normal(shape, dtype=np.float32)
    logits = add_logits(graph)

    onnx.save(model, path)
    outputs = reference.run(path, {fed.name: data})
    if logits:
        scale_last_layer(graph, weights, LOGITS_STD / outputs[logits].std())
        onnx.save(model, path)
        outputs = reference.run(path, {fed.name: data})
        for probabilities in (array for key, array in outputs.items() if key != logits):
            if probabilities.max() > 0.999:
                sys.exit(f"{name}: one class has probability {probabilities.max():.6f}")
    reference.check_spread(outputs)
    return fed.name, data, outputs


def draw(graph, random):
    """New values for every weight, by name. Which distribution depends on the node that uses it."""
    stored = {tensor.name: tensor for tensor in graph.initializer}
    shapes = {name: list(tensor.dims) for name, tensor in stored.items() if tensor.data_type == onnx.TensorProto.FLOAT}
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            shapes[node.output[0]] = numpy_helper.to_array(stored[node.input[0]]).tolist()
    roles = {name: role(graph, name) for name in shapes}
    # A weight that nothing uses keeps its value.
    return {name: values(random, roles[name], shape) for name, shape in shapes.items() if roles[name]}


def role(graph, name):
    """The node that a weight ends up in, and at which input; reshaping on the way does not count."""
    for node in graph.node:
        if name in node.input:
            if node.op_type in ("Reshape", "Unsqueeze"):
                return role(graph, node.output[0])
            if node.op_type == "Gemm" and not any(a.name == "transB" and a.i for a in node.attribute):
                sys.exit(f"{name}: how many inputs has a Gemm without transB?")
            return node.op_type, list(node.input).index(name)
    return None


def values(random, role, shape):
    normal = random.standard_normal(shape, dtype=np.float32)
    around_one = random.uniform(0.5, 1.5, shape).astype(np.float32)
    match role:
        case ("Conv" | "Gemm", 1):
            return normal * np.float32(math.sqrt(2 / math.prod(shape[1:])))
        case ("BatchNormalization", 1 | 4) | ("Mul", _):
            return around_one
        case ("Conv" | "Gemm", 2) | ("BatchNormalization", 2 | 3) | ("Add", _):
            return normal * np.float32(0.1)
    sys.exit(f"how should the weights of {role} be distributed?")


def replace_weights(graph, weights):
    """Puts initializers in the place of ConstantOfShape nodes; the shapes they were made from go."""
    used = {name for node in graph.node if node.op_type != "ConstantOfShape" for name in node.input}
    shapes = {node.input[0] for node in graph.node if node.op_type == "ConstantOfShape"}
    gone = (shapes - used) | weights.keys()
    keep(graph.node, lambda node: node.op_type != "ConstantOfShape")
    keep(graph.initializer, lambda tensor: tensor.name not in gone)
    keep(graph.input, lambda info: info.name not in gone)
    for name, array in weights.items():
        graph.initializer.append(numpy_helper.from_array(array, name))
        graph.input.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, array.shape))


def keep(field, wanted):
    kept = [item for item in field if wanted(item)]
    del field[:]
    field.extend(kept)


def input_without_value(graph):
    stored = {tensor.name for tensor in graph.initializer}
    (fed,) = (info for info in graph.input if info.name not in stored)
    return fed


def add_logits(graph):
    """Makes what goes into the last node, if that is a Softmax, an output, and returns its name."""
    last = graph.node[-1]
    if last.op_type != "Softmax":
        return None
    info = copy.deepcopy(graph.output[0])
    info.name = last.input[0]
    graph.output.append(info)
    return info.name


def scale_last_layer(graph, weights, factor):
    """Between the last layer with weights and the Softmax nothing changes a scale."""
    last = [node for node in graph.node if node.op_type in ("Conv", "Gemm")][-1]
    sources = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "Reshape"}
    scaled = {sources.get(name, name) for name in last.input[1:]}
    for tensor in graph.initializer:
        if tensor.name in scaled:
            tensor.CopyFrom(numpy_helper.from_array(weights[tensor.name] * np.float32(factor), tensor.name))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], pathlib.Path(sys.argv[2]))
