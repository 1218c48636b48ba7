"""Sessions and the files of their models: files may be saved again, shortened and removed while sessions live."""

import os
import pickle
import subprocess
import sys

import numpy as np
import onnx
import pytest
import sardonyx
from onnx import TensorProto, helper, numpy_helper

# More elements than anything keeps of a small constant.
ROWS, COLUMNS = 64, 64


def saved(directory, value, *, beside=False):
    """Saves a model in place, as exporters do: its table has one value throughout."""
    table = numpy_helper.from_array(np.full((ROWS, COLUMNS), value, np.float32), "table")
    nodes = [helper.make_node("Gather", ["table", "i"], ["y"]), helper.make_node("MatMul", ["x", "table"], ["z"])]
    inputs = [
        helper.make_tensor_value_info("i", TensorProto.INT64, ["N"]),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["M", ROWS]),
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, COLUMNS]) for name in "yz"]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [table])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = directory / "model.onnx"
    if beside:
        (directory / "weights.bin").unlink(missing_ok=True)
    onnx.save(model, path, save_as_external_data=beside, location="weights.bin", size_threshold=0)
    return path


def numbers(session, rows):
    y, z = session(np.arange(rows), np.ones((rows, ROWS), np.float32))
    return y[0, 0], z[0, 0]


def save_again(path):
    beside = (path.parent / "weights.bin").exists()
    saved(path.parent, 2.0, beside=beside)


def shorten(path):
    for file in path.parent.iterdir():
        os.truncate(file, 100)


def remove(path):
    for file in path.parent.iterdir():
        file.unlink()


@pytest.mark.parametrize("change", [save_again, shorten, remove])
@pytest.mark.parametrize("beside", [False, True])
def test_files_may_change_while_a_session_lives(tmp_path, change, beside):
    path = saved(tmp_path, 1.0, beside=beside)
    fresh, used = sardonyx.Session(path), sardonyx.Session(path)
    ort = sardonyx.InferenceSession(path)
    assert numbers(used, 2) == (1, 64)
    change(path)
    for session in (fresh, used):
        assert numbers(session, 3) == (1, 64)
        assert [port.name for port in session.outputs] == ["y", "z"]
        assert session.steps() and repr(session)
    y, _ = ort.run(None, {"i": np.arange(2), "x": np.ones((1, ROWS), np.float32)})
    assert y[0, 0] == 1


@pytest.mark.parametrize("change", [save_again, shorten, remove])
@pytest.mark.parametrize("beside", [False, True])
def test_a_mapped_session_refuses_files_that_changed(tmp_path, change, beside):
    path = saved(tmp_path, 1.0, beside=beside)
    session = sardonyx.Session(path, mapped=True)
    copy = pickle.loads(pickle.dumps(session))
    assert numbers(session, 2) == numbers(copy, 2) == (1, 64)
    change(path)
    for given in (session, copy):
        with pytest.raises(sardonyx.Error) as raised:
            numbers(given, 2)
        assert raised.value.code == "io"
        assert raised.value.place in {str(tmp_path / "model.onnx"), str(tmp_path / "weights.bin")}


def test_mapped_is_for_paths(tmp_path):
    content = saved(tmp_path, 1.0).read_bytes()
    with pytest.raises(sardonyx.Error, match="mapped=True needs the path") as raised:
        sardonyx.Session(content, mapped=True)
    assert raised.value.code == "argument"


def test_a_session_with_other_sizes_is_of_the_same_numbers_or_none(tmp_path):
    path = saved(tmp_path, 1.0)
    session = sardonyx.Session(path)
    assert numbers(session.with_independent_sizes(), 2) == (1, 64)
    save_again(path)
    with pytest.raises(sardonyx.Error, match="changed") as raised:
        session.with_independent_sizes()
    assert raised.value.code == "io"


MANY = """
import resource, sys
import numpy as np, sardonyx
from sardonyx.ort import InferenceSession

path = sys.argv[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
sessions = [sardonyx.Session(path, mapped=number % 2 == 1) for number in range(200)]
sessions += [InferenceSession(path) for _ in range(20)]
x = np.ones((1, 64), np.float32)
assert all(session(np.arange(2), x)[0][0, 0] == 1 for session in sessions[:200])

# With no descriptor left, an error says so, and is none of a damaged model.
import os
from sardonyx.ort import InferenceSession
try:
    while True:
        os.open("/dev/null", os.O_RDONLY)
except OSError:
    pass
for make in (sardonyx.Session, InferenceSession):
    try:
        make(path)
    except sardonyx.Error as error:
        print(type(error).__name__, error.code, "oo many open files" in str(error))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits of descriptors are those of Unix")
@pytest.mark.parametrize("beside", [False, True])
def test_sessions_keep_no_descriptor(tmp_path, beside):
    path = saved(tmp_path, 1.0, beside=beside)
    command = [sys.executable, "-c", MANY, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["Error io True", "Fail io True"]
