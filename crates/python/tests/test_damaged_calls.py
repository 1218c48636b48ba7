"""Calls with anything: each returns or raises an exception of Python, and nothing panics."""

import array
import contextlib
import itertools
import random
import threading

import ml_dtypes
import numpy as np
import pytest
import sardonyx
from sardonyx import _core, defs, ort

OpSchema = defs.OpSchema
ELU = defs.get_schema("Elu")
CALLS = 10_000
TEXTS = [
    "g (float[N, 3] x, float[N] y) => (float[N, 3] z, float[M] w) { z = Relu (x) w = Neg (y) }",
    "g (string[N] x, optional(float[N]) y) => (string[N] z, bool w) { z = Identity (x) w = OptionalHasElement (y) }",
    "g (seq(float[N]) x, int8[N] y) => (float[] z, int8[N] w) { z = ConcatFromSequence <axis = 0> (x) w = Abs (y) }",
    "g (int4[N] x, bfloat16[N] y) => (int4[N] z, float[N] w) { z = Identity (x) w = Cast <to = 1> (y) }",
    "g (float[N] x, int64[K] y) => (float[] z, int64[] w) { z = Reshape (x, y) w = Shape (x) }",
    "g (complex64[N] x, bool y) => (complex64[N] z, bool w) { z = Identity (x) w = Not (y) }",
]


class Liar:
    """Says different things each time, or raises."""

    def __init__(self, rng):
        self.rng = rng

    def _lie(self):
        kind = self.rng.randrange(5)
        if kind == 0:
            raise self.rng.choice([ValueError, KeyError, RuntimeError, MemoryError])("a lie")
        return [None, 5, "text", (1, 2), self][kind]

    dtype = shape = property(_lie)

    def __array__(self, *args, **kwargs):
        return self._lie()

    def __dlpack__(self, *args, **kwargs):
        return self._lie()

    def __dlpack_device__(self):
        return self._lie()

    def __len__(self):
        return self.rng.choice([0, 1, 2**62])

    def __getitem__(self, index):
        return self._lie()

    def __index__(self):
        return self.rng.choice([0, -1, 2**70])

    def __iter__(self):
        return iter([self._lie()])

    def keys(self):
        return self._lie()

    def items(self):
        return self._lie()

    def tolist(self):
        return self._lie()


class Growing(list):
    """A list that gets longer and shorter while it is read."""

    def __iter__(self):
        for number in range(5):
            self.append(float(number))
            yield number
        self.clear()


class Texts(str):
    def __hash__(self):
        return 7

    def __eq__(self, other):
        raise RuntimeError("not comparable")


def number(rng):
    return rng.choice([0, 1, -1, 2.5, 2**31, 2**63, 2**64, -(2**70), 10**400, float("nan"), 1j, True, np.float32(2)])


def values(rng, depth=0):
    shape = rng.choice([(), (0,), (1,), (2,), (3,), (2, 3), (0, 3), (2, 0), (1, 1, 1, 1), (1,) * 20])
    dtype = rng.choice(
        ["f4", "f8", "f2", "i8", "i1", "u2", "?", "c8", ">f4", ">i8", "U3", "S2", "O", "M8[s]", "g", "f4,i4", "V5",
         ml_dtypes.bfloat16, ml_dtypes.int4, ml_dtypes.float8_e5m2, ml_dtypes.uint2]
    )  # fmt: skip
    kinds = [
        lambda: np.zeros(shape, dtype),
        lambda: np.zeros(shape, dtype).T[::-1] if shape else np.zeros((), dtype),
        lambda: np.broadcast_to(np.zeros((1,), "f4"), (2**20, 2**20)),
        lambda: np.lib.stride_tricks.as_strided(np.zeros(4, "f4"), (2, 3), (1, 1)),
        lambda: np.array([None, Liar(rng), "a"], dtype=object),
        lambda: np.float32,
        lambda: np.matrix([[1, 2, 3]]),
        lambda: number(rng),
        lambda: rng.choice(["", "a", "\ud800", "x" * 1000, b"", b"\xff", bytearray(b"ab")]),
        lambda: memoryview(bytearray(12)).cast("f"),
        lambda: memoryview(bytearray(12))[::-2],
        lambda: array.array("u", "ab"),
        lambda: None,
        lambda: object,
        lambda: object(),
        lambda: Liar(rng),
        lambda: Growing([1.0]),
        lambda: rng.choice([{}, {"a": 1}, {1: 2}, set(), range(3), iter([1])]),
        lambda: sardonyx.SparseTensor(np.zeros(1, "f4"), np.zeros(1, "i8"), (3,)),
        lambda: sardonyx.StopFlag(),
    ]
    if depth < 3:
        kinds += [lambda: [values(rng, depth + 1) for _ in range(rng.randrange(3))]] * 4
        kinds += [lambda: (values(rng, depth + 1),)]
    return rng.choice(kinds)()


