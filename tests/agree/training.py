"""Do models that were given training or gradients compute the same elsewhere?

    python training.py SARDONYX WORK [--only TEXT] [--count]

Steps: the digits model is given training by `sardonyx add-training`, with each optimizer. Its first
three training steps on the reference evaluator of the onnx package and on ONNX Runtime must give
the losses and the state that `sardonyx train` gives. Neither knows training information, so main
graph and algorithm become one graph, with the state as inputs.

Gradients: the digits model and the blocks of tests/gradients, in float, are given gradients by
`sardonyx differentiate`. ONNX Runtime must compute what `sardonyx run` computes. Blocks that it
does not run without gradients either are left out.

Prints a line for each case that does not agree; or with --count a line of JSON: agreeing (how
many), worst (the largest difference as a part of the largest magnitude of a value), problems. WORK
is a directory for models and arrays.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

ROOT = pathlib.Path(__file__).parents[2]
DIGITS = ROOT / "examples/digits/digits.onnx"
STEPS = 3
# Divisors of these optimizers are near 0 where gradients are: a larger epsilon keeps the noise of
# such gradients from being divided by itself.
EPSILON = ["--epsilon", "0.001"]
OPTIMIZERS = {
    "sgd": [],
    "momentum": ["--weight-decay", "0.01"],
    "nesterov": ["--clip-norm", "1"],
    "adagrad": [*EPSILON, "--rate-decay", "0.5"],
    "adam": EPSILON,
    "adamw": EPSILON,
}
# As a part of the largest magnitude of a value.
WITHIN = 1e-4
# The newest that ONNX Runtime takes.
OPSET = 25
# Blocks whose gradient ONNX Runtime does not run, by operator and its last line: part of its message, and why.
NOT_RUN = {
    # It takes the size of a label from the first operand that has it, although that one is repeated.
    ("Einsum", '  y = Einsum <equation = "ij,j->ij"> (a, b)'): "Shape mismatch attempting to re-use buffer",
}
# So many blocks are compared at least: else ONNX Runtime runs nothing.
LEAST_BLOCKS = 250


class Disagreement(Exception):
    """What is wrong with a case."""


class Tools:
    def __init__(self, sardonyx, work):
        self.sardonyx, self.work = sardonyx, work

    def run(self, *words):
        command = [self.sardonyx, *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            told = " ".join((done.stderr or done.stdout).split())
            raise Disagreement(f"`sardonyx {words[0]}` fails: {told[:400]}")
        return done

    def outputs(self, model, feeds):
        """What `sardonyx run` gives for inputs."""
        words = []
        for index, (name, array) in enumerate(feeds.items()):
            np.save(self.work / f"input{index}.npy", array)
            words.append(f"{name}={self.work / f'input{index}.npy'}")
        path = self.work / "outputs.npz"
        path.unlink(missing_ok=True)
        self.run("run", model, *words, "--output", path, "--quiet")
        with np.load(path) as arrays:
            return {name: arrays[name] for name in arrays.files}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sardonyx")
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--count", action="store_true")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    ort.set_default_logger_severity(4)
    tools = Tools(args.sardonyx, args.work)
    agreeing, problems, worst, blocks = 0, [], 0.0, 0
    for name, judge in cases():
        if args.only not in name:
            continue
        try:
            difference = judge(tools)
        except Disagreement as problem:
            problems.append(f"{name}: {problem}")
            if not args.count:
                print(problems[-1], flush=True)
            continue
        if difference is None:
            continue
        agreeing += 1
        blocks += name.startswith("gradients")
        worst = max(worst, difference)
    if not args.only and blocks < LEAST_BLOCKS:
        problems.append(f"only {blocks} gradients were compared, not {LEAST_BLOCKS}")
    if args.count:
        print(json.dumps({"agreeing": agreeing, "worst": float(worst), "problems": problems}))
        return
    print(f"{agreeing} cases agree, the worst by {worst:.1e}; {len(problems)} do not")
    sys.exit(1 if problems or not agreeing else 0)


def cases():
    """Names, and functions that give a difference, or None where there is nothing to compare."""
    for optimizer in OPTIMIZERS:
        yield f"steps of {optimizer}", lambda tools: judge_steps(tools, optimizer)
    yield "gradients of digits", judge_digits
    for path in sorted((ROOT / "tests/gradients").glob("*.txt")):
        for line, operator, lines in blocks_of(path.read_text()):
            name = f"gradients of {operator}, line {line} of {path.name}"
            reason = NOT_RUN.get((operator, lines[-1]))
            yield name, lambda tools: judge_block(tools, lines, line) if reason is None else not_run(tools, lines, line, reason)


def not_run(tools, lines, seed, reason):
    """None if ONNX Runtime fails with a message that has the reason."""
    try:
        judge_block(tools, lines, seed)
    except Disagreement as problem:
        if reason in str(problem):
            return None
        raise
    raise Disagreement("ONNX Runtime runs it: take it out of NOT_RUN")


def difference(name, wanted, got):
    """The largest difference of two arrays as a part of the largest magnitude."""
    if got is None or got.shape != wanted.shape or got.dtype != wanted.dtype:
        found = None if got is None else (got.dtype, got.shape)
        raise Disagreement(f"{name} is {found}, not {wanted.dtype, wanted.shape}")
    wanted, got = wanted.astype(np.float64), got.astype(np.float64)
    off = np.abs(wanted - got).max(initial=0.0) / np.abs(wanted).max(initial=1e-6)
    if not off <= WITHIN:
        raise Disagreement(f"{name} differs by {off:.2e} of its largest magnitude")
    return off


def judge_steps(tools, optimizer):
    """Three training steps, here and on two others."""
    model = tools.work / "trainable.onnx"
    options = ["--loss", "cross-entropy", "--optimizer", optimizer, *OPTIMIZERS[optimizer]]
    tools.run("add-training", DIGITS, *options, "--learning-rate", "0.01", "--quiet", "-o", model)
    random = np.random.default_rng(1)
    batch = {"image": random.random((8, 1, 8, 8), np.float32), "label": random.integers(0, 10, 8)}
    data, state_file = tools.work / "batch.npz", tools.work / "state.npz"
    np.savez(data, **batch)
    state_file.unlink(missing_ok=True)
    words = ["--steps", STEPS, "--every", "1", "--json", "--quiet", "--state", state_file]
    answer = json.loads(tools.run("train", model, "--data", data, *words).stdout)
    losses = [entry["outputs"]["loss"] for entry in answer["history"]]
    if len(losses) != STEPS:
        raise Disagreement(f"`sardonyx train` tells of {len(losses)} losses")
    with np.load(state_file) as arrays:
        state = {name: arrays[name] for name in arrays.files}

    step, beginning, updates = joined(onnx.load(model))
    if not set(beginning) <= set(state):
        raise Disagreement(f"the state has {sorted(state)}, the bindings {sorted(beginning)}")
    reference = ReferenceEvaluator(step)
    names = [output.name for output in step.graph.output]
    session = ort.InferenceSession(step.SerializeToString(), providers=["CPUExecutionProvider"])
    worst = 0.0
    for who, run in (
        ("the reference evaluator", lambda feeds: reference.run(names, feeds)),
        ("ONNX Runtime", lambda feeds: session.run(names, feeds)),
    ):
        current = dict(beginning)
        for turn in range(STEPS):
            outputs = dict(zip(names, run(batch | current)))
            off = abs(float(outputs["loss"]) - losses[turn]) / abs(losses[turn])
            if not off <= WITHIN:
                raise Disagreement(f"{who}: the loss of step {turn} is off by {off:.2e} of itself")
            worst = max(worst, off)
            current = {key: np.asarray(outputs[value]) for key, value in updates.items()}
        for key, value in current.items():
            worst = max(worst, difference(f"{who}: {key}", value, state[key]))
    return worst


def joined(model):
    """One graph of the main graph and the algorithm, with the state as inputs; the stored state; and which output is
    the new value of which variable."""
    (info,) = model.training_info
    updates = {entry.key: entry.value for entry in info.update_binding}
    stored = [*model.graph.initializer, *info.algorithm.initializer]
    inputs = [*model.graph.input, *info.algorithm.input]
    beginning = {one.name: numpy_helper.to_array(one) for one in stored if one.name in updates}
    for sparse in info.algorithm.sparse_initializer:
        # What an optimizer keeps begins with zeros, of which none is stored.
        (values,) = sparse.values.dims
        assert values == 0
        elem = helper.tensor_dtype_to_np_dtype(sparse.values.data_type)
        beginning[sparse.values.name] = np.zeros(tuple(sparse.dims), elem)
    for name, value in beginning.items():
        elem = helper.np_dtype_to_tensor_dtype(value.dtype)
        inputs.append(helper.make_tensor_value_info(name, elem, value.shape))
    constants = [one for one in stored if one.name not in updates]
    nodes = []
    for node in [*model.graph.node, *info.algorithm.node]:
        if node.op_type == "OneHot":
            # The reference evaluator takes the depth as a scalar alone, not as a list of one number.
            depth, scalar = f"{node.output[0]}_depth", f"{node.output[0]}_scalar"
            constants.append(numpy_helper.from_array(np.zeros(0, np.int64), scalar))
            nodes.append(helper.make_node("Reshape", [node.input[1], scalar], [depth]))
            node.input[1] = depth
        nodes.append(node)
    graph = helper.make_graph(nodes, "step", inputs, info.algorithm.output, constants)
    step = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    return step, beginning, updates


def judge_digits(tools):
    """Gradients of the scores by the image and all weights."""
    model = tools.work / "differentiated.onnx"
    tools.run("differentiate", DIGITS, "--of", "logits", "--quiet", "-o", model)
    image = np.random.default_rng(2).random((8, 1, 8, 8), np.float32)
    gradients = compared(tools, model, {"image": image})
    if len(gradients) != 9:
        raise Disagreement(f"there are {len(gradients)} gradients, not 9")
    return max(gradients.values())


def compared(tools, model, feeds):
    """The differences of gradients to those of ONNX Runtime, by name."""
    try:
        session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        expected = dict(zip(names, session.run(names, feeds)))
    except Exception as error:
        raise Disagreement(f"ONNX Runtime fails: {str(error).splitlines()[0]}") from error
    ours = tools.outputs(model, feeds)
    gradients = {name: value for name, value in expected.items() if name.endswith("_grad")}
    return {name: difference(name, value, ours.get(name)) for name, value in gradients.items()}


def blocks_of(text):
    """Blocks of tests/gradients: number of the line, operator, and the lines that follow."""
    found, is_open = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#"):
            continue
        if not line:
            is_open = False
        elif is_open:
            found[-1][2].append(line)
        else:
            found.append((number, line.split()[0], []))
            is_open = True
    return found


def judge_block(tools, lines, seed):
    """Gradients of a sum of the elements of `y` with random factors, by inputs of floats. None if ONNX Runtime does
    not compute `y`, or another one: such differences are those of operators, not of gradients."""
    random = np.random.default_rng(seed)
    inputs, constants, nodes, feeds = [], [], [], {}
    for line in lines:
        line = line.replace("double", "float").replace("<to = 11>", "<to = 1>")
        if not line.startswith("< "):
            nodes.append(line)
        elif line.startswith("< float"):
            declared, values = re.fullmatch(r"< (.*?) (?:in|=) (.*)", line).groups()
            inputs.append(declared)
            sizes = re.search(r"\[(.*)\]", declared)
            dims = [int(size) for size in sizes[1].split(", ")] if sizes else []
            if values.startswith("{"):
                values = [float(value) for value in values.strip("{}").split(", ")]
                array = np.array(values, np.float32).reshape(dims)
            else:
                array = random.uniform(*map(float, values.split()), dims).astype(np.float32)
            feeds[declared.split()[-1]] = np.asarray(array)
        else:
            constants.append(line.removeprefix("< "))
    plain, model = tools.work / "block.onnx", tools.work / "differentiated.onnx"

    def write(output, nodes, constants):
        stored = f"<{', '.join(constants)}>" if constants else ""
        nodes = "\n".join(nodes)
        text = tools.work / "block.onnxtxt"
        text.write_text(
            f'<ir_version: 10, opset_import: ["": {OPSET}]>\n'
            f"g ({', '.join(inputs)}) => ({output}) {stored} {{\n{nodes}\n}}\n"
        )
        tools.run("parse", text, "-o", plain)

    write("float[] y", nodes, constants)
    try:
        session = ort.InferenceSession(str(plain), providers=["CPUExecutionProvider"])
        (y,) = session.run(["y"], feeds)
    except Exception:
        return None
    try:
        difference("y", y, tools.outputs(plain, feeds)["y"])
    except Disagreement:
        return None
    factors = ", ".join(f"{factor:.6f}" for factor in random.uniform(-1, 1, y.size))
    constants.append(f"float{list(y.shape) if y.ndim else ''} factors = {{{factors}}}")
    nodes += ["weighted = Mul (y, factors)", "loss = ReduceSum <keepdims = 0> (weighted)"]
    write("float loss", nodes, constants)
    by = [word for name in feeds for word in ("--by", name)]
    tools.run("differentiate", plain, "--of", "loss", *by, "--quiet", "-o", model)
    return max(compared(tools, model, feeds).values())


if __name__ == "__main__":
    main()
