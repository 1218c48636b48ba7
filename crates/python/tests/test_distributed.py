"""Workers that run a model together: over queues between threads, and what ends their work."""

import contextlib
import queue
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import sardonyx
from sardonyx.distributed import Rank, Worker

# A layer of a transformer, divided among four devices.
BLOCK = Path(__file__).parents[3] / "examples" / "distributed" / "block.onnx"

# Device 1 takes an element of what device 0 makes.
TWO = sardonyx.parser.parse_model("""
    <ir_version: 11, opset_import: ["": 21]>
    g (float[N] x, int64[1] at) => (float[1] y, float[N] z) {
        z = Neg (x) @<device_configurations: [{configuration_id: "c", pipeline_stage: 0}]>
        y = Gather (z, at) @<device_configurations: [{configuration_id: "c", pipeline_stage: 1}]>
    }
    @<configuration: [{name: "c", num_devices: 2}]>
""")


class Queues:
    """A transport between threads."""

    def __init__(self, rank, boxes):
        self.rank, self.size, self.boxes = rank, len(boxes), boxes

    def send(self, to, data):
        assert type(data) is bytes
        self.boxes[to].put((self.rank, data))

    def recv(self, timeout):
        try:
            return self.boxes[self.rank].get(timeout=timeout)
        except queue.Empty:
            return None


def queues(size, kind=Queues):
    boxes = [queue.SimpleQueue() for _ in range(size)]
    return [kind(rank, boxes) for rank in range(size)]


def made(model, transports, **options):
    """Workers, or what their making raises."""
    with ThreadPoolExecutor(len(transports)) as pool:
        futures = [pool.submit(Worker, model, transport=one, threads=1, **options) for one in transports]
        return [future.exception() or future.result() for future in futures]


@contextlib.contextmanager
def serving(model, transports, **options):
    """Worker 0, and the list that gets what `serve` of the others raises."""
    first, *others = made(model, transports, **options)
    raised = [None] * len(others)

    def serve(index, worker):
        try:
            with worker:
                worker.serve()
        except sardonyx.Error as error:
            raised[index] = error

    threads = [threading.Thread(target=serve, args=pair) for pair in enumerate(others)]
    for thread in threads:
        thread.start()
    try:
        with contextlib.suppress(sardonyx.Error), first:
            yield first, raised
    finally:
        for thread in threads:
            thread.join(timeout=60)
            assert not thread.is_alive()


def inputs(length):
    random = np.random.default_rng(length)
    return {"x": random.normal(size=(2, length, 64)).astype(np.float32)}


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_the_bits_of_threads_over_queues(size):
    threads = Worker(BLOCK, threads=1)
    assert (threads.rank, threads.size, threads.devices, threads.threads) == (0, 1, 4, 4)
    whole = sardonyx.Session(BLOCK)
    with serving(BLOCK, queues(size)) as (worker, raised):
        assert repr(worker) == f"Worker(rank 0 of {size}, 4 devices)"
        for length in (1, 7, 3, 7):
            feeds = inputs(length)
            expected = threads.run(feeds)
            found = worker.run(feeds)
            assert list(found) == ["y"]
            np.testing.assert_array_equal(found["y"], expected["y"])
            np.testing.assert_allclose(found["y"], whole.run(feeds)["y"], atol=1e-4)
        many = worker.run_many(inputs(length) for length in (2, 3, 2, 5))
        for length, found in zip((2, 3, 2, 5), many, strict=True):
            np.testing.assert_array_equal(found["y"], threads.run(inputs(length))["y"])
        assert worker.run_many([]) == []
    assert raised == [None] * (size - 1)


def test_inputs_and_outputs_are_those_of_sessions():
    feeds = {"x": [1, 2, 3], "at": [2]}
    with serving(TWO, queues(2)) as (worker, raised):
        assert [port.name for port in worker.inputs] == ["x", "at"]
        assert [port.type for port in worker.outputs] == ["float[1]", "float[N]"]
        assert {name: value.tolist() for name, value in worker.run(feeds).items()} == {"y": [-3], "z": [-1, -2, -3]}
        assert list(worker.run(feeds, outputs=["z"])) == ["z"]
        for wrong, message in [
            ({"x": [1.0]}, "the input 'at' is missing"),
            ({**feeds, "w": 1}, "the model has no input 'w'"),
            ({"x": ["a"], "at": [0]}, "the input 'x'"),
            (3, "the inputs are an int"),
        ]:
            with pytest.raises(sardonyx.Error, match=message) as found:
                worker.run(wrong)
            assert found.value.code == "input"
        with pytest.raises(sardonyx.Error, match="no output 'w'"):
            worker.run(feeds, outputs=["w"])
        # None of that ends anything.
        assert worker.run(feeds)["y"] == [-3]
        with pytest.raises(sardonyx.Error, match="worker 0 does not serve"):
            worker.serve()
    assert raised == [None]
    with pytest.raises(sardonyx.Error, match="the worker is closed"):
        worker.run(feeds)
    worker.close()


