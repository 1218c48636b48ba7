"""``onnxruntime.backend``: models that are run at once, in the form that the onnx package calls a backend.

What is returned and refused is as in onnxruntime; :mod:`sardonyx.backend` is the backend of Sardonyx itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sardonyx.ort._options import RunOptions, SessionOptions
from sardonyx.ort._session import InferenceSession

#: What the module ``onnxruntime.backend`` has.
FUNCTIONS = ("is_compatible", "prepare", "run", "supports_device")

#: Options that keywords may set: none that write files or end runs.
SESSION_OPTIONS = (
    "enable_cpu_mem_arena",
    "enable_mem_pattern",
    "enable_mem_reuse",
    "execution_mode",
    "execution_order",
    "graph_optimization_level",
    "inter_op_num_threads",
    "intra_op_num_threads",
    "log_severity_level",
    "log_verbosity_level",
    "logid",
    "use_deterministic_compute",
    "use_per_session_threads",
)
RUN_OPTIONS = ("log_severity_level", "log_verbosity_level", "logid", "only_execute_path_to_fetches")


def _set(options: Any, allowed: tuple[str, ...], keywords: Mapping[str, Any]) -> Any:
    """Sets options from keywords. Ignores keywords that do not name an option, as they may be meant for other functions."""
    for name, value in keywords.items():
        if name in allowed:
            setattr(options, name, value)
        elif hasattr(options, name):
            kind = type(options).__name__
            raise RuntimeError(
                f"the option '{name}' of {kind} cannot be set through the backend; use one of {', '.join(allowed)}"
            )
    return options


class OnnxRuntimeBackendRep:
    """A model that is ready to run."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session

    def run(self, inputs: Any, **keywords: Any) -> list[Any]:
        """Runs the model on inputs in a list, in a dict by name, or on a single one; returns a list of all outputs."""
        options = _set(RunOptions(), RUN_OPTIONS, keywords)
        names = [port.name for port in self._session.get_inputs()]
        if isinstance(inputs, Mapping):
            feed = dict(inputs)
        elif isinstance(inputs, (list, tuple)):
            if len(inputs) < len(names):
                # An IndexError in onnxruntime, which says no more.
                raise IndexError(f"the model has {len(names)} inputs, but {len(inputs)} are given")
            feed = dict(zip(names, inputs, strict=False))
        elif len(names) != 1:
            raise RuntimeError(f"the model has {len(names)} inputs, but one is given")
        else:
            feed = {names[0]: inputs}
        return self._session.run(None, feed, options)


class OnnxRuntimeBackend:
    """The functions of this module as a class."""

    allowReleasedOpsetsOnly = True  # noqa: N815

    @classmethod
    def is_compatible(cls, model: Any, device: str | None = None, **keywords: Any) -> bool:
        """Whether models run on a device."""
        return device is None or cls.supports_device(device)

    @classmethod
    def is_opset_supported(cls, model: Any) -> tuple[bool, str]:
        """Whether the versions of the operators are known, and what to say if not. A session finds that out itself."""
        return True, ""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether models run on a device: on the CPU."""
        return str(device).partition(":")[0].upper() == "CPU"

    @classmethod
    def prepare(cls, model: Any, device: str | None = None, **keywords: Any) -> OnnxRuntimeBackendRep:
        """Makes a model ready to run. Keywords are options of a session."""
        if isinstance(model, OnnxRuntimeBackendRep):
            return model
        if device is not None and not cls.supports_device(device):
            raise RuntimeError(f"the device is '{device}', and models run on the CPU only")
        if isinstance(model, InferenceSession):
            return OnnxRuntimeBackendRep(model)
        return OnnxRuntimeBackendRep(InferenceSession(model, _set(SessionOptions(), SESSION_OPTIONS, keywords)))

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str | None = None, **keywords: Any) -> list[Any]:
        """Makes a model ready and runs it."""
        return cls.prepare(model, device, **keywords).run(inputs, **keywords)

    @classmethod
    def run_node(cls, node: Any, inputs: Any, device: str | None = None, **keywords: Any) -> Any:
        """Refused as in onnxruntime; ``sardonyx.backend.run_node`` runs a single node."""
        raise NotImplementedError("onnxruntime.backend runs no single nodes; use sardonyx.backend.run_node")


is_compatible = OnnxRuntimeBackend.is_compatible
prepare = OnnxRuntimeBackend.prepare
run = OnnxRuntimeBackend.run_model
supports_device = OnnxRuntimeBackend.supports_device
