"""Checking, and opening data files."""

import os

import pytest
from sardonyx import _core, checker, parser

open_data = _core.checker._open_external_data


def model(text):
    ok, error, message = parser.parse_model(text)
    assert ok, error
    return message


def test_models_are_judged(tmp_path):
    good = model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[N] x) => (float[N] y) { y = Abs(x) }'
    )
    bad = model(
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


def test_parts_are_judged_in_a_context():
    context = checker.CheckerContext()
    assert (context.ir_version, context.opset_imports) == (-1, {})
    context.ir_version, context.opset_imports = 10, {"": 21}
    context.opset_imports["x"] = 1
    assert context.opset_imports == {"": 21}
    with pytest.raises(TypeError):
        context.ir_version = "10"
    node = parser.parse_node("y = Abs(x)")[2]
    checker.check_node(node, context, checker.LexicalScopeContext())
    for check in (checker.check_node, checker.check_graph, checker.check_function):
        with pytest.raises(ValueError, match="Unable to parse proto"):
            check(b"\xff", context, checker.LexicalScopeContext())
    with pytest.raises(TypeError):
        checker.check_tensor(b"", None)


def test_data_files_are_opened_beneath_their_folder(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w").write_bytes(b"abc")
    with os.fdopen(open_data(str(tmp_path), "sub/w", "t", True), "rb") as file:
        assert file.read() == b"abc"
    with os.fdopen(open_data(str(tmp_path), "new", "t", False), "r+b") as file:
        file.write(b"x")
    assert (tmp_path / "new").read_bytes() == b"x"
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600

    (tmp_path / "link").symlink_to("sub/w")
    (tmp_path / "folder").symlink_to("sub")
    os.link(tmp_path / "new", tmp_path / "other")
    os.mkfifo(tmp_path / "pipe")
    refused = ["", "..", "../x", "/etc/passwd", "link", "folder/w", "other", "pipe", "sub", "a\0b"]
    for location in refused:
        for read_only in (True, False):
            with pytest.raises(checker.ValidationError, match="tensor name: t"):
                open_data(str(tmp_path), location, "t", read_only)
    with pytest.raises(checker.ValidationError, match="missing|no such"):
        open_data(str(tmp_path), "none", "t", True)
    assert not (tmp_path / "none").exists()
