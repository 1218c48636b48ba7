"""Makes a language model of characters before its training, its tokenizer, and its training data.

Usage: make.py TEXT... Writes `untrained.onnx` and `data.npz` into the current directory, and the tokenizer and configuration beside this
file; `README.md` trains and uses the model.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH, HEADS, LAYERS, CONTEXT = 32, 2, 2, 96
HEAD = WIDTH // HEADS
HERE = Path(__file__).parent
# Characters of the texts, after one for all others.
CHARACTERS = "\n !\"#%&'()*+,-./0123456789:;<=>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]_`abcdefghijklmnopqrstuvwxyz{|}"


class Builder:
    """Graph that grows node by node."""

    def __init__(self):
        self.nodes, self.weights, self.random = [], [], np.random.default_rng(1)

    def add(self, operator, *inputs, outputs=1, **attributes):
        names = [f"{operator.lower()}_{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(operator, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def weight(self, name, *shape, scale=0.08, fill=None):
        values = np.full(shape, fill) if fill is not None else self.random.normal(0, scale, shape)
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def integers(self, *values):
        name = f"integers_{'_'.join(map(str, values))}".replace("-", "m")
        if name not in [weight.name for weight in self.weights]:
            self.weights.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name


def normalize(g, x, name):
    return g.add("LayerNormalization", x, g.weight(f"{name}.scale", WIDTH, fill=1), g.weight(f"{name}.bias", WIDTH, fill=0), axis=-1)


def attend(g, x, bias, layer, presents):
    parts = []
    for part in ("query", "key", "value"):
        product = g.add("MatMul", x, g.weight(f"{layer}.{part}", WIDTH, WIDTH))
        heads = g.add("Reshape", product, g.integers(0, 0, HEADS, HEAD))
        parts.append(g.add("Transpose", heads, perm=[0, 2, 1, 3]))
    for index, part in ((1, "key"), (2, "value")):
        present = f"present.{layer}.{part}"
        g.nodes.append(helper.make_node("Concat", [f"past_key_values.{layer}.{part}", parts[index]], [present], axis=2))
        presents.append(present)
        parts[index] = present
    scores = g.add("MatMul", parts[0], g.add("Transpose", parts[1], perm=[0, 1, 3, 2]))
    g.weights.append(numpy_helper.from_array(np.float32(HEAD**-0.5), f"{layer}.factor"))
    scores = g.add("Add", g.add("Mul", scores, f"{layer}.factor"), bias)
    mixed = g.add("Transpose", g.add("MatMul", g.add("Softmax", scores, axis=-1), parts[2]), perm=[0, 2, 1, 3])
    return g.add("MatMul", g.add("Reshape", mixed, g.integers(0, 0, WIDTH)), g.weight(f"{layer}.out", WIDTH, WIDTH))


def make_bias(g):
    """Returns the mask as values to add to scores: [batch, 1, new positions, all positions]."""
    total = g.add("Shape", "attention_mask", start=1, end=2)
    count = g.add("Shape", "input_ids", start=1, end=2)
    g.weights += [numpy_helper.from_array(np.array(v, np.int64), n) for v, n in ((0, "zero"), (1, "one"))]
    end = g.add("Squeeze", total)
    keys = g.add("Range", "zero", end, "one")
    queries = g.add("Range", g.add("Squeeze", g.add("Sub", total, count)), end, "one")
    seen = g.add("LessOrEqual", keys, g.add("Unsqueeze", queries, g.integers(1)))
    exists = g.add("Cast", g.add("Unsqueeze", "attention_mask", g.integers(1, 2)), to=TensorProto.BOOL)
    both = g.add("And", exists, seen)
    g.weights += [numpy_helper.from_array(np.float32(v), n) for v, n in ((0, "seen"), (-1e4, "hidden"))]
    return g.add("Where", both, "seen", "hidden")


def make_model():
    g, presents = Builder(), []
    vocabulary = len(CHARACTERS) + 1
    x = g.add("Add", g.add("Gather", g.weight("tokens", vocabulary, WIDTH), "input_ids"),
              g.add("Gather", g.weight("positions", CONTEXT, WIDTH), "position_ids"))
    bias = make_bias(g)
    for layer in range(LAYERS):
        x = g.add("Add", x, attend(g, normalize(g, x, f"{layer}.norm1"), bias, layer, presents))
        wide = g.add("MatMul", normalize(g, x, f"{layer}.norm2"), g.weight(f"{layer}.up", WIDTH, 4 * WIDTH))
        wide = g.add("Gelu", g.add("Add", wide, g.weight(f"{layer}.up_bias", 4 * WIDTH, fill=0)))
        x = g.add("Add", x, g.add("MatMul", wide, g.weight(f"{layer}.down", 4 * WIDTH, WIDTH)))
    g.nodes.append(helper.make_node("MatMul", [normalize(g, x, "last"), g.weight("scores", WIDTH, vocabulary)], ["logits"]))
    integer, real = TensorProto.INT64, TensorProto.FLOAT
    pairs = [f"{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]
    inputs = [helper.make_tensor_value_info(n, integer, ["batch", "length"]) for n in ("input_ids", "position_ids")]
    inputs.append(helper.make_tensor_value_info("attention_mask", integer, ["batch", "total"]))
    inputs += [helper.make_tensor_value_info(f"past_key_values.{p}", real, ["batch", HEADS, "past", HEAD]) for p in pairs]
    outputs = [helper.make_tensor_value_info("logits", real, ["batch", "length", vocabulary])]
    outputs += [helper.make_tensor_value_info(f"present.{p}", real, ["batch", HEADS, "total", HEAD]) for p in pairs]
    graph = helper.make_graph(g.nodes, "characters", inputs, outputs, g.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def write_data(paths):
    text = "\n".join(Path(path).read_text(encoding="utf-8") for path in paths)
    ids = np.array([CHARACTERS.find(c) + 1 for c in text], np.int64)
    starts = range(0, len(ids) - CONTEXT - 1, CONTEXT // 2)
    count = len(starts)
    past = np.zeros((count, HEADS, 0, HEAD), np.float32)
    pasts = {f"past_key_values.{layer}.{part}": past for layer in range(LAYERS) for part in ("key", "value")}
    np.savez(
        "data.npz",
        input_ids=np.stack([ids[s : s + CONTEXT] for s in starts]),
        label=np.stack([ids[s + 1 : s + CONTEXT + 1] for s in starts]),
        position_ids=np.tile(np.arange(CONTEXT), (count, 1)),
        attention_mask=np.ones((count, CONTEXT), np.int64),
        **pasts,
    )
    print(f"{len(text)} characters, {count} examples")


def write_directory():
    vocabulary = {"\ufffd": 0, **{c: i + 1 for i, c in enumerate(CHARACTERS)}}
    model = {"type": "BPE", "dropout": None, "unk_token": "\ufffd", "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary, "merges": []}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
                 "post_processor": None, "decoder": {"type": "Fuse"}, "model": model}
    (HERE / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    config = {"model_type": "characters", "architectures": ["CharactersForCausalLM"], "vocab_size": len(vocabulary),
              "max_position_embeddings": CONTEXT, "num_attention_heads": HEADS, "hidden_size": WIDTH}
    (HERE / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (HERE / "generation_config.json").write_text(json.dumps({"do_sample": True, "temperature": 0.5, "top_k": 10}) + "\n")


if __name__ == "__main__":
    onnx.save(make_model(), "untrained.onnx")
    write_data(sys.argv[1:])
    write_directory()
