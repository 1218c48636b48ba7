"""What answers to onnxruntime, beside onnxruntime itself where that is installed.

Most behaviour is in one table: a call, and what both do. Where we differ, a row says what ours does and why.
"""

import copy
import ctypes
import importlib
import json
import pickle
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import sardonyx
from sardonyx import ort
from sardonyx._shims.onnxruntime import errors

try:
    import onnxruntime as theirs
    from onnxruntime.capi import onnxruntime_pybind11_state as their_state

    theirs.set_default_logger_severity(4)
    RUNTIMES = [ort, theirs]
except ImportError:
    theirs = their_state = None
    RUNTIMES = [ort]

HEAD = '<ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 3]>\n'
MODELS = {
    "two": "g (float[N, 3] x, float[N] y) => (float[N, 3] z, float[M] w) { z = Relu (x) w = Neg (y) }",
    "relu": "g (float[N] x) => (float[N] y) { y = Relu (x) }",
    "half": "g (float16[N] x) => (float16[N] y) { y = Relu (x) }",
    "shapes": "g (float[N, ?, 2] x, float s, float[] u) => (z, float[] v) { z = Add (x, s) v = Identity (u) }",
    "texts": "g (string[N] x) => (string[N] y) { y = Identity (x) }",
    "joined": "g (seq(float[N]) x) => (float[M] y) { y = ConcatFromSequence <axis = 0> (x) }",
    "pair": "g (float[N] x) => (seq(float[N]) y) { y = SequenceConstruct (x, x) }",
    "zip": """g (float[N, 2] x) => (seq(map(int64, float)) y) {
        y = ai.onnx.ml.ZipMap <classlabels_int64s = [7, 9]> (x) }""",
    "picked": """g (map(string, float) x) => (float[1, 2] y) {
        y = ai.onnx.ml.DictVectorizer <string_vocabulary = ["a", "b"]> (x) }""",
    "default": "g (float[1] x, float[1] d = {2}) => (float[1] y) { y = Add (x, d) }",
    "shaped": "g (float[N] x, int64[K] s) => (float[] y) { y = Reshape (x, s) }",
    "truth": "g (bool[N] x) => (bool[N] y) { y = Not (x) }",
    "marks": 'g (float["?", 3, "None", "?"] x) => (float["?", 3, "?", "?"] y) { y = Relu (x) }',
    "unknown": "g (float[N] x) => (float[N] y) { y = Foo (x) }",
    "bfloat": "g (float[N] x) => (bfloat16[N] y) { y = Cast <to = 16> (x) }",
    "unbound": "g (float[N] x) => (float[N] y) { y = Relu (q) }",
}


def content(name):
    return sardonyx.parser.parse_model(HEAD + MODELS[name])


OPTIONAL = sardonyx.parser.parse_model(
    """<ir_version: 8, opset_import: ["": 18]>
    g (optional(float[N]) x) => (bool b) { b = OptionalHasElement (x) }"""
)
NEWER = sardonyx.parser.parse_model(
    '<ir_version: 8, opset_import: ["": 99]> g (float[N] x) => (float[N] y) { y = Relu (x) }'
)
STRANGER = sardonyx.parser.parse_model(
    '<ir_version: 8, opset_import: ["com.x": 1]> g (float[N] x) => (float[N] y) { y = com.x.Foo (x) }'
)


def f(*shape):
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


