"""Calls that do the same on onnxruntime and on Sardonyx, continued from ``test_ort.py``: bindings, profiles, providers, numbers."""

import gc
import json
import os
import pickle
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
import sardonyx
from onnx import helper
from sardonyx import ort
from sardonyx._shims.onnxruntime import errors
from test_ort import HEAD, RUNTIMES, SMALL, content, done, f, theirs

needs_theirs = pytest.mark.skipif(theirs is None, reason="onnxruntime is not installed")


def session(runtime, name="relu", **options):
    return runtime.InferenceSession(content(name), **options)


def of_version(version):
    model = onnx.ModelProto.FromString(content("relu"))
    model.ir_version = version
    return model.SerializeToString()


def bound_elsewhere(runtime):
    session(runtime).run_with_iobinding(session(runtime).io_binding())


def later(feed, names=None):
    """What a run in the background raises at once."""
    return lambda runtime: session(runtime).run_async(names, feed, lambda *_: None, None)


EMPTY = sardonyx.parser.parse_model(HEAD + "g () => (seq(float[N]) y) { y = SequenceEmpty () }")


def empty_sequence(runtime):
    made = runtime.InferenceSession(EMPTY)
    (value,) = made.run_with_ort_values(None, {})
    binding = made.io_binding()
    binding.bind_output("y")
    made.run_with_iobinding(binding)
    (other,) = binding.get_outputs()
    return [(one.data_type(), one.is_tensor_sequence(), one.has_value()) for one in (value, other)]


def denoted():
    model = onnx.ModelProto.FromString(
        sardonyx.parser.parse_model(HEAD + "g (float[N] x, float[K] z) => (float[N] y) { y = Relu (x) }")
    )
    for port in model.graph.input:
        port.type.tensor_type.shape.dim[0].denotation = "DATA_BATCH" if port.name == "x" else "DATA_TIME"
    return model.SerializeToString()


def with_denoted_size(denotation, size=None):
    def call(runtime):
        options = runtime.SessionOptions()
        options.add_free_dimension_override_by_denotation(denotation, 3)
        made = runtime.InferenceSession(denoted(), options)
        if size is not None:
            return made.run(None, {"x": f(size), "z": f(1)})
        return [port.shape for port in (*made.get_inputs(), *made.get_outputs())]

    return call


def numbers(runtime):
    names = (
        "ExecutionMode", "ExecutionOrder", "GraphOptimizationLevel", "OrtAllocatorType", "OrtCompileApiFlags",
        "OrtDeviceMemoryType", "OrtExecutionProviderDevicePolicy", "OrtHardwareDeviceType", "OrtMemType",
        "OrtMemoryInfoDeviceType", "OrtSparseFormat", "OrtDeviceVendorId",
    )  # fmt: skip
    members = {name: getattr(runtime, name).__members__ for name in names}
    return {
        name: sorted((text, int(value), f"{name}.{text}" if name == "OrtDeviceVendorId" else str(value), f"{value!r}")
                     for text, value in found.items() if text != "CPU_OUTPUT")
        for name, found in members.items()
    }  # fmt: skip


def formatted(runtime):
    level = runtime.GraphOptimizationLevel.ORT_ENABLE_ALL
    return f"{level}", str(level), f"{level}".format(), "%s" % level  # noqa: UP031


def chosen(providers, **options):
    def call(runtime):
        made = session(runtime, providers=providers, **options)
        return made.get_providers(), made.get_provider_options()

    return call


def changed(providers):
    def call(runtime):
        made = session(runtime)
        made.set_providers(providers)
        return made.get_providers()

    return call


def normalized(providers, options=None):
    def call(runtime):
        if runtime is ort:
            from sardonyx._shims.onnxruntime.providers import check_and_normalize_provider_args as normal
        else:
            from onnxruntime.capi.onnxruntime_inference_collection import check_and_normalize_provider_args as normal
        return list(map(list, normal(providers, options, ["CPUExecutionProvider"])))

    return call


def backend(call):
    def with_runtime(runtime):
        if runtime is ort:
            from sardonyx._shims.onnxruntime import backend as module
        else:
            import onnxruntime.backend.backend as module
        return call(module)

    return with_runtime


def vocabulary(outputs, nodes):
    nodes = nodes.replace("V", 'ai.onnx.ml.DictVectorizer <string_vocabulary = ["a", "b"]>')
    model = sardonyx.parser.parse_model(HEAD + f"g (map(string, float) x) => {outputs} {{ {nodes} }}")
    return lambda runtime: runtime.InferenceSession(model).run(None, {"x": {"b": 2.0, "c": 3.0}})


