"""Do the operators that ONNX Runtime adds to the standard give what it gives?

    python microsoft.py SARDONYX WORK [--only TEXT] [--count]

Runs the tables of microsoft_cases.py and microsoft_quantized.py, each case in two forms: with sizes
of all inputs, and with symbols for the sizes of what is not a constant. Prints a line for each case
that does not agree; or with --count a line of JSON: agreeing (how many), worst (the largest
difference of 32-bit floats as a part of the output's largest magnitude), problems. WORK is a
directory for models and arrays.
"""

import argparse
import dataclasses
import json
import pathlib
import subprocess
import sys

import ml_dtypes  # noqa: F401, so that arrays of few bits can be made
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

import microsoft_cases
import microsoft_quantized

# The types of outputs that are not of the type of the floats that go in.
KINDS = {
    "InvStdDev": TensorProto.FLOAT,
    "Mean": TensorProto.FLOAT,
    "hash": TensorProto.UINT32,
    "inv_std_var": TensorProto.FLOAT,
    "mask_index": TensorProto.INT32,
    "signed_hash": TensorProto.INT32,
}
# As a part of the largest magnitude of an output.
WITHIN = {np.dtype(np.float64): 1e-10, np.dtype(np.float32): 1e-4, np.dtype(np.float16): 1e-2}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sardonyx")
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--count", action="store_true")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    ort.set_default_logger_severity(4)
    agreeing, problems, worst = 0, [], 0.0
    for case in microsoft_cases.table() + microsoft_quantized.table():
        if args.only not in case.name:
            continue
        for form in ("sizes", "symbols"):
            verdict, difference = judge(case, form, args.sardonyx, args.work)
            if verdict is None:
                agreeing += 1
                worst = max(worst, difference)
            else:
                problems.append(f"{case.name}, {form}: {verdict}")
                if not args.count:
                    print(problems[-1], flush=True)
    if args.count:
        print(json.dumps({"agreeing": agreeing, "worst": float(worst), "problems": problems}))
        return
    print(f"{agreeing} nodes agree, the worst by {worst:.1e}; {len(problems)} do not")
    sys.exit(1 if problems or not agreeing else 0)


