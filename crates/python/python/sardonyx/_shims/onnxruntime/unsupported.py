"""Names of onnxruntime for features that Sardonyx does not have. They can be imported; using them raises an error with advice."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from sardonyx._core import ort as _core
from sardonyx._shims.onnxruntime.options import Number

if TYPE_CHECKING:
    from collections.abc import Callable


class OrtCompileApiFlags(Number):
    """Options of ``ModelCompiler``, which Sardonyx does not have."""

    NONE = 0
    ERROR_IF_NO_NODES_COMPILED = 1
    ERROR_IF_OUTPUT_FILE_EXISTS = 2


class LoraAdapter:
    """Refused when it is loaded: a run uses the weights of its model."""

    def Load(self, path: str) -> NoReturn:
        """Refuses: a run uses the weights of its model."""
        raise _core.refusal("adapter", str(path))


class AdapterFormat:
    """Refused when a file is read or written: a run uses the weights of its model."""

    def __init__(self, adapter: object = None) -> None:
        self._adapter = adapter

    @staticmethod
    def read_adapter(file_path: object) -> NoReturn:
        """Refuses: a run uses the weights of its model."""
        raise _core.refusal("adapter file to read", str(file_path))

    def export_adapter(self, file_path: object) -> NoReturn:
        """Refuses: a run uses the weights of its model."""
        raise _core.refusal("adapter file to write", str(file_path))

    def set_parameters(self, params: object) -> NoReturn:
        """Refuses: a run uses the weights of its model."""
        raise _core.refusal("adapter to make")


class ModelCompiler:
    """Refused when it is made: sessions prepare models by themselves."""

    def __init__(
        self, sess_options: object, input_model_path_or_bytes: object, *args: object, **options: object
    ) -> None:
        raise _core.refusal("compiled model")


class _NeverMade:
    """Base of classes without objects in Sardonyx."""

    def __init__(self, *args: object, **options: object) -> None:
        raise _core.refusal("class", type(self).__name__)


class OrtEpAssignedNode(_NeverMade):
    """Refused: nodes are not assigned to execution providers."""


class OrtEpAssignedSubgraph(_NeverMade):
    """Refused: nodes are not assigned to execution providers."""


class OrtEpContextData(_NeverMade):
    """Refused: models are not compiled to files."""


class OrtEpContextDataBuffer(_NeverMade):
    """Refused: models are not compiled to files."""


class OrtExternalInitializerInfo(_NeverMade):
    """Refused: models are not compiled to files."""


class OrtSyncStream(_NeverMade):
    """Refused: the CPU has no streams."""


#: Functions of ``onnxruntime.capi`` that change models or describe kernels, by the key of their refusal in the core.
_FUNCTIONS = {
    "quantizing function": (
        "quantize_matmul_2bits",
        "quantize_matmul_4bits",
        "quantize_matmul_8bits",
        "quantize_matmul_bnb4",
        "quantize_qdq_matmul_2bits",
        "quantize_qdq_matmul_4bits",
        "pack_fp4_weights_for_cuda_moe_gemm",
    ),
    "schema function": ("get_all_operator_schema", "get_all_opkernel_def", "get_registered_ep_kernel_defs"),
    "compatibility function": (
        "get_compatibility_info_from_model",
        "get_compatibility_info_from_model_bytes",
        "get_hardware_device_ep_incompatibility_details",
        "get_model_compatibility_for_ep_devices",
    ),
}


def make_functions() -> dict[str, Callable[..., NoReturn]]:
    """Makes functions of ``onnxruntime.capi``, by name, that refuse calls with advice."""
    return {name: _make_function(name, key) for key, names in _FUNCTIONS.items() for name in names}


def _make_function(name: str, key: str) -> Callable[..., NoReturn]:
    def refuse(*args: object, **options: object) -> NoReturn:
        raise _core.refusal(key, name)

    refuse.__name__, refuse.__doc__ = name, f"Refuses: {_core.refusal(key, name).help}."
    return refuse
