"""``InferenceSession`` with the names and the behaviour of onnxruntime's."""

from __future__ import annotations

import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sardonyx._core import ort as _core
from sardonyx._core.session import Session
from sardonyx._messages import serialize_argument
from sardonyx.ort._inner import InnerNames
from sardonyx.ort._options import RunOptions, SessionOptions
from sardonyx.ort._providers import choose_providers
from sardonyx.ort._values import IOBinding, OrtValue


def set_seed(seed: int) -> None:
    """Sets what operators without a seed draw random numbers by, in sessions that are made later."""
    _core.set_seed(int(seed) % 2**64)


def get_available_providers() -> list[str]:
    """What models run on: the CPU."""
    return list(_core.AVAILABLE_PROVIDERS)


get_all_providers = get_available_providers


class NodeArg:
    """An input or output of a model."""

    __slots__ = ("_kind", "_name", "_shape")

    def __init__(self, name: str, kind: str, shape: list[int | str | None]) -> None:
        self._name, self._kind, self._shape = name, kind, shape

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def shape(self) -> list[int | str | None]:
        """Its sizes: numbers, texts of the model for sizes that are open, None for those that it leaves out."""
        return list(self._shape)

    @property
    def type(self) -> str:
        """Its type, such as ``tensor(float)``."""
        return self._kind

    def __str__(self) -> str:
        return f"NodeArg(name='{self.name}', type='{self.type}', shape={self.shape})"

    def __repr__(self) -> str:
        return f"<{self}>"


def _info(key: str, doc: str) -> Any:
    """A property that is an entry of what a model says about itself."""
    return property(lambda metadata: metadata._info[key], doc=doc)


class ModelMetadata:
    """What a model says about itself."""

    __slots__ = ("_info", "_metadata")

    def __init__(self, session: Session) -> None:
        self._info, self._metadata = session.info, session.metadata

    producer_name = _info("producer_name", "The tool that made the model.")
    graph_name = _info("graph_name", "The name of the main graph.")
    domain = _info("domain", "The name space of the model.")
    description = _info("doc", "The documentation of the model.")
    graph_description = _info("graph_doc", "The documentation of the main graph.")

    @property
    def version(self) -> int:
        """The version of the model; the largest number if it does not say."""
        version = self._info["version"]
        return _core.NO_MODEL_VERSION if version is None else version

    @property
    def custom_metadata_map(self) -> dict[str, str]:
        """The metadata, by key."""
        return dict(self._metadata)


class InferenceSession(InnerNames, _core.Runner):
    """A model made ready to run, as ``onnxruntime.InferenceSession``.

    ``path_or_bytes`` is a path, bytes, or an object with ``SerializeToString``. Everything runs on the CPU: other
    providers warn. The name of a size of inputs may stand for several sizes, which warns when it does. Errors are those of
    onnxruntime by class and say more: ``code``, ``place``, ``help`` and ``unsupported`` as :class:`sardonyx.Error`.
    Sessions can be pickled.
    """

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[str | tuple[str, dict[Any, Any]]] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            raise TypeError(
                f"sess_options must be of the class SessionOptions, not {type(sess_options).__name__}"
            )
        self._enable_fallback = bool(int(kwargs.get("enable_fallback", 1)))
        self._providers = choose_providers(providers, provider_options, falls_back=self._enable_fallback)
        self._options = SessionOptions() if sess_options is None else sess_options
        is_path = isinstance(path_or_bytes, (str, os.PathLike))
        if not is_path:
            path_or_bytes = serialize_argument(path_or_bytes, "path_or_bytes")
        for note in self._options._warnings():
            warnings.warn(note, stacklevel=2)
        self._began = time.time_ns()
        profile = self._open(path_or_bytes, self._options)
        if profile is not None:
            # A session that goes without `end_profiling` leaves its profile too.
            weakref.finalize(self, profile.end)
        # Where packages such as optimum look for files beside the model; None if it was given as bytes.
        self._model_path = os.fspath(path_or_bytes) if is_path else None
        # By name of an output: its type, in the order of the model.
        self._kinds = {name: kind for name, kind, _ in self._outputs()}

    # Subclasses that make sessions of onnxruntime picklable define this pair, which must then count.
    def __getstate__(self) -> Any:
        source = self._session.__reduce__()[1][0]
        return source, self._options, self._providers

    def __setstate__(self, state: Any) -> None:
        InferenceSession.__init__(self, *state)

    def _repr_html_(self) -> str:
        return self._session._repr_html_()

    # ``run`` and ``run_with_iobinding`` are those of the base class: they cost no time here.

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], None],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Runs the model in another thread and calls ``callback(outputs, user_data, error)`` there.

        ``error`` is empty if the run succeeded; else there are no outputs. Missing inputs raise an exception at once.
        """
        self._demand_inputs(input_feed)

        def work() -> None:
            try:
                outputs, error = self.run(output_names, input_feed, run_options), ""
            except Exception as raised:  # noqa: BLE001
                outputs, error = [], str(raised) or type(raised).__name__
            callback(outputs, user_data, error)

        threading.Thread(target=work, name="sardonyx-run").start()

    def io_binding(self) -> IOBinding:
        """Inputs and outputs to bind."""
        return IOBinding(self)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Runs the model on values and returns values."""
        feed = {name: value._value for name, value in input_dict_ort_values.items()}
        names = output_names or self._kinds
        outputs = self.run(output_names, feed, run_options)
        return [OrtValue._of_output(value, self._kinds[name]) for name, value in zip(names, outputs, strict=True)]

    def get_inputs(self) -> list[NodeArg]:
        """What a run takes, without inputs that have a value in the model."""
        return [NodeArg(*facts) for facts in self._inputs()]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Inputs that have a value in the model."""
        return [NodeArg(*facts) for facts in self._overridable()]

    def get_outputs(self) -> list[NodeArg]:
        """What a run gives back."""
        return [NodeArg(*facts) for facts in self._outputs()]

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says about itself."""
        return ModelMetadata(self._session)

    def get_session_options(self) -> SessionOptions:
        """The options of the session."""
        return self._options

    def get_providers(self) -> list[str]:
        """What the session runs on: the CPU."""
        return list(self._providers)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options of the providers: none."""
        return {name: {} for name in self._providers}

    def set_providers(
        self,
        providers: Sequence[str | tuple[str, dict[Any, Any]]] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
    ) -> None:
        """Keeps the CPU provider, and warns about any other. Raises ValueError for an invalid provider."""
        self._providers = choose_providers(providers, provider_options, falls_back=False)

    def disable_fallback(self) -> None:
        """Does nothing: there is one provider."""

    def enable_fallback(self) -> None:
        """Does nothing: there is one provider."""

    def end_profiling(self) -> str:
        """Writes the profile and returns the name of its file, if the options ask for one; else an empty text.

        The name begins as ``profile_file_prefix`` says. What is in it can be seen in ``chrome://tracing``.
        """
        return self._end_profiling()

    def get_profiling_start_time_ns(self) -> int:
        """When the profile began, on the clock of ``time.time_ns``."""
        return self._began
