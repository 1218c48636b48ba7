"""What the outputs of a model must be, and who says so.

    sample       `samples.txt` says what they are
    case         a backend case of this version has them
    reference    the evaluator of the onnx package computes them
    onnxruntime  ONNX Runtime computes them
    numpy        the table of `version_cases.py` computes them
    body         the evaluator computes the function that the operator stands for
    wide ...     one of these computes them in a wider type, and they are rounded
"""

import numpy as np
import onnx
from onnx import shape_inference
from onnx.reference import ReferenceEvaluator

import kinds
from retype import widened
from version_cases_notes import NEWER_IN_REFERENCE
from version_cases_oracles import Refusal, brief, feeds, run_numpy, run_onnxruntime, run_reference, typed

# By how much results may differ that were rounded at other places: a few units of the last digit of the type.
TOLERANCES = {
    "double": (1e-5, 1e-6),
    "float16": (5e-3, 5e-3),
    "bfloat16": (3e-2, 3e-2),
    "float8e4m3fn": (0.13, 0.02),
    "float8e4m3fnuz": (0.13, 0.02),
    "float8e5m2": (0.26, 0.02),
    "float8e5m2fnuz": (0.26, 0.02),
    "float4e2m1": (0.5, 0.5),
}
DEFAULT_TOLERANCE = (1e-3, 1e-5)


def judge(key, schema, candidate, name):
    """The judge, the outputs, and the model with their types; `name` is the element of the cell."""
    faults = []
    for judge, run in judges(key, schema, candidate, name):
        try:
            outputs = run(candidate)
            return judge, outputs, typed(candidate.model, outputs)
        except Exception as error:  # a judge that does not run a model has many ways to say so
            faults.append(f"{judge}: {type(error).__name__}: {brief(error)}")
    raise Refusal("; ".join(faults))


def judges(key, schema, candidate, name):
    yield from direct(key, candidate)
    if schema.has_function or schema.has_context_dependent_function:
        yield "body", lambda candidate: run_body(key, schema, candidate)
    for wide in widened(candidate, schema, name):
        for judge, run in direct(key, wide):
            yield f"wide {judge}", lambda candidate, run=run, wide=wide: rounded(candidate.model, run(wide))


def direct(key, candidate):
    if key not in NEWER_IN_REFERENCE and not candidate.expected:
        yield "reference", run_reference
    yield "onnxruntime", run_onnxruntime
    if candidate.expected:
        yield "numpy", lambda candidate: rounded(candidate.model, run_numpy(candidate))


def rounded(model, outputs):
    """The outputs in the types that inference says."""
    inferred = shape_inference.infer_shapes(model).graph.output
    return [cast(value, info.type) for value, info in zip(outputs, inferred)]


def cast(value, kind):
    if kind.WhichOneof("value") != "tensor_type":
        raise Refusal("only tensors are rounded")
    name = onnx.TensorProto.DataType.Name(kind.tensor_type.elem_type).lower()
    value = np.asarray(value)
    if name == "string" or value.dtype.kind in "OU":
        return value.astype(object)
    return value.astype(kinds.dtype(name))


def run_body(key, schema, candidate):
    """The node replaced by the nodes of its function."""
    model = shape_inference.infer_shapes(candidate.model)
    node = model.graph.node[0]
    _, _, since = key
    if schema.has_function:
        function = schema.function_body
    else:
        types = {info.name: info.type for info in model.graph.input}
        content = schema.get_context_dependent_function(
            node.SerializeToString(),
            [types[name].SerializeToString() if name else onnx.TypeProto().SerializeToString() for name in node.input],
        )
        function = onnx.FunctionProto.FromString(content)
    whole = onnx.ModelProto()
    whole.CopyFrom(candidate.model)
    whole.functions.append(function)
    whole.functions[0].domain = whole.graph.node[0].domain = "body"
    whole.functions[0].name = whole.graph.node[0].op_type
    whole.opset_import.append(onnx.helper.make_opsetid("body", 1))
    whole.ir_version = max(whole.ir_version, 8)
    return ReferenceEvaluator(whole).run(None, feeds(candidate))


def tolerance(candidate, names):
    """For results of these elements."""
    limits = [TOLERANCES.get(name, DEFAULT_TOLERANCE) for name in names]
    limits.append((candidate.rtol or 0, candidate.atol or 0))
    return {"rtol": max(rtol for rtol, _ in limits), "atol": max(atol for _, atol in limits)}
