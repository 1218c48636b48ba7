"""The package as a whole."""

import importlib

import pytest
import sardonyx
from sardonyx import _core
from sardonyx._onnx_core import SUBMODULES


def test_submodules_have_their_full_names():
    for name in SUBMODULES:
        module = importlib.import_module(f"sardonyx._core.{name}")
        assert module is getattr(_core, name)
        assert module.__name__ == f"sardonyx._core.{name}"
    assert _core.ONNX_ML is True
    assert sardonyx.__version__ == _core.__version__


def test_exceptions_are_told_apart():
    exceptions = [
        _core.defs.SchemaError,
        _core.checker.ValidationError,
        _core.shape_inference.InferenceError,
        _core.version_converter.ConvertError,
        sardonyx.NotAvailable,
    ]
    for exception in exceptions:
        assert exception.__bases__ == (Exception,)


def test_what_is_not_there_yet_says_so():
    text = '<ir_version: 10, opset_import: ["": 21]> g () => () {}'
    model = sardonyx.parser.parse_model(text)[2]
    missing = [
        lambda: _core.version_converter.convert_version(model, 20),
        lambda: _core.inliner.inline_local_functions(model, False),
    ]
    for call in missing:
        with pytest.raises(sardonyx.NotAvailable, match="not available yet"):
            call()
