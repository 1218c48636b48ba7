"""Time the shape inference of the onnx package: the rival's side of `cargo xtask bench infer`.

    python infer_onnx.py infer MODEL --repeat N
    python infer_onnx.py compare MODEL --ours OURS

`infer` gives the C++ part the bytes of a model and takes those of the result, and prints the line of JSON that our side
prints. `compare` says whether the result that we wrote lists the same values, with every number that the package finds.
"""

import argparse
import json
import time

import onnx
from onnx.onnx_cpp2py_export.shape_inference import infer_shapes

from resident import rss_peak_mb


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=["infer", "compare"])
    parser.add_argument("model")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--ours")
    args = parser.parse_args()
    with open(args.model, "rb") as file:
        model = file.read()
    if args.job == "compare":
        difference = first_difference(infer_shapes(model, False, False, False), args.ours)
        print(json.dumps({"ms": [0], "found": difference or "same"}))
        return
    before = rss_peak_mb()
    times = []
    for _ in range(args.repeat):
        start = time.perf_counter()
        infer_shapes(model, False, False, False)
        times.append((time.perf_counter() - start) * 1e3)
    print(json.dumps({"ms": times, "rss_before_mb": before, "rss_peak_mb": rss_peak_mb()}))


def first_difference(theirs, ours_path):
    """Both list values in the order of the nodes."""
    theirs = onnx.ModelProto.FromString(theirs).graph.value_info
    ours = onnx.load(ours_path).graph.value_info
    if len(theirs) != len(ours):
        return f"{len(ours)} values, not {len(theirs)}"
    for their, our in zip(theirs, ours):
        if their.name != our.name:
            return f"'{our.name}' in the place of '{their.name}'"
        if not agree(their.type.tensor_type, our.type.tensor_type):
            return f"'{our.name}' is {our.type}, not {their.type}"
    return None


def agree(their, our):
    if their.elem_type != our.elem_type or len(their.shape.dim) != len(our.shape.dim):
        return False
    pairs = zip(their.shape.dim, our.shape.dim)
    return all(their == our for their, our in pairs if their.HasField("dim_value"))


if __name__ == "__main__":
    main()