def plain(value):
    """A value without what differs between runtimes."""
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def done(runtime, call):
    """What a call does: the value, or the names of the classes of the exception."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return plain(call(runtime))
        except Exception as error:  # noqa: BLE001
            return {cls.__name__ for cls in type(error).__mro__} - {"object", "BaseException", "Exception"}


def run(name, feed, names=None):
    return lambda runtime: runtime.InferenceSession(content(name)).run(names, feed)


def made(model, **options):
    def call(runtime):
        runtime.InferenceSession(model, **options)
        return "made"

    return call


def options_with(**values):
    def call(runtime):
        options = runtime.SessionOptions()
        for name, value in values.items():
            setattr(options, name, value)
        return "set"

    return call


def with_size(size):
    def call(runtime):
        options = runtime.SessionOptions()
        options.add_free_dimension_override_by_name("N", 3)
        options.add_free_dimension_override_by_name("no input has this", 3)
        session = runtime.InferenceSession(content("relu"), options)
        return session.get_inputs()[0].shape, session.run(None, {"x": f(size)})

    return call


def ports(name):
    def call(runtime):
        session = runtime.InferenceSession(content(name))
        return [
            (port.name, port.shape, port.type, str(port))
            for port in session.get_inputs() + session.get_outputs()
        ]

    return call


def terminated(runtime):
    options = runtime.RunOptions()
    options.terminate = True
    return runtime.InferenceSession(content("relu")).run(None, {"x": f(2)}, options)


def facts(runtime):
    meta = runtime.InferenceSession(content("relu")).get_modelmeta()
    names = ("producer_name", "graph_name", "domain", "description", "graph_description", "version")
    return [getattr(meta, name) for name in names] + [meta.custom_metadata_map]


def overridable(runtime):
    session = runtime.InferenceSession(content("default"))
    inputs = [port.name for port in session.get_inputs()]
    return inputs, [port.name for port in session.get_overridable_initializers()]


def value_facts(runtime):
    value = runtime.OrtValue.ortvalue_from_numpy(f(2, 3))
    shaped = runtime.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
    numbered = runtime.OrtValue.ortvalue_from_shape_and_type([2], 7)
    return [
        (v.shape(), v.data_type(), v.element_type(), v.device_name(), v.is_tensor(), v.has_value(),
         v.is_sparse_tensor(), v.is_tensor_sequence(), v.tensor_size_in_bytes())
        for v in (value, shaped, numbered)
    ] + [value.numpy(), np.from_dlpack(value)]


def value_runs(runtime):
    of = runtime.OrtValue.ortvalue_from_numpy
    session = runtime.InferenceSession(content("two"))
    outputs = session.run_with_ort_values(["w", "z"], {"x": of(f(2, 3)), "y": of(f(2))})
    value = of(np.zeros(2, np.float32))
    value.update_inplace(f(2))
    return [output.numpy() for output in outputs] + [value.numpy()]


def bound(runtime):
    session = runtime.InferenceSession(content("two"))
    binding = session.io_binding()
    x, w = f(2, 3), np.zeros(2, np.float32)
    binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_cpu_input("y", f(2))
    binding.bind_output("w", "cpu", 0, np.float32, w.shape, w.ctypes.data)
    binding.bind_output("z")
    session.run_with_iobinding(binding)
    outputs = binding.copy_outputs_to_cpu()
    first = [value.numpy() for value in binding.get_outputs()]
    binding.clear_binding_outputs()
    z = runtime.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
    binding.bind_ortvalue_output("z", z)
    binding.bind_ortvalue_input("y", runtime.OrtValue.ortvalue_from_numpy(f(2)))
    session.run_with_iobinding(binding)
    return outputs, first, w, z.numpy()


def bound_to_nothing(runtime):
    runtime.InferenceSession(content("relu")).io_binding().bind_cpu_input("q", f(2))


def bound_to_little(runtime):
    session = runtime.InferenceSession(content("relu"))
    binding = session.io_binding()
    binding.bind_cpu_input("x", f(3))
    y = np.zeros(2, np.float32)
    binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    session.run_with_iobinding(binding)


def bound_to_another(runtime):
    binding = runtime.InferenceSession(content("relu")).io_binding()
    binding.bind_cpu_input("x", f(2))
    binding.bind_output("y")
    runtime.InferenceSession(content("relu")).run_with_iobinding(binding)


def asynchronous(feed):
    def call(runtime):
        session = runtime.InferenceSession(content("relu"))
        ready, found = threading.Event(), []

        def callback(outputs, user_data, error):
            found.extend([outputs, user_data, bool(error)])
            ready.set()

        session.run_async(None, feed, callback, 7)
        assert ready.wait(30)
        return list(found)

    return call


def providers(given, **options):
    def call(runtime):
        session = runtime.InferenceSession(content("relu"), providers=given, **options)
        before = session.get_providers(), session.get_provider_options()
        session.set_providers(["CPUExecutionProvider"])
        return before, session.get_providers()

    return call


def config(runtime):
    options, run_options = runtime.SessionOptions(), runtime.RunOptions()
    options.add_session_config_entry("a", "b")
    run_options.add_run_config_entry("a", "b")
    return options.get_session_config_entry("a"), run_options.get_run_config_entry("a")


def all_options(cls):
    def call(runtime):
        options = getattr(runtime, cls)()
        names = sorted(name for name in dir(options) if not name.startswith("_"))
        values = {name: getattr(options, name) for name in names}
        plain_values = {name: value for name, value in values.items() if not callable(value)}
        return {name: value if isinstance(value, (bool, str)) else int(value) for name, value in plain_values.items()}

    return call


SMALL = {"x": f(2, 3), "y": f(2)}
# A name, and a call that does the same with both.
EQUAL = [
    ("all outputs", run("two", SMALL)),
    ("all outputs of an empty list", run("two", SMALL, [])),
    ("one output", run("two", SMALL, ["w"])),
    ("outputs in a tuple", run("two", SMALL, ("w", "z"))),
    ("an output twice", run("two", SMALL, ["w", "w"])),
    ("names of outputs as a text", run("two", SMALL, "w")),
    ("an unknown output", run("two", SMALL, ["q"])),
    ("an unknown input", run("two", {**SMALL, "k": f(1)})),
    ("elements of another type", run("two", {**SMALL, "x": np.zeros((2, 3))})),
    ("integers for floats", run("two", {**SMALL, "x": np.zeros((2, 3), np.int64)})),
    ("another rank", run("two", {**SMALL, "x": f(2)})),
    ("another size", run("two", {**SMALL, "x": f(2, 4)})),
    ("two sizes of one name", run("two", {"x": f(2, 3), "y": f(5)})),
    ("lists", run("two", {"x": [[1, 2, 3]], "y": [1.5]})),
    ("arrays in the order of Fortran", run("two", {**SMALL, "x": np.asfortranarray(f(2, 3))})),
    ("strided arrays", run("two", {**SMALL, "x": f(2, 6)[:, ::2]})),
    ("negative strides", run("two", {**SMALL, "x": f(2, 3)[::-1]})),
    ("no elements", run("two", {"x": f(0, 3), "y": f(0)})),
    ("float16", run("half", {"x": f(3).astype(np.float16)})),
    ("bool", run("truth", {"x": np.array([True, False])})),
    ("fixed texts", run("texts", {"x": np.array(["a", "bcd", "é"])})),
    ("texts as objects", run("texts", {"x": np.array(["a", "é", 1, None], dtype=object)})),
    ("texts in a list", run("texts", {"x": ["a", "b", 3]})),
    ("texts backwards", run("texts", {"x": np.array(["a", "b"])[::-1]})),
    ("texts of another rank", run("texts", {"x": np.array("a")})),
    ("a sequence", run("joined", {"x": [f(2), f(3)]})),
    ("an empty sequence", run("joined", {"x": []})),
    ("an array for a sequence", run("joined", {"x": f(2)})),
    ("a sequence comes out", run("pair", {"x": f(2)})),
    ("a list of dicts", run("zip", {"x": f(2, 2)})),
    ("keys of another type", run("picked", {"x": {1: 1.0}})),
    ("a default", run("default", {"x": f(1)})),
    ("a default replaced", run("default", {"x": f(1), "d": f(1) + 1})),
    ("an operator that fails", run("shaped", {"x": f(6), "s": np.array([4, 4])})),
    ("no optional", lambda runtime: runtime.InferenceSession(OPTIONAL).run(None, {"x": None})),
    ("an optional left out", lambda runtime: runtime.InferenceSession(OPTIONAL).run(None, {})),
    ("an optional", lambda runtime: runtime.InferenceSession(OPTIONAL).run(None, {"x": f(2)})),
    ("the type of an optional", lambda runtime: [
        (port.shape, port.type) for port in runtime.InferenceSession(OPTIONAL).get_inputs()]),
    *((f"inputs and outputs of {name}", ports(name)) for name in ("two", "shapes", "texts", "joined", "zip", "picked", "marks")),
    ("sizes of one mark", run("marks", {"x": f(2, 3, 4, 5)})),
    ("initializers that are inputs", overridable),
    ("facts", facts),
    ("terminate", terminated),
    ("no file", made("/nonexistent/model.onnx")),
    ("no file by a path object", made(Path("/nonexistent/model.onnx"))),
    ("garbage", made(b"\x07garbage")),
    ("a directory", made("/")),
    ("no bytes", made(b"")),
    ("a number as a model", made(5)),
    ("an unknown operator", made(content("unknown"))),
    ("an unknown domain", made(STRANGER)),
    ("a version to come", made(NEWER)),
    ("a known provider", providers(["CPUExecutionProvider"])),
    ("an unknown provider", providers(["NoSuchProvider", "CPUExecutionProvider"])),
    ("only an unknown provider", providers(["NoSuchProvider"])),
    ("a provider with options", providers([("CPUExecutionProvider", {"a": "b"})])),
    ("no provider", providers([])),
    ("options for providers that are not there", providers(["CPUExecutionProvider"], provider_options=[{}, {}])),
    ("a number as a provider", providers([5])),
    ("a text as providers", providers("CPUExecutionProvider")),
    ("any keyword", made(content("relu"), disabled_optimizers=["any"], anything=1)),
    ("an unknown option", options_with(foo=1)),
    ("an option of another type", options_with(intra_op_num_threads="a")),
    ("a level as a number", options_with(graph_optimization_level=1)),
    ("options", options_with(intra_op_num_threads=1, log_severity_level=3, enable_mem_pattern=False, logid="a")),
    ("an entry", config),
    ("an entry that does not exist", lambda runtime: runtime.SessionOptions().get_session_config_entry("a")),
    ("all options of sessions", all_options("SessionOptions")),
    ("all options of runs", all_options("RunOptions")),
    ("a fixed size", with_size(3)),
    ("another than the fixed size", with_size(4)),
    ("values", value_facts),
    ("runs with values", value_runs),
    ("bindings", bound),
    ("a binding to no input", bound_to_nothing),
    ("a binding of another session", bound_to_another),
    ("runs in the background", asynchronous({"x": f(2)})),
    ("runs in the background that fail", asynchronous({"x": f(2, 2)})),
    ("the device", lambda runtime: runtime.get_device()),
    ("the version", lambda runtime: (runtime.__version__, runtime.get_version_string())),
    ("levels", lambda runtime: [(level.name, int(level)) for level in (
        runtime.GraphOptimizationLevel.ORT_DISABLE_ALL, runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
        runtime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED, runtime.GraphOptimizationLevel.ORT_ENABLE_ALL)]),
    ("modes", lambda runtime: [(mode.name, int(mode)) for mode in (
        runtime.ExecutionMode.ORT_SEQUENTIAL, runtime.ExecutionMode.ORT_PARALLEL)]),
]  # fmt: skip


@pytest.mark.skipif(theirs is None, reason="onnxruntime is not installed")
@pytest.mark.parametrize(("name", "call"), EQUAL, ids=[name for name, _ in EQUAL])
def test_both_do_the_same(name, call):
    ours, other = done(ort, call), done(theirs, call)
    if isinstance(other, set) and other:
        # Ours are errors of the family as well.
        assert isinstance(ours, set) and other <= ours, (ours, other)
    else:
        assert ours == other


INVALID, FAIL = "InvalidArgument", "Fail"
# A name, a call, what ours does (a class of the exception or the outputs), and why it is not what theirs does.
BETTER = [
    ("a missing input", run("two", {"x": f(2, 3)}), "ValueError", "theirs too; ours is InvalidArgument as well"),
    ("None for an input", run("two", {**SMALL, "x": None}), "ValueError", "theirs fails within the node"),
    ("lists that differ in length", run("two", {**SMALL, "x": [[1, 2], [1]]}), INVALID, "theirs names no input"),
    ("any object", run("two", {**SMALL, "x": object()}), INVALID, "theirs names no input"),
    ("a number for a matrix", run("two", {**SMALL, "x": 1.0}), INVALID, "theirs takes no numbers"),
    ("inputs in a list", run("two", [f(2, 3)]), INVALID, "theirs lacks the attribute keys"),
    ("no inputs", run("two", None), INVALID, "theirs lacks the attribute keys"),
    ("dates", run("two", {**SMALL, "x": np.zeros((2, 3), "M8[s]")}), INVALID, "theirs says a number of numpy"),
    ("the other byte order", run("relu", {"x": f(2).astype(">f4")}), [f(2)], "theirs reads other numbers"),
    ("bytes as texts", run("texts", {"x": np.array([b"a", b"bc"])}), [np.array(["a", "bc"], object)],
     "theirs reads past the elements"),
    ("bytes in a list", run("texts", {"x": [b"a"]}), [np.array(["a"], object)], "theirs gives b'a' with the quotes"),
    ("a sequence in a tuple", run("joined", {"x": (f(1), f(1))}), [np.float32([0, 0])], "theirs takes lists only"),
    ("a sequence of lists", run("joined", {"x": [[1.0], [2.0]]}), [np.float32([1, 2])], "theirs takes arrays only"),
    ("a sequence of another type", run("joined", {"x": [np.int64([1])]}), INVALID, "theirs names a line of its source"),
    ("a list for a dict", run("picked", {"x": [1]}), INVALID, "theirs names a line of its source"),
    ("texts for numbers", run("picked", {"x": {"a": "b"}}), INVALID, "theirs speaks of C types"),
    ("bfloat16", run("bfloat", {"x": f(2)}), None, "theirs has no type of numpy for it"),
    ("a node without its input", made(content("unbound")), "InvalidGraph", "theirs blames an argument"),
    ("memory that is too small", bound_to_little, INVALID, "theirs is a RuntimeException or writes elsewhere"),
]


@pytest.mark.parametrize(("name", "call", "expected", "reason"), BETTER, ids=[row[0] for row in BETTER])
def test_ours_differs_for_a_reason(name, call, expected, reason):
    ours = done(ort, call)
    if isinstance(expected, str):
        assert expected in ours
    elif expected is not None:
        assert ours == plain(expected)
    else:
        assert not isinstance(ours, set)
    if theirs is not None and name not in ("memory that is too small", "bytes as texts"):
        assert done(theirs, call) != ours, f"no longer different: {reason}"


def test_errors_have_the_fact_first_and_the_attributes_of_the_family():
    session = ort.InferenceSession(content("two"))
    rows = [
        ({**SMALL, "k": f(1)}, "the model has no input 'k'", "input"),
        ({**SMALL, "x": f(2)}, "the input 'x' has 1 dimensions", "input"),
        ({**SMALL, "x": f(2, 4)}, "the input 'x' has shape [2, 4]", "input"),
        ({"x": f(2, 3)}, "Required inputs (['y']) are missing", "input"),
    ]
    for feed, start, code in rows:
        with pytest.raises(sardonyx.Error) as raised:
            session.run(None, feed)
        assert str(raised.value).startswith(start) and raised.value.code == code
        assert "the inputs of the model are" in raised.value.help
        assert raised.value.__cause__ is None
    shaped = ort.InferenceSession(content("shaped"))
    with pytest.raises(errors.Fail) as raised:
        shaped.run(None, {"x": f(6), "s": np.int64([4, 4])})
    assert "Reshape" in raised.value.place and pickle.loads(pickle.dumps(raised.value)).code == "run"
    with pytest.raises(errors.InvalidGraph) as raised:
        ort.InferenceSession(content("unknown"))
    assert raised.value.unsupported == ["Foo, opset 17, 1 node: operator not implemented"]


def test_two_sizes_of_one_name_warn_once():
    session = ort.InferenceSession(content("two"))
    with pytest.warns(UserWarning, match="share a name") as caught:
        session.run(None, {"x": f(2, 3), "y": f(5)})
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        z, w = session.run([], {"x": f(2, 3), "y": f(5)})
        assert z.shape == (2, 3) and w.shape == (5,)
        assert session.run(["w"], {"x": f(2, 3), "y": f(5)})[0].shape == (5,)
        with pytest.raises(errors.InvalidArgument, match="should be 3"):
            session.run(None, {"x": f(2, 4), "y": f(5)})


def test_sessions_are_pickled_with_their_options(tmp_path):
    path = tmp_path / "relu.onnx"
    path.write_bytes(content("relu"))
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_free_dimension_override_by_name("N", 3)
    for model in (path, str(path), path.read_bytes()):
        again = pickle.loads(pickle.dumps(ort.InferenceSession(model, options)))
        assert again.get_session_options().intra_op_num_threads == 1
        assert again.get_inputs()[0].shape == [3]
        assert again.run(None, {"x": f(3)})[0].tolist() == [0, 1, 2]


class Picklable(ort.InferenceSession):
    """A session that is pickled as its path and providers, as insightface has it."""

    def __init__(self, path, **kwargs):
        super().__init__(path, **kwargs)
        self.path = path

    def __getstate__(self):
        return {"path": self.path, "providers": self.get_providers()}

    def __setstate__(self, state):
        self.__init__(state["path"], providers=state["providers"])


class Extended(ort.InferenceSession):
    """A subclass that says nothing of pickling."""


def test_subclasses_say_how_they_are_pickled(tmp_path):
    path = tmp_path / "relu.onnx"
    path.write_bytes(content("relu"))
    for kind in (Picklable, Extended):
        for copied in (pickle.loads(pickle.dumps(kind(str(path)))), copy.copy(kind(str(path))), copy.deepcopy(kind(str(path)))):
            assert type(copied) is kind and copied.run(None, {"x": f(3) - 1})[0].tolist() == [0, 0, 1]
    assert pickle.loads(pickle.dumps(Picklable(str(path)))).path == str(path)


def test_sessions_can_be_extended():
    class Counting(ort.InferenceSession):
        calls = 0

        def run(self, *args, **kwargs):
            self.calls += 1
            return super().run(*args, **kwargs)

    session = Counting(content("relu"), providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": f(2)})[0].tolist() == [0, 1] and session.calls == 1
    assert session.run(output_names=["y"], input_feed={"x": f(2)}, run_options=None)[0].tolist() == [0, 1]

    class Unmade(ort.InferenceSession):
        def __init__(self):
            pass

    with pytest.raises(RuntimeError, match="__init__"):
        Unmade().run(None, {})


def test_terminate_ends_a_run_that_has_begun():
    endless = sardonyx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (float x) => (float y) {
            y = Loop (, , x) <body = turn (int64 i, bool c, float v) => (bool d, float w) {
                d = Constant <value = bool {1}> () w = Add (v, v) }> }"""
    )
    options = ort.RunOptions()
    threading.Timer(0.02, setattr, (options, "terminate", True)).start()
    with pytest.raises(errors.Fail, match="stopped"):
        ort.InferenceSession(endless).run(None, {"x": np.float32(1)}, options)
    options.terminate = False
    assert ort.InferenceSession(content("relu")).run(None, {"x": f(2)}, options)


