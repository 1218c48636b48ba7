"""Options of sessions and runs, as onnxruntime has them.

Every option of onnxruntime exists and keeps the value that it is given. Its documentation says whether
Sardonyx uses the value or ignores it.
"""

from __future__ import annotations

import enum
import operator
from typing import Any

from sardonyx._core.session import StopFlag
from sardonyx.ort._outside import DIRECTORY_KEY, Outside

#: The one execution provider.
CPU_PROVIDER = "CPUExecutionProvider"


class Number(enum.IntEnum):
    """A number with a name, whose text is the name as in onnxruntime: ``ExecutionMode.ORT_PARALLEL``."""

    __str__ = enum.Enum.__str__
    __format__ = enum.Enum.__format__


class GraphOptimizationLevel(Number):
    """How much of a graph may change. Accepted and ignored: results do not depend on it."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(Number):
    """Whether nodes may run at the same time. Accepted and ignored: they run one after the other."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(Number):
    """The order in which nodes run. Accepted and ignored."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class _Option:
    """A property of a class with slots, which takes values of one kind only."""

    def __init__(self, kind: type, default: Any, doc: str) -> None:
        self.kind, self.default, self.__doc__ = kind, default, doc

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, options: Any, owner: type | None = None) -> Any:
        return self if options is None else options._values.get(self.name, self.default)

    def __set__(self, options: Any, value: Any) -> None:
        if self.kind is int and not isinstance(value, enum.Enum):
            try:
                value = operator.index(value)
            except TypeError:
                self._refuse(value)
        elif self.kind is bool and type(value).__name__ == "bool":
            value = bool(value)
        elif not isinstance(value, self.kind):
            self._refuse(value)
        options._values[self.name] = value

    def _refuse(self, value: Any) -> None:
        raise TypeError(
            f"the option '{self.name}' is {value!r}, which is not of the type {self.kind.__name__}"
        )


class _Options:
    """What options of sessions and of runs have in common: options of the log, and free entries."""

    __slots__ = ("_config", "_values")

    log_severity_level = _Option(int, -1, "Accepted and ignored: Sardonyx writes no log.")
    log_verbosity_level = _Option(int, 0, "Accepted and ignored: Sardonyx writes no log.")
    logid = _Option(str, "", "Accepted and ignored: Sardonyx writes no log.")

    #: What messages call them.
    _what = "options"

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._config: dict[str, str] = {}

    def _add_entry(self, key: str, value: str) -> None:
        _demand_texts(key, value)
        self._config[key] = value

    def _entry(self, key: str) -> str:
        if key not in self._config:
            raise RuntimeError(f"the {self._what} have no entry '{key}'")
        return self._config[key]


class SessionOptions(_Options):
    """How a session is made."""

    __slots__ = ("_dims", "_outside")

    _what = "session options"

    intra_op_num_threads = _Option(
        int, 0, "How many threads a run uses, the calling one included; 0 for one per processor. "
        "Sessions share their threads, so there are never more than processors."
    )
    inter_op_num_threads = _Option(int, 0, "Accepted and ignored: nodes run one after the other.")
    graph_optimization_level = _Option(
        GraphOptimizationLevel, GraphOptimizationLevel.ORT_ENABLE_ALL, "Accepted and ignored."
    )
    execution_mode = _Option(ExecutionMode, ExecutionMode.ORT_SEQUENTIAL, "Accepted and ignored.")
    execution_order = _Option(ExecutionOrder, ExecutionOrder.DEFAULT, "Accepted and ignored.")
    enable_cpu_mem_arena = _Option(bool, True, "Accepted and ignored.")
    enable_mem_pattern = _Option(bool, True, "Accepted and ignored.")
    enable_mem_reuse = _Option(bool, True, "Accepted and ignored.")
    enable_profiling = _Option(bool, False, "Whether the session records its runs for end_profiling().")
    profile_file_prefix = _Option(str, "onnxruntime_profile_", "How the name of a profile begins.")
    optimized_model_filepath = _Option(
        str, "", "Accepted with a warning: Sardonyx writes no optimized model."
    )
    use_deterministic_compute = _Option(bool, False, "Accepted and ignored: computing is always deterministic.")
    use_per_session_threads = _Option(bool, True, "Accepted and ignored: sessions share their threads.")

    def __init__(self) -> None:
        super().__init__()
        self._dims: dict[str, int] = {}
        self._outside = Outside()

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keeps an entry of the configuration.

        Sardonyx uses ``session.model_external_initializers_file_folder_path``: where the data files are of a model that is
        given as bytes.
        """
        self._add_entry(key, value)
        if key == DIRECTORY_KEY:
            self._outside.directory = value

    def get_session_config_entry(self, key: str) -> str:
        """The entry of a key; RuntimeError if there is none."""
        return self._entry(key)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fixes a size that the model leaves open and gives this name."""
        _demand_texts(name)
        self._dims[name] = operator.index(size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Fixes the sizes of axes with this denotation, such as ``DATA_BATCH``, that the model leaves open."""
        _demand_texts(denotation)
        self._outside.denoted.append((denotation, operator.index(size)))

    def register_custom_ops_library(self, path: str) -> None:
        """Refused: libraries of operators are compiled for onnxruntime."""
        raise not_there(
            f"the library of operators '{path}' is compiled for onnxruntime",
            "operators of a model can be given as functions in the model",
        )

    def add_initializer(self, name: str, value: Any) -> None:
        """Gives an ``OrtValue`` in the place of an initializer of the model. A name that it does not have is left out."""
        _demand_texts(name)
        self._outside.add_initializer(name, value)

    def add_external_initializers(self, names: list[str], values: list[Any]) -> None:
        """Gives values in the place of initializers whose values lie in data files. The files are not opened then."""
        _demand_texts(*names)
        self._outside.add_external(names, values)

    def add_external_initializers_from_files_in_memory(
        self, names: list[str], buffers: list[Any], lengths: list[int]
    ) -> None:
        """Gives the contents of data files, by the locations that the model has for them. No file is opened then."""
        self._outside.add_files(names, buffers, lengths)

    def set_load_cancellation_flag(self, value: bool) -> None:
        """Accepted and ignored: making a session is not cancelled."""

    def add_provider(self, name: str, options: dict[str, str]) -> None:
        """Accepts the execution provider of the CPU and refuses all others."""
        if name != CPU_PROVIDER:
            raise not_there(
                f"the execution provider '{name}' is not available", f"use {CPU_PROVIDER}"
            )

    def has_providers(self) -> bool:
        """Whether providers other than that of the CPU were added: never."""
        return False

    def add_provider_for_devices(self, devices: Any, options: dict[str, str]) -> None:
        """Accepts devices of :func:`get_ep_devices`, which are the CPU, and refuses all others."""
        for device in devices:
            self.add_provider(device.ep_name, options)

    def set_provider_selection_policy(self, policy: Any) -> None:
        """Accepted and ignored: there is one execution provider."""

    def set_provider_selection_policy_delegate(self, delegate: Any) -> None:
        """Accepted and ignored: there is one execution provider."""

    def set_ep_context_data_read_func(self, read: Any) -> None:
        """Refused: models with parts compiled for an execution provider cannot run."""
        raise not_there(
            "parts of a model that are compiled for an execution provider cannot run", "use the model as it was exported"
        )

    def clear_ep_context_data_read_func(self) -> None:
        """Does nothing: no such function can be set."""


