"""Write small models that break a rule of the standard, and models that just do not, for `compare_checks.py`.

    python broken_models.py CASES DIRECTORY

CASES is the directory that `dump_cases.py` writes. Most models are a sound one with one or two changes: first those of
`broken_rules.py`, rule by rule; then every operator, every kind of stored tensor, and every field of some models left out,
doubled, renamed and set to other numbers. Each model is named for what was changed. Names are stable, as
`check_expectations.txt` lists models by them.
"""

import itertools
import os
import pathlib
import shutil
import struct
import sys
from collections.abc import Iterator

import onnx
from onnx import AttributeProto, FunctionProto, ModelProto, TensorProto

from broken_rules import FAR, RULES, W
from model_changes import add, changed, cut, places, put
from operator_models import operators
from sound_models import CONSTANTS, FUNCTIONS, PLAIN, SOUND, attribute, entry, function, node, sparse, tensor

Models = Iterator[tuple[str, ModelProto | bytes]]


def rules() -> Models:
    for name, base, *changes in RULES:
        sound = SOUND[base]() if base in SOUND else base
        yield name, changed(sound, *changes)


def other_bytes() -> Models:
    """What messages of Python cannot hold."""
    plain = SOUND["plain"]().SerializeToString()
    yield "bytes/nothing", b""
    yield "bytes/no-model", b"This is no model."
    yield "bytes/half", plain[: len(plain) // 2]
    yield "bytes/unknown-field", plain + b"\xc0\x3e\x01"
    yield "bytes/name-not-utf8", plain.replace(b"last", b"l\xffst")
    custom = SOUND["custom"]().SerializeToString()
    number_type = b"\xa0\x01" + bytes([AttributeProto.INT])
    yield "bytes/unknown-attribute-type", custom.replace(number_type, b"\xa0\x01\x63", 1)
    location = SOUND["plain"]()
    location.graph.initializer[0].data_location = TensorProto.DEFAULT
    yield "bytes/unknown-data-location", location.SerializeToString().replace(b"\x70\x00", b"\x70\x07", 1)
    nodes = ModelProto()
    nodes.graph.node.extend(changed(PLAIN).graph.node)
    rest = changed(PLAIN, cut("graph.node"))
    yield "bytes/graph-in-two-parts", nodes.SerializeToString() + rest.SerializeToString()


def many_functions() -> Models:
    """Limits of the reference: 10,000 functions, and 100 calls within calls."""
    for count in (10_000, 10_001):
        model = changed(FUNCTIONS)
        model.functions.extend(FunctionProto(name=f"f{index}", domain="local") for index in range(count - 2))
        yield f"functions/{count}", model
    for count in (2, 100, 101, 400):
        model = changed(FUNCTIONS)
        for index in range(count):
            called = "Neg" if index + 1 == count else f"f{index + 1}"
            body = node(called, "a", "b", domain="" if called == "Neg" else "local")
            model.functions.append(function(f"f{index}", body, opsets=[("", 21), ("local", 1)]))
        yield f"functions/calls-{count}", model


def ir_versions() -> Models:
    """All sound models in all versions of the format."""
    for name, make in SOUND.items():
        for version in range(1, 15):
            model = make()
            model.ir_version = version
            if version < 3:
                model.ClearField("opset_import")
            yield f"ir-versions/{name}-{version}", model


def tensors() -> Models:
    """Three elements of every type, in every field, in the number that is right and one less."""
    fields = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data", "raw_data")
    kinds = {number: name.lower() for name, number in TensorProto.DataType.items() if number}
    kinds[99] = "unknown"
    for number, kind in kinds.items():
        for field, count in itertools.product(fields, (1, 2, 3, 5, 6, 12, 24, 48)):
            if count in (12, 24, 48) and field != "raw_data":
                continue
            content = {"string_data": [b"1"] * count, "raw_data": bytes(count)}.get(field, [1] * count)
            yield f"tensors/{kind}-{field}-{count}", changed(PLAIN, put(W, tensor(number, [3], **{field: content})))


EXTERNAL_LOCATIONS = {
    "sound": "weights.bin",
    "here": "./weights.bin",
    "in-directory": "directory/weights.bin",
    "through-directory": "directory/../weights.bin",
    "two-dots-in-name": "a..b",
    "empty-location": "",
    "missing": "missing.bin",
    "absolute": "/etc/hostname",
    "parent": "../external/weights.bin",
    "far-parent": "../../weights.bin",
    "directory": "directory",
    "symbolic-link": "link.bin",
    "through-linked-directory": "linked/weights.bin",
    "hard-link": "hard.bin",
    "backslash": "directory\\weights.bin",
    "drive": "c:weights.bin",
    "in-memory": "#weights",
    "dot": ".",
}


def external_files(directory: pathlib.Path) -> None:
    """The data files that the models beside them name."""
    (directory / "directory").mkdir(parents=True)
    for name in ("weights.bin", "a..b", "directory/weights.bin", "directory\\weights.bin", "c:weights.bin", "hard.bin"):
        (directory / name).write_bytes(struct.pack("<4f", 1, 2, 3, 4))
    os.link(directory / "hard.bin", directory / "hard-too.bin")
    os.symlink("weights.bin", directory / "link.bin")
    os.symlink("directory", directory / "linked")


def external() -> Models:
    def model(*entries, kind: int = TensorProto.FLOAT, dims=(4,), **fields) -> ModelProto:
        external = [entry(key, text) for key, text in entries]
        return changed(PLAIN, put(W, tensor(kind, dims, data_location=TensorProto.EXTERNAL, external_data=external, **fields)))

    for name, location in EXTERNAL_LOCATIONS.items():
        yield f"external/{name}", model(("location", location))
    here = ("location", "weights.bin")
    yield "external/no-entries", model()
    yield "external/no-location", model(("offset", "0"))
    yield "external/location-without-value", model(("location", None))
    yield "external/two-locations", model(here, ("location", "directory/weights.bin"))
    yield "external/two-locations-first-missing", model(("location", "missing.bin"), here)
    yield "external/two-locations-last-missing", model(here, ("location", "missing.bin"))
    yield "external/two-locations-first-outside", model(("location", "../weights.bin"), here)
    yield "external/with-raw-data", model(here, raw_data=bytes(16))
    yield "external/with-list", model(here, float_data=[1, 2, 3, 4])
    yield "external/strings", model(here, kind=TensorProto.STRING)
    yield "external/unknown-type", model(here, kind=99)
    yield "external/without-type", model(here, kind=None)
    yield "external/negative-dim", model(here, dims=[-4])
    yield "external/overflow", model(here, dims=[FAR, FAR])
    yield "external/empty", model(here, dims=[0])
    yield "external/range", model(here, ("offset", "0"), ("length", "16"))
    yield "external/offset-no-number", model(here, ("offset", "x"))
    yield "external/offset-negative", model(here, ("offset", "-1"))
    yield "external/offset-beyond", model(here, ("offset", "4096"))
    yield "external/length-other", model(here, ("length", "12"))
    yield "external/too-short", model(here, dims=[5])
    yield "external/odd-key", model(here, ("colour", "blue"))
    yield "external/key-twice", model(here, ("offset", "0"), ("offset", "0"))
    in_attribute = attribute(
        "value", "TENSOR", t=tensor(data_location=TensorProto.EXTERNAL, external_data=[entry("location", "missing.bin")])
    )
    yield "external/missing-in-attribute", changed(CONSTANTS, put("graph.node.0.attribute.0", in_attribute))
    for field in ("values", "indices"):
        found = sparse([0, 3])
        stored = getattr(found, field)
        stored.CopyFrom(
            tensor(stored.data_type, [2], stored.name, data_location=TensorProto.EXTERNAL, external_data=[entry(*here)])
        )
        yield f"external/sparse-{field}", changed(PLAIN, add("graph.sparse_initializer", found))


def all_changes() -> Models:
    for name, make in SOUND.items():
        sound = make()
        yield f"changes/{name}/none", sound
        for place, change in places(sound):
            try:
                yield f"changes/{name}/{place}", changed(sound, change)
            except (TypeError, ValueError):
                # The number does not fit the field.
                continue


# Backend models that are changed, and how often.
CHANGED_CASES = 50
CHANGES_OF_CASE = 30


def backend_changes(cases: pathlib.Path) -> Models:
    paths = sorted(path for path in cases.glob("*/*/model.onnx") if path.stat().st_size < 4096)
    for path in paths[:: len(paths) // CHANGED_CASES][:CHANGED_CASES]:
        model = onnx.load(path)
        changes = list(places(model))
        for place, change in changes[:: max(1, len(changes) // CHANGES_OF_CASE)][:CHANGES_OF_CASE]:
            try:
                yield f"cases/{path.parent.name}/{place}", changed(model, change)
            except (TypeError, ValueError):
                continue


def all_models(cases: pathlib.Path) -> Models:
    for group in (rules, other_bytes, many_functions, ir_versions, tensors, external, operators, all_changes):
        yield from group()
    yield from backend_changes(cases)


def write(cases: pathlib.Path, directory: pathlib.Path) -> list[str]:
    """Writes all models; answers their names."""
    shutil.rmtree(directory, ignore_errors=True)
    external_files(directory / "external")
    names: set[str] = set()
    for name, model in all_models(cases):
        if name in names:
            raise ValueError(f"two models are called {name}")
        names.add(name)
        path = directory / f"{name}.onnx"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString(deterministic=True))
    return sorted(names)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print(f"{len(write(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])))} models")
