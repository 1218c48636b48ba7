"""The names of onnxruntime, on Sardonyx.

``import sardonyx.ort as onnxruntime`` is enough for programs that can be changed. For those that cannot, see
:func:`sardonyx.use_as_onnxruntime` and ``python -m sardonyx.ort program.py``.

Results are those of Sardonyx where onnxruntime gives others: Resize and Upsample by a scale have the sizes of PyTorch,
so 100 by 0.29 is 28 and not 29. The manual lists all such operators under "Results that differ from ONNX Runtime's".
"""

from __future__ import annotations

from sardonyx._core import ort as _core
from sardonyx._values import SparseTensor
from sardonyx.ort._devices import (
    OrtAllocatorType,
    OrtArenaCfg,
    OrtDeviceMemoryType,
    OrtDeviceVendorId,
    OrtEpDevice,
    OrtExecutionProviderDevicePolicy,
    OrtHardwareDevice,
    OrtHardwareDeviceType,
    OrtMemoryInfo,
    OrtMemoryInfoDeviceType,
    OrtMemType,
    OrtSparseFormat,
    copy_tensors,
    create_and_register_allocator,
    create_and_register_allocator_v2,
    get_ep_devices,
    register_execution_provider_library,
    unregister_execution_provider_library,
)
from sardonyx.ort._options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from sardonyx.ort._refused import (
    AdapterFormat,
    LoraAdapter,
    ModelCompiler,
    OrtCompileApiFlags,
    OrtEpAssignedNode,
    OrtEpAssignedSubgraph,
    OrtEpContextData,
    OrtEpContextDataBuffer,
    OrtExternalInitializerInfo,
    OrtSyncStream,
)
from sardonyx.ort._session import (
    InferenceSession,
    ModelMetadata,
    NodeArg,
    get_all_providers,
    get_available_providers,
    set_seed,
)
from sardonyx.ort._values import IOBinding, OrtDevice, OrtValue

__all__ = [
    "AdapterFormat",
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "LoraAdapter",
    "ModelCompiler",
    "ModelMetadata",
    "NodeArg",
    "OrtAllocatorType",
    "OrtArenaCfg",
    "OrtCompileApiFlags",
    "OrtDevice",
    "OrtDeviceMemoryType",
    "OrtDeviceVendorId",
    "OrtEpAssignedNode",
    "OrtEpAssignedSubgraph",
    "OrtEpContextData",
    "OrtEpContextDataBuffer",
    "OrtEpDevice",
    "OrtExecutionProviderDevicePolicy",
    "OrtExternalInitializerInfo",
    "OrtHardwareDevice",
    "OrtHardwareDeviceType",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtMemoryInfoDeviceType",
    "OrtSparseFormat",
    "OrtSyncStream",
    "OrtValue",
    "RunOptions",
    "SessionIOBinding",
    "SessionOptions",
    "SparseTensor",
    "copy_tensors",
    "create_and_register_allocator",
    "create_and_register_allocator_v2",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_ep_devices",
    "get_version_string",
    "has_collective_ops",
    "preload_dlls",
    "print_debug_info",
    "register_execution_provider_library",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
    "unregister_execution_provider_library",
]

#: The release of onnxruntime whose names and behaviour these are.
__version__: str = _core.VERSION

SessionIOBinding = IOBinding


def get_version_string() -> str:
    """The release of onnxruntime whose names and behaviour these are."""
    return __version__


def get_build_info() -> str:
    """The names and the releases of Sardonyx and of onnxruntime."""
    return _core.build_info()


def get_device() -> str:
    """The device that models run on: ``CPU``."""
    return "CPU"


def print_debug_info() -> None:
    """Prints the names and the releases of Sardonyx and of onnxruntime."""
    print(get_build_info())


def has_collective_ops() -> bool:
    """Whether operators that work over several processes can run: never."""
    return False


def set_default_logger_severity(severity: int) -> None:
    """Accepted and ignored: Sardonyx writes no log."""
    if not isinstance(severity, int):
        raise TypeError(f"the severity must be an int, not {type(severity).__name__}")


def set_default_logger_verbosity(verbosity: int) -> None:
    """Accepted and ignored: Sardonyx writes no log."""
    if not isinstance(verbosity, int):
        raise TypeError(f"the verbosity must be an int, not {type(verbosity).__name__}")


def set_global_thread_pool_sizes(intra_op: int, inter_op: int) -> None:
    """Accepted and ignored: all sessions share the threads of the process."""


def disable_telemetry_events() -> None:
    """Accepted and ignored: Sardonyx sends no telemetry."""


def enable_telemetry_events() -> None:
    """Accepted and ignored: Sardonyx sends no telemetry."""


def preload_dlls(*args: object, **options: object) -> None:
    """Accepted and ignored: Sardonyx uses no GPU libraries."""
