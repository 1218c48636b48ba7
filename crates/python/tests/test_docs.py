"""The examples of the documentation run, in the order of the page."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "python.md"


def test_the_examples_of_the_page_run(tmp_path, monkeypatch):
    text = PAGE.read_text(encoding="utf-8")
    examples = list(re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    assert len(examples) >= 9
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for example in examples:
        # Empty lines before it, so that an error has the line of the page.
        lines = "\n" * (text[: example.start()].count("\n") + 1)
        exec(compile(lines + example[1], str(PAGE), "exec"), names)
