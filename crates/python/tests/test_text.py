"""The notation: parser and printer."""

import pytest
from sardonyx import parser, printer

MODEL = '<ir_version: 10, opset_import: ["": 21]> g (float[N] x) => (float[N] y) { y = Abs(x) }'
PARTS = {
    "model": MODEL,
    "graph": "g (float[N] x) => (float[N] y) { y = Abs(x) }",
    "function": '<domain: "d", opset_import: ["": 21]> f (x) => (y) { y = Abs(x) }',
    "node": "y = Abs (x)",
}


@pytest.mark.parametrize("part", PARTS)
def test_what_is_printed_is_read_back(part):
    parse, to_text = getattr(parser, f"parse_{part}"), getattr(printer, f"{part}_to_text")
    ok, error, message = parse(PARTS[part])
    assert (ok, error) == (True, b"")
    text = to_text(message)
    assert "Abs" in text
    assert parse(text) == (True, b"", message)


@pytest.mark.parametrize("part", PARTS)
def test_errors_say_where(part):
    ok, error, message = getattr(parser, f"parse_{part}")("y = Abs(x x)")
    assert not ok and message == b""
    assert b"line 1" in error


@pytest.mark.parametrize("part", PARTS)
def test_what_is_no_message_is_refused(part):
    to_text = getattr(printer, f"{part}_to_text")
    with pytest.raises(ValueError, match="Unable to parse proto"):
        to_text(b"\xff")
    with pytest.raises(TypeError):
        to_text("text")
    with pytest.raises(TypeError):
        getattr(parser, f"parse_{part}")(b"bytes")


def test_nesting_is_bounded():
    deep = "g () => () { a = If <then_branch = " * 5000
    assert parser.parse_graph(deep)[0] is False
