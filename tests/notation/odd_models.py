"""Write small models in which something is odd, for `compare_models.py`.

    python odd_models.py DIRECTORY

Real models have few of these things, and what the portable form cannot say must be reported for each of them. Each model is named
for what is odd about it. Names are stable, as `expectations.txt` lists models by them.
"""

import math
import pathlib
import struct
import sys
from collections.abc import Iterator, Sequence

from google.protobuf.message import Message
from onnx import (
    AttributeProto,
    DeviceConfigurationProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeDeviceConfigurationProto,
    NodeProto,
    OperatorSetIdProto,
    SparseTensorProto,
    StringStringEntryProto,
    TensorAnnotation,
    TensorProto,
    TrainingInfoProto,
    TypeProto,
    ValueInfoProto,
)

Models = Iterator[tuple[str, ModelProto | bytes]]

TYPES = {name.lower(): number for name, number in TensorProto.DataType.items() if number}
# Of attributes, the lists.
EMPTY_LISTS = ("FLOATS", "INTS", "STRINGS", "TENSORS", "GRAPHS", "SPARSE_TENSORS", "TYPE_PROTOS")

ZERO_BYTES = ("a\0b", "\0", "a\0", "\0a", "a\0\0b", 'say "a\0b"')
NOT_UTF8 = (b"\xff", b"caf\xe9", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"a\xffb\xffc")
TEXTS = (
    *('"', "\\", "\\n", '\\"', "'", 'a "quoted" word', "back\\slash\\", "line\nbreak", "car\rriage", "tab\tulator", "\n"),
    *("\x01", "\x1b[0m", "\x7f", "é", "日本語", "𝄞", "\u2028", "\ufeff", "\u202e", "a\u2066b\u2069", "\u200f", "e\u0301"),
    *("", " ", " a ", "# no comment", "a, b", "<", "@<", '@<doc_string: "no note">', "x'00'", 'x"00"'),
)
# Identifiers that mean something else, and names that are no identifiers.
TYPE_WORDS = ("float", "int32", "bool", "string", "seq", "map", "optional", "sparse_tensor", "opaque")
FLOAT_WORDS = ("inf", "Infinity", "nan", "NaN", "INF")
LIKE_FLOATS = ("inf_x", "nan1", "infinite", "Nancy", "infinity_war", "in", "na")
NO_WORDS = ("3d", "-1", "with space", "a/b", "a.b", "a:b", "a-b", "é", "1e5", "", "?", "@a", "x[0]")
OTHER_WORDS = ("graph", "int", "tensor", "floats", "_", "_1", "raw", "fields", "true", "ir_version", "opset_import", "domain")
ALL_NAMES = (*TYPE_WORDS, *FLOAT_WORDS, *LIKE_FLOATS, *NO_WORDS, *OTHER_WORDS)

# The usual one with a minus, quiet and signaling ones, and the last one.
FLOAT_NANS = (0xFFC0_0000, 0x7FC0_0001, 0xFFC0_1234, 0x7F80_0001, 0xFFA0_0000, 0x7FFF_FFFF)
DOUBLE_NANS = (0xFFF8 << 48, 0x7FF8 << 48 | 1, 0xFFF8 << 48 | 0x1234, 0x7FF0 << 48 | 1, 0xFFF4 << 48, (1 << 63) - 1)
HALF_NANS = {"float16": (0x7E01, 0xFE00, 0x7C01, 0xFFFF), "bfloat16": (0x7FC1, 0xFFC0, 0x7F81, 0xFFFF)}

# A field that no schema has: number 1000 with the value 1.
UNKNOWN_FIELD = b"\xc0\x3e\x01"


def all_models() -> dict[str, bytes]:
    """The bytes of every model by its name."""
    found: dict[str, bytes] = {}
    groups = (
        *(nans, texts, names, values_out_of_range, attributes, tensors, types, graphs, functions, nodes, headers),
        *(unknown_fields, other_bytes),
    )
    for group in groups:
        for name, model in group():
            assert name not in found, f"two models are called {name}"
            found[name] = model if isinstance(model, bytes) else model.SerializeToString(deterministic=True)
    return found


# Parts.


def model_of(graph: GraphProto | None, **fields) -> ModelProto:
    fields = {"ir_version": 10, "opset_import": [OperatorSetIdProto(domain="", version=21)], **fields}
    return ModelProto(graph=graph, **fields)


def graph_of(*nodes: NodeProto, name: str | None = "main", **fields) -> GraphProto:
    return GraphProto(name=name, node=nodes, **fields)


def node_of(op_type: str | None = "Op", domain: str | None = "", **fields) -> NodeProto:
    return NodeProto(**{"op_type": op_type, "domain": domain, "input": ["x"], "output": ["y"], **fields})


def nodes_model(*nodes: NodeProto) -> ModelProto:
    return model_of(graph_of(*nodes))


def attributes_model(*attributes: AttributeProto) -> ModelProto:
    """One node for each attribute, and one that has all of them."""
    return nodes_model(*(node_of(attribute=[attribute]) for attribute in attributes), node_of(attribute=attributes))


def tensors_model(*odd: TensorProto) -> ModelProto:
    """The tensors as initializers and as attributes."""
    constants = [node_of("Constant", input=[], attribute=[attribute(t=tensor, type="TENSOR")]) for tensor in odd]
    return model_of(graph_of(*constants, initializer=odd))


def types_model(*odd: TypeProto) -> ModelProto:
    """The types of inputs, outputs, other values, and as attributes."""
    values = {
        field: [ValueInfoProto(name=f"{field}_{index}", type=kind) for index, kind in enumerate(odd)]
        for field in ("input", "output", "value_info")
    }
    uses = [node_of(attribute=[attribute(tp=kind, type="TYPE_PROTO")]) for kind in odd]
    return model_of(graph_of(*uses, **values))


def attribute(name: str | None = "a", *, type: str | None = None, **fields) -> AttributeProto:
    number = None if type is None else AttributeProto.AttributeType.Value(type)
    return AttributeProto(name=name, type=number, **fields)