class RunOptions(_Options):
    """How a run goes."""

    __slots__ = ("_stop",)

    _what = "run options"

    only_execute_path_to_fetches = _Option(bool, False, "Accepted and ignored.")

    def __init__(self) -> None:
        super().__init__()
        self._stop = StopFlag()

    @property
    def terminate(self) -> bool:
        """Whether runs with these options end before their next step; any thread may set it."""
        return self._stop.is_raised

    @terminate.setter
    def terminate(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise TypeError(f"the option 'terminate' is {value!r}, which is not of the type bool")
        if value:
            self._stop.stop()
        else:
            self._stop.reset()

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keeps an entry of the configuration. Sardonyx uses none of them."""
        self._add_entry(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """The entry of a key; RuntimeError if there is none."""
        return self._entry(key)

    def add_active_adapter(self, adapter: Any) -> None:
        """Refused: adapters belong into the model."""
        raise not_there("adapters cannot be added to a run", "put them into the model")


def _demand_texts(*values: Any) -> None:
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"expected a str, not {type(value).__name__}")


def not_there(message: str, help: str) -> Exception:
    """Returns the exception for what Sardonyx does not have, with advice."""
    from sardonyx.ort import _errors

    return _errors.made(_errors.NotImplemented, message, code="unsupported", help=help)
