from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, final

from typing_extensions import CapsuleType

from sardonyx._profile import Profile
from sardonyx._state import State
from sardonyx.distributed import Transport
from sardonyx.typing import ArrayLike, Message, ModelInfo, ModelLike, StrPath, Value, ValueLike

class Error(Exception):
    """Error when a model is opened or run.

    `code` is the kind of the error, for programs: `io`, `format`, `unsupported`, `invalid`,
    `external-data`, `argument`, `input`, `output`, `run`, `stopped`, `worker` or `internal`.
    `message` is one sentence. `place` is the file, field or node, and `help` is advice;
    both may be None. `unsupported` lists every operator of the model that cannot run.
    """
    code: str
    message: str
    place: str | None
    help: str | None
    unsupported: list[str]

@final
class Session:
    """Model that is ready to run. Any number of threads may use it at once.

    `model` is a path, the bytes of a model, or an object with `SerializeToString`, such as
    `onnx.ModelProto`. `threads` is the number of threads of a run, including the calling thread;
    the default is the first number in the environment variable `OMP_NUM_THREADS`, or one thread per
    available processor. `precision` is `exact`, or `fast`, which rounds operands of large products
    to 16 bits. `memory_limit` is the maximum number of bytes that the session and one run use
    together; unlimited by default. `dims` maps names of symbolic dimensions to sizes. `seed`
    seeds random operators without an attribute `seed`; by default, each run draws new numbers.

    A session keeps no file open and copies what it needs, so the model file may be overwritten
    while the session lives. `mapped=True` memory-maps the weights instead, so that processes share
    them; each run then first checks that the model file and its data files are unmodified.

    Raises `sardonyx.Error` if the model cannot be opened or is not supported.
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
        """Runs the model on a dict of inputs by name and returns a dict of outputs by name.

        `outputs` lists the names of the outputs to return; the default is all. `timeout` is a time
        limit in seconds. `stop` is a `StopFlag` with which another thread can cancel the run.
        Raises `sardonyx.Error`; its code is `input` for an unsuitable input and `stopped` for a
        canceled run.
        """
    def state(
        self,
        pairs: Iterable[StatePair | tuple[str, str]] | None = None,
        *,
        batch: int = 1,
        dims: dict[str, int] | None = None,
        capacity: int = 0,
    ) -> SessionState:
        """Makes the state of a series of runs, in which outputs become inputs of the next run, such as
        the keys and values of a decoder.

        `pairs` lists `StatePair` objects, or tuples of the name of an input and that of its output;
        by default pairs are found by names and types, such as `past_key_values.0.key` with
        `present.0.key`. `batch` is the number of sequences. `dims` maps names of other symbolic
        dimensions of the kept inputs to sizes. `capacity` is the number of rows that memory is
        reserved for; without it, memory doubles when it is full.

        Raises `sardonyx.Error` with the code `argument` without any pair, for a name that does not
        exist and for an open size, and with the code `run` if the memory exceeds the limit of the
        session.
        """
    def profile(
        self,
        feeds: Mapping[str, ValueLike],
        *,
        runs: int = 10,
        timeout: float | None = None,
        stop: StopFlag | None = None,
    ) -> Profile:
        """Runs the model `runs` times after one warm-up run and returns the time of each step as a
        `sardonyx.Profile`.

        `feeds` is the dict of inputs of every run. `timeout` limits the total time of all runs, in
        seconds. `stop` is a `StopFlag` that cancels them. Raises `ValueError` if `runs` is less
        than 1.
        """
    def with_independent_sizes(self) -> Session:
        """Returns a copy of the session that accepts different sizes for dimensions that share a name
        in the model.
        """
    def steps(self) -> list[tuple[str, str, str]]:
        """Returns the steps of a run as tuples of node name, operator and kernel. Nodes that are fused
        share one step.
        """
    @property
    def inputs(self) -> list[Port]:
        """Returns the inputs of a run as a list of `Port`, in the order of the model."""
    @property
    def outputs(self) -> list[Port]:
        """Returns the outputs of a run as a list of `Port`, in the order of the model."""
    @property
    def threads(self) -> int:
        """Returns the number of threads that a run uses, including the calling thread."""
    @property
    def made_bytes(self) -> int:
        """Returns the memory of constants that the session computed or packed when it was made, in
        bytes. Values stored in the model file do not count.
        """
    @property
    def precision(self) -> str:
        """Returns the precision of matrix products: `exact` or `fast`."""
    def _repr_html_(self) -> str:
        """Returns HTML for notebooks: inputs, outputs, the number of nodes by operator, and the
        options of the session.
        """
    def __reduce__(self) -> tuple[Callable[[str | bytes], Session], tuple[str | bytes]]: ...
    @property
    def info(self) -> ModelInfo:
        """Returns facts about the model in a dict: the texts `producer_name`, `producer_version`,
        `domain`, `graph_name`, `doc` and `graph_doc`, and the int `version`, which is None if the
        model has no version.
        """
    @property
    def metadata(self) -> dict[str, str]:
        """Returns the metadata of the model (`metadata_props`) as a dict of strings."""

@final
class StatePair:
    """Output and the input that it becomes in the next run, such as `present.0.key` and
    `past_key_values.0.key`.

    `first_dims` is the shape of the input before the first run; by default it follows from the type
    of the input, with 0 rows. `axis` is the axis of rows, which `SessionState.truncate` cuts; it is
    found where runs append to the input. `batch_axis` is the axis of sequences, of which
    `SessionState.select` keeps some; by default it is the axis whose name contains `batch`, or else
    the first one if its size is open.
    """
    def __new__(
        cls,
        input: str,
        output: str,
        *,
        first_dims: Iterable[int] | None = None,
        axis: int | None = None,
        batch_axis: int | None = None,
    ) -> StatePair: ...
    @staticmethod
    def find(session: Session) -> list[StatePair]:
        """Finds the pairs of a session by names and types: `past_key_values.0.key` with
        `present.0.key`, `past_0` with `present_0`, `cache_in` with `cache_out`, and the like.
        """
    @property
    def input(self) -> str:
        """Name of the input."""
    @property
    def output(self) -> str:
        """Name of the output."""
    @property
    def first_dims(self) -> tuple[int, ...] | None:
        """Returns the shape of the input before the first run, as a tuple; None if it follows from the
        type.
        """
    @property
    def axis(self) -> int | None:
        """Axis of rows; None if it is to be found."""
    @property
    def batch_axis(self) -> int | None:
        """Axis of sequences; None if it is to be found."""

@final
class SessionState:
    """State of a series of runs of a session: outputs of a run that are inputs of the next one, such
    as the keys and values of a text that a decoder continues. `Session.state` makes it.

    A run writes new rows into the memory of the state and copies no earlier ones where the model
    joins both by `Concat`, in `Attention` or `GroupQueryAttention`, or writes rows by
    `TensorScatter`. Results have the bits of runs that pass the same values by hand. A run that
    fails leaves the state as it was, but for rows in whose place it wrote others.

    Threads may share a state: calls wait for each other. `len(state)` is the number of rows,
    positions of a text.
    """
    def run(
        self,
        feeds: Mapping[str, ValueLike],
        *,
        outputs: list[str] | tuple[str, ...] | None = None,
        timeout: float | None = None,
        stop: StopFlag | None = None,
    ) -> dict[str, Value]:
        """Runs the session on a dict of the inputs that the state does not keep, and returns a dict of
        the outputs that it does not keep, by name.

        `outputs` lists the names of the outputs to return; the default is all. `timeout` is a time
        limit in seconds, waiting for other calls included. `stop` is a `StopFlag` with which
        another thread can cancel the run.

        Raises `sardonyx.Error` like `Session.run`, and leaves the state as it was; its code is
        `input` also for an input that the state keeps, and for a model that appends a number of
        rows that depends on values.
        """
    @property
    def session(self) -> Session:
        """Returns the session that the state belongs to."""
    @property
    def pairs(self) -> list[StatePair]:
        """Returns the pairs of the state as a list of `StatePair`."""
    def is_appended(self, name: str) -> bool:
        """Whether runs append to the input `name` in place. Other inputs of the state are replaced by
        outputs.
        """
    def explain(self, feeds: Mapping[str, ValueLike]) -> dict[str, list[str]]:
        """Explains how a run on the inputs `feeds` would keep the state. Returns a dict with a list
        for each kept input, by name: reasons why the run copies earlier rows, as sentences without
        their subject. An empty list means that it copies none.
        """
    def __len__(self) -> int: ...
    @property
    def capacity(self) -> int | None:
        """Returns the number of rows that fit before memory grows; None if runs append to no pair."""
    @property
    def nbytes(self) -> int:
        """Returns the size of the memory of the state, in bytes. Clones count what they share."""
    @property
    def copied_bytes(self) -> int:
        """Returns how many bytes of earlier rows the last run copied. It is 0 if runs append to all
        pairs, memory did not grow, no clone shared it, and no step had to rearrange it.
        """
    @property
    def can_truncate(self) -> bool:
        """Whether `truncate` works: the axis of rows of each pair is known."""
    def truncate(self, length: int) -> None:
        """Drops all rows after the first `length`, and copies nothing of pairs to which runs append.

        Raises `sardonyx.Error` with the code `input` if the axis of rows of a pair is not known.
        """
    def select(self, indices: Iterable[int]) -> None:
        """Keeps the sequences with these numbers, in this order, such as the best beams. A number may
        occur several times.

        Raises `sardonyx.Error` with the code `input` for a number that no sequence has.
        """
    def reserve(self, rows: int) -> None:
        """Reserves memory for `rows` rows in all. Raises `sardonyx.Error` with the code `run` if the
        memory exceeds the limit of the session.
        """
    def value(self, name: str) -> Value:
        """Returns the value of the input `name` as a new array, to save it. Raises `sardonyx.Error`
        with the code `argument` if the state has no such input.
        """
    def set_value(self, name: str, value: ArrayLike) -> None:
        """Replaces the value of the input `name` by a copy of an array, such as one that was saved.

        Raises `sardonyx.Error` with the code `argument` if the state has no such input, and with
        the code `input` if the element type or the rank is not that of the state.
        """
    def clone(self) -> SessionState:
        """Returns a state with the same values, which shares memory with this one until one of them
        runs. `copy.copy` and `copy.deepcopy` do the same.
        """
    def __copy__(self) -> SessionState: ...
    def __deepcopy__(self, memo: dict[int, object], /) -> SessionState: ...

@final
class Trainer:
    """Trainer of a model that describes its training in `training_info`.

    The state variables are the initializers that a binding of the training information names.
    `initialize`, `step`, `iterate`, `set_state` and `load` change them, one call at a time, in the
    order of the calls. All other methods, such as `infer` and `evaluate`, use the state of the last
    finished change and never wait for the computation of another one. A call that raises an
    exception, or that Ctrl-C interrupts, leaves the state unchanged.

    `model` is a path, the bytes of a model, or an object with `SerializeToString`. `threads`,
    `precision`, `memory_limit` and `dims` have the meanings they have in `Session`. `seed` seeds
    random operators without an attribute `seed`; the default is drawn from the operating system.
    `outputs` lists the names of the outputs that training steps compute and return; the default is
    all.

    `devices=True` shards the model and its state over the devices of a configuration, each of which
    is a thread of this process. `configuration` is the name of that configuration; the default is
    the only one of the model. The results differ only in the rounding of sums. `threads` is then
    the number of threads of each device; by default the devices share the processors.
    `device_timeout` is the longest time in seconds that a device waits for a message of another
    device.

    Raises `sardonyx.Error` if the model has no training information, cannot be opened, or is not
    supported.
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
        """Resets the state: every state variable gets its stored value, then the initialization graphs
        of the entries are run and assigned in order.

        `timeout` is a time limit in seconds, waiting for other changes included. `stop` is a
        `StopFlag` that cancels the call.
        """
    def step(
        self,
        inputs: Mapping[str, ValueLike],
        *,
        entry: int = 0,
        timeout: float | None = None,
        stop: StopFlag | None = None,
    ) -> dict[str, Value]:
        """Runs one training step of an entry of `training_info` and returns a dict of the outputs by
        name.

        The main graph runs first, then the algorithm of the entry, both on the state before the
        step. Then the state variables are assigned by the `update_binding` of the entry. `inputs`
        is a dict of inputs by name. `timeout` is a time limit in seconds, waiting for other changes
        included. `stop` is a `StopFlag` that cancels the step.
        """
    def evaluate(
        self,
        inputs: Mapping[str, ValueLike],
        *,
        entry: int = 0,
        timeout: float | None = None,
        stop: StopFlag | None = None,
    ) -> dict[str, Value]:
        """Computes the outputs that `step` would return now, without changing the state.

        Takes the arguments of `step` and returns a dict of the outputs by name.
        """
    def iterate(
        self,
        inputs: Mapping[str, ValueLike],
        *,
        timeout: float | None = None,
        stop: StopFlag | None = None,
    ) -> list[dict[str, Value]]:
        """Runs one iteration of training: a step of each entry, in order. Returns a list with a dict
        of outputs for each entry.

        `inputs` is a dict of the inputs of all entries; each step takes the inputs that it
        declares. `timeout` is a time limit in seconds, waiting for other changes included. `stop`
        is a `StopFlag` that cancels the iteration.
        """
    def infer(
        self,
        inputs: Mapping[str, ValueLike],
        *,
        timeout: float | None = None,
        stop: StopFlag | None = None,
    ) -> dict[str, Value]:
        """Runs the main graph on the current state and returns a dict of the outputs by name.

        Changes nothing, not even the random generator, so repeated calls return equal outputs.
        `inputs` is a dict of inputs by name; a state variable that is also an input of the main
        graph may be overridden for this call. `timeout` is a time limit in seconds. `stop` is a
        `StopFlag` that cancels the run.
        """
    @property
    def state(self) -> State:
        """Returns the state variables as a mapping from names to values. Later steps do not change it.

        If two entries have variables of the same name, the key is qualified by the entry:
        `training_info[1].rate`.
        """
    def set_state(self, name: str, value: ArrayLike) -> None:
        """Assigns a value to a state variable. It must have the element type and shape of the
        variable.
        """
    def save(self, path: StrPath) -> None:
        """Writes the state atomically to a file whose name ends in `.safetensors` or `.npz`: the
        values of all state variables, the position of the random generator, and a hash of the
        model.
        """
    def load(self, path: StrPath) -> None:
        """Replaces the state by that of a file that `save` wrote for the same model."""
    # Any: an object of the class of the model that the trainer was made of, or bytes.
    def export(self) -> Any:
        """Returns the model with the current state as initializers and with its training information.

        The result is an object of the class of the trainer's `model`, or bytes if that was a path
        or bytes. Values from data files are embedded.
        """
    def export_inference(self) -> Any:
        """Returns the model with the current state as initializers and without its training
        information.

        The result is an object of the class of the trainer's `model`, or bytes if that was a path
        or bytes. Values from data files are embedded.
        """
    def export_to(self, path: StrPath, *, inference: bool = False) -> None:
        """Writes the model with the current state to a file, atomically: with its training
        information, or without if `inference` is True.

        The extension of `path` selects the file format, such as `.onnx` or `.onnxtxt`. Data files
        of the model are copied if `path` is in another directory.
        """
    @property
    def entries(self) -> int:
        """Returns the number of entries of the model's `training_info`."""
    @property
    def devices(self) -> int:
        """Returns the number of devices that steps and inference run on; 0 if the trainer uses no
        devices.
        """
    @property
    def seed(self) -> int:
        """Returns the seed of the model's random operators."""
    @property
    def warnings(self) -> list[str]:
        """Returns non-fatal problems in the training information, one sentence each."""
    def inputs(self, entry: int = 0) -> list[Port]:
        """Returns the inputs of the training step of an entry as a list of `Port`: those of the main
        graph, then those of the algorithm.
        """
    def outputs(self, entry: int = 0) -> list[Port]:
        """Returns the outputs of the training step of an entry as a list of `Port`."""
    @property
    def inference_inputs(self) -> list[Port]:
        """Returns the inputs of `infer` as a list of `Port`. Those that are state variables are
        optional.
        """
    @property
    def inference_outputs(self) -> list[Port]:
        """Returns the outputs of `infer` as a list of `Port`."""
    @property
    def precision(self) -> str:
        """Returns the precision of matrix products: `exact` or `fast`."""
    def _repr_html_(self) -> str:
        """Returns HTML for notebooks: the state variables, and the inputs and outputs of each step."""

