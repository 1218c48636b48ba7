"""`inliner`: calls of functions become what the functions do."""

import numpy as np
import pytest
import sardonyx
from sardonyx import _core, inliner, version_converter

MODEL = """
<ir_version: 10, opset_import: ["": 21, "local": 1]>
g (float[N] x) => (float[N] y) { t = local.square (x) y = local.old(t) }
<domain: "local", opset_import: ["": 21]>
square (x) => (y) { y = Mul (x, x) }
<domain: "local", opset_import: ["": 12]>
old (x) => (y) { y = Softmax (x) }
"""


def text(model):
    return sardonyx.printer.model_to_text(model)


def test_calls_that_mean_something_else_stay_or_are_refused():
    # FUNC-16-
    model = sardonyx.parser.parse_model(MODEL)
    inlined = text(_core.inliner.inline_local_functions(model, False))
    assert "Mul" in inlined and "local.old(t)" in inlined and "local.square" not in inlined
    one = text(_core.inliner.inline_selected_functions(model, [("local", "square")], False))
    assert "local.old(t)" in one and "local.square" not in one
    # Names that are not there are passed over.
    none = _core.inliner.inline_selected_functions(model, [("local", "other")], False)
    assert "local.square(x)" in text(none)
    with pytest.raises(RuntimeError, match="Softmax differs between the versions"):
        _core.inliner.inline_selected_functions(model, [("local", "square")], True)


def test_functions_that_call_themselves_are_refused_as_by_the_checker():
    # FUNC-15-
    model = sardonyx.parser.parse_model(MODEL.replace("Mul (x, x)", "local.square (x)"))
    for exclude in (False, True):
        with pytest.raises(_core.checker.ValidationError, match="Cycle detected"):
            _core.inliner.inline_selected_functions(model, [], exclude)


def test_operators_that_are_functions():
    model = sardonyx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[N] x) => (float[N] y) { y = Softsign (x) }'
    )
    call = _core.inliner.inline_selected_functions2
    assert "Softsign" in text(call(model, [], False))
    assert "Softsign" in text(call(model, [("", "Softsign")], True))
    for arguments in (([("", "Softsign")], False), ([], True)):
        assert "Abs" in text(call(model, *arguments))


def test_what_is_not_a_model_is_refused():
    with pytest.raises(ValueError, match="Unable to parse proto"):
        _core.inliner.inline_local_functions(b"\xff", False)
    with pytest.raises(TypeError):
        _core.inliner.inline_local_functions("model.onnx", False)


class Message:
    """Something that gives its bytes and is made of bytes."""

    def __init__(self, content):
        self.content = content

    @classmethod
    def FromString(cls, content):
        return cls(content)

    def SerializeToString(self):
        return self.content


def test_public_functions_give_back_what_they_were_given():
    model = sardonyx.parser.parse_model(MODEL)
    for given in (model, bytearray(model), Message(model)):
        for call in (
            lambda model: inliner.inline_local_functions(model, convert_version=True),
            lambda model: inliner.inline_selected_functions(model, [("local", "square")]),
            lambda model: version_converter.convert_version(model, 22),
        ):
            made = call(given)
            assert type(made) is (Message if isinstance(given, Message) else bytes)
            assert "g (" in text(made)
    converted = text(inliner.inline_local_functions(model, convert_version=True))
    assert "local.old" not in converted and "Softmax" in converted
    assert 'opset_import: ["": 22' in text(version_converter.convert_version(model, 22))


def test_conversion_is_that_of_the_command():
    gelu = sardonyx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 20, "local": 1]>
        g (float[N] x) => (float[N] y) { y = local.f (x) }
        <domain: "local", opset_import: ["": 20]> f (x) => (y) { y = Gelu (x) }
    """)
    x = np.linspace(-3, 3, 7, dtype=np.float32)
    older = version_converter.convert_version(gelu, 17)
    assert "= Gelu" not in text(older) and "Erf" in text(older)
    # Both forms of Gelu have an absolute error that does not shrink with the result.
    older, newer = sardonyx.Session(older)(x), sardonyx.Session(gelu)(x)
    np.testing.assert_allclose(older, newer, rtol=1e-6, atol=5e-8)
    with pytest.raises(RuntimeError, match="Gelu"):
        version_converter.convert_version(gelu, 17, expand=False)
    # The core, on which the onnx package works, does as that package.
    with pytest.raises(RuntimeError, match="Gelu"):
        _core.version_converter.convert_version(gelu, 17)


def test_assumptions_of_a_conversion_are_those_of_the_onnx_package():
    dropout = sardonyx.parser.parse_model('''
        <ir_version: 8, opset_import: ["": 6]> g (float[N] x) => (float[N] y) { y = Dropout (x) }
    ''')
    assert "Dropout" in text(version_converter.convert_version(dropout, 13))
    with pytest.raises(RuntimeError, match="Dropout"):
        version_converter.convert_version(dropout, 13, assume=[])
    with pytest.raises(ValueError, match="assume has 'luck', which is not one of default-inputs"):
        version_converter.convert_version(dropout, 13, assume=["luck"])
    with pytest.raises(TypeError, match="assume is 'inference', which is not a list"):
        version_converter.convert_version(dropout, 13, assume="inference")


def test_public_functions_take_operators_that_are_functions():
    model = sardonyx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[N] x) => (float[N] y) { y = Softsign (x) }'
    )
    assert "Softsign" in text(inliner.inline_selected_functions(model, [], exclude=True))
    inlined = inliner.inline_selected_functions(model, [], exclude=True, inline_schema_functions=True)
    assert "Abs" in text(inlined)


def test_public_functions_say_what_they_want():
    for call in (
        lambda: inliner.inline_local_functions(3.5),
        lambda: inliner.inline_selected_functions(7, []),
        lambda: version_converter.convert_version(None, 22),
    ):
        with pytest.raises(TypeError, match="expected a ModelProto"):
            call()
