"""Types for annotations: arguments and results of this package.

They serve type checkers and readers. No argument has to derive from one of the protocols::

    def classify(session: sardonyx.Session, image: sardonyx.typing.ArrayLike) -> int: ...
"""

from __future__ import annotations

import typing as _t
from collections.abc import Mapping as _Mapping
from collections.abc import Sequence as _Sequence
from os import PathLike as _PathLike

from sardonyx._values import SparseTensor as _SparseTensor

__all__ = [
    "ArrayLike",
    "Message",
    "ModelInfo",
    "ModelLike",
    "StrPath",
    "SupportsArray",
    "SupportsDLPack",
    "Value",
    "ValueLike",
]

if _t.TYPE_CHECKING:
    from typing_extensions import Buffer as _Buffer
    from typing_extensions import CapsuleType as _CapsuleType
else:
    # For programs that evaluate annotations: Python has a class Buffer from 3.12 on only.
    _Buffer = bytes | bytearray | memoryview


class SupportsArray(_t.Protocol):
    """An object that numpy converts to an array, such as an array or a scalar of numpy, or a tensor of torch."""

    def __array__(self) -> object:
        """Returns an array of numpy."""


class SupportsDLPack(_t.Protocol):
    """A tensor of another library that shares its memory by DLPack. Its memory must be on the CPU."""

    def __dlpack__(self) -> _CapsuleType:
        """Returns a DLPack capsule."""

    def __dlpack_device__(self) -> tuple[int, int]:
        """Returns the type and the number of the device."""


class Message(_t.Protocol):
    """A protobuf message, such as ``onnx.ModelProto``, or another object that serializes itself."""

    def SerializeToString(self) -> bytes:
        """Returns the serialized message."""


class _IrModel(_t.Protocol):
    """The part of ``onnx_ir.Model`` by which a type checker tells it from other objects."""

    @property
    def graph(self) -> object: ...
    @property
    def opset_imports(self) -> _Mapping[str, int]: ...


class ModelInfo(_t.TypedDict):
    """Fields of a model file that describe the model, as ``Session.info`` returns them. Absent texts are empty."""

    producer_name: str
    """Name of the tool that made the model."""
    producer_version: str
    """Version of that tool."""
    domain: str
    """Name space of the model, in reverse DNS form."""
    graph_name: str
    """Name of the main graph."""
    doc: str
    """Documentation of the model."""
    graph_doc: str
    """Documentation of the main graph."""
    version: int | None
    """Version of the model, or None if the file has none."""


StrPath: _t.TypeAlias = str | _PathLike[str]
"""Path of a file."""

ModelLike: _t.TypeAlias = StrPath | _Buffer | Message | _IrModel
"""A model: the path of its file, its bytes, a message such as ``onnx.ModelProto``, or an ``onnx_ir.Model``."""

ArrayLike: _t.TypeAlias = (
    SupportsArray
    | SupportsDLPack
    | _Buffer
    | bool
    | int
    | float
    | complex
    | str
    | bytes
    | _Sequence["ArrayLike"]
)
"""A tensor: an array, an object with DLPack or the buffer protocol, a Python scalar, or nested lists of scalars."""

ValueLike: _t.TypeAlias = (
    ArrayLike
    | _SparseTensor
    | _Sequence["ValueLike"]
    | _Mapping[str, "ValueLike"]
    | _Mapping[int, "ValueLike"]
    | None
)
"""An input: a tensor, a sparse tensor, a list for a sequence, a dict for a map, or None to leave an optional input out."""

# Any: the model decides which it is, and a union would demand an isinstance() before each use.
Value: _t.TypeAlias = _t.Any
"""An output: an array of numpy, a :class:`sardonyx.Tensor` where numpy has no such array, a
:class:`sardonyx.SparseTensor`, a list for a sequence, a dict for a map, or None for an empty optional."""
