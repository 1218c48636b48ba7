"""What a text does not say, taken out of the model that it was printed from.

The walk goes over a model as our printer does (`crates/text/src/print`) and meets everything that the portable form has no words
for. What was reported as left out is changed to what the text says instead, and only that: what is left out in silence stays, and
so makes a difference to what the reference reads.
"""

import collections
import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence

import numpy
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto

# The kinds that more than one part of the walk meets.
DOCUMENTATION = "documentation"
METADATA = "metadata"
TYPES = "types that the portable form cannot name"
NOT_UTF8 = "texts that are not UTF-8, which Python cannot pass on"
ZERO_BYTES = "zero bytes in texts, where the parser of the onnx package stops"
ODD_NANS = "bits of NaNs"
UNKNOWN = "unknown fields"

WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
WORDS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
ELEMENT_TYPES = {number: name.lower() for name, number in TensorProto.DataType.items() if number}
TYPE_WORDS = {*ELEMENT_TYPES.values(), "seq", "map", "optional", "sparse_tensor", "opaque"}
FLOAT_WORDS = {"inf", "infinity", "nan"}

VALUES = {
    "f": AttributeProto.FLOAT,
    "i": AttributeProto.INT,
    "s": AttributeProto.STRING,
    "t": AttributeProto.TENSOR,
    "g": AttributeProto.GRAPH,
    "tp": AttributeProto.TYPE_PROTO,
    "sparse_tensor": AttributeProto.SPARSE_TENSOR,
    "floats": AttributeProto.FLOATS,
    "ints": AttributeProto.INTS,
    "strings": AttributeProto.STRINGS,
    "tensors": AttributeProto.TENSORS,
    "graphs": AttributeProto.GRAPHS,
    "type_protos": AttributeProto.TYPE_PROTOS,
    "sparse_tensors": AttributeProto.SPARSE_TENSORS,
}
LISTS = {"floats", "ints", "strings", "tensors", "graphs", "type_protos", "sparse_tensors"}
WITHOUT_WORDS = {
    "tensors": "attributes that are lists of tensors, graphs or types",
    "graphs": "attributes that are lists of tensors, graphs or types",
    "type_protos": "attributes that are lists of tensors, graphs or types",
    "sparse_tensor": "attributes that are sparse tensors",
    "sparse_tensors": "attributes that are sparse tensors",
}

BITS = {
    **dict.fromkeys(("float", "int32", "uint32"), 32),
    **dict.fromkeys(("double", "int64", "uint64", "complex64"), 64),
    **dict.fromkeys(("uint16", "int16", "float16", "bfloat16"), 16),
    **dict.fromkeys(("float6e2m3", "float6e3m2"), 6),
    **dict.fromkeys(("uint4", "int4", "float4e2m1"), 4),
    **dict.fromkeys(("uint2", "int2"), 2),
    "complex128": 128,
}
# What an entry of a typed list may be where the list could hold more. Packed entries are bytes, with a sign or without.
RANGES = {
    "bool": (0, 1),
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    **dict.fromkeys(("uint16", "float16", "bfloat16"), (0, 2**16 - 1)),
    "uint32": (0, 2**32 - 1),
    **dict.fromkeys(("int2", "int4"), (-(2**7), 2**8 - 1)),
}
SIGNED = {"int8": "i1", "int16": "<i2", "int32": "<i4"}
LISTS_OF_TYPES = {
    **dict.fromkeys(("float", "complex64"), "float_data"),
    **dict.fromkeys(("double", "complex128"), "double_data"),
    **dict.fromkeys(("uint32", "uint64"), "uint64_data"),
    "int64": "int64_data",
    "string": "string_data",
}
TYPED_LISTS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")


def take_out(model: ModelProto, reported: Mapping[str, int]) -> collections.Counter:
    """Changes a model to what its text says. Gives how many things of each kind it had."""
    walk = Walk(reported)
    walk.model(model)
    return walk.found


