"""The notation: parser and printer."""

import pickle

import pytest
from sardonyx import _core, parser, printer

MODEL = '<ir_version: 10, opset_import: ["": 21]> g (float[N] x) => (float[N] y) { y = Abs(x) }'
PARTS = {
    "model": MODEL,
    "graph": "g (float[N] x) => (float[N] y) { y = Abs(x) }",
    "function": '<domain: "d", opset_import: ["": 21]> f (x) => (y) { y = Abs(x) }',
    "node": "y = Abs (x)",
}


class Message:
    """Something that gives bytes as a message of the protobuf package does."""

    def __init__(self, content):
        self.SerializeToString = lambda: content


@pytest.mark.parametrize("part", PARTS)
def test_what_is_printed_is_read_back(part):
    parse, to_text = getattr(parser, f"parse_{part}"), getattr(printer, f"{part}_to_text")
    message = parse(PARTS[part])
    assert type(message) is bytes
    text = to_text(message)
    assert "Abs" in text
    assert parse(text) == message
    assert to_text(Message(message)) == to_text(bytearray(message)) == text


@pytest.mark.parametrize("part", PARTS)
def test_the_core_answers_as_the_onnx_package_does(part):
    parse = getattr(_core.parser, f"parse_{part}")
    message = getattr(parser, f"parse_{part}")(PARTS[part])
    assert parse(PARTS[part]) == (True, b"", message)
    ok, error, nothing = parse("y = Abs(x x)")
    assert not ok and nothing == b""
    assert b"line 1" in error
    with pytest.raises(TypeError):
        getattr(_core.printer, f"{part}_to_text")(Message(message))


@pytest.mark.parametrize("part", PARTS)
def test_errors_say_where(part):
    with pytest.raises(parser.ParseError) as caught:
        getattr(parser, f"parse_{part}")("\n  y = = Abs(x x)")
    error = caught.value
    assert isinstance(error, ValueError)
    first = next(found for found in error.diagnostics if found.is_error)
    assert (error.line, error.column) == (first.line, first.column)
    assert error.line == 2 and error.column > 1
    assert f"line {error.line}" in str(error) and first.message in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.diagnostics) == (str(error), error.diagnostics)


def test_all_errors_come_at_once_with_advice():
    text = """<ir_version: 10, opset_import: ["": 21]>
g (float[N] x) => (float[N] y) {
    w = Foo<a = "é" b = 0>(x)
    y = = Abs(x)
    z = Abs(x x)
}"""
    with pytest.raises(parser.ParseError) as caught:
        parser.parse_model(text)
    places = [(found.line, found.column) for found in caught.value.diagnostics]
    # Columns are counted in characters.
    assert places == [(3, 21), (4, 9), (5, 15)]
    assert caught.value.diagnostics[2].help == "inputs are separated by commas"


@pytest.mark.parametrize("part", PARTS)
def test_what_is_not_a_message_is_refused(part):
    to_text = getattr(printer, f"{part}_to_text")
    with pytest.raises(ValueError, match="Unable to parse proto"):
        to_text(b"\xff")
    with pytest.raises(TypeError, match=f"expected a {part.capitalize()}Proto"):
        to_text(5)
    for wrong in (b"bytes", None):
        with pytest.raises(TypeError, match="expected a text"):
            getattr(parser, f"parse_{part}")(wrong)


def test_nesting_is_bounded():
    deep = "g () => () { a = If <then_branch = " * 5000
    with pytest.raises(parser.ParseError, match="deep|nest"):
        parser.parse_graph(deep)
