"""Writes `block.onnx`: a layer of a transformer with random weights, to be divided among devices.

    python make_block.py block.onnx
    sardonyx shard block.onnx --devices 4 -o block.onnx
"""

import sys

import numpy as np
import onnx
from onnx import numpy_helper, parser

MODEL = """
<ir_version: 11, opset_import: ["": 23]>
block (float[batch, length, 64] x) => (float[batch, length, 64] y) {
    heads = Constant <value_ints = [0, 0, 4, 16]> ()
    whole = Constant <value_ints = [0, 0, 64]> ()
    scale = Constant <value_float = 0.25> ()
    a = LayerNormalization <axis = -1> (x, norm1)
    q = MatMul (a, query)
    k = MatMul (a, key)
    v = MatMul (a, value)
    q4 = Reshape (q, heads)
    k4 = Reshape (k, heads)
    v4 = Reshape (v, heads)
    qh = Transpose <perm = [0, 2, 1, 3]> (q4)
    kh = Transpose <perm = [0, 2, 3, 1]> (k4)
    vh = Transpose <perm = [0, 2, 1, 3]> (v4)
    products = MatMul (qh, kh)
    scaled = Mul (products, scale)
    weights = Softmax <axis = -1> (scaled)
    mixed = MatMul (weights, vh)
    back = Transpose <perm = [0, 2, 1, 3]> (mixed)
    flat = Reshape (back, whole)
    projected = MatMul (flat, projection)
    b = Add (x, projected)
    c = LayerNormalization <axis = -1> (b, norm2)
    d = MatMul (c, up)
    e = Gelu (d)
    f = MatMul (e, down)
    y = Add (b, f)
}
"""
SHAPES = {
    "norm1": (64,),
    "query": (64, 64),
    "key": (64, 64),
    "value": (64, 64),
    "projection": (64, 64),
    "norm2": (64,),
    "up": (64, 256),
    "down": (256, 64),
}

model = parser.parse_model(MODEL)
random = np.random.default_rng(1)
for name, shape in SHAPES.items():
    weight = random.normal(0, shape[0] ** -0.5, shape) if len(shape) > 1 else np.ones(shape)
    model.graph.initializer.append(numpy_helper.from_array(weight.astype(np.float32), name))
onnx.save(model, sys.argv[1])
