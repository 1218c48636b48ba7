"""A session in Python on a system that has nothing but CPython, numpy and the wheel."""

import tempfile
from pathlib import Path

import numpy as np
import sardonyx

MODEL = "examples/digits/digits.onnx"
TEXT = """
<ir_version: 10, opset_import: ["": 21]>
example (float[N, 3] x) => (float[N, 3] y) { y = Abs(x) }
"""

image = np.linspace(0, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
session = sardonyx.Session(MODEL)
probabilities = session(image)
assert abs(float(probabilities.sum()) - 1) < 1e-5, probabilities

model = sardonyx.parser.parse_model(TEXT)
sardonyx.checker.check_model(model)
assert "Abs" in sardonyx.printer.model_to_text(sardonyx.shape_inference.infer_shapes(model))
with tempfile.TemporaryDirectory() as directory:
    path = Path(directory) / "example.onnx"
    path.write_bytes(model)
    negative = np.array([[-1, 2, -3]], np.float32)
    assert (sardonyx.Session(path)(negative) == abs(negative)).all()

with sardonyx.use_as_onnxruntime():
    import onnxruntime

    other = onnxruntime.InferenceSession(MODEL, providers=["CPUExecutionProvider"])
    (same,) = other.run(None, {"image": image})
assert (same == probabilities).all()

print(f"sardonyx {sardonyx.__version__}: a session, a check, onnxruntime's names")
