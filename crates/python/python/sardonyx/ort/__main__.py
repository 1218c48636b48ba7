"""Run a program with Sardonyx in the place of onnxruntime: ``python -m sardonyx.ort program.py``."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

USAGE = """usage: python -m sardonyx.ort [-m MODULE | PROGRAM] [ARGUMENTS]

Runs a program in which `import onnxruntime` gives Sardonyx."""


def main() -> None:
    """Runs the program that the command line names, with the arguments after it."""
    from sardonyx import use_as_onnxruntime

    arguments = sys.argv[1:]
    if arguments[:1] in (["-h"], ["--help"]):
        print(USAGE)
        return
    is_module = arguments[:1] == ["-m"]
    program = arguments[1:2] if is_module else arguments[:1]
    if not program or (not is_module and program[0].startswith("-")):
        sys.exit(USAGE)
    use_as_onnxruntime()
    sys.argv = arguments[1:] if is_module else arguments
    if is_module:
        # Modules are found where Python would look for them: in the current directory first.
        sys.path.insert(0, "")
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
    else:
        if not Path(program[0]).exists():
            sys.exit(f"the program '{program[0]}' does not exist\n{USAGE}")
        sys.path.insert(0, str(Path(program[0]).resolve().parent))
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main()
