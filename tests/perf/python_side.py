"""Times one side of python_calls.py in a process of its own: ``python_side.py MODULE DIRECTORY``, with ``onnxruntime`` or
``sardonyx.ort`` as the module. Prints JSON: microseconds by name. Writes what the networks give into the directory.
"""

import importlib
import sys
import time

start = time.perf_counter()
# First, as nothing that it imports may be there already.
import numpy as np  # noqa: E402

with_numpy = time.perf_counter()
runtime = importlib.import_module(sys.argv[1])
end = time.perf_counter()
times = {"import, with numpy": (end - start) * 1e6, "import, after numpy": (end - with_numpy) * 1e6}

import json  # noqa: E402
from pathlib import Path  # noqa: E402

#: Calls of a round: few enough that some rounds are not interrupted.
CALLS = 200
ROUNDS = 300
#: Sessions of a network, each of which has a first call.
SESSIONS = 20


def shortest(call):
    """Microseconds of a call in the shortest of many rounds, as everything else on the machine only adds time."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        best = min(best, time.perf_counter_ns() - start)
    return best / CALLS / 1000


def session(path, threads=0):
    """A session of a model."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    return runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def time_calls(path):
    """Times calls of a Relu on four floats, and checks what they give."""
    x = np.array([1, -2, 3, -4], np.float32)
    expected = np.maximum(x, 0)
    relu = session(path)
    feeds = {"x": x}
    times["run"] = shortest(lambda: relu.run(None, feeds))
    assert np.array_equal(relu.run(None, feeds)[0], expected)

    binding = relu.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y")
    times["run_with_iobinding, new output"] = shortest(lambda: relu.run_with_iobinding(binding))
    assert np.array_equal(binding.copy_outputs_to_cpu()[0], expected)

    y = np.zeros(4, np.float32)
    bound = relu.io_binding()
    bound.bind_ortvalue_input("x", runtime.OrtValue.ortvalue_from_numpy(x))
    bound.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    times["run_with_iobinding, bound output"] = shortest(lambda: relu.run_with_iobinding(bound))
    assert np.array_equal(y, expected)

    if runtime.__name__.startswith("sardonyx"):
        import sardonyx

        own = sardonyx.Session(path)
        times["Session.run"] = shortest(lambda: own.run(feeds))
        times["Session.__call__"] = shortest(lambda: own(x))
        assert np.array_equal(own(x), expected) and np.array_equal(own.run(feeds)["y"], expected)


def time_first_calls(directory, name):
    """Times the first and the third call of sessions of a network, the shortest of each, and keeps what it gives."""
    feeds = {"x": np.load(directory / "image.npy")}
    took = []
    for _ in range(SESSIONS):
        network = session(str(directory / f"{name}.onnx"), threads=1)
        calls = []
        for _ in range(3):
            start = time.perf_counter()
            (y,) = network.run(None, feeds)
            calls.append((time.perf_counter() - start) * 1e6)
        took.append(calls)
    times[f"first call, {name}"], _, times[f"third call, {name}"] = (min(turn) for turn in zip(*took, strict=True))
    np.save(directory / f"{name}-{runtime.__name__}.npy", y)


directory = Path(sys.argv[2])
time_calls(str(directory / "relu.onnx"))
time_first_calls(directory, "fixed sizes")
time_first_calls(directory, "open sizes")
print(json.dumps(times))
