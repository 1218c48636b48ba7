"""Models converted between versions of the operator set ``ai.onnx``. Models are paths, objects such as ``onnx.ModelProto``, or bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from sardonyx._core import version_converter as _converter
from sardonyx._core.version_converter import ConvertError
from sardonyx._messages import Bytes, M, Path, like, model_content

__all__ = ["ConvertError", "convert_version"]


@overload
def convert_version(
    model: Bytes | Path, target_version: int, *, assume: Sequence[str] = ..., expand: bool = ...
) -> bytes: ...
@overload
def convert_version(
    model: M, target_version: int, *, assume: Sequence[str] = ..., expand: bool = ...
) -> M: ...
def convert_version(
    model: Any,
    target_version: int,
    *,
    assume: Sequence[str] = ("inference", "default-inputs", "integers-in-floats"),
    expand: bool = True,
) -> Any:
    """The model with that version of ``ai.onnx``: a ModelProto for a ModelProto, bytes for bytes and for a path.

    What a model at a path has in data files is inside the answer.

    It does what the command ``sardonyx convert --opset VERSION`` does. Each node keeps its meaning, also those of functions,
    subgraphs and training algorithms. A node without an equivalent becomes the body of its function, unless ``expand`` is
    False. What is left has none: RuntimeError says which nodes and why.

    ``assume`` lists what is taken for granted of the model: ``inference`` (old Dropout and BatchNormalization run in inference
    mode whatever ``is_test`` says), ``default-inputs`` (callers never override an input that has a default),
    ``integers-in-floats`` (integers that are computed as floats fit in 53 bits), ``indices-in-range`` (no index is negative), ``sizes-not-zero``
    (no shape that a Reshape with allowzero reads has a 0).
    By default the first three, as the converter of the onnx package does; the command assumes nothing by default.
    """
    if isinstance(assume, str):
        raise TypeError(f"assume is {assume!r}, which is not a list of names")
    content = model_content(model)
    return like(model, _converter.convert(content, target_version, list(assume), expand))
