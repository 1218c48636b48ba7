"""What the outputs of a model are: the oracles of `version_cases.py`."""

import numpy as np
import onnx
import onnxruntime
from onnx import helper, shape_inference
from onnx.reference import ReferenceEvaluator

from version_cases_notes import DECIDED, NEWER_IN_REFERENCE
from version_cases_sources import element_name, type_name

# The standard's own runner takes the same `rtol`. Sums that cancel need more than its `atol` of 1e-7.
RTOL, ATOL = 1e-3, 1e-6
ORACLES = ("case", "onnxruntime", "reference", "numpy")


class Refusal(Exception):
    """The reason why a model cannot be used as a test case."""


class Disagreement(Exception):
    """Two oracles give different expected outputs, and `DECIDED` does not say which one is right."""


def answer(key, candidate):
    """The oracle, its outputs, and the model with the types of these outputs."""
    if candidate.wide:
        oracle, outputs, _ = answer(key, candidate.wide)
        outputs = rounded(candidate.model, outputs)
        return oracle, outputs, typed(candidate.model, outputs)
    given = {}
    faults = []
    for oracle, run in oracles(key, candidate):
        try:
            outputs = run(candidate)
            given[oracle] = outputs, typed(candidate.model, outputs)
        except Exception as error:  # an oracle that does not run a model has many ways to say so
            faults.append(f"{oracle}: {brief(error)}")
    if not given:
        raise Refusal("; ".join(faults))
    decided = DECIDED.get(candidate.name)
    if decided in given:
        return decided, *given[decided]
    first, *others = given
    rtol, atol = candidate.rtol or RTOL, max(candidate.atol or ATOL, ATOL)
    for other in others:
        if not same(given[other][0], given[first][0], rtol, atol):
            raise Disagreement(f"{other} gives {given[other][0]}, {first} {given[first][0]}")
    return first, *given[first]


def brief(error):
    return " ".join(str(error).split())[:400]


def rounded(model, outputs):
    inferred = shape_inference.infer_shapes(model).graph.output
    kinds = [helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type) for info in inferred]
    return [np.asarray(value).astype(kind) for value, kind in zip(outputs, kinds)]


def oracles(key, candidate):
    if isinstance(candidate.expected, list):
        return [("case", lambda candidate: candidate.expected)]
    last = []
    if candidate.expected:
        last = [("numpy", run_numpy)]
    elif key not in NEWER_IN_REFERENCE:
        last = [("reference", run_reference)]
    return [("onnxruntime", run_onnxruntime), *last]


def run_onnxruntime(candidate):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(candidate.model.SerializeToString(), options, ["CPUExecutionProvider"])
    return session.run(None, feeds(candidate))


def run_reference(candidate):
    return ReferenceEvaluator(candidate.model).run(None, feeds(candidate))


def run_numpy(candidate):
    outputs = candidate.expected(*candidate.inputs)
    return list(outputs) if isinstance(outputs, tuple) else [outputs]


def feeds(candidate):
    return {info.name: value for info, value in zip(candidate.model.graph.input, candidate.inputs)}


def typed(model, outputs):
    """The model with the types that inference gives its outputs, or else that the values have."""
    inferred = shape_inference.infer_shapes(model)
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for info, found, value in zip(result.graph.output, inferred.graph.output, outputs):
        kind = found.type.WhichOneof("value")
        if kind in (None, "tensor_type"):
            number = helper.np_dtype_to_tensor_dtype(element_type(value))
            if kind and found.type.tensor_type.elem_type not in (0, number):
                raise Refusal(f"{info.name} is {element_name(number)}, not {type_name(found.type)}")
            info.CopyFrom(helper.make_tensor_value_info(info.name, number, np.shape(value)))
        else:
            info.CopyFrom(found)
    return result


def element_type(value):
    value = np.asarray(value)
    return np.dtype(object) if value.dtype.kind in "UO" else value.dtype


def same(one, other, rtol, atol):
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(same(a, b, rtol, atol) for a, b in zip(one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and np.allclose([*one.values()], [*other.values()], rtol, atol)
    if one is None or other is None:
        return one is other
    one, other = np.asarray(one), np.asarray(other)
    if one.shape != other.shape:
        return False
    if one.dtype.kind in "UO":
        return one.astype(str).tolist() == other.astype(str).tolist()
    if one.dtype != other.dtype:
        return False
    if one.dtype.kind in "biu":
        return np.array_equal(one, other)
    wide = complex if one.dtype.kind == "c" else float
    return np.allclose(one.astype(wide), other.astype(wide), rtol, atol, equal_nan=True)
