"""What functions of the package take: messages, as objects or as bytes, and paths."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, TypeVar


class Message(Protocol):
    """A message of the protobuf package, such as onnx.ModelProto, or anything else that gives its bytes."""

    def SerializeToString(self) -> bytes: ...


M = TypeVar("M", bound=Message)

Bytes: TypeAlias = bytes | bytearray | memoryview
Serialized: TypeAlias = Bytes | Message
Path: TypeAlias = str | os.PathLike[str]


def serialized(message: Any, kind: str) -> bytes:
    """The bytes of a message of that kind."""
    if isinstance(message, bytes):
        return message
    if isinstance(message, (bytearray, memoryview)):
        return bytes(message)
    serialize = getattr(message, "SerializeToString", None)
    if isinstance(message, type) or not callable(serialize):
        raise TypeError(
            f"expected a {kind}, as an object with SerializeToString() or as bytes, not {_name(message)}"
        )
    content = serialize()
    if not isinstance(content, bytes):
        raise TypeError(
            f"SerializeToString() of {_name(message)} gives {_name(content)} instead of bytes"
        )
    return content


def serialized_model(model: Any, kind: str = "ModelProto") -> bytes:
    """The bytes of a model: of any message object, of bytes, and of a model of the onnx_ir package."""
    if type(model).__module__.partition(".")[0] == "onnx_ir":
        import onnx_ir

        model = onnx_ir.to_proto(model)
    return serialized(model, kind)


def serialize_argument(model: Any, argument: str = "model") -> bytes:
    """Returns the bytes of a model that is given to a session, as the argument of this name."""
    if model is None or isinstance(model, type) or not (
        isinstance(model, (bytes, bytearray, memoryview))
        or callable(getattr(model, "SerializeToString", None))
        or type(model).__module__.partition(".")[0] == "onnx_ir"
    ):
        raise TypeError(
            f"{argument} must be a path, the bytes of a model or an object with SerializeToString(), not {_name(model)}"
        )
    return serialized_model(model)


def model_content(model: Any, kind: str = "ModelProto or the path of one") -> bytes:
    """The bytes of a model: of a file at a path, with the values of its data files inside, and of all that serialized_model takes."""
    if is_path(model):
        from sardonyx._core import session

        return session.model_content(file_path(model))
    return serialized_model(model, kind)


def like(message: Any, content: bytes) -> Any:
    """Bytes as what the caller works with: an object of the same class as a message, or bytes."""
    read = reader(message)
    return content if read is None else read(content)


def reader(message: Any) -> Callable[[bytes], Any] | None:
    """What makes an object of the same class as a message of bytes; None for other objects."""
    read = getattr(type(message), "FromString", None)
    return read if callable(read) else None


def is_path(value: object) -> bool:
    """Whether a value is a path rather than a message."""
    return isinstance(value, (str, os.PathLike))


def file_path(path: Any) -> str:
    """A path as text."""
    if not is_path(path):
        raise TypeError(f"expected a path, as str or os.PathLike, not {_name(path)}")
    path = os.fspath(path)
    return path if isinstance(path, str) else os.fsdecode(path)


def text(value: Any) -> str:
    """A text in the notation."""
    if not isinstance(value, str):
        raise TypeError(f"expected a text as str, not {_name(value)}")
    return value


def _name(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__} itself"
    return type(value).__name__
