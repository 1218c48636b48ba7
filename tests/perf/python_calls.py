"""Times one call of a Relu on 4 floats from Python: our package against onnxruntime, in one process and taking turns.

Prints a line for each way to call: microseconds, and our time divided by onnxruntime's. What counts is the shortest of many
rounds, as everything else on the machine only adds time.
"""

import argparse
import time

import numpy as np
import onnxruntime
import sardonyx

#: Calls of a round: few enough that some rounds are not interrupted.
CALLS = 200

MODEL = sardonyx.parser.parse_model("""
    <ir_version: 10, opset_import: ["": 21]>
    relu (float[4] x) => (float[4] y) { y = Relu (x) }
""")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3000)
    rounds = parser.parse_args().rounds
    x = np.array([1, -2, 3, -4], np.float32)
    feeds = {"x": x}
    session, ours = sardonyx.Session(MODEL), sardonyx.InferenceSession(MODEL)
    theirs = onnxruntime.InferenceSession(MODEL, providers=["CPUExecutionProvider"])
    ways = {
        "onnxruntime InferenceSession.run": lambda: theirs.run(None, feeds),
        "sardonyx InferenceSession.run": lambda: ours.run(None, feeds),
        "sardonyx Session.run": lambda: session.run(feeds),
        "sardonyx Session.__call__": lambda: session(x),
    }
    expected = np.maximum(x, 0)
    for found in (theirs.run(None, feeds)[0], ours.run(None, feeds)[0], session.run(feeds)["y"], session(x)):
        assert np.array_equal(found, expected)
    shortest = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name, call in ways.items():
            start = time.perf_counter_ns()
            for _ in range(CALLS):
                call()
            shortest[name] = min(shortest[name], (time.perf_counter_ns() - start) / CALLS / 1000)
    rival = shortest["onnxruntime InferenceSession.run"]
    for name, microseconds in shortest.items():
        print(f"{name:34} {microseconds:6.2f} us  {microseconds / rival:5.2f}")


if __name__ == "__main__":
    main()
