"""Write a case for every version of every operator of the standard to disk.

    python version_cases.py OUT [CASES]

It needs the packages of `requirements.txt` and onnxruntime 1.31.1. CASES is what `dump_cases.py` wrote. Without it,
versions that only backend cases show are missing, which the program takes for a failure.
Every case has the layout that `dump_cases.py` documents:

    OUT/version/<domain>.<Operator>-<since>[-<variant>]/model.onnx
    OUT/version/<domain>.<Operator>-<since>[-<variant>]/case.json     {"rtol": ..., "atol": ..., "oracle": ...}
    OUT/version/<domain>.<Operator>-<since>[-<variant>]/test_data_set_0/{input,output}_<m>.pb

A model imports the operator set of its operator at exactly the version that introduced this version of the operator.
Models come from four places: backend cases of that version, backend cases of a newer version whose model is also right
at the old version, the table, and models of these with a type that is new to the version. Expected outputs are those of
the old version, whatever the newer case says:

    case           the outputs of a backend case of exactly this version
    onnxruntime    what onnxruntime gives for this very model
    reference      what the evaluator of the onnx package gives, where it follows this version
    numpy          values that the table computes

Where two of them can tell, they must agree, or `DECIDED` says which is right. The program ends with a summary. It fails
where a version has neither a case nor an entry in `REASONS`, where a model of the table is no case, and where oracles
disagree undecided.
"""

import collections
import json
import pathlib
import sys
import warnings

import numpy as np
import onnx
import onnxruntime
from onnx import checker, defs, helper, numpy_helper

from dump_cases import serialize
from version_cases_notes import NOT_OLDER, REASONS
from version_cases_oracles import ATOL, ORACLES, RTOL, Disagreement, Refusal, answer, brief
from version_cases_sources import (
    backend_cases,
    features_of,
    nodes_of,
    of_backend,
    of_new_types,
    row_candidate,
    split,
    title,
    type_name,
)
from version_cases_table import ROWS

# Of one version, from backend cases.
MOST_CASES = 4


def main(out, cases):
    schemas = {
        (schema.domain, schema.name, schema.since_version): schema for schema in defs.get_all_schemas_with_history()
    }
    found = Cases(out, schemas)
    collect(found, backend_cases(cases) if cases else {}, sorted(schemas))
    summary(found)
    if found.failures:
        sys.exit("\n".join(["failures:", *found.failures]))


def collect(found, backend, keys):
    """All cases of some versions."""
    schemas = found.schemas
    rows = rows_by_version(schemas, found.failures)
    for key in keys:
        for row in rows[key]:
            found.add(key, row.variant, lambda: row_candidate(key, row), found.failures)
        from_backend(found, key, of_backend(key, schemas[key], backend))
        for candidate in list(of_new_types(key, schemas, found.candidates[key])):
            found.add(key, candidate.name, lambda: candidate, found.refused[key])


def rows_by_version(schemas, failures):
    rows = collections.defaultdict(list)
    for row in ROWS:
        for since in row.versions:
            rows[(*split(row.operator), since)].append(row)
    failures += [f"the table has a model of {title(key)}, which does not exist" for key in rows if key not in schemas]
    return rows


def from_backend(found, key, models):
    """Only cases that show something which those before do not."""
    features, count = set(), 0
    for make, case in models:
        new = features_of(case.model, key)
        if NOT_OLDER.search(f"{title(key)}-{case.name}") or new <= features or count == MOST_CASES:
            continue
        if found.add(key, case.name, lambda: make(key, case), found.refused[key]):
            features |= new
            count += 1


class Cases:
    """What is written, and what went wrong."""

    def __init__(self, out, schemas):
        self.out, self.schemas = out, schemas
        self.candidates = collections.defaultdict(list)
        self.oracles = collections.defaultdict(list)
        self.refused = collections.defaultdict(list)
        self.failures = []

    def add(self, key, name, make, faults):
        """Writes a case, or says why the model is none."""
        try:
            candidate = make()
            check_types(candidate.model, key, self.schemas[key])
            check_shapes(candidate.model, key, self.schemas[key])
            oracle, outputs, model = answer(key, candidate)
            checker.check_model(model, full_check=not candidate.loose)
            self.keep(key, candidate, oracle, outputs, model)
        except Exception as error:  # many models of newer versions are wrong at older ones, in many ways
            where = self.failures if isinstance(error, Disagreement) else faults
            where.append(f"{title(key)} {name}: {type(error).__name__}: {brief(error)}")
            return False
        self.candidates[key].append(candidate)
        self.oracles[key].append(oracle)
        return True

    def keep(self, key, candidate, oracle, outputs, model):
        tolerances = {"rtol": candidate.rtol or RTOL, "atol": candidate.atol or ATOL, "oracle": oracle}
        write(self.out / "version" / candidate.name, candidate.inputs, outputs, model, tolerances)


