"""Ctrl-C ends a run, also in the middle of a long step."""

import signal
import subprocess
import sys
import time

import pytest

PROGRAM = """
import signal
import sys
import numpy as np
import sardonyx

# A shell lets what it starts in the background ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

model = sardonyx.parser.parse_model('''
    <ir_version: 10, opset_import: ["": 21]>
    g (float[N, N] x, int64 turns) => (float[N, N] y) {
        go = Constant <value_int: int = 1> ()
        yes = Cast <to: int = 9> (go)
        y = Loop (turns, yes, x) <body = b (int64 i, bool c, float[N, N] v) => (bool d, float[N, N] w) {
            d = Identity (c)
            w = MatMul (v, v)
        }>
    }
''')
run = {
    "Session": lambda feeds: sardonyx.Session(model).run(feeds),
    "flag": lambda feeds: sardonyx.Session(model).run(feeds, stop=flag),
    "InferenceSession": lambda feeds: sardonyx.InferenceSession(model).run(None, feeds),
}[sys.argv[1]]
flag = sardonyx.StopFlag()
print("runs", flush=True)
try:
    run({"x": np.zeros((64, 64), np.float32), "turns": np.int64(2**40)})
except KeyboardInterrupt:
    print("interrupted", flag.is_raised)
"""


@pytest.mark.parametrize("which", ["Session", "flag", "InferenceSession"])
def test_ctrl_c_ends_a_run(which):
    command = [sys.executable, "-c", PROGRAM, which]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "runs\n"
            time.sleep(1)
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            # Without the check it would run for years.
            said, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (said, process.returncode) == ("interrupted False\n", 0)


def test_a_handler_that_raises_ends_a_run_with_its_exception():
    program = PROGRAM.replace("except KeyboardInterrupt", "except ZeroDivisionError")
    program = program.replace("print(\"runs\"", "signal.signal(signal.SIGINT, lambda *_: 1 / 0)\nprint(\"runs\"")
    command = [sys.executable, "-c", program, "Session"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "runs\n"
            time.sleep(1)
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert said == "interrupted False\n"


LONG = """
import signal
import sys
import threading
import time
import numpy as np
import sardonyx

class Late(Exception):
    pass

def late(*_):
    raise Late(time.monotonic())

signal.signal(signal.SIGALRM, late)
model = sardonyx.parser.parse_model('''
    <ir_version: 10, opset_import: ["": 21]> g (float[N, N] x) => (float[N, N] y) { y = MatMul (x, x) }
''')
session = sardonyx.Session(model, threads=int(sys.argv[1]))
assert len(session.steps()) == 1
size = 256
while True:
    x = np.ones((size, size), np.float32)
    begun = time.monotonic()
    session(x)
    if (took := time.monotonic() - begun) > 1:
        break
    size *= 2
# Where a step is done to its end, Python handles the signal after the run.
begun = time.monotonic()
signal.setitimer(signal.ITIMER_REAL, took / 4)
try:
    session(x)
    print("ran to the end")
except Late as late:
    print("interrupted" if late.args[0] - begun < 0.9 * took else "ran to the end")
try:
    session.run({"x": x}, timeout=took / 4)
    print("ran to the end")
except sardonyx.Error as error:
    print(error.code, "MatMul" in str(error))
"""


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_long_step_is_interrupted(threads):
    command = [sys.executable, "-c", LONG, threads]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=300, check=True).stdout
    assert said == "interrupted\nstopped True\n"
