"""State that stays between the runs of a session: results are those of passing all values by hand, bit for bit."""

import copy
import gc
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import sardonyx
from sardonyx import SessionState, StatePair

# A decoder of two layers: a cache of the operator, and one that Concat joins. The last node fails for an index that does not
# exist, after all rows have been written.
DECODER = """decoder (int64[batch, n] ids, int64 at,
        float[batch, 2, past, 4] past_0_key, float[batch, 2, past, 4] past_0_value,
        float[batch, 2, past, 4] past_1_key, float[batch, 2, past, 4] past_1_value)
    => (float[batch, n, 16] logits, float z,
        float[batch, 2, total, 4] present_0_key, float[batch, 2, total, 4] present_0_value,
        float[batch, 2, total, 4] present_1_key, float[batch, 2, total, 4] present_1_value)
    <float[16, 8] table, float[2] last = {1, 2}, int64[4] heads = {0, -1, 2, 4}, int64[3] flat = {0, 0, 8}> {
    embedded = Gather (table, ids)
    split = Reshape (embedded, heads)
    q_0 = Transpose <perm = [0, 2, 1, 3]> (split)
    k_0 = Sin (q_0)
    v_0 = Cos (q_0)
    y_0, present_0_key, present_0_value = Attention <is_causal = 1> (q_0, k_0, v_0, , past_0_key, past_0_value)
    k_1 = Cos (y_0)
    v_1 = Sin (y_0)
    present_1_key = Concat <axis = 2> (past_1_key, k_1)
    present_1_value = Concat <axis = 2> (past_1_value, v_1)
    turned = Transpose <perm = [0, 1, 3, 2]> (present_1_key)
    scores = MatMul (y_0, turned)
    weights = Softmax <axis = -1> (scores)
    y_1 = MatMul (weights, present_1_value)
    joined = Transpose <perm = [0, 2, 1, 3]> (y_1)
    hidden = Reshape (joined, flat)
    columns = Transpose (table)
    logits = MatMul (hidden, columns)
    z = Gather (last, at)
}"""
DIRECTORIES = Path(__file__).parents[3] / "tests" / "generate"
NAMES = [f"{layer}_{part}" for layer in (0, 1) for part in ("key", "value")]
#: Elements of a row of one sequence, in all four caches.
ROW = 4 * 2 * 4 * 4
# Ends after as many turns as there are integers, unless `go` is false.
ENDLESS = """g (float[1] x, bool go, float[p] past) => (float[q] present, float[1] y) {
    present = Concat <axis = 0> (past, x)
    y = Loop (, go, x) <body = turn (int64 i, bool c, float[1] v) => (bool d, float[1] w) { d = Identity (c) w = Neg (v) }> }"""


def model(text, opset=24):
    return sardonyx.parser.parse_model(f'<ir_version: 11, opset_import: ["": {opset}]>\n{text}')


def session(text, **options):
    return sardonyx.Session(model(text), **options)


def decoder(**options):
    table = np.random.default_rng(3).normal(size=(16, 8)).astype(np.float32)
    numbers = ", ".join(repr(float(number)) for number in table.ravel())
    return session(DECODER.replace("[16, 8] table", f"[16, 8] table = {{{numbers}}}"), **options)


@pytest.fixture(scope="module")
def shared():
    return decoder(threads=1)


def same(found, wanted):
    return found.dtype == wanted.dtype and found.shape == wanted.shape and found.tobytes() == wanted.tobytes()


class Both:
    """A state, and the values that it should have."""

    def __init__(self, session, batch=1, **options):
        self.state = session.state(batch=batch, **options)
        self.values = {name: np.zeros((batch, 2, 0, 4), np.float32) for name in NAMES}

    def clone(self):
        other = copy.copy(self)
        other.state, other.values = self.state.clone(), dict(self.values)
        return other

    @property
    def batch(self):
        return self.values[NAMES[0]].shape[0]

    def check(self):
        assert len(self.state) == self.values[NAMES[0]].shape[2]
        assert all(same(self.state.value(f"past_{name}"), value) for name, value in self.values.items())

    def append(self, ids):
        feeds = {"ids": ids, "at": np.int64(1)}
        found = self.state.run(feeds)
        wanted = self.state.session.run(feeds | {f"past_{name}": value for name, value in self.values.items()})
        assert list(found) == ["logits", "z"]
        assert all(same(value, wanted[name]) for name, value in found.items())
        self.values = {name: wanted[f"present_{name}"] for name in NAMES}
        self.check()

    def map(self, change):
        self.values = {name: np.ascontiguousarray(change(value)) for name, value in self.values.items()}
        self.check()


