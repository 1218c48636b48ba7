"""The backend that the onnx package's tests want."""

import unittest

import numpy as np
import onnx.backend.base
import onnx.backend.test
import pytest
import sardonyx
from onnx import helper
from sardonyx import backend

MODEL = sardonyx.parser.parse_model(
    """<ir_version: 10, opset_import: ["": 21]>
    g (float[N] x, float[N] y) => (float[N] s, float[N] d) { s = Add (x, y) d = Sub (x, y) }"""
)
X, Y = np.float32([1, 2]), np.float32([3, 5])


def test_models():
    prepared = backend.prepare(MODEL, "CPU", threads=1)
    for inputs in ([X, Y], (X, Y), {"y": Y, "x": X}):
        outputs = prepared.run(inputs)
        assert outputs[0].tolist() == [4, 7] and outputs.d.tolist() == [-2, -3]
    assert backend.run_model(MODEL, [X, Y])[1].tolist() == [-2, -3]
    assert backend.run(prepared, [X, Y])[0].tolist() == [4, 7]
    assert backend.prepare(prepared) is prepared
    assert backend.prepare(sardonyx.Session(MODEL)).run([X, Y])[0].tolist() == [4, 7]
    with pytest.raises(ValueError, match="3 are given"):
        prepared.run([X, Y, X])


def test_nodes():
    node = helper.make_node("Sub", ["a", "b"], ["c"])
    assert backend.run_node(node, [X, Y])[0].tolist() == [-2, -3]
    assert backend.run_node(node, {"b": X, "a": Y})[0].tolist() == [2, 3]
    assert backend.run_node(helper.make_node("Relu", ["a"], ["b"]), -X, opset_version=13)[0].tolist() == [0, 0]
    clip = helper.make_node("Clip", ["a", "", "top"], ["b"])
    assert backend.run_node(clip, [X, np.float32(1)])[0].tolist() == [1, 1]
    values, indices = backend.run_node(helper.make_node("TopK", ["a", "k"], ["v", "i"]), [X, np.int64([1])])
    assert values.tolist() == [2] and indices.tolist() == [1]


def test_devices():
    assert backend.supports_device("CPU") and backend.supports_device("CPU:0")
    assert not backend.supports_device("CUDA") and not backend.is_compatible(MODEL, "CUDA")
    with pytest.raises(ValueError, match="CUDA"):
        backend.prepare(MODEL, "CUDA")


# A part of the cases of the package: sequences, optionals, texts, several outputs and subgraphs among them.
SAMPLE = (
    r"^test_(relu|add_bcast|topk|top_k|split_equal_parts_1d_opset18|sequence_insert_at_back|"
    r"optional_get_element_sequence|optional_has_element|string_concat|if|loop11|loop13_seq|if_seq|"
    r"constant|cast_FLOAT_to_BFLOAT16|cast_FLOAT_to_FLOAT8E4M3FN|cast_FLOAT_to_INT4|quantizelinear_int4|"
    r"identity_sequence|identity_opt|gradient_of_nothing|ai_onnx_ml_array_feature_extractor)_cpu$"
)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_cases_of_the_onnx_package():
    cases = onnx.backend.test.BackendTest(backend, __name__)
    cases.include(SAMPLE)
    suite = unittest.TestSuite()
    for case in cases.test_cases.values():
        suite.addTests(unittest.defaultTestLoader.loadTestsFromTestCase(case))
    result = unittest.TestResult()
    suite.run(result)
    assert result.wasSuccessful(), (result.failures + result.errors)[:1]
    assert result.testsRun - len(result.skipped) >= 15
