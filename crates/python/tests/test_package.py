"""The package as a whole."""

import ast
import importlib
import importlib.metadata
import inspect
from pathlib import Path

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


@pytest.mark.parametrize("name", SUBMODULES)
def test_stubs_name_what_is_there(name):
    """Names, and for functions whether they can be called like that."""
    stub = Path(sardonyx.__file__).parent / "_core" / f"{name}.pyi"
    module = getattr(_core, name)
    typed = {}
    for item in ast.parse(stub.read_text()).body:
        if isinstance(item, (ast.FunctionDef, ast.ClassDef)):
            typed[item.name] = item
    runtime = {found for found in vars(module) if not found.startswith("__")}
    assert set(typed) == runtime
    for found, item in typed.items():
        if isinstance(item, ast.ClassDef):
            members = {part.name for part in item.body if isinstance(part, (ast.FunctionDef, ast.ClassDef))}
            targets = (part.target for part in item.body if isinstance(part, ast.AnnAssign))
            members |= {target.id for target in targets if isinstance(target, ast.Name)}
            there = {part for part in vars(getattr(module, found)) if not part.startswith("__")}
            assert members - {"__init__"} == there, found


def test_every_public_function_has_help():
    submodules = (name for name in sardonyx.__all__ if inspect.ismodule(getattr(sardonyx, name)))
    for submodule in submodules:
        module = getattr(sardonyx, submodule)
        assert module.__doc__
        for name in module.__all__:
            assert getattr(module, name).__doc__, f"{submodule}.{name}"