# By model: inputs that are right, so that some calls get as far as the run.
GOOD = [
    lambda: (np.zeros((2, 3), "f4"), [1, 2]),
    lambda: (["a"], None),
    lambda: ([[1.0]], np.zeros(2, "i1")),
    lambda: ([1, 2], [1.5]),
    lambda: (np.zeros(6, "f4"), np.array([2, 3])),
    lambda: ([1j], True),
]


def feeds(rng, which):
    if rng.randrange(4) == 0:
        return dict(zip("xy", GOOD[which](), strict=True))
    names = ["x", "y", "z", "", "x\0", Texts("x"), 5, None, ("x",)]
    kind = rng.randrange(12)
    if kind == 0:
        return values(rng)
    if kind == 1:
        return [("x", values(rng))]
    feed = {"x": values(rng), "y": values(rng)}
    if kind == 2:
        feed[rng.choice(names)] = values(rng)
    return feed


def call(rng, sessions, runtimes):
    with np.errstate(all="ignore"):
        which = rng.randrange(len(sessions))
        kind = rng.randrange(4)
        if kind == 0:
            outputs = rng.choice([None, None, [], ["z"], ["w", "w"], "z", [5], 7, ("q",), [None]])
            sessions[which].run(feeds(rng, which), outputs=outputs)
        elif kind == 1:
            sessions[which](*[values(rng) for _ in range(rng.randrange(4))])
        elif kind == 2:
            outputs = rng.choice([None, None, [], ["z"], ["w", "w"], "z", [5], 7, ("q",), [None]])
            options = rng.choice([None, None, ort.RunOptions(), 5])
            runtimes[which].run(outputs, feeds(rng, which), options)
        else:
            keywords = {rng.choice(["threads", "precision", "memory_limit", "dims", "seed", "q"]): values(rng)}
            model = sardonyx.parser.parse_model(f'<ir_version: 12, opset_import: ["": 23]> {TEXTS[which]}')
            if rng.randrange(2):
                model = model[: rng.randrange(len(model))]
            sardonyx.Session(rng.choice([model, model, values(rng)]), **keywords)


@pytest.fixture(scope="module")
def made():
    models = [sardonyx.parser.parse_model(f'<ir_version: 12, opset_import: ["": 23]> {text}') for text in TEXTS]
    return [sardonyx.Session(model) for model in models], [ort.InferenceSession(model) for model in models]


def run_calls(made, seeds):
    counts = {"returned": 0, "raised": 0}
    for seed in seeds:
        try:
            call(random.Random(seed), *made)
            counts["returned"] += 1
        except Exception:  # noqa: BLE001 - a panic is not an Exception
            counts["raised"] += 1
    return counts


@pytest.mark.filterwarnings("ignore")
def test_calls_with_anything_return_or_raise(made):
    counts = run_calls(made, range(CALLS))
    assert min(counts.values()) > CALLS // 100, counts


