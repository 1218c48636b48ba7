"""A program that uses the package as its types allow. `test_types.py` has mypy check it, and runs it.

A comment `type: ignore` stands where a type checker must refuse a call; mypy complains about one that it does not need.
"""

from __future__ import annotations

import array
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, assert_type

import numpy as np
import sardonyx
from numpy.typing import NDArray
from sardonyx import ort
from sardonyx.distributed import Transport, Worker

if TYPE_CHECKING:
    from sardonyx.typing import ArrayLike, Message, ModelInfo, ModelLike, Value, ValueLike

TEXT = """
    <ir_version: 10, opset_import: ["": 21]>
    example (float[N, 2] x) => (float[N, 2] y) <float[2, 2] w = {1, 2, 3, 4}> { y = MatMul (x, w) }
"""


class Proto:
    """A message as protobuf makes them: a type checker knows `onnx.ModelProto` only with the stubs of protobuf."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def SerializeToString(self) -> bytes:
        return self.content

    @classmethod
    def FromString(cls, content: bytes) -> Proto:
        return cls(content)


def run_model(model: ModelLike, x: ArrayLike) -> Value:
    """Takes what a caller has, and hands it on."""
    return sardonyx.Session(model, threads=1)(x)


def sessions() -> None:
    model = sardonyx.parser.parse_model(TEXT)
    assert_type(model, bytes)
    message = Proto.FromString(model)
    x: NDArray[np.float32] = np.ones((1, 2), np.float32)
    given: list[ArrayLike] = [
        x,
        [[1, 2.0]],
        ((1, 2),),
        sardonyx.Tensor([[1, 2]], dtype="float"),
        memoryview(array.array("f", [1, 2])).cast("B").cast("f", (1, 2)),
        np.ones((1, 2), np.float32)[:, ::-1],
    ]
    for value in given:
        assert np.shape(run_model(model, value)) == (1, 2)
    for source in (model, bytearray(model), memoryview(model), message):
        run_model(source, x)
    session = sardonyx.Session(model, precision="exact", dims={"N": 1})
    feeds: Mapping[str, ValueLike] = {"x": x}
    assert_type(session.run(feeds, outputs=["y"], timeout=9.0, stop=sardonyx.StopFlag()), dict[str, "Value"])
    session.run({"x": x})
    info: ModelInfo = session.info
    assert_type(info["version"], int | None)
    assert_type(info["graph_name"], str)
    assert_type(session.inputs[0].shape, list[int | str | None] | None)
    assert_type(session.profile({"x": x}, runs=1).slowest(1)[0].us, float)
    with sardonyx.deadline(9):
        session(x=x)


def states() -> None:
    text = "g (float[n, 2] x, float[p, 2] past) => (float[q, 2] present) { present = Concat <axis = 0> (past, x) }"
    session = sardonyx.Session(sardonyx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}'))
    pair = sardonyx.StatePair("past", "present", first_dims=(0, 2), axis=0)
    assert_type(pair.first_dims, tuple[int, ...] | None)
    state = session.state([pair], batch=1, dims={"p": 0}, capacity=8)
    assert_type(session.state([("past", "present")]), sardonyx.SessionState)
    assert_type(state.run({"x": np.ones((1, 2), np.float32)}, timeout=9.0), dict[str, "Value"])
    assert_type(len(state) + state.nbytes + state.copied_bytes, int)
    assert_type(state.capacity, int | None)
    assert_type(state.explain({"x": [[1.0, 2.0]]}), dict[str, list[str]])
    assert_type(state.clone().pairs + sardonyx.StatePair.find(state.session), list[sardonyx.StatePair])
    state.set_value("past", state.value("past"))
    state.select(range(0))


def models() -> None:
    model = sardonyx.parser.parse_model(TEXT)
    message = Proto.FromString(model)
    sardonyx.checker.check_model(message, full_check=True)
    assert_type(sardonyx.shape_inference.infer_shapes(model), bytes)
    assert_type(sardonyx.shape_inference.infer_shapes(message), Proto)
    assert_type(sardonyx.version_converter.convert_version(message, 22), Proto)
    assert_type(sardonyx.version_converter.convert_version(bytearray(model), 22), bytes)
    assert_type(sardonyx.inliner.inline_local_functions(message), Proto)
    assert_type(sardonyx.shard(model, 2, batch=True), bytes)
    assert_type(sardonyx.shard(message, 2, batch=True), Proto)
    assert_type(sardonyx.shard(message, 2, batch=True, dims={"N": 2}, local=True), list[Proto])
    assert_type(sardonyx.shard(model, 2, batch=True, dims={"N": 2}, local=True), list[bytes])
    assert_type(sardonyx.differentiate(model, by=["w"]), bytes)
    assert_type(sardonyx.defs.get_schema("Relu").attributes, dict[str, sardonyx.defs.OpSchema.Attribute])
    serialized: Message = message
    assert_type(sardonyx.printer.model_to_text(serialized), str)


def training() -> None:
    model = sardonyx.parser.parse_model(TEXT)
    trainable = sardonyx.add_training(Proto.FromString(model), "squared-error", train=["w"])
    assert_type(trainable, Proto)
    trainer = sardonyx.Trainer(trainable, outputs=["loss"], seed=1)
    assert_type(trainer.step({"x": [[1, 2]], "target": [[3, 4]]})["loss"].item() >= 0, "Value")
    assert_type(trainer.state, sardonyx.State)
    assert_type(dict(trainer.state.types), dict[str, str])
    trainer.set_state("w", [[0, 0], [0, 0]])


class Loopback:
    """A transport of one worker."""

    rank = 0
    size = 1

    def send(self, to: int, data: bytes, /) -> None:
        raise ConnectionError

    def recv(self, timeout: float, /) -> tuple[int, bytes] | None:
        threading.Event().wait(timeout)
        return None


def workers() -> None:
    transport: Transport = Loopback()
    model = sardonyx.shard(sardonyx.parser.parse_model(TEXT), 2, batch=True)
    with Worker(model, transport=transport, results="first") as worker:
        assert_type(worker.rank, int)
        worker.run({"x": [[1, 2], [3, 4]]})


def onnxruntime() -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(sardonyx.parser.parse_model(TEXT), options, ["CPUExecutionProvider"])
    assert_type(session.get_inputs()[0].type, str)
    value = ort.OrtValue.ortvalue_from_numpy(np.ones((1, 2), np.float32))
    assert_type(session.run_with_ort_values(["y"], {"x": value}), list[ort.OrtValue])
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    assert_type(binding.get_outputs(), list[ort.OrtValue])
    with sardonyx.use_as_onnxruntime() as replaced:
        assert_type(replaced, sardonyx.OnnxRuntime)


def refused() -> None:
    """Calls that a type checker refuses, and that fail when they run."""
    model = sardonyx.parser.parse_model(TEXT)
    session = sardonyx.Session(model)
    for call in (
        lambda: sardonyx.Session(5),  # type: ignore[arg-type]
        lambda: sardonyx.Session(model, precision="exactly"),  # type: ignore[arg-type]
        lambda: session.run({"x": object()}),  # type: ignore[dict-item]
        lambda: session.run({"x": [[1, 2]]}, outputs="y"),  # type: ignore[arg-type]
        lambda: session(x={1, 2}),  # type: ignore[arg-type]
        lambda: session.state([("x",)]),  # type: ignore[list-item]
        lambda: sardonyx.Tensor(object()),  # type: ignore[arg-type]
        lambda: sardonyx.printer.model_to_text(5),  # type: ignore[arg-type]
        lambda: sardonyx.checker.check_model(model, checks=True),  # type: ignore[call-arg]
    ):
        try:
            call()
        except (TypeError, sardonyx.Error):
            continue
        raise AssertionError("the call was not refused")


def main() -> None:
    sessions()
    states()
    models()
    training()
    workers()
    onnxruntime()
    refused()


if __name__ == "__main__":
    main()
