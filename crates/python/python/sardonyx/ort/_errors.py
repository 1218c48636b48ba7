"""The exceptions that onnxruntime has. The core says which of them an error becomes, by the name of the class."""

from __future__ import annotations

from sardonyx._core.session import Error


class Fail(Error):
    """An error without a class of its own: an operator that fails, a run that is stopped."""


class InvalidArgument(Error):
    """An input, an output or an option that does not fit the model."""


class MissingInput(InvalidArgument, ValueError):
    """A run without an input that it needs."""


class NoSuchFile(Error):
    """The file of the model does not exist."""


class NoModel(Error):
    """Exists for compatibility; Sardonyx never raises it."""


class EngineError(Error):
    """Exists for compatibility; Sardonyx never raises it."""


class RuntimeException(Error):
    """Exists for compatibility; Sardonyx never raises it."""


class InvalidProtobuf(Error):
    """The bytes are not a model."""


class ModelLoaded(Error):
    """Exists for compatibility; Sardonyx never raises it."""


class NotImplemented(Error):  # noqa: A001
    """The model or a call needs something that Sardonyx does not support."""


class InvalidGraph(Error):
    """The model contradicts itself, or uses operators that are not in the standard."""


class EPFail(Error):
    """Exists for compatibility; Sardonyx never raises it."""


class ModelLoadCanceled(Error):
    """Exists for compatibility; Sardonyx never raises it."""


class ModelRequiresCompilation(Error):
    """Exists for compatibility; Sardonyx never raises it."""


class NotFound(Error):
    """Exists for compatibility; Sardonyx never raises it."""


class DeviceReset(Error):
    """Exists for compatibility; Sardonyx never raises it."""


CLASSES = (
    DeviceReset,
    EPFail,
    EngineError,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    ModelLoadCanceled,
    ModelLoaded,
    ModelRequiresCompilation,
    NoModel,
    NoSuchFile,
    NotFound,
    NotImplemented,
    RuntimeException,
)


def made(cls: type[Error], message: str, *, code: str, help: str | None = None) -> Error:
    """An exception of a class, with the attributes that all have."""
    error = cls(message if help is None else f"{message}\nhelp: {help}")
    error.code, error.message, error.place, error.help, error.unsupported = code, message, None, help, []
    return error