class Walk:
    def __init__(self, reported: Mapping[str, int]):
        self.reported = reported
        self.found: collections.Counter = collections.Counter()

    def left(self, what: str) -> bool:
        """Counts something that has no words. Whether it was reported."""
        self.found[what] += 1
        return what in self.reported

    def clear(self, message: Message, field: str, what: str) -> None:
        """A field that has no words, if it is there."""
        repeated = message.DESCRIPTOR.fields_by_name[field].is_repeated
        if (len(getattr(message, field)) if repeated else message.HasField(field)) and self.left(what):
            message.ClearField(field)

    def said(self, message: Message, field: str, what: str, instead: object) -> None:
        """A field of which the text says something, even if it is not there."""
        if not message.HasField(field) and self.left(what):
            setattr(message, field, instead)

    # Models, functions and graphs.

    def model(self, model: ModelProto) -> None:
        if model.HasField("graph"):
            self.graph(model.graph)
        elif self.left("the absence of a graph, which becomes an empty one"):
            model.graph.name = "graph"
        self.imports(model.opset_import)
        self.entries(model.metadata_props)
        for function in model.functions:
            self.function(function)
        if model.training_info and self.left("training steps"):
            del model.training_info[:]
        if model.configuration and self.left("device configurations"):
            del model.configuration[:]
        # What was left out as a whole is gone by now, and so is what it had of these.
        for _ in filter(has_unknown, messages_in(model)):
            self.left(UNKNOWN)
        if UNKNOWN in self.reported:
            model.DiscardUnknownFields()
        for message in messages_in(model):
            self.texts(message)

    def texts(self, message: Message) -> None:
        """The texts of a message: what of them the text cannot have, or Python cannot pass on."""
        for field, value in message.ListFields():
            if field.type in (field.TYPE_STRING, field.TYPE_BYTES) and field.name != "raw_data":
                if field.is_repeated:
                    value[:] = [self.text(text) for text in value]
                else:
                    setattr(message, field.name, self.text(value))

    def text(self, text: str | bytes) -> str | bytes:
        zero = "\0" if isinstance(text, str) else b"\0"
        if zero in text and self.left(ZERO_BYTES):
            text = text.replace(zero, zero[:0])
        if isinstance(text, bytes) and readable(text) != text and self.left(NOT_UTF8):
            text = readable(text)
        return text

    def imports(self, imports: Sequence[Message]) -> None:
        for entry in imports:
            self.said(entry, "domain", "absent texts, which become empty ones", "")
            self.said(entry, "version", "operator sets without a version, which becomes 0", 0)

    def entries(self, entries: Sequence[Message]) -> None:
        for entry in entries:
            self.said(entry, "key", "absent texts, which become empty ones", "")
            self.said(entry, "value", "absent texts, which become empty ones", "")

    def function(self, function: FunctionProto) -> None:
        self.said(function, "name", "functions without a name, which get one", "function")
        self.clear(function, "metadata_props", METADATA)
        self.imports(function.opset_import)
        keep(function.attribute_proto, self.attribute)
        for info in function.value_info:
            self.value_info(info)
        keep(function.node, self.node)

    def graph(self, graph: GraphProto, *, nested: bool = False) -> None:
        if not graph.HasField("name"):
            if self.left("graphs without a name, which get one"):
                graph.name = "graph"
        elif nested and not is_subgraph_name(graph.name) and self.left("names of subgraphs that are no identifiers"):
            graph.name = "graph"
        for info in (*graph.input, *graph.output):
            self.value_info(info)
        typed = []
        for tensor in graph.initializer:
            self.said(tensor, "name", "tensors without a name, which becomes empty", "")
            if not self.values(tensor):
                # Without values it is the type of a value.
                typed.append(tensor)
        if typed:
            infos = [as_value_info(tensor) for tensor in typed]
            kept = [tensor for tensor in graph.initializer if not any(tensor is other for other in typed)]
            replace_list(graph.initializer, kept)
            replace_list(graph.value_info, [*infos, *graph.value_info])
        for info in list(graph.value_info)[len(typed) :]:
            self.value_info(info)
        keep(graph.sparse_initializer, lambda _: not self.left("sparse initializers"))
        self.clear(graph, "doc_string", DOCUMENTATION)
        self.clear(graph, "quantization_annotation", "quantization annotations")
        self.clear(graph, "metadata_props", METADATA)
        keep(graph.node, self.node)

    def value_info(self, info: ValueInfoProto) -> None:
        if info.HasField("type"):
            if has_words(info.type):
                self.type(info.type)
            elif self.left(TYPES):
                info.ClearField("type")
        self.said(info, "name", "values without a name, which becomes empty", "")
        self.clear(info, "doc_string", DOCUMENTATION)
        self.clear(info, "metadata_props", METADATA)

    def type(self, kind: TypeProto) -> None:
        self.clear(kind, "denotation", "denotations")
        inner = getattr(kind, kind.WhichOneof("value"))
        if isinstance(inner, TypeProto.Map):
            self.type(inner.value_type)
        elif isinstance(inner, TypeProto.Sequence | TypeProto.Optional):
            self.type(inner.elem_type)
        elif isinstance(inner, TypeProto.Tensor | TypeProto.SparseTensor):
            for dim in inner.shape.dim if inner.HasField("shape") else ():
                self.clear(dim, "denotation", "denotations")

    # Nodes and attributes. They tell whether they stay.

    def node(self, node: NodeProto) -> bool:
        callee = WORD.fullmatch(node.op_type) and (not node.domain or WORDS.fullmatch(node.domain))
        # An empty overload is none.
        if not callee or (node.overload and not WORD.fullmatch(node.overload)):
            return not self.left("nodes whose operator, domain or overload is no identifier")
        if not node.overload:
            node.ClearField("overload")
        self.said(node, "domain", "absent domains, which become empty ones", "")
        keep(node.attribute, self.attribute)
        self.clear(node, "doc_string", DOCUMENTATION)
        self.clear(node, "metadata_props", METADATA)
        self.clear(node, "device_configurations", "device configurations")
        return True

    def attribute(self, attribute: AttributeProto) -> bool:
        fields = [field for field in VALUES if has_value(attribute, field)]
        without_words = why_without_words(attribute, fields)
        if without_words:
            return not self.left(without_words)
        # An empty name is no reference.
        if not attribute.ref_attr_name:
            attribute.ClearField("ref_attr_name")
        if attribute.HasField("ref_attr_name"):
            for field in fields:
                self.clear(attribute, field, "values of another type")
            number = number_of(attribute, "type")
            if number is not None and number not in VALUES.values() and self.left("types of references that have no word"):
                drop(attribute, "type")
        elif fields == ["t"]:
            if not self.attribute_tensor(attribute.t):
                return False
        elif fields == ["g"]:
            self.graph(attribute.g, nested=True)
        elif fields == ["tp"]:
            self.type(attribute.tp)
        elif fields == ["f"] and is_odd_nan(attribute.f) and self.left(ODD_NANS):
            attribute.f = plain(attribute.f)
        elif fields == ["floats"] and any(map(is_odd_nan, attribute.floats)) and self.left(ODD_NANS):
            attribute.floats[:] = map(plain, attribute.floats)
        if not attribute.HasField("ref_attr_name") and fields:
            self.said(attribute, "type", "absent types of attributes, which become those of the values", VALUES[fields[0]])
        self.clear(attribute, "doc_string", DOCUMENTATION)
        return True

    # Tensors.

    def attribute_tensor(self, tensor: TensorProto) -> bool:
        if not self.values(tensor):
            # Nothing else is left out of what is left out as a whole.
            return False
        self.said(tensor, "name", "tensors without a name, which becomes empty", "")
        if tensor.name and not is_name(tensor.name):
            if self.left("names of tensors in attributes that are no identifiers"):
                tensor.name = ""
        return True

    def values(self, tensor: TensorProto) -> bool:
        """The values of a tensor and what is noted about it. Whether there are words for them."""
        second = "second values of a tensor"
        known = tensor.data_type in ELEMENT_TYPES
        external = known and tensor.data_location == TensorProto.EXTERNAL and len(tensor.external_data) > 0
        if external:
            self.entries(tensor.external_data)
            self.clear(tensor, "raw_data", second)
        else:
            if not has_literals(tensor):
                return not self.left("tensors whose values have no literals")
            self.clear(tensor, "external_data", "unused external data")
            if number_of(tensor, "data_location") is not None and self.left("data locations"):
                drop(tensor, "data_location")
        typed = [field for field in TYPED_LISTS if len(getattr(tensor, field))]
        if typed and (external or tensor.HasField("raw_data")) and self.left(second):
            for field in typed:
                tensor.ClearField(field)
        if not external:
            if tensor.HasField("raw_data") and self.left("raw_data, which becomes a typed list"):
                raw_to_list(tensor)
            if tensor.data_type == TensorProto.BOOL and any(value not in (0, 1) for value in tensor.int32_data):
                if self.left("bytes of booleans other than 0 and 1"):
                    tensor.int32_data[:] = [int(value != 0) for value in tensor.int32_data]
            for field in ("float_data", "double_data"):
                plain = with_plain_nans(tensor, field)
                if plain is not None and self.left(ODD_NANS):
                    set_list(tensor, field, plain)
        self.clear(tensor, "segment", "segments of tensors")
        self.clear(tensor, "doc_string", DOCUMENTATION)
        self.clear(tensor, "metadata_props", METADATA)
        return True


