"""Write random calls of all operators that are functions of others to disk, at every version.

    python body_cases.py OUT --seed SEED [--draws COUNT] [--sample COUNT]

It needs the packages of `conversions_requirements.txt`. What is drawn is in `body_draws.py`. Each case has the layout that
`dump_cases.py` documents, under `OUT/body`; its name is the operator, the version of its operator set and the number of
the draw. There are `--draws` for each operator and version; with `--sample`, that many of them all are written.

A call stands in the main graph, or in a function of the model that hands all inputs on, so that only its calls say which
are left out; some such functions are called a second time without an input. Types of inputs are known, or have symbols
for sizes, or no rank, unless the operator needs sizes.

Expected outputs are those of ONNX Runtime, of the evaluator of the onnx package or of a formula for the node alone, in
the types that inference gives them. Where they differ, or none can tell, there is no case; a line for each operator says
how often.
"""

import argparse
import collections
import multiprocessing
import os
import pathlib
import sys
import warnings
import zlib

import numpy as np
import onnx
from onnx import defs, helper
from onnx.reference import ReferenceEvaluator

# Operator sets that ONNX Runtime knows but does not call released yet.
os.environ["ALLOW_RELEASED_ONNX_OPSET_ONLY"] = "0"
import onnxruntime  # noqa: E402

from body_draws import DRAWS, FORMULAS, LEFT_OUT, TYPED_BY, Draws  # noqa: E402
from version_cases import write  # noqa: E402
from version_cases_oracles import same  # noqa: E402

# Operators that the engine cannot run without sizes: they have no kernel, and their bodies depend on them.
SIZED = {"CausalConvWithState"}
RTOL, ATOL, HALF_RTOL = 1e-3, 1e-5, 2e-2
NEWEST = defs.onnx_opset_version()
# Inputs that a second call can leave out without another change, by position.
OPTIONAL = {
    "Attention": [3],
    "CausalConvWithState": [2, 3],
    "Clip": [1, 2],
    "LayerNormalization": [2],
    "LinearAttention": [3],
    "NegativeLogLikelihoodLoss": [2],
    "SoftmaxCrossEntropyLoss": [2],
    **{name: [1] for name in DRAWS if name.startswith("Reduce")},
}
# Operators that the evaluator computes in another way than the standard says.
NOT_TRUSTED = {
    # It ignores the rows that the attribute says to pad and crop at once.
    "CenterCropPad",
}


def split(operator):
    domain, _, name = operator.rpartition(".")
    return domain, name


def versions():
    """Operators that are functions, with the operator sets in which they are."""
    first = {}
    for schema in defs.get_all_schemas_with_history():
        since = [*schema.function_opset_versions, *schema.context_dependent_function_opset_versions]
        if since:
            operator = f"{schema.domain}.{schema.name}".lstrip(".")
            first[operator] = min(first.get(operator, NEWEST), schema.since_version)
    unknown = first.keys() - DRAWS.keys() - LEFT_OUT.keys()
    if unknown:
        sys.exit(f"no draw of {', '.join(sorted(unknown))}")
    for operator in sorted(first.keys() & DRAWS.keys()):
        for opset in range(first[operator], (1 if split(operator)[0] else NEWEST) + 1):
            schema = defs.get_schema(split(operator)[1], opset, split(operator)[0])
            if not schema.deprecated and has_function(schema, opset):
                yield operator, opset


def has_function(schema, opset):
    since = [*schema.function_opset_versions, *schema.context_dependent_function_opset_versions]
    return any(version <= opset for version in since)


def imports(operator, opset):
    domain = split(operator)[0]
    return {domain: opset} | ({"": NEWEST} if domain else {})


def type_of(value, look):
    """The type of a value, as far as `look` lets it be known."""
    elem = helper.np_dtype_to_tensor_dtype(value.dtype)
    shapes = {
        "known": list(value.shape),
        "symbols": [f"s{size}" for size in value.shape],
        "open": [None for _ in value.shape],
        "shape": [None],
    }
    return elem, shapes[look]


def typed_info(name, value, look):
    """An input of the graph."""
    if look == "unranked":
        look = "shape" if name.startswith("shape") else "open"
    return helper.make_tensor_value_info(name, *type_of(value, look))


def model_of(operator, opset, drawn, calls, where, look):
    """The model, with the inputs of its graph."""
    domain, name = split(operator)
    inputs, nodes, outputs, functions = {}, [], [], []
    if look == "unranked":
        # The rank of what Reshape gives is the length of its second input.
        for index, value in enumerate(drawn.inputs):
            if value is not None:
                inputs[f"flat{index}"] = value.reshape(-1)
                inputs[f"shape{index}"] = np.array(value.shape, np.int64)
                nodes.append(helper.make_node("Reshape", [f"flat{index}", f"shape{index}"], [f"x{index}"]))
    for number, (call, expected) in enumerate(calls):
        names = []
        for index, value in enumerate(call):
            if value is None:
                names.append("")
            else:
                names.append(f"x{index}")
                if look != "unranked":
                    inputs[f"x{index}"] = value
        while names and not names[-1]:
            names.pop()
        made = iter(expected)
        taken = [f"y{number}_{index}" if is_taken else "" for index, is_taken in enumerate(drawn.outputs)]
        outputs += [(output, next(made)) for output in taken if output]
        if where == "function":
            nodes.append(helper.make_node("f", names, taken, domain="local"))
        else:
            nodes.append(helper.make_node(name, names, taken, domain=domain, **drawn.attributes))
    sets = imports(operator, opset)
    if where == "function":
        formals = [f"a{index}" for index in range(len(drawn.inputs))]
        made = [f"b{index}" for index in range(len(drawn.outputs))]
        body = helper.make_node(name, formals, made, domain=domain, **drawn.attributes)
        opsets = [helper.make_opsetid(*entry) for entry in sets.items()]
        functions.append(helper.make_function("local", "f", formals, made, [body], opsets))
        sets = sets | {"local": 1}
    graph = helper.make_graph(
        nodes,
        "g",
        [typed_info(name, value, look) for name, value in inputs.items()],
        [helper.make_tensor_value_info(name, *type_of(value, "open")) for name, value in outputs],
    )
    opsets = [helper.make_opsetid(*entry) for entry in sets.items()]
    model = helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10)
    return model, [*inputs.values()], [value for _, value in outputs]


