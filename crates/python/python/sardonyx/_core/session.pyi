from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, final

from typing_extensions import CapsuleType

from sardonyx._profile import Profile
from sardonyx._state import State
from sardonyx.distributed import Transport
from sardonyx.typing import ArrayLike, Message, ModelInfo, ModelLike, StrPath, Value, ValueLike

class Error(Exception):
    """A model cannot be opened or run.

    `code` says what kind of thing went wrong, for programs: `io`, `format`, `unsupported`,
    `invalid`, `external-data`, `argument`, `input`, `output`, `run`, `stopped`, `worker` or `internal`.
    `message` is one sentence, `place` says where (a file, a field of it or a node), `help` what can be done about
    it; both may be None. `unsupported` lists every operator that cannot run.
    """
    code: str
    message: str
    place: str | None
    help: str | None
    unsupported: list[str]

@final
class Session:
    """A model made ready to run. Any number of threads may use it at once.

    `model` is a path, the bytes of a model, or an object with `SerializeToString`, such as
    `onnx.ModelProto`. `threads` is the number of threads that a run uses, the calling one included;
    by default one per processor that the process may use, or what the environment variable
    `OMP_NUM_THREADS` says. `precision` is `exact` or `fast`, which rounds factors of large products
    to 16 bits. `memory_limit` bounds the bytes that the session and one run take together. `dims`
    fixes sizes that the model leaves open, by name. `seed` is what random operators without a seed
    start from.

    A session keeps no file open and copies what it needs, so a model file may be saved again while
    the session lives. `mapped=True` keeps weights in the file instead, as memory that processes
    share; each run then first checks that the file and its data files have not changed.

    Raises `sardonyx.Error` if the model cannot be opened or run.
    """
    def __new__(
        cls,
        model: ModelLike,
        *,
        threads: int | None = None,
        precision: Literal["exact", "fast"] = "exact",
        memory_limit: int | None = None,
        dims: dict[str, int] | None = None,
        seed: int | None = None,
        mapped: bool = False,
    ) -> Session: ...
    # Written by hand: Python has documentation of its own for special methods.
    def __call__(self, *args: ValueLike, **kwargs: ValueLike) -> Value:
        """Runs the model on inputs by position, in the order of the model, or by name.

        Returns the output, or a tuple if the model has several. ``None`` leaves out an optional input.
        """
    def run(
        self,
        feeds: Mapping[str, ValueLike],
        *,
        outputs: list[str] | tuple[str, ...] | None = None,
        timeout: float | None = None,
        stop: StopFlag | None = None,
    ) -> dict[str, Value]:
        """Runs the model on inputs by name and returns a dict of its outputs by name.

        `outputs` names those that are wanted; all by default. `timeout` ends the run after some
        seconds, and `stop` when another thread raises the flag.
        """
    def profile(
        self,
        feeds: Mapping[str, ValueLike],
        *,
        runs: int = 10,
        timeout: float | None = None,
        stop: StopFlag | None = None,
    ) -> Profile:
        """Runs the model `runs` times, after one run that is not counted, and returns how long each
        step took: a `sardonyx.Profile`.

        `feeds` are the inputs of each run. `timeout` and `stop` end it as they end `run`; the time
        is that of all runs together.
        """
    def with_independent_sizes(self) -> Session:
        """The same session for inputs whose sizes differ where the model gives them one name."""
    def steps(self) -> list[tuple[str, str, str]]:
        """What the steps of a run are: the name of a node, its operator, and what computes it. Nodes
        that are done together are one step.
        """
    @property
    def inputs(self) -> list[Port]:
        """What a run takes, in the order of the model."""
    @property
    def outputs(self) -> list[Port]:
        """What a run gives back, in the order of the model."""
    @property
    def threads(self) -> int:
        """How many threads a run uses, the calling one included."""
    @property
    def made_bytes(self) -> int:
        """Bytes that the session has computed or packed ahead of time, without what the file stores."""
    @property
    def precision(self) -> str:
        """How exact products are: `exact` or `fast`."""
    def _repr_html_(self) -> str:
        """What notebooks show: inputs, outputs, nodes by operator, and how the session was made."""
    def __reduce__(self) -> tuple[Callable[[str | bytes], Session], tuple[str | bytes]]: ...
    @property
    def info(self) -> ModelInfo:
        """What the model says about itself: `producer_name`, `producer_version`, `domain`,
        `graph_name`, `doc`, `graph_doc`, and `version`, which is None if it does not say.
        """
    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the model, by key."""

@final
class Trainer:
    """A model that is trained as it says itself, by its field `training_info`.

    The state variables are the initializers that a binding of the training information names.
    `initialize`, `step`, `iterate`, `set_state` and `load` change them; they wait for each other.
    `infer`, `evaluate` and all else use the state between two changes, and do not wait. An error
    or Ctrl-C leaves the state as it was before the call.

    `model`, `threads`, `precision`, `memory_limit` and `dims` are those of `Session`. `seed` is
    what random operators without a seed draw by; by default one from the system. `outputs` names
    the outputs that training steps return; all by default. Others are not computed.

    `devices` runs steps and inference on the devices of a configuration of the model, each a thread
    with its part of the model and of the state: `True` for the only configuration, or a name. The
    results are the same, except for the rounding of sums. `threads` counts the threads of each
    device then; by default the devices share the processors. `device_timeout` is how many seconds a
    device waits for a message of another one.

    Raises `sardonyx.Error` if the model has no training information, or cannot be opened or run.
    """
    def __new__(
        cls,
        model: ModelLike,
        *,
        seed: int | None = None,
        threads: int | None = None,
        precision: Literal["exact", "fast"] = "exact",
        memory_limit: int | None = None,
        dims: dict[str, int] | None = None,
        outputs: Sequence[str] | None = None,
        devices: bool = False,
        configuration: str | None = None,
        device_timeout: float = 60.0,
    ) -> Trainer: ...
    def initialize(self, *, timeout: float | None = None, stop: StopFlag | None = None) -> None:
        """Brings the state back to the beginning: every state variable gets its stored value, then the
        initialization graphs are evaluated and assigned, in the order of the entries.

        `timeout` and `stop` are those of `Session.run`.
        """
    def step(
        self,
        inputs: Mapping[str, ValueLike],
        *,
        entry: int = 0,
        timeout: float | None = None,
        stop: StopFlag | None = None,
    ) -> dict[str, Value]:
        """Runs the training step of an entry once: the main graph followed by the algorithm of the
        entry, both with the values that the state has before. Assigns new values as
        `update_binding` says, and returns a dict of the outputs of both graphs by name.

        `inputs` are inputs by name, as for `Session.run`. The time that `timeout` says counts the
        waiting for other steps as well.
        """
    def evaluate(
        self,
        inputs: Mapping[str, ValueLike],
        *,
        entry: int = 0,
        timeout: float | None = None,
        stop: StopFlag | None = None,
    ) -> dict[str, Value]:
        """What `step` would return now: the same computation, which assigns nothing."""
    def iterate(
        self,
        inputs: Mapping[str, ValueLike],
        *,
        timeout: float | None = None,
        stop: StopFlag | None = None,
    ) -> list[dict[str, Value]]:
        """One iteration of training: the training steps of all entries, in the order of the list. Each
        takes those of the inputs that it has. Returns a list with the outputs of each.
        """
    def infer(
        self,
        inputs: Mapping[str, ValueLike],
        *,
        timeout: float | None = None,
        stop: StopFlag | None = None,
    ) -> dict[str, Value]:
        """Runs the main graph with the current state, and changes nothing: the same call again gives
        the same outputs, random numbers included. Returns a dict of the outputs by name.

        A state variable that is an input of the main graph may be given another value for this
        call.
        """
    @property
    def state(self) -> State:
        """The state variables and their values, by name: a mapping that later steps do not change.

        A name that variables of two entries have is told apart by the entry:
        `training_info[1].rate`.
        """
    def set_state(self, name: str, value: ArrayLike) -> None:
        """Gives a state variable another value, of the same element type and shape."""
    def save(self, path: StrPath) -> None:
        """Writes the state to a file that ends in `.safetensors` or `.npz`, whole or not at all: the
        values of all state variables, the position of the random generator, and a hash of the
        model.
        """
    def load(self, path: StrPath) -> None:
        """Takes over the state of a file that `save` wrote for the same model."""
    # Any: an object of the class of the model that the trainer was made of, or bytes.
    def export(self) -> Any:
        """The model with the current values in its initializers, ready to be trained further: an
        object of the class of the model that the trainer was made of, or bytes. What was in data
        files is inside.
        """
    def export_inference(self) -> Any:
        """The model with the current values in its initializers and without its training information;
        as `export` otherwise.
        """
    def export_to(self, path: StrPath, *, inference: bool = False) -> None:
        """Writes the model that `export` returns to a file, whole or not at all; with `inference=True`
        that of `export_inference`. Values in data files are copied if the file is in another
        directory. The ending of the name decides the form, as everywhere.
        """
    @property
    def entries(self) -> int:
        """How many entries the training information has."""
    @property
    def devices(self) -> int:
        """How many devices run steps and inference; 0 without devices."""
    @property
    def seed(self) -> int:
        """What random operators of the model draw by."""
    @property
    def warnings(self) -> list[str]:
        """What is odd about the training information and does not stand against running it."""
    def inputs(self, entry: int = 0) -> list[Port]:
        """What the training step of an entry takes: inputs of the main graph, then those of its
        algorithm.
        """
    def outputs(self, entry: int = 0) -> list[Port]:
        """What the training step of an entry returns."""
    @property
    def inference_inputs(self) -> list[Port]:
        """What inference takes. State variables that are inputs of the main graph may be given."""
    @property
    def inference_outputs(self) -> list[Port]:
        """What inference returns."""
    @property
    def precision(self) -> str:
        """How exact products are: `exact` or `fast`."""
    def _repr_html_(self) -> str:
        """What notebooks show: state variables, and inputs and outputs of each step."""

class Member:
    """One of several programs that work together: a `Worker` or a `Rank`."""
    def close(self) -> None:
        """Ends the work of this member. If it is worker 0, `serve` of the others ends."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        value: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None: ...
    @property
    def rank(self) -> int:
        """The number of this member, from 0."""
    @property
    def size(self) -> int:
        """How many members there are."""
    @property
    def threads(self) -> int:
        """How many threads a run uses here, the calling one included. Those of a worker are shared by
        its devices.
        """
    @property
    def inputs(self) -> list[Port]:
        """What a run takes, in the order of the model."""
    @property
    def outputs(self) -> list[Port]:
        """What a run gives back, in the order of the model."""