def tensor(kind: str | None, dims: Sequence[int], name: str | None = "t", **fields) -> TensorProto:
    return TensorProto(name=name, data_type=None if kind is None else TYPES[kind], dims=dims, **fields)


def tensor_type(kind: str = "float", *dims: int | str | None) -> TypeProto:
    found = TypeProto()
    found.tensor_type.elem_type = TYPES[kind]
    found.tensor_type.shape.SetInParent()
    for dim in dims:
        part = found.tensor_type.shape.dim.add()
        if isinstance(dim, int):
            part.dim_value = dim
        elif dim is not None:
            part.dim_param = dim
    return found


def value(name: str | None, kind: TypeProto | None = None, **fields) -> ValueInfoProto:
    return ValueInfoProto(name=name, type=kind or tensor_type("float", "N"), **fields)


def entry(key: str | None, content: str | None) -> StringStringEntryProto:
    return StringStringEntryProto(key=key, value=content)


def sparse(name: str | None = "s") -> SparseTensorProto:
    values = tensor("float", [1], name, float_data=[1.5])
    return SparseTensorProto(values=values, indices=tensor("int64", [1], "at", int64_data=[2]), dims=[4])


def merged(message: Message, *records: bytes) -> Message:
    """A message with more in its bytes than its class can be told."""
    for record in records:
        message.MergeFromString(record)
    return message


def unknown(message: Message) -> Message:
    return merged(message, UNKNOWN_FIELD)


def record(number: int, content: bytes) -> bytes:
    """A field with bytes, a message or a packed list."""
    length = len(content)
    digits = [length >> shift & 0x7F | 0x80 for shift in range(0, max(length.bit_length(), 1), 7)]
    digits[-1] &= 0x7F
    assert number < 16
    return bytes([number << 3 | 2, *digits]) + content


def tensor_records_model(*odd: bytes) -> bytes:
    """As `tensors_model`, of bytes that would not stay as they are in messages of Python."""
    graph = graph_of().SerializeToString()
    for content in odd:
        constant = attribute(type="TENSOR").SerializeToString() + record(5, content)
        graph += record(1, node_of("Constant", input=[]).SerializeToString() + record(5, constant)) + record(5, content)
    return model_of(None).SerializeToString() + record(7, graph)


def words(format: str, bits: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(bits)}{format}", *bits)


# The models.


