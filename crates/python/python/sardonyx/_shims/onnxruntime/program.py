"""The command ``python -m sardonyx.ort``: runs a program with Sardonyx in place of onnxruntime."""

from __future__ import annotations

import builtins
import runpy
import sys
import types
from pathlib import Path

USAGE = """usage: python -m sardonyx.ort [-m MODULE | -c CODE | PROGRAM | -] [ARGUMENTS]

Runs a program in which `import onnxruntime` gives Sardonyx. Processes that the program starts with the
same Python find Sardonyx there too. With `-`, or without a program, the program is read from the standard
input."""


def main() -> None:
    """Runs the program named on the command line, with the arguments after it."""
    from sardonyx import use_as_onnxruntime

    arguments = sys.argv[1:]
    if arguments[:1] in (["-h"], ["--help"]):
        print(USAGE)
        return
    if not arguments and not sys.stdin.isatty():
        # Python sets sys.argv to this for a program on the standard input.
        arguments = [""]
    kind = arguments[0] if arguments and arguments[0] in ("-m", "-c") else ""
    rest = arguments[1:] if kind else arguments
    if not rest or (not kind and rest[0].startswith("-") and rest[0] != "-"):
        sys.exit(USAGE)
    use_as_onnxruntime(children=True)
    program = rest[0]
    if kind == "-m":
        sys.argv = rest
        # `python -m` searches the current directory first.
        _search_first("")
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        _search_first("")
        _run(program, "<string>")
    elif program in ("-", ""):
        sys.argv = rest
        _search_first("")
        _run(sys.stdin.read(), "<stdin>")
    else:
        if not Path(program).exists():
            sys.exit(f"the program '{program}' does not exist\n{USAGE}")
        sys.argv = rest
        _search_first(str(Path(program).resolve().parent))
        runpy.run_path(program, run_name="__main__")


def _search_first(directory: str) -> None:
    """Puts the directory of the program first in ``sys.path``, in place of the one that ``python -m`` has put there."""
    if not sys.flags.safe_path:
        sys.path[:1] = [directory]


def _run(code: str, name: str) -> None:
    """Runs code as the main module. Gives it no file and no spec, so that child processes do not import them."""
    module = types.ModuleType("__main__")
    vars(module).update(__builtins__=builtins)
    sys.modules["__main__"] = module
    exec(compile(code, name, "exec", dont_inherit=True), vars(module))