RELU = content("relu")
CPU = "CPUExecutionProvider"
# A name, and a call that does the same with both.
EQUAL = [
    ("a binding of another session", bound_elsewhere),
    ("a run in the background without its inputs", later({})),
    ("a run in the background with names", later({"x": f(2)}, ["y"])),
    ("a capsule", lambda runtime: runtime.OrtValue.from_dlpack(f(3).__dlpack__()).numpy()),
    ("no capsule", lambda runtime: isinstance(done(runtime, lambda r: r.OrtValue.from_dlpack(5)), set)),
    ("an empty sequence", empty_sequence),
    ("a newer version of the format", lambda runtime: runtime.InferenceSession(of_version(77))),
    ("sizes by denotation", with_denoted_size("DATA_BATCH")),
    ("sizes by a denotation that is not there", with_denoted_size("FILTER_SPATIAL")),
    ("another size than that by denotation", with_denoted_size("DATA_BATCH", 4)),
    ("the size by denotation", with_denoted_size("DATA_BATCH", 3)),
    ("names and numbers", numbers),
    ("a number in a text", formatted),
    ("a provider twice", chosen([CPU, CPU])),
    ("a provider and a number", chosen([CPU, 5])),
    ("a number as a provider, without another try", chosen([5], enable_fallback=0)),
    ("a provider in a tuple of one", chosen([(CPU,)])),
    ("options that are numbers", chosen([CPU], provider_options=[5])),
    ("options in a number", chosen([CPU], provider_options=5)),
    ("another provider later", changed(["CUDAExecutionProvider"])),
    ("a number as a provider later", changed([5])),
    ("a provider in a tuple of one later", changed([(CPU,)])),
    ("providers as a function takes them", normalized([CPU, ("CUDAExecutionProvider", {"device_id": 0}), CPU])),
    ("options as a function takes them", normalized([CPU], [{"a": 1}])),
    ("no providers as a function takes them", normalized(None)),
    ("wrong providers as a function takes them", normalized([5])),
    ("too many options as a function takes them", normalized([CPU], [{}, {}])),
    ("the backend with a list", backend(lambda module: module.run(RELU, [f(2)]))),
    ("the backend with an array", backend(lambda module: module.run(RELU, f(2)))),
    ("the backend with a message", backend(lambda module: module.run(onnx.ModelProto.FromString(RELU), [f(2)]))),
    ("the backend, prepared", backend(lambda module: module.prepare(RELU).run([f(2)]))),
    ("the backend with too few inputs", backend(lambda module: module.run(RELU, []))),
    ("the backend with too many inputs", backend(lambda module: module.run(RELU, [f(2), f(2)]))),
    ("the backend with one of two inputs", backend(lambda module: module.run(content("two"), f(2)))),
    ("the backend with options", backend(lambda module: module.run(RELU, [f(2)], intra_op_num_threads=1, other=2))),
    ("the backend with an option that writes", backend(lambda module: module.run(RELU, [f(2)], enable_profiling=True))),
    ("the backend with an option of runs", backend(lambda module: module.prepare(RELU).run([f(2)], terminate=True))),
    ("the backend on another device", backend(lambda module: module.prepare(RELU, "CUDA"))),
    ("the backend with a node", backend(lambda module: module.OnnxRuntimeBackend.run_node(
        helper.make_node("Relu", ["x"], ["y"]), [f(2)]))),
    ("devices of the backend", backend(lambda module: [module.supports_device(name) for name in ("CPU", "CUDA", "GPU")])),
    ("a vocabulary without a declared shape", vocabulary("(y)", "y = V (x)")),
    ("a vocabulary within a model", vocabulary("(y)", "v = V (x) w = V (x) y = Concat <axis = 1> (v, w)")),
    ("a model of no kind", lambda runtime: runtime.InferenceSession(None)),
    ("a negative number of threads", lambda runtime: _with_threads(runtime, -1).run(None, {"x": f(2)})),
    ("an update by a list", lambda runtime: runtime.OrtValue.ortvalue_from_numpy(f(2)).update_inplace([1, 2])),
]  # fmt: skip


def _with_threads(runtime, count):
    options = runtime.SessionOptions()
    options.intra_op_num_threads = count
    return session(runtime, sess_options=options)


@needs_theirs
@pytest.mark.parametrize(("name", "call"), EQUAL, ids=[name for name, _ in EQUAL])
def test_both_do_the_same(name, call, capsys):
    ours, other = done(ort, call), done(theirs, call)
    if isinstance(other, set) and other:
        assert isinstance(ours, set) and other <= ours, (ours, other)
    else:
        assert ours == other


