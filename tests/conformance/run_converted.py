"""Runs converted models in other engines and compares what they give with what their cases expect.

    python run_converted.py CASES CONVERTED

CASES holds cases, CONVERTED what `conversions --write` wrote of them: a directory for each version of an operator set,
or what `inlinings --write` did: one for each depth to which bodies were put in.
A model runs in ONNX Runtime or, where that has no kernel for it, in the evaluator of the onnx package. An engine counts
for a case only if it does not run the model that was not converted, or gives what the case expects of it: what an
engine computes in another way than the case is not the conversion's doing.

Models with random numbers are left out, and so is what the evaluator is known to compute in another way: `NOT_TRUSTED`.

A line for each version: how many models there are, how many ran and gave what is expected in which engine, how many
neither runs, and how many give something else. These follow, and end the run with exit code 1.
"""

import collections
import multiprocessing
import os
import pathlib
import sys
import warnings

import numpy
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

# Operator sets that ONNX Runtime knows but does not call released yet.
os.environ["ALLOW_RELEASED_ONNX_OPSET_ONLY"] = "0"
import onnxruntime  # noqa: E402

# As of the cases, but for 16-bit floats and bodies of functions, which round between their nodes.
RTOL, ATOL, HALF_RTOL = 1e-3, 1e-5, 2e-2
ENGINES = ("onnxruntime", "reference")
OUTCOMES = (*ENGINES, "not run", "other", "left out")
RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
# What the evaluator of the onnx package computes in another way than the standard says: an operator, and the first
# version of ai.onnx in which it does not.
NOT_TRUSTED = {
    # It counts padding into averages, which came with `count_include_pad` in version 7.
    "AveragePool": 7,
    # It adds C without `beta` unless that broadcasts.
    "Gemm": 7,
    # It runs forwards, and with the default activations, whatever the attributes say.
    "GRU": 99,
    "LSTM": 99,
    "RNN": 99,
    # It gives scan outputs of scalars a second axis.
    "Loop": 99,
}

onnxruntime.set_default_logger_severity(4)
warnings.simplefilter("ignore")


def options():
    found = onnxruntime.SessionOptions()
    found.intra_op_num_threads = 1
    found.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return found


def value(path, type_):
    data = path.read_bytes()
    if not data:
        return None
    kind = type_.WhichOneof("value")
    if kind != "tensor_type":
        raise NotImplementedError(kind)
    tensor = onnx.TensorProto()
    tensor.ParseFromString(data)
    return numpy_helper.to_array(tensor)


def numbered(directory, role):
    paths = directory.glob(f"{role}_*.pb")
    return sorted(paths, key=lambda path: int(path.stem.rsplit("_", 1)[1]))


class Case:
    """Inputs by name and expected outputs of the first data set of a case."""

    def __init__(self, directory):
        graph = onnx.load(str(directory / "model.onnx"), load_external_data=False).graph
        data = directory / "test_data_set_0"
        initializers = {tensor.name for tensor in graph.initializer}
        fed = [port for port in graph.input if port.name not in initializers]
        self.inputs = {}
        for port, path in zip(fed, numbered(data, "input")):
            self.inputs[port.name] = value(path, port.type)
        self.wanted = [value(path, port.type) for port, path in zip(graph.output, numbered(data, "output"))]
        self.engines = [
            engine for engine in ENGINES if self.outcome(directory / "model.onnx", [engine]) in (engine, "not run")
        ]

    def outcome(self, model, engines):
        """The engine that gives what is expected, or what became of the model."""
        outcome = "not run"
        for engine in engines:
            if engine == "reference" and not is_trusted(model):
                continue
            outputs = RUN[engine](model, self.inputs)
            if outputs is None:
                continue
            if agree(outputs, self.wanted):
                return engine
            outcome = "other"
        return outcome


def run_onnxruntime(model, inputs):
    try:
        session = onnxruntime.InferenceSession(str(model), options(), providers=["CPUExecutionProvider"])
        present = {name: found for name, found in inputs.items() if found is not None}
        return session.run(None, present)
    except Exception:  # no kernel for the operator, the version or the type
        return None


def run_reference(model, inputs):
    try:
        return ReferenceEvaluator(str(model)).run(None, inputs)
    except Exception:  # an evaluator that is not complete fails in many ways
        return None


RUN = {"onnxruntime": run_onnxruntime, "reference": run_reference}


def close(got, want):
    got = numpy.asarray(got)
    if want is None or got.shape != want.shape:
        return False
    if want.dtype.kind in "bOUS":
        return bool((got.astype(object) == want.astype(object)).all())
    if want.dtype.kind in "iu":
        return bool((got == want).all())
    half = want.dtype.itemsize <= 2
    rtol = HALF_RTOL if half else RTOL
    wide = numpy.complex128 if want.dtype.kind == "c" else numpy.float64
    got, want = got.astype(wide), want.astype(wide)
    return bool(numpy.allclose(got, want, rtol=rtol, atol=rtol if half else ATOL, equal_nan=True))


def agree(outputs, wanted):
    try:
        return all(close(got, want) for got, want in zip(outputs, wanted, strict=True))
    except (TypeError, ValueError):
        return False


def operators(nodes):
    """The operators of nodes and of graphs in them."""
    for node in nodes:
        yield node.op_type
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from operators(attribute.g.node)


def all_operators(proto):
    """The operators of a model, those in its functions too."""
    yield from operators(proto.graph.node)
    for function in proto.functions:
        yield from operators(function.node)


def is_trusted(model):
    proto = onnx.load(str(model), load_external_data=False)
    version = max((found.version for found in proto.opset_import if found.domain in ("", "ai.onnx")), default=1)
    return all(version >= NOT_TRUSTED.get(name, 0) for name in all_operators(proto))


def is_random(model):
    proto = onnx.load(str(model), load_external_data=False)
    return any(name in RANDOM for name in all_operators(proto))


def judge(task):
    """What became of each converted model of a case, by version."""
    directory, models = task
    if is_random(directory / "model.onnx"):
        return [(opset, "left out", directory.name) for opset, _ in models]
    try:
        case = Case(directory)
    except NotImplementedError:
        return [(opset, "left out", directory.name) for opset, _ in models]
    if not case.engines:
        return [(opset, "left out", directory.name) for opset, _ in models]
    return [(opset, case.outcome(model, case.engines), directory.name) for opset, model in models]


def quiet():
    # Engines write to the descriptor itself.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def main(cases, converted):
    cases, converted = pathlib.Path(cases), pathlib.Path(converted)
    by_case = collections.defaultdict(list)
    for opset in converted.iterdir():
        for model in opset.rglob("*.onnx"):
            by_case[model.relative_to(opset).with_suffix("")].append((opset.name, model))
    tasks = [(cases / name, sorted(models)) for name, models in sorted(by_case.items())]
    counts = collections.defaultdict(collections.Counter)
    differ = []
    with multiprocessing.Pool(initializer=quiet) as pool:
        for outcomes in pool.imap_unordered(judge, tasks, chunksize=4):
            for opset, outcome, name in outcomes:
                counts[opset][outcome] += 1
                if outcome == "other":
                    differ.append(f"{opset} {name}")
    print("\t".join(("opset", "models", *OUTCOMES)))
    # Numbers of versions, or how far operators were inlined.
    key = lambda opset: (opset.split("=")[0], opset.split("=")[1].zfill(2))
    for opset in sorted(counts, key=key):
        found = counts[opset]
        print("\t".join(map(str, (opset, found.total(), *(found[outcome] for outcome in OUTCOMES)))))
    print("\n".join(sorted(differ)))
    return bool(differ)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
