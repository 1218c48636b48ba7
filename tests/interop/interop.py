"""Exchanges model files with the onnx package, ONNX Runtime, NumPy and safetensors, in both directions.

What the command writes, they must read, equal message by message; what they write, the command must read. Prints one line
per disagreement and a summary; the exit code says whether there was none.
"""

import argparse
import hashlib
import json
import pathlib
import shutil
import subprocess
import sys

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import safetensors.numpy
from onnx import TensorProto, helper, numpy_helper

parser = argparse.ArgumentParser()
parser.add_argument("sardonyx", type=pathlib.Path)
parser.add_argument("directory", type=pathlib.Path)
parser.add_argument("--models", type=pathlib.Path, nargs="*", default=[])
arguments = parser.parse_args()

comparisons = 0
differences = []


def check(equal, what):
    global comparisons
    comparisons += 1
    if not equal:
        differences.append(what)
        print(f"DIFFERENT: {what}")


def sardonyx(*words):
    done = subprocess.run(
        [arguments.sardonyx, *map(str, words)], capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(f"sardonyx {' '.join(map(str, words))}: {done.stderr}")
    return done.stdout


def content_hash(path):
    return json.loads(sardonyx("hash", path, "--json"))["hashes"][0]["sha256"]


def tensors_of(model):
    """Every TensorProto of a model, in any graph, attribute or function."""
    found = []

    def of_attribute(attribute):
        if attribute.HasField("t"):
            found.append(attribute.t)
        found.extend(attribute.tensors)
        for sparse in [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []:
            found.extend([sparse.values, sparse.indices])
        for sparse in attribute.sparse_tensors:
            found.extend([sparse.values, sparse.indices])
        if attribute.HasField("g"):
            of_graph(attribute.g)
        for graph in attribute.graphs:
            of_graph(graph)

    def of_graph(graph):
        found.extend(graph.initializer)
        for sparse in graph.sparse_initializer:
            found.extend([sparse.values, sparse.indices])
        for node in graph.node:
            for attribute in node.attribute:
                of_attribute(attribute)

    of_graph(model.graph)
    for function in model.functions:
        for attribute in function.attribute_proto:
            of_attribute(attribute)
        for node in function.node:
            for attribute in node.attribute:
                of_attribute(attribute)
    return found


def without_location(model):
    """The message without traces of where values were stored: the onnx package says DEFAULT after loading."""
    copy = type(model)()
    copy.CopyFrom(model)
    for tensor in tensors_of(copy):
        tensor.ClearField("data_location")
        tensor.ClearField("external_data")
    return copy


def every_type():
    """A model with an initializer of every element type, raw and in its typed list, in graphs of several kinds."""
    names = [name for name in TensorProto.DataType.keys() if name not in ("UNDEFINED", "STRING")]
    initializers = []
    for name in names:
        number = TensorProto.DataType.Value(name)
        dtype = helper.tensor_dtype_to_np_dtype(number)
        values = (np.arange(24) % 2 if name.endswith("2") or name == "BOOL" else np.arange(24) % 3)
        values = values.reshape(2, 12).astype(dtype)
        raw = numpy_helper.from_array(values, f"raw_{name.lower()}")
        initializers.append(raw)
        typed = helper.make_tensor(
            f"typed_{name.lower()}", number, [2, 12], values.flatten().tolist()
        )
        initializers.append(typed)
    initializers.append(helper.make_tensor("texts", TensorProto.STRING, [2], [b"a", "\u00e9\0".encode()]))
    constant = helper.make_node(
        "Constant", [], ["c"], value=numpy_helper.from_array(np.arange(5000, dtype=np.float32))
    )
    inner = helper.make_graph(
        [helper.make_node("Add", ["c", "inner_w"], ["s"])],
        "inner",
        [],
        [helper.make_tensor_value_info("s", TensorProto.FLOAT, [5000])],
        [numpy_helper.from_array(np.ones(5000, dtype=np.float32), "inner_w")],
    )
    branch = helper.make_node("If", ["condition"], ["y"], then_branch=inner, else_branch=inner)
    body = [
        helper.make_node(
            "Constant", [], ["k"], value=numpy_helper.from_array(np.arange(2000, dtype=np.int64))
        ),
        helper.make_node("Cast", ["k"], ["f"], to=TensorProto.FLOAT),
    ]
    function = helper.make_function(
        "test", "Counted", [], ["f"], body, [helper.make_opsetid("", 23)]
    )
    call = helper.make_node("Counted", [], ["z"], domain="test")
    graph = helper.make_graph(
        [constant, branch, call],
        "every type",
        [helper.make_tensor_value_info("condition", TensorProto.BOOL, [])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [5000]),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, [2000]),
        ],
        initializers,
    )
    indices = numpy_helper.from_array(np.array([1, 7], dtype=np.int64), "sparse_indices")
    values = numpy_helper.from_array(np.array([1.5, 2.5], dtype=np.float32), "sparse_w")
    graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [10]))
    imports = [helper.make_opsetid("", 23), helper.make_opsetid("test", 1)]
    model = helper.make_model(graph, functions=[function], opset_imports=imports, ir_version=14)
    model.metadata_props.add(key="caf\u00e9", value="\U0001f600")
    return model


def runnable():
    """A model that ONNX Runtime runs, with values in the main graph, in a subgraph and in an attribute."""
    model = every_type()
    graph = model.graph
    del graph.initializer[:]
    del graph.sparse_initializer[:]
    graph.initializer.append(numpy_helper.from_array(np.full(2000, 0.5, dtype=np.float32), "half"))
    graph.node.append(helper.make_node("Mul", ["z", "half"], ["product"]))
    graph.output.append(helper.make_tensor_value_info("product", TensorProto.FLOAT, [2000]))
    model.ir_version = 10
    for imports in [model.opset_import, model.functions[0].opset_import]:
        for entry in imports:
            entry.version = 21 if entry.domain == "" else entry.version
    return model