def keep(messages, stays) -> None:
    """Those of a list that stay, in their order."""
    kept = [stays(message) for message in messages]
    for index in reversed(range(len(kept))):
        if not kept[index]:
            del messages[index]


def replace_list(messages, wanted: Sequence[Message]) -> None:
    copies = [type(message).FromString(message.SerializeToString()) for message in wanted]
    del messages[:]
    messages.extend(copies)


def is_name(text: str) -> bool:
    """Whether a name needs no quotes."""
    return bool(WORD.fullmatch(text)) and text not in TYPE_WORDS and text.lower() not in FLOAT_WORDS


def is_subgraph_name(text: str) -> bool:
    """Whether the reference takes a name for that of a graph in an attribute; it looks at three letters for a number."""
    return is_name(text) and text[:3].lower() not in FLOAT_WORDS


def has_words(kind: TypeProto) -> bool:
    which = kind.WhichOneof("value")
    if which is None:
        return False
    inner = getattr(kind, which)
    if isinstance(inner, TypeProto.Tensor | TypeProto.SparseTensor):
        return inner.elem_type in ELEMENT_TYPES
    if isinstance(inner, TypeProto.Map):
        return inner.key_type in ELEMENT_TYPES and inner.HasField("value_type") and has_words(inner.value_type)
    if isinstance(inner, TypeProto.Sequence | TypeProto.Optional):
        return inner.HasField("elem_type") and has_words(inner.elem_type)
    if not inner.HasField("domain"):
        return not inner.HasField("name") or bool(WORDS.fullmatch(inner.name))
    return inner.HasField("name") and bool(WORDS.fullmatch(inner.domain) and WORD.fullmatch(inner.name))