class Member:
    """Base class of the programs that work together in a group: `Worker` and `Rank`."""
    def close(self) -> None:
        """Ends the work of this member and closes its connections. When worker 0 is closed, `serve`
        returns on the other workers.
        """
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        value: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None: ...
    @property
    def rank(self) -> int:
        """Returns the number of this member, from 0."""
    @property
    def size(self) -> int:
        """Returns the number of members of the group."""
    @property
    def threads(self) -> int:
        """Returns the number of threads of a run in this process, including the calling thread. The
        devices of a worker share them.
        """
    @property
    def inputs(self) -> list[Port]:
        """Returns the inputs of a run as a list of `Port`, in the order of the model."""
    @property
    def outputs(self) -> list[Port]:
        """Returns the outputs of a run as a list of `Port`, in the order of the model."""

@final
class Worker(Member):
    """One of several programs that run one model together, on the devices of one of its
    configurations.

    `model` is a path, the bytes of a model, or an object with `SerializeToString`; all workers must
    open the same model with the same options. `configuration` is the name of the device
    configuration; None selects the only configuration of the model. `transport` carries messages to
    the other workers; without it there is one worker, and each device is a thread of this process.

    A transport has the attributes `rank`, the number of this worker, and `size`, the number of
    workers, and two methods: `send(to, data)`, which may block until the other worker receives, and
    `recv(timeout)`, which returns `(source, data)`, or None if no message arrives within `timeout`
    seconds. One thread calls `send`, another one `recv`.

    `deadline` is the time in seconds after which a silent worker counts as lost. `results` selects
    the workers that receive the outputs of a run: `"first"`, worker 0 alone; `"all"`, every worker,
    through `serve`; `"split"`, every worker the shards that its own devices hold, as a list of
    `sardonyx.distributed.OutputPart` for each output. `threads`, `precision` and `seed` have the
    meanings they have in `Session`; by default, the devices of this worker share the processors.

    Devices are distributed evenly over the workers. Worker 0 calls `run` or `run_many`, all others
    call `serve`, which returns when worker 0 is closed. An error of a node, a time limit or a stop
    flag ends one run on all workers. After any other failure, or if a worker is lost, the calls of
    all workers raise an error that names the worker, and no worker can run again.

    The constructor waits until all workers are connected. Raises `sardonyx.Error` if a worker is
    missing or has another model or other options, or if the model cannot be opened or is not
    supported.
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
        """Runs the model on a dict of inputs by name and returns a dict of outputs by name. Only
        worker 0 may call it.

        `outputs` lists the names of the outputs to return; the default is all. `timeout` is a time
        limit in seconds, and `stop` is a `StopFlag` that cancels the run; either ends the run on
        all workers.
        """
    def run_many(
        self,
        feeds: Iterable[Mapping[str, ValueLike]],
        *,
        outputs: list[str] | tuple[str, ...] | None = None,
        timeout: float | None = None,
        stop: StopFlag | None = None,
    ) -> list[dict[str, Value]]:
        """Runs the model once for each dict of inputs in `feeds` and returns a list of dicts of
        outputs. Only worker 0 may call it.

        Devices that finish one run start the next one without waiting for the others. `outputs`,
        `timeout` and `stop` are those of `run`, and apply to all runs together.
        """
    def serve(self, take: Callable[[dict[str, Value]], object] | None = None) -> None:
        """Runs the devices of this worker for every run of worker 0, and returns when worker 0 is
        closed. All workers but worker 0 call it.

        `take` is called after each run with a dict of the outputs by name that this worker
        receives; it requires workers with `results="all"` or `results="split"`. An exception in
        `take` ends the work of all workers.
        """
    @property
    def devices(self) -> int:
        """Returns the number of devices that the model runs on, over all workers."""

@final
class Rank(Member):
    """One of several programs that each run a model of their own, with collective operators that
    exchange values between them.

    Such models are written by `sardonyx.shard(local=True)`, by `sardonyx shard --local` and by
    other tools. `model` is the model of this rank, or one that all ranks share: a path, the bytes
    of a model, or an object with `SerializeToString`. `transport` carries messages to the other
    ranks; see `sardonyx.distributed.Transport`. `deadline` is the time in seconds after which a
    silent rank counts as lost. `threads`, `precision`, `memory_limit`, `dims` and `seed` have the
    meanings they have in `Session`.

    All ranks must be created at the same time and call `run` equally often. If one rank fails, the
    calls of all ranks raise an error that names it, and no rank can run again.

    The constructor waits until all ranks are connected. Raises `sardonyx.Error` if a rank is
    missing or has collectives that do not match, or if the model cannot be opened or is not
    supported.
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
        """Runs the model of this rank, while the other ranks run theirs, and returns a dict of outputs
        by name.

        `feeds` is a dict of inputs by name. `outputs` lists the names of the outputs to return; the
        default is all. `timeout` is a time limit in seconds, and `stop` is a `StopFlag` that
        cancels the run; either ends the work of all ranks.
        """