def test_a_node_that_fails_ends_its_run_alone():
    for model_of in (lambda: None, lambda: queues(2)):
        transports = model_of()
        feeds = {"x": [1.0], "at": [5]}
        if transports is None:
            worker = Worker(TWO)
            for _ in range(2):
                with pytest.raises(sardonyx.Error, match="Gather"):
                    worker.run(feeds)
            assert worker.run({"x": [1.0], "at": [0]})["y"] == [-1]
            continue
        with serving(TWO, transports) as (worker, raised):
            with pytest.raises(sardonyx.Error, match="worker 1 failed: .*Gather") as found:
                worker.run(feeds)
            assert found.value.code == "worker"
            assert worker.run({"x": [1.0], "at": [0]})["y"] == [-1]
        assert raised == [None]


def test_all_workers_get_results_if_they_ask_for_them():
    first, second = made(TWO, queues(2), results="all")
    taken = []
    serving = threading.Thread(target=second.serve, args=(taken.append,))
    serving.start()
    with first:
        for at in (0, 1, 2):
            feeds = {"x": [1.0, 2.0], "at": [at]}
            if at == 2:
                with pytest.raises(sardonyx.Error, match="Gather"):
                    first.run(feeds)
            else:
                assert first.run(feeds)["y"] == [-1 - at]
    serving.join(timeout=60)
    assert not serving.is_alive()
    assert [outputs["y"].tolist() for outputs in taken] == [[-1], [-2]]
    assert [outputs["z"].tolist() for outputs in taken] == [[-1, -2], [-1, -2]]
    with pytest.raises(sardonyx.Error, match="results is \"none\", which does not exist"):
        Worker(TWO, results="none")


SPLIT = """
    <ir_version: 11, opset_import: ["": 21]>
    g (float[3, 4] x) => (float[3, 4] y, float[3, 4] z) {
        y = Neg (x) @<device_configurations: [{configuration_id: "c", sharding_spec: [
            {tensor_name: "x", device: [0, 1], sharded_dim: [{axis: 1, simple_sharding: [{num_shards: 2}]}]}]}]>
        z = Abs (x)
    }
    @<configuration: [{name: "c", num_devices: 2}]>
"""


def test_outputs_stay_on_the_devices():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    model = sardonyx.parser.parse_model(SPLIT)

    def joined(parts):
        whole = np.full(parts[0].shape, np.nan, np.float32)
        for part in parts:
            indices = [[index for first, end in axis for index in range(first, end)] for axis in part.ranges]
            whole[np.ix_(*indices)] = part.value
        return whole

    # All devices in one process.
    with Worker(model, results="split") as worker:
        (outputs,) = worker.run_many([{"x": x}], outputs=["y"])
        assert list(outputs) == ["y"]
        assert [part.device for part in outputs["y"]] == [0, 1]
        assert outputs["y"][1].ranges == (((0, 3),), ((2, 4),))
        assert np.array_equal(joined(outputs["y"]), -x)

    first, second = made(model, queues(2), results="split")
    taken = []
    serving = threading.Thread(target=second.serve, args=(taken.append,))
    serving.start()
    with first:
        own = first.run({"x": x})
    serving.join(timeout=60)
    assert not serving.is_alive()
    (others,) = taken
    assert np.array_equal(joined(own["y"] + others["y"]), -x)
    assert np.array_equal(joined(own["z"] + others["z"]), x)