def run_onnxruntime(model, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return session.run(None, feeds)


def run_reference(model, feeds):
    return ReferenceEvaluator(model).run(None, feeds)


def answers(operator, opset, drawn, call):
    """What each oracle that runs the node alone gives."""
    domain, name = split(operator)
    names = ["" if value is None else f"x{index}" for index, value in enumerate(call)]
    while names and not names[-1]:
        names.pop()
    taken = [f"y{index}" if is_taken else "" for index, is_taken in enumerate(drawn.outputs)]
    feeds = {f"x{index}": value for index, value in enumerate(call) if value is not None}
    graph = helper.make_graph(
        [helper.make_node(name, names, taken, domain=domain, **drawn.attributes)],
        "g",
        [helper.make_tensor_value_info(name, *type_of(value, "known")) for name, value in feeds.items()],
        [onnx.ValueInfoProto(name=name) for name in taken if name],
    )
    opsets = [helper.make_opsetid(*entry) for entry in imports(operator, opset).items()]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    try:
        model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    except Exception:  # the outputs stay without types, which only ONNX Runtime minds
        pass
    found = []
    for run in (run_onnxruntime, run_reference):
        if run is run_reference and name in NOT_TRUSTED:
            continue
        try:
            found.append(run(model, feeds))
        except Exception:  # an oracle without the operator, the version or the type
            continue
    if operator in FORMULAS:
        found.append(FORMULAS[operator](drawn.attributes, *call))
    # The evaluator gives some outputs in the types of inputs.
    kinds = [output.type.tensor_type.elem_type for output in model.graph.output]
    if operator in TYPED_BY:
        kinds[0] = helper.np_dtype_to_tensor_dtype(call[TYPED_BY[operator]].dtype)
    return [[typed(value, kind) for value, kind in zip(values, kinds, strict=True)] for values in found]


def typed(value, kind):
    value = np.asarray(value)
    return value.astype(helper.tensor_dtype_to_np_dtype(kind)) if kind else value


def is_half(values):
    return any(value is not None and value.dtype == np.float16 for value in values)


def make(task):
    """Writes one case; gives its operator, and why there is none."""
    out, seed, operator, opset, number = task
    rng = np.random.default_rng([seed, zlib.crc32(operator.encode()), opset, number])
    d = Draws(rng)
    drawn = DRAWS[operator](d, opset)
    where = d.pick(["main", "function"])
    look = d.pick(["known", "known", "symbols", "unranked"])
    if operator in SIZED:
        look = "known"
    calls = [list(drawn.inputs)]
    optional = [index for index in OPTIONAL.get(operator, []) if index < len(calls[0]) and calls[0][index] is not None]
    if where == "function" and optional and d.chance():
        other = list(calls[0])
        other[d.pick(optional)] = None
        calls.append(other)
    tolerance = HALF_RTOL if is_half(drawn.inputs) else RTOL
    expected = []
    for call in calls:
        found = answers(operator, opset, drawn, call)
        if not found:
            return operator, "run by no oracle"
        if not all(same(found[0], other, tolerance, max(ATOL, tolerance / 10)) for other in found[1:]):
            return operator, "other results"
        expected.append(found[0])
    model, inputs, outputs = model_of(operator, opset, drawn, list(zip(calls, expected)), where, look)
    facts = {"rtol": tolerance, "atol": HALF_RTOL if tolerance == HALF_RTOL else ATOL}
    write(out / "body" / f"{operator}-{opset}-{number}", inputs, outputs, model, facts)
    return operator, "written"


def quiet():
    # Engines write to the descriptor itself.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("out", type=pathlib.Path)
    arguments.add_argument("--seed", type=int, required=True)
    arguments.add_argument("--draws", type=int, default=8)
    arguments.add_argument("--sample", type=int)
    arguments = arguments.parse_args()
    keys = [(*version, number) for version in versions() for number in range(arguments.draws)]
    if arguments.sample is not None:
        chosen = np.random.default_rng(arguments.seed).permutation(len(keys))[: arguments.sample]
        keys = [keys[index] for index in sorted(chosen)]
    tasks = [(arguments.out, arguments.seed, *key) for key in keys]
    outcomes = collections.defaultdict(collections.Counter)
    with multiprocessing.Pool(initializer=quiet) as pool:
        for operator, outcome in pool.imap_unordered(make, tasks, chunksize=8):
            outcomes[operator][outcome] += 1
    total = sum(outcomes.values(), collections.Counter())
    print(f"draws with seed {arguments.seed}:", ", ".join(f"{count} {outcome}" for outcome, count in total.items()))
    for operator, found in sorted(outcomes.items()):
        if found.total() > found["written"]:
            rest = ", ".join(f"{count} {outcome}" for outcome, count in found.items() if outcome != "written")
            print(f"{operator}: {found['written']} written, {rest}")
    for operator, why in sorted(LEFT_OUT.items()):
        print(f"{operator}: left out, as {why}")
    if not total["written"]:
        sys.exit("no case was written")


if __name__ == "__main__":
    main()
