"""Exceptions with the names of onnxruntime's. The core selects one for an error by the name of its class."""

from __future__ import annotations

from sardonyx._core.session import Error


class Fail(Error):
    """Raised for errors without a class of their own, such as a failing operator or a stopped run."""


class InvalidArgument(Error):
    """Raised for an input, an output or an option that does not fit the model."""


class MissingInput(InvalidArgument, ValueError):
    """Raised for a run without a required input."""


class NoSuchFile(Error):
    """Raised if the model file does not exist."""


class NoModel(Error):
    """Exists for compatibility; Sardonyx never raises it."""


class EngineError(Error):
    """Exists for compatibility; Sardonyx never raises it."""


class RuntimeException(Error):
    """Exists for compatibility; Sardonyx never raises it."""


class InvalidProtobuf(Error):
    """Raised for bytes that are not a model."""


class ModelLoaded(Error):
    """Exists for compatibility; Sardonyx never raises it."""


class NotImplemented(Error):  # noqa: A001
    """Raised for a model or a call that needs a feature which Sardonyx does not support."""


class InvalidGraph(Error):
    """Raised for a model that contradicts itself, or has operators that are not in the standard."""


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


def make_error(cls: type[Error], message: str, *, code: str, help: str | None = None) -> Error:
    """Makes an exception of a class, with the attributes of :class:`sardonyx.Error`."""
    error = cls(message if help is None else f"{message}\nhelp: {help}")
    error.code, error.message, error.place, error.help, error.unsupported = code, message, None, help, []
    return error
