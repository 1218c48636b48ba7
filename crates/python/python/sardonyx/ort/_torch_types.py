"""Element types as ONNX, numpy and torch call them: what ``onnxruntime.transformers.io_binding_helper`` offers for that."""

from __future__ import annotations

from typing import Any

from sardonyx._core import session as _core
from sardonyx.ort._values import dtype_of, numpy


class TypeHelper:
    """Element types of the inputs and outputs of a session, and their names in other packages."""

    @staticmethod
    def get_input_type(ort_session: Any, name: str) -> str:
        """The type of an input, such as ``tensor(float)``."""
        return _type_of(ort_session.get_inputs(), name, "input")

    @staticmethod
    def get_output_type(ort_session: Any, name: str) -> str:
        """The type of an output, such as ``tensor(float)``."""
        return _type_of(ort_session.get_outputs(), name, "output")

    @staticmethod
    def ort_type_to_numpy_type(ort_type: str) -> Any:
        """What numpy, or ml_dtypes, calls the elements of a tensor of this type."""
        return dtype_of(_number_and_name(ort_type)[0]).type

    @staticmethod
    def ort_type_to_torch_type(ort_type: str) -> Any:
        """What torch calls the elements of a tensor of this type."""
        return _of_torch(_number_and_name(ort_type)[1])

    @staticmethod
    def numpy_type_to_torch_type(numpy_type: Any) -> Any:
        """What torch calls an element type of numpy."""
        return _of_torch(numpy().dtype(numpy_type).name)

    @staticmethod
    def torch_type_to_numpy_type(torch_type: Any) -> Any:
        """What numpy, or ml_dtypes, calls an element type of torch."""
        name = str(torch_type).removeprefix("torch.")
        for number, _, known in _core.element_types():
            if known == name:
                return dtype_of(number).type
        raise ValueError(f"the type {torch_type} of torch is not an element type of ONNX")

    @staticmethod
    def get_io_numpy_type_map(ort_session: Any) -> dict[str, Any]:
        """By name of an input or output that is a tensor: what numpy calls its elements."""
        ports = [*ort_session.get_inputs(), *ort_session.get_outputs()]
        return {port.name: TypeHelper.ort_type_to_numpy_type(port.type) for port in ports}


def _type_of(ports: Any, name: str, kind: str) -> str:
    for port in ports:
        if port.name == name:
            return port.type
    names = ", ".join(f"'{port.name}'" for port in ports)
    raise ValueError(f"the model has no {kind} '{name}': it has {names}")


def _number_and_name(ort_type: str) -> tuple[int, str]:
    """The number of an element type in ONNX, and what numpy calls it."""
    for number, name, known in _core.element_types():
        if ort_type == f"tensor({name})":
            return number, known
    raise ValueError(f"the type {ort_type} is not a tensor of elements of ONNX")


def _of_torch(name: str) -> Any:
    import torch

    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"torch has no element type {name}")
    return found
