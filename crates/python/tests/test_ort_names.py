"""Names of onnxruntime: those that the manual lists, those that packages read, and what those do that run no model."""

import csv
import importlib
import importlib.metadata
import importlib.resources
import importlib.util
import inspect
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import sardonyx
from sardonyx import ort
from test_ort import content, f, theirs

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "instead-of-onnxruntime.md"
TESTS = "".join(path.read_text() for path in Path(__file__).parent.glob("test_ort*.py"))
WORDS = ("equal", "better", "ignored", "refused", "absent")
IGNORED = re.compile("ccepted and ignored|^Ignores|^Does nothing|Accepted with a warning")


def manual():
    """The names of the tables of the manual, with what the manual says of each."""
    said = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        names = re.findall("`([^`]+)`", cells[0])
        if line.startswith("| `") and names:
            assert len(cells) == 3 and cells[1] in WORDS, line
            for name in names:
                assert name not in said, f"{name} is listed twice"
                said[name] = cells[1]
    return said


@pytest.fixture
def replaced():
    with sardonyx.use_as_onnxruntime():
        yield importlib.import_module("onnxruntime")


def found(name):
    """What a dotted name below onnxruntime is: a module, or a part of one; None if it is not there."""
    parts = name.split(".")
    value = None
    for count in range(len(parts), -1, -1):
        module = ".".join(["onnxruntime", *parts[:count]])
        try:
            value = importlib.import_module(module)
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            if not hasattr(value, part):
                return None
            value = inspect.getattr_static(value, part) if isinstance(value, type) else getattr(value, part)
        return value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
    return None


def word_of(value):
    """What the documentation of a name says that it does."""
    text = (inspect.getdoc(value) or "") if not isinstance(value, (str, int)) else ""
    if text.startswith(("Refused", "Refuses")):
        return "refused"
    return "ignored" if IGNORED.search(text.partition("\n\n")[0]) else "works"


@pytest.mark.parametrize(("name", "word"), manual().items(), ids=manual())
def test_the_manual_says_what_a_name_does(name, word, replaced):
    value = found(name)
    assert (value is None) == (word == "absent")
    if value is not None:
        expected = "works" if word in ("equal", "better") else word
        assert word_of(value) == expected
        if expected == "works":
            assert name.rpartition(".")[2] in TESTS, "no test has the name"


@pytest.mark.skipif(theirs is None, reason="onnxruntime is not installed")
def test_the_manual_has_every_name_of_onnxruntime():
    said = manual()
    left_out = {"capi", "tools", "contextlib", "onnxruntime_validation", "import_capi_exception", "transformers", "datasets"}
    for name, value in vars(theirs).items():
        if name.startswith("_") or name in left_out:
            continue
        assert name in said, f"the manual does not have {name}"
        if not isinstance(value, type) or said[name] == "refused":
            continue
        members = getattr(value, "__members__", None)
        of_numbers = (*dir(int), "name", "value") if members is not None else ()
        for member in dir(value):
            if not member.startswith("_") and member not in of_numbers:
                is_there = hasattr(getattr(ort, name), member)
                listed = said.get(f"{name}.{member}")
                assert listed is not None or is_there, f"the manual does not have {name}.{member}"
                assert listed != "absent" or not is_there


ROWS = list(csv.reader((Path(__file__).parent / "onnxruntime_names.tsv").open(), delimiter="\t"))[1:]
OBJECTS = (ort.InferenceSession, ort.SessionOptions, ort.RunOptions, ort.IOBinding, ort.OrtValue, ort.OrtDevice,
           ort.ModelMetadata, ort.NodeArg, ort.OrtEpDevice)  # fmt: skip


def test_many_packages_were_looked_at():
    packages = {package for row in ROWS for package in row[2].split()}
    assert len(packages) >= 40, len(packages)


@pytest.mark.parametrize(("name", "word", "packages"), ROWS, ids=[row[0] for row in ROWS])
def test_names_that_packages_read(name, word, packages, replaced):
    """``.name`` is an attribute of an object; others are dotted names."""
    if name.startswith("."):
        made = ort.InferenceSession(content("relu"))
        objects = (made, made.io_binding(), ort.OrtValue.ortvalue_from_numpy(f(2)), *OBJECTS)
        values = [inspect.getattr_static(one, name[1:], "") for one in objects if hasattr(one, name[1:])]
        # A path may be None.
        value = (values[0] or "") if values else None
    else:
        value = replaced if name == "onnxruntime" else found(name.removeprefix("onnxruntime."))
    assert word == ("absent" if value is None else word_of(value))
    if word == "absent":
        # A whole module, so that a package finds that out by an ImportError where it imports it.
        parts = name.split(".")
        assert importlib.util.find_spec(".".join(parts[: 3 if parts[1] == "transformers" else 2])) is None, name


