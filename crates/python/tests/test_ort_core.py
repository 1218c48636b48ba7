"""Tables of the core about onnxruntime, and the classes of the package that stand for them."""

import copy
import pickle

import numpy as np
import pytest
import sardonyx
from sardonyx import ort
from sardonyx._core import ort as core
from sardonyx._shims.onnxruntime import errors, unsupported
from sardonyx._shims.onnxruntime.options import _Option
from test_ort import content, f


def test_numbers_and_exceptions_are_those_of_the_core():
    levels = core.levels()
    for cls in (ort.GraphOptimizationLevel, ort.ExecutionMode, ort.ExecutionOrder):
        assert [(member.name, int(member)) for member in cls] == levels[cls.__name__]
    assert {cls.__name__ for cls in errors.CLASSES} == set(core.statuses())
    assert ort.get_build_info() == f"Sardonyx {sardonyx.__version__}, with the names of onnxruntime {ort.__version__}"


@pytest.mark.parametrize("cls", [ort.SessionOptions, ort.RunOptions])
def test_options_are_those_of_the_core(cls):
    docs = dict(cls._docs())
    assert {name for name, value in vars(cls).items() if isinstance(value, _Option)} == set(docs)
    for name, doc in docs.items():
        assert vars(cls)[name].__doc__ == doc
    options = cls()
    with pytest.raises(AttributeError, match="unknown option 'other'"):
        options._set("other", 1)
    with pytest.raises(AttributeError):
        options.other = 1


def test_options_refuse_values_of_other_types():
    class Index:
        def __index__(self):
            return 5

    options = ort.SessionOptions()
    for value in (3, np.int64(4), Index(), -1):
        options.intra_op_num_threads = value
        assert options.intra_op_num_threads == (5 if isinstance(value, Index) else value)
    options.enable_profiling = np.bool_(True)
    assert options.enable_profiling is True
    options.log_severity_level = ort.ExecutionMode.ORT_PARALLEL
    assert options.log_severity_level == 1
    for name, value in [
        ("intra_op_num_threads", 1.5),
        ("intra_op_num_threads", 2**70),
        ("enable_profiling", 1),
        ("profile_file_prefix", b"a"),
        ("execution_mode", ort.ExecutionOrder.DEFAULT),
        ("graph_optimization_level", 99),
    ]:
        before = getattr(options, name)
        with pytest.raises(TypeError, match=f"the option '{name}' is .*, which is not of the type"):
            setattr(options, name, value)
        assert getattr(options, name) == before
    run = ort.RunOptions()
    with pytest.raises(TypeError, match="the option 'terminate' is 1, which is not of the type bool"):
        run.terminate = 1


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_options_are_copied_whole(copied):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.profile_file_prefix = "p\udcff"
    options.add_session_config_entry("a", "b\udcff")
    options.add_free_dimension_override_by_name("N", 3)
    options.add_initializer("w", ort.OrtValue.ortvalue_from_numpy(f(2)))
    options.add_external_initializers_from_files_in_memory(["w.bin"], [b"abc"], [2])
    again = copied(options)
    assert type(again) is ort.SessionOptions
    assert again.graph_optimization_level is ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    assert again.profile_file_prefix == "p\udcff" and again.get_session_config_entry("a") == "b\udcff"
    state, other = options.__getstate__(), again.__getstate__()
    assert state[1:4] == other[1:4] and other[5] == [("w.bin", b"ab")]
    assert other[4][0][0] == "w" and other[4][0][1].tolist() == [0, 1] and other[4][0][2] is False
    again.logid = "other"
    assert options.logid == ""


def test_every_refusal_that_the_package_asks_for_exists():
    for key in unsupported._FUNCTIONS:
        assert core.refusal(key, "f").code == "unsupported"
    error = core.refusal("device", "cuda")
    assert isinstance(error, errors.NotImplemented) and "'cuda'" in str(error) and error.help
    with pytest.raises(KeyError):
        core.refusal("nothing")


def test_a_profile_that_cannot_be_written_raises_an_error_of_the_system(tmp_path):
    options = ort.SessionOptions()
    options.enable_profiling = True
    # A mark of strftime in a prefix is text.
    options.profile_file_prefix = str(tmp_path / "100%d")
    session = ort.InferenceSession(content("relu"), options)
    session.run(None, {"x": f(2)})
    assert session.end_profiling().startswith(str(tmp_path / "100%d_"))
    options.profile_file_prefix = str(tmp_path / "nowhere" / "p")
    session = ort.InferenceSession(content("relu"), options)
    with pytest.raises(FileNotFoundError) as raised:
        session.end_profiling()
    assert raised.value.filename.startswith(str(tmp_path / "nowhere" / "p_"))


def test_two_names_of_one_output_are_two_arrays():
    graphs = [
        "g (float[N] x) => (float[N] y, float[N] z) { y = Relu (x) z = Identity (y) }",
        "g (float[N] x) => (float[N] y, float[N, 1] z) <int64[2] s = {-1, 1}> { y = Relu (x) z = Reshape (y, s) }",
        "g (float[N] x) => (float[N] y, float[N] y2, float[N] w) { y = Relu (x) y2 = Identity (y) w = Neg (y) }",
    ]
    for graph in graphs:
        model = sardonyx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> ' + graph)
        session = ort.InferenceSession(model)
        for _ in range(4):
            outputs = session.run(None, {"x": np.float32([-1, 2])})
            assert len(outputs) == len(session.get_outputs())
            for output in outputs:
                assert abs(output).ravel().tolist() == [0, 2]
            outputs[0][:] = 7
            assert not (outputs[1] == 7).any()
