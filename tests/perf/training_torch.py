"""Training steps of PyTorch and of Sardonyx: gradients, losses, time and memory.

A network of PyTorch with random weights is exported, `sardonyx add-training` gives it a loss and an
optimizer, and both take steps on the same batch. PyTorch in double is the judge:

- each gradient may be off by 1e-5 of its largest element, or by twice what PyTorch's float is off;
- the same network exported in double has to agree with the judge to 1e-7: units whose input rounds
  to the other side of 0 make gradients in float differ, and those in double do not;
- the losses of ten steps: each may be off by 1e-4, or by twice what PyTorch's float is off;
- the weights after them: each may be off by 1e-5 of its largest element, or by twice what PyTorch's
  float is off; of Adam only those where PyTorch's float and double agree to 1e-5, as it divides
  rounding errors by each other where a gradient is 0. At some of these PyTorch's float agrees by
  chance: an element whose gradient is a millionth of the largest is moved by its rounding error. So
  the same is asked with sides changed: of the weights where ours agree with double, how many of
  PyTorch's float are beyond. Ours may be a larger part only by one in twenty of those judged. In
  double, the weights after three steps of Adam have to agree to 1e-7, or to 10,000 times what
  gradients in double are off by, which exporters cause by rounding constants to float, and which
  Adam divides by gradients near 0.

Then sides take turns, and each is run alone in a process for its peak memory.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

TOLERANCE = 1e-5
# Attributes, and constants that exporters cast, are floats of 32 bits: up to 6e-8 off.
DOUBLE_TOLERANCE = 1e-7


class Sequence(nn.Module):
    """Embeddings, two layers of LSTM, and classes of the last step."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(1000, 128)
        self.layers = nn.LSTM(128, 256, 2, batch_first=True)
        self.classes = nn.Linear(256, 10)

    def forward(self, ids):
        out, _ = self.layers(self.embed(ids))
        return self.classes(out[:, -1])


class Scores(nn.Module):
    """The scores of a network of `transformers`, classes on axis 1."""

    def __init__(self, network, is_sequence):
        super().__init__()
        self.network, self.is_sequence = network, is_sequence

    def forward(self, ids):
        scores = self.network(ids).logits
        return scores.transpose(1, 2) if self.is_sequence else scores


def images(make, batch):
    import torchvision

    network = getattr(torchvision.models, make)(weights=None)
    return network, torch.randn(batch, 3, 224, 224), torch.randint(0, 1000, (batch,))


def lstm(batch):
    return Sequence(), torch.randint(0, 1000, (batch, 32)), torch.randint(0, 10, (batch,))