def test_what_is_better_than_in_onnxruntime():
    from sardonyx._shims.onnxruntime import backend

    # Theirs has no word for the input.
    assert backend.run(RELU, {"x": f(2)})[0].tolist() == [0, 1] == backend.run(RELU, (f(2),))[0].tolist()
    for call, words in [
        (lambda: ort.InferenceSession(None), "path_or_bytes must be a path.*not NoneType"),
        (lambda: sardonyx.Session(None), "model must be a path.*not NoneType"),
        (lambda: sardonyx.Trainer(5), "model must be a path.*not int"),
        (lambda: ort.OrtValue.ortvalue_from_shape_and_type([2**44], np.float32), "Unable to allocate 64.0 TiB"),
    ]:
        with pytest.raises((TypeError, MemoryError), match=words):
            call()
    with pytest.raises(errors.Fail, match="IR version 77; the newest known version is 14"):
        ort.InferenceSession(of_version(77))
    big = sardonyx.parser.parse_model(HEAD + "g (int64[1] s) => (float[N] y) { y = ConstantOfShape (s) }")
    with pytest.raises(errors.Fail, match="not enough memory for .* bytes"):
        ort.InferenceSession(big).run(None, {"s": np.int64([2**44])})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"threads": -1}, "threads must be 1 or more, not -1"),
        ({"threads": -(2**70)}, "threads must be 1 or more"),
        ({"memory_limit": -5}, "memory_limit must be 0 or more bytes, not -5"),
        ({"seed": -1}, r"seed must be from 0 to 2\*\*64 - 1, not -1"),
        ({"seed": 2**64}, "seed must be"),
    ],
)
def test_a_wrong_number_names_its_argument(options, words):
    with pytest.raises(sardonyx.Error, match=words) as raised:
        sardonyx.Session(RELU, **options)
    assert raised.value.code == "argument"
    with pytest.raises(ValueError, match="runs must be 1 or more, not -1"):
        sardonyx.Session(RELU).profile({"x": f(2)}, runs=-1)


@pytest.mark.parametrize("runtime", RUNTIMES, ids=[runtime.__name__ for runtime in RUNTIMES])
def test_each_session_has_its_own_profile(runtime, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = runtime.SessionOptions()
    options.enable_profiling = True
    sessions = [session(runtime, sess_options=options) for _ in range(5)]
    for one in sessions:
        one.run(None, {"x": f(2)})
    names = [one.end_profiling() for one in sessions]
    if runtime is ort:
        # Theirs overwrites a profile of the same millisecond.
        assert len(set(names)) == 5
    assert all(name.startswith("onnxruntime_profile__") and Path(name).exists() for name in names)
    assert [one.end_profiling() for one in sessions] == [""] * 5
    before = set(tmp_path.iterdir())
    unended = session(runtime, sess_options=options)
    unended.run(None, {"x": f(2)})
    del unended
    gc.collect()
    (left,) = set(tmp_path.iterdir()) - before
    assert any(event["name"] == "model_run" for event in json.loads(left.read_text()))


def test_a_profile_is_written_when_the_process_ends(tmp_path):
    code = """
        import numpy, sys
        from sardonyx import ort
        options = ort.SessionOptions()
        options.enable_profiling = True
        session = ort.InferenceSession(sys.argv[1], options)
        session.run(None, {"x": numpy.zeros(2, numpy.float32)})
    """
    (tmp_path / "relu.onnx").write_bytes(RELU)
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), "relu.onnx"], cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.returncode == 0 and not ran.stderr
    (profile,) = tmp_path.glob("*.json")
    assert any(event["name"] == "model_run" for event in json.loads(profile.read_text()))


@pytest.mark.parametrize(
    "name",
    ["é.onnx", "a b.onnx", "-.onnx", "%s.onnx", "no ending", "model.onnx.", "線形.onnx", "a'b\"c.onnx", os.fsdecode(b"\xff.onnx")],
    ids=ascii,
)
def test_odd_paths_are_opened(name, tmp_path, monkeypatch):
    path = tmp_path / name
    path.write_bytes(RELU)
    monkeypatch.chdir(tmp_path)
    for given in (path, str(path), name, Path("..") / tmp_path.name / name):
        for made in (ort.InferenceSession(given), pickle.loads(pickle.dumps(ort.InferenceSession(given)))):
            assert made.run(None, {"x": f(2)})[0].tolist() == [0, 1]
        assert sardonyx.Session(given)(f(2)).tolist() == [0, 1]
        again = pickle.loads(pickle.dumps(sardonyx.Session(given)))
        assert again(f(2)).tolist() == [0, 1]
    sardonyx.checker.check_model(path)
    assert sardonyx.inliner.inline_local_functions(path)


def test_paths_to_nothing_are_refused(tmp_path):
    class Path:
        def __fspath__(self):
            return os.fsencode(tmp_path / "missing.onnx")

    for path in ("", "a\0b", os.fsdecode(b"\xff"), str(tmp_path / ("x" * 300)), "x" * 5000, Path()):
        with pytest.raises(errors.NoSuchFile, match="cannot read"):
            ort.InferenceSession(path)
    with pytest.raises(sardonyx.Error, match="directory"):
        ort.InferenceSession(tmp_path)


def test_a_warning_names_the_line_of_the_caller():
    for call in (
        lambda: session(ort, providers=["CUDAExecutionProvider"]),
        lambda: session(ort, providers=[CPU, CPU]),
        lambda: session(ort, providers=5),
        lambda: session(ort).set_providers(["CUDAExecutionProvider"]),
    ):
        with pytest.warns(UserWarning) as caught:
            call()
        assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session(ort, providers=[(CPU, {"a": 1})]).run(None, {"x": f(2)})
    assert session(ort, "two").run(None, SMALL)
