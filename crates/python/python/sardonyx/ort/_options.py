"""Options of sessions and runs, as onnxruntime has them.

Every option of onnxruntime exists and keeps the value that it is given. Its documentation says whether
Sardonyx uses the value or ignores it.
"""

from __future__ import annotations

import enum
import operator
from typing import Any

from sardonyx._core import ort as _core
from sardonyx.ort import _errors


class Number(enum.IntEnum):
    """A number with a name, whose text is the name as in onnxruntime: ``ExecutionMode.ORT_PARALLEL``."""

    __str__ = enum.Enum.__str__
    __format__ = enum.Enum.__format__


# The core has the numbers as well, and checks those that it is given. They stand here for readers and checkers of types.


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
    """An option of the core as an attribute. ``kind`` is the class of numbers that it takes, if it is one of these."""

    def __init__(self, kind: type[Number] | None = None) -> None:
        self._kind = kind

    def __set_name__(self, owner: Any, name: str) -> None:
        self._name, self.__doc__ = name, dict(owner._docs())[name]

    def __get__(self, options: Any, owner: type | None = None) -> Any:
        if options is None:
            return self
        value = options._get(self._name)
        return value if self._kind is None else self._kind(value)

    def __set__(self, options: Any, value: Any) -> None:
        if self._kind is not None and not isinstance(value, self._kind):
            raise TypeError(
                f"the option '{self._name}' is {value!r}, which is not of the type {self._kind.__name__}"
            )
        options._set(self._name, value)


class SessionOptions(_core.SessionOptions):
    """How a session is made."""

    __slots__ = ()

    log_severity_level = _Option()
    log_verbosity_level = _Option()
    logid = _Option()
    intra_op_num_threads = _Option()
    inter_op_num_threads = _Option()
    graph_optimization_level = _Option(GraphOptimizationLevel)
    execution_mode = _Option(ExecutionMode)
    execution_order = _Option(ExecutionOrder)
    enable_cpu_mem_arena = _Option()
    enable_mem_pattern = _Option()
    enable_mem_reuse = _Option()
    enable_profiling = _Option()
    profile_file_prefix = _Option()
    optimized_model_filepath = _Option()
    use_deterministic_compute = _Option()
    use_per_session_threads = _Option()

    def __init__(self) -> None:
        pass

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keeps an entry of the configuration.

        Sardonyx uses ``session.model_external_initializers_file_folder_path``: where the data files are of a model that is
        given as bytes.
        """
        _demand_texts(key, value)
        self._add_entry(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """The entry of a key; RuntimeError if there is none."""
        return self._entry(key)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fixes a size that the model leaves open and gives this name."""
        _demand_texts(name)
        self._fix_size(name, operator.index(size))

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Fixes the sizes of axes with this denotation, such as ``DATA_BATCH``, that the model leaves open."""
        _demand_texts(denotation)
        self._fix_denoted(denotation, operator.index(size))

    def register_custom_ops_library(self, path: str) -> None:
        """Refused: libraries of operators are compiled for onnxruntime."""
        raise _core.refusal("custom operators", str(path))

    def add_initializer(self, name: str, value: Any) -> None:
        """Gives an ``OrtValue`` in the place of an initializer of the model. A name that it does not have is left out."""
        _demand_texts(name)
        self._add_initializer(name, _content(name, value))

    def add_external_initializers(self, names: list[str], values: list[Any]) -> None:
        """Gives values in the place of initializers whose values lie in data files. The files are not opened then."""
        _demand_texts(*names)
        names, values = list(names), list(values)
        # The core compares the numbers of both.
        arrays = [_content(names[n] if n < len(names) else "", value) for n, value in enumerate(values)]
        self._add_external(names, arrays)

    def add_external_initializers_from_files_in_memory(
        self, names: list[str], buffers: list[Any], lengths: list[int]
    ) -> None:
        """Gives the contents of data files, by the locations that the model has for them. No file is opened then."""
        _demand_texts(*names)
        self._add_files(list(names), list(buffers), list(lengths))

    def set_load_cancellation_flag(self, value: bool) -> None:
        """Accepted and ignored: making a session is not cancelled."""

    def add_provider(self, name: str, options: dict[str, str]) -> None:
        """Accepts the execution provider of the CPU and refuses all others."""
        _core.demand_provider(name)

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
        raise _core.refusal("compiled parts")

    def clear_ep_context_data_read_func(self) -> None:
        """Does nothing: no such function can be set."""


class RunOptions(_core.RunOptions):
    """How a run goes."""

    __slots__ = ()

    log_severity_level = _Option()
    log_verbosity_level = _Option()
    logid = _Option()
    only_execute_path_to_fetches = _Option()

    def __init__(self) -> None:
        pass

    # ``terminate`` is that of the base class.

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keeps an entry of the configuration. Sardonyx uses none of them."""
        _demand_texts(key, value)
        self._add_entry(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """The entry of a key; RuntimeError if there is none."""
        return self._entry(key)

    def add_active_adapter(self, adapter: Any) -> None:
        """Refused: adapters belong into the model."""
        raise _core.refusal("adapter of a run")


def _demand_texts(*values: Any) -> None:
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"expected a str, not {type(value).__name__}")


def _content(name: str, value: Any) -> Any:
    """Returns the array that a value holds."""
    from sardonyx.ort._values import OrtValue

    if not isinstance(value, OrtValue):
        raise _errors.made(
            _errors.InvalidArgument,
            f"the value of the initializer '{name}' is {type(value).__name__}, which is not an OrtValue",
            code="argument",
            help="make one of an array with OrtValue.ortvalue_from_numpy",
        )
    return value.numpy()