def test_modules_can_be_loaded_again_and_have_files(replaced):
    for name in ("onnxruntime", "onnxruntime.capi", "onnxruntime.capi.onnxruntime_pybind11_state", "onnxruntime.backend.backend_rep"):
        module = importlib.import_module(name)
        before = dict(vars(module))
        assert importlib.reload(module) is module
        assert module.__sardonyx__ and vars(module).keys() == before.keys()
        assert importlib.util.find_spec(name).loader is not None
        assert importlib.import_module(name) is sys.modules[name]
    for package in ("onnxruntime", "onnxruntime.capi", "onnxruntime.datasets"):
        files = importlib.resources.files(package)
        assert files.is_dir() and not (files / "sigmoid.onnx").exists()
    assert importlib.resources.files(replaced).joinpath("__init__.py").is_file()


def test_refusals_come_with_advice():
    session = ort.InferenceSession(content("relu"))
    calls = [
        lambda: ort.LoraAdapter().Load("a.onnx_adapter"),
        lambda: ort.AdapterFormat.read_adapter("a.onnx_adapter"),
        lambda: ort.AdapterFormat().export_adapter("a.onnx_adapter"),
        lambda: ort.AdapterFormat().set_parameters({}),
        lambda: ort.ModelCompiler(ort.SessionOptions(), "model.onnx"),
        lambda: ort.OrtSyncStream(),
        lambda: ort.OrtEpContextData(),
        lambda: ort.register_execution_provider_library("Own", "own.so"),
        lambda: ort.create_and_register_allocator_v2("CUDAExecutionProvider", memory(), {}, None),
        lambda: ort.OrtMemoryInfo("Cuda", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT),
        lambda: ort.get_ep_devices()[0].create_sync_stream(),
        lambda: ort.RunOptions().add_active_adapter(ort.LoraAdapter()),
        lambda: ort.SessionOptions().set_ep_context_data_read_func(lambda *_: b""),
        lambda: session.get_provider_graph_assignment_info(),
        lambda: session.set_ep_dynamic_options({}),
    ]
    for call in calls:
        with pytest.raises(sardonyx.Error) as raised:
            call()
        assert raised.value.code == "unsupported" and raised.value.help
    with pytest.raises(sardonyx.Error, match="no library of an execution provider 'Own' is registered"):
        ort.unregister_execution_provider_library("Own")
    with sardonyx.use_as_onnxruntime():
        from onnxruntime.datasets import get_example

        from onnxruntime.capi._pybind_state import quantize_matmul_4bits

        with pytest.raises(sardonyx.Error, match=r"quantize_matmul_4bits.*\n.*quantize the model where onnxruntime"):
            quantize_matmul_4bits(None)
        with pytest.raises(FileNotFoundError, match=r"sigmoid\.onnx.*give the path"):
            get_example("sigmoid.onnx")


def memory():
    return ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)


RUNTIMES = [ort] if theirs is None else [ort, theirs]


@pytest.mark.parametrize("runtime", RUNTIMES, ids=[runtime.__name__ for runtime in RUNTIMES])
def test_devices_and_their_memory(runtime):
    info = runtime.OrtMemoryInfo("Cpu", runtime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, runtime.OrtMemType.DEFAULT)
    assert (info.name, info.device_id, info.device_vendor_id) == ("Cpu", 0, 0)
    assert info.mem_type == runtime.OrtMemType.DEFAULT
    assert info.device_mem_type == runtime.OrtDeviceMemoryType.DEFAULT
    second = runtime.OrtMemoryInfo.create_v2(
        "Other", runtime.OrtMemoryInfoDeviceType.CPU, 0, 0, runtime.OrtDeviceMemoryType.DEFAULT, 64,
        runtime.OrtAllocatorType.ORT_DEVICE_ALLOCATOR)  # fmt: skip
    assert second.name == "Other"
    arena = runtime.OrtArenaCfg(7, -1, -1, -1)
    assert arena.max_mem == 7 and arena.initial_chunk_size_bytes == -1
    assert runtime.OrtArenaCfg({"max_mem": 5}).max_mem == 5
    with pytest.raises(RuntimeError):
        runtime.OrtArenaCfg({"other": 5})
    (device,) = [one for one in runtime.get_ep_devices() if one.ep_name == "CPUExecutionProvider"]
    assert device.device.type == runtime.OrtHardwareDeviceType.CPU
    assert "version" in device.ep_metadata and device.ep_options == {} and isinstance(device.ep_vendor, str)
    options = runtime.SessionOptions()
    options.add_provider_for_devices([device], {})
    if runtime is theirs:
        assert options.has_providers()
    options.set_provider_selection_policy(runtime.OrtExecutionProviderDevicePolicy.PREFER_CPU)
    cpu = runtime.OrtDevice.make("cpu", 0)
    assert (cpu.device_id(), cpu.device_type(), cpu.device_mem_type(), cpu.device_vendor_id()) == (0, 0, 0, 0)