@pytest.mark.filterwarnings("ignore")
def test_and_so_they_do_in_many_threads(made):
    failures = []

    def work(number):
        try:
            run_calls(made, range(number * 1000, number * 1000 + 40))
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=[number]) for number in range(1, 17)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


class Lengthy:
    """A sequence that claims to be much longer than it is."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        raise IndexError(index)

    def __repr__(self):
        return f"Lengthy({self.length})"


class Shaped:
    """A sparse tensor of 2 values with any shape."""

    values, indices = np.zeros(2, "f4"), np.arange(2)

    def __init__(self, shape):
        self._shape = shape

    @property
    def shape(self):
        if isinstance(self._shape, BaseException):
            raise self._shape
        return self._shape


class ShapedArray(np.ndarray):
    """An array of any class of elements with any shape."""

    shape = property(lambda self: type(self).claimed)


FALSE_SHAPES = [
    None,
    5,
    "",
    "text",
    (-1,),
    (2**64,),
    (2**62, 2**62),
    (2.5,),
    ("2",),
    range(2**40),
    range(2**62),
    Lengthy(2**40),
    Lengthy(2**62),
    Lengthy(-1),
    itertools.repeat(1),
    (1,) * 65,
]


def identity(kind):
    text = f"g ({kind} x) => ({kind} y) {{ y = Identity (x) }}"
    return sardonyx.Session(sardonyx.parser.parse_model(f'<ir_version: 12, opset_import: ["": 23]> {text}'))


def growing():
    text = "g (float[batch, n] x, float[batch, p] past) => (float[batch, q] present) { present = Concat <axis = 1> (past, x) }"
    return sardonyx.Session(sardonyx.parser.parse_model(f'<ir_version: 12, opset_import: ["": 23]> {text}')).state()


@pytest.mark.filterwarnings("ignore")
def test_calls_of_a_state_with_anything_return_or_raise():
    state = growing()
    counts = {"returned": 0, "raised": 0}
    for seed in range(CALLS // 5):
        rng = random.Random(seed)
        calls = [
            lambda: state.run({"x": values(rng)} if rng.randrange(2) else values(rng)),  # noqa: B023
            lambda: state.run({"x": np.ones((len(state.value("past")), rng.randrange(3)), "f4")}),  # noqa: B023
            lambda: state.set_value(rng.choice(["past", "x", "", 5]), values(rng)),  # noqa: B023
            lambda: state.truncate(rng.choice([0, 1, 5, values(rng)])),  # noqa: B023
            lambda: state.select(rng.choice([[0], [0, 0], values(rng)])),  # noqa: B023
            lambda: state.reserve(rng.choice([0, 70, -1])),  # noqa: B023
            lambda: state.explain({"x": values(rng)}),  # noqa: B023
            lambda: state.session.state([(values(rng), values(rng))], capacity=rng.choice([0, 2**70])),  # noqa: B023
            lambda: state.clone().run({"x": [[1.0]]}),
        ]
        try:
            with np.errstate(all="ignore"):
                rng.choice(calls)()
            counts["returned"] += 1
        except Exception:  # noqa: BLE001 - a panic is not an Exception
            counts["raised"] += 1
        if state.nbytes > 1 << 20:
            state = growing()
    assert min(counts.values()) > CALLS // 100, counts


@pytest.mark.parametrize("shape", FALSE_SHAPES, ids=repr)
def test_a_false_shape_is_an_error(shape):
    sparse, text, bits = [identity(kind) for kind in ("sparse_tensor(float[N])", "string[N]", "bfloat16[N]")]
    claiming = type("Claiming", (ShapedArray,), {"claimed": shape})
    errors = (sardonyx.Error, TypeError, ValueError, OverflowError)
    for session, given in [
        (sparse, Shaped(shape)),
        (sparse, sardonyx.SparseTensor(Shaped.values, Shaped.indices, shape)),
        (text, np.array(["a", "b"], object).view(claiming)),
        (bits, np.zeros(2, ml_dtypes.bfloat16).view(claiming)),
    ]:
        with pytest.raises(errors):
            session(given)


def test_an_exception_of_a_shape_is_the_error():
    session = identity("sparse_tensor(float[N])")
    with pytest.raises(KeyError, match="a lie"):
        session(Shaped(KeyError("a lie")))


@pytest.mark.parametrize("names", [range(2**62), Lengthy(2**62), "z", 5], ids=repr)
def test_false_names_of_outputs_are_an_error(names):
    with pytest.raises((sardonyx.Error, TypeError)):
        sardonyx.Trainer(b"", outputs=names)


class Serializing:
    """A message whose bytes are any object."""

    def __init__(self, content):
        self.content = content

    def SerializeToString(self):
        return self.content


CALLS_WITH_LISTS = {
    "inputs": lambda items: OpSchema("A", "d", 1, inputs=items),
    "outputs": lambda items: OpSchema("A", "d", 1, outputs=items),
    "constraints": lambda items: OpSchema("A", "d", 1, type_constraints=items),
    "allowed types": lambda items: OpSchema("A", "d", 1, type_constraints=[("T", items, "")]),
    "attributes": lambda items: OpSchema("A", "d", 1, attributes=items),
    "default value": lambda items: OpSchema.Attribute("a", default_value=Serializing(items)),
    "type constraint": lambda items: OpSchema.TypeConstraintParam("T", items),
    "function of a node": lambda items: ELU.get_context_dependent_function(b"", items),
    "function at a version": lambda items: ELU.get_context_dependent_function_with_opset_version(18, b"", items),
    "types of a node": lambda items: ELU._infer_node_outputs(b"", {"x": items}),
    "constants of a node": lambda items: ELU._infer_node_outputs(b"", {}, {"x": items}),
    "types of a function": lambda items: _core.shape_inference.infer_function_output_types(b"", items, []),
    "attributes of a function": lambda items: _core.shape_inference.infer_function_output_types(b"", [], items),
    "functions": lambda items: _core.inliner.inline_selected_functions(b"", items, False),
    "functions and operators": lambda items: _core.inliner.inline_selected_functions2(b"", items, False),
    "assumptions": lambda items: _core.version_converter.convert(b"", 21, items, True),
    "variables": lambda items: sardonyx.add_training(b"", loss="squared-error", train=items),
    "frozen": lambda items: sardonyx.add_training(b"", loss="squared-error", freeze=items),
    "gradients": lambda items: sardonyx.differentiate(b"", by=items),
    "providers": lambda items: _core.ort.normalize_providers(items, []),
    "available": lambda items: _core.ort.normalize_providers([], items),
    "provider options": lambda items: _core.ort.normalize_providers([("CPUExecutionProvider", items)], []),
    "initializers": lambda items: ort.SessionOptions()._add_external(items, items),
    "pairs": lambda items: identity("float[N]").state(items),
    "members": lambda items: growing().select(items),
    "first dimensions": lambda items: sardonyx.StatePair("x", "y", first_dims=items),
    "files": lambda items: ort.SessionOptions()._add_files(items, items, items),
    "state": lambda items: _core.ort.SessionOptions().__setstate__(({}, items, items, items, items, items)),
}


@pytest.mark.parametrize("items", [range(2**62), Lengthy(2**40), Lengthy(2**62), "z", 5], ids=repr)
@pytest.mark.parametrize("name", CALLS_WITH_LISTS)
def test_a_false_length_of_a_list_does_no_harm(name, items):
    # A panic is not an Exception, and too large a reservation aborts the process.
    with contextlib.suppress(Exception):
        CALLS_WITH_LISTS[name](items)


@pytest.mark.parametrize("name", ["inputs", "allowed types", "type constraint", "functions", "providers"])
def test_a_text_is_not_a_list(name):
    with pytest.raises(TypeError, match="expected a list, found a str"):
        CALLS_WITH_LISTS[name]("z")