@pytest.mark.parametrize("threads", [1, 2])
def test_runs_have_the_bits_of_values_passed_by_hand(threads):
    both = Both(decoder(threads=threads), batch=2, capacity=16)
    state, rng = both.state, np.random.default_rng(1)
    assert isinstance(state, SessionState) and len(state) == 0
    assert state.pairs == [StatePair(f"past_{name}", f"present_{name}") for name in NAMES]
    assert all(state.is_appended(pair.input) for pair in state.pairs) and not state.is_appended("ids")
    assert state.can_truncate and state.nbytes == 16 * 2 * ROW
    for rows in (5, 1, 1, 3, 1, 5):
        both.append(rng.integers(16, size=(2, rows)))
        assert state.copied_bytes == 0
    assert (len(state), state.capacity) == (16, 16)
    # One more row does not fit.
    both.append(rng.integers(16, size=(2, 1)))
    assert (state.copied_bytes, state.capacity) == (16 * 2 * ROW, 64)
    state.reserve(100)
    assert state.capacity == 100 and len(state) == 17
    both.check()


@pytest.mark.parametrize("name", ["tiny-gpt2", "tiny-qwen2"])
def test_exported_decoders_have_the_bits_of_values_passed_by_hand(name):
    made = sardonyx.Session(DIRECTORIES / name / "model.onnx", threads=1)
    state, rng, length = made.state(batch=2), np.random.default_rng(2), 0
    values = {pair.input: state.value(pair.input) for pair in state.pairs}
    for rows in (7, 1, 1, 2, 1):
        feeds = {
            "input_ids": rng.integers(300, size=(2, rows)),
            "attention_mask": np.ones((2, length + rows), np.int64),
            "position_ids": np.arange(length, length + rows)[None].repeat(2, axis=0),
        }
        feeds = {port.name: feeds[port.name] for port in made.inputs if port.name in feeds}
        found, wanted = state.run(feeds), made.run(feeds | values)
        assert list(found) == ["logits"] and same(found["logits"], wanted["logits"])
        values = {pair.input: wanted[pair.output] for pair in state.pairs}
        length += rows
        assert len(state) == length and state.capacity == 64
        assert all(same(state.value(name), value) for name, value in values.items())
    assert state.copied_bytes == 0


def test_any_schedule_has_the_bits_of_values_passed_by_hand(shared):
    for seed in range(8):
        rng, arrays = random.Random(seed), np.random.default_rng(seed)
        states = [Both(shared, batch=2), Both(shared, batch=1, capacity=20)]
        for _ in range(60):
            both = rng.choice(states)
            kind = rng.randrange(9)
            if kind == 0 and len(states) < 6:
                states.append(both.clone())
            elif kind == 1:
                length = rng.randrange(len(both.state) + 2)
                both.state.truncate(length)
                both.map(lambda value: value[:, :, :length])  # noqa: B023
            elif kind == 2:
                members = [rng.randrange(both.batch) for _ in range(rng.randrange(1, 4))]
                both.state.select(rng.choice([members, tuple(members), np.array(members), iter(members)]))
                both.map(lambda value: value[members])  # noqa: B023
            elif kind == 3:
                saved = {name: states[0].state.value(f"past_{name}") for name in NAMES}
                for name, value in saved.items():
                    both.state.set_value(f"past_{name}", value)
                both.values = saved
                both.check()
            elif kind == 4:
                with pytest.raises(sardonyx.Error) as raised:
                    both.state.run({"ids": arrays.integers(16, size=(both.batch, 3)), "at": 7})
                assert raised.value.code == "run"
                both.check()
            else:
                both.append(arrays.integers(16, size=(both.batch, 1 + rng.randrange(4) * rng.randrange(3))))
        for both in states:
            both.check()


def test_copies_share_memory_until_one_of_them_runs(shared):
    both = Both(shared, capacity=8)
    both.append([[1, 2, 3]])
    for make in (SessionState.clone, copy.copy, copy.deepcopy):
        other = both.clone()
        other.state = make(both.state)
        assert other.state.session is shared and other.state.pairs == both.state.pairs
        both.append([[4]])
        assert both.state.copied_bytes == (len(both.state) - 1) * ROW
        other.append([[5]])
        assert other.state.copied_bytes == 0
        both.check()


