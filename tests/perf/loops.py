"""Make a model of one loop, and its .case file: what a runtime costs per turn.

    python loops.py KIND MODEL CASE

`scalar` adds 1 to a float, 100,000 times. `sequence` inserts a tensor into a sequence, 1,000 times: ONNX
Runtime copies the sequence each time, so many more take it minutes. `layer` is a recurrent layer of 64
features, 1,000 steps; its weights are small, so that rounding does not grow from step to step.
"""

import pathlib
import sys

import onnx
import onnx.parser

HEAD = '<ir_version: 10, opset_import: ["": 21]>'

SCALAR = """g (int64 n, float x) => (float y) <float one = {1}> {
  y = Loop (n, , x) <body = turn (int64 i, bool c, float v) => (bool c2, float v2) {
    c2 = Identity (c)
    v2 = Add (v, one)
  }>
}"""

SEQUENCE = """g (int64 n, float[4] x) => (int64 count, float[4] last) <int64 end = {-1}> {
  empty = SequenceEmpty ()
  all = Loop (n, , empty) <body = turn (int64 i, bool c, seq(float[4]) s) => (bool c2, seq(float[4]) s2) {
    c2 = Identity (c)
    y = Neg (x)
    s2 = SequenceInsert (s, y)
  }>
  count = SequenceLength (all)
  last = SequenceAt (all, end)
}"""

LAYER = """g (int64 n, float[1, 64] x, float[64, 64] w, float[64] b) => (float[1, 64] last, float[N, 1, 64] states)
<float small = {0.0625}> {
  weights = Mul (w, small)
  last, states = Loop (n, , x) <
    body = step (int64 i, bool c, float[1, 64] state) => (bool c2, float[1, 64] next, float[1, 64] out) {
      c2 = Identity (c)
      product = MatMul (state, weights)
      sum = Add (product, b)
      next = Tanh (sum)
      out = Identity (next)
    }>
}"""

KINDS = {
    "scalar": (SCALAR, "n i64 - const:100000\nx f32 - rand\n"),
    "sequence": (SEQUENCE, "n i64 - const:1000\nx f32 4 rand\n"),
    "layer": (LAYER, "n i64 - const:1000\nx f32 1,64 rand\nw f32 64,64 rand\nb f32 64 rand\n"),
}


def main(kind, model, case):
    text, inputs = KINDS[kind]
    model.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(onnx.parser.parse_model(HEAD + text), model)
    case.write_text(inputs)


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in KINDS:
        sys.exit(__doc__)
    main(sys.argv[1], *map(pathlib.Path, sys.argv[2:]))
