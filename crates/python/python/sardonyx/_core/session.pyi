"""The core of sessions, which run models."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, final

from sardonyx._messages import Path
from sardonyx._profile import Profile as PublicProfile
from sardonyx._state import State
from sardonyx.distributed import Transport

class Error(Exception):
    code: str
    message: str
    place: str | None
    help: str | None
    unsupported: list[str]

@final
class Session:
    def __new__(
        cls,
        model: Any,
        *,
        threads: int | None = None,
        precision: str = "exact",
        memory_limit: int | None = None,
        dims: dict[str, int] | None = None,
        seed: int | None = None,
        mapped: bool = False,
    ) -> Session: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def run(
        self,
        feeds: Mapping[str, Any],
        *,
        outputs: Sequence[str] | None = None,
        timeout: float | None = None,
        stop: StopFlag | None = None,
    ) -> dict[str, Any]: ...
    def profile(
        self,
        feeds: Mapping[str, Any],
        *,
        runs: int = 10,
        timeout: float | None = None,
        stop: StopFlag | None = None,
    ) -> PublicProfile: ...
    def with_independent_sizes(self) -> Session: ...
    def steps(self) -> list[tuple[str, str, str]]: ...
    @property
    def inputs(self) -> list[Port]: ...
    @property
    def outputs(self) -> list[Port]: ...
    @property
    def threads(self) -> int: ...
    @property
    def made_bytes(self) -> int: ...
    @property
    def precision(self) -> str: ...
    def _repr_html_(self) -> str: ...
    @property
    def info(self) -> dict[str, Any]: ...
    @property
    def metadata(self) -> dict[str, str]: ...

@final
class Trainer:
    def __new__(
        cls,
        model: Any,
        *,
        seed: int | None = None,
        threads: int | None = None,
        precision: str = "exact",
        memory_limit: int | None = None,
        dims: dict[str, int] | None = None,
        outputs: Sequence[str] | None = None,
        devices: bool | str | None = None,
        device_timeout: float = 60.0,
    ) -> Trainer: ...
    def initialize(self, *, timeout: float | None = None, stop: StopFlag | None = None) -> None: ...
    def step(
        self,
        inputs: Mapping[str, Any],
        *,
        entry: int = 0,
        timeout: float | None = None,
        stop: StopFlag | None = None,
    ) -> dict[str, Any]: ...
    def evaluate(
        self,
        inputs: Mapping[str, Any],
        *,
        entry: int = 0,
        timeout: float | None = None,
        stop: StopFlag | None = None,
    ) -> dict[str, Any]: ...
    def iterate(
        self,
        inputs: Mapping[str, Any],
        *,
        timeout: float | None = None,
        stop: StopFlag | None = None,
    ) -> list[dict[str, Any]]: ...
    def infer(
        self,
        inputs: Mapping[str, Any],
        *,
        timeout: float | None = None,
        stop: StopFlag | None = None,
    ) -> dict[str, Any]: ...
    @property
    def state(self) -> State: ...
    def set_state(self, name: str, value: Any) -> None: ...
    def save(self, path: Path) -> None: ...
    def load(self, path: Path) -> None: ...
    def export(self) -> Any: ...
    def export_inference(self) -> Any: ...
    def export_to(self, path: Path, *, inference: bool = False) -> None: ...
    @property
    def entries(self) -> int: ...
    @property
    def devices(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def warnings(self) -> list[str]: ...
    def inputs(self, entry: int = 0) -> list[Port]: ...
    def outputs(self, entry: int = 0) -> list[Port]: ...
    @property
    def inference_inputs(self) -> list[Port]: ...
    @property
    def inference_outputs(self) -> list[Port]: ...
    @property
    def precision(self) -> str: ...
    def _repr_html_(self) -> str: ...

class Member:
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        value: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def inputs(self) -> list[Port]: ...
    @property
    def outputs(self) -> list[Port]: ...

@final
class Worker(Member):
    def __new__(
        cls,
        model: Any,
        configuration: str | None = None,
        *,
        transport: Transport | None = None,
        deadline: float = 60.0,
        results: str = "first",
        threads: int | None = None,
        precision: str = "exact",
        seed: int | None = None,
    ) -> Worker: ...
    def run(
        self,
        feeds: Mapping[str, Any],
        *,
        outputs: Sequence[str] | None = None,
        timeout: float | None = None,
        stop: StopFlag | None = None,
    ) -> dict[str, Any]: ...
    def run_many(
        self,
        feeds: Iterable[Mapping[str, Any]],
        *,
        outputs: Sequence[str] | None = None,
        timeout: float | None = None,
        stop: StopFlag | None = None,
    ) -> list[dict[str, Any]]: ...
    def serve(self, take: Callable[[dict[str, Any]], object] | None = None) -> None: ...
    @property
    def devices(self) -> int: ...

@final
class Rank(Member):
    def __new__(
        cls,
        model: Any,
        transport: Transport,
        *,
        deadline: float = 60.0,
        threads: int | None = None,
        precision: str = "exact",
        memory_limit: int | None = None,
        dims: dict[str, int] | None = None,
        seed: int | None = None,
    ) -> Rank: ...
    def run(
        self,
        feeds: Mapping[str, Any],
        *,
        outputs: Sequence[str] | None = None,
        timeout: float | None = None,
        stop: StopFlag | None = None,
    ) -> dict[str, Any]: ...

@final
class Snapshot:
    def names(self) -> list[str]: ...
    def value(self, name: str) -> Any: ...
    def types(self) -> list[str]: ...

@final
class Port:
    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str | None: ...
    @property
    def kind(self) -> str: ...
    @property
    def dtype(self) -> str | None: ...
    @property
    def shape(self) -> list[int | str | None] | None: ...
    @property
    def required(self) -> bool: ...
    @property
    def doc(self) -> str: ...

@final
class Tensor:
    def __new__(cls, values: Any, dtype: str | None = None) -> Tensor: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    def tobytes(self) -> bytes: ...
    def tolist(self) -> Any: ...
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class StopFlag:
    def __new__(cls) -> StopFlag: ...
    def stop(self) -> None: ...
    def reset(self) -> None: ...
    @property
    def is_raised(self) -> bool: ...

@final
class deadline:
    def __new__(cls, seconds: float) -> deadline: ...
    def __enter__(self) -> None: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

def add_training(model: Any, arguments: dict[str, Any], /) -> Any: ...
def differentiate(model: Any, arguments: dict[str, Any], /) -> Any: ...
def shard(
    model: Any, arguments: dict[str, Any], dims: dict[str, int] | None, /
) -> tuple[list[Any], str | None]: ...
def model_content(path: str, /) -> bytes: ...
def element_types() -> list[tuple[int, str, str]]: ...