class Gated(nn.Module):
    """Embeddings, two layers of GRU, and classes of the last step."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(1000, 128)
        self.layers = nn.GRU(128, 256, 2, batch_first=True)
        self.classes = nn.Linear(256, 10)

    def forward(self, ids):
        out, _ = self.layers(self.embed(ids))
        return self.classes(out[:, -1])


def gru(batch):
    return Gated(), torch.randint(0, 1000, (batch, 32)), torch.randint(0, 10, (batch,))


def small_bert(batch):
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024,
        num_labels=3,
    )  # fmt: skip
    network = Scores(BertForSequenceClassification(config), False)
    return network, torch.randint(0, 30000, (batch, 64)), torch.randint(0, 3, (batch,))


def bert(batch):
    from transformers import BertConfig, BertForSequenceClassification

    network = Scores(BertForSequenceClassification(BertConfig(num_labels=3)), False)
    return network, torch.randint(0, 30000, (batch, 128)), torch.randint(0, 3, (batch,))


def gpt2(batch):
    from transformers import GPT2Config, GPT2LMHeadModel

    network = Scores(GPT2LMHeadModel(GPT2Config(use_cache=False)), True)
    ids = torch.randint(0, 50000, (batch, 64))
    return network, ids, torch.randint(0, 50000, (batch, 64))


# Name, network, batch, the bar for the ratio of times, and the learning rate, of which Adam takes a
# hundredth. At 0.01 the loss of ResNet-18 rises in every second step, and ten of these make 1e-2 of
# a rounding error.
NETWORKS = {
    "resnet18": (lambda batch: images("resnet18", batch), 8, 1.2, 0.0002),
    "mobilenet_v3": (lambda batch: images("mobilenet_v3_large", batch), 8, None, 0.01),
    "lstm": (lstm, 8, None, 0.01),
    "gru": (gru, 8, None, 0.01),
    "small_bert": (small_bert, 8, None, 0.01),
    "bert_base": (bert, 4, 1.2, 0.01),
    "gpt2": (gpt2, 2, None, 0.01),
}


def made(name):
    """The network in inference mode, its batch and labels; the same in every process."""
    torch.manual_seed(0)
    make, batch, *_ = NETWORKS[name]
    network, x, labels = make(batch)
    return network.eval(), x, labels


def converted(x, dtype):
    return x.to(dtype) if x.is_floating_point() else x


def export(network, x, path):
    torch.onnx.export(
        network, (x,), str(path), input_names=["x"], output_names=["scores"], opset_version=18,
        dynamo=True, optimize=False, verify=False, external_data=False, verbose=False,
    )  # fmt: skip


def add_training(program, model, out, *options):
    command = [program, "add-training", model, "--loss", "cross-entropy", "-q", "-o", out, *options]
    subprocess.run([str(part) for part in command], check=True)


def torch_gradients(network, x, labels, dtype):
    network.to(dtype).zero_grad()
    loss = nn.functional.cross_entropy(network(converted(x, dtype)), labels)
    loss.backward()
    # A parameter with two names is exported under either.
    found = network.named_parameters(remove_duplicate=False)
    return {name: p.grad.double().numpy().copy() for name, p in found if p.grad is not None}


def our_gradients(program, model, directory, feeds):
    """Momentum of which nothing stays is the gradient."""
    import sardonyx

    out = directory / "gradients.onnx"
    add_training(program, model, out, "--optimizer", "momentum", "--momentum", "0")
    trainer = sardonyx.Trainer(str(out))
    trainer.step(feeds)
    state, suffix = trainer.state, "_momentum"
    names = [name for name in state if name.endswith(suffix)]
    return {name.removesuffix(suffix): state[name].astype(np.float64) for name in names}


def apart(found, judge):
    return float(np.abs(found - judge).max() / max(np.abs(judge).max(), 1e-30))


def compare_gradients(name, program, directory):
    network, x, labels = made(name)
    exact = torch_gradients(network, x, labels, torch.float64)
    rounded = torch_gradients(network, x, labels, torch.float32)
    ours = our_gradients(program, directory / f"{name}.onnx", directory, feeds(x, labels))
    names = {}
    for key, parameter in network.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), set()).add(key)
    found = set(ours)
    missing = sorted(min(keys) for keys in names.values() if keys & set(exact) and not keys & found)
    largest = max(np.abs(g).max() for g in exact.values())
    beyond, worst = [], 0.0
    for key in sorted(set(exact) & set(ours)):
        # What is 0 but for rounding says nothing.
        if np.abs(exact[key]).max() < 1e-12 * largest:
            continue
        off, theirs = apart(ours[key], exact[key]), apart(rounded[key], exact[key])
        worst = max(worst, off)
        if off > max(TOLERANCE, 2 * theirs):
            beyond.append(key)
    small, labels = x[:1], labels[:1]
    network.to(torch.float64)
    export(network, converted(small, torch.float64), directory / "double.onnx")
    exact = torch_gradients(network, small, labels, torch.float64)
    given = feeds(converted(small, torch.float64), labels)
    ours = our_gradients(program, directory / "double.onnx", directory, given)
    largest = max(np.abs(g).max() for g in exact.values())
    keys = [key for key in exact if key in ours and np.abs(exact[key]).max() > 1e-12 * largest]
    double = max(apart(ours[key], exact[key]) for key in keys)
    return {
        "gradients": len(names), "missing": missing, "beyond": len(beyond), "worst": worst,
        "double": double,
    }  # fmt: skip


def feeds(x, labels):
    return {"x": x.numpy(), "label": labels.numpy()}


def optimizers(name):
    """By name: options of `add-training`, and what makes the same of parameters in PyTorch."""
    rate = NETWORKS[name][3]
    makers = {
        "sgd": (rate, lambda p: torch.optim.SGD(p, rate)),
        "momentum": (rate, lambda p: torch.optim.SGD(p, rate, momentum=0.9)),
        "adam": (rate / 100, lambda p: torch.optim.Adam(p, rate / 100)),
    }
    options = ("--optimizer", "--learning-rate")
    return {
        key: ([options[0], key, options[1], str(rate)], make) for key, (rate, make) in makers.items()
    }


def torch_steps(name, make, dtype, steps, batch=None):
    """The loss of each step, and the weights after them."""
    network, x, labels = made(name)
    network.to(dtype)
    x, labels = converted(x, dtype)[:batch], labels[:batch]
    moves, losses = make(network.parameters()), []
    for _ in range(steps):
        moves.zero_grad()
        loss = nn.functional.cross_entropy(network(x), labels)
        loss.backward()
        moves.step()
        losses.append(loss.item())
    named = network.named_parameters(remove_duplicate=False)
    return losses, {key: p.detach().double().numpy() for key, p in named}


def compare_double(name, program, directory):
    """How far weights are off after three steps of Adam on one example in double, where their
    gradients are not 0 but for rounding."""
    import sardonyx

    options, make = optimizers(name)["adam"]
    _, exact = torch_steps(name, make, torch.float64, 3, batch=1)
    network, x, labels = made(name)
    x, labels = converted(x, torch.float64)[:1], labels[:1]
    gradients = torch_gradients(network, x, labels, torch.float64)
    largest = max(np.abs(g).max() for g in gradients.values())
    export(network, x, directory / "double.onnx")
    out = directory / "steps.onnx"
    add_training(program, directory / "double.onnx", out, *options)
    trainer = sardonyx.Trainer(str(out), outputs=["loss"])
    for _ in range(3):
        trainer.step(feeds(x, labels))
    judged = [key for key, g in gradients.items() if np.abs(g).max() > 1e-12 * largest]
    return max(apart(trainer.state[key], exact[key]) for key in judged if key in trainer.state)


def compare_steps(name, program, directory, steps):
    """By optimizer: the largest difference of the losses to those of PyTorch's double, relative to
    the loss, of ours and of PyTorch's float; how many weights are judged, and those beyond; of Adam
    the same two of PyTorch's float by ours."""
    import sardonyx

    found = {}
    for optimizer, (options, make) in optimizers(name).items():
        judge, exact = torch_steps(name, make, torch.float64, steps)
        rounded, theirs = torch_steps(name, make, torch.float32, steps)
        _, x, labels = made(name)
        out = directory / "steps.onnx"
        add_training(program, directory / f"{name}.onnx", out, *options)
        trainer = sardonyx.Trainer(str(out), outputs=["loss"])
        ours = [float(trainer.step(feeds(x, labels))["loss"]) for _ in range(steps)]
        off = [max(abs(a - b) / abs(b) for a, b in zip(side, judge)) for side in (ours, rounded)]
        state = trainer.state
        keys = sorted(set(exact) & set(state))
        errors = [
            (apart(state[key].astype(np.float64), exact[key]), apart(theirs[key], exact[key]))
            for key in keys
        ]
        sides = [beyond(errors, optimizer), beyond([pair[::-1] for pair in errors], optimizer)]
        found[optimizer] = (*off, *sides)
    return found


