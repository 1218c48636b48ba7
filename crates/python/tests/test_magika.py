"""The package magika, which tells what a file is by a model that it has in it, on Sardonyx in the place of onnxruntime.

``magika.json`` has what it says with onnxruntime 1.31.1. This writes it anew, in an environment with both
packages and without Sardonyx on the path::

    python crates/python/tests/test_magika.py
"""

import json
import subprocess
import sys
from pathlib import Path

EXPECTED = Path(__file__).with_name("magika.json")

TEXTS = {
    "bytes": bytes(range(256)) * 20,
    "c": b'#include <stdio.h>\nint main(void) { printf("%d", 3); return 0; }\n' * 5,
    "html": b"<html><body><p>hello</p></body></html>" * 10,
    "json lines": b'{"a": [1, 2, 3], "b": {"c": null}}\n' * 10,
    "python": b"def f(x):\n    return x + 1\n\nimport os\nprint(os.getcwd())\n" * 5,
    "rust": b'fn main() {\n    let x: Vec<u32> = vec![1, 2];\n    println!("{x:?}");\n}\n' * 5,
    "short": b"ab",
    "text": "ä plain text, with nothing else in here at all.\n".encode() * 10,
}


def answers() -> dict[str, object]:
    """What magika says about each text, and which onnxruntime it uses."""
    import magika
    import onnxruntime

    tool = magika.Magika()
    found = {}
    for name, text in TEXTS.items():
        result = tool.identify_bytes(text)
        found[name] = [str(result.dl.label), str(result.output.label), float(result.score)]
    return {
        "magika": magika.__version__,
        "onnxruntime": onnxruntime.__version__,
        "is Sardonyx": getattr(onnxruntime, "__sardonyx__", False),
        "answers": found,
    }


def test_magika_says_the_same_as_on_onnxruntime():
    program = [sys.executable, "-m", "sardonyx.ort", __file__]
    found = json.loads(subprocess.run(program, capture_output=True, check=True, text=True).stdout)
    expected = json.loads(EXPECTED.read_text(encoding="utf-8"))
    assert found["is Sardonyx"] is True and expected["is Sardonyx"] is False
    assert found["magika"] == expected["magika"]
    assert set(found["answers"]) == set(expected["answers"]) == set(TEXTS)
    for name, (label, output, score) in expected["answers"].items():
        assert found["answers"][name][:2] == [label, output], name
        assert abs(found["answers"][name][2] - score) < 1e-4, name


if __name__ == "__main__":
    text = json.dumps(answers(), indent=1, ensure_ascii=False) + "\n"
    if "sardonyx" in sys.modules:
        print(text)
    else:
        EXPECTED.write_text(text, encoding="utf-8")
