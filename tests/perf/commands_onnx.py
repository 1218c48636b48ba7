"""Time the calls of the onnx package that commands of ours are compared with: the rival's side of `cargo xtask bench
commands`.

    python commands_onnx.py JOB MODEL --repeat N [--output FILE]

The interpreter has been started and the package has been imported before anything is timed. Where a call takes bytes,
reading the file belongs to it, as it belongs to our command. `compare-*` jobs say whether what a command of ours wrote is
what the package makes of the same model. Prints the line of JSON that our side prints.
"""

import argparse
import hashlib
import json
import os
import time

import onnx
import onnx.onnx_cpp2py_export.printer
import onnx.onnx_cpp2py_export.shape_inference
import onnx.printer

core_infer = onnx.onnx_cpp2py_export.shape_inference.infer_shapes
core_print = onnx.onnx_cpp2py_export.printer.model_to_text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=[*JOBS, *COMPARISONS])
    parser.add_argument("model")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--output")
    args = parser.parse_args()
    if args.job in COMPARISONS:
        difference = COMPARISONS[args.job](args.model, args.output)
        print(json.dumps({"ms": [0], "found": difference or "same"}))
        return
    times = []
    for _ in range(args.repeat):
        # As for our side: each writes a new file.
        if args.output and os.path.exists(args.output):
            os.remove(args.output)
        start = time.perf_counter()
        result = JOBS[args.job](args.model, args.output)
        times.append((time.perf_counter() - start) * 1e3)
        # Not counted: the rival need not clean up.
        del result
    if args.output and os.path.exists(args.output):
        os.remove(args.output)
    print(json.dumps({"ms": times, "found": ""}))


def read(path):
    with open(path, "rb") as file:
        return file.read()


def infer(path, output):
    """From the file to the bytes of the result, in the C++ part."""
    return core_infer(read(path), False, False, False)


def infer_path(path, output):
    onnx.shape_inference.infer_shapes_path(path, output)


def check(path, output):
    onnx.checker.check_model(path)


def copy(path, output):
    """What a program takes to change a word of the header."""
    model = onnx.load(path)
    model.producer_name = "bench"
    onnx.save(model, output)


def to_text(path, output):
    return onnx.printer.to_text(onnx.load(path))


def to_text_core(path, output):
    """In the C++ part, without a model in Python."""
    return core_print(read(path))


def sha256(path, output):
    return hashlib.sha256(read(path)).hexdigest()


def difference_of_inferred(path, output):
    """Both list values in the order of the nodes; the rival's numbers are all found."""
    theirs = onnx.ModelProto.FromString(infer(path, None)).graph.value_info
    ours = onnx.load(output).graph.value_info
    if [value.name for value in theirs] != [value.name for value in ours]:
        return "other values are listed"
    for their, our in zip(theirs, ours):
        their, our = their.type.tensor_type, our.type.tensor_type
        if their.elem_type != our.elem_type or len(their.shape.dim) != len(our.shape.dim):
            return f"{our} instead of {their}"
        for a, b in zip(their.shape.dim, our.shape.dim):
            if a.HasField("dim_value") and a != b:
                return f"{our} instead of {their}"
    return None


def difference_of_set(path, output):
    """Only the header is another."""
    theirs, ours = onnx.load(path), onnx.load(output)
    theirs.producer_name = "bench"
    return None if theirs == ours else "the models differ"


def difference_of_stripped(path, output):
    """Only names of nodes are gone."""
    theirs, ours = onnx.load(path), onnx.load(output)
    for node in theirs.graph.node:
        node.ClearField("name")
    return None if theirs == ours else "the models differ"


def difference_of_text(path, output):
    """As many nodes as the package finds in the model, each on a line of its own."""
    with open(output, encoding="utf-8") as text:
        lines = sum(" = " in line for line in text)
    nodes = len(onnx.load(path).graph.node)
    return None if lines >= nodes else f"{lines} lines for {nodes} nodes"


JOBS = {
    "infer": infer,
    "infer-path": infer_path,
    "check": check,
    "copy": copy,
    "print": to_text,
    "print-core": to_text_core,
    "sha256": sha256,
}
COMPARISONS = {
    "compare-infer": difference_of_inferred,
    "compare-set": difference_of_set,
    "compare-strip": difference_of_stripped,
    "compare-print": difference_of_text,
}


if __name__ == "__main__":
    main()
