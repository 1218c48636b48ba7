"""The exceptions that onnxruntime has, and which of them an error of ours becomes."""

from __future__ import annotations

import os
from typing import Any

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

_OF_RUNS = {"input": InvalidArgument, "output": InvalidArgument}
_OF_MODELS = {"format": InvalidProtobuf, "invalid": InvalidGraph, "input": InvalidArgument}


def made(cls: type[Error], message: str, *, code: str, help: str | None = None) -> Error:
    """An exception of a class, with the attributes that all have."""
    error = cls(message if help is None else f"{message}\nhelp: {help}")
    error.code, error.message, error.place, error.help, error.unsupported = code, message, None, help, []
    return error


def of_run(error: Error) -> Error:
    """The exception for what went wrong in a run."""
    return _as(_OF_RUNS.get(error.code, Fail), error)


def of_model(error: Error, model: Any) -> Error:
    """The exception for a model that cannot be opened or run."""
    if error.code == "unsupported":
        return _as(_of_operators(error.unsupported), error)
    if error.code == "io":
        return _as(_of_file(model), error)
    if error.code == "format" and isinstance(model, bytes) and not model:
        return _as(InvalidArgument, error)
    return _as(_OF_MODELS.get(error.code, Fail), error)


def _of_file(model: Any) -> type[Error]:
    """The class for a file that cannot be opened or read, as in onnxruntime.

    A directory is ``InvalidProtobuf``. Other errors of the system, such as too many open files, are ``Fail``.
    """
    if isinstance(model, (str, os.PathLike)):
        if not os.path.lexists(model):
            return NoSuchFile
        if os.path.isdir(model):
            return InvalidProtobuf
    return Fail


def _of_operators(operators: list[str]) -> type[Error]:
    """The class for operators that cannot run, as in onnxruntime.

    ``Fail`` for opset versions newer than the newest known, for unknown domains, and without operators, which is a version
    of the format newer than the newest known; else ``InvalidGraph``.
    """
    if not operators:
        return Fail
    names = [operator.partition(",")[0] for operator in operators]
    if any("the newest opset version known" in operator for operator in operators):
        return Fail
    known = all("." not in name or name.startswith("ai.onnx.ml.") for name in names)
    return InvalidGraph if known else Fail


def _as(cls: type[Error], error: Error) -> Error:
    converted = cls(str(error))
    converted.__dict__.update(error.__dict__)
    return converted
