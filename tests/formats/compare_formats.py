"""Compare our protobuf JSON and text format with those of the protobuf package, in both directions.

    python compare_formats.py CONVERTER DIRECTORY [CASES]

CONVERTER is the program `convert_messages` of sardonyx-tests; DIRECTORY receives the files. The messages are all .onnx and .pb
files of the onnx wheel, those below CASES (as `dump_cases.py` writes them), one message of each type with every field,
random messages, and a tensor of each element type in each form of storage.

For each message: protobuf reads what we write, we read what protobuf writes (in several spellings), and the texts are
compared byte by byte.
"""

import collections
import math
import pathlib
import random
import shutil
import struct
import subprocess
import sys

import numpy as np
import onnx
from google.protobuf import json_format, text_format
from google.protobuf.descriptor import FieldDescriptor
from onnx import helper, numpy_helper, onnx_data_pb2, onnx_ml_pb2, onnx_operators_ml_pb2

SEED = 11
RANDOM_PER_TYPE = 40
# Field 999 of every wire type; a text, a message, and a group with a message in it.
UNKNOWN = (
    b"\xb8\x3e\x05\xb9\x3e\x01\x02\x03\x04\x05\x06\x07\x08\xba\x3e\x03\xffab\xbd\x3e\x01\x02\x03\x04"
    b"\xba\x3e\x04\x0a\x02\x08\x01\xba\x3e\x00\xbb\x3e\x08\x01\x12\x02\x08\x07\x1b\x08\x03\x1c\xbc\x3e"
)

JSON_SPELLINGS = {
    "names of the table": dict(preserving_proto_field_name=True),
    "camel case in one line": dict(indent=None, ensure_ascii=False),
    "numbers for enums": dict(use_integers_for_enums=True, unquote_int64_if_possible=True),
}
TEXT_SPELLINGS = {
    "as it is": {},
    "in one line": dict(as_one_line=True, as_utf8=False),
    "short lists and angles": dict(use_short_repeated_primitives=True, pointy_brackets=True),
    "colons": dict(force_colon=True, use_index_order=True),
}


def main(converter, directory, cases):
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    run = Run(directory)
    for source, name, message in messages(cases):
        run.add(source, name, message)
    run.add_unknown_fields()
    run.convert(converter)
    run.report()
    # Half a gigabyte that nobody needs once all is well.
    shutil.rmtree(directory)


def messages(cases):
    wheel = pathlib.Path(onnx.__file__).parent
    for label, root in [("wheel", wheel), *([("cases", cases)] if cases else [])]:
        for path in sorted(p for suffix in ("onnx", "pb") for p in root.rglob(f"*.{suffix}")):
            yield label, str(path.relative_to(root)), read_file(path)
    for message_type in message_types():
        yield "every field", message_type.DESCRIPTOR.full_name, full(message_type(), 2)
    for name, tensor in tensors():
        yield "tensors", name, tensor
    rng = random.Random(SEED)
    for message_type in message_types():
        for n in range(RANDOM_PER_TYPE):
            message = message_type()
            fill(message, rng, 4)
            yield "random", f"{message_type.DESCRIPTOR.full_name} {n}", message


def message_types():
    found = {}
    files = [onnx_ml_pb2, onnx_operators_ml_pb2, onnx_data_pb2]
    waiting = [d for f in files for d in f.DESCRIPTOR.message_types_by_name.values()]
    while waiting:
        descriptor = waiting.pop(0)
        found[descriptor.full_name] = descriptor._concrete_class
        waiting.extend(descriptor.nested_types)
    return list(found.values())


def read_file(path):
    message = value_type(path)()
    message.ParseFromString(path.read_bytes())
    return message


def value_type(path):
    """The message in a file: for a value, its kind is the type in the model beside it."""
    if path.suffix == ".onnx":
        return onnx.ModelProto
    model = path.parent.parent / "model.onnx"
    role, _, index = path.stem.rpartition("_")
    if not model.exists() or role not in ("input", "output"):
        return onnx.TensorProto
    graph = onnx.load(model, load_external_data=False).graph
    infos = graph.input if role == "input" else graph.output
    return {
        "sequence_type": onnx.SequenceProto,
        "map_type": onnx_data_pb2.MapProto,
        "optional_type": onnx.OptionalProto,
    }.get(infos[int(index)].type.WhichOneof("value"), onnx.TensorProto)


def full(message, depth):
    """Every field; of the members of a oneof the last one stays."""
    for field in message.DESCRIPTOR.fields:
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for _ in range(2 if field.is_repeated else 1):
                inner = getattr(message, field.name)
                inner = inner.add() if field.is_repeated else inner
                inner.SetInParent()
                if depth:
                    full(inner, depth - 1)
        elif field.is_repeated:
            getattr(message, field.name).extend(edge_values(field))
        else:
            setattr(message, field.name, edge_values(field)[0])
    return message


