"""Where `version_cases.py` gets its models from: the table, the backend cases, and models of new types."""

import collections
import json

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper, parser

from version_cases_notes import NOT_NARROW, OTHERWISE, RANDOM

# Backend cases of these kinds hold one operator, or are small.
KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted")
# Larger data costs time and shows nothing more.
MOST_BYTES = 200_000
# Versions of ai.onnx that were current with a version of another operator set.
BESIDE = {
    ("ai.onnx.ml", 1): 8,
    ("ai.onnx.ml", 2): 10,
    ("ai.onnx.ml", 3): 15,
    ("ai.onnx.ml", 4): 19,
    ("ai.onnx.ml", 5): 21,
    ("ai.onnx.preview", 1): 26,
    ("ai.onnx.preview.training", 1): 12,
}
# Of the types that are new to an operator, the first of each line is shown.
SHOWN_TYPES = (
    ("bfloat16",),
    ("int32", "int8", "uint8"),
    ("float8e4m3fn", "int4", "float4e2m1", "float8e8m0", "int2"),
)
# Types that numpy and onnxruntime calculate with.
NATIVE = ("int32", "int8", "uint8")

# A model with its inputs. `expected` is a list of values, or a function of the inputs, or nothing. `wide` is the same
# model of float, whose outputs become the expected ones. `loose` models break rules of today's checker.
Candidate = collections.namedtuple("Candidate", "name model inputs expected rtol atol loose wide", defaults=[None] * 5)
Backend = collections.namedtuple("Backend", "name directory model rtol atol")


def split(operator):
    domain, _, name = operator.rpartition(".")
    return domain, name


def title(key):
    domain, name, since = key
    return f"{domain or 'ai.onnx'}.{name}-{since}"


def type_name(kind):
    which = kind.WhichOneof("value")
    if which == "tensor_type":
        return f"tensor({element_name(kind.tensor_type.elem_type)})"
    if which == "sequence_type":
        return f"seq({type_name(kind.sequence_type.elem_type)})"
    if which == "optional_type":
        return f"optional({type_name(kind.optional_type.elem_type)})"
    if which == "map_type":
        return f"map({element_name(kind.map_type.key_type)},{type_name(kind.map_type.value_type)})"
    return None


def element_name(number):
    return onnx.TensorProto.DataType.Name(number).lower()


# Models of the table.


def row_candidate(key, row):
    domain, _, since = key
    versions = {"": BESIDE[domain, since], domain: since} if domain else {"": since}
    types = row.types or {}
    inputs = ", ".join(f"{types.get(name) or notation(value)} {name}" for name, value in row.inputs.items())
    outputs = parser.parse_graph(f"g ({inputs}) => () {{ {row.text} }}").node[-1].output
    named = ", ".join(f"{types.get(name, '')} {name}" for name in outputs if name)
    imports = ", ".join(f'"{name}": {version}' for name, version in versions.items())
    head = f"<ir_version: {ir_version(versions)}, opset_import: [{imports}]>"
    model = parser.parse_model(f"{head} g ({inputs}) => ({named}) {{ {row.text} }}")
    for attribute, value in (row.attributes or {}).items():
        model.graph.node[-1].attribute.append(helper.make_attribute(attribute, value))
    name = f"{title(key)}-{row.variant}" if row.variant else title(key)
    inputs = list(row.inputs.values())
    return Candidate(name, model, inputs, row.expected, row.rtol, row.atol, row.loose)


def notation(value):
    kind = element_name(helper.np_dtype_to_tensor_dtype(value.dtype))
    return f"{kind}[{','.join(map(str, value.shape))}]" if value.shape else kind


def ir_version(versions):
    opsets = [helper.make_opsetid(name, version) for name, version in versions.items()]
    return helper.find_min_ir_version_for(opsets, ignore_unknown=True)


# Models of the backend cases.


def backend_cases(directory):
    """Lists of cases by domain and operator."""
    found = collections.defaultdict(list)
    for kind in KINDS:
        for path in sorted((directory / kind).glob("*/model.onnx")):
            size = sum(file.stat().st_size for file in path.parent.rglob("*.*") if file.is_file())
            if "_expanded" in path.parent.name or size > MOST_BYTES:
                continue
            limits = json.loads((path.parent / "case.json").read_text())
            model = onnx.load(path)
            case = Backend(path.parent.name.removeprefix("test_"), path.parent, model, limits["rtol"], limits["atol"])
            for operator in {(node.domain, node.op_type) for node in model.graph.node}:
                found[operator].append(case)
    return found


def of_backend(key, schema, backend):
    """Cases of this version; if there are none, single nodes of newer ones to be given the older operator set."""
    domain, name, since = key
    ranked = sorted(backend.get((domain, name), []), key=lambda case: rank(case.model, key))
    ranked = [case for case in ranked if not RANDOM.search(case.name)]
    if schema.deprecated:
        return []
    exact = [case for case in ranked if has_versions_of(case.model, domain, since)]
    alone = [case for case in exact if len(case.model.graph.node) == 1]
    newer = [case for case in ranked if len(case.model.graph.node) == 1 and opset(case.model, domain) > since]
    return [
        *((same_version, case) for case in alone),
        *((older_version, case) for case in newer if not alone and key not in OTHERWISE),
        *((same_version, case) for case in exact if case not in alone),
    ]


