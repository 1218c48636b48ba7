"""Compares the functions of our operators with those of the reference, by meaning.

    cargo build -p sardonyx-tests --bin dump_functions
    python tests/conformance/compare_bodies.py target/debug/dump_functions

Two functions are the same if they have the same parameters and operator sets and their nodes are the same up to the
names of the values between them and their order: same operators, attributes and wiring, each as often. Constants of a
graph count as `Constant` nodes, tensors are compared by type, size and bits.

Functions that do not depend on the call are compared as they are written and as they are given at every opset version,
the others for the calls that the backend cases of the reference make and for the odd ones below. Prints the differences
and a count; exits with 1 if there is any.
"""

import argparse
import hashlib
import sys
import warnings
from collections import Counter, defaultdict
from subprocess import PIPE, Popen

import numpy as np
from onnx import AttributeProto, FunctionProto, NodeProto, TensorProto, TypeProto, defs, helper, numpy_helper, parser

# Differences on purpose. Each is a defect of the reference: what it gives is no function that could run, or another one.
IMPORTS = "FlexAttention imports `ai.onnx.preview` alone, although the nodes are operators of `ai.onnx`"
AXIS_OF_ROW = "AffineGrid says which axis its rows lose: a batch of one lost its own as well"
ROUND_MODE = "CastLike does not hand on `round_mode`, which decides what it gives for float8e8m0"
PROBABILITY = "Bernoulli draws 1 where the drawn number is less than the probability, not where it is greater"
FREE_NAMES = "FlexAttention leaves names free in graphs within the graphs that it takes in"

NEWEST = defs.onnx_opset_version()