def judge(case, form, sardonyx, work):
    """What is wrong with a case, None if nothing; and the difference."""
    model, feeds = build(case, form)
    path = work / "model.onnx"
    onnx.save(model, path)
    try:
        expected = case.expected or (computed(case) if case.oracle else run(case, form))
    except Exception as error:
        return f"ONNX Runtime fails: {str(error).splitlines()[0]}", 0.0
    words = []
    for name, array in feeds.items():
        np.save(work / f"{name}.npy", array)
        words.append(f"{name}={work / name}.npy")
    outputs = work / "ours.npz"
    outputs.unlink(missing_ok=True)
    command = [sardonyx, "run", path, *words, "--output", outputs, "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return "ours fails: " + " ".join((done.stderr or done.stdout).split())[:400], 0.0
    with np.load(outputs) as ours:
        return compare(case, expected, {name: ours[name] for name in ours.files})


def computed(case):
    """The outputs that the program of a case computes."""
    outputs = dict(zip(case.outputs, case.oracle(case.inputs)))
    return {name: array.astype(floats(case)) for name, array in outputs.items()}


def run(case, form):
    """The outputs that ONNX Runtime gives."""
    model, feeds = build(dataclasses.replace(case, inputs=case.same_as or case.inputs), form)
    options = ort.SessionOptions()
    # Several threads quantize the states of a batch in parts.
    options.intra_op_num_threads = 1
    # The node itself is compared, not what it is rewritten to.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    if not case.shared:
        return dict(zip(names, session.run(names, feeds)))
    binding = session.io_binding()
    for name, array in feeds.items():
        value = ort.OrtValue.ortvalue_from_numpy(array.copy())
        binding.bind_ortvalue_input(name, value)
        if name in case.shared:
            binding.bind_ortvalue_output(case.shared[name], value)
    for name in names:
        if name not in case.shared.values():
            binding.bind_output(name)
    session.run_with_iobinding(binding)
    order = [*case.shared.values(), *(name for name in names if name not in case.shared.values())]
    return dict(zip(order, binding.copy_outputs_to_cpu()))


def floats(case):
    """The type of the floats that go in."""
    found = [array.dtype for array in arrays(case) if array.dtype.kind == "f"]
    return found[0] if found else None


def compare(case, expected, ours):
    worst = 0.0
    for name, wanted in expected.items():
        got = ours.get(name)
        if got is None or got.shape != wanted.shape or got.dtype != wanted.dtype:
            found = None if got is None else (got.dtype, got.shape)
            return f"{name} is {found}, not {wanted.dtype, wanted.shape}", 0.0
        wanted, got = blank(case, name, wanted), blank(case, name, got)
        if wanted.dtype.kind != "f":
            apart = np.abs(wanted.astype(np.int64) - got.astype(np.int64))
            if apart.max(initial=0) > case.units:
                return f"{name} differs by {apart.max()} at {(apart > 0).sum()} of {apart.size} elements", 0.0
            continue
        within = case.within or WITHIN[wanted.dtype]
        largest = np.abs(wanted.astype(np.float64)).max(initial=1e-9)
        difference = np.abs(wanted.astype(np.float64) - got.astype(np.float64)).max(initial=0.0) / largest
        if not difference <= within:
            return f"{name} differs by {difference:.2e} of its largest magnitude", difference
        if wanted.dtype == np.float32:
            worst = max(worst, difference)
    return None, worst


def arrays(case):
    return [array for array in case.inputs.values() if isinstance(array, np.ndarray)]


def blank(case, name, array):
    """An array without what means nothing: rows after the end of each sequence."""
    if case.valid is None:
        return array
    array = array.copy()
    for index, count in enumerate(case.valid):
        if array.ndim == 4:
            array[index, :, count:] = 0
        elif case.inputs["query"].shape[1] == int(case.inputs["total_sequence_length"]):
            array[index, count:] = 0
    return array


def build(case, form):
    """The model of one node, and its inputs."""
    inputs, constants, feeds, names = [], [], {}, []
    for name, array in case.inputs.items():
        if array is None:
            names.append("")
            continue
        names.append(name)
        if isinstance(array, tuple):
            constants.append(helper.make_tensor(name, array[0], array[1].shape, array[1].flatten().tolist()))
        elif name in case.weights and form == "symbols":
            constants.append(numpy_helper.from_array(array, name))
        else:
            dims = [f"{name}_{axis}" for axis in range(array.ndim)] if form == "symbols" else array.shape
            elem = helper.np_dtype_to_tensor_dtype(array.dtype)
            inputs.append(helper.make_tensor_value_info(name, elem, dims))
            feeds[name] = array
    while names and not names[-1]:
        names.pop()
    elem = case.output_type or floats(case)
    elem = None if elem is None else helper.np_dtype_to_tensor_dtype(np.dtype(elem))
    outputs = []
    for name in case.outputs:
        if name is None:
            continue
        kind = helper.np_dtype_to_tensor_dtype(case.kinds[name]) if name in case.kinds else KINDS.get(name, elem)
        outputs.append(helper.make_tensor_value_info(name, kind, None))
    node = helper.make_node(
        case.op,
        names,
        [name or "" for name in case.outputs],
        name="node",
        domain=case.domain,
    )
    for name, value in case.attributes.items():
        # An empty list does not tell its type.
        kind = onnx.AttributeProto.INTS if value == [] else None
        node.attribute.append(helper.make_attribute(name, value, attr_type=kind))
    graph = helper.make_graph([node], "one", inputs, outputs, constants)
    imports = [helper.make_opsetid("", case.version), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return model, feeds


if __name__ == "__main__":
    main()
