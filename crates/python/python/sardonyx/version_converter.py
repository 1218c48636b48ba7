"""Models converted between versions of the operator set ``ai.onnx``. Messages are objects, such as ``onnx.ModelProto``, or bytes."""

from __future__ import annotations

from typing import Any, overload

from sardonyx._core import version_converter as _converter
from sardonyx._core.version_converter import ConvertError
from sardonyx._messages import Bytes, M, like, serialized

__all__ = ["ConvertError", "convert_version"]


@overload
def convert_version(model: Bytes, target_version: int) -> bytes: ...
@overload
def convert_version(model: M, target_version: int) -> M: ...
def convert_version(model: Any, target_version: int) -> Any:
    """The model with that version of ``ai.onnx``: a ModelProto for a ModelProto, bytes for bytes.

    It means the same; where nodes have no exact equivalent, RuntimeError says which and why. :class:`ConvertError` is raised
    for models that the converter of the onnx package does not hold either.
    """
    content = serialized(model, "ModelProto")
    return like(model, _converter.convert_version(content, target_version))
