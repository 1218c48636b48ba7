"""Time the checker of the onnx package: the rival's side of `cargo xtask bench check`.

    python check_onnx.py check-bytes|check-proto MODEL --repeat N

`check-bytes` is given a serialized model, `check-proto` one that is in memory, which the package serializes first. Prints
the line of JSON that our side prints.
"""

import argparse
import json
import time

import onnx

from resident import rss_peak_mb


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=["check-bytes", "check-proto"])
    parser.add_argument("model")
    parser.add_argument("--repeat", type=int, default=1)
    args = parser.parse_args()
    with open(args.model, "rb") as file:
        model = file.read()
    if args.job == "check-proto":
        model = onnx.ModelProto.FromString(model)
    before = rss_peak_mb()
    times, found = [], "valid"
    for _ in range(args.repeat):
        start = time.perf_counter()
        try:
            onnx.checker.check_model(model)
        except onnx.checker.ValidationError:
            found = "invalid"
        times.append((time.perf_counter() - start) * 1e3)
    print(
        json.dumps(
            {
                "ms": times,
                "found": found,
                "rss_before_mb": before,
                "rss_peak_mb": rss_peak_mb(),
            }
        )
    )


if __name__ == "__main__":
    main()