@final
class Snapshot:
    """Immutable state of a trainer at one moment."""
    def names(self) -> list[str]:
        """Returns the names of the state variables: those of the main graph, then those of the
        algorithms.
        """
    def value(self, name: str) -> Value:
        """Returns the value of a state variable as a new array. Raises `KeyError` for an unknown
        name.
        """
    def types(self) -> list[str]:
        """Returns type and shape of each state variable, such as `float[2, 3]`, in the order of
        `names()`.
        """

@final
class Port:
    """Input or output of a model: its name, type and documentation."""
    @property
    def name(self) -> str:
        """Returns the name of the input or output."""
    @property
    def type(self) -> str | None:
        """Returns the type in the ONNX text format, such as `float[N, 3, 224, 224]`; None if the model
        declares no type.
        """
    @property
    def kind(self) -> str:
        """Returns the type without shape in the notation of the ONNX standard, such as
        `seq(tensor(float))`; an empty string if the model declares no type.
        """
    @property
    def dtype(self) -> str | None:
        """Returns the ONNX name of a tensor's element type, such as `float`; None for other types."""
    @property
    def shape(self) -> list[int | str | None] | None:
        """Returns the shape of a tensor as a list: an int for a fixed size, a str for a symbolic one,
        None for an unknown one. None if the type is not a tensor or its rank is not declared.
        """
    @property
    def required(self) -> bool:
        """Whether every run must provide a value for this input."""
    @property
    def doc(self) -> str:
        """Returns the documentation string of the input or output in the model; often empty."""

