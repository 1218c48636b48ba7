"""Checking, and opening data files."""

import os

import pytest
from sardonyx import _core, checker, parser

open_data = _core.checker._open_external_data


class Message:
    """Something that gives bytes as a message of the protobuf package does."""

    def __init__(self, content):
        self.content = content

    def SerializeToString(self):
        return self.content


def test_models_are_judged(tmp_path):
    good = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[N] x) => (float[N] y) { y = Abs(x) }'
    )
    bad = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[N] x) => (float[N] y) { y = Abs(z) }'
    )
    checker.check_model(good)
    with pytest.raises(checker.ValidationError, match="'z'"):
        checker.check_model(bad)
    path = tmp_path / "model.onnx"
    path.write_bytes(good)
    checker.check_model_path(str(path))
    path.write_bytes(bad)
    with pytest.raises(checker.ValidationError):
        checker.check_model_path(str(path))
    path.write_bytes(b"\xff")
    with pytest.raises(checker.ValidationError, match="parse"):
        checker.check_model_path(str(path))
    with pytest.raises(checker.ValidationError, match="Unable to open"):
        checker.check_model_path(str(tmp_path / "none.onnx"))
    with pytest.raises(ValueError, match="Unable to parse proto"):
        checker.check_model(b"\xff")


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, Message])
def test_models_are_messages_or_bytes(wrap):
    text = '<ir_version: 10, opset_import: ["": 21]> g (float[N] x) => (float[N] y) { y = Abs(%s) }'
    checker.check_model(wrap(parser.parse_model(text % "x")), full_check=True)
    with pytest.raises(checker.ValidationError, match="'z'"):
        checker.check_model(wrap(parser.parse_model(text % "z")))


def test_models_are_paths(tmp_path):
    path = tmp_path / "model.onnx"
    text = '<ir_version: 10, opset_import: ["": 21]> g (float[N] x) => (float[N] y) { y = Abs(x) }'
    path.write_bytes(parser.parse_model(text))
    for given in (path, str(path)):
        checker.check_model(given)
        checker.check_model(given, full_check=True)
        checker.check_model_path(given)
    with pytest.raises(checker.ValidationError, match="Unable to open.*none.onnx"):
        checker.check_model(tmp_path / "none.onnx")


def test_other_things_are_refused_with_what_is_wanted():
    for wrong in (None, 3, ["x"], Message, Message("text")):
        with pytest.raises(TypeError, match="ModelProto|instead of bytes"):
            checker.check_model(wrong)
    for wrong in (None, b"model.onnx", 3):
        with pytest.raises(TypeError, match="expected a path"):
            checker.check_model_path(wrong)
    with pytest.raises(TypeError, match="NodeProto.*not str"):
        checker.check_node("y = Abs(x)")
    with pytest.raises(TypeError):
        checker.check_tensor(b"", "10")


def test_parts_are_judged_as_of_the_newest_model_by_default():
    checker.check_node(parser.parse_node("y = Abs(x)"))
    checker.check_node(Message(parser.parse_node("y = Abs(x)")))
    with pytest.raises(checker.ValidationError, match="Nope"):
        checker.check_node(parser.parse_node("y = Nope(x)"))
    # Of the version that took the attribute away.
    with pytest.raises(checker.ValidationError, match="axes"):
        checker.check_node(parser.parse_node("y = Squeeze<axes = [0]>(x)"))
    checker.check_graph(parser.parse_graph("g (float[N] x) => (float[N] y) { y = Abs(x) }"))
    checker.check_function(
        parser.parse_function('<domain: "d", opset_import: ["": 21]> f (x) => (y) { y = Abs(x) }')
    )


def test_the_core_takes_bytes_only():
    """As the extension of the onnx package does, whose place it takes."""
    content = parser.parse_node("y = Abs(x)")
    with pytest.raises(TypeError):
        _core.checker.check_model(Message(b""))
    with pytest.raises(TypeError):
        _core.checker.check_node(content)


def test_parts_are_judged_in_a_context():
    context = checker.CheckerContext()
    assert (context.ir_version, context.opset_imports) == (-1, {})
    context.ir_version, context.opset_imports = 10, {"": 21}
    context.opset_imports["x"] = 1
    assert context.opset_imports == {"": 21}
    with pytest.raises(TypeError):
        context.ir_version = "10"
    node = parser.parse_node("y = Abs(x)")
    checker.check_node(node, context, checker.LexicalScopeContext())
    for check in (checker.check_node, checker.check_graph, checker.check_function):
        with pytest.raises(ValueError, match="Unable to parse proto"):
            check(b"\xff", context, checker.LexicalScopeContext())


def test_data_files_are_opened_beneath_their_directory(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w").write_bytes(b"abc")
    with os.fdopen(open_data(str(tmp_path), "sub/w", "t", True), "rb") as file:
        assert file.read() == b"abc"
    with os.fdopen(open_data(str(tmp_path), "new", "t", False), "r+b") as file:
        file.write(b"x")
    assert (tmp_path / "new").read_bytes() == b"x"
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600

    (tmp_path / "link").symlink_to("sub/w")
    (tmp_path / "directory").symlink_to("sub")
    os.link(tmp_path / "new", tmp_path / "other")
    os.mkfifo(tmp_path / "pipe")
    refused = ["", "..", "../x", "/etc/passwd", "link", "directory/w", "other", "pipe", "sub", "a\0b"]
    for location in refused:
        for read_only in (True, False):
            with pytest.raises(checker.ValidationError, match="tensor name: t"):
                open_data(str(tmp_path), location, "t", read_only)
    with pytest.raises(checker.ValidationError, match="missing|no such"):
        open_data(str(tmp_path), "none", "t", True)
    assert not (tmp_path / "none").exists()