@final
class Worker(Member):
    """One of several workers that run a model on the devices of one of its configurations.

    `model` is what a `Session` takes; all workers open the same one with the same options.
    `configuration` is the name of the configuration; the only one of the model if it is None.
    `transport` carries messages to the other workers; without it there are none, and each device
    is a thread of this process. It is an object with `rank`, the number of this
    worker, `size`, the number of all, `send(to, data)` and `recv(timeout)`, which returns
    `(source, data)`, or None if nothing came in so many seconds. Each of the two methods is called
    by one thread, not the same for both. `send` may wait until the other worker receives.
    `deadline` is how many seconds a worker waits for another one before that is taken for lost.
    `results` says who gets what runs give: `"first"`, worker 0; `"all"` workers, which get them
    by `serve`; or `"split"`: outputs stay on the devices, and each worker gets what its own devices
    have, for each output a list of `sardonyx.distributed.OutputPart`. `threads`, `precision` and
    `seed` are those of `Session`; by default, the devices of this worker share the processors.

    Devices are spread evenly over the workers. Worker 0 calls `run` or `run_many`, all others
    `serve`, which ends when worker 0 is closed. A node that fails, or a limit, ends one run, on all
    workers. If a worker fails otherwise or is lost, the calls of all end with an error that names
    it, and none of them can run any more.

    Waits until all workers are there. Raises `sardonyx.Error` if one is missing or has another
    model or other options, or if the model cannot be opened or run.
    """
    def __new__(
        cls,
        model: ModelLike,
        configuration: str | None = None,
        *,
        transport: Transport | None = None,
        deadline: float = 60.0,
        results: Literal["first", "all", "split"] = "first",
        threads: int | None = None,
        precision: Literal["exact", "fast"] = "exact",
        seed: int | None = None,
    ) -> Worker: ...
    def run(
        self,
        feeds: Mapping[str, ValueLike],
        *,
        outputs: list[str] | tuple[str, ...] | None = None,
        timeout: float | None = None,
        stop: StopFlag | None = None,
    ) -> dict[str, Value]:
        """Runs the model on inputs by name and returns a dict of its outputs by name. For worker 0.

        `outputs` names those that are wanted; all by default. `timeout` ends the run after some
        seconds, and `stop` when another thread raises the flag; both end the run on all workers.
        """
    def run_many(
        self,
        feeds: Iterable[Mapping[str, ValueLike]],
        *,
        outputs: list[str] | tuple[str, ...] | None = None,
        timeout: float | None = None,
        stop: StopFlag | None = None,
    ) -> list[dict[str, Value]]:
        """Runs the model on each of several sets of inputs, and returns a list of dicts of outputs.
        Devices do not wait for each other between runs. For worker 0.
        """
    def serve(self, take: Callable[[dict[str, Value]], object] | None = None) -> None:
        """Runs the devices of this worker whenever worker 0 runs the model, until that is closed. For
        all workers but 0.

        `take` is called with a dict of outputs by name for each run that worker 0 makes, if the
        workers were made with `results="all"` or `results="split"`. An exception that it raises
        ends the work of all.
        """
    @property
    def devices(self) -> int:
        """How many devices the model runs on, those of all workers together."""

