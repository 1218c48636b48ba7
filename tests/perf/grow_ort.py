"""Time a model in ONNX Runtime with inputs that grow: the rival's side of the growing case of
`cargo xtask bench models`.

    python grow_ort.py MODEL NAME=FILE.npy... --threads N --past P --sizes N

Takes what `size_bench` takes and prints the same line of JSON: first_ms and second_ms, the sums of
the first and of the second runs with each size, sizes, rss_peak_mb; and the version that was timed.
"""

import argparse
import json

import numpy as np
import onnxruntime as ort

from resident import rss_peak_mb
from run_ort import open_session, timed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("inputs", nargs="*", metavar="NAME=FILE.npy")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--past", type=int, required=True)
    parser.add_argument("--sizes", type=int, default=128)
    args = parser.parse_args()
    inputs = {name: np.load(path) for name, _, path in (pair.rpartition("=") for pair in args.inputs)}
    session = open_session(args.model, args.threads)

    def time(given):
        return timed(lambda: session.run(None, given))[1]

    before = inputs
    for _ in range(3):
        time(before)
    sums = np.zeros(2)
    for by in range(1, args.sizes + 1):
        grown = {name: grow(values, args.past, by) for name, values in inputs.items()}
        time(before)
        sums += [time(grown), time(grown)]
        before = grown
    print(
        json.dumps(
            {
                "first_ms": round(float(sums[0]), 3),
                "second_ms": round(float(sums[1]), 3),
                "sizes": args.sizes,
                "rss_peak_mb": round(rss_peak_mb(), 1),
                "version": ort.__version__,
            }
        )
    )


def grow(values, past, by):
    """The same elements again and again under longer axes."""
    shape = [dim + by if dim in (past, past + 1) else dim for dim in values.shape]
    return np.resize(values, shape)


if __name__ == "__main__":
    main()
