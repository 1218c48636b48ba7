"""Names of onnxruntime's session that are not public there, but that packages read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sardonyx._core import ort as _core
from sardonyx.ort import _devices

if TYPE_CHECKING:
    from sardonyx.ort._session import InferenceSession


class InnerSession:
    """The session within a session: onnxruntime has one of its core there."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        # Methods, which have the same names in both: `run`, `get_providers`, `end_profiling`, …
        if name.startswith("_"):
            raise AttributeError(f"the inner session has no attribute '{name}'")
        return getattr(self._session, name)

    @property
    def inputs_meta(self) -> list[Any]:
        """The inputs."""
        return self._session.get_inputs()

    @property
    def outputs_meta(self) -> list[Any]:
        """The outputs."""
        return self._session.get_outputs()

    @property
    def overridable_initializers(self) -> list[Any]:
        """Inputs that have a value in the model."""
        return self._session.get_overridable_initializers()

    @property
    def model_meta(self) -> Any:
        """What the model says about itself."""
        return self._session.get_modelmeta()

    @property
    def session_options(self) -> Any:
        """The options of the session."""
        return self._session.get_session_options()

    @property
    def get_profiling_start_time_ns(self) -> int:
        """When the profile began."""
        return self._session.get_profiling_start_time_ns()

    def initialize_session(self, providers: Any = None, options: Any = None, disabled: Any = None) -> None:
        """Does nothing: the session is ready."""


class InnerNames:
    """What ``InferenceSession`` has under names that begin with an underscore, and its less known methods."""

    _enable_fallback = True
    _fallback_providers = [_core.CPU_PROVIDER]
    _model_bytes = None

    @property
    def _sess(self: Any) -> InnerSession:
        return InnerSession(self)

    @property
    def _inputs_meta(self: Any) -> list[Any]:
        return self.get_inputs()

    @property
    def _outputs_meta(self: Any) -> list[Any]:
        return self.get_outputs()

    @property
    def _overridable_initializers(self: Any) -> list[Any]:
        return self.get_overridable_initializers()

    @property
    def _model_meta(self: Any) -> Any:
        return self.get_modelmeta()

    @property
    def _sess_options(self: Any) -> Any:
        return self.get_session_options()

    @property
    def _sess_options_initial(self: Any) -> Any:
        return self.get_session_options()

    @property
    def _provider_options(self: Any) -> dict[str, dict[str, str]]:
        return self.get_provider_options()

    @property
    def _profiling_start_time_ns(self: Any) -> int:
        return self.get_profiling_start_time_ns()

    def get_input_memory_infos(self: Any) -> list[_devices.OrtMemoryInfo]:
        """The memory of each input: that of the CPU."""
        return [_devices.cpu_memory() for _ in self.get_inputs()]

    def get_output_memory_infos(self: Any) -> list[_devices.OrtMemoryInfo]:
        """The memory of each output: that of the CPU."""
        return [_devices.cpu_memory() for _ in self.get_outputs()]

    def get_input_epdevices(self: Any) -> list[_devices.OrtEpDevice]:
        """The device of each input: the CPU."""
        return [_devices.OrtEpDevice() for _ in self.get_inputs()]

    def get_provider_graph_assignment_info(self) -> list[Any]:
        """Refused: nodes are not assigned to providers."""
        raise _core.refusal("graph assignment")

    def set_ep_dynamic_options(self, options: dict[str, str]) -> None:
        """Refused: the execution provider of the CPU has no options."""
        raise _core.refusal("dynamic options")

    def get_tuning_results(self) -> list[Any]:
        """What kernels were tuned by: nothing."""
        return []

    def set_tuning_results(self, results: Any, *, error_on_invalid: bool = False) -> None:
        """Accepted and ignored: kernels are not tuned from outside."""

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Does nothing: no graph is captured on the CPU."""

    def create_ortvalue_from_shape_and_type(
        self, shape: Any, element_type: Any, device_type: str, device_id: int = 0, vendor_id: int = -1
    ) -> Any:
        """An array of no particular values."""
        from sardonyx.ort._values import OrtValue

        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, device_type, device_id, vendor_id)

    def run_with_ortvaluevector(
        self: Any,
        run_options: Any,
        feed_names: list[str],
        feeds: Any,
        fetch_names: list[str],
        fetches: Any,
        fetch_devices: Any = None,
    ) -> None:
        """Runs the model on values, and puts the outputs at the end of the list ``fetches``."""
        given = dict(zip(feed_names, feeds, strict=True))
        fetches.extend(self.run_with_ort_values(fetch_names, given, run_options))


class OrtValueVector(list):  # type: ignore[type-arg]
    """A list of values."""

    push_back = list.append

    def push_back_batch(self, values: Any) -> None:
        """Adds values at the end."""
        self.extend(values)

    def reserve(self, count: int) -> None:
        """Does nothing: the list grows by itself."""

    def shrink_to_fit(self) -> None:
        """Does nothing: the list grows by itself."""

    def element_type_at(self, index: int) -> int:
        """The number of the element type of a value."""
        return self[index].element_type()

    def dlpack_at(self, index: int) -> Any:
        """A DLPack capsule of a value."""
        return self[index].to_dlpack()
