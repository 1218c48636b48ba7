"""Times what a program in Python waits for besides the work of kernels: the import, calls of a Relu on 4 floats, and the first
call of a network. Our package against onnxruntime: processes of both take turns, and what counts is the median of them.

Prints a line for each: microseconds of both, and our time divided by onnxruntime's. The results of both are compared.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIDE = Path(__file__).with_name("python_side.py")
OURS, THEIRS = "sardonyx.ort", "onnxruntime"

#: Convolutions of the network: each a few dozen microseconds, so that planning shows.
LAYERS = 40


def model(nodes, inputs, outputs, weights):
    """A model, checked."""
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(made)
    return made


def relu():
    """A Relu on 4 floats."""
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    return model([helper.make_node("Relu", ["x"], ["y"])], ports[:1], ports[1:], [])


def network(sizes):
    """Convolutions, each with a Relu and a sum, on an image of these sizes."""
    random = np.random.default_rng(1)
    nodes, weights, last = [], [], "x"
    for layer in range(LAYERS):
        w = random.normal(scale=0.05, size=(16, 16, 3, 3)).astype(np.float32)
        weights.append(numpy_helper.from_array(w, f"w{layer}"))
        nodes += [
            helper.make_node("Conv", [last, f"w{layer}"], [f"c{layer}"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", [f"c{layer}"], [f"r{layer}"]),
            helper.make_node("Add", [f"r{layer}", last], [f"a{layer}"]),
        ]
        last = f"a{layer}"
    nodes.append(helper.make_node("GlobalAveragePool", [last], ["y"]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [sizes[0], 16, 1, 1])
    return model(nodes, [x], [y], weights)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=5, help="how many of each side")
    processes = parser.parse_args().processes
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        onnx.save(relu(), directory / "relu.onnx")
        onnx.save(network([1, 16, 32, 32]), directory / "fixed sizes.onnx")
        onnx.save(network(["N", 16, "H", "W"]), directory / "open sizes.onnx")
        image = np.random.default_rng(2).normal(size=(1, 16, 32, 32)).astype(np.float32)
        np.save(directory / "image.npy", image)
        times = {OURS: [], THEIRS: []}
        for _ in range(processes):
            for side, all_times in times.items():
                command = [sys.executable, str(SIDE), side, str(directory)]
                ran = subprocess.run(command, check=True, capture_output=True, text=True)
                all_times.append(json.loads(ran.stdout))
        for network_name in ("fixed sizes", "open sizes"):
            found = [np.load(directory / f"{network_name}-{side}.npy") for side in (OURS, THEIRS)]
            np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-5)
    ours, theirs = (
        {name: statistics.median(one[name] for one in all_times) for name in all_times[0]}
        for all_times in times.values()
    )
    print(f"{'microseconds, medians of ' + str(processes):36} {'ours':>10} {'onnxruntime':>12} {'ratio':>6}")
    for name, median in ours.items():
        rival = theirs.get(name)
        shown = f"{rival:12.2f} {median / rival:6.2f}" if rival else ""
        print(f"{name:36} {median:10.2f} {shown}")
    for network_name in ("fixed sizes", "open sizes"):
        first, third = (f"{turn} call, {network_name}" for turn in ("first", "third"))
        parts = [f"{side[first] / side[third]:.2f}" for side in (ours, theirs)]
        print(f"first call / third, {network_name:16} {parts[0]:>10} {parts[1]:>12}")


if __name__ == "__main__":
    main()