def test_what_a_worker_does_with_results_may_fail():
    first, second = made(TWO, queues(2), results="all")

    def refuse(outputs):
        raise LookupError(f"no room for {list(outputs)}")

    with ThreadPoolExecutor(1) as pool, contextlib.suppress(sardonyx.Error), first:
        served = pool.submit(second.serve, refuse)
        first.run({"x": [1.0], "at": [0]})
        error = served.exception(timeout=60)
        assert isinstance(error, LookupError) and "no room for ['y', 'z']" in str(error)
        with pytest.raises(sardonyx.Error, match="worker 1 failed: LookupError: no room"):
            first.run({"x": [1.0], "at": [0]})
    second.close()
    with pytest.raises(sardonyx.Error, match="results='all'"):
        Worker(TWO).serve(print)


def test_workers_with_other_models_or_options_say_so():
    for first, second, message in [
        ({}, {"seed": 3}, "seed 3"),
        ({"precision": "fast"}, {}, "precision Fast"),
    ]:
        one, two = queues(2)
        with ThreadPoolExecutor(2) as pool:
            futures = [
                pool.submit(Worker, TWO, transport=transport, **options)
                for transport, options in [(one, first), (two, second)]
            ]
            for future in futures:
                error = future.exception()
                assert isinstance(error, sardonyx.Error) and error.code == "worker"
                assert "workers 0 and 1 disagree" in str(error) and message in str(error)


def test_who_cannot_begin_tells_the_others(tmp_path):
    start = time.monotonic()
    one, two = queues(2)
    with ThreadPoolExecutor(2) as pool:
        other = pool.submit(Worker, TWO, transport=one)
        with pytest.raises(sardonyx.Error, match="missing.onnx"):
            Worker(tmp_path / "missing.onnx", transport=two)
        assert "worker 1 failed: Error: " in str(other.exception())
        one, two = queues(2)
        other = pool.submit(Worker, TWO, transport=one)
        with pytest.raises(sardonyx.Error, match="configuration"):
            Worker(TWO, "other", transport=two)
        assert "worker 1 failed: Error: " in str(other.exception())
    assert time.monotonic() - start < 30


def test_what_a_transport_raises_is_a_failure_that_names_a_worker():
    class Broken(Queues):
        how = None

        def send(self, to, data):
            if self.how == "send" and to == 0:
                raise ConnectionError("no such host")
            super().send(to, data)

        def recv(self, timeout):
            if self.how == "recv":
                raise LookupError("the name is gone")
            if self.how == "what":
                return 3
            return super().recv(timeout)

    for how, kind, message in [
        ("send", ConnectionError, "worker 0 is lost: worker 1 cannot send to it: ConnectionError: no such host"),
        ("recv", LookupError, "worker 1 failed: it cannot receive: LookupError: the name is gone"),
        ("what", TypeError, "worker 1 failed: it cannot receive: TypeError: recv returned 3, which is not "),
    ]:
        transports = queues(3, Broken)
        with serving(BLOCK, transports, deadline=4) as (worker, raised):
            worker.run(inputs(2))
            transports[1].how = how
            with pytest.raises(sardonyx.Error) as found:
                for _ in range(1000):
                    worker.run(inputs(2))
        for error in (found.value, *raised):
            assert message in str(error)
            assert error.code == "worker"
        assert type(raised[0].__cause__) is kind
        assert found.value.__cause__ is None


def test_transports_that_are_none():
    for transport, kind, message in [
        (object(), AttributeError, "rank"),
        (Queues("x", [None]), TypeError, "int"),
        (Queues(2, [None, None]), sardonyx.Error, "the rank 2 of the transport is not less than its size 2"),
    ]:
        with pytest.raises(kind, match=message):
            Worker(TWO, transport=transport)
    with pytest.raises(sardonyx.Error, match="the deadline must be 0.001 or more seconds, not 0"):
        Worker(TWO, deadline=0)


def test_a_worker_that_is_gone_is_named_after_the_deadline():
    class Mortal(Queues):
        is_dead = False

        def send(self, to, data):
            if not self.is_dead:
                super().send(to, data)

        def recv(self, timeout):
            found = super().recv(timeout)
            return None if self.is_dead else found

    for gone in (0, 2):
        transports = queues(4, Mortal)
        with serving(BLOCK, transports, deadline=1.5) as (worker, raised):
            worker.run(inputs(2))
            transports[gone].is_dead = True
            start = time.monotonic()
            if gone == 0:
                # Nobody but the one that is gone is to do anything.
                time.sleep(3)
            with pytest.raises(sardonyx.Error) as found:
                worker.run(inputs(2))
            assert time.monotonic() - start < 6
        others = [error for rank, error in enumerate((found.value, *raised)) if rank != gone]
        for error in others:
            assert error.code == "worker" and f"worker {gone} " in str(error)