def outputs_of(path):
    """What ONNX Runtime computes for made-up inputs, or why it does not."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(1)
    feeds = {}
    for wanted in session.get_inputs():
        shape = [size if isinstance(size, int) else 1 for size in wanted.shape]
        dtype = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_}
        feeds[wanted.name] = random.random(shape).astype(dtype[wanted.type])
    return session.run(None, feeds)


def same_outputs(a, b):
    return len(a) == len(b) and all(np.array_equal(x, y, equal_nan=True) for x, y in zip(a, b))


def ours_to_theirs(name, path, directory):
    original = path.read_bytes()
    model = onnx.ModelProto.FromString(original)
    try:
        expected = outputs_of(path)
    except Exception as error:
        expected = None
        print(f"{name}: not run by ONNX Runtime: {str(error).splitlines()[0][:100]}")
    ways = {
        "one file": [],
        "all tensors": ["--threshold", "0", "--attributes", "--checksum"],
        "per tensor": ["--per-tensor", "--threshold", "1"],
        "shards": ["--shards", "100K", "--threshold", "1"],
        "unaligned": ["--align", "1", "--threshold", "1"],
    }
    for way, flags in ways.items():
        out = directory / way.replace(" ", "_")
        out.mkdir(parents=True)
        moved = out / "model.onnx"
        sardonyx("externalize", path, "-o", moved, *flags)
        what = f"{name}, {way}"
        loaded = onnx.load(moved)
        check(without_location(loaded) == without_location(model), f"{what}: message")
        values = zip(tensors_of(loaded), tensors_of(model))
        check(
            all(numpy_helper.to_array(a).tobytes() == numpy_helper.to_array(b).tobytes() for a, b in values),
            f"{what}: values",
        )
        check(content_hash(moved) == content_hash(path), f"{what}: content hash")
        if expected is not None and way != "all tensors":
            check(same_outputs(outputs_of(moved), expected), f"{what}: ONNX Runtime")
        if way == "all tensors":
            for tensor in tensors_of(onnx.load(moved, load_external_data=False)):
                entries = {entry.key: entry.value for entry in tensor.external_data}
                if entries:
                    data = (out / entries["location"]).read_bytes()
                    check(hashlib.sha1(data).hexdigest() == entries["checksum"], f"{what}: checksum")
                    break
        packed = out / "packed.onnx"
        sardonyx("pack", moved, "-o", packed)
        check(packed.read_bytes() == original, f"{what}: packed again")


def theirs_to_ours(name, path, directory):
    expected = content_hash(path)
    ways = {
        "one": dict(all_tensors_to_one_file=True, location="weights.bin", size_threshold=0),
        "many": dict(all_tensors_to_one_file=False, size_threshold=0),
        "attributes": dict(all_tensors_to_one_file=True, size_threshold=0, convert_attribute=True),
    }
    for way, options in ways.items():
        out = directory / f"theirs_{way}"
        out.mkdir(parents=True)
        model = onnx.ModelProto.FromString(path.read_bytes())
        onnx.save_model(model, out / "model.onnx", save_as_external_data=True, **options)
        check(content_hash(out / "model.onnx") == expected, f"{name}, saved by onnx ({way})")
        sardonyx("pack", out / "model.onnx", "-o", out / "packed.onnx")
        packed = onnx.load(out / "packed.onnx")
        check(
            without_location(packed) == without_location(onnx.ModelProto.FromString(path.read_bytes())),
            f"{name}, saved by onnx ({way}), packed",
        )


def tensors_in_archives(name, path, directory):
    model = onnx.load(path)
    arrays = {}
    for tensor in model.graph.initializer:
        if tensor.data_type != TensorProto.STRING:
            arrays[tensor.name] = numpy_helper.to_array(tensor)
    listed = json.loads(sardonyx("ls", path, "--json", "--stats"))["tensors"]
    names = {row["name"]: row for row in listed}
    check(all(tensor in names for tensor in arrays), f"{name}: names listed")
    plain = [t for t, array in arrays.items() if array.dtype.isbuiltin == 1]
    for tensor in plain[:20]:
        out = directory / "one.npy"
        sardonyx("cat", path, tensor, "-o", out)
        check(np.array_equal(np.load(out), arrays[tensor], equal_nan=True), f"{name}: {tensor}.npy")
        out.unlink()
        out = directory / "one.safetensors"
        if arrays[tensor].dtype != np.complex128:
            sardonyx("cat", path, tensor, "-o", out)
            loaded = safetensors.numpy.load_file(out)[tensor] if arrays[tensor].dtype != np.complex64 else arrays[tensor]
            check(np.array_equal(loaded, arrays[tensor], equal_nan=True), f"{name}: {tensor}.safetensors")
            out.unlink()


def main():
    shutil.rmtree(arguments.directory, ignore_errors=True)
    arguments.directory.mkdir(parents=True)
    made = arguments.directory / "every_type.onnx"
    made.write_bytes(every_type().SerializeToString(deterministic=True))
    small = arguments.directory / "runnable.onnx"
    small.write_bytes(runnable().SerializeToString(deterministic=True))
    models = {"every type": made, "runnable": small}
    models.update({path.stem: path for path in arguments.models})
    for index, (name, path) in enumerate(models.items()):
        directory = arguments.directory / str(index)
        directory.mkdir()
        ours_to_theirs(name, path, directory)
        theirs_to_ours(name, path, directory)
        tensors_in_archives(name, path, directory)
    print(f"{len(models)} models, {comparisons} comparisons, {len(differences)} differences")
    shutil.rmtree(arguments.directory, ignore_errors=True)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
