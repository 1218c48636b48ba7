"""Weights that a caller gives beside a model: as values, as contents of data files, and by the folder of the data files."""

import gc
import pickle

import numpy as np
import pytest
import sardonyx
from sardonyx import ort
from sardonyx._shims.onnxruntime import errors
from test_ort import HEAD, done, theirs

FOLDER = "session.model_external_initializers_file_folder_path"
X = {"x": np.float32([1, 1])}
# `w` lies in a data file, and `v` in the model.
MODEL = sardonyx.parser.parse_model(
    HEAD
    + """g (float[2] x) => (float[2] y)
    <float[2] w = ["location": "w.bin", "offset": "4", "length": "8"], float[2] v = {10, 20}>
    { t = Mul (x, w) y = Add (t, v) }"""
)
CONTENT = np.float32([9, 1, 2]).tobytes()


@pytest.fixture
def folder(tmp_path):
    directory = tmp_path / "folder"
    directory.mkdir()
    (directory / "w.bin").write_bytes(CONTENT)
    (directory / "model.onnx").write_bytes(MODEL)
    return directory


def value(runtime, *numbers, dtype=np.float32):
    return runtime.OrtValue.ortvalue_from_numpy(np.array(numbers, dtype))


def run(runtime, give, model=MODEL, folder=None):
    options = runtime.SessionOptions()
    if folder is not None:
        options.add_session_config_entry(FOLDER, str(folder))
    # Theirs does not keep what it is given.
    kept = give(runtime, options)
    outputs = runtime.InferenceSession(model, options).run(None, X)
    del kept
    return outputs


def initializer(name, *numbers, dtype=np.float32):
    def give(runtime, options):
        kept = value(runtime, *numbers, dtype=dtype)
        options.add_initializer(name, kept)
        return kept

    return give


def external(names, *rows, dtype=np.float32):
    def give(runtime, options):
        kept = [value(runtime, *row, dtype=dtype) for row in rows]
        options.add_external_initializers(names, kept)
        return kept

    return give


def files(names, buffers, lengths):
    def give(runtime, options):
        options.add_external_initializers_from_files_in_memory(names, buffers, lengths)
        return buffers

    return give


def both(*givers):
    return lambda runtime, options: [give(runtime, options) for give in givers]


W = initializer("w", 5, 6)
# A name, what is given, and whether theirs does the same.
CASES = [
    ("an initializer of a data file", W, True),
    ("an initializer that nothing has", both(W, initializer("nothing", 1)), True),
    ("two initializers", both(W, initializer("v", 1, 2)), True),
    ("an initializer twice", both(W, W), False),
    ("no OrtValue", lambda runtime, options: options.add_initializer("w", np.float32([1, 2])), False),
    ("an external initializer", external(["w"], [5, 6]), True),
    ("no external initializers", both(W, external([])), True),
    ("an external initializer that is none", external(["v"], [5, 6]), False),
    ("an external initializer that nothing has", external(["nothing"], [5, 6]), False),
    ("an external initializer of another type", external(["w"], [5, 6], dtype=np.float64), False),
    ("an external initializer of another shape", external(["w"], [5, 6, 7]), False),
    ("fewer values than names", external(["w", "v"], [5, 6]), False),
    ("a file", files(["w.bin"], [CONTENT], [12]), True),
    ("a file as an array", files(["w.bin"], [np.float32([9, 7, 8])], [12]), True),
    ("a file in part of a buffer", files(["w.bin"], [CONTENT + b"more"], [12]), True),
    ("a file as a bytearray", files(["w.bin"], [bytearray(CONTENT)], [12]), True),
    ("another file", files(["other.bin"], [CONTENT], [12]), False),
    ("a file that is too short", files(["w.bin"], [CONTENT], [8]), False),
    ("fewer lengths than files", files(["w.bin"], [CONTENT], []), False),
    ("a text as a file", files(["w.bin"], ["abc"], [3]), False),
]


@pytest.mark.skipif(theirs is None, reason="onnxruntime is not installed")
@pytest.mark.parametrize(("name", "give", "is_equal"), CASES, ids=[case[0] for case in CASES])
def test_weights_from_outside_as_in_onnxruntime(name, give, is_equal, folder, monkeypatch):
    # Theirs looks for a data file whose values are given.
    ours, other = (done(runtime, lambda runtime: run(runtime, give, folder=folder)) for runtime in (ort, theirs))
    if is_equal:
        assert ours == other and not isinstance(ours, set)
    else:
        # Both refuse, with classes of their own where theirs has the plain RuntimeError.
        assert isinstance(ours, set) and isinstance(other, set)
    # The file beside the model is not looked for where its content is given.
    given = done(ort, lambda runtime: run(runtime, give, str(folder / "model.onnx")))
    assert given == ours == done(ort, lambda runtime: run(runtime, give))