def edge_values(field):
    F = FieldDescriptor
    if field.type == F.TYPE_ENUM:
        return [value.number for value in field.enum_type.values][::-1]
    return {
        F.TYPE_INT64: [-1, 0, 2**63 - 1, -(2**63), 300],
        F.TYPE_INT32: [-1, 0, 2**31 - 1, -(2**31), 300],
        F.TYPE_UINT64: [2**64 - 1, 0, 1, 2**53 + 1],
        F.TYPE_FLOAT: [0.1, -0.0, math.inf, -math.inf, math.nan, 1e-45, 3.4e38, 16777216.0, 1e16, 1e-5],
        F.TYPE_DOUBLE: [0.1, -0.0, math.inf, -math.inf, math.nan, 5e-324, 1.7976931348623157e308, 1e16, 123456789.125],
        F.TYPE_STRING: ["a\"'\\/\n\r\t\b\f\x01\x7fé\U0001f600\u2028 ", "", "</x>", "\x00"],
        F.TYPE_BYTES: [bytes(range(256)), b"", b"\x00", b"ab\xff", "é".encode(), b"\\x1"],
    }[field.type]


def fill(message, rng, depth):
    for field in message.DESCRIPTOR.fields:
        if rng.random() < 0.5:
            continue
        count = rng.randrange(4) if field.is_repeated else 1
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if not depth:
                continue
            for _ in range(count):
                inner = getattr(message, field.name)
                inner = inner.add() if field.is_repeated else inner
                inner.SetInParent()
                fill(inner, rng, depth - 1)
        elif field.is_repeated:
            getattr(message, field.name).extend(random_value(field, rng) for _ in range(count))
        else:
            setattr(message, field.name, random_value(field, rng))


def random_value(field, rng):
    F = FieldDescriptor
    if field.type == F.TYPE_ENUM:
        return rng.choice(field.enum_type.values).number
    if field.type == F.TYPE_FLOAT:
        return struct.unpack("<f", rng.randbytes(4))[0]
    if field.type == F.TYPE_DOUBLE:
        return struct.unpack("<d", rng.randbytes(8))[0]
    if field.type == F.TYPE_STRING:
        return "".join(chr(rng.choice([rng.randrange(128), rng.randrange(0x20, 0xD800)])) for _ in range(rng.randrange(12)))
    if field.type == F.TYPE_BYTES:
        return rng.randbytes(rng.randrange(40))
    if field.type == F.TYPE_INT32:
        return rng.randrange(-(2**31), 2**31) >> rng.randrange(32)
    if field.type == F.TYPE_UINT64:
        return rng.randrange(2**64) >> rng.randrange(64)
    return rng.randrange(-(2**63), 2**63) >> rng.randrange(64)


def tensors():
    """Each element type as raw data and as a typed list, and every float of a stride through all bit patterns."""
    for name, number in onnx.TensorProto.DataType.items():
        if name in ("UNDEFINED", "STRING"):
            continue
        array = np.arange(12).reshape(3, 4) % 2
        array = array.astype(helper.tensor_dtype_to_np_dtype(number))
        raw = numpy_helper.from_array(array, f"{name} raw")
        raw.data_type = number
        yield raw.name, raw
        try:
            typed = helper.make_tensor(f"{name} typed", number, [3, 4], array.astype(np.float32).flatten().tolist())
        except Exception as error:
            sys.exit(f"no typed tensor of {name}: {error}")
        yield typed.name, typed
    # Protobuf's own JSON reader refuses what its writer makes of this one.
    largest = onnx.TensorProto(data_type=onnx.TensorProto.FLOAT, float_data=[float(np.finfo(np.float32).max)])
    yield "largest float", largest
    yield "STRING typed", helper.make_tensor("STRING typed", onnx.TensorProto.STRING, [3], [b"a", b"\xff", b""])
    bits = np.arange(0, 2**32, 100_003, dtype=np.uint32)
    floats = bits.view(np.float32)
    powers = (np.arange(512, dtype=np.uint32) << 23).view(np.float32)
    for name, values in [("floats", floats[np.isfinite(floats)]), ("powers of two", powers[np.isfinite(powers)])]:
        tensor = onnx.TensorProto(name=name, dims=[len(values)], data_type=onnx.TensorProto.FLOAT)
        tensor.float_data.extend(values.tolist())
        yield name, tensor
    doubles = np.random.default_rng(SEED).integers(0, 2**63, 20_000).view(np.float64)
    tensor = onnx.TensorProto(name="doubles", dims=[20_000], data_type=onnx.TensorProto.DOUBLE)
    tensor.double_data.extend(doubles[np.isfinite(doubles)].tolist())
    yield "doubles", tensor


