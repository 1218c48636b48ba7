"""Time the version converter and the inliner of the onnx package: the rival's side of `cargo xtask bench convert`.

    python convert_onnx.py convert|inline MODEL --repeat N

Gives the C++ part the bytes of a model and takes those of the result, and prints the line of JSON that our side prints.
"""

import argparse
import json
import time
from collections import Counter

import onnx
from onnx.onnx_cpp2py_export import inliner, version_converter

from resident import rss_peak_mb

JOBS = {
    "convert": lambda model: version_converter.convert_version(model, 21),
    "inline": lambda model: inliner.inline_local_functions(model, False),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=sorted(JOBS))
    parser.add_argument("model")
    parser.add_argument("--repeat", type=int, default=1)
    args = parser.parse_args()
    job = JOBS[args.job]
    with open(args.model, "rb") as file:
        model = file.read()
    before = rss_peak_mb()
    times = []
    for _ in range(args.repeat):
        start = time.perf_counter()
        result = job(model)
        times.append((time.perf_counter() - start) * 1e3)
    answer = {"ms": times, "rss_before_mb": before, "rss_peak_mb": rss_peak_mb()}
    print(json.dumps({**answer, "found": found(result)}))


def found(model):
    """How many nodes of each operator, how many attributes, and the version."""
    model = onnx.ModelProto.FromString(model)
    counts = sorted(Counter(node.op_type for node in model.graph.node).items())
    attributes = sum(len(node.attribute) for node in model.graph.node)
    operators = ", ".join(f"{count} {name}" for name, count in counts)
    return f"{operators}; {attributes} attributes; version {model.opset_import[0].version}"


if __name__ == "__main__":
    main()
