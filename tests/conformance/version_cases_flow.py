"""Branches, loops, sequences and optional values: rows for `version_cases.py`."""

import numpy as np

from version_cases_rows import NEW_TYPES, floats, narrow, row, strings, vector

TRUE, FALSE = np.array(True), np.array(False)
X = floats(3)
FLOW = (1, 11, 13, 16, 19, 21, 23, 24, 25)
SCANS = (9, 11, 16, 19, 21, 23, 24, 25)

BRANCHES = """y = If (c) <
    then_branch = yes () => (float[3] a) { a = Neg (x) },
    else_branch = no () => (float[3] b) { b = Add (x, x) }
>"""
SHAPES_OF_BRANCHES = """y, z = If (c) <
    then_branch = yes () => (float[3] a, float[3] b) { a = Neg (x) b = Identity (x) },
    else_branch = no () => (float[3] a, float[3] b) { a = Add (x, x) b = Neg (x) }
>"""
IFS = [
    row("If", FLOW, BRANCHES, {"c": TRUE, "x": X}, lambda c, x: -x, "then"),
    row("If", FLOW, BRANCHES, {"c": FALSE, "x": X}, lambda c, x: x + x, "else"),
    row("If", FLOW, SHAPES_OF_BRANCHES, {"c": FALSE, "x": X}, lambda c, x: (x + x, -x), "two-outputs"),
    row(
        "If",
        FLOW[2:],
        "s = SequenceConstruct (x) "
        "y = If (c) <then_branch = yes () => (seq(float[3]) a) { a = SequenceInsert (s, x) }, "
        ""
        "else_branch = no () => (seq(float[3]) b) { b = SequenceErase (s) }>",
        {"c": TRUE, "x": X},
        lambda c, x: [x, x],
        "sequence",
        types={"y": "seq(float[3])"},
    ),
]

COUNTED = """v, all = Loop (m, c, x) <
    body = step (int64 i, bool go, float[3] s) => (bool still, float[3] t, float[3] u) {
        still = Identity (go)
        t = Add (s, s)
        u = Neg (s)
    }
>"""
UNTIL = """v = Loop ("", c, x) <
    body = step (int64 i, bool go, float s) => (bool still, float t) {
        t = Add (s, s)
        still = Less (t, limit)
    }
>"""
NUMBERED = """v, all = Loop (m, "", x) <
    body = step (int64 i, bool go, int64 s) => (bool still, int64 t, int64 u) {
        still = Identity (go)
        t = Add (s, i)
        u = Identity (i)
    }
>"""
LOOPS = [
    row(
        "Loop",
        FLOW,
        COUNTED,
        {"m": np.array(3, np.int64), "c": TRUE, "x": X},
        lambda m, c, x: (8 * x, np.stack([-x, -2 * x, -4 * x])),
        "count",
    ),
    row(
        "Loop",
        FLOW,
        COUNTED,
        {"m": np.array(3, np.int64), "c": FALSE, "x": X},
        lambda m, c, x: (x, np.zeros((0, 3), np.float32)),
        "not-once",
        types={"all": "float[n, 3]"},
    ),
    row(
        "Loop",
        FLOW,
        UNTIL,
        {"c": TRUE, "x": np.array(1, np.float32), "limit": np.array(20, np.float32)},
        lambda *_: np.array(32, np.float32),
        "condition",
    ),
    row(
        "Loop",
        FLOW[1:],
        NUMBERED,
        {"m": np.array(4, np.int64), "x": np.array(5, np.int64)},
        lambda m, x: (np.array(11), np.arange(4)),
        "number",
    ),
    row(
        "Loop",
        FLOW[2:],
        "s = SequenceConstruct (x) y = Loop (m, c, s) <body = step (int64 i, bool go, seq(float[3]) a) => (bool still, "
        "seq(float[3]) b) "
        "{ still = Identity (go) b = SequenceInsert (a, x) }>",
        {"m": np.array(2, np.int64), "c": TRUE, "x": X},
        lambda m, c, x: [x, x, x],
        "sequence",
        types={"y": "seq(float[3])"},
    ),
]