@pytest.mark.parametrize("runtime", RUNTIMES, ids=[runtime.__name__ for runtime in RUNTIMES])
def test_profiles_have_their_schema(runtime, tmp_path):
    options = runtime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = runtime.InferenceSession(content("two"), options)
    for _ in range(3):
        session.run(None, SMALL)
    began = session.get_profiling_start_time_ns()
    assert 0 < began <= time.time_ns()
    name = session.end_profiling()
    assert name.startswith(str(tmp_path / "profile")) and name.endswith(".json")
    events = json.loads(Path(name).read_text())
    for event in events:
        assert {"cat", "pid", "tid", "dur", "ts", "ph", "name", "args"} <= set(event) and event["ph"] == "X"
        assert event["dur"] >= 0 and event["ts"] >= 0
    runs = [event for event in events if event["name"] == "model_run"]
    nodes = [event for event in events if event["cat"] == "Node" and event["name"].endswith("kernel_time")]
    assert len(runs) == 3 and len(nodes) == 6
    assert {event["args"]["op_name"] for event in nodes} == {"Relu", "Neg"}
    assert {event["args"]["provider"] for event in nodes} == {"CPUExecutionProvider"}
    assert any(event["name"] == "session_initialization" for event in events)
    session.run(None, SMALL)
    assert runtime.InferenceSession(content("two")).end_profiling() == ""


