"""Models at paths, as bytes and as messages: every function takes them alike."""

import os
from pathlib import Path

import onnx
import pytest
import sardonyx

FUNCTION = """
    <ir_version: 10, opset_import: ["": 17, "own": 1]>
    g (float[N] x) => (float[N] y) { a = own.double (x) y = Relu (a) }
    <opset_import: ["": 17], domain: "own">
    double (x) => (y) { y = Add (x, x) }
"""
CONTENT = sardonyx.parser.parse_model(FUNCTION)
CALLS = {
    "infer_shapes": sardonyx.shape_inference.infer_shapes,
    "convert_version": lambda model: sardonyx.version_converter.convert_version(model, 21),
    "inline_local_functions": sardonyx.inliner.inline_local_functions,
    "inline_selected_functions": lambda model: sardonyx.inliner.inline_selected_functions(
        model, [("own", "double")]
    ),
}


def given(directory: Path):
    path = directory / "model.onnx"
    path.write_bytes(CONTENT)
    text = directory / "model.onnxtxt"
    text.write_text(FUNCTION)
    return [path, os.fspath(path), text, CONTENT, bytearray(CONTENT), memoryview(CONTENT)]


@pytest.mark.parametrize("name", CALLS)
def test_models_are_given_alike(name, tmp_path):
    answers = {CALLS[name](model) for model in given(tmp_path)}
    assert len(answers) == 1
    (answer,) = answers
    assert type(answer) is bytes and answer != CONTENT
    message = CALLS[name](onnx.ModelProto.FromString(CONTENT))
    assert type(message) is onnx.ModelProto
    assert message == onnx.ModelProto.FromString(answer)


def test_models_are_checked_and_printed_alike(tmp_path):
    for model in given(tmp_path):
        if Path(model if isinstance(model, (str, Path)) else "").suffix != ".onnxtxt":
            sardonyx.checker.check_model(model, full_check=True)
    texts = {sardonyx.printer.model_to_text(model) for model in given(tmp_path)}
    assert len(texts) == 1 and "own.double" in texts.pop()


def test_values_of_data_files_are_inside_the_answer(tmp_path):
    (tmp_path / "w.bin").write_bytes(b"\0\0\x80?" * 4)
    path = tmp_path / "model.onnx"
    path.write_bytes(
        sardonyx.parser.parse_model("""
            <ir_version: 10, opset_import: ["": 17]>
            g (float[4] x) => (float[4] y) <float[4] w = ["location": "w.bin"]> { y = Mul (x, w) }
        """)
    )
    converted = sardonyx.version_converter.convert_version(path, 21)
    (tmp_path / "w.bin").unlink()
    assert sardonyx.Session(converted)([1.0, 2.0, 3.0, 4.0]).tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("name", CALLS)
def test_a_file_that_is_not_there_is_named(name, tmp_path):
    with pytest.raises(sardonyx.Error, match="none.onnx") as raised:
        CALLS[name](tmp_path / "none.onnx")
    assert raised.value.code == "io"
    with pytest.raises(TypeError, match="expected a ModelProto or the path of one"):
        CALLS[name](7)