SUMS = """v, all = Scan <num_scan_inputs = 1 {attributes},
    body = step (float[2] s, float[2] e) => (float[2] t, float[2] u) {{
    t = Add (s, e)
    u = Identity (t)
}}> ({inputs})"""
BATCHES = {"s": floats(2, 2), "e": floats(2, 3, 2)}
SCANNED = {"s": floats(2), "e": floats(3, 2)}


def sums(start, elements):
    every = start + np.cumsum(elements, 0, dtype=np.float32)
    return every[-1], every


def sums_of_batches(starts, elements, backwards=False):
    found = [sums(*each) for each in zip(starts, elements[:, ::-1] if backwards else elements)]
    return tuple(np.stack(values) for values in zip(*found))


def shorter_batches(lengths, starts, elements):
    """What comes after the end of a sequence is 0."""
    every = sums_of_batches(starts, elements)[1]
    last = np.stack([rows[length - 1] for rows, length in zip(every, lengths)])
    within = np.arange(3)[None, :, None] < lengths[:, None, None]
    return last, np.where(within, every, np.float32(0))


SCAN = [
    row("Scan", (8,), SUMS.format(attributes="", inputs='"", s, e'), BATCHES, sums_of_batches, "batches"),
    row(
        "Scan",
        (8,),
        SUMS.format(attributes=", directions = [1]", inputs='"", s, e'),
        BATCHES,
        lambda s, e: sums_of_batches(s, e, True),
        "backwards",
    ),
    row(
        "Scan",
        (8,),
        SUMS.format(attributes="", inputs="n, s, e"),
        {"n": vector(3, 2)} | BATCHES,
        shorter_batches,
        "lengths",
    ),
    row("Scan", SCANS, SUMS.format(attributes="", inputs="s, e"), SCANNED, sums, "sum"),
    row(
        "Scan",
        SCANS,
        SUMS.format(attributes=", scan_input_directions = [1], scan_output_directions = [1]", inputs="s, e"),
        SCANNED,
        lambda s, e: (sums(s, e[::-1])[0], sums(s, e[::-1])[1][::-1]),
        "backwards",
    ),
    row(
        "Scan",
        SCANS,
        SUMS.format(attributes=", scan_input_axes = [1], scan_output_axes = [1]", inputs="s, e"),
        {"s": floats(2), "e": floats(2, 3)},
        lambda s, e: (sums(s, e.T)[0], sums(s, e.T)[1].T),
        "axes",
    ),
    row(
        "Scan",
        SCANS[1:],
        SUMS.format(attributes=", scan_input_axes = [-1], scan_output_axes = [-1]", inputs="s, e"),
        {"s": floats(2), "e": floats(2, 3)},
        lambda s, e: (sums(s, e.T)[0], sums(s, e.T)[1].T),
        "negative-axes",
    ),
]

# Types as the notation names them.
NAMES = {"float8_e4m3fn": "float8e4m3fn", "float4_e2m1fn": "float4e2m1", "float8_e8m0fnu": "float8e8m0"}
NEW = [
    row(
        operator,
        (since,),
        text.replace("KIND", NAMES.get(kind, kind)),
        inputs | {"x": narrow(kind, 2, 3)},
        compute,
        kind,
    )
    for since, kind in [*NEW_TYPES.items(), (16, "bfloat16")]
    for operator, text, inputs, compute in (
        (
            "If",
            "y = If (c) <then_branch = yes () => (KIND[2, 3] a) { a = Identity (x) }, else_branch = no () => (KIND[3, "
            "2] b) { b = Transpose (x) }>",
            {"c": TRUE},
            lambda c, x: x,
        ),
        (
            "Loop",
            "v, all = Loop (m, c, x) <body = step (int64 i, bool go, KIND[2, 3] s) => (bool still, KIND[2, 3] t, "
            "KIND[2, 3] u) "
            "{ still = Identity (go) t = Identity (s) u = Identity (s) }>",
            {"m": np.array(2, np.int64), "c": TRUE},
            lambda m, c, x: (x, np.stack([x, x])),
        ),
        (
            "Scan",
            "all = Scan <num_scan_inputs = 1, body = step (KIND[3] e) => (KIND[3] u) { u = Identity (e) }> (x)",
            {},
            lambda x: x,
        ),
    )
    if operator != "Scan" or since in SCANS
    if operator != "Loop" or since > 13
    if operator != "If" or since >= 21
]