def test_a_state_is_saved_and_restored(shared, tmp_path):
    both = Both(shared)
    both.append([[1, 2, 3]])
    path = tmp_path / "state.npz"
    np.savez(path, **{pair.input: both.state.value(pair.input) for pair in both.state.pairs})
    later = Both(shared)
    for name, value in np.load(path).items():
        later.state.set_value(name, value)
    later.values = both.values
    later.append([[4]])
    # A value is an array of its own.
    later.state.value("past_0_key")[:] = 7
    later.check()


def test_values_have_all_forms(shared):
    class OfDlpack:
        def __init__(self, values):
            self.__dlpack__, self.__dlpack_device__ = values.__dlpack__, values.__dlpack_device__

    both = Both(shared)
    for ids in ([[1, 2]], np.array([[1, 2], [3, 4]])[:, ::-1][1:], OfDlpack(np.array([[3]])), sardonyx.Tensor([[4]], dtype="int64")):
        both.append(ids)
    state, value = both.state, both.state.value("past_0_key")
    twice = np.repeat(value, 2, axis=3)[..., ::2]
    for given in (value, twice, value.tolist(), OfDlpack(value), sardonyx.Tensor(value), value.astype(">f4")):
        state.set_value("past_0_key", np.zeros((1, 2, 0, 4), np.float32))
        state.set_value("past_0_key", given)
        assert same(state.value("past_0_key"), value)
    half = session("g (bfloat16[n, 2] x, bfloat16[p, 2] past) => (bfloat16[q, 2] present) { present = Concat <axis = 0> (past, x) }")
    state = half.state()
    x = np.array([[1.5, -2]], ml_dtypes.bfloat16)
    assert state.run({"x": x}) == {}
    assert state.run({"x": sardonyx.Tensor(x)}) == {}
    assert same(state.value("past"), np.concatenate([x, x]))


def test_outputs_are_selected(shared):
    state = shared.state()
    feeds = {"ids": [[1]], "at": 0}
    assert list(state.run(feeds, outputs=["z"])) == ["z"]
    assert list(state.run(feeds, outputs=("z", "logits", "z"))) == ["z", "logits"]
    assert state.run(feeds, outputs=[]) == {} and len(state) == 3
    with pytest.raises(sardonyx.Error, match="the state keeps the output 'present_0_key'") as raised:
        state.run(feeds, outputs=["present_0_key"])
    assert raised.value.code == "output" and "value('past_0_key')" in raised.value.help
    with pytest.raises(sardonyx.Error, match="no output 'y'"):
        state.run(feeds, outputs=["y"])
    with pytest.raises(TypeError):
        state.run(feeds, outputs="z")
    assert len(state) == 3


def test_pairs_are_given_and_found(shared):
    found = StatePair.find(shared)
    assert found == [StatePair(f"past_{name}", f"present_{name}") for name in NAMES]
    assert repr(found[0]) == "StatePair('past_0_key', 'present_0_key')"
    text = """g (float[n, 2] x, float[p, 2] a, float[2, m, o] b) => (float[q, 2] c, float[2, m, o] d) {
        c = Concat <axis = 0> (a, x) d = Neg (b) }"""
    made = session(text)
    assert StatePair.find(made) == []
    with pytest.raises(sardonyx.Error, match="no output becomes an input by its name") as raised:
        made.state()
    assert raised.value.code == "argument" and "StatePair" in raised.value.help
    state = made.state([("a", "c")])
    b = np.zeros((2, 3, 4), np.float32)
    assert state.run({"x": [[1.0, 2]], "b": b})["d"].shape == (2, 3, 4) and len(state) == 1
    with pytest.raises(sardonyx.Error, match="the size of 'm' is open"):
        made.state([("b", "d")])
    assert made.state([("b", "d")], dims={"m": 3}).value("b").shape == (2, 3, 0)
    pair = StatePair("b", "d", first_dims=np.array(b.shape), axis=1, batch_axis=2)
    assert (pair.input, pair.output, pair.first_dims, pair.axis, pair.batch_axis) == ("b", "d", (2, 3, 4), 1, 2)
    assert repr(pair) == "StatePair('b', 'd', first_dims=[2, 3, 4], axis=1, batch_axis=2)" and pair != StatePair("b", "d")
    state = made.state(iter([("a", "c"), pair]), capacity=10)
    assert repr(state) == f"SessionState([StatePair('a', 'c'), {pair!r}])"
    b = np.arange(24, dtype=np.float32).reshape(b.shape)
    state.set_value("b", b)
    state.run({"x": np.zeros((3, 2), np.float32)})
    assert state.is_appended("a") and not state.is_appended("b") and state.capacity == 10
    assert state.copied_bytes == b.nbytes
    state.truncate(2)
    state.select([2, 0])
    assert len(state) == 2 and np.array_equal(state.value("b"), -b[:, :2][:, :, [2, 0]])


