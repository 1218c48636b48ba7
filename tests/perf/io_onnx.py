"""Time the onnx package on files: the rival's side of `cargo xtask bench io`.

    python io_onnx.py JOB MODEL [COPY] --repeat N

Prints the line of JSON that our side prints: the times of all repetitions in milliseconds, what was found, the most
memory the process ever had. What is found takes Python long, so it is asked for by a process of its own: --check.
"""

import argparse
import json
import os
import time

import numpy as np
import onnx

from resident import rss_peak_mb


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=["load", "parse", "save", "externalize"])
    parser.add_argument("model")
    parser.add_argument("copy", nargs="?")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--check", choices=["counts", "weights", "fields", "numbers"])
    args = parser.parse_args()
    if args.check:
        found = CHECKS[args.check](onnx.load(args.model))
        print(json.dumps({"found": found}))
        return

    if args.job == "load":
        job = lambda: onnx.load(args.model)
    elif args.job == "parse":
        with open(args.model, "rb") as file:
            content = file.read()
        job = lambda: onnx.ModelProto.FromString(content)
    elif args.job == "save":
        model = onnx.load(args.model)
        job = lambda: onnx.save(model, args.copy)
    else:
        job = lambda: onnx.save(
            model,
            args.copy,
            save_as_external_data=True,
            location=os.path.basename(args.copy) + ".data",
        )
    times = []
    for _ in range(args.repeat):
        if args.job == "save" and os.path.exists(args.copy):
            os.remove(args.copy)
        if args.job == "externalize":
            # The package takes the weights out of the model as it writes them.
            model = onnx.load(args.model)
            for name in os.listdir(os.path.dirname(args.copy)):
                os.remove(os.path.join(os.path.dirname(args.copy), name))
        start = time.perf_counter()
        result = job()
        times.append((time.perf_counter() - start) * 1e3)
        # Not counted: the rival need not clean up, we must.
        del result
    print(json.dumps({"ms": times, "found": "", "rss_peak_mb": rss_peak_mb()}))


def counts(model):
    return f"{len(model.graph.node)} nodes, {len(model.graph.initializer)} initializers"


def weights(model):
    size, total = 0, 0
    for tensor in model.graph.initializer:
        size += len(tensor.raw_data)
        total += int(np.frombuffer(tensor.raw_data, "<u8").sum(dtype=np.uint64))
    return f"{size} bytes, sum {total % 2**64}"


def fields(model):
    count = text_bytes = text_sum = 0
    waiting = [model]
    while waiting:
        for field, value in waiting.pop().ListFields():
            for item in value if field.is_repeated else [value]:
                count += 1
                if field.type == field.TYPE_MESSAGE:
                    waiting.append(item)
                elif field.type == field.TYPE_STRING:
                    text = item.encode()
                    text_bytes += len(text)
                    text_sum += text[-1] if text else 0
    return f"{count} fields, {text_bytes} bytes of text, sum {text_sum}"


def numbers(model):
    int64 = int32 = 0
    floats = 0.0
    for tensor in model.graph.initializer:
        int64 += sum(tensor.int64_data)
        int32 += sum(tensor.int32_data)
        for number in tensor.float_data:
            floats += number
    return f"int64 {int64}, int32 {int32}, float {floats:.6f}"


CHECKS = {"counts": counts, "weights": weights, "fields": fields, "numbers": numbers}


if __name__ == "__main__":
    main()
