"""The package as a whole."""

import importlib
import importlib.metadata
import inspect

import sardonyx
from sardonyx import _core
from sardonyx._shims.onnx_core import SUBMODULES


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
    ]
    for exception in exceptions:
        assert exception.__bases__ == (Exception,)
    assert sardonyx.parser.ParseError.__bases__ == (ValueError,)


def test_the_wheel_says_what_it_is():
    facts = importlib.metadata.metadata("sardonyx")
    assert facts["Name"] == "sardonyx" and facts["Version"] == sardonyx.__version__
    assert facts["License-Expression"] == "MIT OR Apache-2.0"
    assert facts["Description-Content-Type"].startswith("text/markdown")
    assert "# Sardonyx for Python" in facts.get_payload()
    assert facts.get_all("License-File") == ["LICENSE-APACHE", "LICENSE-MIT"]
    files = {str(file): file for file in importlib.metadata.files("sardonyx")}
    for licence, words in (("LICENSE-MIT", "MIT License"), ("LICENSE-APACHE", "Apache License")):
        (path,) = (path for path in files if path.endswith(f"licenses/{licence}"))
        # The text, and not the name of what a link leads to.
        assert words in files[path].read_text()
    assert "sardonyx/py.typed" in files and "sardonyx/_core/defs.pyi" in files
    assert any(path.startswith("sardonyx/_core.abi3.") for path in files)
    # For processes that a program started by `python -m sardonyx.ort` starts; at the top of `site-packages`.
    assert {"sardonyx-as-onnxruntime.pth", "_sardonyx_as_onnxruntime.py"} <= set(files)


def test_the_example_of_the_readme_runs(capsys):
    readme = importlib.metadata.metadata("sardonyx").get_payload()
    example = readme.split("```python\n")[1].split("```")[0]
    exec(example, {})
    assert "Abs" in capsys.readouterr().out


def test_every_public_function_has_help():
    submodules = (name for name in sardonyx.__all__ if inspect.ismodule(getattr(sardonyx, name)))
    for submodule in submodules:
        module = getattr(sardonyx, submodule)
        assert module.__doc__
        for name in module.__all__:
            assert getattr(module, name).__doc__, f"{submodule}.{name}"
