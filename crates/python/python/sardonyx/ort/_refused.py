"""Classes of onnxruntime for things that Sardonyx does not do. They can be imported, and say what to do when they are used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sardonyx.ort._options import Number, not_there


class OrtCompileApiFlags(Number):
    """Options of ``ModelCompiler``, which Sardonyx does not have."""

    NONE = 0
    ERROR_IF_NO_NODES_COMPILED = 1
    ERROR_IF_OUTPUT_FILE_EXISTS = 2


class LoraAdapter:
    """Refused when it is loaded: a run uses the weights of its model."""

    def Load(self, path: str) -> None:
        """Refused: a run uses the weights of its model."""
        raise _no_adapters(f"the adapter '{path}' cannot be loaded")


class AdapterFormat:
    """Refused when a file is read or written: a run uses the weights of its model."""

    def __init__(self, adapter: Any = None) -> None:
        self._adapter = adapter

    @staticmethod
    def read_adapter(file_path: Any) -> AdapterFormat:
        """Refused: a run uses the weights of its model."""
        raise _no_adapters(f"the adapter '{file_path}' cannot be read")

    def export_adapter(self, file_path: Any) -> None:
        """Refused: a run uses the weights of its model."""
        raise _no_adapters(f"the adapter '{file_path}' cannot be written")

    def set_parameters(self, params: Any) -> None:
        """Refused: a run uses the weights of its model."""
        raise _no_adapters("an adapter cannot be made")


def _no_adapters(what: str) -> Exception:
    return not_there(
        f"{what}: Sardonyx has no adapters",
        "add the parameters to the weights of the model, or make them inputs of the model",
    )


class ModelCompiler:
    """Refused when it is made: sessions prepare models by themselves."""

    def __init__(self, sess_options: Any, input_model_path_or_bytes: Any, *args: Any, **options: Any) -> None:
        raise not_there(
            "models are not compiled to files", "give the model itself to InferenceSession, which prepares it"
        )


class _NeverMade:
    """A class of which Sardonyx makes no objects."""

    def __init__(self, *args: Any, **options: Any) -> None:
        name = type(self).__name__
        raise not_there(f"{name} is not supported", f"remove it: no function of Sardonyx takes or returns a {name}")


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


#: Functions of ``onnxruntime.capi`` that work on models or describe kernels, and what to use instead.
_FUNCTIONS = {
    **dict.fromkeys(
        (
            "quantize_matmul_2bits",
            "quantize_matmul_4bits",
            "quantize_matmul_8bits",
            "quantize_matmul_bnb4",
            "quantize_qdq_matmul_2bits",
            "quantize_qdq_matmul_4bits",
            "pack_fp4_weights_for_cuda_moe_gemm",
        ),
        "quantize the model where onnxruntime is installed; Sardonyx runs the result",
    ),
    **dict.fromkeys(
        ("get_all_operator_schema", "get_all_opkernel_def", "get_registered_ep_kernel_defs"),
        "sardonyx.defs.get_all_schemas_with_history lists the operators",
    ),
    **dict.fromkeys(
        (
            "get_compatibility_info_from_model",
            "get_compatibility_info_from_model_bytes",
            "get_hardware_device_ep_incompatibility_details",
            "get_model_compatibility_for_ep_devices",
        ),
        "leave it out: models are not compiled for a device",
    ),
}


def make_functions() -> dict[str, Callable[..., Any]]:
    """Makes functions of ``onnxruntime.capi``, by name, that refuse with advice when they are called."""
    return {name: _make_function(name, help) for name, help in _FUNCTIONS.items()}


def _make_function(name: str, help: str) -> Callable[..., Any]:
    def refuse(*args: Any, **options: Any) -> Any:
        raise not_there(f"onnxruntime.capi has no function '{name}' here", help)

    refuse.__name__, refuse.__doc__ = name, f"Refused: {help}."
    return refuse
