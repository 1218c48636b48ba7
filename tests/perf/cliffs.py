"""Time single operators of drawn attributes, shapes and types: ONNX Runtime and sardonyx, taking turns.

    python cliffs.py [OPERATOR ...] --program FILE --table FILE [--draws N] [--seed N] [--budget SECONDS] [--bless]

Prints a line for each operator: ONNX Runtime's time divided by ours (geometric mean and lowest of the draws), and our time with other types
divided by that with float. The table has the same of an earlier run; operators that are slower than there by a quarter are named, and draws
whose results differ. --bless writes the measured lines into the table. --slow prints draws below 0.6 of ONNX Runtime that take more than
0.1 ms, --two draws that take more than 1.1 times as long with two threads as with one.
"""

import argparse
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

OPSET = 21
# By column of the table, the type.
TYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "double": np.float64}
# Ratios that fell by more are named: single measurements differ by a tenth.
LEAST_SHARE = 0.75
# What --slow prints: draws below this ratio that take more milliseconds.
LEAST_RATIO, LEAST_TIME = 0.6, 0.1
# What --two prints: draws whose time with two threads is more of that with one, of as many milliseconds.
MOST_SHARE, LEAST_CUT = 1.1, 0.05
COLUMNS = ["operator", "draws", "ratio", "lowest", *TYPES]


class Draw:
    """A node: inputs are shapes of random floats, arrays, or None; `constants` are numbers of inputs that the model stores."""

    def __init__(self, inputs, attributes=None, constants=(), outputs=1, opset=OPSET):
        self.inputs, self.attributes, self.constants, self.outputs = inputs, attributes or {}, constants, outputs
        self.opset = opset

    def __str__(self):
        inputs = [f"{array.dtype}{list(array.shape)}" if hasattr(array, "dtype") else array for array in self.inputs]
        return f"{inputs}, {self.attributes}, constants {list(self.constants)}"


def sizes(r, rank=None, most=1 << 20):
    """Returns a shape whose product is neither tiny nor larger than `most`."""
    while True:
        rank_of_draw = rank or r.randint(1, 4)
        if rank_of_draw == 1:
            return [r.choice([n for n in (4097, 10000, 65536, 100000, 1000000) if n <= most])]
        shape = [r.choice([1, 3, 7, 8, 16, 31, 64, 100, 197, 512, 1000]) for _ in range(rank_of_draw)]
        if 1 << 12 < math.prod(shape) <= most:
            return shape