@final
class Rank(Member):
    """One of several ranks that each run a model of their own with collectives: those that `sardonyx
    shard --local` and other tools write.

    `model` is what a `Session` takes: the model of this rank, or one that all ranks have.
    `transport` carries messages to the other ranks; it is what a `Worker` takes. `deadline` is how
    many seconds a rank waits for another one before that is taken for lost. The other options are
    those of `Session`.

    All ranks make their sessions at the same time and call `run` equally often. If a run of one
    fails, the calls of all end with an error that names the rank, and none of them can run any
    more.

    Waits until all ranks are there. Raises `sardonyx.Error` if one is missing or has collectives
    that do not fit, or if the model cannot be opened or run.
    """
    def __new__(
        cls,
        model: ModelLike,
        transport: Transport,
        *,
        deadline: float = 60.0,
        threads: int | None = None,
        precision: Literal["exact", "fast"] = "exact",
        memory_limit: int | None = None,
        dims: dict[str, int] | None = None,
        seed: int | None = None,
    ) -> Rank: ...
    def run(
        self,
        feeds: Mapping[str, ValueLike],
        *,
        outputs: list[str] | tuple[str, ...] | None = None,
        timeout: float | None = None,
        stop: StopFlag | None = None,
    ) -> dict[str, Value]:
        """Runs the model of this rank on inputs by name, together with the runs of the other ranks,
        and returns a dict of its outputs by name.

        `outputs` names those that are wanted; all by default. `timeout` ends the run after some
        seconds, and `stop` when another thread raises the flag; both end the work of all ranks.
        """