def has_value(attribute: AttributeProto, field: str) -> bool:
    return len(getattr(attribute, field)) > 0 if field in LISTS else attribute.HasField(field)


def why_without_words(attribute: AttributeProto, fields: Sequence[str]) -> str | None:
    if not WORD.fullmatch(attribute.name):
        return "attributes whose names are no identifiers"
    if attribute.ref_attr_name:
        return None
    declared = number_of(attribute, "type")
    if not fields:
        is_list = any(VALUES[field] == declared for field in LISTS)
        return None if is_list else "attributes without a value"
    if len(fields) > 1 or declared not in (None, VALUES[fields[0]]):
        return "attributes whose value is not of their type"
    if fields == ["tp"] and not has_words(attribute.tp):
        return TYPES
    return WITHOUT_WORDS.get(fields[0])


def as_value_info(tensor: TensorProto) -> ValueInfoProto:
    info = ValueInfoProto(name=tensor.name)
    if tensor.data_type in ELEMENT_TYPES:
        info.type.tensor_type.elem_type = tensor.data_type
        info.type.tensor_type.shape.SetInParent()
        for size in tensor.dims:
            info.type.tensor_type.shape.dim.add().dim_value = size
    return info


def has_literals(tensor: TensorProto) -> bool:
    """Whether the values are in one place and as many as the dimensions say; packed ones may be any number."""
    name = ELEMENT_TYPES.get(tensor.data_type)
    if name is None or any(size < 0 for size in tensor.dims) or math.prod(filter(None, tensor.dims)) >= 2**63:
        return False
    count = math.prod(tensor.dims)
    bits = BITS.get(name, 8)
    if tensor.HasField("raw_data"):
        return name != "string" and len(tensor.raw_data) == (count * bits + 7) // 8
    lists = sum(len(getattr(tensor, field)) > 0 for field in TYPED_LISTS)
    if lists != 1:
        return lists == 0 and count == 0
    field = LISTS_OF_TYPES.get(name, "int32_data")
    entries = getattr(tensor, field)
    if name in RANGES or field == "int32_data":
        low, high = RANGES.get(name, (0, 2**8 - 1))
        if any(not low <= value <= high for value in entries):
            return False
    return len(entries) > 0 and (bits < 8 or len(entries) == count * (2 if name.startswith("complex") else 1))


