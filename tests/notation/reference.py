"""The reference parser as a process that answers questions, since a text can bring it down.

Each line of standard input is a question, `{"kind": "node", "text_hex": "..."}`; each line of standard output an answer, in the
same order: `{"ok": "<hex of the message>"}` or `{"error": "<what it says>"}`. `tests/src/bin/notation.rs` speaks the same.
"""

import json
import sys

# The bindings rather than `onnx.parser`, which reads the bytes into a message: that fails where they nest deeply.
from onnx.onnx_cpp2py_export import parser

PARSE = {
    "model": parser.parse_model,
    "graph": parser.parse_graph,
    "function": parser.parse_function,
    "node": parser.parse_node,
}


def answer(question: dict[str, str]) -> dict[str, str]:
    text = bytes.fromhex(question["text_hex"]).decode()
    try:
        taken, complaint, message = PARSE[question["kind"]](text)
    except Exception as error:  # Numbers out of range, for one, come as all kinds of exceptions.
        return {"error": f"raised {type(error).__name__}: {error}"}
    return {"ok": message.hex()} if taken else {"error": complaint.decode(errors="replace")}


if __name__ == "__main__":
    for line in sys.stdin:
        # Flushed, so that the first answer that is missing is the one to the text that brought it down.
        print(json.dumps(answer(json.loads(line))), flush=True)
