"""Write the backend test cases of the installed onnx wheel to disk.

    python dump_cases.py OUT

Every case becomes a directory that any runner can read without Python:

    OUT/<kind>/<case>/model.onnx
    OUT/<kind>/<case>/case.json                                  {"rtol": ..., "atol": ...}
    OUT/<kind>/<case>/test_data_set_<n>/{input,output}_<m>.pb    one serialized value each

Kinds: `node` and `model` exist only in the wheel's memory; `simple`, `pytorch-converted` and
`pytorch-operator` are directories inside the wheel and are copied as they are; `real` are the nine light
networks, which come with outputs only: their inputs are made the way the wheel's own runner makes them.

A value is a TensorProto, or a SequenceProto, MapProto or OptionalProto where the model's type says so.
An input that is left out is an empty file.

OUT/wheel_files.txt lists every .onnx and .pb file of the wheel itself, for checks of the file format.
"""

import collections
import json
import pathlib
import shutil
import sys

import numpy as np
import onnx
from onnx import OptionalProto, numpy_helper
from onnx.backend.test import loader
from onnx.backend.test.case.model import collect_testcases as model_cases_in_memory
from onnx.backend.test.runner import Runner

DATA = pathlib.Path(loader.DATA_DIR)
KINDS_ON_DISK = ("simple", "pytorch-converted", "pytorch-operator")


def main(out):
    failures = []
    for write, kind, case in [*cases_in_memory(), *cases_on_disk(), *light_networks()]:
        directory = out / kind / case.name
        try:
            directory.mkdir(parents=True)
            write(directory, case)
            tolerances = {"rtol": case.rtol, "atol": case.atol}
            (directory / "case.json").write_text(json.dumps(tolerances) + "\n")
        except Exception as error:  # one bad case must not hide the others
            shutil.rmtree(directory, ignore_errors=True)
            failures.append(f"{kind}/{case.name}: {type(error).__name__}: {error}")

    wheel = pathlib.Path(onnx.__file__).parent
    files = sorted(p for suffix in ("onnx", "pb") for p in wheel.rglob(f"*.{suffix}"))
    (out / "wheel_files.txt").write_text("".join(f"{p}\n" for p in files))

    counts = collections.Counter(p.parent.parent.name for p in out.glob("*/*/model.onnx"))
    print(f"{counts.total()} cases:", ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())))
    if failures:
        sys.exit("\n".join(["not written:", *failures]))


def cases_in_memory():
    for case in loader.load_model_tests(kind="node"):
        yield write_from_memory, "node", case
    # Some model cases are also carried as files; those win.
    carried = {p.name for p in (DATA / "simple").iterdir()}
    for case in model_cases_in_memory():
        if case.kind == "simple" and case.name not in carried:
            yield write_from_memory, "model", case


def cases_on_disk():
    for kind in KINDS_ON_DISK:
        for case in loader.load_model_tests(kind=kind):
            yield copy_from_wheel, kind, case


def light_networks():
    for case in loader.load_model_tests(kind="real"):
        yield write_light_network, "real", case


def write_from_memory(directory, case):
    (directory / "model.onnx").write_bytes(case.model.SerializeToString())
    graph = case.model.graph
    for n, (inputs, outputs) in enumerate(case.data_sets):
        data = directory / f"test_data_set_{n}"
        data.mkdir()
        write_values(data, "input", inputs, graph.input)
        write_values(data, "output", outputs, graph.output)


def copy_from_wheel(directory, case):
    for source in pathlib.Path(case.model_dir).rglob("*"):
        if source.suffix in (".onnx", ".pb"):
            target = directory / source.relative_to(case.model_dir)
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(source, target)


def write_light_network(directory, case):
    source = DATA / "light" / pathlib.PurePosixPath(case.url).name
    shutil.copyfile(source, directory / "model.onnx")
    data = directory / "test_data_set_0"
    data.mkdir()
    graph = onnx.load(source).graph
    weights = {tensor.name for tensor in graph.initializer}
    fed = [info for info in graph.input if info.name not in weights]
    write_values(data, "input", [Runner.generate_dummy_data(info) for info in fed], fed)
    for m, output in enumerate(sorted(source.parent.glob(f"{source.stem}_output_*.pb"))):
        shutil.copyfile(output, data / f"output_{m}.pb")


def write_values(directory, role, values, infos):
    for m, value in enumerate(values):
        (directory / f"{role}_{m}.pb").write_bytes(serialize(value, infos[m]))


def serialize(value, info):
    kind = info.type.WhichOneof("value")
    if hasattr(value, "SerializeToString"):
        message = value
    elif kind == "sequence_type":
        message = numpy_helper.from_list(list(value), info.name)
    elif kind == "map_type":
        message = numpy_helper.from_dict(value, info.name)
    elif kind == "optional_type":
        message = numpy_helper.from_optional(value, info.name, optional_kind(value, info))
    elif value is None:
        return b""
    else:
        message = numpy_helper.from_array(np.asarray(value), info.name)
    return message.SerializeToString()


def optional_kind(value, info):
    if value is None:
        return OptionalProto.UNDEFINED
    element = info.type.optional_type.elem_type.WhichOneof("value")
    return OptionalProto.SEQUENCE if element == "sequence_type" else OptionalProto.TENSOR


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))
