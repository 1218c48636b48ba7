"""Sound models that `broken_models.py` breaks, and parts to make more of them."""

import functools
from collections.abc import Callable

from onnx import (
    AttributeProto,
    DeviceConfigurationProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeDeviceConfigurationProto,
    NodeProto,
    OperatorSetIdProto,
    ShardedDimProto,
    ShardingSpecProto,
    SimpleShardedDimProto,
    SparseTensorProto,
    StringStringEntryProto,
    TensorAnnotation,
    TensorProto,
    TrainingInfoProto,
    TypeProto,
    ValueInfoProto,
    parser,
)

from model_changes import Change, add, changed, cut, put

# In the notation.
PLAIN = """<ir_version: 10, opset_import: ["": 21], producer_name: "maker", producer_version: "1", domain: "com.example",
    metadata_props: ["com.example.a": "1", "com.example.b": "2"]>
main (float[N, 4] x) => (float[N, 4] y) <float[4] w = {1, 2, 3, 4}> { t = Add (x, w) [last] y = Relu (t) }"""
BRANCHES = """<ir_version: 10, opset_import: ["": 21]>
main (float[4] x, bool c) => (float[4] y) {
  t = Relu (x)
  y = If (c) <then_branch = yes () => (a) { a = Neg (t) },
              else_branch = no () => (b) <float[4] k = {1, 2, 3, 4}> { b = Add (t, k) }>
}"""
LOOP = """<ir_version: 10, opset_import: ["": 21]>
main (float[4] x, int64 n, bool c) => (float[4] y) {
  y = Loop (n, c, x) <body = step (int64 i, bool go, float[4] s) => (bool more, float[4] next)
    { more = Identity (go) next = Add (s, s) }>
}"""
FUNCTIONS = """<ir_version: 10, opset_import: ["": 21, "local": 1]>
main (float[4] x) => (float[4] y) { y = local.outer <alpha = 0.5> (x) }
<domain: "local", opset_import: ["": 21, "local": 1]>
outer <alpha> (a) => (b) { t = LeakyRelu <alpha: float = @alpha> (a) b = local.inner (t) }
<domain: "local", opset_import: ["": 21]>
inner (a) => (b) { b = Add (a, a) }"""
IN_FUNCTION = """<ir_version: 10, opset_import: ["": 21, "local": 1]>
main (float[4] x, bool c) => (float[4] y) { y = local.either (c, x) }
<domain: "local", opset_import: ["": 21]>
either (c, x) => (y) {
  y = If (c) <then_branch = yes () => (a) { a = Neg (x) }, else_branch = no () => (b) { b = Abs (x) }>
}"""
TYPES = """<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 4]>
main (float[N] x, seq(float[N]) s, optional(float[N]) o, map(int64, float[N]) m, sparse_tensor(float[4]) p, opaque(thing) q)
  => (float[N] y, seq(float[N]) t, optional(float[N]) u) { y = Relu (x) t = Identity (s) u = Identity (o) }"""
CUSTOM = """<ir_version: 10, opset_import: ["": 21, "com.example": 1]>
main (float[4] x) => (float[4] y) { y = com.example.Thing <a = 1, b = 1.5, c = "text", d = [1, 2], e = [1.5], f = ["text"]> (x) }"""
CONSTANTS = """<ir_version: 10, opset_import: ["": 21]>
main () => (float[2] y) { k = Constant <value = float[2] {1, 2}> () y = Identity (k) }"""
# Before version 4 of the format constants are inputs, too; before version 3 there are no operator sets.
OLD = """<ir_version: 3, opset_import: ["": 6]>
main (float[N, 4] x, float[4] w) => (float[N, 4] y) <float[4] w = {1, 2, 3, 4}> { t = Elu <alpha = 0.5> (x) y = Relu (t) }"""


def node(op_type: str, inputs: str = "x", outputs: str = "y", *attributes: AttributeProto, **fields) -> NodeProto:
    return NodeProto(op_type=op_type, input=inputs.split(), output=outputs.split(), attribute=attributes, **fields)


def attribute(name: str | None, kind: str | None = None, **fields) -> AttributeProto:
    number = None if kind is None else AttributeProto.AttributeType.Value(kind)
    return AttributeProto(name=name, type=number, **fields)


def tensor(kind: int | None = TensorProto.FLOAT, dims=(4,), name: str | None = "w", **fields) -> TensorProto:
    return TensorProto(data_type=kind, dims=dims, name=name, **fields)


def floats(*numbers: float, **fields) -> TensorProto:
    return tensor(dims=[len(numbers)], float_data=numbers, **fields)


def sparse(indices: list[int], *, count: int = 2, dims=(4,), shape: list[int] | None = None, name: str = "s") -> SparseTensorProto:
    values = tensor(dims=[count], float_data=[1.5] * count, name=name)
    at = tensor(TensorProto.INT64, [len(indices)] if shape is None else shape, "at", int64_data=indices)
    return SparseTensorProto(values=values, indices=at, dims=dims)