def beyond(errors, optimizer):
    """Of pairs of errors, of one side and of the one that it is judged by: how many are judged, and
    how many are beyond."""
    bars = [(error, max(TOLERANCE, 2 * by)) for error, by in errors]
    if optimizer == "adam":
        bars = [(error, bar) for error, bar in bars if bar <= 2 * TOLERANCE]
    return len(bars), sum(error > bar for error, bar in bars)


def torch_step(network, x, labels):
    moves = torch.optim.SGD(network.parameters(), 0.01)

    def step():
        moves.zero_grad()
        nn.functional.cross_entropy(network(x), labels).backward()
        moves.step()

    return step


def our_step(program, name, directory, x, labels, threads):
    import sardonyx

    out = directory / f"{name}.sgd.onnx"
    add_training(program, directory / f"{name}.onnx", out)
    trainer = sardonyx.Trainer(str(out), threads=threads, outputs=["loss"])
    given = feeds(x, labels)
    return lambda: trainer.step(given)


def compare_times(name, program, directory, rounds, threads):
    network, x, labels = made(name)
    sides = [torch_step(network, x, labels), our_step(program, name, directory, x, labels, threads)]
    first, times = [], ([], [])
    for _ in range(rounds):
        for side, step in enumerate(sides):
            # Workers of the other side spin for a while after its last step.
            time.sleep(0.5)
            taken = [timed(step) for _ in range(4)]
            if len(first) < 2:
                first.append(taken[0])
            # The first step after a pause wakes workers and fills caches.
            times[side].extend(taken[1:])
    theirs, ours = map(statistics.median, times)
    return {
        "torch": theirs, "ours": ours, "ratio": ours / theirs,
        "first": [first[0] / theirs, first[1] / ours],
    }  # fmt: skip


