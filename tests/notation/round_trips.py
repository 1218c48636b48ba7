"""Check that models survive `print` and `parse` without any flags, as the same bytes, whatever is wrong with them.

    python round_trips.py COMMAND DIRECTORY...

COMMAND is the program `sardonyx`. Each model in the directories is printed to a text and parsed back. A file that is not written
the way protobuf writes (fields in another order, longer numbers than needed) is compared with what `save` writes.
A file that cannot be read as a model is counted, not compared.
"""

import itertools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

# Differences that are listed before the rest is only counted.
SHOWN = 20
SAME, REWRITTEN, UNREADABLE = "equal", "equal to what is written of them", "not readable as models"


def main(command: str, directories: Sequence[pathlib.Path]) -> int:
    there = [directory for directory in directories if directory.exists()]
    for directory in directories:
        if directory not in there:
            print(f"{directory} is not there: skipped")
    paths = sorted(itertools.chain.from_iterable(directory.rglob("*.onnx") for directory in there))
    if not paths:
        print("there are no models")
        return 1
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        results = list(threads.map(lambda path: round_trip(command, path), paths))
    kinds = Counter(kind for kind, _ in results)
    problems = [f"{path}: {kind}\n{words}" for path, (kind, words) in zip(paths, results) if kind not in (SAME, REWRITTEN, UNREADABLE)]
    for problem in problems[:SHOWN]:
        print(problem)
    if len(problems) > SHOWN:
        print(f"and {len(problems) - SHOWN} more")
    print(f"{len(paths)} models printed and parsed: " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()))
    return 1 if problems else 0


def round_trip(command: str, path: pathlib.Path) -> tuple[str, str]:
    """What became of a model, and what was said if that is not as it should be."""

    def run(*arguments: str) -> tuple[int, str]:
        found = subprocess.run([command, *arguments], cwd=directory, capture_output=True, check=False)
        return found.returncode, found.stderr.decode(errors="replace")

    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        shutil.copyfile(path, directory / "model.onnx")
        # Data files that models name stand in directories with few files.
        for beside in data_files(path):
            shutil.copyfile(beside, directory / beside.name)
        code, said = run("print", "model.onnx", "-o", "model.onnxtxt")
        if code != 0:
            readable, _ = run("info", "model.onnx")
            return (UNREADABLE, "") if readable != 0 else (f"print fails with {code}", said)
        code, said = run("parse", "model.onnxtxt", "-o", "again.onnx")
        if code != 0:
            return f"parse fails with {code}", said
        again = (directory / "again.onnx").read_bytes()
        if again == path.read_bytes():
            return SAME, ""
        code, said = run("save", "model.onnx", "-o", "written.onnx")
        if code == 0 and again == (directory / "written.onnx").read_bytes():
            return REWRITTEN, ""
        return "not the same bytes", said


def data_files(path: pathlib.Path) -> list[pathlib.Path]:
    """Files beside a model that are not models, if they are small and few."""
    siblings = FILES.get(path.parent)
    if siblings is None:
        siblings = [file for file in path.parent.iterdir() if file.suffix != ".onnx" and file.is_file()]
        FILES[path.parent] = siblings
    return siblings if len(siblings) <= 16 and sum(file.stat().st_size for file in siblings) < 1 << 20 else []


FILES: dict[pathlib.Path, list[pathlib.Path]] = {}

if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], [pathlib.Path(directory) for directory in sys.argv[2:]]))
