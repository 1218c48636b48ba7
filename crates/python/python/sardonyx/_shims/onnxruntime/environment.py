"""Functions of onnxruntime about the process: versions, logging, threads and telemetry."""

from __future__ import annotations

from sardonyx._core import ort as _core


def get_version_string() -> str:
    """Returns the release of onnxruntime whose names and behaviour Sardonyx follows."""
    return _core.VERSION


def get_build_info() -> str:
    """Returns the names and the releases of Sardonyx and of onnxruntime."""
    return _core.build_info()


def get_device() -> str:
    """Returns ``CPU``, the device that models run on."""
    return "CPU"


def print_debug_info() -> None:
    """Prints the names and the releases of Sardonyx and of onnxruntime."""
    print(get_build_info())


def has_collective_ops() -> bool:
    """Whether operators that communicate between processes can run: never."""
    return False


def set_default_logger_severity(severity: int) -> None:
    """Ignores the severity: Sardonyx writes no log."""
    if not isinstance(severity, int):
        raise TypeError(f"the severity must be an int, not {type(severity).__name__}")


def set_default_logger_verbosity(verbosity: int) -> None:
    """Ignores the verbosity: Sardonyx writes no log."""
    if not isinstance(verbosity, int):
        raise TypeError(f"the verbosity must be an int, not {type(verbosity).__name__}")


def set_global_thread_pool_sizes(intra_op: int, inter_op: int) -> None:
    """Ignores the sizes: all sessions share the threads of the process."""


def disable_telemetry_events() -> None:
    """Does nothing: Sardonyx sends no telemetry."""


def enable_telemetry_events() -> None:
    """Does nothing: Sardonyx sends no telemetry."""


def preload_dlls(*args: object, **options: object) -> None:
    """Does nothing: Sardonyx uses no GPU libraries."""
