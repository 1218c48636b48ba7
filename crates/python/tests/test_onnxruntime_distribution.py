"""The distribution onnxruntime-sardonyx, which provides the module onnxruntime where it is absent."""

import os
import subprocess
import sys
from pathlib import Path

import sardonyx

SOURCES = Path(__file__).parents[1] / "onnxruntime"
DIGITS = Path(__file__).parents[3] / "examples/digits/digits.onnx"
SITE = Path(sardonyx.__file__).parents[1]


def run(code: str, *options: str) -> str:
    """Runs code as if the distribution were installed. The option ``-S`` leaves out all installed packages."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SITE), str(SOURCES)])}
    # The line of the file that Python reads when it starts.
    start = (SOURCES / "onnxruntime-by-sardonyx.pth").read_text()
    command = [sys.executable, *options, "-c", start + code]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_the_module_is_provided_where_it_is_absent() -> None:
    code = f"""
import importlib.metadata
version = importlib.metadata.version("onnxruntime")
import onnxruntime
import onnxruntime.capi.onnxruntime_pybind11_state
assert onnxruntime.__version__ == version
session = onnxruntime.InferenceSession({str(DIGITS)!r})
print(onnxruntime.__sardonyx__, [port.name for port in session.get_outputs()])
"""
    assert run(code, "-S") == "True ['probabilities']"


def test_nothing_is_imported_before_it_is_wanted() -> None:
    code = "import sys, json; print('sardonyx' in sys.modules, 'importlib.metadata' in sys.modules)"
    assert run(code, "-S") == "False False"


def test_other_names_are_not_found() -> None:
    code = """
import importlib.metadata, importlib.util
assert importlib.util.find_spec("onnxruntime_extensions") is None
try:
    importlib.metadata.version("onnxruntime-gpu")
except importlib.metadata.PackageNotFoundError as error:
    print(error.args[0])
"""
    assert run(code, "-S") == "onnxruntime-gpu"


def test_an_installed_onnxruntime_comes_first() -> None:
    code = "import onnxruntime; print(hasattr(onnxruntime, '__sardonyx__'))"
    assert run(code) == "False"
