"""The examples of workers over MPI and Ray, against devices that are threads of one process."""

import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import sardonyx
from sardonyx.distributed import Worker

EXAMPLES = Path(__file__).parents[3] / "examples"
BLOCK = EXAMPLES / "distributed" / "block.onnx"
DIGITS = EXAMPLES / "digits" / "digits.onnx"
# Set by `cargo xtask distributed`, which has all packages.
IS_NEEDED = "DISTRIBUTED_TEST_EXAMPLES" in os.environ
KILLS = int(os.environ.get("DISTRIBUTED_TEST_KILLS", "3"))


def package(name):
    """A package, without which the test is skipped."""
    return __import__(name) if IS_NEEDED else pytest.importorskip(name)


def inputs(length, source):
    return {"x": source.normal(size=(2, length, 64)).astype(np.float32)}


def test_mpi():
    package("mpi4py")
    mpiexec = Path(sys.executable).with_name("mpiexec")
    if not mpiexec.exists() and not IS_NEEDED:
        pytest.skip("no mpiexec beside Python")
    libraries = {"LD_LIBRARY_PATH": str(Path(sys.prefix) / "lib")}
    command = [mpiexec, "-n", "4", sys.executable, "-m", "mpi4py", EXAMPLES / "distributed" / "mpi.py", BLOCK]
    said = subprocess.run(
        command, env=os.environ | libraries, capture_output=True, text=True, timeout=120, check=False
    )
    assert said.returncode == 0, said.stderr
    threads, source = Worker(BLOCK, threads=1), np.random.default_rng(2)
    expected = []
    for length in 4, 9:
        y = threads.run(inputs(length, source))["y"]
        expected.append(f"{length} 4 4 {y.tobytes().hex()}")
    assert said.stdout.splitlines() == expected


def test_the_page_shows_the_examples():
    page = (EXAMPLES.parent / "docs" / "python.md").read_text()
    shown = re.findall(r"^```py\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    files = [EXAMPLES / "distributed" / name for name in ("mpi.py", "ray_workers.py")]
    assert len(shown) == len(files)
    assert all(part in file.read_text() for part, file in zip(shown, files, strict=True))


@pytest.fixture(scope="module")
def ray():
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = package("ray")
    sys.path.insert(0, str(EXAMPLES / "distributed"))
    paths = [str(EXAMPLES / "distributed"), os.environ.get("PYTHONPATH", "")]
    ray.init(
        num_cpus=8,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(paths)}},
    )
    yield ray
    ray.shutdown()


def test_ray_workers(ray):
    from ray_workers import started

    first, *others = started(str(BLOCK), 4)
    serving = [device.serve.remote() for device in others]
    threads, source = Worker(BLOCK, threads=1), np.random.default_rng(5)
    for length in (4, 9, 4):
        feeds = inputs(length, source)
        found = ray.get(first.run.remote(feeds))["y"]
        np.testing.assert_array_equal(found, threads.run(feeds)["y"])
    ray.get([first.close.remote(), *serving])


def test_a_ray_actor_that_is_killed_is_named_by_all_others(ray):
    from ray_workers import started

    deadline = 10
    source = random.Random(7)
    slowest = 0
    for _ in range(KILLS):
        devices = started(str(BLOCK), 4, deadline=deadline)
        killed = source.randrange(4)
        first, *others = devices
        calls = [first.run.remote(inputs(6, np.random.default_rng(1)), 100_000)]
        calls += [device.serve.remote() for device in others]
        time.sleep(source.random() * 0.6)
        start = time.monotonic()
        ray.kill(devices[killed])
        for rank, call in enumerate(calls):
            with pytest.raises(Exception) as found:
                ray.get(call, timeout=3 * deadline)
            if rank == killed:
                assert isinstance(found.value, ray.exceptions.RayActorError), found.value
                continue
            assert f"worker {killed} " in str(found.value), f"{rank}: {found.value}"
            assert isinstance(found.value, sardonyx.Error), type(found.value)
        took = time.monotonic() - start
        assert took < deadline
        slowest = max(slowest, took)
        for device in devices:
            ray.kill(device)
    print(f"{KILLS} actors were killed: the others ended within {slowest:.2f} s")


def test_ray_data(ray):
    from ray_data import scored

    images = np.random.default_rng(3).random((900, 1, 8, 8), np.float32)
    expected = sardonyx.Session(DIGITS)(images).argmax(axis=1)
    np.testing.assert_array_equal(scored(str(DIGITS), images), expected)