@final
class Tensor:
    """Tensor that runs return where numpy is not installed or has no dtype for its elements.

    `Tensor(values)` copies anything that a run accepts. `torch.from_dlpack(tensor)` then shares
    element types that numpy does not have, such as `bfloat16`. `memoryview(tensor)` gives writable
    access to the memory. `dtype` is the ONNX name of the element type, such as `float` or
    `bfloat16`; the default is the type of `values`.
    """
    def __new__(cls, values: ArrayLike, dtype: str | None = None) -> Tensor: ...
    @property
    def shape(self) -> tuple[int, ...]:
        """Returns the shape as a tuple of ints."""
    @property
    def dtype(self) -> str:
        """Returns the ONNX name of the element type, such as `float`."""
    def tobytes(self) -> bytes:
        """Returns the bytes of the elements in the byte order of this machine. Elements narrower than
        a byte are packed. Empty for strings.
        """
    # Any: a scalar, or lists nested as deep as the tensor has dimensions.
    def tolist(self) -> Any:
        """Returns the elements as nested lists, or a single element for a tensor without dimensions."""
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
    """Flag that cancels the runs it is passed to. Any thread may raise it."""
    def __new__(cls) -> StopFlag: ...
    def stop(self) -> None:
        """Raises the flag. Runs that hold it end before their next node, or earlier within a long
        node, and raise `sardonyx.Error` with the code `stopped`.
        """
    def reset(self) -> None:
        """Lowers the flag, so that it can be passed to later runs."""
    @property
    def is_raised(self) -> bool:
        """Whether the flag is raised."""

