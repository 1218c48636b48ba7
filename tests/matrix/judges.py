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
from retype import ATTRIBUTES, widened
from samples import spread, types_in, types_of_values
from version_cases_notes import NEWER_IN_REFERENCE
from version_cases_oracles import (
    ATOL,
    RTOL,
    Refusal,
    brief,
    feeds,
    run_numpy,
    run_onnxruntime,
    run_reference,
    same,
    typed,
)

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
# Operators whose functions in the table give the same whatever their inputs are.
CONSTANTS = ("CastLike", "OneHot")
# Versions for which the evaluator of the onnx package runs a newer one: it has other defaults for Selu.
NEWER = NEWER_IN_REFERENCE | {("", "Selu", 1)}
# What judges do, and whether they are right about samples.
RUNS = {"reference": run_reference, "onnxruntime": run_onnxruntime}
RIGHT = {}
DEFAULT_TOLERANCE = (1e-3, 1e-5)


def judge(key, schema, candidate, variable, kind, sample):
    """The judge of a cell, the outputs, and the model with their types.

    `sample` is what the candidate was before it got the type, with its outputs: who does not give those is no judge.
    """
    faults = []
    for judge, run in judges(key, schema, candidate, variable, kind):
        try:
            if sample and judge in RUNS and not gives(judge, *sample):
                raise Refusal("is not right about the sample")
            outputs = run(candidate)
            check_elements(outputs, output_types(key, schema, candidate.model, {variable: kind}))
            return judge, outputs, typed(candidate.model, outputs)
        except Exception as error:  # a judge that does not run a model has many ways to say so
            faults.append(f"{judge}: {type(error).__name__}: {brief(error)}")
    raise Refusal("; ".join(faults))


def gives(judge, sample, outputs):
    """Whether a judge gives the outputs of a sample."""
    found = RIGHT.get((judge, id(sample)))
    if found is None:
        try:
            found = same(RUNS[judge](sample), outputs, sample.rtol or RTOL, max(sample.atol or ATOL, ATOL))
        except Exception:  # a judge that does not run a sample has many ways to say so
            # It may still run other types.
            found = True
        RIGHT[judge, id(sample)] = found
    return found


def judges(key, schema, candidate, variable, kind):
    def rounded(outputs):
        found = output_types(key, schema, candidate.model, {variable: kind})
        return [cast(value, output) for value, output in zip(outputs, found)]

    yield from direct(key, candidate)
    if candidate.expected and schema.name not in CONSTANTS:
        yield "numpy", lambda candidate: rounded(run_numpy(candidate))
    if schema.has_function or schema.has_context_dependent_function:
        yield "body", lambda candidate: run_body(schema, candidate)
    for wide in widened(candidate, schema, kinds.element(kind)):
        for judge, run in direct(key, wide):
            yield f"wide {judge}", lambda _, run=run, wide=wide: rounded(run(wide))
        if candidate.expected and schema.name not in CONSTANTS:
            yield "wide numpy", lambda _, wide=wide: rounded(run_numpy(wide))


def direct(key, candidate):
    if key not in NEWER:
        yield "reference", run_reference
    yield "onnxruntime", run_onnxruntime


def output_types(key, schema, model, cell):
    """The types of outputs: those that inference says, or else those of their variables."""
    known = types_of_values(model)
    variables = types_in(model, key, schema)
    node = model.graph.node[-1]
    found = []
    for output, formal in zip(node.output, spread(schema.outputs, len(node.output))):
        own = variables[formal.type_str] or {cell.get(formal.type_str) or attribute_type(node, formal.type_str)}
        found += [known.get(output) or next(iter(own)) or formal.type_str] if output else []
    return found


def check_elements(outputs, types):
    for value, kind in zip(outputs, types):
        if kinds.layers(kind) == ("tensor",) and kinds.element_of(value) != kinds.element(kind):
            raise Refusal(f"the output is {kinds.element_of(value)}, not {kind}")


def attribute_type(node, variable):
    """The type that an attribute says, before it was a number."""
    name = ATTRIBUTES.get((node.op_type, variable))
    stated = [found.s.decode().lower() for found in node.attribute if found.name == name and found.s]
    return f"tensor({stated[0]})" if stated else None


def cast(value, kind):
    if kinds.layers(kind) != ("tensor",):
        raise Refusal(f"only tensors are rounded, not {kind}")
    value = np.asarray(value)
    if kinds.element(kind) == "string" or value.dtype.kind in "OU":
        return value.astype(object)
    return value.astype(kinds.dtype(kinds.element(kind)))


def run_body(schema, candidate):
    """The node replaced by the nodes of its function."""
    model = shape_inference.infer_shapes(candidate.model)
    node = model.graph.node[0]
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