def test_values_replace_those_of_the_model():
    assert run(ort, W)[0].tolist() == [15, 26]
    assert run(ort, both(W, initializer("v", 1, 2)))[0].tolist() == [6, 8]
    assert run(ort, files(["w.bin"], [CONTENT], [12]))[0].tolist() == [11, 22]
    for give, words in [
        (initializer("w", 5, 6, dtype=np.float64), r"the initializer 'w' is float\[2\], not double\[2\]"),
        (initializer("v", 5, 6, 7), r"the initializer 'v' is float\[2\], not float\[3\]"),
        (external(["v"], [5, 6]), "the values of the initializer 'v' are in no data file"),
        (external(["q"], [5, 6]), "the model has no initializer 'q'"),
        (both(W, W), "the initializer 'w' was given before"),
        (lambda _, options: options.add_initializer("w", [1]), "list, which is not an OrtValue"),
        (files(["w.bin"], [CONTENT], [13]), "the length of the data file 'w.bin' is 13, but its buffer has 12 bytes"),
        (files(["w.bin"], [CONTENT], [-1]), "is -1, but"),
        (files(["w.bin"], [], []), "1 names and 0 buffers"),
        (files(["w.bin"], [CONTENT[:8]], [8]), "8 bytes"),
        (files(["v.bin"], [CONTENT], [12]), "w.bin"),
    ]:
        with pytest.raises(sardonyx.Error, match=words):
            run(ort, give)


def test_data_files_of_bytes_lie_in_the_folder_that_an_option_names(folder, monkeypatch, tmp_path):
    def in_folder(path, model=MODEL):
        def call(runtime):
            options = runtime.SessionOptions()
            options.add_session_config_entry(FOLDER, path)
            return runtime.InferenceSession(model, options).run(None, X)

        return call

    monkeypatch.chdir(tmp_path)
    for path in (str(folder), "folder", "./folder/../folder"):
        assert in_folder(path)(ort)[0].tolist() == [11, 22]
        if theirs is not None:
            assert in_folder(path)(theirs)[0].tolist() == [11, 22]
    # The folder is that of bytes: a model file has its data files beside it.
    assert in_folder("nowhere", str(folder / "model.onnx"))(ort)[0].tolist() == [11, 22]
    with pytest.raises(sardonyx.Error, match="nowhere"):
        in_folder("nowhere")(ort)
    with pytest.raises(errors.Fail, match=r"w\.bin"):
        in_folder(str(tmp_path))(ort)


def test_data_files_of_bytes_lie_in_the_current_folder(folder, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(errors.Fail, match=r"w\.bin"):
        ort.InferenceSession(MODEL)
    monkeypatch.chdir(folder)
    session = ort.InferenceSession(MODEL)
    monkeypatch.chdir(tmp_path)
    assert session.run(None, X)[0].tolist() == [11, 22]
    # Not for a session of our own, which looks nowhere unless it is told to.
    monkeypatch.chdir(folder)
    with pytest.raises(sardonyx.Error, match="read from bytes without a directory"):
        sardonyx.Session(MODEL)


def test_files_outside_the_folder_are_refused(folder, monkeypatch):
    inner = folder / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    for location in ("../w.bin", str(folder / "w.bin")):
        text = sardonyx.printer.model_to_text(MODEL).replace("w.bin", location)
        model = sardonyx.parser.parse_model(text)
        with pytest.raises(sardonyx.Error, match="location"):
            ort.InferenceSession(model)


def test_what_is_given_may_go_or_change_afterwards():
    options = ort.SessionOptions()
    numbers, content = np.float32([5, 6]), bytearray(CONTENT)
    options.add_initializer("v", ort.OrtValue.ortvalue_from_numpy(numbers))
    options.add_external_initializers_from_files_in_memory(["w.bin"], [content], [12])
    session = ort.InferenceSession(MODEL, options)
    numbers[:] = 100
    content[:] = bytes(12)
    del options, content
    gc.collect()
    assert session.run(None, X)[0].tolist() == [6, 8]


def test_two_sessions_of_one_model_have_their_own_weights(folder):
    sessions = []
    for number in range(4):
        options = ort.SessionOptions()
        options.add_initializer("w", value(ort, number, number))
        sessions.append(ort.InferenceSession(str(folder / "model.onnx"), options))
    plain = ort.InferenceSession(str(folder / "model.onnx"))
    assert [one.run(None, X)[0].tolist() for one in sessions] == [[10 + n, 20 + n] for n in range(4)]
    assert plain.run(None, X)[0].tolist() == [11, 22]
    again = pickle.loads(pickle.dumps(sessions[3]))
    assert again.run(None, X)[0].tolist() == [13, 23]


def test_large_weights_of_all_types_are_taken():
    for name, dtype in [("float", np.float32), ("double", np.float64), ("int8", np.int8), ("float16", np.float16)]:
        kind = f"{name}[300, 300]"
        text = HEAD + f'g ({kind} x) => ({kind} y) <{kind} w = ["location": "w"]> {{ y = Add (x, w) }}'
        numbers = (np.arange(90_000) % 100).reshape(300, 300).astype(dtype)
        options = ort.SessionOptions()
        options.add_external_initializers(["w"], [ort.OrtValue.ortvalue_from_numpy(numbers)])
        session = ort.InferenceSession(sardonyx.parser.parse_model(text), options)
        assert (session.run(None, {"x": np.ones((300, 300), dtype)})[0] == numbers + 1).all()