def test_an_exception_in_the_block_is_told():
    with serving(TWO, queues(2)) as (_, raised):
        pass
    assert raised == [None]
    first, second = made(TWO, queues(2))
    with pytest.raises(ZeroDivisionError), first:
        1 / 0
    with pytest.raises(sardonyx.Error, match="worker 0 failed: ZeroDivisionError: division by zero"):
        second.serve()
    second.close()


def test_limits_end_a_run():
    endless = sardonyx.parser.parse_model("""
        <ir_version: 11, opset_import: ["": 21]>
        g (float[64, 64] x, int64 turns) => (float[64, 64] y) {
            go = Constant <value_int: int = 1> ()
            yes = Cast <to: int = 9> (go)
            y = Loop (turns, yes, x) <body = b (int64 i, bool c, float[64, 64] v) => (bool d, float[64, 64] w) {
                d = Identity (c)
                w = MatMul (v, v)
            }> @<device_configurations: [{configuration_id: "c", pipeline_stage: 1}]>
        }
        @<configuration: [{name: "c", num_devices: 2}]>
    """)
    feeds = {"x": np.zeros((64, 64), np.float32), "turns": np.int64(2**40)}
    with serving(endless, queues(2)) as (worker, raised):
        with pytest.raises(sardonyx.Error):
            worker.run(feeds, timeout=0.5)
    # Only the run has ended.
    assert raised == [None]
    worker, flag = Worker(endless), sardonyx.StopFlag()
    threading.Timer(0.5, flag.stop).start()
    with pytest.raises(sardonyx.Error) as found:
        worker.run(feeds, stop=flag)
    assert found.value.code in ("stopped", "run"), str(found.value)


# What ranks have in common that sum up, and a model for each of two ranks.
SUM = sardonyx.parser.parse_model("""
    <ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
    g (float[N] x) => (float[N] y) { y = com.microsoft.AllReduce (x) }
""")
RANKS = [
    sardonyx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
        g (float[1, 2] x) => (float[1, 2] y, float[M, 2] all) <float[2, 1] w = {{{w}}}, float[1, 2] v = {{{v}}}> {{
            h = MatMul (x, w)
            p = MatMul (h, v)
            y = com.microsoft.AllReduce (p)
            all = com.microsoft.AllGather <group_size = 2, axis = 0> (p)
        }}
    """)
    for w, v in (("1, 2", "3, 4"), ("5, 6", "7, 8"))
]


def on_ranks(models, work, transports=None, **options):
    """What the ranks return or raise, each in a thread of its own."""

    def one(pair):
        try:
            with Rank(pair[0], pair[1], threads=1, **options) as rank:
                return work(rank)
        except Exception as error:
            return error

    transports = queues(len(models)) if transports is None else transports
    with ThreadPoolExecutor(len(models)) as pool:
        return list(pool.map(one, zip(models, transports, strict=True)))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_ranks_run_together(size):
    def work(rank):
        assert rank.size == size and rank.threads == 1
        assert repr(rank) == f"Rank(rank {rank.rank} of {size})"
        assert [port.name for port in rank.inputs + rank.outputs] == ["x", "y"]
        sums = [rank.run({"x": np.full(n, rank.rank + 1, np.float32)})["y"].tolist() for n in (3, 1, 100)]
        assert rank.run({"x": [1.0]}, outputs=[]) == {}
        return sums

    expected = [[float(size * (size + 1) // 2)] * n for n in (3, 1, 100)]
    assert on_ranks([SUM] * size, work) == [expected] * size


def test_each_rank_may_have_a_model_of_its_own(tmp_path):
    paths = [tmp_path / f"rank{number}.onnx" for number in range(2)]
    for path, content in zip(paths, RANKS, strict=True):
        path.write_bytes(content)
    for models in (RANKS, paths):
        for found in on_ranks(models, lambda rank: rank.run({"x": [[1, 10]]})):
            assert found["y"].tolist() == [[21 * 3 + 65 * 7, 21 * 4 + 65 * 8]]
            assert found["all"].tolist() == [[63, 84], [455, 520]]


def test_what_is_wrong_with_ranks_is_said_to_all():
    other = sardonyx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]> g (float[N] x) => (float[N] y) { y = Neg (x) }
    """)
    for error in on_ranks([SUM, other], lambda rank: None):
        assert isinstance(error, sardonyx.Error) and error.code == "worker"
    # A model that is none is told to the others, which wait.
    first, second = on_ranks([SUM, b"no model"], lambda rank: None)
    assert second.code == "format" and "worker 1 failed" in str(first)

    def failing(rank):
        if rank.rank == 1:
            with pytest.raises(sardonyx.Error, match="the model has no input 'w'"):
                rank.run({"x": [1.0], "w": 1})
            raise ZeroDivisionError("nothing works")
        return rank.run({"x": [1.0]})

    first, second = on_ranks([SUM, SUM], failing)
    assert isinstance(second, ZeroDivisionError)
    assert first.code == "worker" and "nothing works" in str(first)
    with pytest.raises(sardonyx.Error, match="the deadline must be"):
        Rank(SUM, queues(1)[0], deadline=0)
    with pytest.raises(AttributeError):
        Rank(SUM, None)
    rank = Rank(SUM, queues(1)[0])
    rank.close()
    with pytest.raises(sardonyx.Error, match="the rank is closed"):
        rank.run({"x": [1.0]})


