"""Compare the sizes that we infer with those of the arrays that ONNX Runtime makes.

    python shapes.py SARDONYX MODEL.onnx CASE DIRECTORY

CASE says how large the inputs are, and so what number each symbol of the model stands for. Every value of the main graph
becomes an output of a copy of the model, which runs without optimisation, so that all of them are there. Each must have the
element type and the shape that `sardonyx infer --set SYMBOL=NUMBER` says, as far as it says something.

Prints a line of JSON: values (how many were compared), open (sizes and ranks that are not said), problems.
"""

import json
import pathlib
import subprocess
import sys

import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

sys.path.append(str(pathlib.Path(__file__).parent.parent / "perf"))
from case_inputs import read_case  # noqa: E402


def main(sardonyx, model_path, case, directory):
    inputs = read_case(case)
    model = onnx.load(model_path, load_external_data=False)
    symbols = symbols_of(model, inputs)
    said = inferred(sardonyx, model_path, symbols)
    values, open_sizes, problems = 0, 0, []
    for name, array in run(model, inputs, directory).items():
        if name not in said:
            problems.append(f"{name}: nothing is said of it")
            continue
        if not hasattr(array, "shape"):
            continue
        values += 1
        elem, shape = said[name]
        wanted = word(array.dtype)
        if elem != wanted:
            problems.append(f"{name}: {elem}, not {wanted}")
        if shape is None:
            open_sizes += 1
            continue
        if len(shape) != array.ndim or any(isinstance(d, int) and d != n for d, n in zip(shape, array.shape)):
            problems.append(f"{name}: {shape}, not {list(array.shape)}")
        open_sizes += sum(not isinstance(size, int) for size in shape)
    print(json.dumps({"values": values, "open": open_sizes, "symbols": symbols, "problems": problems}))


def symbols_of(model, inputs):
    """What each symbol in the types of the model's inputs stands for, if these are the inputs."""
    symbols = {}
    for info in model.graph.input:
        if info.name in inputs:
            dims = info.type.tensor_type.shape.dim
            for dim, size in zip(dims, inputs[info.name].shape, strict=True):
                if dim.dim_param and symbols.setdefault(dim.dim_param, size) != size:
                    sys.exit(f"{dim.dim_param} is {symbols[dim.dim_param]} and {size}")
    return symbols


def inferred(sardonyx, model, symbols):
    """Element type and shape of each value of the main graph, as our command says them."""
    settings = [word for name, size in symbols.items() for word in ("--set", f"{name}={size}")]
    done = subprocess.run([sardonyx, "infer", model, "--json", *settings], stdout=subprocess.PIPE, check=True)
    values = json.loads(done.stdout)["values"]
    return {value["name"]: (value.get("elem"), value.get("shape")) for value in values if value["graph"] == "graph"}


def run(model, inputs, directory):
    """What ONNX Runtime gives for every value that a node of the main graph makes."""
    made = [name for node in model.graph.node for name in node.output if name]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    path = directory / "all-values.onnx"
    onnx.save(model, path, save_as_external_data=True, location="all-values.data", size_threshold=1 << 16)
    ort.set_default_logger_severity(4)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return dict(zip(made, session.run(made, inputs)))


def word(dtype):
    """The name of an element type as our command says it."""
    if dtype == object:
        return "string"
    return TensorProto.DataType.Name(helper.np_dtype_to_tensor_dtype(dtype)).lower()


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]), pathlib.Path(sys.argv[4]))
