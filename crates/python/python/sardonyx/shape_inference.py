"""Infers types and shapes of all values of a model. Models are paths, objects such as ``onnx.ModelProto``, or bytes."""

from __future__ import annotations

import typing as _t

from sardonyx import _messages
from sardonyx._core import shape_inference as _inference
from sardonyx._core.shape_inference import GraphInferencer, InferenceContext, InferenceError

if _t.TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

    from sardonyx._messages import BytesSource, M
    from sardonyx.typing import Message, ModelLike, StrPath

__all__ = [
    "GraphInferencer",
    "InferenceContext",
    "InferenceError",
    "infer_function_output_types",
    "infer_shapes",
    "infer_shapes_path",
]


@_t.overload
def infer_shapes(
    model: M, check_type: bool = False, strict_mode: bool = False, data_prop: bool = False
) -> M: ...
@_t.overload
def infer_shapes(
    model: BytesSource, check_type: bool = False, strict_mode: bool = False, data_prop: bool = False
) -> bytes: ...
def infer_shapes(
    model: ModelLike, check_type: bool = False, strict_mode: bool = False, data_prop: bool = False
) -> bytes | Message:
    """Writes inferred types into a model and returns it: a ModelProto for a ModelProto, bytes for bytes and for a path.

    Values in the data files of a model at a path are copied into the result; :func:`infer_shapes_path` leaves them in
    their files.

    ``check_type`` compares types with those that operators accept. ``strict_mode`` raises :class:`InferenceError` for
    contradictions; without it, values with contradictory types stay untyped, as do outputs of operators from sets that are
    not imported. ``data_prop`` propagates the values of small integer tensors, from which shapes are computed.
    """
    content = _messages.model_content(model)
    return _messages.like(model, _inference._infer_shapes(content, check_type, strict_mode, data_prop))


def infer_shapes_path(
    model_path: StrPath,
    output_path: StrPath,
    check_type: bool = False,
    strict_mode: bool = False,
    data_prop: bool = False,
) -> None:
    """Writes inferred types into a copy of a model file. Its data files are neither read nor moved.

    The options are those of :func:`infer_shapes`.
    """
    paths = (_messages.file_path(model_path), _messages.file_path(output_path))
    _inference._infer_shapes_path(*paths, check_type, strict_mode, data_prop)


def infer_function_output_types(
    function: Buffer | Message,
    input_types: Sequence[Buffer | Message],
    attributes: Sequence[Buffer | Message] = (),
) -> list[bytes]:
    """Infers the outputs of a FunctionProto from TypeProtos of its inputs and AttributeProtos, as serialized TypeProtos."""
    return _inference.infer_function_output_types(
        _messages.serialized(function, "FunctionProto"),
        [_messages.serialized(ty, "TypeProto for each input") for ty in input_types],
        [_messages.serialized(attribute, "AttributeProto for each attribute") for attribute in attributes],
    )