@final
class Snapshot:
    """The state of a trainer at one moment."""
    def names(self) -> list[str]:
        """The names of the state variables: those of the main graph, then those of the algorithms."""
    def value(self, name: str) -> Value:
        """The value of a state variable, as an array of its own."""
    def types(self) -> list[str]:
        """Types and shapes of the state variables, such as `float[2, 3]`."""

@final
class Port:
    """An input or output of a model."""
    @property
    def name(self) -> str:
        """Its name."""
    @property
    def type(self) -> str | None:
        """Its type in ONNX text, such as `float[N, 3, 224, 224]`; None if the model declares none."""
    @property
    def kind(self) -> str:
        """Its type without sizes, as the standard writes it, such as `seq(tensor(float))`; empty if
        the model declares none.
        """
    @property
    def dtype(self) -> str | None:
        """The element type of a tensor, such as `float`; else None."""
    @property
    def shape(self) -> list[int | str | None] | None:
        """The sizes of a tensor: numbers, names of sizes that are open, and None for those of which
        nothing is known. None if it is not a tensor, or the model does not say how many there are.
        """
    @property
    def required(self) -> bool:
        """Whether a run must be given it."""
    @property
    def doc(self) -> str:
        """What the model says about it; mostly empty."""

@final
class Tensor:
    """A tensor, as runs return them where numpy is not installed or has no type for the elements.

    `Tensor(values)` makes one of anything that a run takes: a copy, with which `torch.from_dlpack`
    takes elements over that numpy has no type for, such as `bfloat16`. It lends its memory through
    the buffer protocol, writable: `memoryview(tensor)`. `dtype` is the ONNX name of the element
    type, such as `float` or `bfloat16`.
    """
    def __new__(cls, values: ArrayLike, dtype: str | None = None) -> Tensor: ...
    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""
    @property
    def dtype(self) -> str:
        """The ONNX name of the element type, such as `float`."""
    def tobytes(self) -> bytes:
        """The bytes of the elements in the order of this machine, packed if an element takes less than
        one; none for strings.
        """
    # Any: a scalar, or lists nested as deep as the tensor has dimensions.
    def tolist(self) -> Any:
        """The elements in lists, nested as the tensor has dimensions; a single one for a tensor
        without dimensions.
        """
    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class StopFlag:
    """A flag that ends the runs that look at it; any thread may raise it."""
    def __new__(cls) -> StopFlag: ...
    def stop(self) -> None:
        """Raises the flag: runs that look at it end before their next step, or the next part of a long
        one.
        """
    def reset(self) -> None:
        """Lowers the flag, for runs that begin later."""
    @property
    def is_raised(self) -> bool:
        """Whether it is up."""