def has_versions_of(model, domain, since):
    """Whether the operators mean the same with the operator set that is asked for."""
    found = opset(model, domain)
    return found >= since and all(
        defs.has(node.op_type, since, node.domain)
        and defs.get_schema(node.op_type, since, node.domain).since_version
        == defs.get_schema(node.op_type, found, node.domain).since_version
        for node in model.graph.node
        if node.domain == domain
    )


def rank(model, key):
    """Small models of ordinary types first, with many attributes."""
    element = model.graph.input[0].type.tensor_type.elem_type if model.graph.input else onnx.TensorProto.FLOAT
    attributes = max(len(node.attribute) for node in nodes_of(model, key))
    return len(model.graph.node), element != onnx.TensorProto.FLOAT, element, -attributes


def features_of(model, key):
    """What a further case should add to."""
    first = nodes_of(model, key)[0]
    kinds = {element_name(value.type.tensor_type.elem_type) for value in model.graph.input[:1]}
    counts = {len([name for name in first.input if name]), -len([name for name in first.output if name])}
    return kinds | counts | {attribute.name for attribute in first.attribute} | {len(model.graph.node) > 1}


def nodes_of(model, key):
    return [node for node in model.graph.node if (node.domain, node.op_type) == key[:2]]


def opset(model, domain):
    return max((found.version for found in model.opset_import if found.domain == domain), default=0)


def same_version(key, case):
    return older_version(key, case)._replace(expected=read_values(case, "output", case.model.graph.output))


def older_version(key, case):
    """With the operator set that brought this version."""
    domain, _, since = key
    if opset(case.model, domain) == since:
        return backend_candidate(key, case, case.model)
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for found in model.opset_import:
        if found.domain == domain:
            found.version = since
        elif found.domain == "":
            found.version = BESIDE[domain, since]
    model.ir_version = ir_version({found.domain: found.version for found in model.opset_import})
    return backend_candidate(key, case, model)


def backend_candidate(key, case, model):
    inputs = read_values(case, "input", model.graph.input)
    return Candidate(f"{title(key)}-{case.name}", model, inputs, None, case.rtol, case.atol)


def read_values(case, role, infos):
    """Initializers of old models are inputs as well and have no file."""
    data = case.directory / "test_data_set_0"
    return [
        read_value((data / f"{role}_{m}.pb").read_bytes(), info.type)
        for m, info in enumerate(infos)
        if (data / f"{role}_{m}.pb").exists()
    ]


def read_value(content, kind):
    which = kind.WhichOneof("value")
    if not content:
        return None
    if which == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(content))
    if which == "map_type":
        return numpy_helper.to_dict(onnx.MapProto.FromString(content))
    if which == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(content))
    return numpy_helper.to_array(onnx.TensorProto.FromString(content))


# Models of the types that a version brought.


def of_new_types(key, schemas, written):
    """Single nodes of float that are cases of this version, with one of its new types."""
    schema = schemas[key]
    earlier = [other for other in schemas if other[:2] == key[:2] and other[2] < key[2] and schemas[other].inputs]
    if not schema.inputs or not earlier or key in NOT_NARROW:
        return
    fresh = set(schema.inputs[0].types) - set(schemas[max(earlier)].inputs[0].types)
    shown = {type_name(candidate.model.graph.input[0].type) for candidate in written if candidate.model.graph.input}
    bases = [candidate for candidate in written if is_plain(candidate.model)]
    for group in SHOWN_TYPES:
        kind = next((kind for kind in group if f"tensor({kind})" in fresh), None)
        if kind and bases and f"tensor({kind})" not in shown:
            yield of_type(key, schema, bases[0], kind)


def is_plain(model):
    return (
        len(model.graph.node) == 1
        and len(model.graph.input) > 0
        and model.graph.input[0].name == model.graph.node[0].input[0]
        and type_name(model.graph.input[0].type) == "tensor(float)"
    )


def of_type(key, schema, base, kind):
    number = onnx.TensorProto.DataType.Value(kind.upper())
    model = onnx.ModelProto()
    model.CopyFrom(base.model)
    variable = schema.inputs[0].type_str
    names = {
        name
        for m, name in enumerate(model.graph.node[0].input)
        if schema.inputs[min(m, len(schema.inputs) - 1)].type_str == variable
    }
    inputs, wide = [], []
    for info, value in zip(model.graph.input, base.inputs):
        if info.name in names and type_name(info.type) == "tensor(float)":
            info.type.tensor_type.elem_type = number
            value = (np.abs(value) if kind.startswith("u") else value).astype(helper.tensor_dtype_to_np_dtype(number))
        inputs.append(value)
        wide.append(value.astype(np.float32) if info.name in names else value)
    for info in model.graph.output:
        info.ClearField("type")
    name = f"{title(key)}-{kind}"
    if kind in NATIVE:
        return Candidate(name, model, inputs, rtol=base.rtol, atol=base.atol)
    computed = base.expected if callable(base.expected) else None
    # Two results of 8 binary digits differ by a 128th where they are rounded to different sides.
    return Candidate(name, model, inputs, rtol=2e-2, atol=1e-2, wide=base._replace(inputs=wide, expected=computed))
