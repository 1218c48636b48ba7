"""Options of sessions and runs, as onnxruntime has them.

Every option of onnxruntime exists and keeps the value that it is given. Its documentation says whether
Sardonyx uses the value or ignores it.
"""

from __future__ import annotations

import enum
import operator
from typing import Any

from sardonyx._core.session import StopFlag

#: The one execution provider.
CPU_PROVIDER = "CPUExecutionProvider"


class GraphOptimizationLevel(enum.IntEnum):
    """How much of a graph may change. Accepted and ignored: results do not depend on it."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Whether nodes may run at the same time. Accepted and ignored: they run one after the other."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.IntEnum):
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

    __slots__ = ("_dims",)

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

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keeps an entry of the configuration. Sardonyx uses none of them."""
        self._add_entry(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """The entry of a key; RuntimeError if there is none."""
        return self._entry(key)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fixes a size that the model leaves open and gives this name."""
        _demand_texts(name)
        self._dims[name] = operator.index(size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Refused: sizes are fixed by name only."""
        raise _not_there("sizes are fixed by name only", "use add_free_dimension_override_by_name")

    def register_custom_ops_library(self, path: str) -> None:
        """Refused: libraries of operators are compiled for onnxruntime."""
        raise _not_there(
            f"the library of operators '{path}' is compiled for onnxruntime",
            "operators of a model can be given as functions in the model",
        )

    def add_initializer(self, name: str, value: Any) -> None:
        """Refused: constants come from the model."""
        raise _not_there(f"the constant '{name}' cannot be replaced", "change it in the model")

    def add_external_initializers(self, names: list[str], values: list[Any]) -> None:
        """Refused: constants come from the model."""
        raise _not_there("constants cannot be replaced", "change them in the model")

    def add_provider(self, name: str, options: dict[str, str]) -> None:
        """Accepts the execution provider of the CPU and refuses all others."""
        if name != CPU_PROVIDER:
            raise _not_there(
                f"the execution provider '{name}' is not available", f"use {CPU_PROVIDER}"
            )

    def has_providers(self) -> bool:
        """Whether providers other than that of the CPU were added: never."""
        return False


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
        raise _not_there("adapters cannot be added to a run", "put them into the model")


def _demand_texts(*values: Any) -> None:
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"expected a str, not {type(value).__name__}")


def _not_there(message: str, help: str) -> Exception:
    from sardonyx.ort import _errors

    return _errors.made(_errors.NotImplemented, message, code="unsupported", help=help)