@final
class deadline:
    """Ends runs of this thread that take longer, while its block runs.

        with sardonyx.deadline(0.5):
            session(x)

    A run that is not done by then raises `sardonyx.Error` with the code `stopped`. The time counts
    from the beginning of the block. Of two that are nested, the earlier holds.
    """
    def __new__(cls, seconds: float) -> deadline: ...
    def __enter__(self) -> None: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

def add_training(model: ModelLike, arguments: dict[str, object], /) -> bytes | Message:
    """A model with a loss, gradients and an optimizer."""
def differentiate(model: ModelLike, arguments: dict[str, object], /) -> bytes | Message:
    """A model with gradients as outputs, or with the nodes that its Gradient nodes mean."""
def shard(
    model: ModelLike, arguments: dict[str, object], dims: dict[str, int] | None, /
) -> tuple[list[bytes | Message], str | None]:
    """The annotated model, or the models of all ranks, and why devices have nothing to do apart, if
    that is so.
    """
def model_content(path: str, /) -> bytes:
    """The bytes of a model file in the binary form, with the values of its data files inside. The
    model need not be complete.

    # Errors

    The file or a data file cannot be read.
    """
def element_types() -> list[tuple[int, str, str]]:
    """Every element type: its number in a file, its ONNX name, and what numpy or ml_dtypes calls it."""
