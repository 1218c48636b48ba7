"""`simplify`: models in each form, options, and the option of the drop-in that writes the result."""

import re

import numpy as np
import pytest
import sardonyx

MODEL = """
<ir_version: 10, opset_import: ["": 18]>
g (float[N, 2] x) => (float[N, 2] y)
<float[2, 2] w = {1, 2, 3, 4}, float[2] zero = {0, 0}, float half = {0.5}>
{ i = Identity (x) p = MatMul (i, w) s = Add (p, zero) y = Mul (s, half) }
"""


class Message:
    """A class of messages such as onnx.ModelProto."""

    def __init__(self, content):
        self.content = content

    def SerializeToString(self):
        return self.content

    @classmethod
    def FromString(cls, content):
        return cls(content)


def operators(model):
    text = sardonyx.printer.model_to_text(model)
    return [word for word in ("Identity", "MatMul", "Add", "Mul") if re.search(rf"\b{word} ?\(", text)]


def test_results_have_the_form_of_the_model(tmp_path):
    content = sardonyx.parser.parse_model(MODEL)
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    exact = sardonyx.simplify(content)
    assert operators(exact) == ["MatMul", "Add", "Mul"]
    assert sardonyx.simplify(path) == exact
    message = sardonyx.simplify(Message(content))
    assert isinstance(message, Message) and message.content == exact
    close = sardonyx.simplify(content, level="close")
    assert operators(close) == ["MatMul"]
    x = np.array([[1, -2], [3, 4]], np.float32)
    assert np.array_equal(sardonyx.Session(close)(x), sardonyx.Session(content)(x))


def test_options():
    content = sardonyx.parser.parse_model(MODEL)
    assert operators(sardonyx.simplify(content, without=["identity"], verify=False, grow=0))[0] == "Identity"
    with pytest.raises(ValueError, match="unknown level 'fast'"):
        sardonyx.simplify(content, level="fast")
    with pytest.raises(ValueError, match="unknown rule 'fast'"):
        sardonyx.simplify(content, without=["fast"])
    with pytest.raises(RuntimeError, match="cannot be simplified"):
        sardonyx.simplify(sardonyx.parser.parse_model(MODEL.replace("(i, w)", "(missing, w)")))