def write(directory, inputs, outputs, model, facts):
    """One case; `facts` go into its `case.json`."""
    files = {
        "model.onnx": model.SerializeToString(deterministic=True),
        "case.json": json.dumps(facts).encode() + b"\n",
    }
    for role, values, infos in (
        ("input", inputs, model.graph.input),
        ("output", outputs, model.graph.output),
    ):
        for m, value in enumerate(values):
            files[f"test_data_set_0/{role}_{m}.pb"] = content(value, infos[m])
    (directory / "test_data_set_0").mkdir(parents=True)
    for name, data in files.items():
        (directory / name).write_bytes(data)


def content(value, info):
    kind = info.type
    if kind.HasField("map_type"):
        return map_message(value, kind.map_type).SerializeToString()
    if kind.HasField("sequence_type") and kind.sequence_type.elem_type.HasField("map_type"):
        inner = kind.sequence_type.elem_type.map_type
        message = onnx.SequenceProto(name=info.name, elem_type=onnx.SequenceProto.MAP)
        message.map_values.extend(map_message(found, inner) for found in value)
        return message.SerializeToString()
    return serialize(value, info)


def map_message(value, kind):
    """`numpy_helper.from_dict` takes the key "a" for the name of a type, and floats for doubles."""
    message = onnx.MapProto(key_type=kind.key_type)
    keys = message.string_keys if kind.key_type == onnx.TensorProto.STRING else message.keys
    keys.extend(key.encode() if isinstance(key, str) else key for key in value)
    element = helper.tensor_dtype_to_np_dtype(kind.value_type.tensor_type.elem_type)
    message.values.elem_type = onnx.SequenceProto.TENSOR
    message.values.tensor_values.extend(numpy_helper.from_array(np.array(found, element)) for found in value.values())
    return message


def check_types(model, key, schema):
    """The checker does not look at which types this version takes."""
    known = {info.name: type_name(info.type) for info in model.graph.input}
    for node in nodes_of(model, key):
        for m, name in enumerate(node.input):
            formal = schema.inputs[min(m, len(schema.inputs) - 1)]
            if known.get(name) and known[name] not in formal.types:
                raise Refusal(f"input {m} takes no {known[name]}")


def check_shapes(model, key, schema):
    """An operator with the attribute `broadcast` stretches nothing without it, which nothing else looks at."""
    for node in nodes_of(model, key):
        dims = [
            [dim.dim_value for dim in info.type.tensor_type.shape.dim]
            for name in node.input
            for info in model.graph.input
            if info.name == name
        ]
        if "broadcast" in schema.attributes and not any(found.name == "broadcast" for found in node.attribute):
            if any(shape != dims[0] for shape in dims) and key[1] != "Gemm":
                raise Refusal("shapes differ, and nothing says broadcast")


def summary(found):
    """Printed; what is missing without a reason is a failure."""
    first = [min(oracles, key=ORACLES.index) for oracles in found.oracles.values() if oracles]
    by_version, by_case = collections.Counter(first), collections.Counter(sum(found.oracles.values(), []))
    print(f"{len(found.schemas)} versions, {by_version.total()} with a case, {by_case.total()} cases")
    print("cases by oracle:", ", ".join(f"{by_case[oracle]} {oracle}" for oracle in ORACLES))
    print("versions by their first oracle:", ", ".join(f"{by_version[oracle]} {oracle}" for oracle in ORACLES))
    for key, schema in sorted(found.schemas.items()):
        if found.oracles[key]:
            continue
        reason = "deprecated, no model of it is valid" if schema.deprecated else REASONS.get(key)
        if reason:
            print(f"{title(key)}: {reason}")
        else:
            found.failures += [f"{title(key)} has no case", *(f"    {fault}" for fault in found.refused[key])]


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    warnings.simplefilter("ignore")
    onnxruntime.set_default_logger_severity(4)
    main(*map(pathlib.Path, sys.argv[1:]), *[None] * (3 - len(sys.argv)))
