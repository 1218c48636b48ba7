"""``InferenceSession``, with the names and the behaviour of onnxruntime's."""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, TypeVar

from sardonyx import _messages
from sardonyx._core import ort as _core
from sardonyx._shims.onnxruntime.internals import InnerNames
from sardonyx._shims.onnxruntime.options import RunOptions, SessionOptions
from sardonyx._shims.onnxruntime.providers import choose_providers
from sardonyx._shims.onnxruntime.values import IOBinding, OrtValue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sardonyx._core.session import Session
    from sardonyx._shims.onnxruntime.providers import Options, Provider
    from sardonyx.typing import ModelLike, Value, ValueLike

T = TypeVar("T")


def set_seed(seed: int) -> None:
    """Seeds random operators without a ``seed`` attribute, in sessions that are opened later."""
    _core.set_seed(int(seed) % 2**64)


def get_available_providers() -> list[str]:
    """Returns the execution providers on which models run: that of the CPU."""
    return list(_core.AVAILABLE_PROVIDERS)


get_all_providers = get_available_providers


class NodeArg:
    """An input or output of a model."""

    __slots__ = ("_kind", "_name", "_shape")

    def __init__(self, name: str, kind: str, shape: list[int | str | None]) -> None:
        self._name, self._kind, self._shape = name, kind, shape

    @property
    def name(self) -> str:
        """Name of the input or output."""
        return self._name

    @property
    def shape(self) -> list[int | str | None]:
        """Dimensions: numbers, names of open dimensions, and None for open dimensions without a name."""
        return list(self._shape)

    @property
    def type(self) -> str:
        """Type of the input or output, such as ``tensor(float)``."""
        return self._kind

    def __str__(self) -> str:
        return f"NodeArg(name='{self.name}', type='{self.type}', shape={self.shape})"

    def __repr__(self) -> str:
        return f"<{self}>"


class ModelMetadata:
    """Fields of a model file that describe the model."""

    __slots__ = ("_info", "_metadata")

    def __init__(self, session: Session) -> None:
        self._info, self._metadata = session.info, session.metadata

    @property
    def producer_name(self) -> str:
        """Name of the tool that made the model."""
        return self._info["producer_name"]

    @property
    def graph_name(self) -> str:
        """Name of the main graph."""
        return self._info["graph_name"]

    @property
    def domain(self) -> str:
        """Name space of the model."""
        return self._info["domain"]

    @property
    def description(self) -> str:
        """Documentation of the model."""
        return self._info["doc"]

    @property
    def graph_description(self) -> str:
        """Documentation of the main graph."""
        return self._info["graph_doc"]

    @property
    def version(self) -> int:
        """Version of the model; the largest 64-bit integer if the file has none."""
        version = self._info["version"]
        return _core.NO_MODEL_VERSION if version is None else version

    @property
    def custom_metadata_map(self) -> dict[str, str]:
        """Metadata of the model, by key."""
        return dict(self._metadata)