@final
class deadline:
    """Context manager that ends runs of the current thread at a deadline.

        with sardonyx.deadline(0.5):
            session(x)

    `seconds` counts from the start of the block. A run that has not finished by then raises
    `sardonyx.Error` with the code `stopped`. In nested blocks, the earliest deadline applies.
    Raises `ValueError` if `seconds` is negative or NaN.
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
    """Returns the model with a loss, gradients and an optimizer, as an object of the same class or as
    bytes.
    """
def compare(
    model: ModelLike,
    other: object,
    inputs: object,
    dims: dict[str, int] | None,
    arguments: dict[str, object],
    /,
) -> str:
    """Compares a model with another one, with stored values in a dict, or with itself in double
    (None). Returns the result as JSON.
    """
def differentiate(model: ModelLike, arguments: dict[str, object], /) -> bytes | Message:
    """Returns the model with gradients as additional outputs; with `expand`, the model whose Gradient
    nodes are replaced by the nodes that compute them.
    """
def extract(model: ModelLike, arguments: dict[str, object], /) -> bytes | Message:
    """Returns a part of a model as an object of the same class or as bytes."""
def extract_file(
    input_path: str, output_path: str, inputs: Sequence[str], outputs: Sequence[str], /
) -> tuple[list[str], str | None]:
    """Extracts the part of a model file between values, and saves it. Returns the names of inputs that
    the part reads beyond `inputs`, for which nothing is written, and the reason if it does not
    exist (else None).
    """
def reduce(
    model: ModelLike, check: Callable[[Any], object], limit: int, /
) -> bytes | Message | None:
    """Reduces a model as long as the function `check` returns a true value for a candidate, which it
    gets as an object of the same class or as bytes. Returns the reduced model, or None if `check`
    returns a false value for the model itself.
    """
def diff(before: ModelLike, after: ModelLike, values: bool, /) -> str:
    """Compares two models. Returns their differences as JSON."""
def shard(
    model: ModelLike, arguments: dict[str, object], dims: dict[str, int] | None, /
) -> tuple[list[bytes | Message], str | None]:
    """Returns the annotated model, or the models of all ranks, and the reason if the devices cannot
    share the work (else None).
    """
def model_content(path: str, /) -> bytes:
    """Returns the bytes of a model file in the binary format, with the values of its data files
    embedded. The model may be incomplete.

    Raises `sardonyx.Error` if the file or a data file cannot be read.
    """
def element_types() -> list[tuple[int, str, str]]:
    """Returns every ONNX element type as a tuple of its number in `TensorProto.DataType`, its ONNX
    name, and its name in numpy or ml_dtypes.
    """
