"""Compare random networks of open sizes with ONNX Runtime.

    python networks.py DIRECTORY

DIRECTORY has what the tests of `open_sizes` write: for each network a model, and for each of its runs
inputs and outputs. Prints runs that differ, and how many there were. Needs onnxruntime. Runs on images
without pixels are left out: ONNX Runtime refuses most of them and ends the process in others.
"""

import collections
import pathlib
import re
import sys

import numpy as np
import onnxruntime

# In parts of the largest magnitude of an output: sums are added up in another order.
TOLERANCE = 1e-4
# Of numbers near 0, such as ends of sigmoids, which ONNX Runtime approximates.
ABSOLUTE = 1e-6


def arrays(directory, name):
    files = directory.glob(f"{name}.*.npy")
    return [np.load(file) for file in sorted(files, key=lambda file: int(file.name.split(".")[2]))]


def reason(error):
    """Why ONNX Runtime refuses, without names and sizes."""
    node, _, status = str(error).partition("Status Message: ")
    operator = re.search(r"running (\w+) node", node)
    return f"{operator[1] if operator else ''} {re.sub(r'[0-9]+', 'N', status or node)[:90]}"


def difference(expected, found):
    """What is wrong with an output, if anything."""
    if expected.shape != found.shape:
        return f"the shape is {found.shape}, not {expected.shape}"
    finite = np.abs(expected[np.isfinite(expected)])
    largest = finite.max() if finite.size else 0
    if not np.allclose(found, expected, rtol=0, atol=TOLERANCE * largest + ABSOLUTE, equal_nan=True):
        return f"apart by {np.abs(found - expected).max()} where the largest is {largest}"
    return None


def main(directory):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    runs, different, refusals = 0, 0, collections.Counter()
    for network in sorted(pathlib.Path(directory).iterdir(), key=lambda path: int(path.name)):
        try:
            session = onnxruntime.InferenceSession(network / "model.onnx", options, ["CPUExecutionProvider"])
        except Exception as error:
            refusals[f"model: {reason(error)}"] += 1
            continue
        turns = {file.name.split(".")[0] for file in network.glob("*.in.0.npy")}
        for turn in sorted(turns):
            inputs = arrays(network, f"{turn}.in")
            if any(x.size == 0 for x in inputs):
                continue
            names = [port.name for port in session.get_inputs()]
            try:
                expected = session.run(None, dict(zip(names, inputs, strict=True)))
            except Exception as error:
                refusals[f"run: {reason(error)}"] += 1
                continue
            runs += 1
            for index, (one, other) in enumerate(zip(expected, arrays(network, f"{turn}.out"), strict=True)):
                problem = difference(one, other)
                if problem:
                    shapes = [x.shape for x in inputs]
                    print(f"network {network.name}, run {turn}, output {index}, inputs {shapes}: {problem}")
                    different += 1
    for refusal, count in refusals.most_common():
        print(f"{count} times refused by ONNX Runtime, {refusal}")
    print(f"{runs} runs, {different} outputs differ")
    sys.exit(different > 0)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