class Run:
    def __init__(self, directory):
        self.directory = directory
        self.tasks = []  # lines for the converter
        self.checks = []  # (what, source, name, file, judge)
        self.counts = collections.Counter()
        self.order = []
        self.failures = []
        self.messages = collections.Counter()

    def file(self, content=None):
        path = self.directory / f"{len(self.tasks)}.{'in' if content is not None else 'out'}"
        if content is not None:
            path.write_bytes(content)
        return path

    def task(self, action, message, wire, what, source, name, judge):
        type_name = message.DESCRIPTOR.full_name.removeprefix("onnx.")
        target = self.file()
        self.tasks.append(f"{action}\t{type_name}\t{wire}\t{target}")
        self.checks.append((what, source, name, target, judge))

    def add(self, source, name, message):
        self.messages[source] += 1
        message.DiscardUnknownFields()
        wire = self.file(message.SerializeToString())
        for form, spellings, printed, parsed in [
            ("json", JSON_SPELLINGS, json_format.MessageToJson, json_format.Parse),
            ("text", TEXT_SPELLINGS, text_format.MessageToString, text_format.Parse),
        ]:
            texts = {spelling: printed(message, **options) for spelling, options in spellings.items()}
            first = next(iter(texts.values()))
            try:
                # What a NaN is after protobuf has written and read it.
                expected = parsed(first, type(message)()).SerializeToString()
            except (json_format.ParseError, text_format.ParseError):
                # The largest float: protobuf's own JSON reader refuses what its writer writes.
                self.counts["json: protobuf does not read its own text", source] += 1
                expected = None
            self.task(f"write-{form}", message, wire, f"{form}: the same text", source, name, same(first.encode()))
            if expected is not None:
                judge = reads_as(expected, type(message), parsed)
                self.task(f"write-{form}", message, wire, f"{form}: protobuf reads ours", source, name, judge)
            for spelling, text in texts.items():
                what = f"{form}: we read protobuf's ({spelling})"
                judge = same(expected if expected is not None else message.SerializeToString())
                self.task(f"read-{form}", message, self.file(text.encode()), what, source, name, judge)
        text = json_format.MessageToJson(message, preserving_proto_field_name=True, ensure_ascii=False)
        what = "json: the same text, not only ASCII"
        self.task("write-json-utf8", message, wire, what, source, name, same(text.encode()))

    def add_unknown_fields(self):
        for message_type in message_types():
            message = message_type.FromString(UNKNOWN)
            text = text_format.MessageToString(message, print_unknown_fields=True)
            wire = self.file(UNKNOWN)
            name = message_type.DESCRIPTOR.full_name
            what = "text: unknown fields as protobuf prints them"
            self.task("write-text-unknown", message, wire, what, "unknown fields", name, same(text.encode()))

    def convert(self, converter):
        done = subprocess.run([converter], input="\n".join(self.tasks), capture_output=True, text=True, check=True)
        answers = done.stdout.removesuffix("\n").split("\n")
        if len(answers) != len(self.checks):
            sys.exit(f"{len(answers)} answers to {len(self.checks)} tasks")
        for answer, (what, source, name, target, judge) in zip(answers, self.checks):
            problem = judge(target.read_bytes()) if answer == "ok 0" else answer
            self.counts[what, source] += problem is None
            self.counts[what, source, "all"] += 1
            if problem is not None:
                self.failures.append(f"{what}: {source}/{name} ({target.name}): {problem}")

    def report(self):
        print(", ".join(f"{count} {source}" for source, count in self.messages.items()), "messages")
        for key in self.counts:
            if len(key) == 2:
                what, source = key
                total = self.counts.get((what, source, "all"))
                print(f"{what}, {source}: {self.counts[key]}" + (f" of {total}" if total else ""))
        for failure in self.failures[:20]:
            print(failure)
        if self.failures:
            sys.exit(f"{len(self.failures)} differences")


def same(expected):
    def judge(content):
        if content == expected:
            return None
        at = next((i for i, (a, b) in enumerate(zip(content, expected)) if a != b), min(len(content), len(expected)))
        shown = slice(max(0, at - 20), at + 40)
        return f"differs at byte {at}: {content[shown]!r} instead of {expected[shown]!r}"

    return judge


def reads_as(expected, message_type, parsed):
    def judge(content):
        try:
            got = parsed(content.decode(), message_type()).SerializeToString()
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:300]
        return None if got == expected else "protobuf reads another message"

    return judge


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    arguments = [pathlib.Path(argument) for argument in sys.argv[1:]]
    main(arguments[0], arguments[1], arguments[2] if len(arguments) > 2 else None)