class Ours:
    """The program of `tests/src/bin/dump_functions.rs`."""

    def __init__(self, program):
        self.process = Popen([program], stdin=PIPE, stdout=PIPE, text=True)

    def ask(self, *fields):
        self.process.stdin.write("\t".join(map(str, fields)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit("our side gave up")
        return answer.rstrip("\n")

    def function(self, *request):
        answer = self.ask(*request)
        return None if answer == "none" else FunctionProto.FromString(bytes.fromhex(answer))

    def versions(self):
        """Maps (domain, name, since) to the opset versions of the functions, plain ones and others."""
        found = {}
        line = self.ask("list")
        while line:
            domain, name, since, opsets = line.split("\t")
            plain = [int(opset) for opset in opsets.split() if "*" not in opset]
            built = [int(opset[:-1]) for opset in opsets.split() if "*" in opset]
            found[domain, name, int(since)] = plain, built
            line = self.process.stdout.readline().rstrip("\n")
        return found


# What a function means.


def meaning(function):
    names = {name: f"input {index}" for index, name in enumerate(function.input)}
    nodes = Counter()
    walk(function.node, names, nodes, 0)
    imports = {entry.domain: entry.version for entry in function.opset_import}
    return {
        "name": (function.domain, function.name),
        "inputs": list(function.input),
        "outputs": [(name, names.get(name)) for name in function.output],
        "attributes": sorted(function.attribute),
        "imports": imports,
        "nodes": nodes,
    }


def walk(nodes, names, found, depth):
    """Gives every value a name that says where it comes from, and counts the nodes."""
    for node in nodes:
        inputs = [names.get(name, f"free {name}") if name else None for name in node.input]
        attributes = sorted(describe(attribute, names, depth) for attribute in node.attribute)
        # Absent operands at the end say nothing.
        while inputs and inputs[-1] is None:
            inputs.pop()
        text = repr((node.domain, node.op_type, node.overload, inputs, attributes, len(node.output)))
        found[text] += 1
        for index, name in enumerate(node.output):
            if name:
                names[name] = f"{index} of {digest(text)}"


def describe(attribute, names, depth):
    if attribute.ref_attr_name:
        # The reference leaves the type of some references open.
        return attribute.name, "@" + attribute.ref_attr_name
    if attribute.type == AttributeProto.TENSOR:
        return attribute.name, tensor(attribute.t)
    if attribute.type == AttributeProto.GRAPH:
        return attribute.name, graph(attribute.g, names, depth + 1)
    if attribute.type == AttributeProto.FLOAT:
        return attribute.name, "float " + np.float32(attribute.f).tobytes().hex()
    value = helper.get_attribute_value(attribute)
    return attribute.name, f"{AttributeProto.AttributeType.Name(attribute.type)} {value!r}"


def tensor(proto):
    array = numpy_helper.to_array(proto)
    name = TensorProto.DataType.Name(proto.data_type)
    return f"{name} {array.shape} {digest(array.tobytes() if array.dtype != object else repr(array.tolist()))}"


def graph(proto, names, depth):
    inner = dict(names)
    for index, value in enumerate(proto.input):
        inner[value.name] = f"input {index} of graph {depth}"
    found = Counter()
    for constant in proto.initializer:
        text = repr(("", "Constant", "", [], [("value", tensor(constant))], 1))
        found[text] += 1
        inner[constant.name] = f"0 of {digest(text)}"
    walk(proto.node, inner, found, depth)
    types = [value.type.SerializeToString(deterministic=True).hex() for value in [*proto.input, *proto.output]]
    outputs = [inner.get(value.name, f"free {value.name}") for value in proto.output]
    return repr((types, outputs, sorted(found.items())))


def digest(text):
    return hashlib.sha256(text if isinstance(text, bytes) else text.encode()).hexdigest()[:16]


def drop_axes(nodes, others):
    """Takes axes from nodes of Squeeze whose counterparts have none."""
    for node, other in zip(nodes, others):
        if node.op_type == other.op_type == "Squeeze":
            del node.input[len(other.input) :]
        for attribute, counterpart in zip(node.attribute, other.attribute):
            drop_axes(attribute.g.node, counterpart.g.node)


def differences(mine, theirs, on_purpose):
    """Lines that tell what differs; differences on purpose are counted instead."""
    if mine is None or theirs is None:
        if mine is not theirs:
            yield f"  {'ours' if theirs is None else 'reference'} only"
        return
    if (mine.domain, mine.name) == ("", "CastLike") and "round_mode" in mine.attribute:
        on_purpose[ROUND_MODE] += 1
        mine = without_attribute(mine, "round_mode")
    if (mine.domain, mine.name) == ("", "Bernoulli"):
        on_purpose[PROBABILITY] += 1
        mine = FunctionProto.FromString(mine.SerializeToString())
        for node in mine.node:
            node.op_type = {"Less": "Greater"}.get(node.op_type, node.op_type)
    if (mine.domain, mine.name) == ("", "AffineGrid"):
        on_purpose[AXIS_OF_ROW] += 1
        mine = FunctionProto.FromString(mine.SerializeToString())
        drop_axes(mine.node, theirs.node)
    mine, theirs = meaning(mine), meaning(theirs)
    if mine["name"] == theirs["name"] == ("ai.onnx.preview", "FlexAttention"):
        if theirs["imports"] == {"ai.onnx.preview": 1} and mine["imports"] == theirs["imports"] | {"": NEWEST}:
            on_purpose[IMPORTS] += 1
            mine["imports"] = theirs["imports"]
        if is_free(theirs) and not is_free(mine):
            on_purpose[FREE_NAMES] += 1
            return
    for what in mine:
        if mine[what] == theirs[what]:
            continue
        if what == "nodes":
            for side, nodes in ("ours", mine[what] - theirs[what]), ("reference", theirs[what] - mine[what]):
                yield from (f"  {side}: {count} of {text}" for text, count in nodes.items())
        else:
            yield f"  {what}: {mine[what]} and in the reference {theirs[what]}"


def without_attribute(function, name):
    """The function whose nodes do not have the attribute."""
    found = FunctionProto()
    found.CopyFrom(function)
    for node in found.node:
        kept = [attribute for attribute in node.attribute if attribute.name != name]
        del node.attribute[:]
        node.attribute.extend(kept)
    return found


def is_free(function):
    """Whether a node reads what nothing defines."""
    return any("free " in text for text in function["nodes"])


# Calls.


class Calls:
    """Calls of operators: node, types, opset version, and what the reference makes of them."""

    def __init__(self):
        self.found = []

    def add_text(self, opset, node, types):
        """A call in ONNX text. Types are separated by semicolons; `-` is an unknown one."""
        node = parser.parse_node(node)
        schema = defs.get_schema(node.op_type, opset, node.domain)
        types = [type_of(text.strip()) for text in types.split(";") if text.strip()]
        node = node.SerializeToString()
        # The binding gives functions at their own opset versions only; a later one changes nothing but the import.
        own = max(since for since in schema.context_dependent_function_opset_versions if since <= opset)
        try:
            function = schema.get_context_dependent_function_with_opset_version(own, node, types)
        except Exception:  # each kind of wrong call raises a type of its own
            function = b""
        function = FunctionProto.FromString(function)
        for entry in function.opset_import:
            entry.version = opset
        self.found.append((schema, opset, node, types, function))


def type_of(text):
    if text == "-":
        return b""
    proto = parser.parse_graph(f"g ({text} x) => () {{}}").input[0].type
    return proto.SerializeToString()


def backend_calls():
    """The calls that are made while the backend cases are collected."""
    calls = Calls()
    original = defs.OpSchema.get_context_dependent_function_with_opset_version

    def watch(schema, opset, node, types):
        function = original(schema, opset, node, types)
        calls.found.append((schema, opset, node, types, FunctionProto.FromString(function)))
        return function

    defs.OpSchema.get_context_dependent_function_with_opset_version = watch
    from onnx.backend.test.loader import load_model_tests

    load_model_tests(kind="node")
    defs.OpSchema.get_context_dependent_function_with_opset_version = original
    return calls


def odd_calls():
    calls = Calls()
    heads = "q_num_heads = 4, kv_num_heads = 2"
    rank3, rank4 = "float16[2, 5, 32]; float16[2, 7, 16]; float16[2, 7, 24]", "; ".join(["float[2, 4, 5, 8]"] * 3)
    bf16 = "bfloat16[B, 4, N, 8]; bfloat16[B, 4, M, 8]; bfloat16[B, 4, M, 8]"
    attention = [
        ("Y = Attention (Q, K, V)", rank4),
        ("Y = Attention (Q, K, V)", ""),
        ("Y = Attention (Q, K, V)", "int32[2]; int32[2]; int32[2]"),
        (f"Y = Attention <{heads}> (Q, K, V)", rank3),
        (f"Y = Attention <{heads}, scale = 0.25, softcap = 2.5, is_causal = 1> (Q, K, V)", rank3),
        (f"Y = Attention <{heads}, softmax_precision = 11> (Q, K, V)", rank3),
        ("Y = Attention <q_num_heads = 4> (Q, K, V)", rank3),
        ("Y = Attention <softmax_precision = 7> (Q, K, V)", rank4),
        ("Y = Attention <softmax_precision = 16> (Q, K, V, M)", bf16 + "; bool[N, M]"),
        ("Y = Attention (Q, K, V, M)", rank4),
        ("Y = Attention (Q, K, V, M)", rank4 + "; float[5, 7]"),
        ("Y = Attention <is_causal = 1> (Q, K, V, M)", rank4 + "; uint8[5, 7]"),
        ("Y, PK, PV = Attention (Q, K, V)", rank4),
        ("Y, PK = Attention (Q, K, V)", rank4),
        ("Y, , PV = Attention <is_causal = 1> (Q, K, V, , A, B)", rank4),
        ("Y, PK, PV = Attention <is_causal = 1> (Q, K, V, M, A, B)", rank4 + "; bool[5, 7]; float[]; float[]"),
        ("Y, PK, PV = Attention (Q, K, V, , A)", rank4),
        ("Y = Attention <qk_matmul_output_mode = 3> (Q, K, V)", rank4),
        *(
            (f"Y, , , S = Attention <qk_matmul_output_mode = {mode}, softcap = {cap}> (Q, K, V)", rank4)
            for mode in (0, 1, 2, 3, 9)
            for cap in ("0.0", "-1.0")
        ),
    ]
    for node, types in attention:
        for opset in (23, 24, 25, 28):
            calls.add_text(opset, node, types)
    outside = rank4 + "; bool[5, 7]; -; -; int64[2]"
    for node in (
        "Y = Attention (Q, K, V, , , , L)",
        "Y = Attention <is_causal = 1> (Q, K, V, M, , , L)",
        "Y = Attention <is_causal = 1> (Q, K, V, M, A, B, L)",
        "Y, PK, PV = Attention (Q, K, V, , , , L)",
    ):
        for opset in (24, 25):
            calls.add_text(opset, node, outside)
    for left in (-2, -1, 0, 3):
        for right in (-2, -1, 2):
            window = f"left_window_size = {left}, right_window_size = {right}"
            for rest in ("> (Q, K, V)", ", is_causal = 1> (Q, K, V, , , , L)", "> (Q, K, V, , A, B)"):
                calls.add_text(25, f"Y = Attention <{window}{rest}", outside)
    calls.add_text(25, f"Y = Attention <{heads}> (Q, K, V)", rank4)

    for opset in (15, 22):
        calls.add_text(opset, "y = Bernoulli (x)", "float16[3]")
        calls.add_text(opset, "y = Bernoulli <dtype = 9, seed = 1.5> (x)", "double[]")
        calls.add_text(opset, "y = Bernoulli <dtype = 9> (x)", "")
    for opset in (15, 18, 19, 20, 21, 23, 24, 25, 28):
        calls.add_text(opset, "y = CastLike (x, t)", "float[3]; int64[]")
        calls.add_text(opset, "y = CastLike (x, t)", "float[3]; -")
        calls.add_text(opset, "y = CastLike (x, t)", "float[3]; seq(float)")
        if opset >= 19:
            calls.add_text(opset, "y = CastLike <saturate = 0> (x, t)", "float[3]; float8e4m3fn[1]")

    for inputs in ("x, w", "x, w, b", "x, w, , s", "x, w, b, s"):
        for activation in ("", "<activation = \"none\">", "<activation = \"silu\">", "<activation = \"swish\">"):
            calls.add_text(27, f"y, p = CausalConvWithState {activation} ({inputs})", "float[2, 6, 9]; float[6, 1, 4]")
    conv = "y, p = CausalConvWithState (x, w)"
    for types in ("", "float[]; float[6, 1, 4]", "float[2, C, 9]; float[6, 1, 4]", "float[2, C, 9]; float[C, 1, 4]"):
        calls.add_text(28, conv, types)
    calls.add_text(27, "y, p = CausalConvWithState <activation = \"relu\"> (x, w)", "float[2, 6, 9]; float[6, 1, 4]")

    for opset in (12, 20, 27):
        for node in ("y = Celu (x)", "y = Celu <alpha = 0.1> (x)", "y = Celu <alpha = -0.0> (x)", "y = Celu <alpha = 1e30> (x)"):
            calls.add_text(opset, node, "float[3]")
    for opset in (18, 28):
        calls.add_text(opset, "y = CenterCropPad (x, s)", "")
        calls.add_text(opset, "y = CenterCropPad <axes = [-1, 0]> (x, s)", "float[3, 4]; int64[2]")
    for opset in (13, 15, 28):
        for inputs in ("x", "x, l", "x, , h", "x, l, h", "x, , "):
            calls.add_text(opset, f"y = Clip ({inputs})", "")
    for op in ("DepthToSpace", "SpaceToDepth"):
        for mode in ("DCR", "CRD", "dcr"):
            for size in (-1, 0, 1, 3, 2**40):
                calls.add_text(28, f'y = {op} <blocksize = {size}, mode = "{mode}"> (x)', "float[1, 9, 3, 3]")
        calls.add_text(28, f"y = {op} <blocksize = 2> (x)", "")
        calls.add_text(28, f"y = {op} (x)", "")

    flex = "Y = ai.onnx.preview.FlexAttention"
    plain = "float[2, 4, 5, 8]; float[2, 2, 6, 8]; float[2, 2, 6, 7]"
    twice = "m (float[a, b, c, d] x) => (float[a, b, c, d] keys) <float[1] two = {2.0}, float one = {1.0}> "
    twice += "{ scale = Mul (x, two) keys = Add (scale, one) }"
    branch = "m (x) => (y) { c = Constant <value = bool {1}> () y = If (c) "
    branch += "<then_branch = t () => (z) { q = Neg (x) z = Abs (q) }, else_branch = e () => (z) { z = Mul (x, x) }> }"
    for attributes in (
        "<scale = 0.5, softmax_precision = 11>",
        "<softmax_precision = 1>",
        "<softmax_precision = 6>",
        f"<score_mod = {twice}>",
        f"<score_mod = {twice}, prob_mod = {twice}>",
        f"<prob_mod = {branch}, score_mod = {branch}>",
        "<score_mod = m (x) => (x) {}>",
        "<prob_mod = m (x) => (y) { y = Identity (x) }>",
        "<prob_mod = m (x, z) => (y) { y = Add (x, z) }>",
    ):
        for types in (plain, plain.replace("float", "bfloat16"), plain.replace("float", "double"), "float[2]; -; -"):
            calls.add_text(1, f"{flex} {attributes} (Q, K, V)", types)
    calls.add_text(1, f"{flex} (Q, K, V)", "int32[1, 1, 1, 1]; int32[1, 1, 1, 1]; int32[1, 1, 1, 1]")
    calls.add_text(1, f"{flex} (Q, K, V)", "float[1, 1, 1, 1]; double[1, 1, 1, 1]; float[1, 1, 1, 1]")

    for opset in (20, 28):
        for attributes in ("", '<approximate = "tanh">', '<approximate = "none">', '<approximate = "other">'):
            calls.add_text(opset, f"y = Gelu {attributes} (x)", "")
    for opset in (18, 20, 21, 28):
        for types in ("float[1, 4, 3]", "float16[]", "bfloat16[1, 4]", "", "seq(float)"):
            calls.add_text(opset, "y = GroupNormalization <num_groups = 2, epsilon = 0.01> (x, s, b)", types)
        calls.add_text(opset, "y = GroupNormalization (x, s, b)", "float[1, 4, 3]")
    for stash in (1, 6, 10, 11, 16):
        calls.add_text(21, f"y = GroupNormalization <num_groups = 2, stash_type = {stash}> (x, s, b)", "float16[1, 4]")
        calls.add_text(23, f"y = RMSNormalization <stash_type = {stash}, axis = 1> (x, s)", "float16[1, 4]")
        for opset in (17, 18):
            calls.add_text(opset, f"y = LayerNormalization <stash_type = {stash}> (x, s)", "double[1, 4]")
    for opset in (17, 18, 28):
        for outputs in ("y", "y, m", "y, , i", "y, m, i"):
            for axis in (-2, 0, 1):
                for inputs in ("x, s", "x, s, b"):
                    node = f"{outputs} = LayerNormalization <axis = {axis}, epsilon = 0.1> ({inputs})"
                    calls.add_text(opset, node, "float16[2, 3, 4]")
        calls.add_text(opset, "y = LayerNormalization (x, s)", "")
        calls.add_text(opset, "y = LayerNormalization (x, s)", "optional(float)")
    calls.add_text(23, "y = RMSNormalization (x, s)", "")
    calls.add_text(28, "y = RMSNormalization <axis = -2, epsilon = 1.0> (x, s)", "double[]; float[]")

    packed = "bfloat16[2, 5, 32]; bfloat16[2, 5, 16]; bfloat16[2, 5, 16]"
    for rule in ("", ", update_rule = \"linear\"", ", update_rule = \"gated\"", ", update_rule = \"delta\""):
        for inputs in ("q, k, v, , d, b", "q, k, v, s, d, b"):
            for extra in (heads, "q_num_heads = 3, kv_num_heads = 3, scale = 0.5", "q_num_heads = 3, kv_num_heads = 2"):
                calls.add_text(27, f"y, p = LinearAttention <{extra}{rule}> ({inputs})", packed)
    calls.add_text(27, f"y, p = LinearAttention <{heads}> (q, k, v)", "")
    calls.add_text(27, "y, p = LinearAttention <q_num_heads = 4> (q, k, v)", packed)
    calls.add_text(27, "y, p = LinearAttention <q_num_heads = 0, kv_num_heads = 1> (q, k, v)", packed)
    calls.add_text(27, "y, p = LinearAttention <q_num_heads = 1, kv_num_heads = 0> (q, k, v)", packed)

    for op in ("Softmax", "LogSoftmax"):
        for opset in (13, 17, 18, 20, 28):
            for attributes in ("", "<axis = 1>", "<axis = -3>"):
                calls.add_text(opset, f"y = {op} {attributes} (x)", "float[2]")

    for opset in (12, 13, 17, 18, 22, 28):
        for reduction in ("", "none", "mean", "sum", "other"):
            for ignore in (None, 0, -100):
                attributes = [f'reduction = "{reduction}"'] if reduction else []
                attributes += [f"ignore_index = {ignore}"] if ignore is not None else []
                attributes = f"<{', '.join(attributes)}>" if attributes else ""
                for inputs in ("x, t", "x, t, w"):
                    for types in ("float[2, 3]", "float16[2, 3]", "double[]; int32[]", ""):
                        calls.add_text(opset, f"l = NegativeLogLikelihoodLoss {attributes} ({inputs})", types)
                    for outputs in ("l", "l, p"):
                        calls.add_text(opset, f"{outputs} = SoftmaxCrossEntropyLoss {attributes} ({inputs})", "")

    for opset in (27, 28):
        for elem in ("float", "float16", "bfloat16", "double", "int16", "int64"):
            for stash in ("", "<stash_type = 1>", "<stash_type = 11>", "<stash_type = 10>"):
                calls.add_text(opset, f"y = Range {stash} (s, l, d)", f"{elem}; {elem}; {elem}")
        calls.add_text(opset, "y = Range (s, l, d)", "")

    for types in ("float[2, 3, 5, 8]", "float[2, 5, 24]", "float[2, 24]", "float[]", "", "seq(float)"):
        for inputs in ("x, c, s", "x, c, s, p"):
            for attributes in ("", "interleaved = 1", "rotary_embedding_dim = 4", "num_heads = 3, interleaved = 1, rotary_embedding_dim = 6"):
                attributes = f"<{attributes}>" if attributes else ""
                calls.add_text(23, f"y = RotaryEmbedding {attributes} ({inputs})", types)

    bodies = [
        ("s = SequenceMap <body = b (float x) => (float y) { y = Neg (x) }> (a)", "seq(float)"),
        ("s = SequenceMap <body = b (float[N] x) => (float[] y) <float k = {1.0}> { y = Add (x, k) }> (a)", "seq(float[N])"),
        (
            "s, t = SequenceMap <body = b (float[1, ?] x, int64[\"a b\"] n) => (float[1, ?] y, int64[\"a b\"] m) "
            "{ y = Neg (x) m = Abs (n) }> (a, c)",
            "seq(float[1, ?]); int64[\"a b\"]",
        ),
        (
            "s = SequenceMap <body = b (float x, float z) => (float position) "
            "{ length = Add (x, z) position = Mul (length, length) }> (a, c)",
            "seq(float); seq(float)",
        ),
        ("s = SequenceMap <body = b (float x) => (float y) { y = Neg (x) }> (a)", "float"),
        (
            "s = SequenceMap <body = b (float x) => (float y) { c = Constant <value = bool {1}> () y = If (c) "
            "<then_branch = t () => (float z) { z = Neg (x) }, else_branch = e () => (float z) "
            "<float k = {2.0}> { z = Mul (x, k) }> }> (a)",
            "seq(float)",
        ),
    ]
    for node, types in bodies:
        for opset in (17, 28):
            calls.add_text(opset, node, types)
    return calls


# Comparing.


def compare_versions(ours):
    """Which versions have which functions."""
    theirs = {}
    for schema in defs.get_all_schemas_with_history():
        plain = list(schema.function_opset_versions)
        built = list(schema.context_dependent_function_opset_versions)
        if plain or built:
            theirs[schema.domain, schema.name, schema.since_version] = plain, built
    mine = ours.versions()
    for key in sorted(mine.keys() | theirs.keys()):
        if mine.get(key) != theirs.get(key):
            yield f"{key}: functions {mine.get(key)} and in the reference {theirs.get(key)}"


def compare_stored(ours, on_purpose):
    """Functions that do not depend on the call, as they are written. Gives differences, and how many were compared."""
    compared, found = 0, []
    for schema in defs.get_all_schemas_with_history():
        for since in schema.function_opset_versions:
            theirs = FunctionProto.FromString(schema.get_function_with_opset_version(since))
            mine = ours.function("plain", schema.domain, schema.name, since)
            compared += 1
            lines = list(differences(mine, theirs, on_purpose))
            if lines:
                found.append("\n".join([f"{schema.name}-{schema.since_version}, function of opset {since}", *lines]))
    return found, compared


def compare_plain(ours, on_purpose):
    """The same, asked for at each opset version. Gives differences, and how often they were asked for."""
    compared, found = 0, []
    for domain, name in sorted({(schema.domain, schema.name) for schema in defs.get_all_schemas_with_history()}):
        for opset in range(1, NEWEST + 1):
            if not defs.has(name, opset, domain):
                continue
            schema = defs.get_schema(name, opset, domain)
            theirs = None
            since = max((since for since in schema.function_opset_versions if since <= opset), default=None)
            if since is not None:
                theirs = FunctionProto.FromString(schema.get_function_with_opset_version(opset))
                # The reference makes this check only where it is asked to, which the binding cannot do.
                theirs = theirs if fits(theirs, since, opset) else None
                compared += 1
            mine = ours.function("plain", domain, name, opset)
            lines = list(differences(mine, theirs, on_purpose))
            if lines:
                found.append("\n".join([f"{name} at opset {opset}", *lines]))
    return found, compared


def fits(function, since, opset):
    """Whether what a function calls is at an opset version what it was when the function was written."""

    def version(name, opset):
        return defs.get_schema(name, opset).since_version if defs.has(name, opset) else None

    names = {node.op_type for node in function.node if node.domain in ("", "ai.onnx")}
    return all(version(name, since) == version(name, opset) for name in names)


def compare_call(ours, on_purpose, schema, opset, node, types, theirs):
    # Where a builder gives up halfway, the nodes that it had are left in a function without a name.
    theirs = theirs if theirs.name else None
    holder = helper.make_graph([], "types", [helper.make_value_info(f"{i}", TypeProto.FromString(t)) for i, t in enumerate(types)], [])
    holder = helper.make_model(holder)
    mine = ours.function("call", node.hex(), holder.SerializeToString().hex(), opset)
    lines = list(differences(mine, theirs, on_purpose))
    if lines:
        shown = helper.printable_node(NodeProto.FromString(node))
        types = [str(TypeProto.FromString(text)).replace("\n", " ") for text in types]
        lines.insert(0, f"{schema.name}-{schema.since_version} at opset {opset}: {shown} {types}")
    return lines


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("program", help="what `dump_functions` was built to")
    arguments.add_argument("--verbose", action="store_true", help="say how many calls there are of each operator")
    arguments = arguments.parse_args()
    # Making the cases sets off numeric warnings that say nothing about functions.
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    ours = Ours(arguments.program)

    on_purpose = Counter()
    found = list(compare_versions(ours))
    stored, bodies = compare_stored(ours, on_purpose)
    plain, asked = compare_plain(ours, on_purpose)
    found += stored + plain
    counts = {}
    for name, calls in ("backend cases", backend_calls()), ("odd ones", odd_calls()):
        by_operator = defaultdict(lambda: [0, 0])
        for call in calls.found:
            lines = compare_call(ours, on_purpose, *call)
            if lines:
                found.append("\n".join(lines))
            by_operator[call[0].name][0] += 1
            by_operator[call[0].name][1] += not call[4].name
        counts[name] = len(calls.found)
        if arguments.verbose:
            for operator, (count, without) in sorted(by_operator.items()):
                print(f"{name}: {operator} {count}, {without} without a function")
    print(*found, sep="\n", end="\n" if found else "")
    for reason, count in on_purpose.items():
        print(f"on purpose, {count} times: {reason}")
    calls = ", ".join(f"{count} calls of {name}" for name, count in counts.items())
    print(f"{len(found)} differences in {bodies} plain functions, {asked} answers by opset version, and {calls}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
