"""Conversion between serialized messages and the objects, bytes and paths that callers give."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeAlias, TypeGuard, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Buffer

    from sardonyx.typing import Message, StrPath, _IrModel

    M = TypeVar("M", bound=Message)
    #: A model from which functions make bytes: all of ``ModelLike`` but messages, which give messages.
    BytesSource: TypeAlias = StrPath | Buffer | _IrModel

#: Classes whose objects are taken as the bytes of a message.
BYTES = (bytes, bytearray, memoryview)


def serialized(message: Buffer | Message, kind: str) -> bytes:
    """Returns the bytes of a message. ``kind`` names the class of message that errors ask for."""
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


def serialized_model(model: object, kind: str = "ModelProto") -> bytes:
    """Returns the bytes of a model that is a message, bytes, or a model of the onnx_ir package."""
    return serialized(_to_message(model), kind)


def serialize_argument(model: object, argument: str = "model") -> bytes:
    """Returns the bytes of a model that a session is given. ``argument`` is the name of the parameter, for errors."""
    if model is None or isinstance(model, type) or not (
        isinstance(model, BYTES)
        or callable(getattr(model, "SerializeToString", None))
        or _is_of_onnx_ir(model)
    ):
        raise TypeError(
            f"{argument} must be a path, the bytes of a model or an object with SerializeToString(), not {_name(model)}"
        )
    return serialized_model(model)


def model_content(model: object, kind: str = "ModelProto or the path of one") -> bytes:
    """Returns the bytes of a model that is a path, a message, bytes, or a model of the onnx_ir package.

    Values in the data files of a model at a path are copied into the bytes.
    """
    if is_path(model):
        from sardonyx._core import session

        return session.model_content(file_path(model))
    return serialized_model(model, kind)


def like(message: object, content: bytes) -> bytes | Message:
    """Returns ``content`` as an object of the class of ``message``, or as bytes if that class cannot be parsed from bytes."""
    read = reader(message)
    return content if read is None else read(content)


def reader(message: object) -> Callable[[bytes], Message] | None:
    """Returns the function that parses the class of ``message`` from bytes, or None if the class has none."""
    read = getattr(type(message), "FromString", None)
    return read if callable(read) else None


def is_path(value: object) -> TypeGuard[StrPath]:
    """Whether a value is a path rather than a message."""
    return isinstance(value, (str, os.PathLike))


def file_path(path: object) -> str:
    """Returns a path as a str."""
    if not is_path(path):
        raise TypeError(f"expected a path, as str or os.PathLike, not {_name(path)}")
    path = os.fspath(path)
    return path if isinstance(path, str) else os.fsdecode(path)


def text(value: object) -> str:
    """Returns ``value``, which must be a str, as the text of a model."""
    if not isinstance(value, str):
        raise TypeError(f"expected a text as str, not {_name(value)}")
    return value


def names(value: Sequence[str], argument: str) -> list[str]:
    """Returns an argument that is a list of names. Refuses a single str, whose letters would be taken for names."""
    if isinstance(value, str):
        raise TypeError(f"{argument} is {value!r}, which is not a list of names; use [{value!r}]")
    return list(value)


def _to_message(model: object) -> Buffer | Message:
    if _is_of_onnx_ir(model):
        import onnx_ir

        model = onnx_ir.to_proto(model)
    return model  # type: ignore[return-value]  # serialized() refuses others.


def _is_of_onnx_ir(model: object) -> bool:
    return type(model).__module__.partition(".")[0] == "onnx_ir"


def _name(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__} itself"
    return type(value).__name__