@pytest.mark.parametrize("runtime", RUNTIMES, ids=[runtime.__name__ for runtime in RUNTIMES])
def test_values_of_sessions(runtime):
    session = runtime.InferenceSession(content("two"))
    assert [info.name for info in session.get_input_memory_infos()] == ["Cpu", "Cpu"]
    assert len(session.get_output_memory_infos()) == 2
    assert [one.ep_name for one in session.get_input_epdevices()] == ["CPUExecutionProvider"] * 2
    assert session.get_tuning_results() == []
    made = session.create_ortvalue_from_shape_and_type([2], np.float32, "cpu")
    made.update_inplace(runtime.OrtValue.ortvalue_from_numpy(f(2) + 1))
    assert made.numpy().tolist() == [1, 2]
    array = f(3)
    value = runtime.OrtValue.ortvalue_from_numpy(array)
    assert value.data_ptr() == array.ctypes.data and not value.is_sparse_tensor()
    with pytest.raises(RuntimeError):
        value.as_sparse_tensor()
    assert set(runtime.get_all_providers()) >= {"CPUExecutionProvider"} and runtime.has_collective_ops() is False
    binding = session.io_binding()
    binding.bind_cpu_input("x", f(2, 3))
    binding.clear_binding_inputs()
    binding.bind_cpu_input("x", f(2, 3))
    binding.bind_cpu_input("y", f(2))
    binding.bind_output("w")
    session.run_with_iobinding(binding)
    assert len(binding.get_outputs_as_ortvaluevector()) == 1 and isinstance(runtime.SessionIOBinding, type)
    typed = runtime.OrtValue.ortvalue_from_numpy_with_onnx_type(np.uint16([0x3F80]), 16)
    assert typed.element_type() == 16 and typed.shape() == [1]
    assert runtime.get_build_info() and runtime.package_name == "onnxruntime" if runtime is theirs else True
    session.release_captured_graph()


def test_values_are_copied_into_others():
    source, target = (ort.OrtValue.ortvalue_from_numpy(f(2) + number) for number in (5, 0))
    ort.copy_tensors([source], [target])
    assert target.numpy().tolist() == [5, 6]


def test_sparse_values():
    sparse = ort.SparseTensor(np.float32([5]), np.int64([1]), (3,))
    value = ort.OrtValue.ort_value_from_sparse_tensor(sparse)
    assert value.is_sparse_tensor() and value.as_sparse_tensor() is sparse and value.data_type() == "sparse_tensor(float)"


def test_names_of_a_session_that_are_not_public():
    session = ort.InferenceSession(content("two"))
    inner = session._sess
    assert [port.name for port in inner.inputs_meta] == [port.name for port in session._inputs_meta] == ["x", "y"]
    assert [port.name for port in inner.outputs_meta] == [port.name for port in session._outputs_meta] == ["z", "w"]
    assert inner.overridable_initializers == session._overridable_initializers == []
    assert session._provider_options == {"CPUExecutionProvider": {}} == inner.get_provider_options()
    assert session._providers == session._fallback_providers == ["CPUExecutionProvider"]
    assert inner.session_options is session._sess_options is session.get_session_options()
    assert inner.model_meta.graph_name == session._model_meta.graph_name
    assert inner.run(["w"], {"x": f(2, 3), "y": f(2)}, None)[0].tolist() == [0, -1]
    value = ort.OrtValue.ortvalue_from_numpy(f(2))
    assert value._ortvalue is value is value._get_c_value()
    from sardonyx._shims.onnxruntime.internals import OrtValueVector

    fetches = OrtValueVector()
    session.run_with_ortvaluevector(None, ["x", "y"], [ort.OrtValue.ortvalue_from_numpy(f(2, 3)), value], ["w"], fetches, None)
    assert fetches[0].numpy().tolist() == [0, -1] and fetches.element_type_at(0) == 1
    fetches.push_back(value)
    assert len(fetches) == 2 and np.from_dlpack(fetches[1]).tolist() == [0, 1]
    with pytest.raises(AttributeError, match="no attribute '_nothing'"):
        inner._nothing  # noqa: B018


def test_facts_about_the_package(replaced, capsys):
    from onnxruntime.capi.build_and_package_info import cuda_version, package_name
    from onnxruntime.capi.onnxruntime_inference_collection import C
    from onnxruntime.capi.onnxruntime_validation import check_distro_info, get_package_name_and_version_info

    assert (package_name, cuda_version) == ("onnxruntime", "") == (replaced.package_name, replaced.cuda_version)
    assert get_package_name_and_version_info() == ("onnxruntime", replaced.version, "")
    assert check_distro_info() is None and C.InferenceSession is ort.InferenceSession
    replaced.print_debug_info()
    assert "Sardonyx" in capsys.readouterr().out and importlib.metadata.version("onnxruntime")