def test_seeds_are_for_sessions_that_are_made_later():
    drawn = sardonyx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g () => (float[4] y) { y = RandomNormal <shape = [4]> () }'
    )
    results = []
    for _ in range(2):
        ort.set_seed(5)
        results.append(ort.InferenceSession(drawn).run(None, {})[0].tolist())
    assert results[0] == results[1]


def test_other_devices_are_refused_and_addresses_are_checked():
    binding = ort.InferenceSession(content("relu")).io_binding()
    calls = [
        lambda: binding.bind_output("y", "cuda"),
        lambda: ort.OrtValue.ortvalue_from_numpy(f(2), "cuda", 0),
        lambda: binding.bind_input("x", "cpu", 0, np.float32, (2,), 0),
        lambda: binding.bind_input("x", "cpu", 0, object, (2,), 8),
        lambda: binding.bind_output("y", "cpu", 0, None, None, ctypes.addressof(ctypes.c_float())),
        lambda: ort.OrtValue.ortvalue_from_shape_and_type([2], 99),
        lambda: ort.SessionOptions().register_custom_ops_library("a.so"),
        lambda: ort.SessionOptions().add_provider("CUDAExecutionProvider", {}),
    ]
    for call in calls:
        with pytest.raises(sardonyx.Error) as raised:
            call()
        assert raised.value.code in ("input", "unsupported")


