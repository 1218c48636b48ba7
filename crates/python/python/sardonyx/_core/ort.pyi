from collections.abc import Mapping, Sequence
from typing import Any, Self, final

from typing_extensions import Buffer

from sardonyx._core.session import Error, Session
from sardonyx._shims.onnxruntime.options import RunOptions as PublicRunOptions
from sardonyx._shims.onnxruntime.values import Array
from sardonyx.typing import ModelLike, Value, ValueLike

VERSION: str
VENDOR: str
NO_MODEL_VERSION: int
CPU_PROVIDER: str
CPU_MEMORY: str
AVAILABLE_PROVIDERS: tuple[str, ...]

class SessionOptions:
    """Options of a session."""
    def __new__(cls, *args: object, **kwargs: object) -> Self: ...
    @staticmethod
    def _docs() -> list[tuple[str, str]]:
        """Returns names and documentation of the options."""
    # Any: each option has a type of its own.
    def _get(self, name: str) -> Any:
        """Returns the value of an option. Raises `AttributeError` for an unknown name."""
    def _set(self, name: str, value: object) -> None:
        """Sets an option. Raises `AttributeError` for an unknown name and `TypeError` for a value of
        another type.
        """
    def _add_entry(self, key: str, value: str) -> None:
        """Sets a configuration entry of the session."""
    def _entry(self, key: str) -> str:
        """Returns the configuration entry of a key. Raises `RuntimeError` if the configuration entry
        is not set.
        """
    def _fix_size(self, name: str, size: int) -> None:
        """Fixes the size of symbolic dimensions with this name."""
    def _fix_denoted(self, denotation: str, size: int) -> None:
        """Fixes the size of axes with this denotation, such as `DATA_BATCH`."""
    def _add_initializer(self, name: str, array: Array) -> None:
        """Adds an array that replaces an initializer."""
    def _add_external(self, names: list[str], arrays: list[Array]) -> None:
        """Adds arrays that replace initializers stored in data files."""
    def _add_files(self, names: list[str], buffers: list[Buffer], lengths: list[int]) -> None:
        """Adds contents of data files: the first `lengths[i]` bytes of each buffer."""

class RunOptions:
    """Options of a run."""
    def __new__(cls, *args: object, **kwargs: object) -> Self: ...
    @staticmethod
    def _docs() -> list[tuple[str, str]]:
        """Returns names and documentation of the options."""
    # Any: each option has a type of its own.
    def _get(self, name: str) -> Any:
        """Returns the value of an option. Raises `AttributeError` for an unknown name."""
    def _set(self, name: str, value: object) -> None:
        """Sets an option. Raises `AttributeError` for an unknown name and `TypeError` for a value of
        another type.
        """
    def _add_entry(self, key: str, value: str) -> None:
        """Sets a configuration entry of the run."""
    def _entry(self, key: str) -> str:
        """Returns the configuration entry of a key. Raises `RuntimeError` if the configuration entry
        is not set.
        """
    @property
    def terminate(self) -> bool:
        """Whether runs with these options end before their next node. Any thread may set it."""
    @terminate.setter
    def terminate(self, value: bool) -> None: ...

class Runner:
    """Session of an `InferenceSession`, opened by `_open`."""
    def __new__(cls, *args: object, **kwargs: object) -> Self: ...
    def _open(self, model: ModelLike, options: SessionOptions) -> Profile | None:
        """Opens a model, a path or bytes. Returns the profile of the session if the options enable
        profiling, else None.
        """
    @property
    def _session(self) -> Session:
        """Returns the session that `_open` has opened."""
    def _inputs(self) -> list[tuple[str, str, list[int | str | None]]]:
        """Returns name, type and shape of each input that is not an initializer."""
    def _overridable(self) -> list[tuple[str, str, list[int | str | None]]]:
        """Returns name, type and shape of each input that has an initializer as default."""
    def _outputs(self) -> list[tuple[str, str, list[int | str | None]]]:
        """Returns name, type and shape of each output."""
    def _demand_inputs(self, input_feed: Mapping[str, ValueLike]) -> None:
        """Raises an exception if `input_feed` lacks a required input."""
    def _end_profiling(self) -> str:
        """Writes the profile and returns the name of its file, or an empty string if there is none."""
    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, ValueLike],
        run_options: PublicRunOptions | None = None,
    ) -> list[Value]:
        """Runs the model and returns a list of outputs.

        `output_names` lists the names of the outputs to return; all if it is None or empty.
        `input_feed` is a dict of inputs by name. `run_options` is a `RunOptions` or None.
        """
    def run_with_iobinding(self, iobinding: Binding, run_options: PublicRunOptions | None = None) -> None:
        """Runs the model on the bound inputs and stores the bound outputs in the binding."""

class Binding:
    """Bound inputs and outputs of one session. A subclass defines `_write`, which copies an output to
    an array that the run could not write to.
    """
    def __new__(cls, session: Runner) -> Self: ...
    @property
    def _session(self) -> Runner:
        """Returns the session whose inputs and outputs are bound."""
    def _bind_input(self, name: str, value: ValueLike) -> None:
        """Binds a value to an input."""
    def _bind_output(self, name: str, into: Array | None) -> None:
        """Binds an output: runs return it, in array `into` if one is given."""
    def _results(self) -> list[Value]:
        """Returns the outputs of the last run, in the order in which they were bound."""
    def _output_numbers(self) -> list[int]:
        """Returns the indices of the bound outputs, in the order in which they were bound."""
    def _clear_inputs(self) -> None:
        """Removes the bindings of all inputs."""
    def _clear_outputs(self) -> None:
        """Removes the bindings of all outputs, and the outputs of the last run."""

@final
class Profile:
    """Profile of a session, which is written to a file once."""
    def end(self) -> str:
        """Writes the profile and returns the name of its file, or an empty string if it was written
        before. Raises `OSError` if the file cannot be written.
        """

def build_info() -> str:
    """Returns a text that describes the build."""
def levels() -> dict[str, list[tuple[str, int]]]:
    """Returns enumerations of onnxruntime, such as `GraphOptimizationLevel`: names and numbers of
    their members, by the name of the type.
    """
def statuses() -> dict[str, int]:
    """Returns the status codes of onnxruntime, by the name of their exception class."""
def set_seed(seed: int, /) -> None:
    """Sets the seed of random operators without an attribute `seed`, for sessions made later."""
def normalize_providers(
    given: list[tuple[str, list[tuple[str, str]]]], available: list[str], /
) -> tuple[list[tuple[str, list[tuple[str, str]]]], list[str]]:
    """Removes duplicate execution providers. Returns the others with their options, and warnings about
    duplicates and unavailable providers.
    """
def demand_provider(name: str, /) -> None:
    """Raises an exception for any execution provider but that of the CPU."""
def demand_device(name: str, /) -> None:
    """Raises an exception for memory of any device but the CPU."""
def demand_memory(name: str, /) -> None:
    """Raises an exception for the name of any memory but that of the CPU."""
def refusal(key: str, /, *names: str) -> Error:
    """Makes the exception for a feature of onnxruntime that Sardonyx does not have. `key` identifies
    the feature; `names` are inserted into the message. Raises `KeyError` for an unknown key.
    """
