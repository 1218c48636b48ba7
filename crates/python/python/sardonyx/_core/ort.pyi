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
        """Documentation of the options, by name."""
    # Any: each option has a type of its own.
    def _get(self, name: str) -> Any:
        """The value of an option."""
    def _set(self, name: str, value: object) -> None:
        """Sets an option."""
    def _warnings(self) -> list[str]:
        """Warnings about options whose effect a caller would miss."""
    def _add_entry(self, key: str, value: str) -> None:
        """Keeps an entry of the configuration."""
    def _entry(self, key: str) -> str:
        """The entry of a key."""
    def _fix_size(self, name: str, size: int) -> None:
        """Fixes a size that the model leaves open and gives this name."""
    def _fix_denoted(self, denotation: str, size: int) -> None:
        """Fixes sizes of axes with a denotation."""
    def _add_initializer(self, name: str, array: Array) -> None:
        """Adds an array in the place of an initializer."""
    def _add_external(self, names: list[str], arrays: list[Array]) -> None:
        """Adds arrays in the place of initializers that lie in data files."""
    def _add_files(self, names: list[str], buffers: list[Buffer], lengths: list[int]) -> None:
        """Adds contents of data files, each the first bytes of a buffer."""

class RunOptions:
    """Options of a run."""
    def __new__(cls, *args: object, **kwargs: object) -> Self: ...
    @staticmethod
    def _docs() -> list[tuple[str, str]]:
        """Documentation of the options, by name."""
    # Any: each option has a type of its own.
    def _get(self, name: str) -> Any:
        """The value of an option."""
    def _set(self, name: str, value: object) -> None:
        """Sets an option."""
    def _add_entry(self, key: str, value: str) -> None:
        """Keeps an entry of the configuration."""
    def _entry(self, key: str) -> str:
        """The entry of a key."""
    @property
    def terminate(self) -> bool:
        """Whether runs with these options end before their next step; any thread may set it."""
    @terminate.setter
    def terminate(self, value: bool) -> None: ...

class Runner:
    """Runs a session that is opened once."""
    def __new__(cls, *args: object, **kwargs: object) -> Self: ...
    def _open(self, model: ModelLike, options: SessionOptions) -> Profile | None:
        """Opens a model, a path or bytes, and returns the profile of the session, if the options ask
        for one.
        """
    @property
    def _session(self) -> Session:
        """The session."""
    def _inputs(self) -> list[tuple[str, str, list[int | str | None]]]:
        """Inputs that callers give."""
    def _overridable(self) -> list[tuple[str, str, list[int | str | None]]]:
        """Inputs that have a value in the model."""
    def _outputs(self) -> list[tuple[str, str, list[int | str | None]]]:
        """Outputs."""
    def _demand_inputs(self, input_feed: Mapping[str, ValueLike]) -> None:
        """Refuses inputs without one that a run needs."""
    def _end_profiling(self) -> str:
        """Writes the profile and returns the name of its file; an empty text if there is none."""
    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, ValueLike],
        run_options: PublicRunOptions | None = None,
    ) -> list[Value]:
        """Runs the model and returns the outputs in a list: those of these names, or all if
        `output_names` is None or empty.
        """
    def run_with_iobinding(self, iobinding: Binding, run_options: PublicRunOptions | None = None) -> None:
        """Runs the model on what is bound."""

class Binding:
    """Inputs and outputs of the runs of one session. A class that extends it says in `_write` how an
    output is copied into an array that a run could not write itself.
    """
    def __new__(cls, session: Runner) -> Self: ...
    @property
    def _session(self) -> Runner:
        """The session whose inputs and outputs are bound."""
    def _bind_input(self, name: str, value: ValueLike) -> None:
        """Binds a value to an input."""
    def _bind_output(self, name: str, into: Array | None) -> None:
        """Has an output returned by runs, written into an array if one is given."""
    def _results(self) -> list[Value]:
        """The outputs of the last run, in the order in which they were bound."""
    def _output_numbers(self) -> list[int]:
        """The numbers of the bound outputs, in the order in which they were bound."""
    def _clear_inputs(self) -> None:
        """Takes all bindings of inputs back."""
    def _clear_outputs(self) -> None:
        """Takes all bindings of outputs back, and what runs have returned."""

@final
class Profile:
    """The profile of a session, and the file that it is written to once."""
    def end(self) -> str:
        """Writes the profile and returns the name of its file; an empty text if it was written before."""

def build_info() -> str:
    """Text that describes the build."""
def levels() -> dict[str, list[tuple[str, int]]]:
    """Numbers with names, by the name of their type."""
def statuses() -> dict[str, int]:
    """Status codes, by the name of their exception class."""
def set_seed(seed: int, /) -> None:
    """Sets the seed of random operators without one of their own, in sessions that are made later."""
def normalize_providers(
    given: list[tuple[str, list[tuple[str, str]]]], available: list[str], /
) -> tuple[list[tuple[str, list[tuple[str, str]]]], list[str]]:
    """Providers, each once with its options, and warnings about the others."""
def demand_provider(name: str, /) -> None:
    """Refuses every execution provider other than that of the CPU."""
def demand_device(name: str, /) -> None:
    """Refuses memory of any device other than the CPU."""
def demand_memory(name: str, /) -> None:
    """Refuses the name of any memory other than that of the CPU."""
def refusal(key: str, /, *names: str) -> Error:
    """The exception for what Sardonyx does not have, by its key, about things of these names."""
