"""The examples of README.md and docs/ run, in the order of each page."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def pages() -> list[Path]:
    found = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [page for page in found if EXAMPLE.search(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_the_examples_of_the_page_run(page, tmp_path, monkeypatch):
    text = page.read_text(encoding="utf-8")
    # Examples name files from the top of the repository, and may write others beside them.
    for name in ("examples", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for example in EXAMPLE.finditer(text):
        # Empty lines before it, so that an error has the line of the page.
        lines = "\n" * (text[: example.start()].count("\n") + 1)
        exec(compile(lines + example[1], str(page), "exec"), names)


def test_the_pages_have_examples():
    names = [page.name for page in pages()]
    assert {"README.md", "getting-started.md", "python.md"} <= set(names)
    python = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    assert len(EXAMPLE.findall(python)) >= 9
