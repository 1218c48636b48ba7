"""Programs that run unchanged with Sardonyx in the place of onnxruntime, and the processes that they start."""

import os
import subprocess
import sys
import textwrap
import venv
from pathlib import Path

import pytest
import sardonyx

SITE = Path(sardonyx.__file__).parents[1]
VARIABLE = "SARDONYX_AS_ONNXRUNTIME"
PROVIDERS = "['CPUExecutionProvider']"


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """A Python that has the wheel and numpy in its own ``site-packages``, as an installation has, and no onnxruntime."""
    directory = tmp_path_factory.mktemp("environment")
    venv.create(directory, symlinks=True)
    (site,) = directory.glob("lib/python*/site-packages")
    import numpy

    for package in ("numpy", "numpy.libs"):
        source = Path(numpy.__file__).parents[1] / package
        if source.exists():
            (site / package).symlink_to(source)
    # Files of the wheel at its top are read from there, as from the directory itself.
    (site / "wheel.pth").write_text(f"import site; site.addsitedir({str(SITE)!r})\n")
    return directory / "bin" / "python"


def started(python, *arguments, variables=None, input=None, directory=None):
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", VARIABLE)}
    return subprocess.run(
        [python, *arguments],
        capture_output=True,
        text=True,
        env={**environment, **(variables or {})},
        input=input,
        cwd=directory,
        timeout=120,
    )


def printed(*arguments, **options):
    ran = started(*arguments, **options)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


CHILD = """
    def providers(_):
        import onnxruntime
        return onnxruntime.get_available_providers()
"""
POOLS = {
    "a pool": """
        import multiprocessing
        with multiprocessing.get_context(METHOD).Pool(1) as pool:
            print(pool.map(providers, [0])[0])
    """,
    "an executor": """
        import concurrent.futures, multiprocessing
        context = multiprocessing.get_context(METHOD)
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
            print(pool.submit(providers, 0).result())
    """,
    "a process": """
        import multiprocessing
        context = multiprocessing.get_context(METHOD)
        queue = context.SimpleQueue()
        process = context.Process(target=put, args=(queue,))
        process.start()
        print(queue.get())
        process.join()
    """,
}


def pool_program(pool, method):
    lines = f"METHOD = {method!r}\nimport onnxruntime\n" + textwrap.dedent(CHILD)
    lines += "def put(queue):\n    queue.put(providers(0))\nif __name__ == '__main__':\n"
    return lines + textwrap.indent(textwrap.dedent(POOLS[pool]), "    ")


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("form", ["a file", "a module"])
def test_child_processes_find_onnxruntime(python, form, pool, method, tmp_path):
    (tmp_path / "program.py").write_text(pool_program(pool, method))
    arguments = ["program.py"] if form == "a file" else ["-m", "program"]
    assert printed(python, "-m", "sardonyx.ort", *arguments, directory=tmp_path) == PROVIDERS


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_child_processes_of_programs_without_a_file_find_onnxruntime(python, method, tmp_path):
    (tmp_path / "work.py").write_text(textwrap.dedent(CHILD))
    code = f"""
        import concurrent.futures, multiprocessing, onnxruntime, work
        context = multiprocessing.get_context({method!r})
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
            print(pool.submit(work.providers, 0).result())
    """
    code, start = textwrap.dedent(code), [python, "-m", "sardonyx.ort"]
    assert printed(*start, "-c", code, directory=tmp_path) == PROVIDERS
    assert printed(*start, "-", input=code, directory=tmp_path) == PROVIDERS


