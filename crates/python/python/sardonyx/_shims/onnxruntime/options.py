"""Options of sessions and runs, with the names of onnxruntime's.

Every option of onnxruntime exists and keeps its value. Its documentation says whether Sardonyx uses the value.
"""

from __future__ import annotations

import enum
import operator
from typing import TYPE_CHECKING, NoReturn

from sardonyx._core import ort as _core
from sardonyx._shims.onnxruntime import errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from typing_extensions import Buffer

    from sardonyx._shims.onnxruntime.devices import OrtEpDevice
    from sardonyx._shims.onnxruntime.values import Array, OrtValue


class Number(enum.IntEnum):
    """An enumeration whose members print as names, like those of onnxruntime: ``ExecutionMode.ORT_PARALLEL``."""

    __str__ = enum.Enum.__str__
    __format__ = enum.Enum.__format__


# Duplicates of the numbers in the core, which checks them. They are written out for readers and type checkers.


class GraphOptimizationLevel(Number):
    """Levels of graph optimization. Accepted and ignored: results do not depend on it."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(Number):
    """Scheduling of nodes. Accepted and ignored: nodes run one after the other."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(Number):
    """Orders in which nodes run. Accepted and ignored."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class _Option:
    """A descriptor that reads and writes an option of the core. ``kind`` is the class of its values, if that is a Number."""

    def __init__(self, kind: type[Number] | None = None) -> None:
        self._kind = kind

    def __set_name__(self, owner: type[_core.SessionOptions | _core.RunOptions], name: str) -> None:
        self._name, self.__doc__ = name, dict(owner._docs())[name]

    # Any: each option has a type of its own.
    def __get__(self, options: _core.SessionOptions | _core.RunOptions | None, owner: type | None = None) -> Any:
        if options is None:
            return self
        value = options._get(self._name)
        return value if self._kind is None else self._kind(value)

    def __set__(self, options: _core.SessionOptions | _core.RunOptions, value: object) -> None:
        if self._kind is not None and not isinstance(value, self._kind):
            raise TypeError(
                f"the option '{self._name}' is {value!r}, which is not of the type {self._kind.__name__}"
            )
        options._set(self._name, value)


class SessionOptions(_core.SessionOptions):
    """Options with which a session is made."""

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
        """Stores an entry of the configuration.

        Sardonyx uses ``session.model_external_initializers_file_folder_path``: the directory of the data files of a model
        that is given as bytes.
        """
        _demand_texts(key, value)
        self._add_entry(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """Returns the entry of a key. Raises RuntimeError if there is none."""
        return self._entry(key)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Sets the size of the open dimensions with this name."""
        _demand_texts(name)
        self._fix_size(name, operator.index(size))

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Sets the size of the open dimensions with this denotation, such as ``DATA_BATCH``."""
        _demand_texts(denotation)
        self._fix_denoted(denotation, operator.index(size))

    def register_custom_ops_library(self, path: str) -> NoReturn:
        """Refuses: libraries of operators are compiled for onnxruntime."""
        raise _core.refusal("custom operators", str(path))

    def add_initializer(self, name: str, value: OrtValue) -> None:
        """Replaces the value of an initializer. A name that no initializer of the model has is ignored without an error."""
        _demand_texts(name)
        self._add_initializer(name, _array_of(name, value))

    def add_external_initializers(self, names: Sequence[str], values: Sequence[OrtValue]) -> None:
        """Replaces the values of initializers that are stored in data files, which are then not opened."""
        _demand_texts(*names)
        names = list(names)
        # The core compares the lengths of both lists.
        arrays = [_array_of(names[n] if n < len(names) else "", value) for n, value in enumerate(values)]
        self._add_external(names, arrays)

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], buffers: Sequence[Buffer], lengths: Sequence[int]
    ) -> None:
        """Provides the contents of data files, by their locations in the model. No file is then opened."""
        _demand_texts(*names)
        self._add_files(list(names), list(buffers), list(lengths))

    def set_load_cancellation_flag(self, value: bool) -> None:
        """Ignores the flag: opening a session cannot be cancelled."""

    def add_provider(self, name: str, options: Mapping[str, str]) -> None:
        """Accepts the execution provider of the CPU and refuses all others."""
        _core.demand_provider(name)

    def has_providers(self) -> bool:
        """Whether providers other than the CPU's were added: never."""
        return False

    def add_provider_for_devices(self, devices: Iterable[OrtEpDevice], options: Mapping[str, str]) -> None:
        """Accepts devices of :func:`get_ep_devices`, which are the CPU, and refuses all others."""
        for device in devices:
            self.add_provider(device.ep_name, options)

    def set_provider_selection_policy(self, policy: object) -> None:
        """Ignores the policy: there is one execution provider."""

    def set_provider_selection_policy_delegate(self, delegate: object) -> None:
        """Ignores the delegate: there is one execution provider."""

    def set_ep_context_data_read_func(self, read: object) -> NoReturn:
        """Refuses: models with parts compiled for an execution provider cannot run."""
        raise _core.refusal("compiled parts")

    def clear_ep_context_data_read_func(self) -> None:
        """Does nothing: no such function can be set."""


class RunOptions(_core.RunOptions):
    """Options of a run."""

    __slots__ = ()

    log_severity_level = _Option()
    log_verbosity_level = _Option()
    logid = _Option()
    only_execute_path_to_fetches = _Option()

    def __init__(self) -> None:
        pass

    # ``terminate`` is inherited from the base class.

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Stores an entry of the configuration. Sardonyx uses none of them."""
        _demand_texts(key, value)
        self._add_entry(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """Returns the entry of a key. Raises RuntimeError if there is none."""
        return self._entry(key)

    def add_active_adapter(self, adapter: object) -> NoReturn:
        """Refuses: adapters belong into the model."""
        raise _core.refusal("adapter of a run")


def _demand_texts(*values: object) -> None:
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"expected a str, not {type(value).__name__}")


def _array_of(name: str, value: object) -> Array:
    """Returns the array of an OrtValue for the initializer ``name``, and refuses other values."""
    from sardonyx._shims.onnxruntime.values import OrtValue

    if not isinstance(value, OrtValue):
        raise errors.make_error(
            errors.InvalidArgument,
            f"the value of the initializer '{name}' is {type(value).__name__}, which is not an OrtValue",
            code="argument",
            help="make one of an array with OrtValue.ortvalue_from_numpy",
        )
    return value.numpy()
