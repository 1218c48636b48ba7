"""Time the onnx package on text: the rival's side of `cargo xtask bench text`.

    python text_onnx.py JOB FILE... --repeat N

`parse` and `print` are its public functions, `parse-core` and `print-core` the C++ functions beneath them, which take and
give a serialized model. Each prints the line of JSON that our side prints.

`write-text MODEL TEXT` and `without-weights MODEL RESULT` make files. The other jobs compare, and exit with 1 if there is a difference: `compare-parsed TEXT MODEL` what the package and we read in
a text, `compare-printed MODEL TEXT` a model with what the package reads in our text of it.
"""

import argparse
import json
import sys
import time

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnx.onnx_cpp2py_export.parser
import onnx.onnx_cpp2py_export.printer
import onnx.parser
import onnx.printer

from resident import rss_peak_mb

core_parse = onnx.onnx_cpp2py_export.parser.parse_model
core_print = onnx.onnx_cpp2py_export.printer.model_to_text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--repeat", type=int, default=1)
    args = parser.parse_args()
    JOBS[args.job](*args.files, args.repeat)


def parse(path, repeat):
    text = read(path)
    time_job(repeat, lambda: onnx.parser.parse_model(text), counts)


def parse_core(path, repeat):
    text = read(path)
    time_job(repeat, lambda: core_parse(text), lambda result: counts(onnx.load_from_string(result[2])))


def print_text(path, repeat):
    model = load(path)
    time_job(repeat, lambda: onnx.printer.to_text(model), checksum)


def print_core(path, repeat):
    content = load(path).SerializeToString()
    time_job(repeat, lambda: core_print(content), checksum)


def time_job(repeat, job, describe):
    before = rss_peak_mb()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        result = job()
        times.append((time.perf_counter() - start) * 1e3)
        # The job's own memory, not that of describing what it gave.
        peak = rss_peak_mb()
        last = result
        # Not counted: the rival need not clean up, we must.
        del result
        if len(times) < repeat:
            del last
    print(json.dumps({"ms": times, "found": describe(last), "rss_before_mb": before, "rss_peak_mb": peak}))


def write_text(model, text, repeat):
    """The text that everybody reads: as the package prints it."""
    with open(text, "w", encoding="utf-8", newline="") as file:
        file.write(onnx.printer.to_text(load(model)))


def without_weights(model, result, repeat):
    """Constants whose values are not in the file, which our parser refuses, become inputs."""
    model = load(model)
    graph = model.graph
    tensors = list(graph.initializer)
    del graph.initializer[:]
    for tensor in tensors:
        lists = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")
        if 0 in tensor.dims or any(len(getattr(tensor, name)) for name in lists):
            graph.initializer.append(tensor)
        elif all(value.name != tensor.name for value in graph.input):
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    onnx.save(model, result)


def compare_parsed(text, ours, repeat):
    theirs = onnx.parser.parse_model(read(text))
    # What a file says, in the order of a file.
    equal(theirs, load(ours))


def compare_printed(model, text, repeat):
    """Equal but for what the package's notation cannot say: documentation, metadata of anything but the model, whether
    values are raw, and whether something is absent or empty."""
    equal(sayable(load(model)), sayable(onnx.parser.parse_model(read(text))))


def equal(a, b):
    a, b = (model.SerializeToString(deterministic=True) for model in (a, b))
    if a == b:
        return
    a, b = (str(onnx.ModelProto.FromString(content)).splitlines() for content in (a, b))
    for number, (left, right) in enumerate(zip(a, b)):
        if left != right:
            here = slice(max(0, number - 4), number + 3)
            sys.exit("\n".join(["the models differ:", *a[here], "and:", *b[here]]))
    sys.exit(f"the models differ: {len(a)} lines and {len(b)} lines")


def sayable(message):
    """Takes out of a message what the notation cannot say."""
    if isinstance(message, onnx.TensorProto):
        with_raw_data(message)
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for item in value if field.is_repeated else [value]:
                sayable(item)
        elif not field.is_repeated and value == field.default_value:
            message.ClearField(field.name)
        if field.name == "doc_string" or field.name == "metadata_props" and not isinstance(message, onnx.ModelProto):
            message.ClearField(field.name)
    return message


def with_raw_data(tensor):
    """Values as bytes, however they were given."""
    if tensor.raw_data or not tensor.data_type or tensor.data_type == onnx.TensorProto.STRING:
        return
    lists = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")
    if any(len(getattr(tensor, name)) for name in lists):
        raw = np.ascontiguousarray(onnx.numpy_helper.to_array(tensor)).tobytes()
        for name in lists:
            tensor.ClearField(name)
        tensor.raw_data = raw


def read(path):
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


def load(path):
    return onnx.load(path, load_external_data=False)


def counts(model):
    return f"{len(model.graph.node)} nodes, {len(model.graph.initializer)} initializers"


def checksum(text):
    """Its length, and the sum of its 64-bit words."""
    content = text.encode()
    padded = content + bytes(-len(content) % 8)
    return f"{len(content)} bytes, sum {int(np.frombuffer(padded, '<u8').sum(dtype=np.uint64))}"


JOBS = {
    "parse": parse,
    "parse-core": parse_core,
    "print": print_text,
    "print-core": print_core,
    "write-text": write_text,
    "without-weights": without_weights,
    "compare-parsed": compare_parsed,
    "compare-printed": compare_printed,
}


if __name__ == "__main__":
    main()