def test_code_and_programs_on_the_standard_input_run_as_python_runs_them(python, tmp_path):
    (tmp_path / "beside.py").write_text("here = True")
    code = """
import sys, onnxruntime, beside
main = sys.modules["__main__"]
print(__name__, sys.argv, sys.path[0], vars(main) is globals(), hasattr(main, "__file__"), __spec__)
"""
    start = [python, "-m", "sardonyx.ort"]
    assert printed(*start, "-c", code, "-x", "y", directory=tmp_path) == "__main__ ['-c', '-x', 'y']  True False None"
    for arguments in (["-", "a"], ["-"], []):
        argv = arguments or [""]
        expected = f"__main__ {argv}  True False None"
        assert printed(*start, *arguments, input=code, directory=tmp_path) == expected
    for code in ("raise SystemExit(7)", "import sys; sys.exit(7)"):
        assert started(*start, "-c", code).returncode == 7
    ran = started(*start, "-c", "def broken(:")
    assert ran.returncode == 1 and "SyntaxError" in ran.stderr
    # What annotations are is decided by the program, not by the module that runs it.
    assert printed(*start, "-c", "def f(a: 1 + 1): ...\nprint(f.__annotations__)") == "{'a': 2}"


def test_programs_find_modules_where_python_finds_them(python, tmp_path):
    (tmp_path / "beside.py").write_text("place = 'beside'")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "beside.py").write_text("place = 'in the current directory'")
    (tmp_path / "program.py").write_text("import sys, beside, onnxruntime\nprint(beside.place, '' in sys.path[1:])")
    directory = tmp_path / "elsewhere"
    for arguments in (["../program.py"], [str(tmp_path / "program.py")]):
        assert printed(python, "-m", "sardonyx.ort", *arguments, directory=directory) == "beside False"


def test_other_programs_are_left_alone(python):
    code = "import sys; print([name for name in sys.modules if 'onnxruntime' in name or 'sardonyx' in name])"
    assert printed(python, "-c", code) == "[]"
    assert "No module named 'onnxruntime'" in started(python, "-c", "import onnxruntime").stderr
    assert printed(python, "-c", code, variables={VARIABLE: ""}) == "[]"
    # With the variable, nothing is imported until something looks for onnxruntime.
    with_variable = {"variables": {VARIABLE: "1"}}
    assert printed(python, "-c", code, **with_variable) == "['_sardonyx_as_onnxruntime']"
    look = """
        import importlib, importlib.metadata, importlib.util, sys
        finders = len(sys.meta_path)
        {first}
        import onnxruntime, onnxruntime.capi.onnxruntime_pybind11_state
        from onnxruntime import InferenceSession
        assert importlib.metadata.version("onnxruntime") == onnxruntime.__version__
        assert importlib.util.find_spec("onnxruntime").name == "onnxruntime"
        assert importlib.reload(onnxruntime) is onnxruntime
        assert len(sys.meta_path) == finders
        print(onnxruntime.get_available_providers())
    """
    for first in ("", 'importlib.metadata.version("onnxruntime")', 'importlib.util.find_spec("onnxruntime")'):
        code = textwrap.dedent(look).format(first=first)
        assert printed(python, "-c", code, **with_variable) == PROVIDERS


def test_a_process_says_whether_its_children_are_included(python):
    code = """
        import os, subprocess, sys, sardonyx
        def child():
            return subprocess.run([sys.executable, "-c", "import onnxruntime"], capture_output=True).returncode
        with sardonyx.use_as_onnxruntime():
            assert child() != 0
            with sardonyx.use_as_onnxruntime(children=True):
                assert child() == 0
            assert child() != 0
        with sardonyx.use_as_onnxruntime(children=True):
            assert child() == 0
        assert child() != 0 and "SARDONYX_AS_ONNXRUNTIME" not in os.environ
    """
    printed(python, "-c", textwrap.dedent(code))


def test_the_file_at_the_top_of_site_packages_is_one_short_line():
    (line,) = (SITE / "sardonyx-as-onnxruntime.pth").read_text().splitlines()
    assert line.startswith("import os;") and "sardonyx." not in line
    # 200 times what Python does with it when it starts: less than a millisecond for each.
    code = f"import time; began = time.perf_counter()\nfor _ in range(200): exec({line!r})\n"
    code += "print((time.perf_counter() - began) / 200 * 1000)"
    assert float(printed(sys.executable, "-c", code)) < 1
