"""A pytest plugin: tests of the onnx package's reference evaluator run on sessions of Sardonyx.

It puts the class below in the place of `onnx.reference.ReferenceEvaluator`, and a function over a session in the
place of the one that computes `Attention`, before a file of tests takes them. Four things differ from the tests
as they are written:

- A test that asks for what only an evaluator written in Python has is skipped, with the reason.
- A test that is through and made no session says nothing about Sardonyx, and is skipped as well.
- Where a test wants an error, that a session refuses is enough. Which class of error it wants, and which words,
  is not compared.
- Where a session refuses a model or what a test gives it, there is a second session, of the model without the
  shapes that it declares, which is given the arrays in the element types that it declares.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import numpy as np
import onnx.reference
import onnx.reference.ops.op_attention as attention
import pytest
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TypeProto, ValueInfoProto, helper
from onnx.reference.shape_annotation_checker import ShapeAnnotationError

import sardonyx
from sardonyx import backend

# How many sessions were made since the test began.
made = 0
# Whether the test wants an error just now.
wants_error = False


class Refused(ShapeAnnotationError, TypeError, ValueError, NotImplementedError):
    """What a session says, as every class of error that the tests want."""

    def __init__(self, message: str, unsupported: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.unsupported = unsupported


def not_applicable(what: str) -> NoReturn:
    pytest.skip(f"not applicable: {what}")


class Evaluator:
    """A session with the methods of `onnx.reference.ReferenceEvaluator`."""

    def __init__(
        self,
        proto: Any,
        opsets: dict[str, int] | None = None,
        functions: list[Any] | None = None,
        verbose: int = 0,
        new_ops: list[type] | None = None,
        check_shape_annotations: bool = False,
    ) -> None:
        if any(not is_standard(operator) for operator in new_ops or []):
            not_applicable("an operator is a class in Python")
        if verbose:
            not_applicable("what the evaluator prints")
        if isinstance(proto, bytes):
            proto = onnx.load_model_from_string(proto)
        elif isinstance(proto, str):
            proto = onnx.load(proto)
        self.checks = check_shape_annotations
        self.opsets = opsets or {one.domain: one.version for one in getattr(proto, "opset_import", [])}
        self.functions = [one.proto if isinstance(one, Evaluator) else one for one in functions or []]
        self.sessions: dict[bool, Any] = {}
        if isinstance(proto, GraphProto):
            proto = helper.make_model(proto, opset_imports=imports(self.opsets))
        self.proto = proto
        if isinstance(proto, ModelProto):
            self.input_names = [port.name for port in proto.graph.input]
            self.output_names = [port.name for port in proto.graph.output]
            try:
                self.session(checks=False)
            except Refused as error:
                # The evaluator looks operators up when it is made, and everything else when it runs.
                if any("operator not implemented" in one for one in error.unsupported):
                    raise
        elif isinstance(proto, (FunctionProto, NodeProto)):
            self.input_names = list(proto.input)
            self.output_names = list(proto.output)
        else:
            raise Refused(f"{type(proto).__name__} cannot be run")

    def __str__(self) -> str:
        return f"ReferenceEvaluator({', '.join(self.input_names)}) -> {', '.join(self.output_names)}"

    def __getattr__(self, name: str) -> Any:
        if name == "rt_nodes_":
            # What the evaluator is made of is no question for a session.
            return original(self.proto).rt_nodes_
        if name == "functions_":
            not_applicable("the functions of a model as evaluators")
        raise AttributeError(name)

    def run(
        self,
        output_names: list[str] | None,
        feed_inputs: dict[str, Any],
        attributes: dict[str, Any] | None = None,
        intermediate: bool = False,
        check_shape_annotations: bool | None = None,
    ) -> list[Any] | dict[str, Any]:
        checks = self.checks if check_shape_annotations is None else check_shape_annotations
        names = self.output_names if output_names is None else output_names
        if intermediate:
            names = list(dict.fromkeys(name for node in self.proto.graph.node for name in node.output if name))
            model = ModelProto.FromString(self.proto.SerializeToString())
            del model.graph.output[:]
            model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
            return dict(zip(names, run_session(session_of(model, checks), names, feed_inputs), strict=True))
        if isinstance(self.proto, NodeProto):
            return list(run_node(self.proto, feed_inputs))
        if isinstance(self.proto, FunctionProto):
            return run_session(session_of(self.called(feed_inputs, attributes), checks), names, feed_inputs)
        try:
            return run_session(self.session(checks), names, feed_inputs)
        except Refused:
            second = None if checks or wants_error else relaxed(self.proto, feed_inputs)
            if second is None:
                raise
        model, feeds = second
        return run_session(session_of(model, checks), names, feeds)

    def session(self, checks: bool) -> Any:
        """The model as a session; one that checks holds a named dimension to one size in a run."""
        if checks not in self.sessions:
            self.sessions[checks] = session_of(self.proto, checks)
        return self.sessions[checks]

    def called(self, feeds: dict[str, Any], attributes: dict[str, Any] | None) -> ModelProto:
        """A model that calls the function once, with inputs of the types of what is given."""
        if attributes is None:
            raise Refused("the attributes of the function are missing")
        function = self.proto
        node = helper.make_node(
            function.name, list(function.input), list(function.output), domain=function.domain, **attributes
        )
        inputs = [
            ValueInfoProto(name=name, type=tensor_type_of(np.asarray(feeds[name]))) for name in function.input
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in function.output]
        graph = helper.make_graph([node], "call", inputs, outputs)
        versions = {one.domain: one.version for one in function.opset_import} | {function.domain: 1}
        return helper.make_model(graph, opset_imports=imports(versions), functions=[*self.functions, function])


def is_standard(operator: type) -> bool:
    """Whether a class computes an operator of the standard, in another way: for a session there is one way."""
    return getattr(operator, "op_domain", None) == "" and onnx.defs.has(operator.__name__)


def imports(versions: dict[str, int]) -> list[Any]:
    return [helper.make_opsetid(*one) for one in versions.items()]


def relaxed(model: ModelProto, feeds: dict[str, Any]) -> tuple[ModelProto, dict[str, Any]] | None:
    """The model without the shapes that it declares of inputs and outputs, and the arrays in the element types
    that it declares; None if something else than an array is given.

    Many models of the tests declare what does not fit the arrays that they are given: the evaluator does not read it.
    """
    if not all(isinstance(value, np.ndarray) for value in feeds.values()):
        return None
    model = ModelProto.FromString(model.SerializeToString())
    ports = {port.name: port for port in model.graph.input}
    cast = {}
    for name, value in feeds.items():
        if name not in ports:
            # The evaluator takes values that the graph does not list.
            ports[name] = model.graph.input.add(name=name, type=tensor_type_of(value))
        tensor = ports[name].type.tensor_type
        tensor.ClearField("shape")
        cast[name] = value.astype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    for port in model.graph.output:
        port.ClearField("type")
    return model, cast


def tensor_type_of(value: np.ndarray) -> TypeProto:
    return TypeProto(tensor_type=TypeProto.Tensor(elem_type=helper.np_dtype_to_tensor_dtype(value.dtype)))


def session_of(model: ModelProto, checks: bool) -> Any:
    global made
    made += 1
    with refusals():
        return sardonyx.Session(model) if checks else sardonyx.InferenceSession(model)


def run_session(session: Any, names: list[str], feeds: dict[str, Any]) -> list[Any]:
    with refusals():
        if isinstance(session, sardonyx.Session):
            found = session.run(feeds, outputs=names)
            return [found[name] for name in names]
        return session.run(names, feeds)


def run_node(node: NodeProto, feeds: dict[str, Any], **options: Any) -> tuple[Any, ...]:
    global made
    made += 1
    with refusals():
        return backend.run_node(node, feeds, **options)


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    try:
        yield
    except sardonyx.Error as error:
        raise Refused(str(error), error.unsupported) from error


computed = inspect.signature(attention._compute_attention)


def compute_attention(*args: Any, **options: Any) -> tuple[Any, ...]:
    """`Attention` of these inputs and attributes, as a node of its own."""
    given = computed.bind(*args, **options).arguments
    version = 25 if given.pop("_validate_attention25", True) else 24
    names = ["Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"]
    feeds = {name: given.pop(name) for name in names if given.get(name) is not None}
    inputs = [name if name in feeds else "" for name in names]
    attributes = {name: int(value) if isinstance(value, bool) else value for name, value in given.items()}
    attributes = {name: value for name, value in attributes.items() if value is not None}
    node = helper.make_node("Attention", inputs, ["Y"], **attributes)
    return run_node(node, feeds, opset_version=version)


raises = pytest.raises


@contextlib.contextmanager
def raises_any(expected: Any, match: Any = None, **options: Any) -> Iterator[Any]:
    """`pytest.raises` without the words of the error. A session that refuses is not followed by a second one."""
    global wants_error
    with raises(expected, **options) as raised:
        wants_error = True
        try:
            yield raised
        finally:
            wants_error = False


original = onnx.reference.ReferenceEvaluator
onnx.reference.ReferenceEvaluator = Evaluator
attention._compute_attention = compute_attention
pytest.raises = raises_any


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Any:
    global made
    made = 0
    result = yield
    if made == 0:
        not_applicable("the test runs no model")
    return result