def test_a_value_does_not_alias_memory_of_the_caller():
    """An output that is an input of the run, of a size that runs borrow."""
    made = session("g (float[n] x, float[n] past) => (float[n] y, float[n] present) { y = Add (x, past) present = Identity (x) }")
    state = made.state(dims={"n": 100_000}, pairs=[StatePair("past", "present", first_dims=[100_000])])
    x = np.ones(100_000, np.float32)
    state.run({"x": x})
    x[:] = 5
    assert state.run({"x": x})["y"].tolist() == [6] * 100_000
    assert state.copied_bytes == 400_000
    gc.collect()
    found = state.value("past")
    found[:] = 9
    assert state.value("past").tolist() == [5] * 100_000


def test_reasons_to_copy_rows_are_explained(shared):
    state = shared.state()
    assert state.explain({"ids": [[1, 2]], "at": 0}) == {pair.input: [] for pair in state.pairs}
    text = "g (float[n] x, float[p] past) => (float[q] present, float[q] y) { present = Concat <axis = 0> (x, past) y = Neg (present) }"
    reasons = session(text).state().explain({"x": [1.0]})
    assert list(reasons) == ["past"] and "does not begin with the input" in reasons["past"][0]
    with pytest.raises(sardonyx.Error) as raised:
        state.explain({"idz": 1})
    assert raised.value.code == "input"


def wrong_calls(state):
    pair, shared = StatePair("past_0_key", "present_0_key"), state.session
    ids = {"ids": [[1]], "at": 0}
    return [
        ("input", "the inputs are a list", lambda: state.run([1])),
        ("input", "'idz'", lambda: state.run({"idz": 1})),
        ("input", "'ids'", lambda: state.run({"at": 0})),
        ("input", "given, but the state keeps it", lambda: state.run(ids | {"past_0_key": state.value("past_0_key")})),
        ("input", "the state keeps it", lambda: state.run(ids | {"past_0_key": np.zeros(100_000, np.float32)})),
        ("input", "'ids'", lambda: state.run({"ids": 1.5, "at": 0})),
        ("stopped", "timeout", lambda: state.run(ids, timeout=0)),
        ("argument", "no input 'x'", lambda: state.value("x")),
        ("argument", "no input 'ids'", lambda: state.set_value("ids", [[1]])),
        ("input", "is float of rank 4, but the new value is float[1]", lambda: state.set_value("past_0_key", [1.0])),
        ("input", "not an array", lambda: state.set_value("past_0_key", object())),
        ("input", "none has the number 1", lambda: state.select([1])),
        ("input", "the number -1", lambda: state.select([-1])),
        ("argument", "length must be 0 or more, not -1", lambda: state.truncate(-1)),
        ("argument", "rows must be 0 or more, not -2", lambda: state.reserve(-2)),
        ("argument", "batch must be 0 or more, not -1", lambda: shared.state(batch=-1)),
        ("argument", "capacity must be 0 or more, not -1", lambda: shared.state(capacity=-1)),
        ("run", "overflows", lambda: shared.state(capacity=2**70)),
        ("argument", "dims holds", lambda: shared.state(dims={"n": -1})),
        ("argument", "axis must be 0 or more", lambda: StatePair("a", "b", axis=-1)),
        ("argument", "no input 'a'", lambda: shared.state([("a", "present_0_key")])),
        ("argument", "no output 'b'", lambda: shared.state([("past_0_key", "b")])),
        ("argument", "no output becomes an input", lambda: shared.state([])),
        ("input", "in two pairs", lambda: shared.state([pair, pair])),
        ("input", "has rank 1", lambda: shared.state([StatePair("past_0_key", "present_0_key", first_dims=[1])])),
    ]


