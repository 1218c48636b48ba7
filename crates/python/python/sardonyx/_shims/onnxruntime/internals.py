"""Private names of onnxruntime's session that some packages read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from sardonyx._core import ort as _core
from sardonyx._shims.onnxruntime import devices

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import DTypeLike
    from typing_extensions import CapsuleType

    from sardonyx._shims.onnxruntime.options import RunOptions, SessionOptions
    from sardonyx._shims.onnxruntime.session import ModelMetadata, NodeArg
    from sardonyx._shims.onnxruntime.values import OrtValue

    # `list` takes no parameter at run time in a class statement that a type checker accepts.
    Values = list[OrtValue]
else:
    Values = list


class InnerSession:
    """The session again, with names of the session of onnxruntime's core, which its sessions wrap."""

    def __init__(self, session: InnerNames) -> None:
        self._session = session

    # Any: methods of all types.
    def __getattr__(self, name: str) -> Any:
        # Methods that have the same name in both: `run`, `get_providers`, `end_profiling`, …
        if name.startswith("_"):
            raise AttributeError(f"the inner session has no attribute '{name}'")
        return getattr(self._session, name)

    @property
    def inputs_meta(self) -> list[NodeArg]:
        """Inputs of the model."""
        return self._session.get_inputs()

    @property
    def outputs_meta(self) -> list[NodeArg]:
        """Outputs of the model."""
        return self._session.get_outputs()

    @property
    def overridable_initializers(self) -> list[NodeArg]:
        """Inputs that have a default in the model."""
        return self._session.get_overridable_initializers()

    @property
    def model_meta(self) -> ModelMetadata:
        """Fields of the model file that describe the model."""
        return self._session.get_modelmeta()

    @property
    def session_options(self) -> SessionOptions:
        """Options of the session."""
        return self._session.get_session_options()

    @property
    def get_profiling_start_time_ns(self) -> int:
        """Start time of the profile, in nanoseconds."""
        return self._session.get_profiling_start_time_ns()

    def initialize_session(self, providers: object = None, options: object = None, disabled: object = None) -> None:
        """Does nothing: the session is ready."""


class InnerNames:
    """Base of ``InferenceSession`` with its private names and its rarely used methods."""

    _enable_fallback = True
    _fallback_providers = [_core.CPU_PROVIDER]
    _model_bytes = None

    if TYPE_CHECKING:
        # Methods of InferenceSession.
        def get_inputs(self) -> list[NodeArg]: ...
        def get_outputs(self) -> list[NodeArg]: ...
        def get_overridable_initializers(self) -> list[NodeArg]: ...
        def get_modelmeta(self) -> ModelMetadata: ...
        def get_session_options(self) -> SessionOptions: ...
        def get_provider_options(self) -> dict[str, dict[str, str]]: ...
        def get_profiling_start_time_ns(self) -> int: ...
        def run_with_ort_values(
            self,
            output_names: Sequence[str] | None,
            input_dict_ort_values: Mapping[str, OrtValue],
            run_options: RunOptions | None = None,
        ) -> list[OrtValue]: ...

    @property
    def _sess(self) -> InnerSession:
        return InnerSession(self)

    @property
    def _inputs_meta(self) -> list[NodeArg]:
        return self.get_inputs()

    @property
    def _outputs_meta(self) -> list[NodeArg]:
        return self.get_outputs()

    @property
    def _overridable_initializers(self) -> list[NodeArg]:
        return self.get_overridable_initializers()

    @property
    def _model_meta(self) -> ModelMetadata:
        return self.get_modelmeta()

    @property
    def _sess_options(self) -> SessionOptions:
        return self.get_session_options()

    @property
    def _sess_options_initial(self) -> SessionOptions:
        return self.get_session_options()

    @property
    def _provider_options(self) -> dict[str, dict[str, str]]:
        return self.get_provider_options()

    @property
    def _profiling_start_time_ns(self) -> int:
        return self.get_profiling_start_time_ns()

    def get_input_memory_infos(self) -> list[devices.OrtMemoryInfo]:
        """Returns the memory of each input: that of the CPU."""
        return [devices.cpu_memory() for _ in self.get_inputs()]

    def get_output_memory_infos(self) -> list[devices.OrtMemoryInfo]:
        """Returns the memory of each output: that of the CPU."""
        return [devices.cpu_memory() for _ in self.get_outputs()]

    def get_input_epdevices(self) -> list[devices.OrtEpDevice]:
        """Returns the device of each input: the CPU."""
        return [devices.OrtEpDevice() for _ in self.get_inputs()]

    def get_provider_graph_assignment_info(self) -> NoReturn:
        """Refuses: nodes are not assigned to providers."""
        raise _core.refusal("graph assignment")

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> NoReturn:
        """Refuses: the execution provider of the CPU has no options."""
        raise _core.refusal("dynamic options")

    def get_tuning_results(self) -> list[object]:
        """Returns an empty list: kernels are not tuned."""
        return []

    def set_tuning_results(self, results: object, *, error_on_invalid: bool = False) -> None:
        """Ignores the results: kernels are not tuned."""

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Does nothing: no graph is captured on the CPU."""

    def create_ortvalue_from_shape_and_type(
        self,
        shape: Iterable[int],
        element_type: DTypeLike | int,
        device_type: str,
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """Makes a tensor with uninitialized elements."""
        from sardonyx._shims.onnxruntime.values import OrtValue

        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, device_type, device_id, vendor_id)

    def run_with_ortvaluevector(
        self,
        run_options: RunOptions | None,
        feed_names: Sequence[str],
        feeds: Iterable[OrtValue],
        fetch_names: Sequence[str],
        fetches: list[OrtValue],
        fetch_devices: object = None,
    ) -> None:
        """Runs the model on OrtValues, and appends the outputs to the list ``fetches``."""
        given = dict(zip(feed_names, feeds, strict=True))
        fetches.extend(self.run_with_ort_values(fetch_names, given, run_options))


class OrtValueVector(Values):
    """A list of OrtValues, with the method names of a vector in C++."""

    push_back = list.append

    def push_back_batch(self, values: Iterable[OrtValue]) -> None:
        """Appends values."""
        self.extend(values)

    def reserve(self, count: int) -> None:
        """Does nothing: the list grows by itself."""

    def shrink_to_fit(self) -> None:
        """Does nothing: the list grows by itself."""

    def element_type_at(self, index: int) -> int:
        """Returns the ONNX number of the element type of a value."""
        return self[index].element_type()

    def dlpack_at(self, index: int) -> CapsuleType:
        """Returns a DLPack capsule of a value."""
        return self[index].to_dlpack()