def raw_to_list(tensor: TensorProto) -> None:
    """Puts the values into the list of their type, bit by bit."""
    name, raw = ELEMENT_TYPES[tensor.data_type], tensor.raw_data
    field = LISTS_OF_TYPES.get(name, "int32_data")
    tensor.ClearField("raw_data")
    if field in ("float_data", "double_data"):
        set_list(tensor, field, raw)
    elif BITS.get(name) == 6:
        number = int.from_bytes(raw, "little")
        tensor.int32_data.extend(number >> 6 * index & 0x3F for index in range(math.prod(tensor.dims)))
    else:
        width = max(BITS.get(name, 8) // 8, 1)
        entry = SIGNED.get(name, "<i8" if name == "int64" else f"<u{width}")
        getattr(tensor, field).extend(numpy.frombuffer(raw, entry).tolist())


def set_list(tensor: TensorProto, field: str, content: bytes) -> None:
    """Floats by their bytes: as numbers of Python, NaNs would not keep their bits."""
    tensor.ClearField(field)
    if content:
        tag = tensor.DESCRIPTOR.fields_by_name[field].number << 3 | 2
        tensor.MergeFromString(bytes([tag]) + varint(len(content)) + content)


def with_plain_nans(tensor: TensorProto, field: str) -> bytes | None:
    """The bytes of a list of floats with the usual NaN for every other one, or nothing if there is no other one."""
    count = len(getattr(tensor, field))
    if count == 0:
        return None
    alone = TensorProto.FromString(tensor.SerializeToString())
    for other in alone.DESCRIPTOR.fields:
        if other.name != field:
            alone.ClearField(other.name)
    alone.DiscardUnknownFields()
    word, nan, top = ("<u4", 0x7FC0_0000, 31) if field == "float_data" else ("<u8", 0x7FF8 << 48, 63)
    width = numpy.dtype(word).itemsize
    bits = numpy.frombuffer(alone.SerializeToString()[-count * width :], word).copy()
    magnitude = bits & numpy.array((1 << top) - 1, word)
    # Above infinity, which is the usual one without its topmost bit of the fraction.
    infinity = nan & nan << 1
    odd = (magnitude > infinity) & (magnitude != nan)
    if not odd.any():
        return None
    bits[odd] = bits[odd] & numpy.array(1 << top, word) | numpy.array(nan, word)
    return bits.tobytes()


def varint(number: int) -> bytes:
    head = b""
    while number > 0x7F:
        head += bytes([number & 0x7F | 0x80])
        number >>= 7
    return head + bytes([number])


def is_odd_nan(value: float) -> bool:
    return struct.pack("d", value) != struct.pack("d", plain(value))


def plain(value: float) -> float:
    """The usual NaN with the sign of another one."""
    return math.copysign(math.nan, value) if math.isnan(value) else value


def messages_in(message: Message) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for inner in value if field.is_repeated else [value]:
                yield from messages_in(inner)


def has_unknown(message: Message) -> bool:
    return len(UnknownFieldSet(message)) > 0


def number_of(message: Message, field: str) -> int | None:
    """The number in a field of an enumeration. One that the enumeration does not have is an unknown field for Python."""
    if message.HasField(field):
        return getattr(message, field)
    number = message.DESCRIPTOR.fields_by_name[field].number
    numbers = [unknown.data for unknown in UnknownFieldSet(message) if (unknown.field_number, unknown.wire_type) == (number, 0)]
    return numbers[-1] if numbers else None


def drop(message: Message, field: str) -> None:
    """Clears a field of an enumeration, also where it is an unknown field."""
    number = message.DESCRIPTOR.fields_by_name[field].number
    others = [unknown for unknown in UnknownFieldSet(message) if (unknown.field_number, unknown.wire_type) != (number, 0)]
    assert all(unknown.wire_type == 0 for unknown in others), "unknown fields of another kind beside it"
    message.ClearField(field)
    message.DiscardUnknownFields()
    message.MergeFromString(b"".join(varint(unknown.field_number << 3) + varint(unknown.data) for unknown in others))


def readable(content: bytes) -> bytes:
    """What Python puts for bytes that are not UTF-8."""
    return content.decode(errors="replace").encode()
