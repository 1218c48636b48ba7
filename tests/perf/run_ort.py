"""Time a model in ONNX Runtime: the rival's side of `cargo xtask bench models`.

    python run_ort.py MODEL NAME=FILE.npy... --threads N --budget SECONDS --output OUT.npz

Takes what `sardonyx bench` takes and prints the same line of JSON: load_ms, first_ms, median_ms,
min_ms, n, rss_peak_mb; and the version that was timed. Outputs that are not arrays (sequences, maps) are not written.
"""

import argparse
import json
import statistics
import time

import numpy as np
import onnxruntime as ort

from arrays import write_npz
from resident import rss_peak_mb

FEWEST_RUNS, MOST_RUNS = 7, 2000


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("inputs", nargs="*", metavar="NAME=FILE.npy")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--budget", type=float, default=2.0)
    parser.add_argument("--output")
    parser.add_argument("--once", action="store_true", help="run once, and print nothing")
    args = parser.parse_args()
    inputs = {name: np.load(path) for name, _, path in (pair.rpartition("=") for pair in args.inputs)}

    session, load_ms = timed(lambda: open_session(args.model, args.threads))
    outputs, first_ms = timed(lambda: session.run(None, inputs))
    if args.once:
        return
    if args.output:
        write_npz(args.output, dict(zip((o.name for o in session.get_outputs()), outputs)))
    del outputs
    runs = repeat(lambda: session.run(None, inputs), args.budget)
    print(
        json.dumps(
            {
                "load_ms": round(load_ms, 2),
                "first_ms": round(first_ms, 3),
                "median_ms": round(statistics.median(runs), 4),
                "min_ms": round(min(runs), 4),
                "n": len(runs),
                "rss_peak_mb": round(rss_peak_mb(), 1),
                "version": ort.__version__,
            }
        )
    )


def open_session(model, threads):
    ort.set_default_logger_severity(4)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def repeat(run, budget):
    """Times of as many runs as fit into the budget, but never fewer than the smallest useful number
    unless that would take many times the budget."""
    times = []
    start = time.perf_counter()
    while len(times) < MOST_RUNS:
        spent = time.perf_counter() - start
        if spent > budget and (len(times) >= FEWEST_RUNS or len(times) >= 3 and spent > 6 * budget):
            break
        times.append(timed(run)[1])
    return times


def timed(job):
    start = time.perf_counter()
    result = job()
    return result, (time.perf_counter() - start) * 1e3


if __name__ == "__main__":
    main()