@pytest.mark.skipif(theirs is None, reason="onnxruntime is not installed")
def test_all_exceptions_are_there():
    names = {
        name
        for name, value in vars(their_state).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert names == {cls.__name__ for cls in errors.CLASSES}


def in_process(code, *arguments, blocked=""):
    start = f"import sys\nfor name in {blocked.split()!r}: sys.modules[name] = None\n"
    script = start + textwrap.dedent(code)
    ran = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_modules_of_onnxruntime():
    in_process(
        """
        import importlib.util, sardonyx
        runtime = sardonyx.use_as_onnxruntime()
        import onnxruntime
        from onnxruntime import InferenceSession, SessionOptions, get_available_providers
        from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument, NoSuchFile
        from onnxruntime.capi._pybind_state import Fail
        from onnxruntime.capi.onnxruntime_inference_collection import OrtValue, IOBinding
        import onnxruntime.backend, onnxruntime.datasets
        import onnxruntime.backend.backend as backend
        assert onnxruntime.InferenceSession is sardonyx.InferenceSession is InferenceSession
        assert get_available_providers()[0] == "CPUExecutionProvider"
        assert importlib.util.find_spec("onnxruntime") is onnxruntime.__spec__
        assert importlib.util.find_spec("onnxruntime.capi").name == "onnxruntime.capi"
        assert [int(part) for part in onnxruntime.__version__.split(".")] >= [1, 20]
        try:
            InferenceSession("/nonexistent.onnx")
        except NoSuchFile as error:
            assert isinstance(error, sardonyx.Error)
        from importlib.metadata import version
        from onnxruntime.transformers.io_binding_helper import TypeHelper
        assert version("onnxruntime")
        for part in ("quantization", "transformers.optimizer", "nothing"):
            assert importlib.util.find_spec(f"onnxruntime.{part}") is None
        assert backend.supports_device("CPU") and not onnxruntime.backend.supports_device("CUDA")
        second = sardonyx.use_as_onnxruntime()
        second.undo()
        assert sys.modules["onnxruntime"] is onnxruntime
        runtime.undo()
        runtime.undo()
        assert not [name for name in sys.modules if name.startswith("onnxruntime")]
        """
    )


@pytest.mark.skipif(theirs is not None, reason="onnxruntime is installed")
def test_the_version_of_onnxruntime_is_found_while_it_is_replaced():
    in_process(
        """
        import importlib.metadata, sardonyx
        def found(name):
            try:
                return importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                return None
        assert found("onnxruntime") is None
        with sardonyx.use_as_onnxruntime():
            import onnxruntime
            assert found("onnxruntime") == onnxruntime.__version__
            assert "Sardonyx" in importlib.metadata.metadata("onnxruntime")["Summary"]
            assert found("onnxruntime-gpu") is None
            assert "onnxruntime" not in [one.name for one in importlib.metadata.distributions()]
        assert found("onnxruntime") is None
        """
    )


def test_an_import_takes_little():
    """What costs milliseconds is imported where it is needed."""
    in_process(
        """
        before = set(sys.modules)
        import sardonyx.ort
        costly = {"importlib.metadata", "json", "statistics", "html", "ctypes", "numpy", "email", "ast"}
        assert not (set(sys.modules) - before) & costly, costly & set(sys.modules)
        """
    )


def test_element_types_by_the_names_of_other_packages():
    from sardonyx._shims.onnxruntime.torch_types import TypeHelper

    session = ort.InferenceSession(content("two"))
    assert TypeHelper.get_input_type(session, "y") == "tensor(float)"
    assert TypeHelper.get_output_type(session, "w") == "tensor(float)"
    assert TypeHelper.get_io_numpy_type_map(session) == dict.fromkeys("xyzw", np.float32)
    for name, dtype in {"int64": np.int64, "double": np.float64, "bool": np.bool_, "string": np.object_}.items():
        assert TypeHelper.ort_type_to_numpy_type(f"tensor({name})") is dtype
    for call, message in [
        (lambda: TypeHelper.get_input_type(session, "q"), "no input 'q': it has 'x', 'y'"),
        (lambda: TypeHelper.ort_type_to_numpy_type("seq(tensor(float))"), r"seq\(tensor\(float\)\) is not a tensor"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


def test_element_types_by_the_names_of_torch():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from sardonyx._shims.onnxruntime.torch_types import TypeHelper

    for name, dtype in {"float": torch.float32, "bfloat16": torch.bfloat16, "bool": torch.bool}.items():
        assert TypeHelper.ort_type_to_torch_type(f"tensor({name})") is dtype
    assert TypeHelper.numpy_type_to_torch_type(np.int32) is torch.int32
    assert TypeHelper.torch_type_to_numpy_type(torch.int32) is np.int32
    with pytest.raises(ValueError, match="torch has no element type object"):
        TypeHelper.ort_type_to_torch_type("tensor(string)")
    with pytest.raises(ValueError, match="torch.qint8"):
        TypeHelper.torch_type_to_numpy_type(torch.qint8)


def test_the_path_of_a_model_is_kept(tmp_path):
    path = tmp_path / "relu.onnx"
    path.write_bytes(content("relu"))
    assert ort.InferenceSession(path)._model_path == str(path)
    assert ort.InferenceSession(content("relu"))._model_path is None


@pytest.mark.skipif(theirs is None, reason="onnxruntime is not installed")
def test_onnxruntime_comes_back():
    in_process(
        """
        import onnxruntime, sardonyx
        before = {name: module for name, module in sys.modules.items() if name.startswith("onnxruntime")}
        with sardonyx.use_as_onnxruntime():
            import onnxruntime as ours
            assert ours.InferenceSession is sardonyx.InferenceSession
        after = {name: module for name, module in sys.modules.items() if name.startswith("onnxruntime")}
        assert before == after
        import onnxruntime as again
        assert again is onnxruntime and again.InferenceSession is not sardonyx.InferenceSession
        """
    )


PROGRAM = """
import sys
import numpy as np
import onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
print(__name__, session.run(None, {"x": np.float32([-1, 2])})[0].tolist(), len(sys.argv))
"""


def test_programs_run_unchanged(tmp_path):
    (tmp_path / "relu.onnx").write_bytes(content("relu"))
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    start = [sys.executable, "-m", "sardonyx.ort"]

    def ran(*arguments):
        return subprocess.run([*start, *arguments], capture_output=True, text=True, cwd=tmp_path)

    for arguments in (["program.py"], [str(program)], ["-m", "program"]):
        result = ran(*arguments, "relu.onnx", "more")
        assert result.stdout == "__main__ [0.0, 2.0] 3\n", result.stderr
    assert "usage" in ran("--help").stdout
    for arguments in (["-x"], ["-m"], ["-c"], ["missing.py"]):
        result = ran(*arguments)
        assert result.returncode == 1 and "usage" in result.stderr, arguments


def test_everything_has_help():
    for name in ort.__all__:
        value = getattr(ort, name)
        assert value.__doc__, name
        if isinstance(value, type) and value.__module__.startswith("sardonyx.ort"):
            for member, part in vars(value).items():
                if not member.startswith("_") and (callable(part) or isinstance(part, property)):
                    assert part.__doc__ or isinstance(part, value), f"{name}.{member}"
    assert importlib.import_module("sardonyx.ort.__main__").main.__doc__


def test_the_simplified_model_is_written(tmp_path):
    content = sardonyx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) { a = Identity (x) y = Neg (a) }'
    )
    path = tmp_path / "simple.onnx"
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(path)
    session = ort.InferenceSession(content, options)
    assert path.read_bytes() == sardonyx.simplify(content, level="close") != content
    x = np.array([1, -2], np.float32)
    again = ort.InferenceSession(path).run(None, {"x": x})[0]
    assert np.array_equal(session.run(None, {"x": x})[0], again)
    options.optimized_model_filepath = str(tmp_path / "none" / "simple.onnx")
    with pytest.raises(Exception, match="none"):
        ort.InferenceSession(content, options)