def timed(step):
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


# A process is counted with what was resident when it was started, so a small one starts it.
STARTER = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:])
_, status, usage = os.wait4(process.pid, 0)
print(usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def peak(command):
    """The most memory of a process, in MB."""
    command = [sys.executable, "-c", STARTER, *map(str, command)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return int(answer.split()[-1]) / 1024


# Steps of ours in a process that does not import PyTorch.
STEPS = """
import sys, numpy, sardonyx
model, data, threads = sys.argv[1:]
trainer = sardonyx.Trainer(model, threads=int(threads), outputs=["loss"])
batch = dict(numpy.load(data))
for _ in range(3):
    trainer.step(batch)
"""


def compare_memory(name, program, directory, threads):
    """Each side takes three steps in a process of its own; ours is the command, and the package."""
    _, x, labels = made(name)
    data, state = directory / "batch.npz", directory / "state.npz"
    np.savez(data, **feeds(x, labels))
    state.unlink(missing_ok=True)
    ours = [program, "train", directory / f"{name}.sgd.onnx", "--data", data, "--steps", "3", "-q"]
    ours += ["--state", state, "--threads", threads]
    theirs = [sys.executable, __file__, name, "--steps", "3", "--alone", "--program", program]
    theirs += ["--directory", directory, "--threads", threads]
    package = [sys.executable, "-c", STEPS, directory / f"{name}.sgd.onnx", data, threads]
    return {"torch": peak(theirs), "ours": peak(ours), "package": peak(package)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*")
    parser.add_argument("--program", required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--alone", action="store_true", help="take steps of PyTorch, no more")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.directory.mkdir(parents=True, exist_ok=True)
    if options.alone:
        step = torch_step(*made(options.networks[0]))
        for _ in range(options.steps):
            step()
        return
    failed = []
    for name in options.networks or NETWORKS:
        network, x, _ = made(name)
        export(network, x, options.directory / f"{name}.onnx")
        gradients = compare_gradients(name, options.program, options.directory)
        steps = compare_steps(name, options.program, options.directory, options.steps)
        times = compare_times(
            name, options.program, options.directory, options.rounds, options.threads
        )
        memory = compare_memory(name, options.program, options.directory, options.threads)
        bar = NETWORKS[name][2]
        print(
            f"{name}: {gradients['gradients']} gradients, {len(gradients['missing'])} missing, "
            f"{gradients['beyond']} beyond, worst {gradients['worst']:.1e}, "
            f"in double {gradients['double']:.1e}"
        )
        losses = (f"{key} {found[0]:.1e} (torch {found[1]:.1e})" for key, found in steps.items())
        print("  losses off: " + ", ".join(losses))
        weights = (f"{key} {found[2][1]} of {found[2][0]}" for key, found in steps.items())
        (judged, ours), (by_ours, theirs) = steps["adam"][2:]
        double = compare_double(name, options.program, options.directory)
        print(
            "  weights beyond: " + ", ".join(weights) + f" (torch {theirs} of {by_ours}); "
            f"adam in double {double:.1e}"
        )
        print(
            f"  step: {times['ours'] * 1000:.0f} ms, torch {times['torch'] * 1000:.0f} ms, "
            f"ratio {times['ratio']:.2f}" + (f" (bar {bar})" if bar else "")
        )
        print("  first step: {1:.1f} of the median, torch {0:.1f}".format(*times["first"]))
        print(
            f"  peak: {memory['ours']:.0f} MB, as a package {memory['package']:.0f} MB, "
            f"torch {memory['torch']:.0f} MB"
        )
        if gradients["missing"] or gradients["double"] > DOUBLE_TOLERANCE:
            failed.append(f"{name}: gradients")
        if any(ours > max(1e-4, 2 * theirs) for ours, theirs, *_ in steps.values()):
            failed.append(f"{name}: losses")
        plain = any(found[2][1] > 0 for key, found in steps.items() if key != "adam")
        if plain or ours / max(judged, 1) > theirs / max(by_ours, 1) + 0.05:
            failed.append(f"{name}: weights")
        if double > max(DOUBLE_TOLERANCE, 1e4 * gradients["double"]):
            failed.append(f"{name}: weights in double")
        if bar and times["ratio"] > bar:
            failed.append(f"{name}: time")
    if failed:
        sys.exit("not met: " + ", ".join(failed))


main()