def test_a_session_alone_says_what_collectives_need():
    with pytest.raises(sardonyx.Error, match="sardonyx.distributed.Rank"):
        sardonyx.Session(SUM)


PROGRAM = """
import queue
import signal
import sys
import threading
import numpy as np
import sardonyx
from sardonyx.distributed import Worker

sys.path.insert(0, sys.argv[1])
from test_distributed import BLOCK, TWO, inputs, queues

# A shell lets what it starts in the background ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
first, second = queues(2)
said = []

def serve(transport):
    try:
        with Worker(TWO, transport=transport) as worker:
            worker.serve()
            said.append("ended")
    except sardonyx.Error as error:
        said.append(str(error))

def hold(transport):
    with Worker(TWO, transport=transport) as worker:
        started.wait()
        try:
            worker.run({"x": [1.0], "at": [0]})
            ended.wait()
            worker.run({"x": [1.0], "at": [0]})
        except sardonyx.Error as error:
            said.append(str(error))

started, ended = threading.Event(), threading.Event()
"""

CASES = {
    "serve": """
threading.Thread(target=hold, args=(first,)).start()
worker = Worker(TWO, transport=second)
print("runs", flush=True)
started.set()
try:
    worker.serve()
except KeyboardInterrupt:
    print("interrupted")
ended.set()
""",
    "run": """
class Slow(type(second)):
    def send(self, to, data):
        if not started.is_set() or b"KeyboardInterrupt" in data:
            super().send(to, data)

other = threading.Thread(target=serve, args=(Slow(1, second.boxes),))
other.start()
worker = Worker(TWO, transport=first)
started.set()
print("runs", flush=True)
try:
    worker.run({"x": [1.0], "at": [0]})
except KeyboardInterrupt:
    print("interrupted")
""",
    "start": """
print("runs", flush=True)
try:
    Worker(TWO, transport=second)
except KeyboardInterrupt:
    print("interrupted")
""",
}


@pytest.mark.parametrize("case", CASES)
def test_ctrl_c_ends_all_workers(case):
    tell = "\nfor thread in threading.enumerate():\n    if thread is not threading.main_thread():\n        thread.join()\nprint(*said)"
    command = [sys.executable, "-c", PROGRAM + CASES[case] + tell, str(Path(__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "runs\n"
            time.sleep(1)
            assert process.poll() is None
            start = time.monotonic()
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=60)
            assert time.monotonic() - start < 20
        finally:
            process.kill()
    rank = {"serve": 1, "run": 0}.get(case)
    told = f"worker {rank} failed: KeyboardInterrupt" if rank is not None else ""
    assert said.startswith("interrupted\n") and told in said, said
    assert process.returncode == 0


def test_python_ends_without_close():
    program = PROGRAM + """
thread = threading.Thread(target=serve, args=(second,), daemon=True)
thread.start()
worker = Worker(TWO, transport=first)
print(worker.run({"x": [1.0], "at": [0]})["y"].tolist())
"""
    command = [sys.executable, "-c", program, str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("[-1.0]\n", "", 0)
