"""``onnxruntime.backend``: runs models by the interface that the onnx package calls a backend.

Results and errors are those of onnxruntime; :mod:`sardonyx.backend` is the backend of Sardonyx itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn, TypeVar

from sardonyx._shims.onnxruntime.options import RunOptions, SessionOptions
from sardonyx._shims.onnxruntime.session import InferenceSession

if TYPE_CHECKING:
    from typing import TypeAlias

    from sardonyx.backend import Inputs
    from sardonyx.typing import ModelLike, Value

    Model: TypeAlias = "ModelLike | InferenceSession | OnnxRuntimeBackendRep"

Options = TypeVar("Options", SessionOptions, RunOptions)

#: Names of the module ``onnxruntime.backend``.
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


def _set_options(options: Options, allowed: tuple[str, ...], keywords: Mapping[str, object]) -> Options:
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

    def run(self, inputs: Inputs, **keywords: object) -> list[Value]:
        """Runs the model and returns all outputs. ``inputs`` is a list in the order of the model, a dict, or one input."""
        options = _set_options(RunOptions(), RUN_OPTIONS, keywords)
        names = [port.name for port in self._session.get_inputs()]
        feed: dict[str, Value]
        if isinstance(inputs, Mapping):
            feed = dict(inputs)
        elif isinstance(inputs, (list, tuple)):
            if len(inputs) < len(names):
                # onnxruntime raises an IndexError, which says no more.
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
    def is_compatible(cls, model: object, device: str | None = None, **keywords: object) -> bool:
        """Whether models run on the device."""
        return device is None or cls.supports_device(device)

    @classmethod
    def is_opset_supported(cls, model: object) -> tuple[bool, str]:
        """Whether the versions of the operators are known, and a message if not. Always true, as opening a session checks that."""
        return True, ""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether the device is the CPU, the only one on which models run."""
        return str(device).partition(":")[0].upper() == "CPU"

    @classmethod
    def prepare(cls, model: Model, device: str | None = None, **keywords: object) -> OnnxRuntimeBackendRep:
        """Opens a model. Keywords are options of a session."""
        if isinstance(model, OnnxRuntimeBackendRep):
            return model
        if device is not None and not cls.supports_device(device):
            raise RuntimeError(f"the device is '{device}', and models run on the CPU only")
        if isinstance(model, InferenceSession):
            return OnnxRuntimeBackendRep(model)
        options = _set_options(SessionOptions(), SESSION_OPTIONS, keywords)
        return OnnxRuntimeBackendRep(InferenceSession(model, options))

    @classmethod
    def run_model(
        cls, model: Model, inputs: Inputs, device: str | None = None, **keywords: object
    ) -> list[Value]:
        """Opens a model and runs it once."""
        return cls.prepare(model, device, **keywords).run(inputs, **keywords)

    @classmethod
    def run_node(cls, node: object, inputs: Inputs, device: str | None = None, **keywords: object) -> NoReturn:
        """Refuses like onnxruntime; ``sardonyx.backend.run_node`` runs a single node."""
        raise NotImplementedError("onnxruntime.backend runs no single nodes; use sardonyx.backend.run_node")


is_compatible = OnnxRuntimeBackend.is_compatible
prepare = OnnxRuntimeBackend.prepare
run = OnnxRuntimeBackend.run_model
supports_device = OnnxRuntimeBackend.supports_device