def nans() -> Models:
    alone = [merged(attribute(type="FLOAT"), b"\x15" + words("I", [bits])) for bits in FLOAT_NANS]
    yield "nan-float-attributes", attributes_model(*alone)
    alone = [merged(attribute(), b"\x15" + words("I", [bits])) for bits in FLOAT_NANS]
    yield "nan-float-attributes-untyped", attributes_model(*alone)
    # One odd NaN among other numbers, and one list of many.
    one = merged(attribute("one", type="FLOATS", floats=[1.5, -0.0]), record(7, words("I", [0x7FC0_0001])))
    yield "nan-list-of-floats", nodes_model(node_of(attribute=[one]))
    yield "nan-list-of-many", nodes_model(node_of(attribute=[merged(attribute(type="FLOATS"), record(7, words("I", FLOAT_NANS)))]))
    usual = attribute(type="FLOATS", floats=[math.nan, -math.nan, math.inf, -math.inf])
    yield "nan-usual-ones", attributes_model(usual, attribute(f=-math.nan), attribute(f=math.inf), attribute(f=-math.inf))

    for kind, number, letter, bits in (
        ("float", 4, "I", FLOAT_NANS),
        ("double", 10, "Q", DOUBLE_NANS),
        ("complex64", 4, "I", FLOAT_NANS),
        ("complex128", 10, "Q", DOUBLE_NANS),
    ):
        dims = [len(bits) // (2 if kind.startswith("complex") else 1)]
        raw = tensor(kind, dims, "raw", raw_data=words(letter, bits))
        yield f"nan-{kind}-tensor", tensors_model(raw, merged(tensor(kind, dims, "typed"), record(number, words(letter, bits))))
    halves = [tensor(kind, [4], f"raw_{kind}", raw_data=words("H", bits)) for kind, bits in HALF_NANS.items()]
    halves += [tensor(kind, [4], f"typed_{kind}", int32_data=bits) for kind, bits in HALF_NANS.items()]
    bytewise = [
        tensor("float8e4m3fn", [2], "raw_byte", raw_data=b"\x7f\xff"),
        tensor("float8e5m2", [2], "typed_byte", int32_data=[0x7D, 0xFE]),
    ]
    yield "nan-small-floats", tensors_model(*halves, *bytewise)


def texts() -> Models:
    for name, odd in (("odd", TEXTS), ("zero-bytes", ZERO_BYTES)):
        strings = [text.encode() for text in odd]
        alone = [attribute(type="STRING", s=text) for text in strings]
        alone.append(attribute(s=strings[0]))
        yield f"text-{name}-attributes", attributes_model(*alone, attribute(type="STRINGS", strings=strings))
        yield f"text-{name}-tensor", tensors_model(tensor("string", [len(strings)], string_data=strings))
        values = [value(text) for text in odd]
        uses = [node_of(name=text, input=[text, "x", text], output=[text]) for text in odd]
        constants = [tensor("float", [1], text, float_data=[1]) for text in odd]
        yield (
            f"text-{name}-names",
            model_of(GraphProto(name=odd[0], input=values, output=values, value_info=values, initializer=constants, node=uses)),
        )
        header = dict.fromkeys(("producer_name", "producer_version", "domain"), odd[0])
        imports = [OperatorSetIdProto(domain=text, version=1) for text in odd]
        yield (
            f"text-{name}-header",
            model_of(
                graph_of(node_of()),
                doc_string="".join(odd),
                opset_import=imports,
                metadata_props=[entry(text, text) for text in odd],
                **header,
            ),
        )
        documented = FunctionProto(name=odd[0], domain=odd[0], overload=odd[0], doc_string="".join(odd), node=[node_of()])
        documented.input.extend(odd)
        documented.output.extend(odd)
        yield f"text-{name}-function", model_of(graph_of(node_of()), functions=[documented])
        dims = [tensor_type("float", text) for text in odd]
        yield f"text-{name}-dim-params", types_model(*dims)
        outside = tensor("float", [1], data_location=TensorProto.EXTERNAL, external_data=[entry(text, text) for text in odd])
        yield f"text-{name}-external-data", tensors_model(outside)
    alone = [attribute(type="STRING", s=text) for text in NOT_UTF8]
    yield "text-not-utf8-attributes", attributes_model(*alone, attribute(type="STRINGS", strings=NOT_UTF8))
    yield "text-not-utf8-tensor", tensors_model(tensor("string", [len(NOT_UTF8)], string_data=NOT_UTF8))
    yield "text-not-utf8-with-zero-bytes", attributes_model(attribute(type="STRING", s=b"\xff\0\xc3"), attribute(s=b"\xc3\0\xa9"))


def names() -> Models:
    values = [value(name) for name in ALL_NAMES]
    uses = [node_of(name=name, input=[name, name], output=[name]) for name in ALL_NAMES]
    constants = [tensor("int64", [1], name, int64_data=[1]) for name in ALL_NAMES]
    yield "name-values", model_of(graph_of(*uses, input=values, output=values, value_info=values, initializer=constants))
    untyped = [ValueInfoProto(name=name) for name in ALL_NAMES]
    yield "name-values-untyped", model_of(graph_of(input=untyped, output=untyped, value_info=untyped))
    for name, odd in (("words", (*TYPE_WORDS, *FLOAT_WORDS)), ("like-floats", LIKE_FLOATS), ("no-words", NO_WORDS)):
        inner = [attribute(type="GRAPH", g=GraphProto(name=text, node=[node_of()])) for text in odd]
        yield f"name-subgraph-{name}", attributes_model(*inner)
        yield f"name-subgraph-{name}-untyped", attributes_model(*(attribute(g=GraphProto(name=text)) for text in odd))
        inner = [attribute(type="TENSOR", t=tensor("float", [1], text, float_data=[1])) for text in odd]
        yield f"name-attribute-tensor-{name}", attributes_model(*inner)
    yield "name-subgraph-absent", attributes_model(attribute(type="GRAPH", g=GraphProto(node=[node_of()])))
    yield "name-attributes", attributes_model(*(attribute(name, type="INT", i=1) for name in ALL_NAMES), attribute(None, i=1))
    yield "name-references", attributes_model(*(attribute(type="INT", ref_attr_name=name) for name in ALL_NAMES))
    yield "name-callees", nodes_model(*(node_of(name) for name in ALL_NAMES), node_of(None))
    dotted = ("a..b", ".a", "a.", "a.3d", "a.float", "float.nan")
    yield "name-domains", nodes_model(*(node_of(domain=name) for name in (*ALL_NAMES, *dotted)))
    yield "name-overloads", nodes_model(*(node_of(overload=name) for name in ALL_NAMES))
    yield "name-dim-params", types_model(*(tensor_type("float", name, 2, name) for name in ALL_NAMES))
    functions = []
    for name in ALL_NAMES:
        function = FunctionProto(name=name, domain=name, overload=name, node=[node_of()], attribute=[name])
        function.input.append(name)
        function.output.append(name)
        functions.append(function)
    yield "name-functions", model_of(graph_of(node_of()), functions=functions)
    # As there may be none in quotes.
    for name in ("float", "nan", "3d", "with space", ""):
        shown = name.replace(" ", "-") or "empty"
        function = FunctionProto(name="F", attribute=[name, "other"])
        yield f"name-function-attribute-{shown}", model_of(graph_of(), functions=[function])
    yield "name-graphs-absent", model_of(graph_of(node_of(), name=None))
    yield "name-graph-empty", model_of(graph_of(node_of(), name=""))


def values_out_of_range() -> Models:
    yield (
        "range-integers",
        tensors_model(
            tensor("uint8", [1], "uint8_above", int32_data=[300]),
            tensor("uint8", [2], "uint8_below", int32_data=[1, -1]),
            tensor("int8", [1], "int8_above", int32_data=[128]),
            tensor("int8", [1], "int8_below", int32_data=[-129]),
            tensor("uint16", [1], "uint16_above", int32_data=[65536]),
            tensor("int16", [1], "int16_above", int32_data=[32768]),
            tensor("uint32", [1], "uint32_above", uint64_data=[1 << 32]),
            tensor("bool", [1], "bool_above", int32_data=[7]),
            tensor("bool", [1], "bool_below", int32_data=[-1]),
        ),
    )
    yield (
        "range-bit-patterns",
        tensors_model(
            tensor("float16", [1], "float16_above", int32_data=[65536]),
            tensor("float16", [1], "float16_below", int32_data=[-1]),
            tensor("bfloat16", [1], "bfloat16_above", int32_data=[0x7FFF_FFFF]),
            tensor("float8e4m3fn", [1], "float8_above", int32_data=[256]),
            tensor("float8e8m0", [1], "float8_below", int32_data=[-1]),
        ),
    )
    small = ("int4", "uint4", "float4e2m1", "int2", "uint2", "float6e2m3", "float6e3m2")
    for name, number in (("100", 100), ("255", 255), ("256", 256), ("minus-1", -1), ("minus-128", -128), ("minus-129", -129)):
        yield f"range-packed-{name}", tensors_model(*(tensor(kind, [1], f"of_{kind}", int32_data=[number]) for kind in small))
    yield "range-packed-other-number", tensors_model(*(tensor(kind, [3], f"of_{kind}", int32_data=[1] * 7) for kind in small))
    # With bits where there are no elements.
    yield "range-packed-padding", tensors_model(*(tensor(kind, [1], f"of_{kind}", raw_data=b"\xff") for kind in small))
    extremes = [
        tensor("float", [5], "f", float_data=[-0.0, 1e-45, 3.4028234663852886e38, math.inf, -math.inf]),
        tensor("double", [4], "d", double_data=[-0.0, 5e-324, 1.7976931348623157e308, -math.inf]),
        tensor("int64", [2], "i", int64_data=[-(1 << 63), (1 << 63) - 1]),
        tensor("uint64", [1], "u", uint64_data=[(1 << 64) - 1]),
        tensor("uint32", [1], "v", uint64_data=[(1 << 32) - 1]),
        tensor("bool", [3], "raw_bool", raw_data=b"\x00\x02\xff"),
    ]
    yield "range-extremes", tensors_model(*extremes)
    ints = attribute(type="INTS", ints=[-(1 << 63), (1 << 63) - 1])
    floats = attribute(floats=[-0.0, 1e-45, 3.4028234663852886e38, 1e10, 16777216.0])
    alone = [attribute(f=-0.0), attribute(f=1e20), attribute(f=3.0), attribute(i=-(1 << 63))]
    yield "range-extremes-in-attributes", attributes_model(ints, floats, *alone)


def attributes() -> Models:
    graph = GraphProto(name="inner", node=[node_of()])
    values = {
        "FLOAT": {"f": 1.0},
        "INT": {"i": 1},
        "STRING": {"s": b"text"},
        "TENSOR": {"t": tensor("float", [1], float_data=[1])},
        "GRAPH": {"g": graph},
        "TYPE_PROTO": {"tp": tensor_type()},
        "SPARSE_TENSOR": {"sparse_tensor": sparse()},
        "FLOATS": {"floats": [1.0, 2.5]},
        "INTS": {"ints": [1, 2]},
        "STRINGS": {"strings": [b"a", b"b"]},
        "TENSORS": {"tensors": [tensor("float", [1], float_data=[1])]},
        "GRAPHS": {"graphs": [graph]},
        "TYPE_PROTOS": {"type_protos": [tensor_type()]},
        "SPARSE_TENSORS": {"sparse_tensors": [sparse()]},
    }
    every = list(values.items())
    unknown_type = b"\xa0\x01\x63"
    yield "attribute-of-each-type", attributes_model(*(attribute(type=name, **content) for name, content in every))
    yield "attribute-type-absent", attributes_model(*(attribute(**content) for _, content in every))
    yield "attribute-type-undefined", attributes_model(*(attribute(type="UNDEFINED", **content) for _, content in every))
    yield "attribute-type-unknown", attributes_model(*(merged(attribute(**content), unknown_type) for _, content in every))
    yield "attribute-value-absent", attributes_model(*(attribute(type=name) for name, _ in every), attribute(type="UNDEFINED"))
    yield "attribute-type-and-value-absent", attributes_model(attribute())
    yield "attribute-type-unknown-value-absent", attributes_model(merged(attribute(), unknown_type))
    pairs = [(name, first, second) for (name, first), (_, second) in zip(every, [*every[1:], every[0]])]
    yield "attribute-value-of-another-type", attributes_model(*(attribute(type=name, **second) for name, _, second in pairs))
    yield "attribute-two-values", attributes_model(*(attribute(type=name, **first, **second) for name, first, second in pairs))
    yield "attribute-two-values-untyped", attributes_model(*(attribute(**first, **second) for _, first, second in pairs))
    yield "attribute-empty-lists", attributes_model(*(attribute(type=name) for name in EMPTY_LISTS))
    yield "attribute-references", attributes_model(*(attribute(type=name, ref_attr_name="outer") for name, _ in every))
    yield "attribute-reference-untyped", attributes_model(attribute(ref_attr_name="outer"))
    yield "attribute-reference-undefined", attributes_model(attribute(type="UNDEFINED", ref_attr_name="outer"))
    yield "attribute-reference-of-unknown-type", attributes_model(merged(attribute(ref_attr_name="outer"), unknown_type))
    yield "attribute-reference-empty", attributes_model(attribute(type="INT", ref_attr_name=""))
    yield (
        "attribute-reference-and-value",
        attributes_model(
            *(attribute(type=name, ref_attr_name="outer", **content) for name, content in every),
            attribute(type="INT", ref_attr_name="outer", f=1.0, i=2, ints=[3]),
        ),
    )
    untyped = [attribute(ref_attr_name="outer", **content) for _, content in every]
    yield "attribute-reference-and-value-untyped", attributes_model(*untyped)
    documented = [attribute(type=name, doc_string="what it is for", **content) for name, content in every]
    yield "attribute-documented", attributes_model(*documented, attribute(type="INT", ref_attr_name="outer", doc_string=""))
    # Left out as a whole, it has no type and no name that would become something.
    yield "attribute-tensor-without-literals", attributes_model(attribute(t=TensorProto(dims=[2], data_type=TensorProto.FLOAT)))


def tensors() -> Models:
    nameless = [tensor("float", [1], None, float_data=[1]), tensor("float", [1], "", float_data=[1])]
    yield "tensor-names-absent", tensors_model(*nameless)
    yield "tensor-name-and-values-absent", model_of(graph_of(initializer=[tensor("float", [2], None), TensorProto()]))
    place = {"data_location": TensorProto.EXTERNAL, "external_data": [entry("location", "weights.bin"), entry("offset", "4096")]}
    nowhere = {"data_location": TensorProto.EXTERNAL}
    external = [
        tensor("float", [2], "known", **place),
        tensor(None, [2], "untyped", **place),
        tensor("float", [-1], "negative", **place),
        tensor("string", [2], "strings", **place),
        tensor("float", [2], "nowhere", **nowhere),
        tensor("float", [0], "nowhere_empty", **nowhere),
        tensor("float", [1], "nowhere_inline", float_data=[1], **nowhere),
        tensor("float", [2], "halves", external_data=[entry("location", None), entry(None, None)], **nowhere),
        TensorProto(name="unknown", data_type=99, dims=[2], **place),
        TensorProto(name="undefined", data_type=0, dims=[2], **place),
    ]
    yield "tensor-external", tensors_model(*external)
    second = [
        tensor("float", [1], "raw", raw_data=b"\0\0\x80\x3f", **place),
        tensor("float", [1], "typed", float_data=[1], **place),
        tensor("float", [1], "both", raw_data=b"\0\0\x80\x3f", float_data=[1], int32_data=[1], **place),
    ]
    yield "tensor-external-and-inline", tensors_model(*second)
    unused = [
        tensor("float", [1], "default", data_location=TensorProto.DEFAULT, external_data=place["external_data"], float_data=[1]),
        tensor("float", [1], "absent", external_data=place["external_data"], float_data=[1]),
        tensor("float", [1], "empty", external_data=place["external_data"]),
        tensor("float", [1], "location", data_location=TensorProto.DEFAULT, float_data=[1]),
        merged(tensor("float", [1], "unknown", external_data=place["external_data"], float_data=[1]), b"\x70\x07"),
    ]
    yield "tensor-unused-external-data", tensors_model(*unused)
    both = [
        tensor("float", [1], "same", raw_data=b"\0\0\x80\x3f", float_data=[1]),
        tensor("float", [1], "other", raw_data=b"\0\0\x80\x3f", int64_data=[1], string_data=[b"a"]),
        tensor("int4", [2], "packed", raw_data=b"\x21", int32_data=[0x21]),
        tensor("float", [0], "empty", raw_data=b"", float_data=[1]),
    ]
    yield "tensor-raw-and-list", tensors_model(*both)
    lists = [
        tensor("float", [1], "two", float_data=[1], double_data=[1]),
        tensor("float", [1], "wrong", double_data=[1]),
        tensor("int64", [1], "narrow", int32_data=[1]),
        tensor("uint8", [1], "wide", int64_data=[1]),
        tensor("int4", [1], "wrong_packed", int64_data=[1]),
        tensor("string", [1], "no_text", int32_data=[1]),
    ]
    yield "tensor-wrong-lists", tensors_model(*lists)
    # No values are wanted, and yet there are some.
    yield "tensor-empty-with-wrong-list", tensors_model(tensor("float", [0], "wrong", double_data=[1]))
    full = [tensor("float", [0], "more", float_data=[1]), tensor("int4", [0], "packed", int32_data=[1])]
    yield "tensor-empty-with-values", tensors_model(*full)
    raw = [
        tensor("float", [2], "short", raw_data=b"\0\0\x80\x3f"),
        tensor("float", [1], "long", raw_data=b"\0\0\x80\x3f\0"),
        tensor("float", [1], "empty", raw_data=b""),
        tensor("int4", [3], "short_packed", raw_data=b"\x21"),
        tensor("float6e2m3", [3], "long_packed", raw_data=b"\x21\x22\x23\x24"),
        tensor("string", [1], "text", raw_data=b"a"),
        tensor("string", [0], "no_text", raw_data=b""),
        tensor("float", [0], "none", raw_data=b""),
    ]
    yield "tensor-raw-of-wrong-length", tensors_model(*raw)
    counts = [
        tensor("float", [2], "fewer", float_data=[1]),
        tensor("int32", [], "more", int32_data=[1, 2]),
        tensor("string", [2], "none"),
        tensor("complex64", [1], "half", float_data=[1]),
    ]
    yield "tensor-wrong-count", tensors_model(*counts)
    dims = [
        tensor("float", [-1], "negative", float_data=[1]),
        tensor("float", [-1, -1], "two_negative", float_data=[1]),
        tensor("float", [0, -1], "zero_negative"),
        tensor("float", [1 << 40], "huge"),
        tensor("float", [1 << 40, 1 << 40], "product"),
        tensor("float", [(1 << 63) - 1, 2], "largest"),
        tensor("float", [0], "zero"),
        tensor("float", [0, 1 << 40], "zero_huge"),
    ]
    yield "tensor-dims", tensors_model(*dims)
    yield "tensor-dims-product-then-zero", tensors_model(tensor("float", [1 << 40, 1 << 40, 0]))
    yield "tensor-dims-zero-then-product", tensors_model(tensor("float", [0, 1 << 40, 1 << 40]))
    segment = TensorProto.Segment(begin=0, end=1)
    segments = [tensor("float", [1], float_data=[1], segment=segment), tensor("float", [2], segment={})]
    yield "tensor-segments", tensors_model(*segments)
    notes = {"doc_string": "what it is", "metadata_props": [entry("key", "value"), entry(None, None)]}
    yield "tensor-notes", tensors_model(tensor("float", [1], float_data=[1], **notes), tensor("float", [2], **notes, **place))
    kinds = [
        tensor(None, [1], "untyped", float_data=[1]),
        TensorProto(name="unknown", data_type=99, dims=[1], raw_data=b"\0"),
        TensorProto(name="undefined", data_type=0),
        TensorProto(name="negative", data_type=-1),
    ]
    yield "tensor-types", tensors_model(*kinds)


def types() -> Models:
    inner = tensor_type("int64", 2)
    kinds = [TypeProto() for _ in range(8)]
    kinds[0].tensor_type.elem_type = TensorProto.FLOAT
    kinds[1].sparse_tensor_type.CopyFrom(TypeProto.SparseTensor(elem_type=TensorProto.FLOAT))
    kinds[2].sequence_type.elem_type.CopyFrom(inner)
    kinds[3].optional_type.elem_type.CopyFrom(kinds[2])
    kinds[4].map_type.key_type = TensorProto.STRING
    kinds[4].map_type.value_type.CopyFrom(kinds[3])
    kinds[5].opaque_type.SetInParent()
    kinds[6].opaque_type.name = "Name"
    kinds[7].opaque_type.CopyFrom(TypeProto.Opaque(domain="a.domain", name="Name"))
    yield "type-of-each-kind", types_model(*kinds)
    for index, kind in enumerate(kinds):
        kind.denotation = f"IMAGE {index}"
    kinds[2].sequence_type.elem_type.denotation = ""
    yield "type-denotations", types_model(*kinds)

    odd = [TypeProto() for _ in range(14)]
    odd[1].tensor_type.SetInParent()
    odd[2].tensor_type.elem_type = 0
    odd[3].tensor_type.elem_type = 99
    odd[4].sparse_tensor_type.SetInParent()
    odd[5].sequence_type.SetInParent()
    odd[6].optional_type.elem_type.SetInParent()
    odd[7].map_type.SetInParent()
    odd[8].map_type.key_type = TensorProto.INT64
    odd[9].map_type.value_type.CopyFrom(inner)
    odd[10].map_type.CopyFrom(TypeProto.Map(key_type=99, value_type=inner))
    odd[11].sequence_type.elem_type.tensor_type.elem_type = -1
    odd[12].denotation = "TENSOR"
    odd[13].optional_type.elem_type.sequence_type.SetInParent()
    yield "type-without-words", types_model(*odd)
    opaque = [{"domain": "a"}, {"domain": "", "name": "b"}, {"name": ""}, {"name": "a.b"}, {"domain": "a", "name": "b.c"}]
    opaque += [{"domain": text, "name": text} for text in ("3d", "with space", "float", "nan", "a..b")]
    yield "type-opaque", types_model(*(TypeProto(opaque_type=TypeProto.Opaque(**fields)) for fields in opaque))
    shapes = [tensor_type("float", *dims) for dims in ([], [-1], [0], [None, None], ["N", None, 3], [-(1 << 63), (1 << 63) - 1])]
    for kind in ("float", "string", "complex128", "uint2", "float8e8m0"):
        shapes.append(TypeProto(sparse_tensor_type=TypeProto.SparseTensor(elem_type=TYPES[kind])))
        shapes[-1].sparse_tensor_type.shape.dim.add().dim_param = "N"
    yield "type-shapes", types_model(*shapes)
    noted = tensor_type("float", "N", 3, None)
    for dim in noted.tensor_type.shape.dim:
        dim.denotation = "DATA_BATCH"
    both = TypeProto.FromString(noted.SerializeToString())
    both.denotation = "IMAGE"
    yield "type-dim-denotations", types_model(noted, both, TypeProto(sequence_type=TypeProto.Sequence(elem_type=both)))
    deep = tensor_type()
    for _ in range(10):
        deep = TypeProto(sequence_type=TypeProto.Sequence(elem_type=deep))
    yield "type-deep", types_model(deep)


def graphs() -> Models:
    yield "graph-absent", model_of(None)
    yield "graph-empty", model_of(GraphProto())
    absent = [ValueInfoProto(), ValueInfoProto(type=tensor_type()), ValueInfoProto(name="")]
    yield "graph-values-without-name", model_of(graph_of(input=absent, output=absent, value_info=absent))
    noted = [value("x", doc_string="what it is"), value("y", metadata_props=[entry("key", "value")]), value("z", doc_string="")]
    yield "graph-values-with-notes", model_of(graph_of(input=noted, output=noted, value_info=noted))
    inner = graph_of(node_of(), doc_string="inner", metadata_props=[entry("key", "value")], input=noted)
    nested = node_of(attribute=[attribute(type="GRAPH", g=inner)])
    yield (
        "graph-notes",
        model_of(graph_of(nested, doc_string="what it does", metadata_props=[entry("key", "value"), entry("other", None)])),
    )
    pairs = [entry("SCALE_TENSOR", "scale"), entry(None, None)]
    annotations = [TensorAnnotation(tensor_name="x", quant_parameter_tensor_names=pairs), TensorAnnotation()]
    yield "graph-quantization", model_of(graph_of(node_of(), quantization_annotation=annotations))
    constants = [sparse(), sparse(None), SparseTensorProto()]
    yield "graph-sparse-initializers", model_of(graph_of(node_of(), sparse_initializer=constants))
    constants = [tensor("float", [1], None, float_data=[1]), tensor("float", [1], "w", float_data=[1]), tensor("float", [1], "w")]
    both = graph_of(node_of(), initializer=constants, input=[value("w")], value_info=[value("w"), value("w")])
    yield "graph-initializers", model_of(both)
    # What is nested has all of it, too.
    inner = graph_of(node_of(), initializer=constants, sparse_initializer=[sparse()], value_info=[value("w")], name="inner")
    inner.node[0].attribute.append(attribute(type="GRAPH", g=GraphProto(quantization_annotation=annotations)))
    yield "graph-nested", nodes_model(node_of(attribute=[attribute(type="GRAPH", g=inner)]))


def functions() -> Models:
    def with_functions(*functions: FunctionProto) -> ModelProto:
        return model_of(graph_of(node_of("F", "here")), functions=functions)

    def function(name: str | None = "F", domain: str | None = "here", **fields) -> FunctionProto:
        fields = {"input": ["x"], "output": ["y"], "node": [node_of()], **fields}
        return FunctionProto(name=name, domain=domain, **fields)

    yield "function-name-absent", with_functions(function(None))
    yield "function-domain-absent", with_functions(function(domain=None), function(domain=""))
    yield "function-empty", with_functions(FunctionProto())
    yield "function-overloads", with_functions(*(function(overload=overload) for overload in ("", "one", "3d", "with space")))
    noted = [function(doc_string="what it does", metadata_props=[entry("key", "value")]), function(doc_string="")]
    yield "function-notes", with_functions(*noted)
    imports = [OperatorSetIdProto(domain="", version=21), OperatorSetIdProto(version=1), OperatorSetIdProto(domain="a")]
    yield "function-imports", with_functions(function(opset_import=imports))
    typed = [value("x"), value("y"), value("z")]
    yield "function-value-info", with_functions(function(value_info=typed), function(value_info=typed[::-1]))
    untyped = [ValueInfoProto(name=name, type=TypeProto()) for name in ("x", "inside")]
    yield "function-value-info-without-words", with_functions(function(value_info=untyped), function(value_info=untyped[:1]))
    bare = [ValueInfoProto(name="x"), ValueInfoProto(), ValueInfoProto(name="z"), ValueInfoProto(type=tensor_type())]
    yield "function-value-info-untyped", with_functions(function(value_info=bare), function(value_info=bare[:1]))
    noted = [value("x", doc_string="what it is"), ValueInfoProto(name="y", metadata_props=[entry("key", "value")])]
    yield "function-value-info-with-notes", with_functions(function(value_info=noted))
    twice = function(value_info=[value("x"), value("x")])
    twice.input.append("x")
    yield "function-value-info-twice", with_functions(twice)
    defaults = [
        attribute("int", type="INT", i=1),
        attribute("floats", floats=[1.0]),
        attribute("text", type="STRING", s=b"a", doc_string="what it is for"),
        attribute("empty", type="INTS"),
        attribute("tensor", type="TENSOR", t=tensor("float", [1], None, float_data=[1])),
    ]
    both = [function(attribute=names, attribute_proto=defaults) for names in (["plain"], [])]
    yield "function-defaults", with_functions(*both)
    inner = [GraphProto(name=name, node=[node_of()]) for name in ("inner", "inf", "nan1", "float", "3d", "with space", "")]
    graphs = [attribute(f"graph_{index}", type="GRAPH", g=graph) for index, graph in enumerate([*inner, GraphProto()])]
    yield "function-default-graphs", with_functions(function(attribute_proto=graphs))
    odd = [attribute(type="INT"), attribute("not a word", i=1), attribute("b", tensors=[tensor("float", [0])])]
    both = [function(attribute=names, attribute_proto=odd) for names in (["plain"], [])]
    yield "function-defaults-without-words", with_functions(*both)


def nodes() -> Models:
    yield "node-names", nodes_model(node_of(), node_of(name=""), node_of(name="a"), node_of(name="with space"))
    domains = (None, "", "ai.onnx", "ai.onnx.ml", "com.example.3d", "com example")
    yield "node-domains", nodes_model(*(node_of(domain=domain) for domain in domains))
    yield "node-empty", nodes_model(NodeProto())
    sides = [node_of(input=[], output=[]), node_of(input=[""], output=[""]), node_of(input=["", "x", ""], output=["", "", "y"])]
    yield "node-operands", nodes_model(*sides, NodeProto(op_type="Op"))
    yield "node-overload-empty", nodes_model(node_of(overload=""))
    notes = {"doc_string": "what it does", "metadata_props": [entry("key", "value")]}
    devices = [NodeDeviceConfigurationProto(configuration_id="c", pipeline_stage=1), NodeDeviceConfigurationProto()]
    yield "node-notes", nodes_model(node_of(**notes), node_of(doc_string=""), node_of(metadata_props=[entry(None, None)]))
    yield "node-devices", nodes_model(node_of(device_configurations=devices), node_of(device_configurations=devices[:1], **notes))
    # Only the node is reported, not what it has.
    left_out = node_of("not a word", **notes, device_configurations=devices, attribute=[attribute()])
    yield "node-left-out-with-notes", nodes_model(left_out)
    same = attribute(type="INT", i=1)
    yield "node-attributes-twice", nodes_model(node_of(attribute=[same, same]))
    odd = attribute("not a word", i=1)
    yield "node-attributes-left-out", nodes_model(*(node_of(attribute=some) for some in ([odd, same], [same, odd], [odd])))


def headers() -> Models:
    graph = graph_of(node_of())
    yield "header-absent", ModelProto(graph=graph)
    kinds = [{}, {"domain": "", "version": 21}, {"domain": "a"}, {"version": -1}]
    yield "header-imports", model_of(graph, opset_import=2 * [OperatorSetIdProto(**kind) for kind in kinds])
    yield "header-versions", model_of(graph, ir_version=-(1 << 63), model_version=(1 << 63) - 1, opset_import=[])
    texts = dict.fromkeys(("producer_name", "producer_version", "domain", "doc_string"), "")
    yield "header-empty-texts", model_of(graph, ir_version=None, model_version=0, **texts)
    pairs = [("key", "value"), ("key", "other"), ("", ""), (None, "value"), ("key", None), (None, None)]
    yield "header-metadata", model_of(graph, metadata_props=[entry(*pair) for pair in pairs])
    step = TrainingInfoProto(algorithm=graph_of(node_of("Step")), update_binding=[entry("w", "w_new")])
    yield "header-training", model_of(graph, training_info=[step, TrainingInfoProto()])
    yield "header-devices", model_of(graph, configuration=[DeviceConfigurationProto(name="c", num_devices=2, device=["a", "b"])])


def unknown_fields() -> Models:
    yield "unknown-model", unknown(model_of(graph_of(node_of())))
    noted = [unknown(node_of(attribute=[unknown(attribute(type="INT", i=1))])), unknown(node_of("not a word"))]
    tensors = [unknown(tensor("float", [1], float_data=[1])), unknown(tensor("float", [2], "no_values"))]
    noted.append(node_of(attribute=[attribute(type="TENSOR", t=tensors[0])]))
    yield "unknown-nodes", unknown(model_of(unknown(graph_of(*noted, initializer=tensors))))
    kind = unknown(tensor_type("float", "N", 2))
    unknown(kind.tensor_type)
    unknown(kind.tensor_type.shape)
    for dim in kind.tensor_type.shape.dim:
        unknown(dim)
    sequence = unknown(TypeProto(sequence_type=unknown(TypeProto.Sequence(elem_type=kind))))
    yield "unknown-types", types_model(kind, sequence, unknown(TypeProto()))
    values = [unknown(value("x"))]
    function = unknown(FunctionProto(name="F", domain="here", node=[unknown(node_of())], value_info=values))
    imports = [unknown(OperatorSetIdProto(domain="", version=21))]
    pairs = [unknown(entry("key", "value"))]
    # Of these two, only they themselves are reported.
    whole = {"quantization_annotation": [unknown(TensorAnnotation())], "sparse_initializer": [unknown(sparse())]}
    graph = unknown(graph_of(input=values, **whole))
    yield "unknown-elsewhere", model_of(graph, functions=[function], opset_import=imports, metadata_props=pairs)
    # A known field of another kind is one that the schema does not have.
    yield "unknown-wire-type", merged(model_of(graph_of(node_of())), b"\x08\x0a\x12\x01a\x10\x05")


def other_bytes() -> Models:
    """What other programs may write, and Python only reads."""

    def start(kind: str, count: int, name: str) -> bytes:
        return tensor(kind, [count], name).SerializeToString()

    halves = [record(4, words("I", [bits])) for bits in FLOAT_NANS[1:4]]
    single = [b"\x51" + words("Q", [bits]) for bits in DOUBLE_NANS[1:4]]
    lists = [start("float", 3, "halves") + b"".join(halves), start("double", 3, "single") + b"".join(single)]
    yield "bytes-nans-in-records", tensor_records_model(*lists)
    lists = [
        start("float", 2, "single") + b"\x25" + words("f", [1.5]) + b"\x25" + words("f", [-0.0]),
        start("float", 2, "scattered") + record(4, words("f", [1.5])) + record(12, b"documented") + record(4, words("f", [2.5])),
        start("int32", 3, "mixed") + b"\x28\x01" + record(5, b"\x02\x03"),
        start("uint8", 2, "bytes") + b"\x28\x01\x28\xff\x01",
        start("int64", 2, "long") + b"\x38\x01" + b"\x38" + b"\xff" * 9 + b"\x01",
        start("uint64", 1, "unsigned") + b"\x58" + b"\xff" * 9 + b"\x01",
        start("int4", 4, "packed") + b"\x28\x21\x28\x43",
        start("float6e2m3", 2, "six") + b"\x28\x21\x28\x13",
        start("complex64", 1, "complex") + record(4, words("f", [1.5])) + record(4, words("f", [2.5])),
        start("float", 0, "empty") + record(4, b""),
        start("float", 1, "empty_first") + record(4, b"") + record(4, words("f", [1.5])),
    ]
    yield "bytes-lists-in-records", tensor_records_model(*lists)
    texts = start("string", 2, "texts") + record(6, b"a") + record(12, b"documented") + record(6, b"b")
    yield "bytes-texts-in-records", tensor_records_model(texts)
    other = start("float", 1, "other_empty") + record(5, b"") + record(4, words("f", [1.5]))
    yield "bytes-empty-record-of-other-list", tensor_records_model(other)
    lists = [
        start("int32", 1, "i") + record(5, b"\x81\x00"),
        start("int64", 1, "l") + record(7, b"\x81\x80\x00"),
        start("bool", 1, "b") + record(5, b"\x81\x00"),
        start("uint32", 1, "u") + record(11, b"\x81\x80\x00"),
    ]
    yield "bytes-long-integers", tensor_records_model(*lists)
    # An entry has 32 bits; what is above them is cut off.
    cut = [
        start("int32", 1, "i") + record(5, b"\x81\x80\x80\x80\x10"),
        start("int32", 1, "minus") + record(5, b"\xff" * 4 + b"\x0f"),
        start("uint8", 1, "u") + record(5, b"\x81\x80\x80\x80\x10"),
    ]
    yield "bytes-beyond-32-bits", tensor_records_model(*cut)
    raw = [start("float", 1, "raw") + record(9, words("f", [1.5])) + record(9, words("f", [2.5]))]
    raw.append(start("float", 1, "first") + start("float", 1, "last") + record(9, words("f", [1.5])))
    raw.append(tensor("float", [], "dims").SerializeToString() + record(1, b"\x02\x01") + record(4, words("f", [1.5, 2.5])))
    yield "bytes-tensor-fields-twice", tensor_records_model(*raw)

    node = node_of().SerializeToString()
    twice = [
        attribute(type="INT", i=1).SerializeToString() + attribute("b", type="INT", i=2).SerializeToString(),
        attribute(type="FLOATS", floats=[1.5]).SerializeToString() + record(7, words("f", [2.5, 3.5])),
        attribute(type="INTS", ints=[1]).SerializeToString() + record(8, b"\x02\x03"),
        attribute(type="STRING", s=b"first").SerializeToString() + record(4, b"last"),
        attribute(type="GRAPH", g=graph_of(node_of("First"))).SerializeToString()
        + record(6, graph_of(node_of("Last"), name="last").SerializeToString()),
        attribute(type="TENSOR", t=tensor("float", [1], float_data=[1])).SerializeToString()
        + record(5, tensor("float", [2], float_data=[2]).SerializeToString()),
    ]
    graph = graph_of().SerializeToString() + b"".join(record(1, node + record(5, content)) for content in twice)
    yield "bytes-attribute-fields-twice", model_of(None).SerializeToString() + record(7, graph)
    kinds = [tensor_type("float", "N"), TypeProto(sequence_type=TypeProto.Sequence(elem_type=tensor_type()))]
    kinds = [kind.SerializeToString() for kind in (*kinds, kinds[0], tensor_type("int64", 3))]
    values = b"".join(record(11, record(1, b"x") + record(2, first + last)) for first, last in zip(kinds, kinds[1:]))
    values += b"".join(record(11, record(1, b"x") + record(2, first) + record(2, last)) for first, last in zip(kinds, kinds[1:]))
    yield "bytes-type-kinds-twice", model_of(None).SerializeToString() + record(7, graph_of().SerializeToString() + values)
    first = model_of(graph_of(node_of("First"), name="first"), producer_name="first", doc_string="only the first")
    last = model_of(graph_of(node_of("Last"), name="last"), ir_version=11, producer_name="last")
    yield "bytes-two-models", first.SerializeToString() + last.SerializeToString()
    # Nodes before the name, and the version after everything.
    graph = record(1, node) + record(2, b"main") + record(1, node)
    yield "bytes-order", record(7, graph) + b"\x08\x0a" + record(8, b"\x10\x15\x0a\x00") + record(2, b"late")
    # Numbers of fields and lengths that take more bytes than they need.
    yield "bytes-long-tags", b"\x88\x80\x00\x8a\x00" + record(7, record(2, b"main")) + b"\x92\x00\x81\x00a"
    # A group, which nothing in the schema is.
    yield "bytes-group", model_of(graph_of(node_of())).SerializeToString() + b"\xc3\x3e\x08\x01\xc4\x3e"
    yield "bytes-none", b""


def main(directory: pathlib.Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    # Those of an older version of this script would be compared as well.
    for old in directory.glob("*.onnx"):
        old.unlink()
    models = all_models()
    for name, content in models.items():
        (directory / f"{name}.onnx").write_bytes(content)
    print(f"{len(models)} odd models")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