def entry(key: str | None, value: str | None) -> StringStringEntryProto:
    return StringStringEntryProto(key=key, value=value)


def opset(domain: str | None, version: int | None) -> OperatorSetIdProto:
    return OperatorSetIdProto(domain=domain, version=version)


def value(name: str | None, kind: str | None = "float[4]") -> ValueInfoProto:
    found = ValueInfoProto(name=name)
    if kind is not None:
        found.type.CopyFrom(type_of(kind))
    return found


@functools.cache
def type_of(kind: str) -> TypeProto:
    text = f'<ir_version: 10, opset_import: ["": 21]> g ({kind} x) => () {{}}'
    return parser.parse_model(text).graph.input[0].type


def branch(*nodes: NodeProto, outputs: str = "a", name: str = "yes", **fields) -> GraphProto:
    return GraphProto(name=name, node=nodes, output=[ValueInfoProto(name=output) for output in outputs.split()], **fields)


def function(name: str | None, *nodes: NodeProto, domain: str | None = "local", opsets=(("", 21),), **fields) -> FunctionProto:
    imports = [opset(domain, version) for domain, version in opsets]
    return FunctionProto(
        **{"name": name, "domain": domain, "node": nodes, "opset_import": imports, "input": ["a"], "output": ["b"], **fields}
    )


def with_sparse() -> ModelProto:
    """Sparse constants in both of their places, with indices of both forms."""
    return changed(
        PLAIN,
        add("graph.sparse_initializer", sparse([1, 3])),
        add("graph.node", node("Identity", "s", "z"), node("Constant", "", "c", sparse_value()), node("Identity", "c", "d")),
        add("graph.output", value("z"), value("d", "float[2, 2]")),
    )


def sparse_value(**changes) -> AttributeProto:
    found = sparse([0, 1, 1, 0], dims=(2, 2), shape=[2, 2], name="c")
    return attribute("sparse_value", "SPARSE_TENSOR", sparse_tensor=found)


def with_training() -> ModelProto:
    """A training step that sets the constant of the plain model."""
    algorithm = branch(node("Neg", "w", "grown"), name="step")
    algorithm.output[0].CopyFrom(value("grown"))
    initialization = branch(node("Constant", "", "start", attribute("value", "TENSOR", t=floats(1, 2, 3, 4))), name="begin")
    initialization.output[0].CopyFrom(value("start"))
    step = TrainingInfoProto(
        initialization=initialization,
        algorithm=algorithm,
        initialization_binding=[entry("w", "start")],
        update_binding=[entry("w", "grown")],
    )
    return changed(PLAIN, add("training_info", step))


def with_devices() -> ModelProto:
    """A node spread over the devices of a configuration."""
    dim = ShardedDimProto(axis=0, simple_sharding=[SimpleShardedDimProto(num_shards=2)])
    spec = ShardingSpecProto(tensor_name="x", device=[0, 1], sharded_dim=[dim])
    use = NodeDeviceConfigurationProto(configuration_id="two", sharding_spec=[spec])
    return changed(
        PLAIN,
        put("ir_version", 11),
        add("configuration", DeviceConfigurationProto(name="two", num_devices=2, device=["a", "b"])),
        add("graph.node.0.device_configurations", use),
    )


def with_many() -> ModelProto:
    """Things that only say something about other things."""
    annotation = TensorAnnotation(tensor_name="t", quant_parameter_tensor_names=[entry("SCALE_TENSOR", "w")])
    return changed(
        PLAIN,
        add("graph.quantization_annotation", annotation),
        add("graph.value_info", value("t", "float[N, 4]")),
        add("graph.metadata_props", entry("com.example.c", "3")),
        add("graph.node.0.metadata_props", entry("com.example.d", "4")),
    )


def oldest() -> ModelProto:
    return changed(OLD, put("ir_version", 1), cut("opset_import"), put("graph.node.0", node("Neg", "x", "t")), *without_domains(2))


def without_domains(count: int) -> list[Change]:
    return [cut(f"graph.node.{index}.domain") for index in range(count)]


SOUND: dict[str, Callable[[], ModelProto]] = {
    "plain": lambda: changed(PLAIN),
    "branches": lambda: changed(BRANCHES),
    "loop": lambda: changed(LOOP),
    "functions": lambda: changed(FUNCTIONS),
    "in-function": lambda: changed(IN_FUNCTION),
    "types": lambda: changed(TYPES),
    "custom": lambda: changed(CUSTOM),
    "constants": lambda: changed(CONSTANTS),
    "sparse": with_sparse,
    "training": with_training,
    "devices": with_devices,
    "many": with_many,
    "old": lambda: changed(OLD),
    "oldest": oldest,
}
