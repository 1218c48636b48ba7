"""The types of the package: mypy accepts the package and a program that uses it, and refuses what the types exclude."""

import ast
import os
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest
import sardonyx
import typed_program

PACKAGE = Path(sardonyx.__file__).parent
SETTINGS = Path(__file__).parents[1] / "pyproject.toml"


def sources():
    """The files of the package. The extension module has stubs in a directory beside it."""
    return sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyi")])


def test_mypy_accepts_the_package_and_a_program(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed")
    command = [sys.executable, "-m", "mypy", "--config-file", SETTINGS, "--cache-dir", tmp_path, typed_program.__file__]
    found = subprocess.run(
        [*command, *map(str, sources())],
        capture_output=True,
        text=True,
        env={**os.environ, "MYPYPATH": str(PACKAGE.parent)},
        cwd=tmp_path,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert re.match(r"Success: no issues found in \d+ source files", found.stdout)


def test_a_program_does_what_its_types_allow():
    typed_program.main()


def test_types_can_be_evaluated():
    """A program that does not postpone the evaluation of annotations builds unions of them."""
    for name in ("ArrayLike", "ModelLike", "StrPath", "ValueLike"):
        union = getattr(sardonyx.typing, name) | None
        assert type(None) in typing.get_args(union), name


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_each_any_has_a_reason(path):
    """The first use of `Any` in a file stands below a comment with `Any:` and the reason."""
    text = path.read_text(encoding="utf-8")
    uses = [
        node.lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Name) and node.id == "Any" or isinstance(node, ast.Attribute) and node.attr == "Any"
    ]
    if uses:
        before = text.splitlines()[: min(uses) - 1]
        assert any(re.search(r"#.*\bAny: ", line) for line in before), f"{path}:{min(uses)}"
