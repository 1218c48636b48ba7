"""Element types in ONNX, numpy and torch: the class ``TypeHelper`` of ``onnxruntime.transformers.io_binding_helper``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sardonyx._core import session as _core
from sardonyx._shims.onnxruntime.values import dtype_of, numpy

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from numpy.typing import DTypeLike

    from sardonyx._shims.onnxruntime.session import InferenceSession, NodeArg


class TypeHelper:
    """Translates element types between ONNX, numpy and torch, and looks up those of a session's inputs and outputs."""

    @staticmethod
    def get_input_type(ort_session: InferenceSession, name: str) -> str:
        """Returns the type of an input, such as ``tensor(float)``."""
        return _find_type(ort_session.get_inputs(), name, "input")

    @staticmethod
    def get_output_type(ort_session: InferenceSession, name: str) -> str:
        """Returns the type of an output, such as ``tensor(float)``."""
        return _find_type(ort_session.get_outputs(), name, "output")

    @staticmethod
    def ort_type_to_numpy_type(ort_type: str) -> type:
        """Returns the scalar type of numpy or ml_dtypes for the elements of an ONNX tensor type."""
        return dtype_of(_number_and_name(ort_type)[0]).type

    @staticmethod
    def ort_type_to_torch_type(ort_type: str) -> torch.dtype:
        """Returns the dtype of torch for the elements of an ONNX tensor type."""
        return _find_torch_type(_number_and_name(ort_type)[1])

    @staticmethod
    def numpy_type_to_torch_type(numpy_type: DTypeLike) -> torch.dtype:
        """Returns the dtype of torch for an element type of numpy."""
        return _find_torch_type(numpy().dtype(numpy_type).name)

    @staticmethod
    def torch_type_to_numpy_type(torch_type: torch.dtype) -> type:
        """Returns the scalar type of numpy or ml_dtypes for a dtype of torch."""
        name = str(torch_type).removeprefix("torch.")
        for number, _, known in _core.element_types():
            if known == name:
                return dtype_of(number).type
        raise ValueError(f"the type {torch_type} of torch is not an element type of ONNX")

    @staticmethod
    def get_io_numpy_type_map(ort_session: InferenceSession) -> dict[str, type]:
        """Returns the scalar types of numpy of all inputs and outputs, which must be tensors, by name."""
        ports = [*ort_session.get_inputs(), *ort_session.get_outputs()]
        return {port.name: TypeHelper.ort_type_to_numpy_type(port.type) for port in ports}


def _find_type(ports: Sequence[NodeArg], name: str, kind: str) -> str:
    for port in ports:
        if port.name == name:
            return port.type
    names = ", ".join(f"'{port.name}'" for port in ports)
    raise ValueError(f"the model has no {kind} '{name}': it has {names}")


def _number_and_name(ort_type: str) -> tuple[int, str]:
    """Returns the number of an element type in ONNX, and its name in numpy or ml_dtypes."""
    for number, name, known in _core.element_types():
        if ort_type == f"tensor({name})":
            return number, known
    raise ValueError(f"the type {ort_type} is not a tensor of elements of ONNX")


def _find_torch_type(name: str) -> torch.dtype:
    import torch

    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"torch has no element type {name}")
    return found