class InferenceSession(InnerNames, _core.Runner):
    """A model ready to run, with the interface of ``onnxruntime.InferenceSession``.

    ``path_or_bytes`` is a path, bytes, or an object with ``SerializeToString``. Everything runs on the CPU: other
    providers warn. Dimensions of inputs with one name may have different sizes, with a warning. Errors have the classes of
    onnxruntime, and the attributes ``code``, ``place``, ``help`` and ``unsupported`` of :class:`sardonyx.Error`. Sessions
    can be pickled.
    """

    def __init__(
        self,
        path_or_bytes: ModelLike,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[Options] | None = None,
        *,
        enable_fallback: int | str = 1,
        **kwargs: object,
    ) -> None:
        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            raise TypeError(
                f"sess_options must be of the class SessionOptions, not {type(sess_options).__name__}"
            )
        self._enable_fallback = bool(int(enable_fallback))
        self._providers = choose_providers(providers, provider_options, falls_back=self._enable_fallback)
        self._options = SessionOptions() if sess_options is None else sess_options
        # Packages such as optimum look for files beside the model at this path. None for a model in bytes.
        self._model_path = os.fspath(path_or_bytes) if _messages.is_path(path_or_bytes) else None
        if self._model_path is None:
            path_or_bytes = _messages.serialize_argument(path_or_bytes, "path_or_bytes")
        self._began = time.time_ns()
        profile = self._open(path_or_bytes, self._options)
        if profile is not None:
            # Writes the profile of a session that is dropped without `end_profiling`.
            weakref.finalize(self, profile.end)
        # Types of the outputs by name, in the order of the model.
        self._kinds = {name: kind for name, kind, _ in self._outputs()}

    # A pair of methods and not __reduce__: subclasses that make sessions of onnxruntime picklable override this pair.
    def __getstate__(self) -> tuple[ModelLike, SessionOptions, list[str]]:
        source = self._session.__reduce__()[1][0]
        return source, self._options, self._providers

    def __setstate__(self, state: tuple[ModelLike, SessionOptions, list[str]]) -> None:
        InferenceSession.__init__(self, *state)

    def _repr_html_(self) -> str:
        return self._session._repr_html_()

    # ``run`` and ``run_with_iobinding`` are inherited: a Python method would take longer than a small model.

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, ValueLike],
        callback: Callable[[list[Value], T, str], object],
        user_data: T,
        run_options: RunOptions | None = None,
    ) -> None:
        """Runs the model in another thread and calls ``callback(outputs, user_data, error)`` there.

        ``error`` is empty if the run succeeded, else ``outputs`` is. Missing inputs raise an exception at once, in this thread.
        """
        self._demand_inputs(input_feed)

        def work() -> None:
            outputs: list[Value]
            try:
                outputs, error = self.run(output_names, input_feed, run_options), ""
            except Exception as raised:  # noqa: BLE001
                outputs, error = [], str(raised) or type(raised).__name__
            callback(outputs, user_data, error)

        threading.Thread(target=work, name="sardonyx-run").start()

    def io_binding(self) -> IOBinding:
        """Makes an empty binding, to which inputs and outputs can be bound."""
        return IOBinding(self)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Runs the model on OrtValues and returns OrtValues."""
        feed = {name: value._value for name, value in input_dict_ort_values.items()}
        names = output_names or self._kinds
        outputs = self.run(output_names, feed, run_options)
        return [OrtValue._from_output(value, self._kinds[name]) for name, value in zip(names, outputs, strict=True)]

    def get_inputs(self) -> list[NodeArg]:
        """Returns the inputs of a run, without those that have a default in the model."""
        return [NodeArg(*facts) for facts in self._inputs()]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Returns the inputs that have a default in the model."""
        return [NodeArg(*facts) for facts in self._overridable()]

    def get_outputs(self) -> list[NodeArg]:
        """Returns the outputs of a run."""
        return [NodeArg(*facts) for facts in self._outputs()]

    def get_modelmeta(self) -> ModelMetadata:
        """Returns the fields of the model file that describe the model."""
        return ModelMetadata(self._session)

    def get_session_options(self) -> SessionOptions:
        """Returns the options of the session."""
        return self._options

    def get_providers(self) -> list[str]:
        """Returns the execution providers of the session: that of the CPU."""
        return list(self._providers)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Returns the options of the providers, by provider: none."""
        return {name: {} for name in self._providers}

    def set_providers(
        self,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[Options] | None = None,
    ) -> None:
        """Keeps the CPU provider, and warns about any other. Raises ValueError for an invalid provider."""
        self._providers = choose_providers(providers, provider_options, falls_back=False)

    def disable_fallback(self) -> None:
        """Does nothing: there is one provider."""

    def enable_fallback(self) -> None:
        """Does nothing: there is one provider."""

    def end_profiling(self) -> str:
        """Writes the profile and returns the name of its file, or an empty text if profiling is off.

        The name begins with ``profile_file_prefix``. The file can be viewed in ``chrome://tracing``.
        """
        return self._end_profiling()

    def get_profiling_start_time_ns(self) -> int:
        """Returns the start time of the profile, in nanoseconds on the clock of ``time.time_ns``."""
        return self._began