AT = {"i": np.array(1, np.int64)}
SEQUENCES = [
    row(
        "SequenceAt",
        (11,),
        "s = SequenceConstruct (a, b) y = SequenceAt (s, i)",
        {"a": floats(2), "b": floats(3)} | AT,
        lambda a, b, i: b,
        "second",
    ),
    row(
        "SequenceConstruct",
        (11,),
        "s = SequenceConstruct (a, b)",
        {"a": strings("x"), "b": strings("y", "z")},
        lambda a, b: [a, b],
        "strings",
    ),
    row(
        "SequenceEmpty",
        (11,),
        "s = SequenceEmpty <dtype = 7> () y = SequenceLength (s)",
        {},
        lambda: np.array(0),
        "length",
    ),
    row(
        "SequenceErase",
        (11,),
        "s = SequenceConstruct (a, b, a) y = SequenceErase (s, i)",
        {"a": floats(2), "b": floats(3)} | AT,
        lambda a, b, i: [a, a],
        "middle",
    ),
    row(
        "SequenceErase",
        (11,),
        "s = SequenceConstruct (a, b) y = SequenceErase (s)",
        {"a": floats(2), "b": floats(3)},
        lambda a, b: [a],
        "last",
    ),
    row(
        "SequenceInsert",
        (11,),
        "s = SequenceConstruct (a, b) y = SequenceInsert (s, a, i)",
        {"a": floats(2), "b": floats(3)} | AT,
        lambda a, b, i: [a, a, b],
        "middle",
    ),
    row(
        "SequenceLength",
        (11,),
        "s = SequenceConstruct (a, a, a) y = SequenceLength (s)",
        {"a": floats(2)},
        lambda a: np.array(3),
        "three",
    ),
    row(
        "ConcatFromSequence",
        (11,),
        "s = SequenceConstruct (a, b) y = ConcatFromSequence <axis = -1> (s)",
        {"a": floats(2, 1), "b": floats(2, 3)},
        lambda a, b: np.concatenate([a, b], 1),
        "negative-axis",
    ),
    row(
        "ConcatFromSequence",
        (11,),
        "s = SequenceConstruct (a, a) y = ConcatFromSequence <axis = 1, new_axis = 1> (s)",
        {"a": floats(2, 3)},
        lambda a: np.stack([a, a], 1),
        "new-axis",
    ),
    row("Optional", (15, 28), "o = Optional (x) y = OptionalGetElement (o)", {"x": X}, lambda x: x, "tensor"),
    row(
        "Optional",
        (15, 28),
        "s = SequenceConstruct (x, x) o = Optional (s) y = OptionalGetElement (o)",
        {"x": X},
        lambda x: [x, x],
        "sequence",
        types={"y": "seq(float[3])"},
    ),
    row(
        "Optional",
        (15, 28),
        "o = Optional <type: type_proto = float[3]> () y = OptionalHasElement (o)",
        {},
        lambda: FALSE,
        "empty",
    ),
    row(
        "OptionalHasElement",
        (15, 18, 28),
        "o = Optional (x) y = OptionalHasElement (o)",
        {"x": X},
        lambda x: TRUE,
        "full",
    ),
    row(
        "OptionalGetElement", (15, 18, 28), "o = Optional (x) y = OptionalGetElement (o)", {"x": X}, lambda x: x, "full"
    ),
    row("OptionalGetElement", (18, 28), "y = OptionalGetElement (x)", {"x": X}, lambda x: x, "plain-tensor"),
]

ROWS = [*IFS, *LOOPS, *SCAN, *NEW, *SEQUENCES]
