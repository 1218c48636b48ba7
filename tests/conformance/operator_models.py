"""Calls of every version of every operator, right and nearly right, for `broken_models.py`."""

from collections.abc import Iterable, Iterator

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, defs

from sound_models import attribute, branch, floats, node, opset, sparse, value

KINDS = AttributeProto.AttributeType
# A value of each type that attributes of operators have.
VALUES = {
    KINDS.FLOAT: {"f": 1.0},
    KINDS.INT: {"i": 1},
    KINDS.STRING: {"s": b"a"},
    KINDS.TENSOR: {"t": floats(1)},
    KINDS.GRAPH: {"g": branch(node("Neg", "i0", "inner"), outputs="inner", name="body")},
    KINDS.FLOATS: {"floats": [1.0]},
    KINDS.INTS: {"ints": [1]},
    KINDS.STRINGS: {"strings": [b"a"]},
    KINDS.SPARSE_TENSOR: {"sparse_tensor": sparse([0, 3])},
    KINDS.TYPE_PROTO: {"tp": value("x").type},
}
# Operands beyond these are like them.
MOST_OPERANDS = 6
# Attributes of an operator that are given a value of another type.
ODD_ATTRIBUTES = 2


def operators() -> Iterator[tuple[str, ModelProto]]:
    """With all numbers of inputs and outputs around those that the operator takes, with one left out, without each attribute
    that it needs, and with attributes that it does not take."""
    for schema in sorted(
        defs.get_all_schemas_with_history(), key=lambda schema: (schema.domain, schema.name, schema.since_version)
    ):
        where = f"operators/{schema.domain or 'ai.onnx'}.{schema.name}-{schema.since_version}"
        for name, *parts in calls(schema):
            yield f"{where}-{name}", model_of(schema, *parts)


def calls(schema: defs.OpSchema) -> Iterator[tuple[str, list[str], list[str], list[AttributeProto]]]:
    """Names of calls, with inputs, outputs and attributes."""
    required = [
        AttributeProto(name=name, type=int(found.type), **VALUES[int(found.type)])
        for name, found in sorted(schema.attributes.items())
        if found.required
    ]
    inputs, outputs = names("i", schema.min_input), names("o", schema.min_output or 1)
    for count in around(schema.min_input, schema.max_input):
        yield f"inputs-{count}", names("i", count), outputs, required
    for count in around(schema.min_output, schema.max_output):
        yield f"outputs-{count}", inputs, names("o", count), required
    for index in range(min(schema.max_input, len(schema.inputs), MOST_OPERANDS)):
        yield f"without-input-{index}", without(names("i", max(schema.min_input, index + 1)), index), outputs, required
    for index in range(min(schema.max_output, len(schema.outputs), MOST_OPERANDS)):
        yield f"without-output-{index}", inputs, without(names("o", max(schema.min_output, index + 1)), index), required
    yield "unknown-attribute", inputs, outputs, [*required, attribute("zzz", "INT", i=1)]
    for found in required:
        yield f"without-{found.name}", inputs, outputs, [other for other in required if other is not found]
    for name, found in sorted(schema.attributes.items())[:ODD_ATTRIBUTES]:
        others = [other for other in required if other.name != name]
        kind = KINDS.INTS if int(found.type) != KINDS.INTS else KINDS.FLOATS
        yield f"odd-{name}", inputs, outputs, [*others, AttributeProto(name=name, type=kind, **VALUES[kind])]


def around(fewest: int, most: int) -> Iterable[int]:
    """Numbers of operands from one too few to one too many."""
    return range(max(0, fewest - 1), max(min(most, MOST_OPERANDS), fewest) + 2)


def names(letter: str, count: int) -> list[str]:
    return [f"{letter}{index}" for index in range(count)]


def without(found: list[str], index: int) -> list[str]:
    return [*found[:index], "", *found[index + 1 :]]


def model_of(schema: defs.OpSchema, inputs: list[str], outputs: list[str], attributes: list[AttributeProto]) -> ModelProto:
    call = NodeProto(op_type=schema.name, domain=schema.domain, input=inputs, output=outputs, attribute=attributes)
    # One input is there for inner graphs.
    values = [value(name, "float[N]") for name in inputs or ["i0"] if name]
    imports = {schema.domain: schema.since_version} | ({"": 21} if schema.domain else {})
    graph = GraphProto(name="main", node=[call], input=values or [value("i0", "float[N]")])
    return ModelProto(ir_version=14, opset_import=[opset(*pair) for pair in imports.items()], graph=graph)