def test_errors_say_what_is_wrong_and_leave_the_state(shared):
    both = Both(shared)
    both.append([[1, 2]])
    for code, message, call in wrong_calls(both.state):
        with pytest.raises(sardonyx.Error) as raised:
            call()
        assert raised.value.code == code and message in str(raised.value), (code, message, str(raised.value))
        both.check()
    for call in (
        lambda: shared.state("past_0_key"),
        lambda: shared.state([("a", "b", "c")]),
        lambda: shared.state(["ab"]),
        lambda: shared.state([5]),
        lambda: both.state.run(["z"], {"ids": [[1]]}),
        lambda: both.state.select(5),
        lambda: both.state.select(["a"]),
        lambda: both.state.truncate(1.5),
        lambda: both.state.value(5),
        lambda: StatePair("a"),
        lambda: StatePair("a", "b", first_dims=5),
        lambda: StatePair.find(5),
        lambda: SessionState(),
    ):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(ValueError):
        both.state.run({"ids": [[1]], "at": 0}, timeout=-1)
    both.append([[3]])


def test_the_memory_of_a_state_is_limited():
    made = decoder(memory_limit=20_000)
    state = made.state(capacity=100)
    for call in (lambda: made.state(capacity=1000), lambda: state.reserve(1000)):
        with pytest.raises(sardonyx.Error, match="memory limit is 20000") as raised:
            call()
        assert raised.value.code == "run"
    assert (state.capacity, state.nbytes) == (100, 100 * ROW)


def start(work, *args):
    thread = threading.Thread(target=work, args=args)
    thread.start()
    return thread


def test_threads_take_turns_on_a_state(shared):
    """Whatever their order, each run appends its row once."""
    state = shared.state()

    def work(number):
        for _ in range(40):
            state.run({"ids": [[number]], "at": 0})
            assert 0 < len(state) <= 320

    threads = [start(work, number) for number in range(8)]
    for thread in threads:
        thread.join()
    assert len(state) == 320
    keys = state.value("past_0_key")[0].transpose(1, 0, 2).reshape(320, 8)
    rows, counts = np.unique(keys, axis=0, return_counts=True)
    assert len(rows) == 8 and counts.tolist() == [40] * 8


def test_threads_run_states_of_one_session(shared):
    failures = []

    def work(seed):
        try:
            both, rng = Both(shared, batch=1 + seed % 3), np.random.default_rng(seed)
            for _ in range(30):
                both.append(rng.integers(16, size=(both.batch, 1 + seed % 2)))
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [start(work, seed) for seed in range(6)]
    for thread in threads:
        thread.join()
    assert not failures


def test_a_run_releases_the_interpreter_and_others_wait_for_it():
    state = session(ENDLESS).state()
    state.run({"x": [1.0], "go": False})
    flag, codes = sardonyx.StopFlag(), []

    def work():
        try:
            state.run({"x": [1.0], "go": True}, stop=flag)
        except sardonyx.Error as error:
            codes.append(error.code)

    thread = start(work)
    # That this thread goes on shows that the run releases the interpreter.
    begun = time.monotonic()
    while time.monotonic() < begun + 60:
        with sardonyx.deadline(0.01):
            try:
                len(state)
            except sardonyx.Error as error:
                assert error.code == "stopped"
                assert error.message == "the time limit was reached while another thread changed the state"
                break
    else:
        pytest.fail("the run has not begun")
    with pytest.raises(sardonyx.Error, match="the time limit was reached while another thread changed the state"):
        state.run({"x": [1.0], "go": False}, timeout=0.01)
    assert codes == []
    flag.stop()
    thread.join()
    assert codes == ["stopped"] and len(state) == 1
    state.run({"x": [2.0], "go": False})
    assert state.value("past").tolist() == [1, 2]


PROGRAM = f"""
import signal
import sardonyx

state = sardonyx.Session({model(ENDLESS)!r}).state()
state.run({{"x": [1.0], "go": False}})
found = []

def handler(*_):
    # Would wait for the run that it interrupts.
    try:
        len(state)
    except RuntimeError as error:
        found.append("same thread" in str(error))
    1 / 0

signal.signal(signal.SIGINT, handler)
print("runs", flush=True)
try:
    state.run({{"x": [1.0], "go": True}})
except ZeroDivisionError:
    print(len(state), *found)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_a_signal_handler_ends_a_run_and_leaves_the_state():
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "runs\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
    assert rest == "1 True\n"


def test_a_state_keeps_its_session_alive():
    made = decoder()
    state = made.state()
    del made
    gc.collect()
    assert state.run({"ids": [[1]], "at": 0})["logits"].shape == (1, 1, 16)
    assert state.session.inputs[0].name == "ids"
