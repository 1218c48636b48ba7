"""Types and shapes of all values of a model. Models are paths, objects such as ``onnx.ModelProto``, or bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from sardonyx._core import shape_inference as _inference
from sardonyx._core.shape_inference import GraphInferencer, InferenceContext, InferenceError
from sardonyx._messages import Bytes, M, Path, Serialized, file_path, like, model_content, serialized

__all__ = [
    "GraphInferencer",
    "InferenceContext",
    "InferenceError",
    "infer_function_output_types",
    "infer_shapes",
    "infer_shapes_path",
]


@overload
def infer_shapes(
    model: Bytes | Path, check_type: bool = False, strict_mode: bool = False, data_prop: bool = False
) -> bytes: ...
@overload
def infer_shapes(
    model: M, check_type: bool = False, strict_mode: bool = False, data_prop: bool = False
) -> M: ...
def infer_shapes(
    model: Any, check_type: bool = False, strict_mode: bool = False, data_prop: bool = False
) -> Any:
    """The model with inferred types written into it: a ModelProto for a ModelProto, bytes for bytes and for a path.

    What a model at a path has in data files is inside the answer; :func:`infer_shapes_path` leaves it where it is.

    With check_type, types are compared with those that operators take. With strict_mode, what contradicts itself raises
    :class:`InferenceError`; otherwise less is inferred, as for operators of a set that is not imported. With data_prop, values that shapes are made of are followed.
    """
    content = model_content(model)
    return like(model, _inference._infer_shapes(content, check_type, strict_mode, data_prop))


def infer_shapes_path(
    model_path: Path,
    output_path: Path,
    check_type: bool = False,
    strict_mode: bool = False,
    data_prop: bool = False,
) -> None:
    """The same from file to file. Data files of the model are neither read nor moved."""
    paths = (file_path(model_path), file_path(output_path))
    _inference._infer_shapes_path(*paths, check_type, strict_mode, data_prop)


def infer_function_output_types(
    function: Serialized,
    input_types: Sequence[Serialized],
    attributes: Sequence[Serialized] = (),
) -> list[bytes]:
    """The outputs of a FunctionProto for TypeProtos of its inputs and AttributeProtos, as serialized TypeProtos."""
    return _inference.infer_function_output_types(
        serialized(function, "FunctionProto"),
        [serialized(ty, "TypeProto for each input") for ty in input_types],
        [serialized(attribute, "AttributeProto for each attribute") for attribute in attributes],
    )