def convolution(r, transposed=False):
    while True:
        axes = r.choice([1, 2, 2, 3])
        each = lambda choices: [r.choice(choices) for _ in range(axes)]
        kernel, strides, dilations = each([1, 2, 3, 3, 5, 7]), each([1, 1, 2, 3]), each([1, 1, 2, 8])
        extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
        pads = [r.choice([0, e // 2]) for e in extent]
        spatial = [max(n, e) for n, e in zip(each({1: [400, 4096], 2: [14, 28, 56], 3: [7, 14]}[axes]), extent)]
        channels = r.choice([1, 3, 8, 24, 64, 128])
        groups = r.choice([1, 1, channels, 4 if channels % 4 == 0 else 1])
        outputs = groups * r.choice([1, 3, 16, 64]) if groups < channels or channels == 1 else channels * r.choice([1, 2])
        work = math.prod(spatial) * math.prod(kernel) * outputs * channels // groups
        if not 1e5 < work < 2e8:
            continue
        attributes = dict(kernel_shape=kernel, strides=strides, dilations=dilations, group=groups)
        if transposed:
            return Draw([(1, channels, *spatial), (channels, outputs // groups, *kernel), (outputs,)], attributes, (1, 2))
        attributes["pads"] = pads * 2
        return Draw([(1, channels, *spatial), (outputs, channels // groups, *kernel), (outputs,)], attributes, (1, 2))


def pool(r):
    axes = r.choice([1, 2, 2, 3])
    spatial = [r.choice({1: [100, 4000], 2: [7, 28, 56], 3: [7, 14, 28]}[axes]) for _ in range(axes)]
    kernel = [r.choice([1, 2, 3, 5, 7]) for _ in spatial]
    return Draw([(r.choice([1, 4]), r.choice([3, 16, 64]), *spatial)], dict(kernel_shape=kernel, strides=[r.choice([1, 2, 3]) for _ in kernel]))


def product(r):
    while True:
        m, k, n = (r.choice([1, 3, 8, 13, 64, 100, 255, 1000]) for _ in range(3))
        batch = r.choice([(), (), (2,), (64,), (4, 8)])
        if 1e5 < m * k * n * math.prod(batch) < 1e8:
            return Draw([(*batch, m, k), (*batch, k, n)], {}, (1,) if not batch and r.random() < 0.5 else ())


def gemm(r):
    m, k, n = (r.choice([3, 13, 64, 255, 1000]) for _ in range(3))
    a, b = r.choice([0, 1]), r.choice([0, 1])
    return Draw([(k, m) if a else (m, k), (n, k) if b else (k, n), (n,)], dict(transA=a, transB=b), (1, 2) if r.random() < 0.5 else ())


def einsum(r):
    equation, *shapes = r.choice([
        ("ij,jk->ik", (200, 300), (300, 400)), ("bij,bjk->bik", (16, 64, 64), (16, 64, 64)), ("i,j->ij", (1000,), (700,)),
        ("nchw,cd->ndhw", (2, 64, 28, 28), (64, 128)), ("bij->b", (16, 100, 100)), ("abcd,abcd->ab", (8, 16, 32, 32), (8, 16, 32, 32)),
        ("bhqd,bhkd->bhqk", (2, 8, 128, 64), (2, 8, 128, 64)), ("bld,hdk->bhlk", (2, 128, 256), (8, 256, 32)),
    ])
    return Draw(list(shapes), dict(equation=equation))


def of_two(r):
    shape = sizes(r)
    return Draw([shape, [size if r.random() < 0.6 else 1 for size in shape]])


def of_one(r):
    return Draw([sizes(r)])


def reduction(r):
    shape = sizes(r, r.randint(2, 4))
    axes = np.array(sorted(r.sample(range(len(shape)), r.randint(1, len(shape)))), np.int64)
    return Draw([shape, axes], dict(keepdims=r.choice([0, 1])), (1,))


def along(r):
    shape = sizes(r, r.randint(2, 4))
    return Draw([shape], dict(axis=r.randrange(len(shape))))


def cumulative(r):
    shape = sizes(r, r.randint(1, 3))
    return Draw([shape, np.array(r.randrange(len(shape)), np.int64)], {}, (1,))


def layer(r):
    shape = sizes(r, r.randint(2, 4))
    axis = r.randrange(len(shape))
    return Draw([shape, shape[axis:]], dict(axis=axis))


def image(r, *rest):
    shape = (r.choice([1, 4]), r.choice([3, 16, 64]), r.choice([7, 28, 56]), r.choice([7, 28, 100]))
    return Draw([shape, *((shape[1],) for _ in rest)], {}, tuple(range(1, 1 + len(rest))))


def transposition(r):
    shape = sizes(r, r.randint(2, 4))
    order = list(range(len(shape)))
    r.shuffle(order)
    return Draw([shape], dict(perm=order))


def joined(r):
    shape = sizes(r, r.randint(2, 3), 1 << 18)
    return Draw([shape] * 3, dict(axis=r.randrange(len(shape))))


def gathered(r):
    shape = sizes(r, r.randint(2, 3))
    axis = r.randrange(len(shape))
    indices = np.random.default_rng(r.randrange(100)).integers(0, shape[axis], r.choice([10, 500]))
    return Draw([shape, indices], dict(axis=axis))


def resized(r):
    scales = np.array([1, 1, r.choice([0.5, 1.5, 2.0]), r.choice([0.7, 1.0, 3.0])], np.float32)
    mode = r.choice(["nearest", "linear", "cubic"])
    return Draw([(1, r.choice([1, 3, 16]), r.choice([10, 64]), r.choice([32, 100])), None, scales], dict(mode=mode), (2,))


def recurrent(gates):
    def draw(r):
        steps, batch, inputs, hidden = r.choice([1, 10, 64]), r.choice([1, 4, 16]), r.choice([16, 128]), r.choice([16, 100, 256])
        weights = [(1, gates * hidden, inputs), (1, gates * hidden, hidden), (1, 2 * gates * hidden)]
        return Draw([(steps, batch, inputs), *weights], dict(hidden_size=hidden), (1, 2, 3))

    return draw


def integers(r, below, shape):
    return np.random.default_rng(r.randrange(100)).integers(0, below, shape)


def condition(r, shape):
    return integers(r, 2, [size if r.random() < 0.7 else 1 for size in shape]).astype(bool)


def chosen(r):
    shape = sizes(r)
    return Draw([condition(r, shape), shape, [size if r.random() < 0.7 else 1 for size in shape]])


def elements(scattered):
    def draw(r):
        shape = sizes(r, r.randint(1, 3))
        axis = r.randrange(len(shape))
        of_indices = [size if d != axis else r.choice([1, size, 50]) for d, size in enumerate(shape)]
        if scattered:
            of_indices[axis] = min(of_indices[axis], shape[axis])
            # Each element once: the order of updates is not defined.
            order = np.argsort(np.random.default_rng(1).random(shape), axis=axis)
            indices = np.ascontiguousarray(np.take(order, range(of_indices[axis]), axis))
            return Draw([shape, indices, indices.shape], dict(axis=axis))
        return Draw([shape, integers(r, shape[axis], of_indices)], dict(axis=axis))

    return draw


def tuples(scattered):
    def draw(r):
        shape = sizes(r, r.randint(2, 3))
        depth = r.randint(1, len(shape))
        rows = np.random.default_rng(1).permutation(math.prod(shape[:depth]))[: r.choice([10, 500, 5000])]
        indices = np.stack(np.unravel_index(rows, shape[:depth]), -1).astype(np.int64)
        return Draw([shape, indices, *([(len(rows), *shape[depth:])] if scattered else [])])

    return draw


def split(r):
    shape = sizes(r, r.randint(2, 3))
    axis = r.randrange(len(shape))
    parts = r.choice([n for n in (1, 2, 3, 4) if n <= shape[axis]])
    return Draw([shape], dict(axis=axis, num_outputs=parts), outputs=parts)


def sliced(r):
    shape = sizes(r, r.randint(2, 4))
    ends = np.array(shape, np.int64)
    return Draw([shape, ends // 8, ends, np.arange(len(shape)), np.array([r.choice([1, 1, 2]) for _ in shape])], {}, (1, 2, 3, 4))


def padded(r):
    shape = sizes(r, r.randint(2, 4), 1 << 18)
    pads = np.array([r.choice([0, 0, 1, 2]) for _ in range(2 * len(shape))], np.int64)
    return Draw([shape, np.minimum(pads, np.array(shape * 2) - 1)], dict(mode=r.choice(["constant", "edge", "reflect"])), (1,))


def expanded(r):
    shape = sizes(r, r.randint(2, 4))
    return Draw([[size if r.random() < 0.6 else 1 for size in shape], np.array(shape, np.int64)], {}, (1,))


def tiled(r):
    shape = sizes(r, r.randint(1, 3), 1 << 16)
    return Draw([shape, np.array([r.choice([1, 2, 5]) for _ in shape], np.int64)], {}, (1,))


def blocks(to_depth):
    def draw(r):
        block, side = r.choice([2, 4]), r.choice([8, 28])
        channels = r.choice([1, 3, 16])
        shape = (r.choice([1, 4]), channels, side * block, side * block) if to_depth else (1, channels * block * block, side, side)
        return Draw([shape], dict(blocksize=block))

    return draw


def batch_normalization(r):
    shape = (r.choice([1, 4]), r.choice([3, 16, 64]), r.choice([7, 28, 56]), r.choice([7, 28, 100]))
    ones = np.ones(shape[1], np.float32)
    return Draw([shape, (shape[1],), (shape[1],), (shape[1],), ones], {}, (1, 2, 3, 4))


def local(r):
    return Draw([(1, r.choice([3, 16, 64]), r.choice([7, 28, 56]), r.choice([28, 56]))], dict(size=r.choice([3, 5])))


def root_mean_square(r):
    shape = sizes(r, r.randint(2, 4))
    axis = r.randrange(len(shape))
    return Draw([shape, shape[axis:]], dict(axis=axis), opset=23)


def attention(r):
    heads, keys, size = r.choice([1, 8, 12]), r.choice([16, 100, 256]), r.choice([32, 64])
    queries = r.choice([1, keys])
    return Draw([(1, heads, queries, size), (1, heads, keys, size), (1, heads, keys, size)], {}, opset=23)


def greatest(r):
    shape = sizes(r, 2)
    return Draw([shape, np.array([min(shape[1], r.choice([1, 5, 40]))])], {}, (1,), 2)


def remainder(r):
    shape = sizes(r)
    return Draw([shape, [size if r.random() < 0.6 else 1 for size in shape]], dict(fmod=1))


def power(r):
    exponent = np.array(r.choice([2, 3, 0.5, -1, 1.7]), np.float32)
    return Draw([np.abs(np.random.default_rng(1).standard_normal(sizes(r), np.float32)), exponent], {}, (1,))


def grid(r):
    shape, side = (1, r.choice([3, 16, 64]), r.choice([16, 56]), r.choice([16, 56])), r.choice([16, 56])
    places = np.random.default_rng(1).uniform(-1, 1, (1, side, side, 2)).astype(np.float32)
    return Draw([shape, places], dict(mode=r.choice(["linear", "nearest"])))


def regions(r):
    shape, count = (1, r.choice([3, 64]), 56, 56), r.choice([4, 50])
    corners = np.random.default_rng(1).uniform(0, 25, (count, 4)).astype(np.float32)
    corners[:, 2:] += corners[:, :2]
    modes = dict(mode=r.choice(["avg", "max"]), output_height=7, output_width=7, sampling_ratio=2)
    return Draw([shape, corners, np.zeros(count, np.int64)], modes)


def affine(r):
    size = np.array([r.choice([1, 4]), 3, *(r.choice([28, 100]) for _ in range(r.choice([2, 3])))], np.int64)
    return Draw([(size[0], len(size) - 2, len(size) - 1), size], {}, (1,))


def of_positive(r):
    """Numbers between 0 and 1, which all logarithms, roots and inverse functions but Acosh have."""
    return Draw([np.random.default_rng(1).random(sizes(r), np.float32)])


def from_one_on(r):
    return Draw([1 + np.random.default_rng(1).random(sizes(r), np.float32)])


KINDS = {
    "Conv": convolution, "ConvTranspose": lambda r: convolution(r, True), "MaxPool": pool, "AveragePool": pool, "LpPool": pool,
    "MatMul": product, "Gemm": gemm, "Einsum": einsum, "Softmax": along, "LogSoftmax": along, "ArgMax": along, "ArgMin": along,
    "Hardmax": along, "CumSum": cumulative, "LayerNormalization": layer, "InstanceNormalization": lambda r: image(r, "scale", "bias"),
    "GlobalAveragePool": image, "GlobalMaxPool": image, "LpNormalization": image, "Transpose": transposition, "Concat": joined,
    "Gather": gathered, "Resize": resized, "LSTM": recurrent(4), "GRU": recurrent(3), "RNN": recurrent(1),
    "Where": chosen, "GatherElements": elements(False), "ScatterElements": elements(True), "GatherND": tuples(False),
    "ScatterND": tuples(True), "Split": split, "Slice": sliced, "Pad": padded, "Expand": expanded, "Tile": tiled,
    "DepthToSpace": blocks(False), "SpaceToDepth": blocks(True), "BatchNormalization": batch_normalization, "LRN": local,
    "RMSNormalization": root_mean_square, "Attention": attention, "TopK": greatest, "Mod": remainder, "Pow": power, "GridSample": grid,
    "RoiAlign": regions, "AffineGrid": affine, "Acosh": from_one_on,
    **dict.fromkeys(["Acos", "Asin", "Atanh", "Log", "Sqrt"], of_positive),
    **dict.fromkeys(["Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu", "Greater"], of_two),
    **dict.fromkeys(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSumExp",
                     "ReduceSumSquare"], reduction),
    **dict.fromkeys(["Abs", "Asinh", "Atan", "Ceil", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Neg",
                     "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Tan", "Tanh", "ThresholdedRelu"], of_one),
}  # fmt: skip


def write_model(operator, draw, kind, directory):
    """Writes the model with floats of type `kind`, and its inputs. Returns the arguments of the command and the inputs."""
    numbers = np.random.default_rng(1)
    names, ports, constants, inputs = [], [], [], {}
    for index, given in enumerate(draw.inputs):
        names.append("" if given is None else f"x{index}")
        if given is None:
            continue
        is_array = isinstance(given, (np.ndarray, np.generic))
        array = np.asarray(given if is_array else numbers.standard_normal(given))
        if array.dtype.kind == "f":
            array = array.astype(kind)
        if index in draw.constants:
            constants.append(numpy_helper.from_array(array, names[-1]))
        else:
            ports.append(helper.make_tensor_value_info(names[-1], helper.np_dtype_to_tensor_dtype(array.dtype), array.shape))
            inputs[names[-1]] = array
    outputs = [f"y{index}" for index in range(draw.outputs)]
    node = helper.make_node(operator, names, outputs, **draw.attributes)
    graph = helper.make_graph([node], operator, ports, [helper.make_empty_tensor_value_info(name) for name in outputs], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", draw.opset)], ir_version=10)
    path = directory / f"{np.dtype(kind).name}.onnx"
    onnx.save(model, path)
    arguments = [str(path)]
    for name, array in inputs.items():
        # Elements of a stored value lie at any address, and each run would copy them.
        is_known = array.dtype != ml_dtypes.bfloat16
        file = directory / f"{np.dtype(kind).name}.{name}.{'npy' if is_known else 'pb'}"
        if is_known:
            np.save(file, array)
        else:
            file.write_bytes(numpy_helper.from_array(array, name).SerializeToString())
        arguments.append(f"{name}={file}")
    return arguments, inputs


def measure_ours(program, arguments, budget, threads=1):
    """Returns the median time of a run in milliseconds; None if the model does not run."""
    command = [program, "bench", *arguments, "--threads", str(threads), "--budget", str(budget), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return json.loads(done.stdout)["median_ms"] if done.returncode == 0 else None


def measure_rival(arguments, inputs, budget):
    """Returns the median time of a run in milliseconds, and the outputs."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(arguments[0], options, providers=["CPUExecutionProvider"])
    outputs, times, begin = session.run(None, inputs), [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - begin < budget:
        start = time.perf_counter()
        session.run(None, inputs)
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2] * 1e3, outputs


def agree(program, arguments, expected, directory):
    """Tells whether our outputs are those of the rival, as far as sums in another order are."""
    file = directory / "outputs.npz"
    subprocess.run([program, "run", *arguments, "--output", str(file), "--threads", "1"], capture_output=True, check=True)
    with np.load(file) as found:
        pairs = [(found[f"y{index}"], array) for index, array in enumerate(expected)]
    scale = max(np.abs(array[np.isfinite(array)]).max(initial=1e-3) for _, array in pairs)
    return all(a.shape == b.shape and np.allclose(a, b, 1e-3, 1e-4 * scale, equal_nan=True) for a, b in pairs)


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def measure_operator(operator, task):
    """Returns the line of the table, and what is wrong."""
    r, ratios, wrong = random.Random(f"{operator} {task.seed}"), [], []
    by_type = {name: [] for name in TYPES}
    for number in range(task.draws):
        draw = KINDS[operator](r)
        with tempfile.TemporaryDirectory() as name:
            directory = pathlib.Path(name)
            arguments, inputs = write_model(operator, draw, np.float32, directory)
            ours = measure_ours(task.program, arguments, task.budget)
            if ours is None:
                wrong.append(f"{operator}, draw {number}, does not run: {draw}")
                continue
            if task.two:
                both = measure_ours(task.program, arguments, task.budget, 2)
                if both / ours > MOST_SHARE and both > LEAST_CUT:
                    print(f"two threads: {operator}, draw {number}: {ours:.3f} ms, then {both:.3f}: {draw}", flush=True)
            try:
                rival, expected = measure_rival(arguments, inputs, task.budget)
            except Exception:  # What the rival does not run has no ratio.
                continue
            ratios.append(rival / ours)
            if task.slow and rival / ours < LEAST_RATIO and ours > LEAST_TIME:
                print(f"slow: {operator}, draw {number}: {rival / ours:.2f} of {ours:.3f} ms: {draw}", flush=True)
            if not agree(task.program, arguments, expected, directory):
                wrong.append(f"{operator}, draw {number}, gives other results: {draw}")
            for kind, dtype in TYPES.items() if task.types else ():
                other = measure_ours(task.program, write_model(operator, draw, dtype, directory)[0], task.budget)
                if other is not None:
                    by_type[kind].append(other / ours)
    line = dict(operator=operator, draws=len(ratios), ratio=mean(ratios), lowest=min(ratios, default=None))
    return {**line, **{kind: mean(found) for kind, found in by_type.items()}}, wrong


def read_table(path):
    if not path.exists():
        return {}
    rows = [line.split("\t") for line in path.read_text().splitlines() if not line.startswith("#")]
    return {row[0]: dict(zip(COLUMNS, row)) for row in rows[1:]}


def write_table(path, table):
    comment = "# `cargo xtask bench cliffs --bless`: ONNX Runtime's time / ours by operator, and our time by type / that of float.\n"
    rows = ["\t".join(COLUMNS), *("\t".join(table[operator][name] for name in COLUMNS) for operator in sorted(table))]
    path.write_text(comment + "\n".join(rows) + "\n")


def to_text(value):
    return "-" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def fell(line, stored):
    """Returns what is slower than in the stored line."""
    for name in COLUMNS[2:]:
        before, now = stored.get(name, "-"), line[name]
        if before == "-" or now is None:
            continue
        share = now / float(before) if name in ("ratio", "lowest") else float(before) / max(now, 1e-9)
        if share < LEAST_SHARE:
            yield f"{line['operator']}: {name} is {now:.2f}, was {before}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("operators", nargs="*")
    parser.add_argument("--program", required=True)
    parser.add_argument("--table", required=True, type=pathlib.Path)
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=float, default=0.1)
    parser.add_argument("--bless", action="store_true")
    parser.add_argument("--slow", action="store_true", help="print draws that are slow")
    parser.add_argument("--two", action="store_true", help="print draws that two threads make slower")
    parser.add_argument("--no-types", dest="types", action="store_false", help="measure float alone")
    task = parser.parse_args()
    onnxruntime.set_default_logger_severity(4)
    unknown = [name for name in task.operators if name not in KINDS]
    if unknown:
        sys.exit(f"no draws for {', '.join(unknown)}; there are some for {', '.join(sorted(KINDS))}")
    table, complaints = read_table(task.table), []
    print("\t".join(COLUMNS))
    for operator in task.operators or sorted(KINDS):
        line, wrong = measure_operator(operator, task)
        complaints += wrong
        complaints += fell(line, table.get(operator, {}))
        table[operator] = {name: to_text(line[name]) for name in COLUMNS}
        print("\t".join(table[operator][name] for name in COLUMNS), flush=True)
    if task.bless:
        write_table(task.table, table)
    sys.exit("\n".join(complaints) or 0)


if __name__ == "__main__":
    main()
