"""A panic of the engine is an error with its place, and the session runs again.

Wheels of CI have an operator that panics on a negative element; released ones refuse it as they refuse every unknown one.
"""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import sardonyx
from sardonyx import _core, ort
from sardonyx._shims.onnxruntime import errors

MODEL = sardonyx.parser.parse_model(
    """<ir_version: 8, opset_import: ["": 17, "ai.sardonyx.test": 1]>
    g (float[N] x) => (float[N] y) <float[N] z> { [fragile] z = ai.sardonyx.test.Panic (x) y = Neg (z) }"""
)
GOOD, BAD = np.float32([1, 2]), np.float32([1, -2])
needs_operator = pytest.mark.skipif(not _core.HAS_TEST_OPERATORS, reason="a released build has no operator that panics")


def is_internal(error):
    assert error.code == "internal" and error.message == "internal error: an element is negative"
    # Where it began, and the node.
    assert "test_operators.rs:" in error.place and "fragile" in error.place, error.place
    assert "bug" in error.help and str(error).startswith(error.message)


def runs(times):
    """Runs that keep the interpreter come after the first few."""
    return [True, False] * times + [True] * times + [False, True]


@needs_operator
def test_a_panic_is_an_error_of_the_run():
    session = sardonyx.Session(MODEL)
    for is_good in runs(3):
        if is_good:
            assert session.run({"x": GOOD})["y"].tolist() == [-1, -2]
            continue
        with pytest.raises(sardonyx.Error) as raised:
            session.run({"x": BAD})
        is_internal(raised.value)
        with pytest.raises(sardonyx.Error) as raised:
            session(BAD)
        is_internal(raised.value)


@needs_operator
def test_a_panic_is_an_error_of_onnxruntimes_class():
    session = ort.InferenceSession(MODEL)
    binding = session.io_binding()
    binding.bind_output("y")
    for is_good in runs(3):
        binding.bind_cpu_input("x", GOOD if is_good else BAD)
        if is_good:
            session.run_with_iobinding(binding)
            assert binding.copy_outputs_to_cpu()[0].tolist() == [-1, -2] == session.run(None, {"x": GOOD})[0].tolist()
            continue
        for call in (lambda: session.run(None, {"x": BAD}), lambda: session.run_with_iobinding(binding)):
            with pytest.raises(errors.Fail) as raised:
                call()
            is_internal(raised.value)


@needs_operator
def test_a_panic_is_written_to_the_error_output_and_ends_no_process():
    code = """
        import sys, numpy, sardonyx
        session = sardonyx.Session(sys.stdin.buffer.read())
        try:
            session.run({"x": numpy.float32([-1])})
        except sardonyx.Error as error:
            print(error.code)
        print(session.run({"x": numpy.float32([1])})["y"].tolist())
    """
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], input=MODEL, capture_output=True)
    assert ran.returncode == 0 and ran.stdout.split() == [b"internal", b"[-1.0]"]
    assert b"an element is negative" in ran.stderr


def test_a_released_build_refuses_the_operator():
    if _core.HAS_TEST_OPERATORS:
        sardonyx.Session(MODEL)
        return
    with pytest.raises(sardonyx.Error) as raised:
        sardonyx.Session(MODEL)
    assert raised.value.code == "unsupported"
