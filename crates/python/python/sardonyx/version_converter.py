"""Converts models between versions of the operator set ``ai.onnx``.

Models are paths, objects such as ``onnx.ModelProto``, or bytes.
"""

from __future__ import annotations

import typing as _t

from sardonyx import _messages
from sardonyx._core import version_converter as _converter
from sardonyx._core.version_converter import ConvertError

if _t.TYPE_CHECKING:
    from collections.abc import Sequence

    from sardonyx._messages import BytesSource, M
    from sardonyx.typing import Message, ModelLike

__all__ = ["ConvertError", "convert_version"]


@_t.overload
def convert_version(
    model: M, target_version: int, *, assume: Sequence[str] = ..., expand: bool = True
) -> M: ...
@_t.overload
def convert_version(
    model: BytesSource, target_version: int, *, assume: Sequence[str] = ..., expand: bool = True
) -> bytes: ...
def convert_version(
    model: ModelLike,
    target_version: int,
    *,
    assume: Sequence[str] = ("inference", "default-inputs", "integers-in-floats"),
    expand: bool = True,
) -> bytes | Message:
    """Converts a model to a version of ``ai.onnx`` and returns it: a ModelProto for a ModelProto, bytes for bytes and for a path.

    Values in the data files of a model at a path are copied into the result.

    Converts like the command ``sardonyx convert --opset VERSION``. Each node keeps its meaning, also in functions,
    subgraphs and training algorithms. A node without an equivalent is replaced by the body of its function, unless
    ``expand`` is False. Raises RuntimeError with all nodes that have no equivalent and the reasons.

    ``assume`` lists facts about the model that the converter may rely on: ``inference`` (old Dropout and
    BatchNormalization run in inference mode whatever ``is_test`` is), ``default-inputs`` (callers never override an input
    that has a default), ``integers-in-floats`` (integers that are computed as floats fit in 53 bits), ``indices-in-range``
    (no index is negative), ``sizes-not-zero`` (no shape input of a Reshape with allowzero contains a 0). The default is the
    first three, like the converter of the onnx package; the command assumes nothing by default.
    """
    assume = _messages.names(assume, "assume")
    content = _messages.model_content(model)
    return _messages.like(model, _converter.convert(content, target_version, assume, expand))
